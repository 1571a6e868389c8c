//! Interception in the path: client, branch gateway, WAN, cloud gateway and server, each a network namespace. Neither
//! client nor server knows of the pair.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::pair::{Pair, PairOptions, PairSpec};
use isthmus_lab::proc::{find_program, run};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Place, WanLab};
use isthmus_tests::{eventually, programs, random, within};
use isthmus_types::Side;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const PORT: u16 = 445;
const ADMIN: u16 = 7811;
const LISTENER: u16 = 7813;

/// How long it may take until a connection gets through when a proxy has died, and until one is optimised when it is back.
/// What it took is printed.
const FAILOVER: Duration = Duration::from_secs(1);
const RETURN: Duration = Duration::from_secs(5);
/// Longest wait for a part of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes that each connection carries up and down again.
const ECHOED_BYTES: usize = 100_000;

/// Addresses of client and server, by family.
const CLIENT: [&str; 2] = ["10.77.1.2", "fd77:1::2"];
const SERVER: [&str; 2] = ["10.77.3.2", "fd77:3::2"];
const BOTH_FAMILIES: [usize; 2] = [0, 1];

/// The five places, with a pair whose sides are at the two gateways, or on the client itself.
struct Bed {
    pair: Pair,
    lab: WanLab,
}

/// A connection as its two ends see it.
struct Seen {
    stream: TcpStream,
    /// The client's own end.
    local: SocketAddr,
    /// The client's end as the server has it.
    by_server: SocketAddr,
}

/// Whether this machine can have the five places; says what is missing otherwise.
fn can_run() -> bool {
    let missing = match WanLab::available() {
        Err(error) => Some(error.to_string()),
        Ok(()) if find_program("nft").is_none() => Some("the program nft (package nftables)".into()),
        Ok(()) => None,
    };
    if let Some(missing) = &missing {
        println!("skipped: {missing}");
    }
    missing.is_none()
}

impl Bed {
    /// Makes everything and starts nothing. `intercept` are lines of the client side's section.
    fn prepare(mode: &str, intercept: &str) -> Bed {
        let lab = WanLab::start(WanShape::open()).unwrap();
        enable_ipv6(&lab);
        serve(&lab.server());
        let client_place = if mode == "local" { lab.client() } else { lab.client_proxy() };
        let peer = SocketAddr::from((WanLab::SERVER_PROXY_WAN, 7810));
        let spec = PairSpec {
            binaries: programs().clone(),
            client_place,
            server_place: lab.server_proxy(),
            server_listen: peer,
            peer_address: peer,
            client_admin: SocketAddr::from(([127, 0, 0, 1], ADMIN)),
            server_admin: SocketAddr::from(([127, 0, 0, 1], ADMIN)),
            carried: Vec::new(),
            options: PairOptions { store_size: "100 MiB".into(), ..PairOptions::default() },
        };
        let bed = Bed { pair: Pair::prepare(&spec).unwrap(), lab };
        bed.append(
            Side::Client,
            &format!(
                "[[rule]]\nports = [{PORT}]\n[intercept]\nmode = \"{mode}\"\ninterfaces = [\"lan0\"]\n{intercept}\n"
            ),
        );
        bed.append(
            Side::Server,
            &format!(
                "[[allow]]\ndestination = {SERVER:?}\nports = [{PORT}]\n\
                 [intercept]\nsource = [\"10.77.1.0/24\", \"fd77:1::/64\"]\n"
            ),
        );
        bed
    }

    fn start(mode: &str, intercept: &str) -> Bed {
        let mut bed = Bed::prepare(mode, intercept);
        bed.up(Side::Server);
        bed.up(Side::Client);
        bed.ready();
        bed
    }

    fn append(&self, side: Side, text: &str) {
        let path = self.pair.end(side).config_path();
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn up(&mut self, side: Side) {
        self.pair.start_end(side).unwrap();
    }

    fn kill(&mut self, side: Side) {
        self.pair.end_mut(side).kill9().unwrap();
    }

    fn ready(&mut self) {
        self.pair.wait_ready(within(Duration::from_secs(30))).unwrap();
        eventually("interception", || self.log(Side::Client).contains("intercepting"));
    }

    fn log(&self, side: Side) -> String {
        self.pair.end(side).log().unwrap()
    }

    /// Where the client-side proxy runs.
    fn gateway(&self) -> Place {
        self.pair.end(Side::Client).place().clone()
    }

    fn target(family: usize) -> SocketAddr {
        SocketAddr::new(SERVER[family].parse().unwrap(), PORT)
    }

    /// Makes a connection to the server.
    fn ask(&self, family: usize) -> io::Result<Seen> {
        ask(&self.lab.client(), Bed::target(family), within(ANSWER))
    }

    fn lan_bytes(&self) -> u64 {
        self.pair.end(Side::Client).lan_bytes().unwrap()
    }

    /// Makes a connection, which has to be optimised; the server has to see the client's address, and its port if
    /// `same_port`.
    #[track_caller]
    fn is_optimised(&self, family: usize, same_port: bool) {
        let before = self.lan_bytes();
        let seen = self.ask(family).unwrap();
        assert_eq!(seen.by_server.ip(), CLIENT[family].parse::<IpAddr>().unwrap());
        if same_port {
            assert_eq!(seen.by_server.port(), seen.local.port());
        }
        drop(seen);
        eventually("its bytes are counted", || self.lan_bytes() >= before + 2 * ECHOED_BYTES as u64);
    }

    /// Makes connections until one has got through, which has to be soon, whoever carries it.
    #[track_caller]
    fn gets_through(&self, family: usize, what: &str) -> Seen {
        let start = Instant::now();
        loop {
            let outcome = ask(&self.lab.client(), Bed::target(family), within(FAILOVER));
            let took = start.elapsed();
            match outcome {
                Ok(seen) if took <= within(FAILOVER) => {
                    println!("intercept.failover_s: {:.3} ({what})", took.as_secs_f64());
                    return seen;
                }
                Err(_) if took < within(FAILOVER) => {}
                outcome => panic!("{what}: {:?} after {took:?}", outcome.err()),
            }
        }
    }

    /// Waits until connections are optimised again.
    #[track_caller]
    fn comes_back(&mut self, side: Side, family: usize, what: &str) {
        let start = Instant::now();
        self.up(side);
        let took = loop {
            let before = self.pair.end(Side::Client).lan_bytes();
            let seen = self.ask(family).unwrap();
            drop(seen);
            let after = self.pair.end(Side::Client).lan_bytes();
            let took = start.elapsed();
            assert!(took <= within(RETURN), "{what}: back, and nothing is optimised");
            if let (Ok(before), Ok(after)) = (before, after)
                && after >= before + 2 * ECHOED_BYTES as u64
            {
                break took;
            }
        };
        println!("intercept.return_s: {:.3} ({what})", took.as_secs_f64());
        self.ready();
    }

    /// The connections that the client side lists, as JSON.
    fn connections(&self, state: &str) -> Vec<serde_json::Value> {
        let answer = self.pair.end(Side::Client).get(&format!("/api/connections?state={state}")).unwrap();
        let view: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        view["connections"].as_array().unwrap().clone()
    }

    fn lists_preexisting(&self, client: SocketAddr) -> bool {
        let is_it = |row: &serde_json::Value| {
            row["client"] == client.to_string().as_str() && row["reason"] == "pre_existing"
        };
        self.connections("open").iter().any(is_it)
    }

    /// Runs `isthmus-client intercept …` where the client-side proxy runs.
    fn intercept(&self, arguments: &[&str]) -> Output {
        let config = self.pair.end(Side::Client).config_path();
        let mut words = self.gateway().command_prefix();
        words.push(programs().client.to_string_lossy().into_owned());
        words.push("intercept".into());
        words.extend(arguments.iter().map(ToString::to_string));
        Command::new(&words[0]).args(&words[1..]).arg("--config").arg(config).output().unwrap()
    }

    /// Packet filter and routing rules of a place, as they stand.
    fn rules(place: &Place) -> String {
        let mut text = run(place, &["nft", "list", "ruleset"]).unwrap();
        for command in [["ip", "-4", "rule"], ["ip", "-6", "rule"]] {
            text += &run(place, &command).unwrap();
        }
        for family in ["-4", "-6"] {
            let routes = run(place, &["ip", family, "route", "show", "table", "7813"]);
            let _ = write!(text, "{}", routes.unwrap_or_default());
        }
        text
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for side in [Side::Client, Side::Server] {
                println!("log of the {side} proxy:\n{}", self.pair.end(side).log_tail());
            }
            println!("rules:\n{}", Bed::rules(&self.gateway()));
        }
    }
}

fn enable_ipv6(lab: &WanLab) {
    let places = [
        (lab.client(), "fd77:1::2", None, Some("fd77:1::1")),
        (lab.client_proxy(), "fd77:1::1", Some("fd77:2::1"), None),
        (lab.server_proxy(), "fd77:3::1", Some("fd77:2::2"), None),
        (lab.server(), "fd77:3::2", None, Some("fd77:3::1")),
    ];
    for (place, lan, wan, gateway) in places {
        let set = |setting: &str, value: &str| {
            let path = format!("/proc/sys/net/ipv6/conf/all/{setting}");
            place.run(|| {
                std::fs::write(&path, value)
                    .map_err(|source| LabError::Io { action: format!("setting {path}"), source })
            })
        };
        set("disable_ipv6", "0").unwrap();
        let add = |address: &str, device: &str| {
            let address = format!("{address}/64");
            run(&place, &["ip", "-6", "addr", "add", &address, "dev", device, "nodad"]).unwrap();
        };
        add(lan, "lan0");
        if let Some(wan) = wan {
            add(wan, "wan0");
            run(&place, &["ip", "-6", "route", "add", "default", "dev", "wan0"]).unwrap();
            set("forwarding", "1").unwrap();
        }
        if let Some(gateway) = gateway {
            run(&place, &["ip", "-6", "route", "add", "default", "via", gateway]).unwrap();
        }
    }
}

/// A server that tells each client under which address it is seen, and then sends back what it gets.
fn serve(place: &Place) {
    for address in SERVER {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        let bind = || {
            TcpListener::bind(address).map_err(|source| LabError::Io { action: "listening".into(), source })
        };
        let listener = place.run(bind).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let client = stream.peer_addr()?;
                    writeln!(stream, "{client}")?;
                    let mut back = stream.try_clone()?;
                    io::copy(&mut stream, &mut back)
                });
            }
        });
    }
}

/// Connects and has some bytes sent back.
fn ask(place: &Place, target: SocketAddr, limit: Duration) -> io::Result<Seen> {
    let connect = || -> io::Result<Seen> {
        let stream = TcpStream::connect_timeout(&target, limit)?;
        stream.set_read_timeout(Some(limit))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let by_server =
            line.trim().parse().map_err(|_| io::Error::other(format!("{line:?} is no address")))?;
        let stream = reader.into_inner();
        let local = stream.local_addr()?;
        let mut seen = Seen { stream, local, by_server };
        seen.exchange()?;
        Ok(seen)
    };
    place.run(|| Ok(connect())).unwrap()
}

impl Seen {
    fn exchange(&mut self) -> io::Result<()> {
        let sent = random(ECHOED_BYTES, u64::from(self.local.port()));
        let mut writer = self.stream.try_clone()?;
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy));
        self.stream.set_read_timeout(Some(within(ANSWER)))?;
        let mut heard = vec![0; ECHOED_BYTES];
        let read = self.stream.read_exact(&mut heard);
        writing.join().unwrap()?;
        read?;
        assert!(heard == sent, "not the bytes that were sent");
        Ok(())
    }

    /// Whether the connection has been reset, by now or soon. Something is said on it, since nobody looks at a quiet one.
    fn is_reset(&mut self) -> bool {
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            matches!(self.exchange(), Err(error) if error.kind() != io::ErrorKind::WouldBlock)
        })
    }
}

/// Everything that a form has to do, with one family after the other.
fn carries_and_falls_through(mode: &str) {
    if !can_run() {
        return;
    }
    let mut bed = Bed::start(mode, "");
    for family in BOTH_FAMILIES {
        let what = |side: Side| format!("{mode}, {}, {side} killed", SERVER[family]);
        bed.is_optimised(family, true);
        bed.kill(Side::Server);
        let seen = bed.gets_through(family, &what(Side::Server));
        if mode != "redirect" {
            assert_eq!(seen.by_server.ip(), seen.local.ip(), "relayed under the client's address");
        }
        bed.comes_back(Side::Server, family, &what(Side::Server));
        bed.kill(Side::Client);
        let seen = bed.gets_through(family, &what(Side::Client));
        assert_eq!(seen.by_server, seen.local, "nothing is between the two any more");
        eventually("the table goes with its process", || {
            !run(&bed.gateway(), &["nft", "list", "tables"]).unwrap().contains("isthmus")
        });
        bed.comes_back(Side::Client, family, &what(Side::Client));
        bed.is_optimised(family, true);
    }
    // In good order, everything goes.
    bed.pair.end_mut(Side::Client).stop().unwrap();
    let rules = Bed::rules(&bed.gateway());
    assert!(!rules.contains("isthmus") && !rules.contains("7813"), "{rules}");
    assert_eq!(bed.gets_through(0, "stopped").by_server.ip(), CLIENT[0].parse::<IpAddr>().unwrap());
}

#[test]
fn tproxy_carries_and_falls_through() {
    carries_and_falls_through("tproxy");
}

#[test]
fn redirect_carries_and_falls_through() {
    carries_and_falls_through("redirect");
}

#[test]
fn a_laptops_own_connections_are_carried_and_fall_through() {
    carries_and_falls_through("local");
}

#[test]
fn what_is_made_to_the_listener_itself_or_by_the_proxy_does_not_go_round() {
    if !can_run() {
        return;
    }
    for mode in ["tproxy", "local"] {
        let mut bed = Bed::start(mode, "");
        bed.kill(Side::Server);
        eventually("the peer is down", || bed.pair.end(Side::Client).get("/readyz").unwrap().status == 503);
        drop(bed.gets_through(0, "without a peer"));
        let ended = || bed.connections("closed").len();
        eventually("it is listed", || ended() > 0);
        assert_eq!(ended(), 1, "the proxy's own connection was not taken");
        let gateway = if mode == "local" { "127.0.0.1" } else { "10.77.1.1" };
        let listener = SocketAddr::new(gateway.parse().unwrap(), LISTENER);
        let error = ask(&bed.lab.client(), listener, within(ANSWER)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        assert_eq!(ended(), 1);
    }
}

#[test]
fn rules_decide_what_is_done_with_each_connection() {
    if !can_run() {
        return;
    }
    let mut bed = Bed::prepare("tproxy", "");
    let path = bed.pair.end(Side::Client).config_path();
    let text = std::fs::read_to_string(&path).unwrap();
    let decided = "[[rule]]\nname = \"six\"\ndestination = [\"fd77:3::2\"]\naction = \"deny\"\n[[rule]]\nname = \"four\"\n\
                   destination = [\"10.77.3.2\"]\naction = \"pass-through\"\n[[rule]]\nports";
    std::fs::write(&path, text.replacen("[[rule]]\nports", decided, 1)).unwrap();
    bed.up(Side::Server);
    bed.up(Side::Client);
    bed.ready();
    let seen = bed.ask(0).unwrap();
    assert_eq!(seen.by_server.ip(), seen.local.ip());
    let row = &bed.connections("open")[0];
    assert_eq!((&row["rule"], &row["reason"]), (&"four".into(), &"rule_pass_through".into()));
    assert!(row["passed_bytes"].as_u64().unwrap() >= 2 * ECHOED_BYTES as u64, "{row}");
    let error = bed.ask(1).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_conflict_is_told_before_anything_is_changed() {
    if !can_run() {
        return;
    }
    let bed = Bed::prepare("tproxy", "install = false");
    let gateway = bed.gateway();
    for (make, told) in [
        (
            "nft add table ip other; nft add chain ip other pre '{ type filter hook prerouting priority -150; }'; \
          nft add rule ip other pre tcp dport '{ 80, 400-500 }' tproxy to :3129",
            "redirects connections",
        ),
        (
            "nft flush ruleset; nft add table inet other; nft add chain inet other pre; \
          nft add rule inet other pre meta mark set 0x7813",
            "uses mark 0x7813",
        ),
        ("nft flush ruleset; ip rule add pref 100 from 192.0.2.1 lookup main", "priority 100"),
        (
            "ip rule del pref 100; ip -6 route add 2001:db8::/32 dev lan0 table 7813",
            "has a route to 2001:db8::/32",
        ),
    ] {
        run(&gateway, &["sh", "-c", make]).unwrap();
        let before = Bed::rules(&gateway);
        let output = bed.intercept(&["install"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{text}");
        assert!(text.contains("nothing was changed") && text.contains(told), "{text}");
        assert_eq!(Bed::rules(&gateway), before);
        assert_eq!(bed.intercept(&["show"]).status.code(), Some(69));
    }
}

#[test]
fn rules_for_good_are_put_in_once_and_leave_nothing_behind() {
    if !can_run() {
        return;
    }
    let mut bed = Bed::prepare("tproxy", "install = false");
    let gateway = bed.gateway();
    run(&gateway, &["sh", "-c", "nft add table ip other; ip rule add pref 7 fwmark 0x1 lookup 9"]).unwrap();
    let before = Bed::rules(&gateway);
    let says = |arguments: &[&str], told: &str| {
        let output = bed.intercept(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(told), "{arguments:?}: {text}");
    };
    says(&["show"], "not installed");
    says(&["install"], ": installed");
    let installed = Bed::rules(&gateway);
    says(&["show"], "table inet isthmus_client: installed\n");
    says(&["install"], "installed already");
    assert_eq!(Bed::rules(&gateway), installed);
    // Nobody listens.
    assert_eq!(
        bed.gets_through(0, "rules without a proxy").by_server.ip(),
        CLIENT[0].parse::<IpAddr>().unwrap()
    );
    bed.up(Side::Server);
    bed.up(Side::Client);
    bed.ready();
    bed.is_optimised(0, true);
    bed.is_optimised(1, true);
    bed.kill(Side::Client);
    let seen = bed.gets_through(1, "rules for good, client side killed");
    assert_eq!(seen.by_server, seen.local);
    assert_eq!(Bed::rules(&gateway), installed);
    let says = |arguments: &[&str], told: &str| {
        let output = bed.intercept(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains(told));
    };
    says(&["remove"], ": removed");
    says(&["remove"], "was not there");
    assert_eq!(Bed::rules(&gateway), before);
}

#[test]
fn rules_that_refuse_without_a_proxy_are_not_left_to_themselves() {
    if !can_run() {
        return;
    }
    let bed = Bed::prepare("redirect", "install = false");
    let output = bed.intercept(&["install"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--unattended"));
    assert!(!Bed::rules(&bed.gateway()).contains("isthmus"));
    assert!(bed.intercept(&["install", "--unattended"]).status.success());
    assert!(bed.ask(0).is_err(), "refused, as was said");
    assert!(bed.intercept(&["remove"]).status.success());
    drop(bed.gets_through(0, "removed"));
}

#[test]
fn a_second_proxy_and_removal_leave_held_rules_alone() {
    if !can_run() {
        return;
    }
    let bed = Bed::start("tproxy", "");
    for arguments in [["remove"], ["install"]] {
        let output = bed.intercept(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{text}");
        assert!(text.contains("held by a running proxy"), "{text}");
    }
    let output = bed.intercept(&["show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["state"], "held_by_a_running_proxy");
    bed.is_optimised(0, true);
    // Somebody else's rules are loaded anew, as firewalls do.
    run(&bed.gateway(), &["nft", "flush", "ruleset"]).unwrap();
    bed.is_optimised(0, true);
}

#[test]
fn rules_that_are_lost_are_put_in_again() {
    if !can_run() {
        return;
    }
    let mut bed = Bed::start("tproxy", "");
    let proxy = bed.pair.end_mut(Side::Client).process().unwrap().pid();
    let children = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        let parent: u32 = fields.split_whitespace().nth(1)?.parse().ok()?;
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        (name == "nft" && parent == proxy).then(|| nix::unistd::Pid::from_raw(pid))
    });
    let holder = children.last().expect("the holder runs");
    nix::sys::signal::kill(holder, nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("it is noticed", || bed.log(Side::Client).contains("are gone"));
    eventually("they are back", || bed.log(Side::Client).contains("here are back"));
    bed.is_optimised(0, true);
}

#[test]
fn connections_older_than_interception_go_on_and_are_listed() {
    if !can_run() {
        return;
    }
    for mode in ["tproxy", "redirect", "local"] {
        let mut bed = Bed::prepare(mode, "");
        let mut older: Vec<Seen> = BOTH_FAMILIES.iter().map(|family| bed.ask(*family).unwrap()).collect();
        bed.up(Side::Server);
        bed.up(Side::Client);
        bed.ready();
        bed.is_optimised(0, true);
        for seen in &mut older {
            seen.exchange().unwrap();
        }
        for seen in &older {
            eventually("it is listed as pre-existing", || bed.lists_preexisting(seen.local));
        }
        let shown = bed.intercept(&["show"]);
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.contains(&format!("pre-existing: {}", older[1].local)), "{shown}");
        older[0].exchange().unwrap();
    }
}

#[test]
fn connections_older_than_interception_are_reset_once_where_that_is_wanted() {
    if !can_run() {
        return;
    }
    for mode in ["tproxy", "redirect", "local"] {
        let mut bed = Bed::prepare(mode, "reset_preexisting = true");
        let mut older: Vec<Seen> = BOTH_FAMILIES.iter().map(|family| bed.ask(*family).unwrap()).collect();
        bed.up(Side::Server);
        bed.up(Side::Client);
        bed.ready();
        for seen in &mut older {
            assert!(seen.is_reset(), "{mode}: {}", seen.local);
        }
        // What takes their place is optimised, and stays.
        for family in BOTH_FAMILIES {
            bed.is_optimised(family, true);
            let mut newer = bed.ask(family).unwrap();
            newer.exchange().unwrap();
        }
    }
}

#[test]
fn connections_made_without_the_peer_are_pre_existing_when_it_is_back() {
    if !can_run() {
        return;
    }
    for resets in [false, true] {
        let mut bed = Bed::prepare("tproxy", &format!("reset_preexisting = {resets}"));
        bed.up(Side::Client);
        eventually("interception", || bed.log(Side::Client).contains("intercepting"));
        let mut seen = bed.ask(0).unwrap();
        assert_eq!(seen.by_server.ip(), seen.local.ip());
        assert_ne!(seen.by_server.port(), seen.local.port(), "relayed by the gateway");
        assert_eq!(bed.connections("open")[0]["reason"], "peer_absent");
        bed.up(Side::Server);
        bed.ready();
        if resets {
            assert!(seen.is_reset());
            eventually("the end is listed", || {
                bed.connections("closed").iter().any(|row| row["reason"] == "pre_existing")
            });
        } else {
            eventually("it is pre-existing", || bed.lists_preexisting(seen.local));
            seen.exchange().unwrap();
        }
        bed.is_optimised(0, true);
    }
}
