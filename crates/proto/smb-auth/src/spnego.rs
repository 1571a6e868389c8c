//! SPNEGO (RFC 4178, MS-SPNG) and the tokens inside it.

use crate::der::{BadDer, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, application, context};
use crate::limits::{MECHANISMS_MAX, TOKEN_BYTES_MAX};

/// Authentication mechanisms by object identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mech {
    Ntlm,
    /// 1.2.840.113554.1.2.2, or 1.2.840.48018.1.2.2 as Windows 2000 misspelt it.
    Kerberos,
    UserToUser,
    NegoEx,
    IaKerb,
    Unknown,
}

/// What a security buffer holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// Mechanisms offered, or the one the acceptor chose.
    pub(crate) mechanisms: Vec<Mech>,
    pub(crate) inner: Option<Inner<'a>>,
}

/// A token of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner<'a> {
    Negotiate(&'a [u8]),
    Challenge(&'a [u8]),
    Authenticate(&'a [u8]),
    /// AP-REQ without its GSS-API wrapper.
    Request(&'a [u8]),
    /// AP-REP without its GSS-API wrapper.
    Reply(&'a [u8]),
    /// KRB-ERROR: the client will try again, or give up.
    Refusal,
    /// A token that this crate does not read.
    Other(Mech),
}

/// Reads one security buffer: SPNEGO, or a mechanism's token without it.
pub(crate) fn parse(buffer: &[u8]) -> Result<Token<'_>, BadDer> {
    match buffer {
        [] => Ok(Token::default()),
        _ if buffer.len() > TOKEN_BYTES_MAX => Err(BadDer),
        [0x60, ..] => initial(buffer),
        [0xa0, ..] => init(&mut Reader::new(buffer)),
        [0xa1, ..] => response(&mut Reader::new(buffer)),
        _ => Ok(Token { mechanisms: Vec::new(), inner: Some(inner(buffer)) }),
    }
}

const OID_SPNEGO: &[u8] = &[0x2b, 6, 1, 5, 5, 2];
const OID_NTLM: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10];
const OID_KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
const OID_KERBEROS_MS: &[u8] = &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];
const OID_USER_TO_USER: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 3];
const OID_NEGO_EX: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 30];
const OID_IA_KERB: &[u8] = &[0x2b, 6, 1, 5, 2, 5];

/// An InitialContextToken (RFC 2743, 3.1): SPNEGO's own first token, or a mechanism's without SPNEGO.
fn initial(buffer: &[u8]) -> Result<Token<'_>, BadDer> {
    let mut framed = Reader::new(buffer).enter(application(0))?;
    if framed.expect(OBJECT_IDENTIFIER)? == OID_SPNEGO {
        init(&mut framed)
    } else {
        Ok(Token { mechanisms: Vec::new(), inner: Some(inner(buffer)) })
    }
}

/// NegTokenInit, or a server's NegTokenInit2 (MS-SPNG 2.2.1), which differs behind the token only.
fn init<'a>(outer: &mut Reader<'a>) -> Result<Token<'a>, BadDer> {
    let mut fields = outer.enter(context(0))?.enter(SEQUENCE)?;
    let mut token = Token::default();
    if let Some(list) = fields.optional_field(0, SEQUENCE)? {
        let mut list = Reader::new(list);
        while !list.is_empty() && token.mechanisms.len() < MECHANISMS_MAX {
            token.mechanisms.push(mechanism(list.expect(OBJECT_IDENTIFIER)?));
        }
    }
    fields.optional(context(1))?;
    token.inner = mechanism_token(&mut fields)?;
    Ok(token)
}

/// NegTokenResp.
fn response<'a>(outer: &mut Reader<'a>) -> Result<Token<'a>, BadDer> {
    let mut fields = outer.enter(context(1))?.enter(SEQUENCE)?;
    fields.optional(context(0))?;
    let chosen = fields.optional_field(1, OBJECT_IDENTIFIER)?;
    let mechanisms = chosen.into_iter().map(mechanism).collect();
    Ok(Token { mechanisms, inner: mechanism_token(&mut fields)? })
}

/// Field `[2]` of both tokens.
fn mechanism_token<'a>(fields: &mut Reader<'a>) -> Result<Option<Inner<'a>>, BadDer> {
    let token = fields.optional_field(2, OCTET_STRING)?;
    Ok(token.filter(|token| !token.is_empty()).map(inner))
}

fn mechanism(identifier: &[u8]) -> Mech {
    match identifier {
        OID_NTLM => Mech::Ntlm,
        OID_KERBEROS | OID_KERBEROS_MS => Mech::Kerberos,
        OID_USER_TO_USER => Mech::UserToUser,
        OID_NEGO_EX => Mech::NegoEx,
        OID_IA_KERB => Mech::IaKerb,
        _ => Mech::Unknown,
    }
}

/// Recognises a mechanism's token by its first bytes; what it says is left for later.
fn inner(token: &[u8]) -> Inner<'_> {
    if let Some(rest) = token.strip_prefix(b"NTLMSSP\0") {
        return match rest.first_chunk::<4>().map(|kind| u32::from_le_bytes(*kind)) {
            Some(1) => Inner::Negotiate(token),
            Some(2) => Inner::Challenge(token),
            Some(3) => Inner::Authenticate(token),
            _ => Inner::Other(Mech::Ntlm),
        };
    }
    match token {
        [0x60, ..] => gss_token(token).unwrap_or(Inner::Other(Mech::Unknown)),
        // Without a wrapper, as DCE-style exchanges have it.
        [0x6e, ..] => Inner::Request(token),
        [0x6f, ..] => Inner::Reply(token),
        [b'N', b'E', b'G', b'O', b'E', b'X', b'T', b'S', ..] => Inner::Other(Mech::NegoEx),
        _ => Inner::Other(Mech::Unknown),
    }
}

/// A Kerberos token of RFC 4121, section 4.1: mechanism, two bytes of token type, message.
fn gss_token(token: &[u8]) -> Result<Inner<'_>, BadDer> {
    let mut framed = Reader::new(token).enter(application(0))?;
    let found = mechanism(framed.expect(OBJECT_IDENTIFIER)?);
    Ok(match (found, framed.rest()) {
        (Mech::Kerberos, [1, 0, message @ ..]) => Inner::Request(message),
        (Mech::Kerberos, [2, 0, message @ ..]) => Inner::Reply(message),
        (Mech::Kerberos, [3, 0, ..]) => Inner::Refusal,
        (Mech::Kerberos, [4, _, ..]) => Inner::Other(Mech::UserToUser),
        (other, _) => Inner::Other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kerberos::fixture::{field, sequence, tlv};

    fn init_token(mechanisms: &[&[u8]], inner: Option<&[u8]>) -> Vec<u8> {
        let list: Vec<_> = mechanisms.iter().map(|mechanism| tlv(OBJECT_IDENTIFIER, mechanism)).collect();
        let token = inner.map(|inner| field(2, &tlv(OCTET_STRING, inner))).unwrap_or_default();
        let hints = field(3, &sequence(&[field(0, &tlv(0x1b, b"not_defined_in_RFC4178@please_ignore"))]));
        let body = field(0, &sequence(&[field(0, &sequence(&list)), token, hints]));
        tlv(0x60, &[tlv(OBJECT_IDENTIFIER, OID_SPNEGO), body].concat())
    }

    fn gss(identifier: &[u8], kind: [u8; 2]) -> Vec<u8> {
        tlv(0x60, &[tlv(OBJECT_IDENTIFIER, identifier), kind.to_vec(), b"message".to_vec()].concat())
    }

    #[test]
    fn offers_are_read_with_and_without_a_token() {
        let offer = init_token(&[OID_KERBEROS_MS, OID_KERBEROS, OID_NEGO_EX, OID_NTLM, &[0x2a, 3]], None);
        let expected = [Mech::Kerberos, Mech::Kerberos, Mech::NegoEx, Mech::Ntlm, Mech::Unknown];
        assert_eq!(parse(&offer), Ok(Token { mechanisms: expected.to_vec(), inner: None }));
        let inner = gss(OID_KERBEROS, [1, 0]);
        let offer = init_token(&[OID_KERBEROS], Some(&inner));
        assert_eq!(parse(&offer).unwrap().inner, Some(Inner::Request(b"message")));
    }

    #[test]
    fn answers_are_read_whatever_they_leave_out() {
        let answer = |fields: &[Vec<u8>]| tlv(0xa1, &sequence(fields));
        assert_eq!(parse(&answer(&[])), Ok(Token::default()));
        assert_eq!(parse(&answer(&[field(0, &[10, 1, 0])])), Ok(Token::default()));
        let chosen = field(1, &tlv(OBJECT_IDENTIFIER, OID_NTLM));
        let inner = field(2, &tlv(OCTET_STRING, b"NTLMSSP\0\x02\0\0\0"));
        let full = answer(&[field(0, &[10, 1, 1]), chosen, inner, field(3, &tlv(OCTET_STRING, b"mic"))]);
        let token = parse(&full).unwrap();
        assert_eq!(token.mechanisms, [Mech::Ntlm]);
        assert!(matches!(token.inner, Some(Inner::Challenge(_))));
    }

    #[test]
    fn tokens_without_spnego_are_recognised() {
        let cases: [(Vec<u8>, Inner<'_>); 9] = [
            (b"NTLMSSP\0\x01\0\0\0".to_vec(), Inner::Negotiate(b"NTLMSSP\0\x01\0\0\0")),
            (gss(OID_KERBEROS, [1, 0]), Inner::Request(b"message")),
            (gss(OID_KERBEROS_MS, [2, 0]), Inner::Reply(b"message")),
            (gss(OID_KERBEROS, [3, 0]), Inner::Refusal),
            (gss(OID_USER_TO_USER, [4, 0]), Inner::Other(Mech::UserToUser)),
            (gss(OID_IA_KERB, [5, 1]), Inner::Other(Mech::IaKerb)),
            (b"NEGOEXTS....".to_vec(), Inner::Other(Mech::NegoEx)),
            (b"NTLMSSP\0\x09\0\0\0".to_vec(), Inner::Other(Mech::Ntlm)),
            (b"anything".to_vec(), Inner::Other(Mech::Unknown)),
        ];
        for (bytes, expected) in &cases {
            assert_eq!(parse(bytes).unwrap().inner, Some(*expected));
        }
    }

    #[test]
    fn broken_and_oversized_buffers_are_refused() {
        let good = init_token(&[OID_KERBEROS], Some(b"NTLMSSP\0\x01\0\0\0"));
        for end in 1..good.len() {
            assert_eq!(parse(&good[..end]), Err(BadDer), "{end}");
        }
        let mut large = vec![0; TOKEN_BYTES_MAX + 1];
        assert_eq!(parse(&large), Err(BadDer));
        large.pop();
        assert!(parse(&large).is_ok());
    }
}
