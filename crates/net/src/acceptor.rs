use crate::counters::Failure;
use crate::dialer::lock;
use crate::drive::{Owner, drive};
use crate::fleet::FleetCall;
use crate::handshake::{self, Accepted, Secured, channel_keys, is_proven, prove};
use crate::inner::Event;
use crate::link::LinkError;
use crate::peers::{PeerStatus, Peers};
use crate::shared::Shared;
use crate::tls_error::Refusal;
use crate::{Channel, LocalHello, PeerInfo, TlsSource, WanCounters, control, limits};
use isthmus_tunnel::{ChannelId, Frame, Open, Proof};
use isthmus_types::{Reason, Side};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// How the server side is reached by its client sides.
#[derive(Clone)]
pub struct AcceptorConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Certificates and keys of this side.
    pub tls: Arc<TlsSource>,
    /// What this side says about itself.
    pub local: LocalHello,
    /// How long a session waits for a new link when its own has died.
    pub resume_window: Duration,
    /// Interval of heartbeats that the client sides are expected to keep.
    pub heartbeat: Duration,
    /// Channels held at once, in use or pooled by their client side.
    pub channels_max: usize,
    /// Where calls of agents go; without it they are not taken.
    pub calls: Option<mpsc::Sender<FleetCall>>,
}

impl AcceptorConfig {
    /// The defaults: a window of 10 minutes, heartbeats every 2 seconds, [`limits::CHANNELS_MAX`] channels.
    pub fn new(listen: SocketAddr, tls: Arc<TlsSource>, local: LocalHello) -> AcceptorConfig {
        AcceptorConfig {
            listen,
            tls,
            local,
            resume_window: limits::RESUME_WINDOW,
            heartbeat: limits::HEARTBEAT,
            channels_max: limits::CHANNELS_MAX,
            calls: None,
        }
    }
}

/// The port cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}")]
pub struct BindError {
    /// The configured address.
    pub address: SocketAddr,
    /// What the system says.
    pub error: io::Error,
}

/// The server side's end of all its peer pairs. Everything it started ends when it is dropped.
pub struct Acceptor {
    inner: Arc<AcceptorInner>,
    accepted: tokio::sync::Mutex<mpsc::Receiver<(Channel, Open)>>,
    address: SocketAddr,
}

impl Acceptor {
    /// Listens, and serves client sides in the background.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(config: AcceptorConfig) -> Result<Acceptor, BindError> {
        let failed = |error| BindError { address: config.listen, error };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        config.tls.watch();
        let (sender, accepted) = mpsc::channel(limits::ACCEPT_QUEUE_MAX);
        let inner = Arc::new(AcceptorInner {
            config,
            peers: Peers::default(),
            channels: Mutex::default(),
            accepted: sender,
            unattributed: Arc::default(),
            stop: watch::Sender::new(false),
        });
        inner.spawn(listen(inner.clone(), listener));
        inner.spawn(recheck(inner.clone()));
        Ok(Acceptor { inner, accepted: tokio::sync::Mutex::new(accepted), address })
    }

    /// Waits for the next session that a client side opens. `Opened` or `Failed` is to be sent first. Cancel-safe.
    ///
    /// `None` is never returned while the acceptor lives.
    pub async fn accept(&self) -> Option<(Channel, Open)> {
        self.accepted.lock().await.recv().await
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The client sides that have said hello, connected or not.
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.inner.peers.list()
    }

    /// Counters of connections whose peer never came to be known: garbage, refused certificates, refused links.
    pub fn unattributed(&self) -> Arc<WanCounters> {
        self.inner.unattributed.clone()
    }

    /// Channels held now, in use or pooled by their client side.
    pub fn channels(&self) -> usize {
        lock(&self.inner.channels).len()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.inner.stop.send_replace(true);
        let channels: Vec<_> = lock(&self.inner.channels).values().cloned().collect();
        channels.iter().for_each(|shared| shared.end(Reason::Draining));
    }
}

pub(crate) struct AcceptorInner {
    pub(crate) config: AcceptorConfig,
    pub(crate) peers: Peers,
    channels: Mutex<HashMap<ChannelId, Arc<Shared>>>,
    accepted: mpsc::Sender<(Channel, Open)>,
    pub(crate) unattributed: Arc<WanCounters>,
    stop: watch::Sender<bool>,
}

impl AcceptorInner {
    /// A new process of a peer has come: the channels of its former one can never be resumed.
    pub(crate) fn end_other_instances(&self, info: &PeerInfo) {
        let channels: Vec<_> = lock(&self.channels).values().cloned().collect();
        for shared in channels {
            let other = shared.info();
            // The store is only a claim: nobody ends another's channels by it.
            if other.name == info.name && other.store == info.store && other.instance != info.instance {
                shared.kill(Reason::ResumeExpired);
            }
        }
    }

    /// Spawns a task that ends with the acceptor.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut stop = self.stop.subscribe();
        let task = tokio::spawn(async move {
            tokio::select! {
                // Whether the acceptor says stop or is gone, the task is over.
                _ = stop.wait_for(|stop| *stop) => {}
                () = task => {}
            }
        });
        task.abort_handle()
    }

    fn join(self: &Arc<Self>, mut secured: Secured, instance: [u8; 16]) -> Result<(), Box<Refused>> {
        let Some((info, wan)) = self.peers.find(&secured.identity.name, &instance) else {
            return Err(refused(
                secured,
                Refusal::absent("no control channel of this process; say hello first"),
            ));
        };
        if lock(&self.channels).len() >= self.config.channels_max {
            return Err(refused(
                secured,
                Refusal::new(Reason::AdmissionFull, "the channel limit is reached"),
            ));
        }
        let keys = match (channel_keys(&secured.link), secured.link.put(&Frame::Joined)) {
            (Ok(keys), Ok(())) => keys,
            _ => {
                return Err(refused(
                    secured,
                    Refusal::new(Reason::PeerMisbehaved, "TLS gives no channel keys"),
                ));
            }
        };
        secured.link.set_wan(wan.clone());
        let id = keys.0;
        let link = (secured.link, secured.chain);
        let shared = Shared::new(Side::Server, keys, link, (info, wan), self.config.resume_window);
        lock(&self.channels).insert(id, shared.clone());
        tokio::spawn(drive(shared, self.clone()));
        Ok(())
    }

    fn resume(
        &self,
        mut secured: Secured,
        id: &ChannelId,
        arrived: u64,
        proof: &Proof,
    ) -> Result<(), Box<Refused>> {
        let lost = || Refusal::new(Reason::ResumeExpired, "the channel is not known here (any more)");
        let shared = lock(&self.channels).get(id).cloned();
        // An unknown channel, a wrong proof and another's channel get one answer, so that nothing is learnt from it.
        let Some(shared) = shared.filter(|shared| {
            shared.info().name == secured.identity.name
                && is_proven(&shared.secret, &secured.link, Side::Client, id, arrived, proof)
        }) else {
            return Err(refused(secured, lost()));
        };
        secured.link.set_wan(shared.wan());
        let outcome = shared.attach_with(secured.link, secured.chain, arrived, |link, arrived| {
            let proof = prove(&shared.secret, link, Side::Server, id, arrived)?;
            Ok(link.put(&Frame::Resumed { arrived, proof })?)
        });
        match outcome {
            Ok(()) => tracing::debug!(peer = %shared.info().name, "channel resumed"),
            Err(error) => tracing::warn!(peer = %shared.info().name, %error, "channel not resumed"),
        }
        Ok(())
    }
}

impl Owner for Arc<AcceptorInner> {
    fn handle(&self, shared: &Arc<Shared>, event: Event) {
        match event {
            Event::Opened => match shared.accept() {
                Some((open, session, progress)) => {
                    let channel = Channel::new(shared.clone(), session, progress);
                    if self.accepted.try_send((channel, open)).is_err() {
                        shared.end(Reason::AdmissionFull);
                    }
                }
                None => shared.kill(Reason::PeerMisbehaved),
            },
            Event::Silent => self.peers.doubt(&shared.info(), shared.id),
            Event::Settled | Event::NeedsLink => {}
        }
    }

    fn gone(&self, shared: &Arc<Shared>) {
        lock(&self.channels).remove(&shared.id);
    }
}

/// Accepts connections; each has a bounded time and place to show who it is. When there is no place left, the one that
/// has taken longest makes room: an honest peer is through in a few round trips.
async fn listen(inner: Arc<AcceptorInner>, listener: TcpListener) {
    let mut half_open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                continue;
            }
        };
        if half_open.len() >= limits::HALF_OPEN_MAX {
            half_open.retain(|task| !task.is_finished());
        }
        if half_open.len() >= limits::HALF_OPEN_MAX
            && let Some(oldest) = half_open.pop_front()
        {
            oldest.abort();
        }
        half_open.push_back(inner.spawn(receive(inner.clone(), stream, address)));
    }
}

/// Sees a connection through its handshake, and then serves it in a task of its own.
async fn receive(inner: Arc<AcceptorInner>, stream: TcpStream, address: SocketAddr) {
    // Unless it gets to an outcome, it is one that had to make room.
    let mut early = Early { wan: Arc::default(), inner: &inner, failure: Some(Failure::Refused) };
    let set_up = set_up(&inner, stream, address, &early.wan);
    let outcome = tokio::time::timeout(limits::HANDSHAKE_TIMEOUT, set_up).await;
    early.failure = match &outcome {
        Ok(Ok(_)) => None,
        Ok(Err(refusal)) if refusal.reason == Reason::PeerUnauthorised => Some(Failure::Unauthorised),
        Ok(Err(_)) => Some(Failure::Garbage),
        Err(_) => Some(Failure::Timeout),
    };
    match outcome.unwrap_or_else(|_| Err(Refusal::absent("handshake not finished in time"))) {
        Ok(Arrived::Link(secured, first)) => drop(inner.spawn(serve(inner.clone(), *secured, first))),
        Ok(Arrived::Call(call)) => {
            inner.unattributed.absorb(&early.wan);
            // Who finds the queue full calls again later.
            if let Some(calls) = &inner.config.calls
                && calls.try_send(*call).is_err()
            {
                tracing::warn!(%address, "too many agents call at once; one is turned away");
            }
        }
        Err(refusal) => {
            let reason = refusal.reason.label();
            tracing::info!(%address, reason, detail = %refusal.detail, "handshake failed");
        }
    }
}

/// What a connection counts before it is known whose it is. If that never comes to be known, also because the
/// connection had to make room for another, it is counted for nobody.
struct Early<'a> {
    wan: Arc<WanCounters>,
    inner: &'a AcceptorInner,
    failure: Option<Failure>,
}

impl Drop for Early<'_> {
    fn drop(&mut self) {
        if let Some(failure) = self.failure {
            self.inner.unattributed.absorb(&self.wan);
            self.inner.unattributed.fail(failure);
        }
    }
}

/// A connection that is through its handshake.
enum Arrived {
    /// With its first frame.
    Link(Box<Secured>, Frame),
    Call(Box<FleetCall>),
}

/// The TLS handshake and, for a link, the first frame.
async fn set_up(
    inner: &AcceptorInner,
    stream: TcpStream,
    address: SocketAddr,
    wan: &Arc<WanCounters>,
) -> Result<Arrived, Refusal> {
    let material = inner.config.tls.current();
    let calls = inner.config.calls.is_some();
    let mut secured = match handshake::accept(stream, address, &material, wan, calls).await? {
        Accepted::Call(call) => return Ok(Arrived::Call(call)),
        Accepted::Link(secured) => secured,
    };
    let first = secured.link.recv().await.map_err(|error| match error {
        LinkError::Closed | LinkError::Cut => Refusal::absent("closed before its first frame"),
        error => Refusal::of_link(&error, Side::Client),
    })?;
    Ok(Arrived::Link(secured, first))
}

/// A link that is not wanted, and why.
struct Refused {
    secured: Secured,
    refusal: Refusal,
}

fn refused(secured: Secured, refusal: Refusal) -> Box<Refused> {
    Box::new(Refused { secured, refusal })
}

/// Does what the first frame of a link asks for.
async fn serve(inner: Arc<AcceptorInner>, secured: Secured, first: Frame) {
    let outcome = match first {
        Frame::Hello(hello) => {
            control::serve(inner, secured, hello).await;
            return;
        }
        Frame::Join { instance } => inner.join(secured, instance),
        Frame::Resume { channel, arrived, proof } => inner.resume(secured, &channel, arrived, &proof),
        _ => Err(refused(secured, Refusal::new(Reason::PeerMisbehaved, "unexpected first frame"))),
    };
    if let Err(refused) = outcome {
        let Refused { mut secured, refusal } = *refused;
        secured.link.set_wan(inner.unattributed.clone());
        inner.unattributed.fail(refusal.failure());
        tracing::info!(peer = %secured.identity.name, detail = %refusal.detail, "link refused");
        let refuse = Frame::Refuse { reason: refusal.reason, detail: refusal.detail };
        // A peer that does not take the refusal finds the link closed, which says enough.
        let _ = tokio::time::timeout(limits::HANDSHAKE_TIMEOUT, secured.link.send(&refuse)).await;
        secured.link.finish().await;
    }
}

/// Drops the channels of client sides whose certificate no longer passes.
async fn recheck(inner: Arc<AcceptorInner>) {
    let mut changes = inner.config.tls.subscribe();
    loop {
        // Either a change or the time for the next look at expiry dates.
        let _ = tokio::time::timeout(limits::TLS_RECHECK_INTERVAL, changes.changed()).await;
        let verifier = inner.config.tls.current().verifier.clone();
        let channels: Vec<_> = lock(&inner.channels).values().cloned().collect();
        for shared in channels {
            if let Err(error) = verifier.check(&shared.chain(), None) {
                tracing::warn!(peer = %shared.info().name, %error, "channel closed: the peer's certificate is no longer accepted");
                shared.kill(Reason::PeerUnauthorised);
            }
        }
    }
}
