//! `store …`: looks at a chunk store that no proxy has open.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use isthmus_config::Store;
use isthmus_store::offline::{self, CheckReport, OfflineStats};
use isthmus_store::{OpenError, StoreKey};

use super::exit::{Exit, Failure};
use super::output::outln;
use super::status::{bytes, span};

/// Most damages that are printed for people; `--json` has all that were listed.
const DAMAGES_SHOWN_MAX: usize = 50;

#[derive(Subcommand, Debug)]
pub enum Command<C: Args> {
    /// Read everything in the store and verify it
    Check {
        #[command(flatten)]
        configuration: C,
        /// Set damaged records aside; good content is kept
        #[arg(long)]
        repair: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Sum the store up
    Stats {
        #[command(flatten)]
        configuration: C,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace the store key by a new one; the content stays
    Rekey {
        #[command(flatten)]
        configuration: C,
    },
}

impl<C: Args> Command<C> {
    /// The configuration that names the store.
    pub fn configuration(&self) -> &C {
        match self {
            Command::Check { configuration, .. }
            | Command::Stats { configuration, .. }
            | Command::Rekey { configuration } => configuration,
        }
    }
}

/// Carries out the command on the store that the configuration names.
pub fn run<C: Args>(command: &Command<C>, store: &Store) -> Result<(), Failure> {
    if !store.path.is_dir() {
        let text = format!("there is no store in {}", store.path.display());
        return Err(Failure::new(Exit::NoInput, text));
    }
    match command {
        Command::Check { repair, json, .. } => check(store, *repair, *json),
        Command::Stats { json, .. } => stats(store, *json),
        Command::Rekey { .. } => rekey(store),
    }
}

fn check(store: &Store, repair: bool, json: bool) -> Result<(), Failure> {
    let report = offline::check(&store.path, key(&store.key_file)?.as_ref(), repair)?;
    if json {
        outln!("{:#}", check_json(&report));
    } else {
        print_check(&report)?;
    }
    let repaired = report.damages.iter().all(|damage| damage.repaired);
    if report.damages_total == 0 || (repaired && report.damages.len() as u64 == report.damages_total) {
        return Ok(());
    }
    let hint =
        if repair { "not all of it could be repaired" } else { "\"store check --repair\" sets it aside" };
    Err(Failure::new(Exit::Data, format!("the store is damaged in {} places; {hint}", report.damages_total)))
}

fn print_check(report: &CheckReport) -> Result<(), Failure> {
    outln!(
        "{} segments, {} records, {} chunks, {} of content read and verified",
        report.segments,
        report.records,
        report.chunks,
        bytes(report.bytes as f64)
    );
    if report.unsealed > 0 {
        outln!("{} segments were not sealed: their process was killed. That is no damage.", report.unsealed);
    }
    if report.quarantined > 0 {
        outln!("{} records had been set aside before", report.quarantined);
    }
    for damage in report.damages.iter().take(DAMAGES_SHOWN_MAX) {
        outln!("damaged: {}{}", damage.at, if damage.repaired { " (repaired)" } else { "" });
    }
    let shown = report.damages.len().min(DAMAGES_SHOWN_MAX) as u64;
    if report.damages_total > shown {
        outln!("damaged: {} more places", report.damages_total - shown);
    }
    if report.damages_total == 0 {
        outln!("no damage");
    }
    Ok(())
}

fn check_json(report: &CheckReport) -> serde_json::Value {
    let damages: Vec<_> = report
        .damages
        .iter()
        .map(|damage| {
            serde_json::json!({
                "file": damage.at.file.to_string_lossy(),
                "offset": damage.at.offset,
                "what": damage.at.what,
                "repaired": damage.repaired,
            })
        })
        .collect();
    serde_json::json!({
        "segments": report.segments,
        "unsealed_segments": report.unsealed,
        "records": report.records,
        "chunks": report.chunks,
        "notes": report.notes,
        "bytes": report.bytes,
        "quarantined_records": report.quarantined,
        "damages_total": report.damages_total,
        "damages": damages,
    })
}

fn stats(store: &Store, json: bool) -> Result<(), Failure> {
    let stats = offline::stats(&store.path, key(&store.key_file)?.as_ref())?;
    if json {
        outln!("{:#}", stats_json(&stats, store));
    } else {
        print_stats(&stats, store)?;
    }
    Ok(())
}

fn print_stats(stats: &OfflineStats, store: &Store) -> Result<(), Failure> {
    let identity =
        stats.identity.map_or_else(|| "none (not readable)".into(), |identity| identity.to_string());
    let share = stats.disk_bytes as f64 / store.size.bytes().max(1) as f64 * 100.0;
    outln!("store       {}", store.path.display());
    outln!("identity    {identity}, opened {} times", stats.generation);
    outln!(
        "on disk     {} of {} ({share:.1} %)",
        bytes(stats.disk_bytes as f64),
        bytes(store.size.bytes() as f64)
    );
    outln!(
        "content     {} in {} chunks, {} records",
        bytes(stats.live_bytes as f64),
        stats.chunks,
        stats.records
    );
    outln!("segments    {}, {} of them encrypted", stats.segments, stats.encrypted_segments);
    if stats.unreadable_segments > 0 {
        outln!("unreadable  {} segments (no key, another key, or damage)", stats.unreadable_segments);
    }
    if let Some(oldest) = stats.oldest_s {
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(oldest);
        let age = SystemTime::now().duration_since(made).unwrap_or_default();
        outln!("oldest      {} ago", span(age.as_secs_f64()));
    }
    Ok(())
}

fn stats_json(stats: &OfflineStats, store: &Store) -> serde_json::Value {
    serde_json::json!({
        "path": store.path.to_string_lossy(),
        "identity": stats.identity.map(|identity| identity.to_string()),
        "generation": stats.generation,
        "size_bytes": store.size.bytes(),
        "disk_bytes": stats.disk_bytes,
        "live_bytes": stats.live_bytes,
        "segments": stats.segments,
        "encrypted_segments": stats.encrypted_segments,
        "unreadable_segments": stats.unreadable_segments,
        "records": stats.records,
        "chunks": stats.chunks,
        "notes": stats.notes,
        "oldest_unix_seconds": stats.oldest_s,
    })
}

/// The new key lies beside the old one until the store knows it, so that at every moment one of the two opens the store;
/// run again after an interruption, this goes on where it stopped.
fn rekey(store: &Store) -> Result<(), Failure> {
    let mut beside = store.key_file.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let old = StoreKey::load(&store.key_file)?;
    let new = StoreKey::load_or_create(&beside)?;
    let changed = match offline::rekey(&store.path, &old, &new) {
        // Interrupted after the store had taken the new key: only the file's name was left to change.
        Err(OpenError::WrongKey { .. }) => offline::rekey(&store.path, &new, &new)?,
        other => other?,
    };
    std::fs::rename(&beside, &store.key_file).map_err(|error| {
        let text =
            format!("{}: {error}; the store's key is in {}", store.key_file.display(), beside.display());
        Failure::new(Exit::of(error.kind()), text)
    })?;
    outln!("The store has a new key in {}; {changed} segments were changed.", store.key_file.display());
    Ok(())
}

/// The store key; `None` if there is no key file, which is right for a store that was never encrypted.
fn key(path: &Path) -> Result<Option<StoreKey>, Failure> {
    match StoreKey::load(path) {
        Ok(key) => Ok(Some(key)),
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
