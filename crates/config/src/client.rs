//! The client-side proxy's configuration.

use std::net::SocketAddr;

use crate::address::{Host, HostPort};
use crate::intercept::Intercept;
use crate::location::Location;
use crate::reader::{Reader, Section, quoted};
use crate::rules::{Listener, RULES_MAX, Rule, Rules};
use crate::schema;
use crate::sections::{Admin, Channels, Compression, Drain, Limits, ListenAddress, Log, Store, Tls, overlap};
use crate::smb::Smb;
use crate::warm::{self, Warm};

/// Most server-side proxies beside the first.
pub const BACKUPS_MAX: usize = 8;

/// Everything the client-side proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    pub peer: Peer,
    pub tls: Tls,
    /// `[[rule]]`, in order. At least one has a listener, unless connections are intercepted.
    pub rules: Rules,
    /// `[[warm]]`, in order.
    pub warm: Vec<Warm>,
    pub intercept: Intercept,
    pub location: Location,
    pub smb: Smb,
    pub store: Store,
    pub limits: Limits,
    pub channels: Channels,
    pub pool: Pool,
    pub admin: Admin,
    pub log: Log,
    pub drain: Drain,
    pub compression: Compression,
}

/// `[peer]`: the server-side proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: HostPort,
    /// The DNS name or address that the peer's certificate must carry. An IPv6 address stands without brackets.
    pub server_name: String,
    /// Others to go to while that one does not answer, most wanted first.
    pub backups: Vec<HostPort>,
}

/// `channels.pool_min` and `channels.pool_max`: idle channels kept connected, so that opening needs no handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub min: u32,
    /// At least `min`.
    pub max: u32,
}

impl ClientConfig {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<ClientConfig> {
        let peer = Peer::build(reader);
        let tls = Tls::build(reader);
        let (rules, listeners) = build_rules(reader);
        let warm = warm::build(reader, rules.as_ref());
        let intercept = Intercept::build(reader, peer.as_ref(), &listeners);
        if listeners.is_empty() && rules.is_some() {
            require_a_way_in(reader, intercept.as_ref());
        }
        let location = Location::build(reader);
        let smb = Smb::build(reader);
        let store = Store::build(reader, &schema::STORE_PATH_CLIENT);
        let limits = Limits::build(reader);
        let channels = Channels::build(reader);
        let pool = Pool::build(reader);
        let admin = Admin::build(reader, &schema::ADMIN_LISTEN_CLIENT, &listeners);
        let log = Log::build(reader);
        let drain = Drain::build(reader);
        let compression = Compression::build(reader);
        Some(ClientConfig {
            peer: peer?,
            tls: tls?,
            rules: rules?,
            warm: warm?,
            intercept: intercept?,
            location: location?,
            smb: smb?,
            store: store?,
            limits: limits?,
            channels: channels?,
            pool: pool?,
            admin: admin?,
            log: log?,
            drain: drain?,
            compression: compression?,
        })
    }
}

impl Peer {
    fn build(reader: &mut Reader<'_>) -> Option<Peer> {
        let section = reader.section("peer");
        let address = reader.host_port(&section, &schema::PEER_ADDRESS);
        let server_name = reader.parsed::<Host>(&section, &schema::PEER_SERVER_NAME);
        let default_port = schema::PEER_PORT;
        let parse = |text: &str| HostPort::parse(text, default_port);
        let backups =
            reader.entries(&section, &schema::PEER_BACKUPS, parse, |value| quoted(&value.to_string()));
        let (address, backups) = (address?, backups?);
        if backups.len() > BACKUPS_MAX {
            let message = format!("has {} entries; at most {BACKUPS_MAX} are tried", backups.len());
            reader.conflict(&section, &schema::PEER_BACKUPS, message);
        }
        if let Some(twice) = backups.iter().find(|backup| **backup == address) {
            let message = format!("{twice} is peer.address already");
            reader.conflict(&section, &schema::PEER_BACKUPS, message);
        }
        let server_name = server_name.unwrap_or_else(|| {
            reader.computed(&section, &schema::PEER_SERVER_NAME, quoted(&address.host.to_string()));
            address.host.clone()
        });
        Some(Peer { address, server_name: server_name.to_string(), backups })
    }
}

impl Pool {
    fn build(reader: &mut Reader<'_>) -> Option<Pool> {
        let section = reader.section("channels");
        let min = reader.integer(&section, &schema::CHANNELS_POOL_MIN);
        let max = reader.integer(&section, &schema::CHANNELS_POOL_MAX);
        let (min, max) = (min?, max?);
        if min > max {
            let message = format!("{min} is more than channels.pool_max, which is {max}");
            reader.conflict(&section, &schema::CHANNELS_POOL_MIN, message);
        }
        Some(Pool { min, max })
    }
}

/// Addresses that rules listen on, each with the path of its key.
type Listeners = Vec<(SocketAddr, String)>;

fn build_rules(reader: &mut Reader<'_>) -> (Option<Rules>, Listeners) {
    let faults_before = reader.errors.len();
    let sections = reader.sections("rule", RULES_MAX);
    let mut listeners = Listeners::new();
    let mut rules = Vec::new();
    let mut all_parsed = true;
    for (index, section) in sections.iter().enumerate() {
        let rule = build_rule(reader, section, index, &mut listeners);
        all_parsed &= rule.is_some();
        rules.extend(rule);
    }
    if sections.is_empty() && reader.errors.len() == faults_before {
        reader.missing_section(
            "rule",
            "at least one [[rule]], such as listen = \"127.0.0.1:4450\" with server = \"fs1.example\"",
        );
    }
    if all_parsed {
        warn_of_shadowed_rules(reader, &sections, &rules);
    }
    (all_parsed.then(|| Rules::new(rules)), listeners)
}

/// A proxy that no connection could ever reach is a mistake.
fn require_a_way_in(reader: &mut Reader<'_>, intercept: Option<&Intercept>) {
    if intercept.is_none_or(Intercept::is_on) {
        return;
    }
    if let Some(section) = reader.sections("rule", RULES_MAX).first() {
        let message = "no rule has a listener, so no connection could ever reach this proxy; one rule needs \"listen\" \
                       and \"server\", or intercept.mode another value than \"off\"";
        reader.conflict(section, &schema::RULE_LISTEN, message);
    }
}

fn build_rule(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    index: usize,
    listeners: &mut Listeners,
) -> Option<Rule> {
    let name = reader.label(section, &schema::RULE_NAME);
    let action = reader.parsed(section, &schema::RULE_ACTION);
    let listen = reader.parsed::<ListenAddress>(section, &schema::RULE_LISTEN);
    let server = reader.host_port(section, &schema::RULE_SERVER);
    let source = reader.list(section, &schema::RULE_SOURCE);
    let destination = reader.list(section, &schema::RULE_DESTINATION);
    let ports = reader.list(section, &schema::RULE_PORTS);
    let domain = reader.parsed(section, &schema::RULE_DOMAIN);
    let when_unavailable = reader.parsed(section, &schema::RULE_WHEN_UNAVAILABLE);
    let name = name.unwrap_or_else(|| {
        let name = format!("rule {}", index + 1);
        reader.computed(section, &schema::RULE_NAME, quoted(&name));
        name
    });
    let (destination, ports) = (destination?, ports?);
    let listener = build_listener(reader, section, listen, server, listeners);
    if listener.is_some() && !destination.is_empty() {
        reader.conflict(
            section,
            &schema::RULE_DESTINATION,
            "\"server\" already names the target of this rule",
        );
    }
    if listener.is_some() && !ports.is_empty() {
        reader.conflict(section, &schema::RULE_PORTS, "\"server\" already names the port of this rule");
    }
    Some(Rule {
        name: name.into(),
        action: action?,
        listener,
        source: source?,
        destination,
        ports,
        domain: domain?,
        when_unavailable: when_unavailable?,
    })
}

fn build_listener(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    listen: Option<ListenAddress>,
    server: Option<HostPort>,
    listeners: &mut Listeners,
) -> Option<Listener> {
    // A key that is there but wrong has been reported already; only one that is absent is a conflict.
    let (ListenAddress(address), target) = match (listen, server) {
        (Some(listen), Some(server)) => (listen, server),
        (Some(_), None) => {
            if !section.has(&schema::RULE_SERVER) {
                reader.conflict(
                    section,
                    &schema::RULE_LISTEN,
                    "a listener needs \"server\", the target behind it",
                );
            }
            return None;
        }
        (None, Some(_)) => {
            if !section.has(&schema::RULE_LISTEN) {
                let message =
                    "\"server\" needs \"listen\"; to match connections to a target, use \"destination\"";
                reader.conflict(section, &schema::RULE_SERVER, message);
            }
            return None;
        }
        (None, None) => return None,
    };
    if let Some((_, other)) = listeners.iter().find(|(other, _)| overlap(*other, address)) {
        reader.conflict(section, &schema::RULE_LISTEN, format!("{address} is taken by {other}"));
    }
    if let Host::Address(host) = target.host
        && overlap(address, SocketAddr::new(host, target.port))
        && (host == address.ip() || host.is_loopback() || host.is_unspecified())
    {
        reader.conflict(section, &schema::RULE_SERVER, "the target is the listener itself");
    }
    listeners.push((address, section.path(schema::RULE_LISTEN.name)));
    Some(Listener { address, target })
}

/// A rule without any restriction decides about everything after it.
fn warn_of_shadowed_rules(reader: &mut Reader<'_>, sections: &[Section<'_>], rules: &[Rule]) {
    let catches_all = |rule: &Rule| {
        rule.listener.is_none()
            && rule.source.is_empty()
            && rule.destination.is_empty()
            && rule.ports.is_empty()
    };
    let Some(first) = rules.iter().position(catches_all) else { return };
    if let Some(shadowed) = sections.get(first + 1) {
        let text = format!(
            "this rule and those after it are never reached: {} matches everything",
            rules[first].name
        );
        reader.warn(shadowed, &schema::RULE_ACTION, text);
    }
}
