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
    end: u64,
    learning: bool,
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
    fn find(&self, addr: Addr) -> Option<(u64, &Bytes)> {
        if self.lost.iter().any(|&(from, to)| (from..to).contains(&addr.0)) {
            return None;
        }
        let i = self.records.partition_point(|(start, _)| *start <= addr.0).checked_sub(1)?;
        let (start, data) = &self.records[i];
        (addr.0 < start + data.len() as u64).then_some((*start, data))
    }
}

impl ContentStore for MemoryStore {
    fn lookup(&self, key: ChunkKey) -> Option<Addr> {
        let inner = self.lock();
        inner.index.get(&key).copied().filter(|addr| inner.find(*addr).is_some())
    }

    fn view(&self, addr: Addr) -> Result<Bytes, ReadError> {
        let inner = self.lock();
        let (start, data) = inner.find(addr).ok_or(ReadError::Gone)?;
        Ok(data.slice((addr.0 - start) as usize..))
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
        inner.records.push((start, data));
        Ok(Addr(start))
    }

    fn pin(&self, addr: Addr, _len: u64) -> Option<Box<dyn Pin>> {
        self.lock().find(addr).map(|_| Box::new(NoPin) as Box<dyn Pin>)
    }

    fn is_live(&self, addr: Addr) -> bool {
        self.lock().find(addr).is_some()
    }

    fn note(&self, ledger: LedgerId, note: &[u8]) -> Result<(), AppendError> {
        let mut inner = self.lock();
        if !inner.learning {
            return Err(AppendError::NotLearning);
        }
        inner.notes.push((ledger, note.to_vec()));
        Ok(())
    }

    fn quarantine(&self, addr: Addr) {
        let mut inner = self.lock();
        let Some((start, data)) = inner.find(addr) else { return };
        let range = (start, start + data.len() as u64);
        inner.lost.push(range);
    }
}
