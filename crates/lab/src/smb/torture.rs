//! smbtorture, Samba's own test suite for servers, with a result for each subtest.

use super::SHARE;
use super::newer::NewerSamba;
use super::server::Samba;
use crate::error::{Context as _, Result};
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, required, run};
use crate::scratch::Scratch;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

/// Characters of a subtest's own words that are kept.
const DETAIL_CHARS_MAX: usize = 400;

/// Stands for all subtests of a suite that has not come to any.
const START: &str = "(start)";

/// How often a suite goes on after a subtest that does not end.
const UNFINISHED_MAX: usize = 4;

/// How a subtest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Otherwise.
    Failed,
    /// It found that it cannot be run here.
    Skipped,
    /// It began, and the program ended or ran out of time.
    Unfinished,
}

/// A subtest and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtest {
    /// Its name within its suite.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What it says about that; empty when it passed.
    pub detail: String,
}

/// The program, pointed at an address that leads to a server.
#[derive(Clone, Debug)]
pub struct Torture {
    /// The program and what goes before it.
    program: Vec<OsString>,
    place: Place,
    address: SocketAddr,
    login: String,
    options: Vec<String>,
}

impl Torture {
    /// A client for `samba` that connects to `address`: the server's own, a proxy's or a relay's.
    ///
    /// # Errors
    /// The program is not installed.
    pub fn new(place: &Place, address: SocketAddr, samba: &Samba) -> Result<Torture> {
        let program = vec![required("smbtorture", "samba-testsuite")?.into()];
        let (user, password) = samba.credentials();
        let login = format!("{user}%{password}");
        Ok(Torture { program, place: place.clone(), address, login, options: Vec::new() })
    }

    /// With a further option of Samba's configuration (`name=value`).
    pub fn option(mut self, option: &str) -> Torture {
        self.options.push(format!("--option={option}"));
        self
    }

    /// The program of another Samba than the system's, which knows more.
    pub fn of(mut self, newer: &NewerSamba) -> Torture {
        self.program = newer.prefix();
        self.program.push("smbtorture".into());
        self
    }

    /// Runs one suite, such as `smb2.lock`, but for the subtests in `without`. A suite that is still running after `limit`
    /// is ended, and goes on with the subtests after the one that has not ended; so does one whose program has failed.
    ///
    /// # Errors
    /// The program cannot be started, or its output cannot be read. A suite that fails is no error.
    pub fn run(&self, suite: &str, without: &[&str], limit: Duration) -> Result<Vec<Subtest>> {
        let mut tests = if without.is_empty() { vec![suite.to_string()] } else { self.list(suite, without)? };
        let mut subtests: Vec<Subtest> = Vec::new();
        for _ in 0..=UNFINISHED_MAX {
            subtests.extend(self.run_tests(&tests, limit)?);
            if subtests.last().is_none_or(|last| last.outcome != Outcome::Unfinished || last.name == START) {
                break;
            }
            let seen = subtests.iter().map(|subtest| subtest.name.as_str());
            let seen: Vec<&str> = without.iter().copied().chain(seen).collect();
            tests = self.list(suite, &seen)?;
            if tests.is_empty() {
                break;
            }
        }
        Ok(subtests)
    }

    /// Runs the program once.
    fn run_tests(&self, tests: &[String], limit: Duration) -> Result<Vec<Subtest>> {
        let scratch = Scratch::new("smbtorture")?;
        let log = scratch.join("output");
        let spec = ProcSpec { command: self.program.clone(), ..ProcSpec::new("smbtorture", "", &log) }
            .args(["-s", "/dev/null", "--target=samba3", "--format=subunit"])
            .args([format!("//{}/{SHARE}", self.address.ip())])
            .args(["-p", &self.address.port().to_string(), "-U", &self.login])
            .args([format!("--basedir={}", scratch.path().display())])
            .args(&self.options)
            .args(tests)
            .place(&self.place);
        let mut process = Proc::spawn(&spec)?;
        // Whether it ended by itself shows in what it printed, and dropping it ends it.
        let ended = process.wait(limit);
        drop(process);
        let output = std::fs::read(&log).context(|| format!("reading {}", log.display()))?;
        let mut subtests = parse(&String::from_utf8_lossy(&output));
        if subtests.is_empty() {
            let tail: String = crate::proc::tail(&log);
            let detail = ended.map_or_else(|error| error.to_string(), |_| tail);
            subtests.push(Subtest { name: START.into(), outcome: Outcome::Unfinished, detail });
        }
        Ok(subtests)
    }

    /// The names by which the suite's subtests are run one by one, but for those in `without`.
    fn list(&self, suite: &str, without: &[&str]) -> Result<Vec<String>> {
        let mut command = self.program.clone();
        command.extend(["-s", "/dev/null", "--list", suite].map(OsString::from));
        let output = run(&Place::Local, &command)?;
        Ok(listed(&output, suite, without))
    }
}

/// Lines of the list are suite, subtest and test, with dots between; the last two are the same in suites with subtests.
fn listed(output: &str, suite: &str, without: &[&str]) -> Vec<String> {
    let below = |line: &str| {
        let rest = line.strip_prefix(suite)?.strip_prefix('.')?;
        let subtest = rest.get(..rest.len() / 2).filter(|half| rest.get(half.len() + 1..) == Some(half))?;
        (!without.contains(&subtest)).then(|| format!("{suite}.{subtest}"))
    };
    output.lines().filter_map(below).collect()
}

/// Reads the lines of the subunit protocol, version 1; everything else that is printed is for people.
fn parse(output: &str) -> Vec<Subtest> {
    let mut subtests: Vec<Subtest> = Vec::new();
    let mut detail: Option<usize> = None;
    for line in output.lines() {
        if let Some(index) = detail {
            if line == "]" {
                detail = None;
            } else if let Some(subtest) = subtests.get_mut(index) {
                push_detail(&mut subtest.detail, line);
            }
            continue;
        }
        let Some((word, rest)) = line.split_once(": ") else { continue };
        let outcome = match word {
            "test" => Outcome::Unfinished,
            "success" => Outcome::Passed,
            "failure" | "error" => Outcome::Failed,
            "skip" => Outcome::Skipped,
            _ => continue,
        };
        let (name, has_detail) = rest.strip_suffix(" [").map_or((rest, false), |name| (name, true));
        let index = place_of(&mut subtests, name, outcome);
        if let (Some(index), true) = (index, has_detail) {
            detail = Some(index);
        }
    }
    subtests
}

/// Enters an outcome: with the subtest's start if that was seen, and a skipped one also without.
fn place_of(subtests: &mut Vec<Subtest>, name: &str, outcome: Outcome) -> Option<usize> {
    let open = subtests.iter().rposition(|test| test.name == name && test.outcome == Outcome::Unfinished);
    match (open, outcome) {
        (Some(index), outcome) if outcome != Outcome::Unfinished => {
            subtests[index].outcome = outcome;
            Some(index)
        }
        // A word such as "error:" also begins lines for people.
        (None, Outcome::Passed | Outcome::Failed) => None,
        _ => {
            subtests.push(Subtest { name: name.into(), outcome, detail: String::new() });
            Some(subtests.len() - 1)
        }
    }
}

fn push_detail(detail: &mut String, line: &str) {
    let room = DETAIL_CHARS_MAX.saturating_sub(detail.chars().count());
    if !detail.is_empty() && room > 0 {
        detail.push(' ');
    }
    detail.extend(line.trim().chars().take(room));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subtest_has_its_outcome() {
        let output = "smbtorture 4\nUsing seed 1\ntime: 2026-11-30 19:26:42.265337\nprogress: 4\ntest: eof\n\
                      error: of no test\nsuccess: eof\ntest: a name\ntime: x\nfailure: a name [\n\
                      ../read.c:10: was X\nexpected Y\n]\ntest: v2\nskip: v2 [\nno leases\n]\nskip: alone\ntest: hangs\n";
        let subtests = parse(output);
        let short: Vec<_> = subtests.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let expected = [
            ("eof", Outcome::Passed),
            ("a name", Outcome::Failed),
            ("v2", Outcome::Skipped),
            ("alone", Outcome::Skipped),
            ("hangs", Outcome::Unfinished),
        ];
        assert_eq!(short, expected);
        assert_eq!(subtests[1].detail, "../read.c:10: was X expected Y");
        assert_eq!(subtests[2].detail, "no leases");
    }

    #[test]
    fn a_suite_goes_on_after_a_subtest_that_hangs() -> Result<()> {
        let scratch = Scratch::new("torture-test")?;
        // The first run hangs in b; then c and d are asked for by name, and d crashes.
        let script = r"case $* in
            *--list*) printf 's.a.a\ns.b.b\ns.c.c\ns.d.d\n' ;;
            *s.c*) printf 'test: c\nsuccess: c\ntest: d\n' ;;
            *) printf 'test: a\nsuccess: a\ntest: b\n'; exec sleep 60 ;;
            esac";
        let script = scratch.write("smbtorture", script)?;
        let torture = Torture {
            program: vec!["sh".into(), script.into()],
            place: Place::Local,
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            login: String::new(),
            options: Vec::new(),
        };
        let subtests = torture.run("s", &[], Duration::from_secs(2))?;
        let short: Vec<_> = subtests.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let expected = [
            ("a", Outcome::Passed),
            ("b", Outcome::Unfinished),
            ("c", Outcome::Passed),
            ("d", Outcome::Unfinished),
        ];
        assert_eq!(short, expected);
        Ok(())
    }

    #[test]
    fn a_subtest_can_be_left_out() {
        let output = "smbtorture 4\nsmb2.compound.related1.related1\nsmb2.compound.interim1.interim1\n\
                      smb2.compound.a (b).a (b)\nsmb2.compound_find.find.find\n";
        let expected = ["smb2.compound.related1", "smb2.compound.a (b)"];
        assert_eq!(listed(output, "smb2.compound", &["interim1"]), expected);
    }

    #[test]
    fn long_words_are_cut() {
        let output = format!("test: a\nfailure: a [\n{}\nmore\n]\n", "x".repeat(10_000));
        assert_eq!(parse(&output)[0].detail.len(), DETAIL_CHARS_MAX);
    }
}
