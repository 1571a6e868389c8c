//! The authority from the outside: what it writes, refuses, revokes and lists.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use isthmus_certs::{
    Authority, CertsError, Details, IssueRequest, Role, TlsFiles, Validity, demo_set, examine, list,
    read_certificates,
};

const DAY: Duration = Duration::from_secs(86_400);

fn request(role: Role, name: &str) -> IssueRequest {
    let dns = if role == Role::ServerSide { vec!["proxy.example".to_string()] } else { vec![] };
    IssueRequest { role, name: name.into(), dns, ip: vec![], validity: Validity::Days(30) }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn details(path: &Path) -> Details {
    Details::of(&read_certificates(path).unwrap()[0]).unwrap()
}

#[test]
fn certificates_carry_name_role_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::init(&dir.path().join("ca"), "Test CA", 365).unwrap();
    let mut wanted = request(Role::ServerSide, "dc-1");
    wanted.ip = vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let issued = authority.issue(&wanted, &dir.path().join("out")).unwrap();
    let found = details(&issued.certificate);
    assert_eq!((found.name.as_str(), found.role), ("dc-1", Some(Role::ServerSide)));
    assert_eq!((&found.dns, &found.ip), (&wanted.dns, &wanted.ip));
    assert_eq!(found.serial, issued.entry.serial);
    assert_eq!((found.not_before, found.not_after), (issued.entry.not_before, issued.entry.not_after));
    let now = SystemTime::now();
    assert!(found.not_before < now - Duration::from_secs(3600), "a clock set back an hour is no trouble");
    assert!(found.not_after > now + 29 * DAY && found.not_after <= now + 30 * DAY);
    assert!(found.expiry_warning(now).unwrap().contains("dc-1"));
    assert_eq!(found.expiry_warning(now - DAY), None);
    assert_eq!(mode(&issued.key), 0o600);
    assert_eq!(mode(&dir.path().join("ca/ca.key")), 0o600);
    assert_eq!(mode(&dir.path().join("ca")), 0o700);
    assert_eq!(list(&dir.path().join("ca")).unwrap(), [issued.entry]);
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let authority = Authority::init(&ca, "Test CA", 365).unwrap();
    let key = fs::read(ca.join("ca.key")).unwrap();
    assert!(matches!(Authority::init(&ca, "Test CA", 365), Err(CertsError::Exists(_))));
    assert_eq!(fs::read(ca.join("ca.key")).unwrap(), key);

    let out = dir.path().join("out");
    authority.issue(&request(Role::ClientSide, "branch"), &out).unwrap();
    let before = fs::read(out.join("branch.key")).unwrap();
    let again = authority.issue(&request(Role::ClientSide, "branch"), &out);
    assert!(matches!(again, Err(CertsError::Exists(path)) if path == out.join("branch.pem")));
    assert_eq!(fs::read(out.join("branch.key")).unwrap(), before);
    assert_eq!(list(&ca).unwrap().len(), 1, "what was refused is not listed");

    let other = Authority::init(&dir.path().join("other"), "Other CA", 365).unwrap();
    assert!(matches!(other.issue(&request(Role::Admin, "admin"), &out), Err(CertsError::BadFile { .. })));
}

#[test]
fn validity_stays_within_the_authoritys() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::init(&dir.path().join("ca"), "Test CA", 10).unwrap();
    let issued = authority.issue(&request(Role::ClientSide, "branch"), dir.path()).unwrap();
    assert!(issued.shortened);
    assert_eq!(details(&issued.certificate).not_after, authority.not_after());
    for days in [0, 36_501] {
        let bad = IssueRequest { validity: Validity::Days(days), ..request(Role::ClientSide, "b") };
        assert!(matches!(authority.issue(&bad, dir.path()), Err(CertsError::BadRequest(_))), "{days}");
    }
    let now = SystemTime::now();
    let backwards =
        IssueRequest { validity: Validity::Between(now, now - DAY), ..request(Role::ClientSide, "b") };
    assert!(matches!(authority.issue(&backwards, dir.path()), Err(CertsError::BadRequest(_))));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::init(&dir.path().join("ca"), "Test CA", 10).unwrap();
    for name in ["", "..", "a/b", "../a", "-a", "a b", "a\n", "ca", "crl", &"a".repeat(65), "ü"] {
        let result = authority.issue(&request(Role::ClientSide, name), dir.path());
        assert!(matches!(result, Err(CertsError::BadRequest(_))), "{name:?}");
    }
    let nameless = IssueRequest { dns: vec![], ..request(Role::ServerSide, "server") };
    assert!(matches!(authority.issue(&nameless, dir.path()), Err(CertsError::BadRequest(_))));
    let bad = IssueRequest { dns: vec!["a b".into()], ..request(Role::ServerSide, "server") };
    assert!(matches!(authority.issue(&bad, dir.path()), Err(CertsError::BadRequest(_))));
    assert!(list(&dir.path().join("ca")).unwrap().is_empty());
}

#[test]
fn revocation_is_by_name_or_serial_and_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let authority = Authority::init(&ca, "Test CA", 10).unwrap();
    let first = authority.issue(&request(Role::ClientSide, "branch"), &dir.path().join("1")).unwrap().entry;
    let second = authority.issue(&request(Role::ClientSide, "branch"), &dir.path().join("2")).unwrap().entry;
    let third = authority.issue(&request(Role::ClientSide, "laptop"), &dir.path().join("3")).unwrap().entry;
    assert_ne!(first.serial, second.serial);
    let list_before = fs::read(authority.crl()).unwrap();
    let colons: Vec<String> =
        third.serial.as_bytes().chunks(2).map(|c| String::from_utf8_lossy(c).to_uppercase()).collect();
    let revoked = authority.revoke(&colons.join(":")).unwrap();
    assert_eq!(revoked.len(), 1);
    assert_ne!(fs::read(authority.crl()).unwrap(), list_before);

    let authority = Authority::open(&ca).unwrap();
    let revoked = authority.revoke("branch").unwrap();
    assert_eq!(revoked.iter().map(|e| &e.serial).collect::<Vec<_>>(), [&first.serial, &second.serial]);
    let now = SystemTime::now();
    assert!(list(&ca).unwrap().iter().all(|entry| entry.state(now) == "revoked"));
    let again = authority.revoke("branch").unwrap();
    assert_eq!(again, revoked, "the time of the revocation stays");
    assert!(matches!(authority.revoke("nobody"), Err(CertsError::NotFound(_))));
}

#[test]
fn broken_authorities_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Authority::open(dir.path()), Err(CertsError::NoAuthority(_))));
    assert!(matches!(list(dir.path()), Err(CertsError::NoAuthority(_))));
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    Authority::init(&a, "A", 10).unwrap();
    Authority::init(&b, "B", 10).unwrap();
    fs::copy(b.join("ca.key"), a.join("ca.key")).unwrap();
    assert!(matches!(Authority::open(&a), Err(CertsError::BadFile { .. })), "the key of another authority");
    fs::write(b.join("issued.json"), "{").unwrap();
    assert!(matches!(list(&b), Err(CertsError::BadFile { .. })));
    fs::write(b.join("issued.json"), r#"{"version": 99, "crl_number": 1, "certificates": []}"#).unwrap();
    assert!(list(&b).unwrap_err().to_string().contains("version"));
}

#[test]
fn commands_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    Authority::init(&ca, "Test CA", 10).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (ca, out) = (&ca, dir.path().join("out"));
            scope.spawn(move || {
                let authority = Authority::open(ca).unwrap();
                authority.issue(&request(Role::ClientSide, &format!("c{n}")), &out).unwrap();
            });
        }
    });
    assert_eq!(list(&ca).unwrap().len(), 8);
}

#[test]
fn an_examination_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let set = demo_set(dir.path()).unwrap();
    let now = SystemTime::now();
    let client = TlsFiles {
        certificate: &set.client.certificate,
        key: &set.client.key,
        ca: &set.ca,
        crl: Some(&set.crl),
    };
    let server = TlsFiles {
        certificate: &set.server.certificate,
        key: &set.server.key,
        ca: &set.ca,
        crl: Some(&set.crl),
    };
    let texts = |tls: &TlsFiles<'_>, role, now| -> Vec<String> {
        examine(tls, role, now).problems.into_iter().map(|problem| problem.text).collect()
    };
    assert_eq!(texts(&client, Role::ClientSide, now), [""; 0]);
    assert_eq!(texts(&server, Role::ServerSide, now), [""; 0]);
    assert!(examine(&client, Role::ClientSide, now).warnings.is_empty());

    let expect = |tls: &TlsFiles<'_>, role, now, word: &str| {
        let texts = texts(tls, role, now);
        assert!(texts.iter().any(|text| text.contains(word)), "{word}: {texts:?}");
    };
    expect(&client, Role::ServerSide, now, "for the role client-side");
    expect(&client, Role::ClientSide, now + 400 * DAY, "ended at");
    expect(&client, Role::ClientSide, now - 400 * DAY, "not valid before");
    expect(&TlsFiles { key: &set.server.key, ..client }, Role::ClientSide, now, "does not belong");
    expect(&TlsFiles { certificate: &set.ca, ..client }, Role::ClientSide, now, "does not carry the role");
    expect(
        &TlsFiles { certificate: &set.client.key, ..client },
        Role::ClientSide,
        now,
        "no certificate in it",
    );
    expect(
        &TlsFiles { key: &set.client.certificate, ..client },
        Role::ClientSide,
        now,
        "no private key in it",
    );
    expect(&TlsFiles { crl: Some(&set.ca), ..client }, Role::ClientSide, now, "no revocation list in it");
    let missing = dir.path().join("missing.pem");
    let examination = examine(&TlsFiles { certificate: &missing, ..client }, Role::ClientSide, now);
    assert_eq!(examination.problems[0].io, Some(std::io::ErrorKind::NotFound));
    assert_eq!(examination.problems[0].path, missing);

    let other = demo_set(&dir.path().join("other")).unwrap();
    expect(&TlsFiles { ca: &other.ca, crl: None, ..client }, Role::ClientSide, now, "not from the authority");
    expect(&TlsFiles { crl: Some(&other.crl), ..client }, Role::ClientSide, now, "revocation list");
    Authority::open(&set.authority).unwrap().revoke("client").unwrap();
    expect(&client, Role::ClientSide, now, "revoked");
    fs::set_permissions(&set.client.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(examine(&client, Role::ClientSide, now).warnings[0].contains("others than its owner"));
}
