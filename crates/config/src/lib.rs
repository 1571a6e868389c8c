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
mod intercept;
mod keys;
mod load;
mod location;
mod overrides;
mod reader;
mod rules;
pub mod schema;
mod sections;
mod server;
mod share;
mod smb;
mod suggest;
mod tree;
mod units;
mod warm;
mod window;
mod words;

pub use address::{Host, HostPort, Network, Pattern, PortRange, normalise};
pub use allow::{ALLOW_MAX, Allow, AllowEntry};
pub use client::{BACKUPS_MAX, ClientConfig, Peer, Pool};
pub use effective::{Effective, Warning};
pub use error::{ConfigError, ConfigErrors, ERRORS_MAX, LoadError, Origin, Problem};
pub use intercept::{Intercept, InterceptAnswers, InterceptRouting};
pub use load::{FILE_BYTES_MAX, Loaded};
pub use location::{Gateway, Location};
pub use overrides::{Overrides, VARIABLE_PREFIX};
pub use rules::{Decision, DomainScope, LABEL_LEN_MAX, Listener, RULES_MAX, Rule, Rules};
pub use sections::{
    Admin, Channels, Compression, CompressionLevel, Drain, Limits, Log, LogFormat, LogLevel, Store, Tls,
};
pub use server::{FleetConfig, ServerConfig};
pub use share::{ShareLocation, SmbUser};
pub use smb::{NamePattern, SMB_RULES_MAX, Smb, SmbRule};
pub use units::{Size, format_duration, parse_duration};
pub use warm::{WARM_MAX, Warm};
pub use window::TimeWindow;
pub use words::{Acceleration, Action, InterceptMode, WhenUnavailable};
