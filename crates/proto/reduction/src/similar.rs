//! Which stored content resembles new content: a bounded table from content features to addresses.

use std::sync::{Mutex, PoisonError};

use crate::chunker::FEATURES;
use crate::content::Addr;

/// Slots the table may grow to: 8 bytes each, so 32 MiB, about 350,000 recent chunks.
pub const SLOTS_MAX: usize = 4 << 20;
const SLOTS_FIRST: usize = 64 << 10;
const ADDR_BITS: u32 = 48;
const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;

/// Features of recent chunks. A newer chunk takes the slot of an older one with the same low bits, so the table keeps the
/// recent past (two chunks a feature) at a fixed size and needs no upkeep when content is evicted.
pub struct Similar {
    inner: Mutex<Slots>,
    slots_max: usize,
}

struct Slots {
    slots: Vec<u64>,
    /// Features inserted so far, which is about the slots in use until the table is full.
    inserted: usize,
}

impl Similar {
    /// A table of at most `slots_max` slots (rounded down to a power of two).
    pub fn new(slots_max: usize) -> Similar {
        let slots_max = slots_max.max(SLOTS_FIRST);
        let slots_max =
            if slots_max.is_power_of_two() { slots_max } else { slots_max.next_power_of_two() / 2 };
        Similar { inner: Mutex::new(Slots { slots: Vec::new(), inserted: 0 }), slots_max }
    }

    /// Remembers that a chunk with these features starts at `addr`.
    pub fn insert(&self, features: &[u32; FEATURES], addr: Addr) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.slots.is_empty() {
            inner.slots = vec![0; SLOTS_FIRST];
        }
        if inner.inserted > inner.slots.len() && inner.slots.len() < self.slots_max {
            inner.grow();
        }
        for &feature in features {
            let pair = inner.pair(feature);
            if inner.slots[pair] & !ADDR_MASK != entry(feature, Addr(0)) || inner.slots[pair] == 0 {
                // Another feature's pair: both its entries are of the past.
                inner.slots[pair + 1] = 0;
            } else {
                inner.slots[pair + 1] = inner.slots[pair];
            }
            inner.slots[pair] = entry(feature, addr);
        }
        inner.inserted += FEATURES;
    }

    /// The addresses that share a feature with `features`: at most two a feature, the latest first.
    pub fn candidates(&self, features: &[u32; FEATURES]) -> Vec<Addr> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        if inner.slots.is_empty() {
            return found;
        }
        for &feature in features {
            let pair = inner.pair(feature);
            for stored in &inner.slots[pair..pair + 2] {
                if *stored != 0 && stored & !ADDR_MASK == entry(feature, Addr(0)) {
                    found.push(Addr(stored & ADDR_MASK));
                }
            }
        }
        found
    }

    /// Bytes of memory that the table takes now.
    pub fn memory_bytes(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).slots.capacity() * 8
    }
}

impl Slots {
    /// First of the two slots of a feature.
    fn pair(&self, feature: u32) -> usize {
        (feature as usize & (self.slots.len() / 2 - 1)) * 2
    }

    /// Doubles the table. A slot's entry keeps 16 high bits of its feature, not the low ones that chose the slot, so an old
    /// entry goes to both slots that it may belong to; the wrong copy is overwritten or never asked for.
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = Vec::with_capacity(old.len() * 2);
        self.slots.extend_from_slice(&old);
        self.slots.extend_from_slice(&old);
    }
}

fn entry(feature: u32, addr: Addr) -> u64 {
    u64::from(feature >> 16) << ADDR_BITS | (addr.0 & ADDR_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features_of(seed: u32) -> [u32; FEATURES] {
        std::array::from_fn(|i| (seed * 31 + i as u32 + 1).wrapping_mul(0x9e37_79b1))
    }

    #[test]
    fn finds_what_was_inserted_and_keeps_its_bound() {
        let table = Similar::new(SLOTS_FIRST * 2);
        assert_eq!(table.candidates(&features_of(1)).len(), 0);
        for chunk in 0..100_000u32 {
            table.insert(&features_of(chunk), Addr(u64::from(chunk) * 8192 + 1));
        }
        let newest = features_of(99_999);
        assert!(table.candidates(&newest).iter().all(|addr| *addr == Addr(99_999 * 8192 + 1)));
        assert_eq!(table.candidates(&newest).len(), FEATURES);
        assert!(table.memory_bytes() <= SLOTS_FIRST * 2 * 8);
    }

    #[test]
    fn entries_survive_growth() {
        let table = Similar::new(SLOTS_MAX);
        for chunk in 0..20_000u32 {
            table.insert(&features_of(chunk), Addr(u64::from(chunk) + 1));
        }
        let found = (0..20_000u32)
            .filter(|&chunk| {
                table.candidates(&features_of(chunk)).iter().any(|addr| addr.0 == u64::from(chunk) + 1)
            })
            .count();
        assert!(found > 19_000, "{found} of 20000 are still found");
    }
}
