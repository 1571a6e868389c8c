//! What is wrong, in words for the person who reads the console.

use isthmus_telemetry::{
    CertificateKind, CertificateStatus, KeySourceStatus, PeerState, Status, StoreState, Traffic,
    data_reduction,
};
use isthmus_types::{Reason, Side};
use std::time::{Duration, SystemTime};

/// A certificate that ends within this time is worth a warning.
const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 86_400);
/// A certificate that ends within this time is urgent.
const EXPIRY_URGENT: Duration = Duration::from_secs(7 * 86_400);
/// With fewer LAN bytes an hour, a low data reduction says nothing.
const POOR_REDUCTION_LAN_BYTES: u64 = 256 << 20;
/// An hour below this data reduction is worth a word.
const POOR_REDUCTION: f64 = 0.02;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Warning,
    Error,
}

impl Severity {
    /// JSON word.
    pub fn label(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub severity: Severity,
    /// What is wrong, in a few words.
    pub title: String,
    /// What it means and what to do.
    pub text: String,
}

/// Everything that is wrong at `now`, the worst first. `proof_failures` is the count since the start, `hour` the traffic
/// of the last hour.
pub fn alarms(status: &Status, proof_failures: u64, hour: &Traffic, now: SystemTime) -> Vec<Alarm> {
    let mut found = Vec::new();
    readiness(status, &mut found);
    store(status, &mut found);
    found.extend(status.key_sources.iter().filter_map(key_source));
    let renews = status.agent.is_some();
    found.extend(status.certificates.iter().filter_map(|certificate| expiry(certificate, renews, now)));
    if proof_failures > 0 {
        found.push(error(
            "Restored data failed its proof",
            format!(
                "{} since the start. The bytes were not delivered and the connections were closed. Check memory and \
                 disk of both proxies, and run `store check`.",
                times(proof_failures)
            ),
        ));
    }
    if hour.lan() >= POOR_REDUCTION_LAN_BYTES
        && data_reduction(hour.lan(), hour.wan()).is_some_and(|reduction| reduction < POOR_REDUCTION)
    {
        found.push(warning(
            "Almost nothing is being reduced",
            "The last hour's data was new and would not compress. That is normal for media and archives seen for the \
             first time; if it goes on, the data may be encrypted before it gets here (SMB encryption)."
                .into(),
        ));
    }
    found.sort_by_key(|alarm| alarm.severity == Severity::Warning);
    found
}

fn readiness(status: &Status, found: &mut Vec<Alarm>) {
    for obstacle in status.not_ready() {
        let what_follows =
            "New connections are relayed directly, without optimisation, or refused where a rule says so.";
        let text = sentence(&obstacle.text);
        found.push(match obstacle.reason {
            Reason::Draining => warning(
                "Draining",
                "The proxy lets its connections end and stops then. New connections are not optimised."
                    .into(),
            ),
            Reason::StoreUnavailable => {
                error("The chunk store cannot be used", format!("{text} {what_follows}"))
            }
            Reason::AdmissionFull => {
                warning("The connection limit is reached", format!("{text} {what_follows}"))
            }
            _ => error("No link to the peer", format!("{text} {what_follows}")),
        });
    }
    // With another peer up the proxy is ready, but the one that is down is still missed. To a server-side proxy peers
    // come and go: a laptop that is switched off is no fault.
    let some_up = status.peers.iter().any(|peer| peer.state == PeerState::Up);
    if status.side == Side::Client && some_up {
        for peer in &status.peers {
            if let PeerState::Down { reason, detail } = &peer.state {
                let detail = if detail.is_empty() { reason.to_string() } else { detail.clone() };
                found.push(warning(&format!("Peer {} is down", peer.name), sentence(&detail)));
            }
        }
    }
}

fn store(status: &Status, found: &mut Vec<Alarm>) {
    if let StoreState::NotLearning(why) = &status.store.state {
        found.push(warning(
            "The chunk store takes in nothing new",
            format!("{} What it knows still reduces traffic.", sentence(why)),
        ));
    }
    if status.store.quarantined > 0 {
        found.push(warning(
            "Damaged chunks were set aside",
            format!(
                "{} stored chunks failed a check and are not used any more. Run `store check` and look at the disk.",
                status.store.quarantined
            ),
        ));
    }
}

fn key_source(source: &KeySourceStatus) -> Option<Alarm> {
    let why = sentence(source.error.as_deref()?);
    let what_follows = if source.loaded_at.is_some() {
        "What was loaded before stays in use; sessions that need newer keys are not optimised."
    } else {
        "Sessions that need its keys are not optimised."
    };
    Some(warning(&format!("Keys cannot be loaded from {}", source.name), format!("{why} {what_follows}")))
}

/// `renews` says that the proxy gets itself new certificates, long before the end.
fn expiry(certificate: &CertificateStatus, renews: bool, now: SystemTime) -> Option<Alarm> {
    let renews = renews && certificate.kind == CertificateKind::Own;
    let what = match certificate.kind {
        CertificateKind::Own => "This proxy's certificate",
        CertificateKind::Authority => "The certification authority",
        CertificateKind::RevocationList => "The revocation list",
    };
    let remedy = match certificate.kind {
        CertificateKind::Own if renews => {
            "It renews itself when the server side answers; if that comes too late, the laptop has to enrol anew."
        }
        CertificateKind::Own => {
            "Issue a new one with `isthmus-server certs issue` and put it in its place; it is loaded without a restart."
        }
        CertificateKind::Authority => "Make a new authority and new certificates for both sides.",
        CertificateKind::RevocationList => {
            "Write a fresh one with `isthmus-server certs` and put it in its place."
        }
    };
    let Ok(left) = certificate.expires_at.duration_since(now) else {
        let text = format!("{}: peers no longer accept it. {remedy}", certificate.subject);
        return Some(error(&format!("{what} has expired"), text));
    };
    if left > EXPIRY_WARNING || (renews && left > EXPIRY_URGENT) {
        return None;
    }
    let days = left.as_secs() / 86_400;
    let title = match days {
        0 => format!("{what} expires today"),
        1 => format!("{what} expires in 1 day"),
        _ => format!("{what} expires in {days} days"),
    };
    let text = format!("{}. {remedy}", certificate.subject);
    Some(if left <= EXPIRY_URGENT { error(&title, text) } else { warning(&title, text) })
}

fn error(title: &str, text: String) -> Alarm {
    Alarm { severity: Severity::Error, title: title.to_owned(), text }
}

fn warning(title: &str, text: String) -> Alarm {
    Alarm { severity: Severity::Warning, title: title.to_owned(), text }
}

fn times(n: u64) -> String {
    if n == 1 { "Once".into() } else { format!("{n} times") }
}

/// `text` with a capital at its start and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut chars = text.trim().trim_end_matches('.').chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).chain(['.']).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_telemetry::{AdmissionStatus, InnerStatus, PeerCounters, PeerStatus, StoreStatus};
    use std::time::UNIX_EPOCH;

    fn healthy() -> Status {
        let peer = PeerStatus {
            name: "dc".into(),
            address: "192.0.2.1:7810".into(),
            state: PeerState::Up,
            since: UNIX_EPOCH,
            rtt: None,
            clock_ahead_ms: None,
            version: String::new(),
            channels_busy: 0,
            channels_pooled: 0,
            counters: PeerCounters::default(),
        };
        Status {
            side: Side::Client,
            name: "branch".into(),
            version: "0.1.0".into(),
            started_at: UNIX_EPOCH,
            configuration: Vec::new(),
            peers: vec![peer],
            obstacle: None,
            store: StoreStatus { state: StoreState::Learning, ..StoreStatus::unusable("") },
            admission: AdmissionStatus::default(),
            certificates: Vec::new(),
            key_sources: Vec::new(),
            draining: false,
            inner: InnerStatus::default(),
            agent: None,
            location: None,
        }
    }

    fn titles(status: &Status, proof_failures: u64, hour: &Traffic) -> Vec<String> {
        let found = alarms(status, proof_failures, hour, UNIX_EPOCH + Duration::from_secs(100 * 86_400));
        found.into_iter().map(|alarm| alarm.title).collect()
    }

    #[test]
    fn all_is_well_when_it_is() {
        assert_eq!(titles(&healthy(), 0, &Traffic::default()), Vec::<String>::new());
    }

    #[test]
    fn errors_come_first_and_say_what_follows() {
        let mut status = healthy();
        status.store.state = StoreState::NotLearning("the disk is full".into());
        status.peers[0].state =
            PeerState::Down { reason: Reason::PeerUnauthorised, detail: "expired yesterday".into() };
        let found = alarms(&status, 1, &Traffic::default(), UNIX_EPOCH);
        assert_eq!(found[0].title, "No link to the peer");
        assert!(found[0].text.contains("expired yesterday"), "{}", found[0].text);
        assert_eq!(found[1].title, "Restored data failed its proof");
        assert_eq!(found[2].title, "The chunk store takes in nothing new");
        assert!(found[2].text.starts_with("The disk is full. "), "{}", found[2].text);
    }

    #[test]
    fn a_key_source_that_cannot_be_loaded_is_told_with_what_follows() {
        let mut status = healthy();
        let mut source = KeySourceStatus {
            name: "/etc/files.keytab".into(),
            kind: isthmus_telemetry::KeySourceKind::Keytab,
            by_command: false,
            service_keys: 1,
            nt_hashes: 0,
            skipped: 0,
            loaded_at: Some(UNIX_EPOCH),
            error: None,
            loads: 1,
            failures: 0,
        };
        status.key_sources = vec![source.clone()];
        assert_eq!(titles(&status, 0, &Traffic::default()), Vec::<String>::new());
        source.error = Some("/etc/files.keytab: mode is 0644".into());
        status.key_sources = vec![source];
        let found = alarms(&status, 0, &Traffic::default(), UNIX_EPOCH);
        assert_eq!(found[0].title, "Keys cannot be loaded from /etc/files.keytab");
        assert!(found[0].text.ends_with(
            "0644. What was loaded before stays in use; sessions that need newer keys are not optimised."
        ));
    }

    #[test]
    fn certificates_warn_in_time() {
        let day = |n: u64| UNIX_EPOCH + Duration::from_secs(n * 86_400 + 3_600);
        for (expires, title) in [
            (day(99), Some("This proxy's certificate has expired")),
            (day(100), Some("This proxy's certificate expires today")),
            (day(101), Some("This proxy's certificate expires in 1 day")),
            (day(120), Some("This proxy's certificate expires in 20 days")),
            (day(131), None),
        ] {
            let mut status = healthy();
            let kind = CertificateKind::Own;
            status.certificates =
                vec![CertificateStatus { kind, subject: "CN=x".into(), expires_at: expires }];
            assert_eq!(titles(&status, 0, &Traffic::default()).first().map(String::as_str), title);
        }
    }

    #[test]
    fn poor_reduction_needs_enough_data_to_be_worth_a_word() {
        let traffic = |lan_up, wan_sent| Traffic { lan_up, wan_sent, ..Traffic::default() };
        assert_eq!(titles(&healthy(), 0, &traffic(1 << 30, 1 << 30)), ["Almost nothing is being reduced"]);
        assert_eq!(titles(&healthy(), 0, &traffic(1 << 20, 1 << 20)), Vec::<String>::new());
        assert_eq!(titles(&healthy(), 0, &traffic(1 << 30, 1 << 29)), Vec::<String>::new());
    }

    #[test]
    fn a_server_does_not_miss_a_laptop_that_is_off() {
        let mut status = healthy();
        status.side = Side::Server;
        status.peers[0].state = PeerState::Down { reason: Reason::PeerAbsent, detail: String::new() };
        assert_eq!(titles(&status, 0, &Traffic::default()), Vec::<String>::new());
    }
}
