//! Options that every sub-command which reads the configuration has.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser};
use isthmus_config::Overrides;

use super::exit::Exit;

/// Where the configuration comes from, and what stands over it.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Configuration file [default: /etc/isthmus/client.toml or server.toml]
    #[arg(long, value_name = "FILE", env = "ISTHMUS_CONFIG")]
    config: Option<PathBuf>,

    /// Set a key over the file and the environment, such as --set store.size=20GiB; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Directory of the chunk store (store.path)
    #[arg(long, value_name = "DIR")]
    store: Option<String>,

    /// Address of the admin port, or "off" (admin.listen)
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<String>,

    /// error, warn, info, debug or trace (log.level)
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// text or json (log.format)
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl Options {
    /// The configuration file, `default` unless it was named.
    pub fn file<'s>(&'s self, default: &'s str) -> &'s Path {
        self.config.as_deref().unwrap_or(Path::new(default))
    }

    /// The environment and these options; `own` are options that only one side has, as (flag, key, value).
    pub fn overrides(&self, own: &[(&str, &str, Option<&String>)]) -> Overrides {
        let mut overrides = Overrides::from_environment();
        for assignment in &self.set {
            overrides.set(assignment);
        }
        let shared = [
            ("--store", "store.path", self.store.as_ref()),
            ("--admin", "admin.listen", self.admin.as_ref()),
            ("--log-level", "log.level", self.log_level.as_ref()),
            ("--log-format", "log.format", self.log_format.as_ref()),
        ];
        for (flag, key, value) in own.iter().chain(&shared) {
            if let Some(value) = value {
                overrides.flag(flag, key, value);
            }
        }
        overrides
    }
}

/// Reads the program's arguments. `Err` holds the status to end with: help was printed, or what was wrong.
pub fn parse<P: Parser>() -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        // A closed standard output is no reason to say more.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(Exit::Usage.code()),
        }
    })
}
