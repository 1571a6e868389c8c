//! Files that appear whole or not at all: for certificates, keys, and what else must not be half written.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::CertsError;

/// Longest certificate, key, list or index file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Permissions of what only its owner may read.
pub const SECRET: u32 = 0o600;
/// Permissions of what anyone may read.
pub const PUBLIC: u32 = 0o644;

/// Makes `path` with `content`. Refuses with [`CertsError::Exists`] if there is something of that name.
pub fn create(path: &Path, content: &[u8], mode: u32) -> Result<(), CertsError> {
    let temporary = write_beside(path, content, mode)?;
    // Unlike a rename, a hard link never replaces what is there.
    let linked = fs::hard_link(&temporary, path);
    let removed = fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(CertsError::Exists(path.to_path_buf()));
        }
        other => other.map_err(CertsError::io(path))?,
    }
    removed.map_err(CertsError::io(&temporary))?;
    sync_folder(path)
}

/// Makes or replaces `path` with `content`.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), CertsError> {
    let temporary = write_beside(path, content, mode)?;
    fs::rename(&temporary, path).map_err(CertsError::io(path))?;
    sync_folder(path)
}

/// The whole of `path`, if it is not absurdly long.
pub fn read(path: &Path) -> Result<Vec<u8>, CertsError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(CertsError::io(path))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(CertsError::io(path))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CertsError::bad(path, "the file is too long"));
    }
    Ok(bytes)
}

/// As [`read`], as text.
pub fn read_text(path: &Path) -> Result<String, CertsError> {
    String::from_utf8(read(path)?).map_err(|_| CertsError::bad(path, "the file is not text"))
}

fn write_beside(path: &Path, content: &[u8], mode: u32) -> Result<PathBuf, CertsError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| CertsError::Generation(error.to_string()))?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", hex::encode(random)));
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| {
        // What is left of a file that could not be written is of no use to anybody.
        let _ = fs::remove_file(&temporary);
        CertsError::io(path)(error)
    })?;
    Ok(temporary)
}

fn sync_folder(path: &Path) -> Result<(), CertsError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(CertsError::io(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_is_overwritten_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        create(&path, b"one", SECRET).unwrap();
        assert!(matches!(create(&path, b"two", SECRET), Err(CertsError::Exists(p)) if p == path));
        assert_eq!(read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        replace(&path, b"three", PUBLIC).unwrap();
        assert_eq!(read_text(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(create(&dir.path().join("no/such/folder"), b"", PUBLIC).is_err());
    }
}
