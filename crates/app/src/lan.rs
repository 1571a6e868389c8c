//! Sockets of outer connections.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use isthmus_telemetry::{ConnectionLedger, Tally};

/// Buffer of a direct relay, in each direction.
const RELAY_BYTES: usize = 256 << 10;

/// Prepares the socket of an outer connection. From here on its close is a reset, also when the process is killed: a
/// part of a stream must never look like the whole. [`close_in_order`] ends that.
pub(crate) fn prepare(stream: &TcpStream, keepalive: Duration) {
    // Each of these is an improvement, not a need: a socket that refuses one works without it.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(keepalive));
    reset_at_close(stream);
}

/// Both directions have ended as they should: the close is an ordinary one, and what the kernel still holds is delivered.
pub(crate) fn close_in_order(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

/// Makes the socket's close a reset, as the application at its other end is to see one.
pub(crate) fn reset_at_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Relays two connections directly, byte for byte, until both directions have ended. `early` was read from the client
/// already.
pub(crate) async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    early: &[u8],
    ledger: &ConnectionLedger,
) -> io::Result<()> {
    let result = async {
        server.write_all(early).await?;
        ledger.passed_up.add(early.len() as u64);
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        tokio::try_join!(
            copy(client_read, server_write, &ledger.passed_up),
            copy(server_read, client_write, &ledger.passed_down),
        )
    };
    if let Err(error) = result.await {
        reset_at_close(&client);
        reset_at_close(&server);
        return Err(error);
    }
    close_in_order(&client);
    close_in_order(&server);
    Ok(())
}

/// Copies one direction to its end and passes the end on.
async fn copy(from: ReadHalf<'_>, mut to: WriteHalf<'_>, count: &Tally) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        from.readable().await?;
        buffer.reserve(RELAY_BYTES);
        match from.try_read_buf(&mut buffer) {
            Ok(0) => return to.shutdown().await,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Nothing to do: a quiet connection holds no buffer.
                buffer = Vec::new();
                continue;
            }
            Err(error) => return Err(error),
        }
        to.write_all(&buffer).await?;
        count.add(buffer.len() as u64);
        buffer.clear();
    }
}
