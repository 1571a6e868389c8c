//! Signing and encryption of what is sent, and their undoing.

use super::bodies::malformed;
use isthmus_lab::Result;
use isthmus_smb_crypto::{
    Direction, Opener, Sealer, SessionKeys, Signer, SigningAlgorithm, TRANSFORM_HEADER_LEN,
};
use isthmus_smb_wire::{Header, HeaderFlags, MessageKind, compound};
use std::ops::Range;

/// Protects requests.
pub(super) struct Outgoing {
    session_id: u64,
    signer: Signer,
    sealer: Option<Sealer>,
}

/// Undoes the protection of what the server sends, and refuses what is not protected as it must be.
pub(super) struct Incoming {
    signer: Signer,
    opener: Option<Opener>,
}

/// Both directions of a session.
pub(super) fn protection(
    session_id: u64,
    keys: &SessionKeys,
    signing: SigningAlgorithm,
    is_sealed: bool,
) -> Result<(Outgoing, Incoming)> {
    let failed = |error: isthmus_smb_crypto::KeyError| malformed(&error);
    let random = std::array::from_fn(|_| fastrand::u8(..));
    let sealer = keys.sealer(Direction::ClientToServer, random);
    let opener = keys.opener(Direction::ServerToClient);
    let (sealer, opener) =
        if is_sealed { (Some(sealer.map_err(failed)?), Some(opener.map_err(failed)?)) } else { (None, None) };
    let signer = || keys.signer(signing).map_err(failed);
    Ok((Outgoing { session_id, signer: signer()?, sealer }, Incoming { signer: signer()?, opener }))
}

impl Outgoing {
    /// Makes one message of a request or a compound.
    pub fn protect(&mut self, elements: &[Vec<u8>]) -> Result<Vec<u8>> {
        let mut message = compound::join(elements).map_err(|error| malformed(&error))?;
        if let Some(sealer) = &mut self.sealer {
            let mut buffer = vec![0; TRANSFORM_HEADER_LEN];
            buffer.append(&mut message);
            sealer.seal(self.session_id, &mut buffer).map_err(|error| malformed(&error))?;
            return Ok(buffer);
        }
        for range in ranges(&message)? {
            let element = message.get_mut(range).unwrap_or_default();
            let mut header = Header::parse(&mut *element).map_err(|error| malformed(&error))?;
            let flags = header.flags().with(HeaderFlags::SIGNED);
            header.set_flags(flags);
            self.signer.sign(element, false).map_err(|error| malformed(&error))?;
        }
        Ok(message)
    }
}

impl Incoming {
    /// The elements of what has come.
    pub fn open(&self, mut message: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let is_encrypted = MessageKind::of(&message) == MessageKind::Transform;
        if let (true, Some(opener)) = (is_encrypted, &self.opener) {
            message = opener.open(&mut message).map_err(|error| malformed(&error))?.to_vec();
        }
        let mut elements = Vec::new();
        for range in ranges(&message)? {
            let element = message.get(range).unwrap_or_default();
            let header = Header::parse(element).map_err(|error| malformed(&error))?;
            if !is_encrypted && header.is_signed() && !self.signer.verify(element, true) {
                return Err(malformed(&"a signature is wrong"));
            }
            elements.push(element.to_vec());
        }
        Ok(elements)
    }
}

fn ranges(message: &[u8]) -> Result<Vec<Range<usize>>> {
    compound::elements(message).collect::<std::result::Result<_, _>>().map_err(|error| malformed(&error))
}
