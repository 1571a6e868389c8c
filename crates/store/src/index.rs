//! The chunk index in memory: from a chunk's key to the address where it was last stored.
//!
//! An entry is eight bytes: 16 bits of the key above 48 bits of address. Another 16 bits of the key choose one of 65,536
//! buckets, so 32 bits of the key are compared in all. A bucket is kept sorted by the entry's 16 bits, which are as good
//! as random, so the place of an entry can be guessed from them and is found a few steps away. Sorted buckets need no
//! empty slots and can grow by any step, which tables with probing cannot. Eight buckets share one allocation and lock.

use crate::sync::{read, write};
use isthmus_reduction::content::ChunkKey;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUP_BITS: u32 = 13;
const GROUPS: usize = 1 << GROUP_BITS;
const BUCKETS: usize = 8;
const ADDR_BITS: u32 = 48;
const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;
/// A group grows by this share of itself when it is full, so at most so much is unused.
const GROWTH_SHARE: usize = 24;
/// Entries of one group; what comes beyond them is not indexed. 8,192 groups make 536 million.
const GROUP_ENTRIES_MAX: usize = u16::MAX as usize;

/// Index of all chunks in the store. All calls take `&self` and may run at once.
pub(crate) struct Index {
    groups: Box<[RwLock<Group>]>,
    entries: AtomicU64,
    /// Keys are mixed with this, so that chosen content cannot crowd one bucket.
    salt: u64,
}

#[derive(Default)]
struct Group {
    entries: Vec<u64>,
    /// Where each bucket ends in `entries`.
    ends: [u16; BUCKETS],
}

/// Where a key belongs.
struct Home {
    group: usize,
    bucket: usize,
    tag: u64,
}

impl Index {
    /// An empty index. `salt` should be random.
    pub fn new(salt: u64) -> Index {
        Index { groups: (0..GROUPS).map(|_| RwLock::default()).collect(), entries: AtomicU64::new(0), salt }
    }

    /// Entries in the index.
    pub fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// The address last stored for `key`. With probability of about `len` / 2^32, that of another key.
    pub fn lookup(&self, key: ChunkKey) -> Option<u64> {
        let home = self.home(key);
        let group = read(&self.groups[home.group]);
        group.find(&home).ok().map(|at| group.entries[at] & ADDR_MASK)
    }

    /// Sets the address of `key`, unless a higher one is known: addresses grow, so the higher one is newer.
    pub fn insert(&self, key: ChunkKey, addr: u64) {
        let home = self.home(key);
        let entry = home.tag << ADDR_BITS | addr & ADDR_MASK;
        let mut group = write(&self.groups[home.group]);
        match group.find(&home) {
            Ok(at) => group.entries[at] = group.entries[at].max(entry),
            Err(at) => {
                if group.insert(home.bucket, at, entry) {
                    self.entries.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Drops the entry of `key` if it has this address.
    pub fn remove(&self, key: ChunkKey, addr: u64) {
        let home = self.home(key);
        let mut group = write(&self.groups[home.group]);
        if let Ok(at) = group.find(&home)
            && group.entries[at] & ADDR_MASK == addr
        {
            group.remove(home.bucket, at);
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Keeps the entries whose address passes; looks at all of them.
    pub fn retain(&self, mut keep: impl FnMut(u64) -> bool) {
        for group in &self.groups {
            let mut group = write(group);
            for at in (0..group.entries.len()).rev() {
                if !keep(group.entries[at] & ADDR_MASK) {
                    let bucket = group.ends.iter().take_while(|&&end| usize::from(end) <= at).count();
                    group.remove(bucket, at);
                    self.entries.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn home(&self, key: ChunkKey) -> Home {
        let mixed = (key.0 ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        Home {
            group: (mixed >> (64 - GROUP_BITS)) as usize,
            bucket: (mixed >> (61 - GROUP_BITS)) as usize % BUCKETS,
            tag: mixed & 0xffff,
        }
    }
}

impl Group {
    /// Place of the entry with the tag, or the place where it belongs.
    fn find(&self, home: &Home) -> Result<usize, usize> {
        let start = if home.bucket == 0 { 0 } else { usize::from(self.ends[home.bucket - 1]) };
        let bucket = &self.entries[start..usize::from(self.ends[home.bucket])];
        let mut at = (home.tag as usize * bucket.len()) >> 16;
        while at > 0 && bucket[at - 1] >> ADDR_BITS >= home.tag {
            at -= 1;
        }
        while at < bucket.len() && bucket[at] >> ADDR_BITS < home.tag {
            at += 1;
        }
        match bucket.get(at) {
            Some(entry) if entry >> ADDR_BITS == home.tag => Ok(start + at),
            _ => Err(start + at),
        }
    }

    /// False if the group is full.
    fn insert(&mut self, bucket: usize, at: usize, entry: u64) -> bool {
        let len = self.entries.len();
        if len == GROUP_ENTRIES_MAX {
            return false;
        }
        if len == self.entries.capacity() {
            self.entries.reserve_exact((len / GROWTH_SHARE).max(4));
        }
        self.entries.insert(at, entry);
        self.ends[bucket..].iter_mut().for_each(|end| *end += 1);
        true
    }

    fn remove(&mut self, bucket: usize, at: usize) {
        self.entries.remove(at);
        self.ends[bucket..].iter_mut().for_each(|end| *end -= 1);
        if self.entries.len() * 2 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() + self.entries.len() / GROWTH_SHARE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn key(n: u64) -> ChunkKey {
        ChunkKey::of(&n.to_le_bytes())
    }

    #[test]
    fn finds_what_was_inserted_last_and_nothing_that_was_removed() {
        let index = Index::new(42);
        let n = 200_000;
        for i in 0..n {
            index.insert(key(i), i * 10);
        }
        let lost = (0..n).filter(|&i| index.lookup(key(i)) != Some(i * 10)).count();
        assert!(lost <= 20, "{lost} of {n} were taken for another, expected about 5");
        let found = (n..2 * n).filter(|&i| index.lookup(key(i)).is_some()).count();
        assert!(found <= 40, "{found} of {n} unknown keys were found, expected about 9");

        index.insert(key(7), 69);
        assert_eq!(index.lookup(key(7)), Some(70), "an older address does not replace a newer one");
        index.remove(key(7), 69);
        assert_eq!(index.lookup(key(7)), Some(70), "an entry is removed with its own address only");
        index.retain(|addr| addr >= n * 5);
        for i in 0..n / 2 {
            index.remove(key(n / 2 + i), (n / 2 + i) * 10);
        }
        assert!(index.len() <= 20);
        assert!((0..n).filter(|&i| index.lookup(key(i)).is_some()).count() <= 20);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(ops in proptest::collection::vec((0u8..3, 0u64..40, 1u64..1000), 1..300)) {
            let index = Index::new(1);
            let mut model: HashMap<u64, u64> = HashMap::new();
            for (op, k, addr) in ops {
                match op {
                    0 => {
                        index.insert(key(k), addr);
                        let entry = model.entry(k).or_insert(addr);
                        *entry = addr.max(*entry);
                    }
                    1 => {
                        index.remove(key(k), addr);
                        if model.get(&k) == Some(&addr) {
                            model.remove(&k);
                        }
                    }
                    _ => {
                        index.retain(|a| a % 7 != addr % 7);
                        model.retain(|_, a| *a % 7 != addr % 7);
                    }
                }
                prop_assert_eq!(index.len(), model.len() as u64);
                for k in 0..40 {
                    prop_assert_eq!(index.lookup(key(k)), model.get(&k).copied());
                }
            }
        }
    }
}
