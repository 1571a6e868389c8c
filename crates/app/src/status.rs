//! What the proxies tell telemetry and the console about themselves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use isthmus_net::WanCounters;
use isthmus_telemetry::{
    AdmissionStatus, CertificateKind, CertificateStatus, InnerStatus, PeerCounters, PeerState, PeerStatus,
    Source, Status, StoreState, StoreStatus,
};
use isthmus_types::{Reason, Side};

use crate::certificates::Certificates;
use crate::client::Client;
use crate::core::{self, Core};
use crate::server::Server;

/// The client-side proxy's view of itself.
pub(crate) struct ClientStatus {
    client: Weak<Client>,
    certificates: Certificates,
}

/// The server-side proxy's view of itself.
pub(crate) struct ServerStatus {
    server: Weak<Server>,
    certificates: Certificates,
}

impl ClientStatus {
    pub fn new(client: &Arc<Client>) -> ClientStatus {
        ClientStatus { client: Arc::downgrade(client), certificates: Certificates::new(&client.config.tls) }
    }
}

impl ServerStatus {
    pub fn new(server: &Arc<Server>) -> ServerStatus {
        ServerStatus { server: Arc::downgrade(server), certificates: Certificates::new(&server.config.tls) }
    }
}

impl Source for ClientStatus {
    fn status(&self) -> Status {
        let Some(client) = self.client.upgrade() else { return ended(Side::Client) };
        let config = &client.config;
        let mut status = common(&client.core, self.certificates.list());
        status.configuration = vec![
            ("peer.address".into(), config.peer.address.to_string()),
            ("rules".into(), config.rules.iter().count().to_string()),
            ("store.path".into(), config.store.path.display().to_string()),
            ("store.size".into(), config.store.size.to_string()),
        ];
        status.peers = vec![client_peer(&client)];
        let wan = &client.link.wan;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        status.inner = InnerStatus {
            unauthorised: value(&wan.failed_unauthorised),
            incompatible: value(&wan.failed_incompatible),
            garbage: value(&wan.failed_garbage),
            ..InnerStatus::default()
        };
        status
    }
}

fn client_peer(client: &Client) -> PeerStatus {
    let address = client.config.peer.address.to_string();
    let wan = &client.link.wan;
    let mut peer = PeerStatus {
        name: client.config.peer.server_name.clone(),
        address,
        state: PeerState::Connecting,
        since: client.core.started,
        rtt: None,
        version: String::new(),
        channels_busy: 0,
        channels_pooled: 0,
        counters: counters(wan),
    };
    // Only for a moment at the start is it held for writing.
    let Ok(dialer) = client.link.dialer.try_read() else { return peer };
    let Some(dialer) = dialer.as_ref() else {
        let problem = client.link.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        peer.state = PeerState::Down { reason: problem.0, detail: problem.1 };
        return peer;
    };
    peer.channels_pooled = dialer.pooled() as u64;
    peer.channels_busy = wan.channels.load(Ordering::Relaxed).saturating_sub(peer.channels_pooled);
    describe(&mut peer, &dialer.state());
    peer
}

impl Source for ServerStatus {
    fn status(&self) -> Status {
        let Some(server) = self.server.upgrade() else { return ended(Side::Server) };
        let config = &server.config;
        let mut status = common(&server.core, self.certificates.list());
        status.configuration = vec![
            ("listen.address".into(), config.listen.to_string()),
            ("allow".into(), config.allow.iter().count().to_string()),
            ("store.path".into(), config.store.path.display().to_string()),
            ("store.size".into(), config.store.size.to_string()),
        ];
        let problem = server.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        status.obstacle =
            problem.map(|detail| (Reason::PeerUnauthorised, format!("peers cannot connect: {detail}")));
        let Some(acceptor) = server.acceptor.get() else { return status };
        for known in acceptor.peers() {
            let mut peer = PeerStatus {
                name: known.info.name.clone(),
                address: known.info.address.to_string(),
                state: PeerState::Connecting,
                since: known.info.since,
                rtt: None,
                version: known.info.software.clone(),
                channels_busy: known.wan.channels.load(Ordering::Relaxed),
                channels_pooled: 0,
                counters: counters(&known.wan),
            };
            describe(&mut peer, &known.state);
            status.peers.push(peer);
        }
        let unknown = acceptor.unattributed();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        status.inner = InnerStatus {
            wan_sent: value(&unknown.sent),
            wan_received: value(&unknown.received),
            unauthorised: value(&unknown.failed_unauthorised),
            incompatible: value(&unknown.failed_incompatible),
            garbage: value(&unknown.failed_garbage) + value(&unknown.protocol_errors),
            timeouts: value(&unknown.failed_timeout),
            refused: value(&unknown.failed_refused),
        };
        status
    }
}

fn describe(peer: &mut PeerStatus, state: &isthmus_net::PeerState) {
    match state {
        isthmus_net::PeerState::Connected(info) => {
            peer.name.clone_from(&info.name);
            peer.state = PeerState::Up;
            peer.since = info.since;
            peer.version.clone_from(&info.software);
            peer.rtt = Some(info.round_trip()).filter(|rtt| *rtt > Duration::ZERO);
        }
        isthmus_net::PeerState::Down { reason, detail, since } => {
            peer.state = PeerState::Down { reason: *reason, detail: detail.clone() };
            peer.since = *since;
        }
    }
}

fn counters(wan: &WanCounters) -> PeerCounters {
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    PeerCounters {
        wan_sent: value(&wan.sent),
        wan_received: value(&wan.received),
        link_failures: value(&wan.links_lost),
        resumes: value(&wan.channels_resumed),
        handshakes: value(&wan.handshakes_full) + value(&wan.handshakes_resumed),
    }
}

fn common(core: &Core, certificates: Vec<(CertificateKind, String, SystemTime)>) -> Status {
    let (full, connections) = core.admission.state();
    let (stop_at, resume_at) = core.admission.thresholds();
    Status {
        side: core.side,
        name: hostname(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: core.started,
        configuration: Vec::new(),
        peers: Vec::new(),
        obstacle: None,
        store: store(core),
        admission: AdmissionStatus { full, connections, stop_at, resume_at },
        certificates: certificates
            .into_iter()
            .map(|(kind, subject, expires_at)| CertificateStatus { kind, subject, expires_at })
            .collect(),
        draining: *core.draining.borrow(),
        inner: InnerStatus::default(),
    }
}

/// The status of a proxy that is just going away.
fn ended(side: Side) -> Status {
    Status {
        side,
        name: hostname(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at: SystemTime::now(),
        configuration: Vec::new(),
        peers: Vec::new(),
        obstacle: None,
        store: StoreStatus::unusable(Reason::Draining.to_string()),
        admission: AdmissionStatus::default(),
        certificates: Vec::new(),
        draining: true,
        inner: InnerStatus::default(),
    }
}

fn store(core: &Core) -> StoreStatus {
    let store = match &core.store {
        core::StoreState::Open(store) => store,
        core::StoreState::Unusable(why) => return StoreStatus::unusable(why),
    };
    let stats = store.stats();
    let state = match stats.learning {
        isthmus_store::Learning::On => StoreState::Learning,
        other => StoreState::NotLearning(other.label().replace('_', " ")),
    };
    StoreStatus {
        state,
        bytes: stats.disk_bytes,
        cap_bytes: stats.cap_bytes,
        chunks: stats.chunks,
        segments: stats.segments,
        evicted_bytes: stats.evicted_bytes,
        quarantined: stats.quarantined,
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        encrypted: stats.encrypted,
        identity: stats.identity.to_string(),
        generation: stats.generation,
    }
}

fn hostname() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}
