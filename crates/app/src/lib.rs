//! Wiring: from a configuration to a running proxy, and the command line around it.

pub mod cli;
pub mod client;
mod error;
pub mod server;

pub use error::AppError;
