//! Where this machine is: probes of branch gateways and the way to the file server, and as a gateway the answers to others'
//! probes. What follows from them is decided by `isthmus-agent`'s machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use isthmus_agent::location::{Location, Machine, Round, Server, Settings};
use isthmus_agent::probe::{self, Nonce, PROBE_BYTES, ProbeAnswer};
use isthmus_certs::{Role, Signer, Trust};
use isthmus_config::{ClientConfig, Gateway, HostPort, Tls};
use isthmus_intercept::Origin;
use isthmus_net::{BEAT, PeerState, next_beat};
use isthmus_telemetry::{Level, LocationStatus};
use isthmus_types::Reason;
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::AppError;
use crate::client::Client;
use crate::dial::dial;
use crate::host::ACCEPT_PAUSE;
use crate::network::Changes;

/// Interval at which the machine's own addresses are looked at where the kernel says nothing of changes.
const NETWORK_POLL: Duration = BEAT.saturating_mul(2);
/// From one change of addresses or routes until they are looked at: changes come in groups.
const NETWORK_SETTLES: Duration = Duration::from_millis(100);
/// A round that is due within this time is made now.
const SLACK: Duration = Duration::from_millis(200);
/// Probes that one gateway is sent in a round, and the least wait for each one's answer.
const PROBES: usize = 3;
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// Least wait for the file server; one that takes longer is far away.
const SERVER_WAIT: Duration = Duration::from_millis(500);
/// Wait for a name to be resolved.
const RESOLVE_WAIT: Duration = Duration::from_secs(1);
/// Certificates and revocation lists are read again after this.
const TRUST_FRESH: Duration = Duration::from_secs(30);
/// Probes that a gateway answers a second; each costs a signature.
const ANSWERS_PER_SECOND: u32 = 1_000;

/// What is known of the location.
pub(crate) struct Whereabouts {
    now: Mutex<Option<LocationStatus>>,
    /// Rings when the configuration has changed.
    changed: Notify,
    /// Rings when the server side should be told something, or asked.
    pub news: Notify,
}

impl Whereabouts {
    pub fn new() -> Whereabouts {
        Whereabouts { now: Mutex::new(None), changed: Notify::new(), news: Notify::new() }
    }

    /// Why a connection is not to be optimised here, if so.
    pub fn elsewhere(&self) -> Option<(Reason, String)> {
        let now = self.status()?;
        let reason = if now.location == Location::Off.as_str() {
            Reason::ServerNear
        } else if now.location == Location::Branch.as_str() {
            Reason::BranchGateway
        } else {
            return None;
        };
        Some((reason, now.why))
    }

    /// `None` if the location is not looked after.
    pub fn status(&self) -> Option<LocationStatus> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration has changed.
    pub fn notify(&self) {
        self.changed.notify_one();
    }

    fn publish(&self, status: Option<LocationStatus>) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Looks after the location as long as the proxy runs.
pub(crate) async fn keep(client: Arc<Client>) {
    let start = Instant::now();
    let (mut machine, mut prober) = (None::<Machine>, Prober::default());
    let (mut paths, mut since) = (Vec::new(), SystemTime::now());
    let changes = Changes::default();
    loop {
        let config = client.config.load_full();
        let settings = Settings {
            server: config.location.server.is_some(),
            near: config.location.near,
            gateways: !config.location.gateways.is_empty(),
            gateway_near: config.location.gateway_near,
        };
        if !settings.server && !settings.gateways {
            machine = None;
            client.whereabouts.publish(None);
            client.whereabouts.changed.notified().await;
            continue;
        }
        let now = start.elapsed();
        let machine = machine.get_or_insert_with(|| Machine::new(settings.clone(), now));
        machine.set(settings);
        if have_changed(&paths) {
            machine.network_changed();
        }
        paths = prober.paths();
        let Some(plan) = machine.plan(now) else { continue };
        if plan.at > now + SLACK {
            let until = next_beat(NETWORK_POLL).min(Instant::now() + (plan.at - now));
            tokio::select! {
                () = change_of(&paths, &changes) => {}
                _ = timeout_at(until, client.whereabouts.changed.notified()) => {}
            }
            continue;
        }
        let calm = machine.is_settled() && machine.location() != Location::Branch;
        let round = tokio::select! {
            // Nobody will answer what was asked in another network.
            () = change_of(&paths, &changes), if calm => continue,
            round = prober.round(&config, plan.ask_server, calm, client.mark()) => round,
        };
        if let Some(change) = machine.observe(now, start.elapsed(), &round) {
            since = SystemTime::now();
            let text = format!("location: {}, was {}: {}", change.to, change.from, change.why);
            client.core.telemetry.event(Level::Info, text);
            client.whereabouts.news.notify_one();
        }
        let location = machine.location().as_str();
        let status = LocationStatus { location, why: machine.why().to_owned(), since };
        client.whereabouts.publish(Some(status));
    }
}

/// An address, and the local one from which it is reached, if it is.
type Way = (SocketAddr, Option<IpAddr>);

/// Whether an address is reached in another way than it was.
fn have_changed(ways: &[Way]) -> bool {
    ways.iter().any(|(to, from)| local_address(*to) != *from)
}

/// Waits until an address is reached in another way than it was.
async fn change_of(ways: &[Way], changes: &Changes) {
    while !have_changed(ways) {
        changes.next().await;
        sleep(NETWORK_SETTLES).await;
    }
}

/// Sends probes and knows whom it has sent them to.
#[derive(Default)]
struct Prober {
    /// Addresses of the last round, whose local ends tell when the network has changed.
    asked: Vec<SocketAddr>,
    trust: Option<(Instant, Arc<Trust>)>,
}

impl Prober {
    /// One round. A `calm` one expects no gateway: one probe then, whose answer has until
    /// the next look at the network, which wakes this process anyway.
    async fn round(
        &mut self,
        config: &ClientConfig,
        ask_server: bool,
        calm: bool,
        mark: Option<u32>,
    ) -> Round {
        let location = &config.location;
        let mut asked = Vec::new();
        let mut round = Round::default();
        if let Some(trust) = self.trust(&config.tls) {
            let mut probes = JoinSet::new();
            for gateway in &location.gateways {
                if let Some(address) = resolve(&gateway.address).await {
                    asked.push(address);
                    let patience = if calm {
                        Patience { probes: 1, wait: next_beat(NETWORK_POLL) - Instant::now() }
                    } else {
                        Patience { probes: PROBES, wait: PROBE_WAIT.max(location.gateway_near) }
                    };
                    probes.spawn(ask_gateway(gateway.clone(), address, trust.clone(), patience));
                }
            }
            while let Some(answer) = probes.join_next().await {
                if let Ok(Some(answer)) = answer {
                    round.gateway = Some(answer);
                    break;
                }
            }
        }
        let far = round.gateway.as_ref().is_none_or(|(_, rtt)| *rtt > location.gateway_near);
        if let Some(server) = location.server.as_ref().filter(|_| ask_server && far) {
            round.server = match resolve(server).await {
                Some(address) => {
                    asked.push(address);
                    ask_server_at(address, SERVER_WAIT.max(location.near * 2), mark).await
                }
                None => Server::Silent,
            };
        }
        if !asked.is_empty() {
            self.asked.retain(|address| !asked.contains(address));
            self.asked.truncate(PROBES);
            self.asked.splice(0..0, asked);
        }
        round
    }

    /// The ways to what was asked. Nothing is sent.
    fn paths(&self) -> Vec<Way> {
        // Addresses for documentation, which stand for everything else.
        let other = [SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9))];
        self.asked.iter().chain(&other).map(|address| (*address, local_address(*address))).collect()
    }

    fn trust(&mut self, tls: &Tls) -> Option<Arc<Trust>> {
        if let Some((read, trust)) = &self.trust
            && read.elapsed() < TRUST_FRESH
        {
            return Some(trust.clone());
        }
        match Trust::load(&tls.ca, tls.crl.as_deref()) {
            Ok(trust) => {
                let trust = Arc::new(trust);
                self.trust = Some((Instant::now(), trust.clone()));
                Some(trust)
            }
            Err(error) => {
                tracing::warn!(%error, "answers of gateways cannot be verified");
                None
            }
        }
    }
}

async fn resolve(host: &HostPort) -> Option<SocketAddr> {
    let name = (host.host.to_string(), host.port);
    timeout(RESOLVE_WAIT, lookup_host(name)).await.ok()?.ok()?.next()
}

fn local_address(to: SocketAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind(unspecified(to)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn unspecified(to: SocketAddr) -> SocketAddr {
    if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

/// How many probes a gateway is sent, and the wait for each one's answer.
#[derive(Clone, Copy)]
struct Patience {
    probes: usize,
    wait: Duration,
}

/// The gateway's name and the round trip, if it answers with a signature that is good.
async fn ask_gateway(
    gateway: Gateway,
    address: SocketAddr,
    trust: Arc<Trust>,
    patience: Patience,
) -> Option<(String, Duration)> {
    let socket = UdpSocket::bind(unspecified(address)).await.ok()?;
    socket.connect(address).await.ok()?;
    let mut sent: Vec<(Nonce, Instant)> = Vec::new();
    let mut buffer = vec![0; PROBE_BYTES + 1];
    for _ in 0..patience.probes {
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).ok()?;
        // A gateway that is not there may show as an error of any call; the next probe may still get through.
        let _ = socket.send(&probe::probe(&nonce)).await;
        sent.push((nonce, Instant::now()));
        let end = Instant::now() + patience.wait;
        while let Ok(received) = tokio::time::timeout_at(end, socket.recv(&mut buffer)).await {
            let Ok(len) = received else {
                tokio::time::sleep_until(end).await;
                break;
            };
            let came = Instant::now();
            let Some(answer) = buffer.get(..len).and_then(probe::read_answer) else { continue };
            let Some((_, at)) = sent.iter().find(|(nonce, _)| *nonce == answer.nonce) else { continue };
            match judge(&gateway, &answer, &trust) {
                Ok(()) => return Some((gateway.name, came - *at)),
                Err(why) => {
                    tracing::warn!(gateway = %gateway, %why, "a gateway's answer does not count");
                    return None;
                }
            }
        }
    }
    None
}

fn judge(gateway: &Gateway, answer: &ProbeAnswer<'_>, trust: &Trust) -> Result<(), String> {
    let statement = probe::statement(&answer.nonce);
    let now = SystemTime::now();
    let holder =
        trust.holder_signed(answer.certificate, Role::ClientSide, &statement, answer.signature, now)?;
    if holder == gateway.name { Ok(()) } else { Err(format!("it is {holder:?} that answers")) }
}

/// `mark` keeps the connection from being intercepted by this proxy itself.
async fn ask_server_at(address: SocketAddr, wait: Duration, mark: Option<u32>) -> Server {
    let start = Instant::now();
    match timeout(wait, dial(address, Origin::Here, mark)).await {
        Ok(Ok(_)) => Server::Answered(start.elapsed()),
        _ => Server::Silent,
    }
}

/// Answers probes, if this proxy is the gateway of a branch.
pub(crate) async fn answer_probes(client: &Arc<Client>) -> Result<(), AppError> {
    let config = client.config.load_full();
    let Some(address) = config.location.answer else { return Ok(()) };
    let socket = UdpSocket::bind(address).await.map_err(|error| AppError::Listen {
        address,
        key: "location.answer",
        error,
    })?;
    tracing::info!(%address, "answering probes of laptops");
    tokio::spawn(answer_all(client.clone(), socket, config.tls.clone()));
    Ok(())
}

async fn answer_all(client: Arc<Client>, socket: UdpSocket, tls: Tls) {
    let mut buffer = vec![0; PROBE_BYTES + 1];
    let (mut second, mut answered) = (Instant::now(), 0);
    let mut signer: Option<(Instant, Signer)> = None;
    loop {
        let (len, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // An answer that could not be delivered shows here as well.
                tracing::debug!(%error, "a probe cannot be received");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(nonce) = buffer.get(..len).and_then(probe::read_probe) else { continue };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, answered) = (Instant::now(), 0);
        }
        // A gateway that would not optimise has no say in whether a laptop does.
        if answered >= ANSWERS_PER_SECOND || !would_optimise(&client) {
            continue;
        }
        answered += 1;
        if signer.as_ref().is_none_or(|(read, _)| read.elapsed() >= TRUST_FRESH) {
            signer = match Signer::load(&tls.certificate, &tls.key) {
                Ok(signer) => Some((Instant::now(), signer)),
                Err(error) => {
                    tracing::warn!(%error, "probes cannot be answered");
                    None
                }
            };
        }
        let Some((_, signer)) = &signer else { continue };
        let Ok(signature) = signer.sign(&probe::statement(&nonce)) else { continue };
        let answer = ProbeAnswer { nonce, signature: &signature, certificate: signer.certificate() };
        if let Some(datagram) = probe::answer(&answer) {
            // Whoever asks asks again.
            let _ = socket.send_to(&datagram, from).await;
        }
    }
}

fn would_optimise(client: &Client) -> bool {
    let up = |slot: Arc<crate::link::Slot>| matches!(slot.dialer.state(), PeerState::Connected(_));
    !*client.core.draining.borrow() && client.link.active().is_some_and(up)
}
