use std::fmt;
use std::str::FromStr;

/// What the holder of a certificate may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A client-side proxy.
    ClientSide,
    /// A server-side proxy.
    ServerSide,
    /// A person or program that administers proxies.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::ClientSide, Role::ServerSide, Role::Admin];

    /// The word used on the command line and in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::ClientSide => "client-side",
            Role::ServerSide => "server-side",
            Role::Admin => "admin",
        }
    }

    /// The URI that stands for the role in the subject's alternative names.
    pub fn uri(self) -> &'static str {
        match self {
            Role::ClientSide => "urn:isthmus:role:client-side",
            Role::ServerSide => "urn:isthmus:role:server-side",
            Role::Admin => "urn:isthmus:role:admin",
        }
    }

    /// The role that a URI stands for, if any.
    pub fn from_uri(uri: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.uri() == uri)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        Role::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| "a role is client-side, server-side or admin".into())
    }
}
