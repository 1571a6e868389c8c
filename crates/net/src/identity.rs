use aws_lc_rs::digest;
use isthmus_types::Side;
use rustls_pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What a certificate says about its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Common name.
    pub name: String,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// The side that it is issued for (subject alternative name `urn:isthmus:role:client-side` or `…:server-side`).
    pub role: Option<Side>,
    /// End of its validity.
    pub not_after: SystemTime,
}

const ROLE_PREFIX: &str = "urn:isthmus:role:";

impl Identity {
    /// Reads a certificate. `None` when it cannot be parsed or has no common name.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        let not_after = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        Some(Identity {
            name,
            fingerprint: fingerprint(certificate),
            role: role(&parsed),
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(not_after),
        })
    }
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    out
}

fn role(certificate: &X509Certificate<'_>) -> Option<Side> {
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => {
            let role = uri.strip_prefix(ROLE_PREFIX)?;
            [Side::Client, Side::Server].into_iter().find(|side| side.as_str() == role)
        }
        _ => None,
    })
}
