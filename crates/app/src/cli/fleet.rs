//! `isthmus-server enroll …` and `isthmus-server fleet …`: laptops, from the invitation to the revocation.
//!
//! All of it works on the register's files, whether or not a proxy is running; `fleet` itself also asks the running one
//! what its agents have reported.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use isthmus_config::{ClientConfig, FleetConfig, Overrides, ServerConfig};
use isthmus_fleet::Fleet;

use super::exit::{Exit, Failure};
use super::output::{self, errln, outln};
use crate::agent::machine_overrides;

/// Longest policy file that is read, in bytes.
const POLICY_FILE_BYTES_MAX: u64 = isthmus_agent::limits::POLICY_BYTES_MAX as u64;

/// `enroll`.
#[derive(Subcommand, Debug)]
pub enum Enroll<C: Args> {
    /// Make a one-time token that lets one laptop in
    Create {
        #[command(flatten)]
        configuration: C,
        /// Name that the laptop gets: in its certificate, in logs, on the console
        #[arg(long)]
        name: String,
        /// How long the token is valid, such as "24h"; at most 30 days
        #[arg(long, value_parser = humantime::parse_duration, default_value = "24h")]
        ttl: Duration,
        /// Policy that the laptop follows
        #[arg(long, default_value = "default")]
        policy: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// `fleet`, with what follows it.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FleetArguments<C: Args> {
    #[command(flatten)]
    list: super::roster::RosterArguments<C>,
    #[command(subcommand)]
    command: Option<Command<C>>,
}

#[derive(Subcommand, Debug)]
enum Command<C: Args> {
    /// Make a policy from a file, or change it; laptops that follow it take it up by themselves
    SetPolicy {
        #[command(flatten)]
        configuration: C,
        /// Name of the policy
        #[arg(long, default_value = "default")]
        name: String,
        /// The policy: a client-side proxy's configuration without tls, admin, log and the store's paths
        file: PathBuf,
    },
    /// Print a policy's text, or the names of all
    ShowPolicy {
        #[command(flatten)]
        configuration: C,
        /// Name of the policy
        name: Option<String>,
    },
    /// Let a laptop follow another policy
    Reassign {
        #[command(flatten)]
        configuration: C,
        /// Name of the laptop
        agent: String,
        /// Name of the policy
        policy: String,
    },
    /// Revoke a laptop: its connections are cut, and it erases its store when it next calls
    Revoke {
        #[command(flatten)]
        configuration: C,
        /// Name of the laptop
        agent: String,
    },
}

/// Gives the configuration that a command names.
pub type Load<'l, C> = &'l dyn Fn(&C) -> Result<ServerConfig, Failure>;

pub fn enroll<C: Args>(command: &Enroll<C>, load: Load<'_, C>) -> Result<(), Failure> {
    let Enroll::Create { configuration, name, ttl, policy, json } = command;
    let config = load(configuration)?;
    let invitation = register(&config)?.invite(name, policy, *ttl, SystemTime::now())?;
    let (token, expires) =
        (invitation.token.to_text(), humantime::format_rfc3339_seconds(invitation.expires).to_string());
    if *json {
        let value = serde_json::json!({ "name": name, "policy": policy, "token": token, "expires": expires });
        outln!("{value:#}");
        return Ok(());
    }
    outln!("{token}");
    errln!("This lets one laptop in, once, as {name:?}, until {expires}. On the laptop, as root:");
    errln!("  isthmus-client agent enroll --token {token} --server HOST:{}", config.listen.port());
    errln!("with the name of this proxy for HOST, as its certificate has it.");
    Ok(())
}

pub fn fleet<C: Args>(arguments: &FleetArguments<C>, load: Load<'_, C>) -> Result<(), Failure> {
    match &arguments.command {
        None => super::roster::run(&arguments.list, load),
        Some(Command::SetPolicy { configuration, name, file }) => {
            set_policy(&load(configuration)?, name, file)
        }
        Some(Command::ShowPolicy { configuration, name }) => {
            show_policy(&load(configuration)?, name.as_deref())
        }
        Some(Command::Reassign { configuration, agent, policy }) => {
            let issued = register(&load(configuration)?)?.reassign(agent, policy)?;
            outln!("{agent} follows {policy} (version {}) from its next report on.", issued.version);
            Ok(())
        }
        Some(Command::Revoke { configuration, agent }) => revoke(&load(configuration)?, agent),
    }
}

pub(super) fn register(config: &ServerConfig) -> Result<Fleet, Failure> {
    let Some(FleetConfig { authority, path, days }) = &config.fleet else {
        let text = "this proxy keeps no fleet: name the authority's directory in fleet.ca";
        return Err(Failure::new(Exit::Usage, text));
    };
    Ok(Fleet::new(path, authority, *days))
}

fn set_policy(config: &ServerConfig, name: &str, file: &Path) -> Result<(), Failure> {
    let unreadable =
        |error: std::io::Error| Failure::new(Exit::of(error.kind()), format!("{}: {error}", file.display()));
    if std::fs::metadata(file).map_err(unreadable)?.len() > POLICY_FILE_BYTES_MAX {
        let text = format!("{}: a policy has at most {POLICY_FILE_BYTES_MAX} bytes", file.display());
        return Err(Failure::new(Exit::Usage, text));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let mut overrides = Overrides::none();
    machine_overrides(Path::new("/var/lib/isthmus/agent"), &mut overrides);
    let loaded = ClientConfig::parse_policy(text.as_bytes(), file, &overrides)
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))?;
    for warning in &loaded.warnings {
        errln!("warning: {warning}");
    }
    let issued = register(config)?.set_policy(name, &text)?;
    outln!("Policy {name:?} is issued as version {}.", issued.version);
    Ok(())
}

fn show_policy(config: &ServerConfig, name: Option<&str>) -> Result<(), Failure> {
    let policies = register(config)?.policies()?;
    match name {
        Some(name) => {
            let policy = policies.iter().find(|policy| policy.name == name);
            let policy =
                policy.ok_or_else(|| Failure::new(Exit::Usage, format!("there is no policy {name:?}")))?;
            output::out(format_args!("{}", policy.text))
        }
        None if policies.is_empty() => {
            outln!("There is no policy yet; \"fleet set-policy\" makes one.");
            Ok(())
        }
        None => {
            for policy in &policies {
                outln!("{}, version {}", policy.name, policy.version);
            }
            Ok(())
        }
    }
}

fn revoke(config: &ServerConfig, agent: &str) -> Result<(), Failure> {
    let revoked = register(config)?.revoke(agent, SystemTime::now())?;
    for entry in &revoked {
        outln!("Revoked the certificate of {:?}, serial {}.", entry.name, entry.serial);
    }
    if let (Some(fleet), Some(crl)) = (&config.fleet, &config.tls.crl)
        && *crl != fleet.authority.join("crl.pem")
    {
        outln!("The running proxy copies the revocation list to {} and cuts what is open.", crl.display());
    }
    outln!("Other server-side proxies need {}.", "the authority's crl.pem as their tls.crl");
    Ok(())
}
