//! Documents that people made: folders in one session, and files after real edits.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::published::{document_folders, edited_files};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{SinkMode, sink_server, upload};
use isthmus_lab::{Measured, Network, Result};

/// Both figures of the folders.
pub fn measure_folders(context: &mut Context) -> Result<Values> {
    let set = document_folders()?;
    context.note(format!(
        "corpus: {}, {} files, {} bytes",
        set.origin.describe(),
        set.files.len(),
        set.bytes()
    ));
    let content = set.joined();
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for number in 1..=context.repetitions {
        let passes = uploads(context, &[&content, &content])?;
        let ratio = |pass: &Measured| content.len() as f64 / pass.wan_bytes as f64;
        let (first, second) = (ratio(&passes[0]), ratio(&passes[1]));
        context.progress.step(&format!("run {number}: cold {first:.2}×, warm {second:.0}×"));
        cold.push(first);
        warm.push(second);
    }
    Ok([("corpus.cold", median(&cold)), ("corpus.warm", median(&warm))]
        .map(|(name, value)| (name.to_string(), value))
        .into())
}

/// The figure of the edits.
pub fn measure_edits(context: &mut Context) -> Result<Values> {
    let (old, new) = edited_files()?;
    context.note(format!(
        "edits: {}, {} files, {} bytes",
        new.origin.describe(),
        new.files.len(),
        new.bytes()
    ));
    let (before, after) = (old.joined(), new.joined());
    let mut ratios = Vec::new();
    for number in 1..=context.repetitions {
        let passes = uploads(context, &[&before, &after])?;
        let ratio = after.len() as f64 / passes[1].wan_bytes as f64;
        context.progress.step(&format!("run {number}: {} WAN bytes, {ratio:.1}×", passes[1].wan_bytes));
        ratios.push(ratio);
    }
    Ok([("edits.ratio".to_string(), median(&ratios))].into())
}

/// Uploads one after another through a fresh pair, each in a session of its own; as many results as contents.
fn uploads(context: &mut Context, contents: &[&Bytes]) -> Result<Vec<Measured>> {
    let mut network = Network::start(context.level, WanShape::hundred_megabit())?;
    let server = network.new_server_address()?;
    let (_sink, _) = sink_server(&network.server_place(), server, SinkMode::Hash)?;
    let client = network.client_place();
    let rig = network.start_pair(&context.binaries, &[server], &context.options)?;
    let address = rig.through(0)?;
    let upload_one = |content: &&Bytes| {
        let hash = *blake3::hash(content).as_bytes();
        let content = (*content).clone();
        rig.measure(|| client.block_on(|| upload(address, content, Some(hash)))).map(|(_, measured)| measured)
    };
    contents.iter().map(upload_one).collect()
}
