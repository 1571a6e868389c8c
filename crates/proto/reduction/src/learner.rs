//! Takes new content into the store and the ledger, in the same steps on both sides of a direction.

use bytes::Bytes;
use isthmus_types::RecordingId;
use isthmus_types::limits::RECORD_BYTES_MAX;

use crate::chunker::{CHUNK_BYTES_MIN, FEATURES, cut_len, features};
use crate::content::{Addr, ChunkKey, ChunkMeta};
use crate::ledger::{self, NOTE_RANGES_MAX, Name, Range, Span};
use crate::shared::Shared;

/// New bytes that may wait for a commit.
pub(crate) const PENDING_NEW_BYTES_MAX: usize = RECORD_BYTES_MAX - (64 << 10);
/// Pieces that may wait for a commit.
pub(crate) const PENDING_PIECES_MAX: usize = 16 << 10;
/// New pieces shorter than this become one chunk with their neighbours: an index entry for each would find nothing.
const SMALL_PIECE_BYTES: usize = 256;

/// A chunk of new content. Key and features are worked out when they are first needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub len: u32,
    pub key: Option<ChunkKey>,
    pub features: Option<[u32; FEATURES]>,
}

enum Piece {
    Old { addr: Addr, len: u64 },
    New { len: u64 },
    Hole { len: u64 },
}

/// What a direction has seen since its last commit.
pub(crate) struct Learner {
    recording: RecordingId,
    /// Position of the first pending piece.
    position: u64,
    pieces: Vec<Piece>,
    fresh: Vec<u8>,
    /// Of a decoder: new bytes come from the peer.
    receives: bool,
}

/// What came of a commit.
#[derive(Default)]
pub(crate) struct Committed {
    /// Where the new record lies.
    pub appended: Option<(Addr, u64)>,
    /// What the store did not take, by position.
    pub lost: Vec<(u64, Bytes)>,
}

impl Learner {
    /// A learner of what this side sends.
    pub fn new(recording: RecordingId) -> Learner {
        Learner { recording, position: 0, pieces: Vec::new(), fresh: Vec::new(), receives: false }
    }

    /// A learner of what the peer sends. What comes as new is named by its place, whatever it was called before: the peer
    /// would have used a name that it knows.
    pub fn receiving(recording: RecordingId) -> Learner {
        Learner { receives: true, ..Learner::new(recording) }
    }

    /// The next bytes are stored content.
    pub fn old(&mut self, addr: Addr, len: u64) {
        match self.pieces.last_mut() {
            Some(Piece::Old { addr: start, len: known }) if start.plus(*known) == addr => *known += len,
            _ => self.pieces.push(Piece::Old { addr, len }),
        }
    }

    /// The next bytes are new.
    pub fn fresh(&mut self, bytes: &[u8]) {
        self.fresh.extend_from_slice(bytes);
        self.adopted(bytes.len() as u64);
    }

    /// Takes in all new bytes of a frame; [`Learner::adopted`] says where they belong.
    pub fn adopt(&mut self, bytes: Vec<u8>) {
        if self.fresh.is_empty() {
            self.fresh = bytes;
        } else {
            self.fresh.extend_from_slice(&bytes);
        }
    }

    /// The next `len` bytes are new, and have been taken in.
    pub fn adopted(&mut self, len: u64) {
        match self.pieces.last_mut() {
            Some(Piece::New { len: known }) => *known += len,
            _ => self.pieces.push(Piece::New { len }),
        }
    }

    /// The next bytes are not here yet; they will be learned apart.
    pub fn hole(&mut self, len: u64) {
        self.pieces.push(Piece::Hole { len });
    }

    /// New bytes that wait for a commit.
    pub fn pending_new(&self) -> usize {
        self.fresh.len()
    }

    /// Pieces that wait for a commit.
    pub fn pending_pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Lengths of the content-defined chunks of the pending new bytes, region by region.
    fn cuts(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut at = 0;
        for piece in &self.pieces {
            let Piece::New { len } = piece else { continue };
            let mut rest = &self.fresh[at..at + *len as usize];
            at += *len as usize;
            while !rest.is_empty() {
                let len = cut_len(rest);
                cuts.push(Cut { len: len as u32, key: None, features: None });
                rest = &rest[len..];
            }
        }
        cuts
    }

    /// Puts everything pending into the store and the ledger. `cuts` are the chunks of the new bytes, if the caller knows
    /// them.
    pub fn commit(&mut self, shared: &Shared, cuts: Option<Vec<Cut>>) -> Committed {
        let mut done = Committed::default();
        let cuts = join_small(cuts.unwrap_or_else(|| self.cuts()));
        let fresh = Bytes::from(std::mem::take(&mut self.fresh));
        let places = store_fresh(shared, &fresh, cuts, &mut done);
        let mut ranges = Vec::new();
        let mut places = places.into_iter();
        let mut current: Option<(Option<Addr>, u64)> = None;
        let mut position = self.position;
        let mut fresh_at = 0usize;
        for piece in self.pieces.drain(..) {
            match piece {
                Piece::Old { addr, len } => {
                    push_range(&mut ranges, Range { position, addr, len, fresh: false });
                    position += len;
                }
                Piece::Hole { len } => position += len,
                Piece::New { len: mut left } => {
                    while left > 0 {
                        let Some((addr, there)) = current.take().or_else(|| places.next()) else { break };
                        let step = there.min(left);
                        match addr {
                            Some(addr) => {
                                push_range(&mut ranges, Range { position, addr, len: step, fresh: true })
                            }
                            None => {
                                done.lost.push((position, fresh.slice(fresh_at..fresh_at + step as usize)))
                            }
                        }
                        fresh_at += step as usize;
                        if there > step {
                            current = Some((addr.map(|addr| addr.plus(step)), there - step));
                        }
                        position += step;
                        left -= step;
                    }
                }
            }
        }
        self.position = position;
        for range in &ranges {
            let at = Name { recording: self.recording, position: range.position };
            let anew = range.fresh && self.receives;
            shared.ledger.add(at, range.addr, range.len, anew);
            if anew
                && done.appended.is_none_or(|(from, len)| range.addr < from || range.addr >= from.plus(len))
            {
                // It was here before.
                shared.ledger.rename(at, range.addr, range.len);
            }
        }
        for (position, bytes) in &done.lost {
            let at = Name { recording: self.recording, position: *position };
            shared.ledger.lost(at, bytes.len() as u64);
        }
        keep(shared, self.recording, &ranges);
        done
    }

    /// Learns bytes that were a hole when their neighbours were committed. False if the store did not take them.
    pub fn fill(&self, shared: &Shared, position: u64, bytes: Bytes) -> bool {
        let len = bytes.len() as u64;
        // What stood there could not be read, or was not there.
        shared.ledger.cut(Name { recording: self.recording, position }, len);
        let mut apart =
            Learner { position, pieces: vec![Piece::New { len }], ..Learner::receiving(self.recording) };
        apart.fresh = bytes.into();
        apart.commit(shared, None).lost.is_empty()
    }

    /// What the peer lacked under the name that was used it will now have under this recording's.
    pub fn take_over_names(&self, shared: &Shared, position: u64, len: u64) {
        let mut ranges = Vec::new();
        for (position, addr, len) in self.places(shared, position, len) {
            let old = shared.ledger.name_of(addr).map(|(name, ..)| name);
            if old.is_some_and(|old| old.recording == self.recording) {
                continue;
            }
            shared.ledger.rename(Name { recording: self.recording, position }, addr, len);
            push_range(&mut ranges, Range { position, addr, len, fresh: true });
        }
        keep(shared, self.recording, &ranges);
    }

    /// Where a range of this direction lies, committed or not, as far as it is stored: (position, address, length).
    pub fn places(&self, shared: &Shared, position: u64, len: u64) -> Vec<(u64, Addr, u64)> {
        let end = position + len;
        let mut places = Vec::new();
        let mut at = position;
        while at < self.position.min(end) {
            let Span::At { addr, len } = shared.ledger.span(Name { recording: self.recording, position: at })
            else {
                break;
            };
            let step = len.min(end - at);
            places.push((at, addr, step));
            at += step;
        }
        let mut start = self.position;
        for piece in &self.pieces {
            let (Piece::Old { len, .. } | Piece::New { len } | Piece::Hole { len }) = piece;
            let (from, to) = (position.max(start), end.min(start + len));
            if let (Piece::Old { addr, .. }, true) = (piece, from < to) {
                places.push((from, addr.plus(from - start), to - from));
            }
            start += len;
        }
        places
    }

    /// Appends the bytes of a range of this direction, committed or not. False if they cannot be read.
    pub fn read_into(&self, shared: &Shared, position: u64, len: u64, out: &mut Vec<u8>) -> bool {
        let end = position + len;
        let committed = self.position.min(end).saturating_sub(position);
        let at = Name { recording: self.recording, position };
        if committed > 0 && !shared.read_name_into(at, committed, out) {
            return false;
        }
        let (mut start, mut fresh_at) = (self.position, 0usize);
        for piece in &self.pieces {
            let (Piece::Old { len, .. } | Piece::New { len } | Piece::Hole { len }) = piece;
            let stop = start + len;
            let (from, to) = (position.max(start), end.min(stop));
            if from < to {
                let skip = from - start;
                match piece {
                    Piece::Old { addr, .. } => {
                        if shared.read_into(addr.plus(skip), to - from, out).is_err() {
                            return false;
                        }
                    }
                    Piece::New { .. } => {
                        let from_fresh = fresh_at + skip as usize;
                        out.extend_from_slice(&self.fresh[from_fresh..from_fresh + (to - from) as usize]);
                    }
                    Piece::Hole { .. } => return false,
                }
            }
            if let Piece::New { len } = piece {
                fresh_at += *len as usize;
            }
            start = stop;
        }
        start >= end || self.position >= end
    }
}

/// Appends what the store does not have yet; the result tells where each part of `fresh` lies, in order.
fn store_fresh(
    shared: &Shared,
    fresh: &Bytes,
    cuts: Vec<Cut>,
    done: &mut Committed,
) -> Vec<(Option<Addr>, u64)> {
    let mut known = Vec::with_capacity(cuts.len());
    let mut metas = Vec::with_capacity(cuts.len());
    let mut at = 0usize;
    for cut in &cuts {
        let bytes = &fresh[at..at + cut.len as usize];
        let key = cut.key.unwrap_or_else(|| ChunkKey::of(bytes));
        let there = if bytes.len() >= CHUNK_BYTES_MIN {
            shared.store.lookup(key).filter(|addr| shared.holds(*addr, bytes))
        } else {
            None
        };
        metas.push(ChunkMeta { key, len: cut.len });
        known.push(there);
        at += bytes.len();
    }
    if fresh.is_empty() {
        return Vec::new();
    }
    let (data, chunks): (Bytes, Vec<ChunkMeta>) = if known.iter().all(Option::is_none) {
        (fresh.clone(), metas.clone())
    } else {
        let mut data = Vec::with_capacity(fresh.len());
        let mut at = 0usize;
        for (meta, there) in metas.iter().zip(&known) {
            let end = at + meta.len as usize;
            if there.is_none() {
                data.extend_from_slice(&fresh[at..end]);
            }
            at = end;
        }
        let unknown = metas.iter().zip(&known).filter(|(_, there)| there.is_none());
        (data.into(), unknown.map(|(meta, _)| *meta).collect())
    };
    let mut next = None;
    if !data.is_empty() {
        let len = data.len() as u64;
        next = shared.store.append(data, &chunks).ok();
        done.appended = next.map(|addr| (addr, len));
    }
    let mut places = Vec::with_capacity(metas.len());
    let mut at = 0usize;
    for ((meta, there), cut) in metas.iter().zip(known).zip(cuts) {
        let len = u64::from(meta.len);
        let end = at + meta.len as usize;
        if there.is_none() {
            places.push((next, len));
            if let Some(addr) = next {
                let found = cut.features.or_else(|| chunk_features(&fresh[at..end]));
                if let Some(features) = found {
                    shared.similar.insert(&features, addr);
                }
                next = Some(addr.plus(len));
            }
        } else {
            places.push((there, len));
        }
        at = end;
    }
    places
}

/// Features of a chunk that is long enough to be found again by them.
pub(crate) fn chunk_features(bytes: &[u8]) -> Option<[u32; FEATURES]> {
    if bytes.len() < CHUNK_BYTES_MIN / 2 { None } else { features(bytes) }
}

/// Joins neighbouring chunks that are too small to be worth an index entry each.
fn join_small(cuts: Vec<Cut>) -> Vec<Cut> {
    let mut joined: Vec<Cut> = Vec::with_capacity(cuts.len());
    for cut in cuts {
        match joined.last_mut() {
            Some(last)
                if (cut.len as usize) < SMALL_PIECE_BYTES && (last.len as usize) < SMALL_PIECE_BYTES * 8 =>
            {
                *last = Cut { len: last.len + cut.len, key: None, features: None };
            }
            _ => joined.push(cut),
        }
    }
    joined
}

fn push_range(ranges: &mut Vec<Range>, range: Range) {
    match ranges.last_mut() {
        Some(last)
            if last.position + last.len == range.position
                && last.addr.plus(last.len) == range.addr
                && last.fresh == range.fresh =>
        {
            last.len += range.len;
        }
        _ => ranges.push(range),
    }
}

/// Keeps ranges over a restart.
fn keep(shared: &Shared, recording: RecordingId, ranges: &[Range]) {
    for part in ranges.chunks(NOTE_RANGES_MAX) {
        // A note that is not kept costs warmth after a restart, nothing else; the store counts it.
        let _ = shared.store.note(shared.ledger_id, &ledger::note(recording, part));
    }
}
