//! Kerberos messages around plaintexts of any kind, sealed with RC4-HMAC (RFC 4757): what whoever has a service's key
//! could send.

use hmac::{Hmac, KeyInit, Mac};
use isthmus_smb_auth::{EncryptionType, Principal, ServiceKey};
use md5::Md5;
use rc4::{Rc4, StreamCipher};
use zeroize::Zeroizing;

/// Key of the service.
const SERVICE_KEY: [u8; 16] = [0x42; 16];
/// Session key of the sample's ticket.
const SESSION_KEY: [u8; 16] = [0x17; 16];
/// The service that the ticket is for.
const SERVICE: &str = "cifs/files.wan.test@WAN.TEST";
const REALM: &str = "WAN.TEST";
/// Encryption type RC4-HMAC.
const RC4_HMAC: u8 = 23;

/// The key that opens the tickets.
pub fn service_key() -> ServiceKey {
    let key = Zeroizing::new(SERVICE_KEY.to_vec());
    ServiceKey::new(Principal::parse(SERVICE), 3, EncryptionType::Rc4Hmac, key).expect("a key of its length")
}

/// AP-REQ and AP-REP (RFC 4120 5.5) with these as what is sealed in the ticket, the authenticator and the reply.
pub fn exchange([ticket, authenticator, reply]: [&[u8]; 3]) -> [Vec<u8>; 2] {
    let ticket = sequence(&[
        field(0, &[2, 1, 5]),
        field(1, &text(REALM)),
        field(2, &name(&["cifs", "files.wan.test"])),
        field(3, &sealed(&SERVICE_KEY, 2, ticket)),
    ]);
    let request = sequence(&[
        field(0, &[2, 1, 5]),
        field(1, &[2, 1, 14]),
        field(2, &[3, 5, 0, 0x20, 0, 0, 0]),
        field(3, &tlv(0x61, &ticket)),
        field(4, &sealed(&SESSION_KEY, 11, authenticator)),
    ]);
    let reply =
        sequence(&[field(0, &[2, 1, 5]), field(1, &[2, 1, 15]), field(2, &sealed(&SESSION_KEY, 12, reply))]);
    [tlv(0x6e, &request), tlv(0x6f, &reply)]
}

/// The three plaintexts of a good exchange: EncTicketPart, Authenticator, EncAPRepPart.
pub fn plaintexts() -> [Vec<u8>; 3] {
    let key = |bytes: &[u8]| sequence(&[field(0, &[2, 1, RC4_HMAC]), field(1, &tlv(4, bytes))]);
    let authorization = sequence(&[sequence(&[field(0, &[2, 1, 1]), field(1, &tlv(4, &[0x30, 0]))])]);
    let ticket = sequence(&[
        field(0, &tlv(3, &[0; 5])),
        field(1, &key(&SESSION_KEY)),
        field(2, &text(REALM)),
        field(3, &name(&["alice"])),
        field(10, &authorization),
    ]);
    let authenticator = sequence(&[field(0, &[2, 1, 5]), field(6, &key(&[0x19; 16])), field(7, &[2, 1, 9])]);
    let reply = sequence(&[
        field(0, &tlv(0x18, b"20260101000000Z")),
        field(1, &[2, 1, 1]),
        field(2, &key(&[0x21; 16])),
    ]);
    [tlv(0x63, &ticket), tlv(0x62, &authenticator), tlv(0x7b, &reply)]
}

/// EncryptedData.
fn sealed(key: &[u8], usage: u32, plain: &[u8]) -> Vec<u8> {
    let mut body = [&[7; 8], plain].concat();
    let first = hmac_md5(key, &usage.to_le_bytes());
    let sum = hmac_md5(&first, &body);
    Rc4::new_from_slice(&hmac_md5(&first, &sum)).expect("a key of its length").apply_keystream(&mut body);
    let kind = field(0, &[2, 1, RC4_HMAC]);
    sequence(&[kind, field(1, &[2, 1, 3]), field(2, &tlv(4, &[&sum[..], &body].concat()))])
}

fn hmac_md5(key: &[u8], data: &[u8]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("a key of any length");
    mac.update(data);
    mac.finalize().into_bytes().into()
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[tag, 0x84][..], &length, content].concat()
}

fn sequence(fields: &[Vec<u8>]) -> Vec<u8> {
    tlv(0x30, &fields.concat())
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    tlv(0xa0 | number, content)
}

fn text(text: &str) -> Vec<u8> {
    tlv(0x1b, text.as_bytes())
}

fn name(components: &[&str]) -> Vec<u8> {
    let strings: Vec<_> = components.iter().map(|component| text(component)).collect();
    sequence(&[field(0, &[2, 1, 1]), field(1, &sequence(&strings))])
}
