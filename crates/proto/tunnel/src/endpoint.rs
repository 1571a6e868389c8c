use crate::inbox::Inbox;
use crate::liveness::Liveness;
use crate::outbox::Outbox;
use crate::{Ack, Error, Frame, Message, encode, limits};
use isthmus_types::limits::FRAME_WIRE_BYTES_MAX;
use isthmus_types::{Reason, Side};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// How long an acknowledgement may wait for company.
pub const ACK_DELAY: Duration = Duration::from_millis(25);

/// What the peer's application says about this side's data messages of the session. Both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Data messages restored: the sender may forget what it would need to repair them.
    pub restored: u64,
    /// LAN bytes delivered to the outer connection (flow control).
    pub delivered: u64,
}

/// Where a channel stands between its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No session: the channel may be opened.
    Idle,
    /// A session is open, at least on this side.
    Open,
    /// This side has ended the session and the channel; the peer has yet to be told.
    Ending(Reason),
    /// The session and the channel are over for both sides.
    Over(Reason),
}

/// Why a message was not accepted for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing more can be sent.
    #[error("the session is over: {0}")]
    Over(Reason),
    /// The session is not at a point where this message makes sense.
    #[error("message out of order")]
    OutOfOrder,
    /// The message exceeds a limit of the wire.
    #[error("message too long")]
    TooLong,
}

/// One side of an inner channel, over all its links and sessions.
///
/// The driver feeds it decoded frames and the time, and writes out what [`Endpoint::fill`] gives. A session ends
/// cleanly when both directions have sent [`Message::Fin`], all messages are taken and all data is restored on both
/// sides; the endpoint is then [`State::Idle`] again.
#[derive(Debug)]
pub struct Endpoint {
    side: Side,
    state: State,
    session: u64,
    /// The last session that ended cleanly.
    settled: u64,
    steps: Steps,
    inbox: Inbox,
    outbox: Outbox,
    /// The peer's terminal message, until the application has taken it.
    terminal: Option<Message>,
    /// This side's terminal message, told again on every new link.
    ending: Option<Message>,
    progress: Progress,
    /// Acknowledgements heard on this link, summed up.
    heard: Ack,
    told: Told,
    liveness: Liveness,
    /// A probe that the driver asked for is not answered yet.
    probing: bool,
    link_up: bool,
}

/// How far the two directions of the open session have come.
#[derive(Debug, Default)]
struct Steps {
    /// `Opened` was sent or received.
    opened: bool,
    sent_fin: bool,
    got_fin: bool,
    data_sent: u64,
    data_got: u64,
}

/// What this side acknowledges, and what of it is on the link already.
#[derive(Debug, Default)]
struct Told {
    own: Progress,
    /// Feedback that the peer has not taken: the sequence number after it, and what had been restored before it. Nothing
    /// restored later is told before the feedback is on the link: the peer would get it after its session has ended.
    holds: VecDeque<(u64, u64)>,
    wire_bytes: usize,
    sent: Ack,
    due: Option<Instant>,
}

impl Endpoint {
    /// A channel whose first link has just come up.
    pub fn new(side: Side, now: Instant) -> Endpoint {
        Endpoint {
            side,
            state: State::Idle,
            session: 0,
            settled: 0,
            steps: Steps::default(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            terminal: None,
            ending: None,
            progress: Progress::default(),
            heard: Ack::default(),
            told: Told::default(),
            liveness: Liveness::new(now),
            probing: false,
            link_up: true,
        }
    }

    /// Where the channel stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Number of the session that is open or was last open; 0 before the first.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Number of the last session that ended cleanly; 0 when none has.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether a message is here for [`Endpoint::recv`].
    pub fn has_message(&self) -> bool {
        self.terminal.is_some() || !self.inbox.is_empty()
    }

    /// Whether the open session needs nothing more from this side's application to end cleanly: both directions have
    /// ended, everything is taken, and all that was received is restored.
    pub fn settles_alone(&self) -> bool {
        let Steps { sent_fin, got_fin, data_got, .. } = self.steps;
        sent_fin && got_fin && self.inbox.is_empty() && self.told.own.restored >= data_got
    }

    /// Whether a sender may go on. When not, wait until the peer has taken or the link has written something.
    pub fn has_room(&self) -> bool {
        self.outbox.retained_cost() < limits::RESUME_BUFFER_BYTES
            && self.outbox.unsent_bytes() < limits::UNSENT_BYTES_MAX
    }

    /// Bytes of messages accepted and not yet written to the link.
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.unsent_bytes()
    }

    /// What the peer has acknowledged of this session's data.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Accepts a message for sending. The caller asks [`Endpoint::has_room`] first; terminal messages need no room.
    pub fn send(&mut self, message: &Message, now: Instant) -> Result<(), SendError> {
        if let State::Ending(reason) | State::Over(reason) = self.state {
            return Err(SendError::Over(reason));
        }
        let idle = self.state == State::Idle;
        let early = self.side == Side::Server && !self.steps.opened;
        match message {
            Message::Open(_) if idle && self.side == Side::Client => self.start_session(),
            Message::Open(_) => return Err(SendError::OutOfOrder),
            _ if idle => return Err(SendError::OutOfOrder),
            Message::Reset { reason } => {
                self.end(message, *reason, now);
                return Ok(());
            }
            Message::Failed { reason, .. } if early => {
                self.end(message, *reason, now);
                return Ok(());
            }
            Message::Opened { .. } if early => self.steps.opened = true,
            Message::Opened { .. } | Message::Failed { .. } => return Err(SendError::OutOfOrder),
            _ if early => return Err(SendError::OutOfOrder),
            Message::Data(_) | Message::Fin if self.steps.sent_fin => return Err(SendError::OutOfOrder),
            Message::Data(data) if data.is_empty() || data.len() > FRAME_WIRE_BYTES_MAX => {
                return Err(SendError::TooLong);
            }
            Message::Data(_) => self.steps.data_sent += 1,
            Message::Fin => self.steps.sent_fin = true,
            Message::Feedback(data) if data.is_empty() || data.len() > limits::FEEDBACK_BYTES_MAX => {
                return Err(SendError::TooLong);
            }
            Message::Feedback(_) => {
                let after = self.outbox.end() + 1;
                self.told.holds.push_back((after, self.told.own.restored));
            }
        }
        self.outbox.push(message);
        Ok(())
    }

    /// The next message for the application, if one has arrived.
    pub fn recv(&mut self, now: Instant) -> Option<Message> {
        if let Some(terminal) = self.terminal.take() {
            return Some(terminal);
        }
        let (message, cost) = self.inbox.pop()?;
        self.told.wire_bytes += cost;
        self.owe_ack(now);
        self.settle();
        Some(message)
    }

    /// States this side's progress on the peer's data: data messages restored and LAN bytes delivered, both counted
    /// from the session's start. Smaller values than before are ignored.
    pub fn acknowledge(&mut self, restored: u64, delivered: u64, now: Instant) {
        if self.state != State::Open {
            return;
        }
        let own = &mut self.told.own;
        if restored > own.restored || delivered > own.delivered {
            own.restored = own.restored.max(restored.min(self.steps.data_got));
            own.delivered = own.delivered.max(delivered);
            self.owe_ack(now);
            self.settle();
        }
    }

    /// Ends the channel from this side without telling the peer: its certificate is no longer accepted, the window for
    /// a new link is over, or the peer has lost the channel. The application finds a reset.
    pub fn kill(&mut self, reason: Reason) {
        if self.state == State::Open {
            self.terminal = Some(Message::Reset { reason });
        }
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(reason);
            self.inbox.clear();
            self.outbox.clear();
        }
    }

    /// The link is dead. Sequenced messages wait for the next.
    pub fn link_down(&mut self) {
        self.link_up = false;
    }

    /// Sequenced frames that have arrived, for a resume.
    pub fn arrived(&self) -> u64 {
        self.inbox.arrived()
    }

    /// Whether a new link can take over on which the peer says that it has every sequenced frame before number `arrived`.
    /// If not, the peer has taken more by now: what it said is old, and came late.
    pub fn can_resume(&self, arrived: u64) -> bool {
        matches!(self.state, State::Ending(_) | State::Over(_)) || self.outbox.can_rewind(arrived)
    }

    /// A new link has taken over; the peer has every sequenced frame before number `arrived`.
    pub fn link_up(&mut self, arrived: u64, now: Instant) -> Result<(), Error> {
        self.link_up = true;
        self.probing = false;
        self.liveness = self.liveness.renewed(now);
        self.heard = Ack { odd: self.session & 1 == 1, ..Ack::default() };
        self.told.sent = Ack::default();
        self.told.due = Some(now);
        match self.state {
            State::Ending(_) | State::Over(_) => {
                self.outbox = Outbox::default();
                if let Some(ending) = self.ending.clone() {
                    encode(&Frame::Message(ending), self.outbox.urgent());
                }
            }
            _ => self.outbox.rewind(arrived)?,
        }
        self.note_waiting(now);
        Ok(())
    }

    /// The round-trip time as measured elsewhere.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.liveness.set_round_trip(round_trip);
    }

    /// Bytes arrived on the link.
    pub fn heard(&mut self, now: Instant) {
        self.liveness.heard(now);
    }

    /// Takes in one frame. After an error the link cannot be used any more.
    pub fn handle(&mut self, frame: Frame, now: Instant) -> Result<(), Error> {
        let over = matches!(self.state, State::Ending(_) | State::Over(_));
        match frame {
            Frame::Message(message) if message.is_terminal() => self.ended(message),
            _ if over => Ok(()),
            Frame::Message(message) => self.arrive(message),
            Frame::Ack(ack) => self.handle_ack(ack, now),
            Frame::Ping { token } if self.outbox.urgent().len() < limits::URGENT_BYTES_MAX => {
                encode(&Frame::Pong { token }, self.outbox.urgent());
                Ok(())
            }
            Frame::Ping { .. } => Err(Error::PeerMisbehaved("pings faster than it reads")),
            Frame::Pong { .. } => {
                self.probing = false;
                self.note_waiting(now);
                Ok(())
            }
            _ => Err(Error::PeerMisbehaved("set-up frame on a channel in use")),
        }
    }

    /// Whether the link should be written to now.
    pub fn wants_transmit(&self, now: Instant) -> bool {
        self.link_up && (self.outbox.has_unsent() || self.ack_is_due(now))
    }

    /// Fills `slices` with what to write next, about `bytes_max` bytes in all; returns how many are used. Small frames
    /// and an acknowledgement that waits travel together.
    pub fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>], bytes_max: usize, now: Instant) -> usize {
        if !self.wants_transmit(now) {
            return 0;
        }
        self.add_ack(now);
        self.outbox.fill(slices, bytes_max)
    }

    /// The link has taken `written` bytes of what the last [`Endpoint::fill`] gave.
    pub fn advance(&mut self, written: usize, now: Instant) {
        self.outbox.advance(written);
        self.note_waiting(now);
        self.settle();
    }

    /// When [`Endpoint::handle_timeout`] or, while the link is `writable`, [`Endpoint::fill`] is to be called next. May
    /// move forwards or back after any other call.
    pub fn poll_timeout(&self, writable: bool) -> Option<Instant> {
        if !self.link_up {
            return None;
        }
        self.told.due.filter(|_| writable).into_iter().chain(self.liveness.deadline()).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.link_up && self.liveness.handle_timeout(now) {
            encode(&Frame::Ping { token: 0 }, self.outbox.urgent());
        }
    }

    /// Asks the link for a sign of life, and suspects it when none comes: for a driver that has reason to doubt it.
    pub fn probe(&mut self, now: Instant) {
        if self.link_up && !self.probing {
            self.probing = true;
            encode(&Frame::Ping { token: 0 }, self.outbox.urgent());
            self.note_waiting(now);
        }
    }

    /// Whether the link has been silent for so long, with something awaited, that a new one should be tried.
    pub fn is_suspect(&self) -> bool {
        self.link_up && self.liveness.is_suspect()
    }

    /// Whether this side has ended the channel and has written all it had to say about it.
    pub fn has_told_end(&self) -> bool {
        match self.state {
            State::Over(_) => true,
            State::Ending(_) => self.link_up && !self.outbox.has_unsent(),
            _ => false,
        }
    }

    fn start_session(&mut self) {
        self.session += 1;
        self.state = State::Open;
        self.steps = Steps::default();
        self.progress = Progress::default();
        self.told.own = Progress::default();
        self.told.holds = VecDeque::new();
        self.told.sent = Ack { taken: self.told.sent.taken, ..Ack::default() };
        self.heard = Ack { odd: self.session & 1 == 1, taken: self.heard.taken, ..Ack::default() };
    }

    /// Ends the session from this side; the terminal message overtakes all but a frame that is half on the link.
    fn end(&mut self, message: &Message, reason: Reason, now: Instant) {
        self.inbox.clear();
        self.outbox.clear();
        self.terminal = None;
        self.state = State::Ending(reason);
        self.ending = Some(message.clone());
        encode(&Frame::Message(message.clone()), self.outbox.urgent());
        self.note_waiting(now);
    }

    /// Takes in a sequenced message, if it is legal at this point.
    fn arrive(&mut self, message: Message) -> Result<(), Error> {
        let opens = matches!(message, Message::Open(_));
        if self.state != State::Open && !opens {
            return Err(Error::PeerMisbehaved("message without a session"));
        }
        match &message {
            Message::Open(_) if self.side == Side::Server => {
                self.settle_as_the_peer_has();
                if self.state != State::Idle {
                    return Err(Error::PeerMisbehaved("open out of order"));
                }
                self.start_session();
            }
            Message::Open(_) => return Err(Error::PeerMisbehaved("open out of order")),
            Message::Opened { .. } if self.side == Side::Client && !self.steps.opened => {
                self.steps.opened = true;
            }
            Message::Opened { .. } => return Err(Error::PeerMisbehaved("opened out of order")),
            _ if self.side == Side::Client && !self.steps.opened => {
                return Err(Error::PeerMisbehaved("answers before it has opened"));
            }
            Message::Data(_) | Message::Fin if self.steps.got_fin => {
                return Err(Error::PeerMisbehaved("sends after the end of its stream"));
            }
            Message::Data(_) => self.steps.data_got += 1,
            Message::Fin => self.steps.got_fin = true,
            _ => {}
        }
        self.inbox.push(message)
    }

    fn handle_ack(&mut self, ack: Ack, now: Instant) -> Result<(), Error> {
        const TOO_FAR: Error = Error::PeerMisbehaved("acknowledges what was not sent");
        let heard = &mut self.heard;
        heard.taken = heard.taken.checked_add(ack.taken).ok_or(TOO_FAR)?;
        self.outbox.taken(heard.taken)?;
        if ack.taken > 0 {
            self.liveness.progressed();
        }
        // An acknowledgement of the session before this one may arrive after this one was opened.
        if ack.odd == heard.odd {
            heard.restored = heard.restored.checked_add(ack.restored).ok_or(TOO_FAR)?;
            heard.delivered = heard.delivered.checked_add(ack.delivered).ok_or(TOO_FAR)?;
            if heard.restored > self.steps.data_sent {
                return Err(TOO_FAR);
            }
            self.progress.restored = self.progress.restored.max(heard.restored);
            self.progress.delivered = self.progress.delivered.max(heard.delivered);
        }
        self.note_waiting(now);
        self.settle();
        Ok(())
    }

    /// The peer has ended the session.
    fn ended(&mut self, message: Message) -> Result<(), Error> {
        let reason = match (&message, self.state) {
            (Message::Failed { .. }, State::Idle) => {
                return Err(Error::PeerMisbehaved("fails without a session"));
            }
            (Message::Failed { .. }, State::Open) if self.side == Side::Server || self.steps.opened => {
                return Err(Error::PeerMisbehaved("fails after it has opened"));
            }
            (_, State::Ending(reason) | State::Over(reason)) => reason,
            (Message::Failed { reason, .. } | Message::Reset { reason }, _) => *reason,
            _ => return Ok(()),
        };
        if self.state == State::Open {
            self.terminal = Some(message);
        }
        self.state = State::Over(reason);
        self.inbox.clear();
        self.outbox.clear();
        Ok(())
    }

    fn owe_ack(&mut self, now: Instant) {
        self.told.due.get_or_insert(now + ACK_DELAY);
    }

    fn ack_is_due(&self, now: Instant) -> bool {
        let told = &self.told;
        told.due.is_some_and(|due| due <= now)
            || told.wire_bytes >= limits::ACK_WIRE_BYTES
            || told.own.delivered - told.sent.delivered >= limits::ACK_LAN_BYTES
    }

    /// Encodes what this side has to acknowledge; acknowledgements travel with whatever is sent anyway.
    fn add_ack(&mut self, now: Instant) {
        let told = &mut self.told;
        // Only what the peer has taken can never come to be unsent again, on a new link.
        while told.holds.front().is_some_and(|&(after, _)| after <= self.outbox.first()) {
            told.holds.pop_front();
        }
        let sent = told.holds.partition_point(|&(after, _)| after <= self.outbox.on_link());
        let held = told.holds.get(sent).map_or(u64::MAX, |&(_, restored)| restored);
        let now_told = Ack {
            odd: self.session & 1 == 1,
            taken: self.inbox.taken(),
            restored: told.own.restored.min(held).max(told.sent.restored),
            delivered: told.own.delivered,
        };
        let ack = Ack {
            odd: now_told.odd,
            taken: now_told.taken - told.sent.taken,
            restored: now_told.restored - told.sent.restored,
            delivered: now_told.delivered - told.sent.delivered,
        };
        if self.outbox.urgent().len() > limits::URGENT_BYTES_MAX / 2 {
            return;
        }
        if (ack.taken, ack.restored, ack.delivered) != (0, 0, 0) {
            encode(&Frame::Ack(ack), self.outbox.urgent());
        }
        told.sent = now_told;
        told.wire_bytes = 0;
        // What is held goes as soon as the feedback is written.
        told.due = (told.own.restored > now_told.restored).then_some(now);
    }

    /// Goes back to idle when the session has ended cleanly on both sides. The client side waits until its own last
    /// acknowledgement is written, so that the server side is idle before the next open reaches it.
    fn settle(&mut self) {
        let done = self.state == State::Open
            && self.settles_alone()
            && self.outbox.is_empty()
            && self.progress.restored >= self.steps.data_sent;
        let told = self.told.sent.taken == self.inbox.taken()
            && self.told.sent.restored == self.told.own.restored
            && !self.outbox.has_unsent();
        if done && (told || self.side == Side::Server) {
            self.state = State::Idle;
            self.settled = self.session;
        }
    }

    /// Server side, when the peer opens its next session: it has settled the last one, and knows all of its data to be
    /// restored. What it said about that may have been lost with its link, and what it says on the next link counts for
    /// the session that it has begun since. What it has taken is told on every link.
    fn settle_as_the_peer_has(&mut self) {
        if self.state == State::Open && self.settles_alone() && self.outbox.is_empty() {
            self.progress.restored = self.steps.data_sent;
            self.settle();
        }
    }

    fn note_waiting(&mut self, now: Instant) {
        let waiting = self.probing || self.outbox.is_waiting() || matches!(self.state, State::Ending(_));
        self.liveness.set_waiting(waiting, now);
    }
}
