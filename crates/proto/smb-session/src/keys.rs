//! Where session keys come from, and what a proxy holds of a session to verify, sign, decrypt and encrypt.

use crate::codec::Way;
use isthmus_smb_auth::Exchange;
use isthmus_smb_crypto::{
    Direction, KeyError, NONCE_PREFIX_LEN, Opener, Sealer, SessionKeys, Signer, SigningAlgorithm,
};
use zeroize::Zeroizing;

/// Asked on the server-side proxy when an authentication has succeeded. Decides, too, whether the other proxy may have
/// the keys; logs and counts that.
pub trait KeySource {
    /// The session key of an exchange that the server has accepted.
    ///
    /// # Errors
    /// [`Refused`] when it is not known, or not for the other proxy.
    fn release(&self, exchange: &Exchange) -> Result<Released, Refused>;
}

/// A session key and whose it is. Has no `Debug`.
pub struct Released {
    /// Key that the authentication agreed on, 16 to 64 bytes.
    pub session_key: Zeroizing<Vec<u8>>,
    /// The user.
    pub user: String,
    /// The user's domain or realm, possibly empty.
    pub domain: String,
}

/// Why there is no key: a fixed text for consoles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Keys of one session on one connection, prepared for what this proxy does.
pub(crate) struct Crypto {
    keys: SessionKeys,
    /// On the server side, the keys as the client has them: others, if the messages that made the session were others.
    pub near: Option<SessionKeys>,
    /// For both directions.
    pub signer: Signer,
    /// For what the intake gets; none if the session cannot encrypt.
    pub opener: Option<Opener>,
    /// For what the assembler sends.
    pub sealer: Option<Sealer>,
    /// Whether a message has shown that the keys are the session's.
    pub proved: bool,
    /// Whether the intake has opened an encrypted message. A right signing key does not prove the cipher keys, which may
    /// depend on more of the session key.
    pub opened: bool,
}

impl Crypto {
    /// `intake` is the direction of the messages that this proxy's intake gets. `random` is for the assembler's nonces
    /// and must not be used for anything else.
    pub fn new(
        keys: SessionKeys,
        algorithm: SigningAlgorithm,
        intake: Way,
        random: [u8; NONCE_PREFIX_LEN],
    ) -> Result<Self, KeyError> {
        let signer = keys.signer(algorithm)?;
        let (opener, sealer) = match keys.cipher() {
            None => (None, None),
            Some(_) => {
                (Some(keys.opener(direction(intake))?), Some(keys.sealer(direction(intake.other()), random)?))
            }
        };
        Ok(Self { keys, near: None, signer, opener, sealer, proved: false, opened: false })
    }

    pub fn keys(&self) -> &SessionKeys {
        &self.keys
    }

    /// The keys as the client has them.
    pub fn client_keys(&self) -> &SessionKeys {
        self.near.as_ref().unwrap_or(&self.keys)
    }

    /// Opens an encrypted message that the assembler sends, if it is of this session.
    pub fn open_sent(&self, message: &[u8], way: Way) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        let opener = self.keys.opener(direction(way)).ok()?;
        opener.open_copy(message, &mut plain).is_ok().then_some(plain)
    }
}

fn direction(way: Way) -> Direction {
    match way {
        Way::Request => Direction::ClientToServer,
        Way::Response => Direction::ServerToClient,
    }
}
