use crate::config::{PeerKind, ReleaseRule, ReleasesConfig, Scope};
use crate::limits::{RULE_ENTRIES_MAX, RULES_MAX};
use crate::rate::Bucket;
use crate::{RateLimit, UserPattern};
use isthmus_smb_auth::{Groups, Recovered};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Who asks for a session's keys, as the TLS handshake proved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIdentity<'a> {
    /// Name in the peer's certificate.
    pub name: &'a str,
    /// What the peer is.
    pub kind: PeerKind,
}

/// A session whose keys a peer is to be given.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The user without a domain, as the authentication proved it.
    pub user: &'a str,
    /// The user's domain or realm; may be empty.
    pub domain: &'a str,
    /// Another name of the same domain, if one is known.
    pub domain_alias: Option<&'a str>,
    /// The file server, as the peer asked for it and the allow list knows it.
    pub server: &'a str,
    /// Address of the SMB client, as the peer tells it.
    pub client: IpAddr,
    /// Whether the user is a machine or a service.
    pub machine_account: bool,
    /// The user's groups, where the authentication tells them.
    pub groups: Option<&'a Groups>,
}

impl<'a> Release<'a> {
    /// The release that a recovered key is about.
    pub fn of(recovered: &'a Recovered, server: &'a str, client: IpAddr) -> Self {
        Self {
            user: &recovered.user,
            domain: &recovered.domain,
            domain_alias: recovered.domain_alias.as_deref(),
            server,
            client,
            machine_account: recovered.machine_account,
            groups: recovered.groups.as_ref(),
        }
    }
}

/// Whether a peer is given a session's keys, and what decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The rule of this name allows it.
    Release {
        /// Name of the rule.
        rule: String,
    },
    /// No rule allows it.
    Refuse {
        /// What stood in the way, in the rule that came closest.
        reason: Refusal,
        /// Name of that rule.
        rule: Option<String>,
    },
}

/// What stands in the way of a release. Each has a fixed text; the later ones are closer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// No rule names the peer.
    #[error("no release rule for this peer")]
    NoRule,
    /// The peer's rules are for another kind of peer.
    #[error("release rule is for another kind of peer")]
    PeerKind,
    /// No rule of the peer names the server.
    #[error("file server not released to this peer")]
    Server,
    /// No rule of the gateway names the client's subnet.
    #[error("client's address not released to this gateway")]
    ClientAddress,
    /// No rule of the peer names the user.
    #[error("user not released to this peer")]
    User,
    /// The user is a machine or a service, and the rule does not release those.
    #[error("machine account or service")]
    MachineAccount,
    /// The user is an administrator, and the rule does not release those.
    #[error("administrator")]
    Administrator,
    /// The peer has been given too many keys lately.
    #[error("too many releases to this peer")]
    RateLimit,
}

impl Refusal {
    /// One word for metrics and JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoRule => "no_rule",
            Self::PeerKind => "peer_kind",
            Self::Server => "server",
            Self::ClientAddress => "client_address",
            Self::User => "user",
            Self::MachineAccount => "machine_account",
            Self::Administrator => "administrator",
            Self::RateLimit => "rate_limit",
        }
    }
}

/// Rules that cannot be meant as they stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRules {
    /// Too many rules.
    #[error("{0} release rules; expected at most {RULES_MAX}")]
    TooMany(usize),
    /// A rule that could never release anything, or more than anyone can mean.
    #[error("release rule {rule:?}: {problem}")]
    Rule {
        /// Name of the rule.
        rule: String,
        /// What is wrong, and what is expected.
        problem: &'static str,
    },
    /// Two rules of one name could not be told apart in logs.
    #[error("two release rules are called {0:?}")]
    SameName(String),
    /// A group that is not a security identifier.
    #[error("administrator group {0:?}; expected a security identifier such as S-1-5-21-1-2-3-1105")]
    Group(String),
}

/// Decides on releases. Rules are fixed; the state is the peers' rate limits.
#[derive(Debug)]
pub struct ReleasePolicy {
    rules: Vec<ReleaseRule>,
    /// Places in `rules`, by peer.
    by_peer: HashMap<String, Vec<usize>>,
    administrators: Vec<UserPattern>,
    administrator_groups: HashSet<String>,
    rates: (RateLimit, RateLimit),
    /// Only peers with a rule get one.
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl ReleasePolicy {
    /// Takes the rules, unless they cannot be meant so.
    pub fn new(config: &ReleasesConfig) -> Result<Self, BadRules> {
        if config.rules.len() > RULES_MAX {
            return Err(BadRules::TooMany(config.rules.len()));
        }
        let mut by_peer: HashMap<String, Vec<usize>> = HashMap::new();
        let mut names = HashSet::new();
        for (place, rule) in config.rules.iter().enumerate() {
            if let Some(problem) = problem_of(rule) {
                return Err(BadRules::Rule { rule: rule.name.clone(), problem });
            }
            if !names.insert(rule.name.as_str()) {
                return Err(BadRules::SameName(rule.name.clone()));
            }
            by_peer.entry(rule.peer.clone()).or_default().push(place);
        }
        if let Some(group) = config.administrator_groups.iter().find(|group| !is_sid(group)) {
            return Err(BadRules::Group(group.clone()));
        }
        Ok(Self {
            rules: config.rules.clone(),
            by_peer,
            administrators: config.administrators.clone(),
            administrator_groups: config.administrator_groups.iter().map(|sid| sid.to_uppercase()).collect(),
            rates: (config.gateway_rate, config.laptop_rate),
            buckets: Mutex::default(),
        })
    }

    /// Decides whether `peer` is given the keys of this session. `now` is what the peer's rate is measured by; only
    /// releases count, so that refusals cannot use up what a peer's honest sessions need.
    pub fn decide(&self, peer: &PeerIdentity<'_>, release: &Release<'_>, now: Instant) -> Decision {
        match self.rule_for(peer, release) {
            Err((reason, rule)) => Decision::Refuse { reason, rule: rule.map(|rule| rule.name.clone()) },
            Ok(rule) if self.take(peer, now) => Decision::Release { rule: rule.name.clone() },
            Ok(rule) => Decision::Refuse { reason: Refusal::RateLimit, rule: Some(rule.name.clone()) },
        }
    }

    /// The rules of all peers, in order.
    pub fn rules(&self) -> &[ReleaseRule] {
        &self.rules
    }

    /// What the rules that name a peer take it for; `None` when no rule does.
    pub fn peer_kind(&self, peer: &str) -> Option<PeerKind> {
        let first = *self.by_peer.get(peer)?.first()?;
        self.rules.get(first).map(|rule| rule.scope.kind())
    }

    /// What would make this user an administrator, if anything does.
    pub fn administrator(&self, release: &Release<'_>) -> Option<String> {
        let (user, domains) = names(release);
        if BUILT_IN.iter().any(|name| isthmus_smb_auth::fold(name) == isthmus_smb_auth::fold(user)) {
            return Some("built-in administrator".to_owned());
        }
        if let Some(pattern) = self.administrators.iter().find(|pattern| pattern.fits(user, &domains)) {
            return Some(format!("configured administrator {pattern}"));
        }
        let groups = release.groups?;
        let configured = || groups_of(groups).find(|sid| self.administrator_groups.contains(sid));
        groups.administrative().map(str::to_owned).or_else(configured)
    }

    /// Whether one rule releases a session, its rate limit aside.
    pub fn rule_allows(
        &self,
        rule: &ReleaseRule,
        kind: PeerKind,
        release: &Release<'_>,
    ) -> Result<(), Refusal> {
        let (user, domains) = names(release);
        if rule.scope.kind() != kind {
            return Err(Refusal::PeerKind);
        }
        if !rule.servers.is_empty() && !rule.servers.iter().any(|server| server.fits(release.server)) {
            return Err(Refusal::Server);
        }
        if let Scope::Gateway { subnets } = &rule.scope
            && !subnets.iter().any(|subnet| subnet.contains(&release.client.to_canonical()))
        {
            return Err(Refusal::ClientAddress);
        }
        if !rule.users.iter().any(|pattern| pattern.fits(user, &domains)) {
            return Err(Refusal::User);
        }
        if !rule.machine_accounts && (release.machine_account || user.ends_with('$')) {
            return Err(Refusal::MachineAccount);
        }
        if !rule.administrators && self.administrator(release).is_some() {
            return Err(Refusal::Administrator);
        }
        Ok(())
    }

    /// The first rule that allows the release, or the refusal that came closest to one.
    fn rule_for(
        &self,
        peer: &PeerIdentity<'_>,
        release: &Release<'_>,
    ) -> Result<&ReleaseRule, (Refusal, Option<&ReleaseRule>)> {
        let mut closest = (Refusal::NoRule, None);
        let places = self.by_peer.get(peer.name).map_or(&[][..], Vec::as_slice);
        for rule in places.iter().filter_map(|&place| self.rules.get(place)) {
            match self.rule_allows(rule, peer.kind, release) {
                Ok(()) => return Ok(rule),
                Err(refusal) if refusal > closest.0 => closest = (refusal, Some(rule)),
                Err(_) => {}
            }
        }
        Err(closest)
    }

    fn take(&self, peer: &PeerIdentity<'_>, now: Instant) -> bool {
        let limit = match peer.kind {
            PeerKind::Gateway => self.rates.0,
            PeerKind::Laptop => self.rates.1,
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.entry(peer.name.to_owned()).or_insert_with(|| Bucket::full(limit, now)).take(now)
    }
}

/// Names of the account that every Windows and Samba server has, in the languages that rename it, and of others that
/// stand above all users.
const BUILT_IN: [&str; 10] = [
    "Administrator",
    "Administrateur",
    "Administrador",
    "Administratör",
    "Järjestelmänvalvoja",
    "Rendszergazda",
    "Администратор",
    "krbtgt",
    "root",
    "SYSTEM",
];

/// The user and all names of its domain. NTLM clients may put the domain into the user's name.
fn names<'a>(release: &Release<'a>) -> (&'a str, Vec<&'a str>) {
    let (user, domain) = match release.user.split_once('@') {
        Some((user, suffix)) if release.domain.is_empty() => (user, suffix),
        _ => (release.user, release.domain),
    };
    let domains = [Some(domain), release.domain_alias];
    (user, domains.into_iter().flatten().filter(|domain| !domain.is_empty()).collect())
}

/// All groups as security identifiers.
fn groups_of(groups: &Groups) -> impl Iterator<Item = String> {
    let of_domain = groups.group_rids.iter().map(|rid| format!("{}-{rid}", groups.domain_sid));
    of_domain.chain(groups.extra_sids.iter().map(ToString::to_string))
}

/// Whether this is a security identifier in its text form, such as `S-1-5-21-1-2-3-1105` (MS-DTYP 2.4.2.1).
pub fn is_sid(text: &str) -> bool {
    let mut parts = text.split('-');
    let head = (parts.next(), parts.next());
    let (head_is_right, rest): (bool, Vec<_>) =
        (matches!(head, (Some("S" | "s"), Some("1"))), parts.collect());
    head_is_right && rest.len() >= 2 && rest.iter().all(|part| part.parse::<u64>().is_ok())
}

fn problem_of(rule: &ReleaseRule) -> Option<&'static str> {
    if rule.name.is_empty() || rule.peer.is_empty() {
        return Some("expected a name and the peer's name");
    }
    if rule.users.is_empty() {
        return Some("no users; expected at least one, or `*` for all");
    }
    if rule.users.len() > RULE_ENTRIES_MAX || rule.servers.len() > RULE_ENTRIES_MAX {
        return Some("too many users or servers; expected at most 10,000 each");
    }
    match &rule.scope {
        Scope::Laptop if !rule.users.iter().all(UserPattern::is_one_user) => {
            Some("a laptop's users must each be named; `*` is for gateways")
        }
        Scope::Gateway { subnets } if subnets.is_empty() => Some("no subnets; expected at least one"),
        Scope::Gateway { subnets } if subnets.len() > RULE_ENTRIES_MAX => {
            Some("too many subnets; expected at most 10,000")
        }
        _ => None,
    }
}
