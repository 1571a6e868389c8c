//! The store at size: memory, opening, lookups.

use super::{Context, Values, median};
use isthmus_lab::{LabError, Place, Result, Scratch, proc};
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

/// Measures once and prints megabytes, seconds and microseconds.
///
/// # Errors
/// The store cannot be made or opened.
pub fn measure_store(arguments: &StoreArguments) -> Result<()> {
    let report = isthmus_store::scale::measure(&arguments.folder, arguments.chunks)
        .map_err(|error| LabError::Format { what: "the store".into(), detail: error.to_string() })?;
    println!("{} {} {}", report.mb, report.open_s, report.lookup_us);
    Ok(())
}
