//! Restores the bytes of one direction from reduction frames.
//!
//! Frames are taken in as they arrive: names are resolved and new content is stored, whether or not the LAN side can take
//! the bytes yet, so that other channels may refer to them. Bytes are handed out frame by frame, in order, and only after
//! they were proved.

use std::collections::VecDeque;

use bytes::Bytes;
use isthmus_types::RecordingId;
use isthmus_types::limits::{FRAME_NEW_BYTES_MAX, WINDOW_LAN_BYTES};
use thiserror::Error;

use crate::compress::{BadCompression, LARGE_WINDOW_LOG, SMALL_WINDOW_LOG, Unpacker, unpack_against};
use crate::content::{Addr, Pin};
use crate::encoder::new_proof;
use crate::frame::{
    Coding, Envelope, Feedback, HEAD_BYTES_MAX, Head, InvalidFrame, NEW_PROOF_BYTES, RUN_PROOF_BYTES, Token,
};
use crate::learner::{Learner, PENDING_NEW_BYTES_MAX, PENDING_PIECES_MAX};
use crate::ledger::{Name, Span};
use crate::shared::Shared;

/// LAN bytes that may wait for delivery: the sender's window, and a frame in the making.
const QUEUE_BYTES_MAX: u64 = WINDOW_LAN_BYTES + (2 << 20);

/// Holes that the runs of a frame may have beyond one a run. When they are used up, the rest of a run is one hole.
const SPARE_HOLES_MAX: usize = 64;
/// Recordings remembered as unknown.
const UNKNOWN_MAX: usize = 64;

/// What ends a direction from the decoder's side.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("invalid frame: {0}")]
    Invalid(#[from] InvalidFrame),
    #[error("the peer misbehaved: {0}")]
    Misbehaved(&'static str),
    #[error("restored bytes do not match their proof")]
    ProofFailed,
    #[error("zstd has no memory for a context")]
    NoMemory,
}

impl From<BadCompression> for DecodeError {
    fn from(_: BadCompression) -> DecodeError {
        DecodeError::Invalid(InvalidFrame::BadCompression)
    }
}

/// What taking in a frame came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Intake {
    /// Taken in. The messages go to the encoder.
    Done { feedback: Vec<Feedback>, stats: Taken },
    /// It refers to bytes of a recording that another channel is receiving, and that are not here yet. Call
    /// [`Decoder::resume`] when the ledger has grown, or to give up waiting.
    Wait { recording: RecordingId },
}

/// The byte ledger of one frame, as the decoder sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub lan: u64,
    pub wire: u64,
    /// LAN bytes that were referred to.
    pub run: u64,
    pub delta_saved: u64,
    pub compression_saved: u64,
}

/// What the decoder has to hand out next.
#[derive(Debug)]
pub enum Delivery {
    /// The bytes of a whole frame, proved.
    Bytes(Vec<Bytes>),
    /// Something could not be read after all: messages for the encoder.
    Feedback(Vec<Feedback>),
    /// The next frame waits for a repair.
    Blocked,
    /// Everything that was taken in is handed out.
    Empty,
}

/// A frame whose outer form is read, but whose references are not resolved.
struct Parsed {
    commit: bool,
    coding: Coding,
    head: Head,
    run_proof: Option<[u8; RUN_PROOF_BYTES]>,
    new_proof: Option<[u8; NEW_PROOF_BYTES]>,
    /// Decompressed, or still packed if it is a delta.
    payload: Vec<u8>,
    new_len: usize,
    wire: u64,
}

struct Frame {
    parts: Vec<Part>,
    run_proof: Option<[u8; RUN_PROOF_BYTES]>,
    /// Set when the new bytes are not proved yet, since they must be repaired first.
    new_proof: Option<[u8; NEW_PROOF_BYTES]>,
    repaired: bool,
}

enum Part {
    New(Bytes),
    Run { position: u64, places: Vec<(Addr, u64)>, _pins: Vec<Box<dyn Pin>> },
    Hole(Hole),
}

struct Hole {
    position: u64,
    len: u64,
    /// Of a run, not of new bytes.
    run: bool,
    bytes: Vec<u8>,
}

/// The decoder of one direction.
pub struct Decoder {
    shared: Shared,
    recording: RecordingId,
    /// Position after the last frame taken in.
    position: u64,
    near: Option<Name>,
    small: Option<Unpacker>,
    large: Option<Unpacker>,
    learner: Learner,
    parsed: Option<Parsed>,
    /// Recordings that were waited for in vain: they are not waited for again.
    unknown: VecDeque<RecordingId>,
    queue: VecDeque<Frame>,
    queued: u64,
    restored: u64,
}

impl Decoder {
    /// A decoder whose bytes become `recording`.
    pub fn new(shared: Shared, recording: RecordingId) -> Decoder {
        shared.ledger.begin(recording);
        Decoder {
            shared,
            recording,
            position: 0,
            near: None,
            small: None,
            large: None,
            learner: Learner::receiving(recording),
            parsed: None,
            unknown: VecDeque::new(),
            queue: VecDeque::new(),
            queued: 0,
            restored: 0,
        }
    }

    /// Frames handed out so far: what the encoder may forget.
    pub fn frames_restored(&self) -> u64 {
        self.restored
    }

    /// Takes in one frame. Not to be called again before a [`Intake::Wait`] is resolved.
    pub fn take(&mut self, frame: &[u8]) -> Result<Intake, DecodeError> {
        if self.parsed.is_some() {
            return Err(DecodeError::Misbehaved("a frame was taken in while another one waits"));
        }
        let parsed = self.parse(frame)?;
        let lan: u64 = parsed.head.tokens.iter().map(Token::len).sum();
        if self.queued + lan > QUEUE_BYTES_MAX {
            return Err(DecodeError::Misbehaved("more bytes than the window allows"));
        }
        self.parsed = Some(parsed);
        self.resume(false)
    }

    /// Goes on with a frame that had to wait; with `give_up`, what is still unknown is asked for.
    pub fn resume(&mut self, give_up: bool) -> Result<Intake, DecodeError> {
        let Some(parsed) = self.parsed.take() else {
            return Ok(Intake::Done { feedback: Vec::new(), stats: Taken::default() });
        };
        let named = parsed.head.tokens.iter().filter_map(|token| match token {
            Token::Run { at, len } => Some((*at, *len)),
            _ => None,
        });
        if !give_up {
            for (at, len) in named.chain(parsed.head.base.iter().copied()) {
                if at.recording != self.recording && self.is_coming(at, len) {
                    self.parsed = Some(parsed);
                    return Ok(Intake::Wait { recording: at.recording });
                }
            }
        } else {
            for (at, _) in named.chain(parsed.head.base.iter().copied()) {
                if !self.shared.ledger.knows(at.recording) && !self.unknown.contains(&at.recording) {
                    self.unknown.truncate(UNKNOWN_MAX - 1);
                    self.unknown.push_front(at.recording);
                }
            }
        }
        self.settle(parsed)
    }

    /// The next bytes for the LAN side.
    pub fn deliver(&mut self) -> Result<Delivery, DecodeError> {
        let Some(frame) = self.queue.front_mut() else { return Ok(Delivery::Empty) };
        if frame
            .parts
            .iter()
            .any(|part| matches!(part, Part::Hole(hole) if (hole.bytes.len() as u64) < hole.len))
        {
            return Ok(Delivery::Blocked);
        }
        let runs_read = match read_back(&self.shared, frame) {
            Ok(runs_read) => runs_read,
            Err(feedback) => return Ok(Delivery::Feedback(feedback)),
        };
        let mut runs_read = runs_read.into_iter();
        let mut runs = blake3::Hasher::new();
        let mut new = blake3::Hasher::new();
        let mut out = Vec::new();
        for part in &frame.parts {
            match part {
                Part::New(bytes) => {
                    new.update(bytes);
                    out.push(bytes.clone());
                }
                Part::Hole(hole) => {
                    let hasher = if hole.run { &mut runs } else { &mut new };
                    hasher.update(&hole.bytes);
                    out.push(Bytes::copy_from_slice(&hole.bytes));
                }
                Part::Run { .. } => {
                    let pieces = runs_read.next().unwrap_or_default();
                    pieces.iter().for_each(|piece| {
                        runs.update(piece);
                    });
                    out.extend(pieces);
                }
            }
        }
        let runs_proved =
            frame.run_proof.is_none_or(|proof| runs.finalize().as_bytes()[..RUN_PROOF_BYTES] == proof);
        let new_proved =
            frame.new_proof.is_none_or(|proof| new.finalize().as_bytes()[..NEW_PROOF_BYTES] == proof);
        if !runs_proved || !new_proved {
            return distrust(&self.shared, frame).map(Delivery::Feedback);
        }
        self.queue.pop_front();
        self.restored += 1;
        self.queued -= out.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        Ok(Delivery::Bytes(out))
    }

    /// Takes a repair from the encoder. The messages go back to it.
    pub fn repair(&mut self, message: &Feedback) -> Result<Vec<Feedback>, DecodeError> {
        let Feedback::Repair { position, len, packed, data } = message else {
            return Err(DecodeError::Misbehaved("a decoder only takes repairs"));
        };
        let len = *len as usize;
        let bytes = if *packed { unpack_against(&[], data, len)? } else { data.to_vec() };
        let hole =
            self.queue.iter_mut().flat_map(|frame| frame.parts.iter_mut()).find_map(|part| match part {
                Part::Hole(hole)
                    if hole.position + hole.bytes.len() as u64 == *position
                        && hole.bytes.len() as u64 + bytes.len() as u64 <= hole.len =>
                {
                    Some(hole)
                }
                _ => None,
            });
        let Some(hole) = hole else { return Err(DecodeError::Misbehaved("a repair that was not asked for")) };
        hole.bytes.extend_from_slice(&bytes);
        let kept = self.learner.fill(&self.shared, *position, bytes.into());
        Ok(if kept { Vec::new() } else { vec![Feedback::Forget { position: *position, len: len as u32 }] })
    }

    /// Whether everything that was taken in is handed out.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.parsed.is_none()
    }

    /// The connection ended badly: what its last bytes refer to may be anything, so only what is committed is kept.
    pub fn abandon(&mut self) {
        self.queue.clear();
        self.parsed = None;
        self.shared.ledger.finish(self.recording);
    }

    /// Nothing more will come: the recording is closed.
    pub fn finish(&mut self) {
        self.shared.ledger.finish(self.recording);
    }

    /// Whether a named range is not here, but probably on its way: its recording is still being received, or has not
    /// even been begun on this side.
    fn is_coming(&self, at: Name, len: u64) -> bool {
        match self.shared.places(at, len) {
            Ok(_) | Err(Span::At { .. }) => false,
            Err(Span::Pending) => true,
            Err(Span::Missing) => {
                !self.shared.ledger.knows(at.recording) && !self.unknown.contains(&at.recording)
            }
        }
    }

    fn parse(&mut self, frame: &[u8]) -> Result<Parsed, DecodeError> {
        let envelope = Envelope::parse(frame)?;
        if envelope.head_reset {
            self.small = None;
        }
        let plain = if envelope.head_packed {
            if self.small.is_none() {
                self.small = Some(Unpacker::new(SMALL_WINDOW_LOG).map_err(|_| DecodeError::NoMemory)?);
            }
            match &mut self.small {
                Some(small) => small.unpack(envelope.head, HEAD_BYTES_MAX)?,
                None => return Err(DecodeError::NoMemory),
            }
        } else {
            envelope.head.to_vec()
        };
        let head = Head::parse(&plain, envelope.coding == Coding::Delta, &mut self.near)?;
        let payload_len: usize = head
            .tokens
            .iter()
            .map(|token| if let Token::New { len } = token { *len as usize } else { 0 })
            .sum();
        let new_len = payload_len
            + head
                .tokens
                .iter()
                .map(|token| if let Token::Inline(bytes) = token { bytes.len() } else { 0 })
                .sum::<usize>();
        let has_runs = head.tokens.iter().any(|token| matches!(token, Token::Run { .. }));
        if has_runs != envelope.run_proof.is_some() || new_len > FRAME_NEW_BYTES_MAX {
            return Err(InvalidFrame::Contradiction.into());
        }
        let (mut rest, mut new_proof) = (envelope.rest, None);
        if new_len > 0 {
            let (proof, after) = rest.split_first_chunk().ok_or(InvalidFrame::Short)?;
            (new_proof, rest) = (Some(*proof), after);
        }
        let payload = self.unpack_payload(envelope.coding, rest, payload_len)?;
        let wire = frame.len() as u64;
        Ok(Parsed {
            commit: envelope.commit,
            coding: envelope.coding,
            head,
            run_proof: envelope.run_proof,
            new_proof,
            payload,
            new_len,
            wire,
        })
    }

    fn unpack_payload(&mut self, coding: Coding, packed: &[u8], len: usize) -> Result<Vec<u8>, DecodeError> {
        match coding {
            Coding::None if packed.is_empty() && len == 0 => Ok(Vec::new()),
            Coding::Raw if packed.len() == len && len > 0 => Ok(packed.to_vec()),
            Coding::Stream { reset } => {
                if reset {
                    self.large = None;
                }
                if packed.is_empty() && len == 0 && reset {
                    return Ok(Vec::new());
                }
                if self.large.is_none() {
                    self.large = Some(Unpacker::new(LARGE_WINDOW_LOG).map_err(|_| DecodeError::NoMemory)?);
                }
                let Some(large) = &mut self.large else { return Err(DecodeError::NoMemory) };
                let bytes = large.unpack(packed, len)?;
                if bytes.len() == len && len > 0 {
                    Ok(bytes)
                } else {
                    Err(InvalidFrame::Contradiction.into())
                }
            }
            Coding::Delta if len > 0 => Ok(packed.to_vec()),
            _ => Err(InvalidFrame::Contradiction.into()),
        }
    }

    /// Resolves a frame's references, learns its new content and queues it.
    fn settle(&mut self, mut parsed: Parsed) -> Result<Intake, DecodeError> {
        let mut stats = Taken { wire: parsed.wire, ..Taken::default() };
        let mut base_missing = false;
        if parsed.coding == Coding::Delta {
            let packed = parsed.payload.len();
            let len = parsed
                .head
                .tokens
                .iter()
                .map(|token| if let Token::New { len } = token { *len as usize } else { 0 })
                .sum();
            let mut base = Vec::new();
            if parsed.head.base.iter().all(|&(at, len)| self.shared.read_name_into(at, len, &mut base)) {
                parsed.payload = unpack_against(&base, &parsed.payload, len)?;
                stats.delta_saved = (len as u64).saturating_sub(packed as u64);
            } else {
                base_missing = true;
            }
        } else {
            let payload_wire = parsed.wire.min(parsed.payload.len() as u64);
            stats.compression_saved = parsed.payload.len() as u64 - payload_wire;
        }
        let mut feedback = Vec::new();
        let mut spare_holes = SPARE_HOLES_MAX;
        let mut parts = Vec::with_capacity(parsed.head.tokens.len());
        let payload = Bytes::from(std::mem::take(&mut parsed.payload));
        let mut payload_at = 0usize;
        let mut proof = blake3::Hasher::new();
        for token in std::mem::take(&mut parsed.head.tokens) {
            let (position, len) = (self.position, token.len());
            self.position += len;
            stats.lan += len;
            match token {
                Token::Run { at, len } => {
                    stats.run += len;
                    parts.extend(self.settle_run(position, at, len, &mut spare_holes, &mut feedback));
                }
                Token::New { len } if base_missing => {
                    parts.push(self.hole(position, u64::from(len), false, &mut feedback));
                }
                Token::New { len } => {
                    let bytes = payload.slice(payload_at..payload_at + len as usize);
                    payload_at += len as usize;
                    proof.update(&bytes);
                    self.learner.fresh(&bytes);
                    parts.push(Part::New(bytes));
                }
                Token::Inline(bytes) => {
                    proof.update(&bytes);
                    self.learner.fresh(&bytes);
                    parts.push(Part::New(bytes));
                }
            }
        }
        if !base_missing && parsed.new_len > 0 && parsed.new_proof != Some(cut_proof(&proof)) {
            return Err(DecodeError::ProofFailed);
        }
        if parsed.commit {
            let done = self.learner.commit(&self.shared, None);
            for (position, bytes) in done.lost {
                feedback.push(Feedback::Forget { position, len: bytes.len() as u32 });
            }
        } else if self.learner.pending_new() > PENDING_NEW_BYTES_MAX
            || self.learner.pending_pieces() > PENDING_PIECES_MAX
        {
            return Err(DecodeError::Misbehaved("too much without a commit"));
        }
        self.queued += stats.lan;
        let new_proof = if base_missing { parsed.new_proof } else { None };
        self.queue.push_back(Frame { parts, run_proof: parsed.run_proof, new_proof, repaired: false });
        Ok(Intake::Done { feedback, stats })
    }

    /// Finds a run's bytes; what is not here becomes holes.
    fn settle_run(
        &mut self,
        position: u64,
        at: Name,
        len: u64,
        spare_holes: &mut usize,
        feedback: &mut Vec<Feedback>,
    ) -> Vec<Part> {
        let mut parts = Vec::with_capacity(1);
        let behind = at.recording != self.recording || at.position + len <= position;
        let mut found = if behind { self.shared.stored(at, len) } else { Vec::new() }.into_iter().peekable();
        let mut done = 0;
        while done < len {
            let mut places = Vec::new();
            let mut pins = Vec::new();
            let start = done;
            while let Some(place) = found.next_if(|place| place.from == done) {
                done += place.len;
                self.learner.old(place.addr, place.len);
                places.push((place.addr, place.len));
                pins.push(place.pin);
            }
            if !places.is_empty() {
                parts.push(Part::Run { position: position + start, places, _pins: pins });
            }
            if done < len {
                let stop = found.peek().filter(|_| *spare_holes > 0).map_or(len, |place| place.from);
                *spare_holes = spare_holes.saturating_sub(1);
                parts.push(self.hole(position + done, stop - done, true, feedback));
                done = stop;
            }
        }
        parts
    }

    fn hole(&mut self, position: u64, len: u64, run: bool, feedback: &mut Vec<Feedback>) -> Part {
        self.learner.hole(len);
        feedback.push(Feedback::Miss { position, len: len as u32 });
        Part::Hole(Hole { position, len, run, bytes: Vec::new() })
    }
}

fn cut_proof(hasher: &blake3::Hasher) -> [u8; NEW_PROOF_BYTES] {
    let mut proof = [0; NEW_PROOF_BYTES];
    proof.copy_from_slice(&hasher.finalize().as_bytes()[..NEW_PROOF_BYTES]);
    proof
}

/// Reads a frame's runs, one list of pieces a run. Those that cannot be read become holes, and the messages ask for them.
fn read_back(shared: &Shared, frame: &mut Frame) -> Result<Vec<Vec<Bytes>>, Vec<Feedback>> {
    let mut read = Vec::new();
    let mut feedback = Vec::new();
    for part in &mut frame.parts {
        let Part::Run { position, places, .. } = part else { continue };
        let mut pieces = Vec::new();
        let mut whole = true;
        for &(addr, len) in places.iter() {
            match shared.views(addr, len) {
                Ok(views) => pieces.extend(views),
                Err(_) => {
                    shared.ledger.unname(addr, len);
                    whole = false;
                }
            }
        }
        if whole {
            read.push(pieces);
            continue;
        }
        let (position, len) = (*position, places.iter().map(|(_, len)| len).sum::<u64>());
        feedback.push(Feedback::Miss { position, len: len as u32 });
        *part = Part::Hole(Hole { position, len, run: true, bytes: Vec::new() });
    }
    if feedback.is_empty() { Ok(read) } else { Err(feedback) }
}

/// Stored content does not match the proof: it is set aside and asked for once. If what comes does not match either, the
/// direction is over.
fn distrust(shared: &Shared, frame: &mut Frame) -> Result<Vec<Feedback>, DecodeError> {
    if frame.repaired {
        return Err(DecodeError::ProofFailed);
    }
    frame.repaired = true;
    let mut feedback = Vec::new();
    for part in &mut frame.parts {
        let Part::Run { position, places, .. } = part else { continue };
        for &(addr, len) in places.iter() {
            shared.store.quarantine(addr);
            shared.ledger.unname(addr, len);
        }
        let (position, len) = (*position, places.iter().map(|(_, len)| len).sum::<u64>());
        feedback.push(Feedback::Miss { position, len: len as u32 });
        *part = Part::Hole(Hole { position, len, run: true, bytes: Vec::new() });
    }
    if feedback.is_empty() { Err(DecodeError::ProofFailed) } else { Ok(feedback) }
}

/// The proof that a frame of these new bytes carries. Tests and tools use it.
pub fn proof_of_new(bytes: &[u8]) -> [u8; NEW_PROOF_BYTES] {
    new_proof(bytes)
}
