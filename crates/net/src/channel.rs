use crate::shared::Shared;
use crate::{PeerInfo, WanCounters};
use isthmus_tunnel::{Message, Progress};
use isthmus_types::Reason;
use std::sync::Arc;
use tokio::sync::watch;

/// One session's use of an inner channel. It outlives the TLS connection below it: when that dies, sending and
/// receiving wait while the client side dials again.
///
/// On the client side the first message to send is [`Message::Open`]; on the server side it has been taken already,
/// and [`Message::Opened`] or [`Message::Failed`] comes first. A session ends cleanly when both directions have sent
/// [`Message::Fin`] and all their data messages are acknowledged as restored on both sides; the channel then goes
/// back to the pool. When all of a session's handles are dropped before, it is reset, unless both directions have
/// ended and everything received is restored: then it settles by itself.
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

/// The session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is over{}", .reason.map(|reason| format!(": {reason}")).unwrap_or_default())]
pub struct Closed {
    /// Why; `None` when it ended cleanly.
    pub reason: Option<Reason>,
}

impl Channel {
    /// Takes over the session's first handle, which is counted already.
    pub(crate) fn new(shared: Arc<Shared>, session: u64, progress: watch::Receiver<Progress>) -> Channel {
        let handle = Handle { shared, session };
        let other = handle.clone();
        Channel { sender: Sender { handle, progress }, receiver: Receiver { handle: other } }
    }

    /// The sending and the receiving half.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// The proxy at the other end.
    pub fn info(&self) -> Arc<PeerInfo> {
        self.sender.info()
    }

    /// The peer's byte counters.
    pub fn wan(&self) -> Arc<WanCounters> {
        self.sender.handle.shared.wan()
    }
}

/// Sends a session's messages. May be shared between tasks.
pub struct Sender {
    handle: Handle,
    progress: watch::Receiver<Progress>,
}

impl Sender {
    /// Queues one message; waits while the peer's application has too much left to take
    /// (`tunnel::limits::RESUME_BUFFER_BYTES`) or too much is unsent (`UNSENT_BYTES_MAX`). Terminal messages
    /// ([`Message::Reset`], [`Message::Failed`]) never wait. Cancel-safe: a message is queued whole or not at all.
    ///
    /// # Errors
    /// [`Closed`] when the session is over. A message that is out of order or too long ends the session
    /// ([`Reason::PeerMisbehaved`]): it is a defect of the caller, and is logged as one.
    pub async fn send(&self, message: Message) -> Result<(), Closed> {
        let Handle { shared, session } = &self.handle;
        shared.wait(|inner| inner.try_send(*session, &message)).await
    }

    /// States how far the peer's data has come on this side: data messages restored, LAN bytes delivered, both counted
    /// from the session's start. Cheap; goes out with other traffic or after 25 ms.
    pub fn acknowledge(&self, restored: u64, delivered: u64) {
        self.handle.shared.acknowledge(self.handle.session, restored, delivered);
    }

    /// What the peer has acknowledged of the data sent here.
    pub fn peer_progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Bytes queued and not yet given to the kernel.
    pub fn backlog_bytes(&self) -> usize {
        self.handle.shared.backlog_bytes(self.handle.session)
    }

    /// Waits until everything queued is given to the kernel.
    ///
    /// # Errors
    /// [`Closed`] when the session is over with something still unsent.
    pub async fn flushed(&self) -> Result<(), Closed> {
        let Handle { shared, session } = &self.handle;
        shared.wait(|inner| inner.try_flushed(*session)).await
    }

    /// Waits for the session's clean end: everything sent is taken and restored by the peer, and everything received is
    /// here. The handles should be kept until then if the peer may still miss something.
    ///
    /// # Errors
    /// [`Closed`] with the reason when it ends otherwise.
    pub async fn settled(&self) -> Result<(), Closed> {
        let Handle { shared, session } = &self.handle;
        shared.wait(|inner| inner.try_settled(*session)).await
    }

    /// The proxy at the other end.
    pub fn info(&self) -> Arc<PeerInfo> {
        self.handle.shared.info()
    }
}

/// Receives a session's messages.
pub struct Receiver {
    handle: Handle,
}

impl Receiver {
    /// Waits for the next message. Taking it is what gives the peer room to send more. Cancel-safe.
    ///
    /// The peer's [`Message::Reset`] or [`Message::Failed`] is given as a message (so is a reset that this side makes
    /// when the channel is lost), and [`Closed`] after it.
    ///
    /// # Errors
    /// [`Closed`] when the session is over.
    pub async fn recv(&mut self) -> Result<Message, Closed> {
        let Handle { shared, session } = &self.handle;
        shared.recv(*session).await
    }

    /// The next message, if one is here already.
    ///
    /// # Errors
    /// [`Closed`] when the session is over.
    pub fn try_recv(&mut self) -> Result<Option<Message>, Closed> {
        let Handle { shared, session } = &self.handle;
        shared.try_recv(*session)
    }
}

/// Counts the users of a session, so that one without any does not linger.
struct Handle {
    shared: Arc<Shared>,
    session: u64,
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.shared.add_handle(self.session);
        Handle { shared: self.shared.clone(), session: self.session }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.drop_handle(self.session);
    }
}
