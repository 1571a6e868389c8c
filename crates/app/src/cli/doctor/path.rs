//! The way to the peer: path MTU, round-trip time, loss, bandwidth, congestion control.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use isthmus_config::HostPort;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{IpMtu, TcpMaxSeg};
use serde_json::Value;

use super::finding::Report;
use super::running::{Running, list};

/// Least segments sent before a share of losses says anything.
const SEGMENTS_MIN: u64 = 1_000;
/// Share of segments sent again from which TCP without BBR is slow, and from which nothing is fast.
const LOSS_NOTE: f64 = 0.001;
const LOSS_WARNING: f64 = 0.02;
/// Packets that IPv6 requires every path to take (RFC 8200 5), and what nearly all take.
const MTU_MIN: u64 = 1_280;
const MTU_USUAL: u64 = 1_500;
/// Rate in bytes a second that one connection's send buffer should carry over the measured distance.
const BUFFER_RATE: f64 = 12_500_000.0;
/// How long the probe of a proxy that does not run waits for the peer's port.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// From what the kernel measures on the inner channels of the running proxy.
pub(crate) fn measured(report: &mut Report, running: &Running) {
    report.area("path to the peer");
    if let Some(error) = running.links["error"].as_str() {
        return report.untested(format!("round-trip time, loss and rate: {error}"), remedy_of_links(error));
    }
    let links: Vec<&Value> = list(&running.links["links"]).collect();
    if links.is_empty() {
        return report.untested(
            "round-trip time, loss and rate: no inner channel is connected",
            "see the findings on the peer",
        );
    }
    let number = |field: &'static str| links.iter().filter_map(move |link| link[field].as_f64());
    let rtt = number("rtt_min_seconds").fold(f64::INFINITY, f64::min);
    let worst = number("rtt_seconds").fold(0.0, f64::max);
    report.fine(format!(
        "round-trip time {:.1} ms at its shortest, {:.1} ms at most now, on {} connections",
        rtt * 1e3,
        worst * 1e3,
        links.len()
    ));
    mtu(report, number("path_mtu").fold(f64::INFINITY, f64::min) as u64);
    loss(report, number("segments").sum(), number("resent_segments").sum());
    let busy = links.iter().filter(|link| link["sender_limited"] == false);
    rate(
        report,
        busy.filter_map(|link| link["delivery_rate"].as_f64()).fold(0.0, f64::max),
        number("delivery_rate").fold(0.0, f64::max),
    );
    let other = links.iter().filter_map(|link| link["congestion"].as_str()).find(|name| *name != "bbr");
    match other {
        Some(name) => report.warning(
            format!("inner channels use {name}, which takes every lost packet for congestion"),
            "modprobe tcp_bbr, and name it in /etc/modules-load.d; connections made after that use it",
        ),
        None => report.fine("congestion control bbr"),
    }
    buffers(report, rtt);
}

/// Of a proxy that does not run, by one connection to the peer's port.
pub(crate) fn probed(report: &mut Report, peer: &HostPort) {
    report.area("path to the peer");
    let Some(address) =
        (peer.host.to_string(), peer.port).to_socket_addrs().ok().and_then(|mut all| all.next())
    else {
        return report
            .failure(format!("{peer} cannot be resolved"), "correct peer.address or the name server");
    };
    let start = Instant::now();
    match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
        Ok(stream) => {
            report.fine(format!(
                "{address} accepts connections, after {:.1} ms",
                start.elapsed().as_secs_f64() * 1e3
            ));
            match path_mtu(&stream, address) {
                Some(bytes) => mtu(report, bytes),
                None => report.untested("path MTU: the kernel does not tell", ""),
            }
        }
        Err(error) => report.failure(
            format!("{address} does not accept connections: {error}"),
            "check that the server-side proxy runs and that its port is open in between",
        ),
    }
    report.untested(
        "loss and rate are measured on a running proxy's connections",
        "start it, copy a file, ask again",
    );
}

/// IPv6 has no such option without further access; there the segment says nearly the same.
fn path_mtu(stream: &TcpStream, address: SocketAddr) -> Option<u64> {
    if address.is_ipv4() {
        return getsockopt(stream, IpMtu).ok().and_then(|bytes| u64::try_from(bytes).ok());
    }
    // IPv6 header, TCP header, timestamps.
    getsockopt(stream, TcpMaxSeg).ok().map(|segment| u64::from(segment) + 40 + 20 + 12)
}

fn remedy_of_links(error: &str) -> &'static str {
    if error.contains("permitted") {
        "let the proxy use netlink (AF_NETLINK in RestrictAddressFamilies of its unit)"
    } else {
        "see the findings on the peer"
    }
}

fn mtu(report: &mut Report, bytes: u64) {
    let text = format!("path MTU {bytes} bytes");
    match bytes {
        0 => report.untested("path MTU: the kernel does not tell", ""),
        1..MTU_MIN => report.warning(
            format!("{text}, less than any path should take"),
            "look for a tunnel in between that is set up too small, or clamp the segment size at the router",
        ),
        MTU_MIN..MTU_USUAL => report.note(
            format!("{text}: there is a tunnel in between"),
            "if large copies hang while small ones work, ICMP \"fragmentation needed\" is filtered; clamp the segment size \
             at the router",
        ),
        _ => report.fine(text),
    }
}

fn loss(report: &mut Report, segments: f64, resent: f64) {
    if segments < SEGMENTS_MIN as f64 {
        let text = format!("loss: only {segments:.0} segments were sent so far, too few to tell");
        return report.untested(text, "copy a file through the pair and ask again");
    }
    let share = resent / segments;
    let text = format!("{:.2} % of {segments:.0} segments were sent again", share * 100.0);
    if share >= LOSS_WARNING {
        report.warning(text, "the line loses packets: have it looked at, or shape below its rate");
    } else if share >= LOSS_NOTE {
        report.note(text, "harmless with bbr");
    } else {
        report.fine(text);
    }
}

/// `busy` is the best rate of a sender that had more to send, `any` the best of all, in bytes a second.
fn rate(report: &mut Report, busy: f64, any: f64) {
    if busy > 0.0 {
        report.fine(format!("up to {} were delivered to the peer at the last measurement", mbit(busy)));
    } else {
        let text = format!(
            "rate of the line: nothing large was sent from here; {} at the last measurement",
            mbit(any)
        );
        report.untested(text, "copy a large new file through the pair in this direction and ask again");
    }
}

/// What a socket may hold unacknowledged bounds its rate over a long distance.
fn buffers(report: &mut Report, rtt: f64) {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<f64>().ok()
    };
    for (name, what) in [("tcp_wmem", "sends"), ("tcp_rmem", "receives")] {
        let Some(most) = read(name).filter(|_| rtt > 0.0) else {
            report.untested(format!("net.ipv4.{name} cannot be read"), "");
            continue;
        };
        // Half of it at most holds data that is under way; the rest is the kernel's overhead.
        let rate = most / 2.0 / rtt;
        let text = format!(
            "net.ipv4.{name} lets a connection that {what} carry about {} over this distance",
            mbit(rate)
        );
        if rate < BUFFER_RATE {
            let bytes = (BUFFER_RATE * rtt * 2.0) as u64;
            let remedy =
                format!("if the line is faster than that: sysctl -w net.ipv4.{name}=\"4096 131072 {bytes}\"");
            report.note(text, remedy);
        } else {
            report.fine(text);
        }
    }
}

fn mbit(bytes_per_second: f64) -> String {
    format!("{:.1} Mbit/s", bytes_per_second * 8.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;
    use serde_json::json;

    fn running(links: Value) -> Running {
        Running {
            summary: Value::Null,
            peers: Value::Null,
            store: Value::Null,
            links: json!({ "total": 1, "error": null, "links": links }),
            process: Value::Null,
        }
    }

    fn outcomes(links: Value) -> Vec<(Outcome, String)> {
        let mut report = Report::default();
        measured(&mut report, &running(links));
        report.findings.into_iter().map(|finding| (finding.outcome, finding.text)).collect()
    }

    fn find<'f>(found: &'f [(Outcome, String)], part: &str) -> &'f (Outcome, String) {
        found.iter().find(|(_, text)| text.contains(part)).unwrap_or_else(|| panic!("{part}: {found:?}"))
    }

    #[test]
    fn a_bad_path_is_told_from_a_good_one() {
        let link = |mtu: u64, segments: u64, resent: u64, congestion: &str, limited: bool| {
            json!([{
                "rtt_seconds": 0.25, "rtt_min_seconds": 0.236, "path_mtu": mtu, "segments": segments,
                "resent_segments": resent, "congestion": congestion, "delivery_rate": 3_500_000, "sender_limited": limited,
            }])
        };
        let good = outcomes(link(1_500, 100_000, 3, "bbr", false));
        assert_eq!(find(&good, "round-trip time 236.0 ms").0, Outcome::Fine);
        assert_eq!(find(&good, "path MTU 1500").0, Outcome::Fine);
        assert_eq!(find(&good, "0.00 % of 100000").0, Outcome::Fine);
        assert_eq!(find(&good, "up to 28.0 Mbit/s").0, Outcome::Fine);
        assert_eq!(find(&good, "bbr").0, Outcome::Fine);
        let bad = outcomes(link(1_100, 100_000, 4_000, "cubic", true));
        assert_eq!(find(&bad, "path MTU 1100").0, Outcome::Warning);
        assert_eq!(find(&bad, "4.00 %").0, Outcome::Warning);
        assert_eq!(find(&bad, "28.0 Mbit/s").0, Outcome::Untested);
        assert_eq!(find(&bad, "cubic").0, Outcome::Warning);
        assert_eq!(find(&outcomes(link(1_400, 20, 4, "bbr", true)), "path MTU 1400").0, Outcome::Note);
        assert_eq!(find(&outcomes(link(1_500, 20, 4, "bbr", true)), "too few").0, Outcome::Untested);
        assert_eq!(find(&outcomes(json!([])), "no inner channel").0, Outcome::Untested);
    }

    #[test]
    fn a_peer_that_does_not_listen_is_a_failure_and_one_that_does_is_measured() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = HostPort::parse(&address.to_string(), 1).unwrap();
        let mut report = Report::default();
        probed(&mut report, &peer);
        assert!(report.findings.iter().any(|finding| finding.text.contains("path MTU")), "{report:?}");
        assert!(report.exit().is_ok(), "{report:?}");
        drop(listener);
        let mut report = Report::default();
        probed(&mut report, &peer);
        assert_eq!(report.findings[0].outcome, Outcome::Failure);
    }
}
