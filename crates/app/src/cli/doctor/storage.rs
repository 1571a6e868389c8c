//! The chunk store's disk: space and speed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use isthmus_config::Store;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;

use super::super::status::bytes;
use super::finding::Report;
use super::running::Running;

/// What is written and read to find out how fast the disk is.
const TEST_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: usize = 1 << 20;
/// Reads at random places, as the store makes them for content that comes again.
const READS: u64 = 200;
const READ_BYTES: usize = 16 << 10;
/// Below these a store slows down a line of 100 Mbit/s.
const WRITE_RATE_MIN: f64 = 30e6;
const READ_SECONDS_MAX: f64 = 0.005;

/// How fast the disk is.
struct Speed {
    /// Bytes a second, with the last of them on the disk.
    write: f64,
    /// Seconds for each read at a random place.
    read: f64,
}

/// Space, state and speed of the store.
pub(crate) fn store(
    report: &mut Report,
    store: &Store,
    running: &Result<Running, String>,
    is_measured: bool,
) {
    report.area("store");
    let taken = match running {
        Ok(running) => {
            state(report, running);
            running.store["bytes"].as_u64().unwrap_or(0)
        }
        Err(_) => 0,
    };
    let Some(folder) = existing(&store.path) else {
        return report
            .failure(format!("{} has no folder above it", store.path.display()), "correct store.path");
    };
    let free = space(report, store, &folder, taken);
    if !is_measured {
        return report.untested("speed: left out, as asked", "");
    }
    if free.is_some_and(|free| free < store.reserve.bytes() + TEST_BYTES) {
        return report.untested("speed: there is too little space to try", "make room first");
    }
    match measure(&folder) {
        Ok(speed) => rate(report, &folder, &speed),
        Err(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "run doctor as root or as the proxy's user",
                _ => "look at the disk and its file system",
            };
            report
                .untested(format!("speed: nothing can be written in {}: {error}", folder.display()), remedy);
        }
    }
}

fn state(report: &mut Report, running: &Running) {
    let store = &running.store;
    let why = store["why"].as_str().unwrap_or("?");
    match store["state"].as_str() {
        Some("learning") => report.fine(format!(
            "in use: {} of {}, {} chunks",
            bytes(store["bytes"].as_f64().unwrap_or(0.0)),
            bytes(store["cap_bytes"].as_f64().unwrap_or(0.0)),
            store["chunks"].as_u64().unwrap_or(0)
        )),
        Some("not_learning") => {
            report.warning(format!("it takes in nothing new: {why}"), "make room, or correct what it says")
        }
        _ => report.failure(
            format!("it cannot be used, and connections pass through: {why}"),
            "isthmus-client store check or isthmus-server store check, with the proxy stopped",
        ),
    }
    if let Some(count @ 1..) = store["quarantined"].as_u64() {
        report.warning(
            format!("{count} chunks were set aside since they failed a check"),
            "look at the disk's health; store check, with the proxy stopped, reads everything",
        );
    }
}

/// The store's folder, or the nearest above it that is there.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|folder| folder.is_dir()).map(Path::to_path_buf)
}

/// Free bytes of the disk.
fn space(report: &mut Report, store: &Store, folder: &Path, taken: u64) -> Option<u64> {
    let disk = match statvfs(folder) {
        Ok(disk) => disk,
        Err(error) => {
            report.untested(format!("free space of {}: {error}", folder.display()), "");
            return None;
        }
    };
    // The two have other types on other systems.
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "their types differ between systems"
    )]
    let free = disk.blocks_available() as u64 * disk.fragment_size() as u64;
    let (size, reserve) = (store.size.bytes(), store.reserve.bytes());
    let wanted = size.saturating_sub(taken).saturating_add(reserve);
    let text = format!("{} free in {}", bytes(free as f64), folder.display());
    if free < reserve {
        let text = format!("{text}, less than store.reserve ({}): nothing new is learned", store.reserve);
        report.failure(text, "make room, or lower store.reserve");
    } else if free < wanted {
        let text = format!(
            "{text}, not enough for store.size = {} and store.reserve = {}",
            store.size, store.reserve
        );
        report.warning(text, "make room, or lower store.size");
    } else {
        report.fine(format!("{text}, enough for store.size = {}", store.size));
    }
    Some(free)
}

fn rate(report: &mut Report, folder: &Path, speed: &Speed) {
    let text = format!("writes {} a second in {}", bytes(speed.write), folder.display());
    if speed.write < WRITE_RATE_MIN {
        report.warning(
            text,
            "put the store on a faster disk: new content crosses the pair no faster than that",
        );
    } else {
        report.fine(text);
    }
    let text = format!("reads {} kB at a random place in {:.2} ms", READ_BYTES >> 10, speed.read * 1e3);
    if speed.read > READ_SECONDS_MAX {
        report.warning(
            text,
            "put the store on a solid-state disk: content that comes again waits for such reads",
        );
    } else {
        report.fine(text);
    }
}

/// Writes and reads a file that has no name and is gone with this process.
fn measure(folder: &Path) -> io::Result<Speed> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut block = vec![0; BLOCK_BYTES];
    // Random, so that no file system compresses it away.
    getrandom::fill(&mut block).map_err(io::Error::other)?;
    let start = Instant::now();
    for _ in 0..TEST_BYTES / BLOCK_BYTES as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let write = TEST_BYTES as f64 / start.elapsed().as_secs_f64().max(1e-9);
    let read = read_seconds(&file)?;
    Ok(Speed { write, read })
}

/// Seconds for a read at a random place, with the kernel's cache of the file dropped first.
fn read_seconds(file: &File) -> io::Result<f64> {
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    // Without this the first read would bring the rest.
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    let mut buffer = vec![0; READ_BYTES];
    let places = TEST_BYTES / READ_BYTES as u64;
    let start = Instant::now();
    for number in 0..READS {
        // A step that has no divisor in common with the number of places visits them in a scattered order.
        file.read_exact_at(&mut buffer, (number * 1_009) % places * READ_BYTES as u64)?;
    }
    Ok(start.elapsed().as_secs_f64() / READS as f64)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;
    use isthmus_config::Size;

    fn section(path: PathBuf, size: u64) -> Store {
        let key_file = path.with_extension("key");
        let (size, cache) = (Size::from_gib(size), Size::from_mib(1));
        Store { path, size, encryption: true, key_file, cache, reserve: Size::from_bytes(0) }
    }

    #[test]
    fn the_disk_is_measured_leaves_nothing_and_a_store_that_does_not_fit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Report::default();
        store(&mut report, &section(folder.path().join("not/yet"), 1), &Err(String::new()), true);
        assert!(report.findings.iter().any(|finding| finding.text.starts_with("writes ")), "{report:?}");
        assert!(report.findings.iter().any(|finding| finding.text.starts_with("reads 16 kB")), "{report:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut report = Report::default();
        store(&mut report, &section(folder.path().to_owned(), 16 << 10), &Err(String::new()), false);
        assert_eq!(report.findings[0].outcome, Outcome::Warning, "{report:?}");
        assert_eq!(report.findings[1].outcome, Outcome::Untested, "{report:?}");
    }
}
