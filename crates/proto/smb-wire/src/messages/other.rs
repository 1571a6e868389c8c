//! CANCEL, ECHO, notifications, and what is not known (MS-SMB2 2.2.28 to 2.2.30, 2.2.44).

use crate::body::{check_request, check_response};
use crate::header::{HEADER_LEN, Header};
use crate::macros::{body, view};

body! {
    /// CANCEL request (MS-SMB2 2.2.30). The header names what to cancel, by message identifier or asynchronous identifier.
    CancelRequest: CANCEL, Request, 4 {}
}

body! {
    /// ECHO request (MS-SMB2 2.2.28).
    EchoRequest: ECHO, Request, 4 {}
}

body! {
    /// ECHO response (MS-SMB2 2.2.29).
    EchoResponse: ECHO, Response, 4 {}
}

body! {
    /// SERVER_TO_CLIENT_NOTIFICATION (MS-SMB2 2.2.44.1).
    ServerNotification: SERVER_TO_CLIENT_NOTIFICATION, Response, 4 {
        /// Kind of notification; 0 when the session is closed.
        notification_type, set_notification_type: u32 = 4;
    }
}

view! {
    /// A request of a command that is not known; its body is kept.
    UnknownRequest [HEADER_LEN, 0usize] {}
    also check_request,
}

impl<B: AsRef<[u8]>> UnknownRequest<B> {
    /// The message's header.
    pub fn header(&self) -> Header<&[u8]> {
        Header::unchecked(self.bytes.as_ref())
    }
}

view! {
    /// A response of a command that is not known; its body is kept.
    UnknownResponse [HEADER_LEN, 0usize] {}
    also check_response,
}

impl<B: AsRef<[u8]>> UnknownResponse<B> {
    /// The message's header.
    pub fn header(&self) -> Header<&[u8]> {
        Header::unchecked(self.bytes.as_ref())
    }
}
