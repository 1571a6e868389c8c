//! LZNT1 (MS-XCA 2.5): chunks of up to 4 KiB, each compressed by itself.

use super::DecompressError;
use super::buffer::{Input, Output};

const CHUNK_LEN_MAX: usize = 4096;
const HEADER_COMPRESSED: u16 = 0x8000;
const HEADER_LENGTH: u16 = 0x0FFF;
/// A back reference splits its 16 bits between distance and length; the distance never has fewer than these.
const DISTANCE_BITS_MIN: u32 = 4;
const MATCH_LEN_MIN: usize = 3;

pub(super) fn decompress(data: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut input = Input::new(data);
    while !output.is_full() {
        let header = input.u16()?;
        if header == 0 {
            // The end mark, before the announced size; the caller tells.
            return Ok(());
        }
        let chunk = input.take(usize::from(header & HEADER_LENGTH) + 1)?;
        output.forget();
        if header & HEADER_COMPRESSED == 0 {
            output.extend(chunk)?;
        } else {
            decompress_chunk(Input::new(chunk), output)?;
        }
        if output.written() > CHUNK_LEN_MAX {
            return Err(DecompressError::Malformed);
        }
    }
    Ok(())
}

/// Groups of a flag byte and up to eight elements, the lowest flag first: 0 for a literal, 1 for a back reference.
fn decompress_chunk(mut chunk: Input<'_>, output: &mut Output<'_>) -> Result<(), DecompressError> {
    while let Ok(flags) = chunk.u8() {
        for bit in 0..8 {
            if chunk.rest().is_empty() {
                return Ok(());
            }
            if flags & (1 << bit) == 0 {
                output.push(chunk.u8()?)?;
            } else {
                let reference = chunk.u16()?;
                let (distance, len) = split(reference, output.written());
                if output.written() + len > CHUNK_LEN_MAX {
                    return Err(DecompressError::Malformed);
                }
                output.repeat(distance, len)?;
            }
        }
    }
    Ok(())
}

/// Distance and length of a back reference. The further into its chunk it stands, the more of its bits are distance:
/// as many as the largest one possible there needs.
fn split(reference: u16, position: usize) -> (usize, usize) {
    let furthest = u16::try_from(position.saturating_sub(1)).unwrap_or(u16::MAX);
    let distance_bits = (u16::BITS - furthest.leading_zeros()).clamp(DISTANCE_BITS_MIN, u16::BITS - 1);
    let distance = usize::from(reference >> (u16::BITS - distance_bits)) + 1;
    let len = usize::from(reference & (u16::MAX >> distance_bits)) + MATCH_LEN_MIN;
    (distance, len)
}
