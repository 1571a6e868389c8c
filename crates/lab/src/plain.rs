//! A stand-in for the proxies that relays and counts and does nothing else.
//!
//! The lab is tested with it: what its measurements must show is known beforehand (as many WAN bytes as LAN bytes), so
//! an error in the lab cannot pass as a property of the product. It takes the configuration files that the lab writes
//! and speaks just enough HTTP for the lab's own readings.

use isthmus_lab::{LabError, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Size of reads and writes.
const IO_BYTES: usize = 256 * 1024;

/// Longest line that names a target.
const LINE_BYTES_MAX: u64 = 64;

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    lan: AtomicU64,
}

/// What a configuration file says, as far as a relay needs it.
#[derive(Default)]
struct Settings {
    admin: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    inner_listen: Option<SocketAddr>,
    rules: Vec<(SocketAddr, SocketAddr)>,
}

/// Runs until killed.
///
/// # Errors
/// The configuration cannot be read or an address not bound.
pub fn run(config: &Path) -> Result<()> {
    let text = std::fs::read_to_string(config)
        .map_err(|source| LabError::Io { action: format!("reading {}", config.display()), source })?;
    let settings = parse(&text);
    let failed = |source| LabError::Io { action: "running the plain proxy".into(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(serve(settings)).map_err(failed)
}

fn parse(text: &str) -> Settings {
    let mut settings = Settings::default();
    let (mut section, mut listen) = (String::new(), None);
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).into();
            continue;
        }
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let Ok(address) = value.trim_matches('"').parse::<SocketAddr>() else { continue };
        match (section.as_str(), key) {
            ("admin", "listen") => settings.admin = Some(address),
            ("peer", "address") => settings.peer = Some(address),
            ("listen", "address") => settings.inner_listen = Some(address),
            ("rule", "listen") => listen = Some(address),
            ("rule", "server") => settings.rules.extend(listen.take().map(|listen| (listen, address))),
            _ => {}
        }
    }
    settings
}

async fn serve(settings: Settings) -> std::io::Result<()> {
    let counts = Arc::new(Counts::default());
    if let Some(inner) = settings.inner_listen {
        tokio::spawn(accept_inner(TcpListener::bind(inner).await?, counts.clone()));
    }
    if let Some(peer) = settings.peer {
        for (listen, target) in settings.rules {
            tokio::spawn(accept_outer(TcpListener::bind(listen).await?, peer, target, counts.clone()));
        }
    }
    let admin = settings.admin.ok_or(std::io::ErrorKind::InvalidInput)?;
    let admin = TcpListener::bind(admin).await?;
    loop {
        let (stream, _) = admin.accept().await?;
        tokio::spawn(answer(stream, counts.clone()));
    }
}

/// Client side: names the target in a line, then relays.
async fn accept_outer(listener: TcpListener, peer: SocketAddr, target: SocketAddr, counts: Arc<Counts>) {
    while let Ok((outer, _)) = listener.accept().await {
        let counts = counts.clone();
        tokio::spawn(async move {
            let mut inner = TcpStream::connect(peer).await?;
            let line = format!("{target}\n");
            inner.write_all(line.as_bytes()).await?;
            counts.sent.fetch_add(line.len() as u64, Ordering::Relaxed);
            relay(outer, inner, &counts).await
        });
    }
}

/// Server side: reads the line, connects, then relays.
async fn accept_inner(listener: TcpListener, counts: Arc<Counts>) {
    while let Ok((inner, _)) = listener.accept().await {
        let counts = counts.clone();
        tokio::spawn(async move {
            // A buffer of one byte reads nothing beyond the line.
            let mut inner = BufReader::with_capacity(1, inner);
            let mut line = String::new();
            let n = (&mut inner).take(LINE_BYTES_MAX).read_line(&mut line).await?;
            counts.received.fetch_add(n as u64, Ordering::Relaxed);
            let target: SocketAddr = line.trim().parse().map_err(|_| std::io::ErrorKind::InvalidData)?;
            relay(TcpStream::connect(target).await?, inner.into_inner(), &counts).await
        });
    }
}

async fn relay(mut outer: TcpStream, mut inner: TcpStream, counts: &Counts) -> std::io::Result<()> {
    outer.set_nodelay(true)?;
    inner.set_nodelay(true)?;
    let (mut outer_read, mut outer_write) = outer.split();
    let (mut inner_read, mut inner_write) = inner.split();
    let out = async {
        let mut buffer = vec![0; IO_BYTES];
        loop {
            let n = outer_read.read(&mut buffer).await?;
            if n == 0 {
                return inner_write.shutdown().await;
            }
            inner_write.write_all(&buffer[..n]).await?;
            counts.lan.fetch_add(n as u64, Ordering::Relaxed);
            counts.sent.fetch_add(n as u64, Ordering::Relaxed);
        }
    };
    let back = async {
        let mut buffer = vec![0; IO_BYTES];
        loop {
            let n = inner_read.read(&mut buffer).await?;
            if n == 0 {
                return outer_write.shutdown().await;
            }
            counts.received.fetch_add(n as u64, Ordering::Relaxed);
            outer_write.write_all(&buffer[..n]).await?;
            counts.lan.fetch_add(n as u64, Ordering::Relaxed);
        }
    };
    tokio::try_join!(out, back)?;
    Ok(())
}

/// Any path but the metrics is answered with 200 and no text.
async fn answer(mut stream: TcpStream, counts: Arc<Counts>) -> std::io::Result<()> {
    let mut request = [0; 2048];
    let n = stream.read(&mut request).await?;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let body = if request[..n].starts_with(b"GET /metrics ") {
        format!(
            "isthmus_build_info 1\nisthmus_lan_bytes_total {}\n\
             isthmus_wan_bytes_total{{direction=\"sent\"}} {}\nisthmus_wan_bytes_total{{direction=\"received\"}} {}\n",
            get(&counts.lan),
            get(&counts.sent),
            get(&counts.received),
        )
    } else {
        String::new()
    };
    stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).await?;
    stream.shutdown().await
}
