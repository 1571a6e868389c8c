//! The expiry of the certificates in use, for metrics and the console.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use isthmus_certs::{Details, read_certificates};
use isthmus_telemetry::CertificateKind;

/// The files are read again after this.
const FRESH: Duration = Duration::from_secs(30);
/// Certificates of one file that are shown.
const SHOWN_MAX: usize = 16;

type Listed = Vec<(CertificateKind, String, SystemTime)>;

/// The certificate files of one proxy.
pub(crate) struct Certificates {
    files: [(CertificateKind, PathBuf); 2],
    read: Mutex<Option<(Instant, Listed)>>,
}

impl Certificates {
    pub fn new(tls: &isthmus_config::Tls) -> Certificates {
        let files =
            [(CertificateKind::Own, tls.certificate.clone()), (CertificateKind::Authority, tls.ca.clone())];
        Certificates { files, read: Mutex::default() }
    }

    /// Kind, subject and expiry of each certificate that can be read; those that cannot are the link's trouble.
    pub fn list(&self) -> Listed {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((at, listed)) if at.elapsed() < FRESH => listed.clone(),
            _ => {
                let listed = self.read_files();
                *read = Some((Instant::now(), listed.clone()));
                listed
            }
        }
    }

    fn read_files(&self) -> Listed {
        let mut listed = Vec::new();
        for (kind, path) in &self.files {
            let certificates = read_certificates(path).unwrap_or_default();
            for certificate in certificates.iter().take(SHOWN_MAX) {
                if let Ok(details) = Details::of(certificate) {
                    listed.push((*kind, details.name, details.not_after));
                }
            }
        }
        listed
    }
}
