//! Nonces of encrypted messages.

use crate::Cipher;

/// Random bytes that a leg's nonces carry. GCM uses all of them, CCM, whose nonces are one byte shorter, all but one.
pub const NONCE_PREFIX_LEN: usize = 7;
/// How many messages can be sealed on one leg with one key.
pub const NONCES_PER_LEG_MAX: u64 = 1 << (8 * COUNTER_LEN);

const COUNTER_LEN: usize = 5;

/// Every nonce of the leg was used; the session can send nothing more that is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all nonces of this leg are used up")]
pub struct NonceExhausted;

/// Nonces of the messages that one process seals on one leg with one key.
///
/// Both legs of a session may have the same keys, and a session may have several connections, so up to a handful of
/// senders use one key without knowing each other's nonces. Each nonce is therefore a 40-bit counter, which keeps a
/// sender from repeating itself, followed by random bytes (56 bits for GCM, 48 for CCM) drawn when the leg was made,
/// which keep senders apart. Servers and clients that count in the first eight bytes, as Samba and Windows do, meet
/// such a nonce with a probability of 2⁻⁴⁸ or less for each pair of legs, however many messages they send. A source
/// cannot be cloned or stored; a new leg draws a new one.
pub struct NonceSource {
    next: u64,
    prefix: [u8; NONCE_PREFIX_LEN],
    prefix_len: usize,
}

impl NonceSource {
    /// A source with `random` bytes, which must be uniformly random and drawn for this source alone.
    pub fn new(cipher: Cipher, random: [u8; NONCE_PREFIX_LEN]) -> Self {
        Self { next: 0, prefix: random, prefix_len: cipher.nonce_len() - COUNTER_LEN }
    }

    /// How many nonces are left.
    pub fn remaining(&self) -> u64 {
        NONCES_PER_LEG_MAX - self.next
    }

    /// The next nonce, as it stands in the transform header.
    pub(crate) fn next(&mut self) -> Result<[u8; 16], NonceExhausted> {
        if self.next >= NONCES_PER_LEG_MAX {
            return Err(NonceExhausted);
        }
        let mut nonce = [0; 16];
        let counter = self.next.to_le_bytes();
        let bytes = counter.iter().take(COUNTER_LEN).chain(self.prefix.iter().take(self.prefix_len));
        nonce.iter_mut().zip(bytes).for_each(|(byte, new)| *byte = *new);
        self.next += 1;
        Ok(nonce)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{SealError, Sealer};

    #[test]
    fn a_nonce_is_counter_then_random_bytes_then_zeros() {
        let mut gcm = NonceSource::new(Cipher::Aes128Gcm, *b"abcdefg");
        assert_eq!(&gcm.next().unwrap(), b"\0\0\0\0\0abcdefg\0\0\0\0");
        assert_eq!(&gcm.next().unwrap(), b"\x01\0\0\0\0abcdefg\0\0\0\0");
        let mut ccm = NonceSource::new(Cipher::Aes256Ccm, *b"abcdefg");
        assert_eq!(&ccm.next().unwrap(), b"\0\0\0\0\0abcdef\0\0\0\0\0");
    }

    #[test]
    fn no_nonce_comes_twice_not_even_over_a_carry() {
        for cipher in [Cipher::Aes128Ccm, Cipher::Aes256Gcm] {
            let mut source = NonceSource::new(cipher, [0; NONCE_PREFIX_LEN]);
            let mut seen = HashSet::new();
            for start in [0, (1 << 16) - 500, (1 << 32) - 500, NONCES_PER_LEG_MAX - 500] {
                source.next = source.next.max(start);
                for _ in 0..500 {
                    let nonce = source.next().unwrap();
                    assert!(seen.insert(nonce[..cipher.nonce_len()].to_vec()));
                    assert!(nonce[cipher.nonce_len()..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }

    #[test]
    fn legs_with_other_random_bytes_never_meet() {
        let mut legs =
            [[1; NONCE_PREFIX_LEN], [2; 7]].map(|random| NonceSource::new(Cipher::Aes128Ccm, random));
        let mut seen = HashSet::new();
        for _ in 0..2_000 {
            assert!(legs.iter_mut().all(|leg| seen.insert(leg.next().unwrap())));
        }
    }

    #[test]
    fn the_last_nonce_is_followed_by_an_error_for_ever() {
        let mut source = NonceSource::new(Cipher::Aes128Gcm, [0; NONCE_PREFIX_LEN]);
        source.next = NONCES_PER_LEG_MAX - 1;
        assert_eq!(source.remaining(), 1);
        assert!(source.next().is_ok());
        assert_eq!((source.next(), source.next()), (Err(NonceExhausted), Err(NonceExhausted)));
        assert_eq!(source.remaining(), 0);
    }

    #[test]
    fn nothing_is_sealed_without_a_nonce() {
        let mut source = NonceSource::new(Cipher::Aes128Ccm, [0; NONCE_PREFIX_LEN]);
        source.next = NONCES_PER_LEG_MAX;
        let mut sealer = Sealer::new(Cipher::Aes128Ccm, &[1; 16], source).unwrap();
        let mut buffer = [7; 100];
        assert_eq!(sealer.seal(1, &mut buffer), Err(SealError::NonceExhausted(NonceExhausted)));
        assert_eq!(buffer, [7; 100]);
    }
}
