//! One session on one share.

use std::net::SocketAddr;

use smb2::client::{Connection, Session};
use smb2::{ErrorKind, Tree};

use crate::limits::{CONNECT_TIMEOUT, SMALL_FILE_BYTES};
use crate::{Account, Location, SealingTransport};

/// A session on a share. Clones share it.
#[derive(Clone)]
pub(crate) struct Share {
    connection: Connection,
    tree: Tree,
}

/// An entry of a folder.
pub(crate) struct Entry {
    pub name: String,
    pub size: u64,
    /// 100 ns since 1601 (MS-DTYP 2.3.3).
    pub modified: u64,
    pub is_folder: bool,
}

impl Share {
    /// Connects to `via`, which leads to the location's server, logs on, and connects to the share. Encrypts if the
    /// server or the share wants it.
    pub async fn connect(via: SocketAddr, location: &Location, account: &Account) -> smb2::Result<Share> {
        let transport = SealingTransport::connect(via, CONNECT_TIMEOUT).await?;
        let mut connection = transport.negotiate(&location.server).await?;
        let session =
            Session::setup(&mut connection, &account.user, &account.password, &account.domain).await?;
        let tree = Tree::connect(&mut connection, &location.share).await?;
        if tree.encrypt_data && !connection.should_encrypt() {
            let cipher = connection.params().and_then(|params| params.cipher);
            if let (Some(cipher), Some(encryption), Some(decryption)) =
                (cipher, session.encryption_key, session.decryption_key)
            {
                connection.activate_encryption(encryption, decryption, cipher);
            }
        }
        Ok(Share { connection, tree })
    }

    /// What is in a folder; links to elsewhere are left out. Of a file, the file itself, with an empty name.
    pub async fn list(&mut self, folder: &str) -> smb2::Result<Vec<Entry>> {
        match self.tree.list_directory(&mut self.connection, folder).await {
            Ok(entries) => Ok(entries
                .into_iter()
                .filter(|entry| !entry.is_link() && entry.name != "." && entry.name != "..")
                .map(|entry| Entry {
                    name: entry.name,
                    size: entry.size,
                    modified: entry.modified.0,
                    is_folder: entry.is_directory,
                })
                .collect()),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let info = self.tree.stat(&mut self.connection, folder).await?;
                let (size, modified) = (info.size, info.modified.0);
                Ok(vec![Entry { name: String::new(), size, modified, is_folder: false }])
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a file to its end; `took` is called with the length of each part and says how long to wait. What was read
    /// is thrown away.
    pub async fn read<W: Future<Output = ()>>(
        &mut self,
        path: &str,
        size: u64,
        took: impl Fn(u64) -> W,
    ) -> smb2::Result<u64> {
        if size <= SMALL_FILE_BYTES {
            match self.tree.read_file_compound_sized(&mut self.connection, path, size.max(1)).await {
                Ok(data) => {
                    took(data.len() as u64).await;
                    return Ok(data.len() as u64);
                }
                // It has grown.
                Err(error) if error.kind() == ErrorKind::TooLarge => {}
                Err(error) => return Err(error),
            }
        }
        let mut download = self.tree.download(&mut self.connection, path).await?;
        let mut read = 0;
        while let Some(chunk) = download.next_chunk().await {
            let length = chunk?.len() as u64;
            read += length;
            took(length).await;
        }
        Ok(read)
    }
}

/// Whether the session is gone, so that everything else would fail as well.
pub(crate) fn is_lost(error: &smb2::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionLost | ErrorKind::TimedOut | ErrorKind::SessionExpired | ErrorKind::Io
    )
}
