//! The authority itself: a directory with a key, a certificate, a revocation list and the list of what was issued.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, RevokedCertParams, SanType, SerialNumber, SigningKey,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::error::CertsError;
use crate::examine::{Details, read_certificates};
use crate::files::{self, PUBLIC, SECRET};
use crate::index::{Entry, INDEX_ENTRIES_MAX, Index, Lock};
use crate::role::Role;

/// Days that a new authority is valid unless told otherwise.
pub const CA_DAYS: u32 = 3650;
/// Days that a certificate is valid unless told otherwise.
pub const LEAF_DAYS: u32 = 365;
/// Most days that anything is valid.
pub const VALIDITY_DAYS_MAX: u32 = 36_500;

/// Longest certificate request, in bytes of PEM.
const KEY_REQUEST_BYTES_MAX: usize = 16 << 10;
/// Longest name of a holder, in bytes (X.520 `ub-common-name`).
const NAME_LEN_MAX: usize = 64;
/// Most DNS names, and most addresses, of one certificate.
const ALTERNATIVE_NAMES_MAX: usize = 100;
/// Certificates start this long ago, so that a peer whose clock is behind accepts them.
const BACKDATED: Duration = Duration::from_secs(86_400);
const DAY: Duration = Duration::from_secs(86_400);
const SERIAL_BYTES: usize = 16;

const CA_CERTIFICATE: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const CRL: &str = "crl.pem";

/// A certificate authority in a directory of its own.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    details: Details,
}

/// What to issue.
#[derive(Clone, Debug)]
pub struct IssueRequest {
    pub role: Role,
    /// 1 to 64 letters, digits, `-`, `_` and `.`; also the stem of the files' names.
    pub name: String,
    /// DNS names that the holder is reached by.
    pub dns: Vec<String>,
    /// Addresses that the holder is reached by.
    pub ip: Vec<IpAddr>,
    pub validity: Validity,
}

/// How long a certificate is to be valid; never outside the authority's own time.
#[derive(Clone, Copy, Debug)]
pub enum Validity {
    /// From yesterday (see clocks) to so many days from now.
    Days(u32),
    /// From one moment to another, both included.
    Between(SystemTime, SystemTime),
}

/// What was issued.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate: PathBuf,
    /// The private key; readable by its owner only.
    pub key: PathBuf,
    /// A copy of the authority's certificate beside them.
    pub ca: PathBuf,
    pub entry: Entry,
    /// Whether the authority's own end cut the time that was asked for.
    pub shortened: bool,
}

impl Authority {
    /// Makes an authority called `name` in `dir`, valid for `days` days, with an empty revocation list.
    ///
    /// `dir` is made if need be; an authority that is there already is left alone ([`CertsError::Exists`]).
    pub fn init(dir: &Path, name: &str, days: u32) -> Result<Authority, CertsError> {
        check_name(name, true)?;
        check_days(days)?;
        make_private_folder(dir)?;
        let _lock = Lock::take(dir)?;
        for file in [CA_KEY, CA_CERTIFICATE] {
            if dir.join(file).exists() {
                return Err(CertsError::Exists(dir.join(file)));
            }
        }
        let now = SystemTime::now();
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&random_serial()?));
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date(now - BACKDATED);
        params.not_after = date(now + DAY * days);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        // The key comes first: without its certificate it is of no use to anybody, and `init` can be run again once it
        // is removed.
        files::create(&dir.join(CA_KEY), Zeroizing::new(key.serialize_pem()).as_bytes(), SECRET)?;
        files::create(&dir.join(CA_CERTIFICATE), certificate.pem().as_bytes(), PUBLIC)?;
        let authority = Authority::open(dir)?;
        let mut index = Index::empty();
        authority.write_crl(&mut index, now)?;
        Ok(authority)
    }

    /// Opens the authority in `dir`, with its key.
    pub fn open(dir: &Path) -> Result<Authority, CertsError> {
        let certificate = dir.join(CA_CERTIFICATE);
        if !certificate.exists() {
            return Err(CertsError::NoAuthority(dir.to_path_buf()));
        }
        let chain = read_certificates(&certificate)?;
        let der =
            chain.first().ok_or_else(|| CertsError::bad(&certificate, "there is no certificate in it"))?;
        let key_path = dir.join(CA_KEY);
        let key_pem = Zeroizing::new(files::read_text(&key_path)?);
        let key = KeyPair::from_pem(&key_pem)
            .map_err(|_| CertsError::bad(&key_path, "it holds no private key that can be used"))?;
        let details = Details::of(der).map_err(|why| CertsError::bad(&certificate, why))?;
        if details.public_key != key.public_key_raw() {
            return Err(CertsError::bad(key_path, "the key does not belong to the authority's certificate"));
        }
        Ok(Authority {
            dir: dir.to_path_buf(),
            issuer: Issuer::from_ca_cert_der(der, key)?,
            certificate_pem: files::read_text(&certificate)?,
            details,
        })
    }

    /// The authority's certificate, to be given to both proxies as `tls.ca`.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(CA_CERTIFICATE)
    }

    /// The authority's revocation list, to be given to both proxies as `tls.crl`.
    pub fn crl(&self) -> PathBuf {
        self.dir.join(CRL)
    }

    /// When the authority's own certificate ends.
    pub fn not_after(&self) -> SystemTime {
        self.details.not_after
    }

    /// Issues a certificate and a key into `out`, as `NAME.pem` and `NAME.key`, with the authority's `ca.pem` beside
    /// them. Nothing is overwritten.
    pub fn issue(&self, request: &IssueRequest, out: &Path) -> Result<Issued, CertsError> {
        request.check()?;
        let (not_before, not_after, shortened) = self.bounded(request.validity)?;
        fs::create_dir_all(out).map_err(CertsError::io(out))?;
        let certificate = out.join(format!("{}.pem", request.name));
        let key = out.join(format!("{}.key", request.name));
        let ca = out.join(CA_CERTIFICATE);
        if let Some(there) = [&certificate, &key].into_iter().find(|path| path.exists()) {
            return Err(CertsError::Exists(there.clone()));
        }
        self.put_ca_beside(&ca)?;
        let key_pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let (signed, entry) = self.sign_and_list(request, &key_pair, (not_before, not_after))?;
        files::create(&key, Zeroizing::new(key_pair.serialize_pem()).as_bytes(), SECRET)?;
        files::create(&certificate, signed.as_bytes(), PUBLIC)?;
        Ok(Issued { certificate, key, ca, entry, shortened })
    }

    /// Issues a certificate (PEM) for a key that was made elsewhere.
    ///
    /// `key_request` is a certificate request (PKCS #10, PEM). Only its key is taken from it, and only if it is a P-256 key
    /// whose holder has signed the request: name, role and time are those of `request`.
    pub fn grant(&self, request: &IssueRequest, key_request: &str) -> Result<(String, Entry), CertsError> {
        request.check()?;
        let (not_before, not_after, _) = self.bounded(request.validity)?;
        if key_request.len() > KEY_REQUEST_BYTES_MAX {
            return Err(CertsError::BadRequest("the certificate request is too long".into()));
        }
        let unusable = |_| {
            CertsError::BadRequest(
                "the certificate request cannot be read, or is not signed by its key".into(),
            )
        };
        let asked = CertificateSigningRequestParams::from_pem(key_request).map_err(unusable)?;
        if asked.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
            return Err(CertsError::BadRequest("the key of a certificate request has to be of P-256".into()));
        }
        self.sign_and_list(request, &asked.public_key, (not_before, not_after))
    }

    /// Signs a statement with the authority's key: ECDSA with P-256 and SHA-256, ASN.1. Whoever calls makes sure that the
    /// statement cannot be taken for one of another kind.
    pub fn sign(&self, statement: &[u8]) -> Result<Vec<u8>, CertsError> {
        Ok(self.issuer.key().sign(statement)?)
    }

    /// The authority's certificate, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's revocation list (PEM) as it is now.
    pub fn crl_pem(&self) -> Result<String, CertsError> {
        files::read_text(&self.crl())
    }

    /// Makes a certificate for a key, lists it, and gives it as PEM.
    fn sign_and_list(
        &self,
        request: &IssueRequest,
        key: &impl PublicKeyData,
        (not_before, not_after): (SystemTime, SystemTime),
    ) -> Result<(String, Entry), CertsError> {
        let _lock = Lock::take(&self.dir)?;
        let mut index = Index::read(&self.dir)?;
        if index.certificates.len() >= INDEX_ENTRIES_MAX {
            return Err(CertsError::TooMany(INDEX_ENTRIES_MAX));
        }
        let serial = unused_serial(&index)?;
        let params = request.params(&serial, not_before, not_after)?;
        let signed = params.signed_by(key, &self.issuer)?;
        let entry = Entry {
            serial: hex::encode(serial),
            name: request.name.clone(),
            role: request.role,
            dns: request.dns.clone(),
            ip: request.ip.clone(),
            not_before,
            not_after,
            revoked: None,
        };
        // It is listed before it exists, so that there is never a certificate that could not be revoked.
        index.certificates.push(entry.clone());
        index.write(&self.dir)?;
        Ok((signed.pem(), entry))
    }

    /// Revokes every certificate with this name, or the one with this serial number, and writes a new revocation list.
    ///
    /// Gives those it was about. Certificates that were revoked before stay so; the list is written anew all the same.
    pub fn revoke(&self, name_or_serial: &str) -> Result<Vec<Entry>, CertsError> {
        let now = SystemTime::now();
        let serial = name_or_serial.replace(':', "").to_ascii_lowercase();
        let _lock = Lock::take(&self.dir)?;
        let mut index = Index::read(&self.dir)?;
        let mut revoked = Vec::new();
        for entry in &mut index.certificates {
            if entry.name == name_or_serial || entry.serial == serial {
                entry.revoked.get_or_insert(whole_seconds(now));
                revoked.push(entry.clone());
            }
        }
        if revoked.is_empty() {
            return Err(CertsError::NotFound(name_or_serial.to_string()));
        }
        self.write_crl(&mut index, now)?;
        Ok(revoked)
    }

    /// Writes the index, then a revocation list with the next number that follows from it. The list is valid as long as
    /// the authority is: proxies get it as a file, and an outdated file must not stop them.
    fn write_crl(&self, index: &mut Index, now: SystemTime) -> Result<(), CertsError> {
        index.crl_number += 1;
        let revoked_certs = index
            .certificates
            .iter()
            .filter_map(|entry| {
                let serial = hex::decode(&entry.serial).ok()?;
                Some(RevokedCertParams {
                    serial_number: SerialNumber::from_slice(&serial),
                    revocation_time: date(entry.revoked?),
                    reason_code: None,
                    invalidity_date: None,
                })
            })
            .collect();
        let params = CertificateRevocationListParams {
            this_update: date(now - BACKDATED),
            next_update: date(self.details.not_after.max(now + DAY)),
            crl_number: SerialNumber::from(index.crl_number),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let pem = params.signed_by(&self.issuer)?.pem()?;
        index.write(&self.dir)?;
        files::replace(&self.crl(), pem.as_bytes(), PUBLIC)
    }

    /// The validity asked for, within the authority's own; and whether its end was cut.
    fn bounded(&self, validity: Validity) -> Result<(SystemTime, SystemTime, bool), CertsError> {
        let now = SystemTime::now();
        let (from, until) = match validity {
            Validity::Days(days) => {
                check_days(days)?;
                (now - BACKDATED, now + DAY * days)
            }
            Validity::Between(from, until) => (from, until),
        };
        let from = whole_seconds(from).max(self.details.not_before);
        let cut = until > self.details.not_after;
        let until = whole_seconds(until).min(self.details.not_after);
        let relative = matches!(validity, Validity::Days(_));
        if relative && (now > self.details.not_after || now < self.details.not_before) {
            return Err(CertsError::AuthorityExpired {
                from: time_text(self.details.not_before),
                until: time_text(self.details.not_after),
            });
        }
        if from >= until {
            return Err(CertsError::BadRequest("the certificate would end before it starts".into()));
        }
        Ok((from, until, cut))
    }

    fn put_ca_beside(&self, path: &Path) -> Result<(), CertsError> {
        match files::create(path, self.certificate_pem.as_bytes(), PUBLIC) {
            Err(CertsError::Exists(_)) if files::read_text(path)? == self.certificate_pem => Ok(()),
            Err(CertsError::Exists(_)) => Err(CertsError::bad(
                path,
                "this is the certificate of another authority; choose another directory",
            )),
            other => other,
        }
    }
}

impl IssueRequest {
    /// Whether a certificate can be issued for this; the error says why not.
    pub fn check(&self) -> Result<(), CertsError> {
        let bad = |text: String| Err(CertsError::BadRequest(text));
        check_name(&self.name, false)?;
        if self.name == "ca" || self.name == "crl" {
            return bad(format!("the name {:?} is taken by the authority's own files", self.name));
        }
        if self.dns.len() > ALTERNATIVE_NAMES_MAX || self.ip.len() > ALTERNATIVE_NAMES_MAX {
            return bad(format!(
                "a certificate has at most {ALTERNATIVE_NAMES_MAX} names and as many addresses"
            ));
        }
        if let Some(name) =
            self.dns.iter().find(|name| rustls_pki_types::DnsName::try_from(name.as_str()).is_err())
        {
            return bad(format!("{name:?} is not a DNS name"));
        }
        if self.role == Role::ServerSide && self.dns.is_empty() && self.ip.is_empty() {
            return bad(
                "a server-side certificate needs at least one DNS name or address: the client-side proxy \
                        checks the one it connects to"
                    .into(),
            );
        }
        Ok(())
    }

    fn params(
        &self,
        serial: &[u8],
        not_before: SystemTime,
        not_after: SystemTime,
    ) -> Result<CertificateParams, CertsError> {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.distinguished_name = common_name(&self.name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.role {
            Role::ServerSide => ExtendedKeyUsagePurpose::ServerAuth,
            Role::ClientSide | Role::Admin => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        params.not_before = date(not_before);
        params.not_after = date(not_after);
        params.subject_alt_names.push(SanType::URI(self.role.uri().try_into()?));
        for name in &self.dns {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.ip.iter().map(|ip| SanType::IpAddress(ip.to_canonical())));
        Ok(params)
    }
}

/// A time as people and machines read it: RFC 3339, to the second, UTC.
pub(crate) fn time_text(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

pub(crate) fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

/// Certificates count in whole seconds.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

fn date(time: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from(whole_seconds(time))
}

fn check_days(days: u32) -> Result<(), CertsError> {
    if (1..=VALIDITY_DAYS_MAX).contains(&days) {
        return Ok(());
    }
    Err(CertsError::BadRequest(format!("a certificate is valid for 1 to {VALIDITY_DAYS_MAX} days")))
}

/// Names become file names and log fields, so they are kept plain. An authority's may have spaces.
fn check_name(name: &str, spaces: bool) -> Result<(), CertsError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || (spaces && b == b' ');
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let bytes = name.as_bytes();
    if bytes.len() <= NAME_LEN_MAX
        && bytes.iter().all(|b| plain(*b))
        && ends(bytes.first().copied())
        && ends(bytes.last().copied())
    {
        return Ok(());
    }
    Err(CertsError::BadRequest(format!(
        "the name {name:?} cannot be used: 1 to {NAME_LEN_MAX} letters, digits, '-', '_' and '.', the first and the last \
         a letter or digit"
    )))
}

fn make_private_folder(dir: &Path) -> Result<(), CertsError> {
    const ONLY_OWNER: u32 = 0o700;
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(CertsError::io(parent))?;
    }
    match fs::DirBuilder::new().mode(ONLY_OWNER).create(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(CertsError::io(dir)),
    }
}

fn unused_serial(index: &Index) -> Result<[u8; SERIAL_BYTES], CertsError> {
    // 126 random bits do not meet by chance; meeting means that the random source is broken.
    let serial = random_serial()?;
    let text = hex::encode(serial);
    if index.certificates.iter().any(|entry| entry.serial == text) {
        return Err(CertsError::Generation("the random number generator repeats itself".into()));
    }
    Ok(serial)
}

/// Positive, and of full length whatever the random bits are (RFC 5280 4.1.2.2).
fn random_serial() -> Result<[u8; SERIAL_BYTES], CertsError> {
    let mut serial = [0; SERIAL_BYTES];
    getrandom::fill(&mut serial).map_err(|error| CertsError::Generation(error.to_string()))?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}
