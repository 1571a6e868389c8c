//! Configuration: one TOML file a side, parsed once into types that cannot hold what the proxies cannot do.
//!
//! [`ClientConfig::load`] and [`ServerConfig::load`] read the file, put the environment and flags ([`Overrides`]) over
//! it, and give a typed configuration or every error at once. The keys are listed in [`schema`] and, for users, in
//! `docs/configuration.md`.

mod address;
mod allow;
mod client;
mod effective;
mod error;
mod load;
mod overrides;
mod reader;
mod rules;
pub mod schema;
mod sections;
mod server;
mod suggest;
mod tree;
mod units;
mod words;

pub use address::{Host, HostPort, Network, Pattern, PortRange, normalise};
pub use allow::{ALLOW_MAX, Allow, AllowEntry};
pub use client::{ClientConfig, Peer, Pool};
pub use effective::{Effective, Warning};
pub use error::{ConfigError, ConfigErrors, ERRORS_MAX, LoadError, Origin, Problem};
pub use load::{FILE_BYTES_MAX, Loaded};
pub use overrides::{Overrides, VARIABLE_PREFIX};
pub use rules::{Decision, DomainScope, LABEL_LEN_MAX, Listener, RULES_MAX, Rule, Rules};
pub use sections::{
    Admin, Channels, Compression, CompressionLevel, Drain, Limits, Log, LogFormat, LogLevel, Store, Tls,
};
pub use server::ServerConfig;
pub use units::{Size, format_duration, parse_duration};
pub use words::{Action, WhenUnavailable};
