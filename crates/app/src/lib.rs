//! Wiring: from a configuration to a running proxy, and the command line around it.

mod admission;
pub mod agent;
mod certificates;
pub mod cli;
pub mod client;
mod core;
mod decode;
mod dial;
mod encode;
mod error;
mod failover;
mod fleet;
mod host;
mod intercept;
mod keys;
mod lan;
mod lanes;
mod level;
mod link;
mod listeners;
mod mixed;
mod opening;
mod passing;
mod policy;
mod recording;
mod relay;
mod release;
mod report;
pub mod server;
mod session;
mod status;
mod trace;
mod warm;
mod watch;
mod whereabouts;

pub use error::AppError;
