//! Compressed messages (MS-SMB2 2.2.42, 3.1.4.4, 3.1.5.3) and what is inside them (MS-XCA).
//!
//! Decompression only: what this proxy sends on is not compressed again. Every length that a message announces is held
//! against the caller's limit before anything is allocated, and every write against what was announced.

mod buffer;
mod huffman;
mod lz77;
mod lznt1;

use std::fmt;

use buffer::{Input, Output};

const PROTOCOL_ID: [u8; 4] = [0xFC, b'S', b'M', b'B'];
/// Flags of a first payload header that more may follow.
const FLAG_CHAINED: u16 = 0x0001;
/// Payloads in one chain. Senders make a handful; each may cost the building of a code, however short it is.
const CHAIN_PAYLOADS_MAX: usize = 256;

/// Compression algorithm (MS-SMB2 2.2.3.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionAlgorithm {
    /// Not compressed; only as one payload of a chain.
    None,
    /// LZNT1 (MS-XCA 2.5).
    Lznt1,
    /// Plain LZ77 (MS-XCA 2.3, 2.4).
    Lz77,
    /// LZ77 with Huffman codes (MS-XCA 2.1, 2.2).
    Lz77Huffman,
    /// One byte repeated; only as one payload of a chain (MS-SMB2 2.2.42.2.2).
    PatternV1,
    /// LZ4's block format.
    Lz4,
}

impl CompressionAlgorithm {
    /// The algorithm of a CompressionAlgorithmId; `None` if unknown.
    pub fn from_u16(id: u16) -> Option<Self> {
        match id {
            0x0000 => Some(CompressionAlgorithm::None),
            0x0001 => Some(CompressionAlgorithm::Lznt1),
            0x0002 => Some(CompressionAlgorithm::Lz77),
            0x0003 => Some(CompressionAlgorithm::Lz77Huffman),
            0x0004 => Some(CompressionAlgorithm::PatternV1),
            0x0005 => Some(CompressionAlgorithm::Lz4),
            _ => None,
        }
    }

    /// CompressionAlgorithmId.
    pub fn as_u16(self) -> u16 {
        match self {
            CompressionAlgorithm::None => 0x0000,
            CompressionAlgorithm::Lznt1 => 0x0001,
            CompressionAlgorithm::Lz77 => 0x0002,
            CompressionAlgorithm::Lz77Huffman => 0x0003,
            CompressionAlgorithm::PatternV1 => 0x0004,
            CompressionAlgorithm::Lz4 => 0x0005,
        }
    }
}

impl fmt::Display for CompressionAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompressionAlgorithm::None => "none",
            CompressionAlgorithm::Lznt1 => "LZNT1",
            CompressionAlgorithm::Lz77 => "LZ77",
            CompressionAlgorithm::Lz77Huffman => "LZ77+Huffman",
            CompressionAlgorithm::PatternV1 => "Pattern_V1",
            CompressionAlgorithm::Lz4 => "LZ4",
        })
    }
}

/// Why a message was not decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// Another protocol identifier.
    #[error("not a compressed message")]
    NotCompressed,
    /// The data ends before what it announces.
    #[error("compressed data cut short")]
    Truncated,
    /// An algorithm that is unknown or not allowed where it stands.
    #[error("compression algorithm {0:#06x} is unknown, or not allowed here")]
    Unsupported(u16),
    /// The announced size is above the caller's limit.
    #[error("compressed message announces more than is allowed")]
    AboveLimit,
    /// The data does not come to the announced size.
    #[error("compressed data comes to another size than announced")]
    SizeMismatch,
    /// The data breaks its format's rules.
    #[error("malformed compressed data")]
    Malformed,
}

/// Whether a message begins with the compression transform header's protocol identifier.
pub fn is_compressed(message: &[u8]) -> bool {
    message.starts_with(&PROTOCOL_ID)
}

/// Decompresses a message, chained or not, its compression transform header first. The result, at most `limit` bytes
/// long, is one SMB2 message or a compound.
///
/// # Errors
/// [`DecompressError`]
pub fn decompress_message(message: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut input = Input::new(message);
    if input.array()? != PROTOCOL_ID {
        return Err(DecompressError::NotCompressed);
    }
    let announced = size(input.u32()?);
    // The first payload header of a chain, or the fields that an unchained header has in its place.
    let mut peek = Input::new(input.rest());
    let (algorithm, flags, offset) = (peek.u16()?, peek.u16()?, size(peek.u32()?));
    if flags & FLAG_CHAINED != 0 {
        within(announced, limit)?;
        return decompress_chain(input, announced);
    }
    let input = peek;
    // The announced size is that of the compressed part alone, which the first `offset` bytes precede as they are.
    let total = offset.saturating_add(announced);
    within(total, limit)?;
    let (plain, compressed) = input.rest().split_at_checked(offset).ok_or(DecompressError::Truncated)?;
    let mut bytes = Vec::with_capacity(total);
    bytes.extend_from_slice(plain);
    match CompressionAlgorithm::from_u16(algorithm) {
        Some(CompressionAlgorithm::None | CompressionAlgorithm::PatternV1) | None => {
            return Err(DecompressError::Unsupported(algorithm));
        }
        Some(algorithm) => decompress_onto(&mut bytes, algorithm, compressed, announced)?,
    }
    Ok(bytes)
}

/// Decompresses bare data, which must come to exactly `len` bytes, and appends it to `bytes`. Up to `len` bytes may be
/// allocated whatever the data holds, so the caller bounds it. On an error `bytes` has what was decompressed so far.
/// For [`CompressionAlgorithm::PatternV1`] the data is SMB2_COMPRESSION_PATTERN_PAYLOAD_V1.
///
/// # Errors
/// [`DecompressError`]
pub fn decompress_onto(
    bytes: &mut Vec<u8>,
    algorithm: CompressionAlgorithm,
    data: &[u8],
    len: usize,
) -> Result<(), DecompressError> {
    let mut output = Output::new(bytes, len);
    match algorithm {
        CompressionAlgorithm::None => output.extend(data)?,
        CompressionAlgorithm::Lznt1 => lznt1::decompress(data, &mut output)?,
        CompressionAlgorithm::Lz77 => lz77::decompress(data, &mut output)?,
        CompressionAlgorithm::Lz77Huffman => huffman::decompress(data, &mut output)?,
        CompressionAlgorithm::PatternV1 => {
            let (byte, repetitions) = pattern(data)?;
            output.fill(byte, repetitions)?;
        }
        CompressionAlgorithm::Lz4 => output.fill_by(|room| {
            lz4_flex::block::decompress_into(data, room).map_err(|_| DecompressError::Malformed)
        })?,
    }
    if output.is_full() { Ok(()) } else { Err(DecompressError::SizeMismatch) }
}

/// The payloads of a chain, one after another, each with its own header (MS-SMB2 2.2.42.2.1).
fn decompress_chain(mut input: Input<'_>, announced: usize) -> Result<Vec<u8>, DecompressError> {
    let mut bytes = Vec::with_capacity(announced);
    for payloads in 0.. {
        if input.rest().is_empty() {
            break;
        }
        if payloads == CHAIN_PAYLOADS_MAX {
            return Err(DecompressError::Malformed);
        }
        let id = input.u16()?;
        let _flags = input.u16()?;
        let length = size(input.u32()?);
        let mut payload = Input::new(input.take(length)?);
        let algorithm = CompressionAlgorithm::from_u16(id).ok_or(DecompressError::Unsupported(id))?;
        let len = match algorithm {
            CompressionAlgorithm::None => length,
            CompressionAlgorithm::PatternV1 => pattern(payload.rest())?.1,
            _ => size(payload.u32()?),
        };
        within(len, announced - bytes.len()).map_err(|_| DecompressError::SizeMismatch)?;
        decompress_onto(&mut bytes, algorithm, payload.rest(), len)?;
    }
    if bytes.len() == announced { Ok(bytes) } else { Err(DecompressError::SizeMismatch) }
}

/// The byte and its repetitions (MS-SMB2 2.2.42.2.2); reserved bytes are ignored, as a receiver must.
fn pattern(data: &[u8]) -> Result<(u8, usize), DecompressError> {
    let mut input = Input::new(data);
    let [byte, _, _, _] = input.array()?;
    Ok((byte, size(input.u32()?)))
}

fn within(len: usize, limit: usize) -> Result<(), DecompressError> {
    if len <= limit { Ok(()) } else { Err(DecompressError::AboveLimit) }
}

/// A length from the wire; one that the machine cannot address is above any limit.
fn size(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
