//! `isthmus-client agent`: the proxy of an enrolled laptop, and its enrolment.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use isthmus_agent::Token;
use isthmus_config::{HostPort, Overrides};
use zeroize::Zeroizing;

use super::exit::{Exit, Failure};
use super::output::outln;
use crate::agent::{self, Enrolled, FolderError, STATE_DIR};

/// Longest token that is read from standard input, in bytes.
const TOKEN_BYTES_MAX: u64 = 1 << 10;

/// Arguments of `agent`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentArguments {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args, Debug)]
struct Run {
    /// Directory of the agent's keys, policy and store
    #[arg(long, value_name = "DIR", default_value = STATE_DIR, env = "ISTHMUS_AGENT_STATE")]
    state: PathBuf,

    /// Set a key over the policy, such as --set store.size=5GiB; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

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

#[derive(Subcommand, Debug)]
enum Command {
    /// Enrol this machine with a one-time token of "isthmus-server enroll create"
    Enroll {
        /// The token; "-" reads it from standard input, where no list of processes shows it
        #[arg(long)]
        token: String,
        /// The server-side proxy, by a name that its certificate has
        #[arg(long, value_name = "HOST:PORT")]
        server: String,
        /// Directory for the agent's keys, policy and store
        #[arg(long, value_name = "DIR", default_value = STATE_DIR, env = "ISTHMUS_AGENT_STATE")]
        state: PathBuf,
    },
}

/// Enrols, or gives the agent to run.
pub fn run(arguments: &AgentArguments) -> Result<Option<Enrolled>, Failure> {
    if let Some(Command::Enroll { token, server, state }) = &arguments.command {
        enroll(token, server, state)?;
        return Ok(None);
    }
    let run = &arguments.run;
    let mut overrides = Overrides::from_environment();
    for assignment in &run.set {
        overrides.set(assignment);
    }
    let flags = [
        ("--admin", "admin.listen", &run.admin),
        ("--log-level", "log.level", &run.log_level),
        ("--log-format", "log.format", &run.log_format),
    ];
    for (flag, key, value) in flags {
        if let Some(value) = value {
            overrides.flag(flag, key, value);
        }
    }
    Ok(Some(agent::load(&run.state, overrides)?))
}

fn enroll(token: &str, server: &str, state: &std::path::Path) -> Result<(), Failure> {
    let mut text = Zeroizing::new(token.to_owned());
    if token == "-" {
        text.clear();
        let read = std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| Failure::new(Exit::of(error.kind()), format!("standard input: {error}")))?;
    }
    let token: Token =
        text.parse().map_err(|error| Failure::new(Exit::Usage, format!("--token: {error}")))?;
    let server = HostPort::parse(server, isthmus_config::schema::PEER_PORT)
        .map_err(|why| Failure::new(Exit::Usage, format!("--server: {server:?} {why}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Software, format!("the runtime cannot be started: {error}")))?;
    let name = runtime.block_on(agent::enrol(state, &token, &server))?;
    outln!("Enrolled with {server} as {name:?}; keys and policy are in {}.", state.display());
    outln!("Start it with \"isthmus-client agent\" (a service does that at each start of the machine).");
    Ok(())
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Failure {
        let exit = match &error {
            FolderError::NotEnrolled(_) => Exit::NoInput,
            FolderError::Enrolled { .. } => Exit::CannotCreate,
            FolderError::Io { source, .. } => Exit::of(source.kind()),
            FolderError::BadFile { .. } => Exit::Data,
            FolderError::Policy(_) => Exit::Usage,
            FolderError::Certs(error) => Failure::of_certs(error),
        };
        Failure::new(exit, error.to_string())
    }
}
