//! Connections that pass through though the pair could carry them: they are older than the peer, or than interception.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use isthmus_intercept::{Flow, Held, Plan};
use isthmus_telemetry::{ConnectionHandle, ConnectionInfo, ConnectionState, Level, Protocol};
use isthmus_types::Reason;
use tokio::sync::Notify;

use crate::core::Core;

/// Connections that are reset in one step, and the pause between steps: clients must not all come back at once.
const RESETS_PER_STEP: usize = 100;
const STEP: Duration = Duration::from_secs(1);
/// Looks for connections that pass by the proxy: while there are some or it has just begun, and otherwise.
const LOOK_OFTEN: Duration = Duration::from_secs(5);
const LOOK_SELDOM: Duration = Duration::from_secs(60);
/// Looks that count as the beginning.
const LOOKS_OFTEN: usize = 12;
/// Connections passing by that are listed at most.
const FLOWS_LISTED_MAX: usize = 1_000;

/// What became of a connection that was optimised too late.
pub(crate) const RESET: &str = "reset so that it comes back optimised";
const MADE_BEFORE_PEER: &str = "made while there was no peer; it is optimised when it is made anew";
const MADE_BEFORE_RULES: &str =
    "made before interception began, and passing by; it is optimised when it is made anew";

/// The connections that are relayed since the peer could not be used when they were made.
#[derive(Default)]
pub(crate) struct Passing {
    entries: Mutex<HashMap<u64, Entry>>,
}

#[derive(Clone)]
struct Entry {
    handle: Arc<ConnectionHandle>,
    reset: Arc<Notify>,
    is_marked: bool,
}

/// A connection's place in the list; it leaves when this is dropped.
pub(crate) struct Place<'p> {
    passing: &'p Passing,
    id: u64,
    /// Rings when the connection is to be reset.
    pub reset: Arc<Notify>,
}

impl Passing {
    /// Enters a connection, if its reason is one that may go away.
    pub fn enter(&self, handle: &Arc<ConnectionHandle>, reason: Reason) -> Option<Place<'_>> {
        let may_end =
            matches!(reason, Reason::PeerAbsent | Reason::PeerUnauthorised | Reason::PeerIncompatible);
        if !may_end {
            return None;
        }
        let entry = Entry { handle: handle.clone(), reset: Arc::default(), is_marked: false };
        let place = Place { passing: self, id: handle.id(), reset: entry.reset.clone() };
        self.lock().insert(handle.id(), entry);
        Some(place)
    }

    /// The peer can be used again: what was made without it is pre-existing now, and reset if `resets`.
    pub async fn peer_is_back(&self, core: &Core, resets: bool) {
        let found: Vec<Entry> = {
            let mut entries = self.lock();
            let unmarked = entries.values_mut().filter(|entry| !entry.is_marked);
            unmarked
                .map(|entry| {
                    entry.is_marked = true;
                    entry.clone()
                })
                .collect()
        };
        if found.is_empty() {
            return;
        }
        for entry in &found {
            entry.handle.set_state_because(
                ConnectionState::PassThrough,
                Reason::PreExisting,
                MADE_BEFORE_PEER,
            );
        }
        let what = if resets { "they are reset" } else { "they go on as they are" };
        let text = format!("{} connections were made while there was no peer; {what}", found.len());
        core.telemetry.event(Level::Info, text);
        if resets {
            for some in found.chunks(RESETS_PER_STEP) {
                some.iter().for_each(|entry| entry.reset.notify_one());
                tokio::time::sleep(STEP).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.passing.lock().remove(&self.id);
    }
}

/// Lists the connections that pass by the proxy since they are older than its rules, as long as it runs.
pub(crate) async fn list_passing_by(core: Arc<Core>, plan: Plan) {
    let mut listed: HashMap<Flow, ConnectionHandle> = HashMap::new();
    let mut looks = 0_usize;
    loop {
        let pause = if looks < LOOKS_OFTEN || !listed.is_empty() { LOOK_OFTEN } else { LOOK_SELDOM };
        tokio::time::sleep(pause).await;
        looks = looks.saturating_add(1);
        let plan = plan.clone();
        // Runs a program: not for a worker thread. What fails is tried again at the next look.
        let Ok(Ok(flows)) = tokio::task::spawn_blocking(move || Held::passing_by(&plan)).await else {
            continue;
        };
        let flows: BTreeSet<Flow> = flows.into_iter().take(FLOWS_LISTED_MAX).collect();
        listed.retain(|flow, _| flows.contains(flow));
        for flow in flows {
            listed.entry(flow).or_insert_with(|| enter(&core, flow));
        }
    }
}

fn enter(core: &Core, flow: Flow) -> ConnectionHandle {
    let handle = core.telemetry.connections().register(ConnectionInfo {
        client: flow.client,
        target: flow.target.to_string(),
        protocol: Protocol::from_port(flow.target.port()),
        peer: String::new(),
        rule: String::new(),
        opened_at: SystemTime::now(),
    });
    handle.set_state_because(ConnectionState::PassThrough, Reason::PreExisting, MADE_BEFORE_RULES);
    handle
}
