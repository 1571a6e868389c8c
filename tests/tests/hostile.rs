//! Certificates that do not pass, garbage, peers of another kind, and peers that lie.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_certs::{Authority, Identity, IssueRequest, Role, Validity};
use isthmus_net::{Acceptor, AcceptorConfig, LocalHello, Receiver, TlsSource};
use isthmus_reduction::decoder::proof_of_new;
use isthmus_reduction::frame::{Coding, Envelope, Feedback, Head, Lane, RUN_PROOF_BYTES, Token};
use isthmus_reduction::ledger::Name;
use isthmus_tests::{
    Bed, ECHO, Plan, Stranger, connect, eventually, hello_of, moves_again, random, tls_files,
};
use isthmus_tunnel::Message;
use isthmus_types::{Reason, RecordingId, Side, StoreId};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// What can be wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Missing,
    Expired,
    Revoked,
    OfAnotherAuthority,
    OfTheWrongRole,
}

const FLAWS: [Flaw; 5] =
    [Flaw::Missing, Flaw::Expired, Flaw::Revoked, Flaw::OfAnotherAuthority, Flaw::OfTheWrongRole];

fn files_of(bed: &Bed, side: Side) -> &Identity {
    let set = bed.pair.certificates();
    if side == Side::Client { &set.client } else { &set.server }
}

/// Puts a certificate with this flaw in the place of a side's own.
fn spoil(bed: &Bed, side: Side, flaw: Flaw) {
    let now = SystemTime::now();
    let (right, wrong) = match side {
        Side::Client => (Role::ClientSide, Role::ServerSide),
        Side::Server => (Role::ServerSide, Role::ClientSide),
    };
    let folder = bed.pair.folder().join(format!("{flaw:?}"));
    let request = IssueRequest {
        role: if flaw == Flaw::OfTheWrongRole { wrong } else { right },
        name: "flawed".into(),
        dns: vec!["localhost".into()],
        ip: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        validity: match flaw {
            Flaw::Expired => Validity::Between(now - 3 * HOUR, now - HOUR),
            _ => Validity::Days(9),
        },
    };
    let authority = match flaw {
        Flaw::OfAnotherAuthority => Authority::init(&folder.join("ca"), "another CA", 30).unwrap(),
        _ => Authority::open(&bed.pair.certificates().authority).unwrap(),
    };
    let issued = authority.issue(&request, &folder).unwrap();
    if flaw == Flaw::Revoked {
        authority.revoke(&issued.entry.serial).unwrap();
    }
    let own = files_of(bed, side);
    if flaw == Flaw::Missing {
        return fs::remove_file(&own.certificate).unwrap();
    }
    replace(&issued.key, &own.key);
    replace(&issued.certificate, &own.certificate);
}

/// Puts a file in another's place at once, as an administrator's tools do.
fn replace(from: &Path, to: &Path) {
    let aside = to.with_extension("new");
    fs::copy(from, &aside).unwrap();
    fs::rename(aside, to).unwrap();
}

fn flawed(side: Side) {
    let mut bed = Plan::new(MIB, 1).passing().start();
    bed.is_optimised();
    let own = files_of(&bed, side).clone();
    let kept = bed.pair.folder().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::copy(&own.certificate, kept.join("certificate")).unwrap();
    fs::copy(&own.key, kept.join("key")).unwrap();
    for flaw in FLAWS {
        println!("{flaw:?} certificate of the {side} proxy");
        bed.stop(side);
        spoil(&bed, side, flaw);
        bed.pair.start_end(side).unwrap();
        if (side, flaw) == (Side::Server, Flaw::Missing) {
            // It cannot even listen, so the client side finds nobody there.
            bed.not_ready(Side::Server, "peer_unauthorised");
            bed.logs(Side::Server, &["ERROR", "peers cannot connect"]);
            bed.not_ready(Side::Client, "peer_absent");
            bed.passes_through("peer_absent");
        } else {
            bed.not_ready(Side::Client, "peer_unauthorised");
            bed.passes_through("peer_unauthorised");
            bed.logs(Side::Client, &[if flaw == Flaw::Missing { "client.pem" } else { "certificate" }]);
        }
        if side == Side::Client && flaw != Flaw::Missing {
            bed.counts(Side::Server, "isthmus_handshake_failures_total", &[("reason", "unauthorised")]);
        }
    }
    // The right files again, without a restart.
    replace(&kept.join("key"), &own.key);
    replace(&kept.join("certificate"), &own.certificate);
    bed.ready();
    bed.is_optimised();
}

#[test]
fn a_client_side_with_a_flawed_certificate_passes_everything_through() {
    flawed(Side::Client);
}

#[test]
fn a_server_side_with_a_flawed_certificate_is_passed_by() {
    flawed(Side::Server);
}

#[test]
fn a_revocation_ends_what_runs_and_keeps_the_rest_going_directly() {
    let bed = Plan::new(24 * MIB, 2).slow(40).passing().start();
    let running = bed.download();
    running.reach(MIB as u64);
    let authority = Authority::open(&bed.pair.certificates().authority).unwrap();
    authority.revoke("client").unwrap();
    running.fails_within(Duration::from_secs(10));
    bed.not_ready(Side::Client, "peer_unauthorised");
    bed.passes_through("peer_unauthorised");
    bed.counts(Side::Server, "isthmus_connections_total", &[("reason", "peer_unauthorised")]);
    bed.logs(Side::Server, &["WARN", "no longer accepted"]);
}

#[test]
fn garbage_on_every_port_disturbs_nobody() {
    let bed = Plan::new(4 * MIB, 3).start();
    let ports = [
        bed.spec.server_listen,
        bed.pair.end(Side::Client).admin(),
        bed.pair.end(Side::Server).admin(),
        bed.through(ECHO),
    ];
    let noise = random(300_000, 4);
    // The first bytes of a TLS client's greeting, cut short.
    let greeting = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &noise[..200]].concat();
    let requests: [&[u8]; 6] = [
        &noise,
        &greeting,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0",
        &[0xff; 70_000],
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ",
    ];
    let mut open = Vec::new();
    for round in 0..20 {
        for port in ports {
            for request in requests {
                let mut stream = connect(port);
                // What is at the other end may have had enough already.
                drop(stream.write_all(request));
                match round % 3 {
                    0 => open.push(stream),
                    1 => drop(stream),
                    _ => {
                        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                        drop(stream);
                    }
                }
            }
        }
    }
    bed.is_optimised();
    bed.upload(&bed.content).join().unwrap();
    for side in [Side::Client, Side::Server] {
        assert_eq!(bed.pair.end(side).get("/healthz").unwrap().status, 200);
        let (memory, _) = bed.memory(side);
        assert!(memory < 250 << 20, "{side}: {memory} bytes resident");
    }
    bed.counts(Side::Server, "isthmus_handshake_failures_total", &[]);
    bed.logs(Side::Server, &["handshake failed"]);
    // A browser's page must not be able to read the console through a name that leads here.
    let mut stream = connect(bed.pair.end(Side::Client).admin());
    stream
        .write_all(b"GET /api/summary HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_server_side_of_another_version_is_passed_by_until_it_is_updated() {
    let mut bed = Plan::new(2 * MIB, 5).passing().prepare();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let tls = TlsSource::load(tls_files(&bed, &bed.pair.certificates().server), Side::Server).unwrap();
    let future = LocalHello { versions: (7, 9), ..hello_of(StoreId([9; 16])) };
    let config = AcceptorConfig::new(bed.spec.server_listen, tls, future);
    let acceptor = runtime.block_on(Acceptor::bind(config)).unwrap();
    bed.pair.start_end(Side::Client).unwrap();
    bed.not_ready(Side::Client, "peer_incompatible");
    bed.passes_through("peer_incompatible");
    bed.logs(Side::Client, &["WARN", "version", "7 to 9"]);
    drop(acceptor);
    drop(runtime);
    bed.start(Side::Server);
    bed.is_optimised();
}

#[test]
fn a_client_side_of_another_version_is_refused_with_both_ranges() {
    let bed = Plan::new(2 * MIB, 6).start();
    let past = LocalHello { versions: (0, 0), ..hello_of(StoreId([8; 16])) };
    let words = Stranger::new(&bed, "old", past).refused(Reason::PeerIncompatible);
    assert!(words.contains("0 to 0"), "{words}");
    bed.counts(Side::Server, "isthmus_handshake_failures_total", &[("reason", "incompatible")]);
    bed.logs(Side::Server, &["WARN", "peer refused", "0 to 0"]);
    bed.is_optimised();
}

/// The identity of a proxy's store.
fn store_of(bed: &Bed, side: Side) -> StoreId {
    let text = bed.pair.end(side).get("/api/store").unwrap().body;
    let store: serde_json::Value = serde_json::from_str(&text).unwrap();
    let digits = store["identity"].as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    StoreId(std::array::from_fn(byte))
}

#[test]
fn a_store_that_is_in_two_places_is_refused_in_the_second() {
    let bed = Plan::new(2 * MIB, 7).start();
    for side in [Side::Client, Side::Server] {
        let name = if side == Side::Client { "twin" } else { "mirror" };
        let twin = Stranger::new(&bed, name, hello_of(store_of(&bed, side)));
        let words = twin.refused(Reason::PeerIncompatible);
        assert!(words.contains("cloned store"), "{words}");
    }
    bed.logs(Side::Server, &["WARN", "peer refused", "cloned store"]);
    bed.counts(Side::Server, "isthmus_handshake_failures_total", &[]);
    bed.is_optimised();
}

/// A frame that brings `bytes` as they are.
fn plain(bytes: &[u8]) -> Bytes {
    let mut head = Vec::new();
    Head { base: Vec::new(), tokens: vec![Token::New { len: bytes.len() as u32 }] }
        .put(&mut head, false, None);
    let envelope = Envelope {
        lane: Lane::Plain,
        commit: true,
        head_packed: false,
        head_reset: false,
        coding: Coding::Raw,
        head: &head,
        run_proof: None,
        rest: &[],
    };
    envelope.put(Some(&proof_of_new(bytes)), bytes).into()
}

/// A frame that refers to what the recording is said to hold, with a proof of `bytes`.
fn reference(recording: u64, bytes: &[u8]) -> Bytes {
    let at = Name { recording: RecordingId(recording), position: 0 };
    let mut head = Vec::new();
    Head { base: Vec::new(), tokens: vec![Token::Run { at, len: bytes.len() as u64 }] }
        .put(&mut head, false, None);
    let mut proof = [0; RUN_PROOF_BYTES];
    proof.copy_from_slice(&blake3::hash(bytes).as_bytes()[..RUN_PROOF_BYTES]);
    let envelope = Envelope {
        lane: Lane::Plain,
        commit: true,
        head_packed: false,
        head_reset: false,
        coding: Coding::None,
        head: &head,
        run_proof: Some(proof),
        rest: &[],
    };
    envelope.put(None, &[]).into()
}

const ALICES: u64 = 0x0a11_ce00;
const BOBS: u64 = 0x0b0b_0000;

/// Alice uploads her secret and leaves.
fn alice_uploads(bed: &Bed, secret: &[u8]) {
    let alice = Stranger::new(bed, "alice", hello_of(StoreId([1; 16]))).connected();
    let (sender, receiver) = alice.opened(bed.sink.address(), ALICES, "");
    alice.run(sender.send(Message::Data(plain(secret)))).unwrap();
    alice.run(sender.send(Message::Fin)).unwrap();
    let hash = *blake3::hash(secret).as_bytes();
    eventually("the sink has it", || bed.receipts.all().iter().any(|receipt| receipt.hash == hash));
    drop(receiver);
    drop(sender);
}

/// The next message that is about the reduction.
fn feedback(stranger: &Stranger, receiver: &mut Receiver) -> Feedback {
    match stranger.run(receiver.recv()).unwrap() {
        Message::Feedback(bytes) => Feedback::decode(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Bob refers to Alice's bytes, whose hash and name he knows: he is asked for them and gets nothing.
fn bob_learns_nothing(bed: &Bed, bob: &Stranger, secret: &[u8]) {
    let before = bed.sink.bytes();
    let (sender, mut receiver) = bob.opened(bed.sink.address(), BOBS, "");
    bob.run(sender.send(Message::Data(reference(ALICES, secret)))).unwrap();
    let asked = feedback(bob, &mut receiver);
    assert_eq!(asked, Feedback::Miss { position: 0, len: secret.len() as u32 });
    assert_eq!(bed.sink.bytes(), before, "nothing was delivered");
    // What he supplies instead has to match what he claimed.
    let forged = random(secret.len(), 99);
    let repair = Feedback::Repair { position: 0, len: secret.len() as u32, packed: false, data: forged };
    bob.run(sender.send(Message::Feedback(repair.encode()))).unwrap();
    let end = bob.run(async {
        loop {
            match receiver.recv().await {
                Ok(Message::Reset { reason }) => return reason,
                Ok(_) => {}
                Err(closed) => return closed.reason.expect("a reason"),
            }
        }
    });
    assert_eq!(end, Reason::ProofFailed);
    assert_eq!(bed.sink.bytes(), before, "nothing unproved was delivered");
}

#[test]
fn a_peer_that_refers_to_what_it_never_exchanged_gets_nothing() {
    let bed = Plan::new(MIB, 8).start();
    let secret = random(50_000, 9);
    alice_uploads(&bed, &secret);
    let bob = Stranger::new(&bed, "bob", hello_of(StoreId([2; 16]))).connected();
    bob_learns_nothing(&bed, &bob, &secret);
    bed.counts(Side::Server, "isthmus_reduction_misses_total", &[]);
    bed.counts(Side::Server, "isthmus_proof_failures_total", &[]);
    bed.counts(Side::Server, "isthmus_connections_total", &[("reason", "proof_failed")]);
    bed.logs(Side::Server, &["WARN", "do not match their proof"]);
    bed.is_optimised();
}

#[test]
fn a_peer_that_claims_anothers_store_does_not_come_by_its_content() {
    let bed = Plan::new(MIB, 10).start();
    let secret = random(50_000, 11);
    alice_uploads(&bed, &secret);
    // Alice has gone, and Bob says that his store is hers.
    let bob = Stranger::new(&bed, "bob", hello_of(StoreId([1; 16]))).connected();
    bob_learns_nothing(&bed, &bob, &secret);
    bed.is_optimised();
}

#[test]
fn content_is_not_referred_to_across_domains() {
    let bed = Plan::new(MIB, 12).start();
    let secret = random(50_000, 13);
    let alice = Stranger::new(&bed, "alice", hello_of(StoreId([1; 16]))).connected();
    let (sender, _receiver) = alice.opened(bed.sink.address(), ALICES, "label:finance");
    alice.run(sender.send(Message::Data(plain(&secret)))).unwrap();
    eventually("the sink has it", || bed.sink.bytes() == secret.len() as u64);
    let (sender, mut receiver) = alice.opened(bed.sink.address(), BOBS, "label:sales");
    alice.run(sender.send(Message::Data(reference(ALICES, &secret)))).unwrap();
    assert!(matches!(feedback(&alice, &mut receiver), Feedback::Miss { .. }));
    assert_eq!(bed.sink.bytes(), secret.len() as u64);
}

#[test]
fn sessions_full_of_nonsense_end_alone() {
    let bed = Plan::new(4 * MIB, 14).start();
    let mallory = Stranger::new(&bed, "mallory", hello_of(StoreId([3; 16]))).connected();
    let before = bed.sink.bytes();
    let (good, seed) = (plain(&random(4_000, 15)), fastrand::u64(..));
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    for round in 0..120 {
        let (sender, mut receiver) = mallory.opened(bed.sink.address(), chance.u64(..), "");
        let mut frame = good.to_vec();
        for _ in 0..chance.usize(1..6) {
            // Any change is noticed: by the form, or by the proof.
            let at = chance.usize(..frame.len());
            frame[at] ^= 1 << chance.u8(..8);
        }
        frame.truncate(chance.usize(1..=frame.len()));
        let message = match round % 3 {
            0 => Message::Feedback(random(1 + round as usize, chance.u64(..))),
            _ if frame[..] == good[..] => continue,
            _ => Message::Data(frame.into()),
        };
        // A session that is over already says so here.
        let _ = mallory.run(sender.send(message));
        let end = mallory.run(async {
            loop {
                match receiver.recv().await {
                    Ok(Message::Reset { reason }) => return reason,
                    Ok(_) => {}
                    Err(closed) => return closed.reason.expect("a reason"),
                }
            }
        });
        let expected = [Reason::PeerMisbehaved, Reason::ProofFailed];
        assert!(expected.contains(&end), "round {round}: {end:?}");
    }
    assert_eq!(bed.sink.bytes(), before, "nothing of it was delivered");
    assert!(bed.receipts.all().is_empty());
    bed.counts(Side::Server, "isthmus_connections_total", &[("reason", "peer_misbehaved")]);
    let next = bed.download();
    moves_again("an honest download after much nonsense", &next);
    next.join().unwrap();
    let (memory, _) = bed.memory(Side::Server);
    assert!(memory < 250 << 20, "{memory} bytes resident");
}

#[test]
fn a_target_beside_the_allow_list_cannot_be_talked_into() {
    let bed = Plan::new(MIB, 16).start();
    let mallory = Stranger::new(&bed, "mallory", hello_of(StoreId([3; 16]))).connected();
    let admin = bed.pair.end(Side::Server).admin();
    let ip = bed.sink.address().ip();
    let targets =
        [admin, SocketAddr::new(ip, 1), SocketAddr::from(([169, 254, 169, 254], 80)), bed.spec.server_listen];
    for target in targets {
        let (_sender, mut receiver) = mallory.open(target, 1, "");
        match mallory.run(receiver.recv()).unwrap() {
            Message::Failed { reason, .. } => assert_eq!(reason, Reason::TargetNotAllowed, "{target}"),
            other => panic!("{target}: {other:?}"),
        }
    }
    bed.counts(Side::Server, "isthmus_not_optimised_total", &[("reason", "target_not_allowed")]);
    bed.logs(Side::Server, &["WARN", "allow list"]);
}
