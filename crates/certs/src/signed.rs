//! Keys made where they are used, and statements signed by keys of certificates.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SigningKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use zeroize::Zeroizing;

use crate::authority::common_name;
use crate::error::CertsError;
use crate::examine::{Details, read_certificates, verify};
use crate::files;
use crate::role::Role;

/// A new key, and the request by which its holder gets a certificate for it.
pub struct KeyRequest {
    /// The private key (PKCS #8, PEM). Not for the network.
    pub key: Zeroizing<String>,
    /// The certificate request (PKCS #10, PEM).
    pub request: String,
}

impl KeyRequest {
    /// Makes a P-256 key. `name` is what the request says of its holder; whoever issues decides about it.
    pub fn new(name: &str) -> Result<KeyRequest, CertsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        KeyRequest::of(Zeroizing::new(key.serialize_pem()), name)
    }

    /// A request for a key (PEM) that is there already.
    pub fn of(key: Zeroizing<String>, name: &str) -> Result<KeyRequest, CertsError> {
        let pair = KeyPair::from_pem(&key)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        let request = params.serialize_request(&pair)?.pem()?;
        Ok(KeyRequest { key, request })
    }

    /// Whether `certificate` (PEM) is for this key.
    pub fn fits(&self, certificate: &str) -> bool {
        let Ok(key) = KeyPair::from_pem(&self.key) else { return false };
        let Ok(der) = CertificateDer::from_pem_slice(certificate.as_bytes()) else { return false };
        Details::of(&der).is_ok_and(|details| details.public_key == key.public_key_raw())
    }
}

/// Signs statements with the key of a certificate.
pub struct Signer {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

impl Signer {
    /// Reads a certificate and its key from PEM files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Signer, CertsError> {
        let chain = read_certificates(certificate)?;
        let first = chain.into_iter().next();
        let first = first.ok_or_else(|| CertsError::bad(certificate, "there is no certificate in it"))?;
        let pem = Zeroizing::new(files::read_text(key)?);
        let pair = KeyPair::from_pem(&pem)
            .map_err(|_| CertsError::bad(key, "it holds no private key that can be used"))?;
        Ok(Signer { key: pair, certificate: first })
    }

    /// ECDSA with P-256 and SHA-256, ASN.1, for the keys that this project makes.
    pub fn sign(&self, statement: &[u8]) -> Result<Vec<u8>, CertsError> {
        Ok(self.key.sign(statement)?)
    }

    /// The certificate, DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }
}

/// An authority and its revocation list, by which others' statements are judged.
pub struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Trust {
    /// Reads the authority's certificate and, if there is one, its revocation list from PEM files.
    pub fn load(ca: &Path, crl: Option<&Path>) -> Result<Trust, CertsError> {
        let lists = match crl {
            Some(path) => crate::examine::read_lists(path)?,
            None => Vec::new(),
        };
        Ok(Trust { authorities: read_certificates(ca)?, lists })
    }

    /// Whether the authority itself has signed this statement.
    pub fn authority_signed(&self, statement: &[u8], signature: &[u8]) -> bool {
        self.authorities.iter().any(|ca| has_signed(ca, statement, signature))
    }

    /// The name of the holder of `certificate` (DER), if it is valid now, for this role, and its key has signed the statement.
    pub fn holder_signed(
        &self,
        certificate: &[u8],
        role: Role,
        statement: &[u8],
        signature: &[u8],
        now: SystemTime,
    ) -> Result<String, String> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let details = Details::of(&certificate)?;
        if details.role != Some(role) {
            return Err(format!("the certificate of {:?} is not for a {role} proxy", details.name));
        }
        if !has_signed(&certificate, statement, signature) {
            return Err(format!("the signature is not that of {:?}", details.name));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = std::slice::from_ref(&certificate);
        verify(chain, self.authorities.clone(), self.lists.clone(), role, &details, now, provider)?;
        Ok(details.name)
    }
}

/// SHA-256 of a certificate (PEM); `None` if it cannot be read.
pub fn fingerprint(certificate: &str) -> Option<[u8; 32]> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    digest::digest(&digest::SHA256, &der).as_ref().try_into().ok()
}

fn has_signed(certificate: &CertificateDer<'_>, statement: &[u8], signature: &[u8]) -> bool {
    Details::of(certificate).is_ok_and(|details| {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &details.public_key);
        key.verify(statement, signature).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, IssueRequest, Validity};

    fn request(name: &str, role: Role) -> IssueRequest {
        IssueRequest {
            role,
            name: name.into(),
            dns: Vec::new(),
            ip: Vec::new(),
            validity: Validity::Days(30),
        }
    }

    #[test]
    fn a_key_made_elsewhere_gets_a_certificate_with_the_granted_name() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(dir.path(), "Test CA", 100).unwrap();
        let asked = KeyRequest::new("admin").unwrap();
        let (certificate, entry) =
            authority.grant(&request("laptop-1", Role::ClientSide), &asked.request).unwrap();
        assert!(asked.fits(&certificate));
        assert!(!KeyRequest::new("x").unwrap().fits(&certificate));
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let details = Details::of(&der).unwrap();
        assert_eq!((details.name.as_str(), details.role), ("laptop-1", Some(Role::ClientSide)));
        assert_eq!(details.serial, entry.serial);
        assert_eq!(crate::list(dir.path()).unwrap(), [entry], "what was granted can be revoked");
        let mut forged = asked.request.clone();
        let at = forged.len() / 2;
        let other = if &forged[at..=at] == "A" { "B" } else { "A" };
        forged.replace_range(at..=at, other);
        for bad in [forged.as_str(), "", &certificate] {
            assert!(authority.grant(&request("laptop-2", Role::ClientSide), bad).is_err());
        }
        assert_eq!(crate::list(dir.path()).unwrap().len(), 1, "nothing is listed for a refused request");
    }

    #[test]
    fn statements_are_believed_from_the_right_signer_only() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), "Test CA", 100).unwrap();
        let issued =
            authority.issue(&request("branch-7", Role::ClientSide), &dir.path().join("out")).unwrap();
        let trust = Trust::load(&authority.certificate(), Some(&authority.crl())).unwrap();
        let signature = authority.sign(b"one").unwrap();
        assert!(trust.authority_signed(b"one", &signature));
        assert!(!trust.authority_signed(b"two", &signature) && !trust.authority_signed(b"one", b""));

        let signer = Signer::load(&issued.certificate, &issued.key).unwrap();
        let signature = signer.sign(b"one").unwrap();
        let judge = |trust: &Trust, role, statement: &[u8]| {
            trust.holder_signed(signer.certificate(), role, statement, &signature, SystemTime::now())
        };
        assert_eq!(judge(&trust, Role::ClientSide, b"one"), Ok("branch-7".into()));
        assert!(judge(&trust, Role::ServerSide, b"one").is_err());
        assert!(judge(&trust, Role::ClientSide, b"two").is_err());
        assert!(!trust.authority_signed(b"one", &signature), "a holder is not the authority");

        let other = Authority::init(&dir.path().join("other"), "Other CA", 100).unwrap();
        let strangers = Trust::load(&other.certificate(), None).unwrap();
        assert!(judge(&strangers, Role::ClientSide, b"one").is_err());
        authority.revoke("branch-7").unwrap();
        let trust = Trust::load(&authority.certificate(), Some(&authority.crl())).unwrap();
        assert!(judge(&trust, Role::ClientSide, b"one").unwrap_err().contains("revoked"));
    }
}
