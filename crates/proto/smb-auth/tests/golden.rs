//! Whole captured connections: each recovered key must verify a signature or open an encrypted message.
//!
//! `ISTHMUS_GOLDEN` names the folder of captures. A record there is: direction (u8: 0 client to server), time
//! (u64 LE, µs), length (u32 LE), message without its transport header.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test reads files and fails by panicking"
)]

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{cmac, digest, hmac};
use isthmus_smb_auth::{AccountHash, Exchange, Failure, NtHash, SecretSet};
use std::path::{Path, PathBuf};

struct Message {
    from_server: bool,
    bytes: Vec<u8>,
}

#[test]
fn keys_of_all_captures_are_right() {
    let Some(folder) = std::env::var_os("ISTHMUS_GOLDEN").map(PathBuf::from) else {
        println!("left out: ISTHMUS_GOLDEN does not name the folder of captures");
        return;
    };
    let (ntlm, kerberos) = (passwords("Passw0rd!"), keytab(&folder));
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "bin") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let secrets = if name.starts_with("k.") { &kerberos } else { &ntlm };
        check(&name, &messages(&path), secrets);
        seen += 1;
    }
    assert!(seen >= 17, "only {seen} captures");
}

fn check(name: &str, messages: &[Message], secrets: &SecretSet) {
    let exchange = watch(messages);
    let failure = exchange.recover(&SecretSet::default()).unwrap_err();
    assert!(matches!(failure, Failure::UnknownUser | Failure::NoServiceKey), "{name}: {failure}");
    if !name.starts_with("k.") {
        assert_eq!(exchange.recover(&passwords("passw0rd!")).unwrap_err(), Failure::WrongHash);
    }
    let found = exchange.recover(secrets).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    let key = found.session_key.as_bytes();
    let proof = Proof::of(messages);
    let (signed, opened) = proof.run(messages, key);
    println!("{name}: {}\\{}, {signed} signed, {opened} opened", found.domain, found.user);
    assert!(signed + opened > 0, "{name}");
    assert!(key.len() == if name.starts_with("k.") { 32 } else { 16 }, "{name}");
}

fn passwords(password: &str) -> SecretSet {
    let mut set = SecretSet::default();
    let hash = NtHash::of_password(password);
    set.add_account(AccountHash { user: "alice".to_owned(), domain: None, version: 0, hash });
    set
}

fn keytab(folder: &Path) -> SecretSet {
    let mut set = SecretSet::default();
    set.add_keytab(&std::fs::read(folder.join("cifs.keytab")).unwrap()).unwrap();
    set
}

fn messages(path: &Path) -> Vec<Message> {
    let bytes = std::fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<13>() {
        let length = u32::from_le_bytes(head[9..].try_into().unwrap()) as usize;
        found.push(Message { from_server: head[0] == 1, bytes: body[..length].to_vec() });
        rest = &body[length..];
    }
    // The two directions were recorded apart, so an answer may stand before its request.
    let greeting =
        found.iter().take_while(|message| message.bytes[0] == 0xfe && u16_at(&message.bytes, 12) < 2);
    let count = greeting.count();
    found[..count].sort_by_key(|message| (u32_at(&message.bytes, 24), message.from_server));
    found
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn is_session_setup(message: &Message) -> bool {
    message.bytes.starts_with(b"\xfeSMB") && u16_at(&message.bytes, 12) == 1
}

fn watch(messages: &[Message]) -> Exchange {
    let mut exchange = Exchange::new();
    for message in messages.iter().filter(|message| is_session_setup(message)) {
        let bytes = &message.bytes;
        let (offset, length) = if message.from_server { (68, 70) } else { (76, 78) };
        let token = &bytes[u16_at(bytes, offset)..][..u16_at(bytes, length)];
        if message.from_server {
            exchange.server(token)
        } else {
            exchange.client(token)
        }
        if message.from_server && u32_at(bytes, 8) == 0 {
            break;
        }
    }
    exchange
}

/// Dialect, algorithms and pre-authentication hash, as far as keys depend on them (MS-SMB2 3.1.4.2).
struct Proof {
    dialect: usize,
    signing: usize,
    cipher: usize,
    hash: Vec<u8>,
}

impl Proof {
    fn of(messages: &[Message]) -> Self {
        let mut proof = Self { dialect: 0, signing: 1, cipher: 1, hash: vec![0; 64] };
        for message in messages {
            let bytes = &message.bytes;
            let negotiates = u16_at(bytes, 12) == 0;
            let last = is_session_setup(message) && message.from_server && u32_at(bytes, 8) == 0;
            if last || !(negotiates || is_session_setup(message)) {
                break;
            }
            let next = [&proof.hash[..], bytes].concat();
            proof.hash = digest::digest(&digest::SHA512, &next).as_ref().to_vec();
            if negotiates && message.from_server {
                proof.negotiated(bytes);
            }
        }
        if proof.dialect < 0x300 {
            proof.signing = 0;
        }
        proof
    }

    fn negotiated(&mut self, bytes: &[u8]) {
        self.dialect = u16_at(bytes, 68);
        if self.dialect != 0x311 {
            return;
        }
        let mut at = u32_at(bytes, 124) as usize;
        for _ in 0..u16_at(bytes, 70) {
            let (kind, length) = (u16_at(bytes, at), u16_at(bytes, at + 2));
            match kind {
                2 => self.cipher = u16_at(bytes, at + 10),
                8 => self.signing = u16_at(bytes, at + 10),
                _ => {}
            }
            at = (at + 8 + length).next_multiple_of(8);
        }
    }

    /// Counts of signatures found right and of messages opened; a wrong one fails the test.
    fn run(&self, messages: &[Message], key: &[u8]) -> (usize, usize) {
        let (mut signed, mut opened) = (0, 0);
        for message in messages.iter().take(60) {
            let bytes = &message.bytes;
            if bytes.starts_with(b"\xfdSMB") {
                // CCM needs another library; there, the signed last SESSION_SETUP response must do.
                opened += usize::from(self.open(key, message));
            } else if u32_at(bytes, 16) & 8 != 0 && u32_at(bytes, 20) == 0 {
                assert!(self.signature_is_right(key, message));
                signed += 1;
            }
        }
        (signed, opened)
    }

    fn derive(&self, key: &[u8], label: &[u8], context: &[u8], bytes: usize) -> Vec<u8> {
        let context = if self.dialect == 0x311 { &self.hash } else { context };
        let bits = (bytes as u32 * 8).to_be_bytes();
        let data = [&1u32.to_be_bytes()[..], label, &[0], context, &bits].concat();
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &data).as_ref()[..bytes].to_vec()
    }

    fn signature_is_right(&self, key: &[u8], message: &Message) -> bool {
        let mut bytes = message.bytes.clone();
        let given: Vec<u8> = bytes.splice(48..64, [0; 16]).collect();
        let key = match self.dialect {
            0x311 => self.derive(&key[..16], b"SMBSigningKey\0", b"", 16),
            0x300.. => self.derive(&key[..16], b"SMB2AESCMAC\0", b"SmbSign\0", 16),
            _ => key[..16].to_vec(),
        };
        let made = match self.signing {
            0 => hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &bytes).as_ref()[..16].to_vec(),
            1 => {
                let key = cmac::Key::new(cmac::AES_128, &key).unwrap();
                cmac::sign(&key, &bytes).unwrap().as_ref().to_vec()
            }
            _ => {
                let mut nonce = [0; 12];
                nonce[..8].copy_from_slice(&bytes[24..32]);
                nonce[8] = u8::from(message.from_server) | if u16_at(&bytes, 12) == 12 { 2 } else { 0 };
                let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&bytes), &mut []).unwrap();
                tag.as_ref().to_vec()
            }
        };
        made == given
    }

    fn open(&self, key: &[u8], message: &Message) -> bool {
        let algorithm = match self.cipher {
            2 => &AES_128_GCM,
            4 => &AES_256_GCM,
            _ => return false,
        };
        let label: &[u8] = if message.from_server { b"SMBS2CCipherKey\0" } else { b"SMBC2SCipherKey\0" };
        let base = if self.cipher == 4 { key } else { &key[..16] };
        let key = self.derive(base, label, b"", algorithm.key_len());
        let key = LessSafeKey::new(UnboundKey::new(algorithm, &key).unwrap());
        let (head, body) = message.bytes.split_at(52);
        let nonce = Nonce::assume_unique_for_key(head[20..32].try_into().unwrap());
        let mut text = [body, &head[4..20]].concat();
        let plain =
            key.open_in_place(nonce, Aad::from(&head[20..]), &mut text).expect("a message that opens");
        assert!(plain.starts_with(b"\xfeSMB"));
        true
    }
}
