//! Many clients at work on few files are told what is so: directly, and through two pairs that are cut and restarted.
//! docs/coherence.md says what is judged.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::proc::find_program;
use isthmus_lab_coherence::rule::Mode;
use isthmus_lab_coherence::run::{Options, Outcome, World};
use isthmus_tests::{is_full, programs};
use std::collections::BTreeSet;
use std::time::Duration;

/// Seeds through the pairs in a short run, with the engine and in a full run, and directly.
const SEEDS: u64 = 50;
const SEEDS_ENGINE: u64 = 100;
const SEEDS_FULL: u64 = 1_000;
const SEEDS_DIRECT: u64 = 30;
/// Runs of a seed with findings, after the first.
const RUNS_AGAIN: usize = 3;

fn options(pairs: usize, seeds: u64, acceleration: &str) -> Options {
    let set = vec![format!("smb.acceleration={acceleration:?}")];
    Options {
        seed: 0,
        seeds,
        steps: 40,
        pairs,
        mode: if pairs == 0 { Mode::Strict } else { Mode::Bounded },
        is_disturbed: true,
        round_trip: Duration::from_millis(20),
        client_set: set.clone(),
        server_set: set,
        newer: None,
        keeps_requests: false,
    }
}

/// Nothing, with the reason, where there is no Samba whose users can be made up.
fn run(options: Options) -> Option<Outcome> {
    if find_program("smbd").is_none() || !nix::unistd::geteuid().is_root() {
        println!("skipped: smbd is not installed, or this is not root");
        return None;
    }
    let binaries = (options.pairs > 0).then(|| programs().clone());
    let mut world = World::start(binaries.as_ref(), options).unwrap();
    let outcome = world.run(|line| println!("{line}")).unwrap();
    for finding in &outcome.findings {
        println!("{finding}");
    }
    if !outcome.findings.is_empty() {
        println!("{}", world.logs());
    }
    Some(outcome)
}

#[test]
fn a_server_without_pairs_keeps_its_promises() {
    let Some(outcome) = run(options(0, SEEDS_DIRECT, "off")) else { return };
    assert_eq!(outcome.findings.len(), 0, "shown above; cargo xtask coherence --direct plays it again");
    assert!(outcome.events > SEEDS_DIRECT * 60, "{} requests were judged", outcome.events);
}

#[test]
fn a_server_behind_pairs_keeps_its_promises() {
    let seeds = if is_full() { SEEDS_FULL } else { SEEDS };
    let Some(outcome) = run(options(2, seeds, "off")) else { return };
    assert_eq!(
        outcome.findings.len(),
        0,
        "shown above; cargo xtask coherence --seed N --seeds 1 plays one again"
    );
    assert!(outcome.events > seeds * 60, "{} requests were judged", outcome.events);
    assert!(outcome.troubles > 0 && !outcome.deliveries.is_empty(), "pairs were disturbed and measured");
}

/// Watches and breaks come as fast as the machine lets the server's processes run, and a measurement every 60 ms does not see each
/// delay of theirs: of 500 seeds on a machine that also builds, 1 to 3 show an answer 0.2 to 3 s older than the last change. So the seeds
/// with findings are run again, and a fault is what shows again.
#[test]
fn a_server_behind_pairs_that_answer_near_the_client_keeps_its_promises() {
    let seeds = if is_full() { SEEDS_FULL } else { SEEDS_ENGINE };
    let Some(outcome) = run(options(2, seeds, "bounded")) else { return };
    assert!(outcome.events > seeds * 60, "{} requests were judged", outcome.events);
    assert!(outcome.troubles > 0 && !outcome.deliveries.is_empty(), "pairs were disturbed and measured");
    let suspects: BTreeSet<u64> = outcome.findings.iter().map(|finding| finding.seed).collect();
    assert!(suspects.len() as u64 <= seeds / 50, "shown above: too many for chance");
    for seed in suspects {
        for _ in 0..RUNS_AGAIN {
            let options = Options { seed, ..options(2, 1, "bounded") };
            let again = run(options).map_or(0, |outcome| outcome.findings.len());
            assert_eq!(again, 0, "shown above; cargo xtask coherence --seed {seed} --seeds 1 plays it again");
        }
    }
}
