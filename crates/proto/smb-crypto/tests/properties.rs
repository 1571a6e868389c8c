//! What holds for every message: what was signed verifies, what was sealed opens, and nothing else does.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashSet;

use isthmus_smb_crypto::{
    Cipher, Dialect, Direction, MESSAGE_LEN_MAX, NonceSource, OpenError, Opener, PreauthHash, SealError,
    Sealer, SessionKey, SessionKeys, SignError, Signer, SigningAlgorithm, TRANSFORM_HEADER_LEN,
    TransformHeader, derive, is_transform,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const SIGNING: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];
const CIPHERS: [Cipher; 4] = [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];

fn pair(cipher: Cipher, key: u8, random: u8) -> (Sealer, Opener) {
    let key = vec![key; cipher.key_len()];
    let nonces = NonceSource::new(cipher, [random; 7]);
    (Sealer::new(cipher, &key, nonces).unwrap(), Opener::new(cipher, &key).unwrap())
}

fn with_room(plain: &[u8]) -> Vec<u8> {
    [&[0; TRANSFORM_HEADER_LEN], plain].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_signed_verifies_however_it_lies_and_nothing_else(
        algorithm in select(SIGNING.as_slice()),
        key: [u8; 16],
        mut message in vec(any::<u8>(), 64..900),
        cuts in vec(any::<Index>(), 0..5),
        at: Index,
        bit in 0..8,
        from_server: bool,
    ) {
        let signer = Signer::new(algorithm, &key).unwrap();
        let before = message.clone();
        signer.sign(&mut message, from_server).unwrap();
        prop_assert_eq!(&message[..48], &before[..48]);
        prop_assert_eq!(&message[64..], &before[64..]);
        prop_assert!(signer.verify(&message, from_server));

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| 64 + cut.index(message.len() - 63)).collect();
        cuts.sort_unstable();
        let (mut parts, mut rest, mut taken) = (Vec::new(), message.as_slice(), 0);
        for cut in cuts {
            let (part, after) = rest.split_at(cut - taken);
            parts.push(part);
            (rest, taken) = (after, cut);
        }
        parts.push(rest);
        prop_assert!(signer.verify_parts(&parts, from_server));
        let signature = signer.signature_of_parts(&parts, from_server).unwrap();
        prop_assert_eq!(&signature[..], &message[48..64]);

        // Of the three, only the nonce of AES-GMAC knows who sent it.
        let other_side = signer.verify(&message, !from_server);
        prop_assert_eq!(other_side, algorithm != SigningAlgorithm::AesGmac);

        let at = at.index(message.len());
        message[at] ^= 1u8 << bit;
        let flipped = message.clone();
        prop_assert!(!signer.verify(&message, from_server));
        prop_assert!(!signer.verify_in_place(&mut message, from_server));
        prop_assert_eq!(message, flipped);
    }

    #[test]
    fn another_key_or_algorithm_never_verifies(
        mut message in vec(any::<u8>(), 64..300),
        key: [u8; 16],
        at in 0usize..128,
        from_server: bool,
    ) {
        let mut other = key;
        other[at / 8] ^= 1 << (at % 8);
        for algorithm in SIGNING {
            Signer::new(algorithm, &key).unwrap().sign(&mut message, from_server).unwrap();
            prop_assert!(!Signer::new(algorithm, &other).unwrap().verify(&message, from_server));
            for another in SIGNING.into_iter().filter(|another| *another != algorithm) {
                prop_assert!(!Signer::new(another, &key).unwrap().verify(&message, from_server));
            }
        }
    }

    #[test]
    fn what_was_sealed_opens_and_nothing_else(
        cipher in select(CIPHERS.as_slice()),
        plain in vec(any::<u8>(), 1..1_500),
        session_id: u64,
        at: Index,
        bit in 0..8,
    ) {
        let (mut sealer, opener) = pair(cipher, 3, 4);
        let mut message = with_room(&plain);
        sealer.seal(session_id, &mut message).unwrap();
        prop_assert!(is_transform(&message));
        let header = TransformHeader::parse(&message).unwrap();
        prop_assert_eq!(header.session_id, session_id);
        prop_assert_eq!(header.original_message_size as usize, plain.len());
        prop_assert_eq!(header.flags, 1);
        prop_assert!(plain.len() < 16 || !message.ends_with(&plain));

        let mut copy = Vec::new();
        opener.open_copy(&message, &mut copy).unwrap();
        prop_assert_eq!(&copy, &plain);
        let mut flipped = message.clone();
        prop_assert_eq!(opener.open(&mut message).unwrap(), &plain[..]);

        let at = at.index(flipped.len());
        flipped[at] ^= 1u8 << bit;
        prop_assert!(opener.open_copy(&flipped, &mut copy).is_err());
        prop_assert!(copy.is_empty());
        let expected = match at {
            0..4 => OpenError::NotTransform,
            36..40 => OpenError::LengthMismatch,
            42..44 => OpenError::UnknownFlags,
            // The nonce field's unused end is covered by the tag all the same.
            _ => OpenError::NotAuthentic,
        };
        prop_assert_eq!(opener.open(&mut flipped), Err(expected));
    }

    #[test]
    fn whatever_comes_never_panics(
        cipher in select(CIPHERS.as_slice()),
        mut bytes in vec(any::<u8>(), 0..200),
        disguise in 0..4,
        from_server: bool,
    ) {
        if disguise > 0 && bytes.len() >= TRANSFORM_HEADER_LEN {
            bytes[..4].copy_from_slice(b"\xFDSMB");
            if disguise > 1 {
                let size = (bytes.len() - TRANSFORM_HEADER_LEN) as u32;
                bytes[36..40].copy_from_slice(&size.to_le_bytes());
                bytes[42..44].copy_from_slice(&[1, 0]);
            }
        }
        let (_, opener) = pair(cipher, 1, 1);
        let mut copy = Vec::new();
        let copied = opener.open_copy(&bytes, &mut copy);
        prop_assert!(copied.is_err());
        prop_assert_eq!(opener.open(&mut bytes).map(|_| ()), copied);
        for algorithm in SIGNING {
            let signer = Signer::new(algorithm, &[1; 16]).unwrap();
            prop_assert!(!signer.verify(&bytes, from_server));
            prop_assert!(!signer.verify_in_place(&mut bytes, from_server));
        }
        prop_assert!(SessionKeys::from_bytes(&bytes).is_err());
    }

    #[test]
    fn keys_survive_the_way_to_the_peer(
        base in vec(any::<u8>(), 1..=64),
        cipher in prop_oneof![Just(None), select(CIPHERS.as_slice()).prop_map(Some)],
        hash in vec(any::<u8>(), 64),
        mut message in vec(any::<u8>(), 64..200),
    ) {
        let hash = PreauthHash::from(<[u8; 64]>::try_from(hash).unwrap());
        let key = SessionKey::new(&base).unwrap();
        let keys = derive(Dialect::Smb311, cipher, &key, Some(&hash)).unwrap();
        let back = SessionKeys::from_bytes(keys.to_bytes().as_slice()).unwrap();
        prop_assert_eq!(*back.to_bytes(), *keys.to_bytes());
        keys.signer(SigningAlgorithm::AesGmac).unwrap().sign(&mut message, true).unwrap();
        prop_assert!(back.signer(SigningAlgorithm::AesGmac).unwrap().verify(&message, true));
        if cipher.is_some() {
            for way in [Direction::ClientToServer, Direction::ServerToClient] {
                let mut sealed = with_room(&message);
                keys.sealer(way, [8; 7]).unwrap().seal(5, &mut sealed).unwrap();
                prop_assert_eq!(back.opener(way).unwrap().open(&mut sealed).unwrap(), &message[..]);
            }
        }
    }
}

/// Both legs of a session have the same keys here, as they do when NEGOTIATE was not altered.
#[test]
fn no_nonce_is_used_for_two_messages_over_both_legs() {
    let key = SessionKey::new(&[5; 16]).unwrap();
    for cipher in CIPHERS {
        let hash = PreauthHash::new();
        let keys = derive(Dialect::Smb311, Some(cipher), &key, Some(&hash)).unwrap();
        for way in [Direction::ClientToServer, Direction::ServerToClient] {
            let mut nonces = HashSet::new();
            for leg in 0..3 {
                let mut sealer = keys.sealer(way, [leg; 7]).unwrap();
                for _ in 0..3_000 {
                    let mut message = with_room(b"same plaintext, same session");
                    sealer.seal(1, &mut message).unwrap();
                    let header = TransformHeader::parse(&message).unwrap();
                    // The part that the cipher takes; what lies behind it keeps no two messages apart.
                    assert!(nonces.insert(header.nonce[..cipher.nonce_len()].to_vec()));
                }
            }
        }
    }
}

/// The hash in a GMAC does not know the nonce, so it cancels out between one message's signatures from either side; what
/// is left tells which nonces they had.
#[test]
fn a_cancel_has_a_gmac_nonce_of_its_own() {
    let signer = Signer::new(SigningAlgorithm::AesGmac, &[1; 16]).unwrap();
    let masks = [0x000B_u16, 0x000C, 0x000D].map(|command| {
        let mut header = [0; 64];
        header[12..14].copy_from_slice(&command.to_le_bytes());
        header[24] = 9;
        let [client, server] =
            [false, true].map(|from_server| signer.signature_of_parts(&[&header], from_server).unwrap());
        u128::from_ne_bytes(client) ^ u128::from_ne_bytes(server)
    });
    let [ioctl, cancel, echo] = masks;
    assert_eq!(ioctl, echo);
    assert_ne!(cancel, echo);
}

#[test]
fn messages_that_cannot_be_are_errors() {
    let signer = Signer::new(SigningAlgorithm::AesCmac, &[1; 16]).unwrap();
    assert_eq!(signer.sign(&mut [0; 63], false), Err(SignError::TooShort));
    assert_eq!(signer.signature_of_parts(&[], false), Err(SignError::TooShort));
    assert_eq!(signer.signature_of_parts(&[&[0; 63], &[0; 64]], false), Err(SignError::TooShort));
    let half = vec![0; MESSAGE_LEN_MAX / 2 + 1];
    assert_eq!(signer.signature_of_parts(&[&half, &half], false), Err(SignError::TooLong));

    let (mut sealer, opener) = pair(Cipher::Aes128Ccm, 1, 1);
    let remaining = sealer.remaining();
    assert_eq!(sealer.seal(1, &mut [0; TRANSFORM_HEADER_LEN]), Err(SealError::TooShort));
    assert_eq!(sealer.seal(1, &mut [0; 10]), Err(SealError::TooShort));
    assert_eq!(sealer.seal(1, &mut vec![0; MESSAGE_LEN_MAX + 1]), Err(SealError::TooLong));
    assert_eq!(sealer.remaining(), remaining);
    let mut longest = vec![7; MESSAGE_LEN_MAX];
    sealer.seal(1, &mut longest).unwrap();
    assert_eq!(sealer.remaining(), remaining - 1);
    assert!(opener.open(&mut longest).unwrap().iter().all(|byte| *byte == 7));
}

/// Sessions move between threads.
#[test]
fn prepared_keys_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Signer>();
    check::<Opener>();
    check::<Sealer>();
    check::<SessionKeys>();
}
