//! IOCTL and those of its structures that a proxy has to alter (MS-SMB2 2.2.31 and 2.2.32).

use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};
use crate::file_id::FileId;
use crate::macros::{body, number, opaque, record};
use crate::messages::{Capabilities, Dialect, SecurityMode};
use std::ops::Range;

/// Most interfaces that are looked at in one response.
pub const NETWORK_INTERFACES_MAX: usize = 256;

number! {
    /// Control code of an IOCTL (MS-SMB2 2.2.31).
    ControlCode(u32) {
        /// Referrals of a distributed file system.
        DFS_GET_REFERRALS = 0x0006_0194;
        /// Looks into a pipe.
        PIPE_PEEK = 0x0011_400c;
        /// Waits for a pipe.
        PIPE_WAIT = 0x0011_0018;
        /// Writes to a pipe and reads from it.
        PIPE_TRANSCEIVE = 0x0011_c017;
        /// Copies ranges on the server.
        SRV_COPYCHUNK = 0x0014_40f2;
        /// Snapshots of a volume.
        SRV_ENUMERATE_SNAPSHOTS = 0x0014_4064;
        /// Key of a file for copies on the server.
        SRV_REQUEST_RESUME_KEY = 0x0014_0078;
        /// Hashes of a file.
        SRV_READ_HASH = 0x0014_41bb;
        /// Copies ranges on the server, with less access.
        SRV_COPYCHUNK_WRITE = 0x0014_80f2;
        /// Asks for resilience.
        LMR_REQUEST_RESILIENCY = 0x0014_01d4;
        /// Network interfaces of the server.
        QUERY_NETWORK_INTERFACE_INFO = 0x0014_01fc;
        /// Makes a reparse point.
        SET_REPARSE_POINT = 0x0009_00a4;
        /// Reads a reparse point.
        GET_REPARSE_POINT = 0x0009_00a8;
        /// Makes a file sparse.
        SET_SPARSE = 0x0009_00c4;
        /// Makes a hole.
        SET_ZERO_DATA = 0x0009_80c8;
        /// Lists what is allocated.
        QUERY_ALLOCATED_RANGES = 0x0009_40cf;
        /// Shares extents between files.
        DUPLICATE_EXTENTS_TO_FILE = 0x0009_8344;
        /// Referrals, with the site's name.
        DFS_GET_REFERRALS_EX = 0x0006_01b0;
        /// Trims a file.
        FILE_LEVEL_TRIM = 0x0009_8208;
        /// Checks that nobody altered the negotiation.
        VALIDATE_NEGOTIATE_INFO = 0x0014_0204;
    }
}

body! {
    /// IOCTL request (MS-SMB2 2.2.31).
    IoctlRequest: IOCTL, Request, 57 {
        /// Control code.
        control_code, set_control_code: ControlCode = 4;
        /// The open; [`FileId::ANY`] where the code needs none.
        file_id, set_file_id: FileId = 8;
        /// Most bytes of input in the response.
        max_input_response, set_max_input_response: u32 = 32;
        /// Most bytes of output in the response.
        max_output_response, set_max_output_response: u32 = 44;
        /// Flags: bit 0 for control codes of the file system.
        flags, set_flags: u32 = 48;
    }
    parts {
        /// The input.
        input, input_range: u32 = 24, u32 = 28;
    }
    loose {
        /// Output in a request; not used.
        output, output_range: u32 = 36, u32 = 40;
    }
}

body! {
    /// IOCTL response (MS-SMB2 2.2.32).
    IoctlResponse: IOCTL, Response, 49 {
        /// Control code.
        control_code, set_control_code: ControlCode = 4;
        /// The open.
        file_id, set_file_id: FileId = 8;
        /// Reserved.
        flags, set_flags: u32 = 40;
    }
    parts {
        /// The output.
        output, output_range: u32 = 32, u32 = 36;
    }
    loose {
        /// The input, where it is sent back.
        input, input_range: u32 = 24, u32 = 28;
    }
}

record! {
    /// Input of VALIDATE_NEGOTIATE_INFO (MS-SMB2 2.2.31.4).
    ValidateNegotiateRequest: 24 {
        /// Capabilities of the client.
        capabilities, set_capabilities: Capabilities = 0;
        /// Identifier of the client.
        guid, set_guid: [u8; 16] = 4;
        /// Security mode of the client.
        security_mode, set_security_mode: SecurityMode = 20;
    }
    also check_dialects
}

impl<B: AsRef<[u8]>> ValidateNegotiateRequest<B> {
    /// Number of dialects.
    pub fn dialect_count(&self) -> u16 {
        u16::read(self.as_bytes(), 22)
    }

    /// The dialects offered, in order.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> + '_ {
        let (pairs, _) = slice(self.as_bytes(), dialects(self.as_bytes()).unwrap_or(0..0)).as_chunks::<2>();
        pairs.iter().map(|pair| Dialect(u16::from_le_bytes(*pair)))
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> ValidateNegotiateRequest<B> {
    /// Overwrites one dialect; without effect beyond their number.
    pub fn set_dialect(&mut self, index: usize, value: Dialect) {
        if index < usize::from(self.dialect_count()) {
            value.write(self.bytes.as_mut(), 24 + index * 2);
        }
    }
}

record! {
    /// Output of VALIDATE_NEGOTIATE_INFO (MS-SMB2 2.2.32.6).
    ValidateNegotiateResponse: 24 {
        /// Capabilities of the server.
        capabilities, set_capabilities: Capabilities = 0;
        /// Identifier of the server.
        guid, set_guid: [u8; 16] = 4;
        /// Security mode of the server.
        security_mode, set_security_mode: SecurityMode = 20;
        /// The dialect chosen.
        dialect, set_dialect: Dialect = 22;
    }
}

record! {
    /// One interface of QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 2.2.32.5).
    NetworkInterface: 152 {
        /// Bytes to the next interface; 0 in the last.
        next, set_next: u32 = 0;
        /// Index of the interface.
        index, set_index: u32 = 4;
        /// Bit 0 for receive side scaling, bit 1 for remote direct memory access.
        capability, set_capability: u32 = 8;
        /// Bits per second.
        link_speed, set_link_speed: u64 = 16;
        /// Address family: 2 for IPv4, 0x17 for IPv6.
        family, set_family: u16 = 24;
        /// Address, if the family is that of IPv4.
        ipv4, set_ipv4: [u8; 4] = 28;
        /// Address, if the family is that of IPv6.
        ipv6, set_ipv6: [u8; 16] = 32;
    }
}

/// The interfaces of a response, in order; ends after the first that is malformed.
#[derive(Clone)]
pub struct NetworkInterfaces<'a> {
    rest: &'a [u8],
    left: usize,
}

opaque!(NetworkInterfaces<'_>);

impl<'a> NetworkInterfaces<'a> {
    /// Output of QUERY_NETWORK_INTERFACE_INFO.
    pub fn new(output: &'a [u8]) -> Self {
        Self { rest: output, left: NETWORK_INTERFACES_MAX }
    }

    fn read(&self) -> Result<(NetworkInterface<&'a [u8]>, &'a [u8]), WireError> {
        let what = "network interface";
        if self.left == 0 {
            return Err(WireError::TooMany { what, limit: NETWORK_INTERFACES_MAX });
        }
        fixed(what, self.rest, NetworkInterface::<&[u8]>::FIXED_LEN)?;
        let next = u32::read(self.rest, 0);
        let (one, rest) = match next {
            0 => (self.rest, &[][..]),
            _ => self.rest.split_at_checked(next as usize).ok_or(WireError::OutOfBounds {
                what,
                offset: next.into(),
                length: 0,
                found: self.rest.len(),
            })?,
        };
        Ok((NetworkInterface::parse(one)?, rest))
    }
}

impl<'a> Iterator for NetworkInterfaces<'a> {
    type Item = Result<NetworkInterface<&'a [u8]>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.read() {
            Ok((interface, rest)) => {
                self.rest = rest;
                self.left -= 1;
                Some(Ok(interface))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

fn check_dialects(bytes: &[u8]) -> Result<(), WireError> {
    dialects(bytes).map(drop)
}

fn dialects(bytes: &[u8]) -> Result<Range<usize>, WireError> {
    part("ValidateNegotiateRequest", bytes, 24, 24, u64::from(u16::read(bytes, 22)) * 2)
}
