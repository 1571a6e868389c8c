//! Names as they stand in tokens, and how they are compared.

use crate::limits::NAME_UNITS_MAX;

/// A name as it was sent: UTF-16 code units, which need not be valid UTF-16.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WideName(Vec<u16>);

impl WideName {
    /// Reads little-endian UTF-16; `None` when the length is odd or above the limit.
    pub(crate) fn from_utf16le(bytes: &[u8]) -> Option<Self> {
        let (units, rest) = bytes.as_chunks::<2>();
        if !rest.is_empty() || units.len() > NAME_UNITS_MAX {
            return None;
        }
        Some(Self(units.iter().map(|&unit| u16::from_le_bytes(unit)).collect()))
    }

    /// Reads a name in the client's own 8-bit character set; only its ASCII part is known, so others are refused.
    pub(crate) fn from_oem(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.is_ascii() && bytes.len() <= NAME_UNITS_MAX;
        fits.then(|| Self(bytes.iter().map(|&byte| u16::from(byte)).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Text for people and for lookups; unpaired surrogates become U+FFFD.
    pub(crate) fn text(&self) -> String {
        String::from_utf16_lossy(&self.0)
    }

    pub(crate) fn utf16le(&self) -> Vec<u8> {
        self.0.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    /// The ways in which clients write this name in capitals, the commonest first, each once.
    ///
    /// MS-NLMP 3.3.2 asks for capitals and does not say whose: Windows and Samba map each code unit by a table of
    /// their own, others use their language's function or leave letters outside ASCII alone.
    pub(crate) fn capitals(&self) -> Vec<WideName> {
        let simple = Self(self.0.iter().map(|&unit| capital_unit(unit)).collect());
        let ascii = Self(
            self.0
                .iter()
                .map(|&unit| if (0x61..=0x7a).contains(&unit) { unit - 0x20 } else { unit })
                .collect(),
        );
        let full = Self(self.text().to_uppercase().encode_utf16().collect());
        let mut forms = vec![simple];
        for form in [ascii, full] {
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }
}

/// The form in which user, domain and service names are compared: two names that differ in case alone are equal in it.
pub fn fold(name: &str) -> String {
    name.chars().map(capital).collect()
}

/// Capital of one code unit; a surrogate, or a letter whose capital is not one code unit, stays as it is.
fn capital_unit(unit: u16) -> u16 {
    let Some(letter) = char::from_u32(u32::from(unit)) else { return unit };
    u16::try_from(u32::from(capital(letter))).unwrap_or(unit)
}

/// Capital of one letter, where it is one letter.
fn capital(letter: char) -> char {
    let mut capitals = letter.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(single), None) => single,
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> WideName {
        WideName(text.encode_utf16().collect())
    }

    #[test]
    fn capitals_are_tried_in_each_known_way_once() {
        assert_eq!(wide("alice").capitals().iter().map(WideName::text).collect::<Vec<_>>(), ["ALICE"]);
        let forms: Vec<_> = wide("groß").capitals().iter().map(WideName::text).collect();
        assert_eq!(forms, ["GROß", "GROSS"]);
        let forms: Vec<_> = wide("zoë").capitals().iter().map(WideName::text).collect();
        assert_eq!(forms, ["ZOË", "ZOë"]);
    }

    #[test]
    fn unpaired_surrogates_survive() {
        let name = WideName(vec![0xd800, u16::from(b'a')]);
        assert_eq!(name.capitals()[0], WideName(vec![0xd800, u16::from(b'A')]));
        assert_eq!(name.utf16le(), [0x00, 0xd8, b'a', 0]);
    }
}
