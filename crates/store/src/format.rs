//! The bytes of a segment file's fixed parts (docs/store.md): segment header, frame header, trailer.
//! Integers are little endian. Nothing here does IO, and nothing here trusts what it reads.

use crate::key::{KeyId, WRAPPED_LEN};
use isthmus_types::limits::RECORD_BYTES_MAX;

/// Version of the on-disk format that this program reads and writes.
pub const VERSION: u16 = 1;
/// Bytes of a segment header.
pub const HEADER_LEN: usize = 256;
/// Bytes of a frame header.
pub const FRAME_HEADER_LEN: usize = 32;
/// Bytes of the trailer at the end of a sealed segment.
pub const TRAILER_LEN: usize = 24;
/// Largest segment file.
pub const SEGMENT_BYTES_MAX: u32 = 64 << 20;
/// Longest note.
pub const NOTE_LEN_MAX: usize = 64 << 10;
/// Most chunks of one record.
pub const CHUNKS_PER_RECORD_MAX: usize = 8192;
/// Addresses are below this.
pub const ADDR_END: u64 = 1 << 48;

const SEGMENT_MAGIC: &[u8; 8] = b"ISTHMSEG";
const FRAME_MAGIC: &[u8; 4] = b"IFRM";
const TRAILER_MAGIC: &[u8; 8] = b"ISTHMEND";
const FLAG_ENCRYPTED: u16 = 1;
/// Bytes of the header that never change after the segment was made; what a wrapped key is bound to.
const FIXED_LEN: usize = 60;
const SLOT_LEN: usize = 96;
const SLOTS_AT: usize = 64;
/// Longest sealed chunk table: a key and a length of at most three bytes each.
const TABLE_LEN_MAX: usize = CHUNKS_PER_RECORD_MAX * 11 + crate::seal::CHECK_LEN_MAX;

/// Why a segment header cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Written by another version of the format.
    Version(u16),
    /// Offset in the header, and what is wrong there.
    Bad(u64, &'static str),
}

/// A data key wrapped by the store key of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySlot {
    pub key: KeyId,
    pub(crate) wrapped: [u8; WRAPPED_LEN],
}

/// The first 256 bytes of a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub encrypted: bool,
    /// Segment number, from 1; never used twice.
    pub number: u32,
    /// First address given to a record of this segment.
    pub base: u64,
    /// Unix seconds.
    pub created_s: u64,
    /// The segment file's greatest length, and so the most addresses it can use up.
    pub span: u32,
    /// Two places for the wrapped data key, so that one can be written while the other stays good.
    pub slots: [Option<KeySlot>; 2],
}

impl SegmentHeader {
    /// The bytes that a wrapped data key is bound to.
    pub fn fixed(&self) -> [u8; FIXED_LEN] {
        let mut out = [0; FIXED_LEN];
        out[..8].copy_from_slice(SEGMENT_MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(if self.encrypted { FLAG_ENCRYPTED } else { 0 }).to_le_bytes());
        out[12..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..24].copy_from_slice(&self.base.to_le_bytes());
        out[24..32].copy_from_slice(&self.created_s.to_le_bytes());
        out[32..36].copy_from_slice(&self.span.to_le_bytes());
        out
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let fixed = self.fixed();
        out[..FIXED_LEN].copy_from_slice(&fixed);
        out[FIXED_LEN..SLOTS_AT].copy_from_slice(&crc32fast::hash(&fixed).to_le_bytes());
        for (i, slot) in self.slots.iter().enumerate() {
            let at = SLOTS_AT + i * SLOT_LEN;
            out[at..at + SLOT_LEN].copy_from_slice(&encode_slot(slot.as_ref()));
        }
        out
    }

    /// Reads a header. A slot that is damaged counts as empty, since the other one may be good.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let bad = |offset, what| Err(HeaderError::Bad(offset, what));
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return bad(bytes.len() as u64, "the segment header is cut short");
        };
        if &bytes[..8] != SEGMENT_MAGIC {
            return bad(0, "not a segment file");
        }
        if u32_at(bytes, FIXED_LEN) != crc32fast::hash(&bytes[..FIXED_LEN]) {
            return bad(FIXED_LEN as u64, "the segment header fails its check");
        }
        let version = u16_at(bytes, 8);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let header = SegmentHeader {
            encrypted: u16_at(bytes, 10) & FLAG_ENCRYPTED != 0,
            number: u32_at(bytes, 12),
            base: u64_at(bytes, 16),
            created_s: u64_at(bytes, 24),
            span: u32_at(bytes, 32),
            slots: [decode_slot(&bytes[SLOTS_AT..]), decode_slot(&bytes[SLOTS_AT + SLOT_LEN..])],
        };
        if header.fixed() != bytes[..FIXED_LEN] {
            return bad(10, "the segment header has unknown flags or fields");
        }
        if header.number == 0 || header.base >= ADDR_END || header.span > SEGMENT_BYTES_MAX {
            return bad(12, "the segment header has impossible values");
        }
        Ok(header)
    }

    /// The slot under this key.
    pub fn slot(&self, key: KeyId) -> Option<&KeySlot> {
        self.slots.iter().flatten().find(|slot| slot.key == key)
    }
}

/// What follows a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Record = 1,
    Note = 2,
    Ledger = 3,
    Footer = 4,
}

/// The 32 bytes before every unit or pair of units in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    /// The record's address; a footer's salt; otherwise 0.
    pub label: u64,
    /// Sealed length of the chunk table; 0 but for a record.
    pub table_len: u32,
    /// Sealed length of payload or body.
    pub body_len: u32,
}

impl FrameHeader {
    /// `segment` and `position` (of this header in its file) are bound to the header by its CRC.
    pub fn encode(&self, segment: u32, position: u64) -> [u8; FRAME_HEADER_LEN] {
        let mut out = [0; FRAME_HEADER_LEN];
        out[..4].copy_from_slice(FRAME_MAGIC);
        out[4] = self.kind as u8;
        out[8..16].copy_from_slice(&self.label.to_le_bytes());
        out[16..20].copy_from_slice(&self.table_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.body_len.to_le_bytes());
        let crc = placed_crc(segment, position, &out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` if these are not the bytes of a frame header at this place.
    pub fn decode(bytes: &[u8], segment: u32, position: u64) -> Option<FrameHeader> {
        let bytes = bytes.first_chunk::<FRAME_HEADER_LEN>()?;
        let kind = match bytes[4] {
            1 => FrameKind::Record,
            2 => FrameKind::Note,
            3 => FrameKind::Ledger,
            4 => FrameKind::Footer,
            _ => return None,
        };
        let header = FrameHeader {
            kind,
            label: u64_at(bytes, 8),
            table_len: u32_at(bytes, 16),
            body_len: u32_at(bytes, 20),
        };
        (header.encode(segment, position) == *bytes && header.is_possible()).then_some(header)
    }

    /// Bytes of the whole frame.
    pub fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + u64::from(self.table_len) + u64::from(self.body_len)
    }

    fn is_possible(&self) -> bool {
        let check = crate::seal::CHECK_LEN_MAX;
        let (table, body) = (self.table_len as usize, self.body_len as usize);
        match self.kind {
            FrameKind::Record => table <= TABLE_LEN_MAX && body <= RECORD_BYTES_MAX + check,
            // A note or ledger frame starts with a number and may hold a store identity and a domain.
            FrameKind::Note | FrameKind::Ledger => table == 0 && body <= NOTE_LEN_MAX + 1024 + check,
            FrameKind::Footer => table == 0 && body <= SEGMENT_BYTES_MAX as usize,
        }
    }
}

/// The last 24 bytes of a sealed segment: where its footer frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub footer_position: u64,
    /// Length of the footer frame, header included.
    pub footer_len: u32,
}

impl Trailer {
    pub fn encode(&self, segment: u32) -> [u8; TRAILER_LEN] {
        let mut out = [0; TRAILER_LEN];
        out[..8].copy_from_slice(TRAILER_MAGIC);
        out[8..16].copy_from_slice(&self.footer_position.to_le_bytes());
        out[16..20].copy_from_slice(&self.footer_len.to_le_bytes());
        let crc = placed_crc(segment, self.footer_position, &out[..20]);
        out[20..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the trailer of a file of `file_len` bytes. `None` if it is none, or points outside the file.
    pub fn decode(bytes: &[u8], segment: u32, file_len: u64) -> Option<Trailer> {
        let bytes = bytes.first_chunk::<TRAILER_LEN>()?;
        let trailer = Trailer { footer_position: u64_at(bytes, 8), footer_len: u32_at(bytes, 16) };
        let end = trailer.footer_position.checked_add(u64::from(trailer.footer_len))?;
        let whole = end.checked_add(TRAILER_LEN as u64)?;
        let fits = trailer.footer_position >= HEADER_LEN as u64 && whole == file_len;
        (trailer.encode(segment) == *bytes && fits).then_some(trailer)
    }
}

fn encode_slot(slot: Option<&KeySlot>) -> [u8; SLOT_LEN] {
    let mut out = [0; SLOT_LEN];
    if let Some(slot) = slot {
        out[..8].copy_from_slice(&slot.key.0);
        out[8..8 + WRAPPED_LEN].copy_from_slice(&slot.wrapped);
        let crc = crc32fast::hash(&out[..SLOT_LEN - 4]);
        out[SLOT_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    out
}

fn decode_slot(bytes: &[u8]) -> Option<KeySlot> {
    let bytes = bytes.first_chunk::<SLOT_LEN>()?;
    let mut slot = KeySlot { key: KeyId([0; 8]), wrapped: [0; WRAPPED_LEN] };
    slot.key.0.copy_from_slice(&bytes[..8]);
    slot.wrapped.copy_from_slice(&bytes[8..8 + WRAPPED_LEN]);
    (slot.key.0 != [0; 8] && encode_slot(Some(&slot)) == *bytes).then_some(slot)
}

fn placed_crc(segment: u32, position: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.to_le_bytes());
    hasher.update(&position.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let slot = KeySlot { key: KeyId([3; 8]), wrapped: [9; WRAPPED_LEN] };
        SegmentHeader {
            encrypted: true,
            number: 7,
            base: 1 << 40,
            created_s: 1_700_000_000,
            span: 1 << 20,
            slots: [None, Some(slot)],
        }
    }

    #[test]
    fn no_flipped_bit_of_a_segment_header_changes_what_it_means_unnoticed() {
        let good = header();
        let bytes = good.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(good.clone()));
        for bit in 0..HEADER_LEN * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(decoded) = SegmentHeader::decode(&bad) {
                assert!(bit / 8 >= SLOTS_AT, "bit {bit}");
                let lost_slot = SegmentHeader { slots: [None, None], ..good.clone() };
                assert!(decoded == lost_slot || decoded == good, "bit {bit}: a damaged slot is an empty one");
            }
        }
        assert!(matches!(SegmentHeader::decode(&bytes[..255]), Err(HeaderError::Bad(255, _))));
    }

    #[test]
    fn another_version_is_told_apart_from_damage() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..FIXED_LEN]);
        bytes[FIXED_LEN..SLOTS_AT].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::Version(2)));
    }

    #[test]
    fn frame_headers_and_trailers_hold_for_their_own_place_and_with_no_bit_flipped() {
        let frame = FrameHeader { kind: FrameKind::Record, label: 12345, table_len: 30, body_len: 5000 };
        let bytes = frame.encode(7, 256);
        assert_eq!(FrameHeader::decode(&bytes, 7, 256), Some(frame));
        assert_eq!(FrameHeader::decode(&bytes, 7, 257), None);
        assert_eq!(FrameHeader::decode(&bytes, 8, 256), None);
        let trailer = Trailer { footer_position: 300, footer_len: 76 };
        let end = trailer.encode(7);
        assert_eq!(Trailer::decode(&end, 7, 400), Some(trailer));
        assert_eq!(Trailer::decode(&end, 7, 401), None);
        for bit in 0..FRAME_HEADER_LEN * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad, 7, 256), None);
        }
        for bit in 0..TRAILER_LEN * 8 {
            let mut bad = end;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&bad, 7, 400), None);
        }
    }

    #[test]
    fn a_frame_header_that_claims_too_much_is_refused() {
        for (kind, table_len, body_len) in [
            (FrameKind::Record, 0, RECORD_BYTES_MAX as u32 + 17),
            (FrameKind::Record, TABLE_LEN_MAX as u32 + 1, 10),
            (FrameKind::Note, 1, 10),
            (FrameKind::Footer, 0, SEGMENT_BYTES_MAX + 1),
        ] {
            let bytes = FrameHeader { kind, label: 0, table_len, body_len }.encode(1, 256);
            assert_eq!(FrameHeader::decode(&bytes, 1, 256), None);
        }
    }
}
