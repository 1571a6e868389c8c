//! What the running proxy says of itself, if it runs.

use std::net::SocketAddr;

use serde_json::Value;

use super::super::http;
use super::finding::Report;

/// Answers of the admin port.
pub(crate) struct Running {
    pub summary: Value,
    pub peers: Value,
    pub store: Value,
    pub links: Value,
    pub process: Value,
}

impl Running {
    /// Asks for everything; the error says why there is no answer.
    pub fn ask(address: Option<SocketAddr>) -> Result<Running, String> {
        let address = address.ok_or("the admin port is off (admin.listen), so the proxy cannot be asked")?;
        let get = |path: &str| -> Result<Value, String> {
            let text = http::get(address, path).map_err(|failure| failure.text)?;
            serde_json::from_str(&text).map_err(|error| format!("{address}{path} is not JSON: {error}"))
        };
        Ok(Running {
            summary: get("/api/summary")?,
            peers: get("/api/peers")?,
            store: get("/api/store")?,
            // A proxy of an older version does not have these.
            links: get("/api/links").unwrap_or_default(),
            process: get("/api/process").unwrap_or_default(),
        })
    }
}

/// Whether it runs, is ready, and what it complains about.
pub(crate) fn proxy(report: &mut Report, running: &Result<Running, String>) {
    report.area("proxy");
    let running = match running {
        Ok(running) => running,
        Err(why) => {
            let remedy = "start it and ask again: the path to the peer is measured on its own connections";
            return report.warning(format!("the proxy does not answer: {why}"), remedy);
        }
    };
    let summary = &running.summary;
    let version = summary["version"].as_str().unwrap_or("?");
    report.fine(format!("it runs, version {version}"));
    if version != env!("CARGO_PKG_VERSION") {
        let text = format!("this program has version {}", env!("CARGO_PKG_VERSION"));
        report.note(text, "restart the proxy to use what is installed");
    }
    for reason in list(&summary["not_ready"]) {
        let text = format!("new connections are not optimised: {}", reason["text"].as_str().unwrap_or("?"));
        report.failure(text, "see the findings below; what it says itself is in its log");
    }
    for alarm in list(&summary["alarms"]) {
        let text = alarm["title"].as_str().unwrap_or("?").to_owned();
        let remedy = alarm["text"].as_str().unwrap_or_default().to_owned();
        match alarm["severity"].as_str() {
            Some("error") => report.failure(text, remedy),
            _ => report.warning(text, remedy),
        }
    }
    peers(report, running);
}

fn peers(report: &mut Report, running: &Running) {
    let is_server = running.summary["side"] == "server-side";
    if list(&running.peers["peers"]).next().is_none() {
        report.note("no peer has connected yet", "start the client-side proxy");
    }
    for peer in list(&running.peers["peers"]) {
        let text = |field: &str| peer[field].as_str().unwrap_or("?").to_owned();
        let (name, address) = (text("name"), text("address"));
        if peer["state"] == "up" {
            report.fine(format!("peer {name} at {address} is up, version {}", text("version")));
            let (failures, resumes) = (peer["link_failures"].as_u64(), peer["resumes"].as_u64());
            if let (Some(failures @ 1..), Some(resumes)) = (failures, resumes) {
                let text = format!(
                    "{failures} links to it have died since the start, {resumes} channels were resumed"
                );
                report.note(
                    text,
                    "connections survived; a firewall that forgets idle connections is the usual cause",
                );
            }
            continue;
        }
        let why = peer["detail"].as_str().or(peer["reason_text"].as_str()).unwrap_or("it has not connected");
        let text = format!("peer {name} at {address} is down: {why}");
        // Client sides come and go; a client side without its peer optimises nothing.
        if is_server {
            report.note(text, "if it should be there, run isthmus-client doctor on its machine");
        } else {
            report
                .failure(text, "check that the server-side proxy runs and that its port is open in between");
        }
    }
}

/// The elements of a list of JSON.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
