//! The reduction frame: what one step of an encoder says to the decoder (docs/protocol.md, "Reduction frames").
//!
//! ```text
//! flags u8 | head length varint | head | run proof 16 B (flag) | new proof 8 B (if it has new bytes) | payload
//! ```
//! The head is a list of tokens, plain or packed through the direction's small context.

use bytes::{BufMut, Bytes};
use isthmus_types::limits::{
    DELTA_BASE_BYTES_MAX, FRAME_LAN_BYTES_MAX, FRAME_NEW_BYTES_MAX, FRAME_WIRE_BYTES_MAX,
};
use isthmus_types::{RecordingId, varint};
use thiserror::Error;

use crate::ledger::Name;

/// Plain size that a head may have, in bytes.
pub const HEAD_BYTES_MAX: usize = 48 << 10;
/// Tokens that one frame may have.
pub const TOKENS_MAX: usize = 4096;
/// Ranges that a delta's base may be made of.
pub const BASE_RANGES_MAX: usize = 256;
/// Bytes of the proof of a frame's runs (BLAKE3, cut).
pub const RUN_PROOF_BYTES: usize = 16;
/// Bytes of the proof of a frame's new bytes (BLAKE3, cut).
pub const NEW_PROOF_BYTES: usize = 8;

const FLAG_COMMIT: u8 = 0x01;
const FLAG_RUN_PROOF: u8 = 0x02;
const FLAG_HEAD_PACKED: u8 = 0x04;
const FLAG_HEAD_RESET: u8 = 0x08;
const CODING_SHIFT: u8 = 4;
const CODING_MASK: u8 = 0x30;
const FLAG_STREAM_RESET: u8 = 0x40;
const FLAG_CONTENT: u8 = 0x80;

/// What a frame is part of. A direction's bytes either all go through one encoder (plain), or a stage above has taken them apart into
/// messages' structure and the content they carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// LAN bytes as they are.
    #[default]
    Plain,
    /// Content: a reduction frame like a plain one, of a recording of its own.
    Content,
    /// Structure ([`crate::structure`]).
    Structure,
}

impl Lane {
    /// The lane of a frame, by its first byte.
    pub fn of(frame: &[u8]) -> Lane {
        match frame.first() {
            Some(first) if first & !FLAG_HEAD_RESET == STRUCTURE_FRAME => Lane::Structure,
            Some(first) if first & FLAG_CONTENT != 0 => Lane::Content,
            _ => Lane::Plain,
        }
    }
}

/// First byte of a structure frame, without [`STRUCTURE_RESET`]: flags that no reduction frame can have together.
pub(crate) const STRUCTURE_FRAME: u8 = FLAG_CONTENT | FLAG_STREAM_RESET;
/// The context of structure starts anew before this frame.
pub(crate) const STRUCTURE_RESET: u8 = FLAG_HEAD_RESET;

/// How the payload holds the frame's new bytes (those that are not inline).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// There is no payload.
    None,
    /// The bytes themselves.
    Raw,
    /// The next part of the direction's zstd stream; `reset` starts a new one.
    Stream { reset: bool },
    /// A zstd frame of its own, with the delta's base (which may be empty) as prefix.
    Delta,
}

/// What one frame says, part by part; the parts' lengths add up to the LAN bytes that the frame stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// `len` bytes at a place both sides know.
    Run { at: Name, len: u64 },
    /// The next `len` new bytes of the payload.
    New { len: u32 },
    /// New bytes that stand in the head itself.
    Inline(Bytes),
}

impl Token {
    /// LAN bytes that this token stands for.
    pub fn len(&self) -> u64 {
        match self {
            Token::Run { len, .. } => *len,
            Token::New { len } => u64::from(*len),
            Token::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it stands for nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a frame or feedback message can have wrong with it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InvalidFrame {
    #[error("the frame ends too early")]
    Short,
    #[error("the frame has flags or a coding that this version does not know")]
    UnknownFlags,
    #[error("a length is beyond its limit")]
    TooLong,
    #[error("the head holds a token that cannot be read")]
    BadToken,
    #[error("the compressed part cannot be decompressed")]
    BadCompression,
    #[error("the parts of the frame contradict each other")]
    Contradiction,
}

/// The outer parts of a frame, with the head still as it came.
#[derive(Debug)]
pub struct Envelope<'a> {
    pub lane: Lane,
    pub commit: bool,
    pub head_packed: bool,
    pub head_reset: bool,
    pub coding: Coding,
    pub head: &'a [u8],
    pub run_proof: Option<[u8; RUN_PROOF_BYTES]>,
    /// New proof and payload: told apart once the head says whether there are new bytes.
    pub rest: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the outer parts.
    pub fn parse(mut input: &'a [u8]) -> Result<Envelope<'a>, InvalidFrame> {
        if input.len() > FRAME_WIRE_BYTES_MAX {
            return Err(InvalidFrame::TooLong);
        }
        let (&flags, rest) = input.split_first().ok_or(InvalidFrame::Short)?;
        input = rest;
        let reset = flags & FLAG_STREAM_RESET != 0;
        let coding = match (flags & CODING_MASK) >> CODING_SHIFT {
            0 => Coding::None,
            1 => Coding::Raw,
            2 => Coding::Stream { reset },
            _ => Coding::Delta,
        };
        if reset && !matches!(coding, Coding::Stream { .. }) {
            return Err(InvalidFrame::UnknownFlags);
        }
        let head_len = varint::take(&mut input).ok_or(InvalidFrame::Short)? as usize;
        if head_len > HEAD_BYTES_MAX {
            return Err(InvalidFrame::TooLong);
        }
        let (head, mut rest) = input.split_at_checked(head_len).ok_or(InvalidFrame::Short)?;
        let mut run_proof = None;
        if flags & FLAG_RUN_PROOF != 0 {
            let (proof, after) = rest.split_first_chunk().ok_or(InvalidFrame::Short)?;
            run_proof = Some(*proof);
            rest = after;
        }
        Ok(Envelope {
            lane: if flags & FLAG_CONTENT != 0 { Lane::Content } else { Lane::Plain },
            commit: flags & FLAG_COMMIT != 0,
            head_packed: flags & FLAG_HEAD_PACKED != 0,
            head_reset: flags & FLAG_HEAD_RESET != 0,
            coding,
            head,
            run_proof,
            rest,
        })
    }

    /// Writes the outer parts; `new_proof` and `payload` follow where the frame has new bytes.
    pub fn put(&self, new_proof: Option<&[u8; NEW_PROOF_BYTES]>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len() + payload.len() + 40);
        let (coding, reset) = match self.coding {
            Coding::None => (0, false),
            Coding::Raw => (1, false),
            Coding::Stream { reset } => (2, reset),
            Coding::Delta => (3, false),
        };
        let mut flags = coding << CODING_SHIFT;
        for (on, flag) in [
            (self.commit, FLAG_COMMIT),
            (self.run_proof.is_some(), FLAG_RUN_PROOF),
            (self.head_packed, FLAG_HEAD_PACKED),
            (self.head_reset, FLAG_HEAD_RESET),
            (reset, FLAG_STREAM_RESET),
            (self.lane == Lane::Content, FLAG_CONTENT),
        ] {
            if on {
                flags |= flag;
            }
        }
        out.put_u8(flags);
        varint::put(&mut out, self.head.len() as u64);
        out.extend_from_slice(self.head);
        out.extend_from_slice(self.run_proof.as_ref().map_or(&[][..], |proof| proof));
        out.extend_from_slice(new_proof.map_or(&[][..], |proof| proof));
        out.extend_from_slice(payload);
        out
    }
}

/// The tokens of a frame, with the base of its delta.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Old content that a delta's payload is coded against, in order.
    pub base: Vec<(Name, u64)>,
    pub tokens: Vec<Token>,
}

const KIND_INLINE: u64 = 0;
const KIND_NEW: u64 = 1;
const KIND_RUN_NEAR: u64 = 2;
const KIND_RUN_FAR: u64 = 3;

impl Head {
    /// Appends the head's plain form. `near` is the place after the direction's last run.
    pub fn put(&self, out: &mut Vec<u8>, delta: bool, mut near: Option<Name>) {
        if delta {
            varint::put(out, self.base.len() as u64);
            for (at, len) in &self.base {
                put_place(out, *at, *len, &mut near);
            }
        }
        for token in &self.tokens {
            match token {
                Token::Inline(bytes) => {
                    varint::put(out, (bytes.len() as u64) << 2 | KIND_INLINE);
                    out.extend_from_slice(bytes);
                }
                Token::New { len } => varint::put(out, u64::from(*len) << 2 | KIND_NEW),
                Token::Run { at, len } => put_place(out, *at, *len, &mut near),
            }
        }
    }

    /// Reads a head's plain form and checks every limit. `near` is moved to the place after the last run.
    pub fn parse(mut input: &[u8], delta: bool, near: &mut Option<Name>) -> Result<Head, InvalidFrame> {
        let mut head = Head::default();
        if delta {
            let count = varint::take(&mut input).ok_or(InvalidFrame::BadToken)?;
            if count > BASE_RANGES_MAX as u64 {
                return Err(InvalidFrame::TooLong);
            }
            let mut total = 0u64;
            for _ in 0..count {
                let raw = varint::take(&mut input).ok_or(InvalidFrame::BadToken)?;
                let (at, len) = take_place(&mut input, raw, near)?;
                total = total.saturating_add(len);
                head.base.push((at, len));
            }
            if total > DELTA_BASE_BYTES_MAX as u64 {
                return Err(InvalidFrame::TooLong);
            }
        }
        let (mut lan, mut new) = (0u64, 0u64);
        while !input.is_empty() {
            let raw = varint::take(&mut input).ok_or(InvalidFrame::BadToken)?;
            let len = raw >> 2;
            let token = match raw & 3 {
                KIND_INLINE => {
                    let len = usize::try_from(len).map_err(|_| InvalidFrame::TooLong)?;
                    let (bytes, rest) = input.split_at_checked(len).ok_or(InvalidFrame::BadToken)?;
                    input = rest;
                    Token::Inline(Bytes::copy_from_slice(bytes))
                }
                KIND_NEW => Token::New { len: u32::try_from(len).map_err(|_| InvalidFrame::TooLong)? },
                _ => {
                    let (at, len) = take_place(&mut input, raw, near)?;
                    Token::Run { at, len }
                }
            };
            lan = lan.saturating_add(token.len());
            if !matches!(token, Token::Run { .. }) {
                new = new.saturating_add(token.len());
            }
            if token.is_empty() {
                return Err(InvalidFrame::BadToken);
            }
            head.tokens.push(token);
            if head.tokens.len() > TOKENS_MAX
                || lan > FRAME_LAN_BYTES_MAX as u64
                || new > FRAME_NEW_BYTES_MAX as u64
            {
                return Err(InvalidFrame::TooLong);
            }
        }
        Ok(head)
    }
}

fn put_place(out: &mut Vec<u8>, at: Name, len: u64, near: &mut Option<Name>) {
    match near {
        Some(last) if last.recording == at.recording => {
            varint::put(out, len << 2 | KIND_RUN_NEAR);
            varint::put(out, varint::zigzag(at.position.wrapping_sub(last.position) as i64));
        }
        _ => {
            varint::put(out, len << 2 | KIND_RUN_FAR);
            out.put_u64_le(at.recording.0);
            varint::put(out, at.position);
        }
    }
    *near = Some(Name { position: at.position + len, ..at });
}

fn take_place(input: &mut &[u8], raw: u64, near: &mut Option<Name>) -> Result<(Name, u64), InvalidFrame> {
    let len = raw >> 2;
    let at = match raw & 3 {
        KIND_RUN_NEAR => {
            let step = varint::unzigzag(varint::take(input).ok_or(InvalidFrame::BadToken)?);
            let last = near.ok_or(InvalidFrame::BadToken)?;
            Name { position: last.position.wrapping_add(step as u64), ..last }
        }
        KIND_RUN_FAR => {
            let (id, rest) = input.split_first_chunk::<8>().ok_or(InvalidFrame::BadToken)?;
            *input = rest;
            let position = varint::take(input).ok_or(InvalidFrame::BadToken)?;
            Name { recording: RecordingId(u64::from_le_bytes(*id)), position }
        }
        _ => return Err(InvalidFrame::BadToken),
    };
    let end = at.position.checked_add(len).filter(|end| *end < 1 << 60).ok_or(InvalidFrame::TooLong)?;
    *near = Some(Name { position: end, ..at });
    Ok((at, len))
}

/// What the decoder of a direction asks of its encoder, and the answers. Positions are in the direction's own recording,
/// within frames that are not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Decoder: these bytes cannot be restored here; send them.
    Miss { position: u64, len: u32 },
    /// Encoder: the bytes themselves (zstd frame if `packed`).
    Repair { position: u64, len: u32, packed: bool, data: Bytes },
    /// Decoder: these bytes were delivered, but are not kept here; do not refer to them.
    Forget { position: u64, len: u32 },
}

/// LAN bytes that one repair carries at most.
pub const REPAIR_BYTES_MAX: usize = 256 << 10;

impl Feedback {
    /// The message's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        let (kind, position, len) = match self {
            Feedback::Miss { position, len } => (0, position, len),
            Feedback::Repair { position, len, packed, .. } => (1 + u8::from(*packed), position, len),
            Feedback::Forget { position, len } => (3, position, len),
        };
        out.put_u8(kind);
        varint::put(&mut out, *position);
        varint::put(&mut out, u64::from(*len));
        if let Feedback::Repair { data, .. } = self {
            out.extend_from_slice(data);
        }
        out.into()
    }

    /// Reads a message.
    pub fn decode(bytes: &Bytes) -> Result<Feedback, InvalidFrame> {
        let mut input: &[u8] = bytes;
        let (&kind, rest) = input.split_first().ok_or(InvalidFrame::Short)?;
        input = rest;
        let position = varint::take(&mut input).ok_or(InvalidFrame::Short)?;
        let len = varint::take(&mut input).ok_or(InvalidFrame::Short)?;
        let limit = if kind == 1 || kind == 2 { REPAIR_BYTES_MAX } else { FRAME_LAN_BYTES_MAX };
        if len == 0 || len > limit as u64 || position > 1 << 60 {
            return Err(InvalidFrame::TooLong);
        }
        let len = len as u32;
        match kind {
            0 if input.is_empty() => Ok(Feedback::Miss { position, len }),
            1 | 2 => {
                let data = bytes.slice(bytes.len() - input.len()..);
                if data.len() > FRAME_WIRE_BYTES_MAX || (kind == 1 && data.len() != len as usize) {
                    return Err(InvalidFrame::Contradiction);
                }
                Ok(Feedback::Repair { position, len, packed: kind == 2, data })
            }
            3 if input.is_empty() => Ok(Feedback::Forget { position, len }),
            _ => Err(InvalidFrame::UnknownFlags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(recording: u64, position: u64) -> Name {
        Name { recording: RecordingId(recording), position }
    }

    #[test]
    fn a_head_round_trips_and_a_following_run_takes_three_bytes() {
        let head = Head {
            base: vec![(place(9, 100), 1000), (place(9, 90), 5)],
            tokens: vec![
                Token::Run { at: place(7, 1 << 40), len: 500_000 },
                Token::Inline(Bytes::from_static(b"edit")),
                Token::Run { at: place(7, (1 << 40) + 500_004), len: 60 },
                Token::New { len: 77 },
            ],
        };
        for delta in [true, false] {
            let mut out = Vec::new();
            let head = if delta { &head } else { &Head { base: vec![], tokens: head.tokens.clone() } };
            head.put(&mut out, delta, Some(place(7, 3)));
            let mut near = Some(place(7, 3));
            assert_eq!(&Head::parse(&out, delta, &mut near).unwrap(), head);
            assert_eq!(near, Some(place(7, (1 << 40) + 500_064)));
        }
        let mut out = Vec::new();
        Head { base: vec![], tokens: vec![Token::Run { at: place(7, 5), len: 60 }] }.put(
            &mut out,
            false,
            Some(place(7, 5)),
        );
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn limits_are_kept() {
        let mut out = Vec::new();
        Head { base: vec![], tokens: vec![Token::New { len: FRAME_NEW_BYTES_MAX as u32 + 1 }] }
            .put(&mut out, false, None);
        assert_eq!(Head::parse(&out, false, &mut None), Err(InvalidFrame::TooLong));
        let mut out = Vec::new();
        Head {
            base: vec![],
            tokens: vec![Token::Run { at: place(1, 0), len: FRAME_LAN_BYTES_MAX as u64 + 1 }],
        }
        .put(&mut out, false, None);
        assert_eq!(Head::parse(&out, false, &mut None), Err(InvalidFrame::TooLong));
        assert_eq!(
            Head::parse(&[2 << 2 | 2, 0], false, &mut None),
            Err(InvalidFrame::BadToken),
            "no run came before"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), delta: bool) {
            let _ = Head::parse(&bytes, delta, &mut Some(place(3, 4)));
            let _ = Envelope::parse(&bytes);
            if let Ok(feedback) = Feedback::decode(&Bytes::from(bytes.clone())) {
                prop_assert_eq!(feedback.encode(), Bytes::from(bytes));
            }
        }
    }
}
