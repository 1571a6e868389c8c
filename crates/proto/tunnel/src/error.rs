/// What is wrong with something the peer sent. Any of them ends the link; the word tells who has to act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes cannot be parsed.
    #[error("invalid message: {0}")]
    InvalidMessage(&'static str),
    /// The bytes parse, but the protocol forbids them here.
    #[error("peer misbehaved: {0}")]
    PeerMisbehaved(&'static str),
    /// The message is legal, but this side does not support it.
    #[error("peer incompatible: {0}")]
    PeerIncompatible(String),
}
