//! Finds old content that new bytes resemble, to code them against.

use isthmus_types::limits::DELTA_BASE_BYTES_MAX;

use crate::content::Addr;
use crate::draft::{Draft, Part};
use crate::frame::BASE_RANGES_MAX;
use crate::learner::chunk_features;
use crate::ledger::{Name, Span};
use crate::shared::Shared;

/// New content shorter than this between two runs needs no base of its own.
const PART_BYTES_MIN: usize = 24;
/// Old content after (or before) a run that new bytes next to it are coded against, over twice their own length.
const NEXT_TO_RUN_BYTES: u64 = 8 << 10;
/// Old content between two runs that is taken as a base at most.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// A base is no larger than so many times the new bytes: reading it in costs time.
const BASE_TIMES_NEW_MAX: usize = 64;
/// Recordings of which the neighbourhood is taken.
const AROUND_RECORDINGS_MAX: usize = 4;
/// Shared features that make a region a base: a single one is often chance.
const VOTES_MIN: usize = 2;
/// Votes that lie no further apart than this belong to one region.
const VOTE_REACH_BYTES: u64 = 16 << 10;
/// Taken on both sides of the votes of a region.
const VOTE_MARGIN_BYTES: u64 = 64 << 10;
/// Regions that votes may choose.
const VOTE_REGIONS_MAX: usize = 8;

/// Old content, by name and as bytes.
#[derive(Default)]
pub(crate) struct Base {
    pub ranges: Vec<(Name, u64)>,
    pub places: Vec<(Addr, u64)>,
    pub bytes: Vec<u8>,
    /// Features chose a part of it.
    pub voted: bool,
    limit: usize,
}

impl Base {
    /// About what naming the base costs on the wire.
    pub fn wire_bytes(&self) -> usize {
        2 + self.ranges.len() * 6
    }

    fn room(&self) -> u64 {
        if self.ranges.len() < BASE_RANGES_MAX {
            self.limit.saturating_sub(self.bytes.len()) as u64
        } else {
            0
        }
    }

    /// Adds a range, less what is there already, as far as there is room and it can be read.
    fn add(&mut self, shared: &Shared, at: Name, len: u64) {
        let (mut from, end) = (at.position, at.position.saturating_add(len));
        while from < end && self.room() > 0 {
            let same = self.ranges.iter().filter(|(start, _)| start.recording == at.recording);
            let spans = same.map(|(start, len)| (start.position, start.position + len));
            let mut stop = end;
            let mut covered = None;
            for (start, to) in spans {
                if start <= from && from < to {
                    covered = Some(to);
                } else if start > from {
                    stop = stop.min(start);
                }
            }
            match covered {
                Some(to) => from = to,
                None => {
                    let len = (stop - from).min(self.room());
                    if !self.read(shared, Name { position: from, ..at }, len) {
                        return;
                    }
                    from = stop;
                }
            }
        }
    }

    /// Reads a range into the base, up to its first unknown byte; false if it stops before the range's end.
    fn read(&mut self, shared: &Shared, at: Name, len: u64) -> bool {
        let mut at_part = at;
        let mut left = len;
        while left > 0 {
            let Span::At { addr, len: there } = shared.ledger.reference(at_part) else { break };
            let step = there.min(left);
            if shared.read_into(addr, step, &mut self.bytes).is_err() {
                break;
            }
            self.places.push((addr, step));
            at_part.position += step;
            left -= step;
        }
        if left < len {
            self.ranges.push((at, len - left));
        }
        left == 0
    }
}

/// The base for the new bytes of a draft; empty if nothing similar is known. `after_run` is the place after the run that
/// the last frame ended with. With `ask`, the features of the draft's chunks are worked out and asked for.
pub(crate) fn choose(shared: &Shared, draft: &mut Draft, after_run: Option<Name>, ask: bool) -> Base {
    let limit = draft.new.len().saturating_mul(BASE_TIMES_NEW_MAX).min(DELTA_BASE_BYTES_MAX);
    let beside_limit = if ask { limit / 2 } else { limit };
    let mut base = Base { limit: beside_limit, ..Base::default() };
    beside_runs(shared, draft, after_run, &mut base);
    base.limit = limit;
    if ask {
        let beside = base.bytes.len();
        by_votes(shared, draft, &mut base);
        base.voted = base.bytes.len() > beside;
    }
    around(shared, draft, after_run, &mut base);
    base
}

/// The old bytes between two runs, after the run before, or before the run after.
fn beside_runs(shared: &Shared, draft: &Draft, after_run: Option<Name>, base: &mut Base) {
    let mut last = after_run;
    for (i, part) in draft.parts.iter().enumerate() {
        match part {
            Part::Run { at, len, .. } => last = Some(Name { position: at.position + len, ..*at }),
            Part::New { len } if *len >= PART_BYTES_MIN => {
                let next = match draft.parts.get(i + 1) {
                    Some(Part::Run { at, .. }) => Some(*at),
                    _ => None,
                };
                let around = 2 * *len as u64 + NEXT_TO_RUN_BYTES;
                match (last, next) {
                    (Some(from), Some(to))
                        if from.recording == to.recording
                            && from.position <= to.position
                            && to.position - from.position <= GAP_BYTES_MAX =>
                    {
                        base.add(shared, from, to.position - from.position);
                    }
                    (Some(from), None) => base.add(shared, from, around),
                    (_, Some(to)) => {
                        let start = to.position.saturating_sub(around);
                        base.add(shared, Name { position: start, ..to }, to.position - start);
                    }
                    (None, None) => {}
                }
            }
            Part::New { .. } => {}
        }
    }
}

/// What lies around the chosen ranges and the draft's runs, in the recordings that name them and in those that later went on differently after
/// the same content: a file whose parts were moved, or share content with another file, finds its other parts there.
fn around(shared: &Shared, draft: &Draft, after_run: Option<Name>, base: &mut Base) {
    let mut reaches: Vec<(Name, u64)> = Vec::new();
    let mut reach = |at: Name, len: u64| {
        if let Some((from, to)) = reaches.iter_mut().find(|(from, _)| from.recording == at.recording) {
            from.position = from.position.min(at.position);
            *to = (*to).max(at.position + len);
        } else if reaches.len() < AROUND_RECORDINGS_MAX {
            reaches.push((at, at.position + len));
        }
    };
    base.ranges.iter().for_each(|(at, len)| reach(*at, *len));
    for part in &draft.parts {
        let Part::Run { at, len, places } = part else { continue };
        let end = places.last().map(|(addr, len)| addr.plus(*len));
        if let Some(branch) = end.and_then(|end| shared.ledger.branch(end)) {
            reach(branch, 0);
        }
        reach(*at, *len);
    }
    after_run.into_iter().for_each(|at| reach(at, 0));
    let share = base.room() / reaches.len().max(1) as u64;
    for (from, to) in reaches {
        base.add(shared, from, to - from.position);
        let before = from.position.min(share / 2);
        base.add(shared, Name { position: from.position - before, ..from }, before);
        base.add(shared, Name { position: to, ..from }, share - before);
    }
}

/// The regions that share most features with the draft's new chunks.
fn by_votes(shared: &Shared, draft: &mut Draft, base: &mut Base) {
    let mut votes: Vec<u64> = Vec::new();
    let mut at = 0usize;
    for cut in &mut draft.cuts {
        let end = at + cut.len as usize;
        if cut.features.is_none() {
            cut.features = chunk_features(&draft.new[at..end]);
        }
        if let Some(features) = &cut.features {
            votes.extend(shared.similar.candidates(features).into_iter().map(|addr| addr.0));
        }
        at = end;
    }
    votes.sort_unstable();
    let mut regions: Vec<(usize, u64, u64)> = Vec::new();
    for addr in votes {
        match regions.last_mut() {
            Some((count, _, to)) if addr - *to <= VOTE_REACH_BYTES => {
                *count += 1;
                *to = addr;
            }
            _ => regions.push((1, addr, addr)),
        }
    }
    regions.sort_unstable_by_key(|(count, from, _)| (std::cmp::Reverse(*count), std::cmp::Reverse(*from)));
    for (_, from, to) in regions.into_iter().filter(|(count, ..)| *count >= VOTES_MIN).take(VOTE_REGIONS_MAX)
    {
        let Some((name, before, _)) = shared.ledger.name_of(Addr(from)) else { continue };
        // What is new may be all of a file and its votes lie close together, so as much on both sides as there is room for.
        let spare = base.room().saturating_sub(to - from) / 2;
        let margin = spare.min(draft.new.len() as u64).max(VOTE_MARGIN_BYTES);
        let back = before.min(margin);
        let start = Name { position: name.position - back, ..name };
        let len = to - from + margin + back;
        base.add(shared, start, len);
    }
}
