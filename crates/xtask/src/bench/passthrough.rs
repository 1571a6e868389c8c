//! What a connection that is passed through costs: new ones in a second, and throughput beside a direct connection.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::{MIB, random_bytes};
use isthmus_lab::pair::{Carried, Pair, PairSpec};
use isthmus_lab::proc::run;
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{SinkMode, connect, echo_server, sink_server, upload};
use isthmus_lab::{LabError, Place, Result, WanLab, free_address};
use isthmus_types::Side;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

/// Connections begun in a second, and for how long. Each uses up two ports of loopback for a minute.
const CONNECTIONS_PER_SECOND: u32 = 1_200;
const SECONDS: u32 = 5;

/// Longest time that one of them may take.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a transfer as fast as the machine goes, and of one at 1 Gbit/s.
const BYTES: usize = 1024 * MIB;
const BYTES_1G: usize = 256 * MIB;

/// Ports at the gateway of the latter.
const SINK_PORT: u16 = 20_001;
const LISTEN_PORT: u16 = 20_002;

/// The figures of the group.
pub fn measure(context: &mut Context) -> Result<Values> {
    let here = Place::Local;
    let echo = echo_server(&here, free_address()?)?;
    let (sink, _) = sink_server(&here, free_address()?, SinkMode::Discard)?;
    let targets = [echo.address(), sink.address()];
    let listens = [free_address()?, free_address()?];
    let pair = start(context, &here, &targets, &listens)?;
    let mut rates = Vec::new();
    for number in 1..=context.repetitions {
        let rate = here.block_on(|| connections(listens[0]))?;
        context.progress.step(&format!("run {number}: {rate:.0} connections a second"));
        rates.push(rate);
    }
    let content = Bytes::from(random_bytes(BYTES, 1));
    let share = share(context, &pair, &here, [targets[1], listens[1]], &content)?;
    let mut values = Values::from([
        ("passthrough.cps".to_string(), median(&rates)),
        ("passthrough.share".to_string(), share),
    ]);
    drop(pair);
    match WanLab::available() {
        Ok(()) => {
            let share = share_1g(context, &content.slice(..BYTES_1G))?;
            values.insert("passthrough.share_1g".to_string(), share);
        }
        Err(error) => context.note(format!("passthrough.share_1g was not measured: {error}")),
    }
    Ok(values)
}

/// Throughput over direct where the client's own line is the limit. The kernel holds it to its rate: an emulator outside
/// of it would need a processor for itself.
fn share_1g(context: &mut Context, content: &Bytes) -> Result<f64> {
    let lab = WanLab::start(WanShape::open())?;
    let (client, gateway) = (lab.client(), lab.client_proxy());
    let limit = ["tc", "qdisc", "add", "dev", "lan0", "root", "tbf"];
    run(&client, &[&limit[..], &["rate", "1gbit", "burst", "256kb", "latency", "10ms"]].concat())?;
    let at = |port: u16| SocketAddr::from((WanLab::CLIENT_PROXY_LAN, port));
    let (sink, _) = sink_server(&gateway, at(SINK_PORT), SinkMode::Discard)?;
    let pair = start(context, &gateway, &[sink.address()], &[at(LISTEN_PORT)])?;
    share(context, &pair, &client, [sink.address(), at(LISTEN_PORT)], content)
}

/// A pair in one place whose rules pass everything through.
fn start(context: &Context, place: &Place, targets: &[SocketAddr], listens: &[SocketAddr]) -> Result<Pair> {
    let both = listens.iter().zip(targets);
    let rules: Vec<String> = both
        .clone()
        .map(|(listen, target)| {
            format!("{{ action = \"pass-through\", listen = \"{listen}\", server = \"{target}\" }}")
        })
        .collect();
    let mut options = context.options.clone();
    options.client_set.push(format!("rule=[{}]", rules.join(", ")));
    let peer = free_address()?;
    Pair::start(&PairSpec {
        binaries: context.binaries.clone(),
        client_place: place.clone(),
        server_place: place.clone(),
        server_listen: peer,
        peer_address: peer,
        client_admin: free_address()?,
        server_admin: free_address()?,
        carried: both.map(|(listen, target)| Carried { listen: *listen, target: *target }).collect(),
        options,
    })
}

/// Connections a second of which each was made, carried a byte up and down, and ended. One that fails is an error.
async fn connections(address: SocketAddr) -> Result<f64> {
    let start = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / CONNECTIONS_PER_SECOND);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    let all = CONNECTIONS_PER_SECOND * SECONDS;
    for _ in 0..all {
        ticks.tick().await;
        running.spawn(tokio::time::timeout(CONNECTION_LIMIT, one(address)));
    }
    while let Some(ended) = running.join_next().await {
        let ended = ended.map_err(|error| failed(std::io::Error::other(error)))?;
        ended.map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))??;
    }
    Ok(f64::from(all) / start.elapsed().as_secs_f64())
}

async fn one(address: SocketAddr) -> Result<()> {
    let mut stream = connect(address).await?;
    stream.write_all(b"x").await.map_err(failed)?;
    stream.read_exact(&mut [0]).await.map_err(failed)?;
    stream.shutdown().await.map_err(failed)?;
    match stream.read(&mut [0]).await.map_err(failed)? {
        0 => Ok(()),
        _ => Err(failed(std::io::Error::other("it says more than it was told"))),
    }
}

fn failed(source: std::io::Error) -> LabError {
    LabError::Io { action: "using a connection that is passed through".into(), source }
}

/// Throughput through the proxy over that of a direct connection, one after the other; says what the proxy's part cost.
/// `ways` are the direct one and the one through the proxy.
fn share(
    context: &mut Context,
    pair: &Pair,
    client: &Place,
    ways: [SocketAddr; 2],
    content: &Bytes,
) -> Result<f64> {
    let mut shares = Vec::new();
    for number in 1..=context.repetitions {
        let plain = rate(client, ways[0], content)?;
        let before = pair.end(Side::Client).usage()?;
        let relayed = rate(client, ways[1], content)?;
        let cpu = pair.end(Side::Client).usage()?.cpu_seconds - before.cpu_seconds;
        let gigabytes = content.len() as f64 / 1e9;
        context.progress.step(&format!(
            "run {number}: direct {plain:.3} GB/s, passed through {relayed:.3} GB/s, {:.2} CPU seconds a GB",
            cpu / gigabytes
        ));
        shares.push(relayed / plain);
    }
    Ok(median(&shares))
}

/// GB/s of one upload, connection and receipt included.
fn rate(client: &Place, address: SocketAddr, content: &Bytes) -> Result<f64> {
    let transfer = client.block_on(|| upload(address, content.clone(), None))?;
    Ok(transfer.bytes as f64 / 1e9 / transfer.seconds)
}
