//! Breaks of oplocks and leases (MS-SMB2 2.2.23 to 2.2.25).

use crate::create_context::LeaseState;
use crate::file_id::FileId;
use crate::macros::body;
use crate::messages::OplockLevel;

body! {
    /// Notification of an oplock break (MS-SMB2 2.2.23.1).
    OplockBreakNotification: OPLOCK_BREAK, Response, 24 {
        /// Oplock that is left.
        oplock_level, set_oplock_level: OplockLevel = 2;
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
}

body! {
    /// Notification of a lease break (MS-SMB2 2.2.23.2).
    LeaseBreakNotification: OPLOCK_BREAK, Response, 44 {
        /// Epoch of a lease of version 2.
        new_epoch, set_new_epoch: u16 = 2;
        /// Flags: bit 0 when an acknowledgement is required.
        flags, set_flags: u32 = 4;
        /// The lease.
        lease_key, set_lease_key: [u8; 16] = 8;
        /// State before the break.
        current_lease_state, set_current_lease_state: LeaseState = 24;
        /// State after the break.
        new_lease_state, set_new_lease_state: LeaseState = 28;
    }
}

impl<B: AsRef<[u8]>> LeaseBreakNotification<B> {
    /// Whether the client must acknowledge.
    pub fn ack_required(&self) -> bool {
        self.flags() & 1 != 0
    }
}

body! {
    /// Acknowledgement of an oplock break (MS-SMB2 2.2.24.1).
    OplockBreakAcknowledgement: OPLOCK_BREAK, Request, 24 {
        /// Oplock that the client keeps.
        oplock_level, set_oplock_level: OplockLevel = 2;
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
}

body! {
    /// Acknowledgement of a lease break (MS-SMB2 2.2.24.2).
    LeaseBreakAcknowledgement: OPLOCK_BREAK, Request, 36 {
        /// Reserved.
        flags, set_flags: u32 = 4;
        /// The lease.
        lease_key, set_lease_key: [u8; 16] = 8;
        /// State that the client keeps.
        lease_state, set_lease_state: LeaseState = 24;
        /// Reserved.
        lease_duration, set_lease_duration: u64 = 28;
    }
}

body! {
    /// Response to the acknowledgement of an oplock break (MS-SMB2 2.2.25.1).
    OplockBreakResponse: OPLOCK_BREAK, Response, 24 {
        /// Oplock that the server has noted.
        oplock_level, set_oplock_level: OplockLevel = 2;
        /// The open.
        file_id, set_file_id: FileId = 8;
    }
}

body! {
    /// Response to the acknowledgement of a lease break (MS-SMB2 2.2.25.2).
    LeaseBreakResponse: OPLOCK_BREAK, Response, 36 {
        /// Reserved.
        flags, set_flags: u32 = 4;
        /// The lease.
        lease_key, set_lease_key: [u8; 16] = 8;
        /// State that the server has noted.
        lease_state, set_lease_state: LeaseState = 24;
        /// Reserved.
        lease_duration, set_lease_duration: u64 = 28;
    }
}
