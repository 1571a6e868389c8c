//! How one unit of bytes in a segment is protected: AES-256-GCM, or a CRC32 when encryption is off.

use crate::key::{DataKey, TAG_LEN};
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};

/// Bytes that a CRC32 takes behind its unit.
const CRC_LEN: usize = 4;
/// Longest check behind a unit.
pub const CHECK_LEN_MAX: usize = TAG_LEN;

const CONTEXT_LEN: usize = 21;

/// What a unit holds. Part of its nonce and of what its check covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unit {
    Payload = 1,
    Table = 2,
    Note = 3,
    Ledger = 4,
    Footer = 5,
}

/// Where a unit stands: it is bound to this place, so bytes that were moved or copied elsewhere fail their check.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub unit: Unit,
    /// Position of the unit's first byte in the segment file.
    pub position: u64,
    /// The record's address; for a footer its random salt; otherwise 0.
    pub label: u64,
}

/// Seals and opens the units of one segment.
pub enum Sealer {
    Crc { segment: u32 },
    Gcm { segment: u32, cipher: Box<LessSafeKey> },
}

impl Sealer {
    pub(crate) fn plain(segment: u32) -> Sealer {
        Sealer::Crc { segment }
    }

    /// `None` if the cipher cannot be had.
    pub(crate) fn encrypted(segment: u32, key: &DataKey) -> Option<Sealer> {
        Some(Sealer::Gcm { segment, cipher: Box::new(key.cipher()?) })
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Sealer::Gcm { .. })
    }

    /// Bytes that the check adds to a unit.
    pub(crate) fn check_len(&self) -> usize {
        match self {
            Sealer::Crc { .. } => CRC_LEN,
            Sealer::Gcm { .. } => TAG_LEN,
        }
    }

    /// Seals `buf[start..]` in place and appends the check. `None` if the cipher fails, which it has no reason to.
    ///
    /// The caller never seals two different contents for one place of one segment: that would use a nonce twice.
    pub(crate) fn seal(&self, place: Place, buf: &mut Vec<u8>, start: usize) -> Option<()> {
        match self {
            Sealer::Crc { segment } => {
                let crc = crc_of(&context(*segment, place), &buf[start..]);
                buf.extend_from_slice(&crc.to_le_bytes());
            }
            Sealer::Gcm { segment, cipher } => {
                let aad = Aad::from(context(*segment, place));
                let tag = cipher.seal_in_place_separate_tag(nonce(place), aad, &mut buf[start..]).ok()?;
                buf.extend_from_slice(tag.as_ref());
            }
        }
        Some(())
    }

    /// Opens a sealed unit in place. Returns the length of its content, which is then at the start of `unit`, or `None`
    /// if it fails its check.
    pub(crate) fn open(&self, place: Place, unit: &mut [u8]) -> Option<usize> {
        let len = unit.len().checked_sub(self.check_len())?;
        match self {
            Sealer::Crc { segment } => {
                let (content, check) = unit.split_at(len);
                (crc_of(&context(*segment, place), content).to_le_bytes() == check).then_some(len)
            }
            Sealer::Gcm { segment, cipher } => {
                let aad = Aad::from(context(*segment, place));
                cipher.open_in_place(nonce(place), aad, unit).ok().map(|content| content.len())
            }
        }
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_encrypted() { "Sealer::Gcm" } else { "Sealer::Crc" })
    }
}

/// What is bound to a unit: kind, segment number, position, label.
fn context(segment: u32, place: Place) -> [u8; CONTEXT_LEN] {
    let mut out = [0; CONTEXT_LEN];
    out[0] = place.unit as u8;
    out[1..5].copy_from_slice(&segment.to_le_bytes());
    out[5..13].copy_from_slice(&place.position.to_le_bytes());
    out[13..].copy_from_slice(&place.label.to_le_bytes());
    out
}

/// Kind and position; a footer may be written more than once at one position, so it takes its random salt instead.
fn nonce(place: Place) -> Nonce {
    let mut out = [0; 12];
    out[0] = place.unit as u8;
    let number = if place.unit == Unit::Footer { place.label } else { place.position };
    out[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(out)
}

fn crc_of(context: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(context);
    hasher.update(content);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_opens_in_its_own_place_only_and_not_with_a_bit_flipped() {
        let key = DataKey::from_bytes([7; 32]);
        for sealer in [Sealer::plain(3), Sealer::encrypted(3, &key).unwrap()] {
            let place = Place { unit: Unit::Payload, position: 4096, label: 99 };
            let mut buf = b"headerthe content".to_vec();
            sealer.seal(place, &mut buf, 6).unwrap();
            assert_eq!(buf.len(), 17 + sealer.check_len());
            assert_eq!(&buf[..6], b"header");
            let sealed = buf[6..].to_vec();

            let mut good = sealed.clone();
            assert_eq!(sealer.open(place, &mut good), Some(11));
            assert_eq!(&good[..11], b"the content");
            for bit in 0..sealed.len() * 8 {
                let mut bad = sealed.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(sealer.open(place, &mut bad), None, "bit {bit}");
            }
            for elsewhere in [
                Place { unit: Unit::Table, ..place },
                Place { position: 4097, ..place },
                Place { label: 98, ..place },
            ] {
                assert_eq!(sealer.open(elsewhere, &mut sealed.clone()), None, "{elsewhere:?}");
            }
            assert_eq!(sealer.open(place, &mut [0; 3]), None);
        }
        let other = Sealer::encrypted(4, &key).unwrap();
        let place = Place { unit: Unit::Note, position: 0, label: 0 };
        let mut buf = b"x".to_vec();
        Sealer::encrypted(3, &key).unwrap().seal(place, &mut buf, 0).unwrap();
        assert_eq!(other.open(place, &mut buf), None, "another segment's unit is refused");
    }
}
