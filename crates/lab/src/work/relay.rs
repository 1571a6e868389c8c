//! A relay that only copies: what a pair without any reduction or encryption would cost.

use super::IO_BYTES;
use super::service::{Counts, Service};
use crate::Place;
use crate::error::Result;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Relays each connection to `target`; two of them in a row are the plain relay pair of the benchmark.
///
/// # Errors
/// The address cannot be bound in that place.
pub fn plain_relay(place: &Place, listen: SocketAddr, target: SocketAddr) -> Result<Service> {
    Service::start(place, listen, "relay", move |inbound, counts| async move {
        let outbound = TcpStream::connect(target).await?;
        outbound.set_nodelay(true)?;
        copy_both(inbound, outbound, &counts).await
    })
}

/// Copies both directions, half-closing each when it ends.
pub(crate) async fn copy_both(
    mut inbound: TcpStream,
    mut outbound: TcpStream,
    counts: &Counts,
) -> io::Result<()> {
    let (mut in_read, mut in_write) = inbound.split();
    let (mut out_read, mut out_write) = outbound.split();
    tokio::try_join!(copy(&mut in_read, &mut out_write, counts), copy(&mut out_read, &mut in_write, counts))?;
    Ok(())
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    counts: &Counts,
) -> io::Result<()> {
    let mut buffer = vec![0_u8; IO_BYTES];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
        counts.bytes.fetch_add(n as u64, Ordering::Relaxed);
    }
}
