//! A sorted map from addresses, for millions of entries.

/// Entries of one leaf.
const LEAF_ENTRIES_MAX: usize = 128;
/// A leaf with fewer is joined with a neighbour when that leaves room.
const LEAF_ENTRIES_MIN: usize = LEAF_ENTRIES_MAX / 4;

/// A B-tree of two levels. Content is mostly learned in the order of its addresses, so a leaf that is full at the end is
/// left full and a new one begun: half the memory of a B-tree that splits it, or of a hash table that doubles.
pub(super) struct AddrMap<V> {
    /// Never empty ones, each sorted, in order.
    leaves: Vec<Vec<(u64, V)>>,
    len: usize,
}

/// Where an entry is: leaf, and place in it.
type Place = (usize, usize);

impl<V> Default for AddrMap<V> {
    fn default() -> AddrMap<V> {
        AddrMap { leaves: Vec::new(), len: 0 }
    }
}

impl<V: Copy> AddrMap<V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, key: u64) -> Option<V> {
        self.floor(key).filter(|(found, _)| *found == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let (leaf, at) = self.place(key).ok()?;
        Some(&mut self.leaves[leaf][at].1)
    }

    /// The last entry at or below a key.
    pub fn floor(&self, key: u64) -> Option<(u64, V)> {
        let leaf = &self.leaves[self.leaf(key)?];
        leaf[..leaf.partition_point(|(start, _)| *start <= key)].last().copied()
    }

    /// All entries from a key on.
    pub fn from(&self, key: u64) -> impl Iterator<Item = (u64, V)> {
        let first = self.leaf(key).unwrap_or(0);
        let (head, rest) = self.leaves[first..].split_first().map_or((&[][..], &[][..]), |(head, rest)| {
            (&head[head.partition_point(|(start, _)| *start < key)..], rest)
        });
        head.iter().chain(rest.iter().flatten()).copied()
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: u64, value: V) {
        let (leaf, at) = match self.place(key) {
            Ok((leaf, at)) => {
                self.leaves[leaf][at].1 = value;
                return;
            }
            Err(place) => place,
        };
        self.len += 1;
        if self.leaves.is_empty() {
            self.leaves.push(vec![(key, value)]);
        } else if self.leaves[leaf].len() < LEAF_ENTRIES_MAX {
            self.leaves[leaf].insert(at, (key, value));
        } else if at == LEAF_ENTRIES_MAX && leaf + 1 == self.leaves.len() {
            // More in order are likely to come: growing leaf by leaf would leave holes in the heap.
            let mut last = Vec::with_capacity(LEAF_ENTRIES_MAX);
            last.push((key, value));
            self.leaves.push(last);
        } else {
            let mut upper = self.leaves[leaf].split_off(LEAF_ENTRIES_MAX / 2);
            match at.checked_sub(LEAF_ENTRIES_MAX / 2) {
                Some(at) => upper.insert(at, (key, value)),
                None => self.leaves[leaf].insert(at, (key, value)),
            }
            self.leaves[leaf].shrink_to_fit();
            self.leaves.insert(leaf + 1, upper);
        }
    }

    pub fn remove(&mut self, key: u64) -> Option<V> {
        let (leaf, at) = self.place(key).ok()?;
        let (_, value) = self.leaves[leaf].remove(at);
        self.len -= 1;
        self.join(leaf);
        Some(value)
    }

    /// Keeps the entries that pass.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        self.len = 0;
        let mut kept: Vec<Vec<(u64, V)>> = Vec::with_capacity(self.leaves.len());
        for mut leaf in self.leaves.drain(..) {
            leaf.retain(|(key, value)| keep(*key, value));
            self.len += leaf.len();
            match kept.last_mut() {
                Some(last) if last.len() + leaf.len() <= LEAF_ENTRIES_MAX => last.append(&mut leaf),
                _ if leaf.is_empty() => {}
                _ => kept.push(leaf),
            }
        }
        kept.iter_mut().for_each(Vec::shrink_to_fit);
        kept.shrink_to_fit();
        self.leaves = kept;
    }

    /// The leaf in which a key is or belongs, unless it is below all others.
    fn leaf(&self, key: u64) -> Option<usize> {
        self.leaves.partition_point(|leaf| leaf[0].0 <= key).checked_sub(1)
    }

    /// Where a key is, or where it belongs.
    fn place(&self, key: u64) -> Result<Place, Place> {
        let Some(leaf) = self.leaf(key) else { return Err((0, 0)) };
        match self.leaves[leaf].binary_search_by_key(&key, |(start, _)| *start) {
            Ok(at) => Ok((leaf, at)),
            Err(at) => Err((leaf, at)),
        }
    }

    /// Removes a leaf that has become empty, and joins one that has become small with a neighbour that is not large.
    fn join(&mut self, leaf: usize) {
        let len = self.leaves[leaf].len();
        if len == 0 {
            self.leaves.remove(leaf);
        } else if len < LEAF_ENTRIES_MIN {
            let fits = |lower: &usize| {
                let upper = self.leaves.get(lower + 1).map_or(LEAF_ENTRIES_MAX, Vec::len);
                self.leaves[*lower].len() + upper <= LEAF_ENTRIES_MAX / 2
            };
            let lower = [Some(leaf), leaf.checked_sub(1)].into_iter().flatten().find(fits);
            if let Some(lower) = lower {
                let mut upper = self.leaves.remove(lower + 1);
                self.leaves[lower].append(&mut upper);
                self.leaves[lower].shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn leaves_are_full_when_keys_come_in_order() {
        let mut map = AddrMap::default();
        (0..10_000u64).for_each(|key| map.insert(key * 3, key));
        assert_eq!(map.leaves.len(), 10_000usize.div_ceil(LEAF_ENTRIES_MAX));
        assert!(map.from(0).eq((0..10_000u64).map(|key| (key * 3, key))));
    }

    #[test]
    fn leaves_are_joined_when_few_entries_are_left() {
        let mut map = AddrMap::default();
        (0..10_000u64).for_each(|key| map.insert(key, key));
        (0..10_000u64).filter(|key| key % 50 != 7).for_each(|key| assert_eq!(map.remove(key), Some(key)));
        assert_eq!(map.len(), 200);
        assert!(map.leaves.len() <= 200 / LEAF_ENTRIES_MIN * 2, "{}", map.leaves.len());
        map.retain(|key, _| key % 100 == 7);
        assert!(map.from(0).map(|(key, _)| key).eq((0..100).map(|i| i * 100 + 7)));
        assert!(map.leaves.len() <= 2, "{}", map.leaves.len());
    }

    proptest! {
        #[test]
        fn behaves_as_a_btree(
            ops in proptest::collection::vec((0u8..8, 0u64..600), 1..1200),
        ) {
            let (mut map, mut model) = (AddrMap::default(), BTreeMap::new());
            for (i, (op, key)) in ops.into_iter().enumerate() {
                match op {
                    0..5 => {
                        map.insert(key, i);
                        model.insert(key, i);
                    }
                    5..7 => prop_assert_eq!(map.remove(key), model.remove(&key)),
                    _ => {
                        map.retain(|k, _| k % 5 != key % 5);
                        model.retain(|k, _| k % 5 != key % 5);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(key), model.get(&key).copied());
                prop_assert_eq!(map.get_mut(key).copied(), model.get(&key).copied());
                let floor = model.range(..=key).next_back().map(|(key, value)| (*key, *value));
                prop_assert_eq!(map.floor(key), floor);
                let from = model.range(key..).map(|(key, value)| (*key, *value));
                prop_assert!(map.from(key).eq(from));
            }
        }
    }
}
