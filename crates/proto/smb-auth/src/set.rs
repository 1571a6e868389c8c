use crate::limits::SERVICE_KEYS_TRIED_MAX;
use crate::name::fold;
use crate::{AccountHash, EncryptionType, NtHash, Principal, Secrets, ServiceKey, keytab, smbpasswd};
use std::collections::HashMap;
use std::fmt;

/// What a keytab or password hash file gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Kerberos keys.
    pub service_keys: usize,
    /// NT hashes; the RC4-HMAC keys of user principals count here too, since they are the same thing.
    pub nt_hashes: usize,
    /// Entries that hold nothing usable: other encryption types, accounts disabled or without a password.
    pub skipped: usize,
}

/// Where in a file an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bytes from the start of the file.
    Offset(usize),
    /// Line, counted from 1.
    Line(usize),
    /// The file as a whole.
    File,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset(offset) => write!(f, "at byte {offset}: "),
            Self::Line(line) => write!(f, "line {line}: "),
            Self::File => Ok(()),
        }
    }
}

/// What is wrong with a keytab or password hash file. Its text never holds anything from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{problem}; expected {expected}")]
pub struct FormatError {
    /// Where it is wrong.
    pub place: Place,
    /// What is wrong.
    pub problem: &'static str,
    /// What should stand there.
    pub expected: &'static str,
}

/// Secrets held in memory. Names are compared without regard to case.
#[derive(Default)]
pub struct SecretSet {
    /// By user name.
    accounts: HashMap<String, Vec<AccountHash>>,
    services: Vec<ServiceKey>,
    /// Places in `services`, by the host or account that a principal stands for.
    by_owner: HashMap<String, Vec<usize>>,
}

impl SecretSet {
    /// Adds all keys of a keytab (MIT format, version 0x502). After an error nothing has been added.
    pub fn add_keytab(&mut self, bytes: &[u8]) -> Result<Loaded, FormatError> {
        let file = keytab::parse(bytes)?;
        let mut loaded = Loaded { skipped: file.skipped, ..Loaded::default() };
        for key in file.keys {
            loaded.nt_hashes += usize::from(self.add_service_key(key));
            loaded.service_keys += 1;
        }
        Ok(loaded)
    }

    /// Adds all accounts of a file in smbpasswd form. After an error nothing has been added.
    pub fn add_password_file(&mut self, bytes: &[u8]) -> Result<Loaded, FormatError> {
        let file = smbpasswd::parse(bytes)?;
        let loaded = Loaded { nt_hashes: file.accounts.len(), skipped: file.skipped, ..Loaded::default() };
        file.accounts.into_iter().for_each(|account| self.add_account(account));
        Ok(loaded)
    }

    /// Adds one account.
    pub fn add_account(&mut self, account: AccountHash) {
        self.accounts.entry(fold(&account.user)).or_default().push(account);
    }

    /// Adds one Kerberos key, and says whether it is an NT hash too: the RC4-HMAC key of a user is one (RFC 4757).
    pub fn add_service_key(&mut self, key: ServiceKey) -> bool {
        let hash = account_of(&key);
        let is_hash = hash.is_some();
        hash.into_iter().for_each(|account| self.add_account(account));
        self.by_owner.entry(key.principal.owner()).or_default().push(self.services.len());
        self.services.push(key);
        is_hash
    }

    /// Moves everything from `other` into this set.
    pub fn merge(&mut self, other: SecretSet) {
        let offset = self.services.len();
        self.services.extend(other.services);
        for (owner, places) in other.by_owner {
            self.by_owner.entry(owner).or_default().extend(places.into_iter().map(|place| place + offset));
        }
        for (user, accounts) in other.accounts {
            self.accounts.entry(user).or_default().extend(accounts);
        }
    }

    /// Number of user names with at least one hash.
    pub fn users(&self) -> usize {
        self.accounts.len()
    }

    /// All Kerberos keys, for a listing of principals, versions and encryption types.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.iter()
    }
}

impl Secrets for SecretSet {
    fn nt_hashes(&self, user: &str) -> Vec<&AccountHash> {
        self.accounts.get(&fold(user)).into_iter().flatten().collect()
    }

    fn service_keys(&self, service: &Principal, encryption: EncryptionType) -> Vec<&ServiceKey> {
        let fits = |key: &&ServiceKey| key.encryption == encryption;
        let owned = self.owned(service);
        let mut found: Vec<_> =
            owned.iter().filter_map(|&place| self.services.get(place)).filter(fits).collect();
        let others =
            self.services.iter().enumerate().filter(|(place, _)| owned.binary_search(place).is_err());
        found.extend(others.map(|(_, key)| key).filter(fits).take(SERVICE_KEYS_TRIED_MAX));
        found
    }

    fn knows_service(&self, service: &Principal) -> bool {
        !self.owned(service).is_empty()
    }
}

impl SecretSet {
    /// Places of the keys whose principal stands for the same host or account as `service`, in rising order.
    fn owned(&self, service: &Principal) -> &[usize] {
        self.by_owner.get(&service.owner()).map_or(&[], Vec::as_slice)
    }
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSet({} users, {} Kerberos keys)", self.users(), self.services.len())
    }
}

/// The account whose NT hash a key is.
fn account_of(key: &ServiceKey) -> Option<AccountHash> {
    let user = key.principal.account_name()?.to_owned();
    let hash = match key.encryption {
        EncryptionType::Rc4Hmac => NtHash::new(key.as_bytes().try_into().ok()?),
        _ => return None,
    };
    let domain = (!key.principal.realm.is_empty()).then(|| key.principal.realm.clone());
    Some(AccountHash { user, domain, version: key.version, hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    fn account(user: &str, domain: Option<&str>, version: u32) -> AccountHash {
        let (user, domain) = (user.to_owned(), domain.map(str::to_owned));
        AccountHash { user, domain, version, hash: NtHash::of_password("p") }
    }

    fn key(principal: &str, version: u32, encryption: EncryptionType) -> ServiceKey {
        let bytes = Zeroizing::new(vec![1; encryption.key_bytes()]);
        ServiceKey::new(Principal::parse(principal), version, encryption, bytes).unwrap()
    }

    #[test]
    fn keys_of_the_host_are_found_and_a_bounded_number_of_others() {
        let encryption = EncryptionType::Aes128Sha1;
        let mut set = SecretSet::default();
        for name in ["svc@W", "FILES$@W", "cifs/files@W", "CIFS/Files@w"] {
            set.add_service_key(key(name, 1, encryption));
        }
        set.add_service_key(key("cifs/files@W", 3, EncryptionType::Rc4Hmac));
        let service = Principal::parse("cifs/files@W");
        let names = |set: &SecretSet| -> Vec<_> {
            set.service_keys(&service, encryption).iter().map(|key| key.principal.to_string()).collect()
        };
        assert_eq!(names(&set), ["FILES$@W", "cifs/files@W", "CIFS/Files@w", "svc@W"]);
        assert!(set.knows_service(&service) && !set.knows_service(&Principal::parse("cifs/svc2@W")));
        for version in 0..200 {
            set.add_service_key(key("x@W", version, encryption));
        }
        assert_eq!(names(&set).len(), 3 + SERVICE_KEYS_TRIED_MAX);
    }

    #[test]
    fn merged_sets_know_what_both_knew() {
        let encryption = EncryptionType::Aes128Sha1;
        let (mut one, mut other) = (SecretSet::default(), SecretSet::default());
        one.add_service_key(key("cifs/files@W", 1, encryption));
        one.add_account(account("alice", None, 0));
        other.add_service_key(key("cifs/other@W", 1, encryption));
        other.add_service_key(key("cifs/files@W", 2, encryption));
        other.add_account(account("ALICE", Some("W"), 0));
        one.merge(other);
        let keys = one.service_keys(&Principal::parse("cifs/files@W"), encryption);
        assert_eq!(keys.iter().map(|key| key.version).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(one.nt_hashes("Alice").len(), 2);
    }
}
