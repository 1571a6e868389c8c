//! The client side's first step of a session: the target is asked for, and the first bytes go along without waiting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_config::{Decision, HostPort};
use isthmus_net::{Channel, Receiver};
use isthmus_telemetry::{ConnectionHandle, ConnectionState};
use isthmus_tunnel::{Message, Open};
use isthmus_types::{Reason, RecordingId};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::core::Core;
use crate::encode::EncodeHalf;
use crate::recording;
use crate::session::{End, Session};

/// Bytes of the client that are sent, and kept, before the target is connected.
const EARLY_BYTES_MAX: usize = 64 << 10;
/// Read of them at once.
const EARLY_READ_BYTES: usize = 4 << 10;
/// What the peer may take beyond the target's own time to connect.
const PEER_ANSWER: Duration = Duration::from_secs(15);

/// A connection that is to be opened through the peer.
pub(crate) struct Opening<'a> {
    pub core: Arc<Core>,
    pub target: &'a HostPort,
    pub source: SocketAddr,
    pub decision: &'a Decision,
}

/// How it went.
pub(crate) enum Outcome {
    /// The connection was served to its end, or is beyond help.
    Done,
    /// Nothing has reached the target: the connection may go another way.
    Refused(Box<Refused>),
}

/// A connection that the pair does not carry.
pub(crate) struct Refused {
    pub stream: TcpStream,
    pub handle: ConnectionHandle,
    /// Read from the client already.
    pub early: Vec<u8>,
    pub reason: Reason,
    pub detail: String,
}

/// What waiting for the peer's answer came to.
enum Answer {
    Opened(RecordingId),
    Failed(Reason, String),
    /// It cannot be known whether early bytes have reached the target.
    Broken(End),
}

impl Opening<'_> {
    pub async fn run(
        self,
        channel: Channel,
        stream: TcpStream,
        handle: ConnectionHandle,
        connect_timeout: Duration,
    ) -> Outcome {
        let info = channel.info();
        handle.set_peer(&info.name);
        let (Some(peer), Some(up)) =
            (self.core.peer_ledger(&info, &self.decision.domain), recording::fresh())
        else {
            let reason = Reason::StoreUnavailable;
            let detail = reason.to_string();
            return refused(stream, handle, Vec::new(), reason, detail);
        };
        let (sender, receiver) = channel.split();
        let understood = self.decision.action == isthmus_config::Action::Optimise;
        let target = self.target.to_string();
        let mixed = self.core.mixed.is_known(self.source.ip(), &target);
        let member = self.core.company.join(self.source.ip(), target.clone());
        let stage = if understood { self.core.stage(None, !mixed, member.count.clone()) } else { None };
        let mut session = Session {
            core: self.core.clone(),
            peer,
            handle,
            sender: Arc::new(sender),
            receiver,
            stage: stage.clone(),
            member: Some(member),
        };
        let open = Open {
            host: self.target.host.to_string(),
            port: self.target.port,
            domain: self.decision.domain.clone(),
            reduce: true,
            structured: stage.is_some(),
            accelerated: stage.as_ref().is_some_and(|stage| stage.accelerated),
            recording: up.0,
            source: self.source,
        };
        if let Err(closed) = session.sender.send(Message::Open(open)).await {
            let reason = closed.reason.unwrap_or(Reason::PeerAbsent);
            return refused(stream, session.handle, Vec::new(), reason, reason.to_string());
        }
        let mut encode = session.encode_half(up);
        let mut early = Vec::new();
        let until = Instant::now() + connect_timeout + PEER_ANSWER;
        match answer(&stream, &mut encode, &mut session.receiver, &mut early, until).await {
            Answer::Opened(down) => {
                let state = match self.decision.action {
                    isthmus_config::Action::ReduceOnly => ConnectionState::ReduceOnly,
                    _ => ConnectionState::Optimised,
                };
                session.handle.set_state(state);
                // The session may last for days; what it began with is not needed any more.
                drop(early);
                session.run(stream, encode, down).await;
                if stage.is_some_and(|stage| stage.connection.is_mixed()) {
                    self.core.note_mixed(self.source.ip(), target);
                }
                Outcome::Done
            }
            Answer::Failed(reason, detail) => {
                encode.encoder.abandon();
                refused(stream, session.handle, early, reason, detail)
            }
            Answer::Broken(end) => {
                encode.encoder.abandon();
                crate::lan::reset_at_close(&stream);
                session.ended(end).await;
                Outcome::Done
            }
        }
    }
}

fn refused(
    stream: TcpStream,
    handle: ConnectionHandle,
    early: Vec<u8>,
    reason: Reason,
    detail: String,
) -> Outcome {
    Outcome::Refused(Box::new(Refused { stream, handle, early, reason, detail }))
}

fn said(message: Message, early: &[u8]) -> Answer {
    match message {
        Message::Opened { recording } => Answer::Opened(RecordingId(recording)),
        Message::Failed { reason, detail } => Answer::Failed(reason, detail),
        Message::Reset { reason } if early.is_empty() => Answer::Failed(reason, reason.to_string()),
        Message::Reset { reason } => Answer::Broken(End::Peer(reason)),
        _ => Answer::Broken(End::misbehaved("an answer before the opening".into())),
    }
}

/// Waits for the peer's answer, and sends what the client says meanwhile.
async fn answer(
    stream: &TcpStream,
    encode: &mut EncodeHalf,
    receiver: &mut Receiver,
    early: &mut Vec<u8>,
    until: Instant,
) -> Answer {
    let mut ended = false;
    loop {
        tokio::select! {
            message = receiver.recv() => {
                return match message {
                    Ok(message) => said(message, early),
                    Err(closed) => Answer::Broken(End::closed(closed)),
                };
            }
            ready = stream.readable(), if !ended && early.len() < EARLY_BYTES_MAX => {
                if let Err(error) = ready {
                    return Answer::Broken(End::Lan(error));
                }
                let before = early.len();
                early.reserve(EARLY_READ_BYTES);
                match stream.try_read_buf(early) {
                    // Read again, and passed on, once the session runs.
                    Ok(0) => ended = true,
                    Ok(_) => {
                        encode.encoder.input().extend_from_slice(&early[before..]);
                        if let Err(end) = encode.send_pending(true).await {
                            // Perhaps the peer has said why.
                            let last = receiver.try_recv().ok().flatten();
                            return last.map_or(Answer::Broken(end), |message| said(message, early));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Answer::Broken(End::Lan(error)),
                }
            }
            () = sleep_until(until) => {
                let reason = Reason::TargetUnreachable;
                return if early.is_empty() {
                    Answer::Failed(Reason::PeerAbsent, "the peer did not answer in time".into())
                } else {
                    Answer::Broken(End::Local(reason, "the peer did not answer in time".into()))
                };
            }
        }
    }
}
