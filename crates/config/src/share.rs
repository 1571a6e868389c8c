//! Where on a file server, and as whom.

use std::fmt;
use std::str::FromStr;

/// Longest location, in characters.
const LOCATION_CHARS_MAX: usize = 1_024;

/// A share and a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareLocation {
    /// Name or address, as clients call it.
    pub server: String,
    pub share: String,
    /// With `/` between its parts, none at its ends. Empty: the whole share.
    pub folder: String,
}

impl FromStr for ShareLocation {
    type Err = String;

    /// `//server/share/folder` or `\\server\share\folder`.
    fn from_str(text: &str) -> Result<ShareLocation, String> {
        if text.chars().count() > LOCATION_CHARS_MAX {
            return Err("is too long".into());
        }
        let text = text.replace('\\', "/");
        let rest = text.strip_prefix("//").ok_or("is no share")?;
        let mut parts = rest.trim_end_matches('/').split('/');
        let (server, share) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let folder: Vec<&str> = parts.collect();
        let is_bad = |part: &str| part.is_empty() || part.chars().any(char::is_control);
        let is_bad_folder = |part: &&str| is_bad(part) || *part == "." || *part == "..";
        if is_bad(server) || is_bad(share) || folder.iter().any(is_bad_folder) {
            return Err("is no share".into());
        }
        Ok(ShareLocation { server: server.into(), share: share.into(), folder: folder.join("/") })
    }
}

impl fmt::Display for ShareLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "//{}/{}", self.server, self.share)?;
        if self.folder.is_empty() { Ok(()) } else { write!(f, "/{}", self.folder) }
    }
}

/// A user to log on to a file server as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbUser {
    pub user: String,
    /// Empty for a user of the file server itself.
    pub domain: String,
}

impl FromStr for SmbUser {
    type Err = String;

    /// `DOMAIN\user`, `user@domain` or `user`.
    fn from_str(text: &str) -> Result<SmbUser, String> {
        let (user, domain) = match (text.split_once('\\'), text.rsplit_once('@')) {
            (Some((domain, user)), _) | (None, Some((user, domain))) => (user, domain),
            (None, None) => (text, ""),
        };
        let is_bad = |part: &str| part.chars().any(|c| c.is_control() || "\\/\"[]:;|=,+*?<>".contains(c));
        if user.is_empty() || is_bad(user) || is_bad(domain) {
            return Err("is no user".into());
        }
        Ok(SmbUser { user: user.into(), domain: domain.into() })
    }
}

impl fmt::Display for SmbUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.domain.is_empty() {
            f.write_str(&self.user)
        } else {
            write!(f, "{}\\{}", self.domain, self.user)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_mean_the_same() {
        let location: ShareLocation =
            "//Files.example/data/プロジェクト/plans/".parse().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((location.server.as_str(), location.share.as_str()), ("Files.example", "data"));
        assert_eq!(location.folder, "プロジェクト/plans");
        assert_eq!("\\\\Files.example\\data\\プロジェクト\\plans".parse(), Ok(location.clone()));
        assert_eq!(location.to_string(), "//Files.example/data/プロジェクト/plans");
        assert_eq!("//s/d".parse::<ShareLocation>().map(|location| location.folder), Ok(String::new()));
        for bad in ["", "/s/d", "//s", "//s/", "///d", "//s/d//x", "//s/d/../x", "//s/d/a\nb", "smb://s/d"] {
            assert!(bad.parse::<ShareLocation>().is_err(), "{bad}");
        }
    }

    #[test]
    fn users_with_and_without_domain() {
        for (text, user, domain) in
            [("CORP\\ana", "ana", "CORP"), ("ana@corp.example", "ana", "corp.example"), ("ana", "ana", "")]
        {
            let parsed: SmbUser = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!((parsed.user.as_str(), parsed.domain.as_str()), (user, domain));
        }
        for bad in ["", "CORP\\", "@corp", "a\\b\\c", "a\nb"] {
            assert!(bad.parse::<SmbUser>().is_err(), "{bad}");
        }
    }
}
