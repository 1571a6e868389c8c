//! SMB2 and SMB3 on the wire, as MS-SMB2 describes it: frames, headers, compounds and all messages as views of bytes that
//! can be patched in place, and builders of those messages that a proxy makes by itself.
//!
//! A view checks that its fixed part is whole and that its variable parts are within the message; values that are not known
//! stay as they are. What a view refuses can still be forwarded, since no bytes are changed by looking at them.
//!
//! ```
//! use bytes::BytesMut;
//! use isthmus_smb_wire::build::{self, HeaderFields};
//! use isthmus_smb_wire::compound::elements;
//! use isthmus_smb_wire::messages::WriteFlags;
//! use isthmus_smb_wire::{FileId, Header, Request, WireError, transport};
//!
//! # fn main() -> Result<(), WireError> {
//! # let file_id = Some(FileId { persistent: 1, volatile: 2 });
//! # let write = build::Write { flags: WriteFlags::NONE, file_id, offset: 4096, payload: b"data" };
//! # let mut received = BytesMut::new();
//! # transport::put(&mut received, &build::message(&HeaderFields::default(), &write)?)?;
//! while let Some(mut frame) = transport::split(&mut received, transport::MESSAGE_LEN_MAX)? {
//!     let ranges = elements(frame.message()).collect::<Result<Vec<_>, _>>()?;
//!     for range in ranges {
//!         let element = &mut frame.message_mut()[range];
//!         if let Request::Write(write) = Request::parse(&*element)? {
//!             assert_eq!((write.span().offset, write.payload()), (4096, &b"data"[..]));
//!         }
//!         Header::parse(element)?.set_message_id(77);
//!     }
//!     assert_eq!(Header::parse(frame.message())?.message_id(), 77);
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod field;
mod macros;

pub mod body;
pub mod build;
pub mod command;
pub mod compound;
pub mod compression;
pub mod create_context;
pub mod edit;
pub mod file_id;
pub mod fscc;
pub mod header;
pub mod messages;
pub mod name;
pub mod negotiate_context;
pub mod smb1;
pub mod transform;
pub mod transport;

pub use body::{Direction, Request, Response};
pub use command::{Command, Status};
pub use error::WireError;
pub use file_id::{FileId, file_id, set_file_id};
pub use header::{HEADER_LEN, Header, HeaderFlags};
pub use name::Name;
pub use transport::{Frame, FrameType, MessageKind};
