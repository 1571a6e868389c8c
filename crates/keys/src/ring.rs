use isthmus_smb_auth::{AccountHash, EncryptionType, Principal, SecretSet, Secrets, ServiceKey};
use std::sync::Arc;

/// Everything held at one moment: the sets of all sources. It stays as it is when a source is loaded anew.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    sets: Vec<Arc<SecretSet>>,
}

impl KeyRing {
    /// Makes a ring of these sets.
    pub fn new(sets: Vec<Arc<SecretSet>>) -> Self {
        Self { sets }
    }

    /// All Kerberos keys, for listings.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.sets.iter().flat_map(|set| set.services())
    }

    /// Number of user names with a hash; a name held by two sources counts twice.
    pub fn users(&self) -> usize {
        self.sets.iter().map(|set| set.users()).sum()
    }
}

impl Secrets for KeyRing {
    fn nt_hashes(&self, user: &str) -> Vec<&AccountHash> {
        self.sets.iter().flat_map(|set| set.nt_hashes(user)).collect()
    }

    fn service_keys(&self, service: &Principal, encryption: EncryptionType) -> Vec<&ServiceKey> {
        self.sets.iter().flat_map(|set| set.service_keys(service, encryption)).collect()
    }

    fn knows_service(&self, service: &Principal) -> bool {
        self.sets.iter().any(|set| set.knows_service(service))
    }
}
