//! NEGOTIATE (MS-SMB2 2.2.3 and 2.2.4).

use crate::error::WireError;
use crate::field::{Field, part, slice};
use crate::header::HEADER_LEN;
use crate::macros::{body, flags, number};
use crate::negotiate_context::NegotiateContexts;
use std::ops::Range;

number! {
    /// A dialect revision.
    Dialect(u16) {
        /// SMB 2.0.2.
        SMB_2_0_2 = 0x0202;
        /// SMB 2.1.
        SMB_2_1 = 0x0210;
        /// Any of SMB 2; the answer to a multi-protocol negotiate.
        SMB_2_ANY = 0x02ff;
        /// SMB 3.0.
        SMB_3_0 = 0x0300;
        /// SMB 3.0.2.
        SMB_3_0_2 = 0x0302;
        /// SMB 3.1.1.
        SMB_3_1_1 = 0x0311;
    }
}

flags! {
    /// Whether signing is enabled or required.
    SecurityMode(u16) {
        /// Can sign.
        SIGNING_ENABLED = 0x0001;
        /// Demands signatures.
        SIGNING_REQUIRED = 0x0002;
    }
}

flags! {
    /// Capabilities of a client or server.
    Capabilities(u32) {
        /// Distributed file system.
        DFS = 0x0000_0001;
        /// Leases.
        LEASING = 0x0000_0002;
        /// Operations of several credits.
        LARGE_MTU = 0x0000_0004;
        /// Several connections of one session.
        MULTI_CHANNEL = 0x0000_0008;
        /// Persistent opens.
        PERSISTENT_HANDLES = 0x0000_0010;
        /// Leases of directories.
        DIRECTORY_LEASING = 0x0000_0020;
        /// Encryption, in dialects 3.0 and 3.0.2.
        ENCRYPTION = 0x0000_0040;
        /// Notifications from the server.
        NOTIFICATIONS = 0x0000_0080;
    }
}

body! {
    /// NEGOTIATE request (MS-SMB2 2.2.3).
    NegotiateRequest: NEGOTIATE, Request, 36 {
        /// Security mode.
        security_mode, set_security_mode: SecurityMode = 4;
        /// Capabilities.
        capabilities, set_capabilities: Capabilities = 8;
        /// Identifier of the client.
        client_guid, set_client_guid: [u8; 16] = 12;
    }
    also check_request
}

impl<B: AsRef<[u8]>> NegotiateRequest<B> {
    /// Number of dialects.
    pub fn dialect_count(&self) -> u16 {
        u16::read(self.as_bytes(), HEADER_LEN + 2)
    }

    /// The dialects offered, in order.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> + '_ {
        let (pairs, _) = slice(self.as_bytes(), dialects(self.as_bytes()).unwrap_or(0..0)).as_chunks::<2>();
        pairs.iter().map(|pair| Dialect(u16::from_le_bytes(*pair)))
    }

    /// Whether dialect 3.1.1 is offered, so that contexts follow.
    pub fn has_contexts(&self) -> bool {
        self.dialects().any(|dialect| dialect == Dialect::SMB_3_1_1)
    }

    /// The negotiate contexts; none without dialect 3.1.1.
    pub fn contexts(&self) -> NegotiateContexts<'_> {
        if !self.has_contexts() {
            return NegotiateContexts::none();
        }
        let bytes = self.as_bytes();
        let offset = u32::read(bytes, HEADER_LEN + 28);
        NegotiateContexts::new(bytes, offset, u16::read(bytes, HEADER_LEN + 32), Self::FIXED_LEN)
    }
}

body! {
    /// NEGOTIATE response (MS-SMB2 2.2.4).
    NegotiateResponse: NEGOTIATE, Response, 65 {
        /// Security mode.
        security_mode, set_security_mode: SecurityMode = 2;
        /// The dialect chosen.
        dialect, set_dialect: Dialect = 4;
        /// Identifier of the server.
        server_guid, set_server_guid: [u8; 16] = 8;
        /// Capabilities.
        capabilities, set_capabilities: Capabilities = 24;
        /// Most bytes of a query or change of information.
        max_transact_size, set_max_transact_size: u32 = 28;
        /// Most bytes of a READ.
        max_read_size, set_max_read_size: u32 = 32;
        /// Most bytes of a WRITE.
        max_write_size, set_max_write_size: u32 = 36;
        /// The server's time, in 100 ns since 1601.
        system_time, set_system_time: u64 = 40;
        /// When the server started, or 0, in 100 ns since 1601.
        server_start_time, set_server_start_time: u64 = 48;
    }
    parts {
        /// The security token.
        security_buffer, security_buffer_range: u16 = 56, u16 = 58;
    }
}

impl<B: AsRef<[u8]>> NegotiateResponse<B> {
    /// The negotiate contexts; none in dialects before 3.1.1.
    pub fn contexts(&self) -> NegotiateContexts<'_> {
        if self.dialect() != Dialect::SMB_3_1_1 {
            return NegotiateContexts::none();
        }
        let bytes = self.as_bytes();
        let offset = u32::read(bytes, HEADER_LEN + 60);
        NegotiateContexts::new(bytes, offset, u16::read(bytes, HEADER_LEN + 6), Self::FIXED_LEN)
    }
}

fn check_request(bytes: &[u8]) -> Result<(), WireError> {
    dialects(bytes).map(drop)
}

fn dialects(bytes: &[u8]) -> Result<Range<usize>, WireError> {
    let from = HEADER_LEN + 36;
    let length = u64::from(u16::read(bytes, HEADER_LEN + 2)) * 2;
    part("NegotiateRequest", bytes, from, from as u64, length)
}
