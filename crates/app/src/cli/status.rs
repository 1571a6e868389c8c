//! `status`: asks the running proxy's admin port how it is.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use isthmus_telemetry::SmbState;
use serde_json::Value;

use super::exit::Failure;
use super::http;
use super::output::{self, outln};

/// Most peers and alarms that are printed for people; `--json` has them all.
const LINES_MAX: usize = 20;

/// Arguments of `status`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// As JSON, as the admin port gives it
    #[arg(long)]
    json: bool,
}

/// Asks and prints. `configured` gives `admin.listen`, and is only called when no address was given.
pub fn run<C: Args>(
    arguments: &Arguments<C>,
    configured: impl FnOnce() -> Result<Option<SocketAddr>, Failure>,
) -> Result<(), Failure> {
    let address = http::admin(arguments.address, configured)?;
    let summary = http::json(address, "/api/summary")?;
    let peers = http::json(address, "/api/peers")?;
    if arguments.json {
        let both = serde_json::json!({ "summary": summary, "peers": peers["peers"] });
        outln!("{both:#}");
    } else {
        output::out(format_args!("{}", for_people(&summary, &peers)))?;
    }
    Ok(())
}

/// What a person wants to know first. Fields that an older or newer proxy does not have are left out.
fn for_people(summary: &Value, peers: &Value) -> String {
    let mut out = String::new();
    let text = |value: &Value| plain(value.as_str().unwrap_or("?"));
    let uptime = span(summary["uptime_seconds"].as_f64().unwrap_or(0.0));
    let state = match (summary["draining"].as_bool(), summary["ready"].as_bool()) {
        (Some(true), _) => "draining",
        (_, Some(true)) => "ready",
        _ => "not ready",
    };
    let (side, name, version) = (text(&summary["side"]), text(&summary["name"]), text(&summary["version"]));
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "{side} proxy {name}, version {version}, up {uptime}: {state}");
    for reason in list(&summary["not_ready"]) {
        let _ = writeln!(out, "  not ready: {}", text(&reason["text"]));
    }
    for alarm in list(&summary["alarms"]) {
        let _ = writeln!(
            out,
            "  {}: {}: {}",
            text(&alarm["severity"]),
            text(&alarm["title"]),
            text(&alarm["text"])
        );
    }
    reductions(&mut out, &summary["reduction"]);
    connections(&mut out, &summary["connections"]);
    keys(&mut out, &summary["keys"]);
    agent(&mut out, &summary["agent"], &summary["location"]);
    for peer in list(&peers["peers"]) {
        let rtt = peer["rtt_seconds"].as_f64().map(|rtt| format!(", {:.1} ms away", rtt * 1000.0));
        let reason = peer["detail"].as_str().or(peer["reason_text"].as_str());
        let reason = reason.map(|reason| format!(": {}", plain(reason)));
        let (name, address, state) = (text(&peer["name"]), text(&peer["address"]), text(&peer["state"]));
        let (rtt, reason) = (rtt.unwrap_or_default(), reason.unwrap_or_default());
        let _ = writeln!(out, "peer              {name} at {address}: {state}{rtt}{reason}");
    }
    out
}

fn reductions(out: &mut String, reduction: &Value) {
    for (label, key) in [("now", "now"), ("last hour", "hour"), ("since the start", "total")] {
        let window = &reduction[key];
        let (Some(lan), Some(wan)) = (window["lan_bytes"].as_f64(), window["wan_bytes"].as_f64()) else {
            continue;
        };
        let ratio = match (window["data_reduction"].as_f64(), window["capacity_increase"].as_f64()) {
            (Some(reduction), Some(increase)) => format!("{:.1} % less ({increase:.1}×)", reduction * 100.0),
            (Some(reduction), None) => format!("{:.1} % less", reduction * 100.0),
            _ => "no LAN traffic".into(),
        };
        let (lan, wan) = (bytes(lan), bytes(wan));
        let _ = writeln!(out, "{label:<16}  LAN {lan:>9}, WAN {wan:>9}: {ratio}");
    }
}

fn connections(out: &mut String, connections: &Value) {
    let Some(open) = connections["open"].as_u64() else { return };
    let states: Vec<String> = connections["states"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(state, count)| Some((plain(state).replace('_', " "), count.as_u64()?)))
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    let ended = connections["ended"].as_u64().unwrap_or(0);
    let _ = writeln!(out, "connections       {open} open{states}, {ended} ended");
    let smb: Vec<String> = connections["smb_states"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(state, count)| Some((smb_state(state), count.as_u64()?)))
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} × {state}"))
        .collect();
    if !smb.is_empty() {
        let _ = writeln!(out, "SMB               {}", smb.join("; "));
    }
}

/// A state in words; that of a newer proxy as it is.
fn smb_state(label: &str) -> String {
    let known = SmbState::ALL.into_iter().find(|state| state.label() == label);
    known.map_or_else(|| plain(label), |state| state.to_string())
}

fn keys(out: &mut String, keys: &Value) {
    let sources: Vec<&Value> = keys["sources"].as_array().into_iter().flatten().collect();
    if sources.is_empty() {
        return;
    }
    let sum = |field: &str| sources.iter().filter_map(|source| source[field].as_u64()).sum::<u64>();
    let count = |field: &str| keys[field].as_u64().unwrap_or(0);
    let _ = writeln!(
        out,
        "keys              {} service keys and {} NT hashes from {} sources; given to peers {} times, refused {} times",
        sum("service_keys"),
        sum("nt_hashes"),
        sources.len(),
        count("released"),
        count("refused")
    );
}

fn agent(out: &mut String, agent: &Value, location: &Value) {
    if let Some(name) = agent["name"].as_str() {
        let policy = match (agent["policy"].as_str(), agent["policy_version"].as_u64()) {
            (Some(policy), Some(version)) => format!("policy {} version {version}", plain(policy)),
            _ => "no policy".into(),
        };
        let synced = match agent["synced"].as_f64() {
            Some(at) => {
                let now =
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                format!("server side answered {} ago", span(now.as_secs_f64() - at))
            }
            None => "no answer of the server side yet".into(),
        };
        let _ = writeln!(out, "agent             {}, {policy}, {synced}", plain(name));
        if let Some(problem) = agent["problem"].as_str() {
            let _ = writeln!(out, "  problem: {}", plain(problem));
        }
    }
    if let (Some(at), Some(why)) = (location["location"].as_str(), location["why"].as_str()) {
        let _ = writeln!(out, "location          {}: {}", plain(at), plain(why));
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten().take(LINES_MAX)
}

/// Without control characters, which a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

pub(super) fn bytes(count: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count.max(0.0);
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

pub(super) fn span(seconds: f64) -> String {
    let duration = Duration::from_secs(seconds.clamp(0.0, 1e12) as u64);
    let (days, hours) = (duration.as_secs() / 86_400, duration.as_secs() / 3_600 % 24);
    let (minutes, seconds) = (duration.as_secs() / 60 % 60, duration.as_secs() % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_matters_and_no_escape_sequences() {
        let summary = serde_json::json!({
            "side": "client-side", "name": "branch\u{1b}[31m", "version": "0.1.0", "uptime_seconds": 11_530,
            "ready": false, "not_ready": [{ "reason": "peer_absent", "text": "no link to the peer" }],
            "alarms": [{ "severity": "critical", "title": "Peer down", "text": "since noon" }],
            "reduction": {
                "now": { "lan_bytes": 0, "wan_bytes": 0, "data_reduction": null, "capacity_increase": null },
                "total": { "lan_bytes": 200_000_000, "wan_bytes": 1_000_000, "data_reduction": 0.995,
                           "capacity_increase": 200.0 },
            },
            "connections": { "open": 3, "states": { "optimised": 2, "pass_through": 1, "denied": 0 }, "ended": 7,
                             "smb_states": { "encrypted_keys": 2, "signed_no_keys": 1 } },
            "keys": { "sources": [{ "service_keys": 4, "nt_hashes": 1 }, { "service_keys": 2, "nt_hashes": 0 }],
                      "released": 9, "refused": 1 },
            "agent": { "name": "laptop-1", "policy": "default", "policy_version": 7, "synced": null,
                       "problem": "cannot listen" },
            "location": { "location": "branch", "why": "gateway branch-7 answers within 0.4 ms", "since": 5 },
        });
        let peers = serde_json::json!({ "peers": [
            { "name": "dc", "address": "192.0.2.1:7810", "state": "up", "rtt_seconds": 0.0401, "reason_text": null },
        ]});
        let text = for_people(&summary, &peers);
        let expected = "\
            client-side proxy branch[31m, version 0.1.0, up 3 h 12 min: not ready\n\
            \x20 not ready: no link to the peer\n\
            \x20 critical: Peer down: since noon\n\
            now               LAN       0 B, WAN       0 B: no LAN traffic\n\
            since the start   LAN    200 MB, WAN    1.0 MB: 99.5 % less (200.0×)\n\
            connections       3 open (2 optimised, 1 pass through), 7 ended\n\
            SMB               2 × encrypted, keys; 1 × signed, no keys: reduced\n\
            keys              6 service keys and 1 NT hashes from 2 sources; given to peers 9 times, refused 1 times\n\
            agent             laptop-1, policy default version 7, no answer of the server side yet\n\
            \x20 problem: cannot listen\n\
            location          branch: gateway branch-7 answers within 0.4 ms\n\
            peer              dc at 192.0.2.1:7810: up, 40.1 ms away\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn anything_that_is_json_can_be_printed() {
        for value in [serde_json::json!(null), serde_json::json!([1]), serde_json::json!({ "reduction": 3 })]
        {
            assert!(for_people(&value, &value).contains("proxy"));
        }
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1_500.0), "1.5 kB");
        assert_eq!(bytes(999_999_999.0), "1.0 GB");
        assert_eq!(span(90_061.0), "1 d 1 h");
    }
}
