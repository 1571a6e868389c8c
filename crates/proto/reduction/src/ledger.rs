//! What two proxies have exchanged within one domain, and under which names: recordings, and the way back from a stored
//! address to a name that the peer knows.
//!
//! A recording is the byte sequence of one direction of one outer connection. Both proxies add the same ranges in the same
//! order, each with the addresses of its own store, so (recording, position, length) means the same bytes on both sides, and
//! a name can only ever reach what these two have sent each other.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_types::{RecordingId, varint};

use crate::content::{Addr, ChunkKey};

/// Recordings a ledger keeps; the oldest closed ones go first.
pub const RECORDINGS_MAX: usize = 64 << 10;
/// Extents a ledger keeps over all recordings; the oldest recordings go first.
pub const EXTENTS_MAX: usize = 2 << 20;
/// After a miss, so much of the recording behind it is no longer referred to: what lies together was mostly lost together.
const MISS_FORGETS_BYTES: u64 = 64 << 20;
/// Steps in which [`Ledger::prune`] looks at long extents.
const PRUNE_STEP_BYTES: u64 = 256 << 10;
/// Chunks that encoders may hold a claim on at one time.
const CLAIMS_MAX: usize = 64 << 10;

/// Where a range of a recording lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The next `len` bytes are stored from `addr` on.
    At { addr: Addr, len: u64 },
    /// Not known yet, but the recording is still being received.
    Pending,
    /// Not known, and nothing says that it will be.
    Missing,
}

/// A place in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub recording: RecordingId,
    pub position: u64,
}

/// Everything exchanged with one peer in one domain. All methods take a short lock.
#[derive(Default)]
pub struct Ledger {
    inner: Mutex<Inner>,
    claims: Mutex<HashMap<ChunkKey, RecordingId>>,
}

#[derive(Default)]
struct Inner {
    recordings: HashMap<RecordingId, Recording>,
    /// Oldest first; may name recordings that are gone.
    order: VecDeque<RecordingId>,
    extents: usize,
    /// Start address of named content, to its length and name. Ranges do not overlap.
    by_addr: BTreeMap<u64, Named>,
    /// Where a recording goes elsewhere than the next address: the address that ends an extent, to the name that follows.
    branches: HashMap<u64, Name>,
}

#[derive(Default)]
struct Recording {
    /// By position; neighbours that are contiguous in both position and address are one.
    extents: Vec<Extent>,
    /// Still being sent or received.
    open: bool,
    /// Ranges (from, to) that are known here, but must not be referred to: the peer lacks them. A closed recording drops
    /// such ranges; an open one keeps them, since its encoder may have to send them again.
    mistrusted: Vec<(u64, u64)>,
}

/// Ranges of one recording that are kept as mistrusted; beyond that the last one grows to the recording's end.
const MISTRUSTED_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Extent {
    position: u64,
    addr: u64,
    len: u64,
}

#[derive(Clone, Copy)]
struct Named {
    len: u64,
    name: Name,
}

impl Extent {
    fn end(&self) -> u64 {
        self.position + self.len
    }
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Starts a recording; what an older one of the same name held is dropped.
    pub fn begin(&self, recording: RecordingId) {
        let mut inner = self.lock();
        inner.drop_recording(recording);
        inner.recordings.insert(recording, Recording { open: true, ..Recording::default() });
        inner.order.push_back(recording);
        inner.enforce_limits();
    }

    /// Says that nothing more will be added to a recording. An empty one is dropped.
    pub fn finish(&self, recording: RecordingId) {
        let mut inner = self.lock();
        if let Some(entry) = inner.recordings.get_mut(&recording) {
            entry.open = false;
            let mistrusted = std::mem::take(&mut entry.mistrusted);
            for (from, to) in mistrusted {
                inner.forget(Name { recording, position: from }, to - from);
            }
        }
        if inner.recordings.get(&recording).is_some_and(|entry| entry.extents.is_empty()) {
            inner.recordings.remove(&recording);
        }
    }

    /// Adds a range: `len` bytes at `position` of the recording lie at `addr`. `fresh` content is named by this place from
    /// now on, unless it has a name already.
    pub fn add(&self, at: Name, addr: Addr, len: u64, fresh: bool) {
        if len == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.add_extent(at, addr.0, len);
        if fresh {
            inner.name_range(at, addr.0, len);
        }
        inner.enforce_limits();
    }

    /// Where the bytes from a place on lie, as far as they are contiguous.
    pub fn span(&self, at: Name) -> Span {
        let inner = self.lock();
        let Some(recording) = inner.recordings.get(&at.recording) else { return Span::Missing };
        let i = recording.extents.partition_point(|extent| extent.position <= at.position);
        match i.checked_sub(1).map(|i| recording.extents[i]) {
            Some(extent) if at.position < extent.end() => {
                let skip = at.position - extent.position;
                Span::At { addr: Addr(extent.addr + skip), len: extent.len - skip }
            }
            _ if recording.open && i == recording.extents.len() => Span::Pending,
            _ => Span::Missing,
        }
    }

    /// Whether there is a recording of this name.
    pub fn knows(&self, recording: RecordingId) -> bool {
        self.lock().recordings.contains_key(&recording)
    }

    /// As [`Ledger::span`], for an encoder, which must not refer to what the peer lacks.
    pub fn reference(&self, at: Name) -> Span {
        let span = self.span(at);
        let Span::At { addr, len } = span else { return span };
        let inner = self.lock();
        let Some(recording) = inner.recordings.get(&at.recording) else { return Span::Missing };
        let mut len = len;
        for &(from, to) in &recording.mistrusted {
            if (from..to).contains(&at.position) {
                return Span::Missing;
            }
            if from > at.position {
                len = len.min(from - at.position);
            }
        }
        Span::At { addr, len }
    }

    /// The position up to which a recording is known, whatever holes it has; grows while it is received.
    pub fn progress(&self, recording: RecordingId) -> u64 {
        let inner = self.lock();
        inner.recordings.get(&recording).and_then(|entry| entry.extents.last()).map_or(0, Extent::end)
    }

    /// The name of stored content, with the bytes of it before and from `addr` on that carry on under the same name.
    pub fn name_of(&self, addr: Addr) -> Option<(Name, u64, u64)> {
        let inner = self.lock();
        let (&start, named) = inner.by_addr.range(..=addr.0).next_back()?;
        let before = addr.0 - start;
        let after = named.len.checked_sub(before).filter(|after| *after > 0)?;
        let name = Name { position: named.name.position + before, ..named.name };
        Some((name, before, after))
    }

    /// A recording that goes on differently after the content that ends at `end`.
    pub fn branch(&self, end: Addr) -> Option<Name> {
        self.lock().branches.get(&end.0).copied()
    }

    /// The peer lacks a range: it is not referred to any more, nor is what follows it for a while.
    pub fn missed(&self, at: Name) {
        let mut inner = self.lock();
        inner.forget(at, MISS_FORGETS_BYTES);
    }

    /// The peer (or this side) did not keep `len` bytes from a place on: they are not referred to any more.
    pub fn forget(&self, at: Name, len: u64) {
        self.lock().forget(at, len);
    }

    /// A range is about to be added anew: what was known of it is dropped.
    pub fn cut(&self, at: Name, len: u64) {
        self.lock().cut(at, at.position.saturating_add(len));
    }

    /// Drops a recording and every name it gave.
    pub fn forget_recording(&self, recording: RecordingId) {
        self.lock().drop_recording(recording);
    }

    /// Stored content is gone or damaged here: it has no name any more.
    pub fn unname(&self, addr: Addr, len: u64) {
        self.lock().unname_range(addr.0, len);
    }

    /// Gives stored content a new name, whatever it was called before.
    pub fn rename(&self, at: Name, addr: Addr, len: u64) {
        let mut inner = self.lock();
        inner.unname_range(addr.0, len);
        inner.name_range(at, addr.0, len);
    }

    /// Drops what the store holds no more. Returns the number of extents that went.
    pub fn prune(&self, is_live: impl Fn(Addr) -> bool) -> usize {
        let mut inner = self.lock();
        let before = inner.extents;
        let mut dead = Vec::new();
        for recording in inner.recordings.values_mut() {
            prune_extents(&mut recording.extents, &is_live);
        }
        inner.recordings.retain(|_, recording| recording.open || !recording.extents.is_empty());
        inner.extents = inner.recordings.values().map(|recording| recording.extents.len()).sum();
        for (&start, named) in &inner.by_addr {
            let mut at = start;
            while at < start + named.len {
                let step = PRUNE_STEP_BYTES.min(start + named.len - at);
                if !is_live(Addr(at)) {
                    dead.push((at, step));
                }
                at += step;
            }
        }
        dead.into_iter().for_each(|(at, len)| inner.unname_range(at, len));
        inner.branches.retain(|end, _| end.checked_sub(1).is_some_and(|last| is_live(Addr(last))));
        before.saturating_sub(inner.extents)
    }

    /// Claims a chunk that is about to be sent as new. False when another recording's encoder holds the claim: its content
    /// will be there to refer to in a moment.
    pub fn claim(&self, key: ChunkKey, owner: RecordingId) -> bool {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claims.len() >= CLAIMS_MAX {
            return true;
        }
        *claims.entry(key).or_insert(owner) == owner
    }

    /// Releases claims, whoever holds them.
    pub fn release(&self, keys: impl Iterator<Item = ChunkKey>, owner: RecordingId) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if claims.get(&key) == Some(&owner) {
                claims.remove(&key);
            }
        }
    }

    /// Recordings, extents and named ranges held now.
    pub fn size(&self) -> (usize, usize, usize) {
        let inner = self.lock();
        (inner.recordings.len(), inner.extents, inner.by_addr.len())
    }

    /// Takes in a note that [`note`] made: a range added before the last restart. False if it cannot be read.
    pub fn replay(&self, note: &[u8]) -> bool {
        let Some((recording, ranges)) = read_note(note) else { return false };
        let mut inner = self.lock();
        if let Entry::Vacant(vacant) = inner.recordings.entry(recording) {
            vacant.insert(Recording::default());
            inner.order.push_back(recording);
        }
        for range in ranges {
            let at = Name { recording, position: range.position };
            inner.add_extent(at, range.addr.0, range.len);
            if range.fresh {
                inner.name_range(at, range.addr.0, range.len);
            }
        }
        inner.enforce_limits();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds an extent where nothing is known yet; where two ranges overlap, the older one wins.
    fn add_extent(&mut self, at: Name, addr: u64, len: u64) {
        let (mut position, end) = (at.position, at.position + len);
        while position < end {
            let Some(recording) = self.recordings.get(&at.recording) else { return };
            let extents = &recording.extents;
            let i = extents.partition_point(|extent| extent.position <= position);
            if i > 0 && extents[i - 1].end() > position {
                position = extents[i - 1].end();
                continue;
            }
            let stop = extents.get(i).map_or(end, |next| end.min(next.position));
            let here = Extent { position, addr: addr + (position - at.position), len: stop - position };
            self.insert_extent(at.recording, i, here);
            position = stop;
        }
    }

    fn insert_extent(&mut self, id: RecordingId, i: usize, new: Extent) {
        let Some(recording) = self.recordings.get_mut(&id) else { return };
        if let Some(last) = i.checked_sub(1).map(|i| &mut recording.extents[i])
            && last.end() == new.position
        {
            if last.addr + last.len == new.addr {
                last.len += new.len;
                return;
            }
            let end = last.addr + last.len;
            self.branches.insert(end, Name { recording: id, position: new.position });
        }
        recording.extents.insert(i, new);
        self.extents += 1;
    }

    fn name_range(&mut self, at: Name, addr: u64, len: u64) {
        let (mut at, mut addr, mut len) = (at, addr, len);
        // The part that has a name keeps it: clip at the front, then stop at the next named range.
        if let Some((&start, named)) = self.by_addr.range_mut(..=addr).next_back() {
            let end = start + named.len;
            if end > addr {
                let covered = (end - addr).min(len);
                at.position += covered;
                addr += covered;
                len -= covered;
            }
            if end == addr
                && named.name.recording == at.recording
                && named.name.position + named.len == at.position
            {
                let room = self.by_addr.range(addr..).next().map_or(len, |(&next, _)| len.min(next - addr));
                if let Some(named) = self.by_addr.get_mut(&start) {
                    named.len += room;
                }
                at.position += room;
                addr += room;
                len -= room;
            }
        }
        while len > 0 {
            let next = self.by_addr.range(addr..).next().map(|(&next, named)| (next, named.len));
            let room = next.map_or(len, |(next, _)| len.min(next - addr));
            if room > 0 {
                self.by_addr.insert(addr, Named { len: room, name: at });
            }
            let skip = (room + next.map_or(0, |(_, len)| len)).min(len);
            at.position += skip;
            addr += skip;
            len -= skip;
        }
    }

    fn unname_range(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let first = self.by_addr.range(..=addr).next_back().map_or(addr, |(&start, _)| start);
        let hit: Vec<(u64, Named)> =
            self.by_addr.range(first..end).map(|(&start, named)| (start, *named)).collect();
        for (start, named) in hit {
            let stop = start + named.len;
            if stop <= addr {
                continue;
            }
            self.by_addr.remove(&start);
            if start < addr {
                self.by_addr.insert(start, Named { len: addr - start, name: named.name });
            }
            if stop > end {
                let name = Name { position: named.name.position + (end - start), ..named.name };
                self.by_addr.insert(end, Named { len: stop - end, name });
            }
        }
    }

    fn forget(&mut self, at: Name, len: u64) {
        let end = at.position.saturating_add(len);
        if self.recordings.get(&at.recording).is_some_and(|recording| recording.open) {
            self.mistrust(at, end);
            return;
        }
        self.cut(at, end);
        self.branches
            .retain(|_, name| name.recording != at.recording || !(at.position..end).contains(&name.position));
    }

    /// Takes a range out of a recording, with the names it gave.
    fn cut(&mut self, at: Name, end: u64) {
        let Some(recording) = self.recordings.get_mut(&at.recording) else { return };
        let mut kept = Vec::with_capacity(recording.extents.len() + 1);
        let mut lost = Vec::new();
        for extent in recording.extents.drain(..) {
            if extent.end() <= at.position || extent.position >= end {
                kept.push(extent);
                continue;
            }
            if extent.position < at.position {
                kept.push(Extent { len: at.position - extent.position, ..extent });
            }
            let from = extent.position.max(at.position);
            let to = extent.end().min(end);
            lost.push((extent.addr + (from - extent.position), to - from));
            if extent.end() > end {
                let skip = end - extent.position;
                kept.push(Extent { position: end, addr: extent.addr + skip, len: extent.len - skip });
            }
        }
        recording.extents = kept;
        self.extents = self.recordings.values().map(|entry| entry.extents.len()).sum();
        for (addr, len) in lost {
            self.unname_of(at.recording, addr, len);
        }
    }

    fn mistrust(&mut self, at: Name, end: u64) {
        let Some(recording) = self.recordings.get_mut(&at.recording) else { return };
        if recording.mistrusted.len() < MISTRUSTED_MAX {
            recording.mistrusted.push((at.position, end));
        } else if let Some(last) = recording.mistrusted.last_mut() {
            *last = (last.0.min(at.position), u64::MAX);
        }
        let hit: Vec<(u64, u64)> = recording
            .extents
            .iter()
            .filter(|extent| extent.position < end && extent.end() > at.position)
            .map(|extent| {
                let from = extent.position.max(at.position);
                (extent.addr + (from - extent.position), extent.end().min(end) - from)
            })
            .collect();
        for (addr, len) in hit {
            self.unname_of(at.recording, addr, len);
        }
        self.branches
            .retain(|_, name| name.recording != at.recording || !(at.position..end).contains(&name.position));
    }

    /// Takes a recording's own names off a range; names that other recordings gave stay.
    fn unname_of(&mut self, recording: RecordingId, addr: u64, len: u64) {
        let first = self.by_addr.range(..=addr).next_back().map_or(addr, |(&start, _)| start);
        let own: Vec<(u64, u64)> = self
            .by_addr
            .range(first..addr.saturating_add(len))
            .filter(|(_, named)| named.name.recording == recording)
            .map(|(&start, named)| (start.max(addr), (start + named.len).min(addr + len)))
            .collect();
        for (from, to) in own {
            if from < to {
                self.unname_range(from, to - from);
            }
        }
    }

    fn drop_recording(&mut self, id: RecordingId) {
        let Some(recording) = self.recordings.remove(&id) else { return };
        self.extents = self.extents.saturating_sub(recording.extents.len());
        for extent in recording.extents {
            self.unname_of(id, extent.addr, extent.len);
            if self.branches.get(&(extent.addr + extent.len)).is_some_and(|name| name.recording == id) {
                self.branches.remove(&(extent.addr + extent.len));
            }
        }
    }

    fn enforce_limits(&mut self) {
        let mut tries = self.order.len();
        while tries > 0 && (self.recordings.len() > RECORDINGS_MAX || self.extents > EXTENTS_MAX) {
            tries -= 1;
            let Some(oldest) = self.order.pop_front() else { break };
            match self.recordings.get(&oldest) {
                Some(recording) if recording.open => self.order.push_back(oldest),
                _ => self.drop_recording(oldest),
            }
        }
        // Names of recordings that were dropped one by one stay in `order` until it is twice as long as needed.
        if self.order.len() > 2 * self.recordings.len() + 1024 {
            self.order.retain(|id| self.recordings.contains_key(id));
        }
    }
}

fn prune_extents(extents: &mut Vec<Extent>, is_live: &impl Fn(Addr) -> bool) {
    let mut kept: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents.drain(..) {
        let mut at = 0;
        while at < extent.len {
            let step = PRUNE_STEP_BYTES.min(extent.len - at);
            if is_live(Addr(extent.addr + at)) {
                match kept.last_mut() {
                    Some(last)
                        if last.end() == extent.position + at && last.addr + last.len == extent.addr + at =>
                    {
                        last.len += step;
                    }
                    _ => kept.push(Extent {
                        position: extent.position + at,
                        addr: extent.addr + at,
                        len: step,
                    }),
                }
            }
            at += step;
        }
    }
    *extents = kept;
}

/// One range of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub position: u64,
    pub addr: Addr,
    pub len: u64,
    pub fresh: bool,
}

/// Ranges one note may hold, so that it stays far below the store's limit of 64 KiB.
pub const NOTE_RANGES_MAX: usize = 1000;

/// The note that keeps `ranges` (at most [`NOTE_RANGES_MAX`]) of a recording over a restart.
pub fn note(recording: RecordingId, ranges: &[Range]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + ranges.len() * 16);
    out.extend_from_slice(&recording.0.to_le_bytes());
    for range in ranges.iter().take(NOTE_RANGES_MAX) {
        varint::put(&mut out, range.position);
        varint::put(&mut out, range.addr.0);
        varint::put(&mut out, range.len << 1 | u64::from(range.fresh));
    }
    out
}

fn read_note(mut note: &[u8]) -> Option<(RecordingId, Vec<Range>)> {
    let (id, rest) = note.split_first_chunk::<8>()?;
    note = rest;
    let mut ranges = Vec::new();
    while !note.is_empty() {
        let position = varint::take(&mut note)?;
        let addr = Addr(varint::take(&mut note)?);
        let raw = varint::take(&mut note)?;
        let len = raw >> 1;
        if ranges.len() == NOTE_RANGES_MAX
            || position.checked_add(len)? > 1 << 60
            || addr.0.checked_add(len)? > 1 << 48
        {
            return None;
        }
        ranges.push(Range { position, addr, len, fresh: raw & 1 == 1 });
    }
    Some((RecordingId(u64::from_le_bytes(*id)), ranges))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RecordingId = RecordingId(1);
    const B: RecordingId = RecordingId(2);

    fn at(recording: RecordingId, position: u64) -> Name {
        Name { recording, position }
    }

    #[test]
    fn contiguous_ranges_become_one_and_names_lead_back() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(1000), 100, true);
        ledger.add(at(A, 100), Addr(1100), 50, true);
        assert_eq!(ledger.size(), (1, 1, 1));
        assert_eq!(ledger.span(at(A, 120)), Span::At { addr: Addr(1120), len: 30 });
        assert_eq!(ledger.name_of(Addr(1149)), Some((at(A, 149), 149, 1)));
        assert_eq!(ledger.name_of(Addr(1150)), None);
        assert_eq!(ledger.span(at(A, 150)), Span::Pending);
        ledger.finish(A);
        assert_eq!(ledger.span(at(A, 150)), Span::Missing);
        assert_eq!(ledger.span(at(B, 0)), Span::Missing);
    }

    #[test]
    fn a_branch_leads_from_the_old_content_to_the_edited_recording() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 1000, true);
        ledger.finish(A);
        ledger.begin(B);
        ledger.add(at(B, 0), Addr(0), 400, false);
        ledger.add(at(B, 400), Addr(5000), 10, true);
        ledger.add(at(B, 410), Addr(400), 600, false);
        assert_eq!(ledger.branch(Addr(400)), Some(at(B, 400)));
        assert_eq!(ledger.branch(Addr(5010)), Some(at(B, 410)));
        assert_eq!(ledger.name_of(Addr(700)).unwrap().0, at(A, 700), "the first name stays");
        ledger.forget_recording(B);
        assert_eq!(ledger.branch(Addr(400)), None);
        assert_eq!(ledger.name_of(Addr(5000)), None);
        assert_eq!(ledger.name_of(Addr(700)).unwrap().0, at(A, 700));
    }

    #[test]
    fn holes_are_missing_until_filled_and_misses_forget_what_follows() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 10, true);
        ledger.add(at(A, 20), Addr(20), 10, true);
        assert_eq!(ledger.span(at(A, 12)), Span::Missing);
        ledger.add(at(A, 10), Addr(900), 10, true);
        assert_eq!(ledger.span(at(A, 12)), Span::At { addr: Addr(902), len: 8 });
        ledger.missed(at(A, 15));
        assert_eq!(ledger.name_of(Addr(25)), None);
        assert_eq!(ledger.name_of(Addr(5)).unwrap().0, at(A, 5));
        assert_eq!(
            ledger.span(at(A, 12)),
            Span::At { addr: Addr(902), len: 8 },
            "an open recording keeps it"
        );
        assert_eq!(ledger.reference(at(A, 12)), Span::At { addr: Addr(902), len: 3 });
        assert_eq!(ledger.reference(at(A, 15)), Span::Missing);
        ledger.finish(A);
        assert_eq!(ledger.span(at(A, 12)), Span::At { addr: Addr(902), len: 3 });
        assert_eq!(ledger.span(at(A, 15)), Span::Missing);
    }

    #[test]
    fn pruning_drops_what_is_gone() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 4 * PRUNE_STEP_BYTES, true);
        ledger.prune(|addr| !(PRUNE_STEP_BYTES..2 * PRUNE_STEP_BYTES).contains(&addr.0));
        assert_eq!(ledger.span(at(A, 0)), Span::At { addr: Addr(0), len: PRUNE_STEP_BYTES });
        assert_eq!(ledger.name_of(Addr(PRUNE_STEP_BYTES)), None);
        assert_eq!(ledger.span(at(A, PRUNE_STEP_BYTES)), Span::Missing);
        let third = 2 * PRUNE_STEP_BYTES;
        assert_eq!(ledger.span(at(A, third)), Span::At { addr: Addr(third), len: 2 * PRUNE_STEP_BYTES });
        assert_eq!(ledger.name_of(Addr(third)).unwrap().0, at(A, third));
    }

    #[test]
    fn notes_rebuild_a_ledger_and_garbage_is_refused() {
        let ranges = [
            Range { position: 0, addr: Addr(7), len: 300, fresh: true },
            Range { position: 300, addr: Addr(2), len: 4, fresh: false },
        ];
        let ledger = Ledger::new();
        assert!(ledger.replay(&note(A, &ranges)));
        assert_eq!(ledger.span(at(A, 301)), Span::At { addr: Addr(3), len: 3 });
        assert_eq!(ledger.name_of(Addr(8)).unwrap().0, at(A, 1));
        assert_eq!(ledger.name_of(Addr(2)), None);
        assert!(!ledger.replay(b"short"));
        assert!(!ledger.replay(&[0xff; 40]));
    }

    #[test]
    fn claims_belong_to_the_first_who_asks() {
        let ledger = Ledger::new();
        let key = ChunkKey(5);
        assert!(ledger.claim(key, A));
        assert!(ledger.claim(key, A));
        assert!(!ledger.claim(key, B));
        ledger.release([key].into_iter(), B);
        assert!(!ledger.claim(key, B), "only the owner releases");
        ledger.release([key].into_iter(), A);
        assert!(ledger.claim(key, B));
    }

    #[test]
    fn the_number_of_recordings_is_bounded() {
        let ledger = Ledger::new();
        for i in 0..RECORDINGS_MAX as u64 + 100 {
            let id = RecordingId(i);
            ledger.begin(id);
            ledger.add(at(id, 0), Addr(i * 10), 10, true);
            ledger.finish(id);
        }
        let (recordings, extents, names) = ledger.size();
        assert_eq!(recordings, RECORDINGS_MAX);
        assert_eq!((extents, names), (RECORDINGS_MAX, RECORDINGS_MAX));
    }
}
