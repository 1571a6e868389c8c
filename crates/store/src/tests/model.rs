//! The store against a simple model of itself, in random order, and under several threads.

use super::*;
use isthmus_reduction::content::{LedgerId, ReadError};
use isthmus_types::{Domain, StoreId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Op {
    Append {
        len: usize,
    },
    View {
        nth: usize,
        offset: usize,
    },
    Note {
        ledger: u8,
        len: usize,
    },
    Pin {
        nth: usize,
    },
    Unpin,
    Quarantine {
        nth: usize,
    },
    Watch,
    /// Close and open; or with `crash`, leave the segment without a footer and lose the catalogue.
    Reopen {
        crash: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (300usize..250_000).prop_map(|len| Op::Append { len }),
        2 => (16usize..300).prop_map(|len| Op::Append { len }),
        6 => (any::<usize>(), any::<usize>()).prop_map(|(nth, offset)| Op::View { nth, offset }),
        3 => (0u8..3, 0usize..2000).prop_map(|(ledger, len)| Op::Note { ledger, len }),
        1 => any::<usize>().prop_map(|nth| Op::Pin { nth }),
        1 => Just(Op::Unpin),
        1 => any::<usize>().prop_map(|nth| Op::Quarantine { nth }),
        1 => Just(Op::Watch),
        1 => any::<bool>().prop_map(|crash| Op::Reopen { crash }),
    ]
}

/// What the store was given.
#[derive(Default)]
struct Model {
    records: BTreeMap<u64, Bytes>,
    quarantined: Vec<u64>,
    /// Ledger, number and length; the number is also what the note starts with.
    notes: Vec<(u8, u32, usize)>,
    evicted: bool,
    seed: u64,
}

struct Tester {
    dir: TempDir,
    encrypted: bool,
    store: Option<Store>,
    pins: Vec<(u64, Box<dyn isthmus_reduction::content::Pin>)>,
    ledgers: Vec<LedgerId>,
    model: Model,
}

impl Tester {
    fn new(encrypted: bool) -> Tester {
        let mut tester = Tester {
            dir: temp(),
            encrypted,
            store: None,
            pins: Vec::new(),
            ledgers: Vec::new(),
            model: Model::default(),
        };
        tester.reopen(false);
        tester
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn nth(&self, nth: usize) -> Option<(u64, Bytes)> {
        let n = nth.checked_rem(self.model.records.len())?;
        self.model.records.iter().nth(n).map(|(addr, data)| (*addr, data.clone()))
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Append { len } => {
                self.model.seed += 1;
                let data = content(self.model.seed, len);
                match append(self.store(), &data) {
                    Ok(addr) => {
                        let last = self.model.records.last_key_value();
                        assert!(last.is_none_or(|(last, data)| last + data.len() as u64 <= addr.0));
                        self.model.records.insert(addr.0, data);
                    }
                    Err(e) => assert!(e == AppendError::NotLearning && !self.pins.is_empty()),
                }
            }
            Op::View { nth, offset } => {
                let Some((addr, data)) = self.nth(nth) else { return };
                let offset = offset % data.len();
                match self.store().view(Addr(addr + offset as u64)) {
                    Ok(bytes) => assert_eq!(bytes, data.slice(offset..)),
                    Err(e) => assert_eq!(e, ReadError::Gone),
                }
            }
            Op::Note { ledger, len } => {
                let number = self.model.notes.len() as u32;
                let note = [&number.to_le_bytes()[..], &content(u64::from(number), len)].concat();
                match self.store().note(self.ledgers[usize::from(ledger)], &note) {
                    Ok(()) => self.model.notes.push((ledger, number, note.len())),
                    Err(e) => assert!(e == AppendError::NotLearning && !self.pins.is_empty()),
                }
            }
            Op::Pin { nth } => {
                let Some((addr, data)) = self.nth(nth) else { return };
                let pin = self.store().pin(Addr(addr), data.len() as u64);
                assert_eq!(pin.is_some(), self.store().is_live(Addr(addr)));
                self.pins.extend(pin.map(|pin| (addr, pin)));
            }
            Op::Unpin => self.pins.clear(),
            Op::Quarantine { nth } => {
                let Some((addr, _)) = self.nth(nth) else { return };
                if self.store().is_live(Addr(addr)) {
                    self.store().quarantine(Addr(addr));
                    self.model.quarantined.push(addr);
                    self.pins.retain(|(pinned, _)| *pinned != addr);
                }
            }
            Op::Watch => self.store().shared().watch(true),
            Op::Reopen { crash } => self.reopen(crash),
        }
        self.model.evicted |= self.store().stats().evicted_segments > 0;
        self.check();
    }

    fn reopen(&mut self, crash: bool) {
        self.pins.clear();
        let live_before = self.store.as_ref().map(|store| self.live(store));
        if crash && let Some(store) = self.store.take() {
            let copy = temp();
            copy_killed(self.dir.path(), copy.path());
            drop(store);
            self.dir = copy;
            // Setting aside is lost with the catalogue.
            self.model.quarantined.clear();
        }
        self.store.take();
        let (store, replay) = open(self.dir.path(), self.encrypted);
        if let Some(live) = live_before {
            let gone: Vec<_> = live.into_iter().filter(|&addr| !store.is_live(Addr(addr))).collect();
            assert_eq!(gone, [], "what was live before is live after");
        }
        let peers = [0u8, 1, 2].map(|n| store.ledger(StoreId([n; 16]), &Domain("x".into())).unwrap());
        self.ledgers = peers.to_vec();
        let replayed: Vec<_> = replay
            .map(|(id, note)| {
                let number = u32::from_le_bytes(note[..4].try_into().unwrap());
                assert_eq!(note[4..], content(u64::from(number), note.len() - 4));
                (peers.iter().position(|peer| *peer == id).unwrap() as u8, number, note.len())
            })
            .collect();
        // Notes go with their segments, and not the oldest segments go but those used least.
        let numbers: Vec<_> = replayed.iter().map(|note| note.1 as usize).collect();
        assert!(numbers.is_sorted() && numbers.len() == BTreeSet::from_iter(numbers.iter()).len());
        assert!(replayed.iter().zip(&numbers).all(|(note, &n)| *note == self.model.notes[n]));
        assert!(self.model.evicted || replayed.len() == self.model.notes.len());
        self.store = Some(store);
    }

    fn live(&self, store: &Store) -> Vec<u64> {
        self.model.records.keys().copied().filter(|&addr| store.is_live(Addr(addr))).collect()
    }

    fn check(&self) {
        let store = self.store();
        let stats = store.stats();
        assert!(stats.disk_bytes <= CAP && disk_bytes(self.dir.path()) <= CAP);
        let live = self.live(store);
        assert_eq!(live.len() as u64, stats.records);
        assert_eq!(
            stats.live_bytes,
            live.iter().map(|addr| self.model.records[addr].len() as u64).sum::<u64>()
        );
        for (addr, _) in &self.pins {
            assert!(store.is_live(Addr(*addr)), "pinned records stay");
        }
        for addr in &self.model.quarantined {
            assert!(!store.is_live(Addr(*addr)) && store.view(Addr(*addr)).is_err());
        }
        for addr in live {
            let key = ChunkKey::of(self.model.records[&addr].chunks(CHUNK).next().unwrap());
            let Some(Addr(found)) = store.lookup(key) else { panic!("nothing is found by its first chunk") };
            // The index compares 32 bits of a key, mixed with a random salt: now and then two are taken for one.
            let alike = || store.shared().index.confuses(key, self.chunk_at(found));
            assert!(found == addr || alike(), "a live record is found by its first chunk");
        }
    }

    fn chunk_at(&self, addr: u64) -> ChunkKey {
        let (from, data) = self.model.records.range(..=addr).next_back().unwrap();
        ChunkKey::of(data[(addr - from) as usize..].chunks(CHUNK).next().unwrap())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_its_model(encrypted in any::<bool>(), ops in proptest::collection::vec(op(), 1..160)) {
        let mut tester = Tester::new(encrypted);
        ops.into_iter().for_each(|op| tester.run(op));
    }
}

#[test]
fn threads_append_read_and_pin_at_once() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut mine = Vec::new();
                for i in 0..150 {
                    let seed = thread * 1000 + i;
                    let data = content(seed, 30_000);
                    let Ok(addr) = append(store, &data) else { continue };
                    mine.push((seed, addr));
                    let pin = store.pin(addr, 30_000);
                    assert!(store.view(addr).is_ok(), "nothing so new is dropped at this pace");
                    let (old_seed, old) = mine[(seed as usize * 7) % mine.len()];
                    match store.view(old.plus(5)) {
                        Ok(bytes) => assert_eq!(bytes, content(old_seed, 30_000).slice(5..)),
                        Err(e) => assert_eq!(e, ReadError::Gone),
                    }
                    drop(pin);
                }
            });
        }
    });
    assert!(store.stats().evicted_segments > 0 && disk_bytes(dir.path()) <= CAP);
}
