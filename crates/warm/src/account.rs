//! The user that a share is read as.

use std::fmt;

use zeroize::Zeroizing;

/// A user with a password.
#[derive(Clone)]
pub struct Account {
    pub user: String,
    /// Empty for a user of the file server itself.
    pub domain: String,
    pub password: Zeroizing<String>,
}

/// Without the password.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain.is_empty() {
            f.write_str(&self.user)
        } else {
            write!(f, "{}\\{}", self.domain, self.user)
        }
    }
}
