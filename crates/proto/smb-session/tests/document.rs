//! docs/protocol-smb.md says what the code writes and reads.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use isthmus_smb_wire::build;
use std::sync::Arc;
use support::ends::{Ends, File, GMAC, Protection, Refuses, Setting};
use support::{Pair, frame};

const DOCUMENT: &str = include_str!("../../../../docs/protocol-smb.md");

/// The bytes in the document's block of this name.
fn example(name: &str) -> Vec<u8> {
    let (_, rest) = DOCUMENT.split_once(&format!("```golden {name}\n")).expect(name);
    let digits: Vec<u8> =
        rest.split_once("```").unwrap().0.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect(name);
    digits.chunks(2).map(byte).collect()
}

fn assert_example(name: &str, made: &[u8]) {
    let hex: String = made.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(example(name) == made, "{name} is {hex}");
}

#[test]
fn the_examples_are_what_is_written() {
    let setting = Setting { protection: Protection::None, ..GMAC };
    let (mut ends, mut pair) = (Ends::new(setting), Pair::new(None));
    (ends.message_id, ends.session_id) = (5, 0x44);
    let first = ends.exchange(&build::Echo, &build::EchoResponse);
    assert_example("first-frame", &frame(&first[0].1));
    let second = ends.request(&build::Echo);
    let file = File::new(0, 300);
    pair.same(&first[..1]);
    pair.same(&[(false, second)]);
    pair.same(&first[1..]);
    assert_example("first-record", &pair.up.structures[0]);
    assert_example("second-record", &pair.up.structures[1]);
    assert_example("answer-record", &pair.down.structures[0]);
    ends.message_id += 1;
    let read = ends.exchange(&file.read(0, 300), &build::ReadResponse { payload: &[0xab; 300] });
    pair.same(&read);
    assert_example("read-record", &pair.down.structures[1]);
    assert_eq!(pair.down.content, 300);
}

#[test]
fn the_note_is_what_is_written() {
    let (mut ends, mut pair) = (Ends::new(GMAC), Pair::new(Some(Arc::new(Refuses))));
    let mut notes = Vec::new();
    for (from_server, message) in ends.begin() {
        let way = pair.way(from_server);
        let crossing = way.intake.take(&mut bytes::BytesMut::from(&frame(&message)[..])).unwrap().unwrap();
        notes.extend(crossing.note);
        way.assembler.structure(&crossing.structure).unwrap();
        assert_eq!(way.assembler.next().unwrap().unwrap().concat(), frame(&message));
    }
    assert_eq!(notes.len(), 1);
    assert_example("note", &notes[0]);
}
