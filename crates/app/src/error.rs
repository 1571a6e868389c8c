use std::net::SocketAddr;

use isthmus_fleet::FleetError;
use isthmus_intercept::InterceptError;
use isthmus_keys::{BadRules, KeysError};
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
    /// Intercepted connections cannot be taken.
    #[error("cannot listen for intercepted connections on port {port} (intercept.port): {error}")]
    Intercepted { port: u16, error: std::io::Error },
    /// The rules of interception cannot be put in.
    #[error("interception: {0}")]
    Interception(#[from] InterceptError),
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
    /// Secrets cannot be loaded, or not be kept safe.
    #[error("keys: {0}")]
    Keys(#[from] KeysError),
    /// Release rules that cannot be meant so. The configuration has refused them before.
    #[error("keys: {0}")]
    Rules(#[from] BadRules),
    /// This laptop is no longer wanted.
    #[error("{0:?} is revoked: store, keys and policy are erased; enrol anew to go on")]
    Revoked(String),
    /// The register of agents cannot be used.
    #[error("fleet: {0}")]
    Fleet(#[from] FleetError),
    #[error("peer.server_name {0:?} is neither a host name nor an address")]
    ServerName(String),
}

impl AppError {
    /// The exit status that tells scripts and service managers what happened.
    pub fn exit(&self) -> Exit {
        match self {
            AppError::Listen { error, .. } => Exit::of(error.kind()),
            AppError::Intercepted { error, .. } => Exit::of(error.kind()),
            AppError::Interception(error) => Failure::of_intercept(error),
            AppError::Inner(bind) => Exit::of(bind.error.kind()),
            AppError::Store(error) => Failure::of_store(error),
            AppError::Metrics(_) => Exit::Software,
            AppError::Keys(error) => Failure::of_keys(error),
            AppError::Fleet(error) => Failure::of_fleet(error),
            AppError::Revoked(_) => Exit::NoPermission,
            AppError::Rules(_) => Exit::Usage,
            AppError::System { error, .. } => Exit::of(error.kind()),
            AppError::ServerName(_) => Exit::Usage,
        }
    }
}
