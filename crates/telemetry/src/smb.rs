//! What is known of SMB on a connection, for the console, and counted by what is done with its sessions.

use crate::limits::{SMB_SESSIONS_FOLLOWED_MAX, SMB_SHARES_MAX, TEXT_CHARS_MAX};
use crate::text;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// What is done with an SMB connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SmbState {
    /// Encrypted; the session's keys are held, so it crosses the WAN as structure.
    EncryptedKeys,
    /// Signed; the session's keys are held.
    SignedKeys,
    /// Signed; reduced byte for byte.
    SignedNoKeys,
    /// Neither signed nor encrypted; reduced.
    Clear,
    /// Encrypted, and nothing can be read.
    EncryptedNoKeys,
    /// What came is not SMB.
    NotSmb,
    /// SMB 1, or CIFS.
    Smb1,
}

impl SmbState {
    pub const ALL: [SmbState; 7] = [
        SmbState::EncryptedKeys,
        SmbState::SignedKeys,
        SmbState::SignedNoKeys,
        SmbState::Clear,
        SmbState::EncryptedNoKeys,
        SmbState::NotSmb,
        SmbState::Smb1,
    ];

    /// Metric label and JSON word.
    pub fn label(self) -> &'static str {
        match self {
            SmbState::EncryptedKeys => "encrypted_keys",
            SmbState::SignedKeys => "signed_keys",
            SmbState::SignedNoKeys => "signed_no_keys",
            SmbState::Clear => "clear",
            SmbState::EncryptedNoKeys => "encrypted_no_keys",
            SmbState::NotSmb => "not_smb",
            SmbState::Smb1 => "smb1",
        }
    }

    /// Whether a connection in this state has no session that could be counted, so that it counts itself.
    fn is_sessionless(self) -> bool {
        matches!(self, SmbState::NotSmb | SmbState::Smb1)
    }
}

/// In words, as the console shows it.
impl fmt::Display for SmbState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SmbState::EncryptedKeys => "encrypted, keys",
            SmbState::SignedKeys => "signed, keys",
            SmbState::SignedNoKeys => "signed, no keys: reduced",
            SmbState::Clear => "clear: reduced",
            SmbState::EncryptedNoKeys => "encrypted, no keys: relayed",
            SmbState::NotSmb => "not SMB",
            SmbState::Smb1 => "SMB1: relayed",
        })
    }
}

/// A dialect revision as it stands in NEGOTIATE (MS-SMB2 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SmbDialect(pub u16);

/// `3.1.1`; a revision that is not known, in hex.
impl fmt::Display for SmbDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0x0202 => f.write_str("2.0.2"),
            0x0210 => f.write_str("2.1"),
            0x0300 => f.write_str("3.0"),
            0x0302 => f.write_str("3.0.2"),
            0x0311 => f.write_str("3.1.1"),
            other => write!(f, "{other:#06x}"),
        }
    }
}

/// How messages are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SmbSigning {
    HmacSha256,
    AesCmac,
    AesGmac,
}

impl SmbSigning {
    /// The algorithm of this number in the signing capabilities (MS-SMB2 2.2.3.1.7).
    pub fn from_wire(id: u16) -> Option<SmbSigning> {
        match id {
            0 => Some(SmbSigning::HmacSha256),
            1 => Some(SmbSigning::AesCmac),
            2 => Some(SmbSigning::AesGmac),
            _ => None,
        }
    }

    /// JSON and console word.
    pub fn label(self) -> &'static str {
        match self {
            SmbSigning::HmacSha256 => "HMAC-SHA256",
            SmbSigning::AesCmac => "AES-CMAC",
            SmbSigning::AesGmac => "AES-GMAC",
        }
    }
}

/// How messages are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SmbCipher {
    Aes128Ccm,
    Aes128Gcm,
    Aes256Ccm,
    Aes256Gcm,
}

impl SmbCipher {
    /// The cipher of this number in the encryption capabilities (MS-SMB2 2.2.3.1.2).
    pub fn from_wire(id: u16) -> Option<SmbCipher> {
        match id {
            1 => Some(SmbCipher::Aes128Ccm),
            2 => Some(SmbCipher::Aes128Gcm),
            3 => Some(SmbCipher::Aes256Ccm),
            4 => Some(SmbCipher::Aes256Gcm),
            _ => None,
        }
    }

    /// JSON, console and label word.
    pub fn label(self) -> &'static str {
        match self {
            SmbCipher::Aes128Ccm => "AES-128-CCM",
            SmbCipher::Aes128Gcm => "AES-128-GCM",
            SmbCipher::Aes256Ccm => "AES-256-CCM",
            SmbCipher::Aes256Gcm => "AES-256-GCM",
        }
    }
}

/// What is known of SMB on one connection: of its session, and of the last one to be described where there are several.
///
/// Names go to the console and its JSON only, never into metrics. Keys have no place here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmbInfo {
    pub state: SmbState,
    /// `SessionId` of the session that this describes; 0 while there is none. Each is counted once a connection.
    pub session: u64,
    pub dialect: Option<SmbDialect>,
    /// `None` when messages are not signed.
    pub signing: Option<SmbSigning>,
    /// `None` when messages are not encrypted.
    pub cipher: Option<SmbCipher>,
    /// `DOMAIN\user`; empty while not known.
    pub user: String,
    /// The server as the client calls it; empty while not known.
    pub server: String,
    /// Shares that are connected.
    pub shares: Vec<String>,
    /// Why it is not optimised, or not as far as it could be; empty when it is.
    pub reason: String,
}

impl SmbInfo {
    /// A connection in this state, of which nothing else is known yet.
    pub fn new(state: SmbState) -> SmbInfo {
        SmbInfo {
            state,
            session: 0,
            dialect: None,
            signing: None,
            cipher: None,
            user: String::new(),
            server: String::new(),
            shares: Vec::new(),
            reason: String::new(),
        }
    }

    /// The same, fit to be kept and shown: names come from the network.
    pub(crate) fn cleaned(mut self) -> SmbInfo {
        for name in [&mut self.user, &mut self.server, &mut self.reason] {
            *name = text::clean(name, TEXT_CHARS_MAX);
        }
        self.shares.truncate(SMB_SHARES_MAX);
        for share in &mut self.shares {
            *share = text::clean(share, TEXT_CHARS_MAX);
        }
        self
    }
}

/// SMB on one connection, and which of its sessions have been counted.
#[derive(Debug, Default)]
pub(crate) struct SmbProgress {
    pub info: Option<SmbInfo>,
    counted: HashSet<u64>,
}

impl SmbProgress {
    /// Takes a new description; says whether it is of a session that has not been counted yet.
    pub(crate) fn set(&mut self, info: SmbInfo) -> bool {
        let may_count = info.session != 0 || info.state.is_sessionless();
        let is_new =
            may_count && self.counted.len() < SMB_SESSIONS_FOLLOWED_MAX && self.counted.insert(info.session);
        self.info = Some(info);
        is_new
    }
}

/// State and cipher, the labels of `isthmus_smb_connections`.
pub type SmbKey = (SmbState, Option<SmbCipher>);

/// Connections and sessions by what is done with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmbTotals {
    /// Live connections.
    pub connections: BTreeMap<SmbKey, u64>,
    /// Sessions since the start; connections without any count as one.
    pub sessions: BTreeMap<SmbState, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_counted_once_however_often_it_is_described() {
        let mut smb = SmbProgress::default();
        let of = |state, session| SmbInfo { session, ..SmbInfo::new(state) };
        assert!(!smb.set(of(SmbState::Clear, 0)), "nobody has logged on yet");
        assert!(smb.set(of(SmbState::EncryptedKeys, 7)));
        assert!(smb.set(of(SmbState::EncryptedNoKeys, 8)));
        assert!(!smb.set(of(SmbState::EncryptedNoKeys, 7)));
        assert_eq!(smb.info.as_ref().map(|info| info.session), Some(7));
        let mut other = SmbProgress::default();
        assert!(other.set(of(SmbState::NotSmb, 0)));
        assert!(!other.set(of(SmbState::NotSmb, 0)));
    }

    #[test]
    fn a_client_that_logs_on_without_end_is_followed_within_bounds() {
        let mut smb = SmbProgress::default();
        for session in 1..=SMB_SESSIONS_FOLLOWED_MAX as u64 + 10 {
            smb.set(SmbInfo { session, ..SmbInfo::new(SmbState::Clear) });
        }
        assert_eq!(smb.counted.len(), SMB_SESSIONS_FOLLOWED_MAX);
    }

    #[test]
    fn names_from_the_network_are_made_harmless() {
        let shares = (0..SMB_SHARES_MAX + 5).map(|n| format!("share{n}\u{1b}[2J")).collect();
        let info = SmbInfo { user: "A\nB".into(), shares, ..SmbInfo::new(SmbState::Clear) }.cleaned();
        assert_eq!((info.user.as_str(), info.shares.len()), ("A B", SMB_SHARES_MAX));
        assert_eq!(info.shares[0], "share0 [2J");
    }

    #[test]
    fn wire_numbers_are_those_of_the_document() {
        assert_eq!(SmbDialect(0x0311).to_string(), "3.1.1");
        assert_eq!(SmbDialect(0x02ff).to_string(), "0x02ff");
        let ciphers: Vec<_> = (0..6).filter_map(SmbCipher::from_wire).map(SmbCipher::label).collect();
        assert_eq!(ciphers, ["AES-128-CCM", "AES-128-GCM", "AES-256-CCM", "AES-256-GCM"]);
        let signing: Vec<_> = (0..6).filter_map(SmbSigning::from_wire).map(SmbSigning::label).collect();
        assert_eq!(signing, ["HMAC-SHA256", "AES-CMAC", "AES-GMAC"]);
    }
}
