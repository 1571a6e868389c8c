//! The test bench with a pair whose figures are known: it relays and counts, and reduces nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_lab::corpus::{many_small_files, random_bytes};
use isthmus_lab::pair::{Binaries, PairOptions};
use isthmus_lab::proc::wait_until;
use isthmus_lab::scenario::{self, Client, Phase, Scenario, Session, Work};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{SinkMode, download, sink_server, source_server, upload};
use isthmus_lab::{LabError, Level, Network, Scratch};
use isthmus_types::Side;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// Programs that stand in for the proxies.
fn plain(scratch: &Scratch) -> Binaries {
    let script = format!("#!/bin/sh\nshift\nexec {} plain-proxy \"$@\"\n", env!("CARGO_BIN_EXE_isthmus-lab"));
    for name in ["isthmus-client", "isthmus-server"] {
        let path = scratch.write(name, &script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Binaries::in_folder(scratch.path()).unwrap()
}

fn levels() -> Vec<Level> {
    if Level::best() == Level::Relay {
        println!("IP level skipped: {}", isthmus_lab::WanLab::available().unwrap_err());
        return vec![Level::Loopback, Level::Relay];
    }
    vec![Level::Loopback, Level::Relay, Level::Ip]
}

#[test]
fn a_pair_that_reduces_nothing_shows_as_many_wan_bytes_as_lan_bytes() {
    let scratch = Scratch::new("test").unwrap();
    let binaries = plain(&scratch);
    for level in levels() {
        let shape = WanShape::symmetric(Duration::from_millis(4), Some(200_000_000));
        let mut network = Network::start(level, shape).unwrap();
        let (sink_at, source_at) =
            (network.new_server_address().unwrap(), network.new_server_address().unwrap());
        let content = Bytes::from(random_bytes(2_000_000, 1));
        let (_sink, receipts) = sink_server(&network.server_place(), sink_at, SinkMode::Hash).unwrap();
        let _source = source_server(&network.server_place(), source_at, content.clone()).unwrap();
        let client = network.client_place();
        let direct_at = network.direct(source_at).unwrap();
        client.block_on(|| download(direct_at, content.clone())).unwrap();
        let rig = network.start_pair(&binaries, &[sink_at, source_at], &PairOptions::default()).unwrap();

        let hash = *blake3::hash(&content).as_bytes();
        let (sink, source) = (rig.through(0).unwrap(), rig.through(1).unwrap());
        let put = || client.block_on(|| upload(sink, content.clone(), Some(hash)));
        let (transfer, up) = rig.measure(put).unwrap();
        // The receipt is 40 bytes; a line names the target.
        assert_eq!(up.lan_bytes, 2_000_040, "{level:?}");
        assert!((2_000_050..2_000_080).contains(&up.wan_bytes), "{level:?} {}", up.wan_bytes);
        assert!(up.client.cpu_seconds >= 0.0 && up.server.rss_peak_bytes > 0);
        assert!(up.seconds >= transfer.seconds);
        assert_eq!(receipts.all().len(), 1);

        let (_, down) = rig.measure(|| client.block_on(|| download(source, content.clone()))).unwrap();
        assert_eq!(down.lan_bytes, 2_000_000, "{level:?}");
        let seen = down.emulator_bytes;
        match level {
            Level::Loopback => assert_eq!(seen, 0),
            Level::Relay => assert!((2_000_000..2_000_080).contains(&seen), "{seen}"),
            Level::Ip => assert!((2_050_000..2_400_000).contains(&seen), "{seen}"),
        }
        assert!(rig.through(2).is_err());
    }
}

#[test]
fn proxies_are_killed_restarted_and_cut_off() {
    let scratch = Scratch::new("test").unwrap();
    let binaries = plain(&scratch);
    let mut network = Network::start(Level::Relay, WanShape::open()).unwrap();
    let source_at = network.new_server_address().unwrap();
    let content = Bytes::from(random_bytes(500_000, 2));
    let _source = source_server(&network.server_place(), source_at, content.clone()).unwrap();
    let mut rig = network.start_pair(&binaries, &[source_at], &PairOptions::default()).unwrap();
    let (client, address) = (rig.client_place(), rig.through(0).unwrap());
    let get = || client.block_on(|| download(address, content.clone()));
    get().unwrap();
    rig.pair.end_mut(Side::Server).kill9().unwrap();
    assert!(rig.pair.end(Side::Server).usage().is_err());
    assert!(get().is_err(), "no server-side proxy, no download");
    rig.pair.wipe_store(Side::Server).unwrap();
    get().unwrap();
    rig.pair.restart(Side::Client).unwrap();
    get().unwrap();

    rig.network.cut(true);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            get().unwrap();
            is_done.store(true, std::sync::atomic::Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!is_done.load(std::sync::atomic::Ordering::Acquire), "the link is cut");
        rig.network.cut(false);
    });
    let relay = rig.network.pair_relay().unwrap();
    wait_until("the counts", Duration::from_secs(5), || Ok(relay.bytes_down() >= 4 * 500_000)).unwrap();
}

#[test]
fn a_program_that_fails_is_told_with_its_output() {
    let scratch = Scratch::new("test").unwrap();
    for name in ["isthmus-client", "isthmus-server"] {
        let path = scratch.write(name, "#!/bin/sh\necho \"no such key: peer.adress\"\nexit 64\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let binaries = Binaries::in_folder(scratch.path()).unwrap();
    let mut network = Network::start(Level::Loopback, WanShape::open()).unwrap();
    let target = network.new_server_address().unwrap();
    let error = network.start_pair(&binaries, &[target], &PairOptions::default()).err().unwrap().to_string();
    assert!(error.contains("no such key") && error.contains("64"), "{error}");
}

#[test]
fn a_scenario_makes_all_passes_and_compares_every_file() {
    let scratch = Scratch::new("test").unwrap();
    let binaries = plain(&scratch);
    let files = many_small_files(12, 5);
    for (work, session) in [(Work::Download, Session::Signed), (Work::Upload, Session::Unsigned)] {
        let scenario = Scenario {
            name: "small files".into(),
            shape: WanShape::symmetric(Duration::from_millis(1), None),
            level: Level::best(),
            client: Client::Smbclient,
            session,
            work,
            phases: Phase::ALL.to_vec(),
        };
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
        let mut told = Vec::new();
        let options = PairOptions::default();
        let passes =
            scenario::run(&scenario, &files, &binaries, &options, &mut |phase| told.push(phase.to_string()));
        let passes = match passes {
            Err(reason @ LabError::Unavailable { .. }) => return println!("skipped: {reason}"),
            other => other.unwrap(),
        };
        assert_eq!(told, ["baseline", "cold", "warm"]);
        assert_eq!(passes.len(), 3);
        let total: u64 = files.iter().map(|file| file.content.len() as u64).sum();
        for pass in &passes {
            assert_eq!(pass.file_bytes, total);
            assert!(pass.measured.emulator_bytes > total, "{pass:?}");
        }
        assert!(passes[1].measured.wan_bytes >= passes[1].measured.lan_bytes);
    }
}
