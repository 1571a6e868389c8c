//! A WAN emulated by a TCP relay on one machine, for where there is no right to make network namespaces.
//!
//! Delay, rate (shared by all connections of a direction), a bounded queue, cuts and killed connections are as on an IP
//! link. What a TCP relay cannot show: packet loss, and congestion control across it, since both ends of each
//! connection see an acknowledgement from this machine at once. A full queue pushes back instead of dropping.

use super::shape::{LinkShape, WanShape};
use super::timer::PreciseTimer;
use crate::error::{Context as _, Result};
use crate::place::runtime;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// Largest piece that is read and delivered at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Smallest piece: one full-size packet.
const PIECE_BYTES_MIN: usize = 1500;

/// Most bytes of one connection and direction that may be under way.
const CONNECTION_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A running relay; dropping it closes every connection.
pub struct RelayWan {
    address: SocketAddr,
    link: Arc<Link>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What has crossed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStats {
    /// Payload bytes delivered from client to server.
    pub bytes_up: u64,
    /// Payload bytes delivered from server to client.
    pub bytes_down: u64,
    /// Connections accepted.
    pub connections: u64,
}

struct Link {
    up: Direction,
    down: Direction,
    cut: watch::Sender<bool>,
    /// Incremented by each kill; a connection ends when it sees a number other than that of its start.
    kills: watch::Sender<u64>,
    connections: AtomicU64,
    timer: PreciseTimer,
}

struct Direction {
    state: Mutex<State>,
    bytes: AtomicU64,
}

struct State {
    shape: LinkShape,
    /// When the bottleneck will have sent everything that was given to it.
    busy_until: Instant,
}

impl RelayWan {
    /// Relays each connection to `listen` on to `target`, over a link of this shape.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(listen: SocketAddr, target: SocketAddr, shape: WanShape) -> Result<RelayWan> {
        let listener = std::net::TcpListener::bind(listen).context(|| format!("listening on {listen}"))?;
        listener.set_nonblocking(true).context(|| "making a listener non-blocking".into())?;
        let address = listener.local_addr().context(|| "reading a listener's address".into())?;
        let link = Arc::new(Link {
            up: Direction::new(shape.up),
            down: Direction::new(shape.down),
            cut: watch::Sender::new(false),
            kills: watch::Sender::new(0),
            connections: AtomicU64::new(0),
            timer: PreciseTimer::start()?,
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = runtime()?;
        let thread_link = link.clone();
        let thread = std::thread::Builder::new()
            .name("lab-relay-wan".into())
            .spawn(move || runtime.block_on(serve(listener, target, thread_link, stopped)))
            .context(|| "starting the relay thread".into())?;
        Ok(RelayWan { address, link, stop: Some(stop), thread: Some(thread) })
    }

    /// The address to connect to instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the link; what is already under way keeps its time.
    pub fn set_shape(&self, shape: WanShape) {
        self.link.up.set_shape(shape.up);
        self.link.down.set_shape(shape.down);
    }

    /// Cuts the link (nothing crosses, connections stay) or mends it.
    pub fn cut(&self, is_cut: bool) {
        self.link.cut.send_replace(is_cut);
    }

    /// Resets every connection that crosses the link now.
    pub fn kill_connections(&self) {
        self.link.kills.send_modify(|kills| *kills += 1);
    }

    /// Payload bytes delivered from client to server so far.
    pub fn bytes_up(&self) -> u64 {
        self.link.up.bytes.load(Ordering::Relaxed)
    }

    /// Payload bytes delivered from server to client so far.
    pub fn bytes_down(&self) -> u64 {
        self.link.down.bytes.load(Ordering::Relaxed)
    }

    /// All counts at once.
    pub fn stats(&self) -> RelayStats {
        RelayStats {
            bytes_up: self.bytes_up(),
            bytes_down: self.bytes_down(),
            connections: self.link.connections.load(Ordering::Relaxed),
        }
    }
}

impl Drop for RelayWan {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panicked thread has printed its message already.
            let _ = thread.join();
        }
    }
}

impl Direction {
    fn new(shape: LinkShape) -> Direction {
        let state = State { shape, busy_until: Instant::now() };
        Direction { state: Mutex::new(state), bytes: AtomicU64::new(0) }
    }

    fn set_shape(&self, shape: LinkShape) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shape = shape;
    }

    /// A millisecond's worth of the link, so that delivery is not lumpy.
    fn piece_bytes(&self) -> usize {
        let rate = self.state.lock().unwrap_or_else(PoisonError::into_inner).shape.rate_bps;
        rate.map_or(PIECE_BYTES_MAX, |rate| (rate / 8000) as usize).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    fn delay(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shape.delay
    }

    /// When the queue has room again, if it is full now.
    fn full_until(&self) -> Option<Instant> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let queue_time = state.shape.transmission_time(state.shape.queue_bytes);
        let room_at = state.busy_until.checked_sub(queue_time)?;
        (room_at > Instant::now()).then_some(room_at)
    }

    /// Takes `bytes` onto the link; the time at which they arrive.
    fn schedule(&self, bytes: u64) -> Instant {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let transmission = state.shape.transmission_time(bytes);
        state.busy_until = state.busy_until.max(Instant::now()) + transmission;
        state.busy_until + state.shape.delay
    }
}

async fn serve(
    listener: std::net::TcpListener,
    target: SocketAddr,
    link: Arc<Link>,
    stopped: oneshot::Receiver<()>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let accept_all = async {
        loop {
            match listener.accept().await {
                Ok((client, _)) => {
                    link.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(carry(client, target, link.clone()));
                }
                // Out of descriptors, most likely: wait for some to come back rather than spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        _ = stopped => {}
    }
}

/// One connection across the link, until both directions have ended or one failed.
async fn carry(mut client: TcpStream, target: SocketAddr, link: Arc<Link>) {
    let mut kills = link.kills.subscribe();
    let born = *kills.borrow_and_update();
    let killed = async {
        // The sender lives in the link, so an error cannot happen while this runs.
        while kills.changed().await.is_ok() && *kills.borrow() == born {}
    };
    tokio::pin!(killed);
    // The handshake crosses the link too: SYN there and SYN-ACK back before the first data.
    let set_up = async {
        let handshake = link.up.delay() + link.down.delay();
        link.timer.sleep_until(Instant::now() + handshake).await;
        wait_uncut(&link).await;
        TcpStream::connect(target).await
    };
    let connected = tokio::select! {
        () = &mut killed => Err(io::ErrorKind::ConnectionReset.into()),
        connected = set_up => connected,
    };
    let Ok(mut server) = connected else { return reset(&client) };
    // Nagle's algorithm would add waits that a real link does not have.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let both = async {
        tokio::try_join!(
            pump(client_read, server_write, &link.up, &link),
            pump(server_read, client_write, &link.down, &link),
        )
    };
    let is_clean = tokio::select! {
        () = killed => false,
        done = both => done.is_ok(),
    };
    if !is_clean {
        reset(&client);
        reset(&server);
    }
}

/// Makes the close that follows a reset instead of a FIN.
fn reset(stream: &TcpStream) {
    // If it fails the connection has gone already.
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// A piece under way: when it arrives, what it is (empty: end of the stream), its place in the connection's buffer.
type Piece = (Instant, Bytes, OwnedSemaphorePermit);

/// One direction of one connection: reads when the queue has room, delivers when the time has come.
async fn pump(from: ReadHalf<'_>, to: WriteHalf<'_>, direction: &Direction, link: &Link) -> io::Result<()> {
    let (queue, arriving) = mpsc::unbounded_channel();
    tokio::try_join!(take(from, queue, direction, link), deliver(arriving, to, direction, link))?;
    Ok(())
}

async fn take(
    from: ReadHalf<'_>,
    queue: mpsc::UnboundedSender<Piece>,
    direction: &Direction,
    link: &Link,
) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTION_BYTES_MAX));
    let mut buffer = Vec::new();
    loop {
        from.readable().await?;
        while let Some(until) = direction.full_until() {
            link.timer.sleep_until(until).await;
        }
        wait_uncut(link).await;
        // Thousands of idle connections must not each hold a buffer, so it lives only while there is something to read.
        buffer.resize(direction.piece_bytes(), 0);
        let n = match from.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                buffer = Vec::new();
                continue;
            }
            result => result?,
        };
        let due = direction.schedule(n as u64);
        let data = Bytes::copy_from_slice(&buffer[..n]);
        let Ok(permit) = room.clone().acquire_many_owned(n as u32).await else { return Ok(()) };
        if queue.send((due, data, permit)).is_err() || n == 0 {
            return Ok(());
        }
    }
}

async fn deliver(
    mut arriving: mpsc::UnboundedReceiver<Piece>,
    mut to: WriteHalf<'_>,
    direction: &Direction,
    link: &Link,
) -> io::Result<()> {
    while let Some((due, data, _permit)) = arriving.recv().await {
        link.timer.sleep_until(due).await;
        wait_uncut(link).await;
        if data.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&data).await?;
        direction.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn wait_uncut(link: &Link) {
    let mut cut = link.cut.subscribe();
    // The sender lives in the link, so this cannot fail while the link is there.
    let _ = cut.wait_for(|is_cut| !is_cut).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::work::{
        SinkMode, connect, download, echo_server, echo_times, sink_server, source_server, upload,
    };
    use tokio::io::AsyncReadExt as _;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn content(len: usize) -> Bytes {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>().into()
    }

    #[test]
    fn delay_is_what_was_set() {
        let echo = echo_server(&Place::Local, any()).unwrap();
        let shape = WanShape::symmetric(Duration::from_millis(40), None);
        let wan = RelayWan::start(any(), echo.address(), shape).unwrap();
        let times = Place::Local.block_on(|| echo_times(wan.address(), 60, 9, Duration::ZERO)).unwrap();
        // The lower bound is exact; the upper one only keeps a gross error out on a busy machine.
        assert!(times.quantile(0.0) >= Duration::from_millis(40));
        assert!(times.quantile(0.5) < Duration::from_millis(80), "{:?}", times.quantile(0.5));
        assert_eq!((wan.bytes_up(), wan.bytes_down()), (540, 540));
    }

    #[test]
    fn rate_is_shared_and_asymmetric() {
        let data = content(1_000_000);
        let source = source_server(&Place::Local, any(), data.clone()).unwrap();
        let shape = WanShape::asymmetric(Duration::from_millis(2), Some(400_000_000), Some(40_000_000));
        let wan = RelayWan::start(any(), source.address(), shape).unwrap();
        let start = Instant::now();
        let address = wan.address();
        Place::Local.block_on(|| crate::work::parallel_downloads(address, data.clone(), 2)).unwrap();
        // Two megabytes at 40 Mbit/s.
        assert!(start.elapsed() >= Duration::from_millis(390), "{:?}", start.elapsed());
        assert_eq!(wan.bytes_down(), 2_000_000);

        let (sink, _) = sink_server(&Place::Local, any(), SinkMode::Discard).unwrap();
        let wan = RelayWan::start(any(), sink.address(), shape).unwrap();
        let up = Place::Local.block_on(|| upload(wan.address(), data.clone(), None)).unwrap();
        assert!(up.seconds >= 0.0195, "{}", up.seconds);
        assert!(up.seconds < 0.39, "the up direction is ten times as fast: {}", up.seconds);
    }

    #[test]
    fn the_queue_is_bounded() {
        let (sink, _) = sink_server(&Place::Local, any(), SinkMode::Discard).unwrap();
        let mut shape = WanShape::symmetric(Duration::ZERO, Some(8_000_000));
        shape.up.queue_bytes = 20_000;
        let wan = RelayWan::start(any(), sink.address(), shape).unwrap();
        Place::Local
            .block_on(|| async {
                let mut stream = connect(wan.address()).await?;
                stream.write_all(&content(300_000)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                let state = wan.link.up.state.lock().unwrap();
                let queued = state.busy_until.saturating_duration_since(Instant::now());
                // 20 ms of queue and one piece.
                assert!(queued <= Duration::from_millis(23), "{queued:?}");
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn a_cut_holds_everything_and_mending_it_goes_on() {
        let echo = echo_server(&Place::Local, any()).unwrap();
        let wan = RelayWan::start(any(), echo.address(), WanShape::open()).unwrap();
        Place::Local
            .block_on(|| async {
                let mut stream = connect(wan.address()).await?;
                let mut back = [0; 5];
                stream.write_all(b"first").await.unwrap();
                stream.read_exact(&mut back).await.unwrap();
                wan.cut(true);
                stream.write_all(b"later").await.unwrap();
                let held =
                    tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut back)).await;
                assert!(held.is_err(), "nothing crosses a cut");
                assert_eq!(wan.bytes_up(), 5);
                wan.cut(false);
                stream.read_exact(&mut back).await.unwrap();
                assert_eq!(&back, b"later");
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn killed_connections_are_reset_at_both_ends() {
        let data = content(50_000_000);
        let source = source_server(&Place::Local, any(), data.clone()).unwrap();
        let shape = WanShape::symmetric(Duration::from_millis(1), Some(80_000_000));
        let wan = RelayWan::start(any(), source.address(), shape).unwrap();
        let error = std::thread::scope(|scope| {
            let client = scope.spawn(|| Place::Local.block_on(|| download(wan.address(), data.clone())));
            while wan.bytes_down() < 100_000 {
                std::thread::sleep(Duration::from_millis(1));
            }
            wan.kill_connections();
            client.join().unwrap().unwrap_err()
        });
        assert!(error.to_string().contains("reset"), "{error}");
        let deadline = Instant::now() + Duration::from_secs(10);
        while source.errors() == 0 {
            assert!(Instant::now() < deadline, "the server must see the reset");
            std::thread::sleep(Duration::from_millis(1));
        }
        // A connection made afterwards works.
        let first = data.slice(..0);
        let error = Place::Local.block_on(|| download(wan.address(), first)).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }

    #[test]
    fn a_dead_target_resets_the_client() {
        let closed = std::net::TcpListener::bind(any()).unwrap().local_addr().unwrap();
        let wan = RelayWan::start(any(), closed, WanShape::open()).unwrap();
        assert!(Place::Local.block_on(|| download(wan.address(), Bytes::new())).is_err());
        assert_eq!(wan.stats().connections, 1);
    }
}
