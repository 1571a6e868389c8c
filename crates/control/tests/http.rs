//! The admin port as any client sees it.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used)]

mod http_client;
mod sample;

use http_client::{Answer, get, read, request};
use isthmus_control::{Admin, AdminOptions, limits};
use isthmus_types::Side;
use sample::{Sample, Scene};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

struct Port {
    address: SocketAddr,
    _sample: Sample,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
    runtime: tokio::runtime::Runtime,
}

fn serve(side: Side, scene: Scene) -> Port {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sample = Sample::new(side, scene);
    let options = AdminOptions { hosts: vec!["proxy.example".into()] };
    let admin = Admin::new(sample.telemetry.clone(), sample.source.clone(), options);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = runtime.spawn(admin.serve(listener, async { drop(stopped.await) }));
    Port { address, _sample: sample, stop: Some(stop), served, runtime }
}

fn with_host(port: &Port, host: &str) -> Answer {
    request(port.address, &format!("GET /api/summary HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn json(answer: &Answer) -> serde_json::Value {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn a_ready_proxy_says_so() {
    let port = serve(Side::Client, Scene::Busy);
    assert_eq!(get(port.address, "/healthz").body, "ok\n");
    let ready = get(port.address, "/readyz");
    assert_eq!((ready.status, json(&ready)["ready"].as_bool()), (200, Some(true)));
}

#[test]
fn readyz_names_what_stands_in_the_way_and_healthz_does_not_care() {
    let port = serve(Side::Client, Scene::Trouble);
    let ready = get(port.address, "/readyz");
    assert_eq!(ready.status, 503);
    let body = json(&ready);
    assert_eq!(body["not_ready"][0]["reason"], "peer_unauthorised");
    assert!(body["not_ready"][0]["text"].as_str().unwrap().contains("certificate expired"), "{body}");
    assert_eq!(get(port.address, "/healthz").status, 200);
}

#[test]
fn metrics_are_prometheus_text() {
    let port = serve(Side::Server, Scene::Busy);
    let answer = get(port.address, "/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(answer.body.contains("isthmus_build_info{version=\"0.1.0\",side=\"server-side\"} 1"));
    assert!(answer.body.contains("isthmus_peer_up{peer=\"laptop-asha\"} 0"));
}

#[test]
fn only_names_of_this_proxy_are_answered() {
    let port = serve(Side::Client, Scene::Fresh);
    for good in ["localhost", "localhost:7811", "192.0.2.1:80", "[::1]", "proxy.example:7811"] {
        assert_eq!(with_host(&port, good).status, 200, "{good}");
    }
    for bad in ["evil.example", "127.0.0.1.evil.example", ""] {
        let answer = with_host(&port, bad);
        assert_eq!(answer.status, 421, "{bad}");
        assert!(!answer.body.contains("branch-mumbai"));
    }
    let twice = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_ne!(request(port.address, twice).status, 200);
    assert_ne!(request(port.address, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n").status, 200);
}

#[test]
fn only_reads_are_answered() {
    let port = serve(Side::Client, Scene::Fresh);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let raw = format!("{method} /api/summary HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = request(port.address, &raw);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = request(port.address, "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let body = "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    assert_eq!(request(port.address, body).status, 413);
    assert_eq!(get(port.address, "/nowhere").status, 404);
    assert_eq!(get(port.address, "/api/history?span=2h").status, 400);
    assert_eq!(get(port.address, "/api/connections?sort=colour").status, 400);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let port = serve(Side::Client, Scene::Fresh);
    let filler = "x".repeat(limits::HEAD_BYTES_MAX);
    let raw = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Filler: {filler}\r\nConnection: close\r\n\r\n");
    assert_eq!(request(port.address, &raw).status, 431);
    let many = "X-Line: 1\r\n".repeat(limits::HEADERS_MAX + 1);
    let raw = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}Connection: close\r\n\r\n");
    assert_eq!(request(port.address, &raw).status, 431);
}

#[test]
fn every_answer_carries_the_security_headers() {
    let port = serve(Side::Client, Scene::Fresh);
    for path in ["/", "/console.js", "/api/summary", "/metrics", "/nowhere", "/api/history?span=x"] {
        let answer = get(port.address, path);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert!(answer.header("cache-control").is_some(), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() {
    let port = serve(Side::Client, Scene::Fresh);
    let page = get(port.address, "/").body;
    for forbidden in ["http://", "https://", "//cdn", " style=", "<style", " onclick", "javascript:"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    let sources = page.split(['"']).filter(|part| part.starts_with('/') && part.contains('.'));
    let mut seen = 0;
    for path in sources {
        assert_eq!(get(port.address, path).status, 200, "{path}");
        seen += 1;
    }
    assert!(seen >= 4, "the page names its style, its script and its icon");
}

#[test]
fn connections_can_be_searched_sorted_and_limited() {
    let port = serve(Side::Client, Scene::Busy);
    let list = |query: &str| json(&get(port.address, &format!("/api/connections?{query}")));
    let all = list("");
    assert_eq!(all["matched"], 8);
    let texts = |view: &serde_json::Value, key: &str| -> Vec<String> {
        view["connections"].as_array().unwrap().iter().map(|row| row[key].to_string()).collect()
    };
    let found = list("q=ARCHIVE");
    assert_eq!(texts(&found, "target"), ["\"archive.example.com:445\""]);
    assert_eq!(list("q=a+rule+passes")["matched"], 1, "reasons are searched as the console words them");
    let largest = list("sort=lan_bytes&limit=3");
    assert_eq!((largest["matched"].as_u64(), texts(&largest, "id").len()), (Some(8), 3));
    let lan: Vec<u64> = largest["connections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["lan_bytes"].as_u64().unwrap())
        .collect();
    assert!(lan[0] >= lan[1] && lan[1] >= lan[2] && lan[2] > 0, "{lan:?}");
    let closed = list("state=closed");
    assert_eq!(texts(&closed, "outcome"), ["\"failed\"", "\"denied\""]);
    // Three that the pair does not carry, one that is encrypted without keys, and one of SMB1.
    assert_eq!(list("state=not_optimised")["matched"], 5);
    let of_user = list("q=example%5Casha");
    assert_eq!(of_user["connections"][0]["smb"]["state"], "encrypted_keys");
    assert_eq!(of_user["connections"][0]["smb"]["shares"], serde_json::json!(["projects", "home"]));
    assert_eq!(list("q=signed,+keys")["matched"], 1);
    let states: Vec<_> = list("sort=smb")["connections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["smb"]["state"].as_str().unwrap_or("none").to_owned())
        .collect();
    assert_eq!(states[..3], ["encrypted_keys", "signed_keys", "signed_no_keys"]);
    assert_eq!(states[4..], ["smb1", "none", "none", "none"]);
    assert_eq!(list("state=all")["matched"], 10);
}

#[test]
fn history_has_equal_columns_and_up_means_up_on_both_sides() {
    for side in [Side::Client, Side::Server] {
        let port = serve(side, Scene::Busy);
        let view = json(&get(port.address, "/api/history?span=1h"));
        let sum =
            |key: &str| -> u64 { view[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum() };
        let length = |key: &str| view[key].as_array().unwrap().len();
        assert_eq!(length("lan_up"), 720);
        assert_eq!(length("wan_down"), length("connections"));
        assert!(sum("wan_down") > 5 * sum("wan_up"), "the sample downloads more than it uploads ({side})");
        let day = json(&get(port.address, "/api/history?span=24h"));
        assert_eq!(day["step_seconds"], 120);
    }
}

#[test]
fn events_come_newest_first_and_repeats_are_one() {
    let port = serve(Side::Client, Scene::Trouble);
    let view = json(&get(port.address, "/api/events"));
    assert_eq!(view["events"][0]["count"], 14);
    let id = view["events"][0]["id"].as_u64().unwrap();
    let after = json(&get(port.address, &format!("/api/events?after={}", id - 1)));
    assert_eq!(after["events"].as_array().unwrap().len(), 1);
    let one = json(&get(port.address, "/api/events?limit=1"));
    assert_eq!(one["events"][0]["id"], id);
}

#[test]
fn a_connection_above_the_limit_waits_and_is_then_served() {
    let port = serve(Side::Client, Scene::Fresh);
    let ask = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", port.address);
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..limits::CONNECTIONS_MAX {
        let mut socket = TcpStream::connect(port.address).unwrap();
        socket.write_all(ask.as_bytes()).unwrap();
        assert_eq!(read(&mut socket).status, 200);
        held.push(socket);
    }
    let mut waiting = TcpStream::connect(port.address).unwrap();
    waiting.write_all(ask.as_bytes()).unwrap();
    waiting.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let early = std::io::Read::read(&mut waiting, &mut [0; 1]);
    assert!(early.is_err(), "nothing is answered while all slots are held");
    held.pop();
    waiting.set_read_timeout(None).unwrap();
    assert_eq!(read(&mut waiting).status, 200);
}

#[test]
fn garbage_is_answered_with_an_error_and_the_port_goes_on() {
    let port = serve(Side::Client, Scene::Fresh);
    for garbage in ["\x16\x03\x01\x02\0\x01\0\r\n\r\n", "GET\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        assert_eq!(request(port.address, garbage).status, 400, "{garbage:?}");
    }
    assert_eq!(get(port.address, "/healthz").status, 200);
}

#[test]
fn shutdown_closes_the_port_and_kept_connections() {
    let mut port = serve(Side::Client, Scene::Fresh);
    let mut kept = TcpStream::connect(port.address).unwrap();
    kept.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", port.address).as_bytes()).unwrap();
    assert_eq!(read(&mut kept).status, 200);
    port.stop.take().unwrap().send(()).unwrap();
    port.runtime.block_on(&mut port.served).unwrap();
    assert_eq!(std::io::Read::read(&mut kept, &mut [0; 1]).unwrap(), 0);
    assert!(TcpStream::connect(port.address).is_err());
}
