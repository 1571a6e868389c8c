//! Thousands of connections that carried traffic and then idle: what each costs.

use super::{Context, Values};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{IdleConnections, echo_server};
use isthmus_lab::{LabError, Level, Network, Result, Rig, proc};
use isthmus_types::Side;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::Duration;

/// Connections held.
const CONNECTIONS: usize = 5_000;

/// Bytes that each has carried, there and back.
const BYTES: usize = 16 * 1024;

/// Descriptors that this process needs: both ends of every connection to it, and some.
const DESCRIPTORS: u64 = 2 * CONNECTIONS as u64 + 1_000;

/// Time after which a connection counts as idle; contexts and buffers should be gone by then.
const SETTLE: Duration = Duration::from_secs(20);

/// Sockets of a carried connection in the kernel: client, two of each proxy, and the server's.
const SOCKETS: f64 = 6.0;

/// The part of them that belongs to one proxy.
const SOCKETS_OF_A_PROXY: f64 = 2.0;

/// Time over which wake-ups are counted.
const QUIET: Duration = Duration::from_secs(60);

/// The figures of the group.
pub fn measure(context: &mut Context) -> Result<Values> {
    raise_descriptors()?;
    let mut network = Network::start(Level::Loopback, WanShape::open())?;
    let server = network.new_server_address()?;
    let _echo = echo_server(&network.server_place(), server)?;
    let client = network.client_place();
    let mut rig = network.start_pair(&context.binaries, &[server], &context.options)?;
    // A first connection, so that what is made once is there before the counting starts.
    drop(IdleConnections::open(&client, rig.through(0)?, 1, BYTES)?);
    let wakeups = wakeups(context, &mut rig)?;
    let before = Reading::of(&rig)?;
    context.progress.status(&format!("opening {CONNECTIONS} connections"));
    let idle = IdleConnections::open(&client, rig.through(0)?, CONNECTIONS, BYTES)?;
    context.progress.status("letting them idle");
    std::thread::sleep(SETTLE);
    let after = Reading::of(&rig)?;
    idle.exchange()?;
    let kernel = (after.kernel - before.kernel).max(0.0) * SOCKETS_OF_A_PROXY / SOCKETS;
    let per_connection = |after: f64, before: f64| (after - before + kernel) / CONNECTIONS as f64 / 1e3;
    let client_kb = per_connection(after.client, before.client);
    let server_kb = per_connection(after.server, before.server);
    context.progress.step(&format!(
        "{} connections held and alive: {client_kb:.1} KB each on the client side, {server_kb:.1} KB on the server side, \
         {:.1} KB of each in the kernel",
        idle.count(),
        kernel / CONNECTIONS as f64 / 1e3,
    ));
    Ok([("idle.kb".to_string(), client_kb.max(server_kb)), ("idle.wakeups".to_string(), wakeups)].into())
}

/// Wake-ups a second of a client side that nobody uses.
fn wakeups(context: &mut Context, rig: &mut Rig) -> Result<f64> {
    context.progress.status("letting the client side idle");
    std::thread::sleep(SETTLE);
    let pid = rig.pair.end_mut(Side::Client).process()?.pid();
    let before = proc::wakeups_of(pid)?;
    std::thread::sleep(QUIET);
    let count = proc::wakeups_of(pid)? - before;
    let rate = count as f64 / QUIET.as_secs_f64();
    context.progress.step(&format!("an idle client side wakes up {rate:.2} times a second"));
    Ok(rate)
}

/// Bytes in use.
struct Reading {
    client: f64,
    server: f64,
    kernel: f64,
}

impl Reading {
    fn of(rig: &Rig) -> Result<Reading> {
        let rss = |side| rig.pair.end(side).usage().map(|usage| usage.rss_bytes as f64);
        Ok(Reading { client: rss(Side::Client)?, server: rss(Side::Server)?, kernel: kernel_bytes()? })
    }
}

/// The kernel's memory for sockets: the objects themselves (slab) and what is in their buffers.
fn kernel_bytes() -> Result<f64> {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map_err(|source| LabError::Io { action: format!("reading {path}"), source })
    };
    let slab = read("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("SUnreclaim:")?.split_whitespace().next()?.parse::<f64>().ok())
        .unwrap_or(0.0);
    let pages = read("/proc/net/sockstat")?
        .lines()
        .find_map(|line| line.strip_prefix("TCP:")?.split(" mem ").nth(1)?.trim().parse::<f64>().ok())
        .unwrap_or(0.0);
    Ok(slab * 1024.0 + pages * 4096.0)
}

fn raise_descriptors() -> Result<()> {
    let failed = |errno: nix::Error| LabError::Io {
        action: format!("allowing this process {DESCRIPTORS} open files"),
        source: errno.into(),
    };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= DESCRIPTORS {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, hard.max(DESCRIPTORS)).map_err(failed)
}
