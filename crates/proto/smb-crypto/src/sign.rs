//! Signing (MS-SMB2 3.1.4.1, 3.1.5.1).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use aws_lc_rs::{cmac, constant_time, hmac};

use crate::{KeyError, MESSAGE_LEN_MAX, SIGNING_KEY_LEN, SigningAlgorithm};

/// Length of the SMB2 header, in bytes (MS-SMB2 2.2.1).
pub const SMB2_HEADER_LEN: usize = 64;
/// Length of a signature, in bytes.
pub const SIGNATURE_LEN: usize = 16;

/// Where the header's signature starts; it ends with the header.
const SIGNATURE_OFFSET: usize = SMB2_HEADER_LEN - SIGNATURE_LEN;
const COMMAND_OFFSET: usize = 12;
const MESSAGE_ID_OFFSET: usize = 24;
const COMMAND_CANCEL: [u8; 2] = 0x000C_u16.to_le_bytes();
const NONCE_FROM_SERVER: u8 = 1;
const NONCE_CANCEL: u8 = 2;

/// Why a message was not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// Shorter than the SMB2 header; or, in parts, the first part is not at least the whole header.
    #[error("message without a whole SMB2 header")]
    TooShort,
    /// Longer than [`MESSAGE_LEN_MAX`].
    #[error("message longer than the transport can carry")]
    TooLong,
    /// The cryptographic library failed (out of memory).
    #[error("the cryptographic library failed")]
    Failed,
}

/// A signing key with its algorithm, prepared once for many messages.
///
/// A message here is one element of a compound: from its SMB2 header to the next one, padding included. Its signature
/// field counts as zeros, whatever it holds. Setting SMB2_FLAGS_SIGNED before signing is the caller's business.
///
/// AES-GMAC takes its nonce from the message id and the sender's side, so with one key, two different messages must
/// never be signed under one message id from one side.
pub struct Signer(Key);

enum Key {
    Hmac(Box<hmac::Key>),
    Cmac(cmac::Key),
    Gmac(Box<LessSafeKey>),
}

impl Signer {
    /// Prepares a key.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the cryptographic library is out of memory.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; SIGNING_KEY_LEN]) -> Result<Self, KeyError> {
        Ok(Self(match algorithm {
            SigningAlgorithm::HmacSha256 => Key::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key))),
            SigningAlgorithm::AesCmac => {
                Key::Cmac(cmac::Key::new(cmac::AES_128, key).map_err(|_| KeyError::Refused)?)
            }
            SigningAlgorithm::AesGmac => {
                let key = UnboundKey::new(&aead::AES_128_GCM, key).map_err(|_| KeyError::Refused)?;
                Key::Gmac(Box::new(LessSafeKey::new(key)))
            }
        }))
    }

    /// The algorithm that the key was prepared for.
    pub fn algorithm(&self) -> SigningAlgorithm {
        match self.0 {
            Key::Hmac(_) => SigningAlgorithm::HmacSha256,
            Key::Cmac(_) => SigningAlgorithm::AesCmac,
            Key::Gmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// Signs a message and writes the signature into its header.
    ///
    /// # Errors
    /// [`SignError`]; the signature field is then undefined.
    pub fn sign(&self, message: &mut [u8], from_server: bool) -> Result<(), SignError> {
        signature_field(message)?.fill(0);
        let signature = self.compute(&[message], true, from_server)?;
        signature_field(message)?.copy_from_slice(&signature);
        Ok(())
    }

    /// Whether a message carries its right signature; compared in constant time.
    ///
    /// With AES-GMAC this copies the message, because the library takes it in one piece;
    /// [`verify_in_place`](Self::verify_in_place) does not.
    pub fn verify(&self, message: &[u8], from_server: bool) -> bool {
        self.verify_parts(&[message], from_server)
    }

    /// Like [`verify`](Self::verify), without a copy: the signature field is zero meanwhile, and restored.
    pub fn verify_in_place(&self, message: &mut [u8], from_server: bool) -> bool {
        let Ok(field) = signature_field(message) else { return false };
        let carried = *field;
        *field = [0; SIGNATURE_LEN];
        let computed = self.compute(&[message], true, from_server);
        if let Ok(field) = signature_field(message) {
            *field = carried;
        }
        computed.is_ok_and(|signature| constant_time::verify_slices_are_equal(&signature, &carried).is_ok())
    }

    /// The signature of a message that lies in several parts, the first of which has at least the whole header.
    /// HMAC-SHA256 and AES-CMAC run over the parts where they lie; AES-GMAC copies them together.
    ///
    /// # Errors
    /// [`SignError`]
    pub fn signature_of_parts(
        &self,
        parts: &[&[u8]],
        from_server: bool,
    ) -> Result<[u8; SIGNATURE_LEN], SignError> {
        self.compute(parts, false, from_server)
    }

    /// Whether a message that lies in several parts carries its right signature; compared in constant time.
    pub fn verify_parts(&self, parts: &[&[u8]], from_server: bool) -> bool {
        let carried = parts.first().and_then(|header| header.get(SIGNATURE_OFFSET..SMB2_HEADER_LEN));
        let Some(carried) = carried else { return false };
        self.signature_of_parts(parts, from_server)
            .is_ok_and(|signature| constant_time::verify_slices_are_equal(&signature, carried).is_ok())
    }

    /// The signature over `parts`. `zeroed` says that the signature field already holds zeros.
    fn compute(
        &self,
        parts: &[&[u8]],
        zeroed: bool,
        from_server: bool,
    ) -> Result<[u8; SIGNATURE_LEN], SignError> {
        let (first, rest) = parts.split_first().ok_or(SignError::TooShort)?;
        let (header, body) = first.split_first_chunk::<SMB2_HEADER_LEN>().ok_or(SignError::TooShort)?;
        let length = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        if length > MESSAGE_LEN_MAX {
            return Err(SignError::TooLong);
        }
        let mut signed_header = *header;
        if let Some(field) = signed_header.last_chunk_mut::<SIGNATURE_LEN>() {
            *field = [0; SIGNATURE_LEN];
        }
        match &self.0 {
            Key::Hmac(key) => {
                let mut hmac = hmac::Context::with_key(key);
                hmac.update(&signed_header);
                hmac.update(body);
                rest.iter().for_each(|part| hmac.update(part));
                truncated(hmac.sign().as_ref())
            }
            Key::Cmac(key) => {
                let mut cmac = cmac::Context::with_key(key);
                cmac.update(&signed_header).map_err(|_| SignError::Failed)?;
                cmac.update(body).map_err(|_| SignError::Failed)?;
                rest.iter().try_for_each(|part| cmac.update(part)).map_err(|_| SignError::Failed)?;
                truncated(cmac.sign().map_err(|_| SignError::Failed)?.as_ref())
            }
            Key::Gmac(key) if zeroed && rest.is_empty() => gmac(key, header, first, from_server),
            Key::Gmac(key) => {
                let mut joined = Vec::with_capacity(length);
                joined.extend_from_slice(&signed_header);
                joined.extend_from_slice(body);
                rest.iter().for_each(|part| joined.extend_from_slice(part));
                gmac(key, header, &joined, from_server)
            }
        }
    }
}

fn signature_field(message: &mut [u8]) -> Result<&mut [u8; SIGNATURE_LEN], SignError> {
    message
        .first_chunk_mut::<SMB2_HEADER_LEN>()
        .and_then(|header| header.last_chunk_mut())
        .ok_or(SignError::TooShort)
}

fn truncated(tag: &[u8]) -> Result<[u8; SIGNATURE_LEN], SignError> {
    tag.first_chunk().copied().ok_or(SignError::Failed)
}

/// GCM with nothing to encrypt: the tag over `message`, whose signature field is zero.
fn gmac(
    key: &LessSafeKey,
    header: &[u8; SMB2_HEADER_LEN],
    message: &[u8],
    from_server: bool,
) -> Result<[u8; SIGNATURE_LEN], SignError> {
    let nonce = aead::Nonce::assume_unique_for_key(gmac_nonce(header, from_server));
    let tag =
        key.seal_in_place_separate_tag(nonce, Aad::from(message), &mut []).map_err(|_| SignError::Failed)?;
    truncated(tag.as_ref())
}

/// The nonce of AES-GMAC (MS-SMB2 3.1.4.1): the message id, then a bit for the server and one for SMB2 CANCEL, which
/// carries the message id of the request that it cancels.
fn gmac_nonce(header: &[u8; SMB2_HEADER_LEN], from_server: bool) -> [u8; 12] {
    let (before, message_id) = header.split_at(MESSAGE_ID_OFFSET);
    let mut flags = if from_server { NONCE_FROM_SERVER } else { 0 };
    if before.get(COMMAND_OFFSET..COMMAND_OFFSET + 2) == Some(&COMMAND_CANCEL[..]) {
        flags |= NONCE_CANCEL;
    }
    let mut nonce = [0; 12];
    let bytes = message_id.iter().copied().take(8).chain([flags]);
    nonce.iter_mut().zip(bytes).for_each(|(byte, new)| *byte = new);
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gmac_nonce_is_message_id_side_and_cancel() {
        let mut header = [0xFF; SMB2_HEADER_LEN];
        header[24..32].copy_from_slice(b"\x01\x02\x03\x04\x05\x06\x07\x08");
        for (command, cancel) in [(0x0000_u16, 0), (0x000C, 2), (0x000D, 0), (0x0C00, 0)] {
            header[12..14].copy_from_slice(&command.to_le_bytes());
            for (from_server, server) in [(false, 0), (true, 1)] {
                let expected = [1, 2, 3, 4, 5, 6, 7, 8, cancel | server, 0, 0, 0];
                assert_eq!(gmac_nonce(&header, from_server), expected);
            }
        }
    }
}
