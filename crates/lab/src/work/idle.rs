//! Many connections that carried traffic and then idle.

use super::client::connect;
use crate::Place;
use crate::error::{Context as _, LabError, Result};
use crate::place::runtime;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Connections opened at the same time; more would only fill listen queues.
const OPENING_AT_ONCE: usize = 64;

/// Connections to an echo server, each of which has carried traffic; closed when dropped.
pub struct IdleConnections {
    count: usize,
    commands: tokio::sync::mpsc::Sender<oneshot::Sender<Result<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl IdleConnections {
    /// Opens `count` connections to an echo server, exchanges `bytes` on each, then leaves them open.
    ///
    /// # Errors
    /// Any connection that cannot be opened or does not echo.
    pub fn open(place: &Place, address: SocketAddr, count: usize, bytes: usize) -> Result<IdleConnections> {
        let (commands, mut inbox) = tokio::sync::mpsc::channel::<oneshot::Sender<Result<()>>>(1);
        let (report, reported) = mpsc::channel();
        let place = place.clone();
        let thread = std::thread::Builder::new()
            .name("lab-idle".into())
            .spawn(move || {
                let work = || {
                    place.enter()?;
                    let runtime = runtime()?;
                    let streams = runtime.block_on(open_all(address, count, bytes))?;
                    Ok((runtime, streams))
                };
                let (runtime, mut streams) = match work() {
                    Ok(opened) => opened,
                    Err(error) => return drop(report.send(Err(error))),
                };
                drop(report.send(Ok(())));
                runtime.block_on(async {
                    while let Some(answer) = inbox.recv().await {
                        // The asker may have given up; the connections stay all the same.
                        let _ = answer.send(exchange_on_all(&mut streams, bytes).await);
                    }
                });
            })
            .context(|| "starting the idle-connections thread".into())?;
        match reported.recv() {
            Ok(Ok(())) => Ok(IdleConnections { count, commands, thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(lost()),
        }
    }

    /// Number of connections held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Exchanges bytes on every connection again: proves that all of them are still alive.
    ///
    /// # Errors
    /// Any connection that no longer echoes.
    pub fn exchange(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.commands.blocking_send(answer).map_err(|_| lost())?;
        answered.blocking_recv().map_err(|_| lost())?
    }
}

impl Drop for IdleConnections {
    fn drop(&mut self) {
        let (closed, _) = tokio::sync::mpsc::channel(1);
        self.commands = closed;
        if let Some(thread) = self.thread.take() {
            // A panicked thread has printed its message already.
            let _ = thread.join();
        }
    }
}

async fn open_all(address: SocketAddr, count: usize, bytes: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..OPENING_AT_ONCE.min(count - streams.len()) {
            opening.spawn(async move {
                let mut stream = connect(address).await?;
                exchange(&mut stream, bytes).await?;
                Ok::<_, LabError>(stream)
            });
        }
        while let Some(joined) = opening.join_next().await {
            streams.push(joined.map_err(|_| lost())??);
        }
    }
    Ok(streams)
}

async fn exchange_on_all(streams: &mut [TcpStream], bytes: usize) -> Result<()> {
    for stream in streams {
        exchange(stream, bytes).await?;
    }
    Ok(())
}

async fn exchange(stream: &mut TcpStream, bytes: usize) -> Result<()> {
    let sent: Vec<u8> = (0..bytes).map(|i| (i * 31) as u8).collect();
    let mut back = vec![0_u8; bytes];
    let (mut read, mut write) = stream.split();
    // Both at once: a large exchange would otherwise fill the buffers of both directions and stand still.
    let both = async { tokio::try_join!(write.write_all(&sent), read.read_exact(&mut back)) };
    both.await.context(|| "exchanging bytes on an idle connection".into())?;
    if back == sent {
        return Ok(());
    }
    Err(LabError::Mismatch { what: "idle connection".into(), detail: "other bytes came back".into() })
}

fn lost() -> LabError {
    LabError::Format { what: "the idle-connections thread".into(), detail: "it ended early".into() }
}

#[cfg(test)]
mod tests {
    use super::super::echo_server;
    use super::*;

    #[test]
    fn connections_stay_open_and_answer_again() {
        let echo = echo_server(&Place::Local, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let idle = IdleConnections::open(&Place::Local, echo.address(), 200, 5_000).unwrap();
        assert_eq!((idle.count(), echo.connections()), (200, 200));
        idle.exchange().unwrap();
        assert_eq!(echo.bytes(), 2 * 200 * 5_000);
        let address = echo.address();
        drop(echo);
        assert!(idle.exchange().is_err(), "the server at {address} is gone");
    }
}
