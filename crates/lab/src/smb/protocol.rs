//! What an SMB connection negotiates, in the words of Samba's options and of its programs.

use serde::{Deserialize, Serialize};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// 2.0.2
    #[serde(rename = "2.0.2")]
    Smb202,
    /// 2.1
    #[serde(rename = "2.1")]
    Smb210,
    /// 3.0
    #[serde(rename = "3.0")]
    Smb300,
    /// 3.0.2
    #[serde(rename = "3.0.2")]
    Smb302,
    /// 3.1.1
    #[serde(rename = "3.1.1")]
    Smb311,
}

/// How messages are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SigningAlgorithm {
    /// HMAC-SHA256: the only one of 2.x.
    #[serde(rename = "HMAC-SHA256")]
    HmacSha256,
    /// AES-128-CMAC: the only one of 3.0 and 3.0.2.
    #[serde(rename = "AES-128-CMAC")]
    AesCmac,
    /// AES-128-GMAC: 3.1.1.
    #[serde(rename = "AES-128-GMAC")]
    AesGmac,
}

/// How messages are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cipher {
    /// AES-128-CCM: the only one of 3.0 and 3.0.2.
    #[serde(rename = "AES-128-CCM")]
    Aes128Ccm,
    /// AES-128-GCM: 3.1.1.
    #[serde(rename = "AES-128-GCM")]
    Aes128Gcm,
    /// AES-256-CCM: 3.1.1.
    #[serde(rename = "AES-256-CCM")]
    Aes256Ccm,
    /// AES-256-GCM: 3.1.1.
    #[serde(rename = "AES-256-GCM")]
    Aes256Gcm,
}

/// How the messages of a session are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protected {
    /// Signed with this algorithm.
    Signed(SigningAlgorithm),
    /// Encrypted with this cipher.
    Sealed(Cipher),
}

impl Dialect {
    /// All, oldest first.
    pub const ALL: [Dialect; 5] =
        [Dialect::Smb202, Dialect::Smb210, Dialect::Smb300, Dialect::Smb302, Dialect::Smb311];

    /// Samba's word for it.
    pub fn samba(self) -> &'static str {
        match self {
            Dialect::Smb202 => "SMB2_02",
            Dialect::Smb210 => "SMB2_10",
            Dialect::Smb300 => "SMB3_00",
            Dialect::Smb302 => "SMB3_02",
            Dialect::Smb311 => "SMB3_11",
        }
    }

    /// Its usual name.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Smb202 => "2.0.2",
            Dialect::Smb210 => "2.1",
            Dialect::Smb300 => "3.0",
            Dialect::Smb302 => "3.0.2",
            Dialect::Smb311 => "3.1.1",
        }
    }

    /// Everything that may protect its sessions.
    pub fn protections(self) -> Vec<Protected> {
        use Protected::{Sealed, Signed};
        match self {
            Dialect::Smb202 | Dialect::Smb210 => vec![Signed(SigningAlgorithm::HmacSha256)],
            Dialect::Smb300 | Dialect::Smb302 => {
                vec![Signed(SigningAlgorithm::AesCmac), Sealed(Cipher::Aes128Ccm)]
            }
            Dialect::Smb311 => {
                let signed = SigningAlgorithm::ALL.into_iter().map(Signed);
                signed.chain(Cipher::ALL.into_iter().map(Sealed)).collect()
            }
        }
    }
}

impl SigningAlgorithm {
    /// All.
    pub const ALL: [SigningAlgorithm; 3] =
        [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac, SigningAlgorithm::HmacSha256];

    /// Its name, which is also Samba's.
    pub fn as_str(self) -> &'static str {
        match self {
            SigningAlgorithm::HmacSha256 => "HMAC-SHA256",
            SigningAlgorithm::AesCmac => "AES-128-CMAC",
            SigningAlgorithm::AesGmac => "AES-128-GMAC",
        }
    }
}

impl Cipher {
    /// All.
    pub const ALL: [Cipher; 4] = [Cipher::Aes128Gcm, Cipher::Aes128Ccm, Cipher::Aes256Gcm, Cipher::Aes256Ccm];

    /// Its name, which is also Samba's.
    pub fn as_str(self) -> &'static str {
        match self {
            Cipher::Aes128Ccm => "AES-128-CCM",
            Cipher::Aes128Gcm => "AES-128-GCM",
            Cipher::Aes256Ccm => "AES-256-CCM",
            Cipher::Aes256Gcm => "AES-256-GCM",
        }
    }
}

impl Protected {
    /// The name of the algorithm.
    pub fn as_str(self) -> &'static str {
        match self {
            Protected::Signed(algorithm) => algorithm.as_str(),
            Protected::Sealed(cipher) => cipher.as_str(),
        }
    }

    /// Whether messages are encrypted.
    pub fn is_sealed(self) -> bool {
        matches!(self, Protected::Sealed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_the_protections_of_the_standard() {
        let names = |dialect: Dialect| -> Vec<&str> {
            dialect.protections().into_iter().map(Protected::as_str).collect()
        };
        assert_eq!(names(Dialect::Smb210), ["HMAC-SHA256"]);
        assert_eq!(names(Dialect::Smb302), ["AES-128-CMAC", "AES-128-CCM"]);
        assert_eq!(names(Dialect::Smb311).len(), 7);
        assert!(Dialect::ALL.is_sorted());
    }
}
