//! One frame of `top` as lines of text.

use serde_json::Value;

use super::super::status::{bytes, span};
use super::{Answers, View};

/// Alarms that a frame has room for.
const ALARMS_MAX: usize = 3;
/// Peers that are shown in a row.
const PEERS_MAX: usize = 4;
/// Widest address or name of a server, in columns.
const NAME_COLUMNS_MAX: usize = 30;

/// The lines, none wider than `columns`, with at most `rows` connections.
pub(super) fn frame(answers: &Answers, view: &View, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = head(&answers.summary, &answers.peers);
    lines.push(String::new());
    lines.extend(table(&answers.connections, view, rows));
    lines.iter().map(|line| fit(line, columns)).collect()
}

fn head(summary: &Value, peers: &Value) -> Vec<String> {
    let text = |value: &Value| plain(value.as_str().unwrap_or("?"));
    let state = match (summary["draining"].as_bool(), summary["ready"].as_bool()) {
        (Some(true), _) => "draining",
        (_, Some(true)) => "ready",
        _ => "not ready",
    };
    let mut lines = vec![format!(
        "{} proxy {}, version {}, up {}: {state}",
        text(&summary["side"]),
        text(&summary["name"]),
        text(&summary["version"]),
        span(summary["uptime_seconds"].as_f64().unwrap_or(0.0))
    )];
    for (label, key) in [("now", "now"), ("hour", "hour"), ("total", "total")] {
        let window = &summary["reduction"][key];
        let part = |field: &str| bytes(window[field].as_f64().unwrap_or(0.0));
        let (lan, wan, passed) = (part("lan_bytes"), part("wan_bytes"), part("passed_bytes"));
        let less = less(&window["data_reduction"]);
        let increase = window["capacity_increase"].as_f64().map(|times| format!(" ({times:.1}×)"));
        let increase = increase.unwrap_or_default();
        lines.push(format!(
            "{label:<6} LAN {lan:>8}  WAN {wan:>8}  {less:>7} less{increase}  passed {passed:>8}"
        ));
    }
    let rate = |key: &str| format!("{}/s", bytes(summary["rates"][key].as_f64().unwrap_or(0.0)));
    lines.push(format!(
        "rates  LAN up {}, down {}  WAN up {}, down {}",
        rate("lan_up"),
        rate("lan_down"),
        rate("wan_up"),
        rate("wan_down")
    ));
    for peer in list(&peers["peers"]).take(PEERS_MAX) {
        let rtt =
            peer["rtt_seconds"].as_f64().map(|rtt| format!(", {:.1} ms", rtt * 1e3)).unwrap_or_default();
        let why = peer["reason_text"].as_str().map(|why| format!(": {}", plain(why))).unwrap_or_default();
        let busy = peer["channels_busy"].as_u64().unwrap_or(0);
        lines.push(format!(
            "peer   {} {}{rtt}, {busy} channels busy{why}",
            text(&peer["name"]),
            text(&peer["state"])
        ));
    }
    for alarm in list(&summary["alarms"]).take(ALARMS_MAX) {
        lines.push(format!("{}: {}", text(&alarm["severity"]), text(&alarm["title"])));
    }
    lines
}

fn table(connections: &Value, view: &View, rows: usize) -> Vec<String> {
    let shown: Vec<&Value> = list(&connections["connections"]).take(rows).collect();
    let matched = connections["matched"].as_u64().unwrap_or(0);
    let width = |field: &str, title: &str| {
        let widest =
            shown.iter().filter_map(|row| row[field].as_str()).map(|text| plain(text).chars().count());
        widest.max().unwrap_or(0).clamp(title.len(), NAME_COLUMNS_MAX)
    };
    let (client, target) = (width("client", "CLIENT"), width("target", "TARGET"));
    let filter = if view.filter.is_empty() { String::new() } else { format!(", filter {:?}", view.filter) };
    let order = if view.is_reversed { ", reversed" } else { "" };
    let which = if view.not_optimised { "not optimised" } else { "open" };
    let mut lines = vec![
        format!("{matched} connections {which}, by {:?}{order}{filter}", view.sort).to_lowercase(),
        format!(
            "{:<client$}  {:<target$}  {:<12}  {:>8}  {:>8}  {:>7}  {:>12}  REASON, SMB",
            "CLIENT", "TARGET", "STATE", "LAN", "WAN", "LESS", "AGE"
        ),
    ];
    for row in shown {
        let text = |field: &str| plain(row[field].as_str().unwrap_or(""));
        let size = |field: &str| bytes(row[field].as_f64().unwrap_or(0.0));
        let is_passed = row["passed_bytes"].as_u64().is_some_and(|passed| passed > 0);
        let (lan, wan) = if is_passed {
            (size("passed_bytes"), size("passed_bytes"))
        } else {
            (size("lan_bytes"), size("wan_bytes"))
        };
        lines.push(format!(
            "{}  {}  {:<12}  {lan:>8}  {wan:>8}  {:>7}  {:>12}  {}",
            pad(&text("client"), client),
            pad(&text("target"), target),
            text("state").replace('_', " "),
            less(&row["data_reduction"]),
            span(row["age_seconds"].as_f64().unwrap_or(0.0)),
            why(row)
        ));
    }
    lines
}

/// Why it is as it is: the reason if there is one, and what is known of SMB.
fn why(row: &Value) -> String {
    let detail = row["detail"].as_str().filter(|detail| !detail.is_empty());
    let reason = detail.or(row["reason_text"].as_str());
    let smb = &row["smb"];
    let parts = [reason, smb["state_text"].as_str(), smb["reason"].as_str(), smb["user"].as_str()];
    parts.into_iter().flatten().map(plain).collect::<Vec<_>>().join("; ")
}

fn less(reduction: &Value) -> String {
    reduction.as_f64().map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let missing = width.saturating_sub(text.chars().count());
    text + &" ".repeat(missing)
}

/// Cut to so many characters, the last one an ellipsis if anything was cut.
fn fit(text: &str, columns: usize) -> String {
    isthmus_telemetry::clean(text, columns)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Without control characters, which a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Sort;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frame_shows_connections_reduction_and_reasons_within_its_width() {
        let answers = Answers {
            summary: json!({
                "side": "client-side", "name": "branch\u{1b}[2J", "version": "0.1.0", "uptime_seconds": 65, "ready": true,
                "draining": false, "alarms": [{ "severity": "warning", "title": "Certificate ends soon" }],
                "reduction": {
                    "now": { "lan_bytes": 2_000_000, "wan_bytes": 20_000, "passed_bytes": 0, "data_reduction": 0.99, "capacity_increase": 100.0 },
                    "hour": {}, "total": {},
                },
                "rates": { "lan_down": 1_500_000 },
            }),
            peers: json!({ "peers": [{ "name": "dc", "state": "up", "rtt_seconds": 0.236, "channels_busy": 2 }] }),
            connections: json!({ "matched": 2, "connections": [
                { "client": "10.0.0.9:50000", "target": "files:445", "state": "optimised", "lan_bytes": 1_000_000, "wan_bytes": 1_000,
                  "data_reduction": 0.999, "age_seconds": 3_700, "smb": { "state_text": "encrypted, keys", "user": "CORP\\alice" } },
                { "client": "10.0.0.10:50001", "target": "files:445", "state": "pass_through", "passed_bytes": 5_000, "lan_bytes": 0,
                  "wan_bytes": 0, "data_reduction": null, "age_seconds": 2, "reason_text": "a rule says so", "smb": null },
            ]}),
        };
        let view = View { sort: Sort::Lan, is_reversed: false, not_optimised: false, filter: String::new() };
        let lines = frame(&answers, &view, 200, 20);
        let expected = [
            "client-side proxy branch[2J, version 0.1.0, up 1 min 5 s: ready",
            "now    LAN   2.0 MB  WAN  20.0 kB   99.0 % less (100.0×)  passed      0 B",
            "hour   LAN      0 B  WAN      0 B        – less  passed      0 B",
            "total  LAN      0 B  WAN      0 B        – less  passed      0 B",
            "rates  LAN up 0 B/s, down 1.5 MB/s  WAN up 0 B/s, down 0 B/s",
            "peer   dc up, 236.0 ms, 2 channels busy",
            "warning: Certificate ends soon",
            "",
            "2 connections open, by lan",
            "CLIENT           TARGET     STATE              LAN       WAN     LESS           AGE  REASON, SMB",
            "10.0.0.9:50000   files:445  optimised       1.0 MB    1.0 kB   99.9 %     1 h 1 min  encrypted, keys; CORP\\alice",
            "10.0.0.10:50001  files:445  pass through    5.0 kB    5.0 kB        –           2 s  a rule says so",
        ];
        assert_eq!(lines, expected);
        let narrow = frame(&answers, &view, 40, 1);
        assert_eq!(narrow.len(), expected.len() - 1);
        assert!(narrow.iter().all(|line| line.chars().count() <= 40), "{narrow:?}");
    }
}
