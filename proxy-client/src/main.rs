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
    match client::offline(&arguments.command)? {
        None => Ok(()),
        Some(client::Start::Proxy(loaded)) => {
            let log = loaded.config.log.clone();
            cli::run(&log, &loaded.warnings, isthmus_app::client::run(loaded.config))
        }
        Some(client::Start::Agent(agent)) => {
            let (log, warnings) = (agent.loaded.config.log.clone(), agent.loaded.warnings.clone());
            cli::run(&log, &warnings, isthmus_app::agent::run(agent))
        }
    }
}
