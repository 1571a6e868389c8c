use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the authority could not do what was asked.
#[derive(Debug, Error)]
pub enum CertsError {
    /// Nothing is ever overwritten.
    #[error("{} exists already; nothing was overwritten", .0.display())]
    Exists(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The directory holds no authority.
    #[error("{} holds no certificate authority (\"certs init\" makes one)", .0.display())]
    NoAuthority(PathBuf),
    /// A file is there but is not what it should be.
    #[error("{}: {why}", path.display())]
    BadFile { path: PathBuf, why: String },
    /// A name, address or number of days that no certificate can have.
    #[error("{0}")]
    BadRequest(String),
    /// The authority is expired or not valid yet.
    #[error("the authority's own certificate is valid from {from} to {until} only")]
    AuthorityExpired { from: String, until: String },
    #[error("no certificate was issued with the name or serial number {0:?}")]
    NotFound(String),
    #[error("more than {0} certificates; start a new authority")]
    TooMany(usize),
    /// The cryptographic library refused.
    #[error("the certificate could not be made: {0}")]
    Generation(String),
}

impl CertsError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CertsError {
        let path = path.into();
        move |source| CertsError::Io { path, source }
    }

    pub(crate) fn bad(path: impl Into<PathBuf>, why: impl Into<String>) -> CertsError {
        CertsError::BadFile { path: path.into(), why: why.into() }
    }
}

impl From<rcgen::Error> for CertsError {
    fn from(error: rcgen::Error) -> CertsError {
        CertsError::Generation(error.to_string())
    }
}
