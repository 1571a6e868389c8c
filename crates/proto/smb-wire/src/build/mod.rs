//! Messages that a proxy makes by itself. Each is one element; [`crate::compound::join`] makes a compound of several.

mod requests;
mod responses;

pub use requests::{
    Cancel, ChangeNotify, Close, Create, Echo, Flush, LeaseBreakAcknowledgement, OplockBreakAcknowledgement,
    QueryDirectory, QueryInfo, Read, Write,
};
pub use responses::{
    CloseResponse, CreateResponse, EchoResponse, ErrorResponse, FlushResponse, IoctlResponse, OutputResponse,
    ReadResponse, WriteResponse, read_response_head,
};

use crate::body::Direction;
use crate::command::{Command, Status};
use crate::error::WireError;
use crate::field::Field;
use crate::file_id::FileId;
use crate::header::{HEADER_LEN, Header, HeaderFlags, PROTOCOL_ID};
use crate::macros::opaque;

/// What a message's header has beside its command and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HeaderFields {
    /// Flags; that of a response, and that of an asynchronous identifier, are set by themselves.
    pub flags: HeaderFlags,
    /// Status, of a response.
    pub status: Status,
    /// Credits that the operation takes.
    pub credit_charge: u16,
    /// Credits requested or granted.
    pub credits: u16,
    /// Message identifier.
    pub message_id: u64,
    /// Session identifier.
    pub session_id: u64,
    /// Tree identifier; not used where there is an asynchronous identifier.
    pub tree_id: u32,
    /// Asynchronous identifier.
    pub async_id: Option<u64>,
}

impl HeaderFields {
    /// Of a response to a request: identifiers, and which flags a response repeats (MS-SMB2 3.3.4.1).
    pub fn response_to<B: AsRef<[u8]>>(request: &Header<B>, status: Status, credits: u16) -> Self {
        let repeated = HeaderFlags::PRIORITY_MASK
            .with(HeaderFlags::RELATED_OPERATIONS)
            .with(HeaderFlags::DFS_OPERATIONS)
            .with(HeaderFlags::REPLAY_OPERATION);
        Self {
            flags: HeaderFlags(request.flags().0 & repeated.0),
            status,
            credit_charge: request.credit_charge(),
            credits,
            message_id: request.message_id(),
            session_id: request.session_id(),
            tree_id: request.tree_id().unwrap_or_default(),
            async_id: request.async_id(),
        }
    }

    /// Marked as related to the element before it, from which it takes session and tree connect.
    #[must_use]
    pub fn related(self) -> Self {
        Self {
            flags: self.flags.with(HeaderFlags::RELATED_OPERATIONS),
            session_id: u64::MAX,
            tree_id: u32::MAX,
            ..self
        }
    }
}

/// Body of a message to be made.
pub trait Body {
    /// Its command.
    fn command(&self) -> Command;

    /// Its direction.
    fn direction(&self) -> Direction;

    /// Appends it to its header.
    ///
    /// # Errors
    /// When a part is too long for its length field.
    fn put(&self, draft: &mut Draft) -> Result<(), WireError>;
}

/// Makes a message.
///
/// # Errors
/// When a part is too long for its length field.
pub fn message(fields: &HeaderFields, body: &impl Body) -> Result<Vec<u8>, WireError> {
    let mut draft = Draft { bytes: header(fields, body.command(), body.direction()).to_vec() };
    body.put(&mut draft)?;
    Ok(draft.bytes)
}

/// A message while it is made.
pub struct Draft {
    bytes: Vec<u8>,
}

opaque!(Draft);

/// A create context to be made.
#[derive(Clone, Copy)]
pub struct NewContext<'a> {
    /// Name, see [`crate::create_context::name`].
    pub name: &'a [u8],
    /// The data.
    pub data: &'a [u8],
}

impl std::fmt::Debug for NewContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.name.escape_ascii(), self.data.len())
    }
}

/// Data of a lease context of version 2 (MS-SMB2 2.2.13.2.10).
pub fn lease_v2(
    lease_key: [u8; 16],
    state: crate::create_context::LeaseState,
    parent_lease_key: Option<[u8; 16]>,
    epoch: u16,
) -> [u8; 52] {
    let mut bytes = [0; 52];
    let mut view = crate::create_context::LeaseV2::unchecked(&mut bytes);
    view.set_lease_key(lease_key);
    view.set_lease_state(state);
    view.set_epoch(epoch);
    if let Some(key) = parent_lease_key {
        view.set_lease_flags(crate::create_context::LeaseFlags::PARENT_LEASE_KEY_SET);
        view.set_parent_lease_key(key);
    }
    bytes
}

/// Data of a lease context of version 1 (MS-SMB2 2.2.13.2.8).
pub fn lease_v1(lease_key: [u8; 16], state: crate::create_context::LeaseState) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut view = crate::create_context::Lease::unchecked(&mut bytes);
    view.set_lease_key(lease_key);
    view.set_lease_state(state);
    bytes
}

/// Bytes of create contexts, one after the other, the last without padding.
///
/// # Errors
/// When a name or data is too long for its length field.
pub fn create_contexts(contexts: &[NewContext<'_>]) -> Result<Vec<u8>, WireError> {
    let mut all = Vec::new();
    for (index, context) in contexts.iter().enumerate() {
        let one = create_context(context)?;
        let length = one.len().next_multiple_of(8);
        let start = all.len();
        all.extend_from_slice(&one);
        if index + 1 < contexts.len() {
            all.resize(start + length, 0);
            len_u32("create context", length)?.write(&mut all, start);
        }
    }
    Ok(all)
}

/// One create context that is the last.
pub(crate) fn create_context(context: &NewContext<'_>) -> Result<Vec<u8>, WireError> {
    let what = "create context";
    let mut one = vec![0; crate::create_context::CONTEXT_HEADER_LEN];
    16_u16.write(&mut one, 4);
    len_u16(what, context.name.len())?.write(&mut one, 6);
    one.extend_from_slice(context.name);
    if !context.data.is_empty() {
        one.resize(one.len().next_multiple_of(8), 0);
        len_u16(what, one.len())?.write(&mut one, 10);
        len_u32(what, context.data.len())?.write(&mut one, 12);
        one.extend_from_slice(context.data);
    }
    Ok(one)
}

impl Draft {
    /// Appends the fixed part of a body, of zeros but for its structure size.
    fn fixed(&mut self, structure_size: u16) {
        self.bytes.resize(HEADER_LEN + usize::from(structure_size & !1), 0);
        structure_size.write(&mut self.bytes, HEADER_LEN);
    }

    /// Writes a field of the body.
    fn set(&mut self, at: usize, value: impl Field) {
        value.write(&mut self.bytes, HEADER_LEN + at);
    }

    /// Appends a variable part, and a byte in its stead where it is empty, as structures with an odd size want it. Gives its
    /// offset.
    fn append(&mut self, part: &[u8]) -> usize {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(part);
        if part.is_empty() {
            self.bytes.push(0);
        }
        offset
    }
}

/// A header of a message that is no compound and has no signature.
pub(crate) fn header(fields: &HeaderFields, command: Command, direction: Direction) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    PROTOCOL_ID.write(&mut bytes, 0);
    (HEADER_LEN as u16).write(&mut bytes, 4);
    let mut flags = fields.flags.without(HeaderFlags::SERVER_TO_REDIR).without(HeaderFlags::ASYNC_COMMAND);
    if direction == Direction::Response {
        flags = flags.with(HeaderFlags::SERVER_TO_REDIR);
    }
    if fields.async_id.is_some() {
        flags = flags.with(HeaderFlags::ASYNC_COMMAND);
    }
    let mut header = Header::unchecked(&mut bytes);
    header.set_flags(flags);
    header.set_command(command);
    header.set_status(fields.status);
    header.set_credit_charge(fields.credit_charge);
    header.set_credits(fields.credits);
    header.set_message_id(fields.message_id);
    header.set_session_id(fields.session_id);
    match fields.async_id {
        Some(id) => header.set_async_id(id),
        None => header.set_tree_id(fields.tree_id),
    }
    bytes
}

fn len_u16(what: &'static str, length: usize) -> Result<u16, WireError> {
    u16::try_from(length).map_err(|_| WireError::TooLong { what, length, limit: u16::MAX.into() })
}

fn len_u32(what: &'static str, length: usize) -> Result<u32, WireError> {
    u32::try_from(length).map_err(|_| WireError::TooLong { what, length, limit: u32::MAX as usize })
}

/// An open in a request: that of the CREATE before it, where none is named.
fn open(file_id: Option<FileId>) -> FileId {
    file_id.unwrap_or(FileId::ANY)
}
