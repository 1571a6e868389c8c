//! How new bytes cross: as a delta, compressed, or as they are.

use super::{EncodeError, Encoder, SAMPLE_BYTES};
use crate::base::{self, Base};
use crate::compress::{
    BadCompression, LARGE_BASE_BYTES, LARGE_WINDOW_FROM_BYTES, LARGE_WINDOW_LOG, LARGE_WINDOW_LOG_FIRST,
    Packer, pack_against,
};
use crate::draft::Draft;
use crate::frame::{Coding, NEW_PROOF_BYTES};

/// New bytes up to this many stand in the head and go through the small context.
pub const INLINE_BYTES_MAX: usize = 2 << 10;
/// Heads shorter than this are not worth packing.
const HEAD_PACK_BYTES_MIN: usize = 24;
/// The first new bytes of a direction are compressed frame by frame: most connections are short, and a context for each
/// of thousands would take gigabytes.
const ALONE_BYTES: u64 = 128 << 10;
/// New bytes from which a delta is tried.
const DELTA_BYTES_MIN: usize = 128;
/// A delta must be smaller than this share of what compression alone would leave.
const DELTA_PERCENT_MAX: usize = 98;
/// The same where only features say that the base is similar, and compression alone does well: all text resembles text.
const DELTA_PERCENT_MAX_TEXT: usize = 80;
/// What compression alone leaves less than this of is called text.
const TEXT_PERCENT_MAX: usize = 40;
/// Level at which it is tried what compression alone would leave.
const ALONE_LEVEL: i32 = 1;
/// Bytes that compression leaves this much of, or more, are called incompressible.
const PACKED_PERCENT_MAX: usize = 99;
/// Pieces of new bytes, and their length, by which it is seen whether such content goes on.
const PROBE_PIECES: usize = 6;
const PROBE_BYTES: usize = 4 << 10;
/// Frames that are coded without asking for similar content, at most, when it was of no use.
const VOTES_PAUSE_MAX: u32 = 16;
/// Pause from which a base that votes found is first tried on a piece of the new bytes, of this length, at the lowest level.
const VOTES_PAUSE_TO_DOUBT: u32 = 4;
const DOUBT_BYTES: usize = 32 << 10;
/// Level of deltas: they are small, and worth more effort than new data.
const DELTA_LEVEL: i32 = 9;
/// The same when the base is larger than [`LARGE_BASE_BYTES`], since reading the base in takes most of the time.
const DELTA_LEVEL_LARGE: i32 = 3;

pub(super) struct Large {
    packer: Packer,
    level: i32,
    window_log: u32,
}

/// When to look for similar content by its features. Where everything resembles everything (text of a few words), votes
/// find a base each time and it never helps; so each failure doubles the pause before the next try.
#[derive(Default)]
pub(super) struct Votes {
    pause: u32,
    left: u32,
}

impl Votes {
    fn ask(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// The last tries failed: the next is likely to fail as well.
    fn doubt(&self) -> bool {
        self.pause >= VOTES_PAUSE_TO_DOUBT
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
pub(super) struct Payload {
    pub(super) coding: Coding,
    pub(super) bytes: Vec<u8>,
    pub(super) base: Base,
}

impl Default for Payload {
    fn default() -> Payload {
        Payload { coding: Coding::None, bytes: Vec::new(), base: Base::default() }
    }
}

impl Encoder {
    pub(super) fn pack_head(&mut self, plain: &[u8]) -> Result<Option<(Vec<u8>, bool)>, EncodeError> {
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
    pub(super) fn code_new(&mut self, draft: &mut Draft) -> Result<Payload, EncodeError> {
        if draft.new.len() >= DELTA_BYTES_MIN && self.learning {
            let asked = self.votes.ask();
            let mut base = base::choose(&self.shared, draft, self.after_run, asked);
            let packed_percent = self.packed_percent.unwrap_or(100);
            if base.voted && self.votes.doubt() && !helps_a_piece(&base, &draft.new, packed_percent)? {
                self.votes.lost();
                base = base::choose(&self.shared, draft, self.after_run, false);
            }
            if !base.bytes.is_empty() {
                let large = base.bytes.len() > LARGE_BASE_BYTES;
                let level = if large { DELTA_LEVEL_LARGE } else { DELTA_LEVEL };
                let bytes = pack_against(&base.bytes, &draft.new, level)?;
                let wire = bytes.len() + base.wire_bytes();
                let alone = pack_against(&[], &draft.new, ALONE_LEVEL)?.len().min(draft.new.len());
                if wire < alone * percent_max(&base, draft.new.len(), alone) / 100 {
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
        if self.packed_percent.is_some_and(|percent| percent >= PACKED_PERCENT_MAX) && !probe(&draft.new)? {
            return Ok(Payload { coding: Coding::Raw, bytes: draft.new.clone(), base: Base::default() });
        }
        let (coding, bytes) = if self.large.is_none() && self.new_total < ALONE_BYTES {
            (Coding::Delta, pack_against(&[], &draft.new, self.level)?)
        } else {
            self.pack_stream(&draft.new)?
        };
        self.packed_percent = Some(bytes.len() * 100 / draft.new.len());
        Ok(Payload { coding, bytes, base: Base::default() })
    }

    /// Compresses new bytes in the large context.
    pub(super) fn pack_stream(&mut self, new: &[u8]) -> Result<(Coding, Vec<u8>), EncodeError> {
        let window_log =
            if self.new_total > LARGE_WINDOW_FROM_BYTES { LARGE_WINDOW_LOG } else { LARGE_WINDOW_LOG_FIRST };
        let level = self.level;
        let stale = |large: &Large| large.level != level || large.window_log != window_log;
        let reset = self.large.as_ref().is_none_or(stale);
        if reset {
            self.large = Some(Large { packer: Packer::large(level, window_log)?, level, window_log });
        }
        if std::mem::take(&mut self.sampling) {
            self.sample = new[..new.len().min(SAMPLE_BYTES)].to_vec();
        }
        let Some(large) = &mut self.large else { return Err(EncodeError::Compression) };
        Ok((Coding::Stream { reset }, large.packer.pack(new)?))
    }
}

/// The proof of new bytes: their BLAKE3 hash, cut.
pub(crate) fn new_proof(bytes: &[u8]) -> [u8; NEW_PROOF_BYTES] {
    let mut proof = [0; NEW_PROOF_BYTES];
    proof.copy_from_slice(&blake3::hash(bytes).as_bytes()[..NEW_PROOF_BYTES]);
    proof
}

/// How much of what compression `alone` leaves of `len` new bytes a delta against `base` may leave.
fn percent_max(base: &Base, len: usize, alone: usize) -> usize {
    let text = base.voted && alone * 100 < len * TEXT_PERCENT_MAX;
    if text { DELTA_PERCENT_MAX_TEXT } else { DELTA_PERCENT_MAX }
}

/// Whether a delta against `base` would do for the end of `new`, if the stream leaves `packed_percent` of it.
fn helps_a_piece(base: &Base, new: &[u8], packed_percent: usize) -> Result<bool, BadCompression> {
    let piece = &new[new.len().saturating_sub(DOUBT_BYTES)..];
    let delta = pack_against(&base.bytes, piece, ALONE_LEVEL)?.len();
    let alone = piece.len() * packed_percent.min(100) / 100;
    Ok(delta < alone * percent_max(base, piece.len(), alone) / 100)
}

/// Whether a few pieces of `bytes` can be compressed.
fn probe(bytes: &[u8]) -> Result<bool, BadCompression> {
    let mut sample = Vec::with_capacity(PROBE_PIECES * PROBE_BYTES);
    for piece in 0..PROBE_PIECES {
        let from = bytes.len().saturating_sub(PROBE_BYTES) * piece / (PROBE_PIECES - 1);
        sample.extend_from_slice(&bytes[from..bytes.len().min(from + PROBE_BYTES)]);
    }
    Ok(pack_against(&[], &sample, ALONE_LEVEL)?.len() * 100 <= sample.len() * PACKED_PERCENT_MAX)
}
