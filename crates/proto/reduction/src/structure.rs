//! Structure frames: the messages of a protocol without the content they carry. They are small, many and alike, so they go through a small
//! compression context and nothing else: no chunks, no store, nothing learned, nothing to miss.
//!
//! ```text
//! c0 or c8 (the context starts anew) | proof 4 B | packed bytes
//! ```

use bytes::Bytes;

use crate::compress::{BadCompression, Packer, SMALL_WINDOW_LOG, Unpacker};
use crate::frame::{InvalidFrame, STRUCTURE_FRAME, STRUCTURE_RESET};

/// Plain bytes that one structure frame may hold.
pub const STRUCTURE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the proof: BLAKE3 of the plain bytes, cut.
pub const STRUCTURE_PROOF_BYTES: usize = 4;

/// Packs the structure of one direction.
#[derive(Default)]
pub struct StructurePacker {
    context: Option<Packer>,
}

impl StructurePacker {
    /// One frame of at most [`STRUCTURE_BYTES_MAX`] bytes.
    pub fn pack(&mut self, plain: &[u8]) -> Result<Bytes, BadCompression> {
        let reset = self.context.is_none();
        let mut packer = match self.context.take() {
            Some(packer) => packer,
            None => Packer::small()?,
        };
        let packed = packer.pack(plain)?;
        self.context = Some(packer);
        let mut frame = Vec::with_capacity(1 + STRUCTURE_PROOF_BYTES + packed.len());
        frame.push(STRUCTURE_FRAME | if reset { STRUCTURE_RESET } else { 0 });
        frame.extend_from_slice(&proof(plain));
        frame.extend_from_slice(&packed);
        Ok(frame.into())
    }

    /// Gives the context's memory back; the next frame starts anew.
    pub fn release_memory(&mut self) {
        self.context = None;
    }
}

/// What a structure frame may have wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStructure {
    #[error("invalid structure frame: {0}")]
    Invalid(#[from] InvalidFrame),
    #[error("restored structure does not match its proof")]
    ProofFailed,
    #[error("zstd has no memory for a context")]
    NoMemory,
}

/// Unpacks the structure of one direction.
#[derive(Default)]
pub struct StructureUnpacker {
    context: Option<Unpacker>,
}

impl StructureUnpacker {
    /// The plain bytes of a frame.
    pub fn unpack(&mut self, frame: &[u8]) -> Result<Vec<u8>, BadStructure> {
        let (&first, rest) = frame.split_first().ok_or(InvalidFrame::Short)?;
        if first & !STRUCTURE_RESET != STRUCTURE_FRAME {
            return Err(InvalidFrame::UnknownFlags.into());
        }
        let (wanted, packed) =
            rest.split_first_chunk::<STRUCTURE_PROOF_BYTES>().ok_or(InvalidFrame::Short)?;
        if first & STRUCTURE_RESET != 0 {
            self.context = None;
        } else if self.context.is_none() {
            return Err(InvalidFrame::Contradiction.into());
        }
        let mut unpacker = match self.context.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new(SMALL_WINDOW_LOG).map_err(|_| BadStructure::NoMemory)?,
        };
        let plain = unpacker.unpack(packed, STRUCTURE_BYTES_MAX).map_err(|_| InvalidFrame::BadCompression)?;
        self.context = Some(unpacker);
        if proof(&plain) == *wanted { Ok(plain) } else { Err(BadStructure::ProofFailed) }
    }
}

fn proof(plain: &[u8]) -> [u8; STRUCTURE_PROOF_BYTES] {
    let mut proof = [0; STRUCTURE_PROOF_BYTES];
    proof.copy_from_slice(&blake3::hash(plain).as_bytes()[..STRUCTURE_PROOF_BYTES]);
    proof
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Lane;

    #[test]
    fn structure_comes_back_and_alike_messages_cost_little() {
        let (mut packer, mut unpacker) = (StructurePacker::default(), StructureUnpacker::default());
        let mut sizes = Vec::new();
        for i in 0..30u32 {
            if i == 15 {
                packer.release_memory();
            }
            let plain = format!("read file 17 at {:08} for 4096 bytes, please", i * 4096);
            let frame = packer.pack(plain.as_bytes()).unwrap();
            assert_eq!(Lane::of(&frame), Lane::Structure);
            sizes.push(frame.len());
            assert_eq!(unpacker.unpack(&frame).unwrap(), plain.as_bytes());
        }
        assert!(sizes[14] < 35 && sizes[15] > 40, "{sizes:?}");
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let frame = StructurePacker::default().pack(b"some structure, long enough to matter").unwrap();
        for at in 0..frame.len() {
            let mut damaged = frame.to_vec();
            damaged[at] ^= 0x10;
            let restored = StructureUnpacker::default().unpack(&damaged);
            assert_ne!(restored.as_deref().ok(), Some(&b"some structure, long enough to matteR"[..]));
            if at > 0 {
                assert!(restored.is_err() || restored.unwrap() == b"some structure, long enough to matter");
            }
        }
        let mut packer = StructurePacker::default();
        packer.pack(b"first").unwrap();
        let second = packer.pack(b"second").unwrap();
        assert!(StructureUnpacker::default().unpack(&second).is_err(), "its context is missing");
        assert!(StructureUnpacker::default().unpack(b"").is_err());
    }
}
