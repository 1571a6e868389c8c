use crate::inner::{Inner, Step};
use crate::link::{Link, LinkError};
use crate::{Closed, PeerInfo, WanCounters};
use isthmus_tunnel::{ChannelId, Endpoint, Message, Progress, State};
use isthmus_types::{Reason, Side};
use rustls_pki_types::CertificateDer;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use zeroize::Zeroizing;

/// A peer's certificate and its intermediates.
pub(crate) type Chain = Arc<[CertificateDer<'static>]>;

/// One side of a channel: what its handles, its driver and whoever brings a new link share.
pub(crate) struct Shared {
    pub(crate) id: ChannelId,
    pub(crate) secret: Zeroizing<[u8; 32]>,
    pub(crate) side: Side,
    pub(crate) resume_window: Duration,
    info: Arc<PeerInfo>,
    pub(crate) wan: Arc<WanCounters>,
    inner: Mutex<Inner>,
    /// Wakes the driver.
    drive: Notify,
    /// Wakes the receiver: a message or the end has come.
    arrived: Notify,
    /// Wakes everybody who waits for room, a flush or the end.
    changed: Notify,
}

impl Shared {
    pub(crate) fn new(
        side: Side,
        (id, secret): (ChannelId, Zeroizing<[u8; 32]>),
        (link, chain): (Link, Chain),
        (info, wan): (Arc<PeerInfo>, Arc<WanCounters>),
        resume_window: Duration,
    ) -> Arc<Shared> {
        let mut endpoint = Endpoint::new(side, Instant::now());
        endpoint.set_round_trip(info.round_trip());
        let inner = Inner {
            endpoint,
            link: Some(link),
            lost: None,
            chain,
            progress: watch::Sender::new(Progress::default()),
            held: 0,
            handles: 0,
            checked_out: false,
            redialling: false,
            told_silent: false,
            ending_since: None,
            armed: None,
        };
        let (drive, arrived, changed) = (Notify::new(), Notify::new(), Notify::new());
        let inner = Mutex::new(inner);
        Arc::new(Shared { id, secret, side, resume_window, info, wan, inner, drive, arrived, changed })
    }

    pub(crate) fn info(&self) -> Arc<PeerInfo> {
        self.info.clone()
    }

    pub(crate) fn wan(&self) -> Arc<WanCounters> {
        self.wan.clone()
    }

    pub(crate) fn chain(&self) -> Chain {
        self.lock().chain.clone()
    }

    /// Takes an idle channel out of the pool for its next session, whose first handle the caller has with it. `None` when
    /// it cannot be used any more.
    pub(crate) fn check_out(&self) -> Option<(u64, watch::Receiver<Progress>)> {
        let mut inner = self.lock();
        let usable = inner.endpoint.state() == State::Idle && inner.link.is_some() && !inner.checked_out;
        usable.then(|| {
            inner.checked_out = true;
            let session = inner.endpoint.session() + 1;
            (session, inner.hold(session))
        })
    }

    /// Takes the open with which the peer has started a session, whose first handle the caller has with it.
    pub(crate) fn accept(&self) -> Option<(isthmus_tunnel::Open, u64, watch::Receiver<Progress>)> {
        let mut inner = self.lock();
        match inner.endpoint.recv(Instant::now()) {
            Some(Message::Open(open)) => {
                let session = inner.endpoint.session();
                Some((open, session, inner.hold(session)))
            }
            _ => None,
        }
    }

    pub(crate) fn add_handle(&self, session: u64) {
        let mut inner = self.lock();
        if inner.held == session {
            inner.handles += 1;
        }
    }

    pub(crate) fn drop_handle(&self, session: u64) {
        let mut inner = self.lock();
        if inner.held == session {
            inner.handles -= 1;
            if inner.handles == 0 {
                drop(inner);
                self.drive.notify_one();
            }
        }
    }

    /// Runs `attempt` until it has an answer, waking up whenever something has changed.
    pub(crate) async fn wait<T>(
        &self,
        mut attempt: impl FnMut(&mut Inner) -> Option<Result<T, Closed>>,
    ) -> Result<T, Closed> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(answer) = attempt(&mut self.lock()) {
                self.drive.notify_one();
                return answer;
            }
            changed.await;
        }
    }

    pub(crate) async fn recv(&self, session: u64) -> Result<Message, Closed> {
        loop {
            if let Some(message) = self.try_recv(session)? {
                return Ok(message);
            }
            self.arrived.notified().await;
        }
    }

    pub(crate) fn try_recv(&self, session: u64) -> Result<Option<Message>, Closed> {
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.endpoint.session() == session
            && let Some(message) = inner.endpoint.recv(now)
        {
            self.wake_if_due(inner, now);
            return Ok(Some(message));
        }
        inner.end_of(session).map_or(Ok(None), Err)
    }

    pub(crate) fn acknowledge(&self, session: u64, restored: u64, delivered: u64) {
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.endpoint.session() == session {
            inner.endpoint.acknowledge(restored, delivered, now);
            self.wake_if_due(inner, now);
        }
    }

    pub(crate) fn backlog_bytes(&self, session: u64) -> usize {
        let inner = self.lock();
        if inner.endpoint.session() == session { inner.endpoint.unsent_bytes() } else { 0 }
    }

    /// Ends the channel without a word to the peer.
    pub(crate) fn kill(&self, reason: Reason) {
        self.lock().endpoint.kill(reason);
        self.drive.notify_one();
    }

    /// Whether a new link would be of use.
    pub(crate) fn needs_link(&self) -> bool {
        self.lock().needs_link()
    }

    /// Makes sure of the link: something else suggests that the way to the peer is broken.
    pub(crate) fn doubt(&self) {
        let mut inner = self.lock();
        if inner.endpoint.state() == State::Open {
            inner.endpoint.probe(Instant::now());
            drop(inner);
            self.drive.notify_one();
        }
    }

    pub(crate) fn stop_redialling(&self) {
        self.lock().redialling = false;
        self.drive.notify_one();
    }

    /// Gives up the link, if any, and says how many sequenced frames have arrived: nothing more is read from the old
    /// link, so that the number stays true. `None` when the channel is over.
    pub(crate) fn detach(&self) -> Option<u64> {
        let mut inner = self.lock();
        if matches!(inner.endpoint.state(), State::Over(_)) {
            return None;
        }
        if inner.link.is_some() && inner.endpoint.state() == State::Open {
            WanCounters::count(&self.wan.links_lost);
        }
        inner.lose_link();
        Some(inner.endpoint.arrived())
    }

    /// Goes on over a new link, on which the peer has every frame before number `arrived`.
    pub(crate) fn attach(&self, link: Link, chain: Chain, arrived: u64) -> Result<(), LinkError> {
        self.attach_with(link, chain, arrived, |_, _| Ok(()))
    }

    /// As [`Shared::attach`]; `answer` puts this side's number of arrived frames on the new link. Giving up the old
    /// link, reading that number and taking the new link are one step, so that two resumes cannot cross. A resume that was
    /// held up on the way, and that a later one has overtaken, changes nothing.
    pub(crate) fn attach_with(
        &self,
        mut link: Link,
        chain: Chain,
        arrived: u64,
        answer: impl FnOnce(&mut Link, u64) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let mut inner = self.lock();
        if self.side == Side::Server && !inner.endpoint.can_resume(arrived) {
            return Err(isthmus_tunnel::Error::PeerMisbehaved("resumes where it no longer is").into());
        }
        if inner.link.is_some() && inner.endpoint.state() == State::Open {
            // The peer has found it dead; here it had only gone silent.
            WanCounters::count(&self.wan.links_lost);
        }
        inner.lose_link();
        answer(&mut link, inner.endpoint.arrived())?;
        let outcome = inner.endpoint.link_up(arrived, Instant::now());
        match &outcome {
            Ok(()) => {
                inner.link = Some(link);
                inner.chain = chain;
                inner.lost = None;
                WanCounters::count(&self.wan.channels_resumed);
            }
            Err(_) => inner.endpoint.kill(Reason::PeerMisbehaved),
        }
        drop(inner);
        self.drive.notify_one();
        Ok(outcome?)
    }

    /// Ends the channel with a word to the peer, if there is anything to end. The word is written at once as far as
    /// the socket takes it, since the process may be about to stop.
    pub(crate) fn end(&self, reason: Reason) {
        let now = Instant::now();
        let mut inner = self.lock();
        match inner.endpoint.send(&Message::Reset { reason }, now) {
            Ok(()) => drop(inner.turn(now, &self.wan)),
            Err(_) => inner.endpoint.kill(reason),
        }
        drop(inner);
        self.drive.notify_one();
    }

    /// Closes the link in good order, once the channel is over.
    pub(crate) async fn close_link(&self) {
        let link = self.lock().link.take();
        if let Some(link) = link {
            link.finish().await;
        }
    }

    pub(crate) async fn driven(&self) {
        self.drive.notified().await;
    }

    /// One turn of the driver: reads, handles, writes, and says what to wait for.
    pub(crate) fn step(&self) -> Step {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.endpoint.set_round_trip(self.info.round_trip());
        let again = inner.turn(now, &self.wan);
        inner.abandon_unheld(now);
        let step = inner.next_step(self, now, again);
        inner.publish();
        let wake = inner.endpoint.has_message() || inner.endpoint.state() != State::Open;
        drop(inner);
        if wake {
            self.arrived.notify_one();
        }
        self.changed.notify_waiters();
        step
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds this lock; were it to, the endpoint's own checks still hold.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the driver if it would otherwise sleep past what has just become due.
    fn wake_if_due(&self, inner: MutexGuard<'_, Inner>, now: Instant) {
        let earlier = match (inner.endpoint.poll_timeout(true), inner.armed) {
            (Some(due), Some(armed)) => due < armed,
            (due, None) => due.is_some(),
            (None, Some(_)) => false,
        };
        let wake = earlier || inner.endpoint.wants_transmit(now) || inner.endpoint.state() == State::Idle;
        drop(inner);
        if wake {
            self.drive.notify_one();
        }
    }
}
