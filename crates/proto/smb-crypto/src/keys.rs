//! Session keys and what is derived from them (MS-SMB2 3.1.4.2, 3.2.5.3.1, 3.3.5.5.3).

use aws_lc_rs::hmac;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::nonce::{NONCE_PREFIX_LEN, NonceSource};
use crate::{Cipher, Dialect, Opener, PreauthHash, Sealer, Signer, SigningAlgorithm};

/// Longest key that an authentication protocol may hand over, in bytes (Kerberos subkeys have at most 32).
pub const SESSION_KEY_LEN_MAX: usize = 64;
/// Length of a signing key, in bytes.
pub const SIGNING_KEY_LEN: usize = 16;
/// Length of [`SessionKeys`] as bytes.
pub const SESSION_KEYS_LEN: usize = 84;

/// First byte of [`SessionKeys`] as bytes.
const SESSION_KEYS_FORMAT: u8 = 1;
const CIPHER_KEY_LEN_MAX: usize = 32;
const HMAC_LEN: usize = 32;

/// Why no key was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key that the authentication protocol gave is empty or longer than [`SESSION_KEY_LEN_MAX`].
    #[error("session key of an impossible length")]
    SessionKeyLength,
    /// 3.1.1 derives from the pre-authentication hash and none was given.
    #[error("dialect 3.1.1 needs the pre-authentication hash")]
    PreauthHashMissing,
    /// The dialect does not know the cipher.
    #[error("the dialect does not use this cipher")]
    CipherNotOfDialect,
    /// The session has no cipher.
    #[error("the session has no cipher keys")]
    NoCipher,
    /// Not the bytes of a [`SessionKeys`].
    #[error("malformed session keys")]
    Malformed,
    /// The cryptographic library refused a key of the right length (out of memory).
    #[error("the cryptographic library refused the key")]
    Refused,
}

/// The key that the authentication protocol agreed on: Session.FullSessionKey, and by its first 16 bytes
/// Session.SessionKey (MS-SMB2 3.2.1.3, 3.3.1.8).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKey {
    full: [u8; SESSION_KEY_LEN_MAX],
    len: usize,
}

impl SessionKey {
    /// Takes the whole key as NTLM (16 bytes) or Kerberos (16 or 32 bytes) exported it.
    ///
    /// # Errors
    /// [`KeyError::SessionKeyLength`] if it is empty or longer than [`SESSION_KEY_LEN_MAX`].
    pub fn new(exported: &[u8]) -> Result<Self, KeyError> {
        if exported.is_empty() {
            return Err(KeyError::SessionKeyLength);
        }
        let mut full = [0; SESSION_KEY_LEN_MAX];
        full.get_mut(..exported.len()).ok_or(KeyError::SessionKeyLength)?.copy_from_slice(exported);
        let key = Self { full, len: exported.len() };
        full.zeroize();
        Ok(key)
    }

    /// Session.SessionKey: the first 16 bytes, filled up with zeros if there are fewer.
    fn short(&self) -> &[u8; SIGNING_KEY_LEN] {
        self.full.first_chunk().unwrap_or(&[0; SIGNING_KEY_LEN])
    }

    /// Session.FullSessionKey; never shorter than Session.SessionKey.
    fn full(&self) -> &[u8] {
        self.full.get(..self.len.max(SIGNING_KEY_LEN)).unwrap_or(&[])
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Requests.
    ClientToServer,
    /// Responses and notifications.
    ServerToClient,
}

/// The keys of one session: what one side needs to be the other's peer.
///
/// Whoever has these can act as the user for as long as the session lasts, so they leave a process only through
/// [`to_bytes`](Self::to_bytes), inside an authenticated and encrypted channel.
#[derive(Clone, ZeroizeOnDrop)]
pub struct SessionKeys {
    #[zeroize(skip)]
    cipher: Option<Cipher>,
    signing: [u8; SIGNING_KEY_LEN],
    client_to_server: [u8; CIPHER_KEY_LEN_MAX],
    server_to_client: [u8; CIPHER_KEY_LEN_MAX],
}

impl SessionKeys {
    /// The cipher that the cipher keys are for; `None` if the session cannot encrypt.
    pub fn cipher(&self) -> Option<Cipher> {
        self.cipher
    }

    /// Prepares the signing key. The algorithm is the connection's: [`Dialect::signing_algorithm`].
    ///
    /// # Errors
    /// [`KeyError::Refused`] if the cryptographic library is out of memory.
    pub fn signer(&self, algorithm: SigningAlgorithm) -> Result<Signer, KeyError> {
        Signer::new(algorithm, &self.signing)
    }

    /// Prepares decryption of the messages that go in `direction`.
    ///
    /// # Errors
    /// [`KeyError::NoCipher`] if the session has no cipher, [`KeyError::Refused`] if out of memory.
    pub fn opener(&self, direction: Direction) -> Result<Opener, KeyError> {
        let (cipher, key) = self.cipher_key(direction)?;
        Opener::new(cipher, key)
    }

    /// Prepares encryption of the messages that this process sends in `direction` on one leg.
    ///
    /// `random` must be uniformly random and drawn anew for every call: see [`NonceSource`].
    ///
    /// # Errors
    /// [`KeyError::NoCipher`] if the session has no cipher, [`KeyError::Refused`] if out of memory.
    pub fn sealer(&self, direction: Direction, random: [u8; NONCE_PREFIX_LEN]) -> Result<Sealer, KeyError> {
        let (cipher, key) = self.cipher_key(direction)?;
        Sealer::new(cipher, key, NonceSource::new(cipher, random))
    }

    /// The same session seen from another channel (multichannel): its cipher keys, with that channel's signing key
    /// (MS-SMB2 3.3.5.5.3). See [`derive_channel`].
    pub fn with_channel(&self, channel: &ChannelKey) -> Self {
        Self { signing: channel.0, ..self.clone() }
    }

    /// The keys as bytes: format 1, zero, CipherId (LE, 0 for none), signing key (16), client-to-server key (32),
    /// server-to-client key (32); keys shorter than their field are followed by zeros.
    pub fn to_bytes(&self) -> Zeroizing<[u8; SESSION_KEYS_LEN]> {
        let mut bytes = Zeroizing::new([0; SESSION_KEYS_LEN]);
        let cipher = self.cipher.map_or(0, Cipher::as_u16).to_le_bytes();
        let fields = [SESSION_KEYS_FORMAT, 0]
            .iter()
            .chain(&cipher)
            .chain(&self.signing)
            .chain(&self.client_to_server)
            .chain(&self.server_to_client);
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = *field);
        bytes
    }

    /// The keys from what [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] for another length, format or cipher, or if what must be zero is not.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let (&[format, zero, cipher_low, cipher_high], rest) =
            bytes.split_first_chunk().ok_or(KeyError::Malformed)?;
        let (&signing, rest) = rest.split_first_chunk().ok_or(KeyError::Malformed)?;
        let (&client_to_server, rest) = rest.split_first_chunk().ok_or(KeyError::Malformed)?;
        let server_to_client = rest.try_into().map_err(|_| KeyError::Malformed)?;
        let cipher = match u16::from_le_bytes([cipher_low, cipher_high]) {
            0 => None,
            id => Some(Cipher::from_u16(id).ok_or(KeyError::Malformed)?),
        };
        let keys = Self { cipher, signing, client_to_server, server_to_client };
        let used = cipher.map_or(0, Cipher::key_len);
        let padded = |key: &[u8]| key.iter().skip(used).all(|byte| *byte == 0);
        if format != SESSION_KEYS_FORMAT
            || zero != 0
            || !padded(&keys.client_to_server)
            || !padded(&keys.server_to_client)
        {
            return Err(KeyError::Malformed);
        }
        Ok(keys)
    }

    fn cipher_key(&self, direction: Direction) -> Result<(Cipher, &[u8]), KeyError> {
        let cipher = self.cipher.ok_or(KeyError::NoCipher)?;
        let key = match direction {
            Direction::ClientToServer => &self.client_to_server,
            Direction::ServerToClient => &self.server_to_client,
        };
        Ok((cipher, key.get(..cipher.key_len()).ok_or(KeyError::Malformed)?))
    }
}

/// The signing key of one more channel of a session.
#[derive(Clone, ZeroizeOnDrop)]
pub struct ChannelKey([u8; SIGNING_KEY_LEN]);

/// Derives a session's keys (MS-SMB2 3.1.4.2).
///
/// `cipher` is the connection's ([`Dialect::cipher`]), `None` if it cannot encrypt; on 2.x there are no cipher keys,
/// whatever it says, and the signing key is the session key itself. `preauth` is the session's hash, up to and with the
/// last SESSION_SETUP request, and is needed for 3.1.1 alone.
///
/// # Errors
/// [`KeyError::PreauthHashMissing`] for 3.1.1 without hash, [`KeyError::CipherNotOfDialect`] for 3.0 and 3.0.2 with
/// another cipher than AES-128-CCM,
/// [`KeyError::Refused`] if the cryptographic library fails.
pub fn derive(
    dialect: Dialect,
    cipher: Option<Cipher>,
    key: &SessionKey,
    preauth: Option<&PreauthHash>,
) -> Result<SessionKeys, KeyError> {
    let mut keys = SessionKeys {
        cipher,
        signing: derive_channel(dialect, key, preauth)?.0,
        client_to_server: [0; CIPHER_KEY_LEN_MAX],
        server_to_client: [0; CIPHER_KEY_LEN_MAX],
    };
    let labels: CipherLabels<'_> = match (dialect, preauth) {
        (Dialect::Smb202 | Dialect::Smb210, _) => {
            keys.cipher = None;
            return Ok(keys);
        }
        (Dialect::Smb300 | Dialect::Smb302, _) => {
            if cipher.is_some_and(|cipher| cipher != Cipher::Aes128Ccm) {
                return Err(KeyError::CipherNotOfDialect);
            }
            [(b"SMB2AESCCM\0", b"ServerIn \0"), (b"SMB2AESCCM\0", b"ServerOut\0")]
        }
        (Dialect::Smb311, Some(hash)) => {
            [(b"SMBC2SCipherKey\0", hash.as_bytes()), (b"SMBS2CCipherKey\0", hash.as_bytes())]
        }
        (Dialect::Smb311, None) => return Err(KeyError::PreauthHashMissing),
    };
    let Some(cipher) = cipher else { return Ok(keys) };
    // Only the 256-bit ciphers draw on the whole key; the signing key never does.
    let base = if cipher.key_len() == CIPHER_KEY_LEN_MAX { key.full() } else { key.short() };
    let fields = [&mut keys.client_to_server, &mut keys.server_to_client];
    for (field, (label, context)) in fields.into_iter().zip(labels) {
        if let Some(field) = field.get_mut(..cipher.key_len()) {
            derive_into(field, base, label, context)?;
        }
    }
    Ok(keys)
}

/// Derives the signing key of a channel: of the first one, or of one that binds to the session later, from the session
/// key that the authentication on that channel gave and, on 3.1.1, that channel's own hash (MS-SMB2 3.2.5.3.3,
/// 3.3.5.5.3).
///
/// # Errors
/// [`KeyError::PreauthHashMissing`] for 3.1.1 without hash, [`KeyError::Refused`] if the cryptographic library fails.
pub fn derive_channel(
    dialect: Dialect,
    key: &SessionKey,
    preauth: Option<&PreauthHash>,
) -> Result<ChannelKey, KeyError> {
    let mut signing = ChannelKey([0; SIGNING_KEY_LEN]);
    match (dialect, preauth) {
        (Dialect::Smb202 | Dialect::Smb210, _) => signing.0 = *key.short(),
        (Dialect::Smb300 | Dialect::Smb302, _) => {
            derive_into(&mut signing.0, key.short(), b"SMB2AESCMAC\0", b"SmbSign\0")?;
        }
        (Dialect::Smb311, Some(hash)) => {
            derive_into(&mut signing.0, key.short(), b"SMBSigningKey\0", hash.as_bytes())?;
        }
        (Dialect::Smb311, None) => return Err(KeyError::PreauthHashMissing),
    }
    Ok(signing)
}

/// Label and context of the two cipher keys, client to server first.
type CipherLabels<'a> = [(&'static [u8], &'a [u8]); 2];

/// NIST SP 800-108 in counter mode with HMAC-SHA256 and a 32-bit counter. All keys of SMB fit into the first block, so
/// the counter is always 1; `key` is at most 32 bytes long.
fn derive_into(key: &mut [u8], base: &[u8], label: &[u8], context: &[u8]) -> Result<(), KeyError> {
    let bits = (key.len() as u32) * 8;
    let input = [&1u32.to_be_bytes(), label, &[0], context, &bits.to_be_bytes()].concat();
    let mut block = Zeroizing::new([0; HMAC_LEN]);
    hmac::sign_to_buffer(&hmac::Key::new(hmac::HMAC_SHA256, base), &input, block.as_mut_slice())
        .map_err(|_| KeyError::Refused)?;
    key.iter_mut().zip(block.iter()).for_each(|(byte, derived)| *byte = *derived);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> SessionKey {
        SessionKey::new(bytes).unwrap()
    }

    #[test]
    fn session_keys_have_a_sane_length() {
        assert_eq!(SessionKey::new(&[]).err(), Some(KeyError::SessionKeyLength));
        assert_eq!(SessionKey::new(&[1; SESSION_KEY_LEN_MAX + 1]).err(), Some(KeyError::SessionKeyLength));
        let long = key(&[1; SESSION_KEY_LEN_MAX]);
        assert_eq!((long.short(), long.full()), (&[1; 16], &[1; SESSION_KEY_LEN_MAX][..]));
        let mut padded = [0; 16];
        padded[..8].fill(1);
        assert_eq!((key(&[1; 8]).short(), key(&[1; 8]).full()), (&padded, &padded[..]));
    }

    #[test]
    fn old_dialects_sign_with_the_session_key_and_have_no_cipher() {
        for dialect in [Dialect::Smb202, Dialect::Smb210] {
            let keys = derive(dialect, Some(Cipher::Aes128Ccm), &key(&[7; 32]), None).unwrap();
            assert_eq!(keys.signing, [7; 16]);
            assert_eq!(keys.opener(Direction::ClientToServer).err(), Some(KeyError::NoCipher));
        }
    }

    #[test]
    fn only_the_long_ciphers_draw_on_the_whole_key() {
        let hash = PreauthHash::new();
        let long: Vec<u8> = (0..32).collect();
        let with =
            |cipher, bytes: &[u8]| derive(Dialect::Smb311, Some(cipher), &key(bytes), Some(&hash)).unwrap();
        let (short, whole) = (with(Cipher::Aes128Gcm, &long[..16]), with(Cipher::Aes128Gcm, &long));
        assert_eq!(*short.to_bytes(), *whole.to_bytes());
        let (short, whole) = (with(Cipher::Aes256Gcm, &long[..16]), with(Cipher::Aes256Gcm, &long));
        assert_eq!(short.signing, whole.signing);
        assert_ne!(short.client_to_server, whole.client_to_server);
        assert_ne!(whole.client_to_server, whole.server_to_client);
    }

    #[test]
    fn what_the_dialect_lacks_is_an_error() {
        let derived = derive(Dialect::Smb311, None, &key(&[1; 16]), None);
        assert_eq!(derived.err(), Some(KeyError::PreauthHashMissing));
        let derived = derive(Dialect::Smb302, Some(Cipher::Aes128Gcm), &key(&[1; 16]), None);
        assert_eq!(derived.err(), Some(KeyError::CipherNotOfDialect));
    }

    #[test]
    fn keys_survive_the_way_through_bytes() {
        let hash = PreauthHash::from([9; 64]);
        for cipher in [None, Some(Cipher::Aes128Ccm), Some(Cipher::Aes256Gcm)] {
            let keys = derive(Dialect::Smb311, cipher, &key(&[3; 32]), Some(&hash)).unwrap();
            let bytes = keys.to_bytes();
            let back = SessionKeys::from_bytes(bytes.as_slice()).unwrap();
            assert_eq!(back.cipher(), cipher);
            assert_eq!(*back.to_bytes(), *bytes);
        }
    }

    #[test]
    fn other_bytes_are_no_keys() {
        let keys = derive(Dialect::Smb300, Some(Cipher::Aes128Ccm), &key(&[3; 16]), None).unwrap();
        let good = keys.to_bytes();
        let malformed = |bytes: &[u8]| SessionKeys::from_bytes(bytes).err() == Some(KeyError::Malformed);
        assert!(malformed(&good[..SESSION_KEYS_LEN - 1]));
        assert!(malformed(&[good.as_slice(), &[0]].concat()));
        // Format, zero, an unknown cipher, and the unused halves of both cipher keys.
        for at in [0, 1, 2, 3, 36, 51, 68, 83] {
            let mut bad = *good;
            bad[at] ^= 0x80;
            assert!(malformed(&bad), "byte {at}");
        }
    }

    #[test]
    fn a_channel_changes_the_signing_key_alone() {
        let hash = PreauthHash::from([1; 64]);
        let keys = derive(Dialect::Smb311, Some(Cipher::Aes128Gcm), &key(&[3; 16]), Some(&hash)).unwrap();
        let other = PreauthHash::from([2; 64]);
        let channel = derive_channel(Dialect::Smb311, &key(&[4; 16]), Some(&other)).unwrap();
        let bound = keys.with_channel(&channel);
        assert_ne!(bound.signing, keys.signing);
        assert_eq!(bound.client_to_server, keys.client_to_server);
        assert_eq!(bound.server_to_client, keys.server_to_client);
    }
}
