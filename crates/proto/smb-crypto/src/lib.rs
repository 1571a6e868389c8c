//! What SMB 2 and 3 do with keys: pre-authentication integrity, key derivation, signing and encryption, and the
//! compression transforms that may lie inside (MS-SMB2 2.2.41, 2.2.42, 3.1.4). No IO, no clock, no randomness of its
//! own: whoever makes a [`Sealer`] brings the random bytes.
//!
//! Secrets ([`SessionKey`], [`SessionKeys`]) have no `Debug`, are never compared by `==`, and are wiped when dropped.

mod aead;
mod algorithm;
mod ccm;
mod compression;
mod keys;
mod nonce;
mod preauth;
mod sign;
mod transform;

pub use algorithm::{Cipher, Dialect, SigningAlgorithm};
pub use compression::{
    CompressionAlgorithm, DecompressError, decompress_message, decompress_onto, is_compressed,
};
pub use keys::{
    ChannelKey, Direction, KeyError, SESSION_KEY_LEN_MAX, SESSION_KEYS_LEN, SIGNING_KEY_LEN, SessionKey,
    SessionKeys, derive, derive_channel,
};
pub use nonce::{NONCE_PREFIX_LEN, NONCES_PER_LEG_MAX, NonceExhausted, NonceSource};
pub use preauth::PreauthHash;
pub use sign::{SIGNATURE_LEN, SMB2_HEADER_LEN, SignError, Signer};
pub use transform::{
    OpenError, Opener, SealError, Sealer, TRANSFORM_HEADER_LEN, TransformHeader, is_transform,
};

/// Longest SMB2 message, in bytes: what the 24-bit length of the direct TCP transport can announce (MS-SMB2 2.1).
pub const MESSAGE_LEN_MAX: usize = 0xFF_FFFF;
