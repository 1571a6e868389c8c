//! The server-side proxy: sessions of its client sides, the allow list, and the way to targets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use isthmus_config::{Host, ServerConfig, normalise};
use isthmus_intercept::Origin;
use isthmus_net::limits::FLEET_QUEUE_MAX;
use isthmus_net::{Acceptor, AcceptorConfig, Channel};
use isthmus_telemetry::{ConnectionHandle, ConnectionInfo, ConnectionState, Level, Protocol};
use isthmus_tunnel::{Message, Open};
use isthmus_types::{Reason, RecordingId, Side, StoreId};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::client::{hello, tls_source};
use crate::core::{Core, StoreState};
use crate::dial::{ADDRESSES_MAX, dial};
use crate::fleet::FleetService;
use crate::host::{self, Running, Tracker};
use crate::intercept::{self, Keeper};
use crate::keys::Keys;
use crate::lanes::Stage;
use crate::release::ReleaseTo;
use crate::session::Session;
use crate::status::ServerStatus;
use crate::{AppError, lan, recording};

/// Interval at which TLS files that could not be used at the start are looked at again.
const TLS_RETRY: Duration = Duration::from_secs(3);

pub(crate) struct Server {
    pub core: Arc<Core>,
    pub config: ServerConfig,
    pub acceptor: tokio::sync::OnceCell<Acceptor>,
    /// Keeps the rules in place that bring answers to clients' addresses here, where this process does that.
    pub keeper: OnceLock<Arc<Keeper>>,
    /// Why there is no acceptor yet.
    pub problem: std::sync::Mutex<Option<String>>,
    /// The fleet of laptops, if this proxy keeps one.
    pub fleet: Option<Arc<FleetService>>,
}

/// Runs the server-side proxy until it is told to stop.
pub async fn run(config: ServerConfig) -> Result<(), AppError> {
    host::raise_file_limit();
    let core = Arc::new(Core::new(Side::Server, &config.limits, config.compression.level, &config.smb)?);
    core.open_store(&config.store, None)?;
    // Nobody else sets it.
    let _ = core.keys.set(Keys::start(&config.keys, core.telemetry.clone())?);
    let fleet = match (&config.fleet, &config.tls.crl) {
        (Some(fleet), Some(crl)) => Some(FleetService::new(fleet, crl, core.telemetry.clone())?),
        _ => None,
    };
    let server = Arc::new(Server {
        core: core.clone(),
        config,
        acceptor: tokio::sync::OnceCell::new(),
        keeper: OnceLock::new(),
        problem: std::sync::Mutex::default(),
        fleet,
    });
    let tracker = Tracker::new();
    host::start_admin(&core, Arc::new(ServerStatus::new(&server)), &server.config.admin).await?;
    tokio::spawn(core.clone().keep_time());
    server.start_interception().await?;
    let result = until_told_to_stop(&server, tracker).await;
    if let Some(keeper) = server.keeper.get() {
        keeper.let_go().await;
    }
    result
}

async fn until_told_to_stop(server: &Arc<Server>, tracker: Tracker) -> Result<(), AppError> {
    let serve = tokio::spawn(serve(server.clone(), tracker.running()));
    tokio::select! {
        stopped = host::told_to_stop(&server.core.draining) => stopped?,
        ended = serve => {
            return ended.unwrap_or_else(|error| {
                Err(AppError::System { what: "the acceptor ended", error: io::Error::other(error) })
            });
        }
    }
    // The acceptor goes on: sessions need it, and new ones are refused with a reason.
    host::drain(&server.core, tracker, server.config.drain.deadline).await
}

/// Listens as soon as the TLS files can be used, and serves sessions. Ends only if the port cannot be had.
async fn serve(server: Arc<Server>, running: Running) -> Result<(), AppError> {
    let acceptor = loop {
        match listen(&server).await {
            Ok(acceptor) => break acceptor,
            Err(Trouble::Fatal(error)) => return Err(error),
            Err(Trouble::Tls(detail)) => {
                let mut problem = server.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if problem.as_ref() != Some(&detail) {
                    server.core.telemetry.event(Level::Error, format!("peers cannot connect: {detail}"));
                    *problem = Some(detail);
                }
            }
        }
        tokio::time::sleep(TLS_RETRY).await;
    };
    *server.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    tracing::info!(address = %acceptor.local_addr(), "listening for client-side proxies");
    let acceptor = server.acceptor.get_or_init(|| async { acceptor }).await;
    let mut draining = server.core.draining.subscribe();
    let mut running = Some(running);
    loop {
        tokio::select! {
            accepted = acceptor.accept() => {
                let Some((channel, open)) = accepted else { return Ok(()) };
                let (server, running) = (server.clone(), running.clone());
                tokio::spawn(async move {
                    server.session(channel, open).await;
                    drop(running);
                });
            }
            // From here on, only sessions keep the proxy running.
            _ = draining.wait_for(|on| *on), if running.is_some() => running = None,
        }
    }
}

enum Trouble {
    Tls(String),
    Fatal(AppError),
}

async fn listen(server: &Server) -> Result<Acceptor, Trouble> {
    let tls = |(_, detail): (Reason, String)| Trouble::Tls(detail);
    let source = tls_source(&server.config.tls, Side::Server).map_err(tls)?;
    // Without a store there is no identity to state; sessions are refused, so any will do.
    let (store, generation) = server.core.identity().unwrap_or((StoreId([0; 16]), 0));
    let local = hello(store, generation).map_err(tls)?;
    let mut config = AcceptorConfig::new(server.config.listen, source, local);
    config.resume_window = server.config.channels.resume_window;
    config.heartbeat = server.config.channels.heartbeat;
    let calls = server.fleet.clone().map(|fleet| {
        let (sender, calls) = mpsc::channel(FLEET_QUEUE_MAX);
        config.calls = Some(sender);
        (fleet, calls)
    });
    let acceptor = Acceptor::bind(config).await.map_err(|error| Trouble::Fatal(error.into()))?;
    if let Some((fleet, calls)) = calls {
        tokio::spawn(fleet.run(calls));
    }
    Ok(acceptor)
}

impl Server {
    /// Makes sure that targets can be shown clients' addresses, if they are to be.
    async fn start_interception(&self) -> Result<(), AppError> {
        let Some(plan) = intercept::server_plan(&self.config) else { return Ok(()) };
        intercept::may_use_addresses()
            .map_err(|error| AppError::System { what: "clients' addresses cannot be used", error })?;
        if self.config.intercept.routing.install {
            let keeper = Keeper::start(self.core.clone(), plan).await?;
            // Nobody else sets it.
            let _ = self.keeper.set(keeper);
        }
        Ok(())
    }

    /// Under whose address a target is connected.
    fn origin(&self, client: SocketAddr, target: SocketAddr) -> Origin {
        let client = SocketAddr::new(normalise(client.ip()), client.port());
        let is_meant = self.config.intercept.source.iter().any(|net| net.contains(client.ip()));
        if is_meant && client.is_ipv4() == target.is_ipv4() { Origin::Port(client) } else { Origin::Here }
    }

    /// Serves one session of a client side to its end.
    async fn session(&self, channel: Channel, open: Open) {
        let info = channel.info();
        self.core.note_peer(&info);
        let handle = self.core.telemetry.connections().register(ConnectionInfo {
            client: open.source,
            target: format!("{}:{}", open.host, open.port),
            protocol: Protocol::from_port(open.port),
            peer: info.name.clone(),
            rule: String::new(),
            opened_at: SystemTime::now(),
        });
        let (sender, receiver) = channel.split();
        let (stream, place) = match self.open(&open).await {
            Ok(opened) => opened,
            Err((reason, detail)) => {
                handle.set_state_because(ConnectionState::Denied, reason, &detail);
                // If the channel is gone, there is nobody left to tell.
                let _ = sender.send(Message::Failed { reason, detail }).await;
                return;
            }
        };
        let (Some(peer), Some(down)) = (self.core.peer_ledger(&info, &open.domain), recording::fresh())
        else {
            return self.refuse(handle, &sender, Reason::StoreUnavailable).await;
        };
        let stage = if open.structured { self.stage(&info.name, &open) } else { None };
        let session = Session {
            core: self.core.clone(),
            peer,
            handle,
            sender: Arc::new(sender),
            receiver,
            stage,
            member: None,
        };
        if session.sender.send(Message::Opened { recording: down.0 }).await.is_err() {
            return;
        }
        session.handle.set_state(ConnectionState::Optimised);
        let encode = session.encode_half(down);
        session.run(stream, encode, RecordingId(open.recording)).await;
        drop(place);
    }

    /// The SMB stage of a session, with keys as its peer may have them.
    fn stage(&self, peer: &str, open: &Open) -> Option<Stage> {
        let keys = ReleaseTo {
            core: self.core.clone(),
            peer: peer.to_owned(),
            client: open.source,
            server: open.host.clone(),
        };
        let server = (format!("{}:{}", open.host, open.port), Arc::new(keys) as _);
        self.core.stage(Some(server), open.accelerated, Arc::default())
    }

    async fn refuse(&self, handle: ConnectionHandle, sender: &isthmus_net::Sender, reason: Reason) {
        let detail = reason.to_string();
        handle.set_state_because(ConnectionState::Denied, reason, &detail);
        let _ = sender.send(Message::Failed { reason, detail }).await;
    }

    /// Connects a session's target, if it may be.
    async fn open(&self, open: &Open) -> Result<(TcpStream, crate::admission::Place), (Reason, String)> {
        let plain = |reason: Reason| (reason, reason.to_string());
        if *self.core.draining.borrow() {
            return Err(plain(Reason::Draining));
        }
        if let StoreState::Unusable(why) = self.core.store() {
            return Err((Reason::StoreUnavailable, why.clone()));
        }
        if !open.reduce {
            return Err((Reason::PeerIncompatible, "sessions without reduction are not served".into()));
        }
        let place = self.core.admission.enter().ok_or_else(|| plain(Reason::AdmissionFull))?;
        let limit = self.config.limits.connect_timeout;
        let late =
            || (Reason::TargetUnreachable, format!("{}:{} did not answer in time", open.host, open.port));
        let stream =
            timeout(limit, self.connect(&open.host, open.port, open.source)).await.map_err(|_| late())??;
        lan::prepare(&stream, self.config.limits.keepalive);
        Ok((stream, place))
    }

    /// Resolves a target and connects one of its addresses that the allow list permits, and no other.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        client: SocketAddr,
    ) -> Result<TcpStream, (Reason, String)> {
        let unreachable = |error: io::Error| {
            let reason = match error.kind() {
                io::ErrorKind::ConnectionRefused => Reason::TargetRefused,
                _ => Reason::TargetUnreachable,
            };
            (reason, format!("{host}:{port}: {error}"))
        };
        let named: Host =
            host.parse().map_err(|error| (Reason::TargetNotAllowed, format!("{host:?}: {error}")))?;
        let addresses: Vec<SocketAddr> = match &named {
            Host::Address(address) => vec![SocketAddr::new(*address, port)],
            Host::Name(name) => {
                lookup_host((name.as_str(), port)).await.map_err(unreachable)?.take(ADDRESSES_MAX).collect()
            }
        };
        let permitted: Vec<SocketAddr> = addresses
            .into_iter()
            .filter(|address| self.config.allow.permits(&named, address.ip(), port))
            .collect();
        if permitted.is_empty() {
            let detail = format!("{host}:{port} is not on the server-side proxy's allow list");
            self.core.telemetry.event(Level::Warning, &detail);
            return Err((Reason::TargetNotAllowed, detail));
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in permitted {
            match dial(address, self.origin(client, address), None).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }
}
