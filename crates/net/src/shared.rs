use crate::link::{Link, LinkError};
use crate::{Closed, PeerInfo, WanCounters, limits};
use isthmus_tunnel::{ChannelId, Endpoint, Message, Progress, SendError, State};
use isthmus_types::{Reason, Side};
use rustls_pki_types::CertificateDer;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use zeroize::Zeroizing;

/// A peer's certificate and its intermediates.
pub(crate) type Chain = Arc<[CertificateDer<'static>]>;

/// One side of a channel: what its handles, its driver and whoever brings a new link share.
pub(crate) struct Shared {
    pub(crate) id: ChannelId,
    pub(crate) secret: Zeroizing<[u8; 32]>,
    side: Side,
    resume_window: Duration,
    info: Arc<PeerInfo>,
    wan: Arc<WanCounters>,
    inner: Mutex<Inner>,
    /// Wakes the driver.
    drive: Notify,
    /// Wakes the receiver: a message or the end has come.
    arrived: Notify,
    /// Wakes everybody who waits for room, a flush or the end.
    changed: Notify,
}

pub(crate) struct Inner {
    endpoint: Endpoint,
    link: Option<Link>,
    /// Since when there is no link, or a silent one.
    lost: Option<Instant>,
    /// The peer's certificate chain, to be checked again when the trust files change.
    chain: Chain,
    progress: watch::Sender<Progress>,
    /// The session that `handles` counts, and its users.
    held: u64,
    handles: usize,
    /// On the client side: given out by the pool and not yet back.
    checked_out: bool,
    redialling: bool,
    /// The owner has been told that the link is silent.
    told_silent: bool,
    ending_since: Option<Instant>,
    /// The driver's next wake-up.
    armed: Option<Instant>,
}

/// What the driver is to do next.
pub(crate) enum Step {
    /// Wait for the socket, the deadline or a wake-up.
    Wait { socket: Option<Arc<TcpStream>>, write_blocked: bool, deadline: Option<Instant> },
    /// As `Wait`, after telling the owner.
    Tell(Event),
    /// The channel is over.
    Done,
}

/// What a channel's owner (dialer or acceptor) has to know.
pub(crate) enum Event {
    /// Server side: the peer has opened a session.
    Opened,
    /// Client side: the session is over and the channel can be used again.
    Settled,
    /// Client side: a new link is needed.
    NeedsLink,
    /// Server side: the link has gone silent with something outstanding.
    Silent,
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

    /// Takes an idle channel out of the pool for its next session. `None` when it cannot be used any more.
    pub(crate) fn check_out(&self) -> Option<(u64, watch::Receiver<Progress>)> {
        let mut inner = self.lock();
        let usable = inner.endpoint.state() == State::Idle && inner.link.is_some() && !inner.checked_out;
        usable.then(|| {
            inner.checked_out = true;
            inner.progress = watch::Sender::new(Progress::default());
            (inner.endpoint.session() + 1, inner.progress.subscribe())
        })
    }

    /// Takes the open with which the peer has started a session.
    pub(crate) fn accept(&self) -> Option<(isthmus_tunnel::Open, u64, watch::Receiver<Progress>)> {
        let mut inner = self.lock();
        match inner.endpoint.recv(Instant::now()) {
            Some(Message::Open(open)) => {
                inner.progress = watch::Sender::new(Progress::default());
                Some((open, inner.endpoint.session(), inner.progress.subscribe()))
            }
            _ => None,
        }
    }

    pub(crate) fn add_handle(&self, session: u64) {
        let mut inner = self.lock();
        if inner.held != session {
            inner.held = session;
            inner.handles = 0;
        }
        inner.handles += 1;
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
        inner.lose_link();
        Some(inner.endpoint.arrived())
    }

    /// Goes on over a new link, on which the peer has every frame before number `arrived`.
    pub(crate) fn attach(&self, link: Link, chain: Chain, arrived: u64) -> Result<(), LinkError> {
        self.attach_with(link, chain, arrived, |_, _| Ok(()))
    }

    /// As [`Shared::attach`]; `answer` puts this side's number of arrived frames on the new link. Giving up the old
    /// link, reading that number and taking the new link are one step, so that two resumes cannot cross.
    pub(crate) fn attach_with(
        &self,
        mut link: Link,
        chain: Chain,
        arrived: u64,
        answer: impl FnOnce(&mut Link, u64) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let mut inner = self.lock();
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

    /// Ends the channel with a word to the peer.
    pub(crate) fn reset(&self, reason: Reason) {
        // A reset is refused only when the session is over anyway.
        let _ = self.lock().endpoint.send(&Message::Reset { reason }, Instant::now());
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

impl Inner {
    pub(crate) fn try_send(&mut self, session: u64, message: &Message) -> Option<Result<(), Closed>> {
        if let Some(closed) = self.end_of(session) {
            return Some(Err(closed));
        }
        if !message.is_terminal() && !self.endpoint.has_room() {
            return None;
        }
        Some(match self.endpoint.send(message, Instant::now()) {
            Ok(()) => Ok(()),
            Err(SendError::Over(reason)) => Err(Closed { reason: Some(reason) }),
            Err(error) => {
                tracing::error!(%error, "message refused by the channel; the session is reset");
                let reason = Reason::PeerMisbehaved;
                // A reset is refused only when the session is over anyway.
                let _ = self.endpoint.send(&Message::Reset { reason }, Instant::now());
                Err(Closed { reason: Some(reason) })
            }
        })
    }

    pub(crate) fn try_flushed(&mut self, session: u64) -> Option<Result<(), Closed>> {
        if self.endpoint.session() == session && self.endpoint.unsent_bytes() > 0 {
            return self.end_of(session).map(Err);
        }
        Some(Ok(()))
    }

    pub(crate) fn try_settled(&mut self, session: u64) -> Option<Result<(), Closed>> {
        self.end_of(session).map(|closed| match closed.reason {
            None => Ok(()),
            Some(_) => Err(closed),
        })
    }

    /// Whether and how the session with this number is over. One that is not yet open is not over.
    fn end_of(&self, session: u64) -> Option<Closed> {
        let reason = match self.endpoint.state() {
            _ if session <= self.endpoint.settled() => None,
            State::Idle | State::Open => return None,
            State::Ending(reason) | State::Over(reason) => Some(reason),
        };
        Some(Closed { reason })
    }

    /// Reads, handles and writes. Returns whether there is more to read at once.
    fn turn(&mut self, now: Instant, wan: &WanCounters) -> bool {
        let Some(mut link) = self.link.take() else { return false };
        let mut again = false;
        let outcome = self.read(&mut link, now, &mut again).and_then(|()| {
            self.endpoint.handle_timeout(now);
            Ok(link.write(&mut self.endpoint, now)?)
        });
        match outcome {
            Ok(()) => self.link = Some(link),
            Err(error) => self.link_failed(link, error, wan),
        }
        again
    }

    fn read(&mut self, link: &mut Link, now: Instant, again: &mut bool) -> Result<(), LinkError> {
        let mut turn = 0;
        while turn < limits::READ_TURN_BYTES {
            let outcome = link.read();
            // What came before the end of the link counts.
            while let Some(frame) = link.next_frame()? {
                self.endpoint.handle(frame, now)?;
            }
            match outcome? {
                0 => return Ok(()),
                read => turn += read,
            }
            self.endpoint.heard(now);
        }
        *again = true;
        Ok(())
    }

    fn link_failed(&mut self, mut link: Link, error: LinkError, wan: &WanCounters) {
        tracing::debug!(%error, "link lost");
        if matches!(error, LinkError::Closed) {
            link.close();
        }
        if let LinkError::Protocol(error) = &error {
            tracing::warn!(%error, "link closed: the peer broke the protocol");
            WanCounters::count(&wan.protocol_errors);
            self.endpoint.kill(Reason::PeerMisbehaved);
        }
        match self.endpoint.state() {
            State::Open => WanCounters::count(&wan.links_lost),
            // The peer has heard of the end, and confirms it by closing.
            State::Ending(reason) if matches!(error, LinkError::Closed) => self.endpoint.kill(reason),
            // The client side has done with a pooled channel.
            State::Idle if matches!(error, LinkError::Closed) && !self.checked_out => {
                self.endpoint.kill(Reason::PeerAbsent);
            }
            _ => {}
        }
        self.lose_link();
    }

    fn lose_link(&mut self) {
        self.link = None;
        self.lost.get_or_insert_with(Instant::now);
        self.endpoint.link_down();
    }

    /// Resets a session that nobody holds, unless it is about to settle.
    fn abandon_unheld(&mut self, now: Instant) {
        let unheld = self.handles == 0 && self.held == self.endpoint.session() && self.held > 0;
        if unheld && self.endpoint.state() == State::Open && !self.endpoint.settles_alone() {
            let reset = Message::Reset { reason: Reason::ApplicationReset };
            // A reset is refused only when the session is over anyway.
            let _ = self.endpoint.send(&reset, now);
        }
    }

    fn next_step(&mut self, shared: &Shared, now: Instant, again: bool) -> Step {
        self.note_silence(now);
        self.tell_end(now);
        let expires = self.expires(shared);
        if expires.is_some_and(|expires| now >= expires) {
            if self.endpoint.state() == State::Open {
                WanCounters::count(&shared.wan.resumes_expired);
            }
            self.endpoint.kill(Reason::ResumeExpired);
        }
        if matches!(self.endpoint.state(), State::Over(_)) {
            return Step::Done;
        }
        if let Some(event) = self.event(shared.side) {
            return Step::Tell(event);
        }
        let write_blocked = self.link.as_ref().is_some_and(Link::is_write_blocked);
        self.armed = self.endpoint.poll_timeout(!write_blocked).into_iter().chain(expires).min();
        let deadline = if again { Some(now) } else { self.armed };
        Step::Wait { socket: self.link.as_ref().map(Link::socket), write_blocked, deadline }
    }

    /// A link that does not answer counts as lost from the moment it is suspected, and as found when it speaks again.
    fn note_silence(&mut self, now: Instant) {
        if self.link.is_none() || self.endpoint.is_suspect() {
            self.lost.get_or_insert(now);
        } else {
            self.lost = None;
            self.told_silent = false;
        }
    }

    /// Closes the link once the peer has been told of the end; the peer confirms by closing as well.
    fn tell_end(&mut self, now: Instant) {
        if matches!(self.endpoint.state(), State::Ending(_)) {
            self.ending_since.get_or_insert(now);
            if self.endpoint.has_told_end()
                && let Some(link) = &mut self.link
                && !link.is_write_blocked()
            {
                link.close();
            }
        }
    }

    /// When this channel is given up.
    fn expires(&self, shared: &Shared) -> Option<Instant> {
        match (self.endpoint.state(), shared.side) {
            (State::Ending(_), _) => Some(self.ending_since? + limits::ENDING_MAX),
            (State::Idle, Side::Client) if !self.checked_out => self.link.is_none().then_some(self.lost?),
            (State::Idle, Side::Server) => Some(self.lost? + limits::IDLE_GRACE),
            _ => Some(self.lost? + shared.resume_window),
        }
    }

    fn event(&mut self, side: Side) -> Option<Event> {
        if side == Side::Client && !self.redialling && self.needs_link() {
            self.redialling = true;
            return Some(Event::NeedsLink);
        }
        match (side, self.endpoint.state()) {
            (Side::Server, State::Open) if self.endpoint.is_suspect() && !self.told_silent => {
                self.told_silent = true;
                Some(Event::Silent)
            }
            (Side::Server, State::Open) if self.endpoint.session() != self.held => Some(Event::Opened),
            (Side::Client, State::Idle) if self.checked_out => {
                let back = self.held == self.endpoint.session() || self.handles == 0;
                back.then(|| {
                    self.checked_out = false;
                    Event::Settled
                })
            }
            _ => None,
        }
    }

    fn needs_link(&self) -> bool {
        let live = match self.endpoint.state() {
            State::Idle => self.checked_out,
            State::Open | State::Ending(_) => true,
            State::Over(_) => false,
        };
        live && (self.link.is_none() || self.endpoint.is_suspect())
    }

    fn publish(&self) {
        let progress = self.endpoint.progress();
        self.progress.send_if_modified(|published| {
            let changed = *published != progress;
            *published = progress;
            changed
        });
    }
}
