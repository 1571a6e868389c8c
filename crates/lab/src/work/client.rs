//! The clients of the workloads.

use super::{IO_BYTES, RECEIPT_BYTES};
use crate::error::{Context as _, LabError, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One transfer, verified byte for byte.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// Payload bytes.
    pub bytes: u64,
    /// From before the connection was opened until the last byte (download) or the receipt (upload) was there.
    pub seconds: f64,
}

/// Round-trip times of an echo run, sorted.
#[derive(Clone, Debug)]
pub struct EchoTimes(Vec<Duration>);

impl EchoTimes {
    /// The time below which this share (0 to 1) of the exchanges stayed.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let index = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Number of exchanges.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Connects with Nagle's algorithm off.
///
/// # Errors
/// The connection is refused or times out.
pub async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true).context(|| "switching Nagle's algorithm off".into())?;
    Ok(stream)
}

/// Reads from `address` to the end and compares with `expected` as the bytes arrive.
///
/// # Errors
/// The connection fails, or a byte, or the length, is not as expected.
pub async fn download(address: SocketAddr, expected: Bytes) -> Result<Transfer> {
    let start = Instant::now();
    let mut stream = connect(address).await?;
    let mut buffer = vec![0_u8; IO_BYTES];
    let mut at = 0;
    loop {
        let n = stream.read(&mut buffer).await.context(|| format!("reading from {address} at byte {at}"))?;
        if n == 0 {
            break;
        }
        if expected.get(at..at + n) != Some(&buffer[..n]) {
            return Err(first_difference(&expected, at, &buffer[..n]));
        }
        at += n;
    }
    if at != expected.len() {
        let detail = format!("ended after {at} of {} bytes", expected.len());
        return Err(LabError::Mismatch { what: "download".into(), detail });
    }
    Ok(Transfer { bytes: at as u64, seconds: start.elapsed().as_secs_f64() })
}

/// Sends `content` to a sink and waits for its receipt; `hash` is what the receipt must say (`None`: length only).
///
/// # Errors
/// The connection fails, or the receipt says that other bytes arrived.
pub async fn upload(address: SocketAddr, content: Bytes, hash: Option<[u8; 32]>) -> Result<Transfer> {
    let start = Instant::now();
    let mut stream = connect(address).await?;
    for part in content.chunks(IO_BYTES) {
        stream.write_all(part).await.context(|| format!("writing to {address}"))?;
    }
    stream.shutdown().await.context(|| format!("closing towards {address}"))?;
    let mut receipt = [0_u8; RECEIPT_BYTES];
    stream.read_exact(&mut receipt).await.context(|| format!("waiting for the receipt of {address}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let mut length = [0_u8; 8];
    length.copy_from_slice(&receipt[..8]);
    let received = u64::from_le_bytes(length);
    if received != content.len() as u64 {
        let detail = format!("the sink got {received} of {} bytes", content.len());
        return Err(LabError::Mismatch { what: "upload".into(), detail });
    }
    if hash.is_some_and(|hash| hash != receipt[8..]) {
        return Err(LabError::Mismatch { what: "upload".into(), detail: "the sink got other bytes".into() });
    }
    Ok(Transfer { bytes: received, seconds })
}

/// Downloads the same content over `count` connections at once.
///
/// # Errors
/// The first error of any of them.
pub async fn parallel_downloads(address: SocketAddr, expected: Bytes, count: usize) -> Result<Vec<Transfer>> {
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..count {
        running.spawn(download(address, expected.clone()));
    }
    let mut done = Vec::with_capacity(count);
    while let Some(joined) = running.join_next().await {
        done.push(joined.map_err(|error| LabError::Format {
            what: "the result of a download".into(),
            detail: error.to_string(),
        })??);
    }
    Ok(done)
}

/// Sends `size` bytes, waits for them to come back, `count` times with `pause` between.
///
/// # Errors
/// The connection fails or something else comes back.
pub async fn echo_times(
    address: SocketAddr,
    size: usize,
    count: usize,
    pause: Duration,
) -> Result<EchoTimes> {
    let mut stream = connect(address).await?;
    let (mut sent, mut back) = (vec![0_u8; size], vec![0_u8; size]);
    let mut random = fastrand::Rng::with_seed(60);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        random.fill(&mut sent);
        let start = Instant::now();
        stream.write_all(&sent).await.context(|| format!("writing to {address}"))?;
        stream.read_exact(&mut back).await.context(|| format!("reading the echo of {address}"))?;
        times.push(start.elapsed());
        if back != sent {
            return Err(LabError::Mismatch { what: "echo".into(), detail: "other bytes came back".into() });
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    times.sort_unstable();
    Ok(EchoTimes(times))
}

fn first_difference(expected: &[u8], at: usize, got: &[u8]) -> LabError {
    let rest = expected.get(at..).unwrap_or_default();
    let common = rest.iter().zip(got).take_while(|(a, b)| a == b).count();
    let detail = if common == rest.len() {
        format!("more than the expected {} bytes came", expected.len())
    } else {
        format!("byte {} differs", at + common)
    };
    LabError::Mismatch { what: "download".into(), detail }
}

#[cfg(test)]
mod tests {
    use super::super::{Receipt, SinkMode, echo_server, forward, plain_relay, sink_server, source_server};
    use super::*;
    use crate::Place;

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn content(len: usize) -> Bytes {
        let mut bytes = vec![0; len];
        fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
        bytes.into()
    }

    #[test]
    fn a_download_is_compared_byte_by_byte() {
        let data = content(3_000_001);
        let source = source_server(&Place::Local, any(), data.clone()).unwrap();
        let good = Place::Local.block_on(|| download(source.address(), data.clone())).unwrap();
        assert_eq!(good.bytes, 3_000_001);
        let mut wrong = data.to_vec();
        wrong[2_500_000] ^= 1;
        let error = Place::Local.block_on(|| download(source.address(), wrong.into())).unwrap_err();
        assert!(error.to_string().contains("byte 2500000 differs"), "{error}");
        let short = data.slice(..1000);
        let error = Place::Local.block_on(|| download(source.address(), short)).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
        let mut longer = data.to_vec();
        longer.push(0);
        let error = Place::Local.block_on(|| download(source.address(), longer.into())).unwrap_err();
        assert!(error.to_string().contains("ended after"), "{error}");
    }

    #[test]
    fn an_upload_is_verified_by_its_receipt() {
        let data = content(1_234_567);
        let hash = *blake3::hash(&data).as_bytes();
        let (sink, receipts) = sink_server(&Place::Local, any(), SinkMode::Hash).unwrap();
        Place::Local.block_on(|| upload(sink.address(), data.clone(), Some(hash))).unwrap();
        assert_eq!(receipts.all(), [Receipt { bytes: 1_234_567, hash }]);
        assert_eq!(sink.bytes(), 1_234_567);
        let error =
            Place::Local.block_on(|| upload(sink.address(), data.clone(), Some([1; 32]))).unwrap_err();
        assert!(matches!(error, LabError::Mismatch { .. }));
    }

    #[test]
    fn relay_and_forward_carry_both_directions() {
        let echo = echo_server(&Place::Local, any()).unwrap();
        let relay = plain_relay(&Place::Local, any(), echo.address()).unwrap();
        let front = forward(any(), &Place::Local, relay.address()).unwrap();
        let times = Place::Local.block_on(|| echo_times(front.address(), 60, 50, Duration::ZERO)).unwrap();
        assert_eq!(times.count(), 50);
        assert!(times.quantile(0.5) <= times.quantile(1.0));
        assert_eq!(relay.bytes(), 2 * 50 * 60);
    }

    #[test]
    fn parallel_downloads_each_get_everything() {
        let data = content(500_000);
        let source = source_server(&Place::Local, any(), data.clone()).unwrap();
        let done = Place::Local.block_on(|| parallel_downloads(source.address(), data.clone(), 4)).unwrap();
        assert_eq!(done.len(), 4);
        assert_eq!(source.connections(), 4);
    }
}
