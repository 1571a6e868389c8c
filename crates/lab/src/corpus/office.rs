//! Files shaped like office documents: a zip of deflated markup with some stored pictures.

use super::{random_bytes, word_soup};
use crate::error::{LabError, Result};
use std::io::{Cursor, Write as _};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Members that are the same in every document, as styles and themes are.
const COMMON_MEMBERS: [(&str, usize); 3] =
    [("word/styles.xml", 24_000), ("word/theme/theme1.xml", 8_000), ("word/settings.xml", 3_000)];

/// A document of about `bytes` bytes: shared members, text of its own, a stored picture for the rest.
///
/// # Errors
/// The archive cannot be written (it is in memory, so only when memory is out).
pub fn office_document(bytes: usize, seed: u64) -> Result<Vec<u8>> {
    document(bytes, seed, None)
}

/// The same document after a sentence was added and the file saved: every later byte of the text member differs,
/// the picture and the shared members do not.
///
/// # Errors
/// As [`office_document`].
pub fn resaved_document(bytes: usize, seed: u64, sentence: &str) -> Result<Vec<u8>> {
    document(bytes, seed, Some(sentence))
}

fn document(bytes: usize, seed: u64, sentence: Option<&str>) -> Result<Vec<u8>> {
    let failed = |error: zip::result::ZipError| LabError::Format {
        what: "an office document".into(),
        detail: error.to_string(),
    };
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let deflated = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut add = |name: &str, options, content: &[u8]| {
        zip.start_file(name, options).map_err(failed)?;
        zip.write_all(content).map_err(|error| failed(error.into()))
    };
    for (number, (name, length)) in COMMON_MEMBERS.iter().enumerate() {
        add(name, deflated, &markup(*length, number as u64, None))?;
    }
    // Deflated text is about a third of its length; half of the document's bytes are text.
    add("word/document.xml", deflated, &markup(bytes * 3 / 2, seed, sentence))?;
    add("word/media/image1.jpeg", stored, &random_bytes(bytes / 2, seed ^ 0x5eed))?;
    Ok(zip.finish().map_err(failed)?.into_inner())
}

/// Word-processor markup around word soup; the sentence goes in after a third.
fn markup(length: usize, seed: u64, sentence: Option<&str>) -> Vec<u8> {
    let text = word_soup(length, seed);
    let mut out = Vec::with_capacity(length * 5 / 4);
    for (number, paragraph) in text.chunks(400).enumerate() {
        out.extend_from_slice(b"<w:p><w:r><w:t xml:space=\"preserve\">");
        out.extend_from_slice(paragraph);
        if let Some(sentence) = sentence
            && number == length / 400 / 3
        {
            out.extend_from_slice(sentence.as_bytes());
        }
        out.extend_from_slice(b"</w:t></w:r></w:p>");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_about_the_size_asked_for_and_reproducible() {
        let document = office_document(300_000, 7).unwrap();
        assert!((200_000..500_000).contains(&document.len()), "{}", document.len());
        assert_eq!(document, office_document(300_000, 7).unwrap());
        assert_eq!(&document[..2], b"PK");
    }

    #[test]
    fn saving_again_keeps_the_picture_and_changes_the_text() {
        let (old, new) =
            (office_document(300_000, 7).unwrap(), resaved_document(300_000, 7, "Added.").unwrap());
        assert_ne!(old, new);
        let read = |archive: &[u8], member: &str| {
            let mut zip = zip::ZipArchive::new(Cursor::new(archive.to_vec())).unwrap();
            let mut content = Vec::new();
            std::io::copy(&mut zip.by_name(member).unwrap(), &mut content).unwrap();
            content
        };
        assert_eq!(read(&old, "word/media/image1.jpeg"), read(&new, "word/media/image1.jpeg"));
        let text = read(&new, "word/document.xml");
        assert_eq!(text.len(), read(&old, "word/document.xml").len() + 6);
        assert!(text.windows(6).any(|w| w == b"Added."));
    }
}
