//! A pair of real proxies on loopback, three servers behind it, and a WAN between the proxies that can be cut.

use crate::programs::programs;
use crate::time::{eventually, within};
use crate::transfer::{Transfer, download, random, upload};
use bytes::Bytes;
use isthmus_lab::Place;
use isthmus_lab::metrics::Metrics;
use isthmus_lab::pair::{Binaries, Carried, KeyOptions, Pair, PairOptions, PairSpec};
use isthmus_lab::wan::{RelayWan, WanShape};
use isthmus_lab::work::{Receipts, Service, SinkMode, echo_server, sink_server, source_server};
use isthmus_types::Side;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Number of the target that sends the bed's content.
pub const SOURCE: usize = 0;
/// Number of the target that receives.
pub const SINK: usize = 1;
/// Number of the target that sends back what it gets.
pub const ECHO: usize = 2;

/// First port that this process gives out; below the ports that the kernel gives to outgoing connections.
const PORT_FIRST: u16 = 12_000;

/// Lines of each log that a failed test shows.
const LOG_LINES_SHOWN: usize = 60;

/// Rate of a link that is told to hurry.
const HURRY_MBIT: u64 = 200;

static NEXT_PORT: AtomicU16 = AtomicU16::new(PORT_FIRST);

/// A loopback address that nothing else uses: tests run as several processes at once, so each process has an address
/// of its own in 127.0.0.0/8, on which it counts ports. Stays free while a proxy restarts.
pub fn loopback() -> SocketAddr {
    let pid = std::process::id();
    let ip = Ipv4Addr::new(127, 64 | (pid >> 16 & 63) as u8, (pid >> 8) as u8, (pid & 0xff) as u8);
    SocketAddr::from((ip, NEXT_PORT.fetch_add(1, Ordering::Relaxed)))
}

/// What a bed is to be like.
pub struct Plan {
    /// What the source sends.
    pub content: Bytes,
    /// The link between the proxies.
    pub shape: WanShape,
    /// Settings of both proxies.
    pub options: PairOptions,
    /// The programs.
    pub binaries: Binaries,
    /// Connections that the pair cannot carry go straight to their target; otherwise they are refused, so that no test
    /// takes a direct connection for an optimised one.
    pub passes: bool,
}

/// Two proxies, their servers, and the link.
pub struct Bed {
    /// The pair. First, so that it ends before its network.
    pub pair: Pair,
    /// The link between the proxies.
    pub wan: RelayWan,
    /// What the source sends.
    pub content: Bytes,
    /// Sends the content to whoever connects.
    pub source: Service,
    /// Takes bytes and gives a receipt.
    pub sink: Service,
    /// What the sink has received.
    pub receipts: Receipts,
    /// Sends back what it gets.
    pub echo: Service,
    /// What both proxies were told.
    pub spec: PairSpec,
}

impl Plan {
    /// Content of `len` incompressible bytes, a link as fast as the machine, small stores.
    pub fn new(len: usize, seed: u64) -> Plan {
        let options = PairOptions {
            store_size: "400 MiB".into(),
            client_set: vec!["peer.server_name=127.0.0.1".into()],
            server_set: Vec::new(),
            encryption: true,
            log_level: "info".into(),
            keys: None,
        };
        Plan {
            content: random(len, seed),
            shape: WanShape::open(),
            options,
            binaries: programs().clone(),
            passes: false,
        }
    }

    /// A link of so many Mbit/s and 20 ms, so that a transfer takes long enough for something to happen in its middle,
    /// also when this process stands still for a second. See [`Bed::hurry`].
    pub fn slow(mut self, mbit: u64) -> Plan {
        self.shape = slow(mbit);
        self
    }

    /// Lets connections that the pair cannot carry go straight to their target.
    pub fn passing(mut self) -> Plan {
        self.passes = true;
        self
    }

    /// Keys of SMB sessions for the server-side proxy.
    pub fn keys(mut self, keys: KeyOptions) -> Plan {
        self.options.keys = Some(keys);
        self
    }

    /// A setting of the client-side proxy.
    pub fn client(mut self, assignment: &str) -> Plan {
        self.options.client_set.push(assignment.into());
        self
    }

    /// A setting of the server-side proxy.
    pub fn server(mut self, assignment: &str) -> Plan {
        self.options.server_set.push(assignment.into());
        self
    }

    /// A setting of both proxies.
    pub fn both(self, assignment: &str) -> Plan {
        self.client(assignment).server(assignment)
    }

    /// Makes everything and starts no proxy yet.
    pub fn prepare(self) -> Bed {
        let local = Place::Local;
        let source = source_server(&local, loopback(), self.content.clone()).unwrap();
        let (sink, receipts) = sink_server(&local, loopback(), SinkMode::Hash).unwrap();
        let echo = echo_server(&local, loopback()).unwrap();
        let server_listen = loopback();
        let wan = RelayWan::start(loopback(), server_listen, self.shape).unwrap();
        let targets = [source.address(), sink.address(), echo.address()];
        let spec = PairSpec {
            binaries: self.binaries,
            client_place: Place::Local,
            server_place: Place::Local,
            server_listen,
            peer_address: wan.address(),
            client_admin: loopback(),
            server_admin: loopback(),
            carried: targets.into_iter().map(|target| Carried { listen: loopback(), target }).collect(),
            options: self.options,
        };
        let pair = Pair::prepare(&spec).unwrap();
        let bed = Bed { pair, wan, content: self.content, source, sink, receipts, echo, spec };
        if self.passes {
            bed.edit(Side::Client, |text| text.replace("\"refuse\"", "\"pass-through\""));
        }
        bed
    }

    /// Makes everything, starts both proxies and waits until they are ready.
    pub fn start(self) -> Bed {
        let mut bed = self.prepare();
        bed.start_both();
        bed
    }
}

impl Bed {
    /// Starts both proxies and waits until they are ready.
    pub fn start_both(&mut self) {
        self.pair.start_end(Side::Server).unwrap();
        self.pair.start_end(Side::Client).unwrap();
        self.ready();
    }

    /// Waits until both proxies are ready.
    #[track_caller]
    pub fn ready(&mut self) {
        self.pair.wait_ready(within(Duration::from_secs(30))).unwrap();
    }

    /// From now on the link is fast, if not as fast as the machine: what was to happen in mid-transfer has happened.
    pub fn hurry(&self) {
        self.wan.set_shape(slow(HURRY_MBIT));
    }

    /// Starts a proxy that was stopped or killed, and waits until both are ready.
    #[track_caller]
    pub fn start(&mut self, side: Side) {
        self.pair.start_end(side).unwrap();
        self.ready();
    }

    /// Stops a proxy in good order.
    pub fn stop(&mut self, side: Side) {
        self.pair.end_mut(side).stop().unwrap();
    }

    /// Kills a proxy with SIGKILL.
    pub fn kill(&mut self, side: Side) {
        self.pair.end_mut(side).kill9().unwrap();
    }

    /// Rewrites a proxy's configuration file; it is read at the next start.
    pub fn edit(&self, side: Side, change: impl FnOnce(String) -> String) {
        let path = self.pair.end(side).config_path();
        let text = fs::read_to_string(&path).unwrap();
        let changed = change(text.clone());
        assert_ne!(text, changed, "the configuration has nothing to change");
        fs::write(path, changed).unwrap();
    }

    /// Where clients connect to reach a target through the pair.
    pub fn through(&self, target: usize) -> SocketAddr {
        self.spec.carried[target].listen
    }

    /// Starts a download of the bed's content through the pair.
    pub fn download(&self) -> Transfer {
        download(self.through(SOURCE), &self.content)
    }

    /// Starts an upload through the pair.
    pub fn upload(&self, content: &Bytes) -> Transfer {
        upload(self.through(SINK), content)
    }

    /// Moves the content in both directions and checks every byte: afterwards both stores know it.
    #[track_caller]
    pub fn warm_up(&self) {
        self.download().join().unwrap();
        self.upload(&self.content).join().unwrap();
        eventually("the connections are over", || self.open_connections() == 0);
        // What was learned is on disk soon after, which matters to tests that kill or copy.
        std::thread::sleep(Duration::from_millis(600));
    }

    /// Bytes that have crossed between the proxies.
    pub fn wan_bytes(&self) -> u64 {
        self.wan.bytes_up() + self.wan.bytes_down()
    }

    /// Bytes that crossed between the proxies during `work`.
    pub fn wan_cost<T>(&self, work: impl FnOnce() -> T) -> u64 {
        let before = self.wan_bytes();
        work();
        self.wan_bytes() - before
    }

    /// A proxy's metrics.
    pub fn metrics(&self, side: Side) -> Metrics {
        self.pair.end(side).metrics().unwrap()
    }

    /// A metric, summed over all samples that have these labels.
    pub fn metric(&self, side: Side, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics(side).sum(name, labels)
    }

    /// Waits until a metric is at least 1.
    #[track_caller]
    pub fn counts(&self, side: Side, name: &str, labels: &[(&str, &str)]) {
        eventually(&format!("{name}{labels:?} of the {side} proxy"), || {
            self.metric(side, name, labels) >= 1.0
        });
    }

    /// Connections that the client-side proxy has open.
    pub fn open_connections(&self) -> u64 {
        [Side::Client, Side::Server]
            .into_iter()
            .filter_map(|side| self.pair.end(side).metrics().ok())
            .map(|metrics| metrics.sum("isthmus_connections", &[]) as u64)
            .sum()
    }

    /// Waits until a line of a proxy's log holds all of these.
    #[track_caller]
    pub fn logs(&self, side: Side, parts: &[&str]) {
        eventually(&format!("{parts:?} in the log of the {side} proxy"), || {
            let log = self.pair.end(side).log().unwrap();
            log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        });
    }

    /// Waits until a proxy says that it is not ready, for this reason.
    #[track_caller]
    pub fn not_ready(&self, side: Side, reason: &str) {
        eventually(&format!("{reason} in /readyz of the {side} proxy"), || {
            let answer = self.pair.end(side).get("/readyz");
            answer.is_ok_and(|answer| answer.status == 503 && answer.body.contains(&format!("{reason:?}")))
        });
    }

    /// Downloads the content while the pair cannot carry it: it has to pass through, for this reason.
    #[track_caller]
    pub fn passes_through(&self, reason: &str) {
        let labels = [("reason", reason)];
        let before = self.metric(Side::Client, "isthmus_not_optimised_total", &labels);
        self.download().join().unwrap();
        let after = self.metric(Side::Client, "isthmus_not_optimised_total", &labels);
        assert!(
            after > before,
            "not passed through for {reason}; log:\n{}",
            self.pair.end(Side::Client).log_tail()
        );
    }

    /// Downloads the content, which has to be optimised.
    #[track_caller]
    pub fn is_optimised(&self) {
        let optimised = || self.metric(Side::Client, "isthmus_lan_bytes_total", &[]);
        let before = optimised();
        self.download().join().unwrap();
        eventually("its bytes are counted", || optimised() >= before + self.content.len() as f64);
    }

    /// Copies a store's files aside.
    pub fn save_store(&self, side: Side, to: &Path) {
        self.pair.end(side).save_store(to).unwrap();
    }

    /// Puts saved files in the place of a store's present ones, in the same directory: as a snapshot of the whole
    /// machine does, and unlike a copy of the directory, which would count as a clone.
    pub fn roll_back(&self, side: Side, from: &Path) {
        let store = self.pair.end(side).store_path();
        for entry in fs::read_dir(&store).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        copy(from, &store);
    }

    /// A proxy's resident memory, in bytes: now, and at most so far.
    pub fn memory(&self, side: Side) -> (u64, u64) {
        let usage = self.pair.end(side).usage().unwrap();
        (usage.rss_bytes, usage.rss_peak_bytes)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for side in [Side::Client, Side::Server] {
                let log = self.pair.end(side).log().unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                let open = self.pair.end(side).get("/api/connections");
                println!(
                    "connections of the {side} proxy: {}",
                    open.map(|answer| answer.body).unwrap_or_default()
                );
                println!("log of the {side} proxy:\n{}", tail.join("\n"));
            }
        }
    }
}

fn slow(mbit: u64) -> WanShape {
    WanShape::symmetric(Duration::from_millis(20), Some(mbit * 1_000_000))
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
