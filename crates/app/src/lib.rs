//! Wiring: from a configuration to a running proxy, and the command line around it.

mod admission;
mod certificates;
pub mod cli;
pub mod client;
mod core;
mod decode;
mod encode;
mod error;
mod host;
mod lan;
mod level;
mod opening;
mod recording;
pub mod server;
mod session;
mod status;
mod watch;

pub use error::AppError;
