//! What was found: printed and written.

use isthmus_lab::metrics::Sample;
use isthmus_lab::{LabError, Result, Rig};
use isthmus_types::Side;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The metric that counts sessions, and its states in which keys are used.
const SESSIONS: &str = "isthmus_smb_sessions_total";
const WITH_KEYS: [&str; 2] = ["encrypted_keys", "signed_keys"];

/// Results of one part.
#[derive(Debug, Default, Serialize)]
pub struct Part {
    /// What was run.
    pub name: String,
    /// What works both directly and through the pair.
    pub passed: usize,
    /// What works directly and not through the pair, and what could not be run for a bad reason.
    pub failures: Vec<String>,
    /// What worked through the pair at its second run only.
    pub flaky: Vec<String>,
    /// What does not work directly either.
    pub unsupported: usize,
    /// What could not be run here, with the reason.
    pub skipped: Vec<String>,
    /// Wall time.
    pub seconds: f64,
    /// SMB sessions that went through the pair, by what it did with them.
    pub sessions: BTreeMap<String, u64>,
    /// When something failed: the ends of the logs of the client-side and the server-side proxy.
    pub logs: Option<[String; 2]>,
    /// Results in detail.
    pub results: serde_json::Value,
}

impl Part {
    /// An empty part.
    pub fn new(name: &str) -> Part {
        Part { name: name.into(), ..Part::default() }
    }

    /// Enters what the pair did with the sessions, and, if something failed, the ends of both logs. With keys, a run in
    /// which they were never used shows nothing, so it is a failure.
    ///
    /// # Errors
    /// The client-side proxy does not answer.
    pub fn look_at_pair(&mut self, rig: &Rig, has_keys: bool) -> Result<()> {
        let metrics = rig.pair.end(Side::Client).metrics()?;
        let of_sessions =
            metrics.samples().iter().filter(|sample| sample.name == SESSIONS && sample.value > 0.0);
        let by_state = |sample: &Sample| {
            let state = sample.labels.get("state").cloned().unwrap_or_default();
            (state, sample.value as u64)
        };
        self.sessions = of_sessions.map(by_state).collect();
        let with_keys: u64 = WITH_KEYS.iter().filter_map(|state| self.sessions.get(*state)).sum();
        if has_keys && with_keys == 0 {
            self.failures.push(format!("{}: the pair had the keys of no session", self.name));
        }
        if !self.failures.is_empty() {
            self.logs = Some([Side::Client, Side::Server].map(|side| rig.pair.end(side).log_tail()));
        }
        Ok(())
    }
}

/// The table of parts, then what failed, was flaky or skipped.
pub fn print(parts: &[Part]) {
    println!(
        "\n{:<34}{:>8}{:>8}{:>8}{:>22}{:>9}{:>9}",
        "part", "passed", "failed", "flaky", "fails directly too", "skipped", "time"
    );
    for part in parts {
        println!(
            "{:<34}{:>8}{:>8}{:>8}{:>22}{:>9}{:>7.0} s",
            part.name,
            part.passed,
            part.failures.len(),
            part.flaky.len(),
            part.unsupported,
            part.skipped.len(),
            part.seconds
        );
    }
    for part in parts.iter().filter(|part| !part.sessions.is_empty()) {
        let states: Vec<String> = part
            .sessions
            .iter()
            .map(|(state, count)| format!("{count} {}", state.replace('_', " ")))
            .collect();
        println!("  {}: sessions {}", part.name, states.join(", "));
    }
    list("not run", parts, |part| &part.skipped);
    list("worked through the pair at the second run", parts, |part| &part.flaky);
    list("FAILED through the pair", parts, |part| &part.failures);
}

fn list(title: &str, parts: &[Part], of: fn(&Part) -> &Vec<String>) {
    if parts.iter().all(|part| of(part).is_empty()) {
        return;
    }
    println!("\n{title}:");
    for part in parts {
        of(part).iter().for_each(|line| println!("  {line}"));
    }
}

/// `{"parts": [...]}`.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, parts: &[Part]) -> Result<()> {
    let text = serde_json::to_string_pretty(&serde_json::json!({ "parts": parts }))
        .map_err(|error| LabError::Format { what: "the results".into(), detail: error.to_string() })?;
    std::fs::write(path, text + "\n")
        .map_err(|source| LabError::Io { action: format!("writing {}", path.display()), source })
}
