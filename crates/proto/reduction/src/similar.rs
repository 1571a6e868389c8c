//! Which stored content resembles new content: a bounded table from content features to addresses.

use std::sync::{Mutex, PoisonError};

use crate::chunker::{CHUNK_BYTES_MIN, FEATURES};
use crate::content::Addr;

/// Slots the table may grow to: 6 bytes each, so 24 MiB, about 350,000 recent chunks.
pub const SLOTS_MAX: usize = 4 << 20;
const SLOTS_FIRST: usize = 64 << 10;
/// A slot holds 32 bits of an address in units of so many bytes: of the first unit that starts behind the chunk's first
/// byte, which is still in the chunk, since chunks of less than two units have no features. The other bits are taken from
/// the newest address; what is older than 2 TiB of new content is not found.
const UNIT_BYTES: u64 = (CHUNK_BYTES_MIN / 4) as u64;

/// Features of recent chunks. A newer chunk takes the slot of an older one with the same low bits, so the table keeps the
/// recent past (two chunks a feature) at a fixed size and needs no upkeep when content is evicted.
pub struct Similar {
    inner: Mutex<Slots>,
    slots_max: usize,
}

#[derive(Default)]
struct Slots {
    /// High bits of the feature whose address is in the slot.
    tags: Vec<u16>,
    /// Addresses, cut to 32 bits of units; 0 is an empty slot.
    places: Vec<u32>,
    /// The highest address inserted, in units.
    newest: u64,
    /// Features inserted so far, which is about the slots in use until the table is full.
    inserted: usize,
}

impl Similar {
    /// A table of at most `slots_max` slots (rounded down to a power of two).
    pub fn new(slots_max: usize) -> Similar {
        let slots_max = slots_max.max(SLOTS_FIRST);
        let slots_max =
            if slots_max.is_power_of_two() { slots_max } else { slots_max.next_power_of_two() / 2 };
        Similar { inner: Mutex::new(Slots::default()), slots_max }
    }

    /// Remembers that a chunk with these features starts at `addr`.
    pub fn insert(&self, features: &[u32; FEATURES], addr: Addr) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.tags.is_empty() {
            (inner.tags, inner.places) = (vec![0; SLOTS_FIRST], vec![0; SLOTS_FIRST]);
        }
        if inner.inserted > inner.tags.len() && inner.tags.len() < self.slots_max {
            inner.grow();
        }
        let unit = addr.0 / UNIT_BYTES + 1;
        inner.newest = inner.newest.max(unit);
        for &feature in features {
            let pair = inner.pair(feature);
            // The earlier entry of this feature stays; those of another are of the past.
            let earlier = if inner.tags[pair] == tag(feature) { inner.places[pair] } else { 0 };
            (inner.tags[pair], inner.tags[pair + 1]) = (tag(feature), tag(feature));
            (inner.places[pair], inner.places[pair + 1]) = (unit as u32, earlier);
        }
        inner.inserted += FEATURES;
    }

    /// Addresses in chunks that share a feature with `features`: at most two a feature, the latest first.
    pub fn candidates(&self, features: &[u32; FEATURES]) -> Vec<Addr> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        if inner.tags.is_empty() {
            return found;
        }
        for &feature in features {
            let pair = inner.pair(feature);
            for slot in pair..pair + 2 {
                if inner.tags[slot] == tag(feature) && inner.places[slot] != 0 {
                    found.extend(inner.addr(inner.places[slot]));
                }
            }
        }
        found
    }

    /// Bytes of memory that the table takes now.
    pub fn memory_bytes(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.tags.capacity() * size_of::<u16>() + inner.places.capacity() * size_of::<u32>()
    }
}

impl Slots {
    /// First of the two slots of a feature.
    fn pair(&self, feature: u32) -> usize {
        (feature as usize & (self.tags.len() / 2 - 1)) * 2
    }

    /// The latest address that a place may stand for.
    fn addr(&self, place: u32) -> Option<Addr> {
        let age = (self.newest as u32).wrapping_sub(place);
        Some(Addr(self.newest.checked_sub(u64::from(age))? * UNIT_BYTES))
    }

    /// Doubles the table. A slot keeps 16 high bits of its feature, not the low ones that chose the slot, so an old
    /// entry goes to both slots that it may belong to; the wrong copy is overwritten or never asked for.
    fn grow(&mut self) {
        double(&mut self.tags);
        double(&mut self.places);
    }
}

fn tag(feature: u32) -> u16 {
    (feature >> 16) as u16
}

/// Appends a copy of itself to a table, in place where the allocator can: the old one beside the new one would be as much
/// again.
fn double<T: Copy>(table: &mut Vec<T>) {
    table.reserve_exact(table.len());
    table.extend_from_within(..);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features_of(seed: u32) -> [u32; FEATURES] {
        std::array::from_fn(|i| (seed * 31 + i as u32 + 1).wrapping_mul(0x9e37_79b1))
    }

    fn is_in_chunk_at(start: u64, found: Addr) -> bool {
        (start..start + CHUNK_BYTES_MIN as u64 / 2).contains(&found.0)
    }

    #[test]
    fn finds_what_was_inserted_and_keeps_its_bound() {
        let table = Similar::new(SLOTS_FIRST * 2);
        assert_eq!(table.candidates(&features_of(1)).len(), 0);
        for chunk in 0..100_000u32 {
            table.insert(&features_of(chunk), Addr(u64::from(chunk) * 8191));
        }
        let newest = table.candidates(&features_of(99_999));
        assert!(newest.iter().all(|addr| is_in_chunk_at(99_999 * 8191, *addr)), "{newest:?}");
        assert_eq!(newest.len(), FEATURES);
        assert!(table.memory_bytes() <= SLOTS_FIRST * 2 * 6);
    }

    #[test]
    fn the_last_two_of_a_feature_are_kept() {
        let table = Similar::new(SLOTS_FIRST);
        for addr in [0, 10_000, 20_000] {
            table.insert(&[7; FEATURES], Addr(addr));
        }
        let found = table.candidates(&[7; FEATURES]);
        assert!(found.iter().all(|addr| is_in_chunk_at(20_000, *addr)), "one pair, written twelve times");
        let other = [7 + (1 << 31); FEATURES];
        assert_eq!(table.candidates(&other), [], "same pair, another tag");
        let single: [u32; FEATURES] = std::array::from_fn(|i| 1000 + i as u32);
        table.insert(&single, Addr(1 << 20));
        table.insert(&single, Addr(1 << 21));
        let found = table.candidates(&single);
        assert_eq!(found.len(), 2 * FEATURES);
        assert!(is_in_chunk_at(1 << 21, found[0]) && is_in_chunk_at(1 << 20, found[1]), "{found:?}");
    }

    #[test]
    fn addresses_far_apart_are_told_apart() {
        let table = Similar::new(SLOTS_FIRST);
        let (old, new) = ((1 << 45) - 5, (1 << 45) + (1 << 40));
        table.insert(&features_of(1), Addr(old));
        table.insert(&features_of(2), Addr(new));
        assert!(table.candidates(&features_of(1)).iter().all(|addr| is_in_chunk_at(old, *addr)));
        assert!(table.candidates(&features_of(2)).iter().all(|addr| is_in_chunk_at(new, *addr)));
    }

    #[test]
    fn entries_survive_growth() {
        let table = Similar::new(SLOTS_MAX);
        let place = |chunk: u32| u64::from(chunk) * 2000;
        for chunk in 0..20_000u32 {
            table.insert(&features_of(chunk), Addr(place(chunk)));
        }
        let is_found = |chunk: &u32| {
            table.candidates(&features_of(*chunk)).iter().any(|addr| is_in_chunk_at(place(*chunk), *addr))
        };
        let found = (0..20_000u32).filter(is_found).count();
        assert!(found > 19_000, "{found} of 20000 are still found");
    }
}
