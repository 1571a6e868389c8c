//! One optimised connection: an outer connection on this side, an inner channel to the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use isthmus_net::{Closed, Receiver, Sender};
use isthmus_reduction::encoder::EncodeError;
use isthmus_telemetry::{ConnectionHandle, Level};
use isthmus_tunnel::Message;
use isthmus_types::{Reason, RecordingId};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::company::Member;
use crate::core::{Core, PeerLedger};
use crate::decode::DecodeHalf;
use crate::encode::EncodeHalf;
use crate::lan;
use crate::lanes::{Incoming, Outgoing, Stage};
use crate::level::LevelChooser;
use crate::report::report;

/// Misses that may wait for their answer.
pub(crate) const FEEDBACK_MAX: usize = 16 << 10;
/// How long the peer may take to confirm a session's end.
const SETTLE: Duration = Duration::from_secs(30);

/// What ended a session, other than both applications' ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The outer connection on this side failed.
    Lan(io::Error),
    /// The peer said so.
    Peer(Reason),
    /// The channel is over.
    Lost(Reason),
    /// The channel ended cleanly before its time, or a half of the session did.
    Closed,
    /// This side found a reason.
    Local(Reason, String),
}

impl End {
    pub fn closed(closed: Closed) -> End {
        closed.reason.map_or(End::Closed, End::Lost)
    }

    pub fn misbehaved(detail: String) -> End {
        End::Local(Reason::PeerMisbehaved, detail)
    }

    pub fn encode(error: EncodeError) -> End {
        let reason = match error {
            EncodeError::Compression => Reason::AdmissionFull,
            EncodeError::CannotRepair => Reason::ProofFailed,
            EncodeError::MissOutOfRange | EncodeError::WrongFeedback => Reason::PeerMisbehaved,
        };
        End::Local(reason, error.to_string())
    }
}

/// The parts of a session whose channel is open.
pub(crate) struct Session {
    pub core: Arc<Core>,
    pub peer: Arc<PeerLedger>,
    pub handle: ConnectionHandle,
    pub sender: Arc<Sender>,
    pub receiver: Receiver,
    /// Set where SMB may be understood.
    pub stage: Option<Stage>,
    /// Its place among the client's connections to the server, on the client side: until both have closed it.
    pub member: Option<Member>,
}

impl Session {
    /// The half that sends, for a recording of this name. Boxed, since a future has room for each value in every function
    /// that it goes through.
    pub fn encode_half(&self, recording: RecordingId) -> Box<EncodeHalf> {
        let level = LevelChooser::new(self.core.compression);
        let first = LevelChooser::first(self.core.compression);
        let encoder = Outgoing::new(self.peer.shared.clone(), recording, first, self.stage.clone());
        let mut half = Box::new(EncodeHalf::new(
            encoder,
            recording,
            self.sender.clone(),
            self.peer.clone(),
            self.handle.ledger().clone(),
            self.core.side,
            level,
        ));
        half.window = self.core.window;
        half
    }

    /// Carries an outer connection over the channel to its end, and passes the end on.
    pub async fn run(mut self, mut lan: TcpStream, mut encode: Box<EncodeHalf>, down: RecordingId) {
        let decoder = Incoming::new(self.peer.shared.clone(), down, self.stage.clone());
        let accelerated = self.stage.as_ref().filter(|stage| stage.accelerated);
        encode.stage = accelerated.cloned();
        if let Some(stage) = &self.stage {
            self.handle.set_accelerator(Arc::new(stage.clone()));
        }
        let mut decode = DecodeHalf::new(
            decoder,
            encode.recording,
            self.sender.clone(),
            self.peer.clone(),
            self.handle.ledger().clone(),
            self.core.side,
            accelerated.map(|stage| stage.lan_ready.clone()),
        );
        let result = tokio::select! {
            result = run_halves(&mut lan, &mut encode, &mut decode, &mut self.receiver) => result,
            () = report(self.stage.as_ref(), &self.handle) => return,
        };
        if let Some(stage) = &self.stage {
            stage.count(self.handle.ledger());
        }
        self.member = None;
        match result {
            Ok(()) => {
                lan::close_in_order(&lan);
                // Kept until the peer has everything, and its last words are taken: the channel is free again then.
                let _ = timeout(SETTLE, decode.settle(&mut self.receiver)).await;
            }
            Err(end) => {
                encode.encoder.abandon();
                decode.decoder.abandon();
                self.peer.changed.notify_waiters();
                lan::reset_at_close(&lan);
                self.ended(end).await;
            }
        }
    }

    /// Tells the peer and the console why a session ended early.
    pub async fn ended(&self, end: End) {
        let (reason, detail, tell) = match end {
            End::Lan(error) => (Reason::ApplicationReset, error.to_string(), true),
            End::Peer(reason) | End::Lost(reason) => (reason, reason.to_string(), false),
            End::Closed => (Reason::PeerAbsent, "the channel closed early".to_owned(), false),
            End::Local(reason, detail) => (reason, detail, true),
        };
        if reason != Reason::ApplicationReset {
            self.core
                .telemetry
                .event(Level::Warning, format!("connection {} ended early: {detail}", self.handle.id()));
        }
        self.handle.fail(reason, &detail);
        if tell {
            // If the channel is gone as well, the peer finds out by itself.
            let _ = self.sender.send(Message::Reset { reason }).await;
        }
    }
}

async fn run_halves(
    lan: &mut TcpStream,
    encode: &mut EncodeHalf,
    decode: &mut DecodeHalf,
    receiver: &mut Receiver,
) -> Result<(), End> {
    let (to_encoder, feedback) = mpsc::channel(FEEDBACK_MAX);
    let (read, write) = lan.split();
    let lan: &TcpStream = read.as_ref();
    tokio::try_join!(encode.run(lan, feedback), decode.run(lan, write, receiver, to_encoder))?;
    Ok(())
}
