//! Writes the corpus of the fuzz targets anew, all but the configurations and the SMB messages (`smb-wire`, `smb-transport`),
//! which are kept by hand: those named `captured` were sent by Samba and its clients, with accounts made for that.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program that cannot go on has failed")]

#[path = "../../crates/proto/smb-crypto/tests/support/compress.rs"]
mod compress;
#[path = "../../crates/proto/smb-session/tests/support/mod.rs"]
mod smb_stage;

use bytes::{Bytes, BytesMut};
use isthmus_reduction::content::{ChunkKey, ChunkMeta, ContentStore};
use isthmus_reduction::frame::Feedback;
use isthmus_smb_crypto::{Cipher, NonceSource, Sealer, TRANSFORM_HEADER_LEN};
use isthmus_store::footer::Contents;
use isthmus_store::format::{FRAME_HEADER_LEN, SegmentHeader, TRAILER_LEN, Trailer};
use isthmus_tests::sample::{Proxy, encode, first_content, first_recording, pack};
use isthmus_tests::{kerberos, random};
use isthmus_tunnel::{Ack, Frame, Hello, Message, Open};
use isthmus_types::{Domain, Reason, RecordingId, Side, StoreId};
use smb_stage::ends::{Ends, File, GMAC, Protection, Setting};
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    tunnel_frames();
    reduction_frames();
    reduction_feedback();
    store();
    smb_tokens();
    smb_key_files();
    smb_compression();
    smb_messages();
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
            structured: true,
            accelerated: false,
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
        clock_ms: Some(1_790_000_000_000),
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

/// The tokens of two real authentications, and a Kerberos exchange in plaintext.
fn smb_tokens() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/proto/smb-auth/tests/vectors");
    let read = |name: String| Bytes::from(fs::read(vectors.join(name)).unwrap());
    let ntlm: Vec<Bytes> = (1..=4).map(|number| read(format!("ntlm-{number}.bin"))).collect();
    let kerberos: Vec<Bytes> = (1..=2).map(|number| read(format!("kerberos-{number}.bin"))).collect();
    for (number, token) in ntlm.iter().chain(&kerberos).enumerate() {
        write("smb-spnego", &format!("captured-{number}"), token);
    }
    // Without SPNEGO around it.
    let bare = ntlm[2].windows(8).position(|bytes| bytes == b"NTLMSSP\0").unwrap();
    write("smb-spnego", "ntlm", &ntlm[2][bare..]);
    write("smb-ntlm", "captured", &pack(&ntlm));
    write("smb-kerberos", "captured", &pack(&kerberos));
    let plain = kerberos::plaintexts();
    let [request, reply] = kerberos::exchange([&plain[0], &plain[1], &plain[2]]);
    write("smb-kerberos", "sealed", &pack(&[request.into(), reply.into()]));
    write("smb-kerberos", "plain", &pack(&plain.map(Bytes::from)));
}

fn smb_key_files() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/proto/smb-auth/tests/vectors");
    let keytab = fs::read(vectors.join("cifs.keytab")).unwrap();
    write("smb-key-files", "keytab", &keytab);
    // A hole, as a deleted entry leaves it, and the entries after it.
    let hole = [5, 2, 0xff, 0xff, 0xff, 0xf8, 0, 0, 0, 0, 0, 0, 0, 0];
    write("smb-key-files", "keytab-with-hole", &[&hole[..], &keytab[2..]].concat());
    let hash = "FC525C9683E8FE067095BA2DDC971889";
    let lines = format!(
        "# made by hand\nalice:1000:X:{hash}:[U          ]:LCT-00000000:\r\nWAN\\bob:1:X:{hash}:\n\
         b:1:X:NO PASSWORDXXXXXXXXXXXXXXXXXXXXX:[NU]:\n"
    );
    write("smb-key-files", "smbpasswd", lines.as_bytes());
}

/// Data of each algorithm behind its number and length, and messages of both kinds.
fn smb_compression() {
    let text: Vec<u8> =
        (0..300u32).flat_map(|n| format!("row {} of many; ", n * n % 97).into_bytes()).collect();
    let len = (text.len() as u32).to_le_bytes();
    let packed = [compress::lznt1(&text), compress::lz77(&text), compress::huffman(&text)];
    let mut chain = [b"\xfcSMB", &(text.len() as u32 * 4 + 10_000).to_le_bytes()[..]].concat();
    let mut add = |kind: u8, original: &[u8], data: &[u8]| {
        chain.extend([kind, 0, u8::from(kind == 0), 0]);
        chain.extend(((original.len() + data.len()) as u32).to_le_bytes());
        chain.extend([original, data].concat());
    };
    add(0, &[], &text);
    write("smb-compression", "none", &[&[0][..], &len[..3], &text].concat());
    for ((name, data), kind) in ["lznt1", "lz77", "huffman"].iter().zip(&packed).zip(1..) {
        write("smb-compression", name, &[&[kind][..], &len[..3], data].concat());
        let unchained = [b"\xfcSMB", &len[..], &[kind, 0, 0, 0, 5, 0, 0, 0], b"front", data].concat();
        write("smb-compression", &format!("message-{name}"), &unchained);
        add(kind, &len, data);
    }
    let pattern = [b'A', 0, 0, 0, 0x10, 0x27, 0, 0];
    add(4, &[], &pattern);
    write("smb-compression", "pattern", &[&[4, 0x10, 0x27, 0][..], &pattern].concat());
    write("smb-compression", "message-chained", &chain);
}

/// Messages of a made-up session, as LAN bytes of both sides and as what crosses, and what may stand inside encrypted ones.
fn smb_messages() {
    for protection in [Protection::Signed, Protection::Sealed] {
        // As the target has them: one that signs has no cipher.
        let cipher = GMAC.cipher.filter(|_| protection == Protection::Sealed);
        let mut ends = Ends::new(Setting { protection, cipher, ..GMAC });
        let begin = ends.begin();
        let mut messages = ends.unusual(0);
        messages.extend(ends.small_read(&File::new(1, 4_096), &[7; 4_096]));
        messages.retain(|(_, message)| message.len() < 8_000);
        let mark = |from_server: bool, rest: u8, bytes: &[u8]| -> Bytes {
            [&[rest | u8::from(from_server)], bytes].concat().into()
        };
        let sealed = u8::from(protection == Protection::Sealed);
        let lan: Vec<Bytes> =
            messages.iter().map(|(from_server, message)| mark(*from_server, 0x7c, message)).collect();
        write("smb-stage", &format!("lan-{sealed}"), &[&[sealed], &pack(&lan)[..]].concat());
        let mut pair = smb_stage::Pair::new(Some(smb_stage::ends::Fixed::new(smb_stage::ends::KEY)));
        for (from_server, message) in &begin {
            pair.pass(*from_server, message);
        }
        let mut crossed = Vec::new();
        for (from_server, message) in &messages {
            let mut input = BytesMut::from(&smb_stage::frame(message)[..]);
            let crossing = pair.way(*from_server).intake.take(&mut input).unwrap().unwrap();
            crossed.push(mark(*from_server, 0x82, &crossing.structure));
            crossed.extend(crossing.content.iter().map(|piece| mark(*from_server, 0x86, piece)));
        }
        write("smb-stage", &format!("wan-{sealed}"), &[&[sealed], &pack(&crossed)[..]].concat());
    }
    let mut ends = Ends::new(Setting { protection: Protection::Sealed, ..GMAC });
    ends.begin();
    let (_, sealed) = ends.unusual(0).swap_remove(0);
    let plain = ends.open(&sealed, false);
    let compressed = |plain: &[u8]| {
        let length = (plain.len() as u32).to_le_bytes();
        [b"\xfcSMB", &length[..], &[0, 0, 1, 0], &length, plain].concat()
    };
    let cipher = Cipher::Aes128Gcm;
    let mut opens = [&[0; TRANSFORM_HEADER_LEN], &plain[..]].concat();
    let mut sealer = Sealer::new(cipher, &[0x5a; 16], NonceSource::new(cipher, [1; 7])).unwrap();
    sealer.seal(1, &mut opens).unwrap();
    write("smb-transform", "opens", &opens);
    write("smb-transform", "nested", &sealed);
    write("smb-transform", "compound", &plain);
    write("smb-transform", "compressed", &compressed(&plain));
    write("smb-transform", "compressed-to-nothing", &compressed(&[]));
}
