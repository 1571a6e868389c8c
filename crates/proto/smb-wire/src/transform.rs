//! The header of an encrypted message (MS-SMB2 2.2.41).

use crate::error::WireError;
use crate::field::{Field, slice};
use crate::macros::view;
use std::ops::Range;

/// Length of the header in bytes.
pub const TRANSFORM_HEADER_LEN: usize = 52;

/// The first four bytes.
pub const TRANSFORM_PROTOCOL_ID: [u8; 4] = [0xfd, b'S', b'M', b'B'];

/// What is authenticated but not encrypted: the header from the nonce on.
pub const AAD: Range<usize> = 20..TRANSFORM_HEADER_LEN;

/// Where the tag is.
pub const TAG: Range<usize> = 4..20;

/// Value of the flags of an encrypted message.
pub const FLAG_ENCRYPTED: u16 = 0x0001;

view! {
    /// Header of an encrypted message (MS-SMB2 2.2.41); the ciphertext follows.
    TransformHeader [0usize, TRANSFORM_HEADER_LEN] {
        /// Tag of header and ciphertext.
        signature, set_signature: [u8; 16] = 4;
        /// Nonce: 11 bytes for CCM, 12 for GCM; the rest is 0.
        nonce, set_nonce: [u8; 16] = 20;
        /// Bytes of the message before it was encrypted.
        original_message_size, set_original_message_size: u32 = 36;
        /// In dialect 3.1.1 flags, of which 1 says encrypted; in 3.0 and 3.0.2 the algorithm, of which 1 is AES-128-CCM.
        flags, set_flags: u16 = 42;
        /// Session whose key it is.
        session_id, set_session_id: u64 = 44;
    }
    also check,
}

impl<B: AsRef<[u8]>> TransformHeader<B> {
    /// What is authenticated but not encrypted.
    pub fn aad(&self) -> &[u8] {
        slice(self.as_bytes(), AAD)
    }

    /// The ciphertext: all that follows.
    pub fn ciphertext(&self) -> &[u8] {
        slice(self.as_bytes(), self.ciphertext_range())
    }

    /// Where the ciphertext is.
    pub fn ciphertext_range(&self) -> Range<usize> {
        TRANSFORM_HEADER_LEN..self.as_bytes().len()
    }
}

/// A header of zeros but for its protocol identifier, size, flags and session; nonce and signature are to be set.
pub fn transform_header(session_id: u64, original_message_size: u32) -> [u8; TRANSFORM_HEADER_LEN] {
    let mut bytes = [0; TRANSFORM_HEADER_LEN];
    TRANSFORM_PROTOCOL_ID.write(&mut bytes, 0);
    original_message_size.write(&mut bytes, 36);
    FLAG_ENCRYPTED.write(&mut bytes, 42);
    session_id.write(&mut bytes, 44);
    bytes
}

fn check(bytes: &[u8]) -> Result<(), WireError> {
    let protocol = <[u8; 4]>::read(bytes, 0);
    if protocol != TRANSFORM_PROTOCOL_ID { Err(WireError::ProtocolId(protocol)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_document_has_them() {
        let mut bytes: Vec<u8> = (0..60).collect();
        bytes[..4].copy_from_slice(&TRANSFORM_PROTOCOL_ID);
        let view = TransformHeader::parse(&bytes).unwrap();
        assert_eq!(view.signature()[..], bytes[4..20]);
        assert_eq!(view.nonce()[..], bytes[20..36]);
        assert_eq!(view.original_message_size(), 0x2726_2524);
        assert_eq!(view.flags(), 0x2b2a);
        assert_eq!(view.session_id(), 0x3332_3130_2f2e_2d2c);
        assert_eq!(view.aad(), &bytes[20..52]);
        assert_eq!(view.ciphertext(), &bytes[52..]);
        assert_eq!(bytes[TAG], view.signature());
    }

    #[test]
    fn a_new_header_reads_back() {
        let bytes = transform_header(77, 1000);
        let view = TransformHeader::parse(&bytes).unwrap();
        assert_eq!((view.session_id(), view.original_message_size(), view.flags()), (77, 1000, 1));
        assert_eq!((view.nonce(), view.signature()), ([0; 16], [0; 16]));
        assert!(matches!(TransformHeader::parse(&bytes[..51]), Err(WireError::Truncated { .. })));
        assert!(matches!(TransformHeader::parse([0_u8; 52]), Err(WireError::ProtocolId(_))));
    }
}
