//! The sending half of a direction: LAN bytes in, frames out.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use isthmus_reduction::encoder::{EncodeError, Encoded, Encoder, Stats, Step};
use isthmus_reduction::frame::{Feedback, Lane};
use isthmus_reduction::shared::Shared;
use isthmus_reduction::structure::{STRUCTURE_BYTES_MAX, StructurePacker};
use isthmus_smb_session::{Crossing, Intake, Recognised, recognise};
use isthmus_types::{Reason, RecordingId};

use super::{NOTE, Stage, content_recording};
use crate::session::End;

/// Content that may wait in the encoder before frames are made of it.
const CONTENT_BYTES_FULL: usize = 1 << 20;

/// What is to be done next.
pub(crate) enum Next {
    /// A frame is to be sent.
    Frame(Encoded),
    /// A message beside the frames is to be sent, in order with them.
    Note(Bytes),
    /// More bytes are needed.
    Idle,
    /// Another channel is sending this content right now.
    Claimed,
}

/// The sending half of a direction.
pub(crate) struct Outgoing {
    shared: Shared,
    recording: RecordingId,
    level: i32,
    plain: Encoder,
    /// Until the first bytes have decided.
    stage: Option<Stage>,
    smb: Option<Box<Smb>>,
    /// Lanes of the frames that the peer has not restored yet.
    order: VecDeque<Lane>,
    restored: u64,
    /// LAN bytes sent, and delivered by the peer.
    sent: u64,
    delivered: u64,
}

/// The SMB lanes.
struct Smb {
    stage: Stage,
    /// Changes of the connection that are told.
    changes: u64,
    intake: Intake,
    input: BytesMut,
    packer: StructurePacker,
    structure: Vec<u8>,
    /// LAN bytes that the structure stands for.
    structure_lan: u64,
    content: Encoder,
    /// Frames of the content lane that the peer has restored.
    content_restored: u64,
    ready: VecDeque<Next>,
}

impl Outgoing {
    pub fn new(shared: Shared, recording: RecordingId, level: i32, stage: Option<Stage>) -> Outgoing {
        let plain = Encoder::new(shared.clone(), recording, level);
        Outgoing {
            shared,
            recording,
            level,
            plain,
            stage,
            smb: None,
            order: VecDeque::new(),
            restored: 0,
            sent: 0,
            delivered: 0,
        }
    }

    /// Where the caller puts incoming bytes.
    pub fn input(&mut self) -> &mut BytesMut {
        match &mut self.smb {
            Some(smb) => &mut smb.input,
            None => self.plain.input(),
        }
    }

    /// Whether bytes wait for more, which tell what the connection carries: a client may send the transport's header by itself.
    pub fn is_undecided(&mut self) -> bool {
        self.stage.is_some() && !self.plain.input().is_empty()
    }

    /// Nothing more has come to tell it: it is taken for something else than SMB.
    pub fn stop_recognising(&mut self) {
        self.stage = None;
    }

    /// LAN bytes and new bytes that the peer has not delivered, or not restored, yet.
    pub fn in_flight(&self) -> (u64, u64) {
        match &self.smb {
            Some(smb) => (self.sent - self.delivered, smb.content.in_flight().1),
            None => self.plain.in_flight(),
        }
    }

    pub fn awaits_restoring(&self) -> bool {
        !self.order.is_empty()
    }

    pub fn set_level(&mut self, level: i32) {
        self.level = level;
        self.encoder().set_level(level);
    }

    /// The next frame with new bytes is to show some, like [`Encoder::sample`].
    pub fn sample(&mut self) {
        self.encoder().sample();
    }

    /// Works on what has come in, like [`Encoder::step`].
    pub fn step(&mut self, flush: bool, patient: bool) -> Result<Next, End> {
        self.decide();
        if self.is_undecided() {
            return Ok(Next::Idle);
        }
        let next = match &mut self.smb {
            Some(smb) => smb.step(flush, patient)?,
            None => match self.plain.step(flush, patient).map_err(End::encode)? {
                Step::Frame(frame) => Next::Frame(frame),
                Step::Idle => Next::Idle,
                Step::Claimed => Next::Claimed,
            },
        };
        Ok(self.sending(next))
    }

    /// Like [`Encoder::settle`].
    pub fn settle(&mut self) -> Result<Option<Encoded>, EncodeError> {
        let frame = self.encoder().settle()?;
        Ok(frame.map(|frame| self.sent_frame(frame)))
    }

    /// The source has ended, and everything that was whole is sent: what is left. To be called until it is idle.
    pub fn finish(&mut self) -> Result<Next, End> {
        if let Some(smb) = &mut self.smb {
            if let Some(crossing) = smb.intake.finish(&mut smb.input) {
                smb.take(crossing)?;
            }
            match smb.step(true, false)? {
                Next::Idle => {}
                next => return Ok(self.sending(next)),
            }
        }
        let last = self.encoder().finish().map_err(End::encode)?;
        Ok(last.map_or(Next::Idle, |frame| Next::Frame(self.sent_frame(frame))))
    }

    pub fn close(&mut self) {
        self.plain.close();
        if let Some(smb) = &mut self.smb {
            smb.content.close();
        }
    }

    pub fn abandon(&mut self) {
        self.plain.abandon();
        if let Some(smb) = &mut self.smb {
            smb.content.abandon();
        }
    }

    /// The peer has restored `frames` frames and delivered `delivered` LAN bytes of this direction, in all.
    pub fn progress(&mut self, frames: u64, delivered: u64) {
        while self.restored < frames {
            let Some(lane) = self.order.pop_front() else { break };
            self.restored += 1;
            if let (Lane::Content, Some(smb)) = (lane, &mut self.smb) {
                smb.content_restored += 1;
            }
        }
        self.delivered = self.delivered.max(delivered.min(self.sent));
        match &mut self.smb {
            Some(smb) => smb.content.progress(smb.content_restored, 0),
            None => self.plain.progress(frames, delivered),
        }
    }

    /// Answers the peer's decoder.
    pub fn feedback(&mut self, message: &Feedback) -> Result<Vec<Bytes>, EncodeError> {
        self.encoder().feedback(message)
    }

    /// Gives back the memory of an idle direction.
    pub fn release_memory(&mut self) -> Option<Encoded> {
        if let Some(smb) = &mut self.smb {
            smb.packer.release_memory();
            if smb.input.is_empty() {
                smb.input = BytesMut::new();
            }
        }
        let frame = self.encoder().release_memory()?;
        Some(self.sent_frame(frame))
    }

    fn encoder(&mut self) -> &mut Encoder {
        match &mut self.smb {
            Some(smb) => &mut smb.content,
            None => &mut self.plain,
        }
    }

    /// Looks at the first bytes, of which there may be too few so far.
    fn decide(&mut self) {
        if self.plain.input().is_empty() {
            return;
        }
        let recognised = recognise(self.plain.input());
        if recognised == Recognised::NeedMore {
            return;
        }
        let Some(stage) = self.stage.take().filter(|_| recognised == Recognised::Smb) else { return };
        let input = std::mem::take(self.plain.input());
        let content = Encoder::of_content(self.shared.clone(), content_recording(self.recording), self.level);
        self.smb = Some(Box::new(Smb {
            intake: Intake::new(stage.connection.clone(), stage.keys.clone()),
            stage,
            changes: 0,
            input,
            packer: StructurePacker::default(),
            structure: Vec::new(),
            structure_lan: 0,
            content,
            content_restored: 0,
            ready: VecDeque::new(),
        }));
    }

    fn sending(&mut self, next: Next) -> Next {
        match next {
            Next::Frame(frame) => Next::Frame(self.sent_frame(frame)),
            next => next,
        }
    }

    fn sent_frame(&mut self, frame: Encoded) -> Encoded {
        self.order.push_back(Lane::of(&frame.bytes));
        self.sent += frame.stats.lan;
        frame
    }
}

impl Smb {
    fn step(&mut self, flush: bool, patient: bool) -> Result<Next, End> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(next);
            }
            self.stage.set_time();
            while self.content.input().len() < CONTENT_BYTES_FULL && self.ready.is_empty() {
                let Some(crossing) = self.intake.take(&mut self.input).map_err(refused)? else { break };
                self.take(crossing)?;
            }
            self.stage.ring();
            self.pack_structure()?;
            if !self.ready.is_empty() {
                continue;
            }
            return match self.content.step(flush, patient).map_err(End::encode)? {
                Step::Frame(frame) => Ok(Next::Frame(frame)),
                Step::Idle => Ok(Next::Idle),
                Step::Claimed => Ok(Next::Claimed),
            };
        }
    }

    fn take(&mut self, crossing: Crossing) -> Result<(), End> {
        if let Some(note) = crossing.note {
            let mut bytes = Vec::with_capacity(1 + note.len());
            bytes.put_u8(NOTE);
            bytes.extend_from_slice(&note);
            self.ready.push_back(Next::Note(Bytes::from_owner(zeroize::Zeroizing::new(bytes))));
        }
        let changes = self.stage.connection.changes();
        if changes != self.changes {
            self.changes = changes;
            self.stage.changed.notify_one();
        }
        let mut content = 0;
        for piece in &crossing.content {
            content += piece.len();
            self.content.input().extend_from_slice(piece);
        }
        self.structure_lan += (crossing.lan - content) as u64;
        self.structure.extend_from_slice(&crossing.structure);
        Ok(())
    }

    fn pack_structure(&mut self) -> Result<(), End> {
        let structure = std::mem::take(&mut self.structure);
        for piece in structure.chunks(STRUCTURE_BYTES_MAX) {
            let bytes = self.packer.pack(piece).map_err(|error| End::encode(error.into()))?;
            let lan = std::mem::take(&mut self.structure_lan);
            let wire = bytes.len() as u64;
            let stats = Stats { lan, wire, compression_saved: lan.saturating_sub(wire), ..Stats::default() };
            self.ready.push_back(Next::Frame(Encoded { bytes, stats, sample: Vec::new() }));
        }
        Ok(())
    }
}

/// The SMB stage does not pass a message on.
fn refused(error: isthmus_smb_session::IntakeError) -> End {
    End::Local(Reason::MessageRefused, error.to_string())
}
