//! What can be optimised for one user or one service, and why not: the content of `isthmus-server keys check`.

use crate::config::{PeerKind, ReleaseRule, Scope};
use crate::{KeyRing, Refusal, Release, ReleasePolicy};
use isthmus_smb_auth::{AccountHash, EncryptionType, Principal, Secrets, ServiceKey, fold};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Whom or what the check is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user, with a domain if it matters: `DOMAIN\user` or `user@domain`.
    User {
        /// Name of the account.
        user: String,
        /// Its domain; empty for any.
        domain: String,
    },
    /// A file server's service: `cifs/files.example.com`, with a realm or without.
    Service(Principal),
}

/// How a line is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// This works.
    Works,
    /// This works within limits, or deserves attention.
    Note,
    /// This does not work; such sessions are relayed.
    Fails,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How to take it.
    pub verdict: Verdict,
    /// What it is about: `NTLM`, `Kerberos`, or `release to NAME`.
    pub topic: String,
    /// What there is to say.
    pub text: String,
}

/// What the question is narrowed to. By default it is about every peer, server and client that the rules know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    /// Name in the certificate of the peer.
    pub peer: Option<String>,
    /// The file server, as clients ask for it through the proxy.
    pub server: Option<String>,
    /// The service that a user is to reach; without it, the `cifs` service of the server.
    pub service: Option<Principal>,
    /// Address of the SMB client.
    pub client: Option<IpAddr>,
}

/// What there is to say about a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order in which people want to know.
    pub lines: Vec<Line>,
    /// Whether a key is held by which a session could be opened.
    pub has_key: bool,
    /// Whether a rule would release it; `None` where the question names no user.
    pub is_released: Option<bool>,
}

/// Says for a subject which authentications give a key, and to which peers it would be released.
pub fn check(secrets: &KeyRing, policy: &ReleasePolicy, subject: &Subject, narrow: &Narrow) -> Report {
    match subject {
        Subject::User { user, domain } => {
            let mut lines = vec![ntlm_of_user(secrets, user, domain)];
            let of_server = narrow.server.as_ref().map(|server| Principal::parse(&format!("cifs/{server}")));
            let service = narrow.service.clone().or(of_server);
            lines.extend(match &service {
                Some(service) => kerberos_of_service(secrets, service),
                None => vec![kerberos_of_users(secrets)],
            });
            let by_kerberos = match &service {
                Some(service) => secrets.knows_service(service),
                None => secrets.services().next().is_some(),
            };
            let releases = releases(policy, user, domain, narrow);
            let is_released = releases.iter().any(|line| line.verdict == Verdict::Works);
            lines.extend(releases);
            let has_key = by_kerberos || !secrets.nt_hashes(user).is_empty();
            Report { lines, has_key, is_released: Some(is_released) }
        }
        Subject::Service(service) => {
            let mut lines = kerberos_of_service(secrets, service);
            lines.push(ntlm_of_users(secrets));
            Report { lines, has_key: secrets.knows_service(service), is_released: None }
        }
    }
}

impl Subject {
    /// Reads `DOMAIN\user`, `user@domain` or `user`.
    pub fn user(text: &str) -> Self {
        let (user, domain) = match (text.split_once('\\'), text.rsplit_once('@')) {
            (Some((domain, user)), _) | (None, Some((user, domain))) => (user, domain),
            (None, None) => (text, ""),
        };
        Self::User { user: user.to_owned(), domain: domain.to_owned() }
    }
}

impl Line {
    fn new(verdict: Verdict, topic: impl Into<String>, text: impl Into<String>) -> Self {
        Self { verdict, topic: topic.into(), text: text.into() }
    }
}

/// `works  NTLM: NT hash held of WAN\alice`
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5}  {}: {}", self.verdict, self.topic, self.text)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Works => "works",
            Self::Note => "note",
            Self::Fails => "fails",
        })
    }
}

fn ntlm_of_user(secrets: &KeyRing, user: &str, domain: &str) -> Line {
    let held: BTreeSet<_> = secrets.nt_hashes(user).into_iter().map(AccountHash::account).collect();
    let list = held.iter().cloned().collect::<Vec<_>>().join(", ");
    let fits = |account: &&AccountHash| {
        domain.is_empty() || account.domain.as_deref().is_none_or(|held| fold(held) == fold(domain))
    };
    if held.is_empty() {
        Line::new(Verdict::Fails, "NTLM", "no NT hash of this user is held; NTLM sessions are relayed")
    } else if secrets.nt_hashes(user).iter().any(fits) {
        Line::new(
            Verdict::Works,
            "NTLM",
            format!("NT hash held of {list}; whether it is current shows at the next logon"),
        )
    } else {
        let text = format!(
            "NT hash held of {list}, not of that domain; it is tried, since domains have several names"
        );
        Line::new(Verdict::Note, "NTLM", text)
    }
}

fn ntlm_of_users(secrets: &KeyRing) -> Line {
    match secrets.users() {
        0 => Line::new(Verdict::Fails, "NTLM", "no NT hash of any user is held; NTLM sessions are relayed"),
        count => Line::new(Verdict::Note, "NTLM", format!("for the users whose NT hash is held ({count})")),
    }
}

fn kerberos_of_users(secrets: &KeyRing) -> Line {
    let names: BTreeSet<_> = secrets.services().map(|key| key.principal.to_string()).collect();
    let services: Vec<_> =
        names.iter().filter(|name| name.contains(['/', '$'])).take(SERVICES_SHOWN_MAX).collect();
    if services.is_empty() && names.is_empty() {
        return Line::new(
            Verdict::Fails,
            "Kerberos",
            "no service key is held; Kerberos sessions are relayed",
        );
    }
    let list = services.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let more = names.len() - services.len();
    let text = match (services.len(), more) {
        (0, _) => format!("service keys of {more} accounts are held"),
        (_, 0) => format!("to the services whose key is held: {list}"),
        _ => format!("to the services whose key is held: {list}, and {more} more"),
    };
    Line::new(Verdict::Works, "Kerberos", text)
}

const SERVICES_SHOWN_MAX: usize = 20;

fn kerberos_of_service(secrets: &KeyRing, service: &Principal) -> Vec<Line> {
    if !secrets.knows_service(service) {
        let text = format!("no key of {service} or its host is held; Kerberos sessions are relayed");
        let note = "keys under other names are tried too, since a service may run under any account";
        let mut lines = vec![Line::new(Verdict::Fails, "Kerberos", text)];
        if secrets.services().next().is_some() {
            lines.push(Line::new(Verdict::Note, "Kerberos", note));
        }
        return lines;
    }
    let owner = service.owner();
    let mut held: BTreeMap<String, Vec<&ServiceKey>> = BTreeMap::new();
    for key in secrets.services().filter(|key| key.principal.owner() == owner) {
        held.entry(key.principal.to_string()).or_default().push(key);
    }
    let mut lines: Vec<_> =
        held.iter().map(|(name, keys)| Line::new(Verdict::Works, "Kerberos", listed(name, keys))).collect();
    let has = |wanted| held.values().flatten().any(|key| key.encryption == wanted);
    if !has(EncryptionType::Aes256Sha1) {
        let text = "no aes256-cts-hmac-sha1-96 key, which current domains use; such tickets are relayed";
        lines.push(Line::new(Verdict::Note, "Kerberos", text));
    }
    lines
}

/// `cifs/files@WAN.TEST: version 3 (aes256-cts-hmac-sha1-96, rc4-hmac)`
fn listed(name: &str, keys: &[&ServiceKey]) -> String {
    let mut versions: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for key in keys {
        versions.entry(key.version).or_default().insert(key.encryption.name());
    }
    let each = versions.iter().rev().map(|(version, types)| {
        format!("version {version} ({})", types.iter().copied().collect::<Vec<_>>().join(", "))
    });
    format!("{name}: {}", each.collect::<Vec<_>>().join(", "))
}

fn releases(policy: &ReleasePolicy, user: &str, domain: &str, narrow: &Narrow) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(reason) = policy.administrator(&release(user, domain, "", Ipv4Addr::UNSPECIFIED.into())) {
        let text = format!("the user is an administrator ({reason}), released only by rules that say so");
        lines.push(Line::new(Verdict::Note, "release", text));
    }
    let is_asked = |rule: &&ReleaseRule| narrow.peer.as_ref().is_none_or(|peer| *peer == rule.peer);
    let rules = policy.rules().iter().filter(is_asked);
    lines.extend(rules.filter_map(|rule| released_by(policy, rule, user, domain, narrow)));
    if lines.iter().any(|line| line.verdict == Verdict::Works) {
        return lines;
    }
    match &narrow.peer {
        Some(peer) if policy.peer_kind(peer).is_none() => {
            lines.push(Line::new(Verdict::Fails, format!("release to {peer}"), Refusal::NoRule.to_string()));
        }
        Some(_) => {}
        None => {
            let text = "to no peer; the user's sessions are relayed whatever keys are held";
            lines.push(Line::new(Verdict::Fails, "release", text));
        }
    }
    lines
}

/// What one rule does for a user; nothing when it is about others, unless its peer was asked for.
fn released_by(
    policy: &ReleasePolicy,
    rule: &ReleaseRule,
    user: &str,
    domain: &str,
    narrow: &Narrow,
) -> Option<Line> {
    // Where none was asked for, the rule's own server and subnet, so that only the user decides.
    let server = narrow.server.clone().unwrap_or_else(|| example_server(rule));
    let client = narrow.client.unwrap_or_else(|| example_client(rule));
    let outcome = policy.rule_allows(rule, rule.scope.kind(), &release(user, domain, &server, client));
    let topic = format!("release to {}", rule.peer);
    match outcome {
        Ok(()) => Some(Line::new(Verdict::Works, topic, format!("by rule {}{}", rule.name, bounds(rule)))),
        Err(Refusal::User | Refusal::Server | Refusal::ClientAddress) if narrow.peer.is_none() => None,
        Err(refusal) => Some(Line::new(Verdict::Fails, topic, format!("rule {}: {refusal}", rule.name))),
    }
}

fn release<'a>(user: &'a str, domain: &'a str, server: &'a str, client: IpAddr) -> Release<'a> {
    Release {
        user,
        domain,
        domain_alias: None,
        server,
        client,
        machine_account: user.ends_with('$'),
        groups: None,
    }
}

fn example_server(rule: &ReleaseRule) -> String {
    rule.servers.first().map(|server| server.to_string().replace('*', "any")).unwrap_or_default()
}

fn example_client(rule: &ReleaseRule) -> IpAddr {
    match &rule.scope {
        Scope::Gateway { subnets } => subnets.first().map(|subnet| subnet.addr()),
        Scope::Laptop => None,
    }
    .unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}

/// What else a rule asks for.
fn bounds(rule: &ReleaseRule) -> String {
    let listed = |items: &[String]| items.join(", ");
    let mut text = String::new();
    if let Scope::Gateway { subnets } = &rule.scope {
        let subnets: Vec<_> = subnets.iter().map(ToString::to_string).collect();
        text += &format!(", for clients in {}", listed(&subnets));
    }
    if !rule.servers.is_empty() {
        let servers: Vec<_> = rule.servers.iter().map(ToString::to_string).collect();
        text += &format!(", to {}", listed(&servers));
    }
    if rule.scope.kind() == PeerKind::Laptop {
        text += ", as enrolled on this laptop";
    }
    text
}
