//! Connections that are relayed untouched: moved by the kernel through a pipe, never through this process's memory.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use isthmus_telemetry::{ConnectionLedger, Tally};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;
use socket2::SockRef;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::lan;

/// What a pipe holds at most, and so what one step of a direction moves.
const PIPE_BYTES: usize = 1 << 20;
/// Empty pipes kept for the next direction that has something to move.
const PIPES_KEPT_MAX: usize = 64;
/// Buffer of a direction that has to copy.
const COPY_BYTES: usize = 256 << 10;

static PIPES: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());

/// Relays two connections directly, byte for byte, until both directions have ended. `early` was read from the client
/// already.
pub(crate) async fn relay(
    client: &mut TcpStream,
    server: &mut TcpStream,
    early: &[u8],
    ledger: &ConnectionLedger,
) -> io::Result<()> {
    let result = async {
        server.write_all(early).await?;
        ledger.passed_up.add(early.len() as u64);
        let (client, server) = (&*client, &*server);
        tokio::try_join!(
            direction(client, server, &ledger.passed_up),
            direction(server, client, &ledger.passed_down),
        )
    };
    if let Err(error) = result.await {
        lan::reset_at_close(client);
        lan::reset_at_close(server);
        return Err(error);
    }
    lan::close_in_order(client);
    lan::close_in_order(server);
    Ok(())
}

/// Carries one direction to its end and passes the end on. A direction that is quiet holds neither pipe nor buffer.
async fn direction(from: &TcpStream, to: &TcpStream, count: &Tally) -> io::Result<()> {
    loop {
        from.readable().await?;
        let moved = match Pipe::take() {
            Ok(mut pipe) => {
                let moved = pipe.carry(from, to, count).await;
                pipe.give_back();
                moved
            }
            // No descriptors are left, or not the right to have more pipes.
            Err(_) => Err(Cannot::Splice),
        };
        let moved = match moved {
            Err(Cannot::Splice) => copy(from, to, count).await,
            Err(Cannot::Go(error)) => Err(error),
            Ok(moved) => Ok(moved),
        };
        match moved? {
            Moved::AllThereWas => {}
            Moved::End => return SockRef::from(to).shutdown(Shutdown::Write),
        }
    }
}

/// How far a direction came.
enum Moved {
    /// The source has no more for now.
    AllThereWas,
    /// The source has ended.
    End,
}

/// Why it came no further.
enum Cannot {
    /// This kernel cannot splice these sockets; nothing is in the pipe.
    Splice,
    Go(io::Error),
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    held: usize,
}

impl Pipe {
    /// A kept pipe or a new one, empty.
    fn take() -> io::Result<Pipe> {
        if let Some(pipe) = kept().pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // A smaller one, as users without privileges may get, does as well with more steps.
        let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES as i32));
        Ok(Pipe { read, write, held: 0 })
    }

    /// Keeps the pipe for others, unless it still holds bytes of a direction that failed.
    fn give_back(self) {
        let mut kept = kept();
        if self.held == 0 && kept.len() < PIPES_KEPT_MAX {
            kept.push(self);
        }
    }

    /// Moves what the source has until it has no more.
    async fn carry(&mut self, from: &TcpStream, to: &TcpStream, count: &Tally) -> Result<Moved, Cannot> {
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        loop {
            let fill = || Ok(splice(from, None, &self.write, None, PIPE_BYTES, flags)?);
            match from.try_io(Interest::READABLE, fill) {
                Ok(0) => return Ok(Moved::End),
                Ok(filled) => self.held = filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::AllThereWas),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(Cannot::Splice),
                Err(error) => return Err(Cannot::Go(error)),
            }
            while self.held > 0 {
                let drain = || Ok(splice(&self.read, None, to, None, self.held, flags)?);
                match to.try_io(Interest::WRITABLE, drain) {
                    Ok(moved) => {
                        self.held -= moved.min(self.held);
                        count.add(moved as u64);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        to.writable().await.map_err(Cannot::Go)?;
                    }
                    Err(error) => return Err(Cannot::Go(error)),
                }
            }
        }
    }
}

fn kept() -> MutexGuard<'static, Vec<Pipe>> {
    PIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies what the source has until it has no more.
async fn copy(from: &TcpStream, to: &TcpStream, count: &Tally) -> io::Result<Moved> {
    let mut buffer = Vec::new();
    loop {
        buffer.reserve(COPY_BYTES);
        match from.try_read_buf(&mut buffer) {
            Ok(0) => return Ok(Moved::End),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::AllThereWas),
            Err(error) => return Err(error),
        }
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            match to.try_write(rest) {
                Ok(written) => {
                    count.add(written as u64);
                    rest = rest.get(written..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        buffer.clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    const CONTENT_BYTES: usize = 5_000_000;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (far, listener.accept().await.unwrap().0)
    }

    fn content(seed: u8) -> Vec<u8> {
        (0..CONTENT_BYTES).map(|n| (n / 251) as u8 ^ (n as u8).wrapping_mul(seed)).collect()
    }

    /// Writes one content and reads another at the same time, then ends.
    async fn talk(stream: TcpStream, say: Vec<u8>) -> Vec<u8> {
        let (mut read, mut write) = stream.into_split();
        let saying = tokio::spawn(async move {
            write.write_all(&say).await.unwrap();
            write.shutdown().await.unwrap();
            write
        });
        let mut heard = Vec::new();
        read.read_to_end(&mut heard).await.unwrap();
        saying.await.unwrap();
        heard
    }

    #[tokio::test]
    async fn both_directions_arrive_whole_and_are_counted() {
        let ((client, mut near), (server, mut far)) = (connected().await, connected().await);
        let ledger = ConnectionLedger::default();
        let (up, down) = (content(3), content(7));
        let (relayed, at_client, at_server) = tokio::join!(
            relay(&mut near, &mut far, b"early", &ledger),
            talk(client, up.clone()),
            talk(server, down.clone()),
        );
        relayed.unwrap();
        assert!(at_client == down);
        assert!(at_server == [b"early", up.as_slice()].concat());
        let values = ledger.values();
        assert_eq!((values.passed_up, values.passed_down), (up.len() as u64 + 5, down.len() as u64));
    }

    #[tokio::test]
    async fn what_cannot_be_spliced_is_copied() {
        let ((mut client, near), (mut server, far)) = (connected().await, connected().await);
        let up = content(5);
        let count = Tally::default();
        let sent = up.clone();
        let saying = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
        });
        let copying = async {
            loop {
                near.readable().await.unwrap();
                if let Moved::End = copy(&near, &far, &count).await.unwrap() {
                    return drop(far);
                }
            }
        };
        let mut heard = Vec::new();
        let ((), read) = tokio::join!(copying, server.read_to_end(&mut heard));
        read.unwrap();
        saying.await.unwrap();
        assert!(heard == up);
        assert_eq!(count.value(), up.len() as u64);
    }

    #[tokio::test]
    async fn a_reset_on_one_side_is_a_reset_on_the_other() {
        let ((client, mut near), (mut server, mut far)) = (connected().await, connected().await);
        let ledger = ConnectionLedger::default();
        lan::reset_at_close(&client);
        drop(client);
        let error = relay(&mut near, &mut far, &[], &ledger).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        drop((near, far));
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_pipe_with_bytes_in_it_is_never_used_again() {
        let mut pipe = Pipe::take().unwrap();
        pipe.held = 1;
        let before = kept().len();
        pipe.give_back();
        assert!(kept().len() <= before);
        assert!(kept().iter().all(|pipe| pipe.held == 0));
    }
}
