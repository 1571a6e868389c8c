//! What an office program does with a document on a share, step by step, as a process that runs where the share is mounted.

use isthmus_lab::smb::KernelClient;
use isthmus_lab::{LabError, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes that are read first from the start and from the end of a document.
const HEAD_BYTES: usize = 4_096;
const TAIL_BYTES: u64 = 65_536;

/// Bytes of one read of the whole document.
const READ_BYTES: usize = 65_536;

/// Bytes of the file that tells others who has the document.
const OWNER_BYTES: usize = 165;

/// Arguments of the hidden command that does it.
#[derive(clap::Args)]
pub struct OfficeArguments {
    /// What is done
    work: OfficeWork,
    /// The document on the share
    document: PathBuf,
    /// A local file: what the document must contain (open), or what is written (save)
    content: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OfficeWork {
    /// Look at it, say who has it, read it, let go of it
    Open,
    /// Write a temporary file, flush it, put it in the place of the document
    Save,
}

/// The shell command that calls [`run_office`] for this document, for the kernel's client.
pub fn office_command(work: &str, document: &str, content: &str) -> Result<String> {
    let program = std::env::current_exe()
        .map_err(|source| LabError::Io { action: "looking for this program".into(), source })?;
    Ok(format!("'{}' measure-office {work} {document} {content}", program.display()))
}

/// Does the work and prints its time.
///
/// # Errors
/// A step fails, or the document contains something else than it must.
pub fn run_office(arguments: &OfficeArguments) -> Result<()> {
    let (document, content) = (&arguments.document, &arguments.content);
    let failed = |path: &Path, source| LabError::Io { action: format!("work on {}", path.display()), source };
    let content = std::fs::read(content).map_err(|source| failed(content, source))?;
    let start = Instant::now();
    let read = match arguments.work {
        OfficeWork::Open => open(document, content.len()).map(Some),
        OfficeWork::Save => save(document, &content).map(|()| None),
    };
    let nanoseconds = start.elapsed().as_nanos();
    let read = read.map_err(|source| failed(document, source))?;
    if read.is_some_and(|read| read != content) {
        let detail = "it was read wrongly".to_string();
        return Err(LabError::Mismatch { what: document.display().to_string(), detail });
    }
    println!("{}", KernelClient::time_line(nanoseconds));
    Ok(())
}

fn open(document: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).write(true).open(document)?;
    file.read_exact_at(&mut [0; HEAD_BYTES], 0)?;
    let length = file.metadata()?.len();
    let tail = TAIL_BYTES.min(length);
    file.read_exact_at(&mut vec![0; tail as usize], length - tail)?;
    let owner = beside(document, "~$");
    match owner.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return Err(other.err().unwrap_or_else(|| io::ErrorKind::AlreadyExists.into())),
    }
    let mut owner_file = OpenOptions::new().write(true).create_new(true).open(&owner)?;
    owner_file.write_all(&[b' '; OWNER_BYTES])?;
    drop(owner_file);
    let content = read_all(&mut file, bytes)?;
    drop(file);
    std::fs::remove_file(&owner)?;
    Ok(content)
}

fn read_all(file: &mut File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(bytes);
    let mut buffer = vec![0; READ_BYTES];
    file.rewind()?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(content),
            count => content.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn save(document: &Path, content: &[u8]) -> io::Result<()> {
    let (new, old) = (beside(document, "~WRD"), beside(document, "~WRL"));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(document, &old)?;
    std::fs::rename(&new, document)?;
    std::fs::remove_file(&old)
}

fn beside(document: &Path, prefix: &str) -> PathBuf {
    let name = document.file_name().unwrap_or_default().to_string_lossy();
    document.with_file_name(format!("{prefix}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_opened_and_saved() {
        let folder = std::env::temp_dir().join(format!("isthmus-office-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let document = folder.join("a.docx");
        std::fs::write(&document, vec![7; 200_000]).unwrap();
        assert_eq!(open(&document, 0).unwrap(), vec![7; 200_000]);
        save(&document, &[8; 100_000]).unwrap();
        assert_eq!(std::fs::read(&document).unwrap(), vec![8; 100_000]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::write(folder.join("~$a.docx"), "").unwrap();
        assert!(open(&document, 0).is_err(), "somebody else has it");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
