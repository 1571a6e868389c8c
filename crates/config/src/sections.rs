//! The sections that both sides have.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::address::Host;
use crate::reader::{Reader, quoted};
use crate::schema::{self, Key};
use crate::units::Size;

/// `[tls]`: PEM files. All of them are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// This proxy's certificate, followed by intermediates if there are any.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authority that the peer's certificate must come from.
    pub ca: PathBuf,
    /// The authority's revocation list. Without one, nothing counts as revoked.
    pub crl: Option<PathBuf>,
}

/// `[store]`: the chunk store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Directory of the store. Made at the first start.
    pub path: PathBuf,
    /// Most bytes the store's files may take.
    pub size: Size,
    /// Whether new segments are written encrypted.
    pub encryption: bool,
    /// The store key. Made at the first start, readable by its owner only.
    pub key_file: PathBuf,
    /// Memory for records read lately.
    pub cache: Size,
    /// Learning stops while the disk has less free space than this.
    pub reserve: Size,
}

/// `[limits]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Admission control switches on at this many optimised connections: new ones are no longer optimised.
    pub admission_on: u32,
    /// Admission control switches off again at this many. At most `admission_on`.
    pub admission_off: u32,
    /// LAN bytes that one direction of a connection may be ahead of what the far application has taken.
    pub window: Size,
    /// How long connecting to a target may take.
    pub connect_timeout: Duration,
    /// Idle time after which the kernel probes whether the far end of an outer connection still lives.
    pub keepalive: Duration,
}

/// `[channels]`: how inner channels are kept and resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels {
    /// How long a connection outlives its dead link, waiting to be resumed.
    pub resume_window: Duration,
    /// Time between heartbeats on the control channel.
    pub heartbeat: Duration,
}

/// `[admin]`: console, metrics and health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where the admin port listens; `None` when it is off.
    pub listen: Option<SocketAddr>,
    /// Host names (besides loopback names and addresses) that a browser may use to reach it.
    pub names: Vec<String>,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    pub level: LogLevel,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `[drain]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long connections may go on after SIGTERM before they are closed.
    pub deadline: Duration,
}

/// `[compression]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    pub level: CompressionLevel,
}

/// zstd level for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionLevel {
    /// Chosen while running, by what more effort saves of the time spent waiting for the WAN.
    Auto,
    /// 1 (fastest) to 9 (smallest).
    Fixed(u8),
}

impl Tls {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Tls> {
        let section = reader.section("tls");
        let certificate = reader.path(&section, &schema::TLS_CERTIFICATE);
        let key = reader.path(&section, &schema::TLS_KEY);
        let ca = reader.path(&section, &schema::TLS_CA);
        let crl = reader.path(&section, &schema::TLS_CRL);
        Some(Tls { certificate: certificate?, key: key?, ca: ca?, crl })
    }
}

impl Store {
    /// `path_key` is the key whose default names this side's directory.
    pub(crate) fn build(reader: &mut Reader<'_>, path_key: &'static Key) -> Option<Store> {
        let section = reader.section("store");
        let path = reader.path(&section, path_key);
        let size = reader.size(&section, &schema::STORE_SIZE);
        let encryption = reader.boolean(&section, &schema::STORE_ENCRYPTION);
        let key_file = reader.path(&section, &schema::STORE_KEY_FILE);
        let cache = reader.size(&section, &schema::STORE_CACHE);
        let reserve = reader.size(&section, &schema::STORE_RESERVE);
        let path = path?;
        let key_file = key_file.unwrap_or_else(|| {
            let mut beside = path.clone().into_os_string();
            beside.push(".key");
            reader.computed(&section, &schema::STORE_KEY_FILE, quoted(&beside.to_string_lossy()));
            beside.into()
        });
        if key_file.starts_with(&path) {
            let text = "the key file lies inside the store's directory, so a copy of the directory can be read by anyone";
            reader.warn(&section, &schema::STORE_KEY_FILE, text);
        }
        Some(Store { path, size: size?, encryption: encryption?, key_file, cache: cache?, reserve: reserve? })
    }
}

impl Limits {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Limits> {
        let section = reader.section("limits");
        let admission_on = reader.integer(&section, &schema::LIMITS_ADMISSION_ON);
        let admission_off = reader.integer(&section, &schema::LIMITS_ADMISSION_OFF);
        let window = reader.size(&section, &schema::LIMITS_WINDOW);
        let connect_timeout = reader.duration(&section, &schema::LIMITS_CONNECT_TIMEOUT);
        let keepalive = reader.duration(&section, &schema::LIMITS_KEEPALIVE);
        let admission_on = admission_on?;
        let admission_off = admission_off.unwrap_or_else(|| {
            let computed = admission_on - admission_on.div_ceil(10);
            reader.computed(&section, &schema::LIMITS_ADMISSION_OFF, computed.to_string());
            computed
        });
        if admission_off >= admission_on {
            let message = format!(
                "admission control would never switch off: {admission_off} must be less than limits.admission_on, \
                 which is {admission_on}"
            );
            reader.conflict(&section, &schema::LIMITS_ADMISSION_OFF, message);
        }
        let (window, connect_timeout, keepalive) = (window?, connect_timeout?, keepalive?);
        Some(Limits { admission_on, admission_off, window, connect_timeout, keepalive })
    }
}

impl Channels {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Channels> {
        let section = reader.section("channels");
        let resume_window = reader.duration(&section, &schema::CHANNELS_RESUME_WINDOW);
        let heartbeat = reader.duration(&section, &schema::CHANNELS_HEARTBEAT);
        Some(Channels { resume_window: resume_window?, heartbeat: heartbeat? })
    }
}

impl Admin {
    /// `listen_key` is the key whose default is this side's port; `taken` are addresses that others listen on, each
    /// with the path of its key.
    pub(crate) fn build(
        reader: &mut Reader<'_>,
        listen_key: &'static Key,
        taken: &[(SocketAddr, String)],
    ) -> Option<Admin> {
        let section = reader.section("admin");
        let listen = reader.parsed::<ListenOrOff>(&section, listen_key);
        let names = reader.list::<Host>(&section, &schema::ADMIN_NAMES);
        let listen = listen?.0;
        if let Some(address) = listen {
            if let Some((_, key)) = taken.iter().find(|(other, _)| overlap(*other, address)) {
                reader.conflict(&section, listen_key, format!("{address} is taken by {key}"));
            }
            if !address.ip().is_loopback() {
                let text = "anyone who reaches this address can see the console; it has no password";
                reader.warn(&section, listen_key, text);
            }
        }
        Some(Admin { listen, names: names?.iter().map(Host::to_string).collect() })
    }
}

impl Log {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Log> {
        let section = reader.section("log");
        let format = reader.parsed(&section, &schema::LOG_FORMAT);
        let level = reader.parsed(&section, &schema::LOG_LEVEL);
        Some(Log { format: format?, level: level? })
    }
}

impl Drain {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Drain> {
        let section = reader.section("drain");
        reader.duration(&section, &schema::DRAIN_DEADLINE).map(|deadline| Drain { deadline })
    }
}

impl Compression {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Compression> {
        let section = reader.section("compression");
        reader.parsed_or_integer(&section, &schema::COMPRESSION_LEVEL).map(|level| Compression { level })
    }
}

/// An address to listen on. Port 0 is refused: nobody could know where to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub SocketAddr);

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err("has port 0".into()),
            Ok(address) => Ok(ListenAddress(address)),
            Err(_) if text.parse::<std::net::IpAddr>().is_ok() => Err("has no port".into()),
            Err(_) => Err("is not an address with a port".into()),
        }
    }
}

struct ListenOrOff(Option<SocketAddr>);

impl fmt::Display for ListenOrOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl FromStr for ListenOrOff {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenOrOff, String> {
        if text == "off" {
            return Ok(ListenOrOff(None));
        }
        text.parse::<ListenAddress>().map(|address| ListenOrOff(Some(address.0)))
    }
}

/// Whether two sockets cannot listen on these addresses at once.
pub(crate) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}
