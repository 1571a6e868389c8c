//! Measures a pair over loopback in one process: throughput one way, latency of small messages, WAN bytes of the set-up,
//! memory of idle channels. `cargo run --release -p isthmus-net --example measure`
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use bytes::Bytes;
use common::*;
use isthmus_tunnel::Message;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time used so far, in seconds, user and system.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let ticks = |n: usize| after.split_whitespace().nth(n).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn socket_kb() -> u64 {
    let stat = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    let line = stat.lines().find(|line| line.starts_with("TCP:")).unwrap();
    line.split_whitespace().last().unwrap().parse::<u64>().unwrap() * 4
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let idle: usize = arguments.next().map_or(1_000, |n| n.parse().unwrap());
    let authority = Authority::new("test CA");
    let acceptor = acceptor(server_source(&authority), |config| config.channels_max = 100_000).await;
    let dialer = dialer(acceptor.local_addr(), client_source(&authority), |_| {});
    connected(&dialer).await;
    let wan = dialer.wan();
    let set_up = || {
        let (sent, received) = (wan.sent.load(Ordering::Relaxed), wan.received.load(Ordering::Relaxed));
        (sent, received, sent + received)
    };
    println!("control channel up: {:?} bytes", set_up());
    let before = set_up();
    drop(dialer.channel().await.unwrap());
    until("pooled", || dialer.pooled() == 1).await;
    let after = set_up();
    println!("one more channel, resumed handshake: {} bytes", after.2 - before.2);

    throughput(&dialer, &acceptor).await;
    serve_echo(&acceptor);
    ping_pong(&dialer).await;

    let (rss, kernel) = (resident_kb(), socket_kb());
    let mut held = Vec::new();
    for _ in 0..idle {
        let (sender, mut receiver) = start(&dialer).await;
        sender.send(Message::Data(Bytes::from(vec![1; 100_000]))).await.unwrap();
        receiver.recv().await.unwrap();
        sender.acknowledge(1, 100_000);
        held.push((sender, receiver));
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let rss = (resident_kb() - rss) as f64 / idle as f64 / 2.0;
    let kernel = socket_kb().saturating_sub(kernel) as f64 / idle as f64 / 2.0;
    println!("{idle} idle sessions: {rss:.1} KB resident and {kernel:.1} KB of kernel buffers each a side");
    let before = set_up();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    println!("WAN bytes of 10 s idle: {}", set_up().2 - before.2);
}

async fn throughput(dialer: &isthmus_net::Dialer, acceptor: &isthmus_net::Acceptor) {
    for len in [64 << 10, 256 << 10, 1 << 10] {
        let total: usize = if len < 10_000 { 500 << 20 } else { 4 << 30 };
        let (sender, _receiver) = dialer.channel().await.unwrap().split();
        sender.send(open()).await.unwrap();
        let (channel, _) = acceptor.accept().await.unwrap();
        let (far_sender, mut far_receiver) = channel.split();
        far_sender.send(Message::Opened { recording: 9 }).await.unwrap();
        let (began, cpu_before) = (Instant::now(), cpu());
        let reader = tokio::spawn(async move {
            let (mut frames, mut bytes) = (0, 0);
            while let Ok(Message::Data(data)) = far_receiver.recv().await {
                frames += 1;
                bytes += data.len() as u64;
                far_sender.acknowledge(frames, bytes);
            }
            bytes
        });
        let data = Bytes::from(vec![7; len]);
        for _ in 0..total / len {
            sender.send(Message::Data(data.clone())).await.unwrap();
        }
        sender.send(Message::Fin).await.unwrap();
        let bytes = reader.await.unwrap();
        let seconds = began.elapsed().as_secs_f64();
        let gigabytes = bytes as f64 / 1e9;
        let cpu_each = (cpu() - cpu_before) / gigabytes;
        println!("frames of {len}: {:.2} GB/s, {cpu_each:.2} s of processor a GB", gigabytes / seconds);
    }
}

async fn ping_pong(dialer: &isthmus_net::Dialer) {
    let (sender, mut receiver) = start(dialer).await;
    let data = Bytes::from_static(&[7; 60]);
    let mut times = Vec::new();
    for number in 0..20_000u64 {
        let began = Instant::now();
        sender.send(Message::Data(data.clone())).await.unwrap();
        receiver.recv().await.unwrap();
        sender.acknowledge(number + 1, number * 60);
        times.push(began.elapsed());
    }
    times.sort();
    println!(
        "ping-pong of 60 bytes: p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}
