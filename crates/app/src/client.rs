//! The client-side proxy: listeners, rules, and the way to the peer or around it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_config::{Action, ClientConfig, Decision, HostPort, WhenUnavailable};
use isthmus_net::{Dialer, DialerConfig, LocalHello, PeerState, TlsFiles, TlsSource, WanCounters};
use isthmus_telemetry::{ConnectionHandle, ConnectionInfo, ConnectionState, Level, Protocol};
use isthmus_types::{Reason, Side, StoreId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::RwLock;
use tokio::time::timeout;

use crate::core::{Core, StoreState};
use crate::host::{self, Running, Tracker};
use crate::opening::{self, Opening};
use crate::status::ClientStatus;
use crate::{AppError, lan};

/// Interval at which TLS files that could not be used at the start are looked at again.
const TLS_RETRY: Duration = Duration::from_secs(3);

/// The link to the peer, or why there is none yet.
pub(crate) struct Link {
    pub dialer: RwLock<Option<Dialer>>,
    pub problem: std::sync::Mutex<(Reason, String)>,
    pub wan: Arc<WanCounters>,
}

pub(crate) struct Client {
    pub core: Arc<Core>,
    pub config: ClientConfig,
    pub link: Link,
}

/// Runs the client-side proxy until it is told to stop.
pub async fn run(config: ClientConfig) -> Result<(), AppError> {
    host::raise_file_limit();
    let core = Core::start(Side::Client, &config.store, &config.limits, config.compression.level)?;
    let link = Link {
        dialer: RwLock::new(None),
        problem: std::sync::Mutex::new((Reason::PeerAbsent, "not connected yet".into())),
        wan: Arc::default(),
    };
    let client = Arc::new(Client { core: core.clone(), config, link });
    let tracker = Tracker::new();
    let mut listeners = Vec::new();
    for (index, listener) in client.config.rules.listeners() {
        let socket = host::bind(listener.address, "rule.listen").await?;
        tracing::info!(address = %listener.address, target = %listener.target, "listening");
        listeners.push((index, listener.target.clone(), socket));
    }
    host::start_admin(&core, Arc::new(ClientStatus::new(&client)), &client.config.admin).await?;
    tokio::spawn(core.clone().keep_time());
    tokio::spawn(keep_link(client.clone()));
    let tasks: Vec<_> = listeners
        .into_iter()
        .map(|(index, target, socket)| {
            tokio::spawn(listen(client.clone(), index, target, socket, tracker.running()))
        })
        .collect();
    host::told_to_stop(&core.draining).await?;
    // New connections go past a proxy that is about to end.
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    drop(tasks);
    host::drain(&core, tracker, client.config.drain.deadline).await
}

/// Starts dialling as soon as the TLS files can be used.
async fn keep_link(client: Arc<Client>) {
    loop {
        match start_dialer(&client) {
            Ok(dialer) => {
                let mut states = dialer.subscribe();
                *client.link.dialer.write().await = Some(dialer);
                loop {
                    let text = match &*states.borrow_and_update() {
                        PeerState::Connected(info) => {
                            client.core.note_peer(info);
                            (Level::Info, format!("peer {} is up", info.name))
                        }
                        PeerState::Down { detail, .. } => (Level::Warning, format!("peer is down: {detail}")),
                    };
                    client.core.telemetry.event(text.0, text.1);
                    if states.changed().await.is_err() {
                        return;
                    }
                }
            }
            Err((reason, detail)) => {
                let mut problem =
                    client.link.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if problem.1 != detail {
                    client.core.telemetry.event(Level::Error, format!("no link to the peer: {detail}"));
                    *problem = (reason, detail);
                }
            }
        }
        tokio::time::sleep(TLS_RETRY).await;
    }
}

fn start_dialer(client: &Client) -> Result<Dialer, (Reason, String)> {
    let (store, generation) = client
        .core
        .identity()
        .ok_or_else(|| (Reason::StoreUnavailable, Reason::StoreUnavailable.to_string()))?;
    let config = &client.config;
    let tls = tls_source(&config.tls, Side::Client)?;
    let local = hello(store, generation)?;
    let mut dialer =
        DialerConfig::new(config.peer.address.to_string(), config.peer.server_name.clone(), tls, local);
    dialer.pool_min = config.pool.min as usize;
    dialer.pool_max = config.pool.max as usize;
    dialer.resume_window = config.channels.resume_window;
    dialer.heartbeat = config.channels.heartbeat;
    Dialer::start(dialer, client.link.wan.clone()).map_err(|error| (Reason::PeerAbsent, error.to_string()))
}

pub(crate) fn tls_source(tls: &isthmus_config::Tls, side: Side) -> Result<Arc<TlsSource>, (Reason, String)> {
    let files = TlsFiles {
        ca: tls.ca.clone(),
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        crl: tls.crl.clone(),
    };
    TlsSource::load(files, side).map_err(|error| (Reason::PeerUnauthorised, error.to_string()))
}

pub(crate) fn hello(store: StoreId, generation: u64) -> Result<LocalHello, (Reason, String)> {
    LocalHello::new(store, generation).map_err(|error| (Reason::PeerAbsent, error.to_string()))
}

async fn listen(client: Arc<Client>, rule: usize, target: HostPort, listener: TcpListener, running: Running) {
    loop {
        let Some((stream, source)) = host::accept(&listener).await else { continue };
        let (client, target, running) = (client.clone(), target.clone(), running.clone());
        tokio::spawn(async move {
            client.serve(stream, source, rule, target).await;
            drop(running);
        });
    }
}

impl Client {
    /// Serves one outer connection to its end.
    async fn serve(self: Arc<Client>, stream: TcpStream, source: SocketAddr, rule: usize, target: HostPort) {
        lan::prepare(&stream, self.config.limits.keepalive);
        let decision = self.config.rules.decide_listener(source.ip(), rule);
        let handle = self.core.telemetry.connections().register(ConnectionInfo {
            client: source,
            target: target.to_string(),
            protocol: Protocol::from_port(target.port),
            peer: String::new(),
            rule: decision.name.to_string(),
            opened_at: SystemTime::now(),
        });
        match decision.action {
            Action::Deny => {
                let reason = Reason::RuleDeny;
                handle.set_state_because(ConnectionState::Denied, reason, &reason.to_string());
                lan::reset_at_close(&stream);
            }
            Action::PassThrough => {
                let reason = Reason::RulePassThrough;
                self.pass(stream, &target, handle, &[], reason, &reason.to_string()).await;
            }
            Action::Optimise | Action::ReduceOnly => {
                self.optimise(stream, source, target, decision, handle).await;
            }
        }
    }

    async fn optimise(
        &self,
        stream: TcpStream,
        source: SocketAddr,
        target: HostPort,
        decision: Decision,
        handle: ConnectionHandle,
    ) {
        let refusal = match self.may_optimise().await {
            Ok(_place) => {
                let dialer = self.link.dialer.read().await;
                let channel = match dialer.as_ref() {
                    Some(dialer) => dialer.channel().await.map_err(|reason| (reason, why(dialer, reason))),
                    None => Err(self.problem()),
                };
                drop(dialer);
                match channel {
                    Ok(channel) => {
                        let opening =
                            Opening { core: self.core.clone(), target: &target, source, decision: &decision };
                        match opening.run(channel, stream, handle, self.config.limits.connect_timeout).await {
                            opening::Outcome::Done => return,
                            opening::Outcome::Refused(refused) => *refused,
                        }
                    }
                    Err((reason, detail)) => {
                        opening::Refused { stream, handle, early: Vec::new(), reason, detail }
                    }
                }
            }
            Err((reason, detail)) => opening::Refused { stream, handle, early: Vec::new(), reason, detail },
        };
        self.fail_to_wire(refusal, &target, decision.when_unavailable).await;
    }

    async fn may_optimise(&self) -> Result<crate::admission::Place, (Reason, String)> {
        if *self.core.draining.borrow() {
            return Err((Reason::Draining, Reason::Draining.to_string()));
        }
        if let StoreState::Unusable(why) = &self.core.store {
            return Err((Reason::StoreUnavailable, why.clone()));
        }
        self.core.admission.enter().ok_or_else(|| (Reason::AdmissionFull, Reason::AdmissionFull.to_string()))
    }

    fn problem(&self) -> (Reason, String) {
        self.link.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The connection goes on without the pair, unless its rule says that it must not.
    async fn fail_to_wire(&self, refused: opening::Refused, target: &HostPort, rule: WhenUnavailable) {
        let opening::Refused { stream, handle, early, reason, detail } = refused;
        let target_failed =
            matches!(reason, Reason::TargetNotAllowed | Reason::TargetRefused | Reason::TargetUnreachable);
        if target_failed || rule == WhenUnavailable::Refuse {
            handle.set_state_because(ConnectionState::Denied, reason, &detail);
            lan::reset_at_close(&stream);
            return;
        }
        self.pass(stream, target, handle, &early, reason, &detail).await;
    }

    async fn pass(
        &self,
        stream: TcpStream,
        target: &HostPort,
        handle: ConnectionHandle,
        early: &[u8],
        reason: Reason,
        detail: &str,
    ) {
        handle.set_state_because(ConnectionState::PassThrough, reason, detail);
        let limits = &self.config.limits;
        let address = (target.host.to_string(), target.port);
        let server = match timeout(limits.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => {
                let reason = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => Reason::TargetRefused,
                    _ => Reason::TargetUnreachable,
                };
                lan::reset_at_close(&stream);
                return handle.fail(reason, &error.to_string());
            }
            Err(_) => {
                lan::reset_at_close(&stream);
                return handle.fail(Reason::TargetUnreachable, "no answer in time");
            }
        };
        lan::prepare(&server, limits.keepalive);
        if let Err(error) = lan::relay(stream, server, early, handle.ledger()).await {
            handle.fail(Reason::ApplicationReset, &error.to_string());
        }
    }
}

/// Why the dialer has no channel, for people.
fn why(dialer: &Dialer, reason: Reason) -> String {
    match dialer.state() {
        PeerState::Down { detail, .. } => detail,
        PeerState::Connected(_) => reason.to_string(),
    }
}
