//! What the proxies tell telemetry and the console about themselves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use isthmus_net::WanCounters;
use isthmus_telemetry::{
    AdmissionStatus, CertificateKind, CertificateStatus, Ends, FleetMember, InnerStatus, LinkError, LinkList,
    PeerCounters, PeerState, PeerStatus, Source, Status, StoreState, StoreStatus, links,
};
use isthmus_types::{Reason, Side};

use crate::certificates::Certificates;
use crate::client::Client;
use crate::core::{self, Core};
use crate::link::{Slot, Target};
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
        ClientStatus {
            client: Arc::downgrade(client),
            certificates: Certificates::new(&client.config.load().tls),
        }
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
        let config = client.config.load_full();
        let mut status = common(&client.core, self.certificates.list());
        status.configuration = vec![
            ("peer.address".into(), config.peer.address.to_string()),
            ("rules".into(), config.rules.iter().count().to_string()),
            ("intercept.mode".into(), interception(&client)),
            ("smb.enabled".into(), config.smb.enabled.to_string()),
            ("store.path".into(), config.store.path.display().to_string()),
            ("store.size".into(), config.store.size.to_string()),
        ];
        let active = client.link.active().is_some();
        // A backup is dialled when it is needed; before that there is nothing to say about it.
        let shown = client.link.list().into_iter().enumerate();
        let shown = shown.filter(|(index, (_, slot))| slot.is_some() || (*index == 0 && !active));
        status.peers = shown.map(|(_, (target, slot))| client_peer(&client, &target, slot)).collect();
        if status.peers.is_empty() {
            let peer = &config.peer;
            let target = Target { address: peer.address.clone(), server_name: peer.server_name.clone() };
            status.peers.push(client_peer(&client, &target, None));
        }
        let failures = client.link.failures();
        status.inner = InnerStatus {
            unauthorised: failures.unauthorised,
            incompatible: failures.incompatible,
            garbage: failures.garbage,
            ..InnerStatus::default()
        };
        status.agent = client.agent.as_ref().map(|agent| agent.status());
        status.location = client.whereabouts.status();
        status
    }

    fn links(&self) -> Result<LinkList, LinkError> {
        let client = self.client.upgrade().ok_or(LinkError::NoPeer)?;
        match client.link.active().map(|slot| slot.dialer.state()) {
            Some(isthmus_net::PeerState::Connected(info)) => links(Ends::To(info.address)),
            _ => Err(LinkError::NoPeer),
        }
    }
}

/// The mode, and whether its rules are in place if this process keeps them.
fn interception(client: &Client) -> String {
    let mode = client.config.load().intercept.mode;
    match client.keeper.get() {
        Some(keeper) if keeper.is_in_place() => format!("{mode}, rules in place"),
        Some(_) => format!("{mode}, rules lost: connections pass by"),
        None => mode.to_string(),
    }
}

fn client_peer(client: &Client, target: &Target, slot: Option<Arc<Slot>>) -> PeerStatus {
    let mut peer = PeerStatus {
        name: target.server_name.clone(),
        address: target.address.to_string(),
        state: PeerState::Connecting,
        since: slot.as_ref().map_or(client.core.started, |slot| slot.since),
        rtt: None,
        clock_ahead_ms: None,
        version: String::new(),
        channels_busy: 0,
        channels_pooled: 0,
        counters: slot.as_ref().map(|slot| counters(&slot.wan)).unwrap_or_default(),
    };
    let Some(slot) = slot else {
        let (reason, detail) = client.link.problem();
        peer.state = PeerState::Down { reason, detail };
        return peer;
    };
    let dialer = &slot.dialer;
    peer.channels_pooled = dialer.pooled() as u64;
    peer.channels_busy = slot.wan.channels.load(Ordering::Relaxed).saturating_sub(peer.channels_pooled);
    describe(&mut peer, &dialer.state());
    if dialer.is_suspect() && peer.state == PeerState::Up {
        peer.state =
            PeerState::Down { reason: Reason::PeerAbsent, detail: "the peer has gone silent".to_owned() };
    }
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
            ("smb.enabled".into(), config.smb.enabled.to_string()),
            ("keys.release".into(), config.keys.releases.rules.len().to_string()),
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
                clock_ahead_ms: known.info.clock_ahead_ms,
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

    fn links(&self) -> Result<LinkList, LinkError> {
        let server = self.server.upgrade().ok_or(LinkError::NoPeer)?;
        let acceptor = server.acceptor.get().ok_or(LinkError::NoPeer)?;
        links(Ends::At(acceptor.local_addr().port()))
    }

    fn fleet(&self) -> Vec<FleetMember> {
        let Some(server) = self.server.upgrade() else { return Vec::new() };
        let peers = server.acceptor.get().map(|acceptor| acceptor.peers()).unwrap_or_default();
        match &server.fleet {
            Some(fleet) => fleet.members(&peers),
            None => crate::fleet::gateways(&peers),
        }
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
            peer.clock_ahead_ms = info.clock_ahead_ms;
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
        key_sources: core.keys.get().map(crate::keys::Keys::sources).unwrap_or_default(),
        draining: *core.draining.borrow(),
        inner: InnerStatus::default(),
        agent: None,
        location: None,
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
        key_sources: Vec::new(),
        draining: true,
        inner: InnerStatus::default(),
        agent: None,
        location: None,
    }
}

fn store(core: &Core) -> StoreStatus {
    let store = match core.store() {
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

pub(crate) fn hostname() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}
