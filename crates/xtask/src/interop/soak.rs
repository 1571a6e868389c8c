//! Many users at work at the same time: no error, and memory that stays what it is.

use super::report::Part;
use super::{Context, or_failed};
use isthmus_lab::smb::{
    Account, SHARE, Samba, SambaOptions, Signing, SigningAlgorithm, SoakPlan, SoakResult, shared_files, soak,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Network, Result, Rig};
use isthmus_types::Side;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "soak";

const SESSIONS: usize = 500;
const USERS: usize = 50;

/// How long, in a short and in a full run.
const TIME: Duration = Duration::from_secs(60);
const TIME_FULL: Duration = Duration::from_secs(600);

/// Round-trip time of the link.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// Time between two looks at the memory, and the share of the looks during which it may still grow.
const LOOK: Duration = Duration::from_secs(1);
const WARM_UP_SHARE: f64 = 0.5;

/// How much more memory may be used after that than before.
const GROWTH_MAX: f64 = 1.10;
const GROWTH_BYTES_MAX: f64 = 12e6;

/// Seed of contents and order.
const SEED: u64 = 31;

/// The part.
pub fn run(context: &mut Context) -> Part {
    context.progress.step(NAME);
    let start = Instant::now();
    let mut part = or_failed(NAME, measure(context));
    part.seconds = start.elapsed().as_secs_f64();
    part
}

fn measure(context: &mut Context) -> Result<Part> {
    let time = if context.is_full { TIME_FULL } else { TIME };
    let mut network = Network::start(Level::Ip, WanShape::symmetric(ROUND_TRIP, None))?;
    let accounts = Account::many(USERS);
    let mut servers = Vec::new();
    for algorithm in [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac] {
        let address = network.new_server_address()?;
        let samba = Samba::start(&network.server_place(), address, &server(&accounts, algorithm))?;
        for (name, content) in shared_files(SEED) {
            let path = samba.share_path().join(name);
            std::fs::write(&path, content)
                .map_err(|source| LabError::Io { action: format!("writing {}", path.display()), source })?;
        }
        servers.push(samba);
    }
    let options = context.pair_options(&servers.iter().take(1).collect::<Vec<_>>());
    let targets: Vec<_> = servers.iter().map(Samba::address).collect();
    let rig = network.start_pair(&context.binaries, &targets, &options)?;
    let plan = SoakPlan {
        servers: vec![rig.through(0)?, rig.through(1)?],
        share: SHARE.into(),
        accounts,
        sessions: SESSIONS,
        time,
        seed: SEED,
    };
    let is_done = AtomicBool::new(false);
    let (result, memory) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_memory(&rig, &is_done));
        let place = rig.client_place();
        let result = place.block_on(|| async { Ok(soak(&plan).await) });
        is_done.store(true, Ordering::Release);
        let memory = watcher.join().unwrap_or_else(|_| {
            Err(LabError::Format { what: "the memory".into(), detail: "its watcher panicked".into() })
        });
        Ok::<_, LabError>((result?, memory?))
    })?;
    let mut part = judge(&result, &memory);
    part.look_at_pair(&rig, !context.is_plain)?;
    context.progress.step(&format!(
        "  {} sessions, {} pieces of work, {} messages, {} errors",
        result.sessions, result.pieces, result.messages, result.error_count
    ));
    Ok(part)
}

fn server(accounts: &[Account], algorithm: SigningAlgorithm) -> SambaOptions {
    SambaOptions {
        signing: Signing::Mandatory,
        accounts: accounts.into(),
        signing_algorithms: vec![algorithm],
        is_single_channel: true,
        // Users write into one folder, each a file of their own.
        share: vec![("create mask".into(), "0666".into())],
        ..SambaOptions::default()
    }
}

/// Resident bytes of the client-side and the server-side proxy, at every look.
fn watch_memory(rig: &Rig, is_done: &AtomicBool) -> Result<Vec<[u64; 2]>> {
    let mut looks = Vec::new();
    while !is_done.load(Ordering::Acquire) {
        let client = rig.pair.end(Side::Client).usage()?.rss_bytes;
        let server = rig.pair.end(Side::Server).usage()?.rss_bytes;
        looks.push([client, server]);
        std::thread::sleep(LOOK);
    }
    Ok(looks)
}

fn judge(result: &SoakResult, memory: &[[u64; 2]]) -> Part {
    let mut part = Part::new(NAME);
    part.passed = result.pieces as usize;
    part.failures.extend(result.errors.iter().map(|error| format!("{NAME}: {error}")));
    if result.error_count as usize > result.errors.len() {
        part.failures.push(format!("{NAME}: {} errors in all", result.error_count));
    }
    if result.sessions < SESSIONS as u64 {
        part.failures.push(format!("{NAME}: {} of {SESSIONS} sessions logged on", result.sessions));
    }
    for (index, side) in [Side::Client, Side::Server].into_iter().enumerate() {
        let bytes: Vec<u64> = memory.iter().filter_map(|look| look.get(index)).copied().collect();
        if let Some(growth) = growth(&bytes) {
            part.failures.push(format!("{NAME}: memory of the {side} proxy: {growth}"));
        }
    }
    part.results = serde_json::json!({ "sessions": result.sessions, "pieces": result.pieces,
        "messages": result.messages, "errors": result.error_count, "memory": memory });
    part
}

/// How the memory has grown from the middle of the run to its end, if it has.
fn growth(looks: &[u64]) -> Option<String> {
    let warm = looks.get((looks.len() as f64 * WARM_UP_SHARE) as usize..)?;
    let (earlier, later) = warm.split_at(warm.len() / 2);
    let mean = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
    let (before, after) = (mean(earlier), mean(later));
    let is_flat = earlier.is_empty() || after <= (before * GROWTH_MAX).max(before + GROWTH_BYTES_MAX);
    (!is_flat).then(|| format!("from {:.1} MB to {:.1} MB", before / 1e6, after / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_memory_is_told_from_memory_that_grows() {
        let flat: Vec<u64> =
            (0..60).map(|n| if n < 20 { n * 10_000_000 } else { 200_000_000 + n % 7 }).collect();
        assert_eq!(growth(&flat), None);
        let leak: Vec<u64> = (0..60).map(|n| 50_000_000 + n * 3_000_000).collect();
        assert!(growth(&leak).is_some());
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn errors_and_missing_sessions_are_failures() {
        let good = SoakResult { sessions: SESSIONS as u64, pieces: 9, ..SoakResult::default() };
        assert!(judge(&good, &[]).failures.is_empty());
        let bad = SoakResult { sessions: 3, error_count: 40, errors: vec!["e".into()], ..good };
        assert_eq!(judge(&bad, &[]).failures.len(), 3);
    }
}
