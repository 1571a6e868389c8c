use std::path::PathBuf;

use isthmus_certs::CertsError;
use thiserror::Error;

/// Why the register could not do what was asked.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A file is there but is not what it should be.
    #[error("{}: {why}", path.display())]
    BadFile { path: PathBuf, why: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// The token is unknown, used or past its end. Which of these is not told to whoever asks.
    #[error("the token is not valid: unknown, already used, or past its end")]
    Token,
    #[error("there is no policy {0:?} (\"fleet set-policy\" makes one)")]
    NoPolicy(String),
    #[error("there is no agent {0:?}")]
    NoAgent(String),
    /// The name belongs to somebody.
    #[error("{0:?} has a valid certificate already; revoke it first, or choose another name")]
    Taken(String),
    #[error("{0:?} is revoked")]
    Revoked(String),
    #[error("{0}")]
    BadRequest(String),
    /// A limit is reached.
    #[error("more than {most} {what}")]
    TooMany { what: &'static str, most: usize },
}
