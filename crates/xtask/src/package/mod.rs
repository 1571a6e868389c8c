//! `cargo xtask package`: Debian packages of both sides, and a tar archive for other distributions.

mod deb;
mod notices;
mod tar;
mod tree;

use crate::cargo::{self, build_proxies};
use crate::progress::Progress;
use isthmus_lab::pair::Binaries;
use isthmus_lab::{LabError, Result};
use isthmus_types::Side;
use std::path::{Path, PathBuf};

/// What both packages' files come from, in the workspace.
const SOURCES: &str = "deploy/package";

/// Documents that both packages carry. Their links to each other stay good in one folder.
const DOCUMENTS: &[&str] = &[
    "docs/agent.md",
    "docs/command-line.md",
    "docs/configuration.md",
    "docs/diagnosis.md",
    "docs/fsx.md",
    "docs/guide.md",
    "docs/interception.md",
    "docs/keys.md",
    "docs/metrics.md",
    "docs/sizing.md",
    "certs/README.md",
];

/// Arguments of `cargo xtask package`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to make
    #[arg(value_enum)]
    kind: Kind,
    /// Folder for what is made, instead of `package` in cargo's target folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Version of the packages, instead of the workspace's
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Debian packages of both sides
    Deb,
    /// A tar archive of both sides with install.sh
    Tar,
}

/// Both sides, in the order in which their packages are made.
const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// Builds the proxies if need be, packs them and prints the path of each file made.
///
/// # Errors
/// The version cannot be one of a package, the build fails, a program that packs is missing, or a file cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    check_version(&arguments.version)?;
    let mut progress = Progress::new();
    let binaries = build_proxies("release")?;
    let output = arguments.output.clone().unwrap_or_else(|| cargo::target_folder().join("package"));
    std::fs::create_dir_all(&output)
        .map_err(|source| LabError::Io { action: format!("making {}", output.display()), source })?;
    progress.step("collecting the licences of what is linked in");
    let notices = notices::collect()?;
    let make = match arguments.kind {
        Kind::Deb => deb::make,
        Kind::Tar => tar::make,
    };
    progress.step("packing");
    let made = make(&binaries, &arguments.version, &notices, &output)?;
    progress.clear();
    for path in made {
        println!("{}", path.display());
    }
    Ok(())
}

/// The word for a side in the names of its files.
fn word(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// The name of a side's package, program, unit and user.
fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "isthmus-client",
        Side::Server => "isthmus-server",
    }
}

fn program(side: Side, binaries: &Binaries) -> &Path {
    match side {
        Side::Client => &binaries.client,
        Side::Server => &binaries.server,
    }
}

/// Debian's rule for upstream versions, less the characters that no version of ours needs.
fn check_version(version: &str) -> Result<()> {
    let is_good = version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".+~".contains(c));
    if is_good {
        return Ok(());
    }
    Err(LabError::Format {
        what: format!("version {version:?}"),
        detail: "it must start with a digit and have letters, digits, \".\", \"+\" and \"~\" only".into(),
    })
}

/// A file of the workspace, as text.
fn source(path: &str) -> Result<String> {
    let path = cargo::workspace().join(path);
    std::fs::read_to_string(&path)
        .map_err(|source| LabError::Io { action: format!("reading {}", path.display()), source })
}

/// When the last commit was made, in seconds of Unix time, so that the same sources give the same packages. `None`
/// outside a repository.
fn source_date() -> Option<String> {
    let output = std::process::Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(cargo::workspace())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    text.parse::<u64>().ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_dpkg_takes_are_taken() {
        for good in ["0.1.0", "0.1.0+1", "1.0~rc1"] {
            check_version(good).unwrap();
        }
        for bad in ["", "v1", "1.0 beta", "1/../2", "1-1"] {
            assert!(check_version(bad).is_err(), "{bad}");
        }
    }
}
