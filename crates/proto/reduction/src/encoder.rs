//! Turns the bytes of one direction of a connection into reduction frames.
//!
//! Incoming bytes are compared with what followed last time ([`Cursor`]); where that ends, chunks find another place to go
//! on from; what is new is coded against similar old content or compressed, and learned.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use isthmus_types::RecordingId;
use isthmus_types::limits::{FRAME_LAN_BYTES_MAX, FRAME_NEW_BYTES_MAX};
use thiserror::Error;

use crate::base::{self, Base};
use crate::chunker::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, next_boundary};
use crate::compress::{
    BadCompression, LARGE_WINDOW_FROM_BYTES, LARGE_WINDOW_LOG, LARGE_WINDOW_LOG_FIRST, Packer, pack_against,
};
use crate::content::{Addr, ChunkKey, Pin};
use crate::draft::{Draft, Part};
use crate::frame::{Coding, Envelope, Feedback, Head, NEW_PROOF_BYTES, REPAIR_BYTES_MAX};
use crate::learner::{Cut, Learner, PENDING_PIECES_MAX};
use crate::ledger::{Name, Span};
use crate::shared::{Shared, common_prefix};

/// New bytes up to this many stand in the head and go through the small context.
pub const INLINE_BYTES_MAX: usize = 2 << 10;
/// New bytes after which both sides take them into their stores.
const COMMIT_BYTES: usize = 64 << 10;
/// The same when the source has nothing more to read for now.
const COMMIT_BYTES_AT_FLUSH: usize = 4 << 10;
/// Heads shorter than this are not worth packing.
const HEAD_PACK_BYTES_MIN: usize = 24;
/// How far ahead the old content is searched when a run meets a difference.
const RESYNC_BYTES_MAX: usize = 512;
/// So many equal bytes in a row say that a run goes on.
const RESYNC_MATCH_BYTES: usize = 32;
/// Shortest piece for which a chunk match counts.
const MATCH_BYTES_MIN: usize = 32;
/// Step in which a match is followed backwards.
const BACK_STEP_BYTES: usize = 2 << 10;
/// A draft of this size is sent: a chunk more must always fit the frame's limits.
const DRAFT_LAN_BYTES_FULL: usize = FRAME_LAN_BYTES_MAX - CHUNK_BYTES_MAX;
const DRAFT_NEW_BYTES_FULL: usize = FRAME_NEW_BYTES_MAX - CHUNK_BYTES_MAX;
/// The first new bytes of a direction are compressed frame by frame: most connections are short, and a context for each
/// of thousands would take gigabytes.
const ALONE_BYTES: u64 = 128 << 10;
/// New bytes from which a delta is tried.
const DELTA_BYTES_MIN: usize = 128;
/// A delta must be smaller than this share of what compression alone would leave.
const DELTA_PERCENT_MAX: usize = 90;
/// The same where only features say that the base is similar, and compression alone does well: all text resembles text.
const DELTA_PERCENT_MAX_TEXT: usize = 60;
/// New bytes of which compression alone is tried, to know that.
const SAMPLE_BYTES: usize = 64 << 10;
/// Frames that are coded without asking for similar content, at most, when it was of no use.
const VOTES_PAUSE_MAX: u32 = 16;
/// Level of deltas: they are small, and worth more effort than new data.
const DELTA_LEVEL: i32 = 9;
/// The same when the base is larger than [`DELTA_LARGE_BASE_BYTES`], since reading the base in takes most of the time.
const DELTA_LEVEL_LARGE: i32 = 3;
const DELTA_LARGE_BASE_BYTES: usize = 128 << 10;

/// What one step of an encoder came to.
#[derive(Debug)]
pub enum Step {
    /// A frame to send.
    Frame(Encoded),
    /// Nothing to send until more bytes come (or a flush is asked for).
    Idle,
    /// Another channel is sending this content right now: try again when it has, within a millisecond or so.
    Claimed,
}

/// A frame, and what it stands for.
#[derive(Debug)]
pub struct Encoded {
    pub bytes: Bytes,
    pub stats: Stats,
}

/// The byte ledger of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// LAN bytes the frame stands for.
    pub lan: u64,
    /// Its own size.
    pub wire: u64,
    /// LAN bytes in runs that went on from before.
    pub run: u64,
    /// LAN bytes in runs that a chunk lookup found.
    pub chunk: u64,
    /// New bytes less their coded size, for deltas and for plain compression.
    pub delta_saved: u64,
    pub compression_saved: u64,
}

/// What ends a direction from the encoder's side.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    #[error("zstd has no memory for a context")]
    Compression,
    #[error("the peer asked for bytes that are not in flight")]
    MissOutOfRange,
    #[error("the peer sent a feedback message that this side must send")]
    WrongFeedback,
    #[error("bytes that the peer lacks cannot be read here either")]
    CannotRepair,
}

impl From<BadCompression> for EncodeError {
    fn from(_: BadCompression) -> EncodeError {
        EncodeError::Compression
    }
}

/// Where the incoming bytes are expected to go on.
struct Cursor {
    at: Name,
    addr: Addr,
    /// Bytes left in the span that starts at `addr`.
    left: u64,
    /// Stored bytes from `addr` on, within one record; may be empty.
    view: Bytes,
}

/// A frame that the peer has not restored yet.
struct Flight {
    end: u64,
    new: u64,
    base: Vec<(Name, u64)>,
    /// What the frame's runs are called on the wire, by position: (position, name, length).
    runs: Vec<(u64, Name, u64)>,
    /// New bytes that the store did not take, by position, for repairs.
    kept: Vec<(u64, Bytes)>,
    /// Held for its drop: what the frame refers to stays until the peer has restored it.
    _pins: Vec<Box<dyn Pin>>,
}

struct Large {
    packer: Packer,
    level: i32,
    window_log: u32,
}

/// The encoder of one direction.
pub struct Encoder {
    shared: Shared,
    recording: RecordingId,
    input: BytesMut,
    /// Position in the recording of the first byte of `input`.
    position: u64,
    cursor: Option<Cursor>,
    /// The place after the last run on the wire.
    near: Option<Name>,
    /// The same, unless new bytes have been sent since then.
    after_run: Option<Name>,
    draft: Draft,
    learner: Learner,
    cuts: Vec<Cut>,
    /// Chunks of the draft that no other encoder is to send meanwhile.
    claimed: Vec<ChunkKey>,
    small: Option<Packer>,
    large: Option<Large>,
    level: i32,
    new_total: u64,
    votes: Votes,
    flight: VecDeque<Flight>,
    frames_restored: u64,
    restored: u64,
    delivered: u64,
    learning: bool,
}

impl Encoder {
    /// An encoder whose bytes become `recording`.
    pub fn new(shared: Shared, recording: RecordingId, level: i32) -> Encoder {
        shared.ledger.begin(recording);
        Encoder {
            shared,
            recording,
            input: BytesMut::new(),
            position: 0,
            cursor: None,
            near: None,
            after_run: None,
            draft: Draft::default(),
            learner: Learner::new(recording),
            cuts: Vec::new(),
            claimed: Vec::new(),
            small: None,
            large: None,
            level,
            new_total: 0,
            votes: Votes::default(),
            flight: VecDeque::new(),
            frames_restored: 0,
            restored: 0,
            delivered: 0,
            learning: true,
        }
    }

    /// Where the caller puts incoming bytes.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Whether bytes wait that no frame stands for yet.
    pub fn has_pending(&self) -> bool {
        !self.input.is_empty() || self.draft.lan > 0
    }

    /// LAN bytes and new bytes that the peer has not delivered, or not restored, yet.
    pub fn in_flight(&self) -> (u64, u64) {
        (self.position - self.delivered, self.flight.iter().map(|flight| flight.new).sum())
    }

    /// Whether the peer has not restored everything sent yet, so that it may still ask for some of it.
    pub fn awaits_restoring(&self) -> bool {
        !self.flight.is_empty()
    }

    /// Sets the zstd level of new data; takes effect with the next frame that has any.
    pub fn set_level(&mut self, level: i32) {
        self.level = level;
    }

    /// Works on what has come in. With `flush`, everything that is here goes into frames. With `patient`, content that
    /// another channel is just sending is waited for ([`Step::Claimed`]).
    pub fn step(&mut self, flush: bool, patient: bool) -> Result<Step, EncodeError> {
        loop {
            let full = self.draft.is_full()
                || self.draft.lan >= DRAFT_LAN_BYTES_FULL
                || self.draft.new.len() >= DRAFT_NEW_BYTES_FULL;
            if full {
                return self.emit(false).map(Step::Frame);
            }
            let progress = match self.cursor.take() {
                Some(cursor) => self.follow(cursor, flush),
                None => self.search(flush, patient),
            };
            match progress {
                Progress::On => {}
                Progress::Wait if flush && self.draft.lan > 0 => return self.emit(true).map(Step::Frame),
                Progress::Wait => return Ok(Step::Idle),
                Progress::Claimed if self.draft.lan > 0 => return self.emit(false).map(Step::Frame),
                Progress::Claimed => return Ok(Step::Claimed),
            }
        }
    }

    /// Ends the recording: the last frame, if one is needed. Call after [`Encoder::step`] with `flush` was idle, and
    /// [`Encoder::close`] later.
    pub fn finish(&mut self) -> Result<Option<Encoded>, EncodeError> {
        if self.learner.pending_pieces() > 0 { self.commit_frame().map(Some) } else { Ok(None) }
    }

    /// Closes the recording, once the peer has restored all of it: until then it may have to be read again for repairs.
    pub fn close(&mut self) {
        self.shared.ledger.finish(self.recording);
    }

    /// The connection ended badly: what the peer has not restored is not referred to any more.
    pub fn abandon(&mut self) {
        let at = Name { recording: self.recording, position: self.restored };
        self.shared.ledger.release(self.claimed.drain(..), self.recording);
        self.shared.ledger.finish(self.recording);
        self.shared.ledger.forget(at, u64::MAX - at.position);
    }

    /// The peer has restored `frames` frames and delivered `delivered` LAN bytes of this direction, in all.
    pub fn progress(&mut self, frames: u64, delivered: u64) {
        while self.frames_restored < frames {
            let Some(flight) = self.flight.pop_front() else { break };
            self.restored = flight.end;
            self.frames_restored += 1;
        }
        self.delivered = self.delivered.max(delivered.min(self.position));
    }

    /// Answers a message of the peer's decoder.
    pub fn feedback(&mut self, message: &Feedback) -> Result<Vec<Bytes>, EncodeError> {
        match *message {
            Feedback::Miss { position, len } => self.repair(position, u64::from(len)),
            Feedback::Forget { position, len } => {
                if position + u64::from(len) > self.position {
                    return Err(EncodeError::MissOutOfRange);
                }
                self.shared.ledger.forget(Name { recording: self.recording, position }, u64::from(len));
                Ok(Vec::new())
            }
            Feedback::Repair { .. } => Err(EncodeError::WrongFeedback),
        }
    }

    /// Gives back the memory of an idle direction. The frame, if any, tells the peer to do the same.
    pub fn release_memory(&mut self) -> Option<Encoded> {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if let Some(cursor) = &mut self.cursor {
            cursor.view = Bytes::new();
        }
        if self.small.is_none() && self.large.is_none() {
            return None;
        }
        self.small = None;
        self.large = None;
        let envelope = Envelope {
            commit: false,
            head_packed: false,
            head_reset: true,
            coding: Coding::Stream { reset: true },
            head: &[],
            run_proof: None,
            rest: &[],
        };
        let bytes = Bytes::from(envelope.put(None, &[]));
        let end = self.position - self.draft.lan as u64;
        self.flight.push_back(Flight {
            end,
            new: 0,
            base: Vec::new(),
            runs: Vec::new(),
            kept: Vec::new(),
            _pins: Vec::new(),
        });
        let stats = Stats { wire: bytes.len() as u64, ..Stats::default() };
        Some(Encoded { bytes, stats })
    }

    /// Compares incoming bytes with what is expected to follow.
    fn follow(&mut self, mut cursor: Cursor, flush: bool) -> Progress {
        loop {
            let room = DRAFT_LAN_BYTES_FULL.saturating_sub(self.draft.lan);
            if room == 0 {
                self.cursor = Some(cursor);
                return Progress::On;
            }
            if self.input.is_empty() {
                self.cursor = Some(cursor);
                return Progress::Wait;
            }
            if !self.load(&mut cursor) {
                return match self.branch(&cursor) {
                    Some(next) => {
                        self.cursor = Some(next);
                        Progress::On
                    }
                    None => Progress::On,
                };
            }
            let limit = self.input.len().min(room).min(cursor.view.len());
            let equal = common_prefix(&self.input[..limit], &cursor.view);
            if equal > 0 {
                self.draft.push_run(cursor.at, cursor.addr, &self.input[..equal]);
                self.consume(equal);
                cursor.advance(equal);
            }
            if equal < limit {
                return self.differ(cursor, flush);
            }
        }
    }

    /// A run has met a difference: another recording may go on like this, or the run goes on a little later.
    fn differ(&mut self, mut cursor: Cursor, flush: bool) -> Progress {
        if let Some(next) = self.branch(&cursor) {
            self.cursor = Some(next);
            return Progress::On;
        }
        let need = RESYNC_BYTES_MAX + RESYNC_MATCH_BYTES;
        if self.input.len() < need && !flush {
            self.cursor = Some(cursor);
            return Progress::Wait;
        }
        let window = need.min(self.input.len()).min(cursor.view.len());
        if let Some(skip) = resync(&self.input[..window], &cursor.view[..window]) {
            let bytes = self.input.split_to(skip);
            self.draft.push_new(&bytes, Cut { len: skip as u32, key: None, features: None });
            self.position += skip as u64;
            cursor.advance(skip);
            self.cursor = Some(cursor);
        }
        Progress::On
    }

    /// A recording that leaves the cursor's content here and goes on as the incoming bytes do.
    fn branch(&mut self, cursor: &Cursor) -> Option<Cursor> {
        let at = self.shared.ledger.branch(cursor.addr)?;
        if at == cursor.at {
            return None;
        }
        let mut next = Cursor { at, addr: cursor.addr, left: 0, view: Bytes::new() };
        if !self.load(&mut next) {
            return None;
        }
        let window = self.input.len().min(next.view.len()).min(RESYNC_MATCH_BYTES);
        (window > 0 && common_prefix(&self.input[..window], &next.view) == window).then_some(next)
    }

    /// Makes sure that the cursor sees stored bytes; false if nothing is known to follow.
    fn load(&mut self, cursor: &mut Cursor) -> bool {
        if !cursor.view.is_empty() {
            return true;
        }
        if cursor.left == 0 {
            let Span::At { addr, len } = self.shared.ledger.reference(cursor.at) else { return false };
            (cursor.addr, cursor.left) = (addr, len);
        }
        let Some(view) = self.view(cursor.addr, cursor.left) else { return false };
        cursor.view = view;
        true
    }

    /// Stored bytes from an address on, pinned until the frame in the making is restored.
    fn view(&mut self, addr: Addr, len_max: u64) -> Option<Bytes> {
        match self.shared.store.view(addr) {
            Ok(mut view) => {
                view.truncate(len_max.min(view.len() as u64) as usize);
                self.draft.pins.push(self.shared.store.pin(addr, view.len() as u64)?);
                Some(view)
            }
            Err(_) => {
                self.shared.ledger.unname(addr, len_max.min(CHUNK_BYTES_MAX as u64));
                None
            }
        }
    }

    /// Looks the next chunk up; if nobody knows it, it is new.
    fn search(&mut self, flush: bool, patient: bool) -> Progress {
        let len = match next_boundary(&self.input) {
            Some(len) => len,
            None if flush && !self.input.is_empty() => self.input.len(),
            None => return Progress::Wait,
        };
        let key = ChunkKey::of(&self.input[..len]);
        if let Some(cursor) = self.find(key, len) {
            self.cursor = Some(self.reach_back(cursor));
            return Progress::On;
        }
        if len >= CHUNK_BYTES_MIN {
            if self.shared.ledger.claim(key, self.recording) {
                self.claimed.push(key);
            } else if patient {
                return Progress::Claimed;
            }
        }
        let bytes = self.input.split_to(len);
        self.draft.push_new(&bytes, Cut { len: len as u32, key: Some(key), features: None });
        self.position += len as u64;
        Progress::On
    }

    /// A named place where the next `len` bytes are stored.
    fn find(&mut self, key: ChunkKey, len: usize) -> Option<Cursor> {
        if len < MATCH_BYTES_MIN {
            return None;
        }
        let addr = self.shared.store.lookup(key)?;
        let (at, _, after) = self.shared.ledger.name_of(addr)?;
        let view = self.view(addr, after)?;
        let need = len.min(view.len());
        if need < MATCH_BYTES_MIN || common_prefix(&self.input[..need], &view) < need {
            return None;
        }
        self.draft.by_chunk += need as u64;
        Some(Cursor { at, addr, left: after, view })
    }

    /// Follows a match backwards over new bytes that are not sent yet.
    fn reach_back(&mut self, cursor: Cursor) -> Cursor {
        let Some((_, before, _)) = self.shared.ledger.name_of(cursor.addr) else { return cursor };
        let limit = self.draft.new_tail().len().min(usize::try_from(before).unwrap_or(usize::MAX));
        let mut back = 0;
        while back < limit {
            let step = BACK_STEP_BYTES.min(limit - back);
            let mut old = Vec::with_capacity(step);
            let from = Addr(cursor.addr.0 - (back + step) as u64);
            if self.shared.read_into(from, step as u64, &mut old).is_err() {
                break;
            }
            let tail = self.draft.new_tail();
            let new = &tail[tail.len() - back - step..tail.len() - back];
            let equal = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
            back += equal;
            if equal < step {
                break;
            }
        }
        if back == 0 {
            return cursor;
        }
        let addr = Addr(cursor.addr.0 - back as u64);
        let at = Name { position: cursor.at.position - back as u64, ..cursor.at };
        if let Some(pin) = self.shared.store.pin(addr, back as u64) {
            self.draft.pins.push(pin);
            let bytes = self.draft.pop_new(back);
            self.draft.push_run(at, addr, &bytes);
        }
        cursor
    }

    fn consume(&mut self, count: usize) {
        self.input.advance(count);
        self.position += count as u64;
    }

    /// Makes the draft a frame.
    fn emit(&mut self, flush: bool) -> Result<Encoded, EncodeError> {
        let mut draft = std::mem::take(&mut self.draft);
        let payload = self.code_new(&mut draft)?;
        let inline = matches!(payload.coding, Coding::None);
        let head = Head { base: payload.base.ranges.clone(), tokens: draft.tokens(inline) };
        let mut plain = Vec::new();
        head.put(&mut plain, payload.coding == Coding::Delta, self.near);
        for (at, len) in head.base.iter().copied().chain(draft.parts.iter().filter_map(|part| match part {
            Part::Run { at, len, .. } => Some((*at, *len)),
            Part::New { .. } => None,
        })) {
            self.near = Some(Name { position: at.position + len, ..at });
        }
        self.after_run = match draft.parts.last() {
            Some(Part::Run { at, len, .. }) => Some(Name { position: at.position + len, ..*at }),
            _ => None,
        };
        let proof = (!draft.new.is_empty()).then(|| (new_proof(&draft.new), draft.new.len() as u64));
        draft.teach(&mut self.learner);
        self.cuts.append(&mut draft.cuts);
        let pending = self.learner.pending_new();
        let commit = pending >= COMMIT_BYTES
            || (flush && pending >= COMMIT_BYTES_AT_FLUSH)
            || !payload.base.ranges.is_empty()
            || self.learner.pending_pieces() > PENDING_PIECES_MAX / 2;
        self.seal(draft, plain, payload, proof, commit)
    }

    /// A frame without content that only commits.
    fn commit_frame(&mut self) -> Result<Encoded, EncodeError> {
        self.seal(Draft::default(), Vec::new(), Payload::default(), None, true)
    }

    fn seal(
        &mut self,
        mut draft: Draft,
        plain: Vec<u8>,
        payload: Payload,
        proof: Option<([u8; NEW_PROOF_BYTES], u64)>,
        commit: bool,
    ) -> Result<Encoded, EncodeError> {
        let mut pins = std::mem::take(&mut draft.pins);
        let mut kept = Vec::new();
        if commit {
            let cuts = std::mem::take(&mut self.cuts);
            let done = self.learner.commit(&self.shared, Some(cuts));
            self.learning = done.lost.is_empty();
            kept = done.lost;
            if let Some((addr, len)) = done.appended {
                pins.extend(self.shared.store.pin(addr, len));
            }
        }
        self.shared.ledger.release(self.claimed.drain(..), self.recording);
        let packed = self.pack_head(&plain)?;
        let (new_proof, new) = proof.map_or((None, 0), |(proof, new)| (Some(proof), new));
        let envelope = Envelope {
            commit,
            head_packed: packed.is_some(),
            head_reset: packed.as_ref().is_some_and(|(_, reset)| *reset),
            coding: payload.coding,
            head: packed.as_ref().map_or(&plain, |(bytes, _)| bytes),
            run_proof: draft.run_proof(),
            rest: &[],
        };
        let bytes = Bytes::from(envelope.put(new_proof.as_ref(), &payload.bytes));
        self.new_total += new;
        self.flight.push_back(Flight {
            end: self.position,
            new,
            base: payload.base.ranges,
            runs: draft.runs(self.position),
            kept,
            _pins: pins,
        });
        let saved =
            new.saturating_sub(if payload.bytes.is_empty() { new } else { payload.bytes.len() as u64 });
        let delta = self.flight.back().is_some_and(|flight| !flight.base.is_empty());
        let stats = Stats {
            lan: draft.lan as u64,
            wire: bytes.len() as u64,
            run: (draft.lan as u64 - new).saturating_sub(draft.by_chunk),
            chunk: draft.by_chunk.min(draft.lan as u64 - new),
            delta_saved: if delta { saved } else { 0 },
            compression_saved: if delta { 0 } else { saved },
        };
        Ok(Encoded { bytes, stats })
    }

    fn pack_head(&mut self, plain: &[u8]) -> Result<Option<(Vec<u8>, bool)>, EncodeError> {
        if plain.len() < HEAD_PACK_BYTES_MIN {
            return Ok(None);
        }
        let reset = self.small.is_none();
        if reset {
            self.small = Some(Packer::small()?);
        }
        match &mut self.small {
            Some(packer) => Ok(Some((packer.pack(plain)?, reset))),
            None => Ok(None),
        }
    }

    /// Chooses how the draft's new bytes cross.
    fn code_new(&mut self, draft: &mut Draft) -> Result<Payload, EncodeError> {
        if draft.new.len() >= DELTA_BYTES_MIN && self.learning {
            let asked = self.votes.ask();
            let base = base::choose(&self.shared, draft, self.after_run, asked);
            if !base.bytes.is_empty() {
                let large = base.bytes.len() > DELTA_LARGE_BASE_BYTES;
                let level = if large { DELTA_LEVEL_LARGE } else { DELTA_LEVEL };
                let bytes = pack_against(&base.bytes, &draft.new, level)?;
                let wire = bytes.len() + base.wire_bytes();
                let alone = without_base(&draft.new)?;
                let text = base.voted && alone * 2 < draft.new.len();
                let percent = if text { DELTA_PERCENT_MAX_TEXT } else { DELTA_PERCENT_MAX };
                if wire < alone * percent / 100 {
                    self.votes.won();
                    draft.pins.extend(
                        base.places.iter().filter_map(|&(addr, len)| self.shared.store.pin(addr, len)),
                    );
                    return Ok(Payload { coding: Coding::Delta, bytes, base });
                }
                if base.voted {
                    self.votes.lost();
                }
            }
        }
        if draft.new.len() <= INLINE_BYTES_MAX {
            return Ok(Payload::default());
        }
        if self.large.is_none() && self.new_total < ALONE_BYTES {
            let bytes = pack_against(&[], &draft.new, self.level)?;
            return Ok(Payload { coding: Coding::Delta, bytes, base: Base::default() });
        }
        let window_log =
            if self.new_total > LARGE_WINDOW_FROM_BYTES { LARGE_WINDOW_LOG } else { LARGE_WINDOW_LOG_FIRST };
        let level = self.level;
        let stale = |large: &Large| large.level != level || large.window_log != window_log;
        let reset = self.large.as_ref().is_none_or(stale);
        if reset {
            self.large = Some(Large { packer: Packer::large(level, window_log)?, level, window_log });
        }
        let Some(large) = &mut self.large else { return Err(EncodeError::Compression) };
        let bytes = large.packer.pack(&draft.new)?;
        Ok(Payload { coding: Coding::Stream { reset }, bytes, base: Base::default() })
    }

    /// Sends bytes that the peer's decoder could not restore.
    fn repair(&mut self, position: u64, len: u64) -> Result<Vec<Bytes>, EncodeError> {
        let end = position + len;
        if position < self.restored || end > self.position - self.draft.lan as u64 {
            return Err(EncodeError::MissOutOfRange);
        }
        let mut start = self.restored;
        for flight in &self.flight {
            if start < end && position < flight.end {
                flight.base.iter().for_each(|(at, _)| self.shared.ledger.missed(*at));
            }
            start = flight.end;
            for (from, at, len) in &flight.runs {
                let skip = position.saturating_sub(*from);
                if *from < end && skip < *len {
                    self.shared.ledger.missed(Name { position: at.position + skip, ..*at });
                }
            }
        }
        let mut messages = Vec::new();
        let mut at = position;
        while at < end {
            let step = (end - at).min(REPAIR_BYTES_MAX as u64);
            let mut bytes = Vec::with_capacity(step as usize);
            self.read_sent(at, step, &mut bytes)?;
            let packed = pack_against(&[], &bytes, self.level)?;
            let smaller = packed.len() < bytes.len();
            let data = Bytes::from(if smaller { packed } else { bytes });
            messages
                .push(Feedback::Repair { position: at, len: step as u32, packed: smaller, data }.encode());
            at += step;
        }
        self.take_over_names(position, len);
        Ok(messages)
    }

    /// Appends bytes that are in flight to `out`.
    fn read_sent(&self, position: u64, len: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let end = position + len;
        let mut at = position;
        while at < end {
            let kept = self.flight.iter().flat_map(|flight| &flight.kept);
            let next = kept
                .filter(|(start, bytes)| start + bytes.len() as u64 > at)
                .min_by_key(|(start, _)| *start)
                .filter(|(start, _)| *start < end);
            match next {
                Some((start, bytes)) if *start <= at => {
                    let bytes = &bytes[(at - start) as usize..];
                    let step = bytes.len().min((end - at) as usize);
                    out.extend_from_slice(&bytes[..step]);
                    at += step as u64;
                }
                other => {
                    let stop = other.map_or(end, |(start, _)| *start);
                    if !self.learner.read_into(&self.shared, at, stop - at, out) {
                        return Err(EncodeError::CannotRepair);
                    }
                    at = stop;
                }
            }
        }
        Ok(())
    }

    /// What the peer lacked under the name it was given it will now have under this recording's.
    fn take_over_names(&mut self, position: u64, len: u64) {
        for (position, addr, len) in self.learner.places(&self.shared, position, len) {
            let old = self.shared.ledger.name_of(addr).map(|(name, ..)| name);
            if old.is_some_and(|old| old.recording == self.recording) {
                continue;
            }
            self.shared.ledger.rename(Name { recording: self.recording, position }, addr, len);
        }
    }
}

/// What `follow` and `search` came to.
enum Progress {
    On,
    Wait,
    Claimed,
}

/// When to look for similar content by its features. Where everything resembles everything (text of a few words), votes
/// find a base each time and it never helps; so each failure doubles the pause before the next try.
#[derive(Default)]
struct Votes {
    pause: u32,
    left: u32,
}

impl Votes {
    fn ask(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    fn won(&mut self) {
        (self.pause, self.left) = (0, 0);
    }

    fn lost(&mut self) {
        self.pause = (self.pause * 2).clamp(2, VOTES_PAUSE_MAX);
        self.left = self.pause;
    }
}

/// The coded new bytes of a frame.
struct Payload {
    coding: Coding,
    bytes: Vec<u8>,
    base: Base,
}

impl Default for Payload {
    fn default() -> Payload {
        Payload { coding: Coding::None, bytes: Vec::new(), base: Base::default() }
    }
}

impl Cursor {
    fn advance(&mut self, count: usize) {
        self.at.position += count as u64;
        self.addr = self.addr.plus(count as u64);
        self.left -= count as u64;
        self.view.advance(count);
    }
}

/// The proof of new bytes: their BLAKE3 hash, cut.
pub(crate) fn new_proof(bytes: &[u8]) -> [u8; NEW_PROOF_BYTES] {
    let mut proof = [0; NEW_PROOF_BYTES];
    proof.copy_from_slice(&blake3::hash(bytes).as_bytes()[..NEW_PROOF_BYTES]);
    proof
}

/// About what `bytes` would come to without a base, from a sample of them.
fn without_base(bytes: &[u8]) -> Result<usize, BadCompression> {
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let packed = pack_against(&[], sample, 1)?.len().min(sample.len());
    Ok(packed * bytes.len() / sample.len().max(1))
}

/// The first place at which two windows, which differ at their start, are equal for a while; as far as it goes at their end.
fn resync(new: &[u8], old: &[u8]) -> Option<usize> {
    let mut equal = 0;
    for (i, (a, b)) in new.iter().zip(old).enumerate() {
        equal = if a == b { equal + 1 } else { 0 };
        if equal == RESYNC_MATCH_BYTES {
            return Some(i + 1 - equal);
        }
    }
    None
}
