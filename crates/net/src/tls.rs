use crate::beat::next_beat;
use crate::fleet::{FLEET_ALPN, OptionalCertificate};
use crate::identity::Identity;
use crate::limits;
use crate::verifier::PeerVerifier;
use arc_swap::ArcSwap;
use isthmus_types::Side;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::server::ServerSessionMemoryCache;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// Where the TLS material lies: PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificates of the authorities that may issue the peer's certificate.
    pub ca: PathBuf,
    /// This proxy's certificate, and any intermediates after it.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Revocation list, if there is one.
    pub crl: Option<PathBuf>,
}

/// Why TLS material cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsSourceError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    /// A file does not hold what it should.
    #[error("{path}: expected {expected}")]
    Content { path: PathBuf, expected: &'static str },
    /// The certificate is for the other side, or for none.
    #[error(
        "{path}: the certificate is not issued for a {expected} proxy (subject alternative name urn:isthmus:role:{expected})"
    )]
    Role { path: PathBuf, expected: Side },
    /// Certificate, key, authorities and revocation list do not fit together.
    #[error("certificate, key, CA and revocation list do not fit together: {0}")]
    Mismatch(String),
}

/// TLS material that follows its files: looked at every few seconds, loaded again when they change.
///
/// New handshakes use the new material; live peers are checked against it and dropped when they no longer pass. Files
/// that cannot be used leave the old material in force and are reported by [`TlsSource::problem`].
pub struct TlsSource {
    files: TlsFiles,
    side: Side,
    current: ArcSwap<Material>,
    stamp: Mutex<Vec<Stamp>>,
    problem: Mutex<Option<String>>,
    changes: watch::Sender<u64>,
    watched: AtomicBool,
}

/// One state of the files, ready for use.
pub(crate) struct Material {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// For calls of agents, on either side.
    pub(crate) fleet_client: Arc<ClientConfig>,
    pub(crate) fleet_server: Arc<ServerConfig>,
    pub(crate) verifier: Arc<PeerVerifier>,
    identity: Identity,
}

type Stamp = Option<(SystemTime, u64)>;

impl TlsSource {
    /// Loads the files of the proxy on `side`.
    ///
    /// # Errors
    /// When a file is missing, is no PEM of the right kind, or does not fit the others.
    pub fn load(files: TlsFiles, side: Side) -> Result<Arc<TlsSource>, TlsSourceError> {
        let stamp = stamp(&files);
        let material = Material::load(&files, side)?;
        if material.identity.not_after < SystemTime::now() {
            tracing::warn!(certificate = %files.certificate.display(), "this proxy's certificate has expired");
        }
        Ok(Arc::new(TlsSource {
            files,
            side,
            current: ArcSwap::from_pointee(material),
            stamp: Mutex::new(stamp),
            problem: Mutex::new(None),
            changes: watch::Sender::new(0),
            watched: AtomicBool::new(false),
        }))
    }

    /// Loads the files again, whether or not they have changed.
    ///
    /// # Errors
    /// As [`TlsSource::load`]; the material in force stays.
    pub fn reload(&self) -> Result<(), TlsSourceError> {
        let stamp = stamp(&self.files);
        *lock(&self.stamp) = stamp;
        let outcome = Material::load(&self.files, self.side);
        *lock(&self.problem) = outcome.as_ref().err().map(ToString::to_string);
        self.current.store(Arc::new(outcome?));
        self.changes.send_modify(|generation| *generation += 1);
        tracing::info!(certificate = %self.files.certificate.display(), "TLS files loaded again");
        Ok(())
    }

    /// What this proxy's own certificate says.
    pub fn identity(&self) -> Identity {
        self.current.load().identity.clone()
    }

    /// Why the files as they are now cannot be used, if so; an older state of them is then in force.
    pub fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }

    pub(crate) fn current(&self) -> Arc<Material> {
        self.current.load_full()
    }

    /// Tells of every change of the material in force.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Starts looking at the files, once however often it is called. Ends with the last other user of the source.
    pub(crate) fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let source = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(next_beat(limits::TLS_POLL_INTERVAL)).await;
                let Some(source) = source.upgrade() else { return };
                source.look();
            }
        });
    }

    fn look(&self) {
        let changed = *lock(&self.stamp) != stamp(&self.files);
        if changed && let Err(error) = self.reload() {
            tracing::error!(%error, "changed TLS files cannot be used; the former ones stay in force");
        }
    }
}

impl Material {
    fn load(files: &TlsFiles, side: Side) -> Result<Material, TlsSourceError> {
        let mut roots = RootCertStore::empty();
        let authorities = certificates(&files.ca)?;
        for root in &authorities {
            roots.add(root.clone()).map_err(mismatch)?;
        }
        let chain = certificates(&files.certificate)?;
        let identity = chain.first().and_then(Identity::of).ok_or_else(|| TlsSourceError::Content {
            path: files.certificate.clone(),
            expected: "a certificate with a common name",
        })?;
        if identity.role != Some(side) {
            return Err(TlsSourceError::Role { path: files.certificate.clone(), expected: side });
        }
        let peer = if side == Side::Client { Side::Server } else { Side::Client };
        let provider = provider();
        let verifier =
            PeerVerifier::new(Arc::new(roots), crls(files)?, provider.clone(), peer).map_err(mismatch)?;
        let verifier = Arc::new(verifier);
        let key = key(&files.key)?;
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(mismatch)?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(mismatch)?;
        let mut fleet_client = client.clone();
        fleet_client.resumption = Resumption::disabled();
        fleet_client.alpn_protocols = vec![FLEET_ALPN.to_vec()];
        client.resumption = Resumption::in_memory_sessions(limits::TLS_SESSIONS_MAX);
        // Who calls for the first time knows the authority by its fingerprint only, so it has to come along.
        let with_authorities = [chain.as_slice(), &authorities].concat();
        let mut fleet_server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(mismatch)?
            .with_client_cert_verifier(Arc::new(OptionalCertificate(verifier.clone())))
            .with_single_cert(with_authorities, key.clone_key())
            .map_err(mismatch)?;
        fleet_server.alpn_protocols = vec![FLEET_ALPN.to_vec()];
        fleet_server.send_tls13_tickets = 0;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(mismatch)?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(chain, key)
            .map_err(mismatch)?;
        server.session_storage = ServerSessionMemoryCache::new(limits::TLS_SESSIONS_MAX);
        Ok(Material {
            client: Arc::new(client),
            server: Arc::new(server),
            fleet_client: Arc::new(fleet_client),
            fleet_server: Arc::new(fleet_server),
            verifier,
            identity,
        })
    }
}

/// The small key exchanges, since a handshake is WAN bytes, and AES-128 before AES-256, since it costs a third less.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let provider = aws_lc_rs::default_provider();
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        ..provider
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsSourceError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(|| TlsSourceError::Content {
        path: path.into(),
        expected: "one or more PEM certificates",
    })
}

fn crls(files: &TlsFiles) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsSourceError> {
    let Some(path) = &files.crl else { return Ok(Vec::new()) };
    let pem = read(path)?;
    CertificateRevocationListDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|lists| !lists.is_empty())
        .ok_or_else(|| TlsSourceError::Content { path: path.clone(), expected: "a PEM revocation list" })
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsSourceError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| TlsSourceError::Content { path: path.into(), expected: "a PEM private key" })
}

/// Reads a file of bounded size; zeroised when dropped, since it may be a key.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsSourceError> {
    let failed = |error| TlsSourceError::File { path: path.into(), error };
    let file = fs::File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len().min(limits::TLS_FILE_BYTES_MAX);
    // Room for the whole file at once, so that no copy of a key is left behind by growth.
    let mut content = Zeroizing::new(Vec::with_capacity(len as usize + 1));
    file.take(limits::TLS_FILE_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}

fn stamp(files: &TlsFiles) -> Vec<Stamp> {
    let paths = [Some(&files.ca), Some(&files.certificate), Some(&files.key), files.crl.as_ref()];
    let stamp =
        |path: &PathBuf| fs::metadata(path).ok().and_then(|meta| Some((meta.modified().ok()?, meta.len())));
    paths.into_iter().flatten().map(stamp).collect()
}

fn mismatch(error: impl ToString) -> TlsSourceError {
    TlsSourceError::Mismatch(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
