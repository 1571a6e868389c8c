//! The store at size: memory, opening, lookups.

use super::{Context, Values, median};
use isthmus_lab::{LabError, Place, Result, Scratch, proc};
use isthmus_reduction::content::Addr;
use isthmus_reduction::ledger::{Ledger, Name};
use isthmus_reduction::similar::{SLOTS_MAX, Similar};
use isthmus_types::RecordingId;
use std::path::PathBuf;

/// Chunks in the store.
const CHUNKS: u64 = 5_000_000;

/// Arguments of the hidden command that measures.
#[derive(clap::Args)]
pub struct StoreArguments {
    /// Folder for the store
    #[arg(long)]
    folder: PathBuf,
    /// Chunks in it
    #[arg(long, default_value_t = CHUNKS)]
    chunks: u64,
}

/// All figures of the group. Each repetition is a process of its own, since memory that another measurement has used
/// and given back would hide what the store takes.
pub fn measure(context: &mut Context) -> Result<Values> {
    let program = std::env::current_exe()
        .map_err(|source| LabError::Io { action: "finding this program".into(), source })?;
    let names = ["store.mb", "store.open", "store.lookup"];
    let mut columns = [Vec::new(), Vec::new(), Vec::new()];
    for number in 1..=context.repetitions {
        context.progress.status(&format!("store, run {number}"));
        let scratch = Scratch::new("store")?;
        let folder = scratch.join("store").display().to_string();
        let program = program.display().to_string();
        let printed = proc::run(&Place::Local, &[&program, "measure-store", "--folder", &folder])?;
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if numbers.len() != columns.len() {
            return Err(LabError::Format { what: "the store's measurement".into(), detail: printed });
        }
        context.progress.step(&format!(
            "run {number}: {:.1} MB, opened in {:.2} s, {:.3} µs a lookup",
            numbers[0], numbers[1], numbers[2]
        ));
        columns.iter_mut().zip(&numbers).for_each(|(column, number)| column.push(*number));
    }
    Ok(names.iter().zip(&columns).map(|(name, column)| ((*name).to_string(), median(column))).collect())
}

/// Measures once and prints megabytes, seconds and microseconds. The megabytes are the store's own, and those of what
/// the reduction core keeps beside it: the ledger of a peer that has exchanged all of it, and a full table of delta
/// features.
///
/// # Errors
/// The store cannot be made or opened.
pub fn measure_store(arguments: &StoreArguments) -> Result<()> {
    let report = isthmus_store::scale::measure(&arguments.folder, arguments.chunks)
        .map_err(|error| LabError::Format { what: "the store".into(), detail: error.to_string() })?;
    let before = resident_mb()?;
    let ledger = ledger_of(arguments.chunks);
    let similar = full_table();
    let beside = resident_mb()? - before;
    let (recordings, extents, names) = ledger.size();
    eprintln!(
        "store {:.1} MB; beside it {beside:.1} MB: {recordings} recordings, {extents} extents, {names} names, {} MB of features",
        report.mb,
        similar.memory_bytes() >> 20,
    );
    println!("{} {} {}", report.mb + beside, report.open_s, report.lookup_us);
    Ok(())
}

/// Mean chunk and usual record, in bytes.
const CHUNK_BYTES: u64 = 8 << 10;
const RECORD_BYTES: u64 = 128 << 10;
/// Records of one recording in a row: a gigabyte of one connection.
const RECORDS_PER_RECORDING: u64 = 8 << 10;

/// A ledger that names all of the store, in the form that takes most memory: two connections at a time, whose records
/// take turns, so that no two extents can be joined.
fn ledger_of(chunks: u64) -> Ledger {
    let ledger = Ledger::new();
    let records = chunks * CHUNK_BYTES / RECORD_BYTES;
    for record in 0..records {
        let pair = record / (2 * RECORDS_PER_RECORDING);
        let recording = RecordingId(pair * 2 + record % 2);
        let position = (record / 2 % RECORDS_PER_RECORDING) * RECORD_BYTES;
        if position == 0 {
            ledger.begin(recording);
        }
        ledger.add(Name { recording, position }, Addr(record * RECORD_BYTES), RECORD_BYTES, true);
    }
    ledger
}

fn full_table() -> Similar {
    let similar = Similar::new(SLOTS_MAX);
    let mut state = 1u64;
    for chunk in 0..SLOTS_MAX as u64 / 4 {
        let features = std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        });
        similar.insert(&features, Addr(chunk * CHUNK_BYTES));
    }
    similar
}

fn resident_mb() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")
        .map_err(|source| LabError::Io { action: "reading this process's memory".into(), source })?;
    let pages: f64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    Ok(pages * 4096.0 / 1e6)
}
