//! Strict mode: the reads and writes of each cell can be put in one order (P. B. Gibbons, E. Korach, Testing shared memories,
//! SIAM Journal on Computing 26, 1997).
//!
//! Each write and the reads of its version form a cluster. From the first return to the last call in it is its zone: forward
//! when the version surely was there all that time, else backward. There is an order if and only if no two forward zones
//! overlap and no backward zone lies within a forward one.

use super::cells::{Found, Left, is_known, register};
use super::model::Model;
use super::{Draft, Kind};
use crate::history::{CELLS_MAX, Time};
use crate::rule::Mode;
use std::collections::BTreeMap;

/// One version's requests.
struct Cluster {
    write: usize,
    first_back: Time,
    last_call: Time,
    /// Requests that give the zone its ends.
    first: usize,
    last: usize,
}

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    if model.rule.mode != Mode::Strict {
        return;
    }
    for file in 0..model.files.len() {
        for cell in 0..CELLS_MAX {
            let clusters = clusters(model, file, cell);
            let mut pairs =
                (0..clusters.len()).flat_map(|one| (0..clusters.len()).map(move |other| (one, other)));
            let conflict = pairs.find_map(|(one, other)| {
                let (one, other) = (clusters.get(one)?, clusters.get(other)?);
                (one.write != other.write && contradict(one, other)).then_some((one, other))
            });
            if let Some((one, other)) = conflict {
                let events = [one.write, one.first, one.last, other.write, other.first, other.last];
                let text = format!("cell {cell}: no order of the writes explains all reads");
                drafts.push(Draft::new(Kind::NoOrder, text, events));
            }
        }
    }
}

fn contradict(one: &Cluster, other: &Cluster) -> bool {
    if one.first_back >= one.last_call {
        return false;
    }
    if other.first_back < other.last_call {
        return one.first_back < other.last_call && other.first_back < one.last_call;
    }
    // A backward zone, from its last call to its first return, within a forward one.
    one.first_back < other.last_call && other.first_back < one.last_call
}

fn clusters(model: &Model<'_>, file: usize, cell: u64) -> Vec<Cluster> {
    let register = register(model, file, cell);
    let mut all: BTreeMap<u64, Cluster> = BTreeMap::new();
    for (effect, left) in &register.changes {
        if let (Left::Version(tag), true) = (left, effect.is_definite && is_known(effect.period.back)) {
            let (write, first_back, last_call) = (effect.event, effect.period.back, effect.period.call);
            all.insert(*tag, Cluster { write, first_back, last_call, first: write, last: write });
        }
    }
    for (sight, found) in &register.sights {
        let Found::Version(tag) = found else { continue };
        let (Some(cluster), Some(event)) = (all.get_mut(tag), sight.event) else { continue };
        if sight.period.back < cluster.first_back {
            (cluster.first_back, cluster.first) = (sight.period.back, event);
        }
        if sight.period.call > cluster.last_call {
            (cluster.last_call, cluster.last) = (sight.period.call, event);
        }
    }
    all.into_values().collect()
}
