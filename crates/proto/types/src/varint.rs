//! Unsigned LEB128, the variable-length integer of the inner protocol: seven bits a byte, least significant first.

use bytes::BufMut;

/// Longest encoding of a `u64`, in bytes.
pub const LEN_MAX: usize = 10;

/// Appends `value` to `out`.
pub fn put(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Takes one integer off the front of `input`.
///
/// `None` when the bytes end too early, do not fit 64 bits, or are longer than needed (so each value has one encoding).
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in input.iter().take(LEN_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == LEN_MAX - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            if byte == 0 && i > 0 {
                return None;
            }
            *input = &input[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Maps a signed difference to an unsigned value that is small when the difference is.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_what_is_not_canonical() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut rest = out.as_slice();
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(take(&mut &out[..out.len() - 1]), None, "a cut encoding is refused");
        }
        for bad in [&[0x80, 0x00][..], &[0xff; 10][..], &[0xff; 12][..], &[][..]] {
            assert_eq!(take(&mut { bad }), None);
        }
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
