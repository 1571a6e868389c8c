//! The server-side proxy's configuration.

use std::net::SocketAddr;

use crate::allow::Allow;
use crate::sections::{Admin, Channels, Compression, Drain, Limits, Log, Store, Tls};

/// Everything the server-side proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where client-side proxies connect to.
    pub listen: SocketAddr,
    pub tls: Tls,
    /// `[[allow]]`: the targets this proxy may connect to. At least one entry.
    pub allow: Allow,
    pub store: Store,
    pub limits: Limits,
    pub channels: Channels,
    pub admin: Admin,
    pub log: Log,
    pub drain: Drain,
    pub compression: Compression,
}
