//! What all connections of one proxy share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use isthmus_config::CompressionLevel;
use isthmus_net::PeerInfo;
use isthmus_reduction::content::{Addr, ContentStore, LedgerId};
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::{SLOTS_MAX, Similar};
use isthmus_store::{OpenError, Store, StoreKey};
use isthmus_telemetry::{Level, Telemetry};
use isthmus_types::limits::WINDOW_LAN_BYTES;
use isthmus_types::{Domain, Side, StoreId};
use tokio::sync::{Notify, watch};

use crate::AppError;
use crate::admission::Admission;
use crate::watch::Watch;

/// Interval of telemetry's own clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Interval at which ledgers are looked through for content that the store has dropped.
const PRUNE: Duration = Duration::from_secs(30);

/// Names of peers whose stores are remembered, and stores of each, to tell when one is another than before.
const PEERS_NOTED_MAX: usize = 1024;
const STORES_NOTED_MAX: usize = 16;

/// The ledger of one peer and domain, and a bell that rings when it has grown.
pub(crate) struct PeerLedger {
    pub shared: Shared,
    pub changed: Notify,
}

/// The store, or why there is none.
pub(crate) enum StoreState {
    Open(Arc<Store>),
    Unusable(String),
}

/// One proxy's shared state.
pub(crate) struct Core {
    pub side: Side,
    pub telemetry: Arc<Telemetry>,
    pub admission: Admission,
    pub store: StoreState,
    pub started: SystemTime,
    pub compression: CompressionLevel,
    /// LAN bytes that a direction may be ahead of what the peer has delivered.
    pub window: u64,
    /// Turns true when the proxy is told to stop.
    pub draining: watch::Sender<bool>,
    similar: Arc<Similar>,
    ledgers: Mutex<HashMap<LedgerId, Arc<PeerLedger>>>,
    /// The stores that each peer, by the name in its certificate, has had in this process's life.
    stores: Mutex<HashMap<String, Vec<StoreId>>>,
}

impl Core {
    /// Opens the store and takes in what it remembers of peers. A store that cannot be read is no reason not to run: new
    /// connections then fail to wire. One that another process uses is.
    pub fn start(
        side: Side,
        store: &isthmus_config::Store,
        limits: &isthmus_config::Limits,
        compression: CompressionLevel,
    ) -> Result<Arc<Core>, AppError> {
        let telemetry = Telemetry::new(std::time::Instant::now())?;
        let mut core = Core {
            side,
            telemetry,
            admission: Admission::new(limits.admission_on, limits.admission_off),
            store: StoreState::Unusable("not opened yet".into()),
            started: SystemTime::now(),
            compression,
            window: limits.window.bytes().min(WINDOW_LAN_BYTES),
            draining: watch::Sender::new(false),
            similar: Arc::new(Similar::new(SLOTS_MAX)),
            ledgers: Mutex::default(),
            stores: Mutex::default(),
        };
        match open_store(store) {
            Ok((store, replay)) => {
                core.store = StoreState::Open(Arc::new(store));
                let mut unreadable = 0u64;
                for (id, note) in replay {
                    let read = core.ledger_at(id).is_some_and(|ledger| ledger.shared.ledger.replay(&note));
                    unreadable += u64::from(!read);
                }
                if unreadable > 0 {
                    tracing::warn!(unreadable, "notes of the store could not be read; their content is cold");
                }
            }
            Err(error @ (OpenError::Locked { .. } | OpenError::Setting(_))) => return Err(error.into()),
            Err(error) => {
                let text = format!("the chunk store cannot be used, connections pass through: {error}");
                core.telemetry.event(Level::Error, &text);
                core.store = StoreState::Unusable(error.to_string());
            }
        }
        Ok(Arc::new(core))
    }

    /// The store's identity and generation, as said to peers.
    pub fn identity(&self) -> Option<(StoreId, u64)> {
        match &self.store {
            StoreState::Open(store) => Some((store.identity(), store.generation())),
            StoreState::Unusable(_) => None,
        }
    }

    /// The ledger of a peer and domain; `None` without a usable store.
    pub fn peer_ledger(&self, peer: &PeerInfo, domain: &Domain) -> Option<Arc<PeerLedger>> {
        let StoreState::Open(store) = &self.store else { return None };
        match store.ledger(ledger_owner(&peer.name, peer.store), domain) {
            Ok(id) => self.ledger_at(id),
            Err(error) => {
                let text = format!("no ledger for {} with store {}: {error}", peer.name, peer.store);
                self.telemetry.event(Level::Error, text);
                None
            }
        }
    }

    /// Tells people when a peer comes with another store than before.
    pub fn note_peer(&self, peer: &PeerInfo) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if stores.len() >= PEERS_NOTED_MAX && !stores.contains_key(&peer.name) {
            return;
        }
        let known = stores.entry(peer.name.clone()).or_default();
        if known.contains(&peer.store) {
            return;
        }
        if !known.is_empty() {
            let text = format!(
                "peer {}: its store {} is another one than before; what was exchanged with the old one is cold",
                peer.name, peer.store
            );
            self.telemetry.event(Level::Warning, text);
        }
        known.truncate(STORES_NOTED_MAX - 1);
        known.insert(0, peer.store);
    }

    fn ledger_at(&self, id: LedgerId) -> Option<Arc<PeerLedger>> {
        let StoreState::Open(store) = &self.store else { return None };
        let make = || {
            let shared = Shared {
                store: store.clone(),
                ledger: Arc::new(Ledger::new()),
                ledger_id: id,
                similar: self.similar.clone(),
            };
            Arc::new(PeerLedger { shared, changed: Notify::new() })
        };
        Some(self.lock().entry(id).or_insert_with(make).clone())
    }

    /// Runs the clocks of telemetry and of the ledgers until it is dropped.
    pub async fn keep_time(self: Arc<Core>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut evicted, mut watch) = (0, Watch::new());
        let mut since_prune = Duration::ZERO;
        loop {
            tick.tick().await;
            self.telemetry.tick(std::time::Instant::now());
            watch.look(&self);
            since_prune += TICK;
            if let (StoreState::Open(store), true) = (&self.store, since_prune >= PRUNE) {
                since_prune = Duration::ZERO;
                let now = store.stats().evicted_bytes;
                if now != evicted {
                    evicted = now;
                    let core = self.clone();
                    // Looks at every extent: not for a worker thread.
                    let _ = tokio::task::spawn_blocking(move || core.prune()).await;
                }
            }
        }
    }

    fn prune(&self) {
        let StoreState::Open(store) = &self.store else { return };
        let ledgers: Vec<_> = self.lock().values().cloned().collect();
        for ledger in ledgers {
            ledger.shared.ledger.prune(|addr: Addr| store.is_live(addr));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LedgerId, Arc<PeerLedger>>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Under whose name the store keeps a peer's ledger. What a peer says about its store is only a claim: the name in its
/// certificate makes sure that nobody comes by what was exchanged with somebody else.
fn ledger_owner(name: &str, store: StoreId) -> StoreId {
    let mut hasher = blake3::Hasher::new_derive_key("isthmus ledger owner v1");
    hasher.update(&store.0).update(name.as_bytes());
    let mut owner = [0; 16];
    owner.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    StoreId(owner)
}

fn open_store(config: &isthmus_config::Store) -> Result<(Store, isthmus_store::Replay), OpenError> {
    // Without encryption the key is still wanted if there is one: older segments may need it.
    let key = if config.encryption {
        if let Some(folder) = config.key_file.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|source| OpenError::Io { file: folder.to_owned(), source })?;
        }
        Some(StoreKey::load_or_create(&config.key_file)?)
    } else if config.key_file.exists() {
        Some(StoreKey::load(&config.key_file)?)
    } else {
        None
    };
    let mut open = isthmus_store::Config::new(&config.path, config.size.bytes(), key);
    open.encrypt = config.encryption;
    open.cache_bytes = usize::try_from(config.cache.bytes()).unwrap_or(usize::MAX);
    open.free_floor_bytes = config.reserve.bytes();
    Store::open(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_belongs_to_a_name_and_a_store() {
        let store = |n| StoreId([n; 16]);
        assert_eq!(ledger_owner("alice", store(1)), ledger_owner("alice", store(1)));
        assert_ne!(ledger_owner("alice", store(1)), ledger_owner("bob", store(1)));
        assert_ne!(ledger_owner("alice", store(1)), ledger_owner("alice", store(2)));
    }
}
