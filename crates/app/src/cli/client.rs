//! `isthmus-client`'s arguments.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use clap::{Args, Parser, Subcommand};
use isthmus_certs::Role;
use isthmus_config::{ClientConfig, Loaded};

use super::exit::{Exit, Failure};
use super::options::Options;
use super::output::outln;
use super::{agent, bundle, check, doctor, intercept, status, store, top, trace, warm};
use crate::agent::Enrolled;
use crate::intercept::{client_plan, client_removal};

/// Where an agent can be asked unless it was told otherwise: the default of `admin.listen`.
const AGENT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7811);

/// The file that is read unless another is named.
pub const CONFIG_FILE: &str = "/etc/isthmus/client.toml";

/// Client-side proxy of Isthmus, the WAN optimizer
#[derive(Parser, Debug)]
#[command(name = "isthmus-client", version, disable_help_subcommand = true)]
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
    /// Run the proxy of an enrolled laptop, or enrol it
    Agent(#[command(flatten)] agent::AgentArguments),
    /// Look at the chunk store while no proxy uses it
    #[command(subcommand)]
    Store(store::Command<Configuration>),
    /// Bring connections here without clients knowing: the rules that do it
    #[command(subcommand)]
    Intercept(intercept::Command<Configuration>),
    /// Ask the running proxy how it is
    Status(#[command(flatten)] status::Arguments<Configuration>),
    /// Read a share through the pair, so that the first user's copy is warm
    Warm(#[command(flatten)] warm::Arguments<Configuration>),
    /// Show connections, reduction and reasons, again and again
    Top(#[command(flatten)] top::Arguments<Configuration>),
    /// Show where each request of a connection is answered, by what, and how fast
    Trace(#[command(flatten)] trace::Arguments<Configuration>),
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

    /// The server-side proxy (peer.address)
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
}

impl Configuration {
    /// Reads the configuration, with every error at once.
    pub fn load(&self) -> Result<Loaded<ClientConfig>, Failure> {
        let overrides = self.options.overrides(&[("--peer", "peer.address", self.peer.as_ref())]);
        Ok(ClientConfig::load(self.options.file(CONFIG_FILE), &overrides)?)
    }

    /// Where the running proxy can be asked. A laptop's agent has no configuration file, and the default address.
    fn admin(&self) -> Result<Option<SocketAddr>, Failure> {
        match self.load() {
            Err(failure)
                if failure.exit == Exit::NoInput
                    && self.options.file(CONFIG_FILE) == Path::new(CONFIG_FILE) =>
            {
                Ok(Some(AGENT_ADMIN))
            }
            other => Ok(other?.config.admin.listen),
        }
    }
}

/// What a command leaves to be run in this process.
pub enum Start {
    Proxy(Loaded<ClientConfig>),
    Agent(Enrolled),
}

/// Carries out a command that needs no proxy in this process; gives back what to run otherwise.
pub fn offline(command: &Command) -> Result<Option<Start>, Failure> {
    match command {
        Command::Run(configuration) => return configuration.load().map(|loaded| Some(Start::Proxy(loaded))),
        Command::Agent(arguments) => return Ok(agent::run(arguments)?.map(Start::Agent)),
        Command::Check(arguments) => {
            let loaded = arguments.configuration.load()?;
            check::run(&loaded, &loaded.config.tls, Role::ClientSide, arguments)?;
        }
        Command::Store(command) => store::run(command, &command.configuration().load()?.config.store)?,
        Command::Intercept(command) => {
            let config = command.configuration().load()?.config;
            intercept::run(
                command,
                client_plan(&config).as_ref(),
                &client_removal(&config),
                "intercept.mode",
            )?;
        }
        Command::Status(arguments) => {
            status::run(arguments, || arguments.configuration.admin())?;
        }
        Command::Warm(arguments) => warm::run(arguments, &arguments.configuration.load()?.config)?,
        Command::Top(arguments) => {
            top::run(arguments, || arguments.configuration.admin())?;
        }
        Command::Trace(arguments) => {
            trace::run(arguments, || arguments.configuration.admin())?;
        }
        Command::Doctor(arguments) => doctor::client(arguments, arguments.configuration.load())?,
        Command::SupportBundle(arguments) => bundle::client(arguments, &arguments.configuration.load()?)?,
        Command::Version => outln!("{}", super::version("isthmus-client")),
    }
    Ok(None)
}
