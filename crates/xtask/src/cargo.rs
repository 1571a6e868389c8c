//! Running cargo from within.

use isthmus_lab::pair::{BINARIES_VARIABLE, Binaries};
use isthmus_lab::{LabError, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the workspace's Cargo.toml.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A cargo command in the workspace, with output to this terminal.
pub fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace());
    command
}

/// Runs a command that prints for itself.
///
/// # Errors
/// It cannot be started or ends with a status other than 0.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}").replace('"', "");
    let status =
        command.status().map_err(|source| LabError::Io { action: format!("starting {shown}"), source })?;
    if status.success() {
        return Ok(());
    }
    let output = "its output is above".to_string();
    Err(LabError::Command { program: shown, status: status.to_string(), output })
}

/// Builds both proxies and says where they are. If `ISTHMUS_BIN_DIR` names a folder, those in it are taken as they are:
/// another version, say, that is to be compared.
///
/// # Errors
/// The build fails.
pub fn build_proxies(profile: &str) -> Result<Binaries> {
    if std::env::var_os(BINARIES_VARIABLE).is_some() {
        return Binaries::find();
    }
    run(&mut cargo([
        "build",
        "--profile",
        profile,
        "--package",
        "isthmus-client",
        "--package",
        "isthmus-server",
    ]))?;
    // cargo's names of profiles and of their folders differ for the two oldest ones.
    let folder = if matches!(profile, "dev" | "test") { "debug" } else { profile };
    Binaries::in_folder(&target_folder().join(folder))
}

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}
