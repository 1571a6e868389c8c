//! Whether a connection is SMB.

use isthmus_smb_wire::transport::{FRAME_HEADER_LEN, MessageKind, frame_len};

/// Bytes that suffice for [`recognise`].
pub const RECOGNISE_BYTES: usize = FRAME_HEADER_LEN + 4;

/// First frame of a client that negotiates: longer ones are no NEGOTIATE of SMB1 or SMB2.
const FIRST_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Header of SMB1.
const FIRST_MESSAGE_BYTES_MIN: usize = 32;

/// What the first bytes of a client say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// Not enough bytes yet.
    NeedMore,
    /// SMB on direct TCP.
    Smb,
    /// Something else.
    Other,
}

/// Tells SMB on direct TCP from anything else by a client's first bytes, as soon as they differ.
pub fn recognise(first_bytes: &[u8]) -> Recognised {
    let known = first_bytes.get(..RECOGNISE_BYTES.min(first_bytes.len())).unwrap_or(&[]);
    if known.first().is_some_and(|kind| *kind != 0) {
        return Recognised::Other;
    }
    if let Ok(Some(length)) = frame_len(known, usize::MAX) {
        let message = length - FRAME_HEADER_LEN;
        if !(FIRST_MESSAGE_BYTES_MIN..=FIRST_MESSAGE_BYTES_MAX).contains(&message) {
            return Recognised::Other;
        }
    }
    let identifier = known.get(FRAME_HEADER_LEN..).unwrap_or(&[]);
    let begins = |protocol: &[u8]| protocol.starts_with(identifier);
    if !begins(b"\xFESMB") && !begins(b"\xFFSMB") {
        return Recognised::Other;
    }
    match MessageKind::of(identifier) {
        MessageKind::Smb1 | MessageKind::Smb2 => Recognised::Smb,
        _ => Recognised::NeedMore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smb_is_told_from_other_things_as_soon_as_they_differ() {
        let smb2 = [0, 0, 0, 0x60, 0xfe, b'S', b'M', b'B'];
        for length in 0..8 {
            assert_eq!(recognise(&smb2[..length]), Recognised::NeedMore, "{length}");
        }
        assert_eq!(recognise(&smb2), Recognised::Smb);
        assert_eq!(recognise(&[&smb2[..], &[1, 2, 3]].concat()), Recognised::Smb);
        assert_eq!(recognise(&[0, 0, 0, 0x60, 0xff, b'S', b'M', b'B']), Recognised::Smb);
        for other in [&b"GET / HTTP/1.1"[..], &[0x16, 3, 1], &[0x81], &[0, 0, 0, 0x60, 0xfd], &[0, 0, 0, 3]] {
            assert_eq!(recognise(other), Recognised::Other, "{other:?}");
        }
        assert_eq!(recognise(&[0, 2, 0, 0, 0xfe, b'S', b'M', b'B']), Recognised::Other);
    }
}
