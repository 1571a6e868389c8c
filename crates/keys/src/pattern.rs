use isthmus_smb_auth::fold;
use std::fmt;
use std::str::FromStr;

/// Users that a rule is about, without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserPattern {
    /// `*`: every user.
    Any,
    /// `DOMAIN\*` or `*@domain`: every user of a domain. A domain has two names, `WAN` and `wan.test`: a session that
    /// is known by both fits a pattern of either.
    Domain(String),
    /// `DOMAIN\user` or `user@domain`; without a domain, the user of that name in any.
    User {
        /// Name of the account.
        user: String,
        /// Its domain, if it matters.
        domain: Option<String>,
    },
}

/// File servers that a rule is about, without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerPattern {
    /// `*.example.com`: every host below a name.
    Below(String),
    /// A host name or address.
    Host(String),
}

/// A pattern that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct BadPattern(&'static str);

impl UserPattern {
    /// Whether a user of one of these domains fits.
    pub fn fits(&self, user: &str, domains: &[&str]) -> bool {
        let of = |wanted: &String| domains.iter().any(|domain| fold(domain) == fold(wanted));
        match self {
            Self::Any => true,
            Self::Domain(wanted) => of(wanted),
            Self::User { user: wanted, domain } => {
                fold(wanted) == fold(user) && domain.as_ref().is_none_or(of)
            }
        }
    }

    /// Whether it names one user and not several.
    pub fn is_one_user(&self) -> bool {
        matches!(self, Self::User { .. })
    }
}

impl FromStr for UserPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        const FORMS: BadPattern =
            BadPattern("`user`, `DOMAIN\\user`, `user@domain`, `DOMAIN\\*`, `*@domain` or `*`");
        let (user, domain) = match (text.split_once('\\'), text.rsplit_once('@')) {
            (Some((domain, user)), _) | (None, Some((user, domain))) => (user, Some(domain)),
            (None, None) => (text, None),
        };
        let is_bad = |part: &str| part.is_empty() || part.contains(['*', '\\', '/']);
        if domain.is_some_and(is_bad) {
            return Err(FORMS);
        }
        match (user, domain) {
            ("*", None) => Ok(Self::Any),
            ("*", Some(domain)) => Ok(Self::Domain(domain.to_owned())),
            (user, _) if is_bad(user) => Err(FORMS),
            (user, domain) => Ok(Self::User { user: user.to_owned(), domain: domain.map(str::to_owned) }),
        }
    }
}

impl fmt::Display for UserPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Domain(domain) => write!(f, "{domain}\\*"),
            Self::User { user, domain: Some(domain) } => write!(f, "{domain}\\{user}"),
            Self::User { user, domain: None } => f.write_str(user),
        }
    }
}

impl ServerPattern {
    /// Whether this host fits.
    pub fn fits(&self, host: &str) -> bool {
        match self {
            Self::Host(wanted) => fold(wanted) == fold(host),
            Self::Below(name) => {
                let rest = fold(host);
                rest.strip_suffix(&fold(name))
                    .and_then(|rest| rest.strip_suffix('.'))
                    .is_some_and(|it| !it.is_empty())
            }
        }
    }
}

impl FromStr for ServerPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.is_empty() || name.contains(['*', ' ', '/', '\\']) {
            return Err(BadPattern("a host name, an address or `*.domain`"));
        }
        Ok(if below { Self::Below(name.to_owned()) } else { Self::Host(name.to_owned()) })
    }
}

impl fmt::Display for ServerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Host(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> UserPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_of_users_come_back_in_their_own_form() {
        for (text, expected) in [
            ("*", "*"),
            ("WAN\\*", "WAN\\*"),
            ("*@wan.test", "wan.test\\*"),
            ("a@b", "b\\a"),
            ("alice", "alice"),
        ] {
            assert_eq!(user(text).to_string(), expected);
        }
        for bad in ["", "WAN\\", "\\alice", "al*ce", "WAN\\a*", "*\\alice", "@x", "a@", "**", "a/b"] {
            assert!(bad.parse::<UserPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn users_fit_by_name_and_domain() {
        assert!(user("*").fits("anyone", &[]));
        assert!(user("wan\\*").fits("anyone", &["X", "WAN"]));
        assert!(!user("WAN\\*").fits("anyone", &["WAN.TEST"]), "only names that are known are compared");
        assert!(!user("WAN\\*").fits("anyone", &[""]));
        assert!(user("WAN\\alice").fits("ALICE", &["wan"]));
        assert!(!user("WAN\\alice").fits("alice", &["OTHER"]));
        assert!(!user("WAN\\alice").fits("alice2", &["WAN"]));
        assert!(user("alice").fits("Alice", &["OTHER"]));
    }

    #[test]
    fn servers_fit_by_name_or_below_a_name() {
        let below: ServerPattern = "*.corp.example.com".parse().unwrap();
        assert!(below.fits("Files.CORP.example.com"));
        for host in ["corp.example.com", ".corp.example.com", "xcorp.example.com", "files.example.com"] {
            assert!(!below.fits(host), "{host}");
        }
        assert!("10.1.2.3".parse::<ServerPattern>().unwrap().fits("10.1.2.3"));
        for bad in ["", "*", "*.", "a*", "a b"] {
            assert!(bad.parse::<ServerPattern>().is_err(), "{bad}");
        }
    }
}
