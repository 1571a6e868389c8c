//! Many sessions of many users at once, each with mixed work, for as long as is wanted.

use super::account::Account;
use super::probe::{Open, Probe};
use crate::corpus::random_bytes;
use crate::error::{LabError, Result};
use bytes::Bytes;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

/// Files that everybody reads, and their lengths: `shared00`, `shared01`, …
const SHARED_FILES: usize = 20;
const SHARED_BYTES_MAX: usize = 400_000;

/// Largest file that a session writes.
const OWN_BYTES_MAX: usize = 60_000;

/// Bytes of one READ or WRITE.
const PART_BYTES: u32 = 64 * 1024;

/// Longest pause between two pieces of work.
const PAUSE_MS_MAX: u64 = 600;

/// Longest time that one piece of work, or logging on, may take.
const PIECE_LIMIT: Duration = Duration::from_secs(60);

/// Time over which the sessions begin.
const BEGIN: Duration = Duration::from_secs(10);

/// Errors that are kept; all are counted.
const ERRORS_KEPT_MAX: usize = 20;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct SoakPlan {
    /// Addresses that lead to servers; sessions take turns.
    pub servers: Vec<SocketAddr>,
    /// Name of the share on each.
    pub share: String,
    /// Users; sessions take turns.
    pub accounts: Vec<Account>,
    /// Sessions at the same time.
    pub sessions: usize,
    /// How long.
    pub time: Duration,
    /// Decides on contents, order and pauses.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct SoakResult {
    /// Sessions that logged on.
    pub sessions: u64,
    /// Pieces of work that went well.
    pub pieces: u64,
    /// Requests and answers.
    pub messages: u64,
    /// Everything that went wrong.
    pub error_count: u64,
    /// The first of it.
    pub errors: Vec<String>,
}

/// The files that everybody reads, to be put on the share of every server.
pub fn shared_files(seed: u64) -> Vec<(String, Bytes)> {
    let mut rng = Rng::with_seed(seed);
    let file = |number: usize| {
        let length = rng.usize(1..SHARED_BYTES_MAX);
        (format!("shared{number:02}"), Bytes::from(random_bytes(length, seed + number as u64)))
    };
    (0..SHARED_FILES).map(file).collect()
}

/// Runs it on this thread.
pub async fn soak(plan: &SoakPlan) -> SoakResult {
    let shared = Rc::new(shared_files(plan.seed));
    let result = Rc::new(RefCell::new(SoakResult::default()));
    let end = Instant::now() + plan.time;
    let tasks = LocalSet::new();
    for number in 0..plan.sessions {
        let (Some(account), Some(server)) = (
            plan.accounts.get(number % plan.accounts.len().max(1)).cloned(),
            plan.servers.get(number % plan.servers.len().max(1)).copied(),
        ) else {
            continue;
        };
        let begin = BEGIN.mul_f64(number as f64 / plan.sessions as f64);
        let (shared, result, share) = (shared.clone(), result.clone(), plan.share.clone());
        let rng = Rng::with_seed(plan.seed.wrapping_mul(1_000_003) + number as u64);
        tasks.spawn_local(async move {
            sleep(begin).await;
            let session = Session { number, rng, shared, result: result.clone(), messages: Cell::new(0) };
            let outcome = session.run(server, &share, &account, end).await;
            if let Err(error) = outcome {
                note(&result, format!("session {number} of {}: {error}", account.name));
            }
        });
    }
    tasks.await;
    Rc::try_unwrap(result).map_or_else(|shared| shared.borrow().clone(), RefCell::into_inner)
}

struct Session {
    number: usize,
    rng: Rng,
    shared: Rc<Vec<(String, Bytes)>>,
    result: Rc<RefCell<SoakResult>>,
    messages: Cell<u64>,
}

impl Session {
    async fn run(mut self, server: SocketAddr, share: &str, account: &Account, end: Instant) -> Result<()> {
        // Half of those on each server.
        let is_sealed = self.number % 4 >= 2;
        let probe = within(Probe::connect(server, share, account, is_sealed)).await?;
        self.result.borrow_mut().sessions += 1;
        while Instant::now() < end {
            let kind = self.rng.u8(..10);
            let piece = within(self.piece(&probe, kind)).await;
            self.count(&probe);
            match piece {
                Ok(()) => self.result.borrow_mut().pieces += 1,
                Err(error) => note(&self.result, format!("session {}, work {kind}: {error}", self.number)),
            }
            sleep(Duration::from_millis(self.rng.u64(..PAUSE_MS_MAX))).await;
        }
        Ok(())
    }

    fn count(&self, probe: &Probe) {
        let all = probe.messages();
        self.result.borrow_mut().messages += all - self.messages.replace(all);
    }

    /// Reads something that everybody reads, or writes something of its own, reads it back and deletes it.
    async fn piece(&mut self, probe: &Probe, kind: u8) -> Result<()> {
        let shared = self.shared.clone();
        let Some((name, content)) = shared.get(self.rng.usize(..shared.len().max(1))) else { return Ok(()) };
        match kind {
            0..5 => {
                let read = probe.small_set(name, 4_096).await?;
                same(name, &read, content.get(..read.len()).unwrap_or_default())
            }
            5..8 => probe.read_serially(name, PART_BYTES, content).await,
            _ => {
                let own = format!("own{:03}", self.number);
                let content = Bytes::from(random_bytes(self.rng.usize(1..OWN_BYTES_MAX), self.rng.u64(..)));
                probe.write_serially(&own, PART_BYTES, &content).await?;
                probe.read_serially(&own, PART_BYTES, &content).await?;
                let file = probe.open(&own, Open::Delete).await?;
                probe.close(file).await
            }
        }
    }
}

async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || LabError::Timeout { what: "the end of the work".into(), seconds: PIECE_LIMIT.as_secs() };
    timeout(PIECE_LIMIT, work).await.unwrap_or_else(|_| Err(late()))
}

fn same(name: &str, got: &[u8], expected: &[u8]) -> Result<()> {
    if got == expected && !got.is_empty() {
        return Ok(());
    }
    Err(LabError::Mismatch { what: name.into(), detail: "the bytes differ".into() })
}

fn note(result: &RefCell<SoakResult>, error: String) {
    let mut result = result.borrow_mut();
    result.error_count += 1;
    if result.errors.len() < ERRORS_KEPT_MAX {
        result.errors.push(error);
    }
}
