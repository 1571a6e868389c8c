//! Targets of what understands SMB: security tokens, key files, encrypted and compressed messages, and the stage.

use crate::smb_stage::ends::{Ends, Fixed, GMAC, KEY, Protection, Setting};
use crate::smb_stage::{Failure, Pair, frame};
use bytes::{Bytes, BytesMut};
use isthmus_smb_auth::{AccountHash, Exchange, NtHash, SecretSet, keytab, smbpasswd};
use isthmus_smb_crypto::{
    Cipher, CompressionAlgorithm, Opener, TRANSFORM_HEADER_LEN, TransformHeader, decompress_message,
    decompress_onto, is_compressed, is_transform,
};
use isthmus_smb_session::IntakeError;
use isthmus_tests::kerberos;
use isthmus_tests::sample::records;
use std::cell::OnceCell;

const KEYTAB: &[u8] = include_bytes!("../../../crates/proto/smb-auth/tests/vectors/cifs.keytab");
const NTLM: [&[u8]; 2] = [
    include_bytes!("../../../crates/proto/smb-auth/tests/vectors/ntlm-1.bin"),
    include_bytes!("../../../crates/proto/smb-auth/tests/vectors/ntlm-2.bin"),
];

/// Longest that compressed data may say it is.
const DECOMPRESSED_MAX: usize = 1 << 20;

/// Cipher key of the target of encrypted messages; the corpus has one that it opens.
const CIPHER_KEY: [u8; 32] = [0x5a; 32];

/// Everything that the tokens of the corpus need.
fn with_secrets<T>(work: impl FnOnce(&SecretSet) -> T) -> T {
    thread_local! {
        static SECRETS: OnceCell<SecretSet> = const { OnceCell::new() };
    }
    SECRETS.with(|secrets| {
        work(secrets.get_or_init(|| {
            let mut set = SecretSet::default();
            set.add_keytab(KEYTAB).unwrap();
            set.add_service_key(kerberos::service_key());
            let hash = NtHash::of_password("Passw0rd!");
            set.add_account(AccountHash { user: "alice".to_owned(), domain: None, version: 0, hash });
            set
        }))
    })
}

/// Asks an exchange for all it knows.
fn ask(exchange: &Exchange) {
    drop(format!("{exchange:?} {:?}", exchange.claim()));
    with_secrets(|secrets| match exchange.recover(secrets) {
        Ok(found) => assert!([16, 32].contains(&found.session_key.as_bytes().len())),
        Err(failure) => assert!(!failure.to_string().is_empty()),
    });
}

/// One security buffer, as the first of a client, as a server's, and in the middle of an authentication.
pub fn spnego(input: &[u8]) {
    let mut first = Exchange::new();
    first.client(input);
    ask(&first);
    first.server(input);
    ask(&first);
    let mut later = Exchange::new();
    later.client(NTLM[0]);
    later.server(NTLM[1]);
    later.client(input);
    ask(&later);
}

/// A whole authentication, token by token, of the client and the server in turn.
pub fn ntlm(input: &[u8]) {
    let mut exchange = Exchange::new();
    for (number, token) in records(input).into_iter().enumerate() {
        if number % 2 == 0 { exchange.client(token) } else { exchange.server(token) }
    }
    ask(&exchange);
}

/// AP-REQ and AP-REP as they are, and what is sealed in them, sealed anew so that a key opens it.
pub fn kerberos(input: &[u8]) {
    ntlm(input);
    let parts = records(input);
    let part = |number: usize| parts.get(number).copied().unwrap_or_default();
    let [request, reply] = kerberos::exchange([part(0), part(1), part(2)]);
    let mut exchange = Exchange::new();
    exchange.client(&request);
    exchange.server(&reply);
    ask(&exchange);
}

/// Key files: a keytab, and hashes in smbpasswd form.
pub fn key_files(input: &[u8]) {
    let mut set = SecretSet::default();
    match (keytab::parse(input), set.add_keytab(input)) {
        (Ok(file), Ok(loaded)) => {
            assert_eq!((file.keys.len(), file.skipped), (loaded.service_keys, loaded.skipped));
            assert_eq!(set.services().count(), loaded.service_keys);
        }
        (Err(error), Err(same)) => {
            assert_eq!(error, same);
            assert!(set.services().next().is_none() && !error.to_string().is_empty());
        }
        (file, loaded) => panic!("{} and {}", file.is_ok(), loaded.is_ok()),
    }
    match smbpasswd::parse(input) {
        Ok(file) => assert!(file.accounts.len() + file.skipped <= input.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Compressed data of each algorithm, and compressed messages.
pub fn compression(input: &[u8]) {
    if let Ok(plain) = decompress_message(input, DECOMPRESSED_MAX) {
        assert!(plain.len() <= DECOMPRESSED_MAX && is_compressed(input));
    }
    let Some((&[kind, a, b, c], data)) = input.split_first_chunk::<4>() else { return };
    let Some(algorithm) = CompressionAlgorithm::from_u16(u16::from(kind)) else { return };
    let len = u32::from_le_bytes([a, b, c, 0]) as usize % (DECOMPRESSED_MAX + 1);
    let mut bytes = b"before".to_vec();
    let done = decompress_onto(&mut bytes, algorithm, data, len).is_ok();
    assert!(bytes.starts_with(b"before") && bytes.len() <= 6 + len);
    assert!(!done || bytes.len() == 6 + len);
}

/// Encrypted messages that nobody made, and anything at all inside of one that a client did make.
pub fn transform(input: &[u8]) {
    for cipher in [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm] {
        let opener = Opener::new(cipher, &CIPHER_KEY[..cipher.key_len()]).unwrap();
        let mut copy = Vec::new();
        let opened = opener.open_copy(input, &mut copy);
        let mut in_place = input.to_vec();
        assert_eq!(opener.open(&mut in_place).map(|plain| plain.to_vec()), opened.map(|()| copy));
        assert!(TransformHeader::parse(input).is_ok() || opened.is_err());
    }
    if input.is_empty() {
        return;
    }
    let (mut ends, mut pair) = begun(Protection::Sealed);
    for from_server in [false, true] {
        let sealed = ends.seal(input, from_server);
        let passed = pair.pass(from_server, &sealed);
        let inside = ends.open(&passed, from_server);
        let limit = isthmus_smb_crypto::MESSAGE_LEN_MAX - TRANSFORM_HEADER_LEN;
        let expanded = is_compressed(input).then(|| decompress_message(input, limit).ok()).flatten();
        assert!(inside == input || Some(inside) == expanded);
    }
}

/// LAN bytes for the stage's one half, WAN bytes for its other. The first byte of a record says which.
pub fn stage(input: &[u8]) {
    let sealed = input.first().is_some_and(|byte| byte & 1 == 1);
    let (_, mut pair) = begun(if sealed { Protection::Sealed } else { Protection::Signed });
    let (mut sent, mut arrived) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for record in records(input.get(1..).unwrap_or_default()) {
        let Some((&kind, bytes)) = record.split_first() else { continue };
        let (from_server, way) = (kind & 1 == 1, usize::from(kind & 1));
        if kind & 0x80 != 0 {
            // From here on the other proxy is not to be trusted.
            return hostile(pair, input);
        }
        // In a frame, so that what is behind it is looked at too; or without.
        let bytes = if kind & 2 == 0 { frame(bytes) } else { bytes.to_vec() };
        sent[way].extend_from_slice(&bytes);
        for piece in bytes.chunks(1 + usize::from(kind >> 2 & 31) * 40) {
            match pair.way(from_server).pass(piece) {
                Ok(frames) => frames.iter().for_each(|frame| arrived[way].extend_from_slice(frame)),
                // Only a message that someone has altered ends a connection.
                Err(Failure::Intake(IntakeError::NotAuthentic)) if sealed => return,
                Err(failure) => panic!("{failure:?}"),
            }
        }
    }
    for from_server in [false, true] {
        let way = usize::from(from_server);
        for frame in pair.way(from_server).finish().unwrap() {
            arrived[way].extend_from_slice(&frame);
        }
        let anew = sealed && sent[way].windows(4).any(is_transform);
        assert!(anew || sent[way] == arrived[way]);
    }
}

/// Shows the records to the halves that take what has crossed.
fn hostile(mut pair: Pair, input: &[u8]) {
    for record in records(input.get(1..).unwrap_or_default()) {
        let Some((&kind, bytes)) = record.split_first() else { continue };
        let assembler = &mut pair.way(kind & 1 == 1).assembler;
        let outcome = match kind >> 1 & 3 {
            0 => assembler.note(bytes).map(drop),
            1 => assembler.structure(bytes).map(drop),
            // With a length that fits, so that what follows is looked at.
            2 => {
                let mut structure = Vec::new();
                isthmus_types::varint::put(&mut structure, bytes.len() as u64);
                structure.extend_from_slice(bytes);
                assembler.structure(&structure).map(drop)
            }
            _ => {
                assembler.content(Bytes::copy_from_slice(bytes));
                Ok(())
            }
        };
        if outcome.is_err() {
            return;
        }
        loop {
            match assembler.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The connection is ended.
                Err(_) => return,
            }
        }
        assert!(assembler.held() <= input.len() + (1 << 16));
    }
}

/// A session that has begun, with keys on both sides. The same each time, so that the corpus stays good. One that signs has no
/// cipher, so that nothing in it is encrypted, whatever the input holds.
fn begun(protection: Protection) -> (Ends, Pair) {
    let cipher = GMAC.cipher.filter(|_| protection == Protection::Sealed);
    let mut ends = Ends::new(Setting { protection, cipher, ..GMAC });
    let mut pair = Pair::new(Some(Fixed::new(KEY)));
    for (from_server, message) in ends.begin() {
        pair.pass(from_server, &message);
    }
    for way in [&mut pair.up, &mut pair.down] {
        (way.input, way.structures) = (BytesMut::new(), Vec::new());
    }
    (ends, pair)
}
