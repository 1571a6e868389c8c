//! Whatever comes from the network, the disk or an administrator is read or refused: no panic, no memory beyond limits.
//! The inputs are mutations of `fuzz/corpus`, which `cargo run -p isthmus-tests --example fuzz_corpus` writes anew.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "fuzz/smb.rs"]
mod smb;
#[path = "../../crates/proto/smb-session/tests/support/mod.rs"]
mod smb_stage;
#[path = "../../crates/proto/smb-wire/tests/walk/mod.rs"]
mod smb_walk;

use bytes::{Bytes, BytesMut};
use isthmus_config::{ClientConfig, Overrides, ServerConfig};
use isthmus_reduction::decoder::{Decoder, Delivery, Intake};
use isthmus_reduction::frame::{Envelope, Feedback, Head};
use isthmus_store::footer::Contents;
use isthmus_store::format::{FrameHeader, SegmentHeader, TRAILER_LEN, Trailer};
use isthmus_tests::sample::{Proxy, first_recording, records, second_encoder};
use isthmus_tests::{Target, fuzz};
use isthmus_tunnel::{Endpoint, Frame};
use isthmus_types::limits::WINDOW_LAN_BYTES;
use isthmus_types::{RecordingId, Side};
use std::path::Path;
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// A test for each target: its name, its corpus, how much the process may grow, and what is run.
macro_rules! targets {
    ($($test:ident: $corpus:literal, $growth_max:expr, $run:path;)*) => {
        /// How many there are, which share the time of a short run.
        const TARGETS: u32 = [$(stringify!($test)),*].len() as u32;
        $(
            #[test]
            fn $test() {
                fuzz(&Target { name: $corpus, growth_max: $growth_max, run: $run }, TARGETS);
            }
        )*
    };
}

targets! {
    tunnel_frames: "tunnel-frames", 64 * MIB, tunnel_frames_target;
    reduction_frames: "reduction-frames", 160 * MIB, reduction_frames_target;
    reduction_tokens: "reduction-frames", 32 * MIB, reduction_tokens_target;
    reduction_feedback: "reduction-feedback", 64 * MIB, reduction_feedback_target;
    store_records: "store-records", 64 * MIB, store_records_target;
    store_files: "store-files", 96 * MIB, store_files_target;
    smb_wire: "smb-wire", 64 * MIB, smb_walk::message;
    smb_transport: "smb-transport", 64 * MIB, smb_walk::stream;
    smb_spnego: "smb-spnego", 64 * MIB, smb::spnego;
    smb_ntlm: "smb-ntlm", 64 * MIB, smb::ntlm;
    smb_kerberos: "smb-kerberos", 64 * MIB, smb::kerberos;
    smb_key_files: "smb-key-files", 64 * MIB, smb::key_files;
    smb_transform: "smb-transform", 64 * MIB, smb::transform;
    smb_compression: "smb-compression", 64 * MIB, smb::compression;
    smb_stage: "smb-stage", 64 * MIB, smb::stage;
    configuration: "configuration", 64 * MIB, configuration_target;
}

/// Decodes a stream of frames, checks that each has one encoding, and shows them to both kinds of endpoint.
fn tunnel_frames_target(input: &[u8]) {
    let mut endpoints = [Side::Client, Side::Server].map(|side| Some(Endpoint::new(side, Instant::now())));
    let mut buffer = BytesMut::from(input);
    loop {
        let before = buffer.clone();
        let frame = match isthmus_tunnel::decode(&mut buffer) {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(_) => return,
        };
        let read = before.len() - buffer.len();
        let mut again = BytesMut::new();
        isthmus_tunnel::encode(&frame, &mut again);
        // A hello may be longer than this version writes it, and an acknowledgement may end in zeros.
        if !matches!(frame, Frame::Hello(_) | Frame::Ack(_)) {
            assert_eq!(again[..], before[..read], "{frame:?} has another encoding");
        }
        for place in &mut endpoints {
            let taken = place.as_mut().map(|endpoint| endpoint.handle(frame.clone(), Instant::now()));
            if taken.is_some_and(|outcome| outcome.is_err()) {
                *place = None;
            }
            while place.as_mut().is_some_and(|endpoint| endpoint.recv(Instant::now()).is_some()) {}
        }
    }
}

/// A decoder that already knows one recording takes in a sequence of frames and repairs.
fn reduction_frames_target(input: &[u8]) {
    let proxy = Proxy::new();
    first_recording(&proxy);
    let mut decoder = Decoder::new(proxy.shared.clone(), RecordingId(2));
    let mut delivered = 0;
    for record in records(input) {
        let taken = match Feedback::decode(&Bytes::copy_from_slice(record)) {
            Ok(repair @ Feedback::Repair { .. }) => decoder.repair(&repair).map(drop),
            _ => take(&mut decoder, record),
        };
        if taken.is_err() {
            return decoder.abandon();
        }
        // One look a frame: a frame that has to wait for a repair stays.
        while let Ok(Delivery::Bytes(pieces)) = decoder.deliver() {
            delivered += pieces.iter().map(Bytes::len).sum::<usize>() as u64;
        }
    }
    assert!(delivered <= input.len() as u64 * WINDOW_LAN_BYTES);
    decoder.finish();
}

fn take(decoder: &mut Decoder, frame: &[u8]) -> Result<(), isthmus_reduction::decoder::DecodeError> {
    match decoder.take(frame)? {
        Intake::Done { .. } => Ok(()),
        Intake::Wait { .. } => decoder.resume(true).map(drop),
    }
}

/// The parts of a frame by themselves, without the proofs that keep most mutations out of a decoder.
fn reduction_tokens_target(input: &[u8]) {
    for record in records(input) {
        let Ok(envelope) = Envelope::parse(record) else { continue };
        for delta in [false, true] {
            let mut near = None;
            let Ok(head) = Head::parse(envelope.head, delta, &mut near) else { continue };
            let mut again = Vec::new();
            head.put(&mut again, delta, None);
            assert_eq!(Head::parse(&again, delta, &mut None).unwrap(), head);
        }
    }
}

/// An encoder with frames in flight is told all manner of things.
fn reduction_feedback_target(input: &[u8]) {
    let proxy = Proxy::new();
    first_recording(&proxy);
    let mut encoder = second_encoder(&proxy);
    for record in records(input) {
        let bytes = Bytes::copy_from_slice(record);
        let Ok(feedback) = Feedback::decode(&bytes) else { continue };
        assert_eq!(feedback.encode(), bytes);
        if encoder.feedback(&feedback).is_err() {
            break;
        }
        encoder.progress(record.len() as u64 % 4, u64::from(record[0]));
    }
    encoder.abandon();
}

/// The parts of a segment file as such, and the content of a footer, which in a file stands behind a check.
fn store_records_target(input: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(input) {
        // A key slot that is damaged counts as empty, so only what stands before the slots has one encoding.
        assert_eq!(header.fixed()[..], input[..header.fixed().len()]);
    }
    if let Some(header) = FrameHeader::decode(input, 1, 256) {
        assert_eq!(header.encode(1, 256)[..], input[..header.encode(1, 256).len()]);
    }
    if let Some(trailer) = Trailer::decode(input, 1, input.len() as u64) {
        assert_eq!(trailer.encode(1), input[..TRAILER_LEN]);
    }
    if let Some(contents) = Contents::decode(input) {
        for record in &contents.records {
            let chunks = contents.chunks_of(record);
            assert_eq!(chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>(), u64::from(record.len));
        }
        let ledger = isthmus_reduction::ledger::Ledger::new();
        for note in &contents.notes {
            // Whether a note can be read is for the ledger to say.
            let _ = ledger.replay(&note.note);
        }
    }
}

/// A whole segment file: checked and opened as if the disk had given it.
fn store_files_target(input: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("segments")).unwrap();
    std::fs::write(dir.path().join("segments/00000001.seg"), input).unwrap();
    if let Ok(report) = isthmus_store::offline::check(dir.path(), None, false) {
        assert!(report.bytes <= input.len() as u64 + (1 << 20), "{report:?}");
    }
    let config = isthmus_store::Config::new(dir.path(), 64 << 20, None);
    let config = isthmus_store::Config { encrypt: false, ..config };
    if let Ok((store, replay)) = isthmus_store::Store::open(config) {
        let ledger = isthmus_reduction::ledger::Ledger::new();
        for (_, note) in replay {
            let _ = ledger.replay(&note);
        }
        store.stats();
    }
}

/// Both sides' files; what is wrong has to come with a place and words, and what is right has to print and read back.
fn configuration_target(input: &[u8]) {
    let file = Path::new("fuzz.toml");
    match ClientConfig::parse(input, file, &Overrides::none()) {
        Ok(loaded) => assert!(loaded.config.rules.listeners().count() > 0),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    match ServerConfig::parse(input, file, &Overrides::none()) {
        Ok(loaded) => assert!(loaded.config.allow.iter().count() > 0),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}
