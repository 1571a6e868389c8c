use crate::engine::{Acceleration, Accelerator, TracedRequest};
use crate::ledger::{ConnectionLedger, LedgerValues};
use crate::limits::{CLOSED_LISTED_MAX, CONNECTIONS_LISTED_MAX, LINGERING_MAX, TEXT_CHARS_MAX};
use crate::peers::PeerLabels;
use crate::protocol::Protocol;
use crate::smb::{SmbInfo, SmbProgress, SmbState, SmbTotals};
use crate::{lock, text};
use isthmus_types::Reason;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// What is known of an outer connection when it is accepted.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The application's end on the client's side of the pair.
    pub client: SocketAddr,
    /// The server it wants, as `host:port`.
    pub target: String,
    pub protocol: Protocol,
    /// Name of the peer that carries it; empty while there is none (see [`ConnectionHandle::set_peer`]).
    pub peer: String,
    /// The in-path rule or allow entry that matched, as the configuration names it.
    pub rule: String,
    pub opened_at: SystemTime,
}

/// What is being done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum ConnectionState {
    /// Accepted; the far side has not answered yet.
    Opening = 0,
    Optimised = 1,
    /// Reduced, by rule or for want of more, and nothing else.
    ReduceOnly = 2,
    /// Relayed directly, untouched.
    PassThrough = 3,
    Denied = 4,
    /// Its link died; both ends wait for a new one.
    Resuming = 5,
    /// Being let to its end before the proxy stops.
    Draining = 6,
    Closed = 7,
}

impl ConnectionState {
    pub const ALL: [ConnectionState; 8] = [
        ConnectionState::Opening,
        ConnectionState::Optimised,
        ConnectionState::ReduceOnly,
        ConnectionState::PassThrough,
        ConnectionState::Denied,
        ConnectionState::Resuming,
        ConnectionState::Draining,
        ConnectionState::Closed,
    ];

    /// Metric label and JSON word.
    pub fn label(self) -> &'static str {
        match self {
            ConnectionState::Opening => "opening",
            ConnectionState::Optimised => "optimised",
            ConnectionState::ReduceOnly => "reduce_only",
            ConnectionState::PassThrough => "pass_through",
            ConnectionState::Denied => "denied",
            ConnectionState::Resuming => "resuming",
            ConnectionState::Draining => "draining",
            ConnectionState::Closed => "closed",
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Optimised,
    ReduceOnly,
    PassThrough,
    Denied,
    /// The application at either end reset it.
    Reset,
    Failed,
}

impl Outcome {
    /// Metric label and JSON word.
    pub fn label(self) -> &'static str {
        match self {
            Outcome::Optimised => "optimised",
            Outcome::ReduceOnly => "reduce_only",
            Outcome::PassThrough => "pass_through",
            Outcome::Denied => "denied",
            Outcome::Reset => "reset",
            Outcome::Failed => "failed",
        }
    }
}

/// A connection as the console shows it.
#[derive(Clone, Debug)]
pub struct ConnectionSnapshot {
    pub id: u64,
    pub client: SocketAddr,
    pub target: String,
    pub protocol: Protocol,
    pub peer: String,
    pub rule: String,
    pub opened_at: SystemTime,
    /// How long it has been open, or was. Taken from the monotonic clock.
    pub age: Duration,
    pub state: ConnectionState,
    pub reason: Option<Reason>,
    /// More about the reason, in words; may be empty.
    pub detail: String,
    /// Set once it is closed.
    pub outcome: Option<Outcome>,
    /// What is known of SMB on it.
    pub smb: Option<SmbInfo>,
    /// Whether round trips are removed on it, while it is open and SMB is understood.
    pub acceleration: Option<Acceleration>,
    pub ledger: LedgerValues,
}

/// What sums are kept by: the label of the peer, and the protocol.
pub type LedgerKey = (Arc<str>, Protocol);

/// Everything the table has counted: live connections and closed ones together.
#[derive(Clone, Debug, Default)]
pub struct TableTotals {
    /// Sums by peer label and protocol.
    pub ledgers: BTreeMap<LedgerKey, LedgerValues>,
    /// Live connections by state, in the order of [`ConnectionState::ALL`]. Closed ones are not among them.
    pub states: [u64; 8],
    /// Closed connections by outcome and reason.
    pub outcomes: BTreeMap<(Outcome, Option<Reason>), u64>,
    /// Connections that were passed through or denied, by reason.
    pub not_optimised: BTreeMap<Reason, u64>,
    /// SMB connections and sessions.
    pub smb: SmbTotals,
}

impl TableTotals {
    /// The sum over all peers and protocols.
    pub fn sum(&self) -> LedgerValues {
        self.ledgers.values().fold(LedgerValues::default(), |mut sum, values| {
            sum += *values;
            sum
        })
    }
}

/// The outer connections of this proxy: those that are open, the last that closed, and the sums over all there were.
pub struct ConnectionTable {
    table: Mutex<Table>,
    labels: Arc<Mutex<PeerLabels>>,
}

#[derive(Default)]
struct Table {
    last_id: u64,
    live: HashMap<u64, Arc<Entry>>,
    closed: VecDeque<ConnectionSnapshot>,
    /// Ledgers of closed connections that a task may still write to; folded when no one else holds them.
    lingering: VecDeque<(LedgerKey, Arc<ConnectionLedger>)>,
    folded: BTreeMap<LedgerKey, LedgerValues>,
    outcomes: BTreeMap<(Outcome, Option<Reason>), u64>,
    not_optimised: BTreeMap<Reason, u64>,
    smb_sessions: BTreeMap<SmbState, u64>,
}

struct Entry {
    id: u64,
    info: ConnectionInfo,
    opened: Instant,
    ledger: Arc<ConnectionLedger>,
    accelerator: OnceLock<Arc<dyn Accelerator>>,
    progress: Mutex<Progress>,
}

struct Progress {
    state: ConnectionState,
    /// The last state that says how the bytes are carried, for the outcome.
    mode: Option<ConnectionState>,
    peer: String,
    /// Under which name the peer stands in the sums.
    label: Arc<str>,
    reason: Option<Reason>,
    detail: String,
    failed: bool,
    counted: bool,
    smb: SmbProgress,
}

/// An open connection in the table. Dropping it closes the entry; its ledger may be written to even later, by tasks
/// that still hold it, and nothing of that is lost.
pub struct ConnectionHandle {
    table: Arc<ConnectionTable>,
    entry: Arc<Entry>,
}

impl ConnectionTable {
    pub(crate) fn new(labels: Arc<Mutex<PeerLabels>>) -> ConnectionTable {
        ConnectionTable { table: Mutex::default(), labels }
    }

    /// Enters a connection, in state [`ConnectionState::Opening`].
    pub fn register(self: &Arc<Self>, mut info: ConnectionInfo) -> ConnectionHandle {
        info.target = text::clean(&info.target, TEXT_CHARS_MAX);
        info.rule = text::clean(&info.rule, TEXT_CHARS_MAX);
        let progress = Progress {
            state: ConnectionState::Opening,
            mode: None,
            peer: info.peer.clone(),
            label: lock(&self.labels).label(&info.peer),
            reason: None,
            detail: String::new(),
            failed: false,
            counted: false,
            smb: SmbProgress::default(),
        };
        let mut table = lock(&self.table);
        table.last_id += 1;
        let entry = Arc::new(Entry {
            id: table.last_id,
            info,
            opened: Instant::now(),
            ledger: Arc::default(),
            accelerator: OnceLock::new(),
            progress: Mutex::new(progress),
        });
        if table.live.len() < CONNECTIONS_LISTED_MAX {
            table.live.insert(entry.id, entry.clone());
        }
        drop(table);
        ConnectionHandle { table: self.clone(), entry }
    }

    /// The open connections, in no order.
    pub fn live(&self) -> Vec<ConnectionSnapshot> {
        let entries: Vec<_> = lock(&self.table).live.values().cloned().collect();
        let now = Instant::now();
        entries.iter().map(|entry| entry.snapshot(now)).collect()
    }

    /// What is held at the moment that permits answers near clients, on all open connections.
    pub fn permits(&self) -> u64 {
        let entries: Vec<_> = lock(&self.table).live.values().cloned().collect();
        let held = |entry: &Arc<Entry>| Some(entry.accelerator.get()?.acceleration().permits);
        entries.iter().filter_map(held).sum()
    }

    /// Requests of an open connection after one of a number, as [`Accelerator::trace`]. The outer `None` is for a connection that
    /// is not there.
    pub fn trace(&self, id: u64, after: u64) -> Option<Option<Vec<TracedRequest>>> {
        let entry = lock(&self.table).live.get(&id).cloned()?;
        Some(entry.accelerator.get().and_then(|accelerator| accelerator.trace(after)))
    }

    /// The last connections that closed, oldest first.
    pub fn closed(&self) -> Vec<ConnectionSnapshot> {
        lock(&self.table).closed.iter().cloned().collect()
    }

    /// The sums over everything, each byte counted once.
    pub fn totals(&self) -> TableTotals {
        let mut table = lock(&self.table);
        table.sweep();
        let mut totals = TableTotals {
            ledgers: table.folded.clone(),
            outcomes: table.outcomes.clone(),
            not_optimised: table.not_optimised.clone(),
            smb: SmbTotals { sessions: table.smb_sessions.clone(), ..SmbTotals::default() },
            ..TableTotals::default()
        };
        for (key, ledger) in &table.lingering {
            *totals.ledgers.entry(key.clone()).or_default() += ledger.values();
        }
        for entry in table.live.values() {
            let progress = lock(&entry.progress);
            totals.states[progress.state as usize] += 1;
            if let Some(smb) = &progress.smb.info {
                *totals.smb.connections.entry((smb.state, smb.cipher)).or_default() += 1;
            }
            let key = (progress.label.clone(), entry.info.protocol);
            *totals.ledgers.entry(key).or_default() += entry.ledger.values();
        }
        totals
    }

    fn close(&self, entry: &Entry) {
        let mut snapshot = entry.snapshot(Instant::now());
        let (outcome, label) = {
            let progress = lock(&entry.progress);
            (progress.outcome(), progress.label.clone())
        };
        snapshot.state = ConnectionState::Closed;
        snapshot.acceleration = None;
        snapshot.outcome = Some(outcome);
        let mut table = lock(&self.table);
        table.live.remove(&entry.id);
        *table.outcomes.entry((outcome, snapshot.reason)).or_default() += 1;
        table.lingering.push_back(((label, entry.info.protocol), entry.ledger.clone()));
        if table.lingering.len() > LINGERING_MAX {
            table.sweep();
        }
        if table.closed.len() == CLOSED_LISTED_MAX {
            table.closed.pop_front();
        }
        table.closed.push_back(snapshot);
    }

    fn count_not_optimised(&self, reason: Reason) {
        *lock(&self.table).not_optimised.entry(reason).or_default() += 1;
    }

    fn count_smb_session(&self, state: SmbState) {
        *lock(&self.table).smb_sessions.entry(state).or_default() += 1;
    }
}

impl Table {
    /// Moves ledgers that no task holds any more into the sums; above the limit also the oldest that one still holds.
    fn sweep(&mut self) {
        let excess = self.lingering.len().saturating_sub(LINGERING_MAX);
        let mut seen = 0;
        let folded = &mut self.folded;
        self.lingering.retain_mut(|(key, ledger)| {
            seen += 1;
            // `get_mut` succeeds only for the last holder and orders its read after the others' writes.
            let settled = Arc::get_mut(ledger).is_some() || seen <= excess;
            if settled {
                *folded.entry(key.clone()).or_default() += ledger.values();
            }
            !settled
        });
    }
}

impl Entry {
    fn snapshot(&self, now: Instant) -> ConnectionSnapshot {
        let acceleration = self.accelerator.get().map(|accelerator| accelerator.acceleration());
        let progress = lock(&self.progress);
        ConnectionSnapshot {
            id: self.id,
            client: self.info.client,
            target: self.info.target.clone(),
            protocol: self.info.protocol,
            peer: progress.peer.clone(),
            rule: self.info.rule.clone(),
            opened_at: self.info.opened_at,
            age: now.saturating_duration_since(self.opened),
            state: progress.state,
            reason: progress.reason,
            detail: progress.detail.clone(),
            outcome: None,
            smb: progress.smb.info.clone(),
            acceleration,
            ledger: self.ledger.values(),
        }
    }
}

impl Progress {
    fn enter(&mut self, state: ConnectionState) {
        self.state = state;
        if matches!(
            state,
            ConnectionState::Optimised
                | ConnectionState::ReduceOnly
                | ConnectionState::PassThrough
                | ConnectionState::Denied
        ) {
            self.mode = Some(state);
        }
    }

    fn outcome(&self) -> Outcome {
        match (self.failed, self.reason, self.mode) {
            (true, Some(Reason::ApplicationReset), _) => Outcome::Reset,
            (true, _, _) | (_, _, None) => Outcome::Failed,
            (_, _, Some(ConnectionState::Optimised)) => Outcome::Optimised,
            (_, _, Some(ConnectionState::ReduceOnly)) => Outcome::ReduceOnly,
            (_, _, Some(ConnectionState::Denied)) => Outcome::Denied,
            (_, _, Some(_)) => Outcome::PassThrough,
        }
    }
}

impl ConnectionHandle {
    /// Number of the connection, unique in this process.
    pub fn id(&self) -> u64 {
        self.entry.id
    }

    /// The ledger its tasks write to.
    pub fn ledger(&self) -> &Arc<ConnectionLedger> {
        &self.entry.ledger
    }

    /// Says whom to ask what is done about round trips. Only the first call counts.
    pub fn set_accelerator(&self, accelerator: Arc<dyn Accelerator>) {
        let _ = self.entry.accelerator.set(accelerator);
    }

    /// Names the peer that carries the connection. To be called before the first byte, since sums are kept by peer.
    pub fn set_peer(&self, name: &str) {
        let label = lock(&self.table.labels).label(name);
        let mut progress = lock(&self.entry.progress);
        progress.peer = text::clean(name, TEXT_CHARS_MAX);
        progress.label = label;
    }

    pub fn set_state(&self, state: ConnectionState) {
        lock(&self.entry.progress).enter(state);
    }

    /// Enters a state that needs a reason, above all pass-through and denied, which are then counted as not optimised
    /// (once a connection). `detail` says more in words and may be empty.
    pub fn set_state_because(&self, state: ConnectionState, reason: Reason, detail: &str) {
        let mut progress = lock(&self.entry.progress);
        progress.enter(state);
        progress.reason = Some(reason);
        progress.detail = text::clean(detail, TEXT_CHARS_MAX);
        let counts = matches!(state, ConnectionState::PassThrough | ConnectionState::Denied);
        let first = counts && !progress.counted;
        progress.counted |= counts;
        drop(progress);
        if first {
            self.table.count_not_optimised(reason);
        }
    }

    /// Says what is known of SMB on the connection, in place of what was said before; to be called whenever that changes.
    /// Each session is counted the first time it is described, in the state that it has then.
    pub fn set_smb(&self, info: SmbInfo) {
        let info = info.cleaned();
        let state = info.state;
        let is_new = lock(&self.entry.progress).smb.set(info);
        if is_new {
            self.table.count_smb_session(state);
        }
    }

    /// Says that the connection ends by `reason` and not by its own close. The entry closes when the handle is dropped.
    pub fn fail(&self, reason: Reason, detail: &str) {
        let mut progress = lock(&self.entry.progress);
        progress.failed = true;
        progress.reason = Some(reason);
        progress.detail = text::clean(detail, TEXT_CHARS_MAX);
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.table.close(&self.entry);
    }
}

#[cfg(test)]
mod tests;
