//! The server side's part of a fleet: lets laptops in, renews their certificates, hands out policies, and remembers what
//! they report.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isthmus_agent::limits::REQUEST_BYTES_MAX;
use isthmus_agent::{Answer, Enrol, Half, Report, Request, decode, encode};
use isthmus_certs::files;
use isthmus_config::FleetConfig;
use isthmus_fleet::{AGENTS_MAX, Agent, Fleet, FleetError, Seen};
use isthmus_net::{FleetCall, PeerState};
use isthmus_telemetry::{FleetMember, Level, Telemetry};
use tokio::sync::{Semaphore, mpsc};
use zeroize::Zeroizing;

/// Calls that are answered at once; each may wait for the disk.
const CALLS_MAX: usize = 16;
/// Enrolments that may be tried at once, and how soon there may be another.
const ENROLMENTS_BURST: u32 = 20;
const ENROLMENT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which reports are kept on disk.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the authority's revocation list is looked at.
const REVOCATIONS_INTERVAL: Duration = Duration::from_secs(1);

/// The register, and what has happened to it since the proxy started.
pub(crate) struct FleetService {
    fleet: Fleet,
    telemetry: Arc<Telemetry>,
    seen: Mutex<BTreeMap<String, Seen>>,
    enrolments: Mutex<Bucket>,
    /// The authority's revocation list, and the one that this proxy goes by.
    revocations: (PathBuf, PathBuf),
}

impl FleetService {
    /// A service for the register of `config`; `crl` is the proxy's own revocation list.
    pub fn new(
        config: &FleetConfig,
        crl: &Path,
        telemetry: Arc<Telemetry>,
    ) -> Result<Arc<FleetService>, FleetError> {
        let fleet = Fleet::new(&config.path, &config.authority, config.days);
        let seen = fleet.seen()?;
        Ok(Arc::new(FleetService {
            fleet,
            telemetry,
            seen: Mutex::new(seen),
            enrolments: Mutex::new(Bucket::full(Instant::now())),
            revocations: (config.authority.join("crl.pem"), crl.to_path_buf()),
        }))
    }

    /// Answers calls until nobody can call any more.
    pub async fn run(self: Arc<FleetService>, mut calls: mpsc::Receiver<FleetCall>) {
        let places = Arc::new(Semaphore::new(CALLS_MAX));
        tokio::spawn(self.clone().keep_reports());
        tokio::spawn(self.clone().follow_revocations());
        while let Some(call) = calls.recv().await {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let service = self.clone();
            tokio::spawn(async move {
                service.serve(call).await;
                drop(place);
            });
        }
    }

    /// Every agent, and every other client side that has said hello, as a gateway.
    pub fn members(&self, peers: &[isthmus_net::PeerStatus]) -> Vec<FleetMember> {
        let agents = self.fleet.agents().unwrap_or_else(|error| {
            tracing::warn!(%error, "the register cannot be read");
            Vec::new()
        });
        let seen = lock(&self.seen).clone();
        let mut members: BTreeMap<String, FleetMember> =
            agents.iter().map(|agent| (agent.name.clone(), member(agent, seen.get(&agent.name)))).collect();
        add_peers(&mut members, peers);
        members.into_values().collect()
    }

    async fn serve(self: Arc<FleetService>, mut call: FleetCall) {
        let address = call.address();
        let caller = call.identity().map(|identity| identity.name.clone());
        let request = match call.request(REQUEST_BYTES_MAX).await {
            Ok(request) => request,
            Err(error) => return tracing::info!(%address, %error, "a call of an agent brought no request"),
        };
        let work = tokio::task::spawn_blocking(move || match decode::<Request>(&request) {
            Ok(request) => self.answer(address, caller, request),
            Err(error) => refused(error.to_string()),
        });
        let Ok(answer) = work.await else { return };
        match encode(&answer).map(Zeroizing::new) {
            Ok(bytes) => {
                if let Err(error) = call.answer(&bytes).await {
                    tracing::info!(%address, %error, "an agent did not take its answer");
                }
            }
            Err(error) => tracing::error!(%error, "an answer cannot be written"),
        }
    }

    fn answer(&self, address: SocketAddr, caller: Option<String>, request: Request) -> Answer {
        match (request, caller) {
            (Request::Enrol(enrol), _) => self.enrol(address, &enrol),
            (_, None) => refused("this needs a certificate; enrol first".to_owned()),
            (Request::Renew { request }, Some(name)) => match self.fleet.renew(&name, &request) {
                Ok(certificate) => {
                    self.telemetry.event(Level::Info, format!("agent {name}: certificate renewed"));
                    Answer::Renewed { certificate }
                }
                Err(error) => self.refuse(&format!("renewal for {name}"), &error),
            },
            (Request::StoreHalf, Some(name)) => match self.fleet.store_half(&name) {
                Ok(half) => Answer::StoreHalf(Half { half: half.to_string() }),
                Err(error) => self.refuse(&format!("the store's key for {name}"), &error),
            },
            (Request::Report(report), Some(name)) => self.report(address, name, report),
        }
    }

    fn enrol(&self, address: SocketAddr, enrol: &Enrol) -> Answer {
        let free = lock(&self.enrolments).take(Instant::now());
        if !free {
            self.telemetry.event(Level::Warning, "too many enrolments at once; some are turned away");
            return refused("too many enrolments at once; try again in a minute".to_owned());
        }
        match self.fleet.enrol(enrol, SystemTime::now()) {
            Ok(enrolled) => {
                let text = format!("{} has enrolled from {address}", enrolled.name);
                self.telemetry.event(Level::Info, text);
                Answer::Enrolled(enrolled)
            }
            Err(error) => self.refuse(&format!("enrolment from {address}"), &error),
        }
    }

    fn report(&self, address: SocketAddr, name: String, report: Report) -> Answer {
        let news = match self.fleet.news(&name, &report) {
            Ok(news) => news,
            Err(error) => return self.refuse(&format!("report of {name}"), &error),
        };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut seen = lock(&self.seen);
        // Only agents of the register get here, so there are never many more than it has.
        if seen.len() < AGENTS_MAX || seen.contains_key(&name) {
            seen.insert(name, Seen { at, address: address.to_string(), report });
        }
        Answer::Reported(news)
    }

    fn refuse(&self, what: &str, error: &FleetError) -> Answer {
        self.telemetry.event(Level::Warning, format!("{what} refused: {error}"));
        // A caller is told what it may know: nothing of this machine's files.
        let why = match error {
            FleetError::BadFile { .. } | FleetError::Io { .. } => "the register cannot be used".to_owned(),
            FleetError::Certs(isthmus_certs::CertsError::BadRequest(why)) => why.clone(),
            FleetError::Certs(_) => "the authority cannot be used".to_owned(),
            other => other.to_string(),
        };
        Answer::Refused { why, revoked: matches!(error, FleetError::Revoked(_)) }
    }

    async fn keep_reports(self: Arc<FleetService>) {
        let mut kept = lock(&self.seen).clone();
        loop {
            tokio::time::sleep(KEEP_INTERVAL).await;
            let now = lock(&self.seen).clone();
            if now == kept {
                continue;
            }
            let service = self.clone();
            kept = now.clone();
            let write = tokio::task::spawn_blocking(move || service.fleet.keep_seen(&now)).await;
            if let Ok(Err(error)) = write {
                self.telemetry.event(Level::Error, format!("reports of agents cannot be kept: {error}"));
            }
        }
    }

    /// Brings the authority's revocation list to where this proxy reads it, so that revoking takes effect here at once.
    async fn follow_revocations(self: Arc<FleetService>) {
        let mut problem = String::new();
        loop {
            let service = self.clone();
            let outcome = tokio::task::spawn_blocking(move || service.copy_revocations()).await;
            let now = match outcome {
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(())) | Err(_) => String::new(),
            };
            if now != problem && !now.is_empty() {
                let text = format!("the authority's revocation list does not get to tls.crl: {now}");
                self.telemetry.event(Level::Error, text);
            }
            problem = now;
            tokio::time::sleep(REVOCATIONS_INTERVAL).await;
        }
    }

    fn copy_revocations(&self) -> Result<(), isthmus_certs::CertsError> {
        let (from, to) = &self.revocations;
        let list = files::read(from)?;
        if files::read(to).is_ok_and(|old| old == list) {
            return Ok(());
        }
        files::replace(to, &list, files::PUBLIC)
    }
}

/// The client sides of a proxy that keeps no fleet.
pub(crate) fn gateways(peers: &[isthmus_net::PeerStatus]) -> Vec<FleetMember> {
    let mut members = BTreeMap::new();
    add_peers(&mut members, peers);
    members.into_values().collect()
}

fn add_peers(members: &mut BTreeMap<String, FleetMember>, peers: &[isthmus_net::PeerStatus]) {
    for peer in peers {
        let info = &peer.info;
        let member = members
            .entry(info.name.clone())
            .or_insert_with(|| FleetMember { name: info.name.clone(), ..FleetMember::default() });
        let (connected, at) = match &peer.state {
            PeerState::Connected(_) => (true, SystemTime::now()),
            PeerState::Down { since, .. } => (false, *since),
        };
        member.connected |= connected;
        member.seen = member.seen.max(Some(at));
        member.address = info.address.to_string();
        if !member.agent {
            member.version.clone_from(&info.software);
        }
    }
}

/// An agent of the register with what it last said.
pub(crate) fn member(agent: &Agent, seen: Option<&Seen>) -> FleetMember {
    let seen = seen.cloned().unwrap_or_default();
    let report = seen.report;
    let or = |said: String, known: &String| if said.is_empty() { known.clone() } else { said };
    FleetMember {
        name: agent.name.clone(),
        agent: true,
        host: or(report.host, &agent.host),
        version: or(report.software, &agent.software),
        policy: Some((agent.policy.clone(), agent.policy_version)),
        policy_version: report.policy_version,
        seen: (seen.at > 0).then(|| UNIX_EPOCH.checked_add(Duration::from_secs(seen.at))).flatten(),
        connected: false,
        address: seen.address,
        location: report.location,
        location_why: report.location_why,
        lan_bytes: report.lan_bytes,
        wan_bytes: report.wan_bytes,
        store_bytes: report.store_bytes,
        certificate_until: Some(agent.not_after),
        revoked: agent.revoked,
        problem: report.problem,
    }
}

/// Lets enrolments through at a bounded rate, whoever tries.
struct Bucket {
    left: u32,
    filled: Instant,
}

impl Bucket {
    fn full(now: Instant) -> Bucket {
        Bucket { left: ENROLMENTS_BURST, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let ticks = now.duration_since(self.filled).as_millis() / ENROLMENT_INTERVAL.as_millis();
        if ticks > 0 {
            let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(ticks).min(ENROLMENTS_BURST);
            self.filled = now;
        }
        let free = self.left > 0;
        self.left -= u32::from(free);
        free
    }
}

fn refused(why: String) -> Answer {
    Answer::Refused { why, revoked: false }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enrolments_come_at_a_bounded_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(start);
        let taken = (0..100).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, ENROLMENTS_BURST as usize);
        assert!(bucket.take(start + ENROLMENT_INTERVAL));
        assert!(!bucket.take(start + ENROLMENT_INTERVAL));
        let later = start + ENROLMENT_INTERVAL * 1000;
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), ENROLMENTS_BURST as usize);
    }
}
