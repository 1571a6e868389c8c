//! A seeded mutator over a kept corpus. It needs no instrumentation, so it runs wherever the tests do; what it finds is
//! written to a file that reproduces it.

use fastrand::Rng;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that all targets have together when `ISTHMUS_FUZZ_SECONDS` does not say how many seconds each has.
const TIME_IN_ALL: Duration = Duration::from_secs(80);

/// Longest input.
const INPUT_BYTES_MAX: usize = 400 << 10;

/// Mutations stacked on one input, at most.
const MUTATIONS_MAX: usize = 8;

/// Bytes of an input that are printed when it is a finding, for who has the output alone.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// Inputs between two looks at the clock and the memory.
const BATCH: u32 = 64;

/// Values that break arithmetic.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 1 << 16, 1 << 20, u32::MAX as u64, 1 << 32, i64::MAX as u64, u64::MAX];

/// Something that takes any bytes and must not panic, whatever they are.
pub struct Target {
    /// Name of its corpus folder, `fuzz/corpus/NAME`.
    pub name: &'static str,
    /// How much the process may grow while it runs, in bytes.
    pub growth_max: u64,
    /// Takes one input; a panic is a finding.
    pub run: fn(&[u8]),
}

/// Runs a target, one of `targets`, over its corpus as it is, then over mutations of it until the time is over.
///
/// # Panics
/// When the target does, or when memory grows beyond the target's limit; the message names the file with the input.
pub fn fuzz(target: &Target, targets: u32) {
    let corpus = corpus(target.name);
    let seed = match std::env::var("ISTHMUS_FUZZ_SEED") {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => fastrand::u64(..),
    };
    let time = std::env::var("ISTHMUS_FUZZ_SECONDS")
        .map_or(TIME_IN_ALL / targets, |seconds| Duration::from_secs(seconds.parse().expect("a number")));
    println!("{}: {} inputs, {time:?}, seed {seed}", target.name, corpus.len());
    let mut random = Rng::with_seed(seed);
    corpus.iter().for_each(|input| try_one(target, input, seed));
    let before = resident_peak();
    let deadline = Instant::now() + time;
    let mut tried = 0_u64;
    while Instant::now() < deadline {
        let mut last = Vec::new();
        for _ in 0..BATCH {
            last = mutate(&corpus, &mut random);
            try_one(target, &last, seed);
        }
        tried += u64::from(BATCH);
        let growth = resident_peak().saturating_sub(before);
        if growth > target.growth_max {
            let path = keep(target.name, &last);
            panic!(
                "{}: memory grew by {growth} bytes (seed {seed}); last input: {}",
                target.name,
                path.display()
            );
        }
    }
    println!("{}: {tried} inputs tried", target.name);
    assert!(tried > 0);
}

fn try_one(target: &Target, input: &[u8], seed: u64) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let path = keep(target.name, input);
        let shown: String = input.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
        let (name, len) = (target.name, input.len());
        panic!(
            "{name}: panicked (seed {seed}); the input, {len} bytes, is kept in {}: {shown}",
            path.display()
        );
    }
}

/// Writes an input where it is found again.
fn keep(name: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("fuzz-artifacts");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}-{}", &blake3::hash(input).to_hex()[..16]));
    fs::write(&path, input).unwrap();
    path
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    // The order must not depend on the file system, or a seed would not reproduce a run.
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut input = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..=MUTATIONS_MAX) {
        mutate_once(&mut input, corpus, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn mutate_once(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    if input.is_empty() {
        input.push(random.u8(..));
        return;
    }
    // Most of what matters stands near the front.
    let at = if random.bool() { random.usize(..input.len()) } else { random.usize(..input.len().min(48)) };
    match random.u8(..10) {
        0 => input[at] ^= 1 << random.u8(..8),
        1 => input[at] = random.u8(..),
        2 => input[at] = input[at].wrapping_add(if random.bool() { 1 } else { 0xff }),
        3 => {
            let edge = EDGES[random.usize(..EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.usize(..4)].min(input.len() - at);
            input[at..at + width].copy_from_slice(&edge[..width]);
        }
        4 => {
            let mut number = Vec::new();
            isthmus_types::varint::put(&mut number, EDGES[random.usize(..EDGES.len())]);
            input.splice(at..at + 1, number);
        }
        5 => drop(input.drain(at..input.len().min(at + 1 + random.usize(..16)))),
        6 => {
            let part = input[at..input.len().min(at + 1 + random.usize(..64))].to_vec();
            let to = random.usize(..=input.len());
            input.splice(to..to, part);
        }
        7 => {
            let other = &corpus[random.usize(..corpus.len())];
            let from = random.usize(..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        8 => input.truncate(at),
        _ => {
            let noise: Vec<u8> = (0..random.usize(1..24)).map(|_| random.u8(..)).collect();
            input.splice(at..at, noise);
        }
    }
}

/// The most memory that this process has had so far, in bytes.
fn resident_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel tells the peak");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
