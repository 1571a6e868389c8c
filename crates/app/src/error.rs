use std::net::SocketAddr;

use isthmus_net::BindError;
use isthmus_store::OpenError;
use isthmus_telemetry::MetricsError;
use thiserror::Error;

use crate::cli::{Exit, Failure};

/// Why a proxy ended, or could not start.
#[derive(Debug, Error)]
pub enum AppError {
    /// A port cannot be listened on.
    #[error("cannot listen on {address} ({key}): {error}")]
    Listen { address: SocketAddr, key: &'static str, error: std::io::Error },
    #[error(transparent)]
    Inner(#[from] BindError),
    /// The store cannot be opened, and passing everything through would hide a mistake.
    #[error("{0}")]
    Store(#[from] OpenError),
    #[error("metrics cannot be set up: {0}")]
    Metrics(#[from] MetricsError),
    /// The system gave no random numbers, signals or the like.
    #[error("{what}: {error}")]
    System { what: &'static str, error: std::io::Error },
    #[error("peer.server_name {0:?} is neither a host name nor an address")]
    ServerName(String),
}

impl AppError {
    /// The exit status that tells scripts and service managers what happened.
    pub fn exit(&self) -> Exit {
        match self {
            AppError::Listen { error, .. } => Exit::of(error.kind()),
            AppError::Inner(bind) => Exit::of(bind.error.kind()),
            AppError::Store(error) => Failure::of_store(error),
            AppError::Metrics(_) => Exit::Software,
            AppError::System { error, .. } => Exit::of(error.kind()),
            AppError::ServerName(_) => Exit::Usage,
        }
    }
}
