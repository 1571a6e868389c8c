//! In-path rules of the client-side proxy: ordered, the first that matches decides.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use isthmus_types::Domain;
use isthmus_types::limits::DOMAIN_LEN_MAX;

use crate::address::{Host, HostPort, Network, Pattern, PortRange};
use crate::schema::SMB_PORT;
use crate::words::{Action, WhenUnavailable};

/// Most rules in one configuration.
pub const RULES_MAX: usize = 1024;
/// Longest free domain label, in bytes.
pub const LABEL_LEN_MAX: usize = 40;

/// One `[[rule]]`.
///
/// A list that is empty restricts nothing. A rule with a listener matches what that listener accepts and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Shown in logs and on the console.
    pub name: Arc<str>,
    pub action: Action,
    /// An explicit listener, with the one target behind it.
    pub listener: Option<Listener>,
    /// Networks that the client's address must lie in.
    pub source: Vec<Network>,
    /// What the target must be.
    pub destination: Vec<Pattern>,
    /// Ports that the target's port must be one of.
    pub ports: Vec<PortRange>,
    /// How far matches may reach for connections under this rule.
    pub domain: DomainScope,
    pub when_unavailable: WhenUnavailable,
}

/// An explicit listener: connections to `address` are for `target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    pub target: HostPort,
}

/// The reduction domain that a rule sets: content is never matched across domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DomainScope {
    /// One domain for everything that goes through this peer.
    Peer,
    /// One domain for each target host.
    Server,
    /// A domain of its own, shared by the rules with this label.
    Label(String),
}

/// What the rules say about one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub action: Action,
    /// The domain to reduce in; only of use when the action is to optimise or reduce.
    pub domain: Domain,
    pub when_unavailable: WhenUnavailable,
    /// Place of the rule in the file, from 0; `None` when no rule matched.
    pub rule: Option<usize>,
    /// The rule's name, or "no rule".
    pub name: Arc<str>,
}

/// The rules of one configuration, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Rules in the order given.
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules(rules)
    }

    /// Every rule, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.0.iter()
    }

    /// The explicit listeners to bind, each with the place of its rule (to be given to [`Rules::decide_listener`]).
    pub fn listeners(&self) -> impl Iterator<Item = (usize, &Listener)> {
        self.0.iter().enumerate().filter_map(|(index, rule)| rule.listener.as_ref().map(|l| (index, l)))
    }

    /// The listener that leads to this server, by the name or address that a rule gives it; one for SMB's own port before
    /// others. Capital letters make no difference.
    pub fn listener_for(&self, server: &str) -> Option<&Listener> {
        let host: Host = server.parse().ok()?;
        let mut found = self.listeners().map(|(_, listener)| listener).filter(|l| l.target.host == host);
        let first = found.next()?;
        if first.target.port == SMB_PORT {
            return Some(first);
        }
        Some(found.find(|listener| listener.target.port == SMB_PORT).unwrap_or(first))
    }

    /// Decides about an intercepted connection from `source` to `destination` on `port`.
    ///
    /// Rules with a listener are not looked at. Where no rule matches, the connection passes through: a gateway in the
    /// path must not be where traffic ends that nobody spoke of.
    pub fn decide(&self, source: IpAddr, destination: &Host, port: u16) -> Decision {
        self.first(source, destination, port, None, Action::PassThrough)
    }

    /// Decides about a connection that the listener of rule `listener` accepted from `source`.
    ///
    /// The listener's rule takes part at its place; rules without a listener may decide before it. Where no rule
    /// matches (the client is outside the rule's `source`), the connection is denied: the listener exists for its rule
    /// only.
    pub fn decide_listener(&self, source: IpAddr, listener: usize) -> Decision {
        match self.0.get(listener).and_then(|rule| rule.listener.as_ref()) {
            Some(l) => self.first(source, &l.target.host, l.target.port, Some(listener), Action::Deny),
            None => Decision::unmatched(Action::Deny),
        }
    }

    fn first(
        &self,
        source: IpAddr,
        destination: &Host,
        port: u16,
        listener: Option<usize>,
        otherwise: Action,
    ) -> Decision {
        self.0
            .iter()
            .enumerate()
            .find(|(index, rule)| {
                (rule.listener.is_none() || listener == Some(*index))
                    && rule.matches(source, destination, port)
            })
            .map_or_else(|| Decision::unmatched(otherwise), |(index, rule)| rule.decision(index, destination))
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Rule {
    /// Whether source, target and port satisfy every list that is not empty. Which listener accepted is not looked at.
    pub fn matches(&self, source: IpAddr, destination: &Host, port: u16) -> bool {
        let any_or_empty = |empty: bool, any: bool| empty || any;
        any_or_empty(self.source.is_empty(), self.source.iter().any(|n| n.contains(source)))
            && any_or_empty(
                self.destination.is_empty(),
                self.destination.iter().any(|p| p.covers(destination)),
            )
            && any_or_empty(self.ports.is_empty(), self.ports.iter().any(|p| p.contains(port)))
    }

    fn decision(&self, index: usize, destination: &Host) -> Decision {
        Decision {
            action: self.action,
            domain: self.domain.label(destination),
            when_unavailable: self.when_unavailable,
            rule: Some(index),
            name: Arc::clone(&self.name),
        }
    }
}

impl Decision {
    fn unmatched(action: Action) -> Decision {
        Decision {
            action,
            domain: Domain("peer".into()),
            when_unavailable: WhenUnavailable::PassThrough,
            rule: None,
            name: Arc::from("no rule"),
        }
    }
}

impl DomainScope {
    /// The label that goes over the wire for a connection to `destination`, at most [`DOMAIN_LEN_MAX`] bytes.
    ///
    /// Prefixes keep the three kinds apart, so that no target name and no free label can be mistaken for another. A host
    /// name that does not fit is replaced by its hash.
    pub fn label(&self, destination: &Host) -> Domain {
        const HASH_BYTES: usize = 24;
        Domain(match self {
            DomainScope::Peer => "peer".into(),
            DomainScope::Label(label) => format!("label:{label}"),
            DomainScope::Server => {
                let label = format!("server:{destination}");
                if label.len() <= DOMAIN_LEN_MAX {
                    label
                } else {
                    let hash = blake3::hash(destination.to_string().as_bytes());
                    let hex: String =
                        hash.as_bytes()[..HASH_BYTES].iter().map(|b| format!("{b:02x}")).collect();
                    format!("server#{hex}")
                }
            }
        })
    }
}

impl fmt::Display for DomainScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DomainScope::Peer => f.write_str("peer"),
            DomainScope::Server => f.write_str("server"),
            DomainScope::Label(label) => write!(f, "label:{label}"),
        }
    }
}

impl FromStr for DomainScope {
    type Err = String;

    /// Free labels carry the prefix `label:`, so that a slip in `peer` or `server` cannot pass for one.
    fn from_str(text: &str) -> Result<DomainScope, String> {
        match text {
            "peer" => return Ok(DomainScope::Peer),
            "server" => return Ok(DomainScope::Server),
            "share" | "user" => {
                return Err("needs SMB sessions to be understood, which this version does not".into());
            }
            _ => {}
        }
        let label = text.strip_prefix("label:").ok_or("is unknown")?;
        if label.is_empty() || label.len() > LABEL_LEN_MAX {
            return Err(format!("must have 1 to {LABEL_LEN_MAX} characters after \"label:\""));
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err("may have only letters, digits, '-', '_' and '.' after \"label:\"".into());
        }
        Ok(DomainScope::Label(label.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(action: Action) -> Rule {
        Rule {
            name: Arc::from("r"),
            action,
            listener: None,
            source: vec![],
            destination: vec![],
            ports: vec![],
            domain: DomainScope::Peer,
            when_unavailable: WhenUnavailable::PassThrough,
        }
    }

    fn listening(target: &str) -> Rule {
        let listener = Listener {
            address: "127.0.0.1:4450".parse().unwrap(),
            target: HostPort::parse(target, 445).unwrap(),
        };
        Rule { listener: Some(listener), ..rule(Action::Optimise) }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn intercepted_connections_pass_through_when_nothing_matches() {
        let rules = Rules::new(vec![Rule { ports: vec!["445".parse().unwrap()], ..rule(Action::Optimise) }]);
        assert_eq!(rules.decide(ip("10.0.0.1"), &host("fs"), 445).action, Action::Optimise);
        let other = rules.decide(ip("10.0.0.1"), &host("fs"), 80);
        assert_eq!((other.action, other.rule), (Action::PassThrough, None));
        assert_eq!(Rules::default().decide(ip("::1"), &host("fs"), 1).action, Action::PassThrough);
    }

    #[test]
    fn a_listener_serves_its_sources_only_and_earlier_rules_come_first() {
        let deny = Rule { source: vec!["10.9.0.0/16".parse().unwrap()], ..rule(Action::Deny) };
        let own = Rule { source: vec!["10.0.0.0/8".parse().unwrap()], ..listening("fs") };
        let rules = Rules::new(vec![deny, own, listening("other")]);
        assert_eq!(rules.decide_listener(ip("10.1.0.1"), 1).rule, Some(1));
        assert_eq!(rules.decide_listener(ip("::ffff:10.1.0.1"), 1).rule, Some(1));
        assert_eq!(rules.decide_listener(ip("10.9.0.1"), 1).rule, Some(0), "the earlier rule decides");
        let outside = rules.decide_listener(ip("192.0.2.1"), 1);
        assert_eq!(
            (outside.action, outside.rule),
            (Action::Deny, None),
            "another listener's rule is not looked at"
        );
        assert_eq!(rules.decide_listener(ip("10.1.0.1"), 0).action, Action::Deny, "rule 0 has no listener");
        assert_eq!(rules.decide_listener(ip("10.1.0.1"), 99).action, Action::Deny);
        assert_eq!(
            rules.decide(ip("10.1.0.1"), &host("fs"), 445).rule,
            None,
            "listener rules are for their listener"
        );
        assert_eq!(rules.listeners().map(|(i, _)| i).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn domain_labels_never_meet_and_always_fit() {
        let long = host(&format!("{}.example", ["a"; 60].join(".")));
        let labels = [
            DomainScope::Peer.label(&host("peer")),
            DomainScope::Server.label(&host("peer")),
            "label:peer".parse::<DomainScope>().unwrap().label(&host("peer")),
            DomainScope::Server.label(&long),
            DomainScope::Server.label(&host(&format!("b.{}.example", ["a"; 60].join(".")))),
        ];
        for (i, a) in labels.iter().enumerate() {
            assert!(a.0.len() <= DOMAIN_LEN_MAX);
            assert!(labels[i + 1..].iter().all(|b| a != b), "{a:?}");
        }
        for bad in ["servr", "share", "user", "label:", "label:a b", ""] {
            assert!(bad.parse::<DomainScope>().is_err(), "{bad}");
        }
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let action = prop_oneof![
            Just(Action::Optimise),
            Just(Action::ReduceOnly),
            Just(Action::PassThrough),
            Just(Action::Deny)
        ];
        let nets =
            prop::collection::vec(prop_oneof![Just("10.0.0.0/8"), Just("10.1.0.0/16"), Just("::/0")], 0..2);
        let dest =
            prop::collection::vec(prop_oneof![Just("10.2.0.0/16"), Just("fs1"), Just("*1"), Just("*")], 0..2);
        let ports = prop::collection::vec(prop_oneof![Just("445"), Just("1-500"), Just("80")], 0..2);
        (action, nets, dest, ports).prop_map(|(action, nets, dest, ports)| Rule {
            source: nets.iter().map(|t| t.parse().unwrap()).collect(),
            destination: dest.iter().map(|t| t.parse().unwrap()).collect(),
            ports: ports.iter().map(|t| t.parse().unwrap()).collect(),
            ..rule(action)
        })
    }

    proptest! {
        /// The decision is that of the first rule which matches alone, and rules after it change nothing.
        #[test]
        fn the_first_match_wins(
            rules in prop::collection::vec(any_rule(), 0..6),
            source in prop_oneof![Just("10.1.0.9"), Just("10.7.0.9"), Just("192.0.2.9"), Just("2001:db8::1")],
            target in prop_oneof![Just("10.2.0.1"), Just("fs1"), Just("fs2")],
            port in prop_oneof![Just(445u16), Just(80), Just(8080)],
        ) {
            let alone = |r: &Rule| Rules::new(vec![r.clone()]).decide(ip(source), &host(target), port).rule.is_some();
            let expected = rules.iter().position(alone);
            let decision = Rules::new(rules.clone()).decide(ip(source), &host(target), port);
            prop_assert_eq!(decision.rule, expected);
            prop_assert_eq!(decision.action, expected.map_or(Action::PassThrough, |i| rules[i].action));
            if let Some(i) = expected {
                let cut = Rules::new(rules[..=i].to_vec()).decide(ip(source), &host(target), port);
                prop_assert_eq!(cut, decision);
            }
        }
    }
}
