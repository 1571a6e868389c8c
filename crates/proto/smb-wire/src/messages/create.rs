//! CREATE (MS-SMB2 2.2.13 and 2.2.14).

use crate::create_context::CreateContexts;
use crate::file_id::FileId;
use crate::fscc::FileTimesAndSizes;
use crate::macros::{body, flags, number};
use crate::name::Name;

number! {
    /// Oplock requested or granted.
    OplockLevel(u8) {
        /// None.
        NONE = 0x00;
        /// Shared, for reading.
        II = 0x01;
        /// Exclusive.
        EXCLUSIVE = 0x08;
        /// Exclusive, and the open may be kept.
        BATCH = 0x09;
        /// A lease; see its create context.
        LEASE = 0xff;
    }
}

number! {
    /// What to do when the file exists and when it does not.
    CreateDisposition(u32) {
        /// Replace, or create.
        SUPERSEDE = 0x0000_0000;
        /// Open, or fail.
        OPEN = 0x0000_0001;
        /// Fail, or create.
        CREATE = 0x0000_0002;
        /// Open, or create.
        OPEN_IF = 0x0000_0003;
        /// Overwrite, or fail.
        OVERWRITE = 0x0000_0004;
        /// Overwrite, or create.
        OVERWRITE_IF = 0x0000_0005;
    }
}

number! {
    /// What was done.
    CreateAction(u32) {
        /// An existing file was replaced.
        SUPERSEDED = 0x0000_0000;
        /// An existing file was opened.
        OPENED = 0x0000_0001;
        /// A new file was created.
        CREATED = 0x0000_0002;
        /// An existing file was overwritten.
        OVERWRITTEN = 0x0000_0003;
    }
}

flags! {
    /// Options of a CREATE.
    CreateOptions(u32) {
        /// Must be a directory.
        DIRECTORY_FILE = 0x0000_0001;
        /// Writes go to the disk before they are answered.
        WRITE_THROUGH = 0x0000_0002;
        /// Access is sequential.
        SEQUENTIAL_ONLY = 0x0000_0004;
        /// The server must not cache.
        NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Must not be a directory.
        NON_DIRECTORY_FILE = 0x0000_0040;
        /// Does not know extended attributes.
        NO_EA_KNOWLEDGE = 0x0000_0200;
        /// Access is random.
        RANDOM_ACCESS = 0x0000_0800;
        /// Deleted with the last close.
        DELETE_ON_CLOSE = 0x0000_1000;
        /// The name is an identifier.
        OPEN_BY_FILE_ID = 0x0000_2000;
        /// Opened to back up or restore.
        OPEN_FOR_BACKUP_INTENT = 0x0000_4000;
        /// Is not to be compressed.
        NO_COMPRESSION = 0x0000_8000;
        /// Opens the reparse point itself.
        OPEN_REPARSE_POINT = 0x0020_0000;
        /// Does not bring back what is in remote storage.
        OPEN_NO_RECALL = 0x0040_0000;
    }
}

flags! {
    /// What other opens of the same file may do.
    ShareAccess(u32) {
        /// Read.
        READ = 0x0000_0001;
        /// Write.
        WRITE = 0x0000_0002;
        /// Delete and rename.
        DELETE = 0x0000_0004;
    }
}

flags! {
    /// Access asked for or granted (MS-SMB2 2.2.13.1). Names are those for files; bits 0 to 2 and 5 are for directories what
    /// MS-SMB2 2.2.13.1.2 says.
    AccessMask(u32) {
        /// Read data, or list a directory.
        READ_DATA = 0x0000_0001;
        /// Write data, or add a file to a directory.
        WRITE_DATA = 0x0000_0002;
        /// Append data, or add a folder to a directory.
        APPEND_DATA = 0x0000_0004;
        /// Read extended attributes.
        READ_EA = 0x0000_0008;
        /// Write extended attributes.
        WRITE_EA = 0x0000_0010;
        /// Execute, or traverse a directory.
        EXECUTE = 0x0000_0020;
        /// Delete entries of a directory.
        DELETE_CHILD = 0x0000_0040;
        /// Read attributes.
        READ_ATTRIBUTES = 0x0000_0080;
        /// Write attributes.
        WRITE_ATTRIBUTES = 0x0000_0100;
        /// Delete or rename.
        DELETE = 0x0001_0000;
        /// Read the security descriptor.
        READ_CONTROL = 0x0002_0000;
        /// Write the access list.
        WRITE_DAC = 0x0004_0000;
        /// Write the owner.
        WRITE_OWNER = 0x0008_0000;
        /// Wait for the file.
        SYNCHRONIZE = 0x0010_0000;
        /// Read and write the audit list.
        ACCESS_SYSTEM_SECURITY = 0x0100_0000;
        /// All that can be granted.
        MAXIMUM_ALLOWED = 0x0200_0000;
        /// All.
        GENERIC_ALL = 0x1000_0000;
        /// What executing needs.
        GENERIC_EXECUTE = 0x2000_0000;
        /// What writing needs.
        GENERIC_WRITE = 0x4000_0000;
        /// What reading needs.
        GENERIC_READ = 0x8000_0000;
    }
}

flags! {
    /// Attributes of a file (MS-FSCC 2.6).
    FileAttributes(u32) {
        /// Cannot be written.
        READONLY = 0x0000_0001;
        /// Not listed by default.
        HIDDEN = 0x0000_0002;
        /// Of the operating system.
        SYSTEM = 0x0000_0004;
        /// A directory.
        DIRECTORY = 0x0000_0010;
        /// Changed since the last backup.
        ARCHIVE = 0x0000_0020;
        /// No other attribute.
        NORMAL = 0x0000_0080;
        /// Temporary.
        TEMPORARY = 0x0000_0100;
        /// Has holes.
        SPARSE_FILE = 0x0000_0200;
        /// A reparse point, such as a symbolic link.
        REPARSE_POINT = 0x0000_0400;
        /// Compressed by the file system.
        COMPRESSED = 0x0000_0800;
        /// In remote storage.
        OFFLINE = 0x0000_1000;
        /// Not to be indexed.
        NOT_CONTENT_INDEXED = 0x0000_2000;
        /// Encrypted by the file system.
        ENCRYPTED = 0x0000_4000;
    }
}

body! {
    /// CREATE request (MS-SMB2 2.2.13).
    CreateRequest: CREATE, Request, 57 {
        /// Reserved.
        security_flags, set_security_flags: u8 = 2;
        /// Oplock asked for.
        oplock_level, set_oplock_level: OplockLevel = 3;
        /// Level of impersonation.
        impersonation_level, set_impersonation_level: u32 = 4;
        /// Reserved.
        create_flags, set_create_flags: u64 = 8;
        /// Access asked for.
        desired_access, set_desired_access: AccessMask = 24;
        /// Attributes of a file that is created.
        file_attributes, set_file_attributes: FileAttributes = 28;
        /// What others may do.
        share_access, set_share_access: ShareAccess = 32;
        /// What to do when the file exists and when it does not.
        disposition, set_disposition: CreateDisposition = 36;
        /// Options.
        options, set_options: CreateOptions = 40;
    }
    parts {
        /// Bytes of the name.
        name_bytes, name_range: u16 = 44, u16 = 46;
        /// All create contexts.
        contexts_bytes, contexts_range: u32 = 48, u32 = 52;
    }
}

impl<B: AsRef<[u8]>> CreateRequest<B> {
    /// Name within the share.
    pub fn name(&self) -> Name<'_> {
        Name::new(self.name_bytes())
    }

    /// The create contexts.
    pub fn contexts(&self) -> CreateContexts<'_> {
        CreateContexts::new(self.as_bytes(), self.contexts_range())
    }
}

body! {
    /// CREATE response (MS-SMB2 2.2.14).
    CreateResponse: CREATE, Response, 89 {
        /// Oplock granted.
        oplock_level, set_oplock_level: OplockLevel = 2;
        /// Flags: bit 0 for a reparse point.
        flags, set_flags: u8 = 3;
        /// What was done.
        create_action, set_create_action: CreateAction = 4;
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
        /// The open.
        file_id, set_file_id: FileId = 64;
    }
    parts {
        /// All create contexts.
        contexts_bytes, contexts_range: u32 = 80, u32 = 84;
    }
}

impl<B: AsRef<[u8]>> CreateResponse<B> {
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

    /// The create contexts.
    pub fn contexts(&self) -> CreateContexts<'_> {
        CreateContexts::new(self.as_bytes(), self.contexts_range())
    }
}
