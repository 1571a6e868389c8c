//! The mixed file over 100 Mbit/s and 50 ms: uploaded cold, warm and edited, then downloaded.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::published::{MixedPair, mixed_pair};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{SinkMode, download, sink_server, source_server, upload};
use isthmus_lab::{Measured, Network, Place, Result};
use std::net::SocketAddr;

/// How far the emulator's count may be from the proxies' own before it is worth a note: IP and TCP headers are in it.
const COUNT_TOLERANCE: f64 = 0.10;

/// One repetition.
struct Run {
    direct: f64,
    cold: Measured,
    warm: Measured,
    edited: Measured,
    cross: Measured,
}

/// All figures of the group.
pub fn measure(context: &mut Context) -> Result<Values> {
    let data = mixed_pair(&context.cache)?;
    context.note(format!("mixed, parallel: {}", data.origin.describe()));
    context.note(format!("emulated WAN: {}", context.level.describe()));
    let mut runs = Vec::new();
    for number in 1..=context.repetitions {
        let of = context.repetitions;
        let run = repeat(context, &data, &format!("mixed, run {number} of {of}"))?;
        context.progress.step(&format!(
            "run {number} of {of}: direct {:.1} s; cold {:.1} s, {} bytes; warm {:.2} s, {} bytes; edited {}; cross {}",
            run.direct,
            run.cold.seconds,
            run.cold.wan_bytes,
            run.warm.seconds,
            run.warm.wan_bytes,
            run.edited.wan_bytes,
            run.cross.wan_bytes,
        ));
        cross_check(context, &run.cold);
        runs.push(run);
    }
    let of = |value: fn(&Run) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
    let memory =
        |run: &Run| run.cross.client.rss_peak_bytes.max(run.cross.server.rss_peak_bytes) as f64 / 1e6;
    let figures = [
        ("mixed.cold_wan", of(|run| run.cold.wan_bytes as f64)),
        ("mixed.warm_wan", of(|run| run.warm.wan_bytes as f64)),
        ("mixed.edited_wan", of(|run| run.edited.wan_bytes as f64)),
        ("mixed.cross_wan", of(|run| run.cross.wan_bytes as f64)),
        ("mixed.enc_cpu_cold", of(|run| run.cold.client.cpu_seconds)),
        ("mixed.enc_cpu_warm", of(|run| run.warm.client.cpu_seconds)),
        ("mixed.dec_cpu_warm", of(|run| run.warm.server.cpu_seconds)),
        ("mixed.time_cold", of(|run| run.cold.seconds / run.direct)),
        ("mixed.time_warm", of(|run| run.warm.seconds / run.direct)),
        ("mixed.rss", median(&runs.iter().map(memory).collect::<Vec<_>>())),
    ];
    Ok(figures.map(|(name, value)| (name.to_string(), value)).into())
}

fn repeat(context: &mut Context, data: &MixedPair, name: &str) -> Result<Run> {
    let mut network = Network::start(context.level, WanShape::hundred_megabit())?;
    let (sink_at, source_at) = (network.new_server_address()?, network.new_server_address()?);
    let (_sink, _) = sink_server(&network.server_place(), sink_at, SinkMode::Hash)?;
    let _source = source_server(&network.server_place(), source_at, data.mixed.clone())?;
    let client = network.client_place();
    context.progress.status(&format!("{name}: direct"));
    let direct_at = network.direct(sink_at)?;
    let direct = put(&client, direct_at, &data.mixed)?;
    let rig = network.start_pair(&context.binaries, &[sink_at, source_at], &context.options)?;
    let (sink, source) = (rig.through(0)?, rig.through(1)?);
    let mut pass = |what: &str, content: &Bytes| {
        context.progress.status(&format!("{name}: {what}"));
        rig.measure(|| put(&client, sink, content))
            .map(|(seconds, measured)| Measured { seconds, ..measured })
    };
    let cold = pass("cold", &data.mixed)?;
    let warm = pass("warm", &data.mixed)?;
    let edited = pass("edited", &data.edited)?;
    context.progress.status(&format!("{name}: download"));
    let (_, cross) = rig.measure(|| client.block_on(|| download(source, data.mixed.clone())))?;
    Ok(Run { direct, cold, warm, edited, cross })
}

/// Uploads and returns the seconds until the sink's receipt; the receipt's hash is compared.
fn put(client: &Place, sink: SocketAddr, content: &Bytes) -> Result<f64> {
    let hash = *blake3::hash(content).as_bytes();
    let transfer = client.block_on(|| upload(sink, content.clone(), Some(hash)))?;
    Ok(transfer.seconds)
}

/// The proxies count at their sockets, the emulator counts packets: they must tell the same story.
fn cross_check(context: &mut Context, run: &Measured) {
    let (counted, seen) = (run.wan_bytes as f64, run.emulator_bytes as f64);
    if (seen / counted - 1.0).abs() > COUNT_TOLERANCE {
        context.note(format!(
            "the proxies counted {counted:.0} WAN bytes, the emulator saw {seen:.0}: look into it"
        ));
    }
}
