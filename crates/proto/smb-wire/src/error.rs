//! What can be wrong with bytes.

use crate::command::Command;
use thiserror::Error;

/// Why bytes are not what they were read as. Whoever only forwards them can still do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Fewer bytes than the fixed part has.
    #[error("{what} needs {needed} bytes, {found} are there")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes that its fixed part has.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// The first four bytes name another protocol.
    #[error("protocol identifier {0:02x?} is not the expected one")]
    ProtocolId([u8; 4]),
    /// The structure says of itself that it is another one.
    #[error("{what} has structure size {expected}, not {found}")]
    StructureSize {
        /// The structure.
        what: &'static str,
        /// Its size as the document states it.
        expected: u16,
        /// The size in the bytes.
        found: u16,
    },
    /// A message of another command.
    #[error("a message of {expected:?}, not of {found:?}, was expected")]
    Command {
        /// Command of the view.
        expected: Command,
        /// Command in the header.
        found: Command,
    },
    /// A response where a request was expected, or the other way round.
    #[error("{what} goes the other way")]
    Direction {
        /// The structure.
        what: &'static str,
    },
    /// A variable part that is not within the message, or overlaps the fixed part.
    #[error("{what}: {length} bytes at {offset} are not within its {found} bytes")]
    OutOfBounds {
        /// The structure.
        what: &'static str,
        /// Where the part should begin.
        offset: u64,
        /// How long it should be.
        length: u64,
        /// Bytes that there are.
        found: usize,
    },
    /// An offset that must be a multiple of eight is not.
    #[error("{what}: offset {offset} is not a multiple of eight")]
    Misaligned {
        /// The structure.
        what: &'static str,
        /// The offset.
        offset: u64,
    },
    /// More elements than this codec looks at.
    #[error("more than {limit} elements in {what}")]
    TooMany {
        /// The list.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// More bytes than a length field or a limit allows.
    #[error("{what} of {length} bytes is longer than {limit}")]
    TooLong {
        /// The thing.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// Its limit in bytes.
        limit: usize,
    },
    /// A value that the structure cannot have.
    #[error("{what} has a value that it cannot have")]
    Value {
        /// The structure or field.
        what: &'static str,
    },
}
