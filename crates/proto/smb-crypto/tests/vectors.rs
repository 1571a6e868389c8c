//! Messages of real sessions, kept in `tests/vectors/sessions.txt`: every one must verify or open, and no altered one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::collections::BTreeMap;

use isthmus_smb_crypto::{Cipher, Dialect, PreauthHash, SessionKey, SigningAlgorithm};
use support::{Count, Facts, Session};

#[test]
fn every_kept_message_verifies_or_opens() {
    let mut counts = BTreeMap::new();
    for block in include_str!("vectors/sessions.txt").split("\nsession ").skip(1) {
        let (name, count) = check(block);
        counts.insert(name.to_owned(), count);
    }
    println!("{counts:#?}");
    let expected = [
        "e300",
        "e302",
        "e311ccm128",
        "e311ccm256",
        "e311gcm128",
        "e311gcm256",
        "kerberos0",
        "kerberos4",
        "s202",
        "s300",
        "s302",
        "s311cmac",
        "s311gmac",
        "s311hmac",
    ];
    assert!(counts.keys().eq(expected));
    for (name, count) in counts {
        let encrypted = name.starts_with('e') || name == "kerberos4";
        let (signed, encrypted) = if encrypted { (0, 4) } else { (4, 0) };
        assert_eq!(count, Count { signed, encrypted }, "{name}");
    }
}

/// Checks all messages of one session.
fn check(block: &str) -> (&str, Count) {
    let mut lines = block.lines();
    let head: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let [name, dialect, signing, cipher] = head[..] else { panic!("session line {head:?}") };
    let id = |text| u16::from_str_radix(text, 16).ok();
    let (mut key, mut preauth, mut messages) = (None, None, Vec::new());
    for line in lines.filter(|line| !line.is_empty()) {
        let (word, value) = line.split_once(' ').unwrap();
        let bytes = hex::decode(value).unwrap();
        match word {
            "key" => key = Some(SessionKey::new(&bytes).unwrap()),
            "preauth" => preauth = Some(PreauthHash::from(<[u8; 64]>::try_from(bytes).unwrap())),
            "client" => messages.push((bytes, false)),
            "server" => messages.push((bytes, true)),
            _ => panic!("unknown word {word}"),
        }
    }
    let mut session = Session::new(&Facts {
        dialect: id(dialect).and_then(Dialect::from_u16).unwrap(),
        signing: id(signing).and_then(SigningAlgorithm::from_u16),
        cipher: id(cipher).and_then(Cipher::from_u16),
        key: key.unwrap(),
        preauth,
    });
    for (message, from_server) in messages {
        session.check(&message, from_server);
    }
    (name, session.count)
}
