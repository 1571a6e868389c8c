//! The servers of the workloads.

use super::service::{Counts, Service};
use super::{IO_BYTES, RECEIPT_BYTES};
use crate::Place;
use crate::error::Result;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Most receipts that a sink remembers.
const RECEIPTS_MAX: usize = 10_000;

/// What a sink does with the bytes it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkMode {
    /// Only counts them.
    Discard,
    /// Hashes them with BLAKE3, so that the uploader can tell whether every byte arrived.
    Hash,
}

/// What a sink has received over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Number of bytes.
    pub bytes: u64,
    /// Their BLAKE3 hash; zeros when the sink discards.
    pub hash: [u8; 32],
}

/// What a sink has received, in the order in which the uploads ended.
#[derive(Clone, Default)]
pub struct Receipts(Arc<Mutex<Vec<Receipt>>>);

impl Receipts {
    /// All receipts so far.
    pub fn all(&self) -> Vec<Receipt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, receipt: Receipt) {
        let mut receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if receipts.len() < RECEIPTS_MAX {
            receipts.push(receipt);
        }
    }
}

/// Sends `content` to whoever connects, then closes its direction.
///
/// # Errors
/// The address cannot be bound in that place.
pub fn source_server(place: &Place, listen: SocketAddr, content: Bytes) -> Result<Service> {
    Service::start(place, listen, "source", move |stream, counts| {
        let content = content.clone();
        async move { send_all(stream, content, &counts).await }
    })
}

/// Reads each connection to its end and answers with the number and hash of the bytes.
///
/// # Errors
/// The address cannot be bound in that place.
pub fn sink_server(place: &Place, listen: SocketAddr, mode: SinkMode) -> Result<(Service, Receipts)> {
    let receipts = Receipts::default();
    let kept = receipts.clone();
    let service = Service::start(place, listen, "sink", move |stream, counts| {
        let receipts = kept.clone();
        async move { receive_all(stream, mode, &counts, &receipts).await }
    })?;
    Ok((service, receipts))
}

/// Sends back what it gets, at once.
///
/// # Errors
/// The address cannot be bound in that place.
pub fn echo_server(place: &Place, listen: SocketAddr) -> Result<Service> {
    Service::start(place, listen, "echo", |stream, counts| async move { echo(stream, &counts).await })
}

async fn send_all(mut stream: TcpStream, content: Bytes, counts: &Counts) -> io::Result<()> {
    for part in content.chunks(IO_BYTES) {
        stream.write_all(part).await?;
        counts.bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
    }
    stream.shutdown().await?;
    // Reads until the client closes, so that the connection ends with a FIN and not with a reset.
    let mut rest = [0_u8; 64];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn receive_all(
    mut stream: TcpStream,
    mode: SinkMode,
    counts: &Counts,
    receipts: &Receipts,
) -> io::Result<()> {
    let mut buffer = vec![0_u8; IO_BYTES];
    let (mut received, mut hasher) = (0_u64, blake3::Hasher::new());
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            break;
        }
        if mode == SinkMode::Hash {
            hasher.update(&buffer[..n]);
        }
        received += n as u64;
        counts.bytes.fetch_add(n as u64, Ordering::Relaxed);
    }
    let hash = match mode {
        SinkMode::Discard => [0; 32],
        SinkMode::Hash => *hasher.finalize().as_bytes(),
    };
    let mut receipt = [0_u8; RECEIPT_BYTES];
    receipt[..8].copy_from_slice(&received.to_le_bytes());
    receipt[8..].copy_from_slice(&hash);
    receipts.add(Receipt { bytes: received, hash });
    stream.write_all(&receipt).await?;
    stream.shutdown().await
}

/// Small at first, so that thousands of idle connections cost little; grown for a connection that sends much.
const ECHO_BYTES_MIN: usize = 2 * 1024;
const ECHO_BYTES_MAX: usize = 256 * 1024;

async fn echo(mut stream: TcpStream, counts: &Counts) -> io::Result<()> {
    let mut buffer = vec![0_u8; ECHO_BYTES_MIN];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return stream.shutdown().await;
        }
        counts.bytes.fetch_add(n as u64, Ordering::Relaxed);
        stream.write_all(&buffer[..n]).await?;
        if n == buffer.len() && n < ECHO_BYTES_MAX {
            buffer.resize(n * 2, 0);
        }
    }
}
