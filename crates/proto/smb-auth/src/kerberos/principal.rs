use crate::der::{BadDer, GENERAL_STRING, Reader, SEQUENCE};
use crate::limits::{COMPONENTS_MAX, NAME_UNITS_MAX};
use crate::name::fold;
use std::fmt;
use std::net::IpAddr;

/// Name of a user or service in a realm: `cifs/files.example.com@EXAMPLE.COM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// What stands between the slashes.
    pub components: Vec<String>,
    /// Realm; empty when not known.
    pub realm: String,
}

impl Principal {
    /// Reads the usual text form; a realm is optional.
    pub fn parse(text: &str) -> Self {
        let (name, realm) = text.rsplit_once('@').unwrap_or((text, ""));
        Self { components: name.split('/').map(str::to_owned).collect(), realm: realm.to_owned() }
    }

    /// Reads a PrincipalName (RFC 4120, 5.2.2), whose realm stands apart from it.
    pub(crate) fn from_der(name: &mut Reader<'_>, realm: &[u8]) -> Result<Self, BadDer> {
        let mut name = name.enter(SEQUENCE)?;
        name.integer_field(0)?;
        let mut strings = Reader::new(name.field(1, SEQUENCE)?);
        let mut components = Vec::new();
        while !strings.is_empty() && components.len() < COMPONENTS_MAX {
            components.push(text(strings.expect(GENERAL_STRING)?)?);
        }
        Ok(Self { components, realm: text(realm)? })
    }

    /// The components with their slashes, without the realm.
    pub fn name(&self) -> String {
        self.components.join("/")
    }

    /// The account's name, for principals that are not services: a user, or a machine account such as `FILES$`.
    pub(crate) fn account_name(&self) -> Option<&str> {
        match self.components.as_slice() {
            [account] if !account.is_empty() => Some(account),
            _ => None,
        }
    }

    /// What the principal stands for, in a form to compare: the first label of a service's host, or the name of an
    /// account without the dollar sign of machine accounts. `cifs/files.example.com`, `HOST/files` and `FILES$` agree.
    pub fn owner(&self) -> String {
        match self.components.as_slice() {
            [account] => fold(account.strip_suffix('$').unwrap_or(account)),
            [_, host, ..] if host.parse::<IpAddr>().is_ok() => fold(host),
            [_, host, ..] => fold(host.split('.').next().unwrap_or(host)),
            [] => String::new(),
        }
    }

    /// Whether two names are one, without regard to case.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        fold(&self.name()) == fold(&other.name()) && fold(&self.realm) == fold(&other.realm)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if self.realm.is_empty() { Ok(()) } else { write!(f, "@{}", self.realm) }
    }
}

/// A KerberosString. Windows writes UTF-8 where the standard has ASCII; anything else is taken as far as it can be read.
fn text(bytes: &[u8]) -> Result<String, BadDer> {
    if bytes.len() > NAME_UNITS_MAX { Err(BadDer) } else { Ok(String::from_utf8_lossy(bytes).into_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_host_have_one_owner() {
        for name in ["cifs/files.example.com@EXAMPLE.COM", "HOST/FILES", "files$@EXAMPLE.COM", "cifs/Files"] {
            assert_eq!(Principal::parse(name).owner(), "FILES", "{name}");
        }
        assert_eq!(Principal::parse("cifs/10.1.2.3").owner(), "10.1.2.3");
        assert_ne!(Principal::parse("cifs/other.example.com").owner(), "FILES");
    }

    #[test]
    fn text_form_comes_back() {
        for name in ["cifs/files.example.com@EXAMPLE.COM", "alice@A", "alice"] {
            assert_eq!(Principal::parse(name).to_string(), name);
        }
    }
}
