//! Finds old content that new bytes resemble, to code them against.

use isthmus_types::limits::DELTA_BASE_BYTES_MAX;

use crate::content::Addr;
use crate::draft::{Draft, Part};
use crate::frame::BASE_RANGES_MAX;
use crate::learner::chunk_features;
use crate::ledger::Name;
use crate::shared::Shared;

/// New content shorter than this between two runs needs no base of its own.
const PART_BYTES_MIN: usize = 24;
/// Old content after (or before) a run that new bytes next to it are coded against, over twice their own length.
const NEXT_TO_RUN_BYTES: u64 = 8 << 10;
/// Old content between two runs that is taken as a base at most.
const GAP_BYTES_MAX: u64 = 256 << 10;
/// Shares of features that make a region a base.
const VOTES_MIN: usize = 2;
/// Votes that lie no further apart than this belong to one region.
const VOTE_REACH_BYTES: u64 = 96 << 10;
/// Taken on both sides of the votes of a region.
const VOTE_MARGIN_BYTES: u64 = 24 << 10;
/// Regions that votes may choose.
const VOTE_REGIONS_MAX: usize = 4;

/// Old content, by name and as bytes.
#[derive(Default)]
pub(crate) struct Base {
    pub ranges: Vec<(Name, u64)>,
    pub places: Vec<(Addr, u64)>,
    pub bytes: Vec<u8>,
}

impl Base {
    /// About what naming the base costs on the wire.
    pub fn wire_bytes(&self) -> usize {
        2 + self.ranges.len() * 6
    }

    fn room(&self) -> u64 {
        if self.ranges.len() < BASE_RANGES_MAX { (DELTA_BASE_BYTES_MAX - self.bytes.len()) as u64 } else { 0 }
    }

    /// Adds a range as far as there is room and it can be read.
    fn add(&mut self, shared: &Shared, at: Name, len: u64) {
        let len = len.min(self.room());
        let known = |&(start, there): &(Name, u64)| {
            start.recording == at.recording
                && start.position <= at.position
                && at.position + len <= start.position + there
        };
        if len == 0 || self.ranges.iter().any(known) {
            return;
        }
        let mut at_part = at;
        let mut left = len;
        // What is known of the range, up to its first unknown byte.
        while left > 0 {
            let crate::ledger::Span::At { addr, len: there } = shared.ledger.reference(at_part) else { break };
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
    }
}

/// The base for the new bytes of a draft; empty if nothing similar is known. `after_run` is the place after the run that
/// the last frame ended with. Works out the features of the draft's chunks.
pub(crate) fn choose(shared: &Shared, draft: &mut Draft, after_run: Option<Name>) -> Base {
    let mut base = Base::default();
    by_votes(shared, draft, &mut base);
    beside_runs(shared, draft, after_run, &mut base);
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
            votes.extend(shared.similar.candidates(features).map(|addr| addr.0));
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
    for (_, from, to) in regions.into_iter().filter(|(count, ..)| *count >= VOTES_MIN).take(VOTE_REGIONS_MAX) {
        let Some((name, before, after)) = shared.ledger.name_of(Addr(from)) else { continue };
        let back = before.min(VOTE_MARGIN_BYTES);
        let start = Name { position: name.position - back, ..name };
        let len = (to - from + 2 * VOTE_MARGIN_BYTES).min(after) + back;
        base.add(shared, start, len);
    }
}
