//! Where on a file server.

use std::fmt;

/// A share and a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name or address, as clients call it.
    pub server: String,
    pub share: String,
    /// With `/` between its parts, none at its ends. Empty: the whole share.
    pub folder: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "//{}/{}", self.server, self.share)?;
        if self.folder.is_empty() { Ok(()) } else { write!(f, "/{}", self.folder) }
    }
}
