//! A policy as it travels and is kept: the text of a configuration, its name and version, and the authority's signature.

use serde::{Deserialize, Serialize};

use crate::limits::{NAME_BYTES_MAX, POLICY_BYTES_MAX};

/// Keeps signatures of policies apart from whatever else the authority's key signs.
const CONTEXT: &[u8] = b"isthmus policy v1\0";

/// What agents of one policy are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedPolicy {
    pub name: String,
    /// Grows with every policy that is issued, over all names, so that an older one is never taken for news.
    pub version: u64,
    /// A client-side proxy's configuration (TOML), without what belongs to the machine.
    pub text: String,
    /// The authority's signature over [`SignedPolicy::statement`]: ECDSA with P-256 and SHA-256, ASN.1, in hexadecimal digits.
    pub signature: String,
}

impl SignedPolicy {
    /// The bytes that are signed.
    pub fn statement(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let mut bytes = CONTEXT.to_vec();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(self.text.as_bytes());
        bytes
    }

    /// The signature's bytes, unless it is not written as one.
    pub fn signature(&self) -> Option<Vec<u8>> {
        hex::decode(&self.signature).ok()
    }

    /// Whether name and text are within their limits.
    pub fn is_bounded(&self) -> bool {
        !self.name.is_empty() && self.name.len() <= NAME_BYTES_MAX && self.text.len() <= POLICY_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_policies_share_a_statement() {
        let policy = |name: &str, version, text: &str| SignedPolicy {
            name: name.into(),
            version,
            text: text.into(),
            signature: String::new(),
        };
        let all = [policy("a", 1, "bc"), policy("ab", 1, "c"), policy("a", 2, "bc"), policy("a", 1, "b")];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other.statement() != one.statement()));
        }
        assert!(!policy("", 1, "").is_bounded());
        assert!(!policy("a", 1, &"x".repeat(POLICY_BYTES_MAX + 1)).is_bounded());
    }
}
