//! Opened records, shared with readers: a bounded cache, and a pool of buffers so that reading needs no fresh memory.

use crate::sync::lock;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of unused buffers that are kept for the next reads.
const POOL_BYTES_MAX: usize = 2 << 20;
/// Buffers have a length that is a multiple of this, so that they fit one another's use.
const BUFFER_STEP: usize = 4 << 10;

/// Buffers that are not in use.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A buffer with room for `len` bytes, of any content; at most twice as long.
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let room = len.next_multiple_of(BUFFER_STEP);
        let mut free = lock(&self.free);
        let fits = |buffer: &Vec<u8>| (room..=2 * room).contains(&buffer.len());
        let found = free.buffers.iter().position(fits).and_then(|at| free.buffers.swap_remove_back(at));
        if let Some(bytes) = found {
            free.bytes -= bytes.len();
            return Buffer { bytes, len, pool: Arc::clone(self) };
        }
        drop(free);
        Buffer { bytes: vec![0; room], len, pool: Arc::clone(self) }
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut free = lock(&self.free);
        free.bytes += buffer.len();
        free.buffers.push_back(buffer);
        while free.bytes > POOL_BYTES_MAX {
            let Some(oldest) = free.buffers.pop_front() else { break };
            free.bytes -= oldest.len();
        }
    }
}

/// A buffer of the pool; goes back there when dropped.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    /// The whole buffer.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Its first `len` bytes, to be shared.
    pub fn freeze(mut self, len: usize) -> Bytes {
        self.len = len.min(self.bytes.len());
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

/// Opened records by address. Bounded in bytes; what was not asked for again goes first (second chance).
pub(crate) struct Cache {
    kept: Mutex<Kept>,
    bytes_max: usize,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

#[derive(Default)]
struct Kept {
    records: HashMap<u64, Entry>,
    order: VecDeque<u64>,
    bytes: usize,
}

struct Entry {
    payload: Bytes,
    asked: AtomicBool,
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        Cache { kept: Mutex::default(), bytes_max, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// The payload of the record at `addr`. Counts a hit or a miss.
    pub fn lookup(&self, addr: u64) -> Option<Bytes> {
        let found = lock(&self.kept).records.get(&addr).map(|entry| {
            entry.asked.store(true, Ordering::Relaxed);
            entry.payload.clone()
        });
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub fn insert(&self, addr: u64, payload: Bytes) {
        let cost = cost(&payload);
        if cost > self.bytes_max {
            return;
        }
        // Dropped after the lock, since dropping gives buffers back.
        let mut dropped = Vec::new();
        let mut kept = lock(&self.kept);
        let entry = Entry { payload, asked: AtomicBool::new(false) };
        match kept.records.insert(addr, entry) {
            Some(old) => dropped.push(old),
            None => {
                kept.order.push_back(addr);
                kept.bytes += cost;
            }
        }
        while kept.bytes > self.bytes_max {
            let Some(oldest) = kept.order.pop_front() else { break };
            let Some(entry) = kept.records.get(&oldest) else { continue };
            if entry.asked.swap(false, Ordering::Relaxed) {
                kept.order.push_back(oldest);
            } else if let Some(entry) = kept.records.remove(&oldest) {
                kept.bytes -= self::cost(&entry.payload);
                dropped.push(entry);
            }
        }
    }

    pub fn remove(&self, addr: u64) {
        let mut kept = lock(&self.kept);
        let removed = kept.records.remove(&addr);
        if let Some(entry) = &removed {
            kept.bytes -= cost(&entry.payload);
            kept.order.retain(|&kept| kept != addr);
        }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        lock(&self.kept).bytes
    }
}

/// Bytes that a cached payload stands for: its buffer, and the entry.
fn cost(payload: &Bytes) -> usize {
    payload.len().next_multiple_of(BUFFER_STEP) + 128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_stays_within_its_bytes_and_keeps_what_is_asked_for() {
        let cache = Cache::new(40 << 10);
        cache.insert(1, Bytes::from(vec![1; 4096]));
        for addr in 2..100 {
            assert_eq!(cache.lookup(1).unwrap()[0], 1, "before {addr}");
            cache.insert(addr, Bytes::from(vec![addr as u8; 4096]));
            assert!(cache.bytes() <= 40 << 10);
        }
        assert!(cache.lookup(2).is_none());
        assert!(cache.lookup(99).is_some());
        cache.insert(200, Bytes::from(vec![0; 50 << 10]));
        assert!(cache.lookup(200).is_none(), "what does not fit is not kept");
        cache.remove(1);
        assert!(cache.lookup(1).is_none());
        assert_eq!(cache.hits.load(Ordering::Relaxed), 99);
    }

    #[test]
    fn buffers_come_back_and_are_not_much_longer_than_asked_for() {
        let pool = Arc::new(Pool::default());
        let mut buffer = pool.take(100_000);
        buffer.room()[..3].copy_from_slice(b"abc");
        let shared = buffer.freeze(3);
        assert_eq!(&shared[..], b"abc");
        drop(shared);
        assert_eq!(lock(&pool.free).buffers.len(), 1);
        assert_eq!(pool.take(1000).room().len(), 4096);
        assert_eq!(pool.take(60_000).room().len(), 102_400);
        (0..100).map(|_| pool.take(128 << 10)).collect::<Vec<_>>().clear();
        assert!(lock(&pool.free).bytes <= POOL_BYTES_MAX);
    }
}
