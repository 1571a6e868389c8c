//! `doctor`: looks at everything that a proxy needs, and says what to do about what is not as it should be.

mod finding;
mod host;
mod path;
mod running;
mod storage;
mod targets;
mod trust;

use std::net::SocketAddr;
use std::time::SystemTime;

use clap::Args;
use isthmus_certs::Role;
use isthmus_config::{ClientConfig, Loaded, ServerConfig};

use super::exit::{Exit, Failure};
use super::output::{self, outln};
use finding::Report;
use running::Running;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// Do not write to the store's disk to see how fast it is
    #[arg(long)]
    no_disk_test: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What a report says, and whether the proxy runs.
pub(crate) struct Examined {
    pub report: Report,
    pub is_running: bool,
}

/// Looks at the client side and prints what was found.
pub fn client<C: Args>(
    arguments: &Arguments<C>,
    loaded: Result<Loaded<ClientConfig>, Failure>,
) -> Result<(), Failure> {
    let examined = match loaded {
        Ok(loaded) => examine_client(&loaded, arguments.address, !arguments.no_disk_test),
        Err(failure) => unreadable(&failure),
    };
    print(&examined, "client-side", arguments.json)
}

/// Looks at the server side and prints what was found.
pub fn server<C: Args>(
    arguments: &Arguments<C>,
    loaded: Result<Loaded<ServerConfig>, Failure>,
) -> Result<(), Failure> {
    let examined = match loaded {
        Ok(loaded) => examine_server(&loaded, arguments.address, !arguments.no_disk_test),
        Err(failure) => unreadable(&failure),
    };
    print(&examined, "server-side", arguments.json)
}

/// Everything about the client side. `address` stands over `admin.listen`.
pub(crate) fn examine_client(
    loaded: &Loaded<ClientConfig>,
    address: Option<SocketAddr>,
    is_disk_tested: bool,
) -> Examined {
    let config = &loaded.config;
    let running = Running::ask(address.or(config.admin.listen));
    let mut report = configuration(loaded);
    running::proxy(&mut report, &running);
    trust::certificates(&mut report, &config.tls, Role::ClientSide, SystemTime::now());
    trust::clocks(&mut report, &running);
    match &running {
        Ok(running) => path::measured(&mut report, running),
        Err(_) => path::probed(&mut report, &config.peer.address),
    }
    targets::rules(&mut report, config);
    if running.is_err() {
        let listeners =
            config.rules.listeners().map(|(_, listener)| (listener.address, "rule.listen".to_owned()));
        let admin = config.admin.listen.map(|address| (address, "admin.listen".to_owned()));
        host::ports(&mut report, &listeners.chain(admin).collect::<Vec<_>>());
    }
    host::kernel(&mut report, &running);
    host::limits(&mut report, &running, config.limits.admission_on);
    storage::store(&mut report, &config.store, &running, is_disk_tested);
    Examined { report, is_running: running.is_ok() }
}

/// Everything about the server side.
pub(crate) fn examine_server(
    loaded: &Loaded<ServerConfig>,
    address: Option<SocketAddr>,
    is_disk_tested: bool,
) -> Examined {
    let config = &loaded.config;
    let running = Running::ask(address.or(config.admin.listen));
    let mut report = configuration(loaded);
    running::proxy(&mut report, &running);
    trust::certificates(&mut report, &config.tls, Role::ServerSide, SystemTime::now());
    trust::clocks(&mut report, &running);
    match &running {
        Ok(running) => path::measured(&mut report, running),
        Err(_) => {
            let text = "round-trip time, loss and rate are measured on a running proxy's connections";
            report.area("path to the peer").untested(text, "start it and its client sides");
        }
    }
    targets::allowed(&mut report, &config.allow);
    targets::keys(&mut report, config, &running);
    if running.is_err() {
        let admin = config.admin.listen.map(|address| (address, "admin.listen".to_owned()));
        let listen = std::iter::once((config.listen, "listen.address".to_owned()));
        host::ports(&mut report, &listen.chain(admin).collect::<Vec<_>>());
    }
    host::kernel(&mut report, &running);
    host::limits(&mut report, &running, config.limits.admission_on);
    storage::store(&mut report, &config.store, &running, is_disk_tested);
    Examined { report, is_running: running.is_ok() }
}

fn configuration<L>(loaded: &Loaded<L>) -> Report {
    let mut report = Report::default();
    report.area("configuration");
    for warning in &loaded.warnings {
        report.warning(warning.to_string(), "correct the key; docs/configuration.md lists them all");
    }
    if loaded.warnings.is_empty() {
        report.fine("it can be read, and every key is known");
    }
    report
}

/// Without a configuration nothing else can be looked at.
fn unreadable(failure: &Failure) -> Examined {
    let mut report = Report::default();
    report.area("configuration");
    for line in failure.text.lines() {
        let remedy = match failure.exit {
            Exit::NoInput => "write it, or name it by --config FILE",
            Exit::NoPermission => "run doctor as root or as the proxy's user",
            _ => "correct it; docs/configuration.md lists every key",
        };
        report.failure(line, remedy);
    }
    report.untested("everything else: it depends on the configuration", "");
    Examined { report, is_running: false }
}

fn print(examined: &Examined, side: &str, json: bool) -> Result<(), Failure> {
    if json {
        outln!("{:#}", examined.report.to_json(side, examined.is_running));
    } else {
        output::out(format_args!("{}", examined.report.for_people()))?;
    }
    examined.report.exit()
}
