//! Where the incoming bytes go on in old content.

use bytes::{Buf, Bytes, BytesMut};

use super::{DRAFT_LAN_BYTES_FULL, Encoder};
use crate::chunker::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, next_boundary};
use crate::content::{Addr, ChunkKey};
use crate::learner::Cut;
use crate::ledger::{Name, Span};
use crate::shared::common_prefix;

/// How far ahead the old content is searched when a run meets a difference.
const RESYNC_BYTES_MAX: usize = 512;
/// So many equal bytes in a row say that a run goes on.
const RESYNC_MATCH_BYTES: usize = 32;
/// Shortest piece for which a chunk match counts.
const MATCH_BYTES_MIN: usize = 32;
/// Step in which a match is followed backwards.
const BACK_STEP_BYTES: usize = 2 << 10;
/// New bytes at the end of a full draft that rather begin the next one.
const TAIL_BYTES_MAX: usize = 64 << 10;

/// Where the incoming bytes are expected to go on.
pub(super) struct Cursor {
    at: Name,
    addr: Addr,
    /// Bytes left in the span that starts at `addr`.
    pub(super) left: u64,
    /// Stored bytes from `addr` on, within one record; may be empty.
    pub(super) view: Bytes,
}

/// What `follow` and `search` came to.
pub(super) enum Progress {
    On,
    Wait,
    Claimed,
}

impl Encoder {
    /// Compares incoming bytes with what is expected to follow.
    pub(super) fn follow(&mut self, mut cursor: Cursor, flush: bool) -> Progress {
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
                return match self.elsewhere(&cursor).or_else(|| self.branch(&cursor)) {
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
    pub(super) fn differ(&mut self, mut cursor: Cursor, flush: bool) -> Progress {
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
    pub(super) fn branch(&mut self, cursor: &Cursor) -> Option<Cursor> {
        let at = self.shared.ledger.branch(cursor.addr)?;
        if at == cursor.at {
            return None;
        }
        let mut next = Cursor { at, addr: cursor.addr, left: 0, view: Bytes::new() };
        if !self.load(&mut next) {
            next = self.elsewhere(&next)?;
        }
        self.goes_on(&next.view).then_some(next)
    }

    /// Whether the incoming bytes are what is stored, as far as a look at their start tells.
    pub(super) fn goes_on(&self, view: &[u8]) -> bool {
        let window = self.input.len().min(view.len()).min(RESYNC_MATCH_BYTES);
        window > 0 && common_prefix(&self.input[..window], view) == window
    }

    /// The content that a cursor stands at, under the name it has now; for where the cursor's own may not be used.
    pub(super) fn elsewhere(&mut self, cursor: &Cursor) -> Option<Cursor> {
        let ledger = &self.shared.ledger;
        let known = ledger.span(cursor.at);
        let addr = if let Span::At { addr, .. } = known { addr } else { cursor.addr };
        let (at, _, after) = ledger.name_of(addr)?;
        // What was stored next is only a guess, and must be worth the name.
        if !matches!(known, Span::At { .. }) && self.input.len() < RESYNC_MATCH_BYTES {
            return None;
        }
        let view = self.view(addr, after)?;
        self.goes_on(&view).then_some(Cursor { at, addr, left: after, view })
    }

    /// Makes sure that the cursor sees stored bytes; false if nothing is known to follow.
    pub(super) fn load(&mut self, cursor: &mut Cursor) -> bool {
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
    pub(super) fn view(&mut self, addr: Addr, len_max: u64) -> Option<Bytes> {
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
    pub(super) fn search(&mut self, flush: bool, patient: bool) -> Progress {
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
    pub(super) fn find(&mut self, key: ChunkKey, len: usize) -> Option<Cursor> {
        if len < MATCH_BYTES_MIN {
            return None;
        }
        let addr = self.shared.store.lookup(key)?;
        let (at, _, after) = self.shared.ledger.name_of(addr)?;
        // The name may end before the chunk does; the rest may have another one.
        let mut view = self.view(addr, after.max(len as u64))?;
        let named = usize::try_from(after).unwrap_or(usize::MAX);
        let need = len.min(view.len());
        let equal = common_prefix(&self.input[..need], &view);
        if equal < MATCH_BYTES_MIN || equal < need.min(named) {
            return None;
        }
        view.truncate(named);
        self.draft.by_chunk += equal.min(named) as u64;
        Some(Cursor { at, addr, left: after, view })
    }

    /// Follows a match backwards over new bytes that are not sent yet.
    pub(super) fn reach_back(&mut self, cursor: Cursor) -> Cursor {
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

    /// Takes the new bytes at the end of a draft that has other parts back into the input. The run that follows them is not known yet;
    /// in the next frame it will be, and leads to the old content that they resemble.
    pub(super) fn put_back_tail(&mut self) {
        let count = self.draft.new_tail().len();
        if count == 0 || count > TAIL_BYTES_MAX || self.draft.parts.len() < 2 {
            return;
        }
        let tail = self.draft.pop_new(count);
        let mut input = BytesMut::with_capacity(count + self.input.len());
        input.extend_from_slice(&tail);
        input.extend_from_slice(&self.input);
        self.input = input;
        self.position -= count as u64;
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.input.advance(count);
        self.position += count as u64;
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
