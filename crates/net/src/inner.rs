use crate::link::{Link, LinkError};
use crate::shared::{Chain, Shared};
use crate::{Closed, WanCounters, limits};
use isthmus_tunnel::{Endpoint, Message, Progress, SendError, State};
use isthmus_types::{Reason, Side};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What a channel's lock guards: the endpoint, its link, and who uses it.
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint,
    pub(crate) link: Option<Link>,
    /// Since when there is no link, or a silent one.
    pub(crate) lost: Option<Instant>,
    /// The peer's certificate chain, to be checked again when the trust files change.
    pub(crate) chain: Chain,
    pub(crate) progress: watch::Sender<Progress>,
    /// The session that `handles` counts, and its users.
    pub(crate) held: u64,
    pub(crate) handles: usize,
    /// On the client side: given out by the pool and not yet back.
    pub(crate) checked_out: bool,
    pub(crate) redialling: bool,
    /// The owner has been told that the link is silent.
    pub(crate) told_silent: bool,
    pub(crate) ending_since: Option<Instant>,
    /// The driver's next wake-up.
    pub(crate) armed: Option<Instant>,
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

impl Inner {
    /// Begins to count the handles of a session: there is one now. Those of the session before count no more.
    pub(crate) fn hold(&mut self, session: u64) -> watch::Receiver<Progress> {
        (self.held, self.handles) = (session, 1);
        self.progress = watch::Sender::new(Progress::default());
        self.progress.subscribe()
    }

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
    pub(crate) fn end_of(&self, session: u64) -> Option<Closed> {
        let reason = match self.endpoint.state() {
            _ if session <= self.endpoint.settled() => None,
            State::Idle | State::Open => return None,
            State::Ending(reason) | State::Over(reason) => Some(reason),
        };
        Some(Closed { reason })
    }

    /// Reads, handles and writes. Returns whether there is more to read at once.
    pub(crate) fn turn(&mut self, now: Instant, wan: &WanCounters) -> bool {
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

    pub(crate) fn lose_link(&mut self) {
        self.link = None;
        self.lost.get_or_insert_with(Instant::now);
        self.endpoint.link_down();
    }

    /// Resets a session that nobody holds, unless it is about to settle.
    pub(crate) fn abandon_unheld(&mut self, now: Instant) {
        let unheld = self.handles == 0 && self.held == self.endpoint.session() && self.held > 0;
        if unheld && self.endpoint.state() == State::Open && !self.endpoint.settles_alone() {
            let reset = Message::Reset { reason: Reason::ApplicationReset };
            // A reset is refused only when the session is over anyway.
            let _ = self.endpoint.send(&reset, now);
        }
    }

    pub(crate) fn next_step(&mut self, shared: &Shared, now: Instant, again: bool) -> Step {
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

    pub(crate) fn needs_link(&self) -> bool {
        let live = match self.endpoint.state() {
            State::Idle => self.checked_out,
            State::Open | State::Ending(_) => true,
            State::Over(_) => false,
        };
        live && (self.link.is_none() || self.endpoint.is_suspect())
    }

    pub(crate) fn publish(&self) {
        // Between two sessions, what is there to be told is of one and those who would hear it are of the other.
        if self.held != self.endpoint.session() {
            return;
        }
        let progress = self.endpoint.progress();
        self.progress.send_if_modified(|published| {
            let changed = *published != progress;
            *published = progress;
            changed
        });
    }
}
