//! Looking at certificates: what is in one, and whether the files a proxy is given will work.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

use crate::authority::time_text;
use crate::error::CertsError;
use crate::files;
use crate::role::Role;

/// How long before its end a certificate is warned about.
pub const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 86_400);

/// Most certificates or lists that one PEM file is read for.
const PEM_ITEMS_MAX: usize = 100;

/// What is in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The common name.
    pub name: String,
    /// The role, if there is exactly one that is known.
    pub role: Option<Role>,
    /// Lower-case hexadecimal digits.
    pub serial: String,
    pub dns: Vec<String>,
    pub ip: Vec<IpAddr>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub(crate) public_key: Vec<u8>,
}

/// The files of a proxy's `[tls]` section.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'p> {
    pub certificate: &'p Path,
    pub key: &'p Path,
    pub ca: &'p Path,
    pub crl: Option<&'p Path>,
}

/// What there is to say about a proxy's files.
#[derive(Debug, Default)]
pub struct Examination {
    /// What is in the proxy's own certificate, if it could be read.
    pub details: Option<Details>,
    /// Why the pair would not connect. Empty if it would.
    pub problems: Vec<Problem>,
    /// What should be seen to.
    pub warnings: Vec<String>,
}

/// One reason why the files will not work.
#[derive(Debug)]
pub struct Problem {
    pub path: PathBuf,
    pub text: String,
    /// Set when the file could not be read at all.
    pub io: Option<std::io::ErrorKind>,
}

impl Details {
    /// Reads one certificate. The error says why it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Details, String> {
        let unreadable = || "it is not a certificate that can be read".to_string();
        let (_, x509) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
        let names = x509.subject_alternative_name().map_err(|_| unreadable())?;
        let names = names.as_ref().map_or(&[][..], |extension| extension.value.general_names.as_slice());
        let mut roles = Vec::new();
        let (mut dns, mut ip) = (Vec::new(), Vec::new());
        for name in names {
            match name {
                GeneralName::URI(uri) => roles.extend(Role::from_uri(uri)),
                GeneralName::DNSName(name) => dns.push((*name).to_string()),
                GeneralName::IPAddress(bytes) => ip.extend(address(bytes)),
                _ => {}
            }
        }
        let common_name = x509.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let time =
            |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Details {
            name: common_name.unwrap_or("").to_string(),
            role: if let [role] = roles[..] { Some(role) } else { None },
            serial: hex::encode(x509.raw_serial()).trim_start_matches("00").to_string(),
            dns,
            ip,
            not_before: time(x509.validity().not_before.timestamp()),
            not_after: time(x509.validity().not_after.timestamp()),
            public_key: x509.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// A warning if the certificate ends within [`EXPIRY_WARNING`] of `now`.
    pub fn expiry_warning(&self, now: SystemTime) -> Option<String> {
        let left = self.not_after.duration_since(now).ok()?;
        (left <= EXPIRY_WARNING).then(|| {
            let days = left.as_secs() / 86_400;
            format!(
                "the certificate of {:?} ends in {days} days, at {}",
                self.name,
                time_text(self.not_after)
            )
        })
    }
}

/// Every certificate of a PEM file, in order.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertsError> {
    let bytes = files::read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).take(PEM_ITEMS_MAX).collect();
    let found = found.map_err(|error| CertsError::bad(path, format!("it is not a PEM file: {error}")))?;
    if found.is_empty() {
        return Err(CertsError::bad(path, "there is no certificate in it"));
    }
    Ok(found)
}

/// Reads a proxy's files as its TLS does, and says everything that would keep the pair from connecting at `now`.
///
/// `role` is the proxy's own. The peer's side is not looked at.
pub fn examine(tls: &TlsFiles<'_>, role: Role, now: SystemTime) -> Examination {
    let mut found = Examination::default();
    let chain = found.keep(read_certificates(tls.certificate));
    let authorities = found.keep(read_certificates(tls.ca));
    let key = found.keep(read_key(tls.key));
    let lists = match tls.crl {
        Some(path) => found.keep(read_lists(path)),
        None => Some(Vec::new()),
    };
    if let Some(chain) = &chain {
        examine_certificate(&mut found, tls, chain, role, now);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    if let (Some(chain), Some(key)) = (&chain, key)
        && let Err(text) = key_fits(chain, key, &provider)
    {
        found.problem(tls.key, text);
    }
    if let (Some(chain), Some(authorities), Some(lists), Some(details)) =
        (&chain, authorities, lists, &found.details)
        && let Err(text) = verify(chain, authorities, lists, role, details, now, provider)
    {
        found.problem(tls.certificate, text);
    }
    if let Ok(metadata) = std::fs::metadata(tls.key)
        && metadata.permissions().mode() & 0o077 != 0
    {
        found
            .warnings
            .push(format!("{}: others than its owner may read this private key", tls.key.display()));
    }
    found
}

impl Examination {
    fn problem(&mut self, path: &Path, text: impl Into<String>) {
        self.problems.push(Problem { path: path.to_path_buf(), text: text.into(), io: None });
    }

    /// The value, or `None` with the error noted.
    fn keep<T>(&mut self, result: Result<T, CertsError>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(CertsError::Io { path, source }) => {
                let text = format!("cannot be read: {source}");
                self.problems.push(Problem { path, text, io: Some(source.kind()) });
            }
            Err(CertsError::BadFile { path, why }) => self.problem(&path, why),
            Err(other) => self.problem(Path::new(""), other.to_string()),
        }
        None
    }
}

fn examine_certificate(
    found: &mut Examination,
    tls: &TlsFiles<'_>,
    chain: &[CertificateDer<'static>],
    role: Role,
    now: SystemTime,
) {
    let Some(first) = chain.first() else { return };
    let details = match Details::of(first) {
        Ok(details) => details,
        Err(why) => return found.problem(tls.certificate, why),
    };
    match details.role {
        Some(other) if other != role => {
            found.problem(tls.certificate, format!("this certificate is for the role {other}, not {role}"));
        }
        Some(_) => {}
        None => found.problem(tls.certificate, format!("this certificate does not carry the role {role}")),
    }
    found.warnings.extend(details.expiry_warning(now));
    found.details = Some(details);
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertsError> {
    let bytes = Zeroizing::new(files::read(path)?);
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| CertsError::bad(path, "there is no private key in it"))
}

pub(crate) fn read_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, CertsError> {
    let bytes = files::read(path)?;
    let lists: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(&bytes).take(PEM_ITEMS_MAX).collect();
    let lists = lists.map_err(|error| CertsError::bad(path, format!("it is not a PEM file: {error}")))?;
    if lists.is_empty() {
        return Err(CertsError::bad(path, "there is no revocation list in it"));
    }
    Ok(lists)
}

fn key_fits(
    chain: &[CertificateDer<'static>],
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<(), String> {
    match rustls::sign::CertifiedKey::from_der(chain.to_vec(), key, provider) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err("this key does not belong to the certificate".into()),
        Err(_) => Err("this key cannot be used".into()),
    }
}

/// Verifies the chain as the peer will.
pub(crate) fn verify(
    chain: &[CertificateDer<'static>],
    authorities: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    role: Role,
    details: &Details,
    now: SystemTime,
    provider: Arc<CryptoProvider>,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority)
            .map_err(|error| format!("the authority's certificate cannot be used: {error}"))?;
    }
    let (first, rest) = chain.split_first().ok_or("there is no certificate in it")?;
    let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    let roots = Arc::new(roots);
    let setup =
        |error: rustls::server::VerifierBuilderError| format!("the certificates cannot be used: {error}");
    let outcome = if role == Role::ServerSide {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .with_crls(lists)
            .build()
            .map_err(setup)?;
        let name = server_name(details).ok_or("this certificate names neither a DNS name nor an address")?;
        verifier.verify_server_cert(first, rest, &name, &[], now).map(|_| ())
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .with_crls(lists)
            .build()
            .map_err(setup)?;
        verifier.verify_client_cert(first, rest, now).map(|_| ())
    };
    outcome.map_err(|error| explain(&error, details))
}

fn server_name(details: &Details) -> Option<ServerName<'static>> {
    let by_name = details.dns.iter().find_map(|name| ServerName::try_from(name.clone()).ok());
    by_name.or_else(|| details.ip.first().map(|ip| ServerName::IpAddress((*ip).into())))
}

/// The usual failures in words that say what to do.
fn explain(error: &rustls::Error, details: &Details) -> String {
    use rustls::CertificateError as E;
    let rustls::Error::InvalidCertificate(error) = error else { return error.to_string() };
    match error {
        E::Expired | E::ExpiredContext { .. } => {
            format!("this certificate ended at {}; issue a new one", time_text(details.not_after))
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            format!(
                "this certificate is not valid before {}; is the clock right?",
                time_text(details.not_before)
            )
        }
        E::Revoked => "this certificate is revoked; issue a new one".into(),
        E::UnknownIssuer | E::BadSignature => "this certificate is not from the authority in tls.ca".into(),
        E::UnknownRevocationStatus => {
            "the revocation list in tls.crl is not from the authority in tls.ca, so nothing can be accepted"
                .into()
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "this certificate's extended key usage does not fit its role".into()
        }
        other => format!("this certificate would be refused: {other:?}"),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
