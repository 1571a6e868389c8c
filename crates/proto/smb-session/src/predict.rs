//! Fields of a message that follow from what both sides know.

use crate::bytes_at::{array, put, u16_at, u32_at, u64_at};
use crate::codec::Way;
use crate::limits::OPENS_MAX;
use crate::tracker::{Open, Waiting};
use isthmus_smb_wire::body::Direction;
use isthmus_smb_wire::file_id::file_id_offset;
use isthmus_smb_wire::header::{HeaderFlags, PROTOCOL_ID};
use isthmus_smb_wire::{Command, FileId, HEADER_LEN};

/// What a prediction draws on beside the message before.
pub(crate) struct Context<'a> {
    /// The request that a response answers.
    pub request: Option<&'a Waiting>,
    /// The open that the message is about, with its number.
    pub open: Option<(u64, &'a Open)>,
    pub next_message_id: u64,
    pub offsets: &'a Offsets,
    /// Length of the message without content.
    pub length: usize,
    /// Whether there is a message before.
    pub known: bool,
}

/// Where the next READ and WRITE of each open should begin.
#[derive(Default)]
pub(crate) struct Offsets {
    reads: Vec<(u64, u64)>,
    writes: Vec<(u64, u64)>,
}

impl Offsets {
    pub fn set(&mut self, command: Command, number: u64, offset: u64) {
        let list = if command == Command::READ { &mut self.reads } else { &mut self.writes };
        match list.iter_mut().find(|(of, _)| *of == number) {
            Some((_, next)) => *next = offset,
            None => {
                if list.len() >= OFFSETS_MAX {
                    list.remove(0);
                }
                list.push((number, offset));
            }
        }
    }

    /// The offset; 0 for an open not read or written before.
    fn next(&self, command: Command, number: u64) -> u64 {
        let list = if command == Command::READ { &self.reads } else { &self.writes };
        list.iter().find(|(of, _)| *of == number).map_or(0, |(_, next)| *next)
    }
}

/// Opens whose next offsets are kept.
const OFFSETS_MAX: usize = 64;
const _: () = assert!((OFFSETS_MAX as u64) < OPENS_MAX);

/// Flags of a request that its response repeats.
const REPEATED: u32 = HeaderFlags::PRIORITY_MASK.0
    | HeaderFlags::RELATED_OPERATIONS.0
    | HeaderFlags::DFS_OPERATIONS.0
    | HeaderFlags::REPLAY_OPERATION.0;
/// Flags of the response before that this one should have too.
const KEPT: u32 = HeaderFlags::SIGNED.0 | HeaderFlags::ASYNC_COMMAND.0;

/// A message of which nothing is known but its command.
pub(crate) fn blank(command: Command, way: Way) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    put(&mut bytes, 0, &PROTOCOL_ID);
    put(&mut bytes, 4, &(HEADER_LEN as u16).to_le_bytes());
    put(&mut bytes, 12, &command.0.to_le_bytes());
    if way.is_response() {
        put(&mut bytes, 16, &HeaderFlags::SERVER_TO_REDIR.0.to_le_bytes());
    }
    bytes
}

/// Messages of the same kind are predicted from each other. The sender alone uses this.
pub(crate) fn kind(bytes: &[u8], way: Way) -> (u64, u64, u64) {
    let flags = u32_at(bytes, 16) & (KEPT | HeaderFlags::RELATED_OPERATIONS.0);
    let status = if way.is_response() { u32_at(bytes, 8) } else { 0 };
    let head = u64::from(flags) << 32 | u64::from(status);
    let command = Command(u16_at(bytes, 12));
    let body = u64::from(u32_at(bytes, HEADER_LEN)) << 32;
    let more = match (command, way) {
        (Command::CREATE, Way::Request) => {
            // Access, disposition, options, and whether there are contexts.
            let shape =
                u64::from(u32_at(bytes, HEADER_LEN + 36)) << 32 | u64::from(u32_at(bytes, HEADER_LEN + 40));
            return (
                head,
                u64::from(u32_at(bytes, HEADER_LEN + 24)) << 32 | u64::from(u32_at(bytes, HEADER_LEN + 52)),
                shape,
            );
        }
        (Command::IOCTL, _) => u64::from(u32_at(bytes, HEADER_LEN + 4)),
        (Command::QUERY_INFO, Way::Response) => u64::from(u32_at(bytes, HEADER_LEN + 4)),
        _ => 0,
    };
    (head, body | more, u64::from(any(bytes, command, way)))
}

/// Whether the message names no open but "the one before".
fn any(bytes: &[u8], command: Command, way: Way) -> bool {
    file_id_offset(command, way.direction()).is_some_and(|at| array::<16>(bytes, at) == [0xff; 16])
}

pub(crate) fn request(bytes: &mut [u8], command: Command, context: &Context<'_>) {
    if command != Command::CANCEL {
        put(bytes, 24, &context.next_message_id.to_le_bytes());
    }
    if let Some(at) = file_id_offset(command, Direction::Request)
        && let Some((_, open)) = context.open
        && !any(bytes, command, Way::Request)
    {
        put_id(bytes, at, open.id);
    }
    match command {
        Command::READ | Command::WRITE => {
            let offset = match context.open {
                Some((number, _)) => context.offsets.next(command, number),
                None => u64_at(bytes, HEADER_LEN + 8).wrapping_add(u32_at(bytes, HEADER_LEN + 4).into()),
            };
            put(bytes, HEADER_LEN + 8, &offset.to_le_bytes());
        }
        // Without contexts the name is all that follows.
        Command::CREATE if context.known && u32_at(bytes, HEADER_LEN + 52) == 0 => {
            let name = context.length.saturating_sub(HEADER_LEN + 56) as u16;
            put(bytes, HEADER_LEN + 46, &name.to_le_bytes());
        }
        _ => {}
    }
}

pub(crate) fn response(bytes: &mut [u8], command: Command, context: &Context<'_>) {
    let Some(request) = context.request else { return };
    put(bytes, 6, &request.charge.to_le_bytes());
    let mut flags = HeaderFlags::SERVER_TO_REDIR.0 | (u32_at(bytes, 16) & KEPT) | (request.flags & REPEATED);
    if request.async_id.is_some() {
        flags |= HeaderFlags::ASYNC_COMMAND.0;
    }
    put(bytes, 16, &flags.to_le_bytes());
    put(bytes, 24, &request.message_id.to_le_bytes());
    match request.async_id {
        Some(id) => put(bytes, 32, &id.to_le_bytes()),
        None if flags & HeaderFlags::ASYNC_COMMAND.0 == 0 => put(bytes, 36, &request.tree_id.to_le_bytes()),
        None => {}
    }
    if request.session_id != 0 && request.session_id != u64::MAX {
        put(bytes, 40, &request.session_id.to_le_bytes());
    }
    // A template that is an error stays one.
    if context.known && u32_at(bytes, 8) == 0 {
        response_body(bytes, command, request, context);
    }
}

fn response_body(bytes: &mut [u8], command: Command, request: &Waiting, context: &Context<'_>) {
    let body = HEADER_LEN;
    let attributes = context.open.map(|(_, open)| &open.attributes);
    match command {
        Command::READ => {
            // Up to the end of the file as it was when it was opened.
            let end = attributes.map_or(u64::MAX, |attributes| u64_at(attributes, 40));
            let left = end.saturating_sub(request.offset);
            let length = if left == 0 { request.length } else { left.min(request.length.into()) as u32 };
            put(bytes, body + 4, &length.to_le_bytes());
        }
        Command::WRITE => put(bytes, body + 4, &request.length.to_le_bytes()),
        Command::QUERY_INFO | Command::QUERY_DIRECTORY => {
            let length = context.length.saturating_sub(body + 8) as u32;
            put(bytes, body + 4, &length.to_le_bytes());
        }
        _ => {}
    }
}

fn put_id(bytes: &mut [u8], at: usize, id: FileId) {
    put(bytes, at, &id.persistent.to_le_bytes());
    put(bytes, at + 8, &id.volatile.to_le_bytes());
}
