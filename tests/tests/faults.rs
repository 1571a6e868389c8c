//! What goes wrong with stores, processes, links, disks and clocks: never a wrong byte, moving again within seconds of
//! the fault's end, and a metric and a log line that say what happened.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_lab::pair::{Binaries, PairOptions};
use isthmus_lab::proc::{Proc, ProcSpec};
use isthmus_lab::wan::{Loss, WanShape};
use isthmus_lab::work::{SinkMode, sink_server, source_server};
use isthmus_lab::{Level, Network, WanLab};
use isthmus_tests::{
    Bed, Plan, SOURCE, Transfer, download, eventually, is_full, loopback, moves_again, programs, random,
    within,
};
use isthmus_types::Side;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: usize = 1 << 20;
const BOTH: [Side; 2] = [Side::Client, Side::Server];

/// What a warm transfer may cost on the WAN, in bytes: far below anything that is sent again.
const WARM: u64 = 300_000;

/// Passes in both directions after which everything has to be warm again.
const WARMING_PASSES_MAX: usize = 2;

/// How soon an application is told that its connection is lost.
const PROMPT: Duration = Duration::from_secs(5);

fn other(side: Side) -> Side {
    if side == Side::Client { Side::Server } else { Side::Client }
}

/// Both directions right after a fault; then both warm.
#[track_caller]
fn recovers(bed: &Bed, what: &str) {
    let first = bed.download();
    moves_again(what, &first);
    first.join().unwrap();
    bed.upload(&bed.content).join().unwrap();
    warm(bed);
}

/// What a fault cost in warmth is made good by what is sent next: a few transfers later, both directions are warm.
#[track_caller]
fn warm(bed: &Bed) {
    let mut costs = Vec::new();
    for _ in 0..WARMING_PASSES_MAX {
        let down = bed.wan_cost(|| bed.download().join().unwrap());
        let up = bed.wan_cost(|| bed.upload(&bed.content).join().unwrap());
        costs.push((down, up));
        if down < WARM && up < WARM {
            return println!("warm again: {costs:?}");
        }
    }
    panic!("not warm: {costs:?}");
}

fn identity(bed: &Bed, side: Side) -> String {
    let text = bed.pair.end(side).get("/api/store").unwrap().body;
    let store: serde_json::Value = serde_json::from_str(&text).unwrap();
    store["identity"].as_str().unwrap().to_owned()
}

fn wiped(side: Side) {
    let mut bed = Plan::new(16 * MIB, 1).start();
    bed.warm_up();
    let before = identity(&bed, side);
    bed.stop(side);
    bed.pair.end(side).remove_store().unwrap();
    bed.start(side);
    recovers(&bed, "a wiped store");
    assert_ne!(identity(&bed, side), before, "a wiped store is another store");
    bed.logs(other(side), &["peer", "store", "is another one than before"]);
}

#[test]
fn the_client_sides_store_is_wiped() {
    wiped(Side::Client);
}

#[test]
fn the_server_sides_store_is_wiped() {
    wiped(Side::Server);
}

fn rolled_back(side: Side) {
    let mut bed = Plan::new(16 * MIB, 2).start();
    bed.upload(&random(MIB, 3)).join().unwrap();
    eventually("the connection is over", || bed.open_connections() == 0);
    bed.stop(side);
    let saved = bed.pair.folder().join("saved");
    bed.save_store(side, &saved);
    bed.start(side);
    bed.warm_up();
    let before = identity(&bed, side);
    bed.stop(side);
    bed.roll_back(side, &saved);
    bed.start(side);
    assert_eq!(identity(&bed, side), before, "the peer takes it for the store that it knows");
    // The first transfer is one in which the peer refers to what the store has lost; the other way round, what is sent as new
    // would tell the peer so without a miss.
    let first = if side == Side::Client { bed.download() } else { bed.upload(&bed.content) };
    moves_again("a store that was rolled back", &first);
    first.join().unwrap();
    recovers(&bed, "a store that was rolled back");
    bed.counts(side, "isthmus_reduction_misses_total", &[]);
    bed.counts(other(side), "isthmus_reduction_repairs_total", &[]);
    bed.logs(side, &["store lacks what the peer refers to"]);
}

#[test]
fn the_client_sides_store_is_rolled_back() {
    rolled_back(Side::Client);
}

#[test]
fn the_server_sides_store_is_rolled_back() {
    rolled_back(Side::Server);
}

/// Kills a proxy in the middle of a download and starts it again at once.
fn killed(side: Side) {
    let mut bed = Plan::new(24 * MIB, 4).slow(40).start();
    let running = bed.download();
    running.reach(8 << 20);
    bed.kill(side);
    bed.hurry();
    bed.start(side);
    let before = running.bytes();
    let why = running.fails_within(PROMPT);
    assert!(why.contains("reset"), "a part must not look like the whole: {why}");
    // The other side has noticed the kill by now; until the link is up again, it would refuse a retry.
    bed.ready();
    let retry = bed.download();
    moves_again("a retry after a kill", &retry);
    let cost = bed.wan_cost(|| retry.join().unwrap());
    let all = bed.content.len() as u64;
    assert!(cost < all - before / 2, "{before} of {all} bytes had arrived, and the retry cost {cost}");
    bed.counts(other(side), "isthmus_connections_total", &[("reason", "resume_expired")]);
    bed.logs(other(side), &["WARN", "ended early"]);
    eventually("the far connection has been ended too", || bed.source.errors() == 1);
    warm(&bed);
}

#[test]
fn the_client_side_is_killed_in_mid_transfer() {
    killed(Side::Client);
}

#[test]
fn the_server_side_is_killed_in_mid_transfer() {
    killed(Side::Server);
}

/// A server must never take the part of an upload that came through for the whole.
fn killed_while_uploading(side: Side) {
    let mut bed = Plan::new(24 * MIB, 5).slow(40).start();
    let running = bed.upload(&bed.content);
    eventually("the sink gets something", || bed.sink.bytes() > 4 << 20);
    bed.kill(side);
    bed.hurry();
    bed.start(side);
    running.fails_within(PROMPT);
    eventually("the sink sees an error", || bed.sink.errors() == 1);
    assert!(bed.receipts.all().is_empty(), "half an upload was taken for a whole one");
    bed.ready();
    let retry = bed.upload(&bed.content);
    moves_again("an upload after a kill", &retry);
    retry.join().unwrap();
    warm(&bed);
}

#[test]
fn the_client_side_is_killed_in_mid_upload() {
    killed_while_uploading(Side::Client);
}

#[test]
fn the_server_side_is_killed_in_mid_upload() {
    killed_while_uploading(Side::Server);
}

#[test]
fn the_wan_is_cut_in_mid_transfer_and_both_connections_finish() {
    cut(false);
}

#[test]
fn the_wan_is_cut_and_forgets_its_connections_and_both_finish() {
    cut(true);
}

/// A cut after which the link is as before, or has forgotten the connections that crossed it.
fn cut(forgets: bool) {
    let seconds = if is_full() { 10 } else { 6 };
    let bed = Plan::new(24 * MIB, 6).slow(16).start();
    let upward = random(20 * MIB, 7);
    let (down, up) = (bed.download(), bed.upload(&upward));
    down.reach(2 << 20);
    bed.wan.cut(true);
    bed.hurry();
    std::thread::sleep(Duration::from_secs(seconds));
    assert!(!down.is_over() && !up.is_over(), "connections survive a cut");
    let uploaded = || bed.sink.bytes();
    let is_up = || bed.metric(Side::Client, "isthmus_peer_up", &[]) == 1.0;
    eventually("the cut is noticed", || !is_up());
    bed.logs(Side::Client, &["WARN", "peer is down", "no answer in time"]);
    let (before_down, before_up) = (down.bytes(), uploaded());
    if forgets {
        bed.wan.kill_connections();
    }
    bed.wan.cut(false);
    moves_again("a download after a cut", &down);
    eventually("the upload moves too", || uploaded() > before_up || up.is_over());
    assert!(before_down < bed.content.len() as u64);
    down.join().unwrap();
    up.join().unwrap();
    for side in BOTH.into_iter().filter(|_| forgets) {
        bed.counts(side, "isthmus_link_failures_total", &[]);
        bed.counts(side, "isthmus_resumes_total", &[]);
    }
    eventually("the peer is back", is_up);
    warm(&bed);
}

#[test]
fn links_that_are_killed_again_and_again_are_resumed() {
    let bed = Plan::new(24 * MIB, 8).slow(60).start();
    let (down, up) = (bed.download(), bed.upload(&random(16 * MIB, 9)));
    for kill in 1..=5_u64 {
        down.reach(kill * (2 << 20));
        bed.wan.kill_connections();
        moves_again("a download whose link was killed", &down);
    }
    bed.hurry();
    down.join().unwrap();
    up.join().unwrap();
    for side in BOTH {
        let resumes = bed.metric(side, "isthmus_resumes_total", &[]);
        assert!(resumes >= 5.0, "{side}: {resumes}");
    }
    bed.logs(Side::Client, &["WARN", "peer lost", "reset"]);
    warm(&bed);
}

#[test]
fn one_percent_of_all_packets_is_lost() {
    if let (false, _) | (_, Err(_)) = (is_full(), WanLab::available()) {
        println!(
            "skipped: a long test that needs root (ISTHMUS_FULL is not set, or there are no namespaces)"
        );
        return;
    }
    let mut shape = WanShape::symmetric(Duration::from_millis(20), Some(100_000_000));
    shape.up.loss = Loss::Independent { probability: 0.01 };
    shape.down.loss = Loss::Independent { probability: 0.01 };
    let mut network = Network::start(Level::Ip, shape).unwrap();
    let content = random(20 * MIB, 10);
    let (source_at, sink_at) = (network.new_server_address().unwrap(), network.new_server_address().unwrap());
    let _source = source_server(&network.server_place(), source_at, content.clone()).unwrap();
    let (_sink, _) = sink_server(&network.server_place(), sink_at, SinkMode::Hash).unwrap();
    let rig = network.start_pair(programs(), &[source_at, sink_at], &PairOptions::default()).unwrap();
    let (source, sink) = (rig.through(0).unwrap(), rig.through(1).unwrap());
    let other = random(20 * MIB, 11);
    let hash = *blake3::hash(&other).as_bytes();
    let client = rig.client_place();
    client.block_on(|| isthmus_lab::work::download(source, content.clone())).unwrap();
    client.block_on(|| isthmus_lab::work::upload(sink, other.clone(), Some(hash))).unwrap();
    client.block_on(|| isthmus_lab::work::download(source, content.clone())).unwrap();
}

/// Flips one bit in every so many bytes of every segment file of a store.
fn flip_bits(store: &Path, step: u64, first: u64) -> u64 {
    let mut flipped = 0;
    for entry in fs::read_dir(store.join("segments")).unwrap() {
        let path = entry.unwrap().path();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut at = first.min(len - 1);
        while at < len {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at).unwrap();
            flipped += 1;
            at += step;
        }
    }
    flipped
}

/// Small segments, so that most are sealed, and a cache that cannot hide the disk.
fn fragile(seed: u64) -> Bed {
    let mut plan = Plan::new(16 * MIB, seed).both("store.cache=1 MiB");
    // Room for everything twice: what was damaged stays until its segment is evicted.
    plan.options.store_size = "128 MiB".into();
    plan.start()
}

fn damaged_live(side: Side) {
    let bed = fragile(12);
    bed.warm_up();
    let flipped = flip_bits(&bed.pair.end(side).store_path(), 300_007, 5_000);
    assert!(flipped > 20, "{flipped}");
    recovers(&bed, "a store with flipped bits");
    bed.counts(side, "isthmus_store_quarantined_chunks", &[]);
    bed.logs(side, &["quarantined"]);
}

#[test]
fn bits_flip_in_the_client_sides_store_while_it_runs() {
    damaged_live(Side::Client);
}

#[test]
fn bits_flip_in_the_server_sides_store_while_it_runs() {
    damaged_live(Side::Server);
}

fn damaged_at_rest(side: Side) {
    let mut bed = fragile(13);
    bed.warm_up();
    // One bit a file, at the places of the header, of the content, and of what stands at the end.
    for (round, first) in [20_u64, 140, 300, 100_000, u64::MAX].into_iter().enumerate() {
        bed.stop(side);
        let flipped = flip_bits(&bed.pair.end(side).store_path(), u64::MAX / 2, first);
        assert!(flipped > 0);
        bed.start(side);
        let again = bed.download();
        moves_again(&format!("damage at rest, round {round}"), &again);
        again.join().unwrap();
        bed.upload(&bed.content).join().unwrap();
    }
    warm(&bed);
}

#[test]
fn bits_flip_in_the_client_sides_store_while_it_is_stopped() {
    damaged_at_rest(Side::Client);
}

#[test]
fn bits_flip_in_the_server_sides_store_while_it_is_stopped() {
    damaged_at_rest(Side::Server);
}

/// The disk has less free space than is to be kept: nothing is learned, everything is served.
fn disk_full(side: Side) {
    let assignment = "store.reserve=16384 GiB";
    let plan = Plan::new(12 * MIB, 14);
    let bed = if side == Side::Client { plan.client(assignment) } else { plan.server(assignment) }.start();
    for _ in 0..2 {
        bed.download().join().unwrap();
        bed.upload(&bed.content).join().unwrap();
    }
    let ended = std::time::Instant::now();
    eventually("the connections are over", || bed.open_connections() == 0);
    assert!(ended.elapsed() < within(Duration::from_secs(10)), "they lingered for {:?}", ended.elapsed());
    let learning = |side| bed.metric(side, "isthmus_store_learning", &[]);
    assert_eq!((learning(side), learning(other(side))), (0.0, 1.0));
    let summary = bed.pair.end(side).get("/api/summary").unwrap().body;
    assert!(summary.contains("takes in nothing new"), "no alarm: {summary}");
    bed.logs(side, &["WARN", "learn"]);
}

#[test]
fn the_client_sides_disk_is_full() {
    disk_full(Side::Client);
}

#[test]
fn the_server_sides_disk_is_full() {
    disk_full(Side::Server);
}

/// Programs of the pair that run with `setup` done before them, in a mount namespace of their own.
fn wrapped(folder: &Path, side: Side, setup: &str) -> Binaries {
    let mut binaries = programs().clone();
    let program = if side == Side::Client { &mut binaries.client } else { &mut binaries.server };
    let script = format!("#!/bin/sh\n{setup}\nexec {} \"$@\"\n", program.display());
    let path = folder.join(format!("{side}-wrapper"));
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    *program = path;
    binaries
}

#[test]
fn a_disk_that_really_fills_up_stops_learning_and_nothing_else() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: mounting a small file system needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The store's directory becomes a file system of 24 MiB, which is gone with the process.
    let inner = "store=$(dirname \"$3\")/store; mkdir -p \"$store\"";
    let mount = "if [ -z \"$INSIDE\" ]; then INSIDE=1 exec unshare -m \"$0\" \"$@\"; fi; \
                 mount -t tmpfs -o size=24m tmpfs \"$store\" || exit 1";
    let mut plan = Plan::new(16 * MIB, 15).client("store.reserve=0 B");
    plan.binaries = wrapped(folder.path(), Side::Client, &format!("{inner}\n{mount}"));
    let bed = plan.start();
    for seed in 0..3 {
        bed.download().join().unwrap();
        bed.upload(&random(10 * MIB, 100 + seed)).join().unwrap();
    }
    eventually("learning is off", || bed.metric(Side::Client, "isthmus_store_learning", &[]) == 0.0);
    assert_eq!(bed.metric(Side::Client, "isthmus_store_up", &[]), 1.0);
    bed.logs(Side::Client, &["ERROR", "stops learning and goes on serving"]);
    bed.download().join().unwrap();
}

fn wrong_key(side: Side) {
    let mut bed = Plan::new(8 * MIB, 16).passing().start();
    bed.warm_up();
    bed.stop(side);
    let mut key = bed.pair.end(side).store_path().into_os_string();
    key.push(".key");
    let key = PathBuf::from(key);
    let kept = key.with_extension("kept");
    fs::rename(&key, &kept).unwrap();
    isthmus_store::StoreKey::generate().unwrap().save_new(&key).unwrap();
    bed.pair.start_end(side).unwrap();
    bed.not_ready(side, "store_unavailable");
    bed.logs(side, &["ERROR", "the chunk store cannot be used", "key"]);
    assert_eq!(bed.metric(side, "isthmus_store_up", &[]), 0.0);
    if side == Side::Server {
        bed.pair.wait_ready(Duration::from_secs(1)).expect_err("the server side is not ready");
        eventually("the client side is linked", || {
            bed.pair.end(Side::Client).get("/readyz").is_ok_and(|a| a.status == 200)
        });
    }
    bed.passes_through("store_unavailable");
    bed.stop(side);
    fs::rename(&kept, &key).unwrap();
    bed.start(side);
    let back = bed.download();
    moves_again("a store whose key is back", &back);
    back.join().unwrap();
    warm(&bed);
}

#[test]
fn the_client_sides_store_key_is_another() {
    wrong_key(Side::Client);
}

#[test]
fn the_server_sides_store_key_is_another() {
    wrong_key(Side::Server);
}

/// A second client-side proxy with a copy of everything that the first has.
struct Clone {
    process: Proc,
    source: std::net::SocketAddr,
    admin: std::net::SocketAddr,
}

fn clone_client(bed: &Bed) -> Clone {
    let end = bed.pair.end(Side::Client);
    let folder = bed.pair.folder().join("clone");
    fs::create_dir_all(&folder).unwrap();
    bed.save_store(Side::Client, &folder.join("store"));
    let mut key = end.store_path().into_os_string();
    key.push(".key");
    fs::copy(key, folder.join("store.key")).unwrap();
    let (admin, source) = (loopback(), loopback());
    let mut text = fs::read_to_string(end.config_path()).unwrap();
    text = text.replace(&end.store_path().display().to_string(), &folder.join("store").display().to_string());
    text = text.replace(&end.admin().to_string(), &admin.to_string());
    for carried in &bed.spec.carried {
        let listen = if carried.listen == bed.through(SOURCE) { source } else { loopback() };
        text = text.replace(&carried.listen.to_string(), &listen.to_string());
    }
    let config = folder.join("client.toml");
    fs::write(&config, text).unwrap();
    let spec = ProcSpec::new("the clone", &programs().client, folder.join("log"))
        .args(["run", "--set", "peer.server_name=127.0.0.1", "--config"])
        .args([&config]);
    Clone { process: Proc::spawn(&spec).unwrap(), source, admin }
}

#[test]
fn a_copied_store_becomes_another_store_and_both_are_served() {
    let bed = Plan::new(8 * MIB, 17).start();
    bed.warm_up();
    let clone = clone_client(&bed);
    let ready = || isthmus_lab::http::get(&isthmus_lab::Place::Local, clone.admin, "/readyz");
    eventually("the clone is ready", || ready().is_ok_and(|answer| answer.status == 200));
    let own = isthmus_lab::http::get(&isthmus_lab::Place::Local, clone.admin, "/api/store").unwrap().body;
    assert!(!own.contains(&identity(&bed, Side::Client)), "the copy has the identity of the original: {own}");
    let transfers: Vec<Transfer> =
        [clone.source, bed.through(SOURCE)].map(|address| download(address, &bed.content)).into();
    transfers.into_iter().for_each(|transfer| transfer.join().unwrap());
    let log = fs::read_to_string(clone.process.log_path()).unwrap();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("identity")), "not told:\n{log}");
    warm(&bed);
}

#[test]
fn a_store_copied_to_the_other_side_becomes_another_store() {
    let mut bed = Plan::new(8 * MIB, 18).start();
    bed.warm_up();
    bed.stop(Side::Client);
    bed.stop(Side::Server);
    let (from, to) = (bed.pair.end(Side::Client).store_path(), bed.pair.end(Side::Server).store_path());
    let before = fs::read_to_string(from.join("identity")).unwrap();
    fs::remove_dir_all(&to).unwrap();
    bed.save_store(Side::Client, &to);
    let key = |path: &Path| PathBuf::from(format!("{}.key", path.display()));
    fs::copy(key(&from), key(&to)).unwrap();
    bed.start_both();
    assert_ne!(identity(&bed, Side::Client), identity(&bed, Side::Server));
    assert!(before.contains(&identity(&bed, Side::Client)), "the original keeps its identity");
    recovers(&bed, "a store that was copied to the other side");
}

/// The library that gives a program another clock.
fn faketime() -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    folders.iter().map(|folder| Path::new(folder).join("libfaketimeMT.so.1")).find(|path| path.exists())
}

#[test]
fn the_clock_is_set_back_an_hour() {
    let Some(library) = faketime() else {
        println!("skipped: the package faketime is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    fs::write(&clock, "+0\n").unwrap();
    let setup = format!(
        "export LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1",
        library.display(),
        clock.display()
    );
    let mut plan = Plan::new(16 * MIB, 19).slow(80);
    plan.binaries.client = wrapped(folder.path(), Side::Client, &setup).client;
    plan.binaries.server = wrapped(folder.path(), Side::Server, &setup).server;
    let mut bed = plan.start();
    let running = bed.download();
    running.reach(4 << 20);
    let hour = |bed: &Bed| {
        let log = bed.pair.end(Side::Client).log().unwrap();
        let stamp =
            log.lines().last().and_then(|line| line.split('T').nth(1)).map(|time| time[..2].to_owned());
        stamp.expect("a log line begins with the time")
    };
    let before = hour(&bed);
    fs::write(&clock, "-1h\n").unwrap();
    moves_again("a download while the clock is set back", &running);
    running.join().unwrap();
    // The clock is really another one: the next log line is of another hour.
    bed.wan.kill_connections();
    eventually("the log tells the new time", || hour(&bed) != before);
    bed.ready();
    recovers(&bed, "a clock that was set back");
    for side in BOTH {
        let metrics = bed.metrics(side);
        for sample in metrics.samples() {
            assert!(sample.value >= 0.0, "{side}: {} is {}", sample.name, sample.value);
        }
        for page in ["/api/summary", "/api/history?range=1h", "/api/connections", "/api/events"] {
            let answer = bed.pair.end(side).get(page).unwrap();
            assert!(answer.status == 200 || answer.status == 400, "{page}: {}", answer.status);
        }
    }
    // Certificates and stores were made in what is now the future.
    bed.stop(Side::Client);
    bed.stop(Side::Server);
    bed.start_both();
    recovers(&bed, "a start before the last one");
}

#[test]
fn the_connection_after_a_killed_link_is_as_good_as_any() {
    let rounds = if is_full() { 40 } else { 6 };
    // A connection that is just being opened when its link dies goes straight to its target.
    let mut plan = Plan::new(10 * MIB, 21).slow(150).passing();
    plan.options.log_level = "debug".into();
    let mut bed = plan.start();
    for round in 0..rounds {
        let content: Bytes = random(6 * MIB, 30 + round % 4);
        let transfers = [bed.download(), bed.download(), bed.upload(&content), bed.upload(&bed.content)];
        std::thread::sleep(Duration::from_millis(40 + 97 * (round % 7)));
        bed.wan.kill_connections();
        eventually("the link's death is noticed", || bed.metric(Side::Client, "isthmus_peer_up", &[]) == 0.0);
        bed.ready();
        let next = bed.download();
        moves_again("a download right after a kill", &next);
        next.join().unwrap();
        transfers.into_iter().for_each(|transfer| transfer.join().unwrap());
        let last = bed.download();
        moves_again("the download after that", &last);
        last.join().unwrap();
    }
}

/// Whether a proxy could not supply what its peer had lost, since it had lost it too.
fn cannot_repair(bed: &Bed) -> bool {
    BOTH.iter().any(|side| bed.pair.end(*side).log().unwrap().contains("cannot be read here either"))
}

#[test]
fn nothing_is_lost_when_everything_goes_wrong_at_once() {
    let rounds = if is_full() { 20 } else { 3 };
    // A process that is killed and comes back with another store cannot be told from another peer: what it had open at
    // the far side is ended when the window for its return is over.
    let plan = Plan::new(10 * MIB, 20).slow(150).passing().both("channels.resume_window=15s");
    let mut bed = plan.start();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut damaged = [false; 2];
    for round in 0..rounds {
        let content: Bytes = random(6 * MIB, chance.u64(..4));
        let transfers = [bed.download(), bed.download(), bed.upload(&content), bed.upload(&bed.content)];
        std::thread::sleep(Duration::from_millis(chance.u64(50..700)));
        let side = BOTH[chance.usize(..2)];
        let fault = chance.u32(..5);
        println!("round {round}: fault {fault} at the {side} proxy");
        match fault {
            0 => bed.wan.kill_connections(),
            1 => {
                bed.wan.cut(true);
                std::thread::sleep(Duration::from_millis(chance.u64(100..3_000)));
                bed.wan.cut(false);
            }
            2 => {
                bed.kill(side);
                bed.start(side);
            }
            3 => {
                bed.kill(side);
                bed.pair.end(side).remove_store().unwrap();
                damaged[side as usize] = false;
                bed.start(side);
            }
            _ => {
                flip_bits(&bed.pair.end(side).store_path(), 500_009, chance.u64(300..5_000));
                damaged[side as usize] = true;
            }
        }
        // A killed proxy takes its connections along, and so does damage to the same bytes in both stores while they are on
        // their way. Nothing else may, and wrong bytes panic.
        for transfer in transfers {
            let ended = transfer.join();
            let lost = || damaged == [true; 2] && cannot_repair(&bed);
            assert!(ended.is_ok() || fault == 2 || fault == 3 || lost(), "round {round}: {ended:?}");
        }
        let after = bed.download();
        moves_again("the next download", &after);
        after.join().unwrap();
    }
    eventually("everything is over", || bed.open_connections() == 0);
}
