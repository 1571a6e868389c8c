//! Two real authentications, kept as tokens beside this file (tests/vectors/README.md).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_smb_auth::{
    AccountHash, EncryptionType, Exchange, Failure, Mechanism, Mic, NtHash, Principal, SecretSet,
};

const NTLM: [&[u8]; 4] = [
    include_bytes!("vectors/ntlm-1.bin"),
    include_bytes!("vectors/ntlm-2.bin"),
    include_bytes!("vectors/ntlm-3.bin"),
    include_bytes!("vectors/ntlm-4.bin"),
];
const KERBEROS: [&[u8]; 2] =
    [include_bytes!("vectors/kerberos-1.bin"), include_bytes!("vectors/kerberos-2.bin")];
const KEYTAB: &[u8] = include_bytes!("vectors/cifs.keytab");

fn exchange(tokens: &[&[u8]]) -> Exchange {
    let mut exchange = Exchange::new();
    for pair in tokens.chunks(2) {
        exchange.client(pair[0]);
        pair.get(1).into_iter().for_each(|token| exchange.server(token));
    }
    exchange
}

fn account(user: &str, domain: Option<&str>, password: &str) -> AccountHash {
    let domain = domain.map(str::to_owned);
    AccountHash { user: user.to_owned(), domain, version: 0, hash: NtHash::of_password(password) }
}

fn accounts(list: impl IntoIterator<Item = AccountHash>) -> SecretSet {
    let mut set = SecretSet::default();
    list.into_iter().for_each(|account| set.add_account(account));
    set
}

fn keytab() -> SecretSet {
    let mut set = SecretSet::default();
    set.add_keytab(KEYTAB).unwrap();
    set
}

#[test]
fn ntlm_gives_the_exported_session_key() {
    let found = exchange(&NTLM).recover(&accounts([account("ALICE", None, "Passw0rd!")])).unwrap();
    assert_eq!(hex::encode(found.session_key.as_bytes()), "a6f766ec0bac888ba1cd3c0faaa59fed");
    assert_eq!((found.user.as_str(), found.domain.as_str()), ("alice", "WANTEST"));
    assert_eq!((found.mechanism, found.mic), (Mechanism::NtlmV2, Mic::Right));
    assert_eq!(found.workstation.as_deref(), Some("ORIGIN"));
    assert_eq!(found.target.as_deref(), Some("cifs/127.0.0.1"));
    assert!(!found.machine_account && found.groups.is_none() && found.domain_alias.is_none());
}

#[test]
fn ntlm_says_why_there_is_no_key() {
    let watched = exchange(&NTLM);
    let none = watched.recover(&accounts([account("bob", None, "Passw0rd!")]));
    assert_eq!(none.unwrap_err(), Failure::UnknownUser);
    let wrong = watched.recover(&accounts([account("alice", Some("WANTEST"), "Passw0rd")]));
    assert_eq!(wrong.unwrap_err(), Failure::WrongHash);
    let unfinished = exchange(&NTLM[..2]).recover(&accounts([account("alice", None, "Passw0rd!")]));
    assert_eq!(unfinished.unwrap_err(), Failure::Incomplete);
    let mut guest = watched.clone();
    guest.guest();
    assert_eq!(guest.recover(&SecretSet::default()).unwrap_err(), Failure::Guest);
}

#[test]
fn every_hash_held_for_a_name_is_tried() {
    let set = accounts([
        account("alice", Some("WANTEST"), "old"),
        account("alice", None, "older"),
        account("Alice", Some("OTHER"), "Passw0rd!"),
    ]);
    let found = exchange(&NTLM).recover(&set).unwrap();
    assert_eq!(found.domain_alias.as_deref(), Some("OTHER"));
    assert_eq!(found.secret, "NT hash of OTHER\\Alice");
}

#[test]
fn an_altered_ntlm_message_shows_in_its_integrity_code() {
    let mut altered = NTLM[0].to_vec();
    *altered.last_mut().unwrap() ^= 1;
    let mut tokens = NTLM;
    tokens[0] = &altered;
    let found = exchange(&tokens).recover(&accounts([account("alice", None, "Passw0rd!")])).unwrap();
    assert_eq!(found.mic, Mic::Wrong);
}

#[test]
fn kerberos_gives_the_acceptors_subkey() {
    let found = exchange(&KERBEROS).recover(&keytab()).unwrap();
    assert_eq!(
        hex::encode(found.session_key.as_bytes()),
        "2849d906be33f6de72a590082c87ec6cf4717cf0c030671b2a9d936731291adb"
    );
    assert_eq!((found.user.as_str(), found.domain.as_str()), ("alice", "WAN.TEST"));
    assert_eq!(found.domain_alias.as_deref(), Some("WAN"));
    assert_eq!(found.mechanism, Mechanism::Kerberos);
    assert_eq!(found.target.as_deref(), Some("cifs/dc1.wan.test"));
    assert_eq!(found.secret, "cifs/dc1.wan.test@WAN.TEST, version 1, aes256-cts-hmac-sha1-96");
    let groups = found.groups.unwrap();
    assert_eq!(groups.administrative(), None);
    assert!(!found.machine_account);
}

#[test]
fn kerberos_says_which_key_is_missing() {
    let watched = exchange(&KERBEROS);
    let recover = |set: &SecretSet| watched.recover(set).map(drop).unwrap_err();
    let all: Vec<_> = keytab().services().cloned().collect();
    let only = |change: &dyn Fn(&mut isthmus_smb_auth::ServiceKey) -> bool| {
        let mut set = SecretSet::default();
        for mut key in all.clone() {
            if change(&mut key) {
                set.add_service_key(key);
            }
        }
        set
    };
    assert_eq!(recover(&SecretSet::default()), Failure::NoServiceKey);
    assert_eq!(recover(&only(&|key| key.encryption == EncryptionType::Rc4Hmac)), Failure::NoKeyType);
    let other = |name: &str, version: u32| {
        let mut set = SecretSet::default();
        let key = zeroize::Zeroizing::new(vec![9; 32]);
        let principal = Principal::parse(name);
        let key = isthmus_smb_auth::ServiceKey::new(principal, version, EncryptionType::Aes256Sha1, key);
        set.add_service_key(key.unwrap());
        set
    };
    assert_eq!(recover(&other("cifs/files.wan.test@WAN.TEST", 1)), Failure::NoServiceKey);
    assert_eq!(recover(&other("DC1$@WAN.TEST", 1)), Failure::WrongServiceKey);
    assert_eq!(recover(&other("cifs/dc1.wan.test@WAN.TEST", 2)), Failure::NoKeyVersion);
    // A key under any name and version is tried, since accounts are named in many ways.
    let renamed = only(&|key| {
        key.principal = Principal::parse("svc-files@WAN.TEST");
        key.version = 7;
        true
    });
    assert!(watched.recover(&renamed).is_ok());
}

#[test]
fn every_version_of_a_stale_key_is_tried() {
    let watched = exchange(&KERBEROS);
    let right: Vec<_> = keytab().services().cloned().collect();
    // The keytab was made anew, or the counter began anew: what the ticket's version names is not its key.
    let with = |versions: &[(u32, bool)]| {
        let mut set = SecretSet::default();
        for &(version, is_right) in versions {
            for key in &right {
                let mut held = key.clone();
                if !is_right {
                    let bytes = zeroize::Zeroizing::new(vec![9; key.encryption.key_bytes()]);
                    let principal = key.principal.clone();
                    held =
                        isthmus_smb_auth::ServiceKey::new(principal, version, key.encryption, bytes).unwrap();
                }
                held.version = version;
                set.add_service_key(held);
            }
        }
        set
    };
    for versions in [
        &[(1, false), (2, true)][..],
        &[(2, true), (1, false)],
        &[(1, false), (2, false), (3, false), (0, true)],
    ] {
        let found = watched.recover(&with(versions)).unwrap();
        let version = versions.iter().find(|(_, is_right)| *is_right).map(|(version, _)| *version).unwrap();
        assert!(found.secret.contains(&format!("version {version},")), "{}", found.secret);
    }
    let none = watched.recover(&with(&[(1, false), (2, false)])).unwrap_err();
    assert_eq!(none, Failure::WrongServiceKey);
}

#[test]
fn kerberos_without_the_servers_answer_is_incomplete() {
    assert_eq!(exchange(&KERBEROS[..1]).recover(&keytab()).unwrap_err(), Failure::Incomplete);
}

#[test]
fn claims_are_read_without_any_key() {
    let claim = exchange(&NTLM).claim().unwrap();
    assert_eq!((claim.user.as_deref(), claim.domain.as_deref()), (Some("alice"), Some("WANTEST")));
    let claim = exchange(&KERBEROS).claim().unwrap();
    assert_eq!((claim.user, claim.target.as_deref()), (None, Some("cifs/dc1.wan.test")));
    assert_eq!(exchange(&NTLM[..2]).claim(), None);
}

#[test]
fn a_client_that_falls_back_is_followed() {
    let mut tokens = KERBEROS.to_vec();
    tokens.extend(NTLM);
    let set = accounts([account("alice", None, "Passw0rd!")]);
    assert_eq!(exchange(&tokens).recover(&set).unwrap().mechanism, Mechanism::NtlmV2);
}

#[test]
fn a_users_rc4_key_in_a_keytab_is_an_nt_hash() {
    let hash = hex::decode("fc525c9683e8fe067095ba2ddc971889").unwrap();
    let principal = Principal::parse("Alice@WAN.TEST");
    let key = isthmus_smb_auth::ServiceKey::new(principal, 4, EncryptionType::Rc4Hmac, hash.into());
    let mut set = SecretSet::default();
    assert!(set.add_service_key(key.unwrap()));
    let found = exchange(&NTLM).recover(&set).unwrap();
    assert_eq!(found.secret, "NT hash of WAN.TEST\\Alice");
}

#[test]
fn no_secret_shows_in_debug_output() {
    let found = exchange(&NTLM).recover(&accounts([account("alice", None, "Passw0rd!")])).unwrap();
    let text = format!("{found:?}");
    assert!(text.contains("SessionKey(16 bytes)"), "{text}");
    let text = format!("{:?} {:?}", keytab(), keytab().services().collect::<Vec<_>>());
    assert!(!text.contains("a22d1277"), "{text}");
    let account = account("alice", None, "Passw0rd!");
    assert!(format!("{account:?}").contains("NtHash(..)"));
}
