//! Four people open one file at once: it should cross once.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::published::mixed_pair;
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{parallel_downloads, source_server};
use isthmus_lab::{Measured, Network, Result};

/// Downloads at the same time.
const DOWNLOADS: usize = 4;

/// The figure of the group.
pub fn measure(context: &mut Context) -> Result<Values> {
    let data = mixed_pair(&context.cache)?;
    context.note(format!("mixed, parallel: {}", data.origin.describe()));
    let mut ratios = Vec::new();
    for number in 1..=context.repetitions {
        let one = cold_downloads(context, &data.mixed, 1)?;
        let many = cold_downloads(context, &data.mixed, DOWNLOADS)?;
        context.progress.step(&format!(
            "run {number}: one download {} bytes, {:.1} s; {DOWNLOADS} at once {} bytes, {:.1} s",
            one.wan_bytes, one.seconds, many.wan_bytes, many.seconds
        ));
        ratios.push(many.wan_bytes as f64 / one.wan_bytes as f64);
    }
    Ok([("parallel.wan".to_string(), median(&ratios))].into())
}

fn cold_downloads(context: &mut Context, content: &Bytes, count: usize) -> Result<Measured> {
    context.progress.status(&format!("{count} cold downloads"));
    let mut network = Network::start(context.level, WanShape::hundred_megabit())?;
    let server = network.new_server_address()?;
    let _source = source_server(&network.server_place(), server, content.clone())?;
    let client = network.client_place();
    let rig = network.start_pair(&context.binaries, &[server], &context.options)?;
    let address = rig.through(0)?;
    let (_, measured) =
        rig.measure(|| client.block_on(|| parallel_downloads(address, content.clone(), count)))?;
    Ok(measured)
}
