//! `isthmus-client`, the client-side proxy: arguments, configuration, app, run.

use std::process::ExitCode;

use isthmus_app::cli::{self, Failure, client};

fn main() -> ExitCode {
    match cli::parse::<client::Arguments>() {
        Ok(arguments) => cli::finish(run(&arguments)),
        Err(status) => status,
    }
}

fn run(arguments: &client::Arguments) -> Result<(), Failure> {
    let Some(loaded) = client::offline(&arguments.command)? else { return Ok(()) };
    let log = loaded.config.log.clone();
    cli::run(&log, &loaded.warnings, isthmus_app::client::run(loaded.config))
}
