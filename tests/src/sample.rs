//! Samples for the fuzz targets: the same in the corpus's maker and in the targets, so that mutations stay close to what
//! a decoder that knows something would be sent.

use bytes::Bytes;
use isthmus_reduction::content::LedgerId;
use isthmus_reduction::decoder::{Decoder, Delivery, Intake};
use isthmus_reduction::encoder::{Encoder, Step};
use isthmus_reduction::ledger::Ledger;
use isthmus_reduction::memory::MemoryStore;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::Similar;
use isthmus_types::RecordingId;
use std::sync::{Arc, OnceLock};

/// zstd level of the samples.
const LEVEL: i32 = 3;

/// One proxy: a store in memory and the ledger of its peer.
pub struct Proxy {
    /// What codecs share.
    pub shared: Shared,
}

impl Default for Proxy {
    fn default() -> Proxy {
        Proxy::new()
    }
}

impl Proxy {
    /// A proxy that knows nothing.
    pub fn new() -> Proxy {
        Proxy {
            shared: Shared {
                store: Arc::new(MemoryStore::new()),
                ledger: Arc::new(Ledger::new()),
                ledger_id: LedgerId(0),
                similar: Arc::new(Similar::new(1 << 10)),
            },
        }
    }
}

/// The content of recording 1: half text, half noise.
pub fn first_content() -> Vec<u8> {
    let mut content: Vec<u8> =
        (0..900).flat_map(|n| format!("row {} of the table\n", n * n % 977).into_bytes()).collect();
    content.extend_from_slice(&crate::random(30_000, 1));
    content
}

/// Makes `proxy` the receiver of recording 1.
pub fn first_recording(proxy: &Proxy) {
    static FRAMES: OnceLock<Vec<Bytes>> = OnceLock::new();
    let frames = FRAMES.get_or_init(|| encode(&Proxy::new(), RecordingId(1), &[&first_content()]));
    let mut decoder = Decoder::new(proxy.shared.clone(), RecordingId(1));
    for frame in frames {
        assert!(matches!(decoder.take(frame).unwrap(), Intake::Done { .. }));
    }
    while let Delivery::Bytes(_) = decoder.deliver().unwrap() {}
    decoder.finish();
}

/// The frames of a recording whose content comes in these pieces.
pub fn encode(proxy: &Proxy, recording: RecordingId, pieces: &[&[u8]]) -> Vec<Bytes> {
    let mut encoder = Encoder::new(proxy.shared.clone(), recording, LEVEL);
    let mut frames = Vec::new();
    for piece in pieces {
        encoder.input().extend_from_slice(piece);
        while let Step::Frame(frame) = encoder.step(true, false).unwrap() {
            frames.push(frame.bytes);
        }
    }
    frames.extend(encoder.finish().unwrap().map(|frame| frame.bytes));
    frames
}

/// An encoder of recording 2 on a proxy that knows recording 1, with old and new content in flight.
pub fn second_encoder(proxy: &Proxy) -> Encoder {
    let mut encoder = Encoder::new(proxy.shared.clone(), RecordingId(2), LEVEL);
    let known = first_content();
    for piece in [&known[..20_000], &crate::random(9_000, 2)[..], &known[25_000..40_000]] {
        encoder.input().extend_from_slice(piece);
        while let Step::Frame(_) = encoder.step(true, false).unwrap() {}
    }
    encoder
}

/// Packs records into one input: each behind its length in two bytes, little-endian.
pub fn pack(records: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let len = u16::try_from(record.len()).expect("a sample of less than 64 KiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(record);
    }
    out
}

/// The records of an input; the last may be cut short. None is empty.
pub fn records(mut input: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((len, rest)) = input.split_first_chunk::<2>() {
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        input = rest;
        if !record.is_empty() {
            records.push(record);
        }
    }
    records
}
