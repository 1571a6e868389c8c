//! TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 2.2.9 to 2.2.12).

use crate::error::WireError;
use crate::field::{Field, part};
use crate::macros::{body, flags, number};
use crate::messages::AccessMask;
use crate::name::Name;

flags! {
    /// Flags of a TREE_CONNECT request in dialect 3.1.1.
    TreeConnectFlags(u16) {
        /// Was connected to this share of a cluster before.
        CLUSTER_RECONNECT = 0x0001;
        /// Can be sent to the share's owner.
        REDIRECT_TO_OWNER = 0x0002;
        /// An extension stands before the path.
        EXTENSION_PRESENT = 0x0004;
    }
}

number! {
    /// Type of a share.
    ShareType(u8) {
        /// Files.
        DISK = 0x01;
        /// Pipes.
        PIPE = 0x02;
        /// A printer.
        PRINT = 0x03;
    }
}

flags! {
    /// Flags of a share. Two bits, [`Self::CACHING_MASK`], tell what may be cached off line.
    ShareFlags(u32) {
        /// The bits of off-line caching: 0 manual, 0x10 automatic, 0x20 programs too, 0x30 none.
        CACHING_MASK = 0x0000_0030;
        /// Part of a distributed file system.
        DFS = 0x0000_0001;
        /// Root of a distributed file system.
        DFS_ROOT = 0x0000_0002;
        /// No exclusive opens.
        RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100;
        /// Files can be deleted while open.
        FORCE_SHARED_DELETE = 0x0000_0200;
        /// Directories may be cached by their name.
        ALLOW_NAMESPACE_CACHING = 0x0000_0400;
        /// Only what the user may open is listed.
        ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800;
        /// No exclusive oplocks.
        FORCE_LEVELII_OPLOCK = 0x0000_1000;
        /// Hashes of files can be asked for.
        ENABLE_HASH_V1 = 0x0000_2000;
        /// Hashes of files, of the second version, can be asked for.
        ENABLE_HASH_V2 = 0x0000_4000;
        /// Messages of this share are to be encrypted.
        ENCRYPT_DATA = 0x0000_8000;
        /// Identities can be sent along.
        IDENTITY_REMOTING = 0x0004_0000;
        /// Data is to be compressed.
        COMPRESS_DATA = 0x0010_0000;
        /// Transports without encryption of their own may be used.
        ISOLATED_TRANSPORT = 0x0020_0000;
    }
}

flags! {
    /// Capabilities of a share.
    ShareCapabilities(u32) {
        /// Part of a distributed file system.
        DFS = 0x0000_0008;
        /// Opens can outlast a failure of the server.
        CONTINUOUS_AVAILABILITY = 0x0000_0010;
        /// Served by several nodes.
        SCALEOUT = 0x0000_0020;
        /// Served by a cluster.
        CLUSTER = 0x0000_0040;
        /// Can move to another node.
        ASYMMETRIC = 0x0000_0080;
        /// Can be sent to another node.
        REDIRECT_TO_OWNER = 0x0000_0100;
    }
}

body! {
    /// TREE_CONNECT request (MS-SMB2 2.2.9).
    TreeConnectRequest: TREE_CONNECT, Request, 9 {
        /// Flags, in dialect 3.1.1; reserved before.
        flags, set_flags: TreeConnectFlags = 2;
    }
    parts {
        /// Bytes of the share's path.
        path_bytes, path_range: u16 = 4, u16 = 6;
    }
}

impl<B: AsRef<[u8]>> TreeConnectRequest<B> {
    /// Path of the share, `\\server\share`.
    pub fn path(&self) -> Name<'_> {
        Name::new(self.path_bytes())
    }

    /// The extension before the path (MS-SMB2 2.2.9.1), if the flags say that there is one.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn extension(&self) -> Result<Option<TreeConnectExtension>, WireError> {
        if !self.flags().contains(TreeConnectFlags::EXTENSION_PRESENT) {
            return Ok(None);
        }
        let bytes = self.as_bytes();
        let start = Self::FIXED_LEN;
        part("tree connect extension", bytes, start, start as u64, 16)?;
        Ok(Some(TreeConnectExtension {
            context_offset: u32::read(bytes, start),
            context_count: u16::read(bytes, start + 4),
        }))
    }
}

/// Extension of a TREE_CONNECT request (MS-SMB2 2.2.9.1). Contexts are carried, not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConnectExtension {
    /// Where the contexts begin, counted from the start of the body.
    pub context_offset: u32,
    /// Number of contexts.
    pub context_count: u16,
}

body! {
    /// TREE_CONNECT response (MS-SMB2 2.2.10).
    TreeConnectResponse: TREE_CONNECT, Response, 16 {
        /// Type of the share.
        share_type, set_share_type: ShareType = 2;
        /// Flags of the share.
        share_flags, set_share_flags: ShareFlags = 4;
        /// Capabilities of the share.
        capabilities, set_capabilities: ShareCapabilities = 8;
        /// The most that the user may be granted.
        maximal_access, set_maximal_access: AccessMask = 12;
    }
}

body! {
    /// TREE_DISCONNECT request (MS-SMB2 2.2.11).
    TreeDisconnectRequest: TREE_DISCONNECT, Request, 4 {}
}

body! {
    /// TREE_DISCONNECT response (MS-SMB2 2.2.12).
    TreeDisconnectResponse: TREE_DISCONNECT, Response, 4 {}
}
