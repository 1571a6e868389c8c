use thiserror::Error;

use crate::cli::Exit;

/// Why a proxy ended, or could not start.
#[derive(Debug, Error)]
pub enum AppError {
    /// The proxy itself is not part of this build.
    #[error("this build cannot run a proxy")]
    NotBuilt,
}

impl AppError {
    /// The exit status that tells scripts and service managers what happened.
    pub fn exit(&self) -> Exit {
        match self {
            AppError::NotBuilt => Exit::Software,
        }
    }
}
