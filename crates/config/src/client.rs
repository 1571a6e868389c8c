//! The client-side proxy's configuration.

use crate::address::HostPort;
use crate::rules::Rules;
use crate::sections::{Admin, Channels, Compression, Drain, Limits, Log, Store, Tls};

/// Everything the client-side proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    pub peer: Peer,
    pub tls: Tls,
    /// `[[rule]]`, in order. At least one has a listener.
    pub rules: Rules,
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
}

/// `channels.pool_min` and `channels.pool_max`: idle channels kept connected, so that opening needs no handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub min: u32,
    /// At least `min`.
    pub max: u32,
}
