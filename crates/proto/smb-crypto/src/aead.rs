//! The four ciphers behind one door.

use aes::{Aes128Enc, Aes256Enc};
use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};

use crate::ccm::Ccm;
use crate::{Cipher, KeyError};

/// Authenticated, not encrypted part of a message: the transform header from its nonce on (MS-SMB2 2.2.41).
pub(crate) const AAD_LEN: usize = 32;
pub(crate) const TAG_LEN: usize = 16;

/// A cipher key, prepared once for many messages.
pub(crate) enum AeadKey {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128Enc>>),
    Ccm256(Box<Ccm<Aes256Enc>>),
}

/// What the AEAD says of a message that it cannot open or make; it says no more on purpose.
pub(crate) struct Failed;

impl AeadKey {
    pub(crate) fn new(cipher: Cipher, key: &[u8]) -> Result<Self, KeyError> {
        let gcm = |algorithm| {
            let key = UnboundKey::new(algorithm, key).map_err(|_| KeyError::Refused)?;
            Ok(AeadKey::Gcm(Box::new(LessSafeKey::new(key))))
        };
        match cipher {
            Cipher::Aes128Gcm => gcm(&aead::AES_128_GCM),
            Cipher::Aes256Gcm => gcm(&aead::AES_256_GCM),
            Cipher::Aes128Ccm => {
                Ok(AeadKey::Ccm128(Box::new(Ccm::new(key.try_into().map_err(|_| KeyError::Refused)?))))
            }
            Cipher::Aes256Ccm => {
                Ok(AeadKey::Ccm256(Box::new(Ccm::new(key.try_into().map_err(|_| KeyError::Refused)?))))
            }
        }
    }

    /// Encrypts `data` where it lies and gives its tag. `nonce` is the header's field, of which a cipher uses the front.
    pub(crate) fn seal(
        &self,
        nonce: &[u8; 16],
        aad: &[u8; AAD_LEN],
        data: &mut [u8],
    ) -> Result<[u8; TAG_LEN], Failed> {
        match self {
            AeadKey::Gcm(key) => {
                let tag = key.seal_in_place_separate_tag(gcm_nonce(nonce)?, Aad::from(aad), data);
                tag.map_err(|_| Failed)?.as_ref().try_into().map_err(|_| Failed)
            }
            AeadKey::Ccm128(key) => key.seal(nonce, aad, data),
            AeadKey::Ccm256(key) => key.seal(nonce, aad, data),
        }
    }

    /// Decrypts `data` where it lies if `tag` is right; otherwise what `data` holds is undefined, and no plaintext.
    pub(crate) fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8; AAD_LEN],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Failed> {
        match self {
            AeadKey::Gcm(key) => {
                let opened = key.open_in_place_separate_tag(gcm_nonce(nonce)?, Aad::from(aad), tag, data);
                opened.map(|_| ()).map_err(|_| Failed)
            }
            AeadKey::Ccm128(key) => key.open(nonce, aad, data, tag),
            AeadKey::Ccm256(key) => key.open(nonce, aad, data, tag),
        }
    }
}

fn gcm_nonce(nonce: &[u8; 16]) -> Result<aead::Nonce, Failed> {
    nonce.first_chunk().map(|nonce| aead::Nonce::assume_unique_for_key(*nonce)).ok_or(Failed)
}
