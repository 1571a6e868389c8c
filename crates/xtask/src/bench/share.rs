//! Incompressible data as fast as the machine goes, as a share of what two plain relays reach.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::{MIB, random_bytes};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{SinkMode, plain_relay, sink_server, upload};
use isthmus_lab::{Level, Network, Place, Result, free_address};
use std::net::SocketAddr;

/// Bytes of one transfer.
const BYTES: usize = 512 * MIB;

/// Both figures of the group. `random.share` is the median of uploads of one content through one pair, of which the first
/// is cold and the others are warm; `random.share_cold` is that of first uploads, each of a content of its own.
pub fn measure(context: &mut Context) -> Result<Values> {
    let mut network = Network::start(Level::Loopback, WanShape::open())?;
    let server = network.new_server_address()?;
    let (_sink, _) = sink_server(&Place::Local, server, SinkMode::Discard)?;
    let far = plain_relay(&Place::Local, free_address()?, server)?;
    let near = plain_relay(&Place::Local, free_address()?, far.address())?;
    let mut options = context.options.clone();
    options.store_size = "8 GiB".into();
    let rig = network.start_pair(&context.binaries, &[server], &options)?;
    let share = |content: &Bytes| -> Result<(f64, f64)> {
        let plain = rate(near.address(), content)?;
        Ok((rate(rig.through(0)?, content)?, plain))
    };
    let content = Bytes::from(random_bytes(BYTES, 1));
    let (mut shares, mut cold_shares) = (Vec::new(), Vec::new());
    for number in 1..=context.repetitions {
        let (pair, plain) = share(&content)?;
        context
            .progress
            .step(&format!("run {number}: plain relays {plain:.2} GB/s, the pair {pair:.2} GB/s"));
        shares.push(pair / plain);
    }
    cold_shares.extend(shares.first());
    for number in 2..=context.repetitions {
        let (cold, plain) = share(&Bytes::from(random_bytes(BYTES, number as u64)))?;
        context
            .progress
            .step(&format!("cold {number}: plain relays {plain:.2} GB/s, the pair {cold:.2} GB/s"));
        cold_shares.push(cold / plain);
    }
    Ok([("random.share", median(&shares)), ("random.share_cold", median(&cold_shares))]
        .map(|(name, value)| (name.to_string(), value))
        .into())
}

/// GB/s of one upload, connection and receipt included.
fn rate(address: SocketAddr, content: &Bytes) -> Result<f64> {
    let transfer = Place::Local.block_on(|| upload(address, content.clone(), None))?;
    Ok(transfer.bytes as f64 / 1e9 / transfer.seconds)
}
