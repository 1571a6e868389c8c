//! Everything in deploy/ that asks for metrics, asked of a real Prometheus that scrapes both sides of a sample pair.
//! Needs the package `prometheus` (with promtool); without it the test says so and checks nothing.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used)]

mod http_client;
mod sample;

use http_client::{get, request};
use isthmus_control::{Admin, AdminOptions};
use isthmus_telemetry::METRICS;
use isthmus_types::Side;
use sample::{Sample, Scene};
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// For what must come, on a machine that may be busy. Not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(90);
/// Scrapes that must have been taken before rates are asked for.
const SCRAPES: u64 = 6;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    let path = deploy(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The panels that ask for data, with each of their expressions.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboards/isthmus.json")).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert!(panel["type"] == "row" || !targets.is_empty(), "{title} asks for nothing");
        for target in targets {
            found.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    found
}

/// A Prometheus of our own, with its data in a folder that goes with it.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(targets: &[SocketAddr]) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let list: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: isthmus\n    static_configs:\n      - targets: [{}]\n",
            list.join(", ")
        );
        let path = folder.path().join("prometheus.yml");
        std::fs::write(&path, config).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Prometheus { child, address, _folder: folder }
    }

    fn query(&self, expression: &str) -> Value {
        // Under HTTP/1.0 the answer comes in one piece, whatever its length.
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        let answer = request(self.address, &format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address));
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(value["status"], "success", "{expression}: {value}");
        value["data"]["result"].clone()
    }

    /// Waits until each target has been scraped often enough for rates.
    fn settle(&self, targets: usize) {
        let start = Instant::now();
        while std::net::TcpStream::connect(self.address).is_err()
            || get(self.address, "/-/ready").status != 200
            || !self.scraped(targets)
        {
            assert!(start.elapsed() < PATIENCE, "Prometheus does not get to know its targets");
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn scraped(&self, targets: usize) -> bool {
        let expression = format!("count_over_time(up{{job=\"isthmus\"}}[10m]) >= {SCRAPES} and up == 1");
        self.query(&expression).as_array().is_some_and(|up| up.len() == targets)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Whether a program is installed. Where CI runs it must be.
fn present(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        let reason = format!("{program} is missing: apt-get install prometheus");
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("ignored: {reason}");
    }
    found
}

fn serve(runtime: &Runtime, side: Side) -> SocketAddr {
    let sample = Sample::new(side, Scene::Busy);
    let admin = Admin::new(sample.telemetry.clone(), sample.source.clone(), AdminOptions::default());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(admin.serve(listener, pending()));
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            sample.advance(Duration::from_secs(5));
        }
    });
    address
}

#[test]
fn every_panel_has_data_in_a_real_prometheus() {
    if !present("prometheus") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let targets = [serve(&runtime, Side::Client), serve(&runtime, Side::Server)];
    let prometheus = Prometheus::start(&targets);
    prometheus.settle(targets.len());
    let mut asked = 0;
    for (title, template) in queries() {
        let expression =
            template.replace("$instance", ".*").replace("$__rate_interval", "30s").replace("$__range", "30s");
        assert!(!expression.contains('$'), "{title}: a variable this test does not know: {template}");
        let result = prometheus.query(&expression);
        let instances: BTreeSet<_> = result
            .as_array()
            .unwrap()
            .iter()
            .map(|sample| sample["metric"]["instance"].to_string())
            .collect();
        // Only the server side has keys.
        let sides = if expression.contains("isthmus_key_") { 1 } else { targets.len() };
        assert_eq!(instances.len(), sides, "{title}: {expression} found {result}");
        asked += 1;
    }
    assert!(asked >= 40, "only {asked} queries were found");
    let reduction = prometheus.query(
        "1 - sum(increase(isthmus_wan_bytes_total[30s])) / sum(increase(isthmus_lan_bytes_total[30s]))",
    );
    let value: f64 = reduction[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((0.3..1.0).contains(&value), "the sample reduces well: {reduction}");
}

#[test]
fn configuration_and_alerts_are_what_promtool_expects() {
    if !present("promtool") {
        return;
    }
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let output =
            Command::new("promtool").args(arguments).current_dir(deploy("prometheus")).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}

#[test]
fn the_metrics_text_satisfies_promtool() {
    if !present("promtool") {
        return;
    }
    let sample = Sample::new(Side::Client, Scene::Trouble);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics");
    std::fs::write(&path, sample.telemetry.metrics_text().unwrap()).unwrap();
    let output = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nor has it anything to say on style");
}

#[test]
fn what_is_deployed_asks_only_for_metrics_that_exist() {
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let mut asked = BTreeSet::new();
    let texts = [read("prometheus/alerts.yml"), read("prometheus/alerts.test.yml")];
    let expressions = queries().into_iter().map(|(_, expression)| expression);
    let everything: Vec<String> = texts.into_iter().chain(expressions).collect();
    for text in &everything {
        let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        for name in
            text.split(word).filter(|word| word.starts_with("isthmus_") || word.starts_with("process_"))
        {
            // The parts of a histogram.
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            let name = base.filter(|base| known.contains(base)).unwrap_or(name);
            assert!(known.contains(name), "{name} does not exist: {text}");
            asked.insert(name);
        }
    }
    for name in
        known.iter().filter(|name| !matches!(**name, "process_start_time_seconds" | "isthmus_draining"))
    {
        assert!(asked.contains(name), "{name} is shown nowhere");
    }
}
