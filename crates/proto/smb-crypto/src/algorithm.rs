//! Dialects and algorithm identifiers as they stand on the wire.

use std::fmt;

/// SMB 2 or 3 dialect (MS-SMB2 2.2.3, 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// 2.0.2
    Smb202,
    /// 2.1
    Smb210,
    /// 3.0
    Smb300,
    /// 3.0.2
    Smb302,
    /// 3.1.1
    Smb311,
}

impl Dialect {
    /// The dialect of a DialectRevision; `None` for any other number, the wildcard 0x02FF included.
    pub fn from_u16(revision: u16) -> Option<Self> {
        match revision {
            0x0202 => Some(Dialect::Smb202),
            0x0210 => Some(Dialect::Smb210),
            0x0300 => Some(Dialect::Smb300),
            0x0302 => Some(Dialect::Smb302),
            0x0311 => Some(Dialect::Smb311),
            _ => None,
        }
    }

    /// DialectRevision.
    pub fn as_u16(self) -> u16 {
        match self {
            Dialect::Smb202 => 0x0202,
            Dialect::Smb210 => 0x0210,
            Dialect::Smb300 => 0x0300,
            Dialect::Smb302 => 0x0302,
            Dialect::Smb311 => 0x0311,
        }
    }

    /// The signing algorithm of a connection with this dialect. `negotiated` is what the server's
    /// SMB2_SIGNING_CAPABILITIES chose, if it sent that context; only 3.1.1 heeds it (MS-SMB2 3.1.4.1).
    pub fn signing_algorithm(self, negotiated: Option<SigningAlgorithm>) -> SigningAlgorithm {
        match self {
            Dialect::Smb202 | Dialect::Smb210 => SigningAlgorithm::HmacSha256,
            Dialect::Smb300 | Dialect::Smb302 => SigningAlgorithm::AesCmac,
            Dialect::Smb311 => negotiated.unwrap_or(SigningAlgorithm::AesCmac),
        }
    }

    /// The cipher of a connection with this dialect, if it can encrypt. `negotiated` is what the server's
    /// SMB2_ENCRYPTION_CAPABILITIES chose; only 3.1.1 heeds it. On 3.0 and 3.0.2 the cipher is AES-128-CCM, used
    /// if both sides announced SMB2_GLOBAL_CAP_ENCRYPTION, which the caller knows.
    pub fn cipher(self, negotiated: Option<Cipher>) -> Option<Cipher> {
        match self {
            Dialect::Smb202 | Dialect::Smb210 => None,
            Dialect::Smb300 | Dialect::Smb302 => Some(Cipher::Aes128Ccm),
            Dialect::Smb311 => negotiated,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Smb202 => "2.0.2",
            Dialect::Smb210 => "2.1",
            Dialect::Smb300 => "3.0",
            Dialect::Smb302 => "3.0.2",
            Dialect::Smb311 => "3.1.1",
        })
    }
}

/// Signing algorithm (MS-SMB2 2.2.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SigningAlgorithm {
    /// HMAC-SHA256, cut to 16 bytes.
    HmacSha256,
    /// AES-128-CMAC.
    AesCmac,
    /// AES-128-GMAC.
    AesGmac,
}

impl SigningAlgorithm {
    /// The algorithm of a SigningAlgorithmId; `None` if unknown.
    pub fn from_u16(id: u16) -> Option<Self> {
        match id {
            0x0000 => Some(SigningAlgorithm::HmacSha256),
            0x0001 => Some(SigningAlgorithm::AesCmac),
            0x0002 => Some(SigningAlgorithm::AesGmac),
            _ => None,
        }
    }

    /// SigningAlgorithmId.
    pub fn as_u16(self) -> u16 {
        match self {
            SigningAlgorithm::HmacSha256 => 0x0000,
            SigningAlgorithm::AesCmac => 0x0001,
            SigningAlgorithm::AesGmac => 0x0002,
        }
    }
}

impl fmt::Display for SigningAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SigningAlgorithm::HmacSha256 => "HMAC-SHA256",
            SigningAlgorithm::AesCmac => "AES-CMAC",
            SigningAlgorithm::AesGmac => "AES-GMAC",
        })
    }
}

/// Encryption algorithm (MS-SMB2 2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-128-CCM
    Aes128Ccm,
    /// AES-128-GCM
    Aes128Gcm,
    /// AES-256-CCM
    Aes256Ccm,
    /// AES-256-GCM
    Aes256Gcm,
}

impl Cipher {
    /// The cipher of a CipherId; `None` if unknown, or 0 (no common cipher).
    pub fn from_u16(id: u16) -> Option<Self> {
        match id {
            0x0001 => Some(Cipher::Aes128Ccm),
            0x0002 => Some(Cipher::Aes128Gcm),
            0x0003 => Some(Cipher::Aes256Ccm),
            0x0004 => Some(Cipher::Aes256Gcm),
            _ => None,
        }
    }

    /// CipherId.
    pub fn as_u16(self) -> u16 {
        match self {
            Cipher::Aes128Ccm => 0x0001,
            Cipher::Aes128Gcm => 0x0002,
            Cipher::Aes256Ccm => 0x0003,
            Cipher::Aes256Gcm => 0x0004,
        }
    }

    /// Key length in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Cipher::Aes128Ccm | Cipher::Aes128Gcm => 16,
            Cipher::Aes256Ccm | Cipher::Aes256Gcm => 32,
        }
    }

    /// How many of the transform header's 16 nonce bytes are used (MS-SMB2 2.2.41): 11 for CCM, 12 for GCM.
    pub fn nonce_len(self) -> usize {
        match self {
            Cipher::Aes128Ccm | Cipher::Aes256Ccm => 11,
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => 12,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cipher::Aes128Ccm => "AES-128-CCM",
            Cipher::Aes128Gcm => "AES-128-GCM",
            Cipher::Aes256Ccm => "AES-256-CCM",
            Cipher::Aes256Gcm => "AES-256-GCM",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_map_both_ways_and_only_those() {
        let dialects: Vec<u16> = (0..=u16::MAX).filter(|id| Dialect::from_u16(*id).is_some()).collect();
        assert_eq!(dialects, [0x0202, 0x0210, 0x0300, 0x0302, 0x0311]);
        assert!(dialects.iter().all(|id| Dialect::from_u16(*id).unwrap().as_u16() == *id));

        let signing: Vec<u16> =
            (0..=u16::MAX).filter(|id| SigningAlgorithm::from_u16(*id).is_some()).collect();
        assert_eq!(signing, [0, 1, 2]);
        assert!(signing.iter().all(|id| SigningAlgorithm::from_u16(*id).unwrap().as_u16() == *id));

        let ciphers: Vec<u16> = (0..=u16::MAX).filter(|id| Cipher::from_u16(*id).is_some()).collect();
        assert_eq!(ciphers, [1, 2, 3, 4]);
        assert!(ciphers.iter().all(|id| Cipher::from_u16(*id).unwrap().as_u16() == *id));
    }

    #[test]
    fn only_the_latest_dialect_heeds_what_was_negotiated() {
        let gmac = Some(SigningAlgorithm::AesGmac);
        assert_eq!(Dialect::Smb210.signing_algorithm(gmac), SigningAlgorithm::HmacSha256);
        assert_eq!(Dialect::Smb302.signing_algorithm(gmac), SigningAlgorithm::AesCmac);
        assert_eq!(Dialect::Smb311.signing_algorithm(gmac), SigningAlgorithm::AesGmac);
        assert_eq!(Dialect::Smb311.signing_algorithm(None), SigningAlgorithm::AesCmac);

        let gcm = Some(Cipher::Aes256Gcm);
        assert_eq!(Dialect::Smb210.cipher(gcm), None);
        assert_eq!(Dialect::Smb300.cipher(gcm), Some(Cipher::Aes128Ccm));
        assert_eq!(Dialect::Smb311.cipher(gcm), gcm);
        assert_eq!(Dialect::Smb311.cipher(None), None);
    }
}
