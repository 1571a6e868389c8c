use std::fmt;

/// Kerberos encryption types that are supported, by their registered numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncryptionType {
    /// aes128-cts-hmac-sha1-96 (17, RFC 3962).
    Aes128Sha1,
    /// aes256-cts-hmac-sha1-96 (18, RFC 3962).
    Aes256Sha1,
    /// aes128-cts-hmac-sha256-128 (19, RFC 8009).
    Aes128Sha256,
    /// aes256-cts-hmac-sha384-192 (20, RFC 8009).
    Aes256Sha384,
    /// rc4-hmac (23, RFC 4757).
    Rc4Hmac,
}

impl EncryptionType {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Aes256Sha384, Self::Aes128Sha256, Self::Aes256Sha1, Self::Aes128Sha1, Self::Rc4Hmac];

    /// The type with this number; `None` when it is not supported.
    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|encryption| i64::from(encryption.number()) == number)
    }

    /// Its registered number.
    pub fn number(self) -> u16 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
            Self::Rc4Hmac => 23,
        }
    }

    /// Length of its keys.
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 | Self::Rc4Hmac => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Its registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha256 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha384 => "aes256-cts-hmac-sha384-192",
            Self::Rc4Hmac => "rc4-hmac",
        }
    }
}

impl fmt::Display for EncryptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
