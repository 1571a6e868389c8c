//! The header of a message whatever its bytes are: those that the other proxy describes need not be a message.

use crate::bytes_at::{u16_at, u32_at, u64_at};
use isthmus_smb_wire::{Command, HeaderFlags, Status};

/// Fields of MS-SMB2 2.2.1 as [`isthmus_smb_wire::Header`] has them, without its checks.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a>(pub &'a [u8]);

impl Head<'_> {
    pub fn charge(self) -> u16 {
        u16_at(self.0, 6)
    }

    pub fn status(self) -> Status {
        Status(u32_at(self.0, 8))
    }

    pub fn command(self) -> Command {
        Command(u16_at(self.0, 12))
    }

    pub fn flags(self) -> HeaderFlags {
        HeaderFlags(u32_at(self.0, 16))
    }

    pub fn message_id(self) -> u64 {
        u64_at(self.0, 24)
    }

    pub fn tree_id(self) -> u32 {
        u32_at(self.0, 36)
    }

    pub fn session_id(self) -> u64 {
        u64_at(self.0, 40)
    }

    /// Whether the message belongs to the beginning of a session, before it has keys.
    pub fn makes_session(self) -> bool {
        matches!(self.command(), Command::NEGOTIATE | Command::SESSION_SETUP)
    }

    pub fn is_related(self) -> bool {
        self.flags().contains(HeaderFlags::RELATED_OPERATIONS)
    }

    pub fn is_signed(self) -> bool {
        self.flags().contains(HeaderFlags::SIGNED)
    }

    /// The asynchronous identifier of an interim response.
    pub fn interim(self) -> Option<u64> {
        let flags = HeaderFlags::SERVER_TO_REDIR.with(HeaderFlags::ASYNC_COMMAND);
        (self.flags().contains(flags) && self.status() == Status::PENDING).then(|| u64_at(self.0, 32))
    }
}
