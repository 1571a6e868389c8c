//! Requests that a proxy sends of its own accord.

use super::{Body, Draft, NewContext, create_contexts, len_u16, len_u32, open};
use crate::body::Direction;
use crate::command::Command;
use crate::create_context::LeaseState;
use crate::error::WireError;
use crate::file_id::FileId;
use crate::messages::{
    AccessMask, ChangeNotifyRequest, CloseFlags, CreateDisposition, CreateOptions, CreateRequest,
    FileAttributes, InfoClass, InfoType, OplockLevel, QueryDirectoryFlags, QueryDirectoryRequest,
    QueryInfoRequest, ReadFlags, ReadRequest, ShareAccess, WriteFlags, WriteRequest,
};
use crate::name::Name;

/// Level of impersonation that clients ask for.
const IMPERSONATION: u32 = 2;

macro_rules! request {
    ($name:ident $(<$life:lifetime>)?, $command:ident) => {
        impl $(<$life>)? Body for $name $(<$life>)? {
            fn command(&self) -> Command {
                Command::$command
            }

            fn direction(&self) -> Direction {
                Direction::Request
            }

            fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
                $name::put(self, draft)
            }
        }
    };
}

/// ECHO (MS-SMB2 2.2.28).
#[derive(Clone, Copy, Debug)]
pub struct Echo;
request!(Echo, ECHO);

impl Echo {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(4);
        Ok(())
    }
}

/// CANCEL (MS-SMB2 2.2.30); the header names what to cancel.
#[derive(Clone, Copy, Debug)]
pub struct Cancel;
request!(Cancel, CANCEL);

impl Cancel {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(4);
        Ok(())
    }
}

/// CREATE (MS-SMB2 2.2.13).
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    /// Oplock asked for.
    pub oplock_level: OplockLevel,
    /// Access asked for.
    pub desired_access: AccessMask,
    /// Attributes of a file that is created.
    pub file_attributes: FileAttributes,
    /// What others may do.
    pub share_access: ShareAccess,
    /// What to do when the file exists and when it does not.
    pub disposition: CreateDisposition,
    /// Options.
    pub options: CreateOptions,
    /// Name within the share.
    pub name: Name<'a>,
    /// Create contexts.
    pub contexts: &'a [NewContext<'a>],
}
request!(Create<'a>, CREATE);

impl Create<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(57);
        let name = self.name.as_bytes();
        let name_len = len_u16("name", name.len())?;
        let contexts = create_contexts(self.contexts)?;
        let name_offset = draft.append(name);
        draft.set(44, len_u16("name", name_offset)?);
        draft.set(46, name_len);
        if !contexts.is_empty() {
            draft.bytes.resize(draft.bytes.len().next_multiple_of(8), 0);
            let offset = draft.append(&contexts);
            draft.set(48, len_u32("create contexts", offset)?);
            draft.set(52, len_u32("create contexts", contexts.len())?);
        }
        let mut view = CreateRequest::unchecked(&mut draft.bytes[..]);
        view.set_oplock_level(self.oplock_level);
        view.set_impersonation_level(IMPERSONATION);
        view.set_desired_access(self.desired_access);
        view.set_file_attributes(self.file_attributes);
        view.set_share_access(self.share_access);
        view.set_disposition(self.disposition);
        view.set_options(self.options);
        Ok(())
    }
}

/// CLOSE (MS-SMB2 2.2.15).
#[derive(Clone, Copy, Debug)]
pub struct Close {
    /// Flags.
    pub flags: CloseFlags,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
}
request!(Close, CLOSE);

impl Close {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(24);
        draft.set(2, self.flags);
        draft.set(8, open(self.file_id));
        Ok(())
    }
}

/// FLUSH (MS-SMB2 2.2.17).
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
}
request!(Flush, FLUSH);

impl Flush {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(24);
        draft.set(8, open(self.file_id));
        Ok(())
    }
}

/// READ (MS-SMB2 2.2.19).
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Flags.
    pub flags: ReadFlags,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
    /// Where to read, in bytes.
    pub offset: u64,
    /// Most bytes to read.
    pub length: u32,
    /// Fewest bytes to read.
    pub minimum_count: u32,
}
request!(Read, READ);

impl Read {
    /// Where the data is in a response without anything between header and data.
    const PADDING: u8 = 80;

    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(49);
        draft.append(&[]);
        let mut view = ReadRequest::unchecked(&mut draft.bytes[..]);
        view.set_padding(Self::PADDING);
        view.set_flags(self.flags);
        view.set_file_id(open(self.file_id));
        view.set_offset(self.offset);
        view.set_length(self.length);
        view.set_minimum_count(self.minimum_count);
        Ok(())
    }
}

/// WRITE (MS-SMB2 2.2.21).
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Flags.
    pub flags: WriteFlags,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
    /// Where to write, in bytes.
    pub offset: u64,
    /// The data.
    pub payload: &'a [u8],
}
request!(Write<'a>, WRITE);

impl Write<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(49);
        let offset = draft.append(self.payload);
        draft.set(2, len_u16("offset", offset)?);
        draft.set(4, len_u32("payload", self.payload.len())?);
        let mut view = WriteRequest::unchecked(&mut draft.bytes[..]);
        view.set_offset(self.offset);
        view.set_file_id(open(self.file_id));
        view.set_flags(self.flags);
        Ok(())
    }
}

impl std::fmt::Debug for Write<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Write of {} bytes at {} of {:?}", self.payload.len(), self.offset, self.file_id)
    }
}

/// QUERY_DIRECTORY (MS-SMB2 2.2.33).
#[derive(Clone, Copy, Debug)]
pub struct QueryDirectory<'a> {
    /// Class of the entries.
    pub info_class: InfoClass,
    /// Flags.
    pub flags: QueryDirectoryFlags,
    /// Index to begin from, if the flags say so.
    pub file_index: u32,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
    /// Pattern that names are to match.
    pub pattern: Name<'a>,
    /// Most bytes of the response's buffer.
    pub output_buffer_length: u32,
}
request!(QueryDirectory<'a>, QUERY_DIRECTORY);

impl QueryDirectory<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(33);
        let pattern = self.pattern.as_bytes();
        let offset = draft.append(pattern);
        draft.set(24, len_u16("pattern", offset)?);
        draft.set(26, len_u16("pattern", pattern.len())?);
        let mut view = QueryDirectoryRequest::unchecked(&mut draft.bytes[..]);
        view.set_info_class(self.info_class);
        view.set_flags(self.flags);
        view.set_file_index(self.file_index);
        view.set_file_id(open(self.file_id));
        view.set_output_buffer_length(self.output_buffer_length);
        Ok(())
    }
}

/// CHANGE_NOTIFY (MS-SMB2 2.2.35).
#[derive(Clone, Copy, Debug)]
pub struct ChangeNotify {
    /// Whether the whole tree is watched.
    pub watch_tree: bool,
    /// Most bytes of the response's buffer.
    pub output_buffer_length: u32,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
    /// Kinds of change to tell of.
    pub completion_filter: u32,
}
request!(ChangeNotify, CHANGE_NOTIFY);

impl ChangeNotify {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(32);
        let mut view = ChangeNotifyRequest::unchecked(&mut draft.bytes[..]);
        view.set_flags(self.watch_tree.into());
        view.set_output_buffer_length(self.output_buffer_length);
        view.set_file_id(open(self.file_id));
        view.set_completion_filter(self.completion_filter);
        Ok(())
    }
}

/// QUERY_INFO (MS-SMB2 2.2.37).
#[derive(Clone, Copy, Debug)]
pub struct QueryInfo<'a> {
    /// What is asked about.
    pub info_type: InfoType,
    /// Class of the information.
    pub info_class: InfoClass,
    /// Most bytes of the response's buffer.
    pub output_buffer_length: u32,
    /// Parts of a security descriptor, or an index.
    pub additional_information: u32,
    /// Flags for extended attributes.
    pub flags: u32,
    /// The open; without one, that of the CREATE before it in the compound.
    pub file_id: Option<FileId>,
    /// Input of quotas and extended attributes.
    pub input: &'a [u8],
}
request!(QueryInfo<'a>, QUERY_INFO);

impl QueryInfo<'_> {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(41);
        if !self.input.is_empty() {
            let offset = draft.append(self.input);
            draft.set(8, len_u16("input", offset)?);
            draft.set(12, len_u32("input", self.input.len())?);
        } else {
            draft.append(&[]);
        }
        let mut view = QueryInfoRequest::unchecked(&mut draft.bytes[..]);
        view.set_info_type(self.info_type);
        view.set_info_class(self.info_class);
        view.set_output_buffer_length(self.output_buffer_length);
        view.set_additional_information(self.additional_information);
        view.set_flags(self.flags);
        view.set_file_id(open(self.file_id));
        Ok(())
    }
}

/// Acknowledgement of a lease break (MS-SMB2 2.2.24.2).
#[derive(Clone, Copy, Debug)]
pub struct LeaseBreakAcknowledgement {
    /// The lease.
    pub lease_key: [u8; 16],
    /// State that is kept.
    pub lease_state: LeaseState,
}
request!(LeaseBreakAcknowledgement, OPLOCK_BREAK);

impl LeaseBreakAcknowledgement {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(36);
        draft.set(8, self.lease_key);
        draft.set(24, self.lease_state);
        Ok(())
    }
}

/// Acknowledgement of an oplock break (MS-SMB2 2.2.24.1).
#[derive(Clone, Copy, Debug)]
pub struct OplockBreakAcknowledgement {
    /// Oplock that is kept.
    pub oplock_level: OplockLevel,
    /// The open.
    pub file_id: FileId,
}
request!(OplockBreakAcknowledgement, OPLOCK_BREAK);

impl OplockBreakAcknowledgement {
    fn put(&self, draft: &mut Draft) -> Result<(), WireError> {
        draft.fixed(24);
        draft.set(2, self.oplock_level);
        draft.set(8, self.file_id);
        Ok(())
    }
}
