//! A chunk store in memory: the model that tests compare real stores with, and the store of a proxy that keeps nothing on disk.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use isthmus_types::limits::RECORD_BYTES_MAX;

use crate::content::{Addr, AppendError, ChunkKey, ChunkMeta, ContentStore, LedgerId, Pin, ReadError};

/// Keeps everything until it is dropped or told to lose it.
#[derive(Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: Vec<(u64, Bytes)>,
    lost: Vec<(u64, u64)>,
    index: HashMap<ChunkKey, Addr>,
    notes: Vec<(LedgerId, Vec<u8>)>,
    /// What was taken in, in order.
    log: Vec<Entry>,
    end: u64,
    learning: bool,
}

/// One thing that the store took in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A record, by its first address.
    Record(u64),
    Note,
}

struct NoPin;
impl Pin for NoPin {}

impl MemoryStore {
    /// An empty store that learns.
    pub fn new() -> MemoryStore {
        let store = MemoryStore::default();
        store.lock().learning = true;
        store
    }

    /// Switches learning on or off, as a full disk does.
    pub fn set_learning(&self, on: bool) {
        self.lock().learning = on;
    }

    /// Forgets the stored bytes from `addr` to `end`, as an eviction does. What is appended later is not concerned.
    pub fn lose(&self, addr: Addr, end: Addr) {
        let mut inner = self.lock();
        let end = end.0.min(inner.end);
        inner.lost.push((addr.0, end));
    }

    /// Records and notes taken in so far.
    pub fn entries(&self) -> usize {
        self.lock().log.len()
    }

    /// Forgets all records and notes but the first `entries`, as a crash does with what was not on disk yet.
    pub fn lose_tail(&self, entries: usize) {
        let mut inner = self.lock();
        let first = entries.min(inner.log.len());
        let tail = inner.log.split_off(first);
        let notes = tail.iter().filter(|entry| **entry == Entry::Note).count();
        let kept = inner.notes.len().saturating_sub(notes);
        inner.notes.truncate(kept);
        // Addresses are not given out again, so the lost ones stay empty.
        let first =
            tail.iter().find_map(|entry| if let Entry::Record(addr) = entry { Some(*addr) } else { None });
        let end = inner.end;
        inner.lost.extend(first.map(|first| (first, end)));
    }

    /// The address after the last stored byte.
    pub fn end(&self) -> Addr {
        Addr(self.lock().end)
    }

    /// All notes of `ledger`, oldest first.
    pub fn notes(&self, ledger: LedgerId) -> Vec<Vec<u8>> {
        self.lock().notes.iter().filter(|(id, _)| *id == ledger).map(|(_, note)| note.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The stored bytes from an address to the end of their record, or to what is lost of it.
    fn view(&self, addr: u64) -> Option<Bytes> {
        if self.lost.iter().any(|range| (range.0..range.1).contains(&addr)) {
            return None;
        }
        let i = self.records.partition_point(|(start, _)| *start <= addr).checked_sub(1)?;
        let (start, data) = &self.records[i];
        let end = start + data.len() as u64;
        let stop = self.lost.iter().map(|range| range.0).filter(|from| *from > addr).fold(end, u64::min);
        (addr < stop).then(|| data.slice((addr - start) as usize..(stop - start) as usize))
    }

    fn covers(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let Some(view) = self.view(at) else { return false };
            at += view.len() as u64;
        }
        true
    }

    /// Where the record that holds an address starts and ends.
    fn record(&self, addr: u64) -> Option<(u64, u64)> {
        let i = self.records.partition_point(|(start, _)| *start <= addr).checked_sub(1)?;
        let (start, data) = &self.records[i];
        let end = start + data.len() as u64;
        (addr < end).then_some((*start, end))
    }
}

impl ContentStore for MemoryStore {
    fn lookup(&self, key: ChunkKey) -> Option<Addr> {
        let inner = self.lock();
        inner.index.get(&key).copied().filter(|addr| inner.view(addr.0).is_some())
    }

    fn view(&self, addr: Addr) -> Result<Bytes, ReadError> {
        self.lock().view(addr.0).ok_or(ReadError::Gone)
    }

    fn append(&self, data: Bytes, chunks: &[ChunkMeta]) -> Result<Addr, AppendError> {
        let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        if data.is_empty() || data.len() > RECORD_BYTES_MAX || total != data.len() as u64 {
            return Err(AppendError::BadRecord);
        }
        let mut inner = self.lock();
        if !inner.learning {
            return Err(AppendError::NotLearning);
        }
        let start = inner.end;
        let mut at = start;
        for chunk in chunks {
            inner.index.insert(chunk.key, Addr(at));
            at += u64::from(chunk.len);
        }
        inner.end += data.len() as u64;
        inner.log.push(Entry::Record(start));
        inner.records.push((start, data));
        Ok(Addr(start))
    }

    fn pin(&self, addr: Addr, len: u64) -> Option<Box<dyn Pin>> {
        self.lock().covers(addr.0, addr.0 + len).then(|| Box::new(NoPin) as Box<dyn Pin>)
    }

    fn is_live(&self, addr: Addr) -> bool {
        self.lock().view(addr.0).is_some()
    }

    fn note(&self, ledger: LedgerId, note: &[u8]) -> Result<(), AppendError> {
        let mut inner = self.lock();
        if !inner.learning {
            return Err(AppendError::NotLearning);
        }
        inner.notes.push((ledger, note.to_vec()));
        inner.log.push(Entry::Note);
        Ok(())
    }

    fn quarantine(&self, addr: Addr) {
        let mut inner = self.lock();
        let record = inner.record(addr.0);
        inner.lost.extend(record);
    }
}
