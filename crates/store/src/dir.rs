//! The store's directory: its lock, the segment files in it, and whether a key fits them. Changes nothing that is there.

use crate::error::{FormatError, OpenError};
use crate::format::SegmentHeader;
use crate::identity::Identity;
use crate::key::StoreKey;
use crate::segment::{number_of, read_header};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Folder of the segment files.
pub(crate) const SEGMENTS_DIR: &str = "segments";
/// Suffix of segment files that were set aside.
pub(crate) const ASIDE_SUFFIX: &str = ".bad";
const LOCK_FILE: &str = "lock";
const DIR_MODE: u32 = 0o700;

/// Makes the directories that are not there yet.
pub(crate) fn create(dir: &Path) -> Result<(), OpenError> {
    let segments = dir.join(SEGMENTS_DIR);
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(&segments).map_err(OpenError::io(&segments))
}

/// Takes the store's lock, which is held until the value is dropped. It leaves with the process, however that ends.
pub(crate) fn lock_dir(dir: &Path) -> Result<Flock<File>, OpenError> {
    let path = dir.join(LOCK_FILE);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(OpenError::io(&path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            // Only for the message of a second process.
            let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
            Ok(file)
        }
        Err((file, Errno::EAGAIN)) => {
            let mut pid = String::new();
            let _ = file.take(16).read_to_string(&mut pid);
            Err(OpenError::Locked { dir: dir.to_owned(), pid: pid.trim().parse().ok() })
        }
        Err((_, errno)) => Err(OpenError::io(&path)(errno.into())),
    }
}

/// A segment file as it was found.
pub(crate) struct Found {
    pub path: PathBuf,
    pub number: u32,
    pub bytes: u64,
    pub header: Result<SegmentHeader, FormatError>,
}

/// The segment files of a store, in the order of their numbers, and the ones set aside with their lengths.
pub(crate) struct Survey {
    pub segments: Vec<Found>,
    pub aside: Vec<(PathBuf, u64)>,
}

impl Survey {
    /// Reads the headers of all segment files. Error: one is of another version, or the disk fails.
    pub fn of(dir: &Path) -> Result<Survey, OpenError> {
        let path = dir.join(SEGMENTS_DIR);
        let mut survey = Survey { segments: Vec::new(), aside: Vec::new() };
        let entries = match fs::read_dir(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(survey),
            entries => entries.map_err(OpenError::io(&path))?,
        };
        for entry in entries {
            let entry = entry.map_err(OpenError::io(&path))?;
            let path = entry.path();
            let bytes = entry.metadata().map_err(OpenError::io(&path))?.len();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if name.ends_with(ASIDE_SUFFIX) {
                survey.aside.push((path, bytes));
            } else if let Some(number) = number_of(&name) {
                let file = File::open(&path).map_err(OpenError::io(&path))?;
                let header = match read_header(&path, &file) {
                    Ok(header) => Ok(header),
                    Err(OpenError::Format(e)) => Err(e),
                    Err(e) => return Err(e),
                };
                survey.segments.push(Found { path, number, bytes, header });
            }
        }
        survey.segments.sort_by_key(|found| found.number);
        Ok(survey)
    }

    pub fn headers(&self) -> impl Iterator<Item = &SegmentHeader> {
        self.segments.iter().filter_map(|found| found.header.as_ref().ok())
    }

    /// Highest segment number in use, files set aside included.
    pub fn last_number(&self) -> u32 {
        let aside = self.aside.iter().filter_map(|(path, _)| {
            let name = path.file_name()?.to_str()?;
            number_of(name.strip_suffix(ASIDE_SUFFIX)?)
        });
        self.segments.iter().map(|found| found.number).chain(aside).max().unwrap_or(0)
    }

    /// Whether `key` opens what is encrypted here.
    pub fn check_key(
        &self,
        dir: &Path,
        identity: Option<&Identity>,
        key: Option<&StoreKey>,
    ) -> Result<(), OpenError> {
        let mut encrypted = self.headers().filter(|header| header.encrypted).peekable();
        if encrypted.peek().is_none() {
            return Ok(());
        }
        let key = key.ok_or_else(|| OpenError::KeyNeeded { dir: dir.to_owned() })?.id();
        // The identity file knows its key under a check of its own; slots have none, and damage to all of them must not
        // make the right key a wrong one.
        let fits = match identity.and_then(|identity| identity.key) {
            Some(known) => known == key,
            None => encrypted.any(|header| header.slot(key).is_some()),
        };
        if fits { Ok(()) } else { Err(OpenError::WrongKey { dir: dir.to_owned() }) }
    }
}

/// Reads the identity file. One that is damaged counts as none: the store then takes a new identity.
pub(crate) fn load_identity(dir: &Path) -> Result<Option<Identity>, OpenError> {
    match Identity::load(dir) {
        Err(OpenError::Format(e)) => {
            tracing::warn!(error = %e, "the store's identity cannot be read");
            Ok(None)
        }
        outcome => outcome,
    }
}

/// Renames a segment file so that it is not read any more. Returns its new path.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE_SUFFIX);
    let to = PathBuf::from(name);
    fs::rename(path, &to).map_err(OpenError::io(path))?;
    Ok(to)
}
