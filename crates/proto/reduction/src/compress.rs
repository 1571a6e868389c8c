//! zstd in the four shapes that the reduction core needs: a small context for heads, a large one for new data, single
//! frames against a base, and single frames alone.

use zstd_safe::{
    CCtx, CParameter, CompressionLevel, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound,
};

/// Window of the small context: 128 KiB.
pub const SMALL_WINDOW_LOG: u32 = 17;
/// Window of the large context once a direction has sent more than [`LARGE_WINDOW_FROM_BYTES`]: 4 MiB.
pub const LARGE_WINDOW_LOG: u32 = 22;
/// Window of the large context before that: 512 KiB, since most connections never need more.
pub const LARGE_WINDOW_LOG_FIRST: u32 = 19;
/// New bytes after which the large context takes its full window.
pub const LARGE_WINDOW_FROM_BYTES: u64 = 512 << 10;
/// From this level on, long matches are looked for apart over all of the full window, of which the match tables of a low
/// level forget the first part.
const LONG_MATCHES_FROM_LEVEL: CompressionLevel = 3;
/// Below the level of long matches speed is what counts: a window of 1 MiB, which the processor's cache holds, and a table
/// of 128 Ki entries find most of what larger ones do in less time.
const FAST_WINDOW_LOG: u32 = 20;
const FAST_TABLE_LOG: u32 = 17;
/// Window of a delta: its base and the new bytes.
const DELTA_WINDOW_LOG: u32 = 20;
/// A base larger than this overflows the match tables that the levels bring along: its first part would be forgotten.
pub const LARGE_BASE_BYTES: usize = 128 << 10;
/// Log of the table sizes, in entries, for such a base.
const LARGE_BASE_TABLE_LOG: u32 = 19;
const SMALL_LEVEL: CompressionLevel = 3;

/// A compressing context of one direction. Its output is cut at each call, so the peer can restore what it has.
pub struct Packer {
    context: CCtx<'static>,
}

/// Something was wrong with compressed data, or zstd could not get memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCompression;

impl Packer {
    /// The context of heads: it needs about 0.4 MB.
    pub fn small() -> Result<Packer, BadCompression> {
        let mut context = CCtx::try_create().ok_or(BadCompression)?;
        for parameter in [
            CParameter::CompressionLevel(SMALL_LEVEL),
            CParameter::WindowLog(SMALL_WINDOW_LOG),
            CParameter::HashLog(14),
            CParameter::ChainLog(14),
            CParameter::ContentSizeFlag(false),
        ] {
            context.set_parameter(parameter).map_err(|_| BadCompression)?;
        }
        Ok(Packer { context })
    }

    /// The context of new data.
    pub fn large(level: CompressionLevel, window_log: u32) -> Result<Packer, BadCompression> {
        let mut context = CCtx::try_create().ok_or(BadCompression)?;
        let fast = level < LONG_MATCHES_FROM_LEVEL;
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(if fast { window_log.min(FAST_WINDOW_LOG) } else { window_log }),
            CParameter::ContentSizeFlag(false),
        ] {
            context.set_parameter(parameter).map_err(|_| BadCompression)?;
        }
        let more = if fast {
            CParameter::HashLog(FAST_TABLE_LOG)
        } else {
            CParameter::EnableLongDistanceMatching(window_log == LARGE_WINDOW_LOG)
        };
        context.set_parameter(more).map_err(|_| BadCompression)?;
        Ok(Packer { context })
    }

    /// Compresses `bytes` up to a flush.
    pub fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>, BadCompression> {
        let mut out = Vec::with_capacity(compress_bound(bytes.len()) + 64);
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(&mut out);
        while input.pos() < bytes.len() {
            self.context.compress_stream(&mut output, &mut input).map_err(|_| BadCompression)?;
        }
        loop {
            let left = self.context.flush_stream(&mut output).map_err(|_| BadCompression)?;
            if left == 0 {
                break;
            }
            if output.pos() == output.capacity() {
                return Err(BadCompression);
            }
        }
        Ok(out)
    }
}

/// The decompressing counterpart of a [`Packer`].
pub struct Unpacker {
    context: DCtx<'static>,
}

impl Unpacker {
    /// A context that accepts windows up to `window_log`.
    pub fn new(window_log: u32) -> Result<Unpacker, BadCompression> {
        let mut context = DCtx::try_create().ok_or(BadCompression)?;
        context.set_parameter(DParameter::WindowLogMax(window_log)).map_err(|_| BadCompression)?;
        Ok(Unpacker { context })
    }

    /// Decompresses all of `bytes` into at most `len_max` bytes.
    pub fn unpack(&mut self, bytes: &[u8], len_max: usize) -> Result<Vec<u8>, BadCompression> {
        // One byte more than allowed, so that too much output shows.
        let mut out = Vec::with_capacity(len_max + 1);
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(&mut out);
        loop {
            let (consumed, produced) = (input.pos(), output.pos());
            self.context.decompress_stream(&mut output, &mut input).map_err(|_| BadCompression)?;
            if output.pos() > len_max {
                return Err(BadCompression);
            }
            if (consumed, produced) == (input.pos(), output.pos()) {
                break;
            }
        }
        if input.pos() < bytes.len() { Err(BadCompression) } else { Ok(out) }
    }
}

/// One zstd frame of `bytes` with `base` as what came before.
pub fn pack_against(base: &[u8], bytes: &[u8], level: CompressionLevel) -> Result<Vec<u8>, BadCompression> {
    let mut context = CCtx::try_create().ok_or(BadCompression)?;
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(DELTA_WINDOW_LOG),
        CParameter::ContentSizeFlag(false),
    ] {
        context.set_parameter(parameter).map_err(|_| BadCompression)?;
    }
    if base.len() > LARGE_BASE_BYTES {
        for parameter in
            [CParameter::HashLog(LARGE_BASE_TABLE_LOG), CParameter::ChainLog(LARGE_BASE_TABLE_LOG)]
        {
            context.set_parameter(parameter).map_err(|_| BadCompression)?;
        }
    }
    context.ref_prefix(base).map_err(|_| BadCompression)?;
    let mut out = Vec::with_capacity(compress_bound(bytes.len()));
    context.compress2(&mut out, bytes).map_err(|_| BadCompression)?;
    Ok(out)
}

/// Undoes [`pack_against`]; the result has exactly `len` bytes.
pub fn unpack_against(base: &[u8], packed: &[u8], len: usize) -> Result<Vec<u8>, BadCompression> {
    let mut context = DCtx::try_create().ok_or(BadCompression)?;
    context.set_parameter(DParameter::WindowLogMax(DELTA_WINDOW_LOG)).map_err(|_| BadCompression)?;
    context.ref_prefix(base).map_err(|_| BadCompression)?;
    let mut out = Vec::with_capacity(len + 1);
    context.decompress(&mut out, packed).map_err(|_| BadCompression)?;
    let _ = context.reset(ResetDirective::SessionOnly);
    if out.len() == len { Ok(out) } else { Err(BadCompression) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_restored_call_by_call_and_learns() {
        for (mut packer, log) in [
            (Packer::small().unwrap(), SMALL_WINDOW_LOG),
            (Packer::large(3, LARGE_WINDOW_LOG).unwrap(), LARGE_WINDOW_LOG),
        ] {
            let mut unpacker = Unpacker::new(log).unwrap();
            let mut sizes = Vec::new();
            for i in 0..20u32 {
                let message = format!("header {i} of a message that is nearly the same each time, {i:08}");
                let packed = packer.pack(message.as_bytes()).unwrap();
                sizes.push(packed.len());
                assert_eq!(unpacker.unpack(&packed, 4096).unwrap(), message.as_bytes());
            }
            assert!(sizes[19] * 2 < sizes[0], "{sizes:?}");
        }
    }

    #[test]
    fn a_delta_is_small_and_needs_its_base() {
        let base: Vec<u8> =
            (0..300_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()).take(700_000).collect();
        let mut new = base[100_000..300_000].to_vec();
        new[5000] ^= 1;
        let packed = pack_against(&base, &new, 3).unwrap();
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(unpack_against(&base, &packed, new.len()).unwrap(), new);
        let other = unpack_against(&base[..base.len() - 1], &packed, new.len());
        assert!(other.is_err() || other.is_ok_and(|bytes| bytes != new));
    }

    #[test]
    fn too_much_output_and_garbage_are_refused() {
        let packed = Packer::small().unwrap().pack(&[7; 10_000]).unwrap();
        assert_eq!(Unpacker::new(SMALL_WINDOW_LOG).unwrap().unpack(&packed, 9_999), Err(BadCompression));
        assert_eq!(Unpacker::new(SMALL_WINDOW_LOG).unwrap().unpack(b"garbage!", 100), Err(BadCompression));
        assert_eq!(unpack_against(b"", b"garbage", 10), Err(BadCompression));
        let wide = Packer::large(3, LARGE_WINDOW_LOG).unwrap().pack(&[1; 100]).unwrap();
        assert_eq!(Unpacker::new(SMALL_WINDOW_LOG).unwrap().unpack(&wide, 100), Err(BadCompression));
    }
}
