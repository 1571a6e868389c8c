//! Whole frames: header and sealed units, built in a buffer that is written with one call.

use crate::footer::{FooterBuilder, put_chunks};
use crate::format::{FRAME_HEADER_LEN, FrameHeader, FrameKind, TRAILER_LEN, Trailer};
use crate::seal::{Place, Sealer, Unit};
use isthmus_reduction::content::ChunkMeta;

/// Bytes that a record's frame takes, chunk table and checks included, at most.
pub(crate) fn record_frame_len_max(sealer: &Sealer, len: usize, chunks: usize) -> usize {
    FRAME_HEADER_LEN + chunks * 11 + len + 2 * sealer.check_len()
}

/// Bytes that a frame with one body takes.
pub(crate) fn body_frame_len(sealer: &Sealer, len: usize) -> usize {
    FRAME_HEADER_LEN + len + sealer.check_len()
}

/// Puts a record's frame in `out`, which is emptied first. Returns the payload's position in the segment file.
pub(crate) fn record(
    out: &mut Vec<u8>,
    (sealer, segment, position): (&Sealer, u32, u64),
    addr: u64,
    chunks: &[ChunkMeta],
    payload: &[u8],
) -> Option<u64> {
    out.clear();
    out.resize(FRAME_HEADER_LEN, 0);
    put_chunks(out, chunks);
    let table_at = position + FRAME_HEADER_LEN as u64;
    sealer.seal(Place { unit: Unit::Table, position: table_at, label: addr }, out, FRAME_HEADER_LEN)?;
    let payload_start = out.len();
    let payload_at = position + payload_start as u64;
    out.extend_from_slice(payload);
    sealer.seal(Place { unit: Unit::Payload, position: payload_at, label: addr }, out, payload_start)?;
    let header = FrameHeader {
        kind: FrameKind::Record,
        label: addr,
        table_len: (payload_start - FRAME_HEADER_LEN) as u32,
        body_len: (out.len() - payload_start) as u32,
    };
    out[..FRAME_HEADER_LEN].copy_from_slice(&header.encode(segment, position));
    Some(payload_at)
}

/// Puts a frame with one body, written by `fill`, in `out`, which is emptied first.
pub(crate) fn body(
    out: &mut Vec<u8>,
    (sealer, segment, position): (&Sealer, u32, u64),
    (kind, label): (FrameKind, u64),
    fill: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    out.clear();
    out.resize(FRAME_HEADER_LEN, 0);
    fill(out);
    let place = Place { unit: unit_of(kind), position: position + FRAME_HEADER_LEN as u64, label };
    sealer.seal(place, out, FRAME_HEADER_LEN)?;
    let header = FrameHeader { kind, label, table_len: 0, body_len: (out.len() - FRAME_HEADER_LEN) as u32 };
    out[..FRAME_HEADER_LEN].copy_from_slice(&header.encode(segment, position));
    Some(())
}

/// Puts footer frame and trailer in `out`, which is emptied first. `salt` must be random: a footer may have to be
/// written again at the same position, and its nonce is made of the salt.
pub(crate) fn footer(
    out: &mut Vec<u8>,
    at: (&Sealer, u32, u64),
    salt: u64,
    builder: &FooterBuilder,
) -> Option<()> {
    body(out, at, (FrameKind::Footer, salt), |out| builder.encode(out))?;
    let trailer = Trailer { footer_position: at.2, footer_len: out.len() as u32 };
    out.extend_from_slice(&trailer.encode(at.1));
    Some(())
}

/// Bytes that footer frame and trailer take, at most.
pub(crate) fn footer_len_max(sealer: &Sealer, builder: &FooterBuilder) -> usize {
    body_frame_len(sealer, builder.len_max()) + TRAILER_LEN
}

/// The unit that a frame's body is.
pub(crate) fn unit_of(kind: FrameKind) -> Unit {
    match kind {
        FrameKind::Record => Unit::Payload,
        FrameKind::Note => Unit::Note,
        FrameKind::Ledger => Unit::Ledger,
        FrameKind::Footer => Unit::Footer,
    }
}
