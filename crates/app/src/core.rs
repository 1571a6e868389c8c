//! What all connections of one proxy share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use isthmus_config::CompressionLevel;
use isthmus_reduction::content::{Addr, ContentStore, LedgerId};
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::{SLOTS_MAX, Similar};
use isthmus_store::{OpenError, Store, StoreKey};
use isthmus_telemetry::{Level, Telemetry};
use isthmus_types::{Domain, Side, StoreId};
use tokio::sync::{Notify, watch};

use crate::AppError;
use crate::admission::Admission;

/// Interval of telemetry's own clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Interval at which ledgers are looked through for content that the store has dropped.
const PRUNE: Duration = Duration::from_secs(30);

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
    /// Turns true when the proxy is told to stop.
    pub draining: watch::Sender<bool>,
    similar: Arc<Similar>,
    ledgers: Mutex<HashMap<LedgerId, Arc<PeerLedger>>>,
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
            draining: watch::Sender::new(false),
            similar: Arc::new(Similar::new(SLOTS_MAX)),
            ledgers: Mutex::default(),
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
    pub fn peer_ledger(&self, peer: StoreId, domain: &Domain) -> Option<Arc<PeerLedger>> {
        let StoreState::Open(store) = &self.store else { return None };
        match store.ledger(peer, domain) {
            Ok(id) => self.ledger_at(id),
            Err(error) => {
                self.telemetry.event(Level::Error, format!("no ledger for peer store {peer}: {error}"));
                None
            }
        }
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
        let mut evicted = 0;
        let mut since_prune = Duration::ZERO;
        loop {
            tick.tick().await;
            self.telemetry.tick(std::time::Instant::now());
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

fn open_store(config: &isthmus_config::Store) -> Result<(Store, isthmus_store::Replay), OpenError> {
    // Without encryption the key is still wanted if there is one: older segments may need it.
    let key = if config.encryption {
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
