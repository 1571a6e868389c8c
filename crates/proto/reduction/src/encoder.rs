//! Turns the bytes of one direction of a connection into reduction frames.
//!
//! Incoming bytes are compared with what followed last time ([`Cursor`]); where that ends, chunks find another place to go
//! on from; what is new is coded against similar old content or compressed, and learned.

mod coding;
mod repair;
mod search;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use isthmus_types::RecordingId;
use isthmus_types::limits::{FRAME_LAN_BYTES_MAX, FRAME_NEW_BYTES_MAX};
use thiserror::Error;

use crate::chunker::CHUNK_BYTES_MAX;
use crate::compress::{BadCompression, Packer};
use crate::content::{ChunkKey, Pin};
use crate::draft::{Draft, Part};
use crate::frame::{Coding, Envelope, Feedback, Head, Lane, NEW_PROOF_BYTES};
use crate::learner::{Cut, Learner, PENDING_PIECES_MAX};
use crate::ledger::Name;
use crate::shared::Shared;

pub use coding::INLINE_BYTES_MAX;
pub(crate) use coding::new_proof;
use coding::{Large, Payload, Votes};
use search::{Cursor, Progress};

/// New bytes after which both sides take them into their stores.
const COMMIT_BYTES: usize = 64 << 10;
/// The same when the source has nothing more to read for now.
const COMMIT_BYTES_AT_FLUSH: usize = 4 << 10;
/// A draft of this size is sent: a chunk more must always fit the frame's limits.
const DRAFT_LAN_BYTES_FULL: usize = FRAME_LAN_BYTES_MAX - CHUNK_BYTES_MAX;
const DRAFT_NEW_BYTES_FULL: usize = FRAME_NEW_BYTES_MAX - CHUNK_BYTES_MAX;
/// The same for a draft that has new bytes among old ones: the smaller the frame, the better the old content fits that it is coded against.
const EDITED_LAN_BYTES_FULL: usize = 128 << 10;
const EDITED_NEW_BYTES_FULL: usize = 8 << 10;

/// New bytes of the stream that are shown for comparing levels.
const SAMPLE_BYTES: usize = 128 << 10;

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
    /// The first of the new bytes of the stream, at most [`SAMPLE_BYTES`], if [`Encoder::sample`] asked for them.
    pub sample: Vec<u8>,
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
    /// New bytes that the level of new data counts for: those of its stream.
    pub streamed: u64,
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

/// The encoder of one direction.
pub struct Encoder {
    shared: Shared,
    recording: RecordingId,
    lane: Lane,
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
    /// The next new bytes of the stream are to be shown, and those that are.
    sampling: bool,
    sample: Vec<u8>,
    new_total: u64,
    votes: Votes,
    /// What compression left of the last new bytes that it had, 100 being all.
    packed_percent: Option<usize>,
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
            lane: Lane::Plain,
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
            sampling: false,
            sample: Vec::new(),
            new_total: 0,
            votes: Votes::default(),
            packed_percent: None,
            flight: VecDeque::new(),
            frames_restored: 0,
            restored: 0,
            delivered: 0,
            learning: true,
        }
    }

    /// The same for the content lane.
    pub fn of_content(shared: Shared, recording: RecordingId, level: i32) -> Encoder {
        Encoder { lane: Lane::Content, ..Encoder::new(shared, recording, level) }
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

    /// The next frame with new bytes of the stream is to show some of them, by which levels can be compared.
    pub fn sample(&mut self) {
        self.sampling = true;
    }

    /// Works on what has come in. With `flush`, everything that is here goes into frames. With `patient`, content that
    /// another channel is just sending is waited for ([`Step::Claimed`]).
    pub fn step(&mut self, flush: bool, patient: bool) -> Result<Step, EncodeError> {
        loop {
            if self.draft_is_full() {
                self.put_back_tail();
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

    /// For a source that has paused in the middle of bulk data, after [`Encoder::step`] was idle: sends what is ready, but for the last new bytes,
    /// which what follows would help to code. They go with the next step that flushes, or that has more.
    pub fn settle(&mut self) -> Result<Option<Encoded>, EncodeError> {
        if self.draft.parts.len() < 2 {
            return Ok(None);
        }
        self.put_back_tail();
        self.emit(false).map(Some)
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
        self.shared.ledger.mistrust(at, u64::MAX - at.position);
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
            lane: self.lane,
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
        Some(Encoded { bytes, stats, sample: Vec::new() })
    }

    /// Whether the draft is to be sent before more is taken into it.
    fn draft_is_full(&self) -> bool {
        let Draft { lan, ref new, .. } = self.draft;
        let edited = lan >= EDITED_LAN_BYTES_FULL && (EDITED_NEW_BYTES_FULL..lan).contains(&new.len());
        edited || self.draft.is_full() || lan >= DRAFT_LAN_BYTES_FULL || new.len() >= DRAFT_NEW_BYTES_FULL
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
            lane: self.lane,
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
            streamed: if matches!(payload.coding, Coding::Stream { .. }) { new } else { 0 },
            delta_saved: if delta { saved } else { 0 },
            compression_saved: if delta { 0 } else { saved },
        };
        Ok(Encoded { bytes, stats, sample: std::mem::take(&mut self.sample) })
    }
}
