//! smbclient, timed.

use super::SHARE;
use super::server::Samba;
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{required, run};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How smbclient protects its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Neither signed nor encrypted, as far as the server allows.
    #[default]
    None,
    /// Signed.
    Sign,
    /// Encrypted.
    Encrypt,
}

/// An SMB client program in a place, pointed at an address that leads to a server.
#[derive(Clone, Debug)]
pub struct SmbClient {
    place: Place,
    address: SocketAddr,
    user: String,
    password: String,
    protection: Protection,
    program: PathBuf,
}

impl SmbClient {
    /// A client for `samba` that connects to `address`: the server's own, a proxy's or a relay's.
    ///
    /// # Errors
    /// smbclient is not installed.
    pub fn new(place: &Place, address: SocketAddr, samba: &Samba) -> Result<SmbClient> {
        let program = required("smbclient", "smbclient")?;
        let (user, password) = samba.credentials();
        Ok(SmbClient {
            place: place.clone(),
            address,
            user: user.into(),
            password: password.into(),
            protection: Protection::None,
            program,
        })
    }

    /// The same client with other protection of its messages.
    pub fn protected(mut self, protection: Protection) -> SmbClient {
        self.protection = protection;
        self
    }

    /// Runs commands of smbclient's own language; the time includes its start and log-in.
    ///
    /// # Errors
    /// It ends with an error; the error shows the end of what it printed.
    pub fn commands(&self, commands: &str) -> Result<(String, Duration)> {
        let protection = match self.protection {
            Protection::None => "off",
            Protection::Sign => "sign",
            Protection::Encrypt => "encrypt",
        };
        let program = self.program.display().to_string();
        let service = format!("//{}/{SHARE}", self.address.ip());
        let (port, login) = (self.address.port().to_string(), format!("{}%{}", self.user, self.password));
        let start = Instant::now();
        let output = run(
            &self.place,
            &[
                &program,
                "-s",
                "/dev/null",
                &service,
                "-p",
                &port,
                "-U",
                &login,
                "-m",
                "SMB3_11",
                &format!("--client-protection={protection}"),
                // A long link must not look like a dead one.
                "--timeout=600",
                "-c",
                commands,
            ],
        )?;
        Ok((output, start.elapsed()))
    }

    /// Copies one file from the share.
    ///
    /// # Errors
    /// As [`SmbClient::commands`].
    pub fn get(&self, remote: &str, local: &Path) -> Result<Duration> {
        let commands = format!("get \"{remote}\" \"{}\"", local.display());
        Ok(self.commands(&commands)?.1)
    }

    /// Copies one file to the share.
    ///
    /// # Errors
    /// As [`SmbClient::commands`].
    pub fn put(&self, local: &Path, remote: &str) -> Result<Duration> {
        let commands = format!("put \"{}\" \"{remote}\"", local.display());
        Ok(self.commands(&commands)?.1)
    }

    /// Copies everything below `remote` (empty: the whole share) into the existing folder `local`.
    ///
    /// # Errors
    /// As [`SmbClient::commands`].
    pub fn get_folder(&self, remote: &str, local: &Path) -> Result<Duration> {
        let enter = if remote.is_empty() { String::new() } else { format!("cd \"{remote}\"; ") };
        let commands = format!("prompt OFF; recurse ON; {enter}lcd \"{}\"; mget *", local.display());
        Ok(self.commands(&commands)?.1)
    }

    /// Copies everything below the folder `local` into the new folder `remote` of the share.
    ///
    /// # Errors
    /// As [`SmbClient::commands`].
    pub fn put_folder(&self, local: &Path, remote: &str) -> Result<Duration> {
        let local = local.display();
        let commands =
            format!("prompt OFF; recurse ON; mkdir \"{remote}\"; cd \"{remote}\"; lcd \"{local}\"; mput *");
        Ok(self.commands(&commands)?.1)
    }
}

/// Compares two folders file by file; the sum of the lengths when they are equal.
///
/// # Errors
/// [`LabError::Mismatch`] names the first file that is missing, extra or different.
pub fn compare_folders(expected: &Path, got: &Path) -> Result<u64> {
    let (want, have) = (list(expected)?, list(got)?);
    if let Some(name) = want.keys().find(|name| !have.contains_key(*name)) {
        return Err(LabError::Mismatch {
            what: got.display().to_string(),
            detail: format!("{name} is missing"),
        });
    }
    if let Some(name) = have.keys().find(|name| !want.contains_key(*name)) {
        return Err(LabError::Mismatch {
            what: got.display().to_string(),
            detail: format!("{name} is extra"),
        });
    }
    let mut total = 0;
    for (name, path) in &want {
        let read = |path: &Path| std::fs::read(path).context(|| format!("reading {}", path.display()));
        let content = read(path)?;
        if content != read(&have[name])? {
            return Err(LabError::Mismatch {
                what: got.display().to_string(),
                detail: format!("{name} differs"),
            });
        }
        total += content.len() as u64;
    }
    Ok(total)
}

/// Files below a folder by relative name.
pub(super) fn list(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        let entries = std::fs::read_dir(&current).context(|| format!("listing {}", current.display()))?;
        for entry in entries {
            let path = entry.context(|| format!("listing {}", current.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_compared_both_ways() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |dir: &Path, name: &str, text: &str| {
            std::fs::create_dir_all(dir.join("sub")).unwrap();
            std::fs::write(dir.join(name), text).unwrap();
        };
        write(a.path(), "sub/x", "12345");
        write(b.path(), "sub/x", "12345");
        assert_eq!(compare_folders(a.path(), b.path()).unwrap(), 5);
        write(b.path(), "y", "");
        let message = |a: &Path, b: &Path| compare_folders(a, b).unwrap_err().to_string();
        assert!(message(a.path(), b.path()).contains("y is extra"));
        assert!(message(b.path(), a.path()).contains("y is missing"));
        write(a.path(), "y", "");
        write(b.path(), "sub/x", "12x45");
        assert!(message(a.path(), b.path()).contains("differs"));
    }
}
