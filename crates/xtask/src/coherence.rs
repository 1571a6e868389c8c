//! `cargo xtask coherence`: many clients at work on few files, and the judge of what they were told.

use crate::cargo::{build_proxies, target_folder};
use crate::packages;
use crate::progress::Progress;
use isthmus_lab::smb::NewerSamba;
use isthmus_lab::{LabError, Result, cleanup};
use isthmus_lab_coherence::rule::Mode;
use isthmus_lab_coherence::run::{Options, Outcome, World};
use std::time::{Duration, Instant};

/// Profile of the proxies: that of the tests.
const PROFILE: &str = "test";

/// Findings that are printed; all are counted.
const FINDINGS_SHOWN_MAX: usize = 10;

/// Arguments of `cargo xtask coherence`.
#[derive(clap::Args)]
pub struct Arguments {
    /// First seed; a failing seed is played again by `--seed N --seeds 1`
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Steps of each client of a seed
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// All clients straight at the server: shows that the judge is right about a server without pairs
    #[arg(long)]
    direct: bool,
    /// Pairs of proxies
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pairs: u8,
    /// Judge as if every client were connected straight to the server; otherwise by the bounds of the bounded mode
    #[arg(long)]
    strict: bool,
    /// Neither cuts nor restarts
    #[arg(long)]
    calm: bool,
    /// Round-trip time of the link between the proxies, in ms
    #[arg(long, default_value_t = 20)]
    rtt: u64,
    /// A newer Samba from Debian's backports, which is fetched at the first time
    #[arg(long)]
    newer: bool,
    /// Print all requests of the seeds in which something is wrong
    #[arg(long)]
    requests: bool,
    /// Setting of the client-side proxies, as `key.path=value` (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    client_set: Vec<String>,
    /// Setting of the server-side proxies, as `key.path=value` (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    server_set: Vec<String>,
}

/// Runs the seeds and prints what was found.
///
/// # Errors
/// Something is wrong, or the rig does not start.
pub fn run(arguments: &Arguments) -> Result<()> {
    cleanup::on_interrupt()?;
    let mut progress = Progress::new();
    packages::ensure(&[packages::DEMO], &mut progress)?;
    packages::ensure_if_possible(&[packages::INTEROP], &mut progress);
    let binaries = if arguments.direct {
        None
    } else {
        progress.step("building the proxies");
        Some(build_proxies(PROFILE)?)
    };
    let newer =
        arguments.newer.then(|| NewerSamba::fetch(&target_folder().join("interop/samba"))).transpose()?;
    let start = Instant::now();
    let mut world = World::start(binaries.as_ref(), options(arguments, newer))?;
    let outcome = world.run(|line| progress.step(line))?;
    progress.clear();
    print(&outcome, start.elapsed());
    if outcome.findings.is_empty() {
        return Ok(());
    }
    println!("{}", world.logs());
    let detail = format!("{} findings, shown above", outcome.findings.len());
    Err(LabError::Mismatch { what: "coherence".into(), detail })
}

fn options(arguments: &Arguments, newer: Option<NewerSamba>) -> Options {
    Options {
        seed: arguments.seed,
        seeds: arguments.seeds,
        steps: arguments.steps,
        pairs: if arguments.direct { 0 } else { arguments.pairs.into() },
        mode: if arguments.direct || arguments.strict { Mode::Strict } else { Mode::Bounded },
        is_disturbed: !arguments.calm,
        round_trip: Duration::from_millis(arguments.rtt),
        client_set: arguments.client_set.clone(),
        server_set: arguments.server_set.clone(),
        newer,
        keeps_requests: arguments.requests,
    }
}

fn print(outcome: &Outcome, time: Duration) {
    for finding in outcome.findings.iter().take(FINDINGS_SHOWN_MAX) {
        println!("{finding}");
    }
    outcome.requests.iter().for_each(|line| println!("{line}"));
    let (seeds, events, seconds) = (outcome.seeds, outcome.events, time.as_secs_f64());
    println!("{seeds} seeds, {events} requests, {} cuts and restarts, {seconds:.0} s", outcome.troubles);
    if let (Some(middle), Some(most)) =
        (outcome.deliveries.get(outcome.deliveries.len() / 2), outcome.deliveries.last())
    {
        let millis = |micros: &u64| *micros as f64 / 1e3;
        println!("breaks are delivered in {:.1} ms (median), {:.1} ms at most", millis(middle), millis(most));
    }
    for (kind, (all, near)) in &outcome.through {
        println!("  {kind:<9} {all:>6} through a pair, {near} of them answered near the client");
    }
    println!("{} findings", outcome.findings.len());
}
