//! What the store's calls, its flushing thread and replay share.

use crate::alarm::Alarm;
use crate::cache::{Cache, Pool};
use crate::catalogue::Catalogue;
use crate::config::{CATALOGUE_RESERVE_BYTES, Disk};
use crate::identity::Identity;
use crate::index::Index;
use crate::key::StoreKey;
use crate::ledgers::Ledgers;
use crate::segment::{OpenFiles, ReadFault, Segment};
use crate::sync::{lock, read, write};
use crate::table::Table;
use crate::writer::Writer;
use bytes::Bytes;
use isthmus_reduction::content::ReadError;
use nix::fcntl::Flock;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// A record may be moved while it is read; this often it is looked for again.
const READ_ATTEMPTS: usize = 3;

/// Whether the store takes new content, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Learning {
    On = 0,
    /// The file system is full, or has less free space than the floor. Learning resumes when there is space.
    DiskFull = 1,
    /// A write failed for another reason. Tried again after a while.
    WriteFailed = 2,
    /// The store is being closed.
    Closing = 3,
}

impl Learning {
    /// Metric label.
    pub fn label(self) -> &'static str {
        match self {
            Learning::On => "on",
            Learning::DiskFull => "disk_full",
            Learning::WriteFailed => "write_failed",
            Learning::Closing => "closing",
        }
    }
}

/// Events since opening.
#[derive(Default)]
pub(crate) struct Counters {
    pub appended_bytes: AtomicU64,
    pub evicted_segments: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub carried_bytes: AtomicU64,
    pub quarantined: AtomicU64,
    /// Records set aside and remembered: lets lookups pass by the table when there are none.
    pub quarantine_len: AtomicU64,
    pub corrupt_reads: AtomicU64,
    pub refused: AtomicU64,
}

/// Lock order: writer, ledgers, table, then index, cache, files; none is held while a payload is read or opened.
pub(crate) struct Shared {
    pub dir: PathBuf,
    pub segments_dir: PathBuf,
    pub cap_bytes: u64,
    pub segment_bytes: u32,
    pub free_floor_bytes: u64,
    pub encrypt: bool,
    pub key: Option<StoreKey>,
    pub disk: Arc<dyn Disk>,
    pub identity: Identity,
    pub catalogue: Catalogue,
    pub catalogue_bytes: AtomicU64,
    pub index: Index,
    pub table: RwLock<Table>,
    pub cache: Cache,
    pub pool: Arc<Pool>,
    pub files: OpenFiles,
    pub ledgers: Mutex<Ledgers>,
    pub writer: Mutex<Writer>,
    pub learning: AtomicU8,
    pub counters: Counters,
    /// Raised at each use of a segment.
    pub use_clock: AtomicU64,
    /// Raised about once a second: what "used more than once" is told apart by.
    pub epoch: AtomicU8,
    /// Addresses below this are on disk.
    pub durable: AtomicU64,
    /// Held while flushing: a second flush must not report what the first is still at. Taken before the writer's lock.
    pub flushing: Mutex<()>,
    /// Set once a flush has failed: what is on disk is not known any more.
    pub flush_failed: AtomicBool,
    /// Wakes the flushing thread.
    pub alarm: Arc<Alarm>,
    pub _lock: Flock<File>,
}

impl Shared {
    pub fn epoch(&self) -> u8 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub fn tick_use(&self) -> u64 {
        self.use_clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn learning(&self) -> Learning {
        match self.learning.load(Ordering::Relaxed) {
            0 => Learning::On,
            1 => Learning::DiskFull,
            2 => Learning::WriteFailed,
            _ => Learning::Closing,
        }
    }

    pub fn is_learning(&self) -> bool {
        self.learning() == Learning::On
    }

    /// Sets the learning state; once closing, it stays so. Returns whether it changed.
    pub fn set_learning(&self, to: Learning) -> bool {
        let change = |now| (now != Learning::Closing as u8 && now != to as u8).then_some(to as u8);
        self.learning.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }

    /// Bytes that count against the cap.
    pub fn bytes_charged(&self, writer: &Writer) -> u64 {
        writer.bytes() + self.catalogue_bytes.load(Ordering::Relaxed).max(CATALOGUE_RESERVE_BYTES)
    }

    /// The bytes from `addr` to the end of its record.
    pub fn view(&self, addr: u64) -> Result<Bytes, ReadError> {
        for _ in 0..READ_ATTEMPTS {
            let Some((place, segment)) = self.locate(addr) else { return Err(ReadError::Gone) };
            let offset = (addr - place.0) as usize;
            if let Some(payload) = self.cache.lookup(place.0) {
                return Ok(payload.slice(offset..));
            }
            match self.read_record(&segment, place) {
                Ok(payload) => {
                    self.cache.insert(place.0, payload.clone());
                    return Ok(payload.slice(offset..));
                }
                Err(ReadFault::Missing) => {}
                Err(ReadFault::Corrupt) => {
                    self.counters.corrupt_reads.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(
                        file = %segment.path.display(), offset = place.1, "a stored record fails its check and is set aside"
                    );
                    self.quarantine(addr);
                    return Err(ReadError::Corrupt);
                }
                Err(ReadFault::Io(e)) => {
                    tracing::error!(file = %segment.path.display(), error = %e, "a segment could not be read");
                    return Err(ReadError::Io);
                }
            }
        }
        Err(ReadError::Gone)
    }

    /// Sets the record that holds `addr` aside.
    pub fn quarantine(&self, addr: u64) {
        let mut table = write(&self.table);
        let Some((start, len, forgotten)) = table.quarantine(addr) else { return };
        self.counters.quarantine_len.store(table.quarantined() as u64, Ordering::Relaxed);
        drop(table);
        self.cache.remove(start);
        self.catalogue.quarantine(start, start + u64::from(len));
        forgotten.into_iter().for_each(|addr| self.catalogue.release(addr));
        self.counters.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    /// Finds the record that holds `addr`, and counts its use.
    fn locate(&self, addr: u64) -> Option<((u64, u32, u32), Arc<Segment>)> {
        let table = read(&self.table);
        let (record, segment) = table.find(addr)?;
        record.used(self.epoch());
        segment.last_use.store(self.tick_use(), Ordering::Relaxed);
        Some(((record.addr, record.position, record.len), Arc::clone(segment)))
    }

    fn read_record(&self, segment: &Arc<Segment>, place: (u64, u32, u32)) -> Result<Bytes, ReadFault> {
        let len = place.2 as usize;
        let mut buffer = self.pool.take(len + segment.sealer.check_len());
        segment.read_payload(&self.files, place, buffer.room())?;
        Ok(buffer.freeze(len))
    }

    /// Seals the active segment and waits until all is on disk.
    pub fn finish(&self) {
        self.set_learning(Learning::Closing);
        self.seal_active(&mut lock(&self.writer));
        self.flush();
        self.save_uses();
        self.catalogue.flush();
    }
}

/// The wall clock in Unix seconds; 0 before 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
