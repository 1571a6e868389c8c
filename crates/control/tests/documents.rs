//! docs/metrics.md and docs/api.md say what the program does, no more and no less.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used)]

mod http_client;
mod sample;

use http_client::get;
use isthmus_control::{Admin, AdminOptions};
use isthmus_telemetry::{Kind, METRICS, SmbState};
use isthmus_types::{Reason, Side};
use sample::{Sample, Scene};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::Path;
use tokio::net::TcpListener;

/// Objects whose keys are data, with the word the document uses for such a key.
const MAPS: [(&str, &str); 6] = [
    ("reduction", "period"),
    ("states", "state"),
    ("smb_states", "smb_state"),
    ("not_optimised", "reason"),
    ("saved_bytes", "by"),
    ("saved", "request"),
];

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the table rows whose first cell is code.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn metrics_are_documented_as_they_are() {
    let text = document("metrics.md");
    let documented: BTreeMap<&str, Vec<&str>> = rows(&text)
        .filter(|cells| cells.len() == 4)
        .map(|cells| (cells[0].trim_matches('`'), cells[1..].to_vec()))
        .collect();
    for metric in METRICS {
        let cells =
            documented.get(metric.name).unwrap_or_else(|| panic!("{} is not documented", metric.name));
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        assert_eq!(*cells, [kind, &metric.labels.join(", "), metric.help], "{}", metric.name);
    }
    assert_eq!(documented.len(), METRICS.len(), "the document names a metric that does not exist");
}

#[test]
fn smb_states_are_documented_as_they_are() {
    let text = document("metrics.md");
    let (_, section) = text.split_once("| state | on the console |").unwrap();
    let section = section.split("\n\n").next().unwrap();
    let documented: Vec<_> =
        rows(section).map(|cells| (cells[0].trim_matches('`').to_owned(), cells[1].to_owned())).collect();
    let real: Vec<_> =
        SmbState::ALL.iter().map(|state| (state.label().to_owned(), state.to_string())).collect();
    assert_eq!(documented, real);
}

#[test]
fn reasons_are_documented_as_they_are() {
    let text = document("metrics.md");
    let (_, section) = text.split_once("## Reasons").unwrap();
    let documented: Vec<_> =
        rows(section).map(|cells| (cells[0].trim_matches('`').to_owned(), cells[1].to_owned())).collect();
    let real: Vec<_> =
        Reason::ALL.iter().map(|reason| (reason.label().to_owned(), reason.to_string())).collect();
    assert_eq!(documented, real);
}

#[test]
fn the_api_is_documented_as_it_is() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut real: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Lists that are empty in one scene are filled in another.
    for (side, scene) in [(Side::Client, Scene::Trouble), (Side::Server, Scene::Busy)] {
        let sample = Sample::new(side, scene);
        let admin = Admin::new(sample.telemetry.clone(), sample.source.clone(), AdminOptions::default());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(admin.serve(listener, pending()));
        for path in [
            "/readyz",
            "/api/summary",
            "/api/connections",
            "/api/trace?connection=1",
            "/api/peers",
            "/api/fleet",
            "/api/store",
            "/api/history",
            "/api/events",
            "/api/links",
            "/api/process",
        ] {
            let value: Value = serde_json::from_str(&get(address, path).body).unwrap();
            let path = path.split('?').next().unwrap_or(path);
            flatten("", &value, real.entry(path.to_owned()).or_default());
        }
    }
    let text = document("api.md");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in text.split("\n## GET ").skip(1) {
        let path = section.lines().next().unwrap().trim().to_owned();
        let fields = rows(section).map(|cells| cells[0].trim_matches('`').to_owned()).collect();
        documented.insert(path, fields);
    }
    for (path, fields) in &real {
        let have = documented.get(path).unwrap_or_else(|| panic!("{path} is not documented"));
        let missing: Vec<_> = fields.difference(have).collect();
        let invented: Vec<_> = have.difference(fields).collect();
        assert!(
            missing.is_empty() && invented.is_empty(),
            "{path}: missing {missing:?}, invented {invented:?}"
        );
    }
    assert_eq!(documented.len(), real.len());
}

fn flatten(at: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let name = at.rsplit(['.', ']']).next().unwrap_or(at);
            let map = MAPS.iter().find(|(map, _)| *map == name);
            for (key, field) in fields {
                let key = map.map_or(key.clone(), |(_, word)| format!("{{{word}}}"));
                let at = if at.is_empty() { key } else { format!("{at}.{key}") };
                flatten(&at, field, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| flatten(&format!("{at}[]"), item, into)),
        _ => drop(into.insert(at.to_owned())),
    }
}
