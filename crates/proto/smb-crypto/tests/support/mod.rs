//! What the tests of whole sessions share: a session's state as read from its messages, and the checks made on each.

use isthmus_smb_crypto::{
    Cipher, Dialect, Direction, OpenError, Opener, PreauthHash, Sealer, SessionKey, SessionKeys, Signer,
    SigningAlgorithm, TRANSFORM_HEADER_LEN, TransformHeader, derive, is_transform,
};

const WAYS: [Direction; 2] = [Direction::ClientToServer, Direction::ServerToClient];
const FLAG_FROM_SERVER: u32 = 1;
const FLAG_SIGNED: u32 = 8;

/// What was checked in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub signed: usize,
    pub encrypted: usize,
}

/// What NEGOTIATE and SESSION_SETUP decided.
pub struct Facts {
    pub dialect: Dialect,
    pub signing: Option<SigningAlgorithm>,
    pub cipher: Option<Cipher>,
    pub key: SessionKey,
    pub preauth: Option<PreauthHash>,
}

/// Keys of a session, prepared for both directions.
pub struct Session {
    keys: SessionKeys,
    signer: Signer,
    ciphers: Option<[(Opener, Sealer); 2]>,
    pub count: Count,
}

impl Session {
    pub fn new(facts: &Facts) -> Self {
        let cipher = facts.dialect.cipher(facts.cipher);
        let derived = derive(facts.dialect, cipher, &facts.key, facts.preauth.as_ref()).unwrap();
        // By way of bytes, as the other proxy gets them.
        let keys = SessionKeys::from_bytes(derived.to_bytes().as_slice()).unwrap();
        let ciphers = keys
            .cipher()
            .map(|_| WAYS.map(|way| (keys.opener(way).unwrap(), keys.sealer(way, [0xA5; 7]).unwrap())));
        let signer = keys.signer(facts.dialect.signing_algorithm(facts.signing)).unwrap();
        Self { keys, signer, ciphers, count: Count::default() }
    }

    /// Checks one message as sent: its signatures, or its encryption.
    pub fn check(&mut self, message: &[u8], from_server: bool) {
        if is_transform(message) {
            self.check_encrypted(message, from_server);
            self.count.encrypted += 1;
        } else {
            for element in elements(message) {
                if flags(element) & FLAG_SIGNED != 0 {
                    self.check_signed(element, from_server);
                    self.count.signed += 1;
                }
            }
        }
    }

    fn check_signed(&self, element: &[u8], from_server: bool) {
        assert_eq!(flags(element) & FLAG_FROM_SERVER != 0, from_server);
        let mut copy = element.to_vec();
        assert!(self.signer.verify(element, from_server), "good signature refused");
        assert!(self.signer.verify_in_place(&mut copy, from_server));
        assert!(copy == element, "verification altered the message");
        let (head, body) = element.split_at(64);
        let (front, back) = body.split_at(body.len() / 3);
        assert!(self.signer.verify_parts(&[head, front, back], from_server));

        copy[48..64].fill(0xEE);
        assert!(!self.signer.verify(&copy, from_server));
        self.signer.sign(&mut copy, from_server).unwrap();
        assert!(copy == element, "signing again gave another signature");
        for at in [4, 23, 24, 47, 48, 63, element.len() - 1] {
            copy[at] ^= 0x10;
            assert!(!self.signer.verify(&copy, from_server), "altered byte {at} accepted");
            assert!(!self.signer.verify_in_place(&mut copy, from_server));
            copy[at] ^= 0x10;
        }
    }

    fn check_encrypted(&mut self, message: &[u8], from_server: bool) {
        let ciphers = self.ciphers.as_mut().expect("encrypted message in a session without cipher");
        let (opener, sealer) = &mut ciphers[usize::from(from_server)];
        let session_id = TransformHeader::parse(message).unwrap().session_id;
        let mut copy = message.to_vec();
        let plain = opener.open(&mut copy).expect("encrypted message not opened").to_vec();
        let mut separate = vec![1, 2, 3];
        opener.open_copy(message, &mut separate).unwrap();
        assert!(separate == plain);
        for element in elements(&plain) {
            assert_eq!(flags(element) & FLAG_FROM_SERVER != 0, from_server);
            assert_eq!(element[48..64], [0; 16], "signature inside an encrypted message");
        }

        let mut again = vec![0; TRANSFORM_HEADER_LEN];
        again.extend_from_slice(&plain);
        sealer.seal(session_id, &mut again).unwrap();
        assert!(again != message, "sealed with the sender's own nonce");
        assert_eq!(TransformHeader::parse(&again).unwrap().session_id, session_id);
        assert!(opener.open(&mut again).unwrap() == plain);

        // Samba counts in the nonce's first eight bytes, as this crate does in five, so its nonces can be made again.
        let nonce = TransformHeader::parse(message).unwrap().nonce;
        let mut as_sender =
            self.keys.sealer(WAYS[usize::from(from_server)], nonce[5..12].try_into().unwrap()).unwrap();
        for _ in 0..u32_at(&nonce, 0) {
            as_sender.seal(0, &mut [0; TRANSFORM_HEADER_LEN + 1]).unwrap();
        }
        again[TRANSFORM_HEADER_LEN..].copy_from_slice(&plain);
        as_sender.seal(session_id, &mut again).unwrap();
        assert!(again == message, "sealed with the sender's nonce, but not as the sender did");

        // Tag, nonce, session, ciphertext; the size has an error of its own.
        for at in [4, 20, 30, 44, 52, message.len() - 1] {
            let mut bad = message.to_vec();
            bad[at] ^= 0x10;
            assert_eq!(opener.open_copy(&bad, &mut separate), Err(OpenError::NotAuthentic), "byte {at}");
            assert_eq!(opener.open(&mut bad), Err(OpenError::NotAuthentic));
            assert!(separate.is_empty());
            assert!(!bad[TRANSFORM_HEADER_LEN..].starts_with(b"\xFESMB"), "plaintext left behind");
        }
    }
}

/// The elements of a compound.
pub fn elements(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        assert!(rest.is_empty() || rest.starts_with(b"\xFESMB"));
        let next = u32_at(rest.get(..64)?, 20) as usize;
        let (element, after) = rest.split_at(if next == 0 { rest.len() } else { next });
        rest = after;
        Some(element)
    })
}

pub fn flags(element: &[u8]) -> u32 {
    u32_at(element, 16)
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
