//! `isthmus-server`'s arguments.

use clap::{Args, Parser, Subcommand};
use isthmus_certs::Role;
use isthmus_config::{Loaded, ServerConfig};

use super::exit::Failure;
use super::options::Options;
use super::output::outln;
use super::{bundle, certs, check, doctor, fleet, intercept, keys, status, store, top};
use crate::intercept::{server_plan, server_removal};

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
    /// Look at the keys that open sessions, and at who may be given them
    #[command(subcommand)]
    Keys(keys::Command<Configuration>),
    /// Show targets their clients' addresses: the rules that bring the answers here
    #[command(subcommand)]
    Intercept(intercept::Command<Configuration>),
    /// Invite laptops
    #[command(subcommand)]
    Enroll(fleet::Enroll<Configuration>),
    /// List every agent and gateway; set policies, reassign and revoke agents
    Fleet(#[command(flatten)] fleet::FleetArguments<Configuration>),
    /// Ask the running proxy how it is
    Status(#[command(flatten)] status::Arguments<Configuration>),
    /// Show connections, reduction and reasons, again and again
    Top(#[command(flatten)] top::Arguments<Configuration>),
    /// Look at everything that the proxy needs, and say what to do about what is not as it should be
    Doctor(#[command(flatten)] doctor::Arguments<Configuration>),
    /// Write what others need to help into one file, without secrets, names or content
    SupportBundle(#[command(flatten)] bundle::Arguments<Configuration>),
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
        Command::Keys(command) => keys::run(command, &command.configuration().load()?.config)?,
        Command::Intercept(command) => {
            let config = command.configuration().load()?.config;
            intercept::run(
                command,
                server_plan(&config).as_ref(),
                &server_removal(&config),
                "intercept.source",
            )?;
        }
        Command::Enroll(command) => fleet::enroll(command, &|from| Ok(from.load()?.config))?,
        Command::Fleet(arguments) => fleet::fleet(arguments, &|from| Ok(from.load()?.config))?,
        Command::Status(arguments) => {
            status::run(arguments, || Ok(arguments.configuration.load()?.config.admin.listen))?;
        }
        Command::Top(arguments) => {
            top::run(arguments, || Ok(arguments.configuration.load()?.config.admin.listen))?;
        }
        Command::Doctor(arguments) => doctor::server(arguments, arguments.configuration.load())?,
        Command::SupportBundle(arguments) => bundle::server(arguments, &arguments.configuration.load()?)?,
        Command::Version => outln!("{}", super::version("isthmus-server")),
    }
    Ok(None)
}
