//! Two codecs back to back: whatever is put in comes out, however it is split, lost or damaged on the way.

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
use proptest::prelude::*;

/// One proxy: a store, and the ledger of the peer.
struct Proxy {
    store: Arc<MemoryStore>,
    shared: Shared,
}

impl Proxy {
    fn new() -> Proxy {
        Proxy::with_store(Arc::new(MemoryStore::new()))
    }

    fn with_store(store: Arc<MemoryStore>) -> Proxy {
        let shared = Shared {
            store: store.clone(),
            ledger: Arc::new(Ledger::new()),
            ledger_id: LedgerId(0),
            similar: Arc::new(Similar::new(1 << 16)),
        };
        Proxy { store, shared }
    }

    /// The proxy after a restart: the ledger is rebuilt from the store's notes.
    fn restart(&self) -> Proxy {
        let proxy = Proxy::with_store(self.store.clone());
        for note in self.store.notes(LedgerId(0)) {
            assert!(proxy.shared.ledger.replay(&note));
        }
        proxy
    }
}

/// One direction between two proxies.
struct Direction {
    encoder: Encoder,
    decoder: Decoder,
    wire: u64,
    misses: u64,
    out: Vec<u8>,
}

impl Direction {
    fn new(from: &Proxy, to: &Proxy, recording: u64) -> Direction {
        let id = RecordingId(recording);
        Direction {
            encoder: Encoder::new(from.shared.clone(), id, 3),
            decoder: Decoder::new(to.shared.clone(), id),
            wire: 0,
            misses: 0,
            out: Vec::new(),
        }
    }

    fn put(&mut self, bytes: &[u8], flush: bool) {
        self.encoder.input().extend_from_slice(bytes);
        self.run(flush);
    }

    fn run(&mut self, flush: bool) {
        while let Step::Frame(frame) = self.encoder.step(flush, false).unwrap() {
            self.carry(&frame.bytes);
        }
    }

    fn carry(&mut self, frame: &Bytes) {
        self.wire += frame.len() as u64;
        let mut intake = self.decoder.take(frame).unwrap();
        if matches!(intake, Intake::Wait { .. }) {
            intake = self.decoder.resume(true).unwrap();
        }
        let Intake::Done { feedback, .. } = intake else { panic!("gave up, but still waits") };
        self.answer(feedback);
        self.drain();
    }

    fn drain(&mut self) {
        loop {
            match self.decoder.deliver().unwrap() {
                Delivery::Bytes(pieces) => pieces.iter().for_each(|piece| self.out.extend_from_slice(piece)),
                Delivery::Feedback(feedback) => self.answer(feedback),
                Delivery::Blocked => panic!("every repair was answered at once"),
                Delivery::Empty => break,
            }
        }
        self.encoder.progress(self.decoder.frames_restored(), self.out.len() as u64);
    }

    fn answer(&mut self, feedback: Vec<Feedback>) {
        let mut queue = VecDeque::from(feedback);
        while let Some(message) = queue.pop_front() {
            self.misses += u64::from(matches!(message, Feedback::Miss { .. }));
            let decoded = Feedback::decode(&message.encode()).unwrap();
            for repair in self.encoder.feedback(&decoded).unwrap_or_else(|error| {
                panic!("{error} for {decoded:?}, in flight {:?}", self.encoder.in_flight())
            }) {
                self.wire += repair.len() as u64;
                queue.extend(self.decoder.repair(&Feedback::decode(&repair).unwrap()).unwrap());
            }
        }
    }

    fn finish(mut self) -> (u64, Vec<u8>, u64) {
        self.run(true);
        if let Some(frame) = self.encoder.finish().unwrap() {
            self.carry(&frame.bytes);
        }
        assert!(!self.encoder.awaits_restoring());
        self.encoder.close();
        self.decoder.finish();
        (self.wire, self.out, self.misses)
    }
}

fn send(from: &Proxy, to: &Proxy, recording: u64, bytes: &[u8], read: usize) -> (u64, u64) {
    let mut direction = Direction::new(from, to, recording);
    for part in bytes.chunks(read) {
        direction.put(part, false);
    }
    let (wire, out, misses) = direction.finish();
    assert!(out == bytes, "what came out differs");
    (wire, misses)
}

fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        out.extend_from_slice(&seed.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

fn text(len: usize, seed: u64) -> Vec<u8> {
    let words = noise(4096, seed);
    let mut out = Vec::with_capacity(len + 16);
    let mut state = seed | 1;
    while out.len() < len {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (state >> 33) as usize % 500;
        let word = &words[at * 8..at * 8 + 2 + at % 6];
        out.extend(word.iter().map(|byte| b'a' + byte % 26));
        out.push(b' ');
    }
    out.truncate(len);
    out
}

fn edit(bytes: &[u8], edits: usize, seed: u64) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let mut state = seed | 1;
    let mut next = |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit.max(1)
    };
    for i in 0..edits {
        let at = next(out.len() - 64);
        let len = 1 + next(64);
        match next(3) {
            0 => drop(out.splice(at..at, noise(len, i as u64))),
            1 => drop(out.drain(at..at + len)),
            _ => drop(out.splice(at..at + len, noise(len, i as u64 + 1000))),
        }
    }
    out
}

#[test]
fn warm_content_costs_tens_of_bytes_in_both_directions() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let data = noise(20 << 20, 7);
    let (cold, _) = send(&a, &b, 1, &data, 256 << 10);
    assert!(cold < data.len() as u64 + data.len() as u64 / 200, "cold cost {cold}");
    let (warm, misses) = send(&a, &b, 2, &data, 256 << 10);
    assert!(warm < 1500, "warm cost {warm}");
    let (back, _) = send(&b, &a, 3, &data, 256 << 10);
    assert!(back < 1500, "the other direction cost {back}");
    assert_eq!(misses, 0);
}

#[test]
fn edits_cost_little_and_the_edited_version_is_warm_afterwards() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let data = [noise(4 << 20, 8), text(4 << 20, 9)].concat();
    send(&a, &b, 1, &data, 64 << 10);
    let edited = edit(&data, 40, 5);
    let (wire, _) = send(&a, &b, 2, &edited, 64 << 10);
    assert!(wire < 40 * 300, "40 edits cost {wire}");
    let (again, _) = send(&a, &b, 3, &edited, 64 << 10);
    assert!(again < 2500, "again cost {again}");
}

#[test]
fn similar_content_without_common_chunks_is_coded_against_it() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let data = noise(1 << 20, 10);
    send(&a, &b, 1, &data, 64 << 10);
    // A change every kilobyte leaves no chunk whole.
    let mut changed = data.clone();
    changed.iter_mut().step_by(1000).for_each(|byte| *byte ^= 0x55);
    let (wire, _) = send(&a, &b, 2, &changed, 64 << 10);
    assert!(wire < changed.len() as u64 / 10, "cost {wire}");
}

#[test]
fn a_restarted_proxy_is_warm_and_a_wiped_one_is_repaired() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let data = noise(3 << 20, 11);
    send(&a, &b, 1, &data, 100_000);
    let (a, b) = (a.restart(), b.restart());
    let (warm, misses) = send(&a, &b, 2, &data, 100_000);
    assert!(warm < 1000 && misses == 0, "warm cost {warm}, {misses} misses");
    let wiped = Proxy::new();
    let (wire, misses) = send(&a, &wiped, 3, &data, 100_000);
    assert!(misses > 0 && wire > data.len() as u64 / 2);
    let (warm, misses) = send(&a, &wiped, 4, &data, 100_000);
    assert!(warm < 100_000, "warm again cost {warm}, {misses} misses");
}

#[test]
fn content_lost_by_either_store_is_sent_again() {
    let data = noise(3 << 20, 12);
    for lose_at_sender in [true, false] {
        let (a, b) = (Proxy::new(), Proxy::new());
        send(&a, &b, 1, &data, 100_000);
        let loser = if lose_at_sender { &a } else { &b };
        loser.store.lose(Addr(500_000), Addr(900_000));
        let (wire, misses) = send(&a, &b, 2, &data, 100_000);
        assert_eq!(misses > 0, !lose_at_sender);
        assert!(wire < 3 << 20);
        let (_, misses) = send(&a, &b, 3, &data, 100_000);
        assert_eq!(misses, 0, "what was repaired is known");
    }
}

#[test]
fn a_store_that_stops_learning_still_serves() {
    let data = noise(2 << 20, 13);
    for (at_sender, at_receiver) in [(true, false), (false, true), (true, true)] {
        let (a, b) = (Proxy::new(), Proxy::new());
        send(&a, &b, 1, &data[..1 << 20], 100_000);
        a.store.set_learning(!at_sender);
        b.store.set_learning(!at_receiver);
        for recording in 2..5 {
            let (_, misses) = send(&a, &b, recording, &data, 100_000);
            assert_eq!(misses, 0, "content that was not kept is not referred to");
        }
    }
}

#[test]
fn content_that_went_to_another_peer_is_not_referred_to() {
    let (a, b, c) = (Proxy::new(), Proxy::new(), Proxy::new());
    let data = noise(1 << 20, 14);
    send(&a, &b, 1, &data, 100_000);
    let to_c = Proxy {
        store: a.store.clone(),
        shared: Shared { ledger: Arc::new(Ledger::new()), ..a.shared.clone() },
    };
    let before = a.store.end();
    let (wire, misses) = send(&to_c, &c, 2, &data, 100_000);
    assert!(wire > data.len() as u64, "sent in full");
    assert_eq!(misses, 0);
    assert_eq!(a.store.end(), before, "but stored once");
}

#[test]
fn chunks_in_flight_on_another_channel_are_referred_to() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let data = noise(1 << 20, 15);
    let mut first = Direction::new(&a, &b, 1);
    let mut second = Direction::new(&a, &b, 2);
    let mut frames = Vec::new();
    first.encoder.input().extend_from_slice(&data);
    while let Step::Frame(frame) = first.encoder.step(true, true).unwrap() {
        frames.push(frame.bytes);
    }
    second.encoder.input().extend_from_slice(&data);
    let Step::Frame(reference) = second.encoder.step(true, true).unwrap() else { panic!("a frame is due") };
    assert!(reference.bytes.len() < 200);
    assert_eq!(second.decoder.take(&reference.bytes).unwrap(), Intake::Wait { recording: RecordingId(1) });
    for frame in &frames {
        first.carry(frame);
    }
    assert!(
        matches!(second.decoder.resume(false).unwrap(), Intake::Done { feedback, .. } if feedback.is_empty())
    );
    second.drain();
    assert_eq!(second.out[..], data[..second.out.len()]);
    assert!(second.out.len() > 500_000);
}

#[test]
fn a_peer_that_names_what_was_never_exchanged_gets_nothing() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let secret = noise(1 << 20, 16);
    // `b` knows the secret from elsewhere; the hostile `a` refers to it by a recording it has no part in.
    let elsewhere = Proxy::with_store(b.store.clone());
    send(&Proxy::new(), &elsewhere, 77, &secret, 100_000);
    let forged = Proxy::new();
    send(&forged, &Proxy::new(), 77, &secret, 100_000);
    let mut direction = Direction::new(&forged, &b, 2);
    direction.encoder.input().extend_from_slice(&secret);
    let Step::Frame(frame) = direction.encoder.step(true, false).unwrap() else { panic!("a frame is due") };
    assert!(frame.bytes.len() < 200, "it is a reference");
    assert!(matches!(direction.decoder.take(&frame.bytes).unwrap(), Intake::Wait { .. }), "it may yet come");
    let Intake::Done { feedback, .. } = direction.decoder.resume(true).unwrap() else { panic!("gave up") };
    assert!(matches!(feedback[..], [Feedback::Miss { position: 0, .. }]));
    assert!(matches!(direction.decoder.deliver().unwrap(), Delivery::Blocked));
    drop(a);
}

#[test]
fn a_hostile_miss_is_refused() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let mut direction = Direction::new(&a, &b, 1);
    direction.put(&noise(100_000, 17), true);
    for (position, len) in [(0, 1), (99_999, 1), (100_000, 1), (1 << 59, 1000)] {
        assert!(
            direction.encoder.feedback(&Feedback::Miss { position, len }).is_err(),
            "all is restored already"
        );
    }
}

#[test]
fn contexts_are_dropped_when_idle_and_made_again() {
    let (a, b) = (Proxy::new(), Proxy::new());
    let mut direction = Direction::new(&a, &b, 1);
    let mut released = 0;
    let data = [text(40_000, 18), noise(40_000, 18), text(40_000, 19), noise(500, 3)].concat();
    for (i, part) in data.chunks(2_000).enumerate() {
        direction.put(part, true);
        if i % 9 == 0 {
            if let Some(frame) = direction.encoder.release_memory() {
                direction.carry(&frame.bytes);
                released += 1;
            }
            assert!(direction.encoder.release_memory().is_none());
        }
    }
    assert!(released > 2, "contexts were in use {released} times");
    let (_, out, _) = direction.finish();
    assert_eq!(out, data);
}

#[derive(Clone, Debug)]
enum Action {
    Send { source: usize, from: usize, len: usize, flush: bool },
    Release,
    LoseHere(usize, usize),
    LoseThere(usize, usize),
    LearnHere(bool),
    LearnThere(bool),
    Level(i32),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (0..5usize, 0..400_000usize, 1..120_000usize, any::<bool>())
            .prop_map(|(source, from, len, flush)| Action::Send { source, from, len, flush }),
        4 => (0..5usize, 0..400_000usize, 1..300usize).prop_map(|(source, from, len)| Action::Send { source, from, len, flush: true }),
        1 => Just(Action::Release),
        1 => (0..400_000usize, 1..100_000usize).prop_map(|(at, len)| Action::LoseHere(at, len)),
        1 => (0..400_000usize, 1..100_000usize).prop_map(|(at, len)| Action::LoseThere(at, len)),
        1 => any::<bool>().prop_map(Action::LearnHere),
        1 => any::<bool>().prop_map(Action::LearnThere),
        1 => (1..7i32).prop_map(Action::Level),
        2 => Just(Action::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_mixture_of_content_splits_losses_and_reconnections_is_restored(actions in proptest::collection::vec(action(), 1..40)) {
        let base = noise(500_000, 1);
        let sources = [base.clone(), edit(&base, 30, 2), text(500_000, 3), edit(&text(500_000, 3), 200, 4), vec![0; 500_000]];
        let (mut a, mut b) = (Proxy::new(), Proxy::new());
        let mut recording = 1;
        let mut direction = Direction::new(&a, &b, recording);
        let mut sent: Vec<u8> = Vec::new();
        for action in actions {
            match action {
                Action::Send { source, from, len, flush } => {
                    let bytes = &sources[source][from.min(sources[source].len() - 1)..];
                    let bytes = &bytes[..len.min(bytes.len())];
                    sent.extend_from_slice(bytes);
                    direction.put(bytes, flush);
                    if flush {
                        prop_assert!(direction.out == sent, "a flush delivers everything");
                    }
                }
                Action::Release => {
                    if let Some(frame) = direction.encoder.release_memory() {
                        direction.carry(&frame.bytes);
                    }
                }
                // The encoder may only lose what it does not need to answer for, so its losses come between connections.
                Action::LoseHere(at, len) => {
                    let (_, out, _) = direction.finish();
                    prop_assert!(out == sent);
                    sent.clear();
                    a.store.lose(Addr(at as u64), Addr((at + len) as u64));
                    recording += 1;
                    direction = Direction::new(&a, &b, recording);
                }
                Action::LoseThere(at, len) => b.store.lose(Addr(at as u64), Addr((at + len) as u64)),
                Action::LearnHere(on) => a.store.set_learning(on),
                Action::LearnThere(on) => b.store.set_learning(on),
                Action::Level(level) => direction.encoder.set_level(level),
                Action::Reopen => {
                    let (_, out, _) = direction.finish();
                    prop_assert!(out == sent);
                    sent.clear();
                    (a, b) = (a.restart(), b.restart());
                    std::mem::swap(&mut a, &mut b);
                    recording += 1;
                    direction = Direction::new(&a, &b, recording);
                }
            }
        }
        let (_, out, _) = direction.finish();
        prop_assert!(out == sent);
    }

    #[test]
    fn a_decoder_survives_any_frame(seed: u64, flips in proptest::collection::vec((0..20_000usize, any::<u8>()), 1..6), cut in 0..20_000usize) {
        let (a, b) = (Proxy::new(), Proxy::new());
        let data = [text(60_000, seed), noise(3000, seed)].concat();
        let mut encoder = Encoder::new(a.shared.clone(), RecordingId(1), 3);
        let mut decoder = Decoder::new(b.shared.clone(), RecordingId(1));
        encoder.input().extend_from_slice(&data);
        let mut out = Vec::new();
        while let Step::Frame(frame) = encoder.step(true, false).unwrap() {
            let mut bytes = frame.bytes.to_vec();
            for (at, flip) in &flips {
                let len = bytes.len();
                bytes[at % len] ^= flip;
            }
            bytes.truncate(bytes.len().min(cut.max(1)));
            if decoder.take(&bytes).is_err() {
                break;
            }
            while let Ok(Delivery::Bytes(pieces)) = decoder.deliver() {
                pieces.iter().for_each(|piece| out.extend_from_slice(piece));
            }
        }
        prop_assert!(data.starts_with(&out), "what is delivered is right, whatever came");
    }
}

/// One of several channels between the same proxies, with everything that is on its way.
struct Lane {
    encoder: Encoder,
    decoder: Decoder,
    source: Vec<u8>,
    at: usize,
    ended: bool,
    frames: VecDeque<Bytes>,
    asked: VecDeque<Feedback>,
    repairs: VecDeque<Bytes>,
    waiting: bool,
    out: Vec<u8>,
}

impl Lane {
    fn new(from: &Proxy, to: &Proxy, recording: u64, source: Vec<u8>) -> Lane {
        let id = RecordingId(recording);
        Lane {
            encoder: Encoder::new(from.shared.clone(), id, 3),
            decoder: Decoder::new(to.shared.clone(), id),
            source,
            at: 0,
            ended: false,
            frames: VecDeque::new(),
            asked: VecDeque::new(),
            repairs: VecDeque::new(),
            waiting: false,
            out: Vec::new(),
        }
    }

    fn encode(&mut self, len: usize, flush: bool) {
        let end = (self.at + len).min(self.source.len());
        self.encoder.input().extend_from_slice(&self.source[self.at..end]);
        self.at = end;
        let flush = flush || end == self.source.len();
        while let Step::Frame(frame) = self.encoder.step(flush, false).unwrap() {
            self.frames.push_back(frame.bytes);
        }
        if end == self.source.len() && !self.ended {
            self.ended = true;
            self.frames.extend(self.encoder.finish().unwrap().map(|frame| frame.bytes));
        }
    }

    /// One thing on its way arrives; `hasty` decoders do not wait for other channels.
    fn arrive(&mut self, which: usize, hasty: bool) {
        match which {
            0 if self.waiting => self.took(hasty, None),
            0 => {
                if let Some(frame) = self.frames.pop_front() {
                    self.took(hasty, Some(frame));
                }
            }
            1 => {
                if let Some(message) = self.asked.pop_front() {
                    self.repairs.extend(self.encoder.feedback(&message).unwrap());
                }
            }
            _ => {
                if let Some(repair) = self.repairs.pop_front() {
                    let answer = self.decoder.repair(&Feedback::decode(&repair).unwrap()).unwrap();
                    self.asked.extend(answer);
                }
            }
        }
        loop {
            match self.decoder.deliver().unwrap() {
                Delivery::Bytes(pieces) => pieces.iter().for_each(|piece| self.out.extend_from_slice(piece)),
                Delivery::Feedback(feedback) => self.asked.extend(feedback),
                Delivery::Blocked | Delivery::Empty => break,
            }
        }
        assert!(self.source.starts_with(&self.out), "what comes out differs");
    }

    fn took(&mut self, hasty: bool, frame: Option<Bytes>) {
        let intake = match frame {
            Some(frame) => self.decoder.take(&frame).unwrap(),
            None => self.decoder.resume(hasty).unwrap(),
        };
        self.waiting = matches!(intake, Intake::Wait { .. });
        if let Intake::Done { feedback, .. } = intake {
            self.asked.extend(feedback);
        }
    }

    fn acknowledge(&mut self) {
        self.encoder.progress(self.decoder.frames_restored(), self.out.len() as u64);
        if self.ended && !self.encoder.awaits_restoring() {
            self.encoder.close();
        }
    }

    fn done(&self) -> bool {
        self.ended && self.out.len() == self.source.len() && self.frames.is_empty()
    }
}

/// Several channels carry overlapping content at once; everything on its way arrives in any order between channels.
fn carry_at_once(seed: u64, lanes: usize, len: usize, hurry: usize) {
    let (a, b) = (Proxy::new(), Proxy::new());
    let content = [noise(len / 2, seed), text(len / 2, seed), noise(len / 2, seed)[333..].to_vec()].concat();
    let edited = edit(&content, 20, seed);
    let source = |i: usize| if i % 3 == 2 { edited.clone() } else { content.clone() };
    let mut lanes: Vec<Lane> = (0..lanes).map(|i| Lane::new(&a, &b, i as u64 + 1, source(i))).collect();
    let mut state = seed | 1;
    let mut next = move |limit: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit
    };
    for _ in 0..1_000_000 {
        let i = next(lanes.len());
        let lane = &mut lanes[i];
        match next(8) {
            0 if lane.frames.len() < 20 && !lane.ended => lane.encode(1 + next(90_000), next(3) == 0),
            1..=3 => lane.arrive(0, next(hurry) == 0),
            4 => lane.arrive(1, false),
            5 => lane.arrive(2, false),
            6 => lane.acknowledge(),
            _ => {}
        }
        if lanes.iter().all(Lane::done) {
            return;
        }
    }
    panic!("seed {seed}: not done after a million steps");
}

#[test]
fn channels_that_carry_the_same_content_at_once_stay_right() {
    for seed in 0..30 {
        carry_at_once(seed, 4, 400_000, 3 + seed as usize % 40);
    }
}
