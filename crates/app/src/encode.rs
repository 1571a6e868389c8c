//! The half of a session that reads from the LAN and sends frames.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isthmus_net::Sender;
use isthmus_reduction::encoder::Encoded;
use isthmus_reduction::frame::Feedback;
use isthmus_telemetry::{ConnectionLedger, SavedBy, Tally};
use isthmus_tunnel::Message;
use isthmus_types::limits::WINDOW_LAN_BYTES;
use isthmus_types::{RecordingId, Side};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::core::PeerLedger;
use crate::decode::ring;
use crate::lan;
use crate::lanes::{Next, Outgoing, Stage};
use crate::level::{LevelChooser, Look};
use crate::pace::Pace;
use crate::session::End;

/// Read from a LAN socket at once, by a direction that is busy.
const READ_BYTES: usize = 512 << 10;
/// The same by one that has just begun or was idle. It grows as reads fill it.
const READ_BYTES_FIRST: usize = 16 << 10;
/// New bytes in flight: what the peer may have to hold in memory for one connection.
const WINDOW_NEW_BYTES: u64 = 16 << 20;
/// A burst of this size is bulk: the next bytes are waited for a moment, so that frames are large.
const BULK_BYTES: usize = 32 << 10;
/// That moment. Anything smaller than a burst goes out at once.
const BULK_WAIT: Duration = Duration::from_micros(500);
/// A direction that has been quiet for so long gives its memory back.
const IDLE: Duration = Duration::from_secs(5);
/// How often a working engine is told the time.
const TICK: Duration = Duration::from_millis(100);
/// How long first bytes that may become SMB are held back when no more come.
const RECOGNISE_WAIT: Duration = Duration::from_secs(1);
/// How long content that another connection is just sending is waited for, in all and at a time.
const CLAIM_WAIT: Duration = Duration::from_millis(50);
const CLAIM_STEP: Duration = Duration::from_millis(5);

/// What one frame's worth of a direction adds to.
pub(crate) struct DirectionTally<'a> {
    pub lan: &'a Tally,
    pub wan: &'a Tally,
}

/// The tallies of the direction that `side` encodes, or of the other.
pub(crate) fn tally(ledger: &ConnectionLedger, side: Side, encodes: bool) -> DirectionTally<'_> {
    if (side == Side::Client) == encodes {
        DirectionTally { lan: &ledger.lan_up, wan: &ledger.wan_up }
    } else {
        DirectionTally { lan: &ledger.lan_down, wan: &ledger.wan_down }
    }
}

/// Reads, encodes and sends one direction.
pub(crate) struct EncodeHalf {
    pub encoder: Outgoing,
    /// The encoder's own recording.
    pub recording: RecordingId,
    sender: Arc<Sender>,
    peer: Arc<PeerLedger>,
    ledger: Arc<ConnectionLedger>,
    side: Side,
    level: LevelChooser,
    /// LAN bytes that may be ahead of what the peer has delivered.
    pub window: u64,
    /// The source has ended.
    ended: bool,
    /// When what has come is sent even if more may follow.
    flush_at: Option<Instant>,
    was_bulk: bool,
    /// What a pause in bulk data leaves ready was sent; the next flush sends the rest.
    settled: bool,
    /// When the last frame was made.
    last_frame: Option<Instant>,
    read_bytes: usize,
    /// The SMB stage, if its engine works.
    pub stage: Option<Stage>,
    pace: Pace,
    /// Sizes of the frames that the peer has not restored yet, their sum, and how many it has.
    frames: VecDeque<u64>,
    under_way: u64,
    restored: u64,
    tick_at: Option<Instant>,
    /// Until when it has to be told what the connection carries.
    recognise_until: Option<Instant>,
}

impl EncodeHalf {
    pub fn new(
        encoder: Outgoing,
        recording: RecordingId,
        sender: Arc<Sender>,
        peer: Arc<PeerLedger>,
        ledger: Arc<ConnectionLedger>,
        side: Side,
        level: LevelChooser,
    ) -> EncodeHalf {
        EncodeHalf {
            encoder,
            recording,
            sender,
            peer,
            ledger,
            side,
            level,
            window: WINDOW_LAN_BYTES,
            ended: false,
            flush_at: None,
            was_bulk: false,
            settled: false,
            last_frame: None,
            read_bytes: READ_BYTES_FIRST,
            stage: None,
            pace: Pace::new(std::time::Instant::now()),
            frames: VecDeque::new(),
            under_way: 0,
            restored: 0,
            tick_at: None,
            recognise_until: None,
        }
    }

    /// Runs until the source has ended and the peer has restored everything.
    pub async fn run(&mut self, lan: &TcpStream, mut feedback: mpsc::Receiver<Feedback>) -> Result<(), End> {
        let mut progress = self.sender.peer_progress();
        let mut idle_at = Some(Instant::now() + IDLE);
        loop {
            let seen = *progress.borrow_and_update();
            self.encoder.progress(seen.restored, seen.delivered);
            let (in_flight, new_in_flight) = self.encoder.in_flight();
            if self.ended && !self.encoder.awaits_restoring() {
                self.encoder.close();
                return Ok(());
            }
            self.let_bulk_go_on(seen.restored);
            let may_read = !self.ended && in_flight < self.window && new_in_flight < WINDOW_NEW_BYTES;
            if !self.encoder.is_undecided() {
                self.recognise_until = None;
            } else if self.recognise_until.is_none() {
                self.recognise_until = Some(Instant::now() + RECOGNISE_WAIT);
            }
            let recognise_until = self.recognise_until;
            let (tick_at, engine) = (self.tick_at, self.stage.as_ref().map(|stage| stage.wan_ready.clone()));
            let wake_at = self.flush_at.or(idle_at).unwrap_or_else(|| Instant::now() + IDLE * 1000);
            tokio::select! {
                message = feedback.recv() => match message {
                    Some(message) => self.answer(&message).await?,
                    // The other half ends by itself only when the session has settled, and then the peer has everything.
                    None if self.ended => {
                        let seen = *progress.borrow();
                        self.encoder.progress(seen.restored, seen.delivered);
                        return Ok(());
                    }
                    None => return self.over().await,
                },
                changed = progress.changed() => {
                    if changed.is_err() {
                        return self.over().await;
                    }
                }
                ready = lan.readable(), if may_read => {
                    ready.map_err(End::Lan)?;
                    idle_at = Some(Instant::now() + IDLE);
                    self.read(lan).await?;
                    self.wind();
                }
                () = ring(engine.as_deref()), if !self.ended => {
                    self.wind();
                    self.send_pending(true).await?;
                }
                () = sleep_until(tick_at.unwrap_or(wake_at)), if tick_at.is_some() => self.tick(),
                () = sleep_until(recognise_until.unwrap_or(wake_at)), if recognise_until.is_some() => {
                    self.encoder.stop_recognising();
                    self.send_pending(true).await?;
                }
                () = sleep_until(wake_at), if self.flush_at.is_some() || idle_at.is_some() => {
                    if self.flush_at.take().is_some() {
                        self.pause().await?;
                    } else {
                        idle_at = None;
                        self.read_bytes = READ_BYTES_FIRST;
                        // The peer's part is over with the session; after its end no more frames may come.
                        if !self.ended && let Some(frame) = self.encoder.release_memory() {
                            self.send(frame).await?;
                        }
                    }
                }
            }
        }
    }

    /// Content that the engine has read ahead goes on, or waits.
    fn let_bulk_go_on(&mut self, restored: u64) {
        // Only the server side reads ahead.
        let Some(stage) = self.stage.as_ref().filter(|_| self.side == Side::Server) else { return };
        let (now, round_trip) = (std::time::Instant::now(), self.sender.info().round_trip());
        let done = usize::try_from(restored.saturating_sub(self.restored)).unwrap_or(usize::MAX);
        // As many as there are, whatever the peer says.
        let confirmed: u64 = self.frames.drain(..done.min(self.frames.len())).sum();
        self.under_way -= confirmed;
        self.restored = self.restored.max(restored);
        self.pace.confirm(now, confirmed, round_trip);
        stage.set_time();
        stage.connection.set_room(self.pace.room(self.under_way, round_trip));
        stage.ring();
    }

    /// The engine is to be told the time before long.
    fn wind(&mut self) {
        if self.stage.is_some() {
            self.tick_at.get_or_insert_with(|| Instant::now() + TICK);
        }
    }

    fn tick(&mut self) {
        self.tick_at = None;
        let Some(stage) = &self.stage else { return };
        stage.set_time();
        let awake = stage.connection.tick();
        stage.ring();
        stage.count(&self.ledger);
        if awake {
            self.wind();
        }
    }

    /// The session is over: cleanly, if the channel says that everything has settled.
    async fn over(&mut self) -> Result<(), End> {
        self.sender.settled().await.map_err(End::closed)?;
        self.encoder.close();
        Ok(())
    }

    /// Takes what the socket has, and sends what should go.
    async fn read(&mut self, lan: &TcpStream) -> Result<(), End> {
        let mut got = 0;
        let drained = loop {
            // Never more: what is read counts against the peer's window, which has little to spare.
            let room = self.read_bytes.min(READ_BYTES - got);
            match lan::read_at_most(lan, self.encoder.input(), room) {
                Ok(0) => {
                    self.ended = true;
                    break true;
                }
                Ok(n) => {
                    got += n;
                    if n == self.read_bytes {
                        self.read_bytes = (self.read_bytes * 4).min(READ_BYTES);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) => return Err(End::Lan(error)),
            }
            if got >= READ_BYTES {
                break false;
            }
        };
        if self.ended {
            return self.end().await;
        }
        let bulk = got >= BULK_BYTES || (self.was_bulk && self.flush_at.is_some());
        self.was_bulk = bulk;
        self.settled = false;
        if bulk || !drained {
            self.flush_at.get_or_insert_with(|| Instant::now() + BULK_WAIT);
            self.send_pending(false).await
        } else {
            self.flush_at = None;
            self.send_pending(true).await
        }
    }

    /// Bulk data has paused: what is ready goes, and when nothing more has come for as long again, the rest.
    async fn pause(&mut self) -> Result<(), End> {
        if self.was_bulk && !self.settled {
            self.settled = true;
            self.flush_at = Some(Instant::now() + BULK_WAIT);
            if let Some(frame) = self.encoder.settle().map_err(End::encode)? {
                self.send(frame).await?;
            }
            return Ok(());
        }
        self.send_pending(true).await
    }

    /// The source has ended: the rest, and the end itself.
    async fn end(&mut self) -> Result<(), End> {
        self.flush_at = None;
        self.send_pending(true).await?;
        loop {
            match self.encoder.finish()? {
                Next::Frame(frame) => self.send(frame).await?,
                Next::Note(note) => self.note(note).await?,
                Next::Idle | Next::Claimed => break,
            }
        }
        self.sender.send(Message::Fin).await.map_err(End::closed)
    }

    /// Encodes what has come; with `flush`, all of it.
    pub async fn send_pending(&mut self, flush: bool) -> Result<(), End> {
        let mut patience = Some(Instant::now() + CLAIM_WAIT);
        loop {
            let started = Instant::now();
            let step = self.encoder.step(flush, patience.is_some())?;
            match step {
                Next::Frame(frame) => {
                    self.peer.changed.notify_waiters();
                    let (streamed, worked) = (frame.stats.streamed, started.elapsed());
                    let passed = self.last_frame.map_or(worked, |last| started - last + worked);
                    self.last_frame = Some(Instant::now());
                    let look = self.level.observe(streamed, worked, passed, &frame.sample);
                    self.send(frame).await?;
                    match look {
                        Some(Look::Sample) => self.encoder.sample(),
                        Some(Look::Level(level)) => self.encoder.set_level(level),
                        None => {}
                    }
                }
                Next::Note(note) => self.note(note).await?,
                Next::Idle => return Ok(()),
                Next::Claimed => {
                    let _ = timeout(CLAIM_STEP, self.peer.changed.notified()).await;
                    if patience.is_some_and(|until| Instant::now() >= until) {
                        patience = None;
                    }
                }
            }
        }
    }

    async fn note(&mut self, note: Bytes) -> Result<(), End> {
        self.sender.send(Message::Feedback(note)).await.map_err(End::closed)
    }

    async fn send(&mut self, frame: Encoded) -> Result<(), End> {
        let stats = frame.stats;
        if self.stage.is_some() && self.side == Side::Server {
            self.frames.push_back(stats.wire);
            self.under_way += stats.wire;
        }
        self.sender.send(Message::Data(frame.bytes)).await.map_err(End::closed)?;
        let tally = tally(&self.ledger, self.side, true);
        tally.lan.add(stats.lan);
        tally.wan.add(stats.wire);
        self.ledger.frames_encoded.add(1);
        self.ledger.add_saved(SavedBy::Run, stats.run);
        self.ledger.add_saved(SavedBy::Chunk, stats.chunk);
        self.ledger.add_saved(SavedBy::Delta, stats.delta_saved);
        self.ledger.add_saved(SavedBy::Compression, stats.compression_saved);
        Ok(())
    }

    /// Answers the peer's decoder.
    async fn answer(&mut self, message: &Feedback) -> Result<(), End> {
        for repair in self.encoder.feedback(message).map_err(End::encode)? {
            self.ledger.repairs.add(1);
            self.ledger.repair_bytes.add(repair.len() as u64);
            self.sender.send(Message::Feedback(repair)).await.map_err(End::closed)?;
        }
        Ok(())
    }
}
