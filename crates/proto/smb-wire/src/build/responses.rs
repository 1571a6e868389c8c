//! Responses that a proxy gives in place of the server.

use super::{Body, Draft, HeaderFields, NewContext, create_contexts, header, len_u16, len_u32};
use crate::body::Direction;
use crate::command::Command;
use crate::error::WireError;
use crate::field::Field;
use crate::file_id::FileId;
use crate::fscc::FileTimesAndSizes;
use crate::header::HEADER_LEN;
use crate::messages::{CloseFlags, ControlCode, CreateAction, OplockLevel};

/// Bytes of a READ response before the data.
pub const READ_RESPONSE_HEAD_LEN: usize = HEADER_LEN + 16;

macro_rules! response {
    ($name:ident $(<$life:lifetime>)?, $command:ident) => {
        impl $(<$life>)? Body for $name $(<$life>)? {
            fn command(&self) -> Command {
                Command::$command
            }

            fn direction(&self) -> Direction {
                Direction::Response
            }

            fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
                $name::put(self, draft)
            }
        }
    };
}

/// Error or interim response to any command (MS-SMB2 2.2.2).
#[derive(Clone, Copy)]
pub struct ErrorResponse<'a> {
    /// Command of the request.
    pub command: Command,
    /// Number of contexts in the data, in dialect 3.1.1.
    pub context_count: u8,
    /// Error data, for most statuses none.
    pub data: &'a [u8],
}

impl Body for ErrorResponse<'_> {
    fn command(&self) -> Command {
        self.command
    }

    fn direction(&self) -> Direction {
        Direction::Response
    }

    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(9);
        draft.set(2, self.context_count);
        draft.set(4, len_u32("error data", self.data.len())?);
        draft.append(self.data);
        Ok(())
    }
}

impl std::fmt::Debug for ErrorResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ErrorResponse to {:?} with {} bytes", self.command, self.data.len())
    }
}

/// ECHO (MS-SMB2 2.2.29).
#[derive(Clone, Copy, Debug)]
pub struct EchoResponse;
response!(EchoResponse, ECHO);

impl EchoResponse {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(4);
        Ok(())
    }
}

/// FLUSH (MS-SMB2 2.2.18).
#[derive(Clone, Copy, Debug)]
pub struct FlushResponse;
response!(FlushResponse, FLUSH);

impl FlushResponse {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(4);
        Ok(())
    }
}

/// CREATE (MS-SMB2 2.2.14).
#[derive(Clone, Copy, Debug)]
pub struct CreateResponse<'a> {
    /// Oplock granted.
    pub oplock_level: OplockLevel,
    /// Flags: bit 0 for a reparse point.
    pub flags: u8,
    /// What was done.
    pub create_action: CreateAction,
    /// The file.
    pub attributes: FileTimesAndSizes,
    /// The open.
    pub file_id: FileId,
    /// Create contexts.
    pub contexts: &'a [NewContext<'a>],
}
response!(CreateResponse<'a>, CREATE);

impl CreateResponse<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(89);
        draft.set(2, self.oplock_level);
        draft.set(3, self.flags);
        draft.set(4, self.create_action);
        put_attributes(draft, &self.attributes);
        draft.set(64, self.file_id);
        let contexts = create_contexts(self.contexts)?;
        if !contexts.is_empty() {
            let offset = draft.append(&contexts);
            draft.set(80, len_u32("create contexts", offset)?);
            draft.set(84, len_u32("create contexts", contexts.len())?);
        }
        Ok(())
    }
}

/// CLOSE (MS-SMB2 2.2.16).
#[derive(Clone, Copy, Debug)]
pub struct CloseResponse {
    /// The file, if the request asked for it.
    pub attributes: Option<FileTimesAndSizes>,
}
response!(CloseResponse, CLOSE);

impl CloseResponse {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(60);
        if let Some(attributes) = &self.attributes {
            draft.set(2, CloseFlags::POSTQUERY_ATTRIB);
            put_attributes(draft, attributes);
        }
        Ok(())
    }
}

/// READ (MS-SMB2 2.2.20). [`read_response_head`] does without a copy of the data.
#[derive(Clone, Copy)]
pub struct ReadResponse<'a> {
    /// The data read.
    pub payload: &'a [u8],
}
response!(ReadResponse<'a>, READ);

impl ReadResponse<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(17);
        put_read_head(&mut draft.bytes, self.payload.len())?;
        draft.append(self.payload);
        Ok(())
    }
}

impl std::fmt::Debug for ReadResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadResponse of {} bytes", self.payload.len())
    }
}

/// Header and fixed part of a READ response, which the data is to follow. Without data, one byte is to follow.
///
/// # Errors
/// When the data is too long for its length field.
pub fn read_response_head(
    fields: &HeaderFields,
    payload_len: usize,
) -> Result<[u8; READ_RESPONSE_HEAD_LEN], WireError> {
    let mut bytes = [0; READ_RESPONSE_HEAD_LEN];
    header(fields, Command::READ, Direction::Response).write(&mut bytes, 0);
    17_u16.write(&mut bytes, HEADER_LEN);
    put_read_head(&mut bytes, payload_len)?;
    Ok(bytes)
}

/// WRITE (MS-SMB2 2.2.22).
#[derive(Clone, Copy, Debug)]
pub struct WriteResponse {
    /// Bytes written.
    pub count: u32,
}
response!(WriteResponse, WRITE);

impl WriteResponse {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(17);
        draft.set(4, self.count);
        draft.append(&[]);
        Ok(())
    }
}

/// QUERY_INFO, QUERY_DIRECTORY or CHANGE_NOTIFY (MS-SMB2 2.2.34, 2.2.36, 2.2.38), which differ in their command alone.
#[derive(Clone, Copy)]
pub struct OutputResponse<'a> {
    /// Which of the three.
    pub command: Command,
    /// The buffer.
    pub buffer: &'a [u8],
}

impl Body for OutputResponse<'_> {
    fn command(&self) -> Command {
        self.command
    }

    fn direction(&self) -> Direction {
        Direction::Response
    }

    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        if !matches!(self.command, Command::QUERY_INFO | Command::QUERY_DIRECTORY | Command::CHANGE_NOTIFY) {
            return Err(WireError::Value { what: "command of an output response" });
        }
        draft.fixed(9);
        let offset = draft.append(self.buffer);
        draft.set(2, len_u16("output", offset)?);
        draft.set(4, len_u32("output", self.buffer.len())?);
        Ok(())
    }
}

impl std::fmt::Debug for OutputResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes", self.command, self.buffer.len())
    }
}

/// IOCTL (MS-SMB2 2.2.32).
#[derive(Clone, Copy)]
pub struct IoctlResponse<'a> {
    /// Control code.
    pub control_code: ControlCode,
    /// The open, as in the request.
    pub file_id: FileId,
    /// The output.
    pub output: &'a [u8],
}
response!(IoctlResponse<'a>, IOCTL);

impl IoctlResponse<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(49);
        let offset = len_u32("output", draft.append(self.output))?;
        draft.set(4, self.control_code);
        draft.set(8, self.file_id);
        draft.set(24, offset);
        draft.set(32, offset);
        draft.set(36, len_u32("output", self.output.len())?);
        Ok(())
    }
}

impl std::fmt::Debug for IoctlResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoctlResponse {:?} of {} bytes", self.control_code, self.output.len())
    }
}

/// In CREATE and CLOSE responses the attributes are at the same place.
fn put_attributes(draft: &mut Draft, attributes: &FileTimesAndSizes) {
    draft.set(8, attributes.creation_time);
    draft.set(16, attributes.last_access_time);
    draft.set(24, attributes.last_write_time);
    draft.set(32, attributes.change_time);
    draft.set(40, attributes.allocation_size);
    draft.set(48, attributes.end_of_file);
    draft.set(56, attributes.file_attributes);
}

fn put_read_head(bytes: &mut [u8], payload_len: usize) -> Result<(), WireError> {
    (READ_RESPONSE_HEAD_LEN as u8).write(bytes, HEADER_LEN + 2);
    len_u32("payload", payload_len)?.write(bytes, HEADER_LEN + 4);
    Ok(())
}
