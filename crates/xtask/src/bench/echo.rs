//! A small exchange at 40 ms: what the pair adds to each.

use super::{Context, Values};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{EchoTimes, echo_server, echo_times};
use isthmus_lab::{Network, Place, Result};
use std::net::SocketAddr;
use std::time::Duration;

/// Exchanges in each half.
const EXCHANGES: usize = 500;

/// Bytes of an exchange.
const BYTES: usize = 60;

/// Both figures of the group.
pub fn measure(context: &mut Context) -> Result<Values> {
    let shape = WanShape::symmetric(Duration::from_millis(40), None);
    let mut network = Network::start(context.level, shape)?;
    let server = network.new_server_address()?;
    let _echo = echo_server(&network.server_place(), server)?;
    let client = network.client_place();
    let direct_at = network.direct(server)?;
    context.progress.status("echo directly");
    let direct = run(&client, direct_at)?;
    let rig = network.start_pair(&context.binaries, &[server], &context.options)?;
    context.progress.status("echo through the pair");
    let through = run(&client, rig.through(0)?)?;
    let added = |share| (through.quantile(share).as_secs_f64() - direct.quantile(share).as_secs_f64()) * 1e3;
    let ms = |times: &EchoTimes, share| times.quantile(share).as_secs_f64() * 1e3;
    context.progress.step(&format!(
        "directly {:.2} ms and {:.2} ms (median, 99 %), through the pair {:.2} ms and {:.2} ms",
        ms(&direct, 0.5),
        ms(&direct, 0.99),
        ms(&through, 0.5),
        ms(&through, 0.99),
    ));
    Ok([("echo.p50_added", added(0.5)), ("echo.p99_added", added(0.99))]
        .map(|(name, value)| (name.to_string(), value))
        .into())
}

fn run(client: &Place, address: SocketAddr) -> Result<EchoTimes> {
    client.block_on(|| echo_times(address, BYTES, EXCHANGES, Duration::ZERO))
}
