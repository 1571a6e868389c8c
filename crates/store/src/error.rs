//! What can go wrong when a store is opened, checked or changed as a whole.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file that does not have the form docs/store.md gives it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}, byte {offset}: {what}", file.display())]
pub struct FormatError {
    pub file: PathBuf,
    /// Where in the file, in bytes from its start.
    pub offset: u64,
    pub what: &'static str,
}

/// Why a store could not be opened. Nothing on disk has been changed when one of these is returned, unless it is `Io` or
/// `Catalogue`.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process holds the store.
    #[error("the store in {} is in use by {}", dir.display(), holder(*pid))]
    Locked { dir: PathBuf, pid: Option<u32> },
    /// The store was written under another store key.
    #[error("the key given is not the key of the store in {}", dir.display())]
    WrongKey { dir: PathBuf },
    /// Encryption is asked for, or encrypted segments are present, and no key was given.
    #[error("the store in {} needs its key", dir.display())]
    KeyNeeded { dir: PathBuf },
    /// The file is of a format version that this program does not know.
    #[error("{}: format version {found} is not known (this program knows {known})", file.display())]
    Version { file: PathBuf, found: u16, known: u16 },
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A setting that cannot work; the text says which and what is expected.
    #[error("{0}")]
    Setting(&'static str),
    /// The key file is missing, has the wrong form, or may be read by others.
    #[error("key file {}: {what}", file.display())]
    KeyFile { file: PathBuf, what: &'static str },
    /// The system's random number generator failed.
    #[error("no random numbers from the system")]
    Random,
    #[error("the catalogue in {} could not be opened or made anew: {what}", dir.display())]
    Catalogue { dir: PathBuf, what: String },
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
}

impl OpenError {
    /// An `Io` for `file`, to be used with `map_err`.
    pub(crate) fn io(file: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
        move |source| OpenError::Io { file: file.to_owned(), source }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
