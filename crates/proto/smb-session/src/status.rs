//! What consoles and metrics show of a connection.

use isthmus_smb_crypto::{Cipher, Dialect, SigningAlgorithm};

/// What a connection is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No session yet.
    NotYet,
    /// Neither signed nor encrypted: reduced.
    Clear,
    /// Signed, with keys: reduced, signatures do not cross.
    SignedKeys,
    /// Signed, without keys: reduced, signatures cross.
    SignedNoKeys,
    /// Encrypted, with keys: reduced.
    EncryptedKeys,
    /// Encrypted, without keys: relayed.
    EncryptedNoKeys,
    /// SMB1: relayed.
    Smb1,
    /// Not SMB: relayed.
    NotSmb,
}

impl State {
    /// The word used in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotYet => "not_yet",
            Self::Clear => "clear",
            Self::SignedKeys => "signed_keys",
            Self::SignedNoKeys => "signed_no_keys",
            Self::EncryptedKeys => "encrypted_keys",
            Self::EncryptedNoKeys => "encrypted_no_keys",
            Self::Smb1 => "smb1",
            Self::NotSmb => "not_smb",
        }
    }
}

/// What a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Its keys are held and proved right.
    Keys,
    /// Its keys are held; no message has shown yet that they are right.
    Unproved,
    /// No keys.
    NoKeys,
    /// Logged off.
    Ended,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Identifier.
    pub session_id: u64,
    /// The user, if known.
    pub user: String,
    /// The user's domain or realm, possibly empty.
    pub domain: String,
    /// State.
    pub state: SessionState,
    /// Why there are no keys.
    pub reason: Option<String>,
    /// How its messages go, once one has that does not belong to its beginning: a session that will be encrypted is set up by
    /// signed messages.
    pub messages: Option<State>,
}

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub(crate) state: Option<State>,
    /// Why it is not optimised in full.
    pub reason: Option<String>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Signing algorithm.
    pub signing: Option<SigningAlgorithm>,
    /// Cipher.
    pub cipher: Option<Cipher>,
    /// Whether client and server agreed to compress.
    pub compression: bool,
    /// Sessions, those logged off included.
    pub sessions: Vec<SessionStatus>,
    /// Shares connected to.
    pub shares: Vec<String>,
    /// Server, as the client names it.
    pub server: Option<String>,
    /// Counts changes of the status.
    pub changes: u64,
}

impl Status {
    /// What the connection is.
    pub fn state(&self) -> State {
        self.state.unwrap_or(State::NotYet)
    }
}
