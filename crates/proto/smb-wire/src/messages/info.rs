//! QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO and SET_INFO (MS-SMB2 2.2.33 to 2.2.40).

use crate::file_id::FileId;
use crate::macros::{body, flags, number};
use crate::name::Name;

flags! {
    /// Flags of a QUERY_DIRECTORY request.
    QueryDirectoryFlags(u8) {
        /// From the start.
        RESTART_SCANS = 0x01;
        /// One entry.
        RETURN_SINGLE_ENTRY = 0x02;
        /// From the given index.
        INDEX_SPECIFIED = 0x04;
        /// From the start, with another pattern.
        REOPEN = 0x10;
    }
}

number! {
    /// What information is about.
    InfoType(u8) {
        /// A file.
        FILE = 0x01;
        /// A file system.
        FILESYSTEM = 0x02;
        /// A security descriptor.
        SECURITY = 0x03;
        /// Quotas.
        QUOTA = 0x04;
    }
}

number! {
    /// Class of information about a file (MS-FSCC 2.4). Classes of file systems (MS-FSCC 2.5) are other numbers of the same
    /// field.
    InfoClass(u8) {
        /// Entries of a directory.
        DIRECTORY = 1;
        /// Entries of a directory, with the size of extended attributes.
        FULL_DIRECTORY = 2;
        /// Entries of a directory, with short names.
        BOTH_DIRECTORY = 3;
        /// Times and attributes.
        BASIC = 4;
        /// Sizes, links, whether a directory.
        STANDARD = 5;
        /// Number of the file.
        INTERNAL = 6;
        /// Size of extended attributes.
        EA = 7;
        /// A new name.
        RENAME = 10;
        /// Names of a directory's entries.
        NAMES = 12;
        /// Deletion with the last close.
        DISPOSITION = 13;
        /// Extended attributes.
        FULL_EA = 15;
        /// Much at once.
        ALL = 18;
        /// Bytes on the disk.
        ALLOCATION = 19;
        /// Bytes of the file.
        END_OF_FILE = 20;
        /// Streams.
        STREAM = 22;
        /// Times, sizes and attributes.
        NETWORK_OPEN = 34;
        /// Attributes and reparse tag.
        ATTRIBUTE_TAG = 35;
        /// Entries of a directory, with short names and numbers.
        ID_BOTH_DIRECTORY = 37;
        /// Entries of a directory, with numbers.
        ID_FULL_DIRECTORY = 38;
        /// The name as the share has it.
        NORMALIZED_NAME = 48;
        /// Number of volume and file.
        ID = 59;
        /// Entries of a directory, with long numbers.
        ID_EXTD_DIRECTORY = 60;
        /// Entries of a directory, with short names and long numbers.
        ID_EXTD_BOTH_DIRECTORY = 63;
    }
}

body! {
    /// QUERY_DIRECTORY request (MS-SMB2 2.2.33).
    QueryDirectoryRequest: QUERY_DIRECTORY, Request, 33 {
        /// Class of the entries.
        info_class, set_info_class: InfoClass = 2;
        /// Flags.
        flags, set_flags: QueryDirectoryFlags = 3;
        /// Index to begin from, if the flags say so.
        file_index, set_file_index: u32 = 4;
        /// The open.
        file_id, set_file_id: FileId = 8;
        /// Most bytes of the response's buffer.
        output_buffer_length, set_output_buffer_length: u32 = 28;
    }
    parts {
        /// Bytes of the pattern.
        pattern_bytes, pattern_range: u16 = 24, u16 = 26;
    }
}

impl<B: AsRef<[u8]>> QueryDirectoryRequest<B> {
    /// Pattern that names are to match.
    pub fn pattern(&self) -> Name<'_> {
        Name::new(self.pattern_bytes())
    }
}

body! {
    /// QUERY_DIRECTORY response (MS-SMB2 2.2.34).
    QueryDirectoryResponse: QUERY_DIRECTORY, Response, 9 {}
    parts {
        /// The entries, see [`crate::fscc::DirectoryEntries`].
        buffer, buffer_range: u16 = 2, u32 = 4;
    }
}

body! {
    /// CHANGE_NOTIFY request (MS-SMB2 2.2.35).
    ChangeNotifyRequest: CHANGE_NOTIFY, Request, 32 {
        /// Flags: bit 0 for the whole tree.
        flags, set_flags: u16 = 2;
        /// Most bytes of the response's buffer.
        output_buffer_length, set_output_buffer_length: u32 = 4;
        /// The open.
        file_id, set_file_id: FileId = 8;
        /// Kinds of change to tell of.
        completion_filter, set_completion_filter: u32 = 24;
    }
}

body! {
    /// CHANGE_NOTIFY response (MS-SMB2 2.2.36).
    ChangeNotifyResponse: CHANGE_NOTIFY, Response, 9 {}
    parts {
        /// The changes, see [`crate::fscc::Changes`].
        buffer, buffer_range: u16 = 2, u32 = 4;
    }
}

body! {
    /// QUERY_INFO request (MS-SMB2 2.2.37).
    QueryInfoRequest: QUERY_INFO, Request, 41 {
        /// What is asked about.
        info_type, set_info_type: InfoType = 2;
        /// Class of the information.
        info_class, set_info_class: InfoClass = 3;
        /// Most bytes of the response's buffer.
        output_buffer_length, set_output_buffer_length: u32 = 4;
        /// Parts of a security descriptor, or an index.
        additional_information, set_additional_information: u32 = 16;
        /// Flags for extended attributes.
        flags, set_flags: u32 = 20;
        /// The open.
        file_id, set_file_id: FileId = 24;
    }
    parts {
        /// Input of quotas and extended attributes.
        input, input_range: u16 = 8, u32 = 12;
    }
}

body! {
    /// QUERY_INFO response (MS-SMB2 2.2.38).
    QueryInfoResponse: QUERY_INFO, Response, 9 {}
    parts {
        /// The information.
        buffer, buffer_range: u16 = 2, u32 = 4;
    }
}

body! {
    /// SET_INFO request (MS-SMB2 2.2.39).
    SetInfoRequest: SET_INFO, Request, 33 {
        /// What is changed.
        info_type, set_info_type: InfoType = 2;
        /// Class of the information.
        info_class, set_info_class: InfoClass = 3;
        /// Parts of a security descriptor.
        additional_information, set_additional_information: u32 = 12;
        /// The open.
        file_id, set_file_id: FileId = 16;
    }
    parts {
        /// The information.
        buffer, buffer_range: u16 = 8, u32 = 4;
    }
}

body! {
    /// SET_INFO response (MS-SMB2 2.2.40).
    SetInfoResponse: SET_INFO, Response, 2 {}
}
