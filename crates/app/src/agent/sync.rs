//! Keeps an agent and its server side in step: reports, policies, revocation lists, certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_agent::limits::{ANSWER_BYTES_MAX, REPORT_INTERVAL};
use isthmus_agent::{Answer, Report, Reported, Request, SignedPolicy, decode, encode, revocations_id};
use isthmus_certs::{Details, read_certificates};
use isthmus_config::{ClientConfig, HostPort};
use isthmus_net::{FleetTrust, WanCounters, call_fleet};
use isthmus_store::KEY_LEN;
use isthmus_telemetry::{Level, Telemetry};
use isthmus_types::Side;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::{AgentState, FolderError, parse};
use crate::client::{Client, tls_source};
use crate::core::StoreState;

/// The first report waits for the first connection to the peer to be made, and the next ones are a little apart from those of
/// other agents.
const FIRST_REPORT: Duration = Duration::from_secs(1);
/// How often the server side is asked for its half of the store's key while it does not answer.
const UNLOCK_INTERVAL: Duration = Duration::from_secs(3);
/// Reports that something new asks for are this far apart.
const REPORT_INTERVAL_MIN: Duration = Duration::from_secs(2);
/// A certificate is renewed when this part of its life is left.
const RENEW_PART: u32 = 3;

/// Reports as long as the agent runs.
pub(super) async fn keep(client: Arc<Client>, state: Arc<AgentState>) {
    let mut failed_ports = false;
    let mut pause = FIRST_REPORT;
    while !client.core.has_store() {
        match unlock(&client).await {
            Ok(()) => client.link.notify(),
            Err(Trouble::Revoked) => return erase(&client.core.telemetry, &state),
            Err(Trouble::Other(text)) => {
                tracing::warn!(%text, "the store stays closed");
                sleep(UNLOCK_INTERVAL).await;
            }
        }
    }
    loop {
        sleep(pause).await;
        match once(&client, &state, &mut failed_ports).await {
            Ok(()) => {
                let mut now = state.lock();
                now.synced = Some(SystemTime::now());
            }
            Err(Trouble::Revoked) => return erase(&client.core.telemetry, &state),
            Err(Trouble::Other(text)) => {
                tracing::warn!(%text, "no report");
            }
        }
        // News are told at once; otherwise the interval is spread, so that agents do not call in step.
        let spread = getrandom::u32().map_or(0, |random| random % 10_000);
        let interval = REPORT_INTERVAL - Duration::from_millis(u64::from(spread));
        let _ = timeout(interval, client.whereabouts.news.notified()).await;
        pause = REPORT_INTERVAL_MIN;
    }
}

/// Gets the server side's half of the store's key, and opens the store.
async fn unlock(client: &Arc<Client>) -> Result<(), Trouble> {
    let half = match ask(client, &Request::StoreHalf).await? {
        Answer::StoreHalf(half) => half,
        Answer::Refused { revoked: true, .. } => return Err(Trouble::Revoked),
        Answer::Refused { why, .. } => return Err(Trouble::Other(format!("refused: {why}"))),
        _ => return Err(Trouble::Other("the server side answers something else".into())),
    };
    let mut key = Zeroizing::new([0; KEY_LEN]);
    hex::decode_to_slice(&half.half, key.as_mut_slice())
        .map_err(|_| Trouble::Other("the half of the store's key is none".into()))?;
    let (client, config) = (client.clone(), client.config.load_full());
    let open = move || client.core.open_store(&config.store, Some(&key));
    let opened = tokio::task::spawn_blocking(open).await;
    match opened {
        Ok(outcome) => outcome.map_err(|error| Trouble::Other(error.to_string())),
        Err(error) => Err(Trouble::Other(error.to_string())),
    }
}

enum Trouble {
    /// The server side does not want this laptop any more.
    Revoked,
    Other(String),
}

impl From<FolderError> for Trouble {
    fn from(error: FolderError) -> Trouble {
        Trouble::Other(error.to_string())
    }
}

/// One report, and what follows from its answer.
async fn once(client: &Arc<Client>, state: &AgentState, failed_ports: &mut bool) -> Result<(), Trouble> {
    if *failed_ports {
        let config = ClientConfig::clone(&client.config.load());
        *failed_ports = !take_over(client, state, config).await;
    }
    let report = report(client, state);
    match ask(client, &Request::Report(report)).await? {
        Answer::Reported(news) => {
            if let Some(list) = &news.revocations {
                state.folder.keep_revocations(list)?;
            }
            if let Some(policy) = news_policy(&news, state)? {
                *failed_ports = !follow(client, state, policy).await;
            }
        }
        Answer::Refused { revoked: true, .. } => return Err(Trouble::Revoked),
        Answer::Refused { why, .. } => return Err(Trouble::Other(format!("refused: {why}"))),
        _ => return Err(Trouble::Other("the server side answers something else".into())),
    }
    if renewal_is_due(state) {
        renew(client, state).await?;
    }
    Ok(())
}

/// A policy that is new, and signed.
fn news_policy(news: &Reported, state: &AgentState) -> Result<Option<SignedPolicy>, Trouble> {
    let Some(policy) = &news.policy else { return Ok(None) };
    let known = state.lock().policy.as_ref().map_or(0, |(_, version)| *version);
    if policy.version <= known {
        let text = format!("a policy of version {} is older than the one in force ({known})", policy.version);
        return Err(Trouble::Other(text));
    }
    state.folder.verify(policy)?;
    Ok(Some(policy.clone()))
}

/// Goes by a new policy. One that cannot be read changes nothing; it may be for a later version of this program.
async fn follow(client: &Arc<Client>, state: &AgentState, policy: SignedPolicy) -> bool {
    let telemetry = &client.core.telemetry;
    let loaded = match parse(&policy, &state.overrides) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let text =
                format!("policy {} version {} cannot be followed: {errors}", policy.name, policy.version);
            telemetry.event(Level::Error, &text);
            state.lock().problem = text;
            return true;
        }
    };
    if let Err(error) = state.folder.keep_policy(&policy) {
        telemetry.event(Level::Error, format!("the policy cannot be kept: {error}"));
    }
    telemetry.event(Level::Info, format!("policy {} version {} is in force", policy.name, policy.version));
    state.lock().policy = Some((policy.name, policy.version));
    take_over(client, state, loaded.config).await
}

/// Applies a configuration; gives whether all its ports could be had.
async fn take_over(client: &Arc<Client>, state: &AgentState, config: ClientConfig) -> bool {
    let failed = client.apply(config).await;
    let texts: Vec<String> =
        failed.iter().map(|(address, error)| format!("cannot listen on {address}: {error}")).collect();
    for text in &texts {
        client.core.telemetry.event(Level::Error, text);
    }
    state.lock().problem = texts.join("; ");
    texts.is_empty()
}

fn renewal_is_due(state: &AgentState) -> bool {
    let Ok(chain) = read_certificates(&state.folder.certificate()) else { return false };
    let Some(Ok(details)) = chain.first().map(Details::of) else { return false };
    let life = details.not_after.duration_since(details.not_before).unwrap_or_default();
    let left = details.not_after.duration_since(SystemTime::now()).unwrap_or_default();
    left < life / RENEW_PART
}

/// Gets another certificate for the same key, so that no moment sees a key beside a certificate of another.
async fn renew(client: &Client, state: &AgentState) -> Result<(), Trouble> {
    let request = state.folder.renewal(&state.name)?;
    match ask(client, &Request::Renew { request: request.request.clone() }).await? {
        Answer::Renewed { certificate } if request.fits(&certificate) => {
            state.folder.keep_certificate(&certificate)?;
            client.core.telemetry.event(Level::Info, "the certificate is renewed");
            Ok(())
        }
        Answer::Refused { revoked: true, .. } => Err(Trouble::Revoked),
        Answer::Refused { why, .. } => Err(Trouble::Other(format!("renewal refused: {why}"))),
        _ => Err(Trouble::Other("the server side answers a renewal with something else".into())),
    }
}

/// Asks the server sides in turn, the one in use first.
async fn ask(client: &Client, request: &Request) -> Result<Answer, Trouble> {
    let other = |text: String| Trouble::Other(text);
    let bytes = encode(request).map_err(|error| other(error.to_string()))?;
    let config = client.config.load_full();
    let tls = match client.link.tls() {
        Some(tls) => tls,
        None => tls_source(&config.tls, Side::Client).map_err(|(_, text)| other(text))?,
    };
    let trust = FleetTrust::Files(tls);
    let mut targets: Vec<(HostPort, String)> =
        client.link.list().into_iter().map(|(target, _)| (target.address, target.server_name)).collect();
    if targets.is_empty() {
        targets.push((config.peer.address.clone(), config.peer.server_name.clone()));
    }
    let active = client.link.active().map(|slot| slot.target.address.clone());
    targets.sort_by_key(|(address, _)| Some(address) != active.as_ref());
    let mut last = String::from("there is no server side");
    for (address, name) in targets {
        let wan = Arc::<WanCounters>::default();
        let answer = call_fleet(&address.to_string(), &name, &trust, &bytes, ANSWER_BYTES_MAX, wan).await;
        match answer {
            Ok(answer) => return decode(&answer).map_err(|error| other(format!("{address}: {error}"))),
            Err(error) if error.revoked => return Err(Trouble::Revoked),
            Err(error) => last = error.to_string(),
        }
    }
    Err(other(last))
}

fn report(client: &Client, state: &AgentState) -> Report {
    let totals = client.core.telemetry.totals();
    let location = client.whereabouts.status();
    let stats = match client.core.store() {
        StoreState::Open(store) => Some(store.stats()),
        StoreState::Unusable(_) => None,
    };
    let now = state.status();
    Report {
        software: env!("CARGO_PKG_VERSION").to_owned(),
        host: crate::status::hostname(),
        policy_version: now.policy.map_or(0, |(_, version)| version),
        revocations: revocations_id(&state.folder.revocation_list()),
        location: location.as_ref().map_or("", |at| at.location).to_owned(),
        location_why: location.map(|at| at.why).unwrap_or_default(),
        connections: client.core.admission.state().1,
        lan_bytes: totals.lan_up + totals.lan_down,
        wan_bytes: totals.wan_sent + totals.wan_received,
        store_bytes: stats.as_ref().map_or(0, |stats| stats.disk_bytes),
        store_chunks: stats.as_ref().map_or(0, |stats| stats.chunks),
        problem: now.problem,
    }
}

fn erase(telemetry: &Telemetry, state: &AgentState) {
    telemetry
        .event(Level::Error, "the server side has revoked this laptop: store, keys and policy are erased");
    for error in state.folder.erase() {
        telemetry.event(Level::Error, format!("not erased: {error}"));
    }
    state.revoked.notify_one();
}
