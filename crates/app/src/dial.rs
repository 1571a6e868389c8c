//! Outgoing connections to targets: under whose address, and not to be intercepted on their way out.

use std::io;
use std::net::SocketAddr;

use isthmus_config::HostPort;
use isthmus_intercept::{Origin, outgoing};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// Addresses of one target that are tried.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// Connects to one address.
pub(crate) async fn dial(address: SocketAddr, origin: Origin, mark: Option<u32>) -> io::Result<TcpStream> {
    if origin == Origin::Here && mark.is_none() {
        return TcpStream::connect(address).await;
    }
    match connect(address, origin, mark).await {
        // The same two ends are still known to this machine or to the target: another port will do.
        Err(error) if is_in_use(&error) => match origin {
            Origin::Port(client) => connect(address, Origin::Address(client), mark).await,
            _ => Err(error),
        },
        outcome => outcome,
    }
}

/// Resolves a target and connects to the first of its addresses that answers.
pub(crate) async fn dial_any(target: &HostPort, origin: Origin, mark: Option<u32>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host((target.host.to_string(), target.port)).await?.take(ADDRESSES_MAX) {
        match dial(address, origin, mark).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect(address: SocketAddr, origin: Origin, mark: Option<u32>) -> io::Result<TcpStream> {
    let socket = outgoing(address.ip(), origin, mark)?;
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

fn is_in_use(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}
