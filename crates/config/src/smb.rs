//! `[smb]` and `[[smb.rule]]`: what is done with SMB, and where.

use std::fmt;
use std::str::FromStr;

use crate::reader::{Reader, Section};
use crate::schema;
use crate::words::Acceleration;

/// Most `[[smb.rule]]` entries. One place of the other proxy's 32 is for `smb.never_behind`.
pub const SMB_RULES_MAX: usize = 31;
/// Most patterns of a list.
pub const PATTERNS_MAX: usize = 64;
/// Longest pattern, in UTF-16 units.
pub const PATTERN_CHARS_MAX: usize = 100;

/// `[smb]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smb {
    /// Whether SMB is understood on optimised connections, and not reduced as plain bytes.
    pub enabled: bool,
    /// How far round trips are removed where no rule says anything else.
    pub acceleration: Acceleration,
    /// Whether the end of a file just written is answered before the server has confirmed it.
    pub early_close: bool,
    /// Files whose writes are not answered before the server has them where no rule says anything else.
    pub never_behind: Vec<NamePattern>,
    /// `[[smb.rule]]`, in order: the first that says something about a thing decides about it.
    pub rules: Vec<SmbRule>,
}

/// One `[[smb.rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbRule {
    /// Empty: all shares.
    pub shares: Vec<NamePattern>,
    /// Empty: all files.
    pub names: Vec<NamePattern>,
    pub acceleration: Option<Acceleration>,
    pub write_behind: Option<bool>,
    pub open_ahead: Option<bool>,
}

/// A pattern of names, with `*` and `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// As it is written in the file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<NamePattern, String> {
        if text.is_empty() || text.encode_utf16().count() > PATTERN_CHARS_MAX {
            return Err(format!("is not 1 to {PATTERN_CHARS_MAX} characters long"));
        }
        if text.chars().any(|c| c.is_control() || "\"<>|:".contains(c)) {
            return Err("has a character that no name has".into());
        }
        if text.starts_with(['/', '\\']) {
            return Err("begins with a separator; names begin at the share's root".into());
        }
        Ok(NamePattern(text.into()))
    }
}

impl Smb {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Smb> {
        let section = reader.section("smb");
        let enabled = reader.boolean(&section, &schema::SMB_ENABLED);
        let acceleration = reader.parsed(&section, &schema::SMB_ACCELERATION);
        let early_close = reader.boolean(&section, &schema::SMB_EARLY_CLOSE);
        let never_behind = reader.list(&section, &schema::SMB_NEVER_BEHIND);
        let sections = reader.sections("smb.rule", SMB_RULES_MAX);
        let rules: Vec<_> = sections.iter().map(|section| SmbRule::build(reader, section)).collect();
        Some(Smb {
            enabled: enabled?,
            acceleration: acceleration?,
            early_close: early_close?,
            never_behind: never_behind?,
            rules: rules.into_iter().collect::<Option<_>>()?,
        })
    }
}

impl SmbRule {
    fn build(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<SmbRule> {
        let shares: Option<Vec<NamePattern>> = reader.list(section, &schema::SMB_RULE_SHARES);
        let names = reader.list(section, &schema::SMB_RULE_NAMES);
        let acceleration = reader.parsed(section, &schema::SMB_RULE_ACCELERATION);
        let write_behind = reader.boolean(section, &schema::SMB_RULE_WRITE_BEHIND);
        let open_ahead = reader.boolean(section, &schema::SMB_RULE_OPEN_AHEAD);
        let says =
            [&schema::SMB_RULE_ACCELERATION, &schema::SMB_RULE_WRITE_BEHIND, &schema::SMB_RULE_OPEN_AHEAD];
        if !says.iter().any(|key| section.has(key)) {
            let message = "the rule says nothing; it needs acceleration, write_behind or open_ahead";
            reader.conflict(section, &schema::SMB_RULE_ACCELERATION, message);
        }
        if let Some(share) = shares.iter().flatten().find(|share| share.0.contains(['/', '\\'])) {
            let message = format!("{share:?} has a separator; a share is named without its server");
            reader.conflict(section, &schema::SMB_RULE_SHARES, message);
        }
        Some(SmbRule { shares: shares?, names: names?, acceleration, write_behind, open_ahead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_and_no_more() {
        for good in ["*", "*.mdb", "audit/*", "Projekte\\?.txt", "プロジェクト*"] {
            assert_eq!(good.parse::<NamePattern>().map(|pattern| pattern.to_string()), Ok(good.to_owned()));
        }
        let long = "x".repeat(PATTERN_CHARS_MAX + 1);
        for bad in ["", "/a", "\\a", "a:b", "a\nb", "a|b", &long] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
        }
    }
}
