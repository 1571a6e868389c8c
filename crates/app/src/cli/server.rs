//! `isthmus-server`'s arguments.

use clap::{Args, Parser, Subcommand};
use isthmus_certs::Role;
use isthmus_config::{Loaded, ServerConfig};

use super::exit::Failure;
use super::options::Options;
use super::output::outln;
use super::{certs, check, status, store};

/// The file that is read unless another is named.
pub const CONFIG_FILE: &str = "/etc/isthmus/server.toml";

/// Server-side proxy of Isthmus, the WAN optimizer
#[derive(Parser, Debug)]
#[command(name = "isthmus-server", version, disable_help_subcommand = true)]
#[command(
    after_help = "Every key of the configuration: docs/configuration.md. Exit statuses: docs/command-line.md."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the proxy until it is told to stop
    Run(Configuration),
    /// Check the configuration and the certificates, and print the configuration as it holds
    Check(#[command(flatten)] check::Arguments<Configuration>),
    /// Make and keep the certificates of both sides
    #[command(subcommand)]
    Certs(certs::Command),
    /// Look at the chunk store while no proxy uses it
    #[command(subcommand)]
    Store(store::Command<Configuration>),
    /// Ask the running proxy how it is
    Status(#[command(flatten)] status::Arguments<Configuration>),
    /// Print the version
    Version,
}

/// The configuration file and what stands over it.
#[derive(Args, Clone, Debug)]
pub struct Configuration {
    #[command(flatten)]
    options: Options,

    /// Where client-side proxies connect to (listen.address)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
}

impl Configuration {
    /// Reads the configuration, with every error at once.
    pub fn load(&self) -> Result<Loaded<ServerConfig>, Failure> {
        let overrides = self.options.overrides(&[("--listen", "listen.address", self.listen.as_ref())]);
        Ok(ServerConfig::load(self.options.file(CONFIG_FILE), &overrides)?)
    }
}

/// Carries out a command that needs no proxy in this process; gives back the configuration to run with otherwise.
pub fn offline(command: &Command) -> Result<Option<Loaded<ServerConfig>>, Failure> {
    match command {
        Command::Run(configuration) => return configuration.load().map(Some),
        Command::Check(arguments) => {
            let loaded = arguments.configuration.load()?;
            check::run(&loaded, &loaded.config.tls, Role::ServerSide, arguments)?;
        }
        Command::Certs(command) => certs::run(command)?,
        Command::Store(command) => store::run(command, &command.configuration().load()?.config.store)?,
        Command::Status(arguments) => {
            status::run(arguments, || Ok(arguments.configuration.load()?.config.admin.listen))?;
        }
        Command::Version => outln!("{}", super::version("isthmus-server")),
    }
    Ok(None)
}
