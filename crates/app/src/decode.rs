//! The half of a session that takes frames and writes to the LAN.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use isthmus_net::{Receiver, Sender};
use isthmus_reduction::decoder::{Delivery, Intake, Taken};
use isthmus_reduction::frame::Feedback;
use isthmus_reduction::ledger::Name;
use isthmus_smb_session::AssembleError;
use isthmus_telemetry::{ConnectionLedger, SavedBy};
use isthmus_tunnel::Message;
use isthmus_types::{Reason, RecordingId, Side};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::core::PeerLedger;
use crate::encode::tally;
use crate::lanes::{self, Incoming, IncomingError};
use crate::session::{End, FEEDBACK_MAX};

/// Slices given to one write.
const WRITE_SLICES_MAX: usize = 64;
/// A recording that another channel is receiving is waited for as long as it grows, a frame at a time; on a slow link a
/// frame takes its time, and the bytes waited for would not come sooner another way.
const GROWTH_WAIT: Duration = Duration::from_secs(2);
/// A recording that no channel here has heard of is waited for a round trip, and at least so long.
const UNKNOWN_WAIT_MIN: Duration = Duration::from_millis(50);

/// Takes, restores and writes one direction.
pub(crate) struct DecodeHalf {
    pub decoder: Incoming,
    /// The recording of this session's other half.
    own: RecordingId,
    sender: Arc<Sender>,
    peer: Arc<PeerLedger>,
    ledger: Arc<ConnectionLedger>,
    side: Side,
    /// Restored bytes on their way to the LAN.
    out: VecDeque<Bytes>,
    delivered: u64,
    /// What is done beside the bytes written, and what the peer was told last.
    ahead: i64,
    told: u64,
    /// Rings when there is something for the LAN that did not come from the peer.
    bell: Option<Arc<Notify>>,
    waiting: Option<Waiting>,
    /// The peer's source has ended.
    fin: bool,
    /// The LAN side has been told.
    closed: bool,
}

/// A frame refers to what another channel is just receiving.
struct Waiting {
    recording: RecordingId,
    /// Whether any channel here has heard of it, and how far it was received.
    known: bool,
    progress: u64,
    until: Instant,
}

impl Waiting {
    /// Waits for longer only if more has come of the recording since: the bell rings for whatever any channel does.
    fn longer(self, now: Waiting) -> Waiting {
        if now.progress > self.progress || now.known && !self.known { now } else { self }
    }
}

impl DecodeHalf {
    pub fn new(
        decoder: Incoming,
        own: RecordingId,
        sender: Arc<Sender>,
        peer: Arc<PeerLedger>,
        ledger: Arc<ConnectionLedger>,
        side: Side,
        bell: Option<Arc<Notify>>,
    ) -> DecodeHalf {
        DecodeHalf {
            decoder,
            own,
            sender,
            peer,
            ledger,
            side,
            out: VecDeque::new(),
            delivered: 0,
            ahead: 0,
            told: 0,
            bell,
            waiting: None,
            fin: false,
            closed: false,
        }
    }

    /// Runs until the peer's source has ended, everything is written, and the other half has ended too.
    pub async fn run(
        &mut self,
        lan: &TcpStream,
        mut shut: WriteHalf<'_>,
        receiver: &mut Receiver,
        encoder: mpsc::Sender<Feedback>,
    ) -> Result<(), End> {
        loop {
            self.refill().await?;
            if self.fin && self.decoder.is_cut() && self.out.is_empty() {
                return Err(End::misbehaved("the peer ended in the middle of a message".into()));
            }
            if self.fin && !self.closed && self.out.is_empty() && self.decoder.is_drained() {
                shut.shutdown().await.map_err(End::Lan)?;
                self.decoder.finish();
                self.acknowledge();
                self.closed = true;
            }
            if self.closed && encoder.is_closed() {
                return Ok(());
            }
            let (engine, bell) = (self.bell.clone(), self.peer.clone());
            let (waits, until) =
                self.waiting.as_ref().map_or((false, Instant::now()), |waiting| (true, waiting.until));
            tokio::select! {
                ready = lan.writable(), if !self.out.is_empty() => {
                    ready.map_err(End::Lan)?;
                    self.write(lan)?;
                }
                message = receiver.recv(), if !waits => match message {
                    Ok(message) => self.take(message, &encoder).await?,
                    Err(closed) if closed.reason.is_none() && self.closed => return Ok(()),
                    Err(closed) => return Err(End::closed(closed)),
                },
                () = ring(engine.as_deref()), if self.out.is_empty() => {}
                () = bell.changed.notified(), if waits => self.resume(false).await?,
                () = sleep_until(until), if waits => self.resume(true).await?,
                () = encoder.closed(), if self.closed => return Ok(()),
            }
        }
    }

    /// Takes what still comes when both directions have ended, until the session is over.
    pub async fn settle(&mut self, receiver: &mut Receiver) {
        while let Ok(message) = receiver.recv().await {
            if let Message::Feedback(bytes) = message
                && let Ok(feedback) = Feedback::decode(&bytes)
                && let Err(end) = self.late(&feedback)
            {
                tracing::debug!(?end, "feedback after the end");
            }
        }
    }

    /// Restores the next frame once the last one is written.
    async fn refill(&mut self) -> Result<(), End> {
        while self.out.is_empty() {
            let delivery = self.decoder.deliver().map_err(|error| self.failed(error))?;
            self.ahead += self.decoder.take_ahead();
            match delivery {
                Delivery::Bytes(pieces) => {
                    if self.decoder.is_smb() {
                        let len: usize = pieces.iter().map(Bytes::len).sum();
                        tally(&self.ledger, self.side, false).lan.add(len as u64);
                    }
                    self.out.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
                }
                Delivery::Feedback(feedback) => self.ask(feedback).await?,
                Delivery::Blocked | Delivery::Empty => {
                    self.acknowledge();
                    break;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, lan: &TcpStream) -> Result<(), End> {
        while !self.out.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.out.iter().take(WRITE_SLICES_MAX).map(|piece| IoSlice::new(piece)).collect();
            let mut written = match lan.try_write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(End::Lan(error)),
            };
            self.delivered += written as u64;
            while let Some(piece) = self.out.front_mut() {
                if written < piece.len() {
                    piece.advance(written);
                    break;
                }
                written -= piece.len();
                self.out.pop_front();
            }
            self.acknowledge();
        }
        Ok(())
    }

    /// Takes one message of the peer.
    pub async fn take(&mut self, message: Message, encoder: &mpsc::Sender<Feedback>) -> Result<(), End> {
        match message {
            Message::Data(frame) => {
                let intake = self.decoder.take(&frame).map_err(|error| self.failed(error))?;
                self.took(intake).await
            }
            Message::Feedback(bytes) if bytes.first() == Some(&lanes::NOTE) => {
                self.decoder.note(&bytes[1..]).map_err(|error| self.failed(error))
            }
            Message::Feedback(bytes) => {
                let feedback =
                    Feedback::decode(&bytes).map_err(|error| End::misbehaved(error.to_string()))?;
                if matches!(feedback, Feedback::Repair { .. }) {
                    let answer = self.decoder.repair(&feedback).map_err(|error| self.failed(error))?;
                    self.peer.changed.notify_waiters();
                    return self.ask(answer).await;
                }
                match encoder.try_send(feedback) {
                    Ok(()) => Ok(()),
                    Err(mpsc::error::TrySendError::Full(_)) => {
                        Err(End::misbehaved(format!("more than {FEEDBACK_MAX} unanswered misses")))
                    }
                    Err(mpsc::error::TrySendError::Closed(late)) => self.late(&late),
                }
            }
            Message::Fin => {
                self.fin = true;
                Ok(())
            }
            Message::Reset { reason } | Message::Failed { reason, .. } => Err(End::Peer(reason)),
            Message::Open(_) | Message::Opened { .. } => {
                Err(End::misbehaved("an opening in mid-session".into()))
            }
        }
    }

    /// A message for the other half, which has ended since the peer had restored everything. What the peer says it does
    /// not keep may still come; nothing that it restored can be missing.
    fn late(&self, feedback: &Feedback) -> Result<(), End> {
        let Feedback::Forget { position, len } = *feedback else {
            return Err(End::misbehaved("a miss of something already restored".into()));
        };
        // Which of the two recordings is meant need not be known: only one of them has anything.
        for recording in [self.own, lanes::content_recording(self.own)] {
            self.peer.shared.ledger.forget(Name { recording, position }, u64::from(len));
        }
        Ok(())
    }

    async fn resume(&mut self, late: bool) -> Result<(), End> {
        let Some(old) = self.waiting.take() else { return Ok(()) };
        let recording = old.recording;
        let (until, waiting) = (old.until, old.longer(self.wait_for(recording)));
        if late && waiting.until > until {
            self.waiting = Some(waiting);
            return Ok(());
        }
        let intake = self.decoder.resume(late).map_err(|error| self.failed(error))?;
        if matches!(intake, Intake::Wait { recording: again } if again == recording) {
            self.waiting = Some(waiting);
            return Ok(());
        }
        self.took(intake).await
    }

    fn wait_for(&self, recording: RecordingId) -> Waiting {
        let ledger = &self.peer.shared.ledger;
        let (known, progress) = (ledger.knows(recording), ledger.progress(recording));
        let until = Instant::now() + if known { GROWTH_WAIT } else { unknown_wait(&self.sender) };
        Waiting { recording, known, progress, until }
    }

    async fn took(&mut self, intake: Intake) -> Result<(), End> {
        match intake {
            Intake::Done { feedback, stats } => {
                self.peer.changed.notify_waiters();
                self.count(stats);
                self.ask(feedback).await
            }
            Intake::Wait { recording } => {
                self.waiting = Some(self.wait_for(recording));
                Ok(())
            }
        }
    }

    async fn ask(&self, feedback: Vec<Feedback>) -> Result<(), End> {
        for message in feedback {
            self.ledger.misses.add(u64::from(matches!(message, Feedback::Miss { .. })));
            self.sender.send(Message::Feedback(message.encode())).await.map_err(End::closed)?;
        }
        Ok(())
    }

    fn count(&self, stats: Taken) {
        let tally = tally(&self.ledger, self.side, false);
        tally.lan.add(stats.lan);
        tally.wan.add(stats.wire);
        self.ledger.frames_decoded.add(1);
        self.ledger.add_saved(SavedBy::Run, stats.run);
        self.ledger.add_saved(SavedBy::Delta, stats.delta_saved);
        self.ledger.add_saved(SavedBy::Compression, stats.compression_saved);
    }

    fn acknowledge(&mut self) {
        let delivered = self.delivered.saturating_add_signed(self.ahead);
        self.told = self.told.max(delivered);
        self.sender.acknowledge(self.decoder.frames_restored(), self.told);
    }

    fn failed(&self, error: IncomingError) -> End {
        use isthmus_reduction::decoder::DecodeError;
        use isthmus_reduction::structure::BadStructure;
        match error {
            IncomingError::Decode(DecodeError::ProofFailed)
            | IncomingError::Structure(BadStructure::ProofFailed) => {
                self.ledger.proof_failures.add(1);
                End::Local(Reason::ProofFailed, error.to_string())
            }
            IncomingError::Decode(DecodeError::NoMemory)
            | IncomingError::Structure(BadStructure::NoMemory) => {
                End::Local(Reason::AdmissionFull, error.to_string())
            }
            IncomingError::Assemble(AssembleError::Mixed) => End::Local(Reason::KeysMixed, error.to_string()),
            _ => End::misbehaved(error.to_string()),
        }
    }
}

/// Waits for a bell, for ever if there is none.
pub(crate) async fn ring(bell: Option<&Notify>) {
    match bell {
        Some(bell) => bell.notified().await,
        None => std::future::pending().await,
    }
}

fn unknown_wait(sender: &Sender) -> Duration {
    sender.info().round_trip().max(UNKNOWN_WAIT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_work_is_no_reason_to_wait_for_longer() {
        let (recording, start) = (RecordingId(7), Instant::now());
        let at = |millis: u64, known, progress| Waiting {
            recording,
            known,
            progress,
            until: start + Duration::from_millis(millis),
        };
        let mut waiting = at(50, false, 0);
        for millis in 60..1_000 {
            waiting = waiting.longer(at(millis, false, 0));
        }
        assert_eq!(waiting.until, start + Duration::from_millis(50), "nothing has come of it");
        waiting = waiting.longer(at(2_000, true, 0)).longer(at(2_010, true, 0));
        assert_eq!(waiting.until, start + Duration::from_secs(2), "it was begun");
        waiting = waiting.longer(at(2_020, true, 5));
        assert_eq!(waiting.until, start + Duration::from_millis(2_020), "more has come");
    }
}
