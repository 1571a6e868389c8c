//! The state of a store in numbers.

use crate::shared::{Learning, Shared, unix_s};
use crate::sync::{lock, read};
use isthmus_types::StoreId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// State of an open store. Events are counted from its opening. Cheap enough to be asked for once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStats {
    pub identity: StoreId,
    pub generation: u64,
    /// Whether new segments are encrypted.
    pub encrypted: bool,
    /// Whether the store takes new content; if not, why: an alarm.
    pub learning: Learning,
    pub cap_bytes: u64,
    /// Bytes that count against the cap: segments, and the catalogue or its reserve.
    pub disk_bytes: u64,
    /// Content that can be read.
    pub live_bytes: u64,
    /// Bytes of segment files that are no readable content: set aside, carried elsewhere, notes, tables and headers.
    pub dead_bytes: u64,
    pub chunks: u64,
    pub records: u64,
    pub segments: u64,
    /// Records set aside and still remembered.
    pub quarantined: u64,
    /// Age of the oldest segment.
    pub oldest_age: Option<Duration>,
    pub appended_bytes: u64,
    pub evicted_segments: u64,
    pub evicted_bytes: u64,
    /// Bytes of records kept when their segment went.
    pub carried_bytes: u64,
    /// Reads that failed their check.
    pub corrupt_reads: u64,
    /// Appends refused because nothing could be dropped: everything was pinned.
    pub refused: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
}

impl Shared {
    pub fn stats(&self) -> StoreStats {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (segment_bytes, disk_bytes) = {
            let writer = lock(&self.writer);
            (writer.bytes(), self.bytes_charged(&writer))
        };
        let table = read(&self.table);
        let oldest = table.segments.values().map(|segment| segment.created_s).min();
        StoreStats {
            identity: self.identity.id,
            generation: self.identity.generation,
            encrypted: self.encrypt,
            learning: self.learning(),
            cap_bytes: self.cap_bytes,
            disk_bytes,
            live_bytes: table.live_bytes(),
            dead_bytes: segment_bytes.saturating_sub(table.live_bytes()),
            chunks: self.index.len(),
            records: table.len() as u64,
            segments: table.segments.len() as u64,
            quarantined: table.quarantined() as u64,
            oldest_age: oldest.map(|created_s| Duration::from_secs(unix_s().saturating_sub(created_s))),
            appended_bytes: count(&self.counters.appended_bytes),
            evicted_segments: count(&self.counters.evicted_segments),
            evicted_bytes: count(&self.counters.evicted_bytes),
            carried_bytes: count(&self.counters.carried_bytes),
            corrupt_reads: count(&self.counters.corrupt_reads),
            refused: count(&self.counters.refused),
            cache_hits: count(&self.cache.hits),
            cache_misses: count(&self.cache.misses),
        }
    }
}
