//! Writes the corpus of the fuzz targets anew, all but the configurations, which are kept by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program that cannot go on has failed")]

use bytes::{Bytes, BytesMut};
use isthmus_reduction::content::{ChunkKey, ChunkMeta, ContentStore};
use isthmus_reduction::frame::Feedback;
use isthmus_store::footer::Contents;
use isthmus_store::format::{FRAME_HEADER_LEN, SegmentHeader, TRAILER_LEN, Trailer};
use isthmus_tests::random;
use isthmus_tests::sample::{Proxy, encode, first_content, first_recording, pack};
use isthmus_tunnel::{Ack, Frame, Hello, Message, Open};
use isthmus_types::{Domain, Reason, RecordingId, Side, StoreId};
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    tunnel_frames();
    reduction_frames();
    reduction_feedback();
    store();
}

fn folder(target: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(target: &str, name: &str, content: &[u8]) {
    fs::write(folder(target).join(name), content).unwrap();
}

fn tunnel_frames() {
    let open = |host: &str, source: &str| {
        Frame::Message(Message::Open(Open {
            host: host.into(),
            port: 445,
            domain: Domain("label:finance".into()),
            reduce: true,
            recording: 0x0123_4567_89ab_cdef,
            source: source.parse().unwrap(),
        }))
    };
    let hello = Hello {
        versions: (1, 1),
        capabilities: 5,
        role: Side::Client,
        store: StoreId([7; 16]),
        generation: 12,
        instance: [8; 16],
        software: "isthmus 0.1.0".into(),
    };
    let session = [
        open("fs1.example", "192.0.2.1:50000"),
        Frame::Message(Message::Opened { recording: 77 }),
        Frame::Message(Message::Data(random(400, 1))),
        Frame::Message(Message::Data(random(20_000, 2))),
        Frame::Ack(Ack { odd: true, taken: 2, restored: 1, delivered: 1 << 20 }),
        Frame::Message(Message::Feedback(random(40, 3))),
        Frame::Message(Message::Fin),
    ];
    let links = [
        Frame::Hello(hello),
        Frame::Join { instance: [1; 16] },
        Frame::Joined,
        Frame::Resume { channel: [2; 16], arrived: 300, proof: [3; 32] },
        Frame::Resumed { arrived: 4, proof: [5; 32] },
        Frame::Refuse { reason: Reason::PeerIncompatible, detail: "another version".into() },
        Frame::Ping { token: 6 },
        Frame::Pong { token: 6 },
        Frame::Doubt { channel: [9; 16] },
    ];
    let ends = [
        open("2001:db8::1", "[2001:db8::2]:50000"),
        Frame::Message(Message::Failed { reason: Reason::TargetRefused, detail: "refused".into() }),
        Frame::Message(Message::Reset { reason: Reason::ApplicationReset }),
    ];
    for (name, frames) in [("session", &session[..]), ("links", &links[..]), ("ends", &ends[..])] {
        let mut all = BytesMut::new();
        frames.iter().for_each(|frame| isthmus_tunnel::encode(frame, &mut all));
        write("tunnel-frames", name, &all);
    }
    for (n, frame) in session.iter().chain(&links).chain(&ends).enumerate() {
        let mut one = BytesMut::new();
        isthmus_tunnel::encode(frame, &mut one);
        write("tunnel-frames", &format!("frame-{n:02}"), &one);
    }
}

fn reduction_frames() {
    let known = first_content();
    let mut edited = known[..20_000].to_vec();
    edited[9_000..9_040].copy_from_slice(&random(40, 3));
    edited.extend_from_slice(&known[26_000..]);
    let text: Vec<u8> = (0..400).flat_map(|n| format!("a new line, number {n}\n").into_bytes()).collect();
    let noise = random(9_000, 4);
    let samples: [(&str, &[&[u8]]); 5] = [
        ("known", &[&known]),
        ("edited", &[&edited]),
        ("text", &[&text, &text]),
        ("noise", &[&noise, &noise[..50], b"x"]),
        ("mixed", &[b"header", &known[5_000..15_000], &noise, &known[..3_000], b"footer"]),
    ];
    for (name, pieces) in samples {
        let sender = Proxy::new();
        first_recording(&sender);
        write("reduction-frames", name, &pack(&encode(&sender, RecordingId(2), pieces)));
    }
}

fn reduction_feedback() {
    let repair =
        |position, packed, data: Bytes| Feedback::Repair { position, len: data.len() as u32, packed, data };
    let samples = [
        Feedback::Miss { position: 0, len: 1_000 },
        Feedback::Miss { position: 21_000, len: 4_000 },
        Feedback::Forget { position: 20_000, len: 9_000 },
        repair(0, false, random(64, 5)),
        repair(64, true, random(64, 6)),
    ];
    let records: Vec<Bytes> = samples.iter().map(Feedback::encode).collect();
    write("reduction-feedback", "all", &pack(&records));
    for (n, record) in records.iter().enumerate() {
        write("reduction-feedback", &format!("message-{n}"), &pack(std::slice::from_ref(record)));
    }
}

/// A real store's segment, sealed and cut short, and what stands in it.
fn store() {
    let dir = tempfile::tempdir().unwrap();
    let config = isthmus_store::Config::new(dir.path(), 64 << 20, None);
    let config = isthmus_store::Config { encrypt: false, free_floor_bytes: 0, ..config };
    let (store, _) = isthmus_store::Store::open(config).unwrap();
    let ledger = store.ledger(StoreId([1; 16]), &Domain("label:finance".into())).unwrap();
    for seed in 0..3 {
        let data = random(3_000, seed);
        let metas: Vec<ChunkMeta> = data
            .chunks(1_000)
            .map(|part| ChunkMeta { key: ChunkKey::of(part), len: part.len() as u32 })
            .collect();
        let addr = store.append(data, &metas).unwrap();
        let range = isthmus_reduction::ledger::Range { position: 0, addr, len: 3_000, fresh: true };
        store.note(ledger, &isthmus_reduction::ledger::note(RecordingId(seed), &[range])).unwrap();
    }
    store.flush();
    drop(store);
    let file = fs::read(dir.path().join("segments/00000001.seg")).unwrap();
    write("store-files", "sealed", &file);
    write("store-files", "torn", &file[..file.len() * 2 / 3]);
    write("store-files", "short", &file[..300]);
    let header = SegmentHeader::decode(&file).expect("a header");
    write("store-records", "header", &header.encode());
    write("store-records", "frame", &file[256..256 + FRAME_HEADER_LEN + 40]);
    let trailer = &file[file.len() - TRAILER_LEN..];
    write("store-records", "trailer", trailer);
    let trailer = Trailer::decode(trailer, 1, file.len() as u64).expect("a trailer");
    let start = trailer.footer_position as usize + FRAME_HEADER_LEN;
    let end = trailer.footer_position as usize + trailer.footer_len as usize;
    // The footer's content is followed by a check whose length does not matter here.
    let body = (start..=end).rev().map(|end| &file[start..end]).find(|body| Contents::decode(body).is_some());
    write("store-records", "footer", body.expect("a footer"));
}
