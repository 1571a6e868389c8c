//! CLOSE, FLUSH, READ, WRITE and LOCK (MS-SMB2 2.2.15 to 2.2.27).

use crate::body::{Direction, check};
use crate::command::Command;
use crate::error::WireError;
use crate::field::{Field, part, slice};
use crate::file_id::FileId;
use crate::fscc::FileTimesAndSizes;
use crate::header::{HEADER_LEN, Header};
use crate::macros::{body, flags, number, view};
use crate::messages::FileAttributes;
use std::ops::Range;

/// What a READ or WRITE is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The open.
    pub file_id: FileId,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

flags! {
    /// Flags of a CLOSE.
    CloseFlags(u16) {
        /// The response has the attributes.
        POSTQUERY_ATTRIB = 0x0001;
    }
}

flags! {
    /// Flags of a READ request.
    ReadFlags(u8) {
        /// From the disk, not from a cache.
        READ_UNBUFFERED = 0x01;
        /// The response may be compressed.
        REQUEST_COMPRESSED = 0x02;
    }
}

flags! {
    /// Flags of a WRITE request.
    WriteFlags(u32) {
        /// To the disk before the answer.
        WRITE_THROUGH = 0x0000_0001;
        /// Past the cache.
        WRITE_UNBUFFERED = 0x0000_0002;
    }
}

number! {
    /// Channel of a READ or WRITE whose data may travel by remote direct memory access.
    Channel(u32) {
        /// The data is in the message.
        NONE = 0x0000_0000;
        /// Memory access.
        RDMA_V1 = 0x0000_0001;
        /// Memory access with remote invalidation.
        RDMA_V1_INVALIDATE = 0x0000_0002;
        /// Memory access with transforms.
        RDMA_TRANSFORM = 0x0000_0003;
    }
}

flags! {
    /// Flags of one lock.
    LockFlags(u32) {
        /// Others may lock shared too.
        SHARED_LOCK = 0x0000_0001;
        /// No other may lock.
        EXCLUSIVE_LOCK = 0x0000_0002;
        /// Unlocks.
        UNLOCK = 0x0000_0004;
        /// Does not wait.
        FAIL_IMMEDIATELY = 0x0000_0010;
    }
}

body! {
    /// CLOSE request (MS-SMB2 2.2.15).
    CloseRequest: CLOSE, Request, 24 {
        /// Flags.
        flags, set_flags: CloseFlags = 2;
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
}

body! {
    /// CLOSE response (MS-SMB2 2.2.16).
    CloseResponse: CLOSE, Response, 60 {
        /// Flags; without attributes, the fields below are 0.
        flags, set_flags: CloseFlags = 2;
        /// When the file was created, in 100 ns since 1601.
        creation_time, set_creation_time: u64 = 8;
        /// When the file was read last.
        last_access_time, set_last_access_time: u64 = 16;
        /// When the file was written last.
        last_write_time, set_last_write_time: u64 = 24;
        /// When the file was changed last, its attributes included.
        change_time, set_change_time: u64 = 32;
        /// Bytes on the disk.
        allocation_size, set_allocation_size: u64 = 40;
        /// Bytes of the file.
        end_of_file, set_end_of_file: u64 = 48;
        /// Attributes.
        file_attributes, set_file_attributes: FileAttributes = 56;
    }
}

impl<B: AsRef<[u8]>> CloseResponse<B> {
    /// Times, sizes and attributes together.
    pub fn attributes(&self) -> FileTimesAndSizes {
        FileTimesAndSizes {
            creation_time: self.creation_time(),
            last_access_time: self.last_access_time(),
            last_write_time: self.last_write_time(),
            change_time: self.change_time(),
            allocation_size: self.allocation_size(),
            end_of_file: self.end_of_file(),
            file_attributes: self.file_attributes(),
        }
    }
}

body! {
    /// FLUSH request (MS-SMB2 2.2.17).
    FlushRequest: FLUSH, Request, 24 {
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
}

body! {
    /// FLUSH response (MS-SMB2 2.2.18).
    FlushResponse: FLUSH, Response, 4 {}
}

body! {
    /// READ request (MS-SMB2 2.2.19).
    ReadRequest: READ, Request, 49 {
        /// Where the client would like the data in the response.
        padding, set_padding: u8 = 2;
        /// Flags.
        flags, set_flags: ReadFlags = 3;
        /// Most bytes to read.
        length, set_length: u32 = 4;
        /// Where to read, in bytes.
        offset, set_offset: u64 = 8;
        /// The open.
        file_id, set_file_id: FileId = 16;
        /// Fewest bytes to read.
        minimum_count, set_minimum_count: u32 = 32;
        /// Channel.
        channel, set_channel: Channel = 36;
        /// Bytes that the client means to read after these.
        remaining_bytes, set_remaining_bytes: u32 = 40;
    }
    loose {
        /// Information for the channel; reserved in dialects before 3.0.
        channel_info, channel_info_range: u16 = 44, u16 = 46;
    }
}

impl<B: AsRef<[u8]>> ReadRequest<B> {
    /// What is read.
    #[inline]
    pub fn span(&self) -> Span {
        Span { file_id: self.file_id(), offset: self.offset(), length: self.length() }
    }
}

body! {
    /// READ response (MS-SMB2 2.2.20).
    ReadResponse: READ, Response, 17 {
        /// Bytes that are yet to come by another channel.
        data_remaining, set_data_remaining: u32 = 8;
        /// Flags, in dialect 3.1.1; reserved before.
        flags, set_flags: u32 = 12;
    }
    parts {
        /// The data read.
        payload, payload_range: u8 = 2, u32 = 4;
    }
}

body! {
    /// WRITE request (MS-SMB2 2.2.21).
    WriteRequest: WRITE, Request, 49 {
        /// Where to write, in bytes.
        offset, set_offset: u64 = 8;
        /// The open.
        file_id, set_file_id: FileId = 16;
        /// Channel.
        channel, set_channel: Channel = 32;
        /// Bytes that the client means to write after these.
        remaining_bytes, set_remaining_bytes: u32 = 36;
        /// Flags.
        flags, set_flags: WriteFlags = 44;
    }
    parts {
        /// The data to write.
        payload, payload_range: u16 = 2, u32 = 4;
    }
    loose {
        /// Information for the channel; reserved in dialects before 3.0.
        channel_info, channel_info_range: u16 = 40, u16 = 42;
    }
}

impl<B: AsRef<[u8]>> WriteRequest<B> {
    /// Bytes to write.
    #[inline]
    pub fn length(&self) -> u32 {
        u32::read(self.as_bytes(), HEADER_LEN + 4)
    }

    /// What is written.
    #[inline]
    pub fn span(&self) -> Span {
        Span { file_id: self.file_id(), offset: self.offset(), length: self.length() }
    }
}

body! {
    /// WRITE response (MS-SMB2 2.2.22).
    WriteResponse: WRITE, Response, 17 {
        /// Bytes written.
        count, set_count: u32 = 4;
        /// Reserved.
        remaining, set_remaining: u32 = 8;
    }
}

view! {
    /// LOCK request (MS-SMB2 2.2.26). Its structure size counts one lock; as many follow as the count says, which may be
    /// none.
    LockRequest [HEADER_LEN, LOCKS_AT] {
        /// Number and index for replays; reserved in dialect 2.0.2.
        lock_sequence, set_lock_sequence: u32 = 4;
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
    also check_lock, check_locks,
}

impl<B: AsRef<[u8]>> LockRequest<B> {
    /// Value of the structure size field.
    pub const STRUCTURE_SIZE: u16 = 48;
    /// Command that the header of such a message has.
    pub const COMMAND: Command = Command::LOCK;

    /// The message's header.
    pub fn header(&self) -> Header<&[u8]> {
        Header::unchecked(self.bytes.as_ref())
    }

    /// Number of locks.
    pub fn lock_count(&self) -> u16 {
        u16::read(self.as_bytes(), HEADER_LEN + 2)
    }

    /// The locks, in order.
    pub fn locks(&self) -> impl Iterator<Item = Lock> + '_ {
        let (all, _) = slice(self.as_bytes(), locks(self.as_bytes()).unwrap_or(0..0)).as_chunks::<LOCK_LEN>();
        all.iter().map(|lock| Lock {
            offset: u64::read(lock, 0),
            length: u64::read(lock, 8),
            flags: LockFlags::read(lock, 16),
        })
    }
}

/// One range of a LOCK request (MS-SMB2 2.2.26.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Flags.
    pub flags: LockFlags,
}

body! {
    /// LOCK response (MS-SMB2 2.2.27).
    LockResponse: LOCK, Response, 4 {}
}

const LOCK_LEN: usize = 24;

/// Where the locks are in the body.
const LOCKS_AT: usize = 24;

fn check_lock(bytes: &[u8]) -> Result<(), WireError> {
    check("LockRequest", bytes, Command::LOCK, Direction::Request, LockRequest::<&[u8]>::STRUCTURE_SIZE)
}

fn check_locks(bytes: &[u8]) -> Result<(), WireError> {
    locks(bytes).map(drop)
}

fn locks(bytes: &[u8]) -> Result<Range<usize>, WireError> {
    let from = HEADER_LEN + LOCKS_AT;
    let count = u16::read(bytes, HEADER_LEN + 2);
    part("LockRequest", bytes, from, from as u64, u64::from(count) * LOCK_LEN as u64)
}
