//! What can be wrong with a configuration, each with its place, its key and what was expected.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Most errors that are reported at once.
pub const ERRORS_MAX: usize = 50;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A line of a file, counted from 1.
    File { name: Arc<str>, line: usize },
    /// An environment variable.
    Environment(Arc<str>),
    /// A flag of the command line, as the user could write it.
    Flag(Arc<str>),
    /// The built-in default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Environment(variable) => write!(f, "environment variable {variable}"),
            Origin::Flag(flag) => f.write_str(flag),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong: where, with which key, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub place: Origin,
    /// Path of the key, such as `store.size` or `rule[2].ports`; for syntax errors the text of the line.
    pub key: String,
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text is not TOML.
    Syntax(String),
    /// No such key or section; `hint` is what may have been meant, as a clause.
    UnknownKey { hint: Option<String> },
    /// A value of a TOML type that the key does not take.
    WrongType { expected: String, found: String },
    /// A value of the right type that is impossible; `why` is read after `found`.
    Impossible { found: String, why: String, expected: String },
    /// A key that has no default is not there.
    Missing { expected: String },
    /// Two values that are each possible but not together, as a sentence.
    Conflict(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.place, self.key)?;
        match &self.problem {
            Problem::Syntax(message) => write!(f, "this is not TOML: {message}"),
            Problem::UnknownKey { hint: Some(hint) } => write!(f, "there is no such key; {hint}"),
            Problem::UnknownKey { hint: None } => write!(f, "there is no such key"),
            Problem::WrongType { expected, found } => write!(f, "expected {expected}, found {found}"),
            Problem::Impossible { found, why, expected } => write!(f, "{found} {why}; expected {expected}"),
            Problem::Missing { expected } => write!(f, "missing; expected {expected}"),
            Problem::Conflict(message) => f.write_str(message),
        }
    }
}

/// Everything that is wrong with one configuration. Never empty; at most [`ERRORS_MAX`] errors.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    /// One error a line, without a trailing newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

/// Why no configuration could be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is longer than [`crate::FILE_BYTES_MAX`].
    #[error("{}: longer than {} bytes, which no configuration is", path.display(), crate::FILE_BYTES_MAX)]
    TooLong { path: PathBuf },
    /// The file, the environment or a flag says what cannot be.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
}
