//! `cargo xtask interop`: real SMB clients and Samba's own test suite, directly and through the pair.

mod large;
mod matrix;
mod report;
mod soak;
mod torture;

use crate::cargo::{build_proxies, target_folder};
use crate::packages;
use crate::progress::Progress;
use isthmus_lab::pair::{Binaries, KeyOptions, PairOptions};
use isthmus_lab::smb::{NewerSamba, Samba};
use isthmus_lab::{LabError, Result, WanLab, cleanup};
use report::Part;
use std::path::PathBuf;

/// Arguments of `cargo xtask interop`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Everything: all suites, also at 20 ms, and the long soak (hours)
    #[arg(long)]
    full: bool,
    /// Write all results to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only what begins so, such as `torture`, `torture.gcm-3.1.1`, `torture.gcm-3.1.1.0ms.smb2.lock` (may be repeated)
    #[arg(long)]
    only: Vec<String>,
    /// Give the pair no keys: then it relays what it cannot read, and must be just as invisible
    #[arg(long)]
    plain: bool,
}

/// What every part needs.
pub struct Context {
    binaries: Binaries,
    is_full: bool,
    is_plain: bool,
    only: Vec<String>,
    progress: Progress,
}

/// Runs all parts and prints what was found.
///
/// # Errors
/// Something that works directly does not work through the pair, or a part could not be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    cleanup::on_interrupt()?;
    WanLab::available()?;
    let mut progress = Progress::new();
    packages::ensure(&[packages::DEMO], &mut progress)?;
    packages::ensure_if_possible(&[packages::BENCH, packages::INTEROP], &mut progress);
    progress.step("building the proxies");
    let mut context = Context {
        binaries: build_proxies("test")?,
        is_full: arguments.full,
        is_plain: arguments.plain,
        only: arguments.only.clone(),
        progress,
    };
    let mut parts = Vec::new();
    if context.is_wanted("matrix") {
        parts.extend(matrix::run(&mut context));
    }
    if context.is_wanted("torture") {
        parts.extend(torture::run(&mut context));
    }
    if context.is_wanted("large") && context.is_asked_for("large") {
        parts.push(large::run(&mut context));
    }
    if context.is_wanted("soak") {
        parts.push(soak::run(&mut context));
    }
    if parts.is_empty() {
        let detail = format!("nothing begins with {}", context.only.join(" or "));
        return Err(LabError::Format { what: "the part to run".into(), detail });
    }
    context.progress.clear();
    report::print(&parts);
    if let Some(path) = &arguments.json {
        report::write_json(path, &parts)?;
    }
    let failed: usize = parts.iter().map(|part| part.failures.len()).sum();
    if failed == 0 {
        return Ok(());
    }
    let detail = format!("{failed} differences between direct and through the pair, named above");
    Err(LabError::Mismatch { what: "interop".into(), detail })
}

impl Context {
    /// Whether the user wants something of this: it begins with a given name, or a given name begins with it.
    fn is_wanted(&self, name: &str) -> bool {
        is_selected(&self.only, name)
    }

    /// Whether something that takes long is to be run: in a full run, or because it was named.
    fn is_asked_for(&self, name: &str) -> bool {
        self.is_full || self.only.iter().any(|only| only.starts_with(name))
    }

    /// A newer Samba than the system's, which is fetched at the first time.
    fn newer_samba(&mut self) -> Result<NewerSamba> {
        let newer = NewerSamba::fetch(&target_folder().join("interop/samba"))?;
        self.progress.step(&format!("  Samba: {}", newer.version()?));
        Ok(newer)
    }

    /// Settings of the pair, with the keys of these servers unless it is to have none.
    fn pair_options(&self, servers: &[&Samba]) -> PairOptions {
        let hashes = servers.iter().map(|samba| samba.password_hashes()).collect();
        let keys = KeyOptions { password_hashes: hashes, keytabs: Vec::new() };
        PairOptions { keys: (!self.is_plain).then_some(keys), ..PairOptions::default() }
    }
}

fn is_selected(only: &[String], name: &str) -> bool {
    // `smb2.read` must not select `smb2.read-only`, so whole words between dots count.
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    only.is_empty() || only.iter().any(|only| begins(only, name) || begins(name, only))
}

/// A part that could not be run is a failure with its reason.
fn or_failed(name: &str, result: Result<Part>) -> Part {
    result.unwrap_or_else(|error| {
        let mut part = Part::new(name);
        match error {
            LabError::Unavailable { .. } => part.skipped.push(format!("{name}: {error}")),
            error => part.failures.push(format!("{name}: {error}")),
        }
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_what_is_below_and_above_them() {
        let selected = |only: &str, name: &str| is_selected(&[only.to_string()], name);
        assert!(is_selected(&[], "torture"));
        assert!(selected("torture", "torture.gcm"));
        assert!(selected("torture.gcm", "torture"));
        assert!(!selected("torture.gcm", "torture.ccm"));
        assert!(!selected("torture.smb2.read", "torture.smb2.read-only"));
    }
}
