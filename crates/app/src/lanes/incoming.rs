//! The receiving half of a direction: frames in, LAN bytes out.

use std::collections::VecDeque;

use isthmus_reduction::decoder::{DecodeError, Decoder, Delivery, Intake, Taken};
use isthmus_reduction::frame::{Feedback, Lane};
use isthmus_reduction::shared::Shared;
use isthmus_reduction::structure::{BadStructure, StructureUnpacker};
use isthmus_smb_session::{AssembleError, Assembler};
use isthmus_types::RecordingId;

use super::{Stage, content_recording};

/// The receiving half of a direction.
pub(crate) struct Incoming {
    shared: Shared,
    recording: RecordingId,
    plain: Decoder,
    stage: Option<Stage>,
    smb: Option<Box<Smb>>,
    /// Lanes of the frames that have come and are not counted as restored.
    order: VecDeque<Lane>,
    /// Frames of which, and of all before which, the content is restored.
    restored: u64,
    /// The same for each lane.
    plain_restored: u64,
    content_restored: u64,
}

struct Smb {
    unpacker: StructureUnpacker,
    content: Decoder,
    assembler: Assembler,
}

/// What ends a direction from the receiving side.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IncomingError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Structure(#[from] BadStructure),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    #[error("the peer mixed lanes")]
    MixedLanes,
}

impl Incoming {
    pub fn new(shared: Shared, recording: RecordingId, stage: Option<Stage>) -> Incoming {
        let plain = Decoder::new(shared.clone(), recording);
        Incoming {
            shared,
            recording,
            plain,
            stage,
            smb: None,
            order: VecDeque::new(),
            restored: 0,
            plain_restored: 0,
            content_restored: 0,
        }
    }

    /// Takes in one frame.
    pub fn take(&mut self, frame: &[u8]) -> Result<Intake, IncomingError> {
        let lane = Lane::of(frame);
        let (first, smb) = (self.restored == 0 && self.order.is_empty(), self.smb.is_some());
        if lane != Lane::Plain && !smb {
            self.begin_smb(first)?;
        } else if lane == Lane::Plain && smb {
            return Err(IncomingError::MixedLanes);
        }
        self.order.push_back(lane);
        match (lane, &mut self.smb) {
            (Lane::Structure, Some(smb)) => {
                let plain = smb.unpacker.unpack(frame)?;
                smb.assembler.structure(&plain)?;
                let wire = frame.len() as u64;
                let stats = Taken { wire, ..Taken::default() };
                Ok(Intake::Done { feedback: Vec::new(), stats })
            }
            (Lane::Content, Some(smb)) => Ok(without_lan(smb.content.take(frame)?)),
            _ => Ok(self.plain.take(frame)?),
        }
    }

    /// Whether messages are put together here. Their LAN bytes are then counted as they are delivered, not as they come.
    pub fn is_smb(&self) -> bool {
        self.smb.is_some()
    }

    /// Like [`Decoder::resume`].
    pub fn resume(&mut self, give_up: bool) -> Result<Intake, IncomingError> {
        let smb = self.is_smb();
        let intake = self.decoder().resume(give_up)?;
        Ok(if smb { without_lan(intake) } else { intake })
    }

    /// The next LAN bytes.
    pub fn deliver(&mut self) -> Result<Delivery, IncomingError> {
        let Some(smb) = &mut self.smb else { return Ok(self.plain.deliver()?) };
        if let Some(stage) = &self.stage {
            stage.set_time();
        }
        loop {
            let pieces = smb.assembler.next()?;
            if let Some(stage) = &self.stage {
                stage.ring();
            }
            if let Some(pieces) = pieces {
                return Ok(Delivery::Bytes(pieces));
            }
            match smb.content.deliver()? {
                Delivery::Bytes(pieces) => pieces.into_iter().for_each(|piece| smb.assembler.content(piece)),
                other => return Ok(other),
            }
        }
    }

    /// How much more of the direction is done than the bytes given for the LAN show, since the last call.
    pub fn take_ahead(&mut self) -> i64 {
        self.smb.as_mut().map_or(0, |smb| smb.assembler.take_ahead())
    }

    /// A note of the peer's stage.
    pub fn note(&mut self, note: &[u8]) -> Result<(), IncomingError> {
        let first = self.restored == 0 && self.order.is_empty();
        if self.smb.is_none() {
            self.begin_smb(first)?;
        }
        match &mut self.smb {
            Some(smb) => Ok(smb.assembler.note(note)?),
            None => Err(IncomingError::MixedLanes),
        }
    }

    pub fn repair(&mut self, message: &Feedback) -> Result<Vec<Feedback>, IncomingError> {
        Ok(self.decoder().repair(message)?)
    }

    /// Frames that the sender may forget.
    pub fn frames_restored(&mut self) -> u64 {
        while let Some(lane) = self.order.front() {
            match (lane, &self.smb) {
                (Lane::Plain, _) if self.plain_restored < self.plain.frames_restored() => {
                    self.plain_restored += 1
                }
                (Lane::Content, Some(smb)) if self.content_restored < smb.content.frames_restored() => {
                    self.content_restored += 1;
                }
                (Lane::Structure, _) => {}
                _ => break,
            }
            self.order.pop_front();
            self.restored += 1;
        }
        self.restored
    }

    pub fn is_drained(&self) -> bool {
        match &self.smb {
            Some(smb) => smb.content.is_drained() && smb.assembler.is_empty(),
            None => self.plain.is_drained(),
        }
    }

    /// Whether nothing more can come of what is here, but something is left: the peer has ended in the middle of a message.
    pub fn is_cut(&self) -> bool {
        self.smb.as_ref().is_some_and(|smb| smb.content.is_drained() && !smb.assembler.is_empty())
    }

    pub fn finish(&mut self) {
        self.plain.finish();
        if let Some(smb) = &mut self.smb {
            smb.content.finish();
        }
    }

    pub fn abandon(&mut self) {
        self.plain.abandon();
        if let Some(smb) = &mut self.smb {
            smb.content.abandon();
        }
    }

    fn decoder(&mut self) -> &mut Decoder {
        match &mut self.smb {
            Some(smb) => &mut smb.content,
            None => &mut self.plain,
        }
    }

    fn begin_smb(&mut self, first: bool) -> Result<(), IncomingError> {
        let stage = self.stage.as_ref().filter(|_| first).ok_or(IncomingError::MixedLanes)?;
        self.smb = Some(Box::new(Smb {
            unpacker: StructureUnpacker::default(),
            content: Decoder::new(self.shared.clone(), content_recording(self.recording)),
            assembler: Assembler::new(stage.connection.clone()),
        }));
        Ok(())
    }
}

fn without_lan(intake: Intake) -> Intake {
    match intake {
        Intake::Done { feedback, stats } => Intake::Done { feedback, stats: Taken { lan: 0, ..stats } },
        wait => wait,
    }
}
