//! What all connections of one proxy share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use isthmus_config::CompressionLevel;
use isthmus_net::{BEAT, PeerInfo, next_beat};
use isthmus_reduction::content::{Addr, ContentStore, LedgerId};
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::{SLOTS_MAX, Similar};
use isthmus_smb_session::{Bindings, Connection, KeySource, SessionTable};
use isthmus_store::{KEY_LEN, OpenError, Store, StoreKey};
use isthmus_telemetry::{Level, Telemetry};
use isthmus_types::limits::WINDOW_LAN_BYTES;
use isthmus_types::{Domain, Side, StoreId};
use tokio::sync::{Notify, watch};

use crate::AppError;
use crate::admission::Admission;
use crate::company::Company;
use crate::lanes::Stage;
use crate::mixed::{MIXED_TIME, Mixed};
use crate::watch::Watch;

/// Interval of telemetry's own clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Interval at which ledgers are looked through for content that the store has dropped.
const PRUNE: Duration = Duration::from_secs(30);

/// Names of peers whose stores are remembered, and stores of each, to tell when one is another than before.
const PEERS_NOTED_MAX: usize = 1024;
const STORES_NOTED_MAX: usize = 16;

/// File servers whose sessions are followed over several connections.
const SESSION_TABLES_MAX: usize = 1024;

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
    /// Empty while the key of an agent's store is awaited.
    store: OnceLock<StoreState>,
    waiting: StoreState,
    pub started: SystemTime,
    pub compression: CompressionLevel,
    /// LAN bytes that a direction may be ahead of what the peer has delivered.
    pub window: u64,
    /// Turns true when the proxy is told to stop.
    pub draining: watch::Sender<bool>,
    /// On the server side, who may be given session keys. Set before the first session.
    pub keys: std::sync::OnceLock<crate::keys::Keys>,
    /// Whether SMB is understood.
    smb: isthmus_config::Smb,
    /// How far round trips are removed, and where.
    policy: isthmus_smb_session::Policy,
    pub company: Arc<Company>,
    /// Clients of which not all users have keys.
    pub mixed: Mixed,
    /// Sessions on several connections.
    bindings: Arc<Bindings>,
    session_tables: Mutex<HashMap<String, Arc<SessionTable>>>,
    similar: Arc<Similar>,
    ledgers: Mutex<HashMap<LedgerId, Arc<PeerLedger>>>,
    /// The stores that each peer, by the name in its certificate, has had in this process's life.
    stores: Mutex<HashMap<String, Vec<StoreId>>>,
}

impl Core {
    /// A proxy's shared state without a store. New connections fail to wire until [`Core::open_store`] is called.
    pub fn new(
        side: Side,
        limits: &isthmus_config::Limits,
        compression: CompressionLevel,
        smb: &isthmus_config::Smb,
    ) -> Result<Core, AppError> {
        Ok(Core {
            side,
            telemetry: Telemetry::new(std::time::Instant::now())?,
            admission: Admission::new(limits.admission_on, limits.admission_off),
            store: OnceLock::new(),
            waiting: StoreState::Unusable(
                "the server side has not given its half of the store's key yet".into(),
            ),
            started: SystemTime::now(),
            compression,
            window: limits.window.bytes().min(WINDOW_LAN_BYTES),
            draining: watch::Sender::new(false),
            smb: smb.clone(),
            policy: crate::policy::policy(smb),
            company: Arc::default(),
            mixed: Mixed::default(),
            bindings: Bindings::new(),
            session_tables: Mutex::default(),
            keys: std::sync::OnceLock::new(),
            similar: Arc::new(Similar::new(SLOTS_MAX)),
            ledgers: Mutex::default(),
            stores: Mutex::default(),
        })
    }

    /// Opens the store and takes in what it remembers of peers; `half` is the half of its key that is not on this machine, if
    /// there is one. A store that cannot be read is no reason not to run: new connections then fail to wire. One that another
    /// process uses is. Only the first call counts.
    pub fn open_store(
        &self,
        store: &isthmus_config::Store,
        half: Option<&[u8; KEY_LEN]>,
    ) -> Result<(), AppError> {
        match open_store(store, half) {
            Ok((store, replay)) => {
                let _ = self.store.set(StoreState::Open(Arc::new(store)));
                let mut unreadable = 0u64;
                for (id, note) in replay {
                    let read = self.ledger_at(id).is_some_and(|ledger| ledger.shared.ledger.replay(&note));
                    unreadable += u64::from(!read);
                }
                if unreadable > 0 {
                    tracing::warn!(unreadable, "notes of the store could not be read; their content is cold");
                }
            }
            Err(error @ (OpenError::Locked { .. } | OpenError::Setting(_))) => return Err(error.into()),
            Err(error) => {
                let text = format!("the chunk store cannot be used, connections pass through: {error}");
                self.telemetry.event(Level::Error, &text);
                let _ = self.store.set(StoreState::Unusable(error.to_string()));
            }
        }
        Ok(())
    }

    /// The store, or why there is none.
    pub fn store(&self) -> &StoreState {
        self.store.get().unwrap_or(&self.waiting)
    }

    /// Whether opening the store has been tried.
    pub fn has_store(&self) -> bool {
        self.store.get().is_some()
    }

    /// The store's identity and generation, as said to peers.
    pub fn identity(&self) -> Option<(StoreId, u64)> {
        match self.store() {
            StoreState::Open(store) => Some((store.identity(), store.generation())),
            StoreState::Unusable(_) => None,
        }
    }

    /// What the SMB stage of a new connection needs; on the server side, with the file server and where session keys come from.
    /// `None` if SMB is not to be understood, or the operating system has no random bytes.
    /// `accelerated` says whether the other side may remove round trips too, `company` how many connections the client has to
    /// the server.
    pub fn stage(
        &self,
        server: Option<(String, Arc<dyn KeySource + Send + Sync>)>,
        accelerated: bool,
        company: Arc<AtomicUsize>,
    ) -> Option<Stage> {
        if !self.smb.enabled {
            return None;
        }
        let mut random = zeroize::Zeroizing::new([0; 32]);
        getrandom::fill(random.as_mut_slice()).ok()?;
        let (connection, keys) = match server {
            Some((server, keys)) => {
                (Connection::with_table(self.side, *random, self.session_table(server)), Some(keys))
            }
            None => (Connection::new(self.side, *random), None),
        };
        let accelerated = accelerated && !self.policy.is_off();
        if accelerated {
            connection.accelerate(self.policy.clone(), self.smb.early_close, self.bindings.clone(), company);
        }
        Some(Stage {
            connection,
            keys,
            changed: Arc::default(),
            accelerated,
            started: std::time::Instant::now(),
            lan_ready: Arc::default(),
            wan_ready: Arc::default(),
            counted: Arc::default(),
        })
    }

    /// Somebody without keys has logged on from a client over a connection whose round trips were removed.
    pub fn note_mixed(&self, client: IpAddr, target: String) {
        let text = format!(
            "somebody whose keys the server side does not have uses {target} from {client}, beside others: round trips are \
             not removed on connections of this client's for {} hours",
            MIXED_TIME.as_secs() / 3600
        );
        self.telemetry.event(Level::Warning, text);
        self.mixed.note(client, target);
    }

    /// The sessions of a file server, which several connections may share.
    fn session_table(&self, server: String) -> Arc<SessionTable> {
        let mut tables = self.session_tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.len() >= SESSION_TABLES_MAX {
            // Nobody else holds it: it has no connections.
            tables.retain(|_, table| Arc::strong_count(table) > 1);
        }
        if tables.len() >= SESSION_TABLES_MAX {
            return SessionTable::new();
        }
        tables.entry(server).or_default().clone()
    }

    /// The ledger of a peer and domain; `None` without a usable store.
    pub fn peer_ledger(&self, peer: &PeerInfo, domain: &Domain) -> Option<Arc<PeerLedger>> {
        let StoreState::Open(store) = self.store() else { return None };
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
        let StoreState::Open(store) = self.store() else { return None };
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
        let (mut evicted, mut watch) = (0, Watch::new());
        let mut pruned = Instant::now();
        loop {
            // With no connections there is little that changes.
            let open: u64 = self.telemetry.connections().totals().states.iter().sum();
            let pause = if open == 0 { BEAT * 2 } else { TICK };
            tokio::time::sleep_until(next_beat(pause)).await;
            self.telemetry.tick(std::time::Instant::now());
            watch.look(&self);
            if let (StoreState::Open(store), true) = (self.store(), pruned.elapsed() >= PRUNE) {
                pruned = Instant::now();
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
        let StoreState::Open(store) = self.store() else { return };
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

fn open_store(
    config: &isthmus_config::Store,
    half: Option<&[u8; KEY_LEN]>,
) -> Result<(Store, isthmus_store::Replay), OpenError> {
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
    let key = match (key, half) {
        (Some(key), Some(half)) => Some(key.combined(half)),
        (key, _) => key,
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
