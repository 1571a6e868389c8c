//! The server-side proxy's configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use isthmus_keys::KeysConfig;

use crate::allow::{ALLOW_MAX, Allow, AllowEntry};
use crate::intercept::InterceptAnswers;
use crate::keys;
use crate::reader::{Reader, Section};
use crate::schema;
use crate::sections::{Admin, Channels, Compression, Drain, Limits, ListenAddress, Log, Store, Tls};
use crate::smb::Smb;

/// Everything the server-side proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where client-side proxies connect to.
    pub listen: SocketAddr,
    pub tls: Tls,
    /// `[[allow]]`: the targets this proxy may connect to. At least one entry.
    pub allow: Allow,
    pub intercept: InterceptAnswers,
    /// `[fleet]`: enrolment and policies of laptops, if this proxy keeps them.
    pub fleet: Option<FleetConfig>,
    pub smb: Smb,
    /// `[keys]`: where session keys come from, and who may be given them.
    pub keys: KeysConfig,
    pub store: Store,
    pub limits: Limits,
    pub channels: Channels,
    pub admin: Admin,
    pub log: Log,
    pub drain: Drain,
    pub compression: Compression,
}

/// `[fleet]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Directory of the authority, with its key.
    pub authority: PathBuf,
    /// Directory of the register.
    pub path: PathBuf,
    /// Days that an agent's certificate is valid.
    pub days: u32,
}

impl ServerConfig {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<ServerConfig> {
        let section = reader.section("listen");
        let listen = reader.parsed::<ListenAddress>(&section, &schema::LISTEN_ADDRESS).map(|listen| listen.0);
        let tls = Tls::build(reader);
        let allow = build_allow(reader);
        let intercept = InterceptAnswers::build(reader);
        let crl = tls.as_ref().is_none_or(|tls| tls.crl.is_some());
        let fleet = build_fleet(reader, crl);
        let smb = Smb::build(reader);
        let keys = keys::build(reader);
        let store = Store::build(reader, &schema::STORE_PATH_SERVER);
        let limits = Limits::build(reader);
        let channels = Channels::build(reader);
        let taken: Vec<_> = listen.iter().map(|address| (*address, schema::LISTEN_ADDRESS.path())).collect();
        let admin = Admin::build(reader, &schema::ADMIN_LISTEN_SERVER, &taken);
        let log = Log::build(reader);
        let drain = Drain::build(reader);
        let compression = Compression::build(reader);
        Some(ServerConfig {
            listen: listen?,
            tls: tls?,
            allow: allow?,
            intercept: intercept?,
            fleet: fleet?,
            smb: smb?,
            keys: keys?,
            store: store?,
            limits: limits?,
            channels: channels?,
            admin: admin?,
            log: log?,
            drain: drain?,
            compression: compression?,
        })
    }
}

/// `crl` says whether there is a revocation list. `Some(None)` if no fleet is kept.
fn build_fleet(reader: &mut Reader<'_>, crl: bool) -> Option<Option<FleetConfig>> {
    let section = reader.section("fleet");
    let authority = reader.path(&section, &schema::FLEET_CA);
    let path = reader.path(&section, &schema::FLEET_PATH);
    let days = reader.integer(&section, &schema::FLEET_DAYS);
    let (path, days) = (path?, days?);
    if authority.is_some() && !crl {
        let message = "needs tls.crl, or a laptop that is revoked would go on";
        reader.conflict(&section, &schema::FLEET_CA, message);
    }
    Some(authority.map(|authority| FleetConfig { authority, path, days }))
}

fn build_allow(reader: &mut Reader<'_>) -> Option<Allow> {
    let faults_before = reader.errors.len();
    let sections = reader.sections("allow", ALLOW_MAX);
    if sections.is_empty() && reader.errors.len() == faults_before {
        let expected = "at least one [[allow]], such as destination = [\"fs1.example\", \"10.1.0.0/16\"]";
        reader.missing_section("allow", expected);
    }
    let entries: Vec<Option<AllowEntry>> =
        sections.iter().map(|section| build_entry(reader, section)).collect();
    entries.into_iter().collect::<Option<Vec<_>>>().map(Allow::new)
}

fn build_entry(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<AllowEntry> {
    let destination = reader.list(section, &schema::ALLOW_DESTINATION);
    let ports = reader.list(section, &schema::ALLOW_PORTS);
    let (destination, ports) = (destination?, ports?);
    // An empty list restricts nothing in a rule; here it would allow nothing, which nobody writes on purpose.
    if destination.is_empty() {
        reader.conflict(
            section,
            &schema::ALLOW_DESTINATION,
            "an empty list allows nothing; name a target or leave the entry out",
        );
    }
    if ports.is_empty() {
        reader.conflict(
            section,
            &schema::ALLOW_PORTS,
            "an empty list allows nothing; name a port or leave the key out",
        );
    }
    Some(AllowEntry { destination, ports })
}
