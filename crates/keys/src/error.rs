use crate::CommandProblem;
use isthmus_smb_auth::FormatError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why secrets could not be loaded. Its text names files, never what is in them.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be opened or read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The path is a directory, pipe or device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Others than the owner may read, change or run the file.
    #[error("{}: mode is {mode:04o}; expected 0600 or 0400, so that only its owner can read it", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to a user who is neither root nor the one that the proxy runs as.
    #[error("{}: owner is user {owner}; expected user {expected}, as whom the proxy runs, or root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// User number of its owner.
        owner: u32,
        /// User number of this process.
        expected: u32,
    },
    /// The file is larger than any that is read.
    #[error("{}: larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The content is not what it should be.
    #[error("{name}: {error}")]
    Format {
        /// The file or command.
        name: String,
        /// Where and what.
        error: FormatError,
    },
    /// A command brought nothing.
    #[error("command {name:?}: {problem}")]
    Command {
        /// The command's name.
        name: String,
        /// What happened.
        problem: CommandProblem,
    },
    /// A command's configuration cannot be meant so.
    #[error("command {name:?}: {problem}")]
    BadCommand {
        /// The command's name.
        name: String,
        /// What is wrong, and what is expected.
        problem: &'static str,
    },
    /// Too many files and commands.
    #[error("{count} key files and commands; expected at most {limit}")]
    TooManySources {
        /// How many there are.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The threads that watch files and run commands cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The limits of the process cannot be set.
    #[error("core dumps cannot be turned off: {0}")]
    CoreDumps(io::Error),
}

/// A length of time as people write it.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
