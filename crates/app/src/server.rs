//! The server-side proxy: sessions of its client sides, the allow list, and the way to targets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_config::{Host, ServerConfig};
use isthmus_net::{Acceptor, AcceptorConfig, Channel};
use isthmus_telemetry::{ConnectionHandle, ConnectionInfo, ConnectionState, Level, Protocol};
use isthmus_tunnel::{Message, Open};
use isthmus_types::{Reason, RecordingId, Side, StoreId};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::client::{hello, tls_source};
use crate::core::{Core, StoreState};
use crate::host::{self, Running, Tracker};
use crate::session::Session;
use crate::status::ServerStatus;
use crate::{AppError, lan, recording};

/// Interval at which TLS files that could not be used at the start are looked at again.
const TLS_RETRY: Duration = Duration::from_secs(3);
/// Addresses of one target that are tried.
const ADDRESSES_MAX: usize = 8;

pub(crate) struct Server {
    pub core: Arc<Core>,
    pub config: ServerConfig,
    pub acceptor: tokio::sync::OnceCell<Acceptor>,
    /// Why there is no acceptor yet.
    pub problem: std::sync::Mutex<Option<String>>,
}

/// Runs the server-side proxy until it is told to stop.
pub async fn run(config: ServerConfig) -> Result<(), AppError> {
    host::raise_file_limit();
    let core = Core::start(Side::Server, &config.store, &config.limits, config.compression.level)?;
    let server = Arc::new(Server {
        core: core.clone(),
        config,
        acceptor: tokio::sync::OnceCell::new(),
        problem: std::sync::Mutex::default(),
    });
    let tracker = Tracker::new();
    host::start_admin(&core, Arc::new(ServerStatus::new(&server)), &server.config.admin).await?;
    tokio::spawn(core.clone().keep_time());
    let serve = tokio::spawn(serve(server.clone(), tracker.running()));
    tokio::select! {
        stopped = host::told_to_stop(&core.draining) => stopped?,
        ended = serve => {
            return ended.unwrap_or_else(|error| {
                Err(AppError::System { what: "the acceptor ended", error: io::Error::other(error) })
            });
        }
    }
    // The acceptor goes on: sessions need it, and new ones are refused with a reason.
    host::drain(&core, tracker, server.config.drain.deadline).await
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
    Acceptor::bind(config).await.map_err(|error| Trouble::Fatal(error.into()))
}

impl Server {
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
        let session = Session { core: self.core.clone(), peer, handle, sender: Arc::new(sender), receiver };
        if session.sender.send(Message::Opened { recording: down.0 }).await.is_err() {
            return;
        }
        session.handle.set_state(ConnectionState::Optimised);
        let encode = session.encode_half(down);
        session.run(stream, encode, RecordingId(open.recording)).await;
        drop(place);
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
        if let StoreState::Unusable(why) = &self.core.store {
            return Err((Reason::StoreUnavailable, why.clone()));
        }
        if !open.reduce {
            return Err((Reason::PeerIncompatible, "sessions without reduction are not served".into()));
        }
        let place = self.core.admission.enter().ok_or_else(|| plain(Reason::AdmissionFull))?;
        let limit = self.config.limits.connect_timeout;
        let late =
            || (Reason::TargetUnreachable, format!("{}:{} did not answer in time", open.host, open.port));
        let stream = timeout(limit, self.connect(&open.host, open.port)).await.map_err(|_| late())??;
        lan::prepare(&stream, self.config.limits.keepalive);
        Ok((stream, place))
    }

    /// Resolves a target and connects one of its addresses that the allow list permits, and no other.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, (Reason, String)> {
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
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }
}
