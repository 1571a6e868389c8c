//! smbtorture: every subtest that passes directly must pass through the pair.

use super::report::Part;
use super::{Context, or_failed};
use crate::progress::Progress;
use isthmus_lab::smb::{
    Account, Cipher, Dialect, Outcome, Samba, SambaOptions, SessionEncryption, Signing, Subtest, Torture,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Network, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Suites of every run: together about 40 s.
const SUITES: &[&str] = &[
    "smb2.connect",
    "smb2.read",
    "smb2.rw",
    "smb2.lock",
    "smb2.compound",
    "smb2.compound_async",
    "smb2.credits",
    "smb2.getinfo",
    "smb2.rename",
    "smb2.durable-open",
    "smb2.durable-v2-open",
    "smb2.session",
    "smb2.tcon",
    "smb2.streams",
    "smb2.ioctl",
    "smb2.sharemode",
    "smb2.fileid",
    "smb2.acls",
    "smb2.charset",
    "smb2.deny",
    "smb2.delete-on-close-perms",
];

/// Further suites of a full run. (Left out: benchmarks, suites for a person to watch, and one that never ends.)
const SUITES_FULL: &[&str] = &[
    "smb2.compound_find",
    "smb2.notify-inotify",
    "smb2.durable-open-disconnect",
    "smb2.session-id",
    "smb2.ioctl-on-stream",
    "smb2.session-require-signing",
    "smb2.timestamps",
    "smb2.mkdir",
    "smb2.async_dosmode",
    "smb2.openattr",
    "smb2.winattr",
    "smb2.sdread",
    "smb2.secleak",
    "smb2.mangle",
    "smb2.create",
    "smb2.dir",
    "smb2.oplock",
    "smb2.lease",
    "smb2.notify",
    "smb2.multichannel",
    "smb2.replay",
    "smb2.setinfo",
    "smb2.create_no_streams",
    "smb2.timestamp_resolution",
    "smb2.ea",
    "smb2.acls_non_canonical",
    "smb2.samba3misc",
    "smb2.set-sparse-ioctl",
    "smb2.zero-data-ioctl",
    "smb2.dosmode",
    "smb2.maximum_allowed",
    "smb2.twrp",
];

/// Subtests that never end, whoever the server is: the newest dialect they hang with, suite, name.
const HANGING: &[(Dialect, &str, &str)] = &[(Dialect::Smb302, "smb2.compound", "interim1")];

/// Time that one suite may take.
const SUITE_LIMIT: Duration = Duration::from_secs(120);
const SUITE_LIMIT_FULL: Duration = Duration::from_secs(420);

/// Round-trip time of the second half of a full run.
const DELAY_FULL: Duration = Duration::from_millis(20);

/// How the sessions of a run are protected.
struct Mode {
    name: &'static str,
    dialect: Dialect,
    cipher: Option<Cipher>,
    is_full_only: bool,
    /// With a newer Samba than the system's, server and suites.
    is_newer: bool,
}

const MODES: &[Mode] = &[
    mode("signed-3.1.1", Dialect::Smb311, None),
    mode("gcm-3.1.1", Dialect::Smb311, Some(Cipher::Aes128Gcm)),
    mode("ccm-3.1.1", Dialect::Smb311, Some(Cipher::Aes128Ccm)),
    mode("signed-3.0.2", Dialect::Smb302, None),
    Mode { is_full_only: true, ..mode("ccm-3.0.2", Dialect::Smb302, Some(Cipher::Aes128Ccm)) },
    Mode { is_full_only: true, is_newer: true, ..mode("newer-signed-3.1.1", Dialect::Smb311, None) },
    Mode {
        is_full_only: true,
        is_newer: true,
        ..mode("newer-gcm-3.1.1", Dialect::Smb311, Some(Cipher::Aes128Gcm))
    },
];

const fn mode(name: &'static str, dialect: Dialect, cipher: Option<Cipher>) -> Mode {
    Mode { name, dialect, cipher, is_full_only: false, is_newer: false }
}

/// Subtests by suite and name.
type Subtests = BTreeMap<(String, String), Subtest>;

/// One part for each mode and delay.
pub fn run(context: &mut Context) -> Vec<Part> {
    let is_full = context.is_full;
    let delays = if is_full { vec![Duration::ZERO, DELAY_FULL] } else { vec![Duration::ZERO] };
    let mut parts = Vec::new();
    for delay in delays {
        for mode in MODES {
            let name = format!("torture.{}.{}ms", mode.name, delay.as_millis());
            if context.is_wanted(&name)
                && (!mode.is_full_only || context.is_asked_for(&format!("torture.{}", mode.name)))
            {
                let part = run_mode(context, &name, mode, delay);
                parts.push(or_failed(&name, part));
            }
        }
    }
    parts
}

fn run_mode(context: &mut Context, name: &str, mode: &Mode, delay: Duration) -> Result<Part> {
    let start = Instant::now();
    context.progress.step(name);
    let newer = if mode.is_newer { Some(context.newer_samba()?) } else { None };
    let mut network = Network::start(Level::Ip, WanShape::symmetric(delay, None))?;
    let mut server = || -> Result<Samba> {
        let address = network.new_server_address()?;
        Samba::start(
            &network.server_place(),
            address,
            &SambaOptions { newer: newer.clone(), ..mode.server() },
        )
    };
    let (plain_server, pair_server) = (server()?, server()?);
    let options = context.pair_options(&[&pair_server]);
    let rig = network.start_pair(&context.binaries, &[pair_server.address()], &options)?;
    let place = rig.client_place();
    let is_full = context.is_full;
    let side = |server, address| {
        let mut torture = Torture::new(&place, address, server)?;
        if let Some(newer) = &newer {
            torture = torture.of(newer);
        }
        Ok::<_, LabError>(Side { torture, server, dialect: mode.dialect, is_full })
    };
    let direct = side(&plain_server, plain_server.address())?;
    let through = side(&pair_server, rig.through(0)?)?;
    let suites: Vec<&str> = suites(context, name).collect();
    let has_keys = !context.is_plain;
    let progress = &mut context.progress;
    // Most suites wait most of their time, so both sides run at once, each with a server of its own.
    let (expected, got) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| run_suites(&direct, &suites, None));
        let got = run_suites(&through, &suites, Some(progress));
        let expected = direct.join().unwrap_or_else(|_| {
            Err(LabError::Format { what: "the direct run".into(), detail: "it panicked".into() })
        });
        Ok::<_, LabError>((expected?, got?))
    })?;
    let suspects = differences(&expected, &got);
    let again = suites.iter().copied().filter(|suite| suspects.iter().any(|(of, _)| of == suite));
    let again: Vec<&str> = again.collect();
    let second = run_suites(&through, &again, Some(progress))?;
    let mut part = judge(name, &expected, &got, &second);
    part.look_at_pair(&rig, has_keys)?;
    part.seconds = start.elapsed().as_secs_f64();
    Ok(part)
}

/// The suites of this run that are wanted.
fn suites<'a>(context: &'a Context, name: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let is_wanted = move |suite: &str, is_asked: bool| {
        let full = format!("{name}.{suite}");
        context.is_wanted(&full) && (!is_asked || context.is_asked_for(&full))
    };
    let short = SUITES.iter().copied().filter(move |suite| is_wanted(suite, false));
    short.chain(SUITES_FULL.iter().copied().filter(move |suite| is_wanted(suite, true)))
}

/// One side of a comparison.
struct Side<'a> {
    torture: Torture,
    server: &'a Samba,
    dialect: Dialect,
    is_full: bool,
}

fn run_suites(side: &Side<'_>, suites: &[&str], mut progress: Option<&mut Progress>) -> Result<Subtests> {
    let mut all = Subtests::new();
    for suite in suites {
        side.server.empty_share()?;
        let start = Instant::now();
        let hanging = HANGING.iter().filter(|(dialect, of, _)| *dialect >= side.dialect && of == suite);
        let without: Vec<&str> = hanging.map(|(_, _, name)| *name).collect();
        // A long suite that was asked for by name takes as long as in a full run.
        let is_long = side.is_full || !SUITES.contains(suite);
        let limit = if is_long { SUITE_LIMIT_FULL } else { SUITE_LIMIT };
        let subtests = side.torture.run(suite, &without, limit)?;
        if let Some(progress) = &mut progress {
            let passed = subtests.iter().filter(|test| test.outcome == Outcome::Passed).count();
            let seconds = start.elapsed().as_secs_f64();
            progress.step(&format!("  {suite}: {passed} of {} passed, {seconds:.0} s", subtests.len()));
        }
        all.extend(subtests.into_iter().map(|test| (((*suite).to_string(), test.name.clone()), test)));
    }
    Ok(all)
}

fn passes(subtests: &Subtests, key: &(String, String)) -> bool {
    subtests.get(key).is_some_and(|test| test.outcome == Outcome::Passed)
}

/// What passes in the first and not in the second.
fn differences(expected: &Subtests, got: &Subtests) -> Vec<(String, String)> {
    expected.keys().filter(|key| passes(expected, key) && !passes(got, key)).cloned().collect()
}

fn judge(name: &str, expected: &Subtests, got: &Subtests, second: &Subtests) -> Part {
    let mut part = Part::new(name);
    for key in differences(expected, got) {
        let (suite, subtest) = &key;
        if passes(second, &key) {
            part.flaky.push(format!("{name}.{suite} {subtest}"));
            continue;
        }
        let seen = second.get(&key).or_else(|| got.get(&key));
        let how =
            seen.map_or("it was not reached".into(), |test| format!("{:?} {}", test.outcome, test.detail));
        part.failures.push(format!("{name}.{suite} {subtest}: {how}"));
    }
    let all_passed = expected.keys().filter(|key| passes(expected, key)).count();
    part.passed = all_passed - part.failures.len();
    part.unsupported = expected.len() - all_passed;
    if all_passed == 0 {
        // Nothing compared is nothing shown.
        part.failures.push(format!("{name}: no subtest passes directly"));
    }
    let list = |subtests: &Subtests| -> BTreeMap<String, Outcome> {
        let named = subtests.iter().map(|((suite, name), test)| (format!("{suite} {name}"), test.outcome));
        named.collect()
    };
    part.results =
        serde_json::json!({ "direct": list(expected), "pair": list(got), "pair_again": list(second) });
    part
}

impl Mode {
    fn server(&self) -> SambaOptions {
        // The others stay possible, since some subtests choose by themselves.
        let others = Cipher::ALL.into_iter().filter(|cipher| Some(*cipher) != self.cipher);
        SambaOptions {
            signing: Signing::Mandatory,
            accounts: vec![Account::alice()],
            dialects: Some((Dialect::Smb202, self.dialect)),
            ciphers: self.cipher.into_iter().chain(others).collect(),
            session_encryption: match self.cipher {
                Some(_) => SessionEncryption::Desired,
                None => SessionEncryption::Auto,
            },
            is_like_windows: true,
            ..SambaOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subtests(list: &[(&str, Outcome)]) -> Subtests {
        let test = |name: &str, outcome| Subtest { name: name.into(), outcome, detail: "why".into() };
        list.iter().map(|(name, outcome)| (("s".into(), (*name).into()), test(name, *outcome))).collect()
    }

    #[test]
    fn only_what_passes_directly_must_pass_through_the_pair() {
        use Outcome::{Failed, Passed, Skipped, Unfinished};
        let direct =
            [("a", Passed), ("b", Passed), ("c", Passed), ("d", Passed), ("e", Failed), ("f", Skipped)];
        let first = [("a", Passed), ("b", Failed), ("c", Failed), ("e", Passed), ("f", Unfinished)];
        let second = [("b", Passed), ("c", Unfinished)];
        let part = judge("n", &subtests(&direct), &subtests(&first), &subtests(&second));
        assert_eq!(part.failures, ["n.s c: Unfinished why", "n.s d: it was not reached"]);
        assert_eq!(part.flaky, ["n.s b"]);
        assert_eq!((part.passed, part.unsupported), (2, 2));
    }

    #[test]
    fn a_run_in_which_nothing_passes_is_a_failure() {
        let nothing = subtests(&[("(start)", Outcome::Unfinished)]);
        assert_eq!(judge("n", &nothing, &nothing, &Subtests::new()).failures.len(), 1);
    }

    #[test]
    fn no_suite_is_named_twice() {
        let mut all: Vec<_> = SUITES.iter().chain(SUITES_FULL).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
