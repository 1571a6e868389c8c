//! What Isthmus knows of itself: the byte ledger, the table of connections, recent events, an hour and a day of
//! history, and all of it as Prometheus metrics (docs/metrics.md).
//!
//! The data path writes to atomics of its own connection ([`ConnectionLedger`]); everything else is summed when asked.
//! State that other parts keep (peers, store, certificates) is fetched from the one [`Source`].

mod catalogue;
mod collect;
mod connections;
mod engine;
mod events;
mod fleet;
mod history;
mod keys;
mod ledger;
pub mod limits;
mod links;
mod logging;
mod peers;
mod process;
mod protocol;
mod ratio;
mod smb;
mod status;
mod text;

pub use catalogue::{Kind, METRICS, Metric};
pub use connections::{
    ConnectionHandle, ConnectionInfo, ConnectionSnapshot, ConnectionState, ConnectionTable, LedgerKey,
    Outcome, TableTotals,
};
pub use engine::{Acceleration, Accelerator, TracedRequest};
pub use events::{Event, Events, Level};
pub use fleet::{AgentStatus, FleetMember, LocationStatus};
pub use history::{History, Point, Series, Span, Traffic};
pub use keys::{KeySourceKind, KeySourceStatus};
pub use ledger::{BREAK_SECONDS, ConnectionLedger, LedgerValues, SavedBy, Tally};
pub use links::{Ends, LinkError, LinkList, LinkStatus, links};
pub use logging::{LogError, LogFormat, start_logging};
pub use process::{Process, process};
pub use protocol::Protocol;
pub use ratio::{capacity_increase, data_reduction};
pub use smb::{SmbCipher, SmbDialect, SmbInfo, SmbKey, SmbSigning, SmbState, SmbTotals};
pub use status::{
    AdmissionStatus, CertificateKind, CertificateStatus, InnerStatus, NotReady, PeerCounters, PeerState,
    PeerStatus, Source, Status, StoreState, StoreStatus,
};
pub use text::clean;

use collect::LedgerCollector;
use keys::KeyReleases;
use peers::{PeerLabels, PeerTotals};
use prometheus::{Registry, TextEncoder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// The telemetry of one proxy.
pub struct Telemetry {
    shared: Arc<Shared>,
    registry: Registry,
    history: Mutex<History>,
    started: Instant,
}

pub(crate) struct Shared {
    connections: Arc<ConnectionTable>,
    events: Events,
    labels: Arc<Mutex<PeerLabels>>,
    peers: Mutex<PeerTotals>,
    key_releases: KeyReleases,
    source: RwLock<Option<Weak<dyn Source>>>,
}

/// The metrics cannot be registered or written. Only a fault in the metric names can cause it.
#[derive(Debug, thiserror::Error)]
#[error("metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

impl Telemetry {
    /// Telemetry that has seen nothing; its history starts at `now`.
    pub fn new(now: Instant) -> Result<Arc<Telemetry>, MetricsError> {
        let labels = Arc::new(Mutex::new(PeerLabels::new()));
        let shared = Arc::new(Shared {
            connections: Arc::new(ConnectionTable::new(labels.clone())),
            events: Events::default(),
            labels,
            peers: Mutex::default(),
            key_releases: KeyReleases::default(),
            source: RwLock::new(None),
        });
        let registry = Registry::new();
        registry.register(Box::new(LedgerCollector::new(shared.clone())?))?;
        Ok(Arc::new(Telemetry { shared, registry, history: Mutex::new(History::new(now)), started: now }))
    }

    /// Names where the state of peers, store and certificates comes from. It is held weakly, since a source holds this
    /// telemetry itself: the caller keeps it alive.
    pub fn set_source(&self, source: &Arc<dyn Source>) {
        *self.shared.source.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(source));
    }

    /// Time since the start, by the clock that no one can set.
    pub fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// The outer connections.
    pub fn connections(&self) -> &Arc<ConnectionTable> {
        &self.shared.connections
    }

    /// What happened lately.
    pub fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Keeps an event for the console and logs it. Never pass content or keys.
    pub fn event(&self, level: Level, text: impl AsRef<str>) {
        self.shared.events.record(level, text);
    }

    /// Counts a decision on a session's keys: `refused` is the reason's label, out of a fixed set, or `None` when `peer`
    /// was given them.
    pub fn count_key_release(&self, peer: &str, refused: Option<&'static str>) {
        self.shared.key_releases.count(self.shared.label(peer), refused);
    }

    /// Sessions since the start whose keys were given to a peer, and whose were not.
    pub fn key_releases(&self) -> (u64, u64) {
        self.shared.key_releases.sums()
    }

    /// Advances the history. To be called every second or so, and not less than every [`limits::HOUR_STEP`].
    pub fn tick(&self, now: Instant) {
        // Takes in what the sources have counted before the sums are read.
        drop(self.shared.status());
        let totals = self.shared.connections.totals();
        let open = totals.states.iter().sum();
        lock(&self.history).tick(now, self.traffic(&totals), open);
    }

    /// Reads the history.
    pub fn history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&lock(&self.history))
    }

    /// WAN, LAN and saved bytes since the start of the process, as of now.
    pub fn totals(&self) -> Traffic {
        drop(self.shared.status());
        self.traffic(&self.shared.connections.totals())
    }

    /// Registers what other parts want exported beside [`METRICS`].
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn metrics_text(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }

    fn traffic(&self, totals: &TableTotals) -> Traffic {
        let sum = totals.sum();
        let peers = self.shared.peer_sums();
        Traffic {
            lan_up: sum.lan_up,
            lan_down: sum.lan_down,
            wan_sent: peers.values().map(|peer| peer.wan_sent).sum(),
            wan_received: peers.values().map(|peer| peer.wan_received).sum(),
            passed: sum.passed(),
            saved: sum.saved,
        }
    }
}

impl Shared {
    /// The state of the proxy, if its source is set; what its sockets have counted is taken into the sums on the way.
    fn status(&self) -> Option<Status> {
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()?;
        // Asked for under the lock, so that of two callers the later snapshot is also taken in later.
        let mut peers = lock(&self.peers);
        let status = source.status();
        let mut labels = lock(&self.labels);
        for peer in &status.peers {
            peers.observe(&peer.name, labels.label(&peer.name), peer.counters);
        }
        let unattributed = PeerCounters {
            wan_sent: status.inner.wan_sent,
            wan_received: status.inner.wan_received,
            ..PeerCounters::default()
        };
        if unattributed != PeerCounters::default() {
            peers.observe(limits::PEER_NONE, labels.label(""), unattributed);
        }
        peers.trim(&status.peers);
        Some(status)
    }

    fn peer_sums(&self) -> BTreeMap<Arc<str>, PeerCounters> {
        lock(&self.peers).sums().clone()
    }

    fn label(&self, name: &str) -> Arc<str> {
        lock(&self.labels).label(name)
    }
}

/// A panic while a lock was held leaves counters at worst one step short, which is no reason to stop counting.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
