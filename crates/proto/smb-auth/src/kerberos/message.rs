use super::EncryptionType;
use super::Principal;
use super::crypto::{self, Usage};
use crate::Failure;
use crate::der::{
    BIT_STRING, BadDer, GENERAL_STRING, INTEGER, OCTET_STRING, Reader, SEQUENCE, application, context,
    integer,
};
use zeroize::Zeroizing;

/// AP-REQ (RFC 4120, 5.5.1).
pub(crate) struct Request<'a> {
    pub(super) user_to_user: bool,
    /// Whether the client asks for an AP-REP.
    pub(super) mutual: bool,
    /// Whose ticket it is: the name of the service and its realm, which stand in clear.
    pub(crate) service: Principal,
    pub(super) ticket: Sealed<'a>,
    pub(super) authenticator: Sealed<'a>,
}

/// AP-REP (RFC 4120, 5.5.2).
pub(crate) struct Reply<'a> {
    pub(super) part: Sealed<'a>,
}

/// EncryptedData (RFC 4120, 5.2.9).
pub(super) struct Sealed<'a> {
    encryption: i64,
    pub(super) version: Option<u32>,
    ciphertext: &'a [u8],
}

/// Session key or subkey with its type.
pub(super) struct Key {
    encryption: i64,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// What a ticket holds under the service's key (RFC 4120, 5.3).
pub(super) struct TicketPart {
    pub(super) key: Key,
    pub(super) client: Principal,
    /// AuthorizationData, as it stands in the ticket.
    pub(super) authorization: Option<Zeroizing<Vec<u8>>>,
}

impl<'a> Request<'a> {
    /// Reads the message, without the GSS-API wrapper.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Failure> {
        Self::read(bytes).map_err(|BadDer| Failure::Malformed("Kerberos AP-REQ"))
    }

    fn read(bytes: &'a [u8]) -> Result<Self, BadDer> {
        let mut body = message(bytes, 14)?;
        let options = *body.field(2, BIT_STRING)?.get(1).ok_or(BadDer)?;
        let mut ticket = body.enter(context(3))?.enter(application(1))?.enter(SEQUENCE)?;
        ticket.integer_field(0)?;
        let realm = ticket.field(1, GENERAL_STRING)?;
        let service = Principal::from_der(&mut ticket.enter(context(2))?, realm)?;
        Ok(Self {
            user_to_user: options & 0x40 != 0,
            mutual: options & 0x20 != 0,
            service,
            ticket: Sealed::read(&mut ticket, 3)?,
            authenticator: Sealed::read(&mut body, 4)?,
        })
    }
}

impl<'a> Reply<'a> {
    /// Reads the message, without the GSS-API wrapper.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Failure> {
        let read = || Ok(Self { part: Sealed::read(&mut message(bytes, 15)?, 2)? });
        read().map_err(|BadDer| Failure::Malformed("Kerberos AP-REP"))
    }

    /// The acceptor's subkey, if it sent one; `None` when the reply is not one to this ticket.
    pub(super) fn subkey(&self, session: &Key) -> Option<Result<Option<Key>, Failure>> {
        let plain = session.open(&self.part, Usage::Reply)?;
        let read = || {
            let mut part = Reader::new(&plain).enter(application(27))?.enter(SEQUENCE)?;
            part.skip_to(2)?;
            Key::read_optional(&mut part, 2)
        };
        Some(read().map_err(|BadDer| Failure::Malformed("Kerberos AP-REP")))
    }
}

impl Request<'_> {
    /// The initiator's subkey, if it sent one; `None` when the authenticator is not under this ticket's key.
    pub(super) fn subkey(&self, session: &Key) -> Option<Result<Option<Key>, Failure>> {
        let plain = session.open(&self.authenticator, Usage::Authenticator)?;
        let read = || {
            let mut part = Reader::new(&plain).enter(application(2))?.enter(SEQUENCE)?;
            part.skip_to(6)?;
            Key::read_optional(&mut part, 6)
        };
        Some(read().map_err(|BadDer| Failure::Malformed("Kerberos authenticator")))
    }
}

impl<'a> Sealed<'a> {
    fn read(from: &mut Reader<'a>, number: u8) -> Result<Self, BadDer> {
        let mut data = from.enter(context(number))?.enter(SEQUENCE)?;
        let encryption = data.integer_field(0)?;
        // Versions are unsigned, but some write the upper half as negative numbers.
        let version =
            data.optional_field(1, INTEGER)?.map(integer).transpose()?.map(|version| version as u32);
        Ok(Self { encryption, version, ciphertext: data.field(2, OCTET_STRING)? })
    }

    pub(super) fn encryption(&self) -> Result<EncryptionType, Failure> {
        EncryptionType::from_number(self.encryption).ok_or(Failure::UnsupportedEncryption)
    }

    /// The plaintext, if this key opens it.
    pub(super) fn open(&self, key: &[u8], usage: Usage) -> Option<Zeroizing<Vec<u8>>> {
        crypto::decrypt(self.encryption().ok()?, key, usage, self.ciphertext)
    }
}

impl Key {
    fn read(from: &mut Reader<'_>) -> Result<Self, BadDer> {
        let mut key = from.enter(SEQUENCE)?;
        let encryption = key.integer_field(0)?;
        Ok(Self { encryption, bytes: Zeroizing::new(key.field(1, OCTET_STRING)?.to_vec()) })
    }

    fn read_optional(from: &mut Reader<'_>, number: u8) -> Result<Option<Self>, BadDer> {
        from.optional(context(number))?.map(|content| Self::read(&mut Reader::new(content))).transpose()
    }

    /// Whether its type is supported and its length that type's.
    pub(super) fn is_usable(&self) -> bool {
        EncryptionType::from_number(self.encryption).is_some_and(|kind| kind.key_bytes() == self.bytes.len())
    }

    fn open(&self, sealed: &Sealed<'_>, usage: Usage) -> Option<Zeroizing<Vec<u8>>> {
        sealed.open(&self.bytes, usage)
    }
}

impl TicketPart {
    /// Reads EncTicketPart.
    pub(super) fn parse(plain: &[u8]) -> Result<Self, Failure> {
        Self::read(plain).map_err(|BadDer| Failure::Malformed("Kerberos ticket"))
    }

    fn read(plain: &[u8]) -> Result<Self, BadDer> {
        let mut part = Reader::new(plain).enter(application(3))?.enter(SEQUENCE)?;
        part.skip_to(1)?;
        let key = Key::read(&mut part.enter(context(1))?)?;
        let realm = part.field(2, GENERAL_STRING)?;
        let client = Principal::from_der(&mut part.enter(context(3))?, realm)?;
        part.skip_to(10)?;
        let authorization = part.optional(context(10))?.map(|data| Zeroizing::new(data.to_vec()));
        Ok(Self { key, client, authorization })
    }
}

/// Body of a message after its version and type, which must be as the tag says.
fn message(bytes: &[u8], kind: u8) -> Result<Reader<'_>, BadDer> {
    let mut body = Reader::new(bytes).enter(application(kind))?.enter(SEQUENCE)?;
    let right = body.integer_field(0)? == 5 && body.integer_field(1)? == i64::from(kind);
    if right { Ok(body) } else { Err(BadDer) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The plaintext of a ticket comes from whoever has the service's key, and is no more trusted than the rest.
    fn ticket() -> Vec<u8> {
        let plan = super::super::fixture::Plan::default();
        let request = plan.request();
        let request = Request::parse(&request).unwrap();
        request.ticket.open(plan.service_key().as_bytes(), Usage::Ticket).unwrap().to_vec()
    }

    #[test]
    fn a_ticket_cut_short_anywhere_is_refused() {
        let good = ticket();
        assert!(TicketPart::parse(&good).is_ok());
        for end in 0..good.len() {
            assert!(TicketPart::parse(&good[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn damaged_and_arbitrary_tickets_never_panic(
            place in any::<prop::sample::Index>(),
            bytes in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            let _ = TicketPart::parse(&bytes);
            let mut damaged = ticket();
            let at = place.index(damaged.len());
            damaged[at..].iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            let _ = TicketPart::parse(&damaged);
        }
    }
}
