//! Views of all messages. Each takes one element of a compound, from its header on.

mod create;
mod error;
mod file;
mod info;
mod ioctl;
mod negotiate;
mod oplock_break;
mod other;
mod session;
mod tree;

pub use create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    FileAttributes, OplockLevel, ShareAccess,
};
pub use error::{ErrorContext, ErrorContexts, ErrorResponse};
pub use file::{
    Channel, CloseFlags, CloseRequest, CloseResponse, FlushRequest, FlushResponse, Lock, LockFlags,
    LockRequest, LockResponse, ReadFlags, ReadRequest, ReadResponse, Span, WriteFlags, WriteRequest,
    WriteResponse,
};
pub use info::{
    ChangeNotifyRequest, ChangeNotifyResponse, InfoClass, InfoType, QueryDirectoryFlags,
    QueryDirectoryRequest, QueryDirectoryResponse, QueryInfoRequest, QueryInfoResponse, SetInfoRequest,
    SetInfoResponse,
};
pub use ioctl::{
    ControlCode, IoctlRequest, IoctlResponse, NetworkInterface, NetworkInterfaces, ValidateNegotiateRequest,
    ValidateNegotiateResponse,
};
pub use negotiate::{Capabilities, Dialect, NegotiateRequest, NegotiateResponse, SecurityMode};
pub use oplock_break::{
    LeaseBreakAcknowledgement, LeaseBreakNotification, LeaseBreakResponse, OplockBreakAcknowledgement,
    OplockBreakNotification, OplockBreakResponse,
};
pub use other::{
    CancelRequest, EchoRequest, EchoResponse, ServerNotification, UnknownRequest, UnknownResponse,
};
pub use session::{
    LogoffRequest, LogoffResponse, SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
pub use tree::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectExtension, TreeConnectFlags, TreeConnectRequest,
    TreeConnectResponse, TreeDisconnectRequest, TreeDisconnectResponse,
};
