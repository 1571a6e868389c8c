//! Commands and statuses.

use crate::macros::number;

number! {
    /// Command of a message (MS-SMB2 2.2.1.2).
    Command(u16) {
        /// Agrees on dialect and capabilities.
        NEGOTIATE = 0x0000;
        /// Authenticates.
        SESSION_SETUP = 0x0001;
        /// Ends a session.
        LOGOFF = 0x0002;
        /// Connects to a share.
        TREE_CONNECT = 0x0003;
        /// Disconnects from a share.
        TREE_DISCONNECT = 0x0004;
        /// Opens a file, directory or pipe.
        CREATE = 0x0005;
        /// Closes an open.
        CLOSE = 0x0006;
        /// Makes the server write to its disk.
        FLUSH = 0x0007;
        /// Reads.
        READ = 0x0008;
        /// Writes.
        WRITE = 0x0009;
        /// Locks and unlocks byte ranges.
        LOCK = 0x000a;
        /// Control codes.
        IOCTL = 0x000b;
        /// Cancels a pending request; has no response.
        CANCEL = 0x000c;
        /// Asks whether the server is there.
        ECHO = 0x000d;
        /// Lists a directory.
        QUERY_DIRECTORY = 0x000e;
        /// Waits for a change in a directory.
        CHANGE_NOTIFY = 0x000f;
        /// Reads attributes.
        QUERY_INFO = 0x0010;
        /// Writes attributes.
        SET_INFO = 0x0011;
        /// Breaks of oplocks and leases.
        OPLOCK_BREAK = 0x0012;
        /// Notice from the server of its own accord.
        SERVER_TO_CLIENT_NOTIFICATION = 0x0013;
    }
}

number! {
    /// Status of a response (MS-ERREF 2.3).
    Status(u32) {
        /// Done.
        SUCCESS = 0x0000_0000;
        /// The final response comes later.
        PENDING = 0x0000_0103;
        /// The watched directory is gone.
        NOTIFY_CLEANUP = 0x0000_010b;
        /// More changes than fit; list the directory anew.
        NOTIFY_ENUM_DIR = 0x0000_010c;
        /// Part of the data fitted.
        BUFFER_OVERFLOW = 0x8000_0005;
        /// The listing is at its end.
        NO_MORE_FILES = 0x8000_0006;
        /// The path leads through a symbolic link.
        STOPPED_ON_SYMLINK = 0x8000_002d;
        /// No such information class.
        INVALID_INFO_CLASS = 0xc000_0003;
        /// Length of the information does not fit its class.
        INFO_LENGTH_MISMATCH = 0xc000_0004;
        /// No such open.
        INVALID_HANDLE = 0xc000_0008;
        /// Something in the request is wrong.
        INVALID_PARAMETER = 0xc000_000d;
        /// Nothing matches.
        NO_SUCH_FILE = 0xc000_000f;
        /// No such request on this device.
        INVALID_DEVICE_REQUEST = 0xc000_0010;
        /// A read at or beyond the end.
        END_OF_FILE = 0xc000_0011;
        /// Authentication goes on.
        MORE_PROCESSING_REQUIRED = 0xc000_0016;
        /// Not allowed.
        ACCESS_DENIED = 0xc000_0022;
        /// The response does not fit.
        BUFFER_TOO_SMALL = 0xc000_0023;
        /// No such name.
        OBJECT_NAME_NOT_FOUND = 0xc000_0034;
        /// The name is taken.
        OBJECT_NAME_COLLISION = 0xc000_0035;
        /// No such folder on the way.
        OBJECT_PATH_NOT_FOUND = 0xc000_003a;
        /// Another open does not share.
        SHARING_VIOLATION = 0xc000_0043;
        /// A byte range is locked.
        FILE_LOCK_CONFLICT = 0xc000_0054;
        /// The lock was not given.
        LOCK_NOT_GRANTED = 0xc000_0055;
        /// The file is about to go.
        DELETE_PENDING = 0xc000_0056;
        /// Unknown user or wrong password.
        LOGON_FAILURE = 0xc000_006d;
        /// No room.
        DISK_FULL = 0xc000_007f;
        /// The server is out of resources.
        INSUFFICIENT_RESOURCES = 0xc000_009a;
        /// The name is a directory.
        FILE_IS_A_DIRECTORY = 0xc000_00ba;
        /// Not supported.
        NOT_SUPPORTED = 0xc000_00bb;
        /// The tree connect is gone.
        NETWORK_NAME_DELETED = 0xc000_00c9;
        /// No such share.
        BAD_NETWORK_NAME = 0xc000_00cc;
        /// The server refuses for now.
        REQUEST_NOT_ACCEPTED = 0xc000_00d0;
        /// The oplock or lease is not what the acknowledgement says.
        INVALID_OPLOCK_PROTOCOL = 0xc000_00e3;
        /// The server failed.
        INTERNAL_ERROR = 0xc000_00e5;
        /// The name is not a directory.
        NOT_A_DIRECTORY = 0xc000_0103;
        /// Cancelled.
        CANCELLED = 0xc000_0120;
        /// The open is closed.
        FILE_CLOSED = 0xc000_0128;
        /// The session is gone.
        USER_SESSION_DELETED = 0xc000_0203;
        /// No such object.
        NOT_FOUND = 0xc000_0225;
        /// Not covered by this server; ask for a referral.
        PATH_NOT_COVERED = 0xc000_0257;
        /// The session has expired.
        NETWORK_SESSION_EXPIRED = 0xc000_035c;
        /// The open is not ready after a failure of the server.
        FILE_NOT_AVAILABLE = 0xc000_0467;
    }
}

impl Status {
    /// Whether the severity is that of an error.
    pub const fn is_error(self) -> bool {
        self.0 >> 30 == 3
    }

    /// Whether the severity is that of a warning.
    pub const fn is_warning(self) -> bool {
        self.0 >> 30 == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_kept_and_shown_as_numbers() {
        assert_eq!(format!("{:?} {:?}", Command(0x77), Command::IOCTL), "0x77 IOCTL");
        assert_eq!(Status(0xc123_4567).name(), None);
    }

    #[test]
    fn severities_are_told_apart() {
        assert!(Status::ACCESS_DENIED.is_error() && !Status::ACCESS_DENIED.is_warning());
        assert!(Status::BUFFER_OVERFLOW.is_warning() && !Status::BUFFER_OVERFLOW.is_error());
        assert!(!Status::PENDING.is_error() && !Status::PENDING.is_warning());
    }
}
