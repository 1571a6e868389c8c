//! Names, file servers, rules, and the keys of sessions.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use isthmus_config::{Action, Allow, ClientConfig, Host, Pattern, ServerConfig, WhenUnavailable};
use isthmus_keys::check::{self, Narrow, Subject};
use isthmus_keys::{KeyStore, ReleasePolicy};
use isthmus_smb_auth::Principal;

use super::super::keys::open;
use super::finding::Report;
use super::running::{Running, list};

/// File servers that are connected to, and how long each may take.
const TARGETS_MAX: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Rules of the client side, and whether their targets could be reached without the pair.
pub(crate) fn rules(report: &mut Report, config: &ClientConfig) {
    report.area("rules");
    let count = |action: Action| config.rules.iter().filter(|rule| rule.action == action).count();
    report.fine(format!(
        "{} rules: {} optimise, {} reduce only, {} pass through, {} deny",
        config.rules.iter().count(),
        count(Action::Optimise),
        count(Action::ReduceOnly),
        count(Action::PassThrough),
        count(Action::Deny)
    ));
    if !config.smb.enabled {
        report.note(
            "smb.enabled = false: SMB is reduced as plain bytes",
            "switch it on, on both sides, for encrypted and signed sessions",
        );
    }
    for rule in config.rules.iter() {
        let Some(listener) =
            rule.listener.as_ref().filter(|_| rule.when_unavailable == WhenUnavailable::PassThrough)
        else {
            continue;
        };
        let target = &listener.target;
        if (target.host.to_string(), target.port).to_socket_addrs().is_err() {
            let text = format!(
                "{}: {target} cannot be resolved here, so nothing can pass through when the pair is down",
                rule.name
            );
            report.warning(text, "make this machine's name server know it, or write its address");
        }
    }
    report.untested(
        "whether clients get Kerberos tickets for the name by which they reach a listener: only their domain knows",
        "register that name on the file server's account: setspn -S cifs/NAME ACCOUNT; then isthmus-server keys check \
         --service cifs/NAME",
    );
}

/// File servers of the server side that the allow list names one by one.
pub(crate) fn allowed(report: &mut Report, allow: &Allow) {
    report.area("file servers");
    let targets = named(allow);
    for (host, port) in targets.iter().take(TARGETS_MAX) {
        reach(report, host, *port);
    }
    if targets.len() > TARGETS_MAX {
        report.untested(format!("{} more servers of the allow list", targets.len() - TARGETS_MAX), "");
    }
    if targets.is_empty() {
        report.untested(
            "the allow list names no single server",
            "ask for one by isthmus-server keys check --service NAME",
        );
    }
}

/// Hosts, each with the first port that is allowed. Networks and globs stand for nobody in particular.
fn named(allow: &Allow) -> Vec<(Host, u16)> {
    let mut targets = Vec::new();
    for entry in allow.iter() {
        let Some(port) = entry.ports.first().map(|range| range.first) else { continue };
        for pattern in &entry.destination {
            let host = match pattern {
                Pattern::Name(name) => Host::Name(name.clone()),
                Pattern::Network(network) => match network.to_string().parse::<IpAddr>() {
                    Ok(address) => Host::Address(address),
                    Err(_) => continue,
                },
                Pattern::Glob(_) => continue,
            };
            if !targets.contains(&(host.clone(), port)) {
                targets.push((host, port));
            }
        }
    }
    targets
}

fn reach(report: &mut Report, host: &Host, port: u16) {
    let addresses: Vec<SocketAddr> = match (host.to_string(), port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            return report.failure(
                format!("{host} cannot be resolved: {error}"),
                "correct the allow list or the name server",
            );
        }
    };
    let Some(address) = addresses.first() else {
        return report.failure(format!("{host} has no address"), "correct the allow list or the name server");
    };
    match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
        Ok(_) => report.fine(format!("{host} accepts connections at {address}")),
        Err(error) => report.warning(
            format!("{host} does not accept connections at {address}: {error}"),
            "check that it runs, and that this machine may reach that port (security group, firewall)",
        ),
    }
}

/// Sources of session keys, and a service key for each file server that is named.
pub(crate) fn keys(report: &mut Report, config: &ServerConfig, running: &Result<Running, String>) {
    report.area("keys");
    let keys = &config.keys;
    if keys.keytabs.is_empty() && keys.password_hashes.is_empty() && keys.commands.is_empty() {
        return report.note(
            "no source of session keys: encrypted sessions are relayed, signed ones reduced less",
            "docs/keys.md says how to give it the file servers' keytabs",
        );
    }
    let mut has_failed = false;
    if let Ok(running) = running {
        for source in list(&running.summary["keys"]["sources"]) {
            if let Some(error) = source["error"].as_str() {
                has_failed = true;
                let text = format!("{}: {error}", source["name"].as_str().unwrap_or("?"));
                report.failure(text, "correct the file or the command; it is read again by itself");
            }
        }
    }
    let store = match open(keys) {
        Ok(store) => store,
        Err(failure) => return report.untested(failure.text, "correct [keys]"),
    };
    if running.is_err() {
        for source in store.sources() {
            if let Some(error) = source.error {
                has_failed = true;
                report.failure(
                    format!("{}: {error}", source.name),
                    "correct the file; isthmus-server keys check reads it again",
                );
            }
        }
        if !keys.commands.is_empty() {
            report
                .untested("commands that bring keys are not run here", "isthmus-server keys check runs them");
        }
    }
    if !has_failed {
        report.fine("every source that was read is in order");
    }
    if keys.releases.rules.is_empty() {
        report.warning(
            "no rule releases keys to any peer",
            "add a [[keys.release]] for each client-side proxy",
        );
    }
    services(report, config, &store);
}

/// A service key for each named file server. Commands may bring more.
fn services(report: &mut Report, config: &ServerConfig, store: &KeyStore) {
    if config.keys.keytabs.is_empty() {
        return;
    }
    let Ok(policy) = ReleasePolicy::new(&config.keys.releases) else {
        return report
            .failure("the rules of keys.release contradict each other", "isthmus-server check says where");
    };
    for (host, _) in named(&config.allow).into_iter().take(TARGETS_MAX) {
        let Host::Name(name) = host else { continue };
        let subject = Subject::Service(Principal::parse(&format!("cifs/{name}")));
        let found = check::check(&store.secrets(), &policy, &subject, &Narrow::default());
        if found.has_key {
            report.fine(format!("a key of the service cifs/{name} is held"));
        } else {
            report.warning(
                format!("no key of the service cifs/{name} is held: its Kerberos sessions are relayed"),
                format!("export a keytab with the SPN cifs/{name}; setspn -S cifs/{name} ACCOUNT if the account lacks it"),
            );
        }
    }
}
