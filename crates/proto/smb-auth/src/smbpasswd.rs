//! Password hash files in smbpasswd form, as `pdbedit -Lw` writes them.
//!
//! One account a line: name, user id, LM hash, NT hash, flags in brackets and the time of the last change, with colons
//! between them. Only name, NT hash and flags are read, and only the first four fields must be there. The name may be
//! `user`, `DOMAIN\user` or `user@domain`. Empty lines and lines that start with `#` are left out.

use crate::limits::{PASSWORD_FILE_BYTES_MAX, PASSWORD_FILE_ENTRIES_MAX, PASSWORD_FILE_LINE_BYTES_MAX};
use crate::{AccountHash, FormatError, NtHash, Place};

/// Content of one password hash file.
#[derive(Debug, Default)]
pub struct PasswordFile {
    /// Accounts with a hash, in the order of the file.
    pub accounts: Vec<AccountHash>,
    /// Accounts that are disabled or have no NT hash.
    pub skipped: usize,
}

/// Reads a whole file.
pub fn parse(bytes: &[u8]) -> Result<PasswordFile, FormatError> {
    if bytes.len() > PASSWORD_FILE_BYTES_MAX {
        return Err(FormatError {
            place: Place::File,
            problem: "the password hash file is too large",
            expected: "at most 64 MiB",
        });
    }
    let mut file = PasswordFile::default();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let place = Place::Line(number + 1);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > PASSWORD_FILE_LINE_BYTES_MAX {
            return Err(FormatError {
                place,
                problem: "the line is too long",
                expected: "at most 4,096 bytes",
            });
        }
        let Ok(line) = std::str::from_utf8(line) else {
            return Err(FormatError { place, problem: "the line is not text", expected: "UTF-8" });
        };
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if file.accounts.len() + file.skipped >= PASSWORD_FILE_ENTRIES_MAX {
            return Err(FormatError {
                place,
                problem: "there are too many accounts",
                expected: "at most 500,000 accounts",
            });
        }
        match account(line).map_err(|(problem, expected)| FormatError { place, problem, expected })? {
            Some(account) => file.accounts.push(account),
            None => file.skipped += 1,
        }
    }
    Ok(file)
}

/// One line; `None` for an account that cannot log on with a password.
fn account(line: &str) -> Result<Option<AccountHash>, (&'static str, &'static str)> {
    const FORM: &str = "name:user id:LM hash:NT hash:[flags]:";
    let mut fields = line.split(':');
    let (Some(name), Some(_), Some(_), Some(hash)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(("there are fewer than four fields", FORM));
    };
    let flags = fields.next().unwrap_or_default();
    let (user, domain) = split_name(name.trim());
    if user.is_empty() {
        return Err(("the name is empty", "user, DOMAIN\\user or user@domain"));
    }
    let hash = match nt_hash(hash.trim()) {
        Some(hash) => hash,
        None if is_no_hash(hash.trim()) => return Ok(None),
        None => return Err(("the NT hash is wrong", "32 hexadecimal digits, or 32 times X for none")),
    };
    if is_disabled(flags) {
        return Ok(None);
    }
    Ok(Some(AccountHash { user: user.to_owned(), domain: domain.map(str::to_owned), version: 0, hash }))
}

fn split_name(name: &str) -> (&str, Option<&str>) {
    let (user, domain) = match (name.split_once('\\'), name.rsplit_once('@')) {
        (Some((domain, user)), _) => (user, domain),
        (None, Some((user, domain))) => (user, domain),
        (None, None) => (name, ""),
    };
    (user, Some(domain).filter(|domain| !domain.is_empty()))
}

fn nt_hash(text: &str) -> Option<NtHash> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let pairs: &[[u8; 2]; 16] = pairs.try_into().ok().filter(|_| rest.is_empty())?;
    let mut hash = [0; 16];
    for (byte, &[high, low]) in hash.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    let made = NtHash::new(hash);
    zeroize::Zeroize::zeroize(&mut hash);
    Some(made)
}

fn digit(letter: u8) -> Option<u8> {
    char::from(letter).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// What stands in place of a hash that is not known or not set.
fn is_no_hash(text: &str) -> bool {
    text.len() == 32
        && (text.bytes().all(|byte| matches!(byte, b'X' | b'*')) || text.starts_with("NO PASSWORD"))
}

/// Flag `D` in `[UD         ]`.
fn is_disabled(flags: &str) -> bool {
    let inside = flags.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    inside.is_some_and(|(flags, _)| flags.contains('D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "FC525C9683E8FE067095BA2DDC971889";

    fn names(text: &str) -> Vec<String> {
        parse(text.as_bytes()).unwrap().accounts.iter().map(AccountHash::account).collect()
    }

    #[test]
    fn names_of_all_forms_are_read() {
        let text = format!(
            "# made by hand\n\nalice:1000:X:{HASH}:[U          ]:LCT-00000000:\r\nWAN\\bob:1:X:{}\n\
             carol@wan.test:::{HASH}:\nWAN\\FILES$:1:X:{HASH}:[W          ]:\n",
            HASH.to_lowercase()
        );
        assert_eq!(names(&text), ["alice", "WAN\\bob", "wan.test\\carol", "WAN\\FILES$"]);
        let file = parse(text.as_bytes()).unwrap();
        assert!(file.accounts.iter().all(|account| account.hash == NtHash::of_password("Passw0rd!")));
    }

    #[test]
    fn accounts_without_a_usable_hash_are_counted() {
        let text = format!(
            "a:1:X:{}:[U]:\nb:1:X:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:[NU]:\nc:1:X:{HASH}:[UD         ]:\nd:1:X:{HASH}:[U]:",
            "X".repeat(32)
        );
        let file = parse(text.as_bytes()).unwrap();
        assert_eq!((file.accounts.len(), file.skipped), (1, 3));
    }

    #[test]
    fn errors_name_the_line_and_never_its_content() {
        let told = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        let few = "line 2: there are fewer than four fields; expected name:user id:LM hash:NT hash:[flags]:";
        assert_eq!(told(&format!("a:1:X:{HASH}\nalice:1000\n")), few);
        for wrong in ["FC52", "GC525C9683E8FE067095BA2DDC971889", "FC525C9683E8FE067095BA2DDC97188900"] {
            let text = told(&format!("alice:1000:X:{wrong}:[U]:"));
            assert_eq!(
                text,
                "line 1: the NT hash is wrong; expected 32 hexadecimal digits, or 32 times X for none"
            );
        }
        assert!(told(&format!(":1:X:{HASH}")).starts_with("line 1: the name is empty"));
        assert!(told(&format!("WAN\\:1:X:{HASH}")).starts_with("line 1: the name is empty"));
        assert!(told(&"a".repeat(4_097)).starts_with("line 1: the line is too long"));
        let text = parse(b"\xff\xfe").unwrap_err().to_string();
        assert_eq!(text, "line 1: the line is not text; expected UTF-8");
    }
}
