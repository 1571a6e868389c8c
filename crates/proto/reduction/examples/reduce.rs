//! What files cost when they cross one after another, through codecs in memory: `reduce FILE…` prints a line a file.
//! A directory stands for its files in the order of their names.

#![allow(clippy::disallowed_methods, reason = "a tool, not the core: it reads files and takes times")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use isthmus_reduction::content::LedgerId;
use isthmus_reduction::decoder::{Decoder, Delivery, Intake};
use isthmus_reduction::encoder::{Encoder, Step};
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::memory::MemoryStore;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::Similar;
use isthmus_types::RecordingId;

fn shared() -> Shared {
    Shared {
        store: Arc::new(MemoryStore::new()),
        ledger: Arc::new(Ledger::new()),
        ledger_id: LedgerId(0),
        similar: Arc::new(Similar::new(4 << 20)),
    }
}

fn files(path: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        let mut entries: Vec<_> =
            std::fs::read_dir(path)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        entries.sort();
        entries.iter().try_for_each(|entry| files(entry, out))
    } else {
        out.push(path.to_path_buf());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = (shared(), shared());
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    // Bytes that arrive at once, and whether each such piece is sent at once.
    let (read_bytes, joined) = (number("READ", 256 << 10), number("JOIN", 0) > 0);
    let (flushes, settles) = (number("FLUSH", 0) == 1, number("FLUSH", 0) == 2);
    let level = std::env::var("LEVEL").ok().and_then(|level| level.parse().ok()).unwrap_or(3);
    for (i, path) in std::env::args().skip(1).enumerate() {
        let mut list = Vec::new();
        files(Path::new(&path), &mut list)?;
        let id = RecordingId(i as u64 + 1);
        let mut encoder = Encoder::new(here.clone(), id, level);
        let mut decoder = Decoder::new(there.clone(), id);
        let (mut lan, mut wire, mut frames) = (0u64, 0u64, 0u64);
        let (mut encoding, mut decoding) = (0.0, 0.0);
        let mut by = [0u64; 4];
        for file in list {
            let data = std::fs::read(&file)?;
            lan += data.len() as u64;
            for (n, part) in data.chunks(read_bytes).enumerate() {
                let flush = flushes || (!joined && (n + 1) * read_bytes >= data.len());
                encoder.input().extend_from_slice(part);
                loop {
                    let start = Instant::now();
                    let step = encoder.step(flush, false)?;
                    encoding += start.elapsed().as_secs_f64();
                    let frame = match step {
                        Step::Frame(frame) => frame,
                        _ if settles && !flush => match encoder.settle()? {
                            Some(frame) => frame,
                            None => break,
                        },
                        _ => break,
                    };
                    wire += frame.bytes.len() as u64;
                    frames += 1;
                    for (sum, value) in by.iter_mut().zip([
                        frame.stats.run,
                        frame.stats.chunk,
                        frame.stats.delta_saved,
                        frame.stats.compression_saved,
                    ]) {
                        *sum += value;
                    }
                    let start = Instant::now();
                    let Intake::Done { feedback, .. } = decoder.take(&frame.bytes)? else {
                        return Err("waits".into());
                    };
                    assert!(feedback.is_empty());
                    let mut delivered = 0;
                    while let Delivery::Bytes(pieces) = decoder.deliver()? {
                        delivered += pieces.iter().map(bytes::Bytes::len).sum::<usize>();
                    }
                    decoding += start.elapsed().as_secs_f64();
                    encoder.progress(decoder.frames_restored(), lan.min(delivered as u64 + lan));
                }
            }
        }
        if let Some(frame) = encoder.finish()? {
            wire += frame.bytes.len() as u64;
            decoder.take(&frame.bytes)?;
        }
        println!(
            "{path}: LAN {lan} wire {wire} ({:.2}x) in {frames} frames; run {} chunk {} delta {} zstd {}; encode {encoding:.2} s, decode {decoding:.2} s",
            lan as f64 / wire as f64,
            by[0],
            by[1],
            by[2],
            by[3],
        );
    }
    Ok(())
}
