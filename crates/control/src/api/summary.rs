use super::{Saved, saved, unix};
use crate::alarms::{Alarm, alarms};
use isthmus_telemetry::{
    ConnectionState, KeySourceStatus, Source, Status, TableTotals, Telemetry, Traffic, capacity_increase,
    data_reduction, limits,
};
use isthmus_types::{Reason, Side};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

#[derive(Serialize)]
pub(crate) struct SummaryView {
    side: &'static str,
    name: String,
    version: String,
    now: f64,
    started_at: f64,
    uptime_seconds: u64,
    ready: bool,
    not_ready: Vec<NotReadyView>,
    alarms: Vec<AlarmView>,
    draining: bool,
    reduction: ReductionView,
    rates: RatesView,
    connections: ConnectionsView,
    reduction_work: WorkView,
    admission: AdmissionView,
    certificates: Vec<CertificateView>,
    keys: KeysView,
    configuration: Vec<SettingView>,
    /// What an enrolled laptop knows of itself; null for others.
    agent: Option<AgentView>,
    /// Where a client-side proxy is; null if it does not look after that.
    location: Option<LocationView>,
}

#[derive(Serialize)]
struct AgentView {
    name: String,
    policy: Option<String>,
    policy_version: Option<u64>,
    /// When the server side last answered.
    synced: Option<f64>,
    problem: Option<String>,
}

#[derive(Serialize)]
struct LocationView {
    /// `off`, `branch` or `remote`.
    location: &'static str,
    why: String,
    since: f64,
}

#[derive(Serialize)]
pub(crate) struct NotReadyView {
    reason: &'static str,
    text: String,
}

#[derive(Serialize)]
struct AlarmView {
    severity: &'static str,
    title: String,
    text: String,
}

#[derive(Serialize)]
struct ReductionView {
    /// About the last minute.
    now: WindowView,
    hour: WindowView,
    day: WindowView,
    /// Since the process started.
    total: WindowView,
}

#[derive(Serialize)]
struct WindowView {
    seconds: f64,
    lan_bytes: u64,
    wan_bytes: u64,
    passed_bytes: u64,
    data_reduction: Option<f64>,
    capacity_increase: Option<f64>,
    saved_bytes: Saved,
}

/// Bytes a second over about the last ten seconds.
#[derive(Serialize)]
struct RatesView {
    lan_up: f64,
    lan_down: f64,
    wan_up: f64,
    wan_down: f64,
    passed: f64,
}

#[derive(Serialize)]
struct ConnectionsView {
    open: u64,
    states: BTreeMap<&'static str, u64>,
    ended: u64,
    not_optimised: BTreeMap<&'static str, u64>,
    /// Open connections by what is done with SMB on them.
    smb_states: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct KeysView {
    sources: Vec<KeySourceView>,
    /// Sessions since the start whose keys were given to a peer, and whose were not.
    released: u64,
    refused: u64,
}

#[derive(Serialize)]
struct KeySourceView {
    name: String,
    kind: &'static str,
    by_command: bool,
    service_keys: u64,
    nt_hashes: u64,
    skipped: u64,
    loaded_at: Option<f64>,
    error: Option<String>,
    loads: u64,
    failures: u64,
}

#[derive(Serialize)]
struct WorkView {
    frames_encoded: u64,
    frames_decoded: u64,
    misses: u64,
    repairs: u64,
    repair_bytes: u64,
    proof_failures: u64,
    round_trips_saved: u64,
    made_ahead: u64,
    ahead_wasted: u64,
    permits_broken: u64,
}

#[derive(Serialize)]
struct AdmissionView {
    full: bool,
    connections: u64,
    stop_at: u64,
    resume_at: u64,
}

#[derive(Serialize)]
struct CertificateView {
    kind: &'static str,
    subject: String,
    expires_at: f64,
}

#[derive(Serialize)]
struct SettingView {
    key: String,
    value: String,
}

/// Over how long the rates are taken: short enough to follow a copy, long enough not to jump.
const RATE_WINDOW: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn summary(telemetry: &Telemetry, source: &dyn Source) -> SummaryView {
    let (now, clock) = (SystemTime::now(), Instant::now());
    let status = source.status();
    let totals = telemetry.connections().totals();
    let uptime = telemetry.uptime(clock);
    let (reduction, rates, hour) = telemetry.history(|history| {
        let (minute, minute_time) = history.recent(limits::NOW_WINDOW, clock);
        let (hour, hour_time) = history.recent(HOUR, clock);
        let (recent, recent_time) = history.recent(RATE_WINDOW, clock);
        let reduction = ReductionView {
            now: WindowView::new(&minute, minute_time),
            hour: WindowView::new(&hour, hour_time),
            day: WindowView::new(&history.day(), uptime.min(DAY)),
            total: WindowView::new(&history.totals(), uptime),
        };
        (reduction, RatesView::new(&recent, recent_time, status.side), hour)
    });
    let proof_failures = totals.sum().proof_failures;
    let not_ready = not_ready(&status);
    SummaryView {
        side: status.side.as_str(),
        now: unix(now),
        started_at: unix(status.started_at),
        uptime_seconds: uptime.as_secs(),
        ready: not_ready.is_empty(),
        not_ready,
        alarms: alarms(&status, proof_failures, &hour, now).into_iter().map(AlarmView::from).collect(),
        draining: status.draining,
        reduction,
        rates,
        connections: ConnectionsView::new(&totals),
        reduction_work: WorkView::new(&totals),
        admission: AdmissionView {
            full: status.admission.full,
            connections: status.admission.connections,
            stop_at: status.admission.stop_at,
            resume_at: status.admission.resume_at,
        },
        certificates: certificates(&status),
        keys: KeysView::new(telemetry, status.key_sources),
        configuration: status
            .configuration
            .into_iter()
            .map(|(key, value)| SettingView { key, value })
            .collect(),
        agent: status.agent.map(|agent| {
            let (policy, policy_version) =
                agent.policy.map_or((None, None), |(name, version)| (Some(name), Some(version)));
            AgentView {
                name: agent.name,
                policy,
                policy_version,
                synced: agent.synced.map(unix),
                problem: (!agent.problem.is_empty()).then_some(agent.problem),
            }
        }),
        location: status.location.map(|at| LocationView {
            location: at.location,
            why: at.why,
            since: unix(at.since),
        }),
        name: status.name,
        version: status.version,
    }
}

/// Why new connections would not be optimised; also the body of `/readyz`.
pub(crate) fn not_ready(status: &Status) -> Vec<NotReadyView> {
    let view =
        |found: isthmus_telemetry::NotReady| NotReadyView { reason: found.reason.label(), text: found.text };
    status.not_ready().into_iter().map(view).collect()
}

fn certificates(status: &Status) -> Vec<CertificateView> {
    let view = |certificate: &isthmus_telemetry::CertificateStatus| CertificateView {
        kind: certificate.kind.label(),
        subject: certificate.subject.clone(),
        expires_at: unix(certificate.expires_at),
    };
    status.certificates.iter().map(view).collect()
}

impl WindowView {
    fn new(traffic: &Traffic, time: Duration) -> WindowView {
        let (lan, wan) = (traffic.lan(), traffic.wan());
        WindowView {
            seconds: time.as_secs_f64(),
            lan_bytes: lan,
            wan_bytes: wan,
            passed_bytes: traffic.passed,
            data_reduction: data_reduction(lan, wan),
            capacity_increase: capacity_increase(lan, wan),
            saved_bytes: saved(traffic.saved),
        }
    }
}

impl RatesView {
    fn new(traffic: &Traffic, time: Duration, side: Side) -> RatesView {
        let seconds = time.as_secs_f64().max(1.0);
        let (wan_up, wan_down) = directions(side, traffic.wan_sent, traffic.wan_received);
        RatesView {
            lan_up: traffic.lan_up as f64 / seconds,
            lan_down: traffic.lan_down as f64 / seconds,
            wan_up: wan_up as f64 / seconds,
            wan_down: wan_down as f64 / seconds,
            passed: traffic.passed as f64 / seconds,
        }
    }
}

/// Sent and received as up and down: what a client-side proxy sends goes up.
pub(crate) fn directions<T>(side: Side, sent: T, received: T) -> (T, T) {
    match side {
        Side::Client => (sent, received),
        Side::Server => (received, sent),
    }
}

impl ConnectionsView {
    fn new(totals: &TableTotals) -> ConnectionsView {
        let open = |state: &ConnectionState| *state != ConnectionState::Closed;
        let states = ConnectionState::ALL.into_iter().filter(open);
        let not_optimised = |reason: Reason| (reason.label(), totals.not_optimised.get(&reason).copied());
        ConnectionsView {
            open: totals.states.iter().sum(),
            states: states.map(|state| (state.label(), totals.states[state as usize])).collect(),
            ended: totals.outcomes.values().sum(),
            not_optimised: Reason::ALL
                .into_iter()
                .map(not_optimised)
                .filter_map(|(label, n)| n.map(|n| (label, n)))
                .collect(),
            smb_states: smb_states(totals),
        }
    }
}

fn smb_states(totals: &TableTotals) -> BTreeMap<&'static str, u64> {
    let mut states = BTreeMap::new();
    for ((state, _), n) in &totals.smb.connections {
        *states.entry(state.label()).or_default() += n;
    }
    states
}

impl KeysView {
    fn new(telemetry: &Telemetry, sources: Vec<KeySourceStatus>) -> KeysView {
        let (released, refused) = telemetry.key_releases();
        KeysView { sources: sources.into_iter().map(KeySourceView::from).collect(), released, refused }
    }
}

impl From<KeySourceStatus> for KeySourceView {
    fn from(source: KeySourceStatus) -> KeySourceView {
        KeySourceView {
            name: source.name,
            kind: source.kind.label(),
            by_command: source.by_command,
            service_keys: source.service_keys,
            nt_hashes: source.nt_hashes,
            skipped: source.skipped,
            loaded_at: source.loaded_at.map(unix),
            error: source.error,
            loads: source.loads,
            failures: source.failures,
        }
    }
}

impl WorkView {
    fn new(totals: &TableTotals) -> WorkView {
        let sum = totals.sum();
        WorkView {
            frames_encoded: sum.frames_encoded,
            frames_decoded: sum.frames_decoded,
            misses: sum.misses,
            repairs: sum.repairs,
            repair_bytes: sum.repair_bytes,
            proof_failures: sum.proof_failures,
            round_trips_saved: sum.round_trips_saved(),
            made_ahead: sum.ahead,
            ahead_wasted: sum.ahead_wasted,
            permits_broken: sum.permits_broken,
        }
    }
}

impl From<Alarm> for AlarmView {
    fn from(alarm: Alarm) -> AlarmView {
        AlarmView { severity: alarm.severity.label(), title: alarm.title, text: alarm.text }
    }
}
