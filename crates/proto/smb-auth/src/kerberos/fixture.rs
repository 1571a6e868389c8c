//! A key distribution centre, a client and a server in small, for tests: they write what the rest of this folder reads.

use super::crypto::{Usage, checksum, tests::encrypt};
use super::{EncryptionType, Principal, Sid};
use crate::ServiceKey;
use zeroize::Zeroizing;

pub(crate) const SERVICE: &str = "cifs/files.wan.test@WAN.TEST";
pub(crate) const REALM: &str = "WAN.TEST";

/// How an exchange is to look.
pub(crate) struct Plan {
    /// Type of the service's key and of the ticket's session key.
    pub(crate) encryption: EncryptionType,
    pub(crate) options: u8,
    pub(crate) user: &'static str,
    /// Key of the client's authenticator, if it is to have one.
    pub(crate) initiator: Option<Vec<u8>>,
    /// Key of the server's reply, if it is to have one.
    pub(crate) acceptor: Option<Vec<u8>>,
    /// AuthorizationData of the ticket.
    pub(crate) authorization: Option<Vec<u8>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            encryption: EncryptionType::Aes256Sha1,
            options: 0x20,
            user: "alice",
            initiator: None,
            acceptor: None,
            authorization: None,
        }
    }
}

impl Plan {
    pub(crate) fn service_key(&self) -> ServiceKey {
        let key = Zeroizing::new(vec![0x42; self.encryption.key_bytes()]);
        ServiceKey::new(Principal::parse(SERVICE), 3, self.encryption, key).unwrap()
    }

    pub(crate) fn session_key(&self) -> Vec<u8> {
        vec![0x17; self.encryption.key_bytes()]
    }

    /// AP-REQ without a GSS-API wrapper.
    pub(crate) fn request(&self) -> Vec<u8> {
        let key = self.key(&self.session_key());
        let data = self.authorization.as_deref().map(|data| tlv(0xaa, data));
        let part = [
            field(0, &tlv(3, &[0; 5])),
            field(1, &key),
            field(2, &text(REALM)),
            field(3, &name(&[self.user])),
            data.unwrap_or_default(),
        ];
        let ticket = tlv(0x63, &sequence(&part));
        let ticket = sequence(&[
            field(0, &[2, 1, 5]),
            field(1, &text(REALM)),
            field(2, &name(&["cifs", "files.wan.test"])),
            field(3, &self.sealed(self.service_key().as_bytes(), Usage::Ticket, &ticket, Some(3))),
        ]);
        let subkey = self.initiator.as_ref().map(|key| field(6, &self.key(key))).unwrap_or_default();
        let authenticator = sequence(&[field(0, &[2, 1, 5]), subkey, field(7, &[2, 1, 9])]);
        let authenticator = tlv(0x62, &authenticator);
        let body = sequence(&[
            field(0, &[2, 1, 5]),
            field(1, &[2, 1, 14]),
            field(2, &[3, 5, 0, self.options, 0, 0, 0]),
            field(3, &tlv(0x61, &ticket)),
            field(4, &self.sealed(&self.session_key(), Usage::Authenticator, &authenticator, None)),
        ]);
        tlv(0x6e, &body)
    }

    /// AP-REP without a GSS-API wrapper.
    pub(crate) fn reply(&self) -> Vec<u8> {
        let subkey = self.acceptor.as_ref().map(|key| field(2, &self.key(key))).unwrap_or_default();
        let part = sequence(&[field(0, &tlv(0x18, b"20260101000000Z")), field(1, &[2, 1, 1]), subkey]);
        let part = self.sealed(&self.session_key(), Usage::Reply, &tlv(0x7b, &part), None);
        let body = sequence(&[field(0, &[2, 1, 5]), field(1, &[2, 1, 15]), field(2, &part)]);
        tlv(0x6f, &body)
    }

    fn key(&self, bytes: &[u8]) -> Vec<u8> {
        let kind = match bytes.len() {
            32 => 18,
            _ => self.encryption.number() as u8,
        };
        sequence(&[field(0, &[2, 1, kind]), field(1, &tlv(4, bytes))])
    }

    fn sealed(&self, key: &[u8], usage: Usage, plain: &[u8], version: Option<u8>) -> Vec<u8> {
        let text = encrypt(self.encryption, key, usage, plain);
        sequence(&[
            field(0, &[2, 1, self.encryption.number() as u8]),
            version.map(|version| field(1, &[2, 1, version])).unwrap_or_default(),
            field(2, &tlv(4, &text)),
        ])
    }
}

/// AuthorizationData with a PAC in an AD-IF-RELEVANT container, as domain controllers write it.
pub(crate) fn authorization(pac: &[u8]) -> Vec<u8> {
    let element =
        |kind: &[u8], data: &[u8]| sequence(&[sequence(&[field(0, &tlv(2, kind)), field(1, &tlv(4, data))])]);
    element(&[1], &element(&[0, 128], pac))
}

/// A PAC with the user's groups and a server signature by `key`.
pub(crate) fn pac(user: u32, groups: &[u32], extra: &[Sid], key: &ServiceKey) -> Vec<u8> {
    let logon = logon_info(user, groups, extra);
    let (kind, value) = checksum(key.encryption, key.as_bytes(), Usage::PacSignature, b"");
    let signature = [&kind.to_le_bytes()[..], &vec![0; value.len()]].concat();
    let heads = 8 + 2 * 16;
    let logon_room = logon.len().next_multiple_of(8);
    let mut pac = [2u32.to_le_bytes(), [0; 4]].concat();
    for (kind, size, at) in [(1, logon.len(), heads), (6, signature.len(), heads + logon_room)] {
        pac.extend([u32::to_le_bytes(kind), (size as u32).to_le_bytes()].concat());
        pac.extend((at as u64).to_le_bytes());
    }
    pac.extend(&logon);
    pac.resize(heads + logon_room, 0);
    pac.extend(&signature);
    let (_, value) = checksum(key.encryption, key.as_bytes(), Usage::PacSignature, &pac);
    let start = pac.len() - value.len();
    pac[start..].copy_from_slice(&value);
    pac
}

fn logon_info(user: u32, groups: &[u32], extra: &[Sid]) -> Vec<u8> {
    let (none, some) = ([0u8; 8], [2, 0, 2, 0, 1, 0, 0, 0]);
    let mut fixed = vec![0; 20 + 48];
    fixed.extend(some);
    fixed.extend(none.repeat(5));
    fixed.extend([0; 4]);
    for number in [user, 513, groups.len() as u32, 1, 0] {
        fixed.extend(number.to_le_bytes());
    }
    fixed.extend([0; 16]);
    fixed.extend(none);
    fixed.extend(some);
    fixed.extend(1u32.to_le_bytes());
    fixed.extend([0; 40]);
    for number in [extra.len() as u32, u32::from(!extra.is_empty()), 0, 0, 0] {
        fixed.extend(number.to_le_bytes());
    }
    let name = [1u32, 0, 1].map(u32::to_le_bytes).concat();
    fixed.extend([&name[..], b"a\0\0\0"].concat());
    fixed.extend((groups.len() as u32).to_le_bytes());
    groups.iter().for_each(|group| fixed.extend([group.to_le_bytes(), [7, 0, 0, 0]].concat()));
    fixed.extend([&name[..], b"W\0\0\0"].concat());
    fixed.extend(sid(&Sid { authority: 5, parts: vec![21, 1, 2, 3] }));
    if !extra.is_empty() {
        fixed.extend((extra.len() as u32).to_le_bytes());
        extra.iter().for_each(|_| fixed.extend([1, 0, 0, 0, 7, 0, 0, 0]));
        extra.iter().for_each(|one| fixed.extend(sid(one)));
    }
    fixed
}

fn sid(sid: &Sid) -> Vec<u8> {
    let count = sid.parts.len() as u8;
    let mut bytes = vec![count, 0, 0, 0, 1, count];
    bytes.extend(&sid.authority.to_be_bytes()[2..]);
    sid.parts.iter().for_each(|part| bytes.extend(part.to_le_bytes()));
    bytes
}

pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[tag, 0x84][..], &length, content].concat()
}

pub(crate) fn sequence(fields: &[Vec<u8>]) -> Vec<u8> {
    tlv(0x30, &fields.concat())
}

pub(crate) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    tlv(0xa0 | number, content)
}

fn text(text: &str) -> Vec<u8> {
    tlv(0x1b, text.as_bytes())
}

fn name(components: &[&str]) -> Vec<u8> {
    let strings: Vec<_> = components.iter().map(|component| text(component)).collect();
    sequence(&[field(0, &[2, 1, 1]), field(1, &sequence(&strings))])
}
