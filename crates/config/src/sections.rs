//! The sections that both sides have.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Size;

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
    /// Chosen while running, by whether the WAN or the processor is the bottleneck.
    Auto,
    /// 1 (fastest) to 9 (smallest).
    Fixed(u8),
}
