//! A ledger's tables, and what changes them. Everything here happens under the ledger's lock.

use std::collections::{HashMap, VecDeque};

use isthmus_types::RecordingId;

use super::map::AddrMap;
use super::ranges::Ranges;
use super::{EXTENTS_MAX, Name, RECORDINGS_MAX};
use crate::content::Addr;

/// Named ranges that one reference spans at most.
const NAMES_LOOKED_AT_MAX: usize = 256;
/// Steps in which long extents are looked at when they are pruned.
pub(super) const PRUNE_STEP_BYTES: u64 = 256 << 10;

/// The extents of a recording grow by this share of themselves, so that at most so much is unused; doubling would leave a
/// quarter unused on average, and most recordings need one.
const EXTENTS_GROWTH_SHARE: usize = 8;

#[derive(Default)]
pub(super) struct Inner {
    pub recordings: HashMap<RecordingId, Recording>,
    /// Oldest first; may name recordings that are gone.
    pub order: VecDeque<RecordingId>,
    pub extents: usize,
    /// Start address of named content, to its length and name. Ranges do not overlap.
    pub by_addr: AddrMap<Named>,
    /// Counts recordings and renamings, to tell which came first.
    pub clock: u64,
    /// Where a recording goes elsewhere than the next address: the address that ends an extent, to the name that follows.
    pub branches: AddrMap<Name>,
}

#[derive(Default)]
pub(super) struct Recording {
    /// By position; neighbours that are contiguous in both position and address are one.
    pub extents: Vec<Extent>,
    /// When it began, by the ledger's clock.
    pub begun: u64,
    /// Still being sent or received.
    pub open: bool,
    /// Known here and not referred to, since the peer lacks it or may lack it. What the peer refers to is still found.
    pub mistrusted: Ranges,
    /// What goes when the recording is closed, since the peer does not keep it; until then its encoder may have to send it
    /// again.
    pub forgotten: Ranges,
    /// What this side did not keep: it is not known, and never will be.
    pub lost: Ranges,
}

#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub position: u64,
    pub addr: u64,
    pub len: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Named {
    pub len: u64,
    pub name: Name,
    /// When it took the place of another name; 0 if it is the first one.
    pub renamed: u64,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.position + self.len
    }
}

impl Inner {
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// How many of the `len` bytes at `addr` a recording that began then may name: content that was renamed since is
    /// called by its new name, since the peer did not know, or did not use, any that it had.
    pub fn usable(&self, recording: RecordingId, begun: u64, addr: u64, len: u64) -> u64 {
        let first = self.by_addr.floor(addr).map_or(addr, |(start, _)| start);
        for (i, (start, named)) in self.names(first, addr.saturating_add(len)).enumerate() {
            let stale = named.renamed > begun && named.name.recording != recording;
            if start + named.len > addr && (stale || i == NAMES_LOOKED_AT_MAX) {
                return start.saturating_sub(addr);
            }
        }
        len
    }

    /// Adds an extent where nothing is known yet; where two ranges overlap, the older one wins.
    pub fn add_extent(&mut self, at: Name, addr: u64, len: u64) {
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

    pub fn insert_extent(&mut self, id: RecordingId, i: usize, new: Extent) {
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
        let extents = &mut recording.extents;
        if extents.len() == extents.capacity() {
            extents.reserve_exact((extents.len() / EXTENTS_GROWTH_SHARE).max(1));
        }
        extents.insert(i, new);
        self.extents += 1;
    }

    pub fn name_range(&mut self, at: Name, addr: u64, len: u64) {
        self.name_range_at(at, addr, len, 0);
    }

    pub fn name_range_at(&mut self, at: Name, addr: u64, len: u64, renamed: u64) {
        let (mut at, mut addr, mut len) = (at, addr, len);
        // The part that has a name keeps it: clip at the front, then stop at the next named range.
        if let Some((start, named)) = self.by_addr.floor(addr) {
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
                let room = self.by_addr.from(addr).next().map_or(len, |(next, _)| len.min(next - addr));
                if let Some(named) = self.by_addr.get_mut(start) {
                    named.len += room;
                    named.renamed = named.renamed.max(renamed);
                }
                at.position += room;
                addr += room;
                len -= room;
            }
        }
        while len > 0 {
            let next = self.by_addr.from(addr).next().map(|(next, named)| (next, named.len));
            let room = next.map_or(len, |(next, _)| len.min(next - addr));
            if room > 0 {
                self.by_addr.insert(addr, Named { len: room, name: at, renamed });
            }
            let skip = (room + next.map_or(0, |(_, len)| len)).min(len);
            at.position += skip;
            addr += skip;
            len -= skip;
        }
    }

    pub fn unname_range(&mut self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let first = self.by_addr.floor(addr).map_or(addr, |(start, _)| start);
        let hit: Vec<(u64, Named)> = self.names(first, end).collect();
        for (start, named) in hit {
            let stop = start + named.len;
            if stop <= addr {
                continue;
            }
            self.by_addr.remove(start);
            if start < addr {
                self.by_addr.insert(start, Named { len: addr - start, ..named });
            }
            if stop > end {
                let name = Name { position: named.name.position + (end - start), ..named.name };
                self.by_addr.insert(end, Named { len: stop - end, name, ..named });
            }
        }
    }

    /// Named ranges that start within a range of addresses.
    fn names(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, Named)> {
        self.by_addr.from(first).take_while(move |(start, _)| *start < end)
    }

    pub fn is_named(&self, addr: u64, len: u64) -> bool {
        let first = self.by_addr.floor(addr).map_or(addr, |(start, _)| start);
        self.names(first, addr.saturating_add(len)).any(|(start, named)| start + named.len > addr)
    }

    pub fn rename(&mut self, at: Name, addr: u64, len: u64) {
        let renamed = self.tick();
        self.unname_range(addr, len);
        self.name_range_at(at, addr, len, renamed);
    }

    pub fn forget(&mut self, at: Name, len: u64) {
        let end = at.position.saturating_add(len);
        match self.recordings.get_mut(&at.recording) {
            Some(recording) if recording.open => {
                recording.forgotten.add(at.position, end);
                self.mistrust(at, len);
            }
            _ => self.cut(at, end),
        }
    }

    /// Takes a range out of a recording, with the names it gave.
    pub fn cut(&mut self, at: Name, end: u64) {
        self.unname_extents(at, end);
        let Some(recording) = self.recordings.get_mut(&at.recording) else { return };
        let before = recording.extents.len();
        let mut kept = Vec::with_capacity(before + 1);
        for extent in recording.extents.drain(..) {
            if extent.end() <= at.position || extent.position >= end {
                kept.push(extent);
                continue;
            }
            if extent.position < at.position {
                kept.push(Extent { len: at.position - extent.position, ..extent });
            }
            if extent.end() > end {
                let skip = end - extent.position;
                kept.push(Extent { position: end, addr: extent.addr + skip, len: extent.len - skip });
            }
        }
        recording.extents = kept;
        self.extents = self.extents + recording.extents.len() - before;
    }

    pub fn avoid(&mut self, at: Name, len: u64) {
        if let Some(recording) = self.recordings.get_mut(&at.recording) {
            recording.mistrusted.add(at.position, at.position.saturating_add(len));
        }
    }

    pub fn mistrust(&mut self, at: Name, len: u64) {
        self.avoid(at, len);
        self.unname_extents(at, at.position.saturating_add(len));
    }

    /// Takes the names and branches that a range of a recording gave.
    pub fn unname_extents(&mut self, at: Name, end: u64) {
        let Some(recording) = self.recordings.get(&at.recording) else { return };
        let first = recording.extents.partition_point(|extent| extent.end() <= at.position);
        let last = recording.extents.partition_point(|extent| extent.position < end).max(first);
        let named: Vec<(u64, u64)> = recording.extents[first..last]
            .iter()
            .map(|extent| {
                let from = extent.position.max(at.position);
                (extent.addr + (from - extent.position), extent.end().min(end) - from)
            })
            .collect();
        let branched: Vec<u64> = recording.extents[first.saturating_sub(1)..last]
            .windows(2)
            .filter(|pair| pair[1].position >= at.position)
            .map(|pair| pair[0].addr + pair[0].len)
            .collect();
        for (addr, len) in named {
            self.unname_of(at.recording, addr, len);
        }
        for addr in branched {
            if self.branches.get(addr).is_some_and(|branch| branch.recording == at.recording) {
                self.branches.remove(addr);
            }
        }
    }

    /// Takes a recording's own names off a range; names that other recordings gave stay.
    pub fn unname_of(&mut self, recording: RecordingId, addr: u64, len: u64) {
        let first = self.by_addr.floor(addr).map_or(addr, |(start, _)| start);
        let own: Vec<(u64, u64)> = self
            .names(first, addr.saturating_add(len))
            .filter(|(_, named)| named.name.recording == recording)
            .map(|(start, named)| (start.max(addr), (start + named.len).min(addr + len)))
            .collect();
        for (from, to) in own {
            if from < to {
                self.unname_range(from, to - from);
            }
        }
    }

    pub fn drop_recording(&mut self, id: RecordingId) {
        let Some(recording) = self.recordings.remove(&id) else { return };
        self.extents = self.extents.saturating_sub(recording.extents.len());
        for extent in recording.extents {
            self.unname_of(id, extent.addr, extent.len);
            let end = extent.addr + extent.len;
            if self.branches.get(end).is_some_and(|name| name.recording == id) {
                self.branches.remove(end);
            }
        }
    }

    pub fn enforce_limits(&mut self) {
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

pub(super) fn prune_extents(extents: &mut Vec<Extent>, is_live: &impl Fn(Addr) -> bool) {
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
