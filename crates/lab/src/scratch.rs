//! A private folder that goes away, also when the process is interrupted.

use crate::cleanup::{Entry, Leftover, is_owner_gone, owner_tag};
use crate::error::{Context as _, Result};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;
use tempfile::TempDir;

/// Start of the names of all scratch folders; the id of the process that made it follows.
const PREFIX: &str = "isthmus-lab-";

static SWEEP: Once = Once::new();

/// A folder of its own, removed with everything in it when dropped.
pub struct Scratch {
    dir: TempDir,
    _entry: Entry,
}

impl Scratch {
    /// Makes the folder; `purpose` becomes part of its name.
    ///
    /// # Errors
    /// The temporary folder cannot be written.
    pub fn new(purpose: &str) -> Result<Scratch> {
        SWEEP.call_once(remove_stale);
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-{purpose}-", owner_tag()))
            .tempdir()
            .context(|| "making a temporary folder".into())?;
        let entry = Entry::new(Leftover::Folder(dir.path().into()));
        Ok(Scratch { dir, _entry: entry })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a folder in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::create_dir_all(&path).context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, content).context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// Removes this user's scratch folders whose makers were killed before they could do so themselves.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let tag = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_ours = entry.metadata().is_ok_and(|data| data.uid() == nix::unistd::geteuid().as_raw());
        if is_ours && tag.is_some_and(is_owner_gone) {
            // Somebody else may be sweeping at the same moment; what is gone is gone.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
