use crate::counters::Failure;
use crate::link::LinkError;
use isthmus_types::{Reason, Side};
use rustls::{AlertDescription, CertificateError, Error};
use rustls_pki_types::UnixTime;
use std::io;
use std::time::{Duration, SystemTime};

/// Why a peer cannot be used: the word, and the sentence for people with the remedy where one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal { reason, detail: detail.into() }
    }

    /// Under which head it is counted.
    pub(crate) fn failure(&self) -> Failure {
        match self.reason {
            Reason::PeerUnauthorised => Failure::Unauthorised,
            Reason::PeerIncompatible => Failure::Incompatible,
            Reason::PeerMisbehaved => Failure::Garbage,
            _ => Failure::Refused,
        }
    }

    pub(crate) fn absent(detail: impl Into<String>) -> Refusal {
        Refusal::new(Reason::PeerAbsent, detail)
    }

    /// Explains a failed connection or handshake to the peer on side `peer`.
    pub(crate) fn of_io(error: &io::Error, peer: Side) -> Refusal {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Refusal::of_tls(error, peer),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                Refusal::absent("the connection was closed during the handshake")
            }
            None => Refusal::absent(error.to_string()),
        }
    }

    /// Explains a link that failed before it was set up.
    pub(crate) fn of_link(error: &LinkError, peer: Side) -> Refusal {
        match error {
            LinkError::Io(error) => Refusal::of_io(error, peer),
            LinkError::Tls(error) => Refusal::of_tls(error, peer),
            LinkError::Protocol(error @ isthmus_tunnel::Error::PeerIncompatible(_)) => {
                Refusal::new(Reason::PeerIncompatible, error.to_string())
            }
            LinkError::Protocol(error) => Refusal::new(Reason::PeerMisbehaved, error.to_string()),
            LinkError::Closed | LinkError::Cut | LinkError::Timeout => Refusal::absent(error.to_string()),
        }
    }

    /// Explains a TLS failure.
    pub(crate) fn of_tls(error: &Error, peer: Side) -> Refusal {
        match error {
            Error::InvalidCertificate(error) => {
                Refusal::new(Reason::PeerUnauthorised, certificate(error, peer))
            }
            Error::NoCertificatesPresented => Refusal::new(
                Reason::PeerUnauthorised,
                "the peer presents no certificate; give it one of our CA",
            ),
            Error::AlertReceived(description) => alert(*description, peer),
            Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => Refusal::new(
                Reason::PeerIncompatible,
                format!("what answers there is not an Isthmus {peer} proxy (TLS: {error})"),
            ),
            Error::PeerIncompatible(_) => Refusal::new(
                Reason::PeerIncompatible,
                format!("the peer's TLS has nothing in common with ours, which needs TLS 1.3 ({error})"),
            ),
            _ => Refusal::new(Reason::PeerMisbehaved, format!("TLS: {error}")),
        }
    }
}

fn certificate(error: &CertificateError, peer: Side) -> String {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the peer's certificate has been expired since {}; issue a new one", date(*not_after))
        }
        CertificateError::Expired => "the peer's certificate has expired; issue a new one".into(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("the peer's certificate is not valid before {}; check both clocks", date(*not_before))
        }
        CertificateError::NotValidYet => "the peer's certificate is not valid yet; check both clocks".into(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the peer's certificate is not issued by our CA; use the same CA on both sides".into()
        }
        CertificateError::Revoked => "the peer's certificate is revoked".into(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the peer's certificate does not name {}, but {}; correct the configured server name or issue a \
             certificate with that name",
            expected.to_str(),
            if presented.is_empty() { "nothing".to_owned() } else { presented.join(", ") }
        ),
        CertificateError::NotValidForName => {
            "the peer's certificate does not name the configured server".into()
        }
        CertificateError::ApplicationVerificationFailure => {
            format!("the peer's certificate has the wrong role; it has to be issued for a {peer} proxy")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("the peer's certificate is not issued for the purpose of a {peer} proxy")
        }
        other => format!("the peer's certificate is not accepted: {other}"),
    }
}

fn alert(description: AlertDescription, peer: Side) -> Refusal {
    let why = match description {
        AlertDescription::CertificateExpired => {
            "it has expired, says the peer; issue a new one (or check the clocks)"
        }
        AlertDescription::CertificateRevoked => "it is revoked",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it is not issued by the peer's CA; use the same CA on both sides"
        }
        AlertDescription::CertificateRequired => "none was presented",
        AlertDescription::AccessDenied => "it is issued for the wrong role",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => "the peer finds it not valid for this purpose or name",
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            return Refusal::new(
                Reason::PeerIncompatible,
                format!("the {peer} end has no TLS 1.3 in common with us"),
            );
        }
        other => return Refusal::absent(format!("the peer ended the TLS connection: {other:?}")),
    };
    Refusal::new(Reason::PeerUnauthorised, format!("the peer does not accept our certificate: {why}"))
}

fn date(time: UnixTime) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    humantime::format_rfc3339_seconds(time).to_string()
}
