//! Reading of files that hold secrets.

use crate::KeysError;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::fs::{Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// What tells one state of a file from another. The change time is part of it, so that new permissions are noticed too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    /// State of the file at this path now; `None` when there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self::from(&found))
    }
}

impl From<&Metadata> for Signature {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// Reads a file of at most `limit` bytes that nobody but its owner can read. What is checked is the open file, so that
/// it cannot be exchanged in between.
pub(crate) fn read(path: &Path, limit: usize) -> Result<(Zeroizing<Vec<u8>>, Signature), KeysError> {
    let failed = |error| KeysError::Read { path: path.to_owned(), error };
    // Without blocking, since opening a pipe would wait for a writer.
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    check(path, &found)?;
    let too_large = || KeysError::TooLarge { path: path.to_owned(), limit };
    let bytes = usize::try_from(found.len()).ok().filter(|&bytes| bytes <= limit).ok_or_else(too_large)?;
    // Room for one byte more than there should be: a file that grows is noticed, and the buffer never moves.
    let mut content = Zeroizing::new(vec![0; bytes + 1]);
    let (filled, error) = fill(&mut file, &mut content);
    if let Some(error) = error {
        return Err(failed(error));
    }
    if filled > bytes {
        return Err(failed(std::io::Error::other("it grew while it was read")));
    }
    content.truncate(filled);
    Ok((content, Signature::from(&found)))
}

fn check(path: &Path, found: &Metadata) -> Result<(), KeysError> {
    let path = path.to_owned();
    if !found.is_file() {
        return Err(KeysError::NotAFile { path });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeysError::Mode { path, mode });
    }
    let (owner, expected) = (found.uid(), geteuid().as_raw());
    if owner != expected && owner != 0 {
        return Err(KeysError::Owner { path, owner, expected });
    }
    Ok(())
}

/// Reads until the buffer is full or the stream ends; what was read stays when an error comes.
pub(crate) fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<std::io::Error>) {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match stream.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_others_can_read_are_refused_with_their_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, "secret").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let told = read(&path, 100).unwrap_err().to_string();
            let expected = format!(
                "{}: mode is {mode:04o}; expected 0600 or 0400, so that only its owner can read it",
                path.display()
            );
            assert_eq!(told, expected);
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(*read(&path, 6).unwrap().0, b"secret");
        }
        assert!(matches!(read(&path, 5), Err(KeysError::TooLarge { limit: 5, .. })));
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path(), 100), Err(KeysError::NotAFile { .. })));
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&pipe, 100), Err(KeysError::NotAFile { .. })));
        let told = read(&folder.path().join("none"), 100).unwrap_err().to_string();
        assert!(told.contains("cannot be read: No such file"), "{told}");
    }

    #[test]
    fn another_users_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if !geteuid().is_root() {
            println!("left out: only root can give a file away");
            return;
        }
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        assert!(matches!(read(&path, 100), Err(KeysError::Owner { owner: 12_345, expected: 0, .. })));
    }
}
