//! Content-defined chunk boundaries and the features by which similar content is found.

use fastcdc::v2020::{MASKS, cut};

/// Smallest chunk that is cut by content, in bytes. A stream's tail may be shorter.
pub const CHUNK_BYTES_MIN: usize = 2 << 10;
/// Mean chunk, in bytes.
pub const CHUNK_BYTES_MEAN: usize = 8 << 10;
/// Largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 32 << 10;
/// Features of one chunk.
pub const FEATURES: usize = 12;

const MEAN_BITS: usize = CHUNK_BYTES_MEAN.trailing_zeros() as usize;
/// Normalised chunking, level 1 (FastCDC 2020): boundaries are rarer before the mean and more frequent after it.
const MASK_SMALL: u64 = MASKS[MEAN_BITS + 1];
const MASK_LARGE: u64 = MASKS[MEAN_BITS - 1];

/// Length of the first chunk of `bytes`: `None` when no boundary is found and more bytes could still bring one.
pub fn next_boundary(bytes: &[u8]) -> Option<usize> {
    let len = cut_len(bytes);
    (len < bytes.len() || len == CHUNK_BYTES_MAX).then_some(len)
}

/// Length of the first chunk of `bytes` when nothing follows them.
pub fn cut_len(bytes: &[u8]) -> usize {
    let (_, len) = cut(
        bytes,
        CHUNK_BYTES_MIN,
        CHUNK_BYTES_MEAN,
        CHUNK_BYTES_MAX,
        MASK_SMALL,
        MASK_LARGE,
        MASK_SMALL << 1,
        MASK_LARGE << 1,
    );
    len
}

/// Odd multipliers, one a feature: the golden ratio's expansion stepped by a fixed odd constant.
const MULTIPLIERS: [u64; FEATURES] = {
    let mut table = [0; FEATURES];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut i = 0;
    while i < FEATURES {
        state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 32;
        table[i] = state | 1;
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        i += 1;
    }
    table
};

/// Windows of this many bytes are what two chunks may have in common.
const WINDOW_BYTES: usize = 8;
/// One window in 128 counts, chosen by a hash of its first four bytes, so that an insertion does not shift the sample.
const SAMPLE_SHIFT: u32 = 16 - 7;
const SAMPLE_MULTIPLIERS: [u16; 2] = [0x9e37, 0x61c5];
/// The hash that is chosen. Four equal bytes never have it: runs of one byte are in all content and tell nothing.
const SAMPLE_HASH: u16 = 0x39;
/// Windows that are looked at together.
const BLOCK_WINDOWS: usize = 16;
const BLOCK_BYTES: usize = BLOCK_WINDOWS + WINDOW_BYTES - 1;
const WINDOW_MULTIPLIER: u64 = 0x9fb2_1c65_1e98_df25;

/// Min-hash features of a chunk: two chunks share each feature with a probability of about the share of sampled eight-byte
/// windows that they have in common (Broder's resemblance). `None` for content too short or too uniform to tell.
pub fn features(chunk: &[u8]) -> Option<[u32; FEATURES]> {
    let mut least = [u64::MAX; FEATURES];
    let mut sampled = false;
    let last = chunk.len().checked_sub(BLOCK_BYTES)?;
    // The last block overlaps the one before it: a window that counts twice is still the least one.
    for at in (0..last).step_by(BLOCK_WINDOWS).chain([last]) {
        let Some(block) = chunk[at..].first_chunk::<BLOCK_BYTES>() else { break };
        let hashes = sample_hashes(block);
        if !hashes.iter().fold(false, |any, hash| any | (*hash == SAMPLE_HASH)) {
            continue;
        }
        let hit = hashes.iter().enumerate().filter(|(_, hash)| **hash == SAMPLE_HASH);
        for (i, _) in hit {
            sampled = true;
            let mut raw = [0; WINDOW_BYTES];
            raw.copy_from_slice(&block[i..i + WINDOW_BYTES]);
            let mixed = u64::from_le_bytes(raw).wrapping_mul(WINDOW_MULTIPLIER);
            for (value, multiplier) in least.iter_mut().zip(MULTIPLIERS) {
                *value = (*value).min((mixed ^ (mixed >> 31)).wrapping_mul(multiplier));
            }
        }
    }
    sampled.then(|| least.map(|value| (value >> 16) as u32 ^ value as u32))
}

/// Hashes by which the windows of a block are chosen, of 7 bits. Without branches, so that the compiler makes vector code
/// of it.
fn sample_hashes(block: &[u8; BLOCK_BYTES]) -> [u16; BLOCK_WINDOWS] {
    std::array::from_fn(|i| {
        let first = u16::from_le_bytes([block[i], block[i + 1]]).wrapping_mul(SAMPLE_MULTIPLIERS[0]);
        let second = u16::from_le_bytes([block[i + 2], block[i + 3]]).wrapping_mul(SAMPLE_MULTIPLIERS[1]);
        (first ^ second) >> SAMPLE_SHIFT
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, mut seed: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn chunks_stay_within_their_limits_and_near_the_mean() {
        let data = noise(4 << 20, 1);
        let mut rest = data.as_slice();
        let mut count = 0;
        while let Some(len) = next_boundary(rest) {
            assert!((CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&len));
            rest = &rest[len..];
            count += 1;
        }
        let mean = data.len() / count;
        assert!((6 << 10..12 << 10).contains(&mean), "mean chunk is {mean}");
    }

    #[test]
    fn boundaries_come_back_after_an_insertion() {
        let data = noise(256 << 10, 2);
        let shifted = [&noise(77, 3), data.as_slice()].concat();
        let ends = |bytes: &[u8], base: usize| {
            let (mut at, mut ends) = (0, Vec::new());
            while let Some(len) = next_boundary(&bytes[at..]) {
                at += len;
                ends.push(at.wrapping_sub(base));
            }
            ends
        };
        let (a, b) = (ends(&data, 0), ends(&shifted, 77));
        let shared = a.iter().filter(|end| b.contains(end)).count();
        assert!(shared * 10 > a.len() * 8, "{shared} of {} boundaries survive", a.len());
    }

    #[test]
    fn runs_of_one_byte_are_not_in_the_sample() {
        for byte in 0..=255 {
            assert_eq!(features(&[byte; 100]), None);
            let padded = |seed| [noise(4 << 10, seed), vec![byte; 4 << 10]].concat();
            let (a, b) = (features(&padded(1)).unwrap(), features(&padded(2)).unwrap());
            assert!(a.iter().zip(b).all(|(a, b)| *a != b), "they have only {byte} in common");
        }
    }

    #[test]
    fn similar_chunks_share_features_and_different_ones_do_not() {
        let a = noise(8 << 10, 4);
        let mut b = a.clone();
        b.splice(3000..3010, noise(25, 5));
        let shared = |x: &[u8], y: &[u8]| {
            let (x, y) = (features(x).unwrap(), features(y).unwrap());
            x.iter().zip(y).filter(|(x, y)| **x == *y).count()
        };
        assert!(shared(&a, &b) >= FEATURES - 3);
        assert_eq!(shared(&a, &noise(8 << 10, 6)), 0);
        assert_eq!(features(b"short"), None);
        assert_eq!(features(&[0; 8 << 10]), None, "too uniform");
    }
}
