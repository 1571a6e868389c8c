//! Transfers on threads of their own that check every byte and tell how far they are.

use crate::time::{POLL, within};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A read or write that takes longer than this, stretched, has failed.
const STUCK: Duration = Duration::from_secs(60);

/// How soon traffic has to move again when a fault has ended.
pub const MOVING_AGAIN: Duration = Duration::from_secs(5);

/// Size of reads and writes.
const IO_BYTES: usize = 64 << 10;

/// Length of a sink's receipt: bytes received (8, little-endian) and their BLAKE3 hash.
const RECEIPT_BYTES: usize = 40;

/// A transfer under way.
pub struct Transfer {
    bytes: Arc<AtomicU64>,
    held: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
    socket: TcpStream,
}

impl Transfer {
    /// Bytes received (download) or handed to the socket (upload) so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Waits until it has moved so many bytes.
    #[track_caller]
    pub fn reach(&self, bytes: u64) {
        let deadline = Instant::now() + within(STUCK);
        while self.bytes() < bytes {
            assert!(
                !self.thread.is_finished() && Instant::now() < deadline,
                "stopped at byte {}",
                self.bytes()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops it reading or writing without closing anything, or lets it go on.
    pub fn hold(&self, hold: bool) {
        self.held.store(hold, Ordering::Release);
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end; the error says what went wrong.
    pub fn join(self) -> Result<(), String> {
        self.thread.join().expect("a transfer does not panic")
    }

    /// Ends it as a program that is killed would: with a reset.
    pub fn abort(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
        self.hold(true);
        drop(self.socket.shutdown(Shutdown::Both));
        // It must find that out, and may just have been looking whether it is held.
        self.hold(false);
        // How it ends does not matter; a panic is wrong bytes, and does.
        drop(self.thread.join().expect("a transfer does not panic"));
    }

    /// Waits for an end that must be a failure, and soon.
    #[track_caller]
    pub fn fails_within(self, limit: Duration) -> String {
        let start = Instant::now();
        while !self.is_over() {
            assert!(start.elapsed() < within(limit), "still open after {:?}", start.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.join().expect_err("it was to fail")
    }

    fn start(
        address: SocketAddr,
        work: impl FnOnce(TcpStream, &AtomicU64, &AtomicBool) -> Result<(), String> + Send + 'static,
    ) -> Transfer {
        let (bytes, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let socket = connect(address);
        let (stream, counted, told) = (socket.try_clone().unwrap(), bytes.clone(), held.clone());
        let thread = std::thread::spawn(move || work(stream, &counted, &told));
        Transfer { bytes, held, thread, socket }
    }
}

/// Called at a fault's end: the transfer has to move within [`MOVING_AGAIN`], or to be over, as a fast one may be.
#[track_caller]
pub fn moves_again(what: &str, transfer: &Transfer) {
    let (start, before) = (Instant::now(), transfer.bytes());
    while transfer.bytes() <= before && !transfer.is_over() {
        assert!(
            start.elapsed() < within(MOVING_AGAIN),
            "{what}: still at byte {before} after {:?}",
            start.elapsed()
        );
        std::thread::sleep(POLL);
    }
    println!("{what}: moving again after {} ms", start.elapsed().as_millis());
}

/// Connects, with limits on how long a read or write may take.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(within(STUCK))).unwrap();
    stream.set_write_timeout(Some(within(STUCK))).unwrap();
    stream
}

/// Reads from `address` to the end and compares with `expected` as the bytes come.
pub fn download(address: SocketAddr, expected: &Bytes) -> Transfer {
    let expected = expected.clone();
    Transfer::start(address, move |mut stream, bytes, held| {
        let mut buffer = vec![0; IO_BYTES];
        let mut at = 0;
        loop {
            wait_while(held);
            let n = stream.read(&mut buffer).map_err(|error| format!("at byte {at}: {error}"))?;
            if n == 0 {
                break;
            }
            if expected.get(at..at + n) != Some(&buffer[..n]) {
                // Never to be taken for a connection that failed.
                panic!("WRONG BYTES between {at} and {}", at + n);
            }
            at += n;
            bytes.store(at as u64, Ordering::Release);
        }
        if at == expected.len() {
            Ok(())
        } else {
            Err(format!("ended after {at} of {} bytes", expected.len()))
        }
    })
}

/// Sends `content` to a sink and checks its receipt.
pub fn upload(address: SocketAddr, content: &Bytes) -> Transfer {
    let content = content.clone();
    Transfer::start(address, move |mut stream, bytes, held| {
        for part in content.chunks(IO_BYTES) {
            wait_while(held);
            stream.write_all(part).map_err(|error| error.to_string())?;
            bytes.fetch_add(part.len() as u64, Ordering::Release);
        }
        stream.shutdown(Shutdown::Write).map_err(|error| error.to_string())?;
        let mut receipt = [0; RECEIPT_BYTES];
        stream.read_exact(&mut receipt).map_err(|error| format!("no receipt: {error}"))?;
        let mut expected = (content.len() as u64).to_le_bytes().to_vec();
        expected.extend_from_slice(blake3::hash(&content).as_bytes());
        assert_eq!(receipt[..], expected[..], "WRONG BYTES: the sink got others than were sent");
        Ok(())
    })
}

/// Incompressible bytes that depend on `seed` alone.
pub fn random(len: usize, seed: u64) -> Bytes {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes.into()
}

fn wait_while(held: &AtomicBool) {
    while held.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
