//! What two proxies have exchanged within one domain, and under which names: recordings, and the way back from a stored
//! address to a name that the peer knows.
//!
//! A recording is the byte sequence of one direction of one outer connection. Both proxies add the same ranges in the same
//! order, each with the addresses of its own store, so (recording, position, length) means the same bytes on both sides, and
//! a name can only ever reach what these two have sent each other.

mod inner;
mod map;
mod note;
mod ranges;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_types::RecordingId;

use crate::content::{Addr, ChunkKey};
use inner::{Extent, Inner, PRUNE_STEP_BYTES, Recording, prune_extents};
pub use note::{NOTE_RANGES_MAX, Range, note};

/// Recordings a ledger keeps; the oldest closed ones go first.
pub const RECORDINGS_MAX: usize = 64 << 10;
/// Extents a ledger keeps over all recordings; the oldest recordings go first.
pub const EXTENTS_MAX: usize = 2 << 20;
/// What lies together was mostly lost together: when misses of a recording follow each other, so many times what they have
/// come to is no longer referred to behind them, and at most so much.
const MISSES_AHEAD: u64 = 4;
const MISSES_AHEAD_BYTES_MAX: u64 = 64 << 20;
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

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Starts a recording; what an older one of the same name held is dropped.
    pub fn begin(&self, recording: RecordingId) {
        let mut inner = self.lock();
        inner.drop_recording(recording);
        let begun = inner.tick();
        inner.recordings.insert(recording, Recording { begun, open: true, ..Recording::default() });
        inner.order.push_back(recording);
        inner.enforce_limits();
    }

    /// Says that nothing more will be added to a recording. An empty one is dropped.
    pub fn finish(&self, recording: RecordingId) {
        let mut inner = self.lock();
        if let Some(entry) = inner.recordings.get_mut(&recording) {
            entry.open = false;
            for (from, to) in std::mem::take(&mut entry.forgotten).into_vec() {
                inner.cut(Name { recording, position: from }, to);
            }
        }
        if inner.recordings.get(&recording).is_some_and(|entry| entry.extents.is_empty()) {
            inner.recordings.remove(&recording);
        }
    }

    /// Adds a range: `len` bytes at `position` of the recording lie at `addr`. Content that has a name keeps it, unless this
    /// is to be its name from now on, `anew`; then no older recording is used to refer to it.
    pub fn add(&self, at: Name, addr: Addr, len: u64, anew: bool) {
        if len == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.add_extent(at, addr.0, len);
        if anew && inner.is_named(addr.0, len) {
            inner.rename(at, addr.0, len);
        } else {
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
            _ if recording.lost.around(at.position).is_some() => Span::Missing,
            _ if recording.open && i == recording.extents.len() => Span::Pending,
            _ => Span::Missing,
        }
    }

    /// Whether there is a recording of this name.
    pub fn knows(&self, recording: RecordingId) -> bool {
        self.lock().recordings.contains_key(&recording)
    }

    /// How many of the `len` bytes from a place on, which is not known, are not known either.
    pub fn unknown(&self, at: Name, len: u64) -> u64 {
        let inner = self.lock();
        let Some(recording) = inner.recordings.get(&at.recording) else { return len };
        let i = recording.extents.partition_point(|extent| extent.position <= at.position);
        recording.extents.get(i).map_or(len, |next| len.min(next.position - at.position))
    }

    /// As [`Ledger::span`], for an encoder, which must not refer to what the peer lacks.
    pub fn reference(&self, at: Name) -> Span {
        let span = self.span(at);
        let Span::At { addr, len } = span else { return span };
        let inner = self.lock();
        let Some(recording) = inner.recordings.get(&at.recording) else { return Span::Missing };
        if recording.mistrusted.around(at.position).is_some() {
            return Span::Missing;
        }
        let room = recording.mistrusted.next(at.position).map_or(len, |next| next - at.position);
        match inner.usable(at.recording, recording.begun, addr.0, len.min(room)) {
            0 => Span::Missing,
            len => Span::At { addr, len },
        }
    }

    /// The position up to which a recording is known, whatever holes it has; grows while it is received.
    pub fn progress(&self, recording: RecordingId) -> u64 {
        let inner = self.lock();
        inner.recordings.get(&recording).and_then(|entry| entry.extents.last()).map_or(0, Extent::end)
    }

    /// The name of stored content, with the bytes of it before and from `addr` on that carry on under the same name.
    pub fn name_of(&self, addr: Addr) -> Option<(Name, u64, u64)> {
        let inner = self.lock();
        let (start, named) = inner.by_addr.floor(addr.0)?;
        let before = addr.0 - start;
        let after = named.len.checked_sub(before).filter(|after| *after > 0)?;
        let name = Name { position: named.name.position + before, ..named.name };
        Some((name, before, after))
    }

    /// A recording that goes on differently after the content that ends at `end`.
    pub fn branch(&self, end: Addr) -> Option<Name> {
        self.lock().branches.get(end.0)
    }

    /// The peer lacks `len` bytes from a place on: they are not referred to any more, nor, if it lacks what is before them as
    /// well, is some of what follows.
    pub fn missed(&self, at: Name, len: u64) {
        let mut inner = self.lock();
        let Some(recording) = inner.recordings.get(&at.recording) else { return };
        let before = at.position.checked_sub(1).and_then(|last| recording.mistrusted.around(last));
        let ahead = before.map_or(0, |(from, _)| (at.position - from).saturating_mul(MISSES_AHEAD));
        inner.mistrust(at, len.saturating_add(ahead.min(MISSES_AHEAD_BYTES_MAX)));
    }

    /// Whether the peer has `len` bytes from a place on is not known: they are not referred to any more. The peer may still
    /// refer to them.
    pub fn mistrust(&self, at: Name, len: u64) {
        self.lock().mistrust(at, len);
    }

    /// `len` bytes from a place on are not followed and not taken as a base any more. They keep their name: where it is used
    /// again, the peer tells whether it knows it.
    pub fn avoid(&self, at: Name, len: u64) {
        self.lock().avoid(at, len);
    }

    /// The peer (or this side) did not keep `len` bytes from a place on: they are not referred to any more.
    pub fn forget(&self, at: Name, len: u64) {
        self.lock().forget(at, len);
    }

    /// This side did not keep `len` bytes from a place on: nobody is to wait for them.
    pub fn lost(&self, at: Name, len: u64) {
        if let Some(recording) = self.lock().recordings.get_mut(&at.recording) {
            recording.lost.add(at.position, at.position.saturating_add(len));
        }
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

    /// Gives stored content a new name. No older recording is used to refer to it, even if it had no name any more.
    pub fn rename(&self, at: Name, addr: Addr, len: u64) {
        self.lock().rename(at, addr.0, len);
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
        for (start, named) in inner.by_addr.from(0) {
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
        let Some((recording, ranges)) = note::read(note) else { return false };
        let mut inner = self.lock();
        let begun = inner.tick();
        if let Entry::Vacant(vacant) = inner.recordings.entry(recording) {
            vacant.insert(Recording { begun, ..Recording::default() });
            inner.order.push_back(recording);
        }
        for range in ranges {
            let at = Name { recording, position: range.position };
            inner.add_extent(at, range.addr.0, range.len);
            if range.fresh && inner.is_named(range.addr.0, range.len) {
                inner.rename(at, range.addr.0, range.len);
            } else {
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
    fn holes_are_missing_until_they_are_filled() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 10, true);
        ledger.add(at(A, 20), Addr(20), 10, true);
        assert_eq!(ledger.span(at(A, 12)), Span::Missing);
        assert_eq!((ledger.unknown(at(A, 12), 100), ledger.unknown(at(A, 12), 3)), (8, 3));
        assert_eq!((ledger.unknown(at(A, 40), 9), ledger.unknown(at(B, 0), 7)), (9, 7));
        ledger.add(at(A, 10), Addr(900), 10, true);
        assert_eq!(ledger.span(at(A, 12)), Span::At { addr: Addr(902), len: 8 });
        ledger.lost(at(A, 30), 5);
        assert_eq!((ledger.span(at(A, 34)), ledger.span(at(A, 35))), (Span::Missing, Span::Pending));
    }

    #[test]
    fn what_the_peer_lacks_is_not_referred_to_and_still_found() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 30, true);
        ledger.missed(at(A, 15), 5);
        for closed in [false, true] {
            assert_eq!(ledger.span(at(A, 12)), Span::At { addr: Addr(12), len: 18 }, "closed: {closed}");
            assert_eq!(ledger.reference(at(A, 12)), Span::At { addr: Addr(12), len: 3 });
            assert_eq!(ledger.reference(at(A, 15)), Span::Missing);
            assert_eq!(ledger.reference(at(A, 20)), Span::At { addr: Addr(20), len: 10 });
            assert_eq!(ledger.name_of(Addr(17)), None);
            assert_eq!(ledger.name_of(Addr(14)), Some((at(A, 14), 14, 1)));
            assert_eq!(ledger.name_of(Addr(20)), Some((at(A, 20), 0, 10)));
            ledger.finish(A);
        }
        ledger.begin(B);
        ledger.add(at(B, 0), Addr(0), 30, false);
        assert_eq!(ledger.name_of(Addr(14)).unwrap().0, at(A, 14), "the first name stays");
        assert_eq!(ledger.name_of(Addr(17)).unwrap().0, at(B, 17), "what had none is named");
    }

    #[test]
    fn misses_that_follow_each_other_reach_ahead() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 1 << 40, true);
        ledger.missed(at(A, 100), 10);
        assert_eq!(ledger.reference(at(A, 110)), Span::At { addr: Addr(110), len: (1 << 40) - 110 });
        ledger.missed(at(A, 110), 10);
        assert_eq!(ledger.reference(at(A, 159)), Span::Missing);
        let Span::At { addr, .. } = ledger.reference(at(A, 160)) else { panic!("ten, and four times ten") };
        assert_eq!(addr, Addr(160));
        ledger.missed(at(A, 160), 1 << 30);
        ledger.missed(at(A, 160 + (1 << 30)), 1);
        let ahead = 161 + (1 << 30) + MISSES_AHEAD_BYTES_MAX;
        assert_eq!(ledger.reference(at(A, ahead - 1)), Span::Missing);
        assert!(matches!(ledger.reference(at(A, ahead)), Span::At { .. }), "but not without end");
    }

    #[test]
    fn what_the_peer_did_not_keep_goes_when_the_recording_is_closed() {
        let ledger = Ledger::new();
        ledger.begin(A);
        ledger.add(at(A, 0), Addr(0), 30, true);
        ledger.forget(at(A, 10), 10);
        assert_eq!(ledger.span(at(A, 0)), Span::At { addr: Addr(0), len: 30 }, "kept for repairs");
        assert_eq!((ledger.reference(at(A, 10)), ledger.name_of(Addr(10))), (Span::Missing, None));
        ledger.finish(A);
        assert_eq!(ledger.span(at(A, 0)), Span::At { addr: Addr(0), len: 10 });
        assert_eq!(ledger.span(at(A, 10)), Span::Missing);
        assert_eq!(ledger.size(), (1, 2, 2));
    }

    #[test]
    fn a_new_name_takes_the_place_of_the_old_ones() {
        let ledger = Ledger::new();
        let c = RecordingId(3);
        for id in [A, B] {
            ledger.begin(id);
        }
        ledger.add(at(A, 0), Addr(0), 100, true);
        ledger.add(at(B, 0), Addr(100), 100, true);
        ledger.add(at(B, 300), Addr(60), 20, false);
        ledger.begin(c);
        ledger.add(at(c, 7), Addr(50), 100, true);
        assert_eq!(ledger.name_of(Addr(49)), Some((at(A, 49), 49, 1)));
        assert_eq!(ledger.name_of(Addr(50)), Some((at(c, 7), 0, 100)));
        assert_eq!(ledger.name_of(Addr(150)), Some((at(B, 50), 0, 50)));
        assert_eq!(ledger.reference(at(A, 0)), Span::At { addr: Addr(0), len: 50 });
        assert_eq!(ledger.reference(at(A, 50)), Span::Missing);
        assert_eq!(ledger.span(at(A, 50)), Span::At { addr: Addr(50), len: 50 });
        assert_eq!(ledger.reference(at(B, 0)), Span::Missing);
        assert_eq!(ledger.reference(at(B, 50)), Span::At { addr: Addr(150), len: 50 });
        assert_eq!(ledger.reference(at(B, 300)), Span::Missing, "older, though it never named it");
        let later = RecordingId(4);
        ledger.begin(later);
        ledger.add(at(later, 0), Addr(0), 200, false);
        assert_eq!(ledger.reference(at(later, 0)), Span::At { addr: Addr(0), len: 200 });
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
            Range { position: 304, addr: Addr(7), len: 4, fresh: false },
        ];
        let ledger = Ledger::new();
        assert!(ledger.replay(&note(A, &ranges)));
        assert_eq!(ledger.span(at(A, 301)), Span::At { addr: Addr(3), len: 3 });
        assert_eq!(ledger.name_of(Addr(8)).unwrap().0, at(A, 1));
        assert_eq!(ledger.name_of(Addr(2)).unwrap().0, at(A, 300), "the note of its first name is gone");
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
