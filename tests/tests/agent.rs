//! Laptops: from the invitation over policies, failover and locations to the revocation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_certs::{Authority, IssueRequest, Role, Validity};
use isthmus_lab::proc::{run, usage_of, wakeups_of};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{Service, SinkMode, sink_server, source_server};
use isthmus_lab::{Place, WanLab, http};
use isthmus_tests::{download, eventually, is_full, loopback, moves_again, programs, random, upload, within};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server side that keeps a fleet, with a file server behind it.
struct Site {
    dir: tempfile::TempDir,
    /// Where laptops run, and where the server side does.
    laptops: Place,
    place: Place,
    /// Certificate name, address and admin port of each server-side proxy. The first keeps the fleet.
    servers: Vec<(SocketAddr, SocketAddr)>,
    running: Vec<Option<Running>>,
    source: Service,
    content: Bytes,
}

impl Site {
    /// With so many server-side proxies, all started.
    fn new(servers: usize, seed: u64) -> Site {
        let mut site = Site::empty(seed, Place::Local, Place::Local, loopback());
        for index in 0..servers {
            site.add_server(index, loopback(), loopback());
        }
        site
    }

    /// With a file server at `target`, and no proxy yet.
    fn empty(seed: u64, laptops: Place, place: Place, target: SocketAddr) -> Site {
        let dir = tempfile::tempdir().unwrap();
        Authority::init(&dir.path().join("ca"), "Test CA", 100).unwrap();
        let content = random(2 * MIB, seed);
        let source = source_server(&place, target, content.clone()).unwrap();
        Site { dir, laptops, place, servers: Vec::new(), running: Vec::new(), source, content }
    }

    /// Makes a server-side proxy, and starts it. The first keeps the fleet.
    fn add_server(&mut self, index: usize, listen: SocketAddr, admin: SocketAddr) {
        let name = format!("dc{index}");
        let authority = Authority::open(&self.path("ca")).unwrap();
        let folder = self.path(&name);
        let request = IssueRequest {
            role: Role::ServerSide,
            name: name.clone(),
            dns: vec![],
            ip: vec![listen.ip()],
            validity: Validity::Days(9),
        };
        authority.issue(&request, &folder).unwrap();
        fs::copy(authority.crl(), folder.join("crl.pem")).unwrap();
        let fleet = if index == 0 { "[fleet]\nca = \"../ca\"\npath = \"fleet\"\n" } else { "" };
        let target = self.source.address();
        let text = format!(
            "[listen]\naddress = \"{listen}\"\n[tls]\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n\
             ca = \"ca.pem\"\ncrl = \"crl.pem\"\n{fleet}[[allow]]\ndestination = [\"{}\"]\nports = [\"1-65535\"]\n\
             [store]\npath = \"store\"\nsize = \"64 MiB\"\n[admin]\nlisten = \"{admin}\"\n",
            target.ip(),
        );
        fs::write(folder.join("server.toml"), text).unwrap();
        self.servers.push((listen, admin));
        self.running.push(None);
        self.start(index);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, index: usize) {
        let folder = self.path(&format!("dc{index}"));
        let child = spawn(&self.place, &programs().server, &["run", "--config", "server.toml"], &folder);
        self.running[index] = Some(child);
        let admin = self.servers[index].1;
        eventually("the server-side proxy is ready", || {
            http::get(&self.place, admin, "/readyz").is_ok_and(|answer| answer.status == 200)
        });
    }

    /// Runs a command of the server side.
    fn server(&self, args: &[&str]) -> Output {
        let mut command = in_place(&self.place, &programs().server);
        command.args(args).args(["--config", "dc0/server.toml"]).current_dir(self.dir.path());
        command.output().unwrap()
    }

    /// Issues a policy with one rule and these further lines.
    fn set_policy(&self, listen: SocketAddr, more: &str) {
        let backups: Vec<String> =
            self.servers.iter().skip(1).map(|(address, _)| format!("{:?}", address.to_string())).collect();
        let text = format!(
            "[peer]\naddress = \"{}\"\nbackups = [{}]\n[[rule]]\nlisten = \"{listen}\"\nserver = \"{}\"\n\
             [store]\nsize = \"64 MiB\"\n{more}",
            self.servers[0].0,
            backups.join(", "),
            self.source.address()
        );
        fs::write(self.path("policy.toml"), text).unwrap();
        good(&self.server(&["fleet", "set-policy", "policy.toml"]));
    }

    fn token(&self, name: &str) -> String {
        good(&self.server(&["enroll", "create", "--name", name, "--ttl", "1h"])).trim().to_owned()
    }

    fn enrol(&self, token: &str, state: &str) -> Output {
        let mut command = in_place(&self.laptops, &programs().client);
        let server = self.servers[0].0.to_string();
        command.args(["agent", "enroll", "--token", token, "--server", &server, "--state", state]);
        command.current_dir(self.dir.path()).output().unwrap()
    }

    fn agent(&self, state: &str, admin: SocketAddr) -> Running {
        let args = ["agent", "--state", state, "--admin", &admin.to_string()];
        spawn(&self.laptops, &programs().client, &args, self.dir.path())
    }

    /// Starts a branch gateway that answers probes, and waits until it is ready.
    fn gateway(
        &self,
        name: &str,
        place: &Place,
        probes: SocketAddr,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Running {
        let authority = Authority::open(&self.path("ca")).unwrap();
        let request = IssueRequest {
            role: Role::ClientSide,
            name: name.into(),
            dns: vec![],
            ip: vec![],
            validity: Validity::Days(9),
        };
        let folder = self.path(name);
        authority.issue(&request, &folder).unwrap();
        let text = format!(
            "[peer]\naddress = \"{}\"\n[tls]\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\nca = \"ca.pem\"\n\
             [[rule]]\nlisten = \"{listen}\"\nserver = \"{}\"\n[location]\nanswer = \"{probes}\"\n\
             [store]\npath = \"store\"\nsize = \"64 MiB\"\n[admin]\nlisten = \"{admin}\"\n",
            self.servers[0].0,
            self.source.address()
        );
        fs::write(folder.join("client.toml"), text).unwrap();
        let child = spawn(place, &programs().client, &["run", "--config", "client.toml"], &folder);
        eventually("the gateway is ready", || {
            http::get(place, admin, "/readyz").is_ok_and(|answer| answer.status == 200)
        });
        child
    }

    /// What `fleet --json` says of one member.
    fn member(&self, name: &str) -> Value {
        let all: Value =
            serde_json::from_str(&good(&self.server(&["fleet", "--json"]))).expect("fleet gives JSON");
        all["members"]
            .as_array()
            .unwrap()
            .iter()
            .find(|member| member["name"] == name)
            .cloned()
            .unwrap_or_default()
    }

    /// Downloads through the agent; gives the metric's growth meanwhile.
    #[track_caller]
    fn carried(&self, listen: SocketAddr, admin: SocketAddr, metric: &str, labels: &[(&str, &str)]) -> f64 {
        let count = || {
            let text = http::get(&Place::Local, admin, "/metrics").unwrap().body;
            isthmus_lab::metrics::Metrics::parse(&text).unwrap().sum(metric, labels)
        };
        let before = count();
        download(listen, &self.content).join().unwrap();
        eventually("the transfer is counted", || {
            let value = summary(admin)["connections"]["open"].as_u64();
            value == Some(0)
        });
        count() - before
    }
}

fn in_place(place: &Place, program: &Path) -> Command {
    let prefix = place.command_prefix();
    let Some((first, rest)) = prefix.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

fn spawn(place: &Place, program: &Path, args: &[&str], folder: &Path) -> Running {
    let mut command = in_place(place, program);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    Running(command.spawn().unwrap())
}

#[track_caller]
fn good(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn bad(output: &Output, status: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(words), "{said}");
}

fn summary(admin: SocketAddr) -> Value {
    let answer = http::get(&Place::Local, admin, "/api/summary");
    answer.ok().and_then(|answer| serde_json::from_str(&answer.body).ok()).unwrap_or_default()
}

fn is_ready(admin: SocketAddr) -> bool {
    http::get(&Place::Local, admin, "/readyz").is_ok_and(|answer| answer.status == 200)
}

#[test]
fn a_laptop_enrols_follows_its_policy_and_is_revoked() {
    let site = Site::new(1, 71);
    let (first, second, admin) = (loopback(), loopback(), loopback());
    bad(&site.server(&["enroll", "create", "--name", "laptop-1"]), 64, "no policy");
    site.set_policy(first, "");
    let token = site.token("laptop-1");
    good(&site.enrol(&token, "laptop"));
    let mode = |file: &str| fs::metadata(site.path(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("laptop"), mode("laptop/agent.key")), (0o700, 0o600));
    bad(&site.enrol(&token, "laptop"), 73, "already");
    bad(&site.enrol(&token, "thief"), 77, "not valid");

    let mut agent = site.agent("laptop", admin);
    eventually("the agent is ready", || is_ready(admin));
    assert!(site.carried(first, admin, "isthmus_lan_bytes_total", &[]) >= 2e6, "it is optimised");
    eventually("the server side knows it", || {
        let member = site.member("laptop-1");
        member["state"] == "connected" && member["policy_version"] == 1
    });

    // A connection that is open when the policy changes goes on.
    let held = download(first, &site.content);
    held.hold(true);
    site.set_policy(second, "");
    // The agent asks once a minute; when it starts it asks at once.
    held.hold(false);
    held.join().unwrap();
    drop(agent);
    agent = site.agent("laptop", admin);
    eventually("the new policy is in force", || summary(admin)["agent"]["policy_version"] == 2);
    eventually("the agent is ready", || is_ready(admin));
    eventually("the old listener is closed", || std::net::TcpStream::connect(first).is_err());
    assert!(site.carried(second, admin, "isthmus_lan_bytes_total", &[]) >= 2e6);

    let cut = download(second, &site.content);
    cut.reach(1);
    cut.hold(true);
    good(&site.server(&["fleet", "revoke", "laptop-1"]));
    eventually("the agent ends", || agent.0.try_wait().unwrap().is_some());
    assert_eq!(agent.0.wait().unwrap().code(), Some(77));
    cut.hold(false);
    drop(cut.join());
    for gone in ["store", "store.key", "agent.key", "agent.pem", "policy.json"] {
        assert!(!site.path("laptop").join(gone).exists(), "{gone} is still there");
    }
    let member = site.member("laptop-1");
    assert_eq!(member["state"], "revoked", "{member}");
    bad(&site.enrol(&token, "again"), 77, "not valid");
    good(&site.enrol(&site.token("laptop-1"), "again"));
}

#[test]
fn nobody_enrols_with_a_server_that_the_token_does_not_name() {
    let (site, other) = (Site::new(1, 72), Site::new(1, 73));
    site.set_policy(loopback(), "");
    other.set_policy(loopback(), "");
    let token = other.token("laptop-1");
    bad(&site.enrol(&token, "laptop"), 69, "not issued by our CA");
    good(&other.enrol(&token, "laptop"));
    let mut slip = token.clone();
    slip.replace_range(0..1, if token.starts_with('A') { "B" } else { "A" });
    bad(&site.enrol(&slip, "other"), 64, "mistyped");
    bad(&site.server(&["enroll", "create", "--name", "a/b"]), 64, "cannot be used");
    fs::write(site.path("bad.toml"), "[tls]\nca = \"x\"\n[peer]\naddress = \"x\"\n").unwrap();
    bad(&site.server(&["fleet", "set-policy", "bad.toml"]), 64, "bad.toml:1: tls");
    bad(&site.server(&["fleet", "revoke", "nobody"]), 64, "nobody");
}

#[test]
fn a_laptop_starts_offline_with_the_policy_it_has_and_refuses_a_forged_one() {
    let mut site = Site::new(1, 74);
    let (listen, admin) = (loopback(), loopback());
    site.set_policy(listen, "");
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    site.running[0] = None;
    let agent = site.agent("laptop", admin);
    eventually("the agent answers", || summary(admin)["agent"]["policy_version"] == 1);
    let passed =
        site.carried(listen, admin, "isthmus_not_optimised_total", &[("reason", "store_unavailable")]);
    assert!(passed >= 1.0, "without the server side connections go straight");
    drop(agent);
    let file = site.path("laptop/policy.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("64 MiB", "65 MiB")).unwrap();
    let mut command = Command::new(&programs().client);
    let output = command.args(["agent", "--state", "laptop"]).current_dir(site.dir.path()).output().unwrap();
    bad(&output, 64, "not signed");
}

#[test]
fn new_connections_go_to_the_next_server_side_while_the_first_is_away() {
    let mut site = Site::new(2, 75);
    let (listen, admin) = (loopback(), loopback());
    site.set_policy(listen, "");
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    let _agent = site.agent("laptop", admin);
    eventually("the agent is ready", || is_ready(admin));
    let through = |peer: &str| site.carried(listen, admin, "isthmus_lan_bytes_total", &[("peer", peer)]);
    assert!(through("dc0") >= 2e6);
    site.running[0] = None;
    eventually("the next one is up", || {
        let peers = http::get(&Place::Local, admin, "/api/peers");
        peers.is_ok_and(|answer| answer.body.contains("\"dc1\"")) && is_ready(admin)
    });
    let through = |peer: &str| site.carried(listen, admin, "isthmus_lan_bytes_total", &[("peer", peer)]);
    assert!(through("dc1") >= 2e6);
}

#[test]
fn exactly_one_of_laptop_and_gateway_optimises() {
    let site = Site::new(1, 76);
    let (listen, admin) = (loopback(), loopback());
    let (probes, gateway_listen, gateway_admin) = (loopback(), loopback(), loopback());
    site.set_policy(listen, &format!("[location]\ngateways = [\"branch-7@{probes}\"]\n"));
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    let _agent = site.agent("laptop", admin);
    let at = |place: &str| eventually(place, || summary(admin)["location"]["location"] == place);
    eventually("the agent is ready", || is_ready(admin));
    at("remote");
    assert!(site.carried(listen, admin, "isthmus_lan_bytes_total", &[]) >= 2e6);

    // A stranger that answers in the gateway's place is not believed; the gateway itself is.
    let gateway = |name: &str| site.gateway(name, &Place::Local, probes, gateway_listen, gateway_admin);
    let stranger = gateway("branch-8");
    std::thread::sleep(Duration::from_secs(3));
    at("remote");
    drop(stranger);
    let real = gateway("branch-7");
    at("branch");
    let passed = site.carried(listen, admin, "isthmus_not_optimised_total", &[("reason", "branch_gateway")]);
    assert!(passed >= 1.0);
    assert_eq!(site.carried(listen, admin, "isthmus_lan_bytes_total", &[]), 0.0, "the gateway's work");
    drop(real);
    at("remote");
    assert!(site.carried(listen, admin, "isthmus_lan_bytes_total", &[]) >= 2e6);
}

/// What wakes a laptop up again and again empties its battery. The bound is generous; `cargo xtask bench --only idle` measures.
/// Wake-ups a second, and resident bytes, of a laptop that has carried something and then has nothing to do.
fn idle() -> (f64, u64) {
    let site = Site::new(1, 79);
    let (listen, admin, silent) = (loopback(), loopback(), loopback());
    // The gateway is silent: its port is taken by somebody who says nothing.
    let _gateway = std::net::UdpSocket::bind(silent).unwrap();
    site.set_policy(listen, &format!("[location]\ngateways = [\"branch-7@{silent}\"]\n"));
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    let agent = site.agent("laptop", admin);
    eventually("the agent is ready", || is_ready(admin));
    download(listen, &site.content).join().unwrap();
    std::thread::sleep(Duration::from_secs(10));
    let count = || wakeups_of(agent.0.id()).unwrap();
    let (before, time) = (count(), Duration::from_secs(if is_full() { 60 } else { 20 }));
    std::thread::sleep(time);
    let rate = (count() - before) as f64 / time.as_secs_f64();
    let rss = usage_of(agent.0.id()).unwrap().rss_bytes;
    println!("{rate:.2} wake-ups a second, {rss} bytes resident");
    (rate, rss)
}

#[test]
fn an_idle_laptop_takes_little_memory() {
    let (_, rss) = idle();
    assert!(rss <= 64 << 20, "{rss} bytes resident");
}

#[test]
fn an_idle_laptop_sleeps() {
    let (rate, _) = idle();
    assert!(rate <= 3.0, "{rate} wake-ups a second");
}

#[test]
fn near_the_file_server_nothing_is_optimised() {
    let site = Site::new(1, 77);
    let (listen, admin) = (loopback(), loopback());
    let server = site.source.address();
    site.set_policy(listen, &format!("[location]\nserver = \"{server}\"\nnear = \"500 ms\"\n"));
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    let _agent = site.agent("laptop", admin);
    eventually("off", || summary(admin)["location"]["location"] == "off");
    let passed = site.carried(listen, admin, "isthmus_not_optimised_total", &[("reason", "server_near")]);
    assert!(passed >= 1.0);
    let mut status = Command::new(&programs().client);
    let text = good(&status.args(["status", "--address", &admin.to_string()]).output().unwrap());
    assert!(text.contains("location          off: the file server answers within"), "{text}");
    assert!(text.contains("agent             laptop-1, policy default version 1"), "{text}");
    eventually("the server side is told", || site.member("laptop-1")["location"] == "off");
}

/// Networks that a laptop moves between.
const NETWORKS: [u8; 2] = [1, 9];

/// Takes the laptop out of its network, and after a gap into another one, where it gets another address and cannot reach
/// what is in the first.
fn move_to(lab: &WanLab, network: u8, gap: Duration) {
    let Place::Namespace(name) = lab.client() else { panic!("a lab has namespaces") };
    let ip = |args: &[&str]| {
        let output = Command::new("ip").args(["-n", &name]).args(args).output().unwrap();
        assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ip(&["addr", "flush", "dev", "lan0"]);
    std::thread::sleep(gap);
    ip(&["route", "flush", "type", "blackhole"]);
    ip(&["addr", "add", &format!("10.77.{network}.2/24"), "dev", "lan0"]);
    ip(&["route", "add", "default", "via", &format!("10.77.{network}.1")]);
    for other in NETWORKS.iter().filter(|other| **other != network) {
        ip(&["route", "add", "blackhole", &format!("10.77.{other}.0/24")]);
    }
}

/// How soon after a move new connections have to be treated as the new network asks for.
const ACT_WITHIN: Duration = Duration::from_secs(5);

/// A laptop in a namespace, in the first of two networks of one router, with its server side across a WAN. `None`, with
/// the reason, where there is no right to make that.
fn roaming(seed: u64) -> Option<(WanLab, Site)> {
    if let Err(missing) = WanLab::available() {
        println!("skipped: {missing}");
        return None;
    }
    let shape = WanShape::symmetric(Duration::from_millis(20), Some(40_000_000));
    let lab = WanLab::start(shape).unwrap();
    let second = format!("10.77.{}.1/24", NETWORKS[1]);
    run(&lab.client_proxy(), &["ip", "addr", "add", &second, "dev", "lan0"]).unwrap();
    let at = |port| SocketAddr::from((WanLab::SERVER_PROXY_WAN, port));
    let mut site = Site::empty(seed, lab.client(), lab.server_proxy(), at(18_000));
    site.add_server(0, at(7810), at(7812));
    Some((lab, site))
}

/// Where the agent listens, and its admin port, in a namespace.
const LISTEN: &str = "127.0.0.1:4450";
const ADMIN: &str = "127.0.0.1:7811";

/// Enrols a laptop and starts its agent.
fn start_roaming(lab: &WanLab, site: &Site, policy: &str) -> Running {
    site.set_policy(LISTEN.parse().unwrap(), policy);
    good(&site.enrol(&site.token("laptop-1"), "laptop"));
    let agent = site.agent("laptop", ADMIN.parse().unwrap());
    eventually("the agent is ready", || ask(lab, "/readyz").is_some());
    agent
}

/// What the agent answers, if it does.
fn ask(lab: &WanLab, path: &str) -> Option<String> {
    let answer = http::get(&lab.client(), ADMIN.parse().unwrap(), path).ok()?;
    (answer.status == 200).then_some(answer.body)
}

fn metric(lab: &WanLab, name: &str, labels: &[(&str, &str)]) -> f64 {
    isthmus_lab::metrics::Metrics::parse(&ask(lab, "/metrics").unwrap()).unwrap().sum(name, labels)
}

#[test]
fn a_laptop_that_moves_between_networks_keeps_its_connections() {
    let Some((lab, site)) = roaming(78) else { return };
    let sink = SocketAddr::from((WanLab::SERVER_PROXY_WAN, 18_001));
    let (sink, _receipts) = sink_server(&lab.server_proxy(), sink, SinkMode::Hash).unwrap();
    let uploads: SocketAddr = "127.0.0.1:4451".parse().unwrap();
    let rule = format!("[[rule]]\nlisten = \"{uploads}\"\nserver = \"{}\"\n", sink.address());
    let _agent = start_roaming(&lab, &site, &format!("[limits]\nwindow = \"1 MiB\"\n{rule}"));

    // All moves are in the middle of one copy.
    let (moves, piece) = (if is_full() { 10 } else { 2 }, 8 * MIB);
    let content = random((moves + 3) * piece, 780);
    let copy = lab.client().run(|| Ok(upload(uploads, &content))).unwrap();
    for number in 1..=moves {
        copy.reach((number * piece) as u64);
        move_to(&lab, NETWORKS[number % 2], Duration::from_secs(5));
        moves_again("in another network", &copy);
        assert!(!copy.is_over(), "the copy was to last longer than {number} moves");
    }
    copy.join().unwrap();
    assert_eq!(sink.connections(), 1, "the server sees one connection");
    let resumes = metric(&lab, "isthmus_resumes_total", &[]);
    assert!(resumes >= moves as f64, "{resumes} resumes");
    println!("roam.ok: {moves} of {moves} moves in one copy of {} bytes, every byte right", content.len());
}

#[test]
fn a_change_of_location_is_acted_on_soon() {
    let Some((lab, site)) = roaming(79) else { return };
    let gateway = SocketAddr::from(([10, 77, NETWORKS[1], 1], 7_899));
    let file_server = site.source.address();
    let location = format!(
        "[location]\ngateways = [\"branch-7@{gateway}\"]\nserver = \"{file_server}\"\nnear = \"10 ms\"\n"
    );
    let _agent = start_roaming(&lab, &site, &location);
    let far = WanShape::symmetric(Duration::from_millis(20), Some(40_000_000));
    let at = |place: &str| {
        let text = ask(&lab, "/api/summary").unwrap_or_default();
        serde_json::from_str::<Value>(&text).unwrap_or_default()["location"]["location"] == place
    };
    eventually("remote", || at("remote"));
    let arrives = |network: u8, shape: WanShape, place: &str, metric_of: (&str, &[(&str, &str)])| {
        // Somewhere between two looks at the network.
        std::thread::sleep(Duration::from_millis(5_500));
        lab.wan().set_shape(shape);
        let before = metric(&lab, metric_of.0, metric_of.1);
        move_to(&lab, network, Duration::ZERO);
        let start = Instant::now();
        while !at(place) {
            assert!(start.elapsed() < within(ACT_WITHIN), "{place}: not after {:?}", start.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("in a network that is {place}: known after {:.3} s", start.elapsed().as_secs_f64());
        lab.client().run(|| Ok(download(LISTEN.parse().unwrap(), &site.content))).unwrap().join().unwrap();
        eventually("new connections go the new way", || metric(&lab, metric_of.0, metric_of.1) > before);
    };
    let optimised: (&str, &[(&str, &str)]) = ("isthmus_lan_bytes_total", &[]);
    let straight = "isthmus_not_optimised_total";
    arrives(NETWORKS[1], WanShape::open(), "off", (straight, &[("reason", "server_near")]));
    arrives(NETWORKS[0], far, "remote", optimised);
    let _gateway = site.gateway("branch-7", &lab.client_proxy(), gateway, loopback(), loopback());
    arrives(NETWORKS[1], far, "branch", (straight, &[("reason", "branch_gateway")]));
    arrives(NETWORKS[0], far, "remote", optimised);
}
