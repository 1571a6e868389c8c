//! Framing of messages on TCP (MS-SMB2 2.1, RFC 1002 4.3), and what kind of message a frame has.

use crate::error::WireError;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes before each message: a type, and a length of 24 bits, the highest byte first.
pub const FRAME_HEADER_LEN: usize = 4;

/// Longest message, which is all that the length field can say: a byte less than 16 MiB. Peers agree on 8 MiB of data
/// at most, so headers, contexts and what encryption adds have room.
pub const MESSAGE_LEN_MAX: usize = 0x00ff_ffff;

/// Type of a frame (RFC 1002 4.3.1). On TCP without NetBIOS only messages and keep-alives are usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// A message.
    Message,
    /// Request of a NetBIOS session.
    SessionRequest,
    /// The session is granted.
    PositiveResponse,
    /// The session is refused.
    NegativeResponse,
    /// The session is elsewhere.
    RetargetResponse,
    /// Nothing but a sign of life.
    KeepAlive,
    /// Another type.
    Other(u8),
}

impl FrameType {
    /// Type of a first byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            0x00 => Self::Message,
            0x81 => Self::SessionRequest,
            0x82 => Self::PositiveResponse,
            0x83 => Self::NegativeResponse,
            0x84 => Self::RetargetResponse,
            0x85 => Self::KeepAlive,
            other => Self::Other(other),
        }
    }

    /// First byte of the type.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Message => 0x00,
            Self::SessionRequest => 0x81,
            Self::PositiveResponse => 0x82,
            Self::NegativeResponse => 0x83,
            Self::RetargetResponse => 0x84,
            Self::KeepAlive => 0x85,
            Self::Other(byte) => byte,
        }
    }
}

/// One frame as it came, its header included, so that it can be sent on as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    bytes: BytesMut,
}

impl Frame {
    /// Type.
    pub fn frame_type(&self) -> FrameType {
        FrameType::from_byte(self.bytes.first().copied().unwrap_or_default())
    }

    /// The message: what follows the frame's header.
    pub fn message(&self) -> &[u8] {
        self.bytes.get(FRAME_HEADER_LEN..).unwrap_or(&[])
    }

    /// The message, to be patched.
    pub fn message_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(FRAME_HEADER_LEN..).unwrap_or(&mut [])
    }

    /// The message alone.
    pub fn into_message(mut self) -> BytesMut {
        self.bytes.advance(FRAME_HEADER_LEN.min(self.bytes.len()));
        self.bytes
    }

    /// Header and message.
    pub fn into_bytes(self) -> Bytes {
        self.bytes.freeze()
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes", self.frame_type(), self.message().len())
    }
}

/// Splits the first frame off a buffer without copying it; nothing until it is whole. `limit` is the longest message that
/// is taken, at most [`MESSAGE_LEN_MAX`]; less makes sense before a client is authenticated.
///
/// # Errors
/// When the message is longer than the limit. The buffer is left as it is.
pub fn split(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, WireError> {
    match frame_len(buffer, limit)? {
        Some(length) if buffer.len() >= length => Ok(Some(Frame { bytes: buffer.split_to(length) })),
        _ => Ok(None),
    }
}

/// Length of the first frame in bytes, its header included, as soon as the header is there.
///
/// # Errors
/// When the message is longer than the limit.
pub fn frame_len(bytes: &[u8], limit: usize) -> Result<Option<usize>, WireError> {
    let Some(&[_, high, middle, low]) = bytes.first_chunk::<FRAME_HEADER_LEN>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    if length > limit {
        return Err(WireError::TooLong { what: "message", length, limit });
    }
    Ok(Some(FRAME_HEADER_LEN + length))
}

/// Header of a frame with a message.
///
/// # Errors
/// When the message is too long for a frame.
pub fn frame_header(message_len: usize) -> Result<[u8; FRAME_HEADER_LEN], WireError> {
    let wrong = WireError::TooLong { what: "message", length: message_len, limit: MESSAGE_LEN_MAX };
    let length = u32::try_from(message_len).map_err(|_| wrong)?;
    if message_len > MESSAGE_LEN_MAX {
        return Err(wrong);
    }
    // The highest byte of the length is 0, which is the type of a message.
    Ok(length.to_be_bytes())
}

/// Appends a message with its frame's header.
///
/// # Errors
/// When the message is too long for a frame.
pub fn put(buffer: &mut BytesMut, message: &[u8]) -> Result<(), WireError> {
    let header = frame_header(message.len())?;
    buffer.reserve(header.len() + message.len());
    buffer.put_slice(&header);
    buffer.put_slice(message);
    Ok(())
}

/// What a message is by its protocol identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// SMB1, see [`crate::smb1`].
    Smb1,
    /// SMB2 or SMB3, see [`crate::header`].
    Smb2,
    /// Encrypted, see [`crate::transform`].
    Transform,
    /// Compressed, see [`crate::compression`].
    Compressed,
    /// Something else.
    Unknown,
}

impl MessageKind {
    /// Kind of a message.
    pub fn of(message: &[u8]) -> Self {
        match message.first_chunk() {
            Some([0xff, b'S', b'M', b'B']) => Self::Smb1,
            Some([0xfe, b'S', b'M', b'B']) => Self::Smb2,
            Some([0xfd, b'S', b'M', b'B']) => Self::Transform,
            Some([0xfc, b'S', b'M', b'B']) => Self::Compressed,
            _ => Self::Unknown,
        }
    }
}
