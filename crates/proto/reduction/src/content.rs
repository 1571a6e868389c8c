//! What the reduction core asks of a chunk store. The store crate implements it; tests use [`crate::memory::MemoryStore`].

use bytes::Bytes;
use thiserror::Error;

/// Index key of a chunk: the first eight bytes, little endian, of the BLAKE3 hash of its content.
///
/// A key finds a candidate; only comparing the bytes proves it. So a collision costs a comparison, never a wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKey(pub u64);

impl ChunkKey {
    /// The key of `content`.
    pub fn of(content: &[u8]) -> ChunkKey {
        let hash = blake3::hash(content);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        ChunkKey(u64::from_le_bytes(first))
    }
}

/// Address of a stored byte. Records take consecutive addresses in the order they are appended; an address is never used
/// twice in the life of a store, and stays the same when a record is moved between segments. Below 2^48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr(pub u64);

impl Addr {
    /// The address `n` bytes further on.
    pub fn plus(self, n: u64) -> Addr {
        Addr(self.0 + n)
    }
}

/// One chunk of a record that is appended: its key and length in bytes. The lengths of a record's chunks add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkMeta {
    pub key: ChunkKey,
    pub len: u32,
}

/// Which notes belong together: one number a (peer store, domain) pair, given out by the store's catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerId(pub u32);

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// Nothing (or nothing any more) is stored at the address: evicted, wiped or quarantined.
    #[error("nothing is stored at this address")]
    Gone,
    /// The stored bytes fail their check. The record is quarantined before this is returned.
    #[error("the stored record fails its check")]
    Corrupt,
    #[error("the disk could not be read")]
    Io,
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AppendError {
    /// Learning is off: disk full, or the store is being closed. Serving goes on.
    #[error("the store takes no new content")]
    NotLearning,
    #[error("a record must have 1 to RECORD_BYTES_MAX bytes, and its chunks must add up to it")]
    BadRecord,
    #[error("the disk could not be written")]
    Io,
}

/// Keeps the segments under a reference from being dropped while it lives. The number of pins is bounded by the frames in
/// flight of all channels.
pub trait Pin: Send + Sync {}

/// A chunk store as the reduction core sees it. All calls may block for a disk read or write.
pub trait ContentStore: Send + Sync {
    /// A place where a chunk with this key starts, if one is stored. May be wrong (see [`ChunkKey`]).
    fn lookup(&self, key: ChunkKey) -> Option<Addr>;

    /// The stored bytes from `addr` to the end of the record that holds it; shared, not copied, where possible.
    /// Verified (record check) before they are returned. Marks the record as used.
    fn view(&self, addr: Addr) -> Result<Bytes, ReadError>;

    /// Appends one record of `data`, made of `chunks` in order, and indexes them. The record is readable at once.
    fn append(&self, data: Bytes, chunks: &[ChunkMeta]) -> Result<Addr, AppendError>;

    /// Keeps `len` bytes from `addr` from eviction until the pin is dropped. `None` if they are not all stored.
    fn pin(&self, addr: Addr, len: u64) -> Option<Box<dyn Pin>>;

    /// Whether any of the record that holds `addr` is still stored.
    fn is_live(&self, addr: Addr) -> bool;

    /// Appends an opaque note (part of a ledger), kept as long as the segment it falls into and replayed in order at the
    /// next opening. At most 64 KiB.
    fn note(&self, ledger: LedgerId, note: &[u8]) -> Result<(), AppendError>;

    /// Sets the record that holds `addr` aside: not found, not read any more. Counted.
    fn quarantine(&self, addr: Addr);
}
