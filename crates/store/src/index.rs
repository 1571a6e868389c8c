//! The chunk index in memory: from a chunk's key to the address where it was last stored.
//!
//! An entry is eight bytes: 16 bits of the key above 48 bits of address. Another 16 bits of the key choose one of 65,536
//! buckets, so 32 bits of the key are compared in all. A bucket is kept sorted by the entry's 16 bits, which are as good
//! as random, so the place of an entry can be guessed from them and is found a few steps away. Sorted buckets need no
//! empty slots and can grow by any step, which tables with probing cannot. Two buckets share one allocation and lock.

use crate::sync::{read, write};
use isthmus_reduction::content::ChunkKey;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

const BUCKET_BITS: u32 = 16;
const BUCKETS_PER_GROUP: usize = 2;
const GROUPS: usize = (1 << BUCKET_BITS) / BUCKETS_PER_GROUP;
const ADDR_BITS: u32 = 48;
const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;
/// A group grows by this share of itself when it is full, so at most so much is unused.
const GROWTH_SHARE: usize = 24;
/// Entries of one group; what comes beyond them is not indexed.
const GROUP_ENTRIES_MAX: usize = u16::MAX as usize;
/// Entries that a [`Batch`] gathers: 2 MiB.
const BATCH_ENTRIES: usize = 128 << 10;

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
    ends: [u16; BUCKETS_PER_GROUP],
}

/// Where a key belongs.
struct Home {
    group: usize,
    bucket: usize,
    tag: u64,
}

/// Entries that are put in together, in the order of their buckets: several times faster than one by one when there are
/// many, since the index is gone through in order. They are found once the batch is flushed.
pub(crate) struct Batch<'a> {
    index: &'a Index,
    pending: Vec<Pending>,
    scratch: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    bucket: u32,
    entry: u64,
}

impl<'a> Batch<'a> {
    pub fn new(index: &'a Index) -> Batch<'a> {
        Batch { index, pending: Vec::with_capacity(BATCH_ENTRIES), scratch: Vec::new() }
    }

    /// As [`Index::insert`].
    pub fn insert(&mut self, key: ChunkKey, addr: u64) {
        let home = self.index.home(key);
        let bucket = (home.group * BUCKETS_PER_GROUP + home.bucket) as u32;
        self.pending.push(Pending { bucket, entry: entry_of(home.tag, addr) });
        if self.pending.len() == BATCH_ENTRIES {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        self.pending.sort_unstable();
        let group_of = |pending: &Pending| pending.bucket as usize / BUCKETS_PER_GROUP;
        let mut added = 0;
        for run in self.pending.chunk_by(|a, b| group_of(a) == group_of(b)) {
            let mut group = write(&self.index.groups[group_of(&run[0])]);
            added += group.merge(run, &mut self.scratch);
        }
        self.index.entries.fetch_add(added as u64, Ordering::Relaxed);
        self.pending.clear();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
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
        let entry = entry_of(home.tag, addr);
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

    /// Whether one key is taken for the other.
    #[cfg(test)]
    pub fn confuses(&self, one: ChunkKey, other: ChunkKey) -> bool {
        let place = |key| {
            let home = self.home(key);
            (home.group, home.bucket, home.tag)
        };
        place(one) == place(other)
    }

    fn home(&self, key: ChunkKey) -> Home {
        let mixed = (key.0 ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        let bucket = (mixed >> (64 - BUCKET_BITS)) as usize;
        Home { group: bucket / BUCKETS_PER_GROUP, bucket: bucket % BUCKETS_PER_GROUP, tag: mixed & 0xffff }
    }
}

fn entry_of(tag: u64, addr: u64) -> u64 {
    tag << ADDR_BITS | addr & ADDR_MASK
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
        self.reserve(len + 1);
        self.entries.insert(at, entry);
        self.ends[bucket..].iter_mut().for_each(|end| *end += 1);
        true
    }

    /// Puts in sorted entries of this group; of two with one tag the newer stays. Returns how many were added.
    fn merge(&mut self, run: &[Pending], scratch: &mut Vec<u64>) -> usize {
        scratch.clear();
        let (mut run, mut start) = (run, 0);
        for bucket in 0..BUCKETS_PER_GROUP {
            let first = scratch.len();
            let is_here = |pending: &Pending| pending.bucket as usize % BUCKETS_PER_GROUP == bucket;
            let (mut new, rest) = run.split_at(run.iter().take_while(|pending| is_here(pending)).count());
            let mut old = &self.entries[start..usize::from(self.ends[bucket])];
            while let Some(entry) = take_smaller(&mut old, &mut new) {
                let len = scratch.len();
                if len > first && scratch[len - 1] >> ADDR_BITS == entry >> ADDR_BITS {
                    scratch[len - 1] = entry;
                } else if len < GROUP_ENTRIES_MAX {
                    scratch.push(entry);
                }
            }
            start = usize::from(self.ends[bucket]);
            self.ends[bucket] = scratch.len() as u16;
            run = rest;
        }
        let added = scratch.len() - self.entries.len();
        self.reserve(scratch.len());
        self.entries.clear();
        self.entries.extend_from_slice(scratch);
        added
    }

    /// Makes room for so many entries in all, and a few more.
    fn reserve(&mut self, len: usize) {
        if len > self.entries.capacity() {
            self.entries.reserve_exact(len + (len / GROWTH_SHARE).max(4) - self.entries.len());
        }
    }

    fn remove(&mut self, bucket: usize, at: usize) {
        self.entries.remove(at);
        self.ends[bucket..].iter_mut().for_each(|end| *end -= 1);
        if self.entries.len() * 2 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() + self.entries.len() / GROWTH_SHARE);
        }
    }
}

/// Takes the smaller one of the first entries of two sorted runs.
fn take_smaller(old: &mut &[u64], new: &mut &[Pending]) -> Option<u64> {
    let (a, b) = (old.first().copied(), new.first().map(|pending| pending.entry));
    if a.is_some_and(|a| b.is_none_or(|b| a <= b)) {
        *old = &old[1..];
        return a;
    }
    *new = new.get(1..).unwrap_or_default();
    b
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

        let batched = Index::new(42);
        let mut batch = Batch::new(&batched);
        (0..n).for_each(|i| batch.insert(key(i), i * 10));
        drop(batch);
        assert_eq!(batched.len(), index.len());
        assert!((0..n).all(|i| batched.lookup(key(i)) == index.lookup(key(i))));

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
        fn a_batch_does_what_single_inserts_do(
            before in proptest::collection::vec((0u64..300, 1u64..1000), 0..200),
            batch in proptest::collection::vec((0u64..300, 1u64..1000), 0..300),
        ) {
            let (one_by_one, batched) = (Index::new(3), Index::new(3));
            for &(k, addr) in &before {
                one_by_one.insert(key(k), addr);
                batched.insert(key(k), addr);
            }
            batch.iter().for_each(|&(k, addr)| one_by_one.insert(key(k), addr));
            {
                let mut together = Batch::new(&batched);
                batch.iter().for_each(|&(k, addr)| together.insert(key(k), addr));
            }
            prop_assert_eq!(one_by_one.len(), batched.len());
            for k in 0..300 {
                prop_assert_eq!(one_by_one.lookup(key(k)), batched.lookup(key(k)));
            }
        }

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
