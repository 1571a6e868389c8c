//! Sockets of outer connections.

use std::io;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

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

/// Reads what has come, at most `room` bytes, whatever `input` has room for: its buffer may have grown.
pub(crate) fn read_at_most(lan: &TcpStream, input: &mut BytesMut, room: usize) -> io::Result<usize> {
    input.reserve(room);
    lan.try_read_buf(&mut input.limit(room))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_large_buffer_does_not_make_a_large_read() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (lan, _) = listener.accept().await.unwrap();
        client.write_all(&[7; 10_000]).await.unwrap();
        let mut input = BytesMut::with_capacity(1 << 20);
        let mut left = 10_000;
        while left > 0 {
            lan.readable().await.unwrap();
            match read_at_most(&lan, &mut input, 3_000) {
                Ok(n) => {
                    assert!(0 < n && n <= 3_000, "{n}");
                    left -= n;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(input[..], [7; 10_000]);
    }
}
