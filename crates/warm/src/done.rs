//! What was read already, on disk, so that an interrupted job goes on where it stopped and a later one reads what is new.
//!
//! Only hashes are kept: whoever reads the file learns no names.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::limits::FILES_MAX;

/// One file at one state: hash of its path, size and time of last change.
type Record = [u8; RECORD_BYTES];
const RECORD_BYTES: usize = 16;
/// The first line, before the store's identity.
const MARK: &str = "isthmus warm 1 ";
/// Longest first line.
const HEAD_BYTES_MAX: usize = 200;
/// Records that a file may hold: states of files that have changed since pile up.
const RECORDS_MAX: usize = 2 * FILES_MAX;

/// The files of one job that were read.
pub struct Done {
    known: HashSet<Record>,
    file: File,
}

impl Done {
    /// Opens the record of `job` (any text that stands for it) in `folder`, made if it is not there. What was noted for
    /// another store than `store` does not count, nor what was noted before if `again`.
    ///
    /// # Errors
    /// The folder cannot be made, or the file not be read or written.
    pub fn open(folder: &Path, job: &str, store: &str, again: bool) -> io::Result<Done> {
        std::fs::create_dir_all(folder)?;
        let path = Done::path(folder, job);
        let head = format!("{MARK}{store}\n");
        let known = if again { None } else { read(&path, &head)? };
        let mut options = OpenOptions::new();
        options.mode(0o600).create(true);
        if let Some(known) = known {
            return Ok(Done { known, file: options.append(true).open(path)? });
        }
        let mut file = options.write(true).truncate(true).open(path)?;
        file.write_all(head.as_bytes())?;
        Ok(Done { known: HashSet::new(), file })
    }

    /// The file's name tells nothing about the job.
    fn path(folder: &Path, job: &str) -> PathBuf {
        let name = blake3::derive_key("isthmus warm job v1", job.as_bytes());
        folder.join(format!("{}.done", &blake3::Hash::from_bytes(name).to_hex()[..32]))
    }

    /// Whether the file was read when it was as it is.
    pub fn has(&self, path: &str, size: u64, modified: u64) -> bool {
        self.known.contains(&record(path, size, modified))
    }

    /// Notes that it was read.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, path: &str, size: u64, modified: u64) -> io::Result<()> {
        let record = record(path, size, modified);
        if self.known.len() < RECORDS_MAX && self.known.insert(record) {
            // One write of a few bytes: a kill between two leaves whole records.
            self.file.write_all(&record)?;
        }
        Ok(())
    }
}

/// The records, or `None` if there is no such file, or it is another store's, or none of ours.
fn read(path: &Path, head: &str) -> io::Result<Option<HashSet<Record>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length_max = HEAD_BYTES_MAX + RECORDS_MAX * RECORD_BYTES;
    if file.metadata()?.len() > length_max as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(length_max as u64).read_to_end(&mut bytes)?;
    let Some(records) = bytes.strip_prefix(head.as_bytes()) else { return Ok(None) };
    let (whole, rest) = records.as_chunks::<RECORD_BYTES>();
    // A record cut short would shift all that follow it.
    Ok(rest.is_empty().then(|| whole.iter().copied().collect()))
}

fn record(path: &str, size: u64, modified: u64) -> Record {
    let mut hasher = blake3::Hasher::new_derive_key("isthmus warm record v1");
    hasher.update(&size.to_le_bytes()).update(&modified.to_le_bytes()).update(path.as_bytes());
    let mut record = Record::default();
    record.copy_from_slice(&hasher.finalize().as_bytes()[..RECORD_BYTES]);
    record
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_known_for_the_same_store_and_state_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |store, again| Done::open(&folder.path().join("warm"), "job", store, again).unwrap();
        let mut done = open("a", false);
        done.add("geheim/x", 3, 5).unwrap();
        assert!(done.has("geheim/x", 3, 5) && !done.has("geheim/x", 3, 6) && !done.has("geheim/y", 3, 5));
        drop(done);
        assert!(open("a", false).has("geheim/x", 3, 5), "after a restart");
        let path = Done::path(&folder.path().join("warm"), "job");
        assert!(!String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains("geheim"));
        // Cut in the middle of a record: everything is read again, rather than something taken for read.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert!(!open("a", false).has("geheim/x", 3, 5));
        let mut done = open("a", false);
        done.add("geheim/x", 3, 5).unwrap();
        assert!(!open("a", true).has("geheim/x", 3, 5), "again");
        assert!(!open("b", false).has("geheim/x", 3, 5), "another store");
    }
}
