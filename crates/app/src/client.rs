//! The client-side proxy: listeners, rules, and the way to the peer or around it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use isthmus_config::{Action, ClientConfig, Decision, HostPort, WhenUnavailable};
use isthmus_intercept::{Form, Origin, Plan};
use isthmus_net::{LocalHello, TlsFiles, TlsSource};
use isthmus_telemetry::{ConnectionHandle, ConnectionInfo, ConnectionState, Protocol};
use isthmus_types::{Reason, Side, StoreId};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::agent::AgentState;
use crate::core::{Core, StoreState};
use crate::dial::dial_any;
use crate::host::{self, Tracker};
use crate::intercept::{self, Keeper};
use crate::link::{self, Link};
use crate::listeners::Listeners;
use crate::opening::{self, Opening};
use crate::passing::{self, Passing};
use crate::relay::relay;
use crate::status::ClientStatus;
use crate::warm::keep_warm;
use crate::whereabouts::{self, Whereabouts};
use crate::{AppError, lan};

pub(crate) struct Client {
    pub core: Arc<Core>,
    /// As it holds now: a new policy replaces it.
    pub config: ArcSwap<ClientConfig>,
    pub link: Link,
    /// Where this machine is, if that is looked after.
    pub whereabouts: Whereabouts,
    /// What an enrolled laptop knows of itself.
    pub agent: Option<Arc<AgentState>>,
    listeners: Listeners,
    /// What is intercepted, if anything is.
    pub plan: Option<Plan>,
    /// Keeps its rules in place, where this process does that.
    pub keeper: OnceLock<Arc<Keeper>>,
    passing: Passing,
}

/// How an outer connection came here.
#[derive(Clone, Copy)]
enum Way {
    /// By the explicit listener of this rule.
    Listener(usize),
    /// It was on its way to its target.
    Path,
}

/// An outer connection.
struct Arrival {
    stream: TcpStream,
    source: SocketAddr,
    target: HostPort,
    way: Way,
}

/// Runs the client-side proxy until it is told to stop.
pub async fn run(config: ClientConfig) -> Result<(), AppError> {
    Running::start(config, None).await?.until_stopped().await
}

/// A client-side proxy that has been started.
pub(crate) struct Running {
    pub client: Arc<Client>,
    tracker: Tracker,
    /// What accepts intercepted connections.
    path: Vec<tokio::task::JoinHandle<()>>,
    /// What reads shares in advance.
    warming: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Opens the store and the ports, and starts everything that runs beside connections.
    pub async fn start(config: ClientConfig, agent: Option<Arc<AgentState>>) -> Result<Running, AppError> {
        host::raise_file_limit();
        host::keep_memory_private();
        let core = Arc::new(Core::new(Side::Client, &config.limits, config.compression.level, &config.smb)?);
        // Half of the key of an agent's store is with the server side.
        if agent.is_none() || !config.store.encryption {
            core.open_store(&config.store, None)?;
        }
        let admin = config.admin.clone();
        let plan = intercept::client_plan(&config);
        let tracker = Tracker::new();
        let client = Arc::new(Client {
            core: core.clone(),
            whereabouts: Whereabouts::new(),
            config: ArcSwap::from_pointee(config),
            link: Link::new(),
            agent,
            listeners: Listeners::new(tracker.running()),
            plan,
            keeper: OnceLock::new(),
            passing: Passing::default(),
        });
        if let Some((address, error)) = client.open_listeners().await.into_iter().next() {
            return Err(AppError::Listen { address, key: "rule.listen", error });
        }
        let mut path = Vec::new();
        if let Some(plan) = &client.plan {
            for socket in intercept::listen(plan)? {
                path.push(tokio::spawn(listen(client.clone(), None, socket, tracker.running())));
            }
        }
        host::start_admin(&core, Arc::new(ClientStatus::new(&client)), &admin).await?;
        tokio::spawn(core.clone().keep_time());
        tokio::spawn(link::keep(client.clone()));
        tokio::spawn(whereabouts::keep(client.clone()));
        let warm = client.config.load().warm.clone();
        let warming = warm.into_iter().map(|warm| tokio::spawn(keep_warm(client.clone(), warm))).collect();
        whereabouts::answer_probes(&client).await?;
        client.intercept().await?;
        Ok(Running { client, tracker, path, warming })
    }

    /// Waits for the signal, and lets connections end.
    pub async fn until_stopped(self) -> Result<(), AppError> {
        let core = self.client.core.clone();
        host::told_to_stop(&core.draining).await?;
        // New connections go past a proxy that is about to end.
        if let Some(keeper) = self.client.keeper.get() {
            keeper.take_no_more();
        }
        self.client.listeners.close();
        self.path.iter().chain(&self.warming).for_each(tokio::task::JoinHandle::abort);
        let deadline = self.client.config.load().drain.deadline;
        let result = host::drain(&core, self.tracker, deadline).await;
        if let Some(keeper) = self.client.keeper.get() {
            keeper.let_go().await;
        }
        result
    }
}

impl Client {
    /// Goes by another configuration from now on. Connections that are open go on as they are; what is only read at the
    /// start (the store's size, SMB, the level of compression, limits on the number of connections) waits for the next one. Gives
    /// the addresses that cannot be listened on.
    pub async fn apply(self: &Arc<Client>, config: ClientConfig) -> Vec<(SocketAddr, std::io::Error)> {
        self.config.store(Arc::new(config));
        let failed = self.open_listeners().await;
        self.link.notify();
        self.whereabouts.notify();
        failed
    }

    /// Listens where the rules say, and nowhere else.
    async fn open_listeners(self: &Arc<Client>) -> Vec<(SocketAddr, std::io::Error)> {
        let config = self.config.load_full();
        let wanted: Vec<SocketAddr> =
            config.rules.listeners().map(|(_, listener)| listener.address).collect();
        let serve = |running: host::Running, address: SocketAddr, socket: TcpListener| {
            tokio::spawn(listen(self.clone(), Some(address), socket, running))
        };
        self.listeners.follow(&wanted, serve).await
    }
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

/// Accepts the connections of an explicit listener, or those that are intercepted.
async fn listen(
    client: Arc<Client>,
    address: Option<SocketAddr>,
    listener: TcpListener,
    running: host::Running,
) {
    loop {
        let Some((stream, source)) = host::accept(&listener).await else { continue };
        let Some(arrival) = client.arrival(stream, source, address) else { continue };
        let (client, running) = (client.clone(), running.clone());
        tokio::spawn(async move {
            client.serve(arrival).await;
            drop(running);
        });
    }
}

impl Client {
    /// Intercepts, once everything else runs.
    async fn intercept(self: &Arc<Client>) -> Result<(), AppError> {
        let Some(plan) = &self.plan else { return Ok(()) };
        if self.config.load().intercept.routing.install {
            let keeper = Keeper::start(self.core.clone(), plan.clone()).await?;
            // Nobody else sets it.
            let _ = self.keeper.set(keeper);
            tokio::spawn(passing::list_passing_by(self.core.clone(), plan.clone()));
        }
        tracing::info!(port = plan.port, form = ?plan.form, "intercepting");
        Ok(())
    }

    /// What an accepted connection is for; `None` if it is nothing that could be carried.
    fn arrival(&self, stream: TcpStream, source: SocketAddr, address: Option<SocketAddr>) -> Option<Arrival> {
        let found = match (address, &self.plan) {
            (Some(address), _) => {
                let config = self.config.load();
                let mut listeners = config.rules.listeners();
                // Without a rule the listener is about to be closed.
                listeners
                    .find(|(_, listener)| listener.address == address)
                    .map(|(rule, listener)| (Way::Listener(rule), listener.target.clone()))
            }
            (None, Some(plan)) => match intercept::destination(plan, &stream) {
                Ok(target) => Some((Way::Path, target)),
                Err(error) => {
                    tracing::debug!(%source, %error, "not an intercepted connection");
                    None
                }
            },
            (None, None) => None,
        };
        let Some((way, target)) = found else {
            lan::reset_at_close(&stream);
            return None;
        };
        Some(Arrival { stream, source, target, way })
    }

    /// Connections that were made without the peer could be optimised now.
    pub(crate) async fn peer_is_back(self: Arc<Client>) {
        let reset = self.config.load().intercept.reset_preexisting;
        self.passing.peer_is_back(&self.core, reset).await;
    }

    /// Serves one outer connection to its end.
    async fn serve(self: Arc<Client>, arrival: Arrival) {
        let Arrival { stream, source, target, way } = arrival;
        let config = self.config.load_full();
        lan::prepare(&stream, config.limits.keepalive);
        let decision = match way {
            Way::Listener(rule) => config.rules.decide_listener(source.ip(), rule),
            Way::Path => config.rules.decide(source.ip(), &target.host, target.port),
        };
        let from = self.origin(source, way);
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
                let detail = reason.to_string();
                let refused = opening::Refused { stream, handle, early: Vec::new(), reason, detail };
                self.pass(refused, &target, from).await;
            }
            Action::Optimise | Action::ReduceOnly => {
                if let Some((reason, detail)) = self.whereabouts.elsewhere() {
                    let refused = opening::Refused { stream, handle, early: Vec::new(), reason, detail };
                    return self.pass(refused, &target, from).await;
                }
                self.optimise((stream, source, from), target, decision, handle).await;
            }
        }
    }

    async fn optimise(
        &self,
        (stream, source, from): (TcpStream, SocketAddr, Origin),
        target: HostPort,
        decision: Decision,
        handle: ConnectionHandle,
    ) {
        let refusal = match self.may_optimise().await {
            Ok(_place) => match self.link.channel().await {
                Ok(channel) => {
                    let opening =
                        Opening { core: self.core.clone(), target: &target, source, decision: &decision };
                    let limit = self.config.load().limits.connect_timeout;
                    match opening.run(channel, stream, handle, limit).await {
                        opening::Outcome::Done => return,
                        opening::Outcome::Refused(refused) => *refused,
                    }
                }
                Err((reason, detail)) => {
                    opening::Refused { stream, handle, early: Vec::new(), reason, detail }
                }
            },
            Err((reason, detail)) => opening::Refused { stream, handle, early: Vec::new(), reason, detail },
        };
        self.fail_to_wire(refusal, &target, from, decision.when_unavailable).await;
    }

    async fn may_optimise(&self) -> Result<crate::admission::Place, (Reason, String)> {
        if *self.core.draining.borrow() {
            return Err((Reason::Draining, Reason::Draining.to_string()));
        }
        if let StoreState::Unusable(why) = self.core.store() {
            return Err((Reason::StoreUnavailable, why.clone()));
        }
        self.core.admission.enter().ok_or_else(|| (Reason::AdmissionFull, Reason::AdmissionFull.to_string()))
    }

    /// The connection goes on without the pair, unless its rule says that it must not.
    async fn fail_to_wire(
        &self,
        refused: opening::Refused,
        target: &HostPort,
        from: Origin,
        rule: WhenUnavailable,
    ) {
        let target_failed = matches!(
            refused.reason,
            Reason::TargetNotAllowed | Reason::TargetRefused | Reason::TargetUnreachable
        );
        if target_failed || rule == WhenUnavailable::Refuse {
            refused.handle.set_state_because(ConnectionState::Denied, refused.reason, &refused.detail);
            lan::reset_at_close(&refused.stream);
            return;
        }
        self.pass(refused, target, from).await;
    }

    /// Under whose address a connection goes on that is relayed directly. A gateway knows the connection between client and
    /// target already, as the one that it has intercepted, so it takes another port of the client.
    fn origin(&self, source: SocketAddr, way: Way) -> Origin {
        match (way, &self.plan) {
            (Way::Path, Some(plan)) if plan.form == Form::Tproxy => Origin::Address(source),
            _ => Origin::Here,
        }
    }

    /// The mark of own connections, which keeps them from being intercepted in their turn.
    pub fn mark(&self) -> Option<u32> {
        self.plan.as_ref().filter(|plan| plan.form == Form::Local).map(|plan| plan.mark)
    }

    /// Relays a connection directly.
    async fn pass(&self, refused: opening::Refused, target: &HostPort, from: Origin) {
        let opening::Refused { mut stream, handle, early, reason, detail } = refused;
        handle.set_state_because(ConnectionState::PassThrough, reason, &detail);
        let limits = &self.config.load_full().limits;
        let failed = match timeout(limits.connect_timeout, dial_any(target, from, self.mark())).await {
            Ok(Ok(mut server)) => {
                lan::prepare(&server, limits.keepalive);
                return self.relay(&mut stream, &mut server, &early, handle, reason).await;
            }
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                (Reason::TargetRefused, error.to_string())
            }
            Ok(Err(error)) => (Reason::TargetUnreachable, error.to_string()),
            Err(_) => (Reason::TargetUnreachable, "no answer in time".into()),
        };
        lan::reset_at_close(&stream);
        handle.fail(failed.0, &failed.1);
    }

    async fn relay(
        &self,
        stream: &mut TcpStream,
        server: &mut TcpStream,
        early: &[u8],
        handle: ConnectionHandle,
        reason: Reason,
    ) {
        let handle = Arc::new(handle);
        let place = self.passing.enter(&handle, reason);
        let told_to_reset = async {
            match &place {
                Some(place) => place.reset.notified().await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = relay(stream, server, early, handle.ledger()) => outcome,
            () = told_to_reset => {
                lan::reset_at_close(stream);
                lan::reset_at_close(server);
                return handle.fail(Reason::PreExisting, passing::RESET);
            }
        };
        if let Err(error) = outcome {
            handle.fail(Reason::ApplicationReset, &error.to_string());
        }
    }
}
