//! Compressed messages (MS-SMB2 2.2.42). What is compressed is for others to expand.

use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};
use crate::negotiate_context::CompressionAlgorithm;
use std::ops::Range;

/// The first four bytes.
pub const COMPRESSION_PROTOCOL_ID: [u8; 4] = [0xfc, b'S', b'M', b'B'];

/// Most payloads of one chained message.
pub const COMPRESSION_PAYLOADS_MAX: usize = 256;

const UNCHAINED_HEADER_LEN: usize = 16;
const CHAINED_HEADER_LEN: usize = 8;
const PAYLOAD_HEADER_LEN: usize = 8;
const CHAINED: u16 = 0x0001;

/// A compressed message.
#[derive(Clone, Debug)]
pub enum CompressedMessage<'a> {
    /// One payload, after bytes that are not compressed (MS-SMB2 2.2.42.1).
    Unchained(Unchained<'a>),
    /// Several payloads (MS-SMB2 2.2.42.2).
    Chained(Chained<'a>),
}

impl<'a> CompressedMessage<'a> {
    /// Looks at bytes as a compressed message.
    ///
    /// # Errors
    /// When they are not one, or not whole.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        fixed("compressed message", bytes, UNCHAINED_HEADER_LEN)?;
        let protocol = <[u8; 4]>::read(bytes, 0);
        if protocol != COMPRESSION_PROTOCOL_ID {
            return Err(WireError::ProtocolId(protocol));
        }
        let original_size = u32::read(bytes, 4);
        // In both forms the flags are at the same place.
        if u16::read(bytes, 10) == CHAINED {
            return Ok(Self::Chained(Chained { original_size, bytes }));
        }
        let uncompressed = part(
            "compressed message",
            bytes,
            UNCHAINED_HEADER_LEN,
            UNCHAINED_HEADER_LEN as u64,
            u32::read(bytes, 12).into(),
        )?;
        let split = UNCHAINED_HEADER_LEN + uncompressed.len();
        Ok(Self::Unchained(Unchained {
            original_size,
            algorithm: CompressionAlgorithm::read(bytes, 8),
            uncompressed: UNCHAINED_HEADER_LEN..split,
            compressed: split..bytes.len(),
            bytes,
        }))
    }
}

/// A message of one compressed payload (MS-SMB2 2.2.42.1).
#[derive(Clone)]
pub struct Unchained<'a> {
    /// Bytes that the compressed part has when expanded, as the sender says.
    pub original_size: u32,
    /// Algorithm.
    pub algorithm: CompressionAlgorithm,
    /// Where the part is that comes first and is not compressed.
    pub uncompressed: Range<usize>,
    /// Where the compressed part is.
    pub compressed: Range<usize>,
    bytes: &'a [u8],
}

impl<'a> Unchained<'a> {
    /// The part that comes first and is not compressed.
    pub fn uncompressed(&self) -> &'a [u8] {
        slice(self.bytes, self.uncompressed.clone())
    }

    /// The compressed part.
    pub fn compressed(&self) -> &'a [u8] {
        slice(self.bytes, self.compressed.clone())
    }
}

impl std::fmt::Debug for Unchained<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unchained")
            .field("original_size", &self.original_size)
            .field("algorithm", &self.algorithm)
            .field("uncompressed", &self.uncompressed)
            .field("compressed", &self.compressed)
            .finish_non_exhaustive()
    }
}

/// A message of several payloads (MS-SMB2 2.2.42.2).
#[derive(Clone)]
pub struct Chained<'a> {
    /// Bytes of the whole message when expanded, as the sender says.
    pub original_size: u32,
    bytes: &'a [u8],
}

impl<'a> Chained<'a> {
    /// The payloads, in order; ends after the first that is malformed.
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads { bytes: self.bytes, next: CHAINED_HEADER_LEN, left: COMPRESSION_PAYLOADS_MAX }
    }
}

impl std::fmt::Debug for Chained<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chained").field("original_size", &self.original_size).finish_non_exhaustive()
    }
}

/// One payload of a chained message (MS-SMB2 2.2.42.2.1).
#[derive(Clone)]
pub struct Payload<'a> {
    /// Algorithm.
    pub algorithm: CompressionAlgorithm,
    /// Flags.
    pub flags: u16,
    /// Bytes when expanded, as the sender says; [`None`] where the algorithm does not have the field.
    pub original_size: Option<u32>,
    /// Where the data is in the message.
    pub range: Range<usize>,
    /// The data.
    pub data: &'a [u8],
}

impl std::fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload")
            .field("algorithm", &self.algorithm)
            .field("flags", &self.flags)
            .field("original_size", &self.original_size)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// Iterator over the payloads of a chained message.
#[derive(Clone)]
pub struct Payloads<'a> {
    bytes: &'a [u8],
    next: usize,
    left: usize,
}

impl<'a> Payloads<'a> {
    fn read(&self) -> Result<Payload<'a>, WireError> {
        let what = "compressed payload";
        if self.left == 0 {
            return Err(WireError::TooMany { what, limit: COMPRESSION_PAYLOADS_MAX });
        }
        let start = self.next + PAYLOAD_HEADER_LEN;
        part(what, self.bytes, self.next, self.next as u64, PAYLOAD_HEADER_LEN as u64)?;
        let length = u32::read(self.bytes, self.next + 4);
        let end = start + part(what, self.bytes, start, start as u64, length.into())?.len();
        let algorithm = CompressionAlgorithm::read(self.bytes, self.next);
        let sized = !matches!(algorithm, CompressionAlgorithm::NONE | CompressionAlgorithm::PATTERN_V1);
        let range = if sized { start + 4..end } else { start..end };
        if range.start > range.end {
            return Err(WireError::Truncated { what, needed: 4, found: length as usize });
        }
        Ok(Payload {
            algorithm,
            flags: u16::read(self.bytes, self.next + 2),
            original_size: sized.then(|| u32::read(self.bytes, start)),
            data: slice(self.bytes, range.clone()),
            range,
        })
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<Payload<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.bytes.len() {
            return None;
        }
        let read = self.read();
        self.left = self.left.saturating_sub(1);
        self.next = read.as_ref().map_or(self.bytes.len(), |payload| payload.range.end);
        Some(read)
    }
}
