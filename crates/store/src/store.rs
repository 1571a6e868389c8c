//! The open store: what the reduction core and the application call.

use crate::catalogue::{CatalogueError, KeyValue};
use crate::config::Config;
use crate::error::OpenError;
use crate::flush;
use crate::footer::FooterBuilder;
use crate::format::{ADDR_END, CHUNKS_PER_RECORD_MAX, FRAME_HEADER_LEN, NOTE_LEN_MAX};
use crate::ledgers::LedgerError;
use crate::open;
use crate::replay::Replay;
use crate::seal::CHECK_LEN_MAX;
use crate::segment::Segment;
use crate::shared::Shared;
use crate::stats::StoreStats;
use crate::sync::{lock, read, write};
use crate::table::Record;
use crate::writer::NOTE_OVERHEAD_MAX;
use bytes::Bytes;
use isthmus_reduction::content::{
    Addr, AppendError, ChunkKey, ChunkMeta, ContentStore, LedgerId, Pin, ReadError,
};
use isthmus_types::limits::{DOMAIN_LEN_MAX, RECORD_BYTES_MAX};
use isthmus_types::{Domain, StoreId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

/// An open chunk store. Closed in good order when dropped; what was appended before a crash is found again.
pub struct Store {
    shared: Arc<Shared>,
    flusher: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the store, or makes it if the directory is empty or absent. The notes of the time before come with it; they
    /// are read from disk while they are taken.
    ///
    /// Nothing on disk is changed when this fails for any reason but the disk's.
    pub fn open(config: Config) -> Result<(Store, Replay), OpenError> {
        let interval = config.flush_interval;
        let (shared, replay) = open::open(config)?;
        let for_flusher = Arc::clone(&shared);
        let flusher = thread::Builder::new()
            .name("store-flush".to_owned())
            .spawn(move || flush::run(&for_flusher, interval))
            .map_err(OpenError::io(&shared.dir))?;
        Ok((Store { shared, flusher: Some(flusher) }, replay))
    }

    /// The store's identity: by this name peers know what it holds.
    pub fn identity(&self) -> StoreId {
        self.shared.identity.id
    }

    /// How often the store was opened under its identity.
    pub fn generation(&self) -> u64 {
        self.shared.identity.generation
    }

    /// The ledger of a peer's store and a domain. The number stays the same while any note of it is stored.
    pub fn ledger(&self, peer: StoreId, domain: &Domain) -> Result<LedgerId, LedgerError> {
        if domain.0.len() > DOMAIN_LEN_MAX {
            return Err(LedgerError::DomainTooLong);
        }
        let (id, is_new) = lock(&self.shared.ledgers).ensure(peer, domain)?;
        if is_new {
            self.shared.catalogue.save_ledger(id, peer, domain);
        }
        Ok(id)
    }

    /// All ledgers, in the order of their numbers.
    pub fn ledgers(&self) -> Vec<(LedgerId, StoreId, Domain)> {
        lock(&self.shared.ledgers).all()
    }

    /// State and counters.
    pub fn stats(&self) -> StoreStats {
        self.shared.stats()
    }

    /// Waits until everything appended so far is on disk.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// Everything at addresses below this is on disk and would outlive a power cut.
    pub fn durable(&self) -> Addr {
        Addr(self.shared.durable.load(Ordering::Acquire))
    }

    /// Adds a sample (at most [`crate::SAMPLE_LEN_MAX`] bytes) to the statistics history.
    pub fn add_sample(&self, unix_s: u64, sample: &[u8]) -> Result<(), CatalogueError> {
        self.shared.catalogue.add_sample(unix_s, sample)
    }

    /// The samples from `from_s` (Unix seconds) on, oldest first.
    pub fn samples(&self, from_s: u64) -> Result<Vec<(u64, Vec<u8>)>, CatalogueError> {
        self.shared.catalogue.samples(from_s)
    }

    /// Keeps a value for the application. May be lost with the catalogue, or if the machine stops in the next half second.
    pub fn put_value(&self, key: &[u8], value: &[u8]) -> Result<(), CatalogueError> {
        self.shared.catalogue.put(key, value)
    }

    pub fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        self.shared.catalogue.value(key)
    }

    pub fn remove_value(&self, key: &[u8]) -> Result<(), CatalogueError> {
        self.shared.catalogue.remove(key)
    }

    /// The application's values whose key starts with `prefix`, in the order of keys.
    pub fn values(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, CatalogueError> {
        self.shared.catalogue.values(prefix)
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.alarm.stop();
        if let Some(flusher) = self.flusher.take()
            && flusher.join().is_err()
        {
            tracing::error!("the store's flushing thread had panicked");
        }
        self.shared.finish();
    }
}

impl ContentStore for Store {
    fn lookup(&self, key: ChunkKey) -> Option<Addr> {
        let addr = self.shared.index.lookup(key)?;
        // Entries of records set aside stay until their segment goes.
        let set_aside = self.shared.counters.quarantine_len.load(Ordering::Relaxed) > 0
            && read(&self.shared.table).is_quarantined(addr);
        (!set_aside).then_some(Addr(addr))
    }

    fn view(&self, addr: Addr) -> Result<Bytes, ReadError> {
        self.shared.view(addr.0)
    }

    fn append(&self, data: Bytes, chunks: &[ChunkMeta]) -> Result<Addr, AppendError> {
        let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        let fits =
            !data.is_empty() && data.len() <= RECORD_BYTES_MAX && chunks.len() <= CHUNKS_PER_RECORD_MAX;
        if !fits || sum != data.len() as u64 {
            return Err(AppendError::BadRecord);
        }
        let addr = self.shared.append(&data, chunks)?;
        // A copy: a slice of a larger buffer would keep all of that in memory.
        let mut buffer = self.shared.pool.take(data.len());
        buffer.room()[..data.len()].copy_from_slice(&data);
        self.shared.cache.insert(addr, buffer.freeze(data.len()));
        Ok(Addr(addr))
    }

    fn pin(&self, addr: Addr, len: u64) -> Option<Box<dyn Pin>> {
        let mut pinned = SegmentPin { segments: Vec::new() };
        // Pins are set under the table's lock, and a segment is dropped under it only while it has none.
        let covered = read(&self.shared.table).covers(addr.0, len, |segment| pinned.add(segment));
        covered.then(|| Box::new(pinned) as Box<dyn Pin>)
    }

    fn is_live(&self, addr: Addr) -> bool {
        read(&self.shared.table).find(addr.0).is_some()
    }

    fn note(&self, ledger: LedgerId, note: &[u8]) -> Result<(), AppendError> {
        if note.len() > NOTE_LEN_MAX {
            return Err(AppendError::BadRecord);
        }
        let shared = &self.shared;
        let mut writer = lock(&shared.writer);
        if !shared.is_learning() {
            return Err(AppendError::NotLearning);
        }
        // The note is in its frame and in the footer.
        shared.make_room(&mut writer, 2 * (note.len() + DOMAIN_LEN_MAX + NOTE_OVERHEAD_MAX) as u64)?;
        shared.write_note(&mut writer, ledger, note)
    }

    fn quarantine(&self, addr: Addr) {
        self.shared.quarantine(addr.0);
    }
}

impl Shared {
    fn append(&self, data: &[u8], chunks: &[ChunkMeta]) -> Result<u64, AppendError> {
        let mut writer = lock(&self.writer);
        if !self.is_learning() {
            return Err(AppendError::NotLearning);
        }
        let table_len = FooterBuilder::record_len_max(chunks.len());
        let need = FRAME_HEADER_LEN + data.len() + 2 * (table_len + CHECK_LEN_MAX);
        self.make_room(&mut writer, need as u64)?;
        let (addr, len) = (writer.next_addr, data.len() as u32);
        if addr > ADDR_END - u64::from(len) {
            return Err(AppendError::NotLearning);
        }
        let (segment, position) = self.write_record(&mut writer, addr, chunks, data)?;
        writer.next_addr = addr + u64::from(len);
        write(&self.table).push(Record::new(addr, segment, position, len, self.epoch()));
        let mut at = addr;
        for chunk in chunks {
            self.index.insert(chunk.key, at);
            at += u64::from(chunk.len);
        }
        self.counters.appended_bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        Ok(addr)
    }
}

/// Keeps segments from being dropped.
struct SegmentPin {
    segments: Vec<Arc<Segment>>,
}

impl SegmentPin {
    fn add(&mut self, segment: &Arc<Segment>) {
        if self.segments.last().is_none_or(|last| last.number != segment.number) {
            segment.pins.fetch_add(1, Ordering::AcqRel);
            self.segments.push(Arc::clone(segment));
        }
    }
}

impl Pin for SegmentPin {}

impl Drop for SegmentPin {
    fn drop(&mut self) {
        for segment in &self.segments {
            segment.pins.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
