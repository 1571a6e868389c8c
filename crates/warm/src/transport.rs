//! A TCP transport for the SMB library that says in NEGOTIATE that the client can encrypt.
//!
//! The library leaves that bit out, and Samba then offers no cipher. The hash over the exchange, from which keys come, must
//! be taken over the bytes that were really sent, so they are kept.

use async_trait::async_trait;
use smb2::client::Connection;
use smb2::crypto::kdf::PreauthHasher;
use smb2::transport::{ReceiveProgress, TcpTransport, TransportReceive, TransportSend};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Offset of the capabilities in a NEGOTIATE request with its header, and the bit (MS-SMB2 2.2.3).
const CAPABILITIES_AT: usize = 64 + 8;
const CAN_ENCRYPT: u8 = 0x40;

/// Offset of the command in a header; NEGOTIATE is 0 (MS-SMB2 2.2.1.2).
const COMMAND_AT: usize = 12;

/// Messages that are kept: the request and the answer.
const KEPT: usize = 2;

/// The transport.
#[derive(Clone)]
pub struct SealingTransport {
    tcp: Arc<TcpTransport>,
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl SealingTransport {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or not within `limit`.
    pub async fn connect(server: SocketAddr, limit: Duration) -> smb2::Result<SealingTransport> {
        let tcp = Arc::new(TcpTransport::connect(server.to_string(), limit).await?);
        Ok(SealingTransport { tcp, kept: Arc::default() })
    }

    /// A connection over it, negotiated.
    ///
    /// # Errors
    /// The server does not speak SMB 2 or later.
    pub async fn negotiate(self, server_name: &str) -> smb2::Result<Connection> {
        let (sender, receiver) = (Box::new(self.clone()), Box::new(self.clone()));
        let mut connection = Connection::from_transport(sender, receiver, server_name);
        // Only what is asked for must be sent.
        connection.set_keepalive(None);
        connection.negotiate().await?;
        let mut hasher = PreauthHasher::new();
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(|message| hasher.update(message));
        connection.with_preauth_hasher_mut(|of_connection| *of_connection = hasher);
        Ok(connection)
    }

    fn keep(&self, message: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(message.to_vec());
        }
    }
}

#[async_trait]
impl TransportSend for SealingTransport {
    async fn send(&self, data: &[u8]) -> smb2::Result<()> {
        let mut message = data.to_vec();
        let is_negotiate =
            message.get(COMMAND_AT..COMMAND_AT + 2) == Some(&[0, 0]) && message.starts_with(b"\xfeSMB");
        if let (true, Some(capabilities)) = (is_negotiate, message.get_mut(CAPABILITIES_AT)) {
            *capabilities |= CAN_ENCRYPT;
        }
        self.keep(&message);
        self.tcp.send(&message).await
    }
}

#[async_trait]
impl TransportReceive for SealingTransport {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        let message = self.tcp.receive().await?;
        self.keep(&message);
        Ok(message)
    }

    fn receive_progress(&self) -> Option<Arc<ReceiveProgress>> {
        self.tcp.receive_progress()
    }
}
