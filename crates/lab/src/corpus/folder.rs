//! Folders: many small files, names that trip software up, documents and their next versions.

use super::{EditPlan, edited, office_document, random_bytes, records, resaved_document, word_soup};
use crate::error::{Context as _, Result};
use fastrand::Rng;
use std::path::Path;

/// Largest of the many small files.
const SMALL_FILE_BYTES_MAX: usize = 96 * 1024;

/// A file to be: its path below the folder and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Relative path with `/` between folders.
    pub path: String,
    /// Content.
    pub content: Vec<u8>,
}

/// `count` files in a few folders: text, tables and incompressible ones, sizes spread over three orders of magnitude.
pub fn many_small_files(count: usize, seed: u64) -> Vec<FileSpec> {
    let mut rng = Rng::with_seed(seed);
    (0..count)
        .map(|number| {
            // A uniform exponent gives many small and few large files, as real folders have.
            let size = (SMALL_FILE_BYTES_MAX as f64 * 10_f64.powf(-3.0 * rng.f64())) as usize;
            let file_seed = rng.u64(..);
            let (extension, content) = match number % 3 {
                0 => ("txt", word_soup(size, file_seed)),
                1 => ("dat", records(size, file_seed)),
                _ => ("jpg", random_bytes(size, file_seed)),
            };
            FileSpec { path: format!("folder{:02}/file{number:04}.{extension}", number / 50), content }
        })
        .collect()
}

/// Files whose names have several bytes a character, in composed and decomposed form, with spaces, dots and length.
///
/// No two of them are equal after Unicode normalisation, since some file systems would then see one file.
pub fn awkward_names(seed: u64) -> Vec<FileSpec> {
    let long = "長い名前".repeat(15);
    let names = [
        "日本語の文書.txt",
        "見積書（最終版）.dat",
        "カタカナ ファイル.txt",
        "🚀 launch plan 🎉.txt",
        "👩‍💻 joined emoji.txt",
        "composed caf\u{e9}.txt",
        "decomposed nai\u{308}ve.txt",
        "Straße & Größe.txt",
        "Ελληνικά.txt",
        "русский документ.txt",
        "עברית.txt",
        "two  spaces and a trailing word .txt",
        ".hidden",
        "many.dots.in.a.name.tar.gz",
        "100% #1 [draft] {x} ~$temp.txt",
        "フォルダ/入れ子/深い.txt",
    ];
    let mut rng = Rng::with_seed(seed);
    names
        .iter()
        .map(|name| (*name).to_string())
        .chain([format!("{long}.txt")])
        .map(|path| FileSpec { path, content: word_soup(rng.usize(100..20_000), rng.u64(..)) })
        .collect()
}

/// `count` office-like documents of about `bytes` each.
///
/// # Errors
/// As [`office_document`].
pub fn office_folder(count: usize, bytes: usize, seed: u64) -> Result<Vec<FileSpec>> {
    (0..count)
        .map(|number| {
            let content = office_document(bytes, seed + number as u64)?;
            Ok(FileSpec { path: format!("document{number:03}.docx"), content })
        })
        .collect()
}

/// The next version of [`office_folder`] and of a plain file beside each: what people save after small changes.
///
/// # Errors
/// As [`office_document`].
pub fn edited_folder(count: usize, bytes: usize, seed: u64) -> Result<(Vec<FileSpec>, Vec<FileSpec>)> {
    let mut old = office_folder(count, bytes, seed)?;
    let mut new = Vec::with_capacity(count * 2);
    for number in 0..count {
        let document_seed = seed + number as u64;
        let content = resaved_document(bytes, document_seed, "One more sentence was added here. ")?;
        new.push(FileSpec { path: format!("document{number:03}.docx"), content });
        let path = format!("notes{number:03}.txt");
        let text = word_soup(bytes, document_seed ^ 0xabc);
        new.push(FileSpec { path: path.clone(), content: edited(&text, &EditPlan::new(6, document_seed)) });
        old.push(FileSpec { path, content: text });
    }
    Ok((old, new))
}

/// Writes the files below `folder`, making folders as needed; returns the sum of their lengths.
///
/// # Errors
/// A file or folder cannot be made.
pub fn write_folder(folder: &Path, files: &[FileSpec]) -> Result<u64> {
    let mut total = 0;
    for file in files {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).context(|| format!("making {}", parent.display()))?;
        }
        std::fs::write(&path, &file.content).context(|| format!("writing {}", path.display()))?;
        total += file.content.len() as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn small_files_have_many_sizes() {
        let files = many_small_files(300, 1);
        assert_eq!(files.len(), 300);
        assert_eq!(files, many_small_files(300, 1));
        let paths: HashSet<_> = files.iter().map(|file| &file.path).collect();
        assert_eq!(paths.len(), 300);
        assert!(files.iter().any(|file| file.content.len() < 300));
        assert!(files.iter().any(|file| file.content.len() > 50_000));
    }

    #[test]
    fn awkward_names_are_valid_and_can_be_written() {
        let files = awkward_names(2);
        let dir = tempfile::tempdir().unwrap();
        let total = write_folder(dir.path(), &files).unwrap();
        assert_eq!(total, files.iter().map(|file| file.content.len() as u64).sum::<u64>());
        assert!(files.iter().all(|file| file.path.split('/').all(|part| part.len() <= 255)));
        assert!(files.iter().any(|file| file.path.contains('\u{308}')));
        for file in &files {
            assert_eq!(std::fs::read(dir.path().join(&file.path)).unwrap(), file.content);
        }
    }

    #[test]
    fn the_next_version_has_the_same_names_and_other_bytes() {
        let (old, new) = edited_folder(2, 60_000, 3).unwrap();
        let names = |files: &[FileSpec]| files.iter().map(|file| file.path.clone()).collect::<HashSet<_>>();
        assert_eq!(names(&old), names(&new));
        for file in &new {
            let before = old.iter().find(|other| other.path == file.path).unwrap();
            assert_ne!(before.content, file.content);
        }
    }
}
