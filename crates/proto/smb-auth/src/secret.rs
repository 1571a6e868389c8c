use crate::limits::HASHES_TRIED_MAX;
use crate::name::fold;
use crate::{EncryptionType, Principal};
use md4::{Digest, Md4};
use std::cmp::Reverse;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Key of one SMB session as the two ends agreed on it (`ExportedSessionKey`, MS-NLMP 3.4.5.1; the GSS-API session key,
/// MS-KILE 3.1.1.2): 16 or 32 bytes.
///
/// `Session.SessionKey` of MS-SMB2 is its first 16 bytes, `Session.FullSessionKey` all of it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey(Zeroizing<Vec<u8>>);

impl SessionKey {
    pub(crate) fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The key itself: never to be logged or kept.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({} bytes)", self.0.len())
    }
}

/// NT hash of a password: MD4 of its UTF-16LE form (MS-NLMP 3.3.1, `NTOWFv1`). As good as the password itself.
#[derive(Clone, PartialEq, Eq)]
pub struct NtHash(Box<[u8; 16]>); // On the heap, so that moving it leaves no copy behind.

impl NtHash {
    /// Takes the 16 bytes of a hash.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(Box::new(bytes))
    }

    /// Makes the hash of a password.
    pub fn of_password(password: &str) -> Self {
        let units = password.encode_utf16().flat_map(u16::to_le_bytes);
        let wide = Zeroizing::new(units.collect::<Vec<u8>>());
        Self::new(Md4::digest(wide.as_slice()).into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

impl Drop for NtHash {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for NtHash {}

/// NT hash of one account.
#[derive(Clone, Debug)]
pub struct AccountHash {
    /// Name of the account without its domain.
    pub user: String,
    /// Domain or realm, where the source named one.
    pub domain: Option<String>,
    /// Key version, where the source has one; 0 otherwise.
    pub version: u32,
    /// Hash of the account's password.
    pub hash: NtHash,
}

impl AccountHash {
    /// `DOMAIN\user`, or `user` where no domain is known.
    pub fn account(&self) -> String {
        match &self.domain {
            Some(domain) => format!("{domain}\\{}", self.user),
            None => self.user.clone(),
        }
    }
}

/// Long-term Kerberos key of a principal, as a keytab holds it.
#[derive(Clone)]
pub struct ServiceKey {
    /// Whose key it is.
    pub principal: Principal,
    /// Key version number (`kvno`).
    pub version: u32,
    /// Encryption type, which also tells the length of the key.
    pub encryption: EncryptionType,
    key: Zeroizing<Vec<u8>>,
}

impl ServiceKey {
    /// Makes a key; `None` when its length is not that of its encryption type.
    pub fn new(
        principal: Principal,
        version: u32,
        encryption: EncryptionType,
        key: Zeroizing<Vec<u8>>,
    ) -> Option<Self> {
        (key.len() == encryption.key_bytes()).then_some(Self { principal, version, encryption, key })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKey({self})")
    }
}

/// `cifs/files.example.com@EXAMPLE.COM, version 3, aes256-cts-hmac-sha1-96`
impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, version {}, {}", self.principal, self.version, self.encryption)
    }
}

/// Where an [`Exchange`](crate::Exchange) finds the secrets to try. It tries the likeliest first, and no more than
/// [`HASHES_TRIED_MAX`](crate::limits::HASHES_TRIED_MAX) hashes or
/// [`SERVICE_KEYS_TRIED_MAX`](crate::limits::SERVICE_KEYS_TRIED_MAX) keys.
pub trait Secrets {
    /// All hashes held under this user name, of whatever domain and in any order. The name has no domain part.
    fn nt_hashes(&self, user: &str) -> Vec<&AccountHash>;

    /// Keys of this encryption type that may open a ticket for `service`, in any order: those of its host or account,
    /// and others, since a service may run under an account whose name says nothing of it.
    fn service_keys(&self, service: &Principal, encryption: EncryptionType) -> Vec<&ServiceKey>;

    /// Whether any key is held for the host or account that `service` names, of whatever encryption type.
    fn knows_service(&self, service: &Principal) -> bool;
}

/// Hashes to try for a user as a client names it, the likeliest first. A user may have the form `user@domain`, where
/// the domain is empty.
pub(crate) fn candidates<'s>(secrets: &'s dyn Secrets, user: &str, domain: &str) -> Vec<&'s AccountHash> {
    let (user, domain) = match user.split_once('@') {
        Some((user, suffix)) if domain.is_empty() => (user, suffix),
        _ => (user, domain),
    };
    let domain = fold(domain);
    let rank = |account: &AccountHash| match account.domain.as_deref().map(fold) {
        Some(named) if named == domain => 0,
        Some(named) if same_domain(&named, &domain) => 1,
        None => 2,
        Some(_) => 3,
    };
    let mut found = secrets.nt_hashes(user);
    found.sort_by_key(|account| (rank(account), Reverse(account.version)));
    found.truncate(HASHES_TRIED_MAX);
    found
}

/// Whether two folded names can mean one domain: `WAN` is the first label of `WAN.TEST`.
///
/// It need not be so, and is used for the order of trying only; the client's proof decides.
fn same_domain(one: &str, other: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    !one.is_empty() && !other.is_empty() && first(one) == first(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretSet;

    fn set(accounts: impl IntoIterator<Item = (&'static str, Option<&'static str>, u32)>) -> SecretSet {
        let mut set = SecretSet::default();
        for (user, domain, version) in accounts {
            let (user, domain) = (user.to_owned(), domain.map(str::to_owned));
            set.add_account(AccountHash { user, domain, version, hash: NtHash::of_password("p") });
        }
        set
    }

    fn order(set: &SecretSet, user: &str, domain: &str) -> Vec<String> {
        candidates(set, user, domain).iter().map(|account| account.account()).collect()
    }

    #[test]
    fn hashes_of_the_named_domain_come_first_and_case_does_not_matter() {
        let set =
            set([Some("OTHER"), None, Some("wan.test"), Some("WAN")].map(|domain| ("Alice", domain, 0)));
        assert_eq!(order(&set, "ALICE", "wan"), ["WAN\\Alice", "wan.test\\Alice", "Alice", "OTHER\\Alice"]);
        assert_eq!(order(&set, "alice@wan.test", "")[0], "wan.test\\Alice");
        assert!(order(&set, "bob", "WAN").is_empty());
    }

    #[test]
    fn newer_versions_come_first_and_their_number_is_bounded() {
        let set = set((0..100).map(|version| ("alice", Some("WAN"), version)));
        let found = candidates(&set, "alice", "WAN");
        let versions: Vec<_> = found.iter().map(|account| account.version).collect();
        assert_eq!(versions, (100 - HASHES_TRIED_MAX as u32..100).rev().collect::<Vec<_>>());
    }
}
