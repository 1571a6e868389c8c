use crate::der::BadDer;

/// Why no session key came out of an authentication. Each has a fixed text, fit for a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A token that is needed has not been seen.
    #[error("authentication not seen in full")]
    Incomplete,
    /// A token cannot be parsed; the text names the part.
    #[error("malformed token: {0}")]
    Malformed(&'static str),
    /// The client logged on without a name: the session has no key.
    #[error("anonymous session, which has no key")]
    Anonymous,
    /// The server let the user in as its guest: the session has no key that both sides know.
    #[error("guest session, which has no key")]
    Guest,
    /// LM or NTLMv1 response.
    #[error("NTLMv1 or LM is not supported")]
    NtlmV1,
    /// No NT hash is held for the user.
    #[error("no NT hash for this user")]
    UnknownUser,
    /// NT hashes are held for the user, and none fits.
    #[error("the NT hash held for this user does not fit")]
    WrongHash,
    /// No key of the ticket's service, and no other key opens it.
    #[error("no key for this service")]
    NoServiceKey,
    /// Keys of the ticket's service are held, but of other encryption types.
    #[error("no key of the ticket's encryption type for this service")]
    NoKeyType,
    /// Keys of the ticket's service and encryption type are held, but of other versions.
    #[error("no key of the ticket's version for this service")]
    NoKeyVersion,
    /// The key of the ticket's service, encryption type and version does not open it.
    #[error("the key held for this service does not open the ticket")]
    WrongServiceKey,
    /// The ticket or its keys have an encryption type that is not supported, such as DES.
    #[error("unsupported Kerberos encryption type")]
    UnsupportedEncryption,
    /// The ticket is encrypted under another ticket's session key.
    #[error("user-to-user Kerberos is not supported")]
    UserToUser,
    /// SPNEGO extended negotiation, as PKU2U uses it.
    #[error("NegoEx (PKU2U) is not supported")]
    NegoEx,
    /// Kerberos through the server as a relay to the key distribution centre.
    #[error("IAKerb is not supported")]
    IaKerb,
    /// A mechanism this crate does not know.
    #[error("unknown authentication mechanism")]
    UnknownMechanism,
}

impl Failure {
    /// One word for metrics and JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Malformed(_) => "malformed",
            Self::Anonymous => "anonymous",
            Self::Guest => "guest",
            Self::NtlmV1 => "ntlm_v1",
            Self::UnknownUser => "unknown_user",
            Self::WrongHash => "wrong_hash",
            Self::NoServiceKey => "no_service_key",
            Self::NoKeyType => "no_key_type",
            Self::NoKeyVersion => "no_key_version",
            Self::WrongServiceKey => "wrong_service_key",
            Self::UnsupportedEncryption => "unsupported_encryption",
            Self::UserToUser => "user_to_user",
            Self::NegoEx => "nego_ex",
            Self::IaKerb => "ia_kerb",
            Self::UnknownMechanism => "unknown_mechanism",
        }
    }
}

impl From<BadDer> for Failure {
    fn from(_: BadDer) -> Self {
        Self::Malformed("ASN.1")
    }
}
