//! The command line of both proxies: arguments, exit statuses, and the sub-commands that need no running proxy.
//!
//! `docs/command-line.md` is the user's side of it.

mod agent;
mod bundle;
mod certs;
mod check;
pub mod client;
mod doctor;
mod exit;
mod fleet;
mod http;
mod intercept;
mod keys;
mod options;
mod output;
mod roster;
pub mod server;
mod status;
mod store;
mod top;
mod trace;
mod warm;

pub use exit::{Exit, Failure};
pub(crate) use http::reachable;
pub use options::{Options, parse};

use std::future::Future;
use std::process::ExitCode;

use isthmus_config::{Log, LogFormat, Warning};

use crate::AppError;
use output::errln;

/// Ends the program: prints what failed, if anything, and gives the exit status.
pub fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                errln!("{}", failure.text);
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

/// Starts logging as the configuration says, logs what it warns of, and runs a proxy to its end.
pub fn run(
    log: &Log,
    warnings: &[Warning],
    proxy: impl Future<Output = Result<(), AppError>>,
) -> Result<(), Failure> {
    let format = match log.format {
        LogFormat::Text => isthmus_telemetry::LogFormat::Text,
        LogFormat::Json => isthmus_telemetry::LogFormat::Json,
    };
    isthmus_telemetry::start_logging(format, log.level.as_str())
        .map_err(|error| Failure::new(Exit::Software, format!("logging cannot be started: {error}")))?;
    for warning in warnings {
        tracing::warn!(place = %warning.place, key = %warning.key, "configuration: {}", warning.text);
    }
    isthmus_net::start_beats();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Software, format!("the runtime cannot be started: {error}")))?;
    runtime.block_on(proxy).map_err(Failure::from)
}

/// What `version` prints.
pub(crate) fn version(program: &str) -> String {
    format!("{program} {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        super::client::Arguments::command().debug_assert();
        super::server::Arguments::command().debug_assert();
    }
}
