use super::{Saved, saved, unix};
use crate::limits::{CONNECTION_ROWS_MAX, QUERY_CHARS_MAX};
use isthmus_telemetry::{
    Acceleration, ConnectionSnapshot, ConnectionState, LedgerValues, SmbInfo, SmbState, Telemetry,
    TracedRequest, data_reduction,
};
use isthmus_types::Reason;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
pub(crate) struct ConnectionsQuery {
    /// Keeps rows in which client, target, peer, rule, protocol, state, reason or what is known of SMB hold this text.
    q: Option<String>,
    state: Option<StateParam>,
    sort: Option<SortParam>,
    order: Option<OrderParam>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum StateParam {
    /// Open connections.
    #[default]
    Open,
    /// Those that were to be optimised, open or closed, and are not.
    NotOptimised,
    /// The last that ended.
    Closed,
    /// Open ones and the last that ended.
    All,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortParam {
    #[default]
    Age,
    Client,
    Target,
    Protocol,
    Smb,
    State,
    LanBytes,
    WanBytes,
    DataReduction,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum OrderParam {
    Ascending,
    Descending,
}

#[derive(Serialize)]
pub(crate) struct ConnectionsView {
    /// Rows that match.
    matched: usize,
    /// The first of them, up to the limit.
    connections: Vec<ConnectionView>,
}

#[derive(Serialize)]
struct ConnectionView {
    id: u64,
    client: String,
    target: String,
    protocol: &'static str,
    peer: String,
    rule: String,
    state: &'static str,
    reason: Option<&'static str>,
    reason_text: Option<String>,
    detail: Option<String>,
    outcome: Option<&'static str>,
    opened_at: f64,
    age_seconds: f64,
    lan_up: u64,
    lan_down: u64,
    lan_bytes: u64,
    wan_bytes: u64,
    passed_bytes: u64,
    data_reduction: Option<f64>,
    saved_bytes: Saved,
    smb: Option<SmbView>,
    acceleration: Option<AccelerationView>,
}

/// What is done about round trips, and what came of it.
#[derive(Serialize)]
struct AccelerationView {
    on: bool,
    mode: &'static str,
    reason: Option<String>,
    permits: u64,
    round_trips_saved: u64,
    saved: BTreeMap<&'static str, u64>,
    made_ahead: u64,
    ahead_wasted: u64,
    permits_broken: u64,
    breaks_acknowledged: u64,
    break_seconds: f64,
    lost_writes: u64,
}

#[derive(Serialize)]
pub(crate) struct TraceView {
    requests: Vec<TracedView>,
}

#[derive(Serialize)]
struct TracedView {
    number: u64,
    at_seconds: f64,
    request: String,
    name: String,
    answered: &'static str,
    permit: Option<String>,
    status: String,
    seconds: f64,
}

#[derive(Serialize)]
struct SmbView {
    state: &'static str,
    state_text: String,
    dialect: Option<String>,
    signing: Option<&'static str>,
    cipher: Option<&'static str>,
    user: Option<String>,
    server: Option<String>,
    shares: Vec<String>,
    reason: Option<String>,
}

pub(crate) fn connections(telemetry: &Telemetry, query: &ConnectionsQuery) -> ConnectionsView {
    let table = telemetry.connections();
    let wanted = query.state.unwrap_or_default();
    let mut rows = if wanted == StateParam::Closed { Vec::new() } else { table.live() };
    if wanted != StateParam::Open {
        rows.extend(table.closed());
    }
    rows.retain(|row| (wanted != StateParam::NotOptimised || not_optimised(row)) && query.matches(row));
    let sort = query.sort.unwrap_or_default();
    // What people look for stands first: the newest, and the largest.
    let usual = match sort {
        SortParam::LanBytes | SortParam::WanBytes => OrderParam::Descending,
        _ => OrderParam::Ascending,
    };
    let descending = query.order.unwrap_or(usual) == OrderParam::Descending;
    rows.sort_by(|a, b| {
        let order = compare(sort, a, b);
        let order = if descending { order.reverse() } else { order };
        order.then(b.id.cmp(&a.id))
    });
    let matched = rows.len();
    rows.truncate(query.limit.unwrap_or(CONNECTION_ROWS_MAX).min(CONNECTION_ROWS_MAX));
    ConnectionsView { matched, connections: rows.into_iter().map(ConnectionView::from).collect() }
}

fn not_optimised(row: &ConnectionSnapshot) -> bool {
    row.reason.is_some()
        || matches!(row.state, ConnectionState::PassThrough | ConnectionState::Denied)
        || row.smb.as_ref().is_some_and(|smb| matches!(smb.state, SmbState::EncryptedNoKeys | SmbState::Smb1))
}

impl ConnectionsQuery {
    fn matches(&self, row: &ConnectionSnapshot) -> bool {
        let Some(q) = self.q.as_deref().map(str::trim).filter(|q| !q.is_empty()) else { return true };
        let q: String = q.chars().take(QUERY_CHARS_MAX).flat_map(char::to_lowercase).collect();
        let holds = |text: &str| text.to_lowercase().contains(&q);
        holds(&row.client.to_string())
            || holds(&row.target)
            || holds(&row.peer)
            || holds(&row.rule)
            || holds(row.protocol.label())
            || holds(&row.state.label().replace('_', " "))
            || row.reason.is_some_and(|reason| holds(&reason.to_string()) || holds(reason.label()))
            || row.smb.as_ref().is_some_and(|smb| {
                holds(&smb.state.to_string())
                    || holds(&smb.user)
                    || holds(&smb.server)
                    || smb.shares.iter().any(|share| holds(share))
                    || smb.cipher.is_some_and(|cipher| holds(cipher.label()))
                    || holds(&smb.reason)
            })
    }
}

fn compare(sort: SortParam, a: &ConnectionSnapshot, b: &ConnectionSnapshot) -> Ordering {
    match sort {
        SortParam::Age => a.age.cmp(&b.age),
        SortParam::Client => (a.client.ip(), a.client.port()).cmp(&(b.client.ip(), b.client.port())),
        SortParam::Target => a.target.cmp(&b.target),
        SortParam::Protocol => a.protocol.cmp(&b.protocol),
        SortParam::Smb => smb_order(a).cmp(&smb_order(b)),
        SortParam::State => a.state.cmp(&b.state),
        SortParam::LanBytes => lan(a).cmp(&lan(b)),
        SortParam::WanBytes => a.ledger.wan().cmp(&b.ledger.wan()),
        SortParam::DataReduction => {
            let reduction = |row: &ConnectionSnapshot| {
                data_reduction(row.ledger.lan(), row.ledger.wan()).unwrap_or(f64::NEG_INFINITY)
            };
            reduction(a).total_cmp(&reduction(b))
        }
    }
}

/// The best that can be done with SMB first, other protocols last.
fn smb_order(row: &ConnectionSnapshot) -> (bool, Option<SmbState>) {
    let state = row.smb.as_ref().map(|smb| smb.state);
    (state.is_none(), state)
}

/// What the application moved, whichever way it went.
fn lan(row: &ConnectionSnapshot) -> u64 {
    row.ledger.lan().saturating_add(row.ledger.passed())
}

impl AccelerationView {
    fn new(found: Acceleration, ledger: &LedgerValues) -> AccelerationView {
        let saved = [
            ("open", ledger.local_opens),
            ("read", ledger.local_reads),
            ("close", ledger.local_closes),
            ("query", ledger.local_queries),
            ("listing", ledger.local_listings),
            ("write", ledger.local_writes),
        ];
        AccelerationView {
            on: found.reason.is_empty(),
            mode: found.mode,
            reason: Some(found.reason).filter(|reason| !reason.is_empty()),
            permits: found.permits,
            round_trips_saved: ledger.round_trips_saved(),
            saved: saved.into_iter().collect(),
            made_ahead: ledger.ahead,
            ahead_wasted: ledger.ahead_wasted,
            permits_broken: ledger.permits_broken,
            breaks_acknowledged: ledger.break_waits.iter().sum(),
            break_seconds: ledger.break_micros as f64 / 1e6,
            lost_writes: ledger.lost_writes,
        }
    }
}

impl From<Vec<TracedRequest>> for TraceView {
    fn from(requests: Vec<TracedRequest>) -> TraceView {
        let view = |one: TracedRequest| TracedView {
            number: one.number,
            at_seconds: one.at_micros as f64 / 1e6,
            request: one.request,
            name: one.name,
            answered: one.answered,
            permit: Some(one.permit).filter(|permit| !permit.is_empty()),
            status: format!("{:#010x}", one.status),
            seconds: one.micros as f64 / 1e6,
        };
        TraceView { requests: requests.into_iter().map(view).collect() }
    }
}

impl From<ConnectionSnapshot> for ConnectionView {
    fn from(row: ConnectionSnapshot) -> ConnectionView {
        let acceleration = row.acceleration.map(|found| AccelerationView::new(found, &row.ledger));
        ConnectionView {
            acceleration,
            id: row.id,
            client: row.client.to_string(),
            target: row.target,
            protocol: row.protocol.label(),
            peer: row.peer,
            rule: row.rule,
            state: row.state.label(),
            reason: row.reason.map(Reason::label),
            reason_text: row.reason.map(|reason| reason.to_string()),
            detail: Some(row.detail).filter(|detail| !detail.is_empty()),
            outcome: row.outcome.map(|outcome| outcome.label()),
            opened_at: unix(row.opened_at),
            age_seconds: row.age.as_millis() as f64 / 1_000.0,
            lan_up: row.ledger.lan_up,
            lan_down: row.ledger.lan_down,
            lan_bytes: row.ledger.lan(),
            wan_bytes: row.ledger.wan(),
            passed_bytes: row.ledger.passed(),
            data_reduction: data_reduction(row.ledger.lan(), row.ledger.wan()),
            saved_bytes: saved(row.ledger.saved),
            smb: row.smb.map(SmbView::from),
        }
    }
}

impl From<SmbInfo> for SmbView {
    fn from(smb: SmbInfo) -> SmbView {
        let known = |text: String| Some(text).filter(|text| !text.is_empty());
        SmbView {
            state: smb.state.label(),
            state_text: smb.state.to_string(),
            dialect: smb.dialect.map(|dialect| dialect.to_string()),
            signing: smb.signing.map(|signing| signing.label()),
            cipher: smb.cipher.map(|cipher| cipher.label()),
            user: known(smb.user),
            server: known(smb.server),
            shares: smb.shares,
            reason: known(smb.reason),
        }
    }
}
