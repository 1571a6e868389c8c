//! Turns what is known into metric families, each time someone asks.

use crate::catalogue::{self as c, Kind, METRICS, Metric};
use crate::connections::{ConnectionState, TableTotals};
use crate::events::Level;
use crate::keys::{KeySourceStatus, Verdict};
use crate::ledger::{BREAK_SECONDS, LedgerValues, SavedBy};
use crate::limits::{KEY_SOURCE_LABEL_CHARS_MAX, PEER_NONE};
use crate::smb::{SmbState, SmbTotals};
use crate::status::{PeerCounters, PeerState, Status, StoreState};
use crate::{Shared, process, text};
use isthmus_types::Reason;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct LedgerCollector {
    shared: Arc<Shared>,
    descs: Vec<Desc>,
}

impl LedgerCollector {
    pub(crate) fn new(shared: Arc<Shared>) -> prometheus::Result<LedgerCollector> {
        let desc = |metric: &Metric| {
            let labels = metric.labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(metric.name.into(), metric.help.into(), labels, Default::default())
        };
        let descs = METRICS.iter().map(desc).collect::<prometheus::Result<_>>()?;
        Ok(LedgerCollector { shared, descs })
    }
}

impl Collector for LedgerCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        let status = self.shared.status();
        let peers = self.shared.peer_sums();
        let totals = self.shared.connections.totals();
        families.connections(&totals, &peers);
        families.smb(&totals.smb);
        families.add(c::SMB_PERMITS, &[], self.shared.connections.permits() as f64);
        families.key_releases(&self.shared.key_releases.counts());
        families.peer_counters(&peers);
        if let Some(status) = status {
            families.peers(&status, |name| self.shared.label(name));
            families.store(&status);
            families.proxy(&status);
            families.key_sources(&status.key_sources);
        }
        for (level, n) in Level::ALL.iter().zip(self.shared.events.totals()) {
            families.add(c::EVENTS, &[level.label()], n as f64);
        }
        families.process();
        families.finish()
    }
}

#[derive(Default)]
struct Families {
    by_name: BTreeMap<&'static str, MetricFamily>,
}

impl Families {
    fn add(&mut self, metric: Metric, values: &[&str], value: f64) {
        debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
        let pair = |(name, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        let mut sample = Sample::from_label(metric.labels.iter().zip(values).map(pair).collect());
        let family = self.by_name.entry(metric.name).or_default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        match metric.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
                family.set_field_type(MetricType::COUNTER);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
                family.set_field_type(MetricType::GAUGE);
            }
            Kind::Histogram => debug_assert!(false, "{} has more than one value", metric.name),
        }
        family.mut_metric().push(sample);
    }

    /// `counts` are of what lies within each bound, and beyond the last one.
    fn histogram(&mut self, metric: Metric, bounds: &[f64], counts: &[u64], sum: f64) {
        let mut histogram = Histogram::default();
        let (mut so_far, mut buckets) = (0, Vec::new());
        for (bound, n) in bounds.iter().zip(counts) {
            so_far += n;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(so_far);
            buckets.push(bucket);
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(sum);
        let mut sample = Sample::default();
        sample.set_histogram(histogram);
        let family = self.by_name.entry(metric.name).or_default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(MetricType::HISTOGRAM);
        family.mut_metric().push(sample);
    }

    fn flag(&mut self, metric: Metric, values: &[&str], on: bool) {
        self.add(metric, values, f64::from(u8::from(on)));
    }

    fn connections(&mut self, totals: &TableTotals, peers: &BTreeMap<Arc<str>, PeerCounters>) {
        // A peer that has carried nothing yet still shows zeros: a rate over a series that only then begins misses its
        // first step.
        let mut saved: BTreeMap<&str, [u64; 5]> = peers.keys().map(|peer| (&**peer, [0; 5])).collect();
        for ((peer, protocol), values) in &totals.ledgers {
            self.ledger(peer, protocol.label(), values);
            let sums = saved.entry(peer).or_default();
            sums.iter_mut().zip(values.saved).for_each(|(sum, n)| *sum += n);
        }
        self.passed_through(totals);
        for (peer, sums) in saved.into_iter().filter(|(peer, _)| *peer != PEER_NONE) {
            for (by, n) in SavedBy::ALL.iter().zip(sums) {
                self.add(c::SAVED_BYTES, &[by.label(), peer], n as f64);
            }
        }
        for state in ConnectionState::ALL.into_iter().filter(|state| *state != ConnectionState::Closed) {
            self.add(c::CONNECTIONS, &[state.label()], totals.states[state as usize] as f64);
        }
        for ((outcome, reason), n) in &totals.outcomes {
            let reason = reason.map_or("none", Reason::label);
            self.add(c::CONNECTIONS_TOTAL, &[outcome.label(), reason], *n as f64);
        }
        for reason in Reason::ALL {
            let n = totals.not_optimised.get(&reason).copied().unwrap_or_default();
            self.add(c::NOT_OPTIMISED, &[reason.label()], n as f64);
        }
        self.reduction(&totals.sum());
    }

    fn ledger(&mut self, peer: &str, protocol: &str, values: &LedgerValues) {
        if peer == PEER_NONE && values.lan() == 0 {
            return;
        }
        self.add(c::LAN_BYTES, &["up", protocol, peer], values.lan_up as f64);
        self.add(c::LAN_BYTES, &["down", protocol, peer], values.lan_down as f64);
        self.add(c::FRAME_BYTES, &["up", protocol, peer], values.wan_up as f64);
        self.add(c::FRAME_BYTES, &["down", protocol, peer], values.wan_down as f64);
    }

    fn passed_through(&mut self, totals: &TableTotals) {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for ((_, protocol), values) in &totals.ledgers {
            let sum = sums.entry(protocol.label()).or_default();
            sum.0 += values.passed_up;
            sum.1 += values.passed_down;
        }
        for (protocol, (up, down)) in sums {
            self.add(c::PASS_THROUGH_BYTES, &["up", protocol], up as f64);
            self.add(c::PASS_THROUGH_BYTES, &["down", protocol], down as f64);
        }
    }

    fn smb(&mut self, totals: &SmbTotals) {
        for ((state, cipher), n) in &totals.connections {
            let cipher = cipher.map_or("none", |cipher| cipher.label());
            self.add(c::SMB_CONNECTIONS, &[state.label(), cipher], *n as f64);
        }
        for state in SmbState::ALL {
            let n = totals.sessions.get(&state).copied().unwrap_or_default();
            self.add(c::SMB_SESSIONS, &[state.label()], n as f64);
        }
    }

    fn key_releases(&mut self, counts: &BTreeMap<(Arc<str>, Verdict), u64>) {
        for ((peer, (result, reason)), n) in counts {
            self.add(c::KEY_RELEASES, &[peer, result, reason], *n as f64);
        }
    }

    /// Sources whose names are the same once they are cut are one: up when all are.
    fn key_sources(&mut self, sources: &[KeySourceStatus]) {
        let mut shown: BTreeMap<String, (u64, u64, bool)> = BTreeMap::new();
        for source in sources {
            let label = text::clean(&source.name, KEY_SOURCE_LABEL_CHARS_MAX);
            let entry = shown.entry(label).or_insert((0, 0, true));
            entry.0 += source.loads;
            entry.1 += source.failures;
            entry.2 &= source.error.is_none() && source.loaded_at.is_some();
        }
        for (label, (loads, failures, up)) in &shown {
            self.add(c::KEY_LOADS, &[label, "loaded"], *loads as f64);
            self.add(c::KEY_LOADS, &[label, "failed"], *failures as f64);
            self.flag(c::KEY_SOURCE_UP, &[label], *up);
        }
    }

    fn reduction(&mut self, sum: &LedgerValues) {
        self.add(c::FRAMES, &["encoded"], sum.frames_encoded as f64);
        self.add(c::FRAMES, &["decoded"], sum.frames_decoded as f64);
        self.add(c::MISSES, &[], sum.misses as f64);
        self.add(c::REPAIRS, &[], sum.repairs as f64);
        self.add(c::REPAIR_BYTES, &[], sum.repair_bytes as f64);
        self.add(c::PROOF_FAILURES, &[], sum.proof_failures as f64);
        for (request, n) in [
            ("open", sum.local_opens),
            ("read", sum.local_reads),
            ("close", sum.local_closes),
            ("query", sum.local_queries),
            ("listing", sum.local_listings),
            ("write", sum.local_writes),
        ] {
            self.add(c::SMB_LOCAL, &[request], n as f64);
        }
        self.add(c::SMB_LOST_WRITES, &[], sum.lost_writes as f64);
        self.add(c::SMB_AHEAD, &[], sum.ahead as f64);
        self.add(c::SMB_AHEAD_WASTED, &[], sum.ahead_wasted as f64);
        self.add(c::SMB_BROKEN, &[], sum.permits_broken as f64);
        self.histogram(c::SMB_BREAK_SECONDS, &BREAK_SECONDS, &sum.break_waits, sum.break_micros as f64 / 1e6);
    }

    fn peer_counters(&mut self, peers: &BTreeMap<Arc<str>, PeerCounters>) {
        for (peer, n) in peers {
            self.add(c::WAN_BYTES, &["sent", peer], n.wan_sent as f64);
            self.add(c::WAN_BYTES, &["received", peer], n.wan_received as f64);
            self.add(c::RESUMES, &[peer], n.resumes as f64);
            self.add(c::LINK_FAILURES, &[peer], n.link_failures as f64);
            self.add(c::HANDSHAKES, &[peer], n.handshakes as f64);
        }
    }

    /// Peers that share a label are one: up when any is, with their channels added and the longest round trip.
    fn peers(&mut self, status: &Status, label: impl Fn(&str) -> Arc<str>) {
        #[derive(Default)]
        struct Shown {
            up: bool,
            rtt: Option<f64>,
            busy: u64,
            pooled: u64,
        }
        let mut shown: BTreeMap<Arc<str>, Shown> = BTreeMap::new();
        for peer in &status.peers {
            let entry = shown.entry(label(&peer.name)).or_default();
            entry.up |= peer.state == PeerState::Up;
            entry.rtt = entry.rtt.into_iter().chain(peer.rtt.map(|rtt| rtt.as_secs_f64())).reduce(f64::max);
            entry.busy += peer.channels_busy;
            entry.pooled += peer.channels_pooled;
        }
        for (peer, entry) in &shown {
            self.flag(c::PEER_UP, &[peer], entry.up);
            self.add(c::PEER_CHANNELS, &[peer, "busy"], entry.busy as f64);
            self.add(c::PEER_CHANNELS, &[peer, "pooled"], entry.pooled as f64);
            if let Some(rtt) = entry.rtt {
                self.add(c::PEER_RTT, &[peer], rtt);
            }
        }
        let inner = &status.inner;
        for (reason, n) in [
            ("unauthorised", inner.unauthorised),
            ("incompatible", inner.incompatible),
            ("garbage", inner.garbage),
            ("timeout", inner.timeouts),
            ("refused", inner.refused),
        ] {
            self.add(c::HANDSHAKE_FAILURES, &[reason], n as f64);
        }
    }

    fn store(&mut self, status: &Status) {
        let store = &status.store;
        self.flag(c::STORE_UP, &[], !matches!(store.state, StoreState::Unusable(_)));
        self.flag(c::STORE_LEARNING, &[], store.state == StoreState::Learning);
        self.add(c::STORE_BYTES, &[], store.bytes as f64);
        self.add(c::STORE_CAP, &[], store.cap_bytes as f64);
        self.add(c::STORE_CHUNKS, &[], store.chunks as f64);
        self.add(c::STORE_SEGMENTS, &[], store.segments as f64);
        self.flag(c::STORE_ENCRYPTED, &[], store.encrypted);
        self.add(c::STORE_EVICTED, &[], store.evicted_bytes as f64);
        self.add(c::STORE_QUARANTINED, &[], store.quarantined as f64);
        self.add(c::STORE_CACHE_HITS, &[], store.cache_hits as f64);
        self.add(c::STORE_CACHE_MISSES, &[], store.cache_misses as f64);
    }

    fn proxy(&mut self, status: &Status) {
        let admission = &status.admission;
        self.flag(c::ADMISSION_FULL, &[], admission.full);
        self.add(c::ADMISSION_CONNECTIONS, &[], admission.connections as f64);
        self.add(c::ADMISSION_STOP_AT, &[], admission.stop_at as f64);
        self.add(c::ADMISSION_RESUME_AT, &[], admission.resume_at as f64);
        self.flag(c::READY, &[], status.not_ready().is_empty());
        self.flag(c::DRAINING, &[], status.draining);
        self.add(c::BUILD_INFO, &[&status.version, status.side.as_str()], 1.0);
        self.add(c::PROCESS_START, &[], unix_seconds(status.started_at));
        // Of several of one kind, the one that ends first counts.
        let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
        for certificate in &status.certificates {
            let end = unix_seconds(certificate.expires_at);
            let first = ends.entry(certificate.kind.label()).or_insert(end);
            *first = first.min(end);
        }
        for (kind, end) in ends {
            self.add(c::CERTIFICATE_EXPIRY, &[kind], end);
        }
    }

    fn process(&mut self) {
        if let Some(seconds) = process::cpu_seconds() {
            self.add(c::PROCESS_CPU, &[], seconds);
        }
        if let Some(bytes) = process::resident_bytes() {
            self.add(c::PROCESS_RSS, &[], bytes as f64);
        }
    }

    fn finish(self) -> Vec<MetricFamily> {
        self.by_name.into_values().collect()
    }
}

/// Unix time in seconds, zero for anything before 1970.
pub(crate) fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
