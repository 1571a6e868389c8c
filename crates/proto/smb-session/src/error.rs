//! What ends a connection.

/// Why no more can be taken from the LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// An encrypted message of a session whose keys are known to be right was altered on the LAN, or is not from the
    /// session's peer. A server or client that gets such a message drops the connection (MS-SMB2 3.3.5.2.1.1).
    #[error("an encrypted message is not authentic: altered or forged on this side's LAN")]
    NotAuthentic,
}

/// Why no more can be assembled. Nothing wrong has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A record breaks the format, or refers to what is not there.
    #[error("malformed structure: {0}")]
    Malformed(&'static str),
    /// A note breaks the format.
    #[error("malformed note")]
    Note,
    /// More was fed than may be held.
    #[error("more structure or content than may be held")]
    TooMuch,
    /// The peer left out a signature, or encryption, of a session whose keys this proxy does not have.
    #[error("a message is to be signed or encrypted without keys for its session")]
    NoKeys,
    /// The message would be too long for the transport, or all nonces are used up.
    #[error("a message could not be signed or encrypted")]
    Seal,
    /// A session has begun whose keys nobody has, beside others in which messages are changed: its own would not verify.
    #[error("a user without keys has logged on over a connection whose round trips are removed")]
    Mixed,
}
