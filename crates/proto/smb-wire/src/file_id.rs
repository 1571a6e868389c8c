//! Identifiers of opens, and where each command has them.

use crate::body::Direction;
use crate::command::Command;
use crate::error::WireError;
use crate::field::{Field, fixed};
use crate::header::{HEADER_LEN, Header};

/// Identifier of an open (MS-SMB2 2.2.14.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId {
    /// The half that lasts when a durable open is reconnected.
    pub persistent: u64,
    /// The half that names the open on this connection.
    pub volatile: u64,
}

impl FileId {
    /// Stands for the open of the operation before it in a compound, or for no open at all.
    pub const ANY: Self = Self { persistent: u64::MAX, volatile: u64::MAX };
}

impl Field for FileId {
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Self {
        Self { persistent: u64::read(bytes, at), volatile: u64::read(bytes, at + 8) }
    }

    #[inline]
    fn write(self, bytes: &mut [u8], at: usize) {
        self.persistent.write(bytes, at);
        self.volatile.write(bytes, at + 8);
    }
}

/// Where the body of a command has the identifier of an open, counted from the message's start; nothing when the command
/// has none. A break of a lease has a lease key instead, see
/// [`crate::messages::LeaseBreakNotification`].
pub fn file_id_offset(command: Command, direction: Direction) -> Option<usize> {
    let in_body = match (command, direction) {
        (Command::CREATE, Direction::Response) => 64,
        (Command::CLOSE | Command::FLUSH, Direction::Request) => 8,
        (Command::READ | Command::WRITE, Direction::Request) => 16,
        (Command::LOCK, Direction::Request) => 8,
        (Command::IOCTL, _) => 8,
        (Command::QUERY_DIRECTORY | Command::CHANGE_NOTIFY, Direction::Request) => 8,
        (Command::QUERY_INFO, Direction::Request) => 24,
        (Command::SET_INFO, Direction::Request) => 16,
        (Command::OPLOCK_BREAK, _) => 8,
        _ => return None,
    };
    Some(HEADER_LEN + in_body)
}

/// Identifier of the open that a message names, if its command has one and its body is that of the command.
pub fn file_id(message: &[u8]) -> Option<FileId> {
    Some(FileId::read(message, place(message)?))
}

/// Overwrites the identifier of the open that a message names.
///
/// # Errors
/// When the message has none.
pub fn set_file_id(message: &mut [u8], value: FileId) -> Result<(), WireError> {
    let at = place(message).ok_or(WireError::Value { what: "file id" })?;
    value.write(message, at);
    Ok(())
}

fn place(message: &[u8]) -> Option<usize> {
    let header = Header::parse(message).ok()?;
    let direction = if header.is_response() { Direction::Response } else { Direction::Request };
    let command = header.command();
    let size = u16::read(message, HEADER_LEN);
    // An error response and a break of a lease have other bodies.
    if direction == Direction::Response && size != response_size(command)? {
        return None;
    }
    if command == Command::OPLOCK_BREAK && size != OPLOCK_BREAK_SIZE {
        return None;
    }
    let at = file_id_offset(command, direction)?;
    fixed("file id", message, at + 16).ok()?;
    Some(at)
}

const OPLOCK_BREAK_SIZE: u16 = 24;

/// Structure size of those responses that have an identifier.
fn response_size(command: Command) -> Option<u16> {
    match command {
        Command::CREATE => Some(89),
        Command::IOCTL => Some(49),
        Command::OPLOCK_BREAK => Some(OPLOCK_BREAK_SIZE),
        _ => None,
    }
}
