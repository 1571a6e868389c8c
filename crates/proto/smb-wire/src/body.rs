//! Bodies of messages by command and direction.

use crate::command::{Command, Status};
use crate::error::WireError;
use crate::field::{Field, fixed};
use crate::header::{HEADER_LEN, Header};
use crate::messages as m;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client, also without a request.
    Response,
}

macro_rules! bodies {
    ($(#[$meta:meta])* $name:ident { $( $(#[$variant_meta:meta])* $variant:ident($view:ident), )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub enum $name<B> {
            $( $(#[$variant_meta])* $variant(m::$view<B>), )*
        }

        impl<B: AsRef<[u8]>> $name<B> {
            /// The message's header.
            pub fn header(&self) -> Header<&[u8]> {
                match self {
                    $( Self::$variant(view) => view.header(), )*
                }
            }
        }

        impl<B: AsRef<[u8]>> std::fmt::Debug for $name<B> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $( Self::$variant(view) => view.fmt(f), )*
                }
            }
        }
    };
}

bodies! {
    /// A request.
    Request {
        /// NEGOTIATE.
        Negotiate(NegotiateRequest),
        /// SESSION_SETUP.
        SessionSetup(SessionSetupRequest),
        /// LOGOFF.
        Logoff(LogoffRequest),
        /// TREE_CONNECT.
        TreeConnect(TreeConnectRequest),
        /// TREE_DISCONNECT.
        TreeDisconnect(TreeDisconnectRequest),
        /// CREATE.
        Create(CreateRequest),
        /// CLOSE.
        Close(CloseRequest),
        /// FLUSH.
        Flush(FlushRequest),
        /// READ.
        Read(ReadRequest),
        /// WRITE.
        Write(WriteRequest),
        /// LOCK.
        Lock(LockRequest),
        /// IOCTL.
        Ioctl(IoctlRequest),
        /// CANCEL.
        Cancel(CancelRequest),
        /// ECHO.
        Echo(EchoRequest),
        /// QUERY_DIRECTORY.
        QueryDirectory(QueryDirectoryRequest),
        /// CHANGE_NOTIFY.
        ChangeNotify(ChangeNotifyRequest),
        /// QUERY_INFO.
        QueryInfo(QueryInfoRequest),
        /// SET_INFO.
        SetInfo(SetInfoRequest),
        /// Acknowledgement of an oplock break.
        OplockBreak(OplockBreakAcknowledgement),
        /// Acknowledgement of a lease break.
        LeaseBreak(LeaseBreakAcknowledgement),
        /// A command that is not known.
        Unknown(UnknownRequest),
    }
}

bodies! {
    /// A response, or what a server sends of its own accord.
    Response {
        /// An error, or an interim response.
        Error(ErrorResponse),
        /// NEGOTIATE.
        Negotiate(NegotiateResponse),
        /// SESSION_SETUP.
        SessionSetup(SessionSetupResponse),
        /// LOGOFF.
        Logoff(LogoffResponse),
        /// TREE_CONNECT.
        TreeConnect(TreeConnectResponse),
        /// TREE_DISCONNECT.
        TreeDisconnect(TreeDisconnectResponse),
        /// CREATE.
        Create(CreateResponse),
        /// CLOSE.
        Close(CloseResponse),
        /// FLUSH.
        Flush(FlushResponse),
        /// READ.
        Read(ReadResponse),
        /// WRITE.
        Write(WriteResponse),
        /// LOCK.
        Lock(LockResponse),
        /// IOCTL.
        Ioctl(IoctlResponse),
        /// ECHO.
        Echo(EchoResponse),
        /// QUERY_DIRECTORY.
        QueryDirectory(QueryDirectoryResponse),
        /// CHANGE_NOTIFY.
        ChangeNotify(ChangeNotifyResponse),
        /// QUERY_INFO.
        QueryInfo(QueryInfoResponse),
        /// SET_INFO.
        SetInfo(SetInfoResponse),
        /// Notification of an oplock break.
        OplockBreak(OplockBreakNotification),
        /// Notification of a lease break.
        LeaseBreak(LeaseBreakNotification),
        /// Response to the acknowledgement of an oplock break.
        OplockBreakAcknowledged(OplockBreakResponse),
        /// Response to the acknowledgement of a lease break.
        LeaseBreakAcknowledged(LeaseBreakResponse),
        /// SERVER_TO_CLIENT_NOTIFICATION.
        Notification(ServerNotification),
        /// A command that is not known.
        Unknown(UnknownResponse),
    }
}

impl<B: AsRef<[u8]>> Request<B> {
    /// Looks at one element of a compound, or at a message that is none, as a request.
    ///
    /// # Errors
    /// When it is not one, or its body is not what the command has.
    pub fn parse(bytes: B) -> Result<Self, WireError> {
        let all = bytes.as_ref();
        let header = Header::parse(all)?;
        let command = header.command();
        let size = u16::read(all, HEADER_LEN);
        Ok(match command {
            Command::NEGOTIATE => Self::Negotiate(m::NegotiateRequest::parse(bytes)?),
            Command::SESSION_SETUP => Self::SessionSetup(m::SessionSetupRequest::parse(bytes)?),
            Command::LOGOFF => Self::Logoff(m::LogoffRequest::parse(bytes)?),
            Command::TREE_CONNECT => Self::TreeConnect(m::TreeConnectRequest::parse(bytes)?),
            Command::TREE_DISCONNECT => Self::TreeDisconnect(m::TreeDisconnectRequest::parse(bytes)?),
            Command::CREATE => Self::Create(m::CreateRequest::parse(bytes)?),
            Command::CLOSE => Self::Close(m::CloseRequest::parse(bytes)?),
            Command::FLUSH => Self::Flush(m::FlushRequest::parse(bytes)?),
            Command::READ => Self::Read(m::ReadRequest::parse(bytes)?),
            Command::WRITE => Self::Write(m::WriteRequest::parse(bytes)?),
            Command::LOCK => Self::Lock(m::LockRequest::parse(bytes)?),
            Command::IOCTL => Self::Ioctl(m::IoctlRequest::parse(bytes)?),
            Command::CANCEL => Self::Cancel(m::CancelRequest::parse(bytes)?),
            Command::ECHO => Self::Echo(m::EchoRequest::parse(bytes)?),
            Command::QUERY_DIRECTORY => Self::QueryDirectory(m::QueryDirectoryRequest::parse(bytes)?),
            Command::CHANGE_NOTIFY => Self::ChangeNotify(m::ChangeNotifyRequest::parse(bytes)?),
            Command::QUERY_INFO => Self::QueryInfo(m::QueryInfoRequest::parse(bytes)?),
            Command::SET_INFO => Self::SetInfo(m::SetInfoRequest::parse(bytes)?),
            Command::OPLOCK_BREAK if size == m::LeaseBreakAcknowledgement::<B>::STRUCTURE_SIZE => {
                Self::LeaseBreak(m::LeaseBreakAcknowledgement::parse(bytes)?)
            }
            Command::OPLOCK_BREAK => Self::OplockBreak(m::OplockBreakAcknowledgement::parse(bytes)?),
            _ => Self::Unknown(m::UnknownRequest::parse(bytes)?),
        })
    }
}

impl<B: AsRef<[u8]>> Response<B> {
    /// Looks at one element of a compound, or at a message that is none, as a response.
    ///
    /// # Errors
    /// When it is not one, or its body is not what the command and status have.
    pub fn parse(bytes: B) -> Result<Self, WireError> {
        let all = bytes.as_ref();
        let header = Header::parse(all)?;
        let command = header.command();
        let size = u16::read(all, HEADER_LEN);
        if is_error_body(command, header.status(), size) {
            return Ok(Self::Error(m::ErrorResponse::parse(bytes)?));
        }
        Ok(match command {
            Command::NEGOTIATE => Self::Negotiate(m::NegotiateResponse::parse(bytes)?),
            Command::SESSION_SETUP => Self::SessionSetup(m::SessionSetupResponse::parse(bytes)?),
            Command::LOGOFF => Self::Logoff(m::LogoffResponse::parse(bytes)?),
            Command::TREE_CONNECT => Self::TreeConnect(m::TreeConnectResponse::parse(bytes)?),
            Command::TREE_DISCONNECT => Self::TreeDisconnect(m::TreeDisconnectResponse::parse(bytes)?),
            Command::CREATE => Self::Create(m::CreateResponse::parse(bytes)?),
            Command::CLOSE => Self::Close(m::CloseResponse::parse(bytes)?),
            Command::FLUSH => Self::Flush(m::FlushResponse::parse(bytes)?),
            Command::READ => Self::Read(m::ReadResponse::parse(bytes)?),
            Command::WRITE => Self::Write(m::WriteResponse::parse(bytes)?),
            Command::LOCK => Self::Lock(m::LockResponse::parse(bytes)?),
            Command::IOCTL => Self::Ioctl(m::IoctlResponse::parse(bytes)?),
            Command::ECHO => Self::Echo(m::EchoResponse::parse(bytes)?),
            Command::QUERY_DIRECTORY => Self::QueryDirectory(m::QueryDirectoryResponse::parse(bytes)?),
            Command::CHANGE_NOTIFY => Self::ChangeNotify(m::ChangeNotifyResponse::parse(bytes)?),
            Command::QUERY_INFO => Self::QueryInfo(m::QueryInfoResponse::parse(bytes)?),
            Command::SET_INFO => Self::SetInfo(m::SetInfoResponse::parse(bytes)?),
            Command::OPLOCK_BREAK => Self::parse_break(bytes, size)?,
            Command::SERVER_TO_CLIENT_NOTIFICATION => {
                Self::Notification(m::ServerNotification::parse(bytes)?)
            }
            _ => Self::Unknown(m::UnknownResponse::parse(bytes)?),
        })
    }

    fn parse_break(bytes: B, size: u16) -> Result<Self, WireError> {
        let unsolicited =
            Header::parse(bytes.as_ref())?.message_id() == crate::header::MESSAGE_ID_UNSOLICITED;
        Ok(match (size, unsolicited) {
            (44, _) => Self::LeaseBreak(m::LeaseBreakNotification::parse(bytes)?),
            (36, _) => Self::LeaseBreakAcknowledged(m::LeaseBreakResponse::parse(bytes)?),
            (_, true) => Self::OplockBreak(m::OplockBreakNotification::parse(bytes)?),
            (_, false) => Self::OplockBreakAcknowledged(m::OplockBreakResponse::parse(bytes)?),
        })
    }
}

/// Whether a response has the body of an error (MS-SMB2 2.2.2 and 3.3.4.4). Where the command's own body has the same
/// structure size, the status tells: only those named here come with data.
fn is_error_body(command: Command, status: Status, size: u16) -> bool {
    if size != 9 {
        return false;
    }
    match command {
        Command::SESSION_SETUP => !matches!(status, Status::SUCCESS | Status::MORE_PROCESSING_REQUIRED),
        Command::QUERY_INFO | Command::QUERY_DIRECTORY | Command::CHANGE_NOTIFY => {
            !matches!(status, Status::SUCCESS | Status::BUFFER_OVERFLOW | Status::NOTIFY_ENUM_DIR)
        }
        // A success of an unknown command may look like anything.
        _ => status != Status::SUCCESS || command.name().is_some(),
    }
}

/// Checks of a body's fixed part; the caller has checked the length.
pub(crate) fn check(
    what: &'static str,
    bytes: &[u8],
    command: Command,
    direction: Direction,
    size: u16,
) -> Result<(), WireError> {
    let header = check_direction(what, bytes, direction)?;
    if header.command() != command {
        return Err(WireError::Command { expected: command, found: header.command() });
    }
    check_size(what, bytes, size)
}

/// Checks of an error, which may answer any command.
pub(crate) fn check_error(bytes: &[u8]) -> Result<(), WireError> {
    check_direction("ErrorResponse", bytes, Direction::Response)?;
    check_size("ErrorResponse", bytes, 9)
}

/// Checks of a request with any body.
pub(crate) fn check_request(bytes: &[u8]) -> Result<(), WireError> {
    check_direction("UnknownRequest", bytes, Direction::Request).map(drop)
}

/// Checks of a response with any body.
pub(crate) fn check_response(bytes: &[u8]) -> Result<(), WireError> {
    check_direction("UnknownResponse", bytes, Direction::Response).map(drop)
}

fn check_direction<'a>(
    what: &'static str,
    bytes: &'a [u8],
    direction: Direction,
) -> Result<Header<&'a [u8]>, WireError> {
    let header = Header::parse(bytes)?;
    if header.is_response() != (direction == Direction::Response) {
        return Err(WireError::Direction { what });
    }
    Ok(header)
}

fn check_size(what: &'static str, bytes: &[u8], expected: u16) -> Result<(), WireError> {
    fixed(what, bytes, HEADER_LEN + 2)?;
    let found = u16::read(bytes, HEADER_LEN);
    if found != expected {
        return Err(WireError::StructureSize { what, expected, found });
    }
    Ok(())
}
