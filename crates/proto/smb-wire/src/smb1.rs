//! The SMB1 NEGOTIATE with which a client may open a connection before it knows that the server speaks SMB2
//! (MS-SMB2 3.3.5.3, MS-CIFS 2.2.4.52).

use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};

/// Most dialects that are looked at.
pub const SMB1_DIALECTS_MAX: usize = 64;

const PROTOCOL_ID: [u8; 4] = [0xff, b'S', b'M', b'B'];
const COMMAND_NEGOTIATE: u8 = 0x72;
const HEADER_LEN: usize = 32;
const DIALECT_FORMAT: u8 = 0x02;

/// An SMB1 NEGOTIATE request.
#[derive(Clone, Copy, Debug)]
pub struct Smb1Negotiate<'a> {
    dialects: &'a [u8],
}

impl<'a> Smb1Negotiate<'a> {
    /// Looks at bytes as an SMB1 NEGOTIATE request.
    ///
    /// # Errors
    /// When they are not one.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let what = "SMB1 negotiate";
        fixed(what, message, HEADER_LEN + 3)?;
        let protocol = <[u8; 4]>::read(message, 0);
        if protocol != PROTOCOL_ID {
            return Err(WireError::ProtocolId(protocol));
        }
        if u8::read(message, 4) != COMMAND_NEGOTIATE || u8::read(message, HEADER_LEN) != 0 {
            return Err(WireError::Value { what });
        }
        let from = HEADER_LEN + 3;
        let range = part(what, message, from, from as u64, u16::read(message, HEADER_LEN + 1).into())?;
        Ok(Self { dialects: slice(message, range) })
    }

    /// The dialects offered, in order, as far as they are well formed.
    pub fn dialects(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.dialects;
        std::iter::from_fn(move || {
            let text = rest.strip_prefix(&[DIALECT_FORMAT])?;
            let end = text.iter().position(|&byte| byte == 0)?;
            rest = text.get(end + 1..).unwrap_or(&[]);
            text.get(..end)
        })
        .take(SMB1_DIALECTS_MAX)
    }

    /// Whether the client can go on with SMB2.
    pub fn offers_smb2(&self) -> bool {
        self.dialects().any(|dialect| dialect == b"SMB 2.002" || dialect == b"SMB 2.???")
    }
}
