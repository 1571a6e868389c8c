//! Numbers at fixed places. Views check lengths once, when they are made; what follows is total, so nothing can panic.

use crate::error::WireError;
use std::ops::Range;

/// A little-endian value of a fixed length.
pub(crate) trait Field: Sized {
    fn read(bytes: &[u8], at: usize) -> Self;
    fn write(self, bytes: &mut [u8], at: usize);
}

macro_rules! integers {
    ($($ty:ty)*) => { $(
        impl Field for $ty {
            #[inline]
            fn read(bytes: &[u8], at: usize) -> Self {
                Self::from_le_bytes(array(bytes, at))
            }

            #[inline]
            fn write(self, bytes: &mut [u8], at: usize) {
                put(bytes, at, &self.to_le_bytes());
            }
        }
    )* };
}

integers!(u8 u16 u32 u64);

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Self {
        array(bytes, at)
    }

    #[inline]
    fn write(self, bytes: &mut [u8], at: usize) {
        put(bytes, at, &self);
    }
}

/// The `N` bytes at a place; zeros where there are none.
#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[inline]
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at.saturating_add(value.len())) {
        place.copy_from_slice(value);
    }
}

/// The bytes of a range, or none where the range is not within them.
#[inline]
pub(crate) fn slice(bytes: &[u8], range: Range<usize>) -> &[u8] {
    bytes.get(range).unwrap_or(&[])
}

/// Checks that a structure's fixed part is there.
#[inline]
pub(crate) fn fixed(what: &'static str, bytes: &[u8], needed: usize) -> Result<(), WireError> {
    if bytes.len() < needed {
        return Err(WireError::Truncated { what, needed, found: bytes.len() });
    }
    Ok(())
}

/// The range of a variable part that may begin at `from` or later. A part without bytes is empty wherever its offset
/// points, since many senders leave that zero.
#[inline]
pub(crate) fn part(
    what: &'static str,
    bytes: &[u8],
    from: usize,
    offset: u64,
    length: u64,
) -> Result<Range<usize>, WireError> {
    if length == 0 {
        return Ok(0..0);
    }
    let found = bytes.len();
    let wrong = WireError::OutOfBounds { what, offset, length, found };
    let start = usize::try_from(offset).map_err(|_| wrong)?;
    let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length)).ok_or(wrong)?;
    if start < from || end > found { Err(wrong) } else { Ok(start..end) }
}
