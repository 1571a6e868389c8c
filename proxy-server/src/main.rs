//! `isthmus-server`, the server-side proxy: arguments, configuration, app, run.

use std::process::ExitCode;

use isthmus_app::cli::{self, Failure, server};

fn main() -> ExitCode {
    match cli::parse::<server::Arguments>() {
        Ok(arguments) => cli::finish(run(&arguments)),
        Err(status) => status,
    }
}

fn run(arguments: &server::Arguments) -> Result<(), Failure> {
    let Some(loaded) = server::offline(&arguments.command)? else { return Ok(()) };
    let log = loaded.config.log.clone();
    cli::run(&log, &loaded.warnings, isthmus_app::server::run(loaded.config))
}
