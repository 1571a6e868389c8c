//! Tokens and files from someone who means harm: whatever the bytes, there is an answer and no panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_smb_auth::{AccountHash, Exchange, NtHash, SecretSet, keytab, smbpasswd};
use proptest::prelude::*;

const TOKENS: [&[u8]; 6] = [
    include_bytes!("vectors/ntlm-1.bin"),
    include_bytes!("vectors/ntlm-2.bin"),
    include_bytes!("vectors/ntlm-3.bin"),
    include_bytes!("vectors/ntlm-4.bin"),
    include_bytes!("vectors/kerberos-1.bin"),
    include_bytes!("vectors/kerberos-2.bin"),
];
const KEYTAB: &[u8] = include_bytes!("vectors/cifs.keytab");
const HASHES: &[u8] =
    b"# comment\nalice:1000:XX:FC525C9683E8FE067095BA2DDC971889:[U          ]:LCT-00000000:\n";

fn secrets() -> SecretSet {
    let mut set = SecretSet::default();
    set.add_keytab(KEYTAB).unwrap();
    let hash = NtHash::of_password("Passw0rd!");
    set.add_account(AccountHash { user: "alice".to_owned(), domain: None, version: 0, hash });
    set
}

/// Shows the tokens to an exchange, even ones to the server, odd ones to the client, and asks for everything.
fn run(tokens: &[Vec<u8>]) -> bool {
    let mut exchange = Exchange::new();
    for (number, token) in tokens.iter().enumerate() {
        if number % 2 == 0 { exchange.client(token) } else { exchange.server(token) }
    }
    let _ = format!("{exchange:?} {:?}", exchange.claim());
    exchange.recover(&secrets()).is_ok()
}

/// The two good authentications.
fn good() -> [Vec<Vec<u8>>; 2] {
    let owned = |tokens: &[&[u8]]| tokens.iter().map(|token| token.to_vec()).collect();
    [owned(&TOKENS[..4]), owned(&TOKENS[4..])]
}

#[test]
fn good_tokens_cut_short_anywhere_never_panic() {
    for tokens in good() {
        assert!(run(&tokens));
        for number in 0..tokens.len() {
            for end in 0..tokens[number].len() {
                let mut cut = tokens.clone();
                cut[number].truncate(end);
                run(&cut);
            }
        }
    }
}

#[test]
fn every_byte_of_good_tokens_may_be_any_of_some() {
    for tokens in good() {
        for number in 0..tokens.len() {
            for place in 0..tokens[number].len() {
                for value in [0, 1, 0x7f, 0x80, 0x84, 0xff] {
                    let mut altered = tokens.clone();
                    altered[number][place] = value;
                    run(&altered);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_tokens_never_panic(tokens in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6)) {
        prop_assert!(!run(&tokens));
    }

    #[test]
    fn arbitrary_content_in_good_frames_never_panics(
        kind in 0usize..5,
        content in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let token = match kind {
            0 => [b"NTLMSSP\0\x01\0\0\0", &content[..]].concat(),
            1 => [b"NTLMSSP\0\x03\0\0\0", &content[..]].concat(),
            2 => [&[0x6e, content.len() as u8, 0x30][..], &content].concat(),
            3 => [&[0x60, content.len() as u8][..], &content].concat(),
            _ => [&[0xa1, content.len() as u8, 0x30][..], &content].concat(),
        };
        run(std::slice::from_ref(&token));
        run(&[TOKENS[0].to_vec(), TOKENS[1].to_vec(), token.clone()]);
        run(&[TOKENS[4].to_vec(), token]);
    }

    #[test]
    fn damaged_good_tokens_never_panic(
        which in 0usize..2,
        number in 0usize..4,
        place in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let mut tokens = good()[which].clone();
        let number = number % tokens.len();
        let place = place.index(tokens[number].len());
        for (to, from) in tokens[number][place..].iter_mut().zip(bytes) {
            *to = from;
        }
        run(&tokens);
    }

    #[test]
    fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = keytab::parse(&bytes);
        let _ = keytab::parse(&[&[5, 2][..], &bytes].concat());
        let _ = smbpasswd::parse(&bytes);
    }

    #[test]
    fn damaged_files_never_panic(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = KEYTAB.to_vec();
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let _ = keytab::parse(&bytes);
        let mut bytes = HASHES.to_vec();
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let _ = smbpasswd::parse(&bytes);
    }
}
