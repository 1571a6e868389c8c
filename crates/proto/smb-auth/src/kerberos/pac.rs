//! Group membership from a ticket's PAC (MS-PAC).

use super::crypto::{self, Usage};
use crate::ServiceKey;
use crate::der::{INTEGER, OCTET_STRING, Reader, SEQUENCE, integer};
use crate::limits::{AUTHORIZATION_ELEMENTS_MAX, PAC_BUFFERS_MAX, PAC_GROUPS_MAX};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::fmt;

/// Security identifier: `S-1-5-21-…` (MS-DTYP 2.4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sid {
    /// Identifier authority, 48 bits.
    pub authority: u64,
    /// Sub-authorities; the last one is the relative identifier.
    pub parts: Vec<u32>,
}

/// Who a user is, as the domain controller wrote it into the ticket (KERB_VALIDATION_INFO, MS-PAC 2.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// NetBIOS name of the user's domain.
    pub domain: String,
    /// The user's domain.
    pub domain_sid: Sid,
    /// Relative identifier of the user in the domain.
    pub user_rid: u32,
    /// Relative identifiers of the user's groups in the domain, the primary group included.
    pub group_rids: Vec<u32>,
    /// Further memberships: groups of other domains, resource groups and well-known identifiers.
    pub extra_sids: Vec<Sid>,
}

impl Groups {
    /// The administrative account or group by which the user has power over others' files, if there is one.
    ///
    /// Only what the domain controller writes is known: membership of the file server's own local groups is not, unless
    /// it comes by way of a domain group.
    pub fn administrative(&self) -> Option<&'static str> {
        let account = match self.user_rid {
            500 => Some("Administrator"),
            502 => Some("krbtgt"),
            _ => None,
        };
        let of_domain = || self.group_rids.iter().find_map(|&rid| administrative_rid(rid));
        let of_others = || self.extra_sids.iter().find_map(administrative_sid);
        account.or_else(of_domain).or_else(of_others)
    }

    /// Whether the account is a computer's: member of Domain Computers or of the domain controllers' groups.
    pub fn is_machine(&self) -> bool {
        self.group_rids.iter().any(|rid| matches!(rid, 515 | 516 | 521))
    }
}

/// `S-1-5-21-1-2-3-512`
impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S-1-{}", self.authority)?;
        self.parts.iter().try_for_each(|part| write!(f, "-{part}"))
    }
}

/// Groups of a domain that administer it or its servers (MS-DTYP 2.4.2.4).
fn administrative_rid(rid: u32) -> Option<&'static str> {
    Some(match rid {
        512 => "Domain Admins",
        516 => "Domain Controllers",
        517 => "Cert Publishers",
        518 => "Schema Admins",
        519 => "Enterprise Admins",
        520 => "Group Policy Creator Owners",
        521 => "Read-only Domain Controllers",
        526 => "Key Admins",
        527 => "Enterprise Key Admins",
        _ => return None,
    })
}

fn administrative_sid(sid: &Sid) -> Option<&'static str> {
    match (sid.authority, sid.parts.as_slice()) {
        (5, [32, 544]) => Some("Administrators"),
        (5, [32, 548]) => Some("Account Operators"),
        (5, [32, 549]) => Some("Server Operators"),
        (5, [32, 550]) => Some("Print Operators"),
        (5, [32, 551]) => Some("Backup Operators"),
        (5, [21, .., rid]) => administrative_rid(*rid),
        _ => None,
    }
}

/// The groups in a ticket's authorization data; `None` without a PAC, or when its server signature, made with the
/// ticket's own key, is not right: a client may add authorization data of its own making.
pub(super) fn groups(authorization: &[u8], key: &ServiceKey) -> Option<Groups> {
    let pac = find_pac(authorization)?;
    let buffers = buffers(pac)?;
    let signed = is_signed(pac, &buffers, key)?;
    let logon = buffers.iter().find(|buffer| buffer.kind == LOGON_INFO)?;
    if signed { logon_info(pac.get(logon.range())?) } else { None }
}

const LOGON_INFO: u32 = 1;
const SERVER_SIGNATURE: u32 = 6;
const ISSUER_SIGNATURE: u32 = 7;

/// Sub-authorities of one security identifier (MS-DTYP 2.4.2.2).
const SUB_AUTHORITIES_MAX: u32 = 15;

const AD_IF_RELEVANT: i64 = 1;
const AD_WIN2K_PAC: i64 = 128;

/// Looks through AuthorizationData (RFC 4120, 5.2.6) and the AD-IF-RELEVANT containers directly in it.
fn find_pac(authorization: &[u8]) -> Option<&[u8]> {
    let mut budget = AUTHORIZATION_ELEMENTS_MAX;
    let mut outer = Reader::new(authorization).enter(SEQUENCE).ok()?;
    while let Some((kind, data)) = next_element(&mut outer, &mut budget) {
        match kind {
            AD_WIN2K_PAC => return Some(data),
            AD_IF_RELEVANT => {
                let mut inner = Reader::new(data).enter(SEQUENCE).ok()?;
                while let Some((kind, data)) = next_element(&mut inner, &mut budget) {
                    if kind == AD_WIN2K_PAC {
                        return Some(data);
                    }
                }
            }
            _ => {}
        }
    }
    None
}

fn next_element<'a>(elements: &mut Reader<'a>, budget: &mut usize) -> Option<(i64, &'a [u8])> {
    *budget = budget.checked_sub(1)?;
    let mut element = elements.enter(SEQUENCE).ok()?;
    let kind = integer(element.field(0, INTEGER).ok()?).ok()?;
    Some((kind, element.field(1, OCTET_STRING).ok()?))
}

/// PAC_INFO_BUFFER (MS-PAC 2.4).
struct Buffer {
    kind: u32,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start.saturating_add(self.bytes)
    }
}

/// PACTYPE (MS-PAC 2.3). Every buffer lies within the PAC.
fn buffers(pac: &[u8]) -> Option<Vec<Buffer>> {
    let mut head = Fields { bytes: pac, at: 0 };
    let count = usize::try_from(head.u32()?).ok().filter(|&count| count <= PAC_BUFFERS_MAX)?;
    head.u32()?; // The version, always 0.
    let mut buffers = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, bytes) = (head.u32()?, head.u32()? as usize);
        let start = usize::try_from(u64::from(head.u32()?) | u64::from(head.u32()?) << 32).ok()?;
        let buffer = Buffer { kind, start, bytes };
        pac.get(buffer.range())?;
        buffers.push(buffer);
    }
    Some(buffers)
}

/// Whether the server signature fits (MS-PAC 2.8.1): over the PAC with both signatures' values set to zero.
fn is_signed(pac: &[u8], buffers: &[Buffer], key: &ServiceKey) -> Option<bool> {
    let mut blank = pac.to_vec();
    let mut given = None;
    for buffer in buffers.iter().filter(|buffer| matches!(buffer.kind, SERVER_SIGNATURE | ISSUER_SIGNATURE)) {
        let signature = pac.get(buffer.range())?;
        let (kind, value) = signature.split_first_chunk::<4>()?;
        let kind = i32::from_le_bytes(*kind);
        let value = value.get(..signature_bytes(kind)?)?;
        let start = buffer.start + 4;
        blank.get_mut(start..start + value.len())?.fill(0);
        if buffer.kind == SERVER_SIGNATURE {
            given = Some((kind, value));
        }
    }
    let (kind, value) = given?;
    let (made_kind, made) = crypto::checksum(key.encryption, key.as_bytes(), Usage::PacSignature, &blank);
    Some(kind == made_kind && verify_slices_are_equal(&made, value).is_ok())
}

/// Length of a signature's value by its type.
fn signature_bytes(kind: i32) -> Option<usize> {
    match kind {
        -138 | 19 => Some(16),
        15 | 16 => Some(12),
        20 => Some(24),
        _ => None,
    }
}

/// KERB_VALIDATION_INFO in NDR with its headers (MS-PAC 2.5, MS-RPCE 2.2.6): a fixed part whose pointers stand for
/// values that follow it in the same order.
fn logon_info(bytes: &[u8]) -> Option<Groups> {
    let mut fields = Fields { bytes, at: 16 + 4 }; // Two headers of eight bytes and the pointer to the structure.
    fields.skip(6 * 8)?; // Six times.
    let strings = (0..6).map(|_| fields.string_head()).collect::<Option<Vec<_>>>()?;
    fields.skip(4)?; // Two counters.
    let (user_rid, primary_group) = (fields.u32()?, fields.u32()?);
    let (_, groups) = (fields.u32()?, fields.u32()?);
    fields.skip(4 + 16)?; // Flags and the NTLM session key, which is never set here.
    let (server, domain) = (fields.string_head()?, fields.string_head()?);
    let domain_sid = fields.u32()?;
    fields.skip(8 + 4 + 4 + 8 + 8 + 4 + 4)?;
    let (_, extra) = (fields.u32()?, fields.u32()?);
    let (resource_sid, _, resource_groups) = (fields.u32()?, fields.u32()?, fields.u32()?);

    for pointer in strings {
        fields.string(pointer)?;
    }
    let mut group_rids = vec![primary_group];
    group_rids.extend(fields.memberships(groups)?.into_iter().filter(|&rid| rid != primary_group));
    fields.string(server)?;
    let domain = fields.string(domain)?;
    let domain_sid = fields.sid(domain_sid)?.unwrap_or_default();
    let mut extra_sids = fields.sids(extra)?;
    if let Some(resource_sid) = fields.sid(resource_sid)? {
        extra_sids.extend(fields.memberships(resource_groups)?.into_iter().map(|rid| resource_sid.with(rid)));
    }
    Some(Groups { domain, domain_sid, user_rid, group_rids, extra_sids })
}

impl Sid {
    fn with(&self, rid: u32) -> Self {
        let parts = self.parts.iter().copied().chain([rid]).collect();
        Self { authority: self.authority, parts }
    }
}

/// Reads little-endian fields one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(drop)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Pointer of an RPC_UNICODE_STRING, after its two lengths.
    fn string_head(&mut self) -> Option<u32> {
        self.skip(4)?;
        self.u32()
    }

    /// Count of a conformant array, bounded.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok().filter(|&count| count <= PAC_GROUPS_MAX)
    }

    fn string(&mut self, pointer: u32) -> Option<String> {
        if pointer == 0 {
            return Some(String::new());
        }
        self.skip(8)?;
        let units = self.count()?;
        let bytes = self.take(units * 2)?;
        self.at = self.at.next_multiple_of(4);
        let units = bytes.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit));
        Some(char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    }

    /// Relative identifiers of an array of GROUP_MEMBERSHIP.
    fn memberships(&mut self, pointer: u32) -> Option<Vec<u32>> {
        if pointer == 0 {
            return Some(Vec::new());
        }
        let count = self.count()?;
        (0..count).map(|_| self.u32().and_then(|rid| self.u32().map(|_| rid))).collect()
    }

    fn sid(&mut self, pointer: u32) -> Option<Option<Sid>> {
        if pointer == 0 {
            return Some(None);
        }
        let count = self.u32()?;
        let &[_, given, a, b, c, d, e, f] = self.take(8)?.first_chunk()?;
        if count > SUB_AUTHORITIES_MAX || u32::from(given) != count {
            return None;
        }
        let parts = (0..count).map(|_| self.u32()).collect::<Option<_>>()?;
        Some(Some(Sid { authority: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), parts }))
    }

    /// An array of KERB_SID_AND_ATTRIBUTES: all pointers first, then what they point to.
    fn sids(&mut self, pointer: u32) -> Option<Vec<Sid>> {
        if pointer == 0 {
            return Some(Vec::new());
        }
        let count = self.count()?;
        let pointers: Vec<_> =
            (0..count).map(|_| self.u32().and_then(|at| self.u32().map(|_| at))).collect::<Option<_>>()?;
        let sids = pointers.into_iter().map(|at| self.sid(at)).collect::<Option<Vec<_>>>()?;
        Some(sids.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Plan, authorization, pac};
    use super::*;
    use proptest::prelude::*;

    fn good() -> Vec<u8> {
        let extra = [
            Sid { authority: 5, parts: vec![32, 544] },
            Sid { authority: 5, parts: vec![21, 7, 8, 9, 1105] },
        ];
        pac(1104, &[513, 1200], &extra, &Plan::default().service_key())
    }

    fn logon(pac: &[u8]) -> Option<Groups> {
        let found = buffers(pac)?;
        logon_info(pac.get(found.first()?.range())?)
    }

    #[test]
    fn a_pac_cut_short_anywhere_gives_no_groups() {
        let (good, key) = (good(), Plan::default().service_key());
        assert!(groups(&authorization(&good), &key).is_some());
        for end in 0..good.len() {
            assert!(groups(&authorization(&good[..end]), &key).is_none(), "{end}");
        }
        let whole = authorization(&good);
        for end in 0..whole.len() {
            assert!(groups(&whole[..end], &key).is_none(), "{end}");
        }
    }

    #[test]
    fn a_signature_of_another_key_gives_no_groups() {
        let other = Plan { encryption: crate::EncryptionType::Aes128Sha1, ..Plan::default() };
        assert!(groups(&authorization(&good()), &other.service_key()).is_none());
    }

    proptest! {
        #[test]
        fn damaged_content_never_panics(place in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..8)) {
            let mut pac = good();
            let at = place.index(pac.len());
            pac[at..].iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            logon(&pac);
            groups(&authorization(&pac), &Plan::default().service_key());
        }

        #[test]
        fn arbitrary_content_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            logon_info(&bytes);
            groups(&bytes, &Plan::default().service_key());
            groups(&authorization(&bytes), &Plan::default().service_key());
        }
    }
}
