//! One of two proxies loses the end of what it had stored, in the middle of a transfer or between two. What is sent next may
//! miss some of it; what is sent after that may not, in either direction.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use isthmus_reduction::content::{Addr, LedgerId};
use isthmus_reduction::decoder::{Decoder, Delivery, Intake};
use isthmus_reduction::encoder::{Encoder, Step};
use isthmus_reduction::frame::Feedback;
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::memory::MemoryStore;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::Similar;
use isthmus_types::RecordingId;

/// What a warm pass may cost on the wire: a chunk at the start, which cannot be found by its beginning, and names.
const WARM_WIRE_BYTES: u64 = 40_000;

/// Mixtures of faults that are tried.
const SEEDS: u64 = 40;

/// Bytes put into an encoder at a time.
const READ_BYTES: usize = 256 << 10;

/// A reproducible source of choices.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

struct Proxy {
    store: Arc<MemoryStore>,
    shared: Shared,
}

impl Proxy {
    fn open(store: Arc<MemoryStore>) -> Proxy {
        let shared = Shared {
            store: store.clone(),
            ledger: Arc::new(Ledger::new()),
            ledger_id: LedgerId(0),
            similar: Arc::new(Similar::new(1 << 16)),
        };
        for note in store.notes(LedgerId(0)) {
            assert!(shared.ledger.replay(&note));
        }
        Proxy { store, shared }
    }
}

/// What a transfer came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    wire: u64,
    misses: u64,
}

/// One direction of one connection; what is sent arrives so many frames later.
struct Transfer<'a> {
    encoder: Encoder,
    decoder: Decoder,
    content: &'a [u8],
    lag: usize,
    frames: VecDeque<Bytes>,
    asked: VecDeque<Feedback>,
    out: Vec<u8>,
    cost: Cost,
}

impl<'a> Transfer<'a> {
    fn new(from: &Proxy, to: &Proxy, recording: u64, content: &'a [u8], lag: usize) -> Transfer<'a> {
        let id = RecordingId(recording);
        Transfer {
            encoder: Encoder::new(from.shared.clone(), id, 3),
            decoder: Decoder::new(to.shared.clone(), id),
            content,
            lag,
            frames: VecDeque::new(),
            asked: VecDeque::new(),
            out: Vec::new(),
            cost: Cost::default(),
        }
    }

    /// Carries all of it.
    fn finish(mut self) -> Cost {
        for part in self.content.chunks(READ_BYTES) {
            self.put(part, false);
        }
        self.put(&[], true);
        let last = self.encoder.finish().unwrap();
        self.frames.extend(last.map(|frame| frame.bytes));
        self.arrive(0);
        assert!(self.out == self.content, "what came out differs");
        assert!(!self.encoder.awaits_restoring());
        self.encoder.close();
        self.decoder.finish();
        self.cost
    }

    /// Carries it until `bytes` of it have been read, and leaves it there.
    fn interrupted(mut self, bytes: usize) {
        for part in self.content[..bytes].chunks(READ_BYTES) {
            self.put(part, false);
        }
        self.encoder.abandon();
        self.decoder.abandon();
    }

    fn put(&mut self, bytes: &[u8], flush: bool) {
        self.encoder.input().extend_from_slice(bytes);
        while let Step::Frame(frame) = self.encoder.step(flush, false).unwrap() {
            self.frames.push_back(frame.bytes);
            self.arrive(self.lag);
        }
    }

    /// All but the last `lag` frames arrive, and what was missed before.
    fn arrive(&mut self, lag: usize) {
        loop {
            self.answer();
            self.deliver();
            if self.frames.len() <= lag {
                break;
            }
            let Some(frame) = self.frames.pop_front() else { break };
            self.cost.wire += frame.len() as u64;
            let mut intake = self.decoder.take(&frame).unwrap();
            if matches!(intake, Intake::Wait { .. }) {
                intake = self.decoder.resume(true).unwrap();
            }
            let Intake::Done { feedback, .. } = intake else { panic!("gave up, but still waits") };
            self.asked.extend(feedback);
        }
        while lag == 0 && !self.asked.is_empty() {
            self.answer();
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        loop {
            match self.decoder.deliver().unwrap() {
                Delivery::Bytes(pieces) => pieces.iter().for_each(|piece| self.out.extend_from_slice(piece)),
                Delivery::Feedback(feedback) => self.asked.extend(feedback),
                Delivery::Blocked | Delivery::Empty => break,
            }
        }
        self.encoder.progress(self.decoder.frames_restored(), self.out.len() as u64);
    }

    fn answer(&mut self) {
        for message in std::mem::take(&mut self.asked) {
            self.cost.misses += u64::from(matches!(message, Feedback::Miss { .. }));
            for repair in self.encoder.feedback(&message).unwrap() {
                self.cost.wire += repair.len() as u64;
                self.asked.extend(self.decoder.repair(&Feedback::decode(&repair).unwrap()).unwrap());
            }
        }
    }
}

/// Two proxies and what has passed between them.
struct Pair {
    ends: [Proxy; 2],
    recordings: u64,
    lag: usize,
}

impl Pair {
    fn new(lag: usize) -> Pair {
        let end = || Proxy::open(Arc::new(MemoryStore::new()));
        Pair { ends: [end(), end()], recordings: 0, lag }
    }

    fn transfer<'a>(&mut self, from: usize, content: &'a [u8]) -> Transfer<'a> {
        self.recordings += 1;
        Transfer::new(&self.ends[from], &self.ends[1 - from], self.recordings, content, self.lag)
    }

    fn send(&mut self, from: usize, content: &[u8]) -> Cost {
        self.transfer(from, content).finish()
    }

    fn restart(&mut self, end: usize) {
        self.ends[end] = Proxy::open(self.ends[end].store.clone());
    }

    /// An end starts again without the last `entries` that its store took in.
    fn crash(&mut self, end: usize, entries: usize) {
        let store = &self.ends[end].store;
        store.lose_tail(store.entries().saturating_sub(entries));
        self.restart(end);
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

fn text(len: usize, seed: u64) -> Vec<u8> {
    let words = noise(4096, seed);
    let mut chance = Chance(seed);
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        let at = chance.below(500);
        out.extend(words[at * 8..at * 8 + 2 + at % 6].iter().map(|byte| b'a' + byte % 26));
        out.push(b' ');
    }
    out.truncate(len);
    out
}

fn edit(bytes: &[u8], edits: usize, chance: &mut Chance) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for seed in 0..edits as u64 {
        let at = chance.below(out.len() - 64);
        let len = 1 + chance.below(64);
        let new = if chance.below(3) == 0 { Vec::new() } else { noise(len, seed) };
        let old = if chance.below(3) == 0 { at..at } else { at..at + len };
        drop(out.splice(old, new));
    }
    out
}

/// Sends `content` as often as `first` says, and from there, which may cost anything; and then a few times in either
/// direction, which may cost nothing.
fn missed_once(pair: &mut Pair, content: &[u8], first: &[usize], chance: &mut Chance, what: &str) {
    let first: Vec<Cost> = first.iter().map(|&from| pair.send(from, content)).collect();
    for pass in 0..3 {
        let from = chance.below(2);
        let cost = pair.send(from, content);
        assert!(
            cost.misses == 0 && cost.wire < WARM_WIRE_BYTES,
            "{what}: pass {pass}, from {from}: {cost:?} after {first:?}"
        );
    }
}

#[test]
fn a_tail_lost_in_mid_transfer_is_missed_once() {
    for seed in 0..40 {
        let mut chance = Chance(seed);
        let content = noise(3 << 20, seed);
        let mut pair = Pair::new(chance.below(6));
        let (from, loser) = (chance.below(2), chance.below(2));
        let at = content.len() / 4 + chance.below(content.len() / 2);
        pair.transfer(from, &content).interrupted(at);
        let lost = chance.below(pair.ends[loser].store.entries());
        pair.crash(loser, lost);
        let what = format!("seed {seed}, {at} bytes from {from}, {loser} lost {lost}");
        let first = [chance.below(2)];
        missed_once(&mut pair, &content, &first, &mut chance, &what);
    }
}

/// Anything that can happen to either end between two transfers, or in the middle of one.
fn fault(pair: &mut Pair, contents: &[Vec<u8>], chance: &mut Chance) -> String {
    let end = chance.below(2);
    match chance.below(4) {
        0 => {
            let content = &contents[chance.below(contents.len())];
            let at = chance.below(content.len());
            pair.transfer(end, content).interrupted(at);
            format!("{at} bytes from {end}")
        }
        1 => {
            let (store, len) = (&pair.ends[end].store, 1 + chance.below(400_000) as u64);
            let at = chance.below(store.end().0 as usize) as u64;
            store.lose(Addr(at), Addr(at + len));
            format!("{end} lost {len} at {at}")
        }
        2 => {
            pair.restart(end);
            format!("{end} started again")
        }
        _ => {
            let lost = chance.below(pair.ends[end].store.entries());
            pair.crash(end, lost);
            format!("{end} lost its last {lost}")
        }
    }
}

#[test]
fn any_loss_is_missed_once() {
    for seed in 0..SEEDS {
        let mut chance = Chance(seed);
        let old = [noise(900_000, seed), text(300_000, seed)].concat();
        let edited = edit(&old, 25, &mut chance);
        let other = [noise(200_000, seed + 1), old[300_000..700_000].to_vec(), text(200_000, seed)].concat();
        let contents = [old, edited, other];
        let mut pair = Pair::new(chance.below(4));
        for _ in 0..2 + chance.below(5) {
            let (from, which) = (chance.below(2), chance.below(3));
            pair.send(from, &contents[which]);
        }
        let mut what = vec![format!("seed {seed}")];
        for _ in 0..3 {
            what.extend((0..1 + chance.below(3)).map(|_| fault(&mut pair, &contents, &mut chance)));
            let first = chance.below(3);
            for which in (0..3).map(|i| (first + i) % 3) {
                let what = format!("{}, content {which}", what.join(", "));
                let from = chance.below(2);
                missed_once(&mut pair, &contents[which], &[from, 1 - from], &mut chance, &what);
            }
        }
        pair.restart(0);
        pair.restart(1);
        for content in &contents {
            let what = format!("{}, and both started again", what.join(", "));
            let from = chance.below(2);
            let cost = pair.send(from, content);
            assert!(cost.wire < content.len() as u64 / 2, "{what}: {cost:?}");
            missed_once(&mut pair, content, &[1 - from], &mut chance, &what);
        }
    }
}

#[test]
fn what_a_side_did_not_keep_is_not_waited_for() {
    for sender_keeps in [false, true] {
        let mut pair = Pair::new(0);
        pair.ends[usize::from(sender_keeps)].store.set_learning(false);
        let content = noise(1 << 20, 3);
        let mut first = pair.transfer(0, &content);
        first.put(&content, true);
        // The recording stays open. Whoever keeps it refers to it; the other side has nothing to wait for.
        let keeper = usize::from(!sender_keeps);
        let mut second = pair.transfer(keeper, &content);
        second.encoder.input().extend_from_slice(&content);
        let Step::Frame(frame) = second.encoder.step(true, false).unwrap() else { panic!("a frame is due") };
        let intake = second.decoder.take(&frame.bytes).unwrap();
        assert!(matches!(intake, Intake::Done { .. }), "keeper {keeper}: {intake:?}");
    }
}
