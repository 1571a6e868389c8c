//! MIT keytab files, version 0x502.
//!
//! All numbers are big-endian. After two bytes of version come entries, each after a signed 32-bit size; a negative
//! size is a hole left by a deleted entry. An entry has: count of components (16 bits), realm and components (each a
//! 16-bit length and bytes), name type and time (32 bits each), key version (8 bits), encryption type (16 bits), key
//! (16-bit length and bytes), and, where room is left, the key version in 32 bits, which wins unless it is zero.

use crate::limits::{COMPONENTS_MAX, KEYTAB_BYTES_MAX, KEYTAB_ENTRIES_MAX};
use crate::{EncryptionType, FormatError, Place, Principal, ServiceKey};
use zeroize::Zeroizing;

/// Content of one keytab.
#[derive(Debug, Default)]
pub struct Keytab {
    /// Keys of supported encryption types, in the order of the file.
    pub keys: Vec<ServiceKey>,
    /// Entries of other encryption types.
    pub skipped: usize,
}

/// Reads a whole keytab.
pub fn parse(bytes: &[u8]) -> Result<Keytab, FormatError> {
    if bytes.len() > KEYTAB_BYTES_MAX {
        return Err(FormatError {
            place: Place::File,
            problem: "the keytab is too large",
            expected: "at most 32 MiB",
        });
    }
    let mut fields = Fields { bytes, at: 0 };
    match fields.take(2, "the version is cut short", "a keytab that starts with the bytes 05 02")? {
        [5, 2] => {}
        _ => {
            return Err(FormatError {
                place: Place::Offset(0),
                problem: "this is not a keytab of version 0x502",
                expected: "a keytab that starts with the bytes 05 02",
            });
        }
    }
    let mut keytab = Keytab::default();
    while fields.at < bytes.len() {
        let start = fields.at;
        let size =
            i32::from_be_bytes(fields.array("the size of an entry is cut short", "four bytes of size")?);
        if size == 0 {
            break; // The end, to those who write files in blocks.
        }
        if keytab.keys.len() + keytab.skipped >= KEYTAB_ENTRIES_MAX {
            return Err(error(start, "there are too many entries", "at most 300,000 entries"));
        }
        let length = size.unsigned_abs() as usize;
        let body = fields.take(length, "an entry is cut short", "as many bytes as the entry's size says")?;
        if size > 0 {
            match entry(Fields { bytes: body, at: 0 }, start + 4)? {
                Some(key) => keytab.keys.push(key),
                None => keytab.skipped += 1,
            }
        }
    }
    Ok(keytab)
}

/// One entry whose body starts at `offset` of the file; `None` when its encryption type is not supported.
fn entry(mut fields: Fields<'_>, offset: usize) -> Result<Option<ServiceKey>, FormatError> {
    fields.entry().map_err(|error| match error.place {
        Place::Offset(at) => FormatError { place: Place::Offset(offset + at), ..error },
        _ => error,
    })
}

fn error(at: usize, problem: &'static str, expected: &'static str) -> FormatError {
    FormatError { place: Place::Offset(at), problem, expected }
}

/// Reads fields one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(
        &mut self,
        count: usize,
        problem: &'static str,
        expected: &'static str,
    ) -> Result<&'a [u8], FormatError> {
        let end = self.at.saturating_add(count);
        let taken = self.bytes.get(self.at..end).ok_or_else(|| error(self.at, problem, expected))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(
        &mut self,
        problem: &'static str,
        expected: &'static str,
    ) -> Result<[u8; N], FormatError> {
        let at = self.at;
        self.take(N, problem, expected)?.try_into().map_err(|_| error(at, problem, expected))
    }

    fn u16(&mut self, problem: &'static str) -> Result<u16, FormatError> {
        self.array(problem, "two bytes").map(u16::from_be_bytes)
    }

    /// Bytes after their 16-bit length.
    fn counted(&mut self, problem: &'static str) -> Result<&'a [u8], FormatError> {
        let length = self.u16(problem)?;
        self.take(usize::from(length), problem, "as many bytes as its length says")
    }

    fn text(&mut self, problem: &'static str) -> Result<String, FormatError> {
        let at = self.at;
        let bytes = self.counted(problem)?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| error(at, "a name is not text", "a name in UTF-8"))
    }

    fn entry(&mut self) -> Result<Option<ServiceKey>, FormatError> {
        let count = usize::from(self.u16("the count of name components is cut short")?);
        if count == 0 || count > COMPONENTS_MAX {
            return Err(error(0, "the count of name components is wrong", "one to eight components"));
        }
        let realm = self.text("the realm is cut short")?;
        let components =
            (0..count).map(|_| self.text("a name component is cut short")).collect::<Result<_, _>>()?;
        self.take(8, "the name type and time are cut short", "eight bytes")?;
        let [short_version] = self.array("the key version is cut short", "one byte")?;
        let number = self.u16("the encryption type is cut short")?;
        let key_at = self.at;
        let key = self.counted("the key is cut short")?;
        let long_version = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let version = match long_version.map(|bytes| u32::from_be_bytes(*bytes)) {
            Some(version) if version != 0 => version,
            _ => u32::from(short_version),
        };
        let Some(encryption) = EncryptionType::from_number(i64::from(number)) else { return Ok(None) };
        let principal = Principal { components, realm };
        let key = ServiceKey::new(principal, version, encryption, Zeroizing::new(key.to_vec()));
        let wrong = "the key's length is not that of its encryption type";
        key.map(Some)
            .ok_or_else(|| error(key_at, wrong, "16 bytes for types 17, 19 and 23, 32 for 18 and 20"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn body(components: &[&str], number: u16, key: &[u8], version: u8, tail: &[u8]) -> Vec<u8> {
        let mut body = (components.len() as u16).to_be_bytes().to_vec();
        body.extend(counted(b"WAN.TEST"));
        components.iter().for_each(|component| body.extend(counted(component.as_bytes())));
        body.extend([0; 8]);
        body.push(version);
        body.extend(number.to_be_bytes());
        body.extend(counted(key));
        body.extend(tail);
        body
    }

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![5, 2];
        for entry in entries {
            file.extend((entry.len() as i32).to_be_bytes());
            file.extend(entry);
        }
        file
    }

    #[test]
    fn versions_of_eight_and_of_thirty_two_bits_are_read() {
        let entry = |version, tail: &[u8]| body(&["cifs", "files"], 17, &[1; 16], version, tail);
        let file = file(&[entry(3, &[]), entry(3, &[0, 0, 1, 3]), entry(9, &[0; 4]), entry(4, &[1, 2])]);
        let versions: Vec<_> = parse(&file).unwrap().keys.iter().map(|key| key.version).collect();
        assert_eq!(versions, [3, 259, 9, 4]);
    }

    #[test]
    fn several_principals_holes_and_unknown_types_are_read() {
        let mut bytes = file(&[body(&["cifs", "files"], 18, &[1; 32], 1, &[])]);
        bytes.extend((-5i32).to_be_bytes());
        bytes.extend([9; 5]);
        bytes.extend(
            &file(&[body(&["FILES$"], 23, &[2; 16], 2, &[]), body(&["FILES$"], 3, &[2; 8], 2, &[])])[2..],
        );
        bytes.extend([0; 4]);
        bytes.extend(b"what follows the end");
        let keytab = parse(&bytes).unwrap();
        let names: Vec<_> = keytab.keys.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "cifs/files@WAN.TEST, version 1, aes256-cts-hmac-sha1-96",
                "FILES$@WAN.TEST, version 2, rc4-hmac"
            ]
        );
        assert_eq!(keytab.skipped, 1);
        assert!(parse(&[5, 2]).unwrap().keys.is_empty());
    }

    #[test]
    fn errors_say_where_and_what() {
        let told = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert_eq!(
            told(b""),
            "at byte 0: the version is cut short; expected a keytab that starts with the bytes 05 02"
        );
        assert!(told(b"\x05\x01").starts_with("at byte 0: this is not a keytab of version 0x502"));
        assert!(told(&[5, 2, 0]).starts_with("at byte 2: the size of an entry is cut short"));
        assert!(told(&[5, 2, 0, 0, 0, 9, 1]).starts_with("at byte 6: an entry is cut short"));
        assert!(told(&[5, 2, 0x80, 0, 0, 0]).starts_with("at byte 6: an entry is cut short"));
        let short = file(&[body(&["a"], 18, &[1; 16], 1, &[])]);
        let problem = "at byte 32: the key's length is not that of its encryption type";
        assert_eq!(
            told(&short),
            format!("{problem}; expected 16 bytes for types 17, 19 and 23, 32 for 18 and 20")
        );
        assert!(told(&file(&[vec![0, 0]])).starts_with("at byte 6: the count of name components is wrong"));
        let no_text = file(&[[&[0u8, 1][..], &counted(b"R"), &counted(&[0xff])].concat()]);
        assert!(told(&no_text).starts_with("at byte 11: a name is not text"));
        assert!(
            parse(&vec![0; KEYTAB_BYTES_MAX + 1])
                .unwrap_err()
                .to_string()
                .starts_with("the keytab is too large")
        );
    }

    #[test]
    fn a_file_cut_short_anywhere_is_an_error_or_ends_after_an_entry() {
        let bytes =
            file(&[body(&["cifs", "files"], 18, &[1; 32], 1, &[]), body(&["x"], 17, &[1; 16], 1, &[])]);
        let whole: Vec<_> = (0..=bytes.len()).filter(|&end| parse(&bytes[..end]).is_ok()).collect();
        let first = 6 + body(&["cifs", "files"], 18, &[1; 32], 1, &[]).len();
        assert_eq!(whole, [2, first, bytes.len()]);
    }
}
