//! SESSION_SETUP and LOGOFF (MS-SMB2 2.2.5 to 2.2.8).

use crate::macros::{body, flags};
use crate::messages::Capabilities;

flags! {
    /// Flags of a SESSION_SETUP request.
    SessionSetupFlags(u8) {
        /// Binds the session to a further connection.
        BINDING = 0x01;
    }
}

flags! {
    /// Flags of a SESSION_SETUP response.
    SessionFlags(u16) {
        /// The user is a guest.
        IS_GUEST = 0x0001;
        /// The user is anonymous.
        IS_NULL = 0x0002;
        /// All messages are to be encrypted.
        ENCRYPT_DATA = 0x0004;
    }
}

body! {
    /// SESSION_SETUP request (MS-SMB2 2.2.5).
    SessionSetupRequest: SESSION_SETUP, Request, 25 {
        /// Flags.
        flags, set_flags: SessionSetupFlags = 2;
        /// Security mode, one byte of it.
        security_mode, set_security_mode: u8 = 3;
        /// Capabilities.
        capabilities, set_capabilities: Capabilities = 4;
        /// Channel; not used.
        channel, set_channel: u32 = 8;
        /// Session that this one takes the place of, or 0.
        previous_session_id, set_previous_session_id: u64 = 16;
    }
    parts {
        /// The security token.
        security_buffer, security_buffer_range: u16 = 12, u16 = 14;
    }
}

body! {
    /// SESSION_SETUP response (MS-SMB2 2.2.6).
    SessionSetupResponse: SESSION_SETUP, Response, 9 {
        /// Flags.
        session_flags, set_session_flags: SessionFlags = 2;
    }
    parts {
        /// The security token.
        security_buffer, security_buffer_range: u16 = 4, u16 = 6;
    }
}

body! {
    /// LOGOFF request (MS-SMB2 2.2.7).
    LogoffRequest: LOGOFF, Request, 4 {}
}

body! {
    /// LOGOFF response (MS-SMB2 2.2.8).
    LogoffResponse: LOGOFF, Response, 4 {}
}
