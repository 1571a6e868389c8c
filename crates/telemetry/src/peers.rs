//! Which peers have a metric label, and what their sockets have counted.

use crate::limits::{PEER_LABEL_CHARS_MAX, PEER_LABELS_MAX, PEER_NONE, PEER_OTHER, PEERS_FOLLOWED_MAX};
use crate::status::{PeerCounters, PeerStatus};
use crate::text;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Gives each peer a label, up to a limit: names come from certificates, and their number is not ours to choose.
pub(crate) struct PeerLabels {
    known: HashSet<Arc<str>>,
    none: Arc<str>,
    other: Arc<str>,
}

impl PeerLabels {
    pub(crate) fn new() -> PeerLabels {
        PeerLabels { known: HashSet::new(), none: PEER_NONE.into(), other: PEER_OTHER.into() }
    }

    /// The label of the peer called `name`; an empty name means no peer.
    pub(crate) fn label(&mut self, name: &str) -> Arc<str> {
        if name.is_empty() || name == PEER_NONE {
            return self.none.clone();
        }
        let clean = text::clean(name, PEER_LABEL_CHARS_MAX);
        if let Some(label) = self.known.get(clean.as_str()) {
            return label.clone();
        }
        if self.known.len() >= PEER_LABELS_MAX || clean == PEER_OTHER {
            return self.other.clone();
        }
        let label: Arc<str> = clean.into();
        self.known.insert(label.clone());
        label
    }
}

/// Sums the counters that a source reports per peer, so that a total never falls, also when a peer leaves the list,
/// comes back with counters that start at zero, or shares its label with others.
#[derive(Default)]
pub(crate) struct PeerTotals {
    last: HashMap<String, PeerCounters>,
    sums: BTreeMap<Arc<str>, PeerCounters>,
}

impl PeerTotals {
    pub(crate) fn observe(&mut self, name: &str, label: Arc<str>, now: PeerCounters) {
        let last = self.last.get(name).copied().unwrap_or_default();
        let sum = self.sums.entry(label).or_default();
        sum.wan_sent += grown(last.wan_sent, now.wan_sent);
        sum.wan_received += grown(last.wan_received, now.wan_received);
        sum.link_failures += grown(last.link_failures, now.link_failures);
        sum.resumes += grown(last.resumes, now.resumes);
        sum.handshakes += grown(last.handshakes, now.handshakes);
        self.last.insert(name.to_owned(), now);
    }

    /// Forgets peers that are no longer listed once too many are followed.
    pub(crate) fn trim(&mut self, listed: &[PeerStatus]) {
        if self.last.len() > PEERS_FOLLOWED_MAX {
            let names: HashSet<&str> = listed.iter().map(|peer| peer.name.as_str()).collect();
            self.last.retain(|name, _| names.contains(name.as_str()) || name == PEER_NONE);
        }
    }

    pub(crate) fn sums(&self) -> &BTreeMap<Arc<str>, PeerCounters> {
        &self.sums
    }
}

/// What a counter gained; one that fell was started anew.
fn grown(last: u64, now: u64) -> u64 {
    if now >= last { now - last } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_and_clean() {
        let mut labels = PeerLabels::new();
        assert_eq!(&*labels.label(""), "none");
        assert_eq!(&*labels.label("a\nb\"c"), "a b\"c");
        for i in 0..PEER_LABELS_MAX * 2 {
            labels.label(&format!("peer-{i}"));
        }
        assert_eq!(&*labels.label("late"), "other");
        assert_eq!(&*labels.label("peer-0"), "peer-0", "those that have a label keep it");
        assert!(labels.label(&"x".repeat(1_000)).chars().count() <= PEER_LABEL_CHARS_MAX);
    }

    #[test]
    fn totals_survive_a_restarted_counter_and_a_peer_that_leaves() {
        let mut totals = PeerTotals::default();
        let label: Arc<str> = "a".into();
        let sent = |wan_sent| PeerCounters { wan_sent, ..PeerCounters::default() };
        for n in [100, 150, 20, 20] {
            totals.observe("a", label.clone(), sent(n));
        }
        totals.observe("b", label.clone(), sent(7));
        assert_eq!(totals.sums()[&label].wan_sent, 177);
    }
}
