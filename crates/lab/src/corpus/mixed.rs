//! The mixed file: what crosses a WAN is partly incompressible, partly text, partly tables, partly seen before.

use super::MIB;
use fastrand::Rng;

/// Number of different words of the text.
const VOCABULARY: usize = 8_000;

/// Words in a paragraph.
const PARAGRAPH_WORDS: usize = 20_000;

/// Length of one fixed-width record.
const RECORD_BYTES: usize = 34;

/// Where the repeated part starts: odd, so that no block boundary of the first copy fits the second.
const REPEAT_OFFSET: usize = 1_337;

/// Sizes of the parts of a mixed file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedPlan {
    /// Incompressible bytes.
    pub random: usize,
    /// Text of words with natural frequencies.
    pub text: usize,
    /// Fixed-width binary records.
    pub records: usize,
    /// A second copy of the start, from an odd offset.
    pub repeat: usize,
    /// Seed of everything.
    pub seed: u64,
}

impl MixedPlan {
    /// The full file of 200 MiB: 60 random, 60 text, 40 records, 40 repeated.
    pub fn full() -> MixedPlan {
        MixedPlan::scaled(200)
    }

    /// The same proportions in `mebibytes` (a multiple of 5 keeps them exact).
    pub fn scaled(mebibytes: usize) -> MixedPlan {
        let fifth = mebibytes * MIB / 5;
        let (large, small) = (fifth * 3 / 2, fifth);
        MixedPlan { random: large, text: large, records: small, repeat: small, seed: 2024 }
    }

    /// Length of the whole file.
    pub fn len(&self) -> usize {
        self.random + self.text + self.records + self.repeat
    }

    /// Whether the file has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes the file.
pub fn mixed(plan: &MixedPlan) -> Vec<u8> {
    let mut rng = Rng::with_seed(plan.seed);
    let mut out = Vec::with_capacity(plan.len());
    out.extend(random_bytes(plan.random, rng.u64(..)));
    out.extend(word_soup(plan.text, rng.u64(..)));
    out.extend(records(plan.records, rng.u64(..)));
    let start = REPEAT_OFFSET.min(out.len());
    let end = (start + plan.repeat).min(out.len());
    out.extend_from_within(start..end);
    out
}

/// Bytes that nothing can compress.
pub fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::with_seed(seed).fill(&mut out);
    out
}

/// Text of invented words, whose frequencies fall as 1/rank.
pub fn word_soup(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let words: Vec<Vec<u8>> = (0..VOCABULARY)
        .map(|_| {
            let length = rng.usize(2..=11);
            (0..length).map(|_| rng.u8(b'a'..=b'z')).collect()
        })
        .collect();
    let table = frequency_table();
    let mut out = Vec::with_capacity(len + 32);
    let mut count = 0;
    while out.len() < len {
        let slot = rng.usize(..table.len());
        out.extend_from_slice(&words[usize::from(table[slot])]);
        count += 1;
        if count % PARAGRAPH_WORDS == 0 {
            out.extend_from_slice(b".\n");
        } else {
            out.push(b' ');
        }
    }
    out.truncate(len);
    out
}

/// Table rows: a counter, a small random field, slowly growing and constant ones, a fraction, a tag.
pub fn records(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut out = Vec::with_capacity(len + RECORD_BYTES);
    let mut row = 0_u64;
    while out.len() < len {
        out.extend_from_slice(&row.to_le_bytes());
        out.extend_from_slice(&rng.u32(..1 << 12).to_le_bytes());
        out.extend_from_slice(&((row / 100) as u32).to_le_bytes());
        out.extend_from_slice(&7_u16.to_le_bytes());
        out.extend_from_slice(&rng.u16(..8).to_le_bytes());
        out.extend_from_slice(&((row % 997) as f64 * 0.25).to_le_bytes());
        out.extend_from_slice(b"ROW\0\0\0");
        row += 1;
    }
    out.truncate(len);
    out
}

/// Word numbers, each as often as its frequency says; a uniform draw from it is a draw by frequency.
fn frequency_table() -> Vec<u16> {
    const SLOTS: f64 = 262_144.0;
    let total: f64 = (1..=VOCABULARY).map(|rank| 1.0 / rank as f64).sum();
    (0..VOCABULARY)
        .flat_map(|word| {
            let share = 1.0 / (word + 1) as f64 / total;
            std::iter::repeat_n(word as u16, ((share * SLOTS).round() as usize).max(1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_plan_is_two_hundred_mebibytes() {
        let plan = MixedPlan::full();
        assert_eq!(plan.len(), 200 * MIB);
        assert_eq!((plan.random, plan.records), (60 * MIB, 40 * MIB));
    }

    #[test]
    fn the_bytes_are_the_same_everywhere() {
        let data = mixed(&MixedPlan::scaled(5));
        assert_eq!(data.len(), 5 * MIB);
        let hash = blake3::hash(&data).to_hex();
        assert_eq!(&hash[..16], GOLDEN, "a generator has changed");
        assert_ne!(data, mixed(&MixedPlan { seed: 1, ..MixedPlan::scaled(5) }));
    }

    const GOLDEN: &str = "19e7b6e6e7b1a5ad";

    #[test]
    fn the_repeat_is_unaligned_and_exact() {
        let plan = MixedPlan::scaled(5);
        let data = mixed(&plan);
        let repeat = &data[plan.len() - plan.repeat..];
        assert_eq!(repeat, &data[REPEAT_OFFSET..REPEAT_OFFSET + plan.repeat]);
    }

    #[test]
    fn parts_compress_as_their_kind_does() {
        use std::io::Write as _;
        let ratio = |data: &[u8]| {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            data.len() as f64 / encoder.finish().unwrap().len() as f64
        };
        assert!(ratio(&random_bytes(MIB, 3)) < 1.01);
        let text = ratio(&word_soup(MIB, 3));
        assert!((1.5..4.0).contains(&text), "{text}");
        let rows = ratio(&records(MIB, 3));
        assert!(rows > 3.0, "{rows}");
    }
}
