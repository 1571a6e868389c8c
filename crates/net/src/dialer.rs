use crate::beat::next_beat;
use crate::drive::{Owner, drive};
use crate::handshake::{self, Secured};
use crate::inner::Event;
use crate::link::LinkError;
use crate::shared::Shared;
use crate::tls_error::Refusal;
use crate::{Channel, LocalHello, PeerInfo, PeerState, TlsSource, WanCounters, control, limits, redial};
use isthmus_tunnel::{ChannelId, Frame};
use isthmus_types::{Reason, Side};
use rustls_pki_types::ServerName;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;

/// How the client side reaches its server side.
#[derive(Clone)]
pub struct DialerConfig {
    /// Where to connect: `host:port`.
    pub server: String,
    /// The DNS name or IP address that the peer's certificate has to carry.
    pub server_name: String,
    /// Certificates and keys of this side.
    pub tls: Arc<TlsSource>,
    /// What this side says about itself.
    pub local: LocalHello,
    /// Idle channels kept ready.
    pub pool_min: usize,
    /// Idle channels kept at most.
    pub pool_max: usize,
    /// How long a session waits for a new link when its own has died.
    pub resume_window: Duration,
    /// Interval of heartbeats while channels are in use; longer by [`limits::IDLE_HEARTBEAT_FACTOR`] otherwise.
    pub heartbeat: Duration,
}

/// The configured server name is neither a DNS name nor an IP address.
#[derive(Debug, thiserror::Error)]
#[error("not a DNS name or IP address: {0}")]
pub struct ServerNameError(pub String);

impl DialerConfig {
    /// The defaults: 4 to 64 pooled channels, a window of 10 minutes, heartbeats every 2 seconds.
    pub fn new(
        server: impl Into<String>,
        server_name: impl Into<String>,
        tls: Arc<TlsSource>,
        local: LocalHello,
    ) -> DialerConfig {
        DialerConfig {
            server: server.into(),
            server_name: server_name.into(),
            tls,
            local,
            pool_min: 4,
            pool_max: 64,
            resume_window: limits::RESUME_WINDOW,
            heartbeat: limits::HEARTBEAT,
        }
    }
}

/// The client side's end of a peer pair: keeps the control channel up, a pool of channels ready, and sessions alive
/// across links. Everything it started ends when it is dropped.
pub struct Dialer {
    inner: Arc<DialerInner>,
}

impl Dialer {
    /// Starts dialling in the background. Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// When the server name is no name.
    pub fn start(config: DialerConfig, wan: Arc<WanCounters>) -> Result<Dialer, ServerNameError> {
        let server_name = ServerName::try_from(config.server_name.clone())
            .map_err(|_| ServerNameError(config.server_name.clone()))?;
        config.tls.watch();
        let inner = Arc::new(DialerInner {
            config,
            server_name,
            wan,
            state: watch::Sender::new(PeerState::down(Reason::PeerAbsent, "not connected yet")),
            suspect: AtomicBool::new(false),
            channels: Mutex::default(),
            pool: Mutex::default(),
            turns: Semaphore::new(limits::DIALS_MAX),
            poke: Notify::new(),
            refill: Notify::new(),
            stop: watch::Sender::new(false),
        });
        inner.spawn(control::dial(inner.clone()));
        inner.spawn(keep_pool(inner.clone()));
        inner.spawn(recheck(inner.clone()));
        Ok(Dialer { inner })
    }

    /// Whether the peer can be used now, and if not, why.
    pub fn state(&self) -> PeerState {
        self.inner.state.borrow().clone()
    }

    /// Whether the peer has gone silent although an answer is due. It may be lost, which [`Dialer::state`] tells a little
    /// later, or answer after all.
    pub fn is_suspect(&self) -> bool {
        self.inner.suspect.load(Ordering::Relaxed)
    }

    /// Tells of every change of [`Dialer::state`].
    pub fn subscribe(&self) -> watch::Receiver<PeerState> {
        self.inner.state.subscribe()
    }

    /// A channel for one session: from the pool at once, or dialled within [`limits::CHANNEL_DEADLINE`] once it is its
    /// turn, which takes [`limits::TURN_DEADLINE`] at most.
    ///
    /// # Errors
    /// At once with the reason when the peer is down; [`Reason::PeerAbsent`] when it does not answer in time.
    pub async fn channel(&self) -> Result<Channel, Reason> {
        if let PeerState::Down { reason, .. } = &*self.inner.state.borrow() {
            return Err(*reason);
        }
        self.inner.poke.notify_one();
        while let Some(shared) = self.inner.take_pooled() {
            if let Some((session, progress)) = shared.check_out() {
                return Ok(Channel::new(shared, session, progress));
            }
        }
        let shared = self.inner.dial().await.map_err(|refusal| {
            tracing::info!(detail = %refusal.detail, "no channel");
            refusal.reason
        })?;
        let (session, progress) = shared.check_out().ok_or(Reason::PeerAbsent)?;
        Ok(Channel::new(shared, session, progress))
    }

    /// Whether any channel carries a session, or waits to go on with one.
    pub fn is_in_use(&self) -> bool {
        self.inner.is_in_use()
    }

    /// Idle channels that are ready now.
    pub fn pooled(&self) -> usize {
        lock(&self.inner.pool).len()
    }

    /// The peer's counters.
    pub fn wan(&self) -> Arc<WanCounters> {
        self.inner.wan.clone()
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.inner.stop.send_replace(true);
        let channels: Vec<_> = lock(&self.inner.channels).values().cloned().collect();
        channels.iter().for_each(|shared| shared.end(Reason::Draining));
    }
}

pub(crate) struct DialerInner {
    pub(crate) config: DialerConfig,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) wan: Arc<WanCounters>,
    pub(crate) state: watch::Sender<PeerState>,
    /// The control channel hears nothing, and will say that the peer is down if this lasts.
    pub(crate) suspect: AtomicBool,
    pub(crate) channels: Mutex<HashMap<ChannelId, Arc<Shared>>>,
    pool: Mutex<Vec<Arc<Shared>>>,
    turns: Semaphore,
    /// Asks the control channel to make sure of the peer now.
    pub(crate) poke: Notify,
    /// Asks for the pool to be filled.
    pub(crate) refill: Notify,
    stop: watch::Sender<bool>,
}

impl DialerInner {
    /// Spawns a task that ends with the dialer.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                // Whether the sender says stop or is gone, the task is over.
                _ = stop.wait_for(|stop| *stop) => {}
                () = task => {}
            }
        });
    }

    /// The peer, while the control channel is up.
    pub(crate) fn info(&self) -> Option<Arc<PeerInfo>> {
        match &*self.state.borrow() {
            PeerState::Connected(info) => Some(info.clone()),
            PeerState::Down { .. } => None,
        }
    }

    /// Why the peer will not have this side, or this side the peer, if that is so: waiting does not help then.
    pub(crate) fn is_shut_out(&self) -> Option<Reason> {
        match &*self.state.borrow() {
            PeerState::Down {
                reason: reason @ (Reason::PeerUnauthorised | Reason::PeerIncompatible),
                ..
            } => Some(*reason),
            _ => None,
        }
    }

    /// Whether any channel is in use.
    pub(crate) fn is_in_use(&self) -> bool {
        lock(&self.channels).len() > lock(&self.pool).len()
    }

    /// Connects, trying again beside an attempt that hangs: after a cut, a packet of an old attempt may wait for
    /// seconds for its retransmission while a new one gets through at once.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<Secured, Refusal> {
        let started = tokio::time::Instant::now();
        let mut attempts = JoinSet::new();
        let mut tick = tokio::time::interval(limits::ATTEMPT_INTERVAL);
        let mut last = Refusal::absent("not reached");
        loop {
            tokio::select! {
                _ = tick.tick() => {
                    let more = started.elapsed() < limits::ATTEMPT_ROUND && attempts.len() < limits::ATTEMPTS_MAX;
                    if more {
                        attempts.spawn(self.clone().attempt());
                    }
                }
                Some(outcome) = attempts.join_next(), if !attempts.is_empty() => match outcome {
                    Ok(Ok(secured)) => return Ok(secured),
                    Ok(Err(refusal)) if refusal.reason != Reason::PeerAbsent => return Err(refusal),
                    Ok(Err(refusal)) => last = refusal,
                    Err(error) => last = Refusal::absent(error.to_string()),
                }
            }
            if attempts.is_empty() {
                return Err(last);
            }
        }
    }

    async fn attempt(self: Arc<Self>) -> Result<Secured, Refusal> {
        let material = self.config.tls.current();
        handshake::connect(&self.config.server, &self.server_name, &material, &self.wan).await
    }

    /// A turn among those that dial: many at once would only make each other late.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.turns.acquire().await.map_err(|_| Refusal::new(Reason::Draining, "stopping"))
    }

    /// A new channel for a caller that waits for it.
    async fn dial(self: &Arc<Self>) -> Result<Arc<Shared>, Refusal> {
        let late = |_| Refusal::absent("it does not answer in time");
        let turn = tokio::time::timeout(limits::TURN_DEADLINE, self.turn()).await;
        let _turn = turn.map_err(|_| Refusal::absent("too many channels are being dialled"))??;
        tokio::time::timeout(limits::CHANNEL_DEADLINE, self.join()).await.map_err(late)?
    }

    /// Dials a new channel.
    async fn join(self: &Arc<Self>) -> Result<Arc<Shared>, Refusal> {
        let info = self.info().ok_or_else(|| Refusal::absent("the peer is down"))?;
        let mut secured = self.connect().await?;
        if secured.identity.name != info.name {
            return Err(Refusal::new(
                Reason::PeerUnauthorised,
                "another peer answers than on the control channel",
            ));
        }
        let request = Frame::Join { instance: self.config.local.instance };
        match ask(&mut secured, &request).await? {
            Frame::Joined => {}
            Frame::Refuse { reason, detail } => {
                self.poke.notify_one();
                return Err(Refusal::new(reason, detail));
            }
            _ => return Err(Refusal::new(Reason::PeerMisbehaved, "unexpected answer to a join")),
        }
        let (id, secret) =
            handshake::channel_keys(&secured.link).map_err(|error| Refusal::of_tls(&error, Side::Server))?;
        let shared = Shared::new(
            Side::Client,
            (id, secret),
            (secured.link, secured.chain),
            (info, self.wan.clone()),
            self.config.resume_window,
        );
        lock(&self.channels).insert(id, shared.clone());
        tokio::spawn(drive(shared.clone(), self.clone()));
        Ok(shared)
    }

    fn take_pooled(&self) -> Option<Arc<Shared>> {
        let shared = lock(&self.pool).pop();
        self.refill.notify_one();
        shared
    }

    /// Puts an idle channel into the pool, or closes it when the pool is full.
    fn put_pooled(&self, shared: &Arc<Shared>) {
        let mut pool = lock(&self.pool);
        if pool.len() < self.config.pool_max {
            pool.push(shared.clone());
        } else {
            drop(pool);
            shared.kill(Reason::Draining);
        }
    }
}

impl Owner for Arc<DialerInner> {
    fn handle(&self, shared: &Arc<Shared>, event: Event) {
        match event {
            Event::Settled => self.put_pooled(shared),
            Event::NeedsLink => self.spawn(redial::redial(self.clone(), shared.clone())),
            Event::Opened => shared.kill(Reason::PeerMisbehaved),
            Event::Silent => {}
        }
    }

    fn gone(&self, shared: &Arc<Shared>) {
        lock(&self.channels).remove(&shared.id);
        lock(&self.pool).retain(|pooled| !Arc::ptr_eq(pooled, shared));
        self.refill.notify_one();
    }
}

/// Sends the first frame of a link and waits for its answer.
pub(crate) async fn ask(secured: &mut Secured, request: &Frame) -> Result<Frame, Refusal> {
    let exchange = async {
        secured.link.send(request).await?;
        secured.link.recv().await
    };
    let timed = tokio::time::timeout(limits::HANDSHAKE_TIMEOUT, exchange).await;
    timed.unwrap_or(Err(LinkError::Timeout)).map_err(|error| Refusal::of_link(&error, Side::Server))
}

/// Keeps `pool_min` channels ready while the peer is up.
async fn keep_pool(inner: Arc<DialerInner>) {
    loop {
        while inner.info().is_some() && lock(&inner.pool).len() < inner.config.pool_min {
            // One after the other: each handshake leaves a ticket that makes the next one small.
            match inner.join().await {
                Ok(shared) => inner.put_pooled(&shared),
                Err(refusal) => {
                    tracing::info!(detail = %refusal.detail, "pooled channel not set up");
                    tokio::time::sleep(limits::ATTEMPT_INTERVAL).await;
                }
            }
        }
        inner.refill.notified().await;
    }
}

/// Drops the channels of a server side whose certificate no longer passes.
async fn recheck(inner: Arc<DialerInner>) {
    let mut changes = inner.config.tls.subscribe();
    loop {
        // Either a change or the time for the next look at expiry dates.
        let due = next_beat(limits::TLS_RECHECK_INTERVAL);
        let _ = tokio::time::timeout_at(due, changes.changed()).await;
        let verifier = inner.config.tls.current().verifier.clone();
        let channels: Vec<_> = lock(&inner.channels).values().cloned().collect();
        for shared in channels {
            if let Err(error) = verifier.check(&shared.chain(), Some(&inner.server_name)) {
                tracing::warn!(%error, "channel closed: the peer's certificate is no longer accepted");
                shared.kill(Reason::PeerUnauthorised);
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
