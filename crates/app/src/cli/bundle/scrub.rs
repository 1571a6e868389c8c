//! Names and addresses replaced by pseudonyms: the same name by the same pseudonym, wherever it stands.
//!
//! Two nets, one behind the other. What is known to be a name (from the configuration, from the fields of the admin port
//! that hold names) is replaced wherever it occurs. What looks like one (addresses, host names, paths, users with a domain,
//! anything in quotes) is replaced in all free text.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

/// What a pseudonym stands for; its name starts the pseudonym.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Address,
    Host,
    Name,
    User,
    Share,
    Path,
    Identity,
}

/// Replaces names.
pub(crate) struct Scrubber {
    /// Without it nobody can try out which name a pseudonym stands for.
    key: [u8; 32],
    /// Known names in lower case that are one word.
    words: BTreeMap<String, Kind>,
    /// Known names that hold spaces, or are written in a script that has none between words. Longest first.
    phrases: Vec<(String, Kind)>,
    /// Words that look like a host name or a path and are none.
    kept: BTreeSet<String>,
}

/// What stands between a user and a domain.
const USER_SEPARATORS: [char; 2] = ['\\', '@'];
/// Shortest name that is looked for in free text. One letter would be found in the middle of sentences.
const WORD_LEN_MIN: usize = 2;
/// Digits of a pseudonym: a chance of one in 2^32 that two names share one.
const DIGITS: usize = 8;
/// Least hex digits that are taken for an identity or a fingerprint.
const IDENTITY_LEN_MIN: usize = 16;
/// Paths that are the same on every machine.
const COMMON_PATHS: [&str; 9] = [
    "/proc",
    "/sys",
    "/api",
    "/metrics",
    "/readyz",
    "/healthz",
    "/etc/modules-load.d",
    "/lib/modules",
    "/dev/null",
];

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Address => "address",
            Kind::Host => "host",
            Kind::Name => "name",
            Kind::User => "user",
            Kind::Share => "share",
            Kind::Path => "path",
            Kind::Identity => "identity",
        }
    }

    /// What a field of the admin port's JSON holds; `None` for words of the program and for free text.
    pub fn of_field(field: &str) -> Option<Kind> {
        match field {
            "client" | "remote" | "local" | "address" => Some(Kind::Address),
            "target" | "server" => Some(Kind::Host),
            "peer" | "name" | "subject" | "rule" => Some(Kind::Name),
            "user" => Some(Kind::User),
            "shares" => Some(Kind::Share),
            "identity" => Some(Kind::Identity),
            _ => None,
        }
    }
}

impl Scrubber {
    /// `key` makes the pseudonyms; `kept` are words that stay as they are.
    pub fn new(key: [u8; 32], kept: impl IntoIterator<Item = String>) -> Scrubber {
        Scrubber { key, words: BTreeMap::new(), phrases: Vec::new(), kept: kept.into_iter().collect() }
    }

    /// From now on `text`, or each part of it that is a name, is known to be one.
    pub fn learn(&mut self, kind: Kind, text: &str) {
        // An address is told by its form wherever it stands; where a host's name stands for one, that is what there is to know.
        let kind = if kind == Kind::Address { Kind::Host } else { kind };
        match text.rsplit_once(':') {
            _ if kind == Kind::Host && self.address(text).is_some() => {}
            _ if kind == Kind::User => {
                text.split(USER_SEPARATORS).for_each(|part| self.learn_one(kind, part));
            }
            Some((host, port)) if kind == Kind::Host && port.parse::<u16>().is_ok() => {
                self.learn_one(kind, host);
            }
            _ => self.learn_one(kind, text),
        }
    }

    /// Learns every name of an answer of the admin port.
    pub fn learn_json(&mut self, value: &Value, field: &str) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(field, value)| self.learn_json(value, field)),
            Value::Array(items) => items.iter().for_each(|item| self.learn_json(item, field)),
            Value::String(text) => {
                if let Some(kind) = Kind::of_field(field) {
                    self.learn(kind, text);
                }
            }
            _ => {}
        }
    }

    fn learn_one(&mut self, kind: Kind, text: &str) {
        let text = text.trim();
        if text.chars().count() < WORD_LEN_MIN || is_harmless(text) {
            return;
        }
        let lower = text.to_lowercase();
        if lower.is_ascii() && !lower.contains(|c: char| is_delimiter(c) || c == '\\' || c == '/') {
            self.words.entry(lower).or_insert(kind);
        } else {
            for form in [text.to_owned(), lower] {
                if !self.phrases.iter().any(|(known, _)| *known == form) {
                    let at = self.phrases.partition_point(|(known, _)| known.len() >= form.len());
                    self.phrases.insert(at, (form, kind));
                }
            }
        }
    }

    /// The pseudonym of a name. Capital letters make no difference.
    pub fn pseudonym(&self, kind: Kind, text: &str) -> String {
        let hash = blake3::keyed_hash(&self.key, text.trim().to_lowercase().as_bytes());
        format!("{}-{}", kind.word(), &hash.to_hex()[..DIGITS])
    }

    /// A value that is a name as a whole.
    pub fn field(&self, kind: Kind, text: &str) -> String {
        if text.is_empty() || is_harmless(text) {
            return text.to_owned();
        }
        if let Some(address) = self.address(text) {
            return address;
        }
        let kind = if kind == Kind::Address { Kind::Host } else { kind };
        if kind == Kind::User
            && let Some(at) = text.find(USER_SEPARATORS)
        {
            let (first, second) = (&text[..at], &text[at + 1..]);
            return format!("{}{}{}", self.field(kind, first), &text[at..=at], self.field(kind, second));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if kind == Kind::Host && port.parse::<u16>().is_ok() => {
                format!("{}:{port}", self.pseudonym(kind, host))
            }
            _ => self.pseudonym(self.words.get(&text.to_lowercase()).copied().unwrap_or(kind), text),
        }
    }

    /// An answer of the admin port. Keys stay; every text in it is a field or free text.
    pub fn json(&self, value: &mut Value, field: &str) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| self.json(value, field)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item, field)),
            Value::String(text) => {
                *text = match Kind::of_field(field) {
                    Some(kind) => self.field(kind, text),
                    None => self.text(text),
                };
            }
            _ => {}
        }
    }

    /// Metrics in Prometheus's text format: the values of labels that hold names.
    pub fn metrics(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            match line.split_once('{').zip(line.rsplit_once('}')).filter(|_| !line.starts_with('#')) {
                Some(((name, _), (labels, value))) => {
                    let labels = labels.split_once('{').map_or("", |(_, labels)| labels);
                    out.push_str(&format!("{name}{{{}}}{value}\n", self.labels(labels)));
                }
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
        out
    }

    /// `name="value",…`. What cannot be read is left out.
    fn labels(&self, mut labels: &str) -> String {
        let mut out = Vec::new();
        while let Some((name, rest)) = labels.split_once("=\"") {
            let Some(end) = closing_quote(rest) else { break };
            let value = &rest[..end];
            let is_fixed = !value
                .contains(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()))
                && !self.words.contains_key(value)
                && !matches!(name, "peer" | "source" | "name" | "subject");
            let shown = if is_fixed || matches!(value, "none" | "other") || name == "version" {
                value.to_owned()
            } else {
                self.field(Kind::Name, value)
            };
            out.push(format!("{name}=\"{shown}\""));
            labels = rest[end + 1..].trim_start_matches(',');
        }
        out.join(",")
    }

    /// Free text.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (phrase, kind) in &self.phrases {
            if text.contains(phrase.as_str()) {
                text = text.replace(phrase.as_str(), &self.pseudonym(*kind, phrase));
            }
        }
        // What stands in quotes was said by somebody else.
        let mut out = String::with_capacity(text.len());
        for (number, part) in text.split('"').enumerate() {
            if number % 2 == 0 {
                if number > 0 {
                    out.push('"');
                }
                out.push_str(&self.words(part));
            } else {
                let is_number = part.chars().all(|c| c.is_ascii_digit() || c == ' ');
                out.push('"');
                out.push_str(&if is_number || part.is_empty() { part.to_owned() } else { self.quoted(part) });
            }
        }
        out
    }

    fn quoted(&self, part: &str) -> String {
        if self.is_pseudonym(part) {
            part.to_owned()
        } else {
            self.field(Kind::Name, &part.replace("\\\\", "\\"))
        }
    }

    /// Whether this is already what a phrase was replaced by.
    fn is_pseudonym(&self, text: &str) -> bool {
        text.rsplit_once('-').is_some_and(|(kind, digits)| {
            let kinds =
                [Kind::Address, Kind::Host, Kind::Name, Kind::User, Kind::Share, Kind::Path, Kind::Identity];
            kinds.iter().any(|known| known.word() == kind)
                && digits.len() == DIGITS
                && digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    }

    fn words(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut start = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_delimiter(*c)) {
            out.push_str(&self.word(&text[start..at]));
            out.push(c);
            start = at + c.len_utf8();
        }
        out.push_str(&self.word(&text[start..]));
        out
    }

    /// One word of free text, with the punctuation behind it.
    fn word(&self, word: &str) -> String {
        let core = word.trim_end_matches(['.', ':', '!', '?', ',']);
        let tail = &word[core.len()..];
        format!("{}{tail}", self.core(core))
    }

    fn core(&self, word: &str) -> String {
        if word.is_empty() || self.is_pseudonym(word) {
            return word.to_owned();
        }
        if let Some(kind) = self.words.get(&word.to_lowercase()) {
            return self.pseudonym(*kind, word);
        }
        if is_harmless(word) || self.kept.contains(word) {
            return word.to_owned();
        }
        if let Some(address) = self.address(word) {
            return address;
        }
        if COMMON_PATHS.iter().any(|path| word == *path || word.starts_with(&format!("{path}/"))) {
            return word.to_owned();
        }
        if let Some((scheme, rest)) = word.split_once("://") {
            return format!("{scheme}://{}", self.core(rest));
        }
        if word.starts_with('/') || word.starts_with("\\\\") {
            return self.pseudonym(Kind::Path, word);
        }
        for (separator, kind) in [('\\', Some(Kind::User)), ('@', Some(Kind::User)), ('/', None), (':', None)]
        {
            if word.contains(separator) {
                let parts = word.split(separator).map(|part| match kind {
                    Some(kind) if part.len() >= WORD_LEN_MIN => self.pseudonym(kind, part),
                    _ => self.core(part),
                });
                return parts.collect::<Vec<_>>().join(&separator.to_string());
            }
        }
        if is_identity(word) {
            return self.pseudonym(Kind::Identity, word);
        }
        if is_host_name(word) { self.pseudonym(Kind::Host, word) } else { word.to_owned() }
    }

    /// An address, with its port or the length of its network. Loopback and "any" are the same everywhere.
    fn address(&self, text: &str) -> Option<String> {
        let shown = |ip: IpAddr| {
            if ip.is_loopback() || ip.is_unspecified() {
                ip.to_string()
            } else {
                self.pseudonym(Kind::Address, &ip.to_string())
            }
        };
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Some(shown(ip));
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Some(format!("{}:{}", shown(socket.ip()), socket.port()));
        }
        let (ip, length) = text.split_once('/')?;
        Some(format!("{}/{}", shown(ip.parse().ok()?), length.parse::<u8>().ok()?))
    }
}

/// Where a quoted value ends; a backslash takes the next character with it.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(at),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | '(' | ')' | '{' | '}' | '<' | '>' | ',' | ';' | '=' | '|' | '[' | ']'
        )
}

/// What every installation has.
fn is_harmless(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_numbered =
        |prefix: &str| lower.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
    matches!(
        lower.as_str(),
        "*" | "off"
            | "no rule"
            | "localhost"
            | "smb"
            | "none"
            | "client-side"
            | "server-side"
            | "peer"
            | "server"
    ) || is_numbered("rule ")
        || is_numbered("release ")
        || is_numbered("command ")
}

fn is_identity(word: &str) -> bool {
    word.len() >= IDENTITY_LEN_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Two labels or more, the last one of letters.
fn is_host_name(word: &str) -> bool {
    let labels: Vec<&str> = word.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_' || c == '*')
    };
    let last = labels.last().copied().unwrap_or_default();
    labels.len() >= 2
        && labels.iter().all(is_label)
        && last.len() >= 2
        && last.chars().all(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scrubber() -> Scrubber {
        let mut scrubber = Scrubber::new([7; 32], ["store.size".to_owned(), "docs/keys.md".to_owned()]);
        scrubber.learn(Kind::User, "CORP\\alice");
        scrubber.learn(Kind::Share, "Geheime Projekte");
        scrubber.learn(Kind::Share, "共有");
        scrubber.learn(Kind::Host, "files.corp.example:445");
        scrubber.learn(Kind::Name, "branch");
        scrubber
    }

    #[test]
    fn names_are_found_wherever_they_stand_and_always_become_the_same() {
        let scrubber = scrubber();
        let text = "Alice of corp opened \"Geheime Projekte\" and 共有資料 on FILES.corp.example (files.corp.example:445), \
                    CORP\\alice, bob@other.example; see /srv/secret/plan and \\\\nas\\x, cifs/dc1.corp.example";
        let out = scrubber.text(text);
        for name in [
            "alice", "corp", "geheime", "共有", "files", "bob", "other", "secret", "plan", "nas", "dc1",
            "example",
        ] {
            assert!(!out.to_lowercase().contains(name), "{name}: {out}");
        }
        assert_eq!(out.matches(&scrubber.pseudonym(Kind::User, "alice")).count(), 2, "{out}");
        assert_eq!(out.matches(&scrubber.pseudonym(Kind::Host, "files.corp.example")).count(), 2, "{out}");
    }

    #[test]
    fn addresses_keep_their_ports_and_what_is_the_same_everywhere_stays() {
        let mut scrubber = scrubber();
        // What a field of an address has held is no other word than the address itself.
        for held in ["127.0.0.1:7811", "10.1.2.3:7810", "proxy.example:7810"] {
            scrubber.learn(Kind::Address, held);
        }
        let proxy = scrubber.pseudonym(Kind::Host, "proxy.example");
        assert_eq!(scrubber.field(Kind::Address, "proxy.example:7810"), format!("{proxy}:7810"));
        assert_eq!(scrubber.text("proxy.example:7810 is down"), format!("{proxy}:7810 is down"));
        let ten = scrubber.pseudonym(Kind::Address, "10.1.2.3");
        assert_eq!(scrubber.text("10.1.2.3:7810 is down."), format!("{ten}:7810 is down."));
        assert_eq!(scrubber.text("[10.1.2.3]"), format!("[{ten}]"));
        assert!(
            scrubber.text("10.1.0.0/16").ends_with("/16") && !scrubber.text("10.1.0.0/16").contains("10.1")
        );
        assert!(!scrubber.text("see fd00::12:7, and [fd00::9]:445").contains("fd00"));
        let same = "127.0.0.1:7811 answers; store.size, docs/keys.md, /proc/net/tcp, 99.5 %, LAN/WAN, 0.1.0, rule 1, \
                    net \"4096 131072\"";
        assert_eq!(scrubber.text(same), same);
        assert_eq!(scrubber.field(Kind::Name, "no rule"), "no rule");
    }

    #[test]
    fn json_keeps_its_shape_and_metrics_their_numbers() {
        let mut scrubber = scrubber();
        let mut value = json!({ "peers": [{ "name": "zentrale", "state": "up", "rtt_seconds": 0.2, "detail": "refused by zentrale" }] });
        scrubber.learn_json(&value, "");
        scrubber.json(&mut value, "");
        let name = scrubber.pseudonym(Kind::Name, "zentrale");
        assert_eq!(
            value,
            json!({ "peers": [{ "name": name, "state": "up", "rtt_seconds": 0.2, "detail": format!("refused by {name}") }] })
        );
        let metrics = "# HELP a b\nisthmus_x{peer=\"zentrale\",state=\"up\",source=\"/a \\\"b\\\" {c}\"} 4\nisthmus_y 5\n";
        let out = scrubber.metrics(metrics);
        assert!(
            out.starts_with(&format!("# HELP a b\nisthmus_x{{peer=\"{name}\",state=\"up\",source=\"name-")),
            "{out}"
        );
        assert!(out.ends_with("\"} 4\nisthmus_y 5\n") && !out.contains("/a"), "{out}");
    }
}
