//! `cargo xtask bench`: every figure beside the best open pair and the goal.

mod clients;
mod corpora;
mod echo;
mod figures;
mod idle;
mod mixed;
mod parallel;
mod report;
mod share;
mod store;

pub use store::{StoreArguments, measure_store};

use crate::cargo::{build_proxies, cargo, run as run_cargo, target_folder};
use crate::packages;
use crate::progress::Progress;
use figures::FIGURES;
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
    cache: PathBuf,
    progress: Progress,
    notes: Vec<String>,
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
    Group { name: "edits", measure: corpora::measure_edits },
    Group { name: "corpus", measure: corpora::measure_folders },
    Group { name: "store", measure: store::measure },
    Group { name: "clients", measure: clients::measure },
];

/// Measures and prints.
///
/// # Errors
/// A measurement could not be made; those that could are printed and written all the same.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        FIGURES.iter().for_each(|figure| println!("{:<20} {}", figure.name, figure.what));
        println!("{:<20} smbclient and the kernel's client at 236 ms, beside published figures", "clients");
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
        options: PairOptions::default(),
        only: arguments.only.clone(),
        cache: target_folder().join("bench"),
        progress,
        notes: Vec::new(),
    };
    let (values, failures) = measure_groups(arguments, &mut context)?;
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

fn measure_groups(arguments: &Arguments, context: &mut Context) -> Result<(Values, Vec<String>)> {
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
    let mut failures = Vec::new();
    for group in wanted {
        context.progress.step(&format!("measuring {}", group.name));
        match (group.measure)(context) {
            Ok(measured) => values.extend(measured),
            Err(error) => {
                context.progress.step(&format!("{} could not be measured: {error}", group.name));
                failures.push(group.name.to_string());
            }
        }
    }
    Ok((values, failures))
}

fn run_optimised() -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--package", "xtask", "--"]);
    command.args(std::env::args_os().skip(1));
    run_cargo(&mut command)
}

impl Context {
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
        for figure in FIGURES {
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
