//! Where session keys come from, and who was given them: counts and names of sources, never keys or users.

use crate::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// One file or command that secrets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySourceStatus {
    /// The file's path, or the command's name.
    pub name: String,
    pub kind: KeySourceKind,
    /// Whether a command brings it.
    pub by_command: bool,
    /// Kerberos keys in use of it.
    pub service_keys: u64,
    /// NT hashes in use of it.
    pub nt_hashes: u64,
    /// Entries that hold nothing usable.
    pub skipped: u64,
    /// When that was loaded; `None` when nothing has been.
    pub loaded_at: Option<SystemTime>,
    /// Why the last attempt failed, if it did. Names files, never what is in them.
    pub error: Option<String>,
    /// How often it has been loaded since the start.
    pub loads: u64,
    /// How often loading has failed since the start.
    pub failures: u64,
}

/// What a source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySourceKind {
    Keytab,
    PasswordHashes,
}

impl KeySourceKind {
    /// JSON and console word.
    pub fn label(self) -> &'static str {
        match self {
            KeySourceKind::Keytab => "keytab",
            KeySourceKind::PasswordHashes => "password_hashes",
        }
    }
}

/// Result and reason of decisions on session keys, as metric labels.
pub(crate) type Verdict = (&'static str, &'static str);

const RELEASED: &str = "released";

/// Decisions on session keys, by the label of the peer that asked.
#[derive(Default)]
pub(crate) struct KeyReleases(Mutex<BTreeMap<(Arc<str>, Verdict), u64>>);

impl KeyReleases {
    /// Counts a release, or a refusal for a reason out of a fixed set.
    pub(crate) fn count(&self, peer: Arc<str>, refused: Option<&'static str>) {
        let verdict = refused.map_or((RELEASED, "none"), |reason| ("refused", reason));
        *lock(&self.0).entry((peer, verdict)).or_default() += 1;
    }

    /// Releases and refusals, all peers and reasons together.
    pub(crate) fn sums(&self) -> (u64, u64) {
        let counts = lock(&self.0);
        let (mut released, mut refused) = (0, 0);
        for ((_, (result, _)), n) in counts.iter() {
            *if *result == RELEASED { &mut released } else { &mut refused } += n;
        }
        (released, refused)
    }

    pub(crate) fn counts(&self) -> BTreeMap<(Arc<str>, Verdict), u64> {
        lock(&self.0).clone()
    }
}
