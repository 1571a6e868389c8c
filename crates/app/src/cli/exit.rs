//! Exit statuses: those of BSD's sysexits and two of `doctor`, so that scripts and service managers can tell causes apart.

use std::io;

use isthmus_certs::CertsError;
use isthmus_config::LoadError;
use isthmus_fleet::FleetError;
use isthmus_intercept::InterceptError;
use isthmus_keys::KeysError;
use isthmus_store::OpenError;

use crate::AppError;

/// Why the program ends other than well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `doctor` has found something that should be seen to, and nothing worse.
    DoctorWarnings,
    /// `doctor` has found something that does not work.
    DoctorFailures,
    /// Wrong arguments or configuration.
    Usage,
    /// Data on disk is damaged.
    Data,
    /// A file that is needed is not there.
    NoInput,
    /// Something that is needed is not available: a port, a running proxy, a store in use.
    Unavailable,
    /// An error in the program or the system below it.
    Software,
    /// A file cannot be made, or exists already.
    CannotCreate,
    /// Reading or writing failed.
    Io,
    /// Something is not permitted.
    NoPermission,
}

impl Exit {
    /// Every status.
    pub const ALL: [Exit; 10] = [
        Exit::DoctorWarnings,
        Exit::DoctorFailures,
        Exit::Usage,
        Exit::Data,
        Exit::NoInput,
        Exit::Unavailable,
        Exit::Software,
        Exit::CannotCreate,
        Exit::Io,
        Exit::NoPermission,
    ];

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::DoctorWarnings => 1,
            Exit::DoctorFailures => 2,
            Exit::Usage => 64,
            Exit::Data => 65,
            Exit::NoInput => 66,
            Exit::Unavailable => 69,
            Exit::Software => 70,
            Exit::CannotCreate => 73,
            Exit::Io => 74,
            Exit::NoPermission => 77,
        }
    }

    /// The status for an operation that failed in the system.
    pub fn of(kind: io::ErrorKind) -> Exit {
        match kind {
            io::ErrorKind::NotFound => Exit::NoInput,
            io::ErrorKind::PermissionDenied => Exit::NoPermission,
            io::ErrorKind::AlreadyExists => Exit::CannotCreate,
            io::ErrorKind::AddrInUse
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::TimedOut => Exit::Unavailable,
            _ => Exit::Io,
        }
    }
}

/// What failed, for the user, and the status to end with.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// Printed to standard error; nothing if empty.
    pub text: String,
}

impl Failure {
    /// A failure with this status and text.
    pub fn new(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, text: text.into() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        let exit = match &error {
            LoadError::Unreadable { source, .. } => Exit::of(source.kind()),
            LoadError::TooLong { .. } | LoadError::Invalid(_) => Exit::Usage,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<CertsError> for Failure {
    fn from(error: CertsError) -> Failure {
        Failure::new(Failure::of_certs(&error), error.to_string())
    }
}

impl Failure {
    /// The status for a register of agents that could not do what was asked.
    pub(crate) fn of_fleet(error: &FleetError) -> Exit {
        match error {
            FleetError::BadFile { .. } => Exit::Data,
            FleetError::Io { source, .. } => Exit::of(source.kind()),
            FleetError::Certs(error) => Failure::of_certs(error),
            FleetError::Token | FleetError::Revoked(_) => Exit::NoPermission,
            FleetError::NoPolicy(_)
            | FleetError::NoAgent(_)
            | FleetError::Taken(_)
            | FleetError::BadRequest(_)
            | FleetError::TooMany { .. } => Exit::Usage,
        }
    }

    pub(crate) fn of_certs(error: &CertsError) -> Exit {
        match error {
            CertsError::Exists(_) => Exit::CannotCreate,
            CertsError::Io { source, .. } => Exit::of(source.kind()),
            CertsError::NoAuthority(_) => Exit::NoInput,
            CertsError::BadFile { .. } => Exit::Data,
            CertsError::BadRequest(_) | CertsError::NotFound(_) | CertsError::TooMany(_) => Exit::Usage,
            CertsError::AuthorityExpired { .. } => Exit::Unavailable,
            CertsError::Generation(_) => Exit::Software,
        }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Failure {
        Failure::new(Failure::of_fleet(&error), error.to_string())
    }
}

impl Failure {
    /// The status for a store that cannot be opened.
    pub(crate) fn of_store(error: &OpenError) -> Exit {
        match error {
            OpenError::Locked { .. } => Exit::Unavailable,
            OpenError::WrongKey { .. }
            | OpenError::KeyNeeded { .. }
            | OpenError::Setting(_)
            | OpenError::KeyFile { .. } => Exit::Usage,
            OpenError::Version { .. } | OpenError::Format(_) => Exit::Data,
            OpenError::Random => Exit::Software,
            OpenError::Catalogue { .. } => Exit::Io,
            OpenError::Io { source, .. } => Exit::of(source.kind()),
        }
    }
}

impl Failure {
    /// The status for secrets that cannot be loaded.
    pub(crate) fn of_keys(error: &KeysError) -> Exit {
        match error {
            KeysError::Read { error, .. } => Exit::of(error.kind()),
            KeysError::NotAFile { .. } | KeysError::Mode { .. } | KeysError::Owner { .. } => {
                Exit::NoPermission
            }
            KeysError::TooLarge { .. } | KeysError::Format { .. } => Exit::Data,
            KeysError::Command { .. } => Exit::Unavailable,
            KeysError::BadCommand { .. } | KeysError::TooManySources { .. } => Exit::Usage,
            KeysError::Thread(_) | KeysError::CoreDumps(_) => Exit::Software,
        }
    }
}

impl Failure {
    /// The status for rules that cannot be put in, removed or looked at.
    pub(crate) fn of_intercept(error: &InterceptError) -> Exit {
        match error {
            InterceptError::Tool { .. } | InterceptError::Conflicts(_) => Exit::Unavailable,
            InterceptError::Refused { .. } | InterceptError::Answer { .. } => Exit::Software,
            InterceptError::Permission(_) => Exit::NoPermission,
            InterceptError::Unattended => Exit::Usage,
        }
    }
}

impl From<InterceptError> for Failure {
    fn from(error: InterceptError) -> Failure {
        Failure::new(Failure::of_intercept(&error), error.to_string())
    }
}

impl From<KeysError> for Failure {
    fn from(error: KeysError) -> Failure {
        Failure::new(Failure::of_keys(&error), format!("keys: {error}"))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::new(Failure::of_store(&error), error.to_string())
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Failure {
        Failure::new(error.exit(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_every_status() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command-line.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
        let mut documented: Vec<u8> =
            rows.filter_map(|row| row.trim_start_matches("| ").split(' ').next()?.parse().ok()).collect();
        documented.sort_unstable();
        assert_eq!(documented, Exit::ALL.map(Exit::code));
    }
}
