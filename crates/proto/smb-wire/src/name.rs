//! Names as they are on the wire: UTF-16LE, not always well formed.

use std::fmt;

/// A name of UTF-16LE code units. Unpaired surrogates, and even an odd last byte, are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Bytes as a name.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether there is nothing.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The code units. An odd last byte is left out.
    pub fn units(self) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator + Clone + 'a {
        let (pairs, _) = self.0.as_chunks::<2>();
        pairs.iter().map(|pair| u16::from_le_bytes(*pair))
    }

    /// Whether the name is the UTF-16 of `text`.
    pub fn eq_str(self, text: &str) -> bool {
        self.0.len().is_multiple_of(2) && self.units().eq(text.encode_utf16())
    }

    /// Compares without regard to case, code unit by code unit as file systems do: characters beyond the basic plane, and
    /// those whose upper case is several characters, compare as they are. A server's own table may differ in rare letters.
    pub fn eq_ignore_case(self, other: Name<'_>) -> bool {
        self.0.len() == other.0.len()
            && self.0.len().is_multiple_of(2)
            && self.units().map(upper).eq(other.units().map(upper))
    }

    /// The name in upper case, as bytes: equal for names that [`Self::eq_ignore_case`] finds equal.
    pub fn to_upper(self) -> Vec<u8> {
        let mut upper_case: Vec<u8> = self.units().flat_map(|unit| upper(unit).to_le_bytes()).collect();
        upper_case.extend_from_slice(self.0.as_chunks::<2>().1);
        upper_case
    }

    /// The parts between backslashes.
    pub fn components(self) -> impl Iterator<Item = Name<'a>> {
        let mut rest = Some(self.0);
        std::iter::from_fn(move || {
            let bytes = rest?;
            match position(bytes, b'\\') {
                Some(at) => {
                    rest = bytes.get(at + 2..);
                    bytes.get(..at).map(Name)
                }
                None => {
                    rest = None;
                    Some(Name(bytes))
                }
            }
        })
    }

    /// What is before the last backslash, and what is after it. Without a backslash the first is empty.
    pub fn split_last(self) -> (Name<'a>, Name<'a>) {
        let separator = u16::from(b'\\');
        let units = self.0.len() / 2;
        match self.units().rev().position(|unit| unit == separator) {
            Some(after) => {
                let at = (units - after - 1) * 2;
                let (folder, rest) = self.0.split_at_checked(at).unwrap_or((self.0, &[]));
                (Name(folder), Name(rest.get(2..).unwrap_or(&[])))
            }
            None => (Name(&[]), self),
        }
    }

    /// Whether the name has a colon, so that it names a stream.
    pub fn has_stream(self) -> bool {
        position(self.0, b':').is_some()
    }

    /// For people only: what is not well formed becomes a replacement character.
    pub fn to_string_lossy(self) -> String {
        char::decode_utf16(self.units()).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }
}

/// Names are shown so that no character of theirs can act on a terminal.
impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string_lossy())
    }
}

/// UTF-16LE bytes of a text.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Upper case of a code unit, where that is one code unit.
fn upper(unit: u16) -> u16 {
    let Some(c) = char::from_u32(u32::from(unit)) else { return unit };
    let mut all = c.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => u16::try_from(u32::from(one)).unwrap_or(unit),
        _ => unit,
    }
}

/// Byte offset of an ASCII character.
fn position(bytes: &[u8], character: u8) -> Option<usize> {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().position(|pair| *pair == [character, 0]).map(|at| at * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_ignored_where_one_unit_maps_to_one() {
        let [a, b] = ["Übung\\Datei.TXT", "üBUNG\\dATEI.txt"].map(utf16);
        assert!(Name::new(&a).eq_ignore_case(Name::new(&b)));
        assert_eq!(Name::new(&a).to_upper(), Name::new(&b).to_upper());
        assert_ne!(Name::new(&a), Name::new(&b));
        let [a, b] = ["straße", "STRASSE"].map(utf16);
        assert!(!Name::new(&a).eq_ignore_case(Name::new(&b)));
    }

    #[test]
    fn malformed_names_are_kept_and_compared() {
        let lone = [0x00, 0xd8, b'a', 0];
        assert_eq!(Name::new(&lone).to_string_lossy(), "\u{fffd}a");
        assert!(Name::new(&lone).eq_ignore_case(Name::new(&[0x00, 0xd8, b'A', 0])));
        let odd = [b'a', 0, b'b'];
        assert_eq!(Name::new(&odd).to_upper(), [b'A', 0, b'b']);
        assert!(!Name::new(&odd).eq_str("a"));
        assert!(!Name::new(&odd).eq_ignore_case(Name::new(&odd)));
    }

    #[test]
    fn paths_are_split() {
        let path = utf16("a\\日本\\c:stream");
        let name = Name::new(&path);
        let parts: Vec<String> = name.components().map(Name::to_string_lossy).collect();
        assert_eq!(parts, ["a", "日本", "c:stream"]);
        let (folder, file) = name.split_last();
        assert!(folder.eq_str("a\\日本") && file.eq_str("c:stream"));
        assert!(file.has_stream() && !folder.has_stream());
        let (none, whole) = Name::new(&path[..2]).split_last();
        assert!(none.is_empty() && whole.eq_str("a"));
    }
}
