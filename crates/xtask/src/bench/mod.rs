//! `cargo xtask bench`: every figure beside the best open pair and the goal.

mod accel;
mod clients;
mod corpora;
mod echo;
mod figures;
mod idle;
mod mixed;
mod parallel;
mod passthrough;
mod report;
mod share;
mod smb;
mod store;
mod warm;

pub use accel::{OfficeArguments, run_office};
pub use store::{StoreArguments, measure_store};

use crate::cargo::{build_proxies, cargo, run as run_cargo, target_folder};
use crate::packages;
use crate::progress::Progress;
use figures::all_figures;
use isthmus_lab::pair::{Binaries, PairOptions};
use isthmus_lab::{LabError, Level, Result, cleanup};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Values by the names of their figures.
pub type Values = BTreeMap<String, f64>;

/// Runs of which the median counts.
const REPETITIONS: usize = 5;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only this group, or the group of this figure (may be repeated); of the clients' table, only lines that start so
    #[arg(long)]
    only: Vec<String>,
    /// Runs of which the median counts
    #[arg(long, default_value_t = REPETITIONS)]
    repetitions: usize,
    /// Use the relay-level emulator even as root
    #[arg(long)]
    relay: bool,
    /// Also what takes hours, in the group `accel`
    #[arg(long)]
    full: bool,
    /// Do not measure what takes minutes without the pair in the group `accel`; known figures are printed instead
    #[arg(long)]
    no_baseline: bool,
    /// A further setting of the client-side proxy, as `key.path=value` (may be repeated)
    #[arg(long)]
    client_set: Vec<String>,
    /// A further setting of the server-side proxy
    #[arg(long)]
    server_set: Vec<String>,
    /// Print the list of figures and groups and measure nothing
    #[arg(long)]
    list: bool,
}

/// What every measurement needs.
pub struct Context {
    binaries: Binaries,
    level: Level,
    repetitions: usize,
    options: PairOptions,
    only: Vec<String>,
    is_full: bool,
    has_baseline: bool,
    cache: PathBuf,
    progress: Progress,
    notes: Vec<String>,
    failures: Vec<String>,
}

/// Measurements that are made together.
struct Group {
    name: &'static str,
    measure: fn(&mut Context) -> Result<Values>,
}

const GROUPS: &[Group] = &[
    Group { name: "mixed", measure: mixed::measure },
    Group { name: "echo", measure: echo::measure },
    Group { name: "parallel", measure: parallel::measure },
    Group { name: "random", measure: share::measure },
    Group { name: "idle", measure: idle::measure },
    Group { name: "passthrough", measure: passthrough::measure },
    Group { name: "edits", measure: corpora::measure_edits },
    Group { name: "corpus", measure: corpora::measure_folders },
    Group { name: "store", measure: store::measure },
    Group { name: "smb", measure: smb::measure },
    Group { name: "warm", measure: warm::measure },
    Group { name: "accel", measure: accel::measure },
    Group { name: "clients", measure: clients::measure },
];

/// Measures and prints.
///
/// # Errors
/// A measurement could not be made; those that could are printed and written all the same.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        all_figures().for_each(|figure| println!("{:<24} {}", figure.name, figure.what));
        println!("{:<24} smbclient and the kernel's client at 236 ms, beside published figures", "clients");
        return Ok(());
    }
    cleanup::on_interrupt()?;
    if cfg!(debug_assertions) {
        // The tools must not be what is measured, so everything is measured by an optimised build of this program.
        return run_optimised();
    }
    let mut progress = Progress::new();
    packages::ensure(&[packages::DEMO, packages::BENCH], &mut progress)?;
    progress.step("building the proxies");
    let mut context = Context {
        binaries: build_proxies("release")?,
        level: if arguments.relay { Level::Relay } else { Level::best() },
        repetitions: arguments.repetitions.max(1),
        options: PairOptions {
            client_set: arguments.client_set.clone(),
            server_set: arguments.server_set.clone(),
            ..PairOptions::default()
        },
        only: arguments.only.clone(),
        is_full: arguments.full,
        has_baseline: !arguments.no_baseline,
        cache: target_folder().join("bench"),
        progress,
        notes: Vec::new(),
        failures: Vec::new(),
    };
    let values = measure_groups(arguments, &mut context)?;
    let failures = context.failures;
    context.progress.clear();
    report::print(&values, &context.notes);
    if let Some(path) = &arguments.json {
        report::write_json(path, &values)?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    let what = "part of the benchmark".to_string();
    Err(LabError::Unavailable {
        what,
        remedy: format!("{} could not be measured, see above", failures.join(", ")),
    })
}

fn measure_groups(arguments: &Arguments, context: &mut Context) -> Result<Values> {
    let is_wanted = |group: &Group| {
        let starts = |only: &String| only.split('.').next() == Some(group.name);
        arguments.only.is_empty() || arguments.only.iter().any(starts)
    };
    let wanted: Vec<&Group> = GROUPS.iter().filter(|group| is_wanted(group)).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        let detail = format!("it is none of {}", names.join(", "));
        return Err(LabError::Format { what: "the group to measure".into(), detail });
    }
    let mut values = Values::new();
    for group in wanted {
        context.progress.step(&format!("measuring {}", group.name));
        match (group.measure)(context) {
            Ok(measured) => values.extend(measured),
            Err(error) => context.fail(group.name, &error),
        }
    }
    Ok(values)
}

fn run_optimised() -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    command.args(std::env::args_os().skip(1));
    run_cargo(&mut command)
}

impl Context {
    /// Says that something could not be measured; the rest goes on.
    fn fail(&mut self, name: &str, error: &LabError) {
        self.progress.step(&format!("{name} could not be measured: {error}"));
        self.failures.push(name.to_string());
    }

    /// Says something that belongs beside the figures.
    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// The middle of the values (the lower one of an even number).
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_group_that_measures_it() {
        for figure in all_figures() {
            assert!(
                GROUPS.iter().any(|group| figure.name.split('.').next() == Some(group.name)),
                "{}",
                figure.name
            );
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0]), 1.0);
        assert!(median(&[]).is_nan());
    }
}
