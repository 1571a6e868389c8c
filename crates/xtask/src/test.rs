//! `cargo xtask test`: everything that `.ci/run` tests too.

use crate::cargo::{self, build_proxies};
use isthmus_lab::Result;
use isthmus_lab::proc::find_program;

/// Seconds of each fuzz target in a full run. In a short one, all share a time that is theirs to say.
const FUZZ_SECONDS_FULL: u32 = 60;

/// Profile of the proxies under test: some optimisation, since tests move megabytes through them.
const PROFILE: &str = "test";

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The long ones too: soaks, and fuzz targets for 60 s each
    #[arg(long)]
    full: bool,
    /// Passed on to the test runner
    #[arg(trailing_var_arg = true)]
    rest: Vec<String>,
}

/// Builds the proxies and runs all tests with them.
///
/// # Errors
/// The build or a test fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let binaries = build_proxies(PROFILE)?;
    let folder = binaries.client.parent().map(std::path::Path::to_path_buf).unwrap_or_default();
    let command = |args: &[&str]| {
        let mut command = cargo::cargo(args);
        command.env("ISTHMUS_BIN_DIR", &folder);
        if arguments.full {
            command.env("ISTHMUS_FULL", "1").env("ISTHMUS_FUZZ_SECONDS", FUZZ_SECONDS_FULL.to_string());
        }
        command
    };
    let has_nextest = find_program("cargo-nextest").is_some();
    if has_nextest {
        // nextest does not run the examples in the documentation, so they come first.
        cargo::run(&mut command(&["test", "--workspace", "--doc", "--quiet"]))?;
        let mut tests = command(&["nextest", "run", "--workspace", "--no-fail-fast"]);
        if arguments.full {
            tests.args(["--run-ignored", "all"]);
        }
        return cargo::run(tests.args(&arguments.rest));
    }
    let mut tests = command(&["test", "--workspace", "--no-fail-fast"]);
    tests.args(&arguments.rest);
    if arguments.full {
        tests.args(["--", "--include-ignored"]);
    }
    cargo::run(&mut tests)
}
