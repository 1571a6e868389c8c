//! The release policy against honest peers and hostile ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_keys::{
    BadRules, Decision, PeerIdentity, PeerKind, RateLimit, Refusal, Release, ReleasePolicy, ReleaseRule,
    ReleasesConfig, Scope,
};
use isthmus_smb_auth::{Groups, Sid};
use std::time::{Duration, Instant};

const BRANCH: PeerIdentity<'_> = PeerIdentity { name: "branch-1", kind: PeerKind::Gateway };
const LAPTOP: PeerIdentity<'_> = PeerIdentity { name: "laptop-alice", kind: PeerKind::Laptop };

fn rule(name: &str, peer: &str, subnets: &[&str], users: &[&str]) -> ReleaseRule {
    let scope = match subnets {
        [] => Scope::Laptop,
        _ => Scope::Gateway { subnets: subnets.iter().map(|subnet| subnet.parse().unwrap()).collect() },
    };
    ReleaseRule {
        name: name.to_owned(),
        peer: peer.to_owned(),
        scope,
        users: users.iter().map(|user| user.parse().unwrap()).collect(),
        servers: vec!["*.corp.example.com".parse().unwrap()],
        administrators: false,
        machine_accounts: false,
    }
}

fn config() -> ReleasesConfig {
    ReleasesConfig {
        rules: vec![
            rule("branch-staff", "branch-1", &["10.1.0.0/16", "fd01::/64"], &["CORP\\*"]),
            rule("alices-laptop", "laptop-alice", &[], &["CORP\\alice"]),
        ],
        administrators: vec!["CORP\\carol".parse().unwrap()],
        administrator_groups: vec!["S-1-5-21-1-2-3-1105".to_owned()],
        ..ReleasesConfig::default()
    }
}

fn policy() -> ReleasePolicy {
    ReleasePolicy::new(&config()).unwrap()
}

fn alice() -> Release<'static> {
    Release {
        user: "alice",
        domain: "CORP",
        domain_alias: None,
        server: "files.corp.example.com",
        client: "10.1.2.3".parse().unwrap(),
        machine_account: false,
        groups: None,
    }
}

fn refused(policy: &ReleasePolicy, peer: &PeerIdentity<'_>, release: &Release<'_>) -> Refusal {
    match policy.decide(peer, release, Instant::now()) {
        Decision::Refuse { reason, .. } => reason,
        Decision::Release { rule } => panic!("released by {rule}"),
    }
}

fn released(policy: &ReleasePolicy, peer: &PeerIdentity<'_>, release: &Release<'_>) -> String {
    match policy.decide(peer, release, Instant::now()) {
        Decision::Release { rule } => rule,
        Decision::Refuse { reason, .. } => panic!("refused: {reason}"),
    }
}

#[test]
fn honest_peers_are_given_what_their_rules_say() {
    let policy = policy();
    assert_eq!(released(&policy, &BRANCH, &alice()), "branch-staff");
    assert_eq!(released(&policy, &LAPTOP, &alice()), "alices-laptop");
    let by_kerberos =
        Release { user: "ALICE", domain: "CORP.EXAMPLE.COM", domain_alias: Some("CORP"), ..alice() };
    assert_eq!(released(&policy, &BRANCH, &by_kerberos), "branch-staff");
    let by_upn = Release { user: "alice@corp", domain: "", ..alice() };
    assert_eq!(released(&policy, &LAPTOP, &by_upn), "alices-laptop");
    let mapped = Release { client: "::ffff:10.1.2.3".parse().unwrap(), ..alice() };
    assert_eq!(released(&policy, &BRANCH, &mapped), "branch-staff");
    let v6 = Release { client: "fd01::7".parse().unwrap(), ..alice() };
    assert_eq!(released(&policy, &BRANCH, &v6), "branch-staff");
}

#[test]
fn without_a_rule_nothing_is_released() {
    let none = ReleasePolicy::new(&ReleasesConfig::default()).unwrap();
    assert_eq!(refused(&none, &BRANCH, &alice()), Refusal::NoRule);
    let stranger = PeerIdentity { name: "branch-2", kind: PeerKind::Gateway };
    assert_eq!(refused(&policy(), &stranger, &alice()), Refusal::NoRule);
    let other_case = PeerIdentity { name: "Branch-1", ..BRANCH };
    assert_eq!(refused(&policy(), &other_case, &alice()), Refusal::NoRule);
}

#[test]
fn a_hostile_laptop_gets_nobodys_keys_but_its_own_users() {
    let policy = policy();
    for user in ["bob", "alice2", "alic", "", "*", "CORP\\alice", "alice\0", "Administrator", "files$"] {
        let release = Release { user, ..alice() };
        assert_eq!(refused(&policy, &LAPTOP, &release), Refusal::User, "{user:?}");
    }
    for domain in ["", "OTHER", "CORP2", "*", "CORP\\"] {
        let release = Release { domain, ..alice() };
        assert_eq!(refused(&policy, &LAPTOP, &release), Refusal::User, "{domain:?}");
    }
    let other_server = Release { server: "files.example.com", ..alice() };
    assert_eq!(refused(&policy, &LAPTOP, &other_server), Refusal::Server);
    // Its certificate says what it is; it cannot use a gateway's rule, nor a gateway a laptop's.
    let as_gateway = PeerIdentity { kind: PeerKind::Gateway, ..LAPTOP };
    assert_eq!(refused(&policy, &as_gateway, &alice()), Refusal::PeerKind);
    let as_laptop = PeerIdentity { kind: PeerKind::Laptop, ..BRANCH };
    assert_eq!(refused(&policy, &as_laptop, &alice()), Refusal::PeerKind);
}

#[test]
fn a_hostile_gateway_is_held_to_its_subnets_and_domains() {
    let policy = policy();
    for client in ["10.2.0.1", "127.0.0.1", "0.0.0.0", "fd01:0:0:1::7", "::ffff:10.2.0.1"] {
        let release = Release { client: client.parse().unwrap(), ..alice() };
        assert_eq!(refused(&policy, &BRANCH, &release), Refusal::ClientAddress, "{client}");
    }
    let other = Release { domain: "PARTNER", ..alice() };
    assert_eq!(refused(&policy, &BRANCH, &other), Refusal::User);
}

#[test]
fn administrators_and_machines_are_refused_until_a_rule_says_so() {
    let groups = |user_rid, rids: &[u32], extra: &[Sid]| Groups {
        domain: "CORP".to_owned(),
        domain_sid: Sid { authority: 5, parts: vec![21, 1, 2, 3] },
        user_rid,
        group_rids: rids.to_vec(),
        extra_sids: extra.to_vec(),
    };
    let of_configured_group = Sid { authority: 5, parts: vec![21, 1, 2, 3, 1105] };
    let member = [
        groups(500, &[513], &[]),
        groups(1200, &[513, 512], &[]),
        groups(1200, &[513, 1105], &[]),
        groups(1200, &[513], &[of_configured_group]),
        groups(1200, &[513], &[Sid { authority: 5, parts: vec![32, 544] }]),
    ];
    let mut cases: Vec<Release<'_>> =
        ["Administrator", "ADMINISTRATEUR", "root", "carol"].map(|user| Release { user, ..alice() }).to_vec();
    cases.extend(member.iter().map(|groups| Release { groups: Some(groups), ..alice() }));
    let strict = policy();
    let mut open = config();
    open.rules[0].administrators = true;
    let open = ReleasePolicy::new(&open).unwrap();
    for release in &cases {
        assert_eq!(refused(&strict, &BRANCH, release), Refusal::Administrator, "{release:?}");
        assert_eq!(released(&open, &BRANCH, release), "branch-staff");
    }
    let plain = groups(1200, &[513, 1106], &[]);
    assert_eq!(released(&strict, &BRANCH, &Release { groups: Some(&plain), ..alice() }), "branch-staff");

    let mut open = config();
    open.rules[0].machine_accounts = true;
    let open = ReleasePolicy::new(&open).unwrap();
    for release in [Release { user: "PC7$", ..alice() }, Release { machine_account: true, ..alice() }] {
        assert_eq!(refused(&strict, &BRANCH, &release), Refusal::MachineAccount);
        assert_eq!(released(&open, &BRANCH, &release), "branch-staff");
    }
}

#[test]
fn a_later_rule_may_allow_what_an_earlier_one_does_not() {
    let mut config = config();
    let mut special = rule("backup", "branch-1", &["10.1.9.9/32"], &["CORP\\carol"]);
    special.administrators = true;
    config.rules.push(special);
    let policy = ReleasePolicy::new(&config).unwrap();
    let carol = Release { user: "carol", ..alice() };
    let decision = policy.decide(&BRANCH, &carol, Instant::now());
    let closest = Decision::Refuse { reason: Refusal::Administrator, rule: Some("branch-staff".to_owned()) };
    assert_eq!(decision, closest);
    let partner = Release { domain: "PARTNER", client: "10.1.9.9".parse().unwrap(), ..carol };
    let first = Decision::Refuse { reason: Refusal::User, rule: Some("branch-staff".to_owned()) };
    assert_eq!(policy.decide(&BRANCH, &partner, Instant::now()), first, "of equals, the first is named");
    let from_backup = Release { client: "10.1.9.9".parse().unwrap(), ..carol };
    assert_eq!(released(&policy, &BRANCH, &from_backup), "backup");
}

#[test]
fn a_flood_is_cut_to_the_rate_and_hurts_no_other_peer() {
    let rate = RateLimit { burst: 10, per_minute: 60 };
    let policy = ReleasePolicy::new(&ReleasesConfig { laptop_rate: rate, ..config() }).unwrap();
    let start = Instant::now();
    let mut granted = 0;
    for request in 0..100_000u64 {
        let now = start + Duration::from_micros(request * 100); // Ten seconds in all.
        match policy.decide(&LAPTOP, &alice(), now) {
            Decision::Release { .. } => granted += 1,
            Decision::Refuse { reason, rule } => {
                assert_eq!((reason, rule.as_deref()), (Refusal::RateLimit, Some("alices-laptop")));
            }
        }
    }
    assert!((19..=20).contains(&granted), "{granted} releases in ten seconds");
    assert_eq!(released(&policy, &BRANCH, &alice()), "branch-staff");
}

#[test]
fn refused_requests_do_not_use_up_a_peers_rate() {
    let rate = RateLimit { burst: 1, per_minute: 1 };
    let policy = ReleasePolicy::new(&ReleasesConfig { gateway_rate: rate, ..config() }).unwrap();
    for _ in 0..10_000 {
        assert_eq!(refused(&policy, &BRANCH, &Release { domain: "PARTNER", ..alice() }), Refusal::User);
    }
    assert_eq!(released(&policy, &BRANCH, &alice()), "branch-staff");
    assert_eq!(refused(&policy, &BRANCH, &alice()), Refusal::RateLimit);
}

#[test]
fn rules_that_cannot_be_meant_so_are_refused() {
    type Change = fn(&mut ReleasesConfig);
    let cases: [(Change, &str); 7] = [
        (|it| it.rules[1].users = vec!["*".parse().unwrap()], "a laptop's users must each be named"),
        (|it| it.rules[1].users = vec!["CORP\\*".parse().unwrap()], "a laptop's users must each be named"),
        (|it| it.rules[0].users.clear(), "no users"),
        (|it| it.rules[0].scope = Scope::Gateway { subnets: Vec::new() }, "no subnets"),
        (|it| it.rules[0].peer.clear(), "expected a name and the peer's name"),
        (|it| it.rules[1].name = "branch-staff".to_owned(), "two release rules are called"),
        (|it| it.administrator_groups.push("Domain Admins".to_owned()), "expected a security identifier"),
    ];
    for (change, expected) in cases {
        let mut bad = config();
        change(&mut bad);
        let error = ReleasePolicy::new(&bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let many = ReleasesConfig { rules: vec![config().rules[0].clone(); 20_001], ..config() };
    assert_eq!(ReleasePolicy::new(&many).unwrap_err(), BadRules::TooMany(20_001));
}
