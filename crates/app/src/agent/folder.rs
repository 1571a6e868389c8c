//! What an agent keeps on its machine.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use isthmus_agent::{Enrolled, SignedPolicy};
use isthmus_certs::files::{self, PUBLIC, SECRET};
use isthmus_certs::{CertsError, KeyRequest, Trust};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

const ONLY_OWNER: u32 = 0o700;

/// The agent's directory.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
}

/// Whose this laptop is. Its presence says that enrolment is complete.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// Name in the certificate.
    pub name: String,
    /// The server side that it has enrolled with, `host:port`.
    pub server: String,
}

/// Why an agent's directory cannot be used.
#[derive(Debug, Error)]
pub(crate) enum FolderError {
    #[error("this machine has not enrolled ({} is not there); \"agent enroll\" does", .0.display())]
    NotEnrolled(PathBuf),
    #[error("this machine has enrolled already, as {name:?}; remove {} to enrol anew", dir.display())]
    Enrolled { name: String, dir: PathBuf },
    #[error(transparent)]
    Certs(#[from] CertsError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {why}", path.display())]
    BadFile { path: PathBuf, why: String },
    /// The policy is not what the authority signed, or not one that this version understands.
    #[error("the policy cannot be followed: {0}")]
    Policy(String),
}

impl Folder {
    pub fn new(dir: &Path) -> Folder {
        Folder { dir: dir.to_path_buf() }
    }

    /// Keys of the configuration that are about this machine, with the paths that they have here.
    pub fn keys(&self) -> [(&'static str, PathBuf); 6] {
        [
            ("tls.certificate", self.certificate()),
            ("tls.key", self.key()),
            ("tls.ca", self.authority()),
            ("tls.crl", self.revocations()),
            ("store.path", self.dir.join("store")),
            ("store.key_file", self.store_key()),
        ]
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.join("agent.pem")
    }

    fn key(&self) -> PathBuf {
        self.dir.join("agent.key")
    }

    fn authority(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    fn revocations(&self) -> PathBuf {
        self.dir.join("crl.pem")
    }

    fn store_key(&self) -> PathBuf {
        self.dir.join("store.key")
    }

    fn policy_file(&self) -> PathBuf {
        self.dir.join("policy.json")
    }

    fn membership_file(&self) -> PathBuf {
        self.dir.join("enrolled.json")
    }

    pub fn membership(&self) -> Result<Membership, FolderError> {
        let path = self.membership_file();
        if !path.exists() {
            return Err(FolderError::NotEnrolled(path));
        }
        read_json(&path)
    }

    /// Makes the directory for a machine that has not enrolled.
    pub fn prepare(&self) -> Result<(), FolderError> {
        match self.membership() {
            Ok(membership) => {
                return Err(FolderError::Enrolled { name: membership.name, dir: self.dir.clone() });
            }
            Err(FolderError::NotEnrolled(_)) => {}
            Err(error) => return Err(error),
        }
        DirBuilder::new()
            .mode(ONLY_OWNER)
            .recursive(true)
            .create(&self.dir)
            .map_err(|source| FolderError::Io { path: self.dir.clone(), source })
    }

    /// The key and the request that this machine enrols with: those of an earlier attempt, whose answer may have been lost, or
    /// new ones.
    pub fn pending(&self) -> Result<KeyRequest, FolderError> {
        let request_file = self.dir.join("pending.csr");
        if self.key().exists() && request_file.exists() {
            let key = Zeroizing::new(files::read_text(&self.key())?);
            return Ok(KeyRequest { key, request: files::read_text(&request_file)? });
        }
        let fresh = KeyRequest::new("agent")?;
        files::replace(&self.key(), fresh.key.as_bytes(), SECRET)?;
        files::replace(&request_file, fresh.request.as_bytes(), PUBLIC)?;
        Ok(fresh)
    }

    /// A request for another certificate for the key that is here.
    pub fn renewal(&self, name: &str) -> Result<KeyRequest, FolderError> {
        Ok(KeyRequest::of(Zeroizing::new(files::read_text(&self.key())?), name)?)
    }

    /// Keeps what enrolment brought. The membership comes last.
    pub fn keep(&self, enrolled: &Enrolled, server: &str) -> Result<(), FolderError> {
        files::replace(&self.authority(), enrolled.authority.as_bytes(), PUBLIC)?;
        self.keep_revocations(&enrolled.revocations)?;
        self.keep_certificate(&enrolled.certificate)?;
        self.keep_policy(&enrolled.policy)?;
        let membership = Membership { name: enrolled.name.clone(), server: server.to_owned() };
        write_json(&self.membership_file(), &membership)?;
        // What is left of it does no harm.
        let _ = fs::remove_file(self.dir.join("pending.csr"));
        Ok(())
    }

    pub fn keep_certificate(&self, pem: &str) -> Result<(), FolderError> {
        Ok(files::replace(&self.certificate(), pem.as_bytes(), PUBLIC)?)
    }

    /// Keeps a revocation list, if it is one.
    pub fn keep_revocations(&self, pem: &str) -> Result<(), FolderError> {
        let fresh = self.dir.join("crl.pem.new");
        files::replace(&fresh, pem.as_bytes(), PUBLIC)?;
        Trust::load(&self.authority(), Some(&fresh))?;
        let to = self.revocations();
        fs::rename(&fresh, &to).map_err(|source| FolderError::Io { path: to, source })
    }

    /// The revocation list as it is here; empty if there is none.
    pub fn revocation_list(&self) -> String {
        files::read_text(&self.revocations()).unwrap_or_default()
    }

    /// Keeps a policy that has been verified.
    pub fn keep_policy(&self, policy: &SignedPolicy) -> Result<(), FolderError> {
        write_json(&self.policy_file(), policy)
    }

    /// The policy that is here, verified.
    pub fn policy(&self) -> Result<SignedPolicy, FolderError> {
        let policy: SignedPolicy = read_json(&self.policy_file())?;
        self.verify(&policy)?;
        Ok(policy)
    }

    /// Whether the authority has signed a policy.
    pub fn verify(&self, policy: &SignedPolicy) -> Result<(), FolderError> {
        let trust = Trust::load(&self.authority(), None)?;
        let signed = policy
            .signature()
            .is_some_and(|signature| trust.authority_signed(&policy.statement(), &signature));
        if signed && policy.is_bounded() {
            return Ok(());
        }
        Err(FolderError::Policy(format!("{:?} is not signed by the authority", policy.name)))
    }

    /// Removes everything that a revoked laptop must not keep. The store's key first: without it, what is left of the store
    /// cannot be read.
    pub fn erase(&self) -> Vec<FolderError> {
        let files =
            [self.store_key(), self.key(), self.certificate(), self.policy_file(), self.membership_file()];
        let removed = files.into_iter().map(|path| (fs::remove_file(&path), path));
        let store = self.dir.join("store");
        let all = removed.chain(std::iter::once((fs::remove_dir_all(&store), store.clone())));
        all.filter_map(|(outcome, path)| match outcome {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Some(FolderError::Io { path, source }),
            _ => None,
        })
        .collect()
    }
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, FolderError> {
    let bytes = files::read(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| FolderError::BadFile { path: path.to_path_buf(), why: error.to_string() })
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FolderError> {
    let json = serde_json::to_vec_pretty(value)
        .map_err(|error| FolderError::BadFile { path: path.to_path_buf(), why: error.to_string() })?;
    Ok(files::replace(path, &json, SECRET)?)
}
