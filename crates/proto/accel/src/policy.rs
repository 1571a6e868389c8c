//! What may be done where: by share, and by name of the file.

use crate::limits::{PATTERN_CHARS_MAX, PATTERNS_MAX, POLICY_RULES_MAX, TREES_MAX};
use crate::message::{header, place};
use isthmus_smb_wire::messages::TreeConnectRequest;
use isthmus_smb_wire::name::utf16;
use isthmus_smb_wire::{Command, Name, Status};
use std::collections::HashMap;

/// Files that WRITEs are never answered ahead of: databases and mail files, which several programs have open at once, or
/// which rely on what was written being there.
pub const NEVER_BEHIND: [&str; 21] = [
    "*.mdb",
    "*.accdb",
    "*.ldb",
    "*.laccdb",
    "*.pst",
    "*.ost",
    "*.nsf",
    "*.sqlite*",
    "*.db",
    "*.db-*",
    "*.dbf",
    "*.mdf",
    "*.ldf",
    "*.ndf",
    "*.edb",
    "*.fdb",
    "*.qbw",
    "*.tdb",
    "*.tps",
    "*.vhd*",
    "*.vmdk",
];

/// How far round trips are removed, the strictest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Under shared leases and watches of the engine's too.
    #[default]
    Bounded,
    /// Under leases alone that the client has itself.
    Strict,
    /// Not at all.
    Off,
}

/// A pattern of names of shares or files: `*` is any run of characters, `?` is one. Case makes no difference.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    /// UTF-16 in upper case.
    text: Vec<u8>,
}

/// What is said of some files. What is not said is for the rules after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// Shares that it is for; all if there are none.
    pub shares: Vec<Pattern>,
    /// Files that it is for; all if there are none. A pattern with a separator is for the name from the share's root on, any
    /// other for its last part.
    pub names: Vec<Pattern>,
    /// How far round trips are removed.
    pub mode: Option<Mode>,
    /// Whether WRITEs may be answered before they are done.
    pub write_behind: Option<bool>,
    /// Whether files may be opened, and queried, before the client asks.
    pub open_ahead: Option<bool>,
}

/// The rules in order, and what holds without any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where no rule says anything else.
    pub mode: Mode,
    /// The first that says something about a thing decides about it.
    pub rules: Vec<PolicyRule>,
}

/// What may be done with one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub mode: Mode,
    write_behind: bool,
    open_ahead: bool,
}

impl Pattern {
    /// A pattern from its text, in which `/` separates as `\` does. None if it is empty or longer than
    /// [`PATTERN_CHARS_MAX`] UTF-16 units.
    pub fn new(text: &str) -> Option<Self> {
        let count = text.encode_utf16().count();
        (1..=PATTERN_CHARS_MAX).contains(&count).then(|| {
            let text = utf16(&text.replace('/', "\\"));
            Self { text: Name::new(&text).to_upper() }
        })
    }

    /// From the bytes of another one.
    pub(crate) fn from_bytes(text: &[u8]) -> Option<Self> {
        let fits = !text.is_empty() && text.len().is_multiple_of(2) && text.len() <= PATTERN_CHARS_MAX * 2;
        fits.then(|| Self { text: Name::new(text).to_upper() })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Whether a folded name is such. Greedy with one step back, so that its time is bounded by the product of the lengths.
    fn covers(&self, name: &[u8]) -> bool {
        let (pattern, name) = (self.text.as_chunks::<2>().0, name.as_chunks::<2>().0);
        let (mut at, mut to) = (0, 0);
        let mut star = None;
        while to < name.len() {
            match pattern.get(at) {
                Some([b'*', 0]) => {
                    star = Some((at, to));
                    at += 1;
                }
                Some(one) if *one == [b'?', 0] || name.get(to) == Some(one) => (at, to) = (at + 1, to + 1),
                _ => {
                    let Some((back, from)) = &mut star else { return false };
                    *from += 1;
                    (at, to) = (*back + 1, *from);
                }
            }
        }
        pattern.get(at..).is_some_and(|rest| rest.iter().all(|one| *one == [b'*', 0]))
    }

    fn is_path(&self) -> bool {
        self.text.as_chunks::<2>().0.contains(&[b'\\', 0])
    }
}

/// It may be the name of somebody's file.
impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Name::new(&self.text).fmt(f)
    }
}

impl PolicyRule {
    /// For files of which WRITEs are never answered ahead.
    pub fn never_behind(names: Vec<Pattern>) -> Self {
        Self { names, write_behind: Some(false), ..Self::default() }
    }

    fn is_for(&self, share: &[u8], name: &[u8]) -> bool {
        // A stream is of its file.
        let stream = name.as_chunks::<2>().0.iter().position(|pair| *pair == [b':', 0]);
        let name = stream.and_then(|at| name.get(..at * 2)).unwrap_or(name);
        let last = crate::message::split_name(name).1;
        (self.shares.is_empty() || self.shares.iter().any(|pattern| pattern.covers(share)))
            && (self.names.is_empty()
                || self.names.iter().any(|one| one.covers(if one.is_path() { name } else { last })))
    }
}

impl Default for Policy {
    fn default() -> Self {
        let names = NEVER_BEHIND.iter().filter_map(|text| Pattern::new(text)).collect();
        Self { mode: Mode::Bounded, rules: vec![PolicyRule::never_behind(names)] }
    }
}

impl Policy {
    /// Whether anything is done anywhere.
    pub fn is_off(&self) -> bool {
        let off = |mode: Mode| mode == Mode::Off;
        off(self.mode) && self.rules.iter().filter_map(|rule| rule.mode).all(off)
    }

    /// Whether nothing of the engine's own may stand for a client anywhere.
    pub(crate) fn is_strict(&self) -> bool {
        std::iter::once(self.mode)
            .chain(self.rules.iter().filter_map(|rule| rule.mode))
            .all(|mode| mode != Mode::Bounded)
    }

    /// Whether it is within the limits of what one engine tells the other.
    pub(crate) fn fits(&self) -> bool {
        self.rules.len() <= POLICY_RULES_MAX
            && self.rules.iter().all(|rule| rule.shares.len().max(rule.names.len()) <= PATTERNS_MAX)
    }

    /// What may be done with a name of a share, both folded. Of a share that is not known nothing may be done that any rule
    /// for a share might forbid.
    pub(crate) fn rights(&self, share: Option<&[u8]>, name: &[u8]) -> Rights {
        let mut rights = Rights { mode: self.mode, write_behind: true, open_ahead: true };
        let share = match share {
            Some(share) => share,
            None if self.rules.iter().all(|rule| rule.shares.is_empty()) => &[],
            None => return Rights { mode: Mode::Off, write_behind: false, open_ahead: false },
        };
        let (mut mode, mut write_behind, mut open_ahead) = (None, None, None);
        for rule in self.rules.iter().filter(|rule| rule.is_for(share, name)) {
            mode = mode.or(rule.mode);
            write_behind = write_behind.or(rule.write_behind);
            open_ahead = open_ahead.or(rule.open_ahead);
        }
        rights.mode = mode.unwrap_or(rights.mode);
        rights.write_behind = write_behind.unwrap_or(true);
        rights.open_ahead = open_ahead.unwrap_or(true);
        rights
    }
}

impl Rights {
    /// What both allow.
    pub fn and(self, other: Self) -> Self {
        Self {
            mode: self.mode.max(other.mode),
            write_behind: self.write_behind && other.write_behind,
            open_ahead: self.open_ahead && other.open_ahead,
        }
    }

    /// As far as leases of the client permit.
    pub fn strict(self) -> Self {
        Self { mode: self.mode.max(Mode::Strict), ..self }
    }

    /// Whether anything of the engine's own may stand for the client.
    pub fn bounded(self) -> bool {
        self.mode == Mode::Bounded
    }

    /// Whether anything may be done.
    pub fn any(self) -> bool {
        self.mode != Mode::Off
    }

    /// Whether WRITEs may be answered before they are done.
    pub fn behind(self) -> bool {
        self.bounded() && self.write_behind
    }

    /// Whether it may be opened before the client asks.
    pub fn ahead(self) -> bool {
        self.bounded() && self.open_ahead
    }
}

/// Which share a tree connect is of.
#[derive(Default)]
pub(crate) struct Trees {
    /// Folded names of shares that are being connected, by message identifier.
    connecting: HashMap<u64, Vec<u8>>,
    /// By session and tree connect.
    list: HashMap<(u64, u32), Vec<u8>>,
}

impl Trees {
    /// Sees one element of a request of the client.
    pub fn request(&mut self, element: &[u8]) {
        let head = header(element);
        match head.command() {
            Command::TREE_CONNECT if self.connecting.len() < TREES_MAX => {
                if let Ok(view) = TreeConnectRequest::parse(element) {
                    let share = Name::new(view.path_bytes()).split_last().1.to_upper();
                    self.connecting.insert(head.message_id(), share);
                }
            }
            Command::TREE_DISCONNECT => {
                self.list.remove(&place(element));
            }
            Command::LOGOFF => self.list.retain(|(session, _), _| *session != head.session_id()),
            _ => {}
        }
    }

    /// Sees one element of a response, with the client's identifiers.
    pub fn response(&mut self, element: &[u8]) {
        let head = header(element);
        if head.command() == Command::TREE_CONNECT
            && let Some(share) = self.connecting.remove(&head.message_id())
            && head.status() == Status::SUCCESS
            && self.list.len() < TREES_MAX
        {
            self.list.insert(place(element), share);
        }
    }

    /// All that are known.
    pub fn places(&self) -> impl Iterator<Item = (u64, u32)> {
        self.list.keys().copied()
    }

    /// The folded name of a share.
    pub fn share(&self, place: (u64, u32)) -> Option<&[u8]> {
        self.list.get(&place).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fold(text: &str) -> Vec<u8> {
        Name::new(&utf16(text)).to_upper()
    }

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
    }

    fn rights(policy: &Policy, share: &str, name: &str) -> Rights {
        policy.rights(Some(&fold(share)), &fold(name))
    }

    #[test]
    fn databases_and_mail_files_never_take_writes_behind() {
        let policy = Policy::default();
        for name in
            ["Accounts.MDB", "a\\b\\mail.pst", "x.sqlite3-wal", "places.db", "k.laccdb", "q.qbw:stream"]
        {
            assert!(!rights(&policy, "s", name).behind(), "{name}");
            assert!(rights(&policy, "s", name).ahead(), "{name}");
        }
        for name in ["letter.docx", "db", "a.mdb\\plan.txt", "adb.c"] {
            assert!(rights(&policy, "s", name).behind(), "{name}");
        }
    }

    #[test]
    fn the_first_rule_that_speaks_of_a_thing_decides_about_it() {
        let strict =
            PolicyRule { shares: patterns(&["finance*"]), mode: Some(Mode::Strict), ..PolicyRule::default() };
        let audit =
            PolicyRule { names: patterns(&["audit/*"]), open_ahead: Some(false), ..PolicyRule::default() };
        let here = PolicyRule {
            shares: patterns(&["lab"]),
            names: patterns(&["*.db"]),
            write_behind: Some(true),
            ..PolicyRule::default()
        };
        let mut policy = Policy { mode: Mode::Bounded, rules: vec![strict, audit, here] };
        policy.rules.extend(Policy::default().rules);
        assert_eq!(rights(&policy, "Finance2", "x").mode, Mode::Strict);
        assert!(!rights(&policy, "Finance2", "x").behind());
        assert_eq!(rights(&policy, "data", "x").mode, Mode::Bounded);
        assert!(
            !rights(&policy, "data", "Audit\\2026\\x").ahead() && rights(&policy, "data", "x\\audit").ahead()
        );
        assert!(rights(&policy, "lab", "a.db").behind() && !rights(&policy, "data", "a.db").behind());
        let unknown = policy.rights(None, &fold("x"));
        assert!(!unknown.any(), "a share that is not known might be any");
    }

    #[test]
    fn the_stricter_of_two_decides() {
        let mut strict = Policy { mode: Mode::Strict, rules: Vec::new() };
        let (one, two) = (rights(&Policy::default(), "s", "x"), rights(&strict, "s", "x"));
        assert!(one.bounded() && !one.and(two).bounded() && one.and(two).any());
        assert!(!strict.is_off());
        strict.mode = Mode::Off;
        assert!(strict.is_off());
        strict.rules.push(PolicyRule { mode: Some(Mode::Bounded), ..PolicyRule::default() });
        assert!(!strict.is_off(), "a rule lets some work");
    }

    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| model(rest, &text[at..])),
            Some((b'?', rest)) => !text.is_empty() && model(rest, &text[1..]),
            Some((one, rest)) => text.first() == Some(one) && model(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_agree_with_the_plain_definition(pattern in "[AB*?]{1,8}", text in "[AB]{0,10}") {
            let covers = Pattern::new(&pattern).unwrap().covers(&fold(&text));
            prop_assert_eq!(covers, model(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
