//! What keeps a ledger over a restart.

use isthmus_types::{RecordingId, varint};

use crate::content::Addr;

/// One range of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub position: u64,
    pub addr: Addr,
    pub len: u64,
    pub fresh: bool,
}

/// Ranges one note may hold, so that it stays far below the store's limit of 64 KiB.
pub const NOTE_RANGES_MAX: usize = 1000;

/// The note that keeps `ranges` (at most [`NOTE_RANGES_MAX`]) of a recording over a restart.
pub fn note(recording: RecordingId, ranges: &[Range]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + ranges.len() * 16);
    out.extend_from_slice(&recording.0.to_le_bytes());
    for range in ranges.iter().take(NOTE_RANGES_MAX) {
        varint::put(&mut out, range.position);
        varint::put(&mut out, range.addr.0);
        varint::put(&mut out, range.len << 1 | u64::from(range.fresh));
    }
    out
}

pub(super) fn read(mut note: &[u8]) -> Option<(RecordingId, Vec<Range>)> {
    let (id, rest) = note.split_first_chunk::<8>()?;
    note = rest;
    let mut ranges = Vec::new();
    while !note.is_empty() {
        let position = varint::take(&mut note)?;
        let addr = Addr(varint::take(&mut note)?);
        let raw = varint::take(&mut note)?;
        let len = raw >> 1;
        if ranges.len() == NOTE_RANGES_MAX
            || position.checked_add(len)? > 1 << 60
            || addr.0.checked_add(len)? > 1 << 48
        {
            return None;
        }
        ranges.push(Range { position, addr, len, fresh: raw & 1 == 1 });
    }
    Some((RecordingId(u64::from_le_bytes(*id)), ranges))
}
