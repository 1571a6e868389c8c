//! Encrypted messages (MS-SMB2 2.2.41, 3.1.4.3, 3.2.5.1.1.1, 3.3.5.2.1.1).

use crate::aead::{AAD_LEN, AeadKey, TAG_LEN};
use crate::nonce::NonceExhausted;
use crate::{Cipher, KeyError, MESSAGE_LEN_MAX, NonceSource};

/// Length of the transform header, in bytes.
pub const TRANSFORM_HEADER_LEN: usize = 52;

const PROTOCOL_ID: [u8; 4] = [0xFD, b'S', b'M', b'B'];
/// Flags on 3.1.1 (Encrypted), and EncryptionAlgorithm on 3.0 and 3.0.2 (AES-128-CCM): the same value at the same place.
const FLAGS_ENCRYPTED: u16 = 0x0001;

/// Why a message was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than the transform header, or another protocol identifier.
    #[error("not an encrypted message")]
    NotTransform,
    /// Flags say something else than that the message is encrypted.
    #[error("transform header with unknown flags")]
    UnknownFlags,
    /// OriginalMessageSize is not the length of what follows the header.
    #[error("encrypted message of another length than announced")]
    LengthMismatch,
    /// Altered, or made with another key.
    #[error("encrypted message is not authentic")]
    NotAuthentic,
}

/// Why a message was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The buffer has no room for the header, or nothing behind it.
    #[error("no message to encrypt")]
    TooShort,
    /// Longer than [`MESSAGE_LEN_MAX`], header included.
    #[error("message longer than the transport can carry")]
    TooLong,
    /// See [`NonceExhausted`].
    #[error(transparent)]
    NonceExhausted(#[from] NonceExhausted),
    /// The cryptographic library failed.
    #[error("the cryptographic library failed")]
    Failed,
}

/// Whether a message begins with the transform header's protocol identifier.
pub fn is_transform(message: &[u8]) -> bool {
    message.starts_with(&PROTOCOL_ID)
}

/// The transform header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformHeader {
    /// Authentication tag.
    pub signature: [u8; TAG_LEN],
    /// Nonce field; how many of its bytes count is the cipher's to say.
    pub nonce: [u8; 16],
    /// Length of the plaintext in bytes.
    pub original_message_size: u32,
    /// Flags (3.1.1) or EncryptionAlgorithm (3.0, 3.0.2).
    pub flags: u16,
    /// The session whose key the message is encrypted with.
    pub session_id: u64,
}

impl TransformHeader {
    /// Reads the header in front of `message`; nothing in it is to be trusted before the message was opened.
    ///
    /// # Errors
    /// [`OpenError::NotTransform`]
    pub fn parse(message: &[u8]) -> Result<Self, OpenError> {
        let header: &[u8; TRANSFORM_HEADER_LEN] = message.first_chunk().ok_or(OpenError::NotTransform)?;
        if !is_transform(header) {
            return Err(OpenError::NotTransform);
        }
        Ok(Self {
            signature: field(header, 4)?,
            nonce: field(header, 20)?,
            original_message_size: u32::from_le_bytes(field(header, 36)?),
            flags: u16::from_le_bytes(field(header, 42)?),
            session_id: u64::from_le_bytes(field(header, 44)?),
        })
    }

    /// What the tag covers beside the message: the header from its nonce on.
    fn aad(&self) -> [u8; AAD_LEN] {
        let mut aad = [0; AAD_LEN];
        let bytes = self
            .nonce
            .into_iter()
            .chain(self.original_message_size.to_le_bytes())
            .chain([0, 0])
            .chain(self.flags.to_le_bytes())
            .chain(self.session_id.to_le_bytes());
        aad.iter_mut().zip(bytes).for_each(|(byte, field)| *byte = field);
        aad
    }
}

/// Decrypts the messages that go in one direction of a session.
pub struct Opener {
    key: AeadKey,
}

impl Opener {
    /// Prepares a key of [`Cipher::key_len`] bytes.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the key has another length or the cryptographic library is out of memory.
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, KeyError> {
        Ok(Self { key: AeadKey::new(cipher, key)? })
    }

    /// Decrypts a whole message, transform header first, where it lies, and gives its plaintext: one SMB2 message, a
    /// compound, or a compressed message. Which session it belongs to is [`TransformHeader::session_id`]; the
    /// plaintext's own session ids are the caller's to compare with it.
    ///
    /// # Errors
    /// [`OpenError`]. After [`OpenError::NotAuthentic`] the message is lost: what followed the header is undefined, though
    /// never plaintext. Use [`open_copy`](Self::open_copy) while it may have to be forwarded as it came.
    pub fn open<'m>(&self, message: &'m mut [u8]) -> Result<&'m mut [u8], OpenError> {
        let header = TransformHeader::parse(message)?;
        let (raw_header, data) =
            message.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>().ok_or(OpenError::NotTransform)?;
        if header.flags != FLAGS_ENCRYPTED {
            return Err(OpenError::UnknownFlags);
        }
        if usize::try_from(header.original_message_size) != Ok(data.len()) {
            return Err(OpenError::LengthMismatch);
        }
        // As it came, reserved bytes included: the sender may have set them.
        let aad = raw_header.last_chunk().ok_or(OpenError::NotTransform)?;
        self.key.open(&header.nonce, aad, data, &header.signature).map_err(|_| OpenError::NotAuthentic)?;
        Ok(data)
    }

    /// Like [`open`](Self::open), into `plaintext` (whose old content is dropped), leaving the message as it is.
    ///
    /// # Errors
    /// [`OpenError`]; `plaintext` is then empty.
    pub fn open_copy(&self, message: &[u8], plaintext: &mut Vec<u8>) -> Result<(), OpenError> {
        plaintext.clear();
        let header = TransformHeader::parse(message)?;
        if header.flags != FLAGS_ENCRYPTED {
            return Err(OpenError::UnknownFlags);
        }
        let (raw_header, data) =
            message.split_first_chunk::<TRANSFORM_HEADER_LEN>().ok_or(OpenError::NotTransform)?;
        if usize::try_from(header.original_message_size) != Ok(data.len()) {
            return Err(OpenError::LengthMismatch);
        }
        let aad = raw_header.last_chunk().ok_or(OpenError::NotTransform)?;
        plaintext.extend_from_slice(data);
        self.key.open(&header.nonce, aad, plaintext, &header.signature).map_err(|_| {
            plaintext.clear();
            OpenError::NotAuthentic
        })
    }
}

/// Encrypts the messages that this process sends in one direction of a session on one leg.
pub struct Sealer {
    key: AeadKey,
    nonces: NonceSource,
}

impl Sealer {
    /// Prepares a key of [`Cipher::key_len`] bytes; `nonces` must be made for the same cipher and for this leg.
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the key has another length or the cryptographic library is out of memory.
    pub fn new(cipher: Cipher, key: &[u8], nonces: NonceSource) -> Result<Self, KeyError> {
        Ok(Self { key: AeadKey::new(cipher, key)?, nonces })
    }

    /// How many messages can still be sealed.
    pub fn remaining(&self) -> u64 {
        self.nonces.remaining()
    }

    /// Encrypts a message where it lies. `buffer` is [`TRANSFORM_HEADER_LEN`] bytes of room for the header, then the
    /// plaintext, which is one SMB2 message or a whole compound with signatures of zero.
    ///
    /// # Errors
    /// [`SealError`]; the buffer is then as it was, unless the library failed.
    pub fn seal(&mut self, session_id: u64, buffer: &mut [u8]) -> Result<(), SealError> {
        if buffer.len() > MESSAGE_LEN_MAX {
            return Err(SealError::TooLong);
        }
        let (header, data) =
            buffer.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>().ok_or(SealError::TooShort)?;
        if data.is_empty() {
            return Err(SealError::TooShort);
        }
        let fields = TransformHeader {
            signature: [0; TAG_LEN],
            nonce: self.nonces.next()?,
            original_message_size: u32::try_from(data.len()).map_err(|_| SealError::TooLong)?,
            flags: FLAGS_ENCRYPTED,
            session_id,
        };
        let aad = fields.aad();
        let tag = self.key.seal(&fields.nonce, &aad, data).map_err(|_| SealError::Failed)?;
        let bytes = PROTOCOL_ID.into_iter().chain(tag).chain(aad);
        header.iter_mut().zip(bytes).for_each(|(byte, field)| *byte = field);
        Ok(())
    }
}

fn field<const N: usize>(header: &[u8; TRANSFORM_HEADER_LEN], at: usize) -> Result<[u8; N], OpenError> {
    header.get(at..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(OpenError::NotTransform)
}
