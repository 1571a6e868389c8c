//! Settings of a store, and the disk as the store asks about it.

use crate::error::OpenError;
use crate::format::SEGMENT_BYTES_MAX;
use crate::identity::Machine;
use crate::key::StoreKey;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of opened records kept in memory, if nothing else is set.
pub const CACHE_BYTES_DEFAULT: usize = 16 << 20;
/// Learning stops when the file system has less free space than this, if nothing else is set.
pub const FREE_FLOOR_BYTES_DEFAULT: u64 = 256 << 20;
/// Time after which what was appended is on disk, if nothing else is set.
pub const FLUSH_INTERVAL_DEFAULT: Duration = Duration::from_millis(200);
/// Part of the cap that is kept for the catalogue and the small files.
pub const CATALOGUE_RESERVE_BYTES: u64 = 4 << 20;
/// Smallest segment size that can be set: a longest record fits with room to spare.
pub const SEGMENT_BYTES_MIN: u32 = 1 << 20;
/// Segments that a store must have room for, so that dropping one does not drop most of it.
const SEGMENTS_MIN: u64 = 6;
/// Smallest cap.
pub const CAP_BYTES_MIN: u64 = CATALOGUE_RESERVE_BYTES + SEGMENTS_MIN * SEGMENT_BYTES_MIN as u64;

/// How a store is to be opened.
#[derive(Clone)]
pub struct Config {
    /// The store's directory; made if absent. Nothing else may be kept in it.
    pub dir: PathBuf,
    /// The most bytes that the store's files may take together.
    pub cap_bytes: u64,
    /// The store key. Needed to encrypt, and to read what was encrypted before encryption was switched off.
    pub key: Option<StoreKey>,
    /// Whether new segments are encrypted.
    pub encrypt: bool,
    pub cache_bytes: usize,
    /// Largest segment file; by default a sixteenth of the cap, within 1 MiB and 64 MiB.
    pub segment_bytes: Option<u32>,
    pub free_floor_bytes: u64,
    pub flush_interval: Duration,
    /// The machine that the identity is bound to; by default the one this runs on.
    pub machine: Option<Machine>,
    /// By default [`SystemDisk`].
    pub disk: Arc<dyn Disk>,
}

impl Config {
    /// A store in `dir` of at most `cap_bytes`, encrypted if there is a key.
    pub fn new(dir: impl Into<PathBuf>, cap_bytes: u64, key: Option<StoreKey>) -> Config {
        Config {
            dir: dir.into(),
            cap_bytes,
            encrypt: key.is_some(),
            key,
            cache_bytes: CACHE_BYTES_DEFAULT,
            segment_bytes: None,
            free_floor_bytes: FREE_FLOOR_BYTES_DEFAULT,
            flush_interval: FLUSH_INTERVAL_DEFAULT,
            machine: None,
            disk: Arc::new(SystemDisk),
        }
    }

    /// The segment size in force.
    pub(crate) fn segment_bytes(&self) -> u32 {
        let share = (self.cap_bytes / 16).min(u64::from(SEGMENT_BYTES_MAX)) as u32;
        self.segment_bytes.unwrap_or(share.max(SEGMENT_BYTES_MIN))
    }

    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        let segment_bytes = self.segment_bytes();
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(OpenError::Setting("the segment size must be 1 MiB to 64 MiB"));
        }
        if self.cap_bytes < CATALOGUE_RESERVE_BYTES + SEGMENTS_MIN * u64::from(segment_bytes) {
            return Err(OpenError::Setting("the store's size must be at least 4 MiB and six segments"));
        }
        if self.encrypt && self.key.is_none() {
            return Err(OpenError::KeyNeeded { dir: self.dir.clone() });
        }
        Ok(())
    }
}

/// The disk, as far as it can refuse: replaced by tests to fill it up or make it fail.
pub trait Disk: Send + Sync {
    /// Bytes free for this process on the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Asked before each write of `len` bytes to a segment; an error takes the place of the write's.
    fn before_write(&self, len: u64) -> io::Result<()> {
        let _ = len;
        Ok(())
    }
}

/// The file system that the store's directory is on.
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(dir)?;
        Ok(stat.blocks_available() as u64 * stat.fragment_size() as u64)
    }
}
