//! Configuration: one TOML file a side, parsed once into types that cannot hold what the proxies cannot do.

mod address;
mod allow;
mod client;
mod rules;
mod sections;
mod server;
mod units;
mod words;

pub use address::{Host, HostPort, Network, Pattern, PortRange, normalise};
pub use allow::{ALLOW_MAX, Allow, AllowEntry};
pub use client::{ClientConfig, Peer, Pool};
pub use rules::{Decision, DomainScope, LABEL_LEN_MAX, Listener, RULES_MAX, Rule, Rules};
pub use sections::{
    Admin, Channels, Compression, CompressionLevel, Drain, Limits, Log, LogFormat, LogLevel, Store, Tls,
};
pub use server::ServerConfig;
pub use units::{Size, format_duration, parse_duration};
pub use words::{Action, WhenUnavailable};
