use super::unix;
use crate::limits::PEER_ROWS_MAX;
use isthmus_telemetry::{PeerState, PeerStatus, StoreState, StoreStatus};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct PeersView {
    total: usize,
    peers: Vec<PeerView>,
}

#[derive(Serialize)]
struct PeerView {
    name: String,
    address: String,
    state: &'static str,
    reason: Option<&'static str>,
    reason_text: Option<String>,
    detail: Option<String>,
    since: f64,
    rtt_seconds: Option<f64>,
    clock_ahead_seconds: Option<f64>,
    version: String,
    channels_busy: u64,
    channels_pooled: u64,
    wan_sent: u64,
    wan_received: u64,
    link_failures: u64,
    resumes: u64,
}

/// All peers up to the limit, those that are down first, then by name.
pub(crate) fn peers(mut all: Vec<PeerStatus>) -> PeersView {
    let total = all.len();
    all.sort_by(|a, b| {
        let down = |peer: &PeerStatus| peer.state == PeerState::Up;
        (down(a), &a.name).cmp(&(down(b), &b.name))
    });
    all.truncate(PEER_ROWS_MAX);
    PeersView { total, peers: all.into_iter().map(PeerView::from).collect() }
}

impl From<PeerStatus> for PeerView {
    fn from(peer: PeerStatus) -> PeerView {
        let state = peer.state.label();
        let (reason, detail) = match peer.state {
            PeerState::Down { reason, detail } => (Some(reason), Some(detail)),
            PeerState::Up | PeerState::Connecting => (None, None),
        };
        PeerView {
            name: peer.name,
            address: peer.address,
            state,
            reason: reason.map(|reason| reason.label()),
            reason_text: reason.map(|reason| reason.to_string()),
            detail,
            since: unix(peer.since),
            rtt_seconds: peer.rtt.map(|rtt| rtt.as_secs_f64()),
            clock_ahead_seconds: peer.clock_ahead_ms.map(|ahead| ahead as f64 / 1_000.0),
            version: peer.version,
            channels_busy: peer.channels_busy,
            channels_pooled: peer.channels_pooled,
            wan_sent: peer.counters.wan_sent,
            wan_received: peer.counters.wan_received,
            link_failures: peer.counters.link_failures,
            resumes: peer.counters.resumes,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct StoreView {
    state: &'static str,
    why: Option<String>,
    bytes: u64,
    cap_bytes: u64,
    fill: Option<f64>,
    chunks: u64,
    segments: u64,
    evicted_bytes: u64,
    quarantined: u64,
    cache_hits: u64,
    cache_misses: u64,
    encrypted: bool,
    identity: String,
    generation: u64,
}

impl From<StoreStatus> for StoreView {
    fn from(store: StoreStatus) -> StoreView {
        let (state, why) = match store.state {
            StoreState::Learning => ("learning", None),
            StoreState::NotLearning(why) => ("not_learning", Some(why)),
            StoreState::Unusable(why) => ("unusable", Some(why)),
        };
        StoreView {
            state,
            why,
            bytes: store.bytes,
            cap_bytes: store.cap_bytes,
            fill: (store.cap_bytes > 0).then(|| store.bytes as f64 / store.cap_bytes as f64),
            chunks: store.chunks,
            segments: store.segments,
            evicted_bytes: store.evicted_bytes,
            quarantined: store.quarantined,
            cache_hits: store.cache_hits,
            cache_misses: store.cache_misses,
            encrypted: store.encrypted,
            identity: store.identity,
            generation: store.generation,
        }
    }
}
