//! Finding the two programs.

use crate::error::{LabError, Result};
use std::path::{Path, PathBuf};

/// Environment variable that names the folder with both programs.
pub const BINARIES_VARIABLE: &str = "ISTHMUS_BIN_DIR";

/// The two programs of the pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// `isthmus-client`.
    pub client: PathBuf,
    /// `isthmus-server`.
    pub server: PathBuf,
}

impl Binaries {
    /// Both programs in `folder`.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn in_folder(folder: &Path) -> Result<Binaries> {
        let binaries =
            Binaries { client: folder.join("isthmus-client"), server: folder.join("isthmus-server") };
        for program in [&binaries.client, &binaries.server] {
            if !program.is_file() {
                return Err(LabError::Unavailable {
                    what: program.display().to_string(),
                    remedy: "build it: cargo build -p isthmus-client -p isthmus-server".into(),
                });
            }
        }
        Ok(binaries)
    }

    /// Both programs in the folder that `ISTHMUS_BIN_DIR` names, or beside the running program (tests run one folder
    /// below).
    ///
    /// # Errors
    /// They are not there.
    pub fn find() -> Result<Binaries> {
        if let Some(folder) = std::env::var_os(BINARIES_VARIABLE) {
            return Binaries::in_folder(Path::new(&folder));
        }
        let program = std::env::current_exe().unwrap_or_default();
        let beside = program.parent().unwrap_or(Path::new("."));
        let above = beside.parent().unwrap_or(Path::new("."));
        Binaries::in_folder(above).or_else(|_| Binaries::in_folder(beside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("isthmus-client"), "").unwrap();
        let error = Binaries::in_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("isthmus-server") && error.contains("cargo build"), "{error}");
        std::fs::write(dir.path().join("isthmus-server"), "").unwrap();
        assert!(Binaries::in_folder(dir.path()).is_ok());
    }
}
