//! What the rest of the program tells telemetry and the console when they ask.

use crate::fleet::{AgentStatus, FleetMember, LocationStatus};
use crate::keys::KeySourceStatus;
use crate::links::{LinkError, LinkList};
use isthmus_types::{Reason, Side};
use std::time::{Duration, SystemTime};

/// Gives the state of the running proxy. Implemented once, where the parts are wired together; read by the metrics
/// and by the admin port, so that both always tell the same.
pub trait Source: Send + Sync + 'static {
    /// A snapshot. Called about once a second and on every request: it must be cheap and must not block on IO. Counters in
    /// it must not fall while the process lives. It must not ask [`crate::Telemetry`] for totals or metrics, which ask
    /// the source.
    fn status(&self) -> Status;

    /// What the kernel measures on the sockets of the inner channels. Asked for on request only, since it may be long and
    /// block for a moment.
    ///
    /// # Errors
    /// Why the kernel cannot be asked.
    fn links(&self) -> Result<LinkList, LinkError>;

    /// Every agent and gateway that a server side knows. Called on request.
    fn fleet(&self) -> Vec<FleetMember> {
        Vec::new()
    }
}

/// The proxy at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    pub side: Side,
    /// This proxy's own name: the common name of its certificate.
    pub name: String,
    pub version: String,
    pub started_at: SystemTime,
    /// The configuration in force, as key and value, for people to read. Never a secret.
    pub configuration: Vec<(String, String)>,
    pub peers: Vec<PeerStatus>,
    /// What keeps the proxy from having peers at all, such as certificate files that cannot be used.
    pub obstacle: Option<(Reason, String)>,
    pub store: StoreStatus,
    pub admission: AdmissionStatus,
    pub certificates: Vec<CertificateStatus>,
    /// Where session keys come from, in the order of the configuration.
    pub key_sources: Vec<KeySourceStatus>,
    /// The proxy lets its connections end and takes no new ones.
    pub draining: bool,
    pub inner: InnerStatus,
    /// What an enrolled laptop knows of itself.
    pub agent: Option<AgentStatus>,
    /// Where a client-side proxy is, if it looks after that.
    pub location: Option<LocationStatus>,
}

/// One peer, connected or not.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Common name of its certificate, or its configured address as long as it has never been met.
    pub name: String,
    pub address: String,
    pub state: PeerState,
    /// Since when it is in this state.
    pub since: SystemTime,
    /// Round-trip time of the control channel.
    pub rtt: Option<Duration>,
    /// How far its clock was ahead of this one when it connected, in milliseconds.
    pub clock_ahead_ms: Option<i64>,
    /// What it said of its version; empty while not known.
    pub version: String,
    /// Inner channels that carry a connection.
    pub channels_busy: u64,
    /// Inner channels that wait in the pool.
    pub channels_pooled: u64,
    pub counters: PeerCounters,
}

/// Whether a peer can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    Up,
    Connecting,
    Down {
        reason: Reason,
        /// In words, with the remedy where there is one.
        detail: String,
    },
}

impl PeerState {
    /// JSON and label word.
    pub fn label(&self) -> &'static str {
        match self {
            PeerState::Up => "up",
            PeerState::Connecting => "connecting",
            PeerState::Down { .. } => "down",
        }
    }
}

/// What the inner sockets of one peer have done since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Every byte written to the inner sockets: handshakes, acknowledgements and heartbeats included.
    pub wan_sent: u64,
    /// Every byte read from them.
    pub wan_received: u64,
    /// Links that died.
    pub link_failures: u64,
    /// Channels that went on over a new link.
    pub resumes: u64,
    /// TLS handshakes that were completed.
    pub handshakes: u64,
}

/// The chunk store.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    pub state: StoreState,
    /// Bytes of its files on disk.
    pub bytes: u64,
    /// The size it never exceeds.
    pub cap_bytes: u64,
    pub chunks: u64,
    pub segments: u64,
    /// Bytes dropped to make room, since the process started.
    pub evicted_bytes: u64,
    /// Chunks set aside since they failed a check.
    pub quarantined: u64,
    /// Reads answered by the cache of decrypted records, and those that went to disk.
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Encryption at rest.
    pub encrypted: bool,
    /// Identity, in hex; empty while unknown.
    pub identity: String,
    /// How often it has been opened.
    pub generation: u64,
}

/// Whether the store can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// Reads and learns.
    Learning,
    /// Reads, but takes in nothing new; the text says why.
    NotLearning(String),
    /// Of no use; the text says why.
    Unusable(String),
}

/// The limit on connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionStatus {
    /// New connections are not optimised until the count has fallen to `resume_at`.
    pub full: bool,
    /// Optimised connections that are open.
    pub connections: u64,
    /// The count at which optimisation of new connections stops.
    pub stop_at: u64,
    /// The count at which it starts again.
    pub resume_at: u64,
}

/// Something with an end date that TLS depends on.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    pub kind: CertificateKind,
    pub subject: String,
    pub expires_at: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// This proxy's own certificate.
    Own,
    /// The certification authority.
    Authority,
    /// The revocation list; its end is its next update.
    RevocationList,
}

impl CertificateKind {
    /// Metric label.
    pub fn label(self) -> &'static str {
        match self {
            CertificateKind::Own => "own",
            CertificateKind::Authority => "authority",
            CertificateKind::RevocationList => "revocation_list",
        }
    }
}

/// What the inner port has seen that belongs to no authenticated peer, since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub struct InnerStatus {
    pub wan_sent: u64,
    pub wan_received: u64,
    /// Certificates that were not accepted, by either side.
    pub unauthorised: u64,
    /// No common protocol version, or a cloned store.
    pub incompatible: u64,
    /// Bytes that are no TLS or no frame.
    pub garbage: u64,
    /// Handshakes that took too long.
    pub timeouts: u64,
    /// Connections refused since too many were half open.
    pub refused: u64,
}

/// Why new connections would not be optimised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    pub reason: Reason,
    pub text: String,
}

impl Status {
    /// Empty when a new connection would be optimised; otherwise everything that stands against it.
    ///
    /// A client-side proxy needs a peer. A server-side proxy waits for peers, and is ready before one has come.
    pub fn not_ready(&self) -> Vec<NotReady> {
        let mut found = Vec::new();
        if self.draining {
            found.push(NotReady { reason: Reason::Draining, text: Reason::Draining.to_string() });
        }
        if let Some((reason, text)) = &self.obstacle {
            found.push(NotReady { reason: *reason, text: text.clone() });
        }
        if let StoreState::Unusable(why) = &self.store.state {
            let text = format!("the chunk store cannot be used: {why}");
            found.push(NotReady { reason: Reason::StoreUnavailable, text });
        }
        if self.admission.full {
            let text = format!("the connection limit is reached ({})", self.admission.stop_at);
            found.push(NotReady { reason: Reason::AdmissionFull, text });
        }
        if self.side == Side::Client && !self.peers.iter().any(|peer| peer.state == PeerState::Up) {
            found.extend(self.peers.iter().map(PeerStatus::not_ready));
            if self.peers.is_empty() {
                let text = "no peer is configured".to_owned();
                found.push(NotReady { reason: Reason::PeerAbsent, text });
            }
        }
        found
    }
}

impl PeerStatus {
    fn not_ready(&self) -> NotReady {
        match &self.state {
            PeerState::Down { reason, detail } if detail.is_empty() => {
                NotReady { reason: *reason, text: format!("peer {} is down: {reason}", self.name) }
            }
            PeerState::Down { reason, detail } => {
                NotReady { reason: *reason, text: format!("peer {} is down: {detail}", self.name) }
            }
            _ => NotReady {
                reason: Reason::PeerAbsent,
                text: format!("peer {} at {} is not connected yet", self.name, self.address),
            },
        }
    }
}

impl StoreStatus {
    /// A store that could not be opened.
    pub fn unusable(why: impl Into<String>) -> StoreStatus {
        StoreStatus {
            state: StoreState::Unusable(why.into()),
            bytes: 0,
            cap_bytes: 0,
            chunks: 0,
            segments: 0,
            evicted_bytes: 0,
            quarantined: 0,
            cache_hits: 0,
            cache_misses: 0,
            encrypted: false,
            identity: String::new(),
            generation: 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn peer(name: &str, counters: PeerCounters) -> PeerStatus {
        PeerStatus {
            name: name.into(),
            address: "192.0.2.1:7810".into(),
            state: PeerState::Up,
            since: SystemTime::UNIX_EPOCH,
            rtt: Some(Duration::from_millis(236)),
            clock_ahead_ms: Some(-40),
            version: "0.1.0".into(),
            channels_busy: 2,
            channels_pooled: 6,
            counters,
        }
    }

    pub(crate) fn status(side: Side, peers: Vec<PeerStatus>) -> Status {
        Status {
            side,
            name: "branch".into(),
            version: "0.1.0".into(),
            started_at: SystemTime::UNIX_EPOCH,
            configuration: Vec::new(),
            peers,
            obstacle: None,
            store: StoreStatus { state: StoreState::Learning, ..StoreStatus::unusable("") },
            admission: AdmissionStatus { full: false, connections: 0, stop_at: 100, resume_at: 90 },
            certificates: Vec::new(),
            key_sources: Vec::new(),
            draining: false,
            inner: InnerStatus::default(),
            agent: None,
            location: None,
        }
    }

    #[test]
    fn a_client_without_a_peer_is_not_ready_and_a_server_is() {
        assert_eq!(status(Side::Client, Vec::new()).not_ready()[0].reason, Reason::PeerAbsent);
        assert_eq!(status(Side::Server, Vec::new()).not_ready(), Vec::new());
        let up = peer("dc", PeerCounters::default());
        assert_eq!(status(Side::Client, vec![up.clone()]).not_ready(), Vec::new());
        let down = PeerStatus {
            state: PeerState::Down { reason: Reason::PeerUnauthorised, detail: "expired".into() },
            ..up
        };
        let found = status(Side::Client, vec![down]).not_ready();
        assert_eq!(found[0].reason, Reason::PeerUnauthorised);
        assert!(found[0].text.contains("expired"));
    }

    #[test]
    fn every_obstacle_is_named() {
        let mut all = status(Side::Server, Vec::new());
        all.draining = true;
        all.admission.full = true;
        all.store = StoreStatus::unusable("wrong key");
        let reasons: Vec<_> = all.not_ready().into_iter().map(|found| found.reason).collect();
        assert_eq!(reasons, [Reason::Draining, Reason::StoreUnavailable, Reason::AdmissionFull]);
    }
}
