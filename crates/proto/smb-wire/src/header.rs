//! The header that every SMB2 message begins with (MS-SMB2 2.2.1).

use crate::command::{Command, Status};
use crate::error::WireError;
use crate::field::Field;
use crate::macros::{flags, view};
use std::ops::Range;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 64;

/// The first four bytes of an SMB2 message.
pub const PROTOCOL_ID: [u8; 4] = [0xfe, b'S', b'M', b'B'];

/// Message identifier of what a server sends of its own accord.
pub const MESSAGE_ID_UNSOLICITED: u64 = u64::MAX;

/// Where the signature is.
pub const SIGNATURE: Range<usize> = 48..64;

flags! {
    /// Flags of a header (MS-SMB2 2.2.1.2).
    HeaderFlags(u32) {
        /// A response.
        SERVER_TO_REDIR = 0x0000_0001;
        /// The header has an asynchronous identifier instead of a tree identifier.
        ASYNC_COMMAND = 0x0000_0002;
        /// Continues the operation before it in the compound.
        RELATED_OPERATIONS = 0x0000_0004;
        /// Has a signature.
        SIGNED = 0x0000_0008;
        /// Priority of the request, 0 to 7, in bits 4 to 6.
        PRIORITY_MASK = 0x0000_0070;
        /// Concerns the distributed file system.
        DFS_OPERATIONS = 0x1000_0000;
        /// Sent again after the connection was lost.
        REPLAY_OPERATION = 0x2000_0000;
    }
}

view! {
    /// Header of an SMB2 message (MS-SMB2 2.2.1).
    Header [0usize, HEADER_LEN] {
        /// Credits that the operation takes; 0 in dialect 2.0.2.
        credit_charge, set_credit_charge: u16 = 6;
        /// Status of a response.
        status, set_status: Status = 8;
        /// Channel sequence of a request, where [`Self::status`] of a response is.
        channel_sequence, set_channel_sequence: u16 = 8;
        /// The command; also one that is not known.
        command, set_command: Command = 12;
        /// Credits requested or granted.
        credits, set_credits: u16 = 14;
        /// Flags.
        flags, set_flags: HeaderFlags = 16;
        /// Bytes from this header to the next of the compound; 0 in the last.
        next_command, set_next_command: u32 = 20;
        /// Message identifier.
        message_id, set_message_id: u64 = 24;
        /// Session identifier.
        session_id, set_session_id: u64 = 40;
        /// Signature; zeros without.
        signature, set_signature: [u8; 16] = 48;
    }
    also check,
}

impl<B> Header<B> {
    /// The header of bytes that need not be a message: what is not there reads as zero, and is not written.
    pub fn lenient(bytes: B) -> Self {
        Self { bytes }
    }
}

impl<B: AsRef<[u8]>> Header<B> {
    /// Whether the message is a response.
    pub fn is_response(&self) -> bool {
        self.flags().contains(HeaderFlags::SERVER_TO_REDIR)
    }

    /// Whether the header has an asynchronous identifier.
    pub fn is_async(&self) -> bool {
        self.flags().contains(HeaderFlags::ASYNC_COMMAND)
    }

    /// Whether the message continues the one before it in the compound.
    pub fn is_related(&self) -> bool {
        self.flags().contains(HeaderFlags::RELATED_OPERATIONS)
    }

    /// Whether the message says that it is signed.
    pub fn is_signed(&self) -> bool {
        self.flags().contains(HeaderFlags::SIGNED)
    }

    /// Whether this is an interim response.
    pub fn is_interim(&self) -> bool {
        self.is_response() && self.is_async() && self.status() == Status::PENDING
    }

    /// Tree identifier, unless the header has an asynchronous identifier in its place.
    pub fn tree_id(&self) -> Option<u32> {
        (!self.is_async()).then(|| u32::read(self.bytes.as_ref(), 36))
    }

    /// Asynchronous identifier, if the header has one.
    pub fn async_id(&self) -> Option<u64> {
        self.is_async().then(|| u64::read(self.bytes.as_ref(), 32))
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Header<B> {
    /// Overwrites the tree identifier; without effect on a header that has none.
    pub fn set_tree_id(&mut self, value: u32) {
        if !self.is_async() {
            value.write(self.bytes.as_mut(), 36);
        }
    }

    /// Overwrites the asynchronous identifier; without effect on a header that has none.
    pub fn set_async_id(&mut self, value: u64) {
        if self.is_async() {
            value.write(self.bytes.as_mut(), 32);
        }
    }
}

/// Credits that an operation takes which carries or asks for so many bytes (MS-SMB2 3.1.5.2).
pub const fn credit_charge(payload_len: u32) -> u16 {
    if payload_len == 0 {
        1
    } else {
        let charge = (payload_len - 1) / CREDIT_BYTES + 1;
        if charge > u16::MAX as u32 { u16::MAX } else { charge as u16 }
    }
}

/// Bytes that one credit pays for.
const CREDIT_BYTES: u32 = 65_536;

/// Whether bytes begin with an SMB2 header.
fn check(bytes: &[u8]) -> Result<(), WireError> {
    let protocol = <[u8; 4]>::read(bytes, 0);
    if protocol != PROTOCOL_ID {
        return Err(WireError::ProtocolId(protocol));
    }
    let found = u16::read(bytes, 4);
    if usize::from(found) != HEADER_LEN {
        return Err(WireError::StructureSize { what: "Header", expected: HEADER_LEN as u16, found });
    }
    Ok(())
}
