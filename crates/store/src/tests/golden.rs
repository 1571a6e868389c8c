//! The examples in docs/store.md are what the code writes.

use super::*;
use crate::footer::{FooterBuilder, LedgerEntry, put_ledger};
use crate::format::{FrameKind, SegmentHeader};
use crate::frame;
use crate::key::DataKey;
use crate::seal::Sealer;
use isthmus_types::{Domain, StoreId, varint};

const DOCUMENT: &str = include_str!("../../../../docs/store.md");

/// The bytes in the document's block of this name.
fn example(name: &str) -> Vec<u8> {
    let start = format!("```{name}\n");
    let block = DOCUMENT.split_once(&start).expect(name).1.split_once("```").expect(name).0;
    hex::decode(block.split_whitespace().collect::<String>()).expect(name)
}

fn lines(bytes: &[u8]) -> String {
    bytes.chunks(32).map(|line| format!("{}\n", hex::encode(line))).collect()
}

fn parts() -> (Vec<ChunkMeta>, &'static [u8], LedgerEntry) {
    let meta = |content: &[u8]| ChunkMeta { key: ChunkKey::of(content), len: content.len() as u32 };
    let ledger = LedgerEntry { number: 1, peer: StoreId([9; 16]), domain: Domain("all".into()) };
    (vec![meta(b"hello, "), meta(b"isthmus")], b"hello, isthmus", ledger)
}

fn plain_segment() -> Vec<u8> {
    let (chunks, payload, ledger) = parts();
    let header =
        SegmentHeader { encrypted: false, number: 1, base: 0, created_s: 0, span: 1 << 20, slots: [None; 2] };
    let sealer = Sealer::plain(1);
    let mut bytes = header.encode().to_vec();
    let mut builder = FooterBuilder::new();
    let mut frame = Vec::new();
    let position = frame::record(&mut frame, (&sealer, 1, 256), 0, &chunks, payload).unwrap();
    builder.record(0, position as u32, payload.len() as u32, &chunks);
    bytes.append(&mut frame);
    let at = (&sealer, 1, bytes.len() as u64);
    frame::body(&mut frame, at, (FrameKind::Ledger, 0), |out| put_ledger(out, &ledger)).unwrap();
    builder.ledger(&ledger);
    bytes.append(&mut frame);
    let note = |out: &mut Vec<u8>| {
        varint::put(out, 1);
        out.push(b'n');
    };
    frame::body(&mut frame, (&sealer, 1, bytes.len() as u64), (FrameKind::Note, 0), note).unwrap();
    builder.note(1, b"n");
    bytes.append(&mut frame);
    frame::footer(&mut frame, (&sealer, 1, bytes.len() as u64), 7, &builder).unwrap();
    bytes.append(&mut frame);
    bytes
}

#[test]
fn the_documented_segment_is_what_is_written() {
    let bytes = plain_segment();
    assert!(example("golden-plain") == bytes, "docs/store.md should have:\n{}", lines(&bytes));
}

#[test]
fn the_documented_encrypted_frame_is_what_is_written() {
    let (chunks, payload, _) = parts();
    let key = DataKey::from_bytes(std::array::from_fn(|i| i as u8));
    let sealer = Sealer::encrypted(1, &key).unwrap();
    let mut frame = Vec::new();
    frame::record(&mut frame, (&sealer, 1, 256), 0, &chunks, payload).unwrap();
    assert!(example("golden-encrypted") == frame, "docs/store.md should have:\n{}", lines(&frame));
}

#[test]
fn a_store_reads_the_documented_segment() {
    let dir = temp();
    std::fs::create_dir_all(dir.path().join("segments")).unwrap();
    std::fs::write(dir.path().join("segments/00000001.seg"), example("golden-plain")).unwrap();
    let (store, replay) = open(dir.path(), false);
    assert_eq!(&store.view(Addr(7)).unwrap()[..], b"isthmus");
    assert_eq!(store.lookup(ChunkKey::of(b"isthmus")), Some(Addr(7)));
    assert_eq!(replay.count(), 0, "notes of a store without an identity are nobody's");
    assert_eq!(store.stats().segments, 1);
}
