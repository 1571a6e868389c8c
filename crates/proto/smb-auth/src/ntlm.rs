//! NTLMv2 (MS-NLMP): the three messages as far as the session key needs them, and the key.

use crate::limits::AV_PAIRS_MAX;
use crate::name::WideName;
use crate::{AccountHash, Failure, Mic, NtHash, SessionKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use rc4::{Rc4, StreamCipher};
use zeroize::Zeroizing;

const NEGOTIATE_UNICODE: u32 = 0x0000_0001;
const NEGOTIATE_ANONYMOUS: u32 = 0x0000_0800;
const NEGOTIATE_KEY_EXCH: u32 = 0x4000_0000;

const AV_END: u16 = 0;
const AV_FLAGS: u16 = 6;
const AV_TARGET_NAME: u16 = 9;
/// MsvAvFlags: the message has an integrity code.
const AV_FLAG_MIC: u32 = 2;
const MIC_RANGE: std::ops::Range<usize> = 72..88;

/// CHALLENGE_MESSAGE (MS-NLMP 2.2.1.2).
pub(crate) struct Challenge {
    challenge: [u8; 8],
    /// Name of the server or its domain.
    pub(crate) target: WideName,
}

/// AUTHENTICATE_MESSAGE (MS-NLMP 2.2.1.3).
pub(crate) struct Authenticate<'a> {
    message: &'a [u8],
    flags: u32,
    pub(crate) user: WideName,
    pub(crate) domain: WideName,
    pub(crate) workstation: WideName,
    nt_response: &'a [u8],
    lm_response: &'a [u8],
    wrapped_key: &'a [u8],
    /// Service that the client meant to reach, from the response's attributes.
    pub(crate) target: Option<WideName>,
    has_mic: bool,
}

impl Challenge {
    pub(crate) fn parse(message: &[u8]) -> Result<Self, Failure> {
        let read = || {
            let flags = u32_at(message, 20)?;
            let challenge = *message.get(24..32)?.first_chunk()?;
            Some(Self { challenge, target: name(field(message, 12)?, flags)? })
        };
        read().ok_or(Failure::Malformed("NTLM CHALLENGE"))
    }
}

impl<'a> Authenticate<'a> {
    pub(crate) fn parse(message: &'a [u8]) -> Result<Self, Failure> {
        Self::read(message).ok_or(Failure::Malformed("NTLM AUTHENTICATE"))
    }

    fn read(message: &'a [u8]) -> Option<Self> {
        let flags = u32_at(message, 60)?;
        let nt_response = field(message, 20)?;
        let attributes = Attributes::read(nt_response);
        Some(Self {
            message,
            flags,
            user: name(field(message, 36)?, flags)?,
            domain: name(field(message, 28)?, flags)?,
            workstation: name(field(message, 44)?, flags)?,
            nt_response,
            lm_response: field(message, 12)?,
            wrapped_key: field(message, 52)?,
            target: attributes.target,
            has_mic: attributes.has_mic && message.len() >= MIC_RANGE.end,
        })
    }

    /// Whether this is a logon that leaves no key, or a kind of response that is not supported.
    pub(crate) fn unsupported(&self) -> Option<Failure> {
        // An anonymous client sends one zero byte as LM response, or nothing (MS-NLMP 3.2.5.1.2).
        let no_response = self.nt_response.is_empty() && self.lm_response.len() <= 1;
        if self.user.is_empty() && (no_response || self.flags & NEGOTIATE_ANONYMOUS != 0) {
            Some(Failure::Anonymous)
        } else if self.nt_response.len() <= 24 {
            Some(Failure::NtlmV1)
        } else if self.nt_response.len() < 44 {
            Some(Failure::Malformed("NTLMv2 response"))
        } else {
            None
        }
    }

    /// The session key (MS-NLMP 3.3.2, 3.4.5.1) and the account whose hash the response proves to be right.
    pub(crate) fn recover<'s>(
        &self,
        challenge: &Challenge,
        candidates: &[&'s AccountHash],
    ) -> Result<(SessionKey, &'s AccountHash), Failure> {
        if let Some(failure) = self.unsupported() {
            return Err(failure);
        }
        let missing = if candidates.is_empty() { Failure::UnknownUser } else { Failure::WrongHash };
        let (account, base) = self.prove(challenge, candidates).ok_or(missing)?;
        Ok((self.exported(base)?, account))
    }

    /// The first candidate that fits, and its session base key.
    fn prove<'s>(
        &self,
        challenge: &Challenge,
        candidates: &[&'s AccountHash],
    ) -> Option<(&'s AccountHash, Zeroizing<[u8; 16]>)> {
        let (proof, blob) = self.nt_response.split_first_chunk::<16>()?;
        let domain = self.domain.utf16le();
        let users: Vec<_> = self.user.capitals().iter().map(WideName::utf16le).collect();
        candidates.iter().find_map(|&account| {
            users.iter().find_map(|user| {
                let response_key = response_key(&account.hash, user, &domain);
                let made = hmac_md5(response_key.as_slice(), &[&challenge.challenge, blob]);
                verify_slices_are_equal(made.as_slice(), proof).ok()?;
                Some((account, hmac_md5(response_key.as_slice(), &[proof])))
            })
        })
    }

    fn exported(&self, base: Zeroizing<[u8; 16]>) -> Result<SessionKey, Failure> {
        let mut key = Zeroizing::new(base.to_vec());
        if self.flags & NEGOTIATE_KEY_EXCH != 0 {
            let wrapped: &[u8; 16] =
                self.wrapped_key.try_into().map_err(|_| Failure::Malformed("NTLM session key"))?;
            key.copy_from_slice(wrapped);
            rc4(base.as_slice(), &mut key).ok_or(Failure::Malformed("NTLM session key"))?;
        }
        Ok(SessionKey::new(key))
    }

    /// Checks the message integrity code, which covers all three messages.
    pub(crate) fn mic(&self, negotiate: &[u8], challenge: &[u8], key: &SessionKey) -> Mic {
        let (true, Some(mic)) = (self.has_mic, self.message.get(MIC_RANGE)) else { return Mic::Absent };
        let (Some(before), Some(after)) =
            (self.message.get(..MIC_RANGE.start), self.message.get(MIC_RANGE.end..))
        else {
            return Mic::Absent;
        };
        let made = hmac_md5(key.as_bytes(), &[negotiate, challenge, before, &[0; 16], after]);
        if verify_slices_are_equal(made.as_slice(), mic).is_ok() { Mic::Right } else { Mic::Wrong }
    }
}

/// HMAC-MD5 over the parts one after the other.
pub(crate) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 16]> {
    // A key of any length is taken; the error exists for other kinds of codes.
    let Ok(mut code) = Hmac::<Md5>::new_from_slice(key) else { return Zeroizing::new([0; 16]) };
    parts.iter().for_each(|part| code.update(part));
    Zeroizing::new(code.finalize().into_bytes().into())
}

/// NTOWFv2 (MS-NLMP 3.3.2), with the user's name already in capitals.
fn response_key(hash: &NtHash, user: &[u8], domain: &[u8]) -> Zeroizing<[u8; 16]> {
    hmac_md5(hash.as_bytes(), &[user, domain])
}

fn rc4(key: &[u8], data: &mut [u8]) -> Option<()> {
    Rc4::new_from_slice(key).ok()?.try_apply_keystream(data).ok()
}

/// What the attribute-value pairs of an NTLMv2 response say (MS-NLMP 2.2.2.1, 2.2.2.7).
#[derive(Default)]
struct Attributes {
    target: Option<WideName>,
    has_mic: bool,
}

impl Attributes {
    fn read(nt_response: &[u8]) -> Self {
        let mut found = Self::default();
        let mut rest = nt_response.get(16 + 28..).unwrap_or_default();
        for _ in 0..AV_PAIRS_MAX {
            let Some((&[a, b, c, d], after)) = rest.split_first_chunk::<4>() else { break };
            let (kind, length) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            let Some((value, after)) = after.split_at_checked(usize::from(length)) else { break };
            match kind {
                AV_END => break,
                AV_FLAGS => found.has_mic = u32_at(value, 0).is_some_and(|flags| flags & AV_FLAG_MIC != 0),
                AV_TARGET_NAME => {
                    found.target = WideName::from_utf16le(value).filter(|name| !name.is_empty())
                }
                _ => {}
            }
            rest = after;
        }
        found
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// Value of a field whose length, maximum length and offset stand at `at`.
fn field(message: &[u8], at: usize) -> Option<&[u8]> {
    let length = usize::from(u16::from_le_bytes(*message.get(at..)?.first_chunk()?));
    if length == 0 {
        return Some(&[]); // Offsets of empty fields may be anything.
    }
    let start = usize::try_from(u32_at(message, at + 4)?).ok()?;
    message.get(start..start.checked_add(length)?)
}

fn name(bytes: &[u8], flags: u32) -> Option<WideName> {
    if flags & NEGOTIATE_UNICODE != 0 { WideName::from_utf16le(bytes) } else { WideName::from_oem(bytes) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const FLAGS: u32 = NEGOTIATE_UNICODE | NEGOTIATE_KEY_EXCH;
    const CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

    /// A client in small: what it sends, and the session key it means.
    pub(crate) struct Client {
        pub(crate) flags: u32,
        /// User name as sent, and as written in capitals.
        pub(crate) user: (&'static str, &'static str),
        pub(crate) password: &'static str,
    }

    impl Client {
        fn nt_response(&self, target: &str) -> (Vec<u8>, Zeroizing<[u8; 16]>) {
            let key = response_key(&NtHash::of_password(self.password), &wide(self.user.1), &wide("WAN"));
            let target = wide(target);
            let flags = [AV_FLAGS.to_le_bytes(), [4, 0], [2, 0], [0, 0]].concat();
            let head = [AV_TARGET_NAME.to_le_bytes(), (target.len() as u16).to_le_bytes()].concat();
            let blob = [&[1u8, 1][..], &[0; 26], &flags, &head, &target, &[0; 8]].concat();
            let proof = hmac_md5(key.as_slice(), &[&CHALLENGE, &blob]);
            ([proof.as_slice(), &blob].concat(), hmac_md5(key.as_slice(), &[proof.as_slice()]))
        }

        /// AUTHENTICATE_MESSAGE with an integrity code over `before`, and the exported session key.
        pub(crate) fn authenticate(&self, before: &[u8]) -> (Vec<u8>, Vec<u8>) {
            let (response, base) = self.nt_response("cifs/files");
            let (wrapped, exported) = if self.flags & NEGOTIATE_KEY_EXCH == 0 {
                (Vec::new(), base.to_vec())
            } else {
                let mut wrapped = vec![0x55; 16];
                rc4(base.as_slice(), &mut wrapped).unwrap();
                (wrapped, vec![0x55; 16])
            };
            let (user, domain) = (wide(self.user.0), wide("WAN"));
            let mut message =
                message(self.flags, [&[0; 24], &response, &domain, &user, &wide("PC"), &wrapped]);
            let mic = hmac_md5(&exported, &[before, &message]);
            message[MIC_RANGE].copy_from_slice(mic.as_slice());
            (message, exported)
        }
    }

    /// AUTHENTICATE_MESSAGE with these values of LM response, NT response, domain, user, workstation and key.
    pub(crate) fn message(flags: u32, values: [&[u8]; 6]) -> Vec<u8> {
        let mut message = b"NTLMSSP\0\x03\0\0\0".to_vec();
        let mut at = 88u32;
        for value in values {
            let length = (value.len() as u16).to_le_bytes();
            message.extend([length, length].concat());
            message.extend(at.to_le_bytes());
            at += value.len() as u32;
        }
        message.extend(flags.to_le_bytes());
        message.resize(88, 0);
        values.iter().for_each(|value| message.extend_from_slice(value));
        message
    }

    pub(crate) fn challenge() -> Vec<u8> {
        let mut message = b"NTLMSSP\0\x02\0\0\0".to_vec();
        message.extend([6, 0, 6, 0, 48, 0, 0, 0, 1, 0, 0, 0]);
        message.extend(CHALLENGE);
        message.resize(48, 0);
        message.extend(wide("WAN"));
        message
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn held(password: &str) -> AccountHash {
        let hash = NtHash::of_password(password);
        AccountHash { user: "any".to_owned(), domain: None, version: 0, hash }
    }

    fn recover(message: &[u8], accounts: &[&AccountHash]) -> Result<Vec<u8>, Failure> {
        let challenge = Challenge::parse(&challenge())?;
        let found = Authenticate::parse(message)?.recover(&challenge, accounts)?;
        Ok(found.0.as_bytes().to_vec())
    }

    // User "User", domain "Domain", password "Password": MS-NLMP 4.2.4.
    #[test]
    fn published_values_of_ntlm_v2_are_met() {
        let hash = NtHash::of_password("Password");
        assert_eq!(hex::encode(hash.as_bytes()), "a4f49c406510bdcab6824ee7c30fd852");
        let key = response_key(&hash, &wide("USER"), &wide("Domain"));
        assert_eq!(hex::encode(*key), "0c868a403bfd7a93a3001ef22ef02e3f");
        let names = hex::decode("02000c0044006f006d00610069006e0001000c00530065007200760065007200").unwrap();
        let blob = [&[1u8, 1][..], &[0; 14], &[0xaa; 8], &[0; 4], &names, &[0; 8]].concat();
        let proof = hmac_md5(key.as_slice(), &[&CHALLENGE, &blob]);
        assert_eq!(hex::encode(*proof), "68cd0ab851e51c96aabc927bebef6a1c");
        let base = hmac_md5(key.as_slice(), &[proof.as_slice()]);
        assert_eq!(hex::encode(*base), "8de40ccadbc14a82f15cb0ad0de95ca3");
        let mut exported = hex::decode("c5dad2544fc9799094ce1ce90bc9d03e").unwrap();
        rc4(base.as_slice(), &mut exported).unwrap();
        assert_eq!(exported, [0x55; 16]);
    }

    #[test]
    fn the_key_is_unwrapped_only_where_it_was_exchanged() {
        for flags in [FLAGS, NEGOTIATE_UNICODE] {
            let client = Client { flags, user: ("alice", "ALICE"), password: "p" };
            let (message, exported) = client.authenticate(b"");
            assert_eq!(recover(&message, &[&held("q"), &held("p")]), Ok(exported));
            assert_eq!(recover(&message, &[&held("q")]), Err(Failure::WrongHash));
            assert_eq!(recover(&message, &[]), Err(Failure::UnknownUser));
        }
        let client = Client { flags: NEGOTIATE_UNICODE, user: ("alice", "ALICE"), password: "p" };
        let mut message = client.authenticate(b"").0;
        message[63] |= 0x40; // Claims an exchanged key and has none.
        assert_eq!(recover(&message, &[&held("p")]), Err(Failure::Malformed("NTLM session key")));
    }

    #[test]
    fn names_in_any_capitals_that_clients_use_are_right() {
        for user in
            [("zoë", "ZOË"), ("zoë", "ZOë"), ("groß", "GROß"), ("groß", "GROSS"), ("日本語", "日本語")]
        {
            let (message, exported) = Client { flags: FLAGS, user, password: "p" }.authenticate(b"");
            assert_eq!(recover(&message, &[&held("p")]), Ok(exported), "{user:?}");
        }
    }

    #[test]
    fn the_integrity_code_covers_all_three_messages() {
        let (negotiate, challenge) = (b"NTLMSSP\0\x01\0\0\0".as_slice(), challenge());
        let client = Client { flags: FLAGS, user: ("alice", "ALICE"), password: "p" };
        let (mut message, exported) = client.authenticate(&[negotiate, &challenge].concat());
        let key = SessionKey::new(Zeroizing::new(exported));
        let mic = |message: &[u8], negotiate: &[u8]| {
            Authenticate::parse(message).unwrap().mic(negotiate, &challenge, &key)
        };
        assert_eq!(mic(&message, negotiate), Mic::Right);
        assert_eq!(mic(&message, b"other"), Mic::Wrong);
        message[MIC_RANGE.start] ^= 1;
        assert_eq!(mic(&message, negotiate), Mic::Wrong);
    }

    #[test]
    fn logons_without_a_key_and_old_responses_are_named() {
        let make = |user: &str, nt: &[u8], lm: &[u8], flags| {
            recover(&message(FLAGS | flags, [lm, nt, b"", &wide(user), b"", b""]), &[]).unwrap_err()
        };
        assert_eq!(make("", b"", b"\0", NEGOTIATE_ANONYMOUS), Failure::Anonymous);
        assert_eq!(make("", b"", b"", 0), Failure::Anonymous);
        assert_eq!(make("alice", &[1; 24], &[1; 24], 0), Failure::NtlmV1);
        assert_eq!(make("alice", b"", &[1; 24], 0), Failure::NtlmV1);
        assert_eq!(make("alice", &[1; 40], b"", 0), Failure::Malformed("NTLMv2 response"));
        assert_eq!(make("alice", &[1; 44], b"", 0), Failure::UnknownUser);
    }

    #[test]
    fn fields_outside_the_message_are_refused() {
        let client = Client { flags: FLAGS, user: ("alice", "ALICE"), password: "p" };
        let (good, _) = client.authenticate(b"");
        for at in [12, 20, 28, 36, 44, 52] {
            let mut bad = good.clone();
            bad[at + 4..at + 8].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(Authenticate::parse(&bad).is_err(), "{at}");
        }
        for end in 0..good.len() {
            assert!(Authenticate::parse(&good[..end]).is_err(), "{end}");
        }
    }
}
