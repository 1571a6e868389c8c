//! The rows of the table: what is done.

use super::office::office_command;
use super::site::{MOUNTED, Site};
use isthmus_lab::corpus::{FileSpec, ordinary_folder, random_bytes, write_folder};
use isthmus_lab::smb::{KernelClient, compare_folders};
use isthmus_lab::{LabError, Result};
use std::path::Path;

/// Seed of the folder.
const FOLDER_SEED: u64 = 200;

/// Files of the folder, for round trips per file.
pub const FOLDER_FILES: usize = 200;

/// Bytes of the large file.
const LARGE_BYTES: usize = 100_000_000;

/// Bytes of the office document, and of the larger one.
const TEN_BYTES: usize = 10_000_000;
const WORD_BYTES: usize = 99_500_000;

/// Readers at once, and what each reads.
const STREAMS: usize = 8;
const STREAM_BYTES: usize = 12_500_000;

/// Number of passes; work that changes a file finds one of its own for each.
const PASSES: usize = 4;

/// What a document is saved as: the same in every pass.
const SAVED: &str = "saved";

const FOLDER: &str = "f200";
const LARGE: &str = "big.pdf";

/// One row.
pub struct Row {
    /// Its name; `--only accel.NAME` selects it.
    pub name: &'static str,
    /// The figures of its cold and its warm pass.
    pub cold: &'static str,
    pub warm: &'static str,
    /// Figures that are derived from it.
    pub derived: &'static [&'static str],
    /// What is done.
    pub what: &'static str,
    /// Whether the kernel's client does it.
    pub with_kernel: bool,
    /// Whether the pair must not slow it down on a near link.
    pub is_near: bool,
    /// Further settings of both proxies.
    pub settings: &'static [&'static str],
    /// Seconds of the same work on the same link without the pair, from an earlier careful measurement.
    pub known_baseline_s: Option<f64>,
    /// Puts what is needed on the share.
    pub prepare: fn(&Site<'_>) -> Result<()>,
    /// Does it, compares what arrived, and returns the seconds of the work alone.
    pub work: fn(&Site<'_>) -> Result<f64>,
}

/// All rows that take seconds or minutes.
pub const ROWS: &[Row] = &[
    Row {
        name: "mget",
        cold: "accel.mget_cold",
        warm: "accel.mget_warm",
        derived: &[],
        what: "smbclient mget of 200 files, 19.7 MB",
        with_kernel: false,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(202.28),
        prepare: store_folder,
        work: mget,
    },
    Row {
        name: "tree_down",
        cold: "accel.tree_down_cold",
        warm: "accel.tree_down_warm",
        derived: &["accel.rtt_file", "accel.rtt_file_warm"],
        what: "kernel cp -r of 200 files down",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(229.13),
        prepare: store_folder,
        work: tree_down,
    },
    Row {
        name: "tree_up",
        cold: "accel.tree_up_cold",
        warm: "accel.tree_up_warm",
        derived: &[],
        what: "kernel cp -r of 200 files up",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(169.22),
        prepare: store_folder,
        work: tree_up,
    },
    Row {
        name: "tree_up_early",
        cold: "accel.tree_up_early",
        warm: "accel.tree_up_early_warm",
        derived: &[],
        what: "the same with early close",
        with_kernel: true,
        is_near: false,
        settings: &["smb.early_close=true"],
        known_baseline_s: Some(169.22),
        prepare: store_folder,
        work: tree_up,
    },
    Row {
        name: "pdf_down",
        cold: "accel.pdf_down_cold",
        warm: "accel.pdf_down_warm",
        derived: &[],
        what: "kernel cp of 100 MB down",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(30.76),
        prepare: store_large,
        work: large_down,
    },
    Row {
        name: "pdf_up",
        cold: "accel.pdf_up_cold",
        warm: "accel.pdf_up_warm",
        derived: &[],
        what: "kernel cp of 100 MB up",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(12.71),
        prepare: store_large,
        work: large_up,
    },
    Row {
        name: "stat",
        cold: "accel.stat",
        warm: "accel.stat_warm",
        derived: &[],
        what: "kernel find | xargs stat, 200 files",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(60.11),
        prepare: store_folder,
        work: stat,
    },
    Row {
        name: "ls",
        cold: "accel.ls",
        warm: "accel.ls_warm",
        derived: &[],
        what: "kernel ls -lR, 200 files",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(1.63),
        prepare: store_folder,
        work: list,
    },
    Row {
        name: "open",
        cold: "accel.open",
        warm: "accel.open_warm",
        derived: &[],
        what: "kernel, office document of 10 MB: open",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(6.85),
        prepare: |site| store_documents(site, TEN_BYTES),
        work: open,
    },
    Row {
        name: "save",
        cold: "accel.save",
        warm: "accel.save_warm",
        derived: &[],
        what: "the same: save",
        with_kernel: true,
        is_near: true,
        settings: &[],
        known_baseline_s: Some(5.62),
        prepare: |site| store_documents(site, TEN_BYTES),
        work: save,
    },
    Row {
        name: "word_open",
        cold: "accel.word_open_cold",
        warm: "accel.word_open",
        derived: &[],
        what: "kernel, document of 99.5 MB: open",
        with_kernel: true,
        is_near: false,
        settings: &[],
        known_baseline_s: None,
        prepare: |site| store_documents(site, WORD_BYTES),
        work: open,
    },
    Row {
        name: "word_save",
        cold: "accel.word_save_cold",
        warm: "accel.word_save",
        derived: &[],
        what: "the same: save",
        with_kernel: true,
        is_near: false,
        settings: &[],
        known_baseline_s: None,
        prepare: |site| store_documents(site, WORD_BYTES),
        work: save,
    },
];

/// Eight readers at once; its figure is a share of the floor.
pub const EIGHT_STREAMS: Row = Row {
    name: "local_share",
    cold: "accel.local_share_cold_s",
    warm: "accel.local_share",
    derived: &[],
    what: "kernel, 8 files of 12.5 MB at once",
    with_kernel: true,
    is_near: false,
    settings: &[],
    known_baseline_s: None,
    prepare: store_streams,
    work: eight_streams,
};

/// The folder of 200 files.
pub fn store_folder(site: &Site<'_>) -> Result<()> {
    site.store(FOLDER, &ordinary_folder(FOLDER_SEED))
}

fn store_large(site: &Site<'_>) -> Result<()> {
    let file = FileSpec { path: LARGE.into(), content: random_bytes(LARGE_BYTES, 100) };
    site.store("", &[file])
}

fn mget(site: &Site<'_>) -> Result<f64> {
    let arrived = site.local(&format!("arrived{}", site.pass));
    std::fs::create_dir(&arrived)
        .map_err(|source| LabError::Io { action: format!("making {}", arrived.display()), source })?;
    let time = site.smbclient()?.get_folder(FOLDER, &arrived)?;
    compare_folders(&site.local(FOLDER), &arrived)?;
    Ok(time.as_secs_f64())
}

fn tree_down(site: &Site<'_>) -> Result<f64> {
    let copy = KernelClient::timed(&format!("cp -r {MOUNTED}/{FOLDER} /mnt/arrived"));
    site.kernel("", &format!("{copy}diff -r '{}' /mnt/arrived", site.local(FOLDER).display()))
}

fn tree_up(site: &Site<'_>) -> Result<f64> {
    let target = format!("up{}", site.pass);
    let before = format!("cp -r '{}' /mnt/local", site.local(FOLDER).display());
    let seconds =
        site.kernel(&before, &KernelClient::timed(&format!("cp -r /mnt/local {MOUNTED}/{target}")))?;
    compare_folders(&site.local(FOLDER), &site.remote(&target))?;
    Ok(seconds)
}

fn large_down(site: &Site<'_>) -> Result<f64> {
    let copy = KernelClient::timed(&format!("cp {MOUNTED}/{LARGE} /mnt/arrived"));
    site.kernel("", &format!("{copy}cmp '{}' /mnt/arrived", site.local(LARGE).display()))
}

fn large_up(site: &Site<'_>) -> Result<f64> {
    let target = format!("up{}.pdf", site.pass);
    let before = format!("cp '{}' /mnt/local", site.local(LARGE).display());
    let seconds = site.kernel(&before, &KernelClient::timed(&format!("cp /mnt/local {MOUNTED}/{target}")))?;
    compare_files(&site.local(LARGE), &site.remote(&target))?;
    Ok(seconds)
}

fn store_streams(site: &Site<'_>) -> Result<()> {
    let stream = |number: usize| FileSpec {
        path: format!("stream{number}"),
        content: random_bytes(STREAM_BYTES, 300 + number as u64),
    };
    site.store("streams", &(0..STREAMS).map(stream).collect::<Vec<_>>())
}

fn eight_streams(site: &Site<'_>) -> Result<f64> {
    let copies = format!(
        "for number in $(seq 0 {}); do cp {MOUNTED}/streams/stream$number /mnt/arrived/ & done; wait",
        STREAMS - 1
    );
    let work = KernelClient::timed(&copies);
    site.kernel(
        "mkdir /mnt/arrived",
        &format!("{work}diff -r '{}' /mnt/arrived", site.local("streams").display()),
    )
}

/// A walk of the folder of which nothing is read.
pub fn walk(site: &Site<'_>) -> Result<f64> {
    Ok(list(site)? + stat(site)?)
}

fn stat(site: &Site<'_>) -> Result<f64> {
    let work = KernelClient::timed(&format!(
        "find {MOUNTED}/{FOLDER} -print0 | xargs -0 stat -c '%s %n' > /mnt/out"
    ));
    // The folder itself is in the list too.
    site.kernel("", &format!("{work}test $(wc -l < /mnt/out) = {}", FOLDER_FILES + 1))
}

fn list(site: &Site<'_>) -> Result<f64> {
    let work = KernelClient::timed(&format!("ls -lR {MOUNTED}/{FOLDER} > /mnt/out"));
    site.kernel("", &format!("{work}test $(grep -c '^-' /mnt/out) = {FOLDER_FILES}"))
}

/// A document for each pass, all alike, and what they are saved as.
fn store_documents(site: &Site<'_>, bytes: usize) -> Result<()> {
    let content = random_bytes(bytes, 10);
    let document = |pass| FileSpec { path: document(pass), content: content.clone() };
    let documents: Vec<FileSpec> = (0..PASSES).map(document).collect();
    site.store("", &documents)?;
    let saved = FileSpec { path: SAVED.into(), content: random_bytes(bytes, 11) };
    write_folder(&site.local(""), &[saved]).map(drop)
}

fn document(pass: usize) -> String {
    format!("report{pass}.docx")
}

fn open(site: &Site<'_>) -> Result<f64> {
    // All passes open the same one.
    let name = document(0);
    let before = format!("cp '{}' /mnt/content", site.local(&name).display());
    site.kernel(&before, &office_command("open", &format!("{MOUNTED}/{name}"), "/mnt/content")?)
}

fn save(site: &Site<'_>) -> Result<f64> {
    let name = document(site.pass);
    let before = format!("cp '{}' /mnt/content", site.local(SAVED).display());
    let work = office_command("save", &format!("{MOUNTED}/{name}"), "/mnt/content")?;
    let seconds = site.kernel(&before, &work)?;
    compare_files(&site.local(SAVED), &site.remote(&name))?;
    Ok(seconds)
}

fn compare_files(expected: &Path, got: &Path) -> Result<()> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|source| LabError::Io { action: format!("reading {}", path.display()), source })
    };
    if read(expected)? == read(got)? {
        return Ok(());
    }
    let detail = "the bytes that arrived differ".to_string();
    Err(LabError::Mismatch { what: got.display().to_string(), detail })
}
