//! Plain LZ77 (MS-XCA 2.3, 2.4).

use super::DecompressError;
use super::buffer::{Input, Output};

const MATCH_LEN_MIN: usize = 3;
/// Each part of a length says by its highest value that the next, wider one goes on.
const SHORT_LEN_MAX: usize = 7;
const NIBBLE_MAX: usize = 15;
const BYTE_MAX: usize = 255;

/// Words of 32 flags, the highest first, each before what they describe: 0 for a literal, 1 for a back reference.
pub(super) fn decompress(data: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut input = Input::new(data);
    let mut half = None;
    while !output.is_full() {
        if input.rest().is_empty() {
            // The end, before the announced size; the caller tells.
            return Ok(());
        }
        let flags = input.u32()?;
        for bit in (0..32).rev() {
            if output.is_full() {
                return Ok(());
            }
            if flags & (1 << bit) == 0 {
                output.push(input.u8()?)?;
                continue;
            }
            if input.rest().is_empty() {
                return Ok(());
            }
            let reference = usize::from(input.u16()?);
            let len = match reference % (SHORT_LEN_MAX + 1) {
                SHORT_LEN_MAX => long_len(&mut input, &mut half)?,
                short => short,
            };
            output.repeat(reference / (SHORT_LEN_MAX + 1) + 1, len.saturating_add(MATCH_LEN_MIN))?;
        }
    }
    Ok(())
}

/// A length of [`SHORT_LEN_MAX`] or more. Its next four bits are half a byte: the lower half of a new one, or the upper
/// half of the last such byte, kept in `half`.
fn long_len(input: &mut Input<'_>, half: &mut Option<u8>) -> Result<usize, DecompressError> {
    let nibble = match half.take() {
        Some(upper) => upper,
        None => {
            let byte = input.u8()?;
            *half = Some(byte >> 4);
            byte & 0x0F
        }
    };
    if usize::from(nibble) < NIBBLE_MAX {
        return Ok(usize::from(nibble) + SHORT_LEN_MAX);
    }
    match usize::from(input.u8()?) {
        BYTE_MAX => {
            // Wider fields hold the whole length, not what is left of it.
            let len = wide_len(input)?;
            if len < SHORT_LEN_MAX + NIBBLE_MAX { Err(DecompressError::Malformed) } else { Ok(len) }
        }
        byte => Ok(byte + NIBBLE_MAX + SHORT_LEN_MAX),
    }
}

/// A length of 16 bits or, after 16 zero bits, of 32; far below overflow on any machine this runs on.
pub(super) fn wide_len(input: &mut Input<'_>) -> Result<usize, DecompressError> {
    match input.u16()? {
        0 => usize::try_from(input.u32()? & (u32::MAX >> 1)).map_err(|_| DecompressError::Malformed),
        len => Ok(usize::from(len)),
    }
}
