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

/// The figure of the group: the first transfer of each content, so nothing of it is known.
pub fn measure(context: &mut Context) -> Result<Values> {
    let mut network = Network::start(Level::Loopback, WanShape::open())?;
    let server = network.new_server_address()?;
    let (_sink, _) = sink_server(&Place::Local, server, SinkMode::Discard)?;
    let far = plain_relay(&Place::Local, free_address()?, server)?;
    let near = plain_relay(&Place::Local, free_address()?, far.address())?;
    let mut options = context.options.clone();
    options.store_size = "8 GiB".into();
    let rig = network.start_pair(&context.binaries, &[server], &options)?;
    let (mut cold_shares, mut warm_shares) = (Vec::new(), Vec::new());
    for number in 1..=context.repetitions {
        let content = Bytes::from(random_bytes(BYTES, number as u64));
        let plain = rate(near.address(), &content)?;
        let cold = rate(rig.through(0)?, &content)?;
        let warm = rate(rig.through(0)?, &content)?;
        context.progress.step(&format!(
            "run {number}: plain relays {plain:.2} GB/s, cold {cold:.2} GB/s, warm {warm:.2} GB/s"
        ));
        cold_shares.push(cold / plain);
        warm_shares.push(warm / plain);
    }
    let (cold, warm) = (median(&cold_shares), median(&warm_shares));
    context.note(format!("random.share: {cold:.2} cold, {warm:.2} warm; the lower one counts"));
    Ok([("random.share".to_string(), cold.min(warm))].into())
}

/// GB/s of one upload, connection and receipt included.
fn rate(address: SocketAddr, content: &Bytes) -> Result<f64> {
    let transfer = Place::Local.block_on(|| upload(address, content.clone(), None))?;
    Ok(transfer.bytes as f64 / 1e9 / transfer.seconds)
}
