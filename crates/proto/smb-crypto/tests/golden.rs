//! Whole recorded connections, if `ISTHMUS_GOLDEN` names their directory: every signature, every encrypted message.
//!
//! A file is a sequence of records: direction (0 client to server, 1 server to client), time (u64 LE, microseconds),
//! length (u32 LE), message without its transport header.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test that reads files"
)]

mod support;

use std::path::Path;

use isthmus_smb_crypto::{Cipher, Dialect, PreauthHash, SessionKey, SigningAlgorithm};
use md5::{Digest, Md5};
use support::{Count, Facts, Session, elements, flags, u32_at};

const COMMAND_SESSION_SETUP: u16 = 1;
const STATUS_SUCCESS: u32 = 0;
const CONTEXT_ENCRYPTION: u16 = 2;
const CONTEXT_SIGNING: u16 = 8;

/// MD4 of the password of the recordings' only user, in UTF-16LE.
const NT_HASH: [u8; 16] =
    [0xFC, 0x52, 0x5C, 0x96, 0x83, 0xE8, 0xFE, 0x06, 0x70, 0x95, 0xBA, 0x2D, 0xDC, 0x97, 0x18, 0x89];

/// The Kerberos recordings' session keys (the AP-REP's subkeys), decrypted with their keytab beforehand.
const KERBEROS_KEYS: [(&str, &str); 5] = [
    ("k.0000.bin", "2849d906be33f6de72a590082c87ec6cf4717cf0c030671b2a9d936731291adb"),
    ("k.0001.bin", "7ace4ec7354b4c54e43bfad401446674008b9cb6004d1472e08f0b09535caf00"),
    ("k.0002.bin", "7691043d6cfccd26d8ed96429f3df0d5aa2f61127ad075c3c7aa16825205aa88"),
    ("k.0003.bin", "de4e60afd903ee0320c74933d2b56884017f5622bc27c2c212727526aacabd00"),
    ("k.0004.bin", "a5f537977bfcc42ad42908eb83d534575cba2d4b20dc71cf82f34620532b0c89"),
];

/// Recording, signed elements and encrypted messages in it, both counted by another program.
const EXPECTED: [(&str, usize, usize); 18] = [
    ("e300-r0.0012.bin", 11, 44),
    ("e302-r0.0011.bin", 11, 44),
    ("e311ccm128-r0.0008.bin", 9, 43),
    ("e311ccm256-r0.0010.bin", 9, 42),
    ("e311gcm128-r0.0007.bin", 9, 42),
    ("e311gcm256-r0.0009.bin", 9, 42),
    ("k.0000.bin", 43, 0),
    ("k.0001.bin", 1, 42),
    ("k.0002.bin", 47, 0),
    ("k.0003.bin", 47, 0),
    ("k.0004.bin", 1, 43),
    ("s202-r0.0006.bin", 71, 0),
    ("s210-r0.0005.bin", 55, 0),
    ("s300-r0.0004.bin", 55, 0),
    ("s302-r0.0003.bin", 55, 0),
    ("s311cmac-r0.0001.bin", 51, 0),
    ("s311gmac-r0.0000.bin", 51, 0),
    ("s311hmac-r0.0002.bin", 51, 0),
];

#[test]
fn every_message_of_every_recording_verifies_or_opens() {
    let Some(directory) = std::env::var_os("ISTHMUS_GOLDEN") else {
        println!("not run: ISTHMUS_GOLDEN does not name the directory of the recordings");
        return;
    };
    let mut total = Count::default();
    for (name, signed, encrypted) in EXPECTED {
        let recording = read(&Path::new(&directory).join(name));
        let facts = facts(name, &recording);
        let mut session = Session::new(&facts);
        for (from_server, message) in &recording {
            session.check(message, *from_server);
        }
        println!(
            "{name}: {} {} {}: {} signed, {} encrypted",
            facts.dialect,
            facts.dialect.signing_algorithm(facts.signing),
            facts.dialect.cipher(facts.cipher).map_or("no cipher".to_owned(), |cipher| cipher.to_string()),
            session.count.signed,
            session.count.encrypted,
        );
        assert_eq!(session.count, Count { signed, encrypted }, "{name}");
        total.signed += signed;
        total.encrypted += encrypted;
    }
    println!("in all: {total:?}");
}

type Recording = Vec<(bool, Vec<u8>)>;

fn read(path: &Path) -> Recording {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut rest, mut recording) = (bytes.as_slice(), Vec::new());
    while let Some((head, after)) = rest.split_first_chunk::<13>() {
        let (message, after) = after.split_at(u32_at(head, 9) as usize);
        recording.push((head[0] == 1, message.to_vec()));
        rest = after;
    }
    recording
}

fn facts(name: &str, recording: &Recording) -> Facts {
    let negotiate_response = &recording.iter().find(|(from_server, _)| *from_server).unwrap().1;
    let dialect = Dialect::from_u16(u16_at(negotiate_response, 68)).unwrap();
    let latest = dialect == Dialect::Smb311;
    let context = |kind| latest.then(|| negotiated(negotiate_response, kind)).flatten();
    let key = KERBEROS_KEYS.iter().find(|(recorded, _)| *recorded == name).map_or_else(
        || ntlm_session_key(&session_setup_tokens(recording)),
        |(_, key)| hex::decode(key).unwrap(),
    );
    Facts {
        dialect,
        signing: context(CONTEXT_SIGNING).and_then(SigningAlgorithm::from_u16),
        cipher: context(CONTEXT_ENCRYPTION).and_then(Cipher::from_u16),
        key: SessionKey::new(&key).unwrap(),
        preauth: latest.then(|| preauth(recording)),
    }
}

/// The one algorithm that a NEGOTIATE response's context of a kind chose (MS-SMB2 2.2.4, 2.2.3.1).
fn negotiated(response: &[u8], wanted: u16) -> Option<u16> {
    let mut at = u32_at(response, 124) as usize;
    for _ in 0..u16_at(response, 70) {
        let (kind, length) = (u16_at(response, at), usize::from(u16_at(response, at + 2)));
        if kind == wanted {
            return Some(u16_at(response, at + 10));
        }
        at += 8 + length.next_multiple_of(8);
    }
    None
}

fn preauth(recording: &Recording) -> PreauthHash {
    let mut hash = PreauthHash::new();
    hash.update(&recording[0].1);
    hash.update(&recording[1].1);
    for (from_server, message) in recording {
        let final_response = *from_server && u32_at(message, 8) == STATUS_SUCCESS;
        if is_session_setup(message) && !final_response {
            hash.update(message);
        }
    }
    hash
}

fn is_session_setup(message: &[u8]) -> bool {
    elements_or_none(message).is_some_and(|element| u16_at(element, 12) == COMMAND_SESSION_SETUP)
}

fn elements_or_none(message: &[u8]) -> Option<&[u8]> {
    message.starts_with(b"\xFESMB").then(|| elements(message).next()).flatten()
}

/// The NTLM messages inside the SESSION_SETUPs, in the order that their own type field gives.
fn session_setup_tokens(recording: &Recording) -> [Vec<u8>; 2] {
    let tokens: Vec<&[u8]> = recording
        .iter()
        .filter(|(_, message)| is_session_setup(message) && flags(message) & 8 == 0)
        .filter_map(|(_, message)| {
            let at = message.windows(8).position(|window| window == b"NTLMSSP\0")?;
            Some(&message[at..])
        })
        .collect();
    [2, 3].map(|kind| tokens.iter().find(|token| u32_at(token, 8) == kind).unwrap().to_vec())
}

/// The exported session key of an NTLMv2 logon (MS-NLMP 3.3.2, 3.4.5.1).
fn ntlm_session_key([challenge, authenticate]: &[Vec<u8>; 2]) -> Vec<u8> {
    let field = |at| {
        let (length, start) = (usize::from(u16_at(authenticate, at)), u32_at(authenticate, at + 4) as usize);
        &authenticate[start..start + length]
    };
    let (response, domain, user, encrypted_key) = (field(20), field(28), field(36), field(52));
    // The recordings' user name is ASCII.
    let upper: Vec<u8> = user.iter().map(u8::to_ascii_uppercase).collect();
    let owf = hmac_md5(&NT_HASH, &[&upper, domain]);
    let proof = hmac_md5(&owf, &[&challenge[24..32], &response[16..]]);
    assert_eq!(proof, response[..16], "not the recordings' password");
    assert_ne!(u32_at(authenticate, 60) & 0x4000_0000, 0, "no key exchange");
    rc4(&hmac_md5(&owf, &[&proof]), encrypted_key)
}

fn hmac_md5(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        Md5::new_with_prefix(block)
    };
    let mut inner = padded(0x36);
    parts.iter().for_each(|part| inner.update(part));
    padded(0x5C).chain_update(inner.finalize()).finalize().into()
}

fn rc4(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut state: [u8; 256] = std::array::from_fn(|at| at as u8);
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    let mut next = || {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        state[usize::from(state[usize::from(i)].wrapping_add(state[usize::from(j)]))]
    };
    data.iter().map(|byte| byte ^ next()).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}
