//! What a pair does when nothing is wrong with it: reduce, keep TCP's manners, follow rules, limits and signals.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_tests::{
    Bed, ECHO, Plan, SINK, SOURCE, Transfer, connect, download, eventually, loopback, moves_again, random,
    within,
};
use isthmus_types::Side;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Puts another target behind the client-side proxy's listener for `replaced`.
fn with_target(bed: &Bed, replaced: usize, target: std::net::SocketAddr) {
    let old = bed.spec.carried[replaced].target.to_string();
    bed.edit(Side::Client, |text| text.replace(&old, &target.to_string()));
}

fn listener() -> TcpListener {
    TcpListener::bind(loopback()).unwrap()
}

#[test]
fn what_was_sent_once_costs_next_to_nothing_in_either_direction() {
    let bed = Plan::new(20 * MIB, 1).start();
    let cold = bed.wan_cost(|| bed.download().join().unwrap());
    assert!(cold > 20 << 20, "random bytes cannot shrink: {cold}");
    let warm = bed.wan_cost(|| bed.download().join().unwrap());
    assert!(warm < 200_000, "warm: {warm}");
    let cross = bed.wan_cost(|| bed.upload(&bed.content).join().unwrap());
    assert!(cross < 200_000, "uploaded after it was downloaded: {cross}");
    // Both ends agree on what they carried.
    eventually("all bytes are counted", || {
        let lan = |side| bed.metric(side, "isthmus_lan_bytes_total", &[]);
        lan(Side::Client) == lan(Side::Server) && lan(Side::Client) >= f64::from(60 << 20)
    });
    for (side, metric) in
        [(Side::Client, "isthmus_proof_failures_total"), (Side::Server, "isthmus_reduction_misses_total")]
    {
        assert_eq!(bed.metric(side, metric, &[]), 0.0, "{metric}");
    }
    let saved = bed.metric(Side::Server, "isthmus_saved_bytes_total", &[("by", "run")]);
    assert!(saved > 19e6, "runs have saved {saved}");
}

#[test]
fn half_closed_connections_go_on_in_the_other_direction() {
    let bed = Plan::new(MIB, 2).prepare();
    let server = listener();
    with_target(&bed, ECHO, server.local_addr().unwrap());
    bed.edit(Side::Server, |text| {
        let ports = format!("ports = [{}]", bed.spec.carried[ECHO].target.port());
        text.replace(&ports, &format!("ports = [{}]", server.local_addr().unwrap().port()))
    });
    let mut bed = bed;
    bed.start_both();

    // The client has said everything; the server goes on for long.
    let mut client = connect(bed.through(ECHO));
    let (mut target, _) = server.accept().unwrap();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = Vec::new();
    target.read_to_end(&mut question).unwrap();
    assert_eq!(question, b"question");
    let answer = random(3 * MIB, 3);
    let sent = answer.clone();
    let writer = std::thread::spawn(move || {
        target.write_all(&sent).unwrap();
        drop(target);
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, answer);
    writer.join().unwrap();

    // The server has said everything; the client goes on.
    let mut client = connect(bed.through(ECHO));
    let (mut target, _) = server.accept().unwrap();
    target.write_all(b"banner").unwrap();
    target.shutdown(Shutdown::Write).unwrap();
    let mut banner = Vec::new();
    client.read_to_end(&mut banner).unwrap();
    assert_eq!(banner, b"banner");
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        target.read_to_end(&mut got).unwrap();
        got
    });
    client.write_all(&answer).unwrap();
    drop(client);
    assert_eq!(reader.join().unwrap(), answer);
    eventually("the connections are over", || bed.open_connections() == 0);
    let metrics = bed.metrics(Side::Client);
    let ended: Vec<_> =
        metrics.samples().iter().filter(|sample| sample.name == "isthmus_connections_total").collect();
    let clean = metrics.sum("isthmus_connections_total", &[("outcome", "optimised")]);
    assert_eq!(clean, 2.0, "both ended well: {ended:?}");
}

#[test]
fn a_reset_on_one_side_is_a_reset_on_the_other() {
    let bed = Plan::new(MIB, 4).prepare();
    let server = listener();
    with_target(&bed, ECHO, server.local_addr().unwrap());
    bed.edit(Side::Server, |text| {
        let ports = format!("ports = [{}]", bed.spec.carried[ECHO].target.port());
        text.replace(&ports, &format!("ports = [{}]", server.local_addr().unwrap().port()))
    });
    let mut bed = bed;
    bed.start_both();
    let reset = |stream: TcpStream| {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
    };
    let is_reset = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let error = stream.read_to_end(&mut rest).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    let open = || {
        let mut client = connect(bed.through(ECHO));
        let (mut target, _) = server.accept().unwrap();
        let mut byte = [0];
        client.write_all(b"x").unwrap();
        target.read_exact(&mut byte).unwrap();
        target.write_all(b"y").unwrap();
        client.read_exact(&mut byte).unwrap();
        (client, target)
    };
    let (client, target) = open();
    reset(client);
    is_reset(target);
    let (client, target) = open();
    reset(target);
    is_reset(client);
    for side in [Side::Client, Side::Server] {
        eventually("both are counted", || {
            let labels = [("outcome", "reset"), ("reason", "application_reset")];
            bed.metric(side, "isthmus_connections_total", &labels) >= 2.0
        });
    }
}

#[test]
fn a_reader_that_stops_bounds_memory_and_gets_everything_later() {
    // Far more than the windows, made of few new bytes, so that it costs memory and not time.
    let part = random(24 * MIB, 5);
    let mut plan = Plan::new(0, 5);
    plan.content = [&part[..], &part[..], &part[..], &part[..], &part[..], &part[..]].concat().into();
    let bed = plan.start();
    let slow = bed.download();
    slow.reach(MIB as u64);
    slow.hold(true);
    let mut last = 0;
    eventually("the source is stopped", || {
        std::thread::sleep(Duration::from_millis(700));
        std::mem::replace(&mut last, bed.source.bytes()) == last
    });
    assert!(last < 110 << 20, "the source could send {last} bytes to nobody");
    for side in [Side::Client, Side::Server] {
        let (now, _) = bed.memory(side);
        assert!(now < 200 << 20, "{side}: {now} bytes resident");
    }
    // The other direction and other connections do not mind.
    bed.upload(&random(MIB, 6)).join().unwrap();
    slow.hold(false);
    moves_again("a reader that reads again", &slow);
    slow.join().unwrap();
}

#[test]
fn a_reader_that_pauses_after_the_sources_end_gets_everything() {
    let bed = Plan::new(14 * MIB, 17).start();
    let slow = bed.download();
    slow.reach(MIB as u64);
    slow.hold(true);
    eventually("the source has sent everything", || bed.source.bytes() == bed.content.len() as u64);
    // Longer than a quiet direction keeps its memory.
    std::thread::sleep(Duration::from_secs(7));
    slow.hold(false);
    slow.join().unwrap();
}

#[test]
fn protocols_of_any_manner_are_carried() {
    let bed = Plan::new(0, 7).prepare();
    let server = listener();
    with_target(&bed, ECHO, server.local_addr().unwrap());
    bed.edit(Side::Server, |text| {
        let ports = format!("ports = [{}]", bed.spec.carried[ECHO].target.port());
        text.replace(&ports, &format!("ports = [{}]", server.local_addr().unwrap().port()))
    });
    let mut bed = bed;
    bed.start_both();
    // A server that speaks first, in a dialogue of many small turns.
    let script = std::thread::spawn(move || {
        let (mut target, _) = server.accept().unwrap();
        target.write_all(b"220 ready\r\n").unwrap();
        for turn in 0..200_u32 {
            let mut line = [0; 16];
            target.read_exact(&mut line).unwrap();
            assert_eq!(line, *format!("COMMAND {turn:06}\r\n").as_bytes());
            target.write_all(format!("250 {turn:06} ok\r\n").as_bytes()).unwrap();
        }
        // One request and one answer a connection, the end of which is the end of the answer.
        for body in 0..20_u32 {
            let (mut target, _) = server.accept().unwrap();
            let mut request = [0; 28];
            target.read_exact(&mut request).unwrap();
            assert!(request.starts_with(b"GET /"));
            let answer = random(1 << (body % 18), u64::from(body));
            write!(target, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len()).unwrap();
            target.write_all(&answer).unwrap();
        }
    });
    let mut client = connect(bed.through(ECHO));
    let mut banner = [0; 11];
    client.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"220 ready\r\n");
    for turn in 0..200_u32 {
        client.write_all(format!("COMMAND {turn:06}\r\n").as_bytes()).unwrap();
        let mut line = [0; 15];
        client.read_exact(&mut line).unwrap();
        assert_eq!(line, *format!("250 {turn:06} ok\r\n").as_bytes());
    }
    drop(client);
    for body in 0..20_u32 {
        let mut client = connect(bed.through(ECHO));
        write!(client, "GET /{body:08} HTTP/1.1\r\n\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with(&random(1 << (body % 18), u64::from(body))));
    }
    script.join().unwrap();
}

#[test]
fn rules_pass_through_reduce_and_deny() {
    let bed = Plan::new(2 * MIB, 8).prepare();
    bed.edit(Side::Client, |text| {
        // In the order of the targets: source, sink, echo.
        let mut rules = text.split("[[rule]]\n");
        let head = rules.next().unwrap();
        let actions = ["pass-through", "reduce-only", "deny"];
        let ruled =
            rules.zip(actions).map(|(rule, action)| format!("[[rule]]\naction = \"{action}\"\n{rule}"));
        format!("{head}{}", ruled.collect::<String>())
    });
    let mut bed = bed;
    bed.start_both();
    let before = bed.wan_bytes();
    bed.passes_through("rule_pass_through");
    assert!(bed.wan_bytes() - before < 20_000, "it did not cross between the proxies");
    let passed = bed.metric(Side::Client, "isthmus_pass_through_bytes_total", &[("direction", "down")]);
    assert_eq!(passed, (2 * MIB) as f64);

    bed.upload(&bed.content).join().unwrap();
    eventually("the reduced connection is counted", || {
        bed.metric(Side::Client, "isthmus_connections_total", &[("outcome", "reduce_only")]) == 1.0
    });

    let mut denied = connect(bed.through(ECHO));
    assert!(matches!(denied.read(&mut [0]), Err(_) | Ok(0)));
    bed.counts(Side::Client, "isthmus_not_optimised_total", &[("reason", "rule_deny")]);
    assert_eq!(bed.echo.connections(), 0);
}

#[test]
fn a_target_that_is_not_allowed_or_not_there_is_refused_with_the_reason() {
    let bed = Plan::new(MIB, 9).passing().prepare();
    // The allow list of the server side names other ports than the client side's rules.
    let (sink, echo) = (bed.spec.carried[SINK].target, loopback());
    bed.edit(Side::Server, |text| text.replace(&format!("ports = [{}]", sink.port()), "ports = [1]"));
    with_target(&bed, ECHO, echo);
    bed.edit(Side::Server, |text| {
        let ports = format!("ports = [{}]", bed.spec.carried[ECHO].target.port());
        text.replace(&ports, &format!("ports = [{}]", echo.port()))
    });
    let mut bed = bed;
    bed.start_both();
    let refused = |target: usize, reason: &str, side: Side| {
        let mut client = connect(bed.through(target));
        // The first bytes may be on their way already; they must reach nobody.
        drop(client.write_all(b"early"));
        assert!(matches!(client.read(&mut [0]), Err(_) | Ok(0)), "{reason}");
        bed.counts(side, "isthmus_not_optimised_total", &[("reason", reason)]);
    };
    refused(SINK, "target_not_allowed", Side::Client);
    bed.counts(Side::Server, "isthmus_not_optimised_total", &[("reason", "target_not_allowed")]);
    bed.logs(Side::Server, &["WARN", "allow list", &sink.to_string()]);
    refused(ECHO, "target_refused", Side::Client);
    assert_eq!(bed.sink.connections(), 0, "no way leads to a target that is not allowed");
    bed.is_optimised();
}

#[test]
fn a_peer_that_comes_late_is_used_from_then_on() {
    let mut bed = Plan::new(4 * MIB, 10).passing().prepare();
    bed.pair.start_end(Side::Client).unwrap();
    bed.not_ready(Side::Client, "peer_absent");
    bed.passes_through("peer_absent");
    bed.logs(Side::Client, &["WARN", "peer not reached"]);
    // One that began while there was no peer goes on as it began.
    let early = bed.download();
    early.reach(1);
    early.hold(true);
    bed.start(Side::Server);
    bed.is_optimised();
    early.hold(false);
    early.join().unwrap();
}

#[test]
fn admission_stops_at_its_upper_threshold_and_resumes_below_its_lower() {
    let plan = Plan::new(MIB, 11).passing();
    let bed = plan.client("limits.admission_on=4").client("limits.admission_off=2").start();
    let hold = || {
        let mut stream = connect(bed.through(ECHO));
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let mut held: Vec<TcpStream> = (0..4).map(|_| hold()).collect();
    bed.not_ready(Side::Client, "admission_full");
    bed.passes_through("admission_full");
    assert_eq!(bed.metric(Side::Client, "isthmus_admission_full", &[]), 1.0);
    let count = || bed.metric(Side::Client, "isthmus_admission_connections", &[]);
    held.truncate(3);
    eventually("one has left", || count() == 3.0);
    bed.passes_through("admission_full");
    held.truncate(1);
    eventually("three have left", || count() == 1.0);
    bed.is_optimised();
    assert_eq!(bed.metric(Side::Client, "isthmus_admission_full", &[]), 0.0);
    held.iter_mut().for_each(|stream| {
        stream.write_all(b"y").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_full_server_side_has_its_client_side_pass_through() {
    let bed = Plan::new(MIB, 12).passing().server("limits.admission_on=1").start();
    let mut held = connect(bed.through(ECHO));
    held.write_all(b"x").unwrap();
    held.read_exact(&mut [0]).unwrap();
    bed.passes_through("admission_full");
    bed.counts(Side::Server, "isthmus_not_optimised_total", &[("reason", "admission_full")]);
    drop(held);
    eventually("the place is free", || bed.metric(Side::Server, "isthmus_admission_connections", &[]) == 0.0);
    bed.is_optimised();
}

/// Tells a proxy to stop in the middle of a download: it ends only when the download has.
fn drains(side: Side) {
    let mut bed = Plan::new(12 * MIB, 13).slow(24).passing().start();
    let running = bed.download();
    running.reach(2 << 20);
    bed.pair.end_mut(side).process().unwrap().terminate().unwrap();
    bed.logs(side, &["draining"]);
    if side == Side::Server {
        // The client side stays; new connections go past the server side.
        bed.passes_through("draining");
    } else {
        let late = TcpStream::connect(bed.through(SOURCE));
        assert!(
            late.is_err() || matches!(late.unwrap().read(&mut [0]), Err(_) | Ok(0)),
            "nothing new is taken"
        );
    }
    bed.hurry();
    running.join().unwrap();
    let status = bed.pair.end_mut(side).process().unwrap().wait(within(Duration::from_secs(20))).unwrap();
    assert!(status.success(), "{status}");
    bed.logs(side, &["drained"]);
}

#[test]
fn a_client_side_that_is_told_to_stop_lets_transfers_finish() {
    drains(Side::Client);
}

#[test]
fn a_server_side_that_is_told_to_stop_lets_transfers_finish() {
    drains(Side::Server);
}

#[test]
fn two_hundred_connections_at_once() {
    let bed = Plan::new(256 << 10, 14).start();
    let transfers: Vec<Transfer> = (0..200)
        .map(|n| match n % 2 {
            0 => bed.download(),
            _ => bed.upload(&random(128 << 10, 1_000 + n)),
        })
        .collect();
    transfers.into_iter().for_each(|transfer| transfer.join().unwrap());
    assert_eq!(bed.receipts.all().len(), 100);
    eventually("all are over", || bed.open_connections() == 0);
    let ended = bed.metric(Side::Client, "isthmus_connections_total", &[("outcome", "optimised")]);
    assert_eq!(ended, 200.0);
}

#[test]
fn a_reader_that_stops_does_not_stop_three_others_of_the_same_file() {
    let bed = Plan::new(24 * MIB, 15).slow(200).start();
    let readers: Vec<Transfer> = (0..4).map(|_| bed.download()).collect();
    readers[0].reach(MIB as u64);
    readers[0].hold(true);
    let mut readers = readers.into_iter();
    let stopped = readers.next().unwrap();
    readers.for_each(|reader| reader.join().unwrap());
    assert!(!stopped.is_over() && stopped.bytes() < bed.content.len() as u64);
    stopped.hold(false);
    stopped.join().unwrap();
    let wan = bed.wan.bytes_down();
    assert!(wan < 60 << 20, "four readers of 24 MiB cost {wan} bytes");
}

#[test]
fn a_client_that_aborts_and_retries_pays_only_for_the_rest() {
    let bed = Plan::new(32 * MIB, 16).slow(70).start();
    let first = bed.download();
    first.reach(20 << 20);
    first.abort();
    bed.hurry();
    bed.counts(Side::Server, "isthmus_connections_total", &[("reason", "application_reset")]);
    let retry = bed.wan_cost(|| download(bed.through(SOURCE), &bed.content).join().unwrap());
    println!("the retry cost {retry} bytes");
    assert!(retry < 18 << 20, "20 of 32 MiB were there already, and the retry cost {retry} bytes");
}
