//! The folder on which acceleration is measured: 200 files as people have them, already compressed, so that only round
//! trips and bytes known before can be saved.

use super::{FileSpec, random_bytes};
use fastrand::Rng;

/// Number of files.
const FILES: usize = 200;

/// Bytes of all of them.
const FOLDER_BYTES: usize = 19_706_384;

/// Half of the files are smaller.
const MEDIAN_BYTES: f64 = 25_000.0;

/// The largest one.
const FILE_BYTES_MAX: f64 = 2_600_000.0;

/// Spread of the logarithms of the sizes; with it the sizes nearly add up to [`FOLDER_BYTES`].
const SPREAD: f64 = 1.56 / 1.702;

/// Every so many files one has a name that is not ASCII.
const NAMED_EVERY: usize = 20;

/// Names of those, without endings.
const NAMES: [&str; 10] = [
    "見積書",
    "会議の議事録",
    "設計図面（最終版）",
    "カタカナ ファイル",
    "売上報告２０２４",
    "打ち合わせ資料",
    "🚀 計画書",
    "ｶﾀｶﾅ半角",
    "請求書のひな形",
    "写真_東京",
];

/// Endings of documents that are compressed in themselves.
const ENDINGS: [&str; 5] = ["docx", "xlsx", "pdf", "jpg", "pptx"];

/// 200 files in one folder, 19.7 MB, median 25 KB, the largest 2.6 MB, ten with Japanese names and an emoji among them.
pub fn ordinary_folder(seed: u64) -> Vec<FileSpec> {
    let mut rng = Rng::with_seed(seed);
    let mut sizes = sizes();
    rng.shuffle(&mut sizes);
    let name = |number: usize| {
        let ending = ENDINGS[number % ENDINGS.len()];
        if number.is_multiple_of(NAMED_EVERY) {
            format!("{} {number:03}.{ending}", NAMES[number / NAMED_EVERY % NAMES.len()])
        } else {
            format!("document {number:03}.{ending}")
        }
    };
    let file = |(number, size)| FileSpec { path: name(number), content: random_bytes(size, rng.u64(..)) };
    sizes.into_iter().enumerate().map(file).collect()
}

/// Quantiles of a distribution of which the logarithm is bell-shaped, as that of real folders.
fn sizes() -> Vec<usize> {
    let size = |number: usize| {
        let share = (number as f64 + 0.5) / FILES as f64;
        let logit = (share / (1.0 - share)).ln();
        (MEDIAN_BYTES * (SPREAD * logit).exp()).min(FILE_BYTES_MAX) as usize
    };
    let mut sizes: Vec<usize> = (0..FILES).map(size).collect();
    let missing = FOLDER_BYTES.saturating_sub(sizes.iter().sum());
    // The largest but one takes what is missing, so that the sum is exact on every machine.
    if let Some(size) = sizes.get_mut(FILES - 2) {
        *size += missing;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_folder_is_as_described() {
        let files = ordinary_folder(1);
        assert_eq!(files, ordinary_folder(1));
        assert_ne!(files, ordinary_folder(2));
        let mut sizes: Vec<usize> = files.iter().map(|file| file.content.len()).collect();
        sizes.sort_unstable();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (FILES, FOLDER_BYTES));
        assert_eq!(sizes[FILES - 1], FILE_BYTES_MAX as usize);
        assert!((24_000..26_000).contains(&sizes[FILES / 2]), "{}", sizes[FILES / 2]);
        let names: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names.len(), FILES);
        assert_eq!(names.iter().filter(|name| !name.is_ascii()).count(), NAMES.len());
        assert!(names.iter().any(|name| name.contains('🚀')));
    }
}
