//! What `keys check` says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_keys::check::{Narrow, Report, Subject, check};
use isthmus_keys::{KeyRing, ReleasePolicy, ReleaseRule, ReleasesConfig, Scope};
use isthmus_smb_auth::{AccountHash, EncryptionType, NtHash, Principal, SecretSet, ServiceKey};
use std::sync::Arc;

fn ring(accounts: &[(&str, Option<&str>)], keys: &[(&str, u32, EncryptionType)]) -> KeyRing {
    let mut set = SecretSet::default();
    for (user, domain) in accounts {
        let (user, domain) = ((*user).to_owned(), domain.map(str::to_owned));
        set.add_account(AccountHash { user, domain, version: 0, hash: NtHash::of_password("secret") });
    }
    for &(name, version, encryption) in keys {
        let key = vec![1; encryption.key_bytes()].into();
        set.add_service_key(ServiceKey::new(Principal::parse(name), version, encryption, key).unwrap());
    }
    KeyRing::new(vec![Arc::new(set)])
}

fn policy() -> ReleasePolicy {
    let rule = |name: &str, peer: &str, scope, user: &str| ReleaseRule {
        name: name.to_owned(),
        peer: peer.to_owned(),
        scope,
        users: vec![user.parse().unwrap()],
        servers: Vec::new(),
        administrators: false,
        machine_accounts: false,
    };
    let mut branch = rule(
        "staff",
        "branch-1",
        Scope::Gateway { subnets: vec!["10.1.0.0/16".parse().unwrap()] },
        "CORP\\*",
    );
    branch.servers = vec!["*.corp.example.com".parse().unwrap()];
    let laptop = rule("bob", "laptop-bob", Scope::Laptop, "CORP\\bob");
    ReleasePolicy::new(&ReleasesConfig { rules: vec![branch, laptop], ..ReleasesConfig::default() }).unwrap()
}

fn user(ring: &KeyRing, user: &str, domain: &str) -> Vec<String> {
    let subject = Subject::User { user: user.to_owned(), domain: domain.to_owned() };
    shown(&check(ring, &policy(), &subject, &Narrow::default()))
}

fn shown(report: &Report) -> Vec<String> {
    report.lines.iter().map(ToString::to_string).collect()
}

fn service(ring: &KeyRing, name: &str) -> Vec<String> {
    shown(&check(ring, &policy(), &Subject::Service(Principal::parse(name)), &Narrow::default()))
}

#[test]
fn a_user_with_everything_is_told_where_it_works() {
    let ring = ring(&[("bob", Some("CORP"))], &[("cifs/files@CORP.TEST", 2, EncryptionType::Aes256Sha1)]);
    assert_eq!(
        user(&ring, "Bob", "corp"),
        [
            "works  NTLM: NT hash held of CORP\\bob; whether it is current shows at the next logon",
            "works  Kerberos: to the services whose key is held: cifs/files@CORP.TEST",
            "works  release to branch-1: by rule staff, for clients in 10.1.0.0/16, to *.corp.example.com",
            "works  release to laptop-bob: by rule bob, as enrolled on this laptop",
        ]
    );
}

#[test]
fn a_user_without_anything_is_told_why() {
    assert_eq!(
        user(&KeyRing::default(), "alice", "OTHER"),
        [
            "fails  NTLM: no NT hash of this user is held; NTLM sessions are relayed",
            "fails  Kerberos: no service key is held; Kerberos sessions are relayed",
            "fails  release: to no peer; the user's sessions are relayed whatever keys are held",
        ]
    );
    let elsewhere = ring(&[("alice", Some("CORP"))], &[]);
    assert!(
        user(&elsewhere, "alice", "OTHER")[0].starts_with("note   NTLM: NT hash held of CORP\\alice, not of")
    );
}

#[test]
fn administrators_and_machines_are_told_so() {
    let lines = user(&KeyRing::default(), "Administrator", "CORP");
    assert_eq!(
        lines[2..],
        [
            "note   release: the user is an administrator (built-in administrator), released only by rules that say so",
            "fails  release to branch-1: rule staff: administrator",
            "fails  release: to no peer; the user's sessions are relayed whatever keys are held",
        ]
    );
    let lines = user(&KeyRing::default(), "PC7$", "CORP");
    assert_eq!(lines[2], "fails  release to branch-1: rule staff: machine account or service");
}

#[test]
fn a_service_is_told_by_all_names_of_its_host() {
    let keys = [
        ("cifs/files.corp.test@CORP.TEST", 2, EncryptionType::Aes256Sha1),
        ("cifs/files.corp.test@CORP.TEST", 3, EncryptionType::Aes256Sha1),
        ("cifs/files.corp.test@CORP.TEST", 3, EncryptionType::Rc4Hmac),
        ("FILES$@CORP.TEST", 3, EncryptionType::Rc4Hmac),
        ("cifs/other.corp.test@CORP.TEST", 1, EncryptionType::Aes256Sha1),
    ];
    assert_eq!(
        service(&ring(&[], &keys), "cifs/FILES"),
        [
            "works  Kerberos: FILES$@CORP.TEST: version 3 (rc4-hmac)",
            "works  Kerberos: cifs/files.corp.test@CORP.TEST: version 3 (aes256-cts-hmac-sha1-96, rc4-hmac), version 2 (aes256-cts-hmac-sha1-96)",
            "note   NTLM: for the users whose NT hash is held (1)",
        ]
    );
    assert_eq!(
        service(&ring(&[], &keys[3..4]), "cifs/files")[1],
        "note   Kerberos: no aes256-cts-hmac-sha1-96 key, which current domains use; such tickets are relayed"
    );
}

#[test]
fn an_unknown_service_is_told_so() {
    let expected = "fails  Kerberos: no key of cifs/nas or its host is held; Kerberos sessions are relayed";
    assert_eq!(service(&KeyRing::default(), "cifs/nas")[0], expected);
    let other = ring(&[], &[("cifs/files@CORP.TEST", 2, EncryptionType::Aes256Sha1)]);
    let lines = service(&other, "cifs/nas");
    assert_eq!(lines[0], expected);
    assert!(lines[1].starts_with("note   Kerberos: keys under other names are tried too"));
}

fn narrowed(ring: &KeyRing, text: &str, narrow: &Narrow) -> (Vec<String>, bool, Option<bool>) {
    let report = check(ring, &policy(), &Subject::user(text), narrow);
    (shown(&report), report.has_key, report.is_released)
}

#[test]
fn a_narrow_question_gets_the_answer_that_a_session_would_get() {
    let ring = ring(&[], &[("cifs/files.corp.example.com", 2, EncryptionType::Aes256Sha1)]);
    let mut narrow = Narrow {
        peer: Some("branch-1".into()),
        server: Some("files.corp.example.com".into()),
        client: Some("10.1.2.3".parse().unwrap()),
        service: None,
    };
    let (lines, has_key, is_released) = narrowed(&ring, "CORP\\alice", &narrow);
    assert_eq!((has_key, is_released), (true, Some(true)));
    assert_eq!(lines[1], "works  Kerberos: cifs/files.corp.example.com: version 2 (aes256-cts-hmac-sha1-96)");
    assert!(lines[2].starts_with("works  release to branch-1: by rule staff"), "{lines:?}");

    narrow.client = Some("10.2.2.3".parse().unwrap());
    let (lines, _, is_released) = narrowed(&ring, "alice@corp", &narrow);
    let refusal = "fails  release to branch-1: rule staff: client's address not released to this gateway";
    assert_eq!((lines[2].as_str(), is_released), (refusal, Some(false)));

    narrow.server = Some("nas.example.com".into());
    let (lines, has_key, is_released) = narrowed(&ring, "CORP\\alice", &narrow);
    assert_eq!((has_key, is_released), (false, Some(false)));
    assert!(lines.iter().any(|line| line.contains("no key of cifs/nas.example.com")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("file server not released to this peer")), "{lines:?}");

    narrow.peer = Some("stranger".into());
    let (lines, ..) = narrowed(&ring, "alice", &narrow);
    assert_eq!(lines.last().unwrap(), "fails  release to stranger: no release rule for this peer");
}
