//! What can go wrong in the lab, told so that the person at the terminal knows what to do.

use std::io;

/// Result of every lab operation.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why a lab operation failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An operation of the operating system failed.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// The system's own error.
        source: io::Error,
    },
    /// A program that the lab ran ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Command {
        /// The command line, shortened.
        program: String,
        /// Exit status in words.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// Something did not become ready in time.
    #[error("{what} did not happen within {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// A program, a right or a file that is needed is not there.
    #[error("{what} is missing: {remedy}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// What the person can do about it.
        remedy: String,
    },
    /// Something that was read cannot be understood.
    #[error("cannot understand {what}: {detail}")]
    Format {
        /// What was read.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Something failed while it went through the pair.
    #[error(
        "{source}\nthe client-side proxy's log ends:\n{client_log}\nthe server-side proxy's log ends:\n{server_log}"
    )]
    ThroughPair {
        /// What failed.
        source: Box<LabError>,
        /// The end of the client-side proxy's log.
        client_log: String,
        /// The end of the server-side proxy's log.
        server_log: String,
    },
    /// Bytes that arrived are not the bytes that were sent.
    #[error("{what}: {detail}")]
    Mismatch {
        /// Which transfer.
        what: String,
        /// How the bytes differ.
        detail: String,
    },
}

/// Gives an IO error the words that say what was being done.
pub(crate) trait Context<T> {
    /// Wraps the error with `action`.
    fn context(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| LabError::Io { action: action(), source })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| LabError::Io { action: action(), source: errno.into() })
    }
}
