//! `keys show` and `keys check`: what secrets there are, and what they make possible. Secrets themselves are never shown.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use isthmus_config::ServerConfig;
use isthmus_keys::check::{self, Narrow, Report, Subject, Verdict};
use isthmus_keys::{KeyStore, KeysConfig, KeysError, Observer, ReleasePolicy};
use isthmus_smb_auth::{Loaded, Principal};
use isthmus_telemetry::KeySourceStatus;
use serde_json::{Value, json};

use super::exit::{Exit, Failure};
use super::http;
use super::output::{self, errln, outln};
use super::status::span;

/// The `keys` sub-commands.
#[derive(Subcommand, Debug)]
pub enum Command<C: Args> {
    /// List the sources of the running proxy: what each holds, when it was loaded, and what is wrong with it
    Show(#[command(flatten)] ShowArguments<C>),
    /// Say for a user or a service whether its sessions can be optimised, and why not
    Check(#[command(flatten)] CheckArguments<C>),
}

#[derive(Args, Debug)]
pub struct ShowArguments<C: Args> {
    #[command(flatten)]
    configuration: C,

    /// Read the configured files here, as this user, instead of asking the proxy; commands are not run
    #[arg(long)]
    offline: bool,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "offline")]
    address: Option<SocketAddr>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub struct CheckArguments<C: Args> {
    #[command(flatten)]
    configuration: C,

    /// A user: DOMAIN\user, user@domain, or user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A file server's service: cifs/files.example.com, with a realm or without, or the server's name alone
    #[arg(long, value_name = "PRINCIPAL")]
    service: Option<String>,

    /// Only what this peer may be given: the name in its certificate
    #[arg(long, value_name = "NAME", requires = "user")]
    peer: Option<String>,

    /// Only for this file server, as clients ask for it
    #[arg(long, value_name = "HOST", requires = "user")]
    server: Option<String>,

    /// Only for an SMB client with this address
    #[arg(long, value_name = "IP", requires = "user")]
    client: Option<IpAddr>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

impl<C: Args> Command<C> {
    /// The configuration's arguments.
    pub fn configuration(&self) -> &C {
        match self {
            Command::Show(arguments) => &arguments.configuration,
            Command::Check(arguments) => &arguments.configuration,
        }
    }
}

/// Carries the command out.
pub fn run<C: Args>(command: &Command<C>, config: &ServerConfig) -> Result<(), Failure> {
    match command {
        Command::Show(arguments) => show(arguments, config),
        Command::Check(arguments) => check(arguments, &config.keys),
    }
}

fn show<C: Args>(arguments: &ShowArguments<C>, config: &ServerConfig) -> Result<(), Failure> {
    let sources = if arguments.offline {
        sources_json(&open(&config.keys)?)
    } else {
        let address = arguments.address.or(config.admin.listen).ok_or_else(|| {
            let text = "the admin port is off (admin.listen), so the proxy cannot be asked; --offline reads the files";
            Failure::new(Exit::Unavailable, text)
        })?;
        let summary = http::json(address, "/api/summary")?;
        summary["keys"]["sources"].clone()
    };
    if arguments.json {
        outln!("{:#}", json!({ "sources": sources }));
    } else {
        output::out(format_args!("{}", table(&sources)))?;
    }
    let bad = sources.as_array().is_some_and(|list| list.iter().any(|source| !source["error"].is_null()));
    // The table has said which and why.
    if bad { Err(Failure::new(Exit::Unavailable, "")) } else { Ok(()) }
}

fn check<C: Args>(arguments: &CheckArguments<C>, config: &KeysConfig) -> Result<(), Failure> {
    let policy = ReleasePolicy::new(&config.releases)
        .map_err(|error| Failure::new(Exit::Usage, format!("keys: {error}")))?;
    let store = open(config)?;
    for (number, command) in store.commands().enumerate() {
        errln!("running {:?}, for {} at most", command.name, span(command.timeout.as_secs_f64()));
        store.run_command(number, &|| false);
    }
    let service = arguments.service.as_deref().map(principal);
    let subject = match (&arguments.user, &service) {
        (Some(user), _) => Some(Subject::user(user)),
        (None, Some(service)) => Some(Subject::Service(service.clone())),
        (None, None) => None,
    };
    let narrow = Narrow {
        peer: arguments.peer.clone(),
        server: arguments.server.clone(),
        client: arguments.client,
        service,
    };
    let report = subject.map(|subject| check::check(&store.secrets(), &policy, &subject, &narrow));
    let sources = sources_json(&store);
    if arguments.json {
        outln!("{:#}", json!({ "sources": sources, "report": report.as_ref().map(report_json) }));
    } else {
        output::out(format_args!("{}", table(&sources)))?;
        for line in report.iter().flat_map(|report| &report.lines) {
            outln!("{}", plain(&line.to_string()));
        }
    }
    verdict(&store, report.as_ref())
}

/// The exit status: what stands in the way of optimising, if anything does.
fn verdict(store: &KeyStore, report: Option<&Report>) -> Result<(), Failure> {
    let Some(report) = report else {
        let bad = store.sources().into_iter().find_map(|source| source.error);
        return match bad {
            Some(_) => Err(Failure::new(Exit::Unavailable, "not every source can be loaded")),
            None => Ok(()),
        };
    };
    if !report.has_key {
        Err(Failure::new(Exit::Unavailable, "no key is held that could open such a session"))
    } else if report.is_released == Some(false) {
        Err(Failure::new(Exit::NoPermission, "no rule releases the keys of such a session"))
    } else {
        Ok(())
    }
}

/// Opens every file that can be. Secrets are about to be in this process's memory.
pub(super) fn open(config: &KeysConfig) -> Result<KeyStore, Failure> {
    isthmus_keys::deny_core_dumps()?;
    Ok(KeyStore::open_what_can_be(config, Box::new(Silent))?)
}

/// What becomes of the sources stands in their status.
struct Silent;

impl Observer for Silent {
    fn loaded(&self, _: &str, _: Loaded) {}
    fn failed(&self, _: &str, _: &KeysError) {}
}

/// A server's name alone stands for its file service.
fn principal(text: &str) -> Principal {
    let is_whole = text.contains('/') || text.split('@').next().is_some_and(|name| name.ends_with('$'));
    if is_whole { Principal::parse(text) } else { Principal::parse(&format!("cifs/{text}")) }
}

/// The same fields as the admin port's.
fn sources_json(store: &KeyStore) -> Value {
    let unix = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let one = |source: KeySourceStatus| {
        json!({
            "name": source.name,
            "kind": source.kind.label(),
            "by_command": source.by_command,
            "service_keys": source.service_keys,
            "nt_hashes": source.nt_hashes,
            "skipped": source.skipped,
            "loaded_at": source.loaded_at.map(unix),
            "error": source.error,
            "loads": source.loads,
            "failures": source.failures,
        })
    };
    store.sources().into_iter().map(crate::keys::shown).map(one).collect()
}

fn report_json(report: &Report) -> Value {
    let word = |verdict: Verdict| verdict.to_string();
    let lines: Value = report
        .lines
        .iter()
        .map(|line| json!({ "verdict": word(line.verdict), "topic": line.topic, "text": line.text }))
        .collect();
    json!({
        "lines": lines,
        "has_key": report.has_key,
        "is_released": report.is_released,
        "can_be_optimised": report.has_key && report.is_released != Some(false),
    })
}

/// The sources for people, one or two lines each.
fn table(sources: &Value) -> String {
    let Some(list) = sources.as_array().filter(|list| !list.is_empty()) else {
        return "no key source is configured; every session is relayed or reduced without keys\n".to_owned();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    let mut text = String::new();
    for source in list {
        let by = if source["by_command"] == true { "command" } else { "file" };
        let kind = source["kind"].as_str().unwrap_or("?").replace('_', " ");
        let name = plain(source["name"].as_str().unwrap_or("?"));
        let count = |field: &str| source[field].as_u64().unwrap_or_default();
        let held = match source["loaded_at"].as_f64() {
            Some(at) => format!(
                "{} service keys, {} NT hashes, {} of no use; loaded {} ago",
                count("service_keys"),
                count("nt_hashes"),
                count("skipped"),
                span(now - at)
            ),
            None => "not loaded".to_owned(),
        };
        text += &format!("{kind} by {by} {name}: {held}\n");
        if let Some(error) = source["error"].as_str() {
            text += &format!("  error: {}\n", plain(error));
        }
    }
    text
}

/// Without control characters, which a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
