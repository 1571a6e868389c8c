//! What `doctor` finds, and how it says so.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::exit::{Exit, Failure};

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// As it should be.
    Fine,
    /// As it may be, and worth knowing.
    Note,
    /// It could not be found out.
    Untested,
    /// It works, and should be seen to.
    Warning,
    /// It does not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub area: &'static str,
    pub outcome: Outcome,
    pub text: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// Everything that was looked at, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub findings: Vec<Finding>,
    area: &'static str,
}

impl Outcome {
    /// The word for it, also in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Fine => "fine",
            Outcome::Note => "note",
            Outcome::Untested => "untested",
            Outcome::Warning => "warning",
            Outcome::Failure => "failure",
        }
    }
}

impl Report {
    /// What follows is about this.
    pub fn area(&mut self, area: &'static str) -> &mut Report {
        self.area = area;
        self
    }

    pub fn fine(&mut self, text: impl Into<String>) {
        self.add(Outcome::Fine, text.into(), None);
    }

    pub fn note(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Note, text.into(), Some(remedy.into()));
    }

    pub fn untested(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Untested, text.into(), Some(remedy.into()));
    }

    pub fn warning(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Warning, text.into(), Some(remedy.into()));
    }

    pub fn failure(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(Outcome::Failure, text.into(), Some(remedy.into()));
    }

    fn add(&mut self, outcome: Outcome, text: String, remedy: Option<String>) {
        let remedy = remedy.filter(|remedy| !remedy.is_empty());
        self.findings.push(Finding { area: self.area, outcome, text: plain(&text), remedy });
    }

    /// The exit status: done if nothing is worse than untested.
    pub fn exit(&self) -> Result<(), Failure> {
        match self.findings.iter().map(|finding| finding.outcome).max() {
            Some(Outcome::Failure) => Err(Failure::new(Exit::DoctorFailures, "")),
            Some(Outcome::Warning) => Err(Failure::new(Exit::DoctorWarnings, "")),
            _ => Ok(()),
        }
    }

    /// For people: each area with its findings, what is wrong marked, with its remedy.
    pub fn for_people(&self) -> String {
        let mut out = String::new();
        let mut area = "";
        for finding in &self.findings {
            if finding.area != area {
                area = finding.area;
                // Writing to a `String` cannot fail.
                let _ = writeln!(out, "{area}");
            }
            let _ = writeln!(out, "  {:<8}  {}", finding.outcome.word(), finding.text);
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(out, "  {:<8}  → {remedy}", "");
            }
        }
        let count = |outcome| self.findings.iter().filter(|finding| finding.outcome == outcome).count();
        let _ = writeln!(
            out,
            "{} failures, {} warnings, {} not tested, {} fine",
            count(Outcome::Failure),
            count(Outcome::Warning),
            count(Outcome::Untested),
            count(Outcome::Fine) + count(Outcome::Note)
        );
        out
    }

    pub fn to_json(&self, side: &str, is_running: bool) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "area": finding.area,
                    "outcome": finding.outcome.word(),
                    "text": finding.text,
                    "remedy": finding.remedy,
                })
            })
            .collect();
        let worst = self.findings.iter().map(|finding| finding.outcome).max().unwrap_or(Outcome::Fine);
        json!({ "side": side, "running": is_running, "worst": worst.word(), "findings": findings })
    }
}

/// Without control characters, which a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_every_trouble_has_its_remedy() {
        let mut report = Report::default();
        report.area("kernel").fine("BBR\u{1b}[1m is there");
        report.untested("loss", "let something cross first");
        assert!(report.exit().is_ok());
        report.area("store").warning("slow", "a faster disk");
        assert_eq!(report.exit().unwrap_err().exit, Exit::DoctorWarnings);
        report.failure("full", "make room");
        assert_eq!(report.exit().unwrap_err().exit, Exit::DoctorFailures);
        let expected = "\
            kernel\n\
            \x20 fine      BBR[1m is there\n\
            \x20 untested  loss\n\
            \x20           → let something cross first\n\
            store\n\
            \x20 warning   slow\n\
            \x20           → a faster disk\n\
            \x20 failure   full\n\
            \x20           → make room\n\
            1 failures, 1 warnings, 1 not tested, 1 fine\n";
        assert_eq!(report.for_people(), expected);
        let json = report.to_json("client-side", false);
        assert_eq!(
            (json["worst"].as_str(), json["findings"][3]["remedy"].as_str()),
            (Some("failure"), Some("make room"))
        );
    }
}
