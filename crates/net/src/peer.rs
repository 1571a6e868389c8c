use isthmus_tunnel::Instance;
use isthmus_types::{Reason, Side, StoreId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// What this process says about itself in a hello.
#[derive(Clone, Debug)]
pub struct LocalHello {
    /// Identity of the local chunk store.
    pub store: StoreId,
    /// The store's generation.
    pub generation: u64,
    /// This process: random bytes, drawn at start.
    pub instance: Instance,
    /// Oldest and newest protocol version spoken. Use [`LocalHello::VERSIONS`].
    pub versions: (u16, u16),
    /// Bit set of optional features.
    pub capabilities: u64,
    /// Software version, for people.
    pub software: String,
}

impl LocalHello {
    /// The protocol versions of this build.
    pub const VERSIONS: (u16, u16) =
        (isthmus_tunnel::PROTOCOL_VERSION_MIN, isthmus_tunnel::PROTOCOL_VERSION_MAX);

    /// A hello of this build with a fresh instance.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn new(store: StoreId, generation: u64) -> Result<LocalHello, getrandom::Error> {
        let mut instance = Instance::default();
        getrandom::fill(&mut instance)?;
        Ok(LocalHello {
            store,
            generation,
            instance,
            versions: LocalHello::VERSIONS,
            capabilities: 0,
            software: concat!("isthmus ", env!("CARGO_PKG_VERSION")).into(),
        })
    }
}

/// The proxy at the other end, as its certificate and its hello describe it.
#[derive(Debug)]
pub struct PeerInfo {
    /// Common name of the certificate.
    pub name: String,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// The peer's side, as its certificate and hello agree.
    pub role: Side,
    /// Identity of the peer's chunk store.
    pub store: StoreId,
    /// The generation of the peer's store when it said hello.
    pub generation: u64,
    /// The peer's process.
    pub instance: Instance,
    /// The protocol version agreed on.
    pub version: u16,
    /// The features that both sides have.
    pub capabilities: u64,
    /// The peer's software version, for people.
    pub software: String,
    /// The far end of the control channel's socket.
    pub address: SocketAddr,
    /// When the control channel came up.
    pub since: SystemTime,
    /// How far the peer's clock was ahead of this one then, in milliseconds; `None` if it does not say.
    pub clock_ahead_ms: Option<i64>,
    pub(crate) round_trip_us: AtomicU64,
}

impl PeerInfo {
    /// Smoothed round-trip time of the control channel; zero until measured.
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.load(Ordering::Relaxed))
    }
}

/// Whether the peer can be used now.
#[derive(Clone, Debug)]
pub enum PeerState {
    /// The control channel is up.
    Connected(Arc<PeerInfo>),
    /// It is not.
    Down {
        /// Why, as a word.
        reason: Reason,
        /// Why, for people, with what to do about it where that is known.
        detail: String,
        /// Since when.
        since: SystemTime,
    },
}

impl PeerState {
    /// Down, as of now.
    pub fn down(reason: Reason, detail: impl Into<String>) -> PeerState {
        PeerState::Down { reason, detail: detail.into(), since: SystemTime::now() }
    }
}
