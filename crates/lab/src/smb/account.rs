//! Users that a server of the lab knows, without accounts on this machine.
//!
//! Samba wants every user to be an account of its host. The library nss_wrapper gives a process a list of accounts of its
//! own, so nothing is added to this machine's.

use crate::error::{Context as _, LabError, Result};
use md4::{Digest as _, Md4};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Numbers of the accounts start here; nobody on this machine has them.
const UID_FIRST: u32 = 61_001;

/// The library, in a folder of the machine's architecture.
const LIBRARY: &str = "libnss_wrapper.so";

/// A user with a known password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name to log on with.
    pub name: String,
    /// The password. It guards nothing: servers of the lab are reachable from this machine only.
    pub password: String,
}

impl Account {
    /// An account.
    pub fn new(name: &str, password: &str) -> Account {
        Account { name: name.into(), password: password.into() }
    }

    /// The account that tests use when one is enough.
    pub fn alice() -> Account {
        Account::new("alice", "Passw0rd!")
    }

    /// Accounts `user01`, `user02`, … with passwords of their own.
    pub fn many(count: usize) -> Vec<Account> {
        (1..=count)
            .map(|number| Account::new(&format!("user{number:02}"), &format!("Secret-{number:02}")))
            .collect()
    }

    /// MD4 of the password in UTF-16 (MS-NLMP 3.3.1).
    pub fn nt_hash(&self) -> [u8; 16] {
        let utf16: Vec<u8> = self.password.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Md4::digest(&utf16).into()
    }
}

/// Number of the n-th account of a server.
pub(super) fn uid(index: usize) -> u32 {
    UID_FIRST + index as u32
}

/// Writes the NT hashes of `accounts` as smbpasswd does, readable by the owner alone.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write_password_hashes(path: &Path, accounts: &[Account]) -> Result<()> {
    let mut text = String::new();
    for (index, account) in accounts.iter().enumerate() {
        let hash: String = account.nt_hash().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02X}");
            hex
        });
        let (name, number, no_hash) = (&account.name, uid(index), "X".repeat(32));
        let _ = writeln!(text, "{name}:{number}:{no_hash}:{hash}:[U          ]:LCT-00000000:");
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .context(|| format!("making {}", path.display()))?;
    file.write_all(text.as_bytes()).context(|| format!("writing {}", path.display()))
}

/// Environment in which processes see `accounts` besides root; the lists are written into `folder`.
///
/// # Errors
/// The library is not installed, or the lists cannot be written.
pub(super) fn account_environment(folder: &Path, accounts: &[Account]) -> Result<Vec<(String, String)>> {
    let library = wrapper_library()?;
    let mut users = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n".to_string();
    for (index, account) in accounts.iter().enumerate() {
        let _ = writeln!(users, "{}:x:{}:{UID_FIRST}::/nonexistent:/bin/false", account.name, uid(index));
    }
    let groups = format!("root:x:0:\nnogroup:x:65534:\nlab:x:{UID_FIRST}:\n");
    let (users_path, groups_path) = (folder.join("passwd"), folder.join("group"));
    for (path, text) in [(&users_path, users), (&groups_path, groups)] {
        std::fs::write(path, text).context(|| format!("writing {}", path.display()))?;
    }
    let shown = |path: &Path| path.display().to_string();
    Ok(vec![
        ("LD_PRELOAD".into(), shown(&library)),
        ("NSS_WRAPPER_PASSWD".into(), shown(&users_path)),
        ("NSS_WRAPPER_GROUP".into(), shown(&groups_path)),
    ])
}

/// The library, wherever this architecture has it.
pub(super) fn wrapper_library() -> Result<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut candidates = folders.map(|folder| folder.join(LIBRARY));
    candidates.find(|path| path.is_file()).ok_or_else(|| LabError::Unavailable {
        what: format!("the library {LIBRARY}"),
        remedy: "install the package libnss-wrapper".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn hashes_are_those_of_the_passwords_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hashes");
        write_password_hashes(&path, &[Account::new("bob", "x"), Account::new("carol", "Password")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // MS-NLMP 4.2.2.1.2 has the hash of "Password".
        assert!(
            text.contains("carol:61002:") && text.contains(":A4F49C406510BDCAB6824EE7C30FD852:"),
            "{text}"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(
            write_password_hashes(&path, &[]).is_err(),
            "an existing file keeps its mode, so it is refused"
        );
    }
}
