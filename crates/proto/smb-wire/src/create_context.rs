//! Create contexts (MS-SMB2 2.2.13.2 and 2.2.14.2).

use crate::command::Status;
use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};
use crate::file_id::FileId;
use crate::macros::{flags, opaque, record};
use crate::messages::AccessMask;
use std::ops::Range;

/// Most contexts that are looked at in one message.
pub const CREATE_CONTEXTS_MAX: usize = 64;

/// Bytes of a context before its name.
pub const CONTEXT_HEADER_LEN: usize = 16;

/// Names of create contexts.
pub mod name {
    /// Extended attributes.
    pub const EXTENDED_ATTRIBUTES: &[u8] = b"ExtA";
    /// Security descriptor.
    pub const SECURITY_DESCRIPTOR: &[u8] = b"SecD";
    /// Durable open, request and response.
    pub const DURABLE: &[u8] = b"DHnQ";
    /// Reconnect of a durable open.
    pub const DURABLE_RECONNECT: &[u8] = b"DHnC";
    /// Durable open of version 2, request and response.
    pub const DURABLE_V2: &[u8] = b"DH2Q";
    /// Reconnect of a durable open of version 2.
    pub const DURABLE_V2_RECONNECT: &[u8] = b"DH2C";
    /// Bytes to allocate.
    pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
    /// Maximal access.
    pub const MAXIMAL_ACCESS: &[u8] = b"MxAc";
    /// Snapshot to open.
    pub const TIMEWARP: &[u8] = b"TWrp";
    /// Numbers of file and volume.
    pub const QUERY_ON_DISK_ID: &[u8] = b"QFid";
    /// Lease of either version.
    pub const LEASE: &[u8] = b"RqLs";
    /// Instance of an application.
    pub const APP_INSTANCE_ID: &[u8] =
        &[0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14, 0x4d, 0x74];
    /// Version of an application's instance.
    pub const APP_INSTANCE_VERSION: &[u8] =
        &[0xb9, 0x82, 0xd0, 0xb7, 0x3b, 0x56, 0x07, 0x4f, 0xa0, 0x7b, 0x52, 0x4a, 0x81, 0x16, 0xa0, 0x10];
    /// Shared virtual disk.
    pub const SVHDX_OPEN_DEVICE: &[u8] =
        &[0x9c, 0xcb, 0xcf, 0x9e, 0x04, 0xc1, 0xe6, 0x43, 0x98, 0x0e, 0x15, 0x8d, 0xa1, 0xf6, 0xec, 0x83];
    /// Extensions of POSIX.
    pub const POSIX: &[u8] =
        &[0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd, 0x7c];
}

/// One create context.
#[derive(Clone, Copy)]
pub struct CreateContext<'a> {
    /// Name, see [`name`].
    pub name: &'a [u8],
    /// The data.
    pub data: &'a [u8],
    /// Where the context is in the message, padding to the next included.
    start: usize,
    end: usize,
    data_start: usize,
}

impl CreateContext<'_> {
    /// Where the context is in the message, up to the next one or the end.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Where the data is in the message.
    pub fn data_range(&self) -> Range<usize> {
        self.data_start..self.data_start + self.data.len()
    }
}

impl std::fmt::Debug for CreateContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes at {}", self.name.escape_ascii(), self.data.len(), self.start)
    }
}

/// The contexts of a CREATE request or response, in order; ends after the first that is malformed.
#[derive(Clone)]
pub struct CreateContexts<'a> {
    message: &'a [u8],
    next: usize,
    end: usize,
    left: usize,
}

opaque!(CreateContexts<'_>);

impl<'a> CreateContexts<'a> {
    /// The contexts in a range of a message.
    pub fn new(message: &'a [u8], range: Range<usize>) -> Self {
        Self { message, next: range.start, end: range.end.min(message.len()), left: CREATE_CONTEXTS_MAX }
    }

    /// The first context of a name, if all before it are well formed.
    pub fn find_name(mut self, name: &[u8]) -> Option<CreateContext<'a>> {
        self.find_map(|context| context.ok().filter(|context| context.name == name))
    }

    fn read(&self) -> Result<(CreateContext<'a>, bool), WireError> {
        let what = "create context";
        if self.left == 0 {
            return Err(WireError::TooMany { what, limit: CREATE_CONTEXTS_MAX });
        }
        let all = slice(self.message, self.next..self.end);
        fixed(what, all, CONTEXT_HEADER_LEN)?;
        let next = u32::read(all, 0) as usize;
        let length = if next == 0 { all.len() } else { next };
        let one = all
            .get(..length)
            .filter(|one| one.len() >= CONTEXT_HEADER_LEN)
            .ok_or(WireError::OutOfBounds { what, offset: 0, length: length as u64, found: all.len() })?;
        let from = CONTEXT_HEADER_LEN;
        let name = part(what, one, from, u16::read(one, 4).into(), u16::read(one, 6).into())?;
        let data = part(what, one, from, u16::read(one, 10).into(), u32::read(one, 12).into())?;
        let context = CreateContext {
            name: slice(one, name),
            data: slice(one, data.clone()),
            start: self.next,
            end: self.next + length,
            data_start: self.next + data.start,
        };
        Ok((context, next == 0))
    }
}

impl<'a> Iterator for CreateContexts<'a> {
    type Item = Result<CreateContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        match self.read() {
            Ok((context, last)) => {
                self.left -= 1;
                self.next = if last { self.end } else { context.end };
                Some(Ok(context))
            }
            Err(error) => {
                self.next = self.end;
                Some(Err(error))
            }
        }
    }
}

flags! {
    /// State of a lease (MS-SMB2 2.2.13.2.8).
    LeaseState(u32) {
        /// Reads may be cached.
        READ_CACHING = 0x0000_0001;
        /// The open may be kept after its close.
        HANDLE_CACHING = 0x0000_0002;
        /// Writes may be cached.
        WRITE_CACHING = 0x0000_0004;
    }
}

flags! {
    /// Flags of a lease (MS-SMB2 2.2.13.2.8, 2.2.13.2.10, 2.2.14.2.10).
    LeaseFlags(u32) {
        /// A break is in progress.
        BREAK_IN_PROGRESS = 0x0000_0002;
        /// The parent's key is set.
        PARENT_LEASE_KEY_SET = 0x0000_0004;
    }
}

record! {
    /// Data of a lease context of version 1, or the part that version 2 has in common with it (MS-SMB2 2.2.13.2.8 and
    /// 2.2.14.2.10).
    Lease: 32 {
        /// The lease.
        lease_key, set_lease_key: [u8; 16] = 0;
        /// State asked for or granted.
        lease_state, set_lease_state: LeaseState = 16;
        /// Flags.
        lease_flags, set_lease_flags: LeaseFlags = 20;
        /// Reserved.
        lease_duration, set_lease_duration: u64 = 24;
    }
}

impl<B: AsRef<[u8]>> Lease<B> {
    /// Whether the data is that of version 2, see [`LeaseV2`].
    pub fn is_v2(&self) -> bool {
        self.as_bytes().len() >= LeaseV2::<B>::FIXED_LEN
    }
}

record! {
    /// Data of a lease context of version 2 (MS-SMB2 2.2.13.2.10 and 2.2.14.2.11).
    LeaseV2: 52 {
        /// The lease.
        lease_key, set_lease_key: [u8; 16] = 0;
        /// State asked for or granted.
        lease_state, set_lease_state: LeaseState = 16;
        /// Flags.
        lease_flags, set_lease_flags: LeaseFlags = 20;
        /// Reserved.
        lease_duration, set_lease_duration: u64 = 24;
        /// Lease of the folder, if the flags say so.
        parent_lease_key, set_parent_lease_key: [u8; 16] = 32;
        /// Counts changes of the state.
        epoch, set_epoch: u16 = 48;
    }
}

record! {
    /// Data of a durable context's reconnect (MS-SMB2 2.2.13.2.4).
    DurableReconnect: 16 {
        /// The open.
        file_id, set_file_id: FileId = 0;
    }
}

flags! {
    /// Flags of a durable open of version 2.
    DurableFlags(u32) {
        /// Outlasts a failure of the server.
        PERSISTENT = 0x0000_0002;
    }
}

record! {
    /// Data of a durable request of version 2 (MS-SMB2 2.2.13.2.11).
    DurableV2Request: 32 {
        /// Milliseconds that the open is kept; 0 leaves it to the server.
        timeout_ms, set_timeout_ms: u32 = 0;
        /// Flags.
        flags, set_flags: DurableFlags = 4;
        /// Identifier of the CREATE.
        create_guid, set_create_guid: [u8; 16] = 16;
    }
}

record! {
    /// Data of a durable response of version 2 (MS-SMB2 2.2.14.2.12).
    DurableV2Response: 8 {
        /// Milliseconds that the open is kept.
        timeout_ms, set_timeout_ms: u32 = 0;
        /// Flags.
        flags, set_flags: DurableFlags = 4;
    }
}

record! {
    /// Data of a reconnect of version 2 (MS-SMB2 2.2.13.2.12).
    DurableV2Reconnect: 36 {
        /// The open.
        file_id, set_file_id: FileId = 0;
        /// Identifier of the CREATE.
        create_guid, set_create_guid: [u8; 16] = 16;
        /// Flags.
        flags, set_flags: DurableFlags = 32;
    }
}

record! {
    /// Data of a response of maximal access (MS-SMB2 2.2.14.2.5).
    MaximalAccessResponse: 8 {
        /// Whether the access could be told.
        query_status, set_query_status: Status = 0;
        /// The access.
        maximal_access, set_maximal_access: AccessMask = 4;
    }
}

record! {
    /// Data of a request of maximal access, where it has any (MS-SMB2 2.2.13.2.5).
    MaximalAccessRequest: 8 {
        /// The access is wanted only if the file changed after this time, in 100 ns since 1601.
        timestamp, set_timestamp: u64 = 0;
    }
}

record! {
    /// Data of a response of numbers (MS-SMB2 2.2.14.2.9).
    QueryOnDiskIdResponse: 32 {
        /// Number of the file.
        disk_file_id, set_disk_file_id: u64 = 0;
        /// Number of the volume.
        volume_id, set_volume_id: u64 = 8;
    }
}

record! {
    /// Data of an allocation size (MS-SMB2 2.2.13.2.6).
    AllocationSize: 8 {
        /// Bytes.
        allocation_size, set_allocation_size: u64 = 0;
    }
}

record! {
    /// Data of a snapshot (MS-SMB2 2.2.13.2.7).
    Timewarp: 8 {
        /// When it was taken, in 100 ns since 1601.
        timestamp, set_timestamp: u64 = 0;
    }
}

record! {
    /// Data of an application's instance (MS-SMB2 2.2.13.2.13).
    AppInstanceId: 20 {
        /// Structure size, 20.
        structure_size, set_structure_size: u16 = 0;
        /// The instance.
        app_instance_id, set_app_instance_id: [u8; 16] = 4;
    }
}

record! {
    /// Data of an application instance's version (MS-SMB2 2.2.13.2.15).
    AppInstanceVersion: 24 {
        /// Structure size, 24.
        structure_size, set_structure_size: u16 = 0;
        /// High half.
        version_high, set_version_high: u64 = 8;
        /// Low half.
        version_low, set_version_low: u64 = 16;
    }
}
