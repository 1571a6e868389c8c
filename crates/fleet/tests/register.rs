//! Tokens, agents and policies in a register on disk.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use isthmus_agent::{Enrol, Report, TokenSecret};
use isthmus_certs::{Authority, IssueRequest, KeyRequest, Role, Trust, Validity, list};
use isthmus_fleet::{Fleet, FleetError, Invitation, TOKEN_TTL_MAX};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

const HOUR: Duration = Duration::from_secs(3_600);

struct Bench {
    dir: tempfile::TempDir,
    authority: Authority,
    fleet: Fleet,
    now: SystemTime,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), "Test CA", 100).unwrap();
        let fleet = Fleet::new(&dir.path().join("fleet"), &dir.path().join("ca"), 30);
        fleet.set_policy("default", "# nothing").unwrap();
        Bench { dir, authority, fleet, now: SystemTime::now() }
    }

    fn invite(&self, name: &str) -> Result<Invitation, FleetError> {
        self.fleet.invite(name, "default", HOUR, self.now)
    }

    fn trust(&self) -> Trust {
        Trust::load(&self.authority.certificate(), Some(&self.authority.crl())).unwrap()
    }
}

fn enrol(secret: &TokenSecret, key: &KeyRequest) -> Enrol {
    Enrol {
        secret: secret.to_hex(),
        request: key.request.clone(),
        software: "0.1.0".into(),
        host: "lap\u{1b}top".into(),
    }
}

#[test]
fn a_token_lets_one_laptop_in_once() {
    let bench = Bench::new();
    let token = bench.invite("laptop-1").unwrap().token;
    let key = KeyRequest::new("x").unwrap();
    let enrolled = bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).unwrap();
    assert_eq!(enrolled.name, "laptop-1");
    assert!(key.fits(&enrolled.certificate));
    assert_eq!(isthmus_certs::fingerprint(&enrolled.authority).unwrap()[..16], token.authority);
    let policy = &enrolled.policy;
    assert!(bench.trust().authority_signed(&policy.statement(), &policy.signature().unwrap()));

    let stolen = KeyRequest::new("x").unwrap();
    let refused = bench.fleet.enrol(&enrol(&token.secret, &stolen), bench.now);
    assert!(matches!(refused, Err(FleetError::Token)), "another key");
    let again = bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).unwrap();
    assert!(bench.fleet.store_half("laptop-1").is_ok_and(|half| half.len() == 64));
    assert!(key.fits(&again.certificate), "the same laptop, whose answer was lost");
    let agents = bench.fleet.agents().unwrap();
    assert_eq!((agents.len(), agents[0].host.as_str()), (1, "laptop"));
    let file = bench.dir.path().join("fleet/fleet.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(file).unwrap().contains(&token.secret.to_hex()), "no secret is kept");
}

#[test]
fn bad_tokens_are_all_refused_alike() {
    let bench = Bench::new();
    let token = bench.invite("laptop-1").unwrap().token;
    let key = KeyRequest::new("x").unwrap();
    let later = bench.now + HOUR;
    assert!(matches!(bench.fleet.enrol(&enrol(&token.secret, &key), later), Err(FleetError::Token)));
    for secret in [TokenSecret([1; 12]).to_hex(), String::new(), "zz".into()] {
        let bad = Enrol { secret, ..enrol(&token.secret, &key) };
        assert!(matches!(bench.fleet.enrol(&bad, bench.now), Err(FleetError::Token)));
    }
    let bad = Enrol { request: "no request".into(), ..enrol(&token.secret, &key) };
    assert!(matches!(bench.fleet.enrol(&bad, bench.now), Err(FleetError::Certs(_))));
    assert!(list(&bench.dir.path().join("ca")).unwrap().is_empty(), "nothing was issued");
    bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).expect("it is still good for a good request");
    let first = bench.invite("laptop-2").unwrap().token;
    let second = bench.invite("laptop-2").unwrap().token;
    assert!(bench.fleet.enrol(&enrol(&first.secret, &key), bench.now).is_err(), "there is a newer one");
    bench.fleet.enrol(&enrol(&second.secret, &key), bench.now).unwrap();
}

#[test]
fn names_are_given_once_until_they_are_revoked() {
    let bench = Bench::new();
    let key = KeyRequest::new("x").unwrap();
    let token = bench.invite("laptop-1").unwrap().token;
    bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).unwrap();
    assert!(matches!(bench.invite("laptop-1"), Err(FleetError::Taken(_))));
    let gateway = IssueRequest {
        role: Role::ClientSide,
        name: "branch-7".into(),
        dns: vec![],
        ip: vec![],
        validity: Validity::Days(9),
    };
    bench.authority.issue(&gateway, &bench.dir.path().join("out")).unwrap();
    assert!(matches!(bench.invite("branch-7"), Err(FleetError::Taken(_))), "a gateway's name");
    for bad in ["", "a/b", "ca", "-x", "a b"] {
        assert!(bench.invite(bad).is_err(), "{bad:?}");
    }
    assert!(bench.fleet.invite("laptop-2", "none", HOUR, bench.now).is_err());
    for ttl in [Duration::ZERO, TOKEN_TTL_MAX + HOUR] {
        assert!(bench.fleet.invite("laptop-2", "default", ttl, bench.now).is_err());
    }
    let half = bench.fleet.store_half("laptop-1").unwrap();
    assert_eq!(half.len(), 64);
    let file = || std::fs::read_to_string(bench.dir.path().join("fleet/fleet.json")).unwrap();
    assert!(file().contains(half.as_str()));
    let revoked = bench.fleet.revoke("laptop-1", bench.now).unwrap();
    assert!(!file().contains(half.as_str()), "its store is unreadable from now on");
    assert!(matches!(bench.fleet.store_half("laptop-1"), Err(FleetError::Revoked(_))));
    assert_eq!(revoked.len(), 1);
    assert!(matches!(bench.fleet.news("laptop-1", &Report::default()), Err(FleetError::Revoked(_))));
    assert!(matches!(bench.fleet.renew("laptop-1", &key.request), Err(FleetError::Revoked(_))));
    let refused = bench.fleet.enrol(&enrol(&token.secret, &key), bench.now);
    assert!(matches!(refused, Err(FleetError::Token)), "its old token does not bring it back");
    let token = bench.invite("laptop-1").unwrap().token;
    bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).unwrap();
    bench.fleet.news("laptop-1", &Report::default()).unwrap();
}

#[test]
fn news_are_what_the_agent_does_not_have_and_versions_only_grow() {
    let bench = Bench::new();
    let key = KeyRequest::new("x").unwrap();
    let token = bench.invite("laptop-1").unwrap().token;
    let first = bench.fleet.enrol(&enrol(&token.secret, &key), bench.now).unwrap();
    let report = |version, list: &str| Report {
        policy_version: version,
        revocations: isthmus_agent::revocations_id(list),
        ..Report::default()
    };
    let known = report(first.policy.version, &first.revocations);
    let news = bench.fleet.news("laptop-1", &known).unwrap();
    assert_eq!((news.policy, news.revocations), (None, None));
    bench.fleet.set_policy("sales", "# sales").unwrap();
    assert_eq!(bench.fleet.news("laptop-1", &known).unwrap().policy, None, "not its policy");
    bench.fleet.reassign("laptop-1", "sales").unwrap();
    let second = bench.fleet.news("laptop-1", &known).unwrap().policy.unwrap();
    assert_eq!((second.name.as_str(), second.text.as_str()), ("sales", "# sales"));
    bench.fleet.reassign("laptop-1", "default").unwrap();
    let third = bench.fleet.news("laptop-1", &known).unwrap().policy.unwrap();
    assert!(first.policy.version < second.version && second.version < third.version);
    bench.authority.revoke("laptop-1").unwrap();
    assert!(bench.fleet.news("laptop-1", &known).unwrap().revocations.is_some());
    assert!(matches!(bench.fleet.reassign("nobody", "sales"), Err(FleetError::NoAgent(_))));
    assert!(matches!(bench.fleet.reassign("laptop-1", "none"), Err(FleetError::NoPolicy(_))));
    let renewed = bench.fleet.renew("laptop-1", &key.request).unwrap();
    assert!(key.fits(&renewed));
}
