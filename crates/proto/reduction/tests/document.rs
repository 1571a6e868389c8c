//! docs/protocol.md says what the code reads and writes: its frames are decoded, and written again where no compression
//! library's output is part of them; its limits are the code's.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use bytes::Bytes;
use isthmus_reduction::compress::{Packer, pack_against};
use isthmus_reduction::content::{Addr, LedgerId};
use isthmus_reduction::decoder::{DecodeError, Decoder, Delivery, Intake, proof_of_new};
use isthmus_reduction::encoder::{self, Encoder, Step};
use isthmus_reduction::frame::{self, Coding, Envelope, Feedback, Head, Lane, RUN_PROOF_BYTES, Token};
use isthmus_reduction::ledger::{self, Ledger, Name, Range};
use isthmus_reduction::memory::MemoryStore;
use isthmus_reduction::shared::Shared;
use isthmus_reduction::similar::Similar;
use isthmus_reduction::{chunker, compress};
use isthmus_types::{RecordingId, limits, varint};

const DOCUMENT: &str = include_str!("../../../../docs/protocol.md");

/// The recordings of the document's examples.
const FIRST: RecordingId = RecordingId(0x8877_6655_4433_2211);
const SECOND: RecordingId = RecordingId(0xa8a7_a6a5_a4a3_a2a1);

fn hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(32).map(line).collect::<Vec<_>>().join("\n")
}

/// The bytes in the document's block of this name.
fn example(name: &str) -> Vec<u8> {
    let start = format!("```golden {name}\n");
    let (_, rest) =
        DOCUMENT.split_once(&start).unwrap_or_else(|| panic!("docs/protocol.md has no example {name}"));
    let digits: Vec<u8> =
        rest.split_once("```").unwrap().0.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect(name);
    digits.chunks(2).map(byte).collect()
}

fn shared() -> Shared {
    Shared {
        store: Arc::new(MemoryStore::new()),
        ledger: Arc::new(Ledger::new()),
        ledger_id: LedgerId(0),
        similar: Arc::new(Similar::new(1 << 16)),
    }
}

/// One example: the frame, what it stands for, and whether zstd made a part of it.
struct Example {
    name: &'static str,
    frame: Vec<u8>,
    lan: Vec<u8>,
    compressed: bool,
}

fn place(recording: RecordingId, position: u64) -> Name {
    Name { recording, position }
}

fn run_proof(bytes: &[u8]) -> Option<[u8; RUN_PROOF_BYTES]> {
    let hash = blake3::hash(bytes);
    hash.as_bytes().first_chunk().copied()
}

/// A frame from its parts. `near` is the place after the last run or base.
fn build(
    near: Option<Name>,
    head: &Head,
    coding: Coding,
    commit: bool,
    runs: &[u8],
    new: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut plain = Vec::new();
    head.put(&mut plain, coding == Coding::Delta, near);
    let run_proof = if runs.is_empty() { None } else { run_proof(runs) };
    let envelope = Envelope {
        lane: Lane::Plain,
        commit,
        head_packed: false,
        head_reset: false,
        coding,
        head: &plain,
        run_proof,
        rest: &[],
    };
    let proof = proof_of_new(new);
    envelope.put((!new.is_empty()).then_some(&proof), payload)
}

/// The first direction, as the encoder writes it.
fn first_direction() -> Vec<Example> {
    let mut encoder = Encoder::new(shared(), FIRST, 3);
    encoder.input().extend_from_slice(b"hello, isthmus");
    let Step::Frame(hello) = encoder.step(true, false).unwrap() else { panic!("no frame") };
    let commit = encoder.finish().unwrap().expect("a last frame");
    vec![
        Example {
            name: "inline",
            frame: hello.bytes.to_vec(),
            lan: b"hello, isthmus".to_vec(),
            compressed: false,
        },
        Example { name: "commit", frame: commit.bytes.to_vec(), lan: Vec::new(), compressed: false },
    ]
}

/// The second direction, which refers to the first.
fn second_direction() -> Vec<Example> {
    let tokens = |tokens| Head { base: Vec::new(), tokens };
    let run = |position, len| Token::Run { at: place(FIRST, position), len };
    let plain = |name, frame, lan: &[u8]| Example { name, frame, lan: lan.to_vec(), compressed: false };
    let packed = |name, frame, lan: &[u8]| Example { name, frame, lan: lan.to_vec(), compressed: true };

    let far = build(None, &tokens(vec![run(0, 7)]), Coding::None, false, b"hello, ", b"", b"");
    let edit = tokens(vec![Token::Inline(Bytes::from_static(b"narrow ")), run(7, 7)]);
    let edit = build(Some(place(FIRST, 7)), &edit, Coding::None, false, b"isthmus", b"narrow ", b"");

    let raw = b"0123456789abcdef";
    let head = tokens(vec![Token::New { len: 16 }]);
    let raw_frame = build(None, &head, Coding::Raw, true, b"", raw, raw);

    let long = b"a strip of land. ".repeat(150);
    let payload = Packer::large(3, 19).unwrap().pack(&long).unwrap();
    let head = tokens(vec![Token::New { len: long.len() as u32 }]);
    let stream = build(None, &head, Coding::Stream { reset: true }, false, b"", &long, &payload);

    let new = b"hello, isthmus! hello, isthmus!";
    let payload = pack_against(b"hello, isthmus", new, 9).unwrap();
    let head = Head { base: vec![(place(FIRST, 0), 14)], tokens: vec![Token::New { len: new.len() as u32 }] };
    let delta = build(Some(place(FIRST, 14)), &head, Coding::Delta, true, b"", new, &payload);

    let text = b"between two seas lies a strip of land, and across it a short road";
    let mut head = Vec::new();
    tokens(vec![Token::Inline(Bytes::from_static(text))]).put(&mut head, false, None);
    let head = Packer::small().unwrap().pack(&head).unwrap();
    let envelope = Envelope {
        lane: Lane::Plain,
        commit: false,
        head_packed: true,
        head_reset: true,
        coding: Coding::None,
        head: &head,
        run_proof: None,
        rest: &[],
    };
    let packed_head = envelope.put(Some(&proof_of_new(text)), b"");

    let mut encoder = Encoder::new(shared(), SECOND, 3);
    encoder.input().extend_from_slice(text);
    assert!(matches!(encoder.step(true, false).unwrap(), Step::Frame(_)));
    let release = encoder.release_memory().expect("a frame that resets").bytes.to_vec();

    vec![
        plain("run", far, b"hello, "),
        plain("edit", edit, b"narrow isthmus"),
        plain("raw", raw_frame, raw),
        packed("stream", stream, &long),
        packed("delta", delta, new),
        packed("packed-head", packed_head, text),
        plain("reset", release, b""),
    ]
}

#[test]
fn the_documented_frames_are_restored() {
    let shared = shared();
    for (recording, examples) in [(FIRST, first_direction()), (SECOND, second_direction())] {
        let mut decoder = Decoder::new(shared.clone(), recording);
        for Example { name, frame, lan, .. } in examples {
            let taken = decoder.take(&example(name));
            let say =
                || format!("the example {name} should be restored; this build writes it as\n{}", hex(&frame));
            let Ok(Intake::Done { feedback, stats }) = taken else { panic!("{}: {taken:?}", say()) };
            assert!(feedback.is_empty() && stats.lan == lan.len() as u64, "{}: {feedback:?}", say());
            let Delivery::Bytes(pieces) = decoder.deliver().unwrap() else { panic!("{}", say()) };
            assert_eq!(pieces.concat(), lan, "{name}");
        }
        assert!(decoder.is_drained());
        decoder.finish();
    }
}

#[test]
fn the_documented_frames_are_what_is_written() {
    for Example { name, frame, compressed, .. } in first_direction().into_iter().chain(second_direction()) {
        let documented = example(name);
        assert!(compressed || documented == frame, "the example {name} should be\n{}", hex(&frame));
    }
}

#[test]
fn what_was_never_exchanged_is_missed_and_repaired() {
    let mut decoder = Decoder::new(shared(), SECOND);
    // Nobody has sent the first recording here: the decoder would wait for it, then asks.
    assert_eq!(decoder.take(&example("run")).unwrap(), Intake::Wait { recording: FIRST });
    let Intake::Done { feedback, .. } = decoder.resume(true).unwrap() else { panic!("still waiting") };
    assert_eq!(feedback, [Feedback::Miss { position: 0, len: 7 }]);
    assert!(matches!(decoder.deliver().unwrap(), Delivery::Blocked));
    let repair =
        Feedback::Repair { position: 0, len: 7, packed: false, data: Bytes::from_static(b"hello, ") };
    assert_eq!(decoder.repair(&repair).unwrap(), []);
    let Delivery::Bytes(pieces) = decoder.deliver().unwrap() else { panic!("nothing to deliver") };
    assert_eq!(pieces.concat(), b"hello, ");
}

#[test]
fn the_documented_feedback_is_what_is_written() {
    let packed = pack_against(b"", &[b'x'; 1000], 3).unwrap();
    let repaired =
        Feedback::Repair { position: 300, len: 3, packed: false, data: Bytes::from_static(b"abc") };
    let squeezed = Feedback::Repair { position: 300, len: 1000, packed: true, data: packed.into() };
    for (name, message, exact) in [
        ("miss", Feedback::Miss { position: 300, len: 70_000 }, true),
        ("repair", repaired, true),
        ("packed-repair", squeezed, false),
        ("forget", Feedback::Forget { position: 300, len: 70_000 }, true),
    ] {
        let written = message.encode();
        let documented = Bytes::from(example(name));
        assert!(!exact || documented == written, "the example {name} should be\n{}", hex(&written));
        let read = Feedback::decode(&documented)
            .unwrap_or_else(|error| panic!("{name}: {error}\n{}", hex(&written)));
        assert_eq!(read.encode(), documented);
        match (read, message) {
            (Feedback::Repair { position, len, packed: true, data }, _) => {
                assert_eq!((position, len), (300, 1000));
                assert_eq!(compress::unpack_against(b"", &data, 1000).unwrap(), [b'x'; 1000]);
            }
            (read, message) => assert_eq!(read, message),
        }
    }
}

#[test]
fn the_documented_note_is_what_is_written() {
    let ranges = [
        Range { position: 0, addr: Addr(4096), len: 300, fresh: true },
        Range { position: 300, addr: Addr(7), len: 20, fresh: false },
    ];
    let written = ledger::note(FIRST, &ranges);
    assert!(example("note") == written, "the example note should be\n{}", hex(&written));
    let ledger = Ledger::new();
    let older = [Range { position: 0, addr: Addr(0), len: 10, fresh: true }];
    assert!(ledger.replay(&ledger::note(SECOND, &older)));
    assert!(ledger.replay(&example("note")));
    assert_eq!(ledger.name_of(Addr(4100)), Some((place(FIRST, 4), 4, 296)));
    assert_eq!(ledger.name_of(Addr(7)), Some((place(SECOND, 7), 7, 3)), "old content keeps the name it has");
    assert_eq!(ledger.name_of(Addr(10)), Some((place(FIRST, 303), 0, 17)), "what has none gets one");
}

/// New bytes in one frame that does not commit.
fn uncommitted(len: usize) -> Vec<u8> {
    let new = vec![b'u'; len];
    let mut head = Vec::new();
    Head { base: Vec::new(), tokens: vec![Token::New { len: len as u32 }] }.put(&mut head, false, None);
    let envelope = Envelope {
        lane: Lane::Plain,
        commit: false,
        head_packed: false,
        head_reset: false,
        coding: Coding::Raw,
        head: &head,
        run_proof: None,
        rest: &[],
    };
    envelope.put(Some(&proof_of_new(&new)), &new)
}

#[test]
fn limits_are_documented_as_they_are() {
    let log = |log: u32| 1usize << log;
    for (name, value) in [
        ("FRAME_WIRE_BYTES_MAX", limits::FRAME_WIRE_BYTES_MAX),
        ("FRAME_LAN_BYTES_MAX", limits::FRAME_LAN_BYTES_MAX),
        ("FRAME_NEW_BYTES_MAX", limits::FRAME_NEW_BYTES_MAX),
        ("WINDOW_LAN_BYTES", limits::WINDOW_LAN_BYTES as usize),
        ("DELTA_BASE_BYTES_MAX", limits::DELTA_BASE_BYTES_MAX),
        ("DOMAIN_LEN_MAX", limits::DOMAIN_LEN_MAX),
        ("HEAD_BYTES_MAX", frame::HEAD_BYTES_MAX),
        ("TOKENS_MAX", frame::TOKENS_MAX),
        ("BASE_RANGES_MAX", frame::BASE_RANGES_MAX),
        ("REPAIR_BYTES_MAX", frame::REPAIR_BYTES_MAX),
        ("SMALL_WINDOW_LOG", log(compress::SMALL_WINDOW_LOG)),
        ("LARGE_WINDOW_LOG", log(compress::LARGE_WINDOW_LOG)),
        ("INLINE_BYTES_MAX", encoder::INLINE_BYTES_MAX),
        ("CHUNK_BYTES_MIN", chunker::CHUNK_BYTES_MIN),
        ("CHUNK_BYTES_MEAN", chunker::CHUNK_BYTES_MEAN),
        ("CHUNK_BYTES_MAX", chunker::CHUNK_BYTES_MAX),
        ("NOTE_RANGES_MAX", ledger::NOTE_RANGES_MAX),
    ] {
        let start = format!("| `{name}` | ");
        let row = DOCUMENT.lines().find_map(|line| line.strip_prefix(&start)).expect(name);
        let number: String = row.split('|').next().unwrap().chars().filter(char::is_ascii_digit).collect();
        assert_eq!(number, value.to_string(), "{name}");
    }
    // 448 KiB may wait for a commit.
    let mut decoder = Decoder::new(shared(), FIRST);
    assert!(decoder.take(&uncommitted(224 << 10)).is_ok());
    assert!(decoder.take(&uncommitted(224 << 10)).is_ok());
    assert!(matches!(decoder.take(&uncommitted(1)), Err(DecodeError::Misbehaved(_))));
}

#[test]
fn a_long_run_costs_what_the_document_says() {
    let head = Head { base: Vec::new(), tokens: vec![Token::Run { at: place(FIRST, 5), len: 1_000_000 }] };
    let frame = build(Some(place(FIRST, 5)), &head, Coding::None, false, b"x", b"", b"");
    assert_eq!(frame.len(), 23, "and docs/protocol.md says so");
    assert!(DOCUMENT.contains("23 bytes for a megabyte"));
    let mut out = Vec::new();
    varint::put(&mut out, 1_000_000 << 2);
    assert_eq!(out.len(), 4);
}
