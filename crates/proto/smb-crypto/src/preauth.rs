//! Pre-authentication integrity hash (MS-SMB2 3.1.4.4.1 in older revisions, 3.2.5.2, 3.3.5.4).

use aws_lc_rs::digest;

/// The SHA-512 chain over a connection's or a session's first messages: H(i) = SHA-512(H(i−1) ‖ message), H(0) = zeros.
///
/// A connection's hash takes the NEGOTIATE request and response; each session starts with a clone of it and takes every
/// SESSION_SETUP request and every response but the final successful one. Messages are given from their protocol
/// identifier on, without the transport's length. The value is no secret: it was made from what crossed in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreauthHash([u8; PreauthHash::LEN]);

impl PreauthHash {
    /// Length of the hash, in bytes.
    pub const LEN: usize = 64;

    /// The chain before any message.
    pub fn new() -> Self {
        Self([0; Self::LEN])
    }

    /// Takes one message into the chain.
    pub fn update(&mut self, message: &[u8]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.0);
        context.update(message);
        let digest = context.finish();
        for (byte, new) in self.0.iter_mut().zip(digest.as_ref()) {
            *byte = *new;
        }
    }

    /// The present value.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

impl From<[u8; PreauthHash::LEN]> for PreauthHash {
    fn from(value: [u8; PreauthHash::LEN]) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_hashed_after_the_value_before_it() {
        let mut hash = PreauthHash::new();
        hash.update(b"first");
        hash.update(b"second");

        let mut input = [0; 64].to_vec();
        input.extend_from_slice(b"first");
        let mut input = digest::digest(&digest::SHA512, &input).as_ref().to_vec();
        input.extend_from_slice(b"second");
        assert_eq!(hash.as_bytes().as_slice(), digest::digest(&digest::SHA512, &input).as_ref());
    }

    #[test]
    fn a_clone_goes_its_own_way() {
        let mut connection = PreauthHash::new();
        connection.update(b"negotiate");
        let mut session = connection.clone();
        session.update(b"session setup");
        assert_ne!(connection, session);
    }
}
