//! The server, the pairs, and waves of seeds.

use super::canary::Canary;
use super::lane::Lane;
use crate::check::{Finding, check, requests};
use crate::client::{Protection, Settings};
use crate::history::{Action, Event, History, Time, Via};
use crate::plan::{Disturbance, WAVE, disturbance};
use crate::rule::{Mode, Rule, Trouble};
use isthmus_lab::pair::{Binaries, KeyOptions, PairOptions};
use isthmus_lab::smb::{Account, NewerSamba, SHARE, Samba, SambaOptions, Signing};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Network, Place, Result, Rig, free_address};
use isthmus_smb_crypto::Dialect;
use isthmus_types::Side;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

/// Most pairs.
pub const PAIRS_MAX: usize = 2;

/// An answer that came within this share of the link's round trip was made near the client.
const NEAR_SHARE: f64 = 0.8;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// First seed.
    pub seed: u64,
    /// How many, one after another.
    pub seeds: u64,
    /// Steps of each client of a seed.
    pub steps: usize,
    /// Client-side proxies, each with a server-side proxy of its own; 0: all clients are connected straight.
    pub pairs: usize,
    /// The promise that is checked.
    pub mode: Mode,
    /// Whether pairs are cut and restarted.
    pub is_disturbed: bool,
    /// Round-trip time of the link between the proxies.
    pub round_trip: Duration,
    /// Further settings of the client-side and of the server-side proxies, as `key.path=value`.
    pub client_set: Vec<String>,
    /// As above.
    pub server_set: Vec<String>,
    /// Another Samba than the system's.
    pub newer: Option<NewerSamba>,
    /// Whether all requests of seeds with findings are kept.
    pub keeps_requests: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Seeds that were run.
    pub seeds: u64,
    /// Requests and answers that were judged.
    pub events: u64,
    /// Requests through a pair by kind: all of them, and those answered near the client.
    pub through: BTreeMap<&'static str, (u64, u64)>,
    /// Cuts and restarts.
    pub troubles: usize,
    /// Measured deliveries of breaks, in microseconds, sorted.
    pub deliveries: Vec<Time>,
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
    /// All requests of seeds with findings, if they were to be kept.
    pub requests: Vec<String>,
}

/// A server with pairs before it.
pub struct World {
    // First, so that clients end before what they are connected to.
    lanes: Vec<Lane>,
    runtime: Runtime,
    rigs: Vec<Rig>,
    samba: Samba,
    options: Options,
    epoch: Instant,
    rule: Rule,
}

impl World {
    /// Starts everything.
    ///
    /// # Errors
    /// Samba is not installed, or something does not start.
    pub fn start(binaries: Option<&Binaries>, options: Options) -> Result<World> {
        let samba = Samba::start(&Place::Local, free_address()?, &server_options(options.newer.clone()))?;
        let mut rigs = Vec::new();
        for _ in 0..options.pairs.min(PAIRS_MAX) {
            let binaries = binaries.ok_or_else(|| LabError::Unavailable {
                what: "the proxies' programs".into(),
                remedy: "build them first".into(),
            })?;
            let network = Network::start(Level::Relay, WanShape::symmetric(options.round_trip, None))?;
            rigs.push(network.start_pair(binaries, &[samba.address()], &pair_options(&samba, &options))?);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|source| LabError::Io { action: "starting the runtime".into(), source })?;
        let rule = Rule { mode: options.mode, ..Rule::strict() };
        let mut world =
            World { lanes: Vec::new(), runtime, rigs, samba, options, epoch: Instant::now(), rule };
        world.lanes = (0..WAVE as usize).map(|lane| world.lane(lane)).collect::<Result<_>>()?;
        Ok(world)
    }

    /// Runs all seeds, wave by wave, and checks each. `tell` hears of every wave.
    ///
    /// # Errors
    /// Something other than what is checked fails.
    pub fn run(&mut self, mut tell: impl FnMut(&str)) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let (mut seed, end) = (self.options.seed, self.options.seed + self.options.seeds);
        while seed < end {
            let next = ((seed / WAVE + 1) * WAVE).min(end);
            let histories = self.wave(seed, next)?;
            for history in &histories {
                let findings = check(history, &self.rule);
                if self.options.keeps_requests && !findings.is_empty() {
                    outcome.requests.push(format!("seed {}:", history.seed));
                    outcome.requests.extend(requests(history));
                }
                outcome.add(history, findings, self.options.round_trip);
            }
            tell(&format!("seeds {seed} to {}: {} findings so far", next - 1, outcome.findings.len()));
            seed = next;
        }
        outcome.troubles = self.rule.troubles.len();
        outcome.deliveries = self.rule.deliveries.iter().map(|delivery| delivery.took).collect();
        outcome.deliveries.sort_unstable();
        Ok(outcome)
    }

    /// The ends of the proxies' logs.
    pub fn logs(&self) -> String {
        let of = |rig: &Rig| {
            [Side::Client, Side::Server]
                .map(|side| format!("the {side} proxy's log:\n{}", rig.pair.end(side).log_tail()))
        };
        self.rigs.iter().flat_map(of).collect::<Vec<_>>().join("\n")
    }

    fn wave(&mut self, first: u64, next: u64) -> Result<Vec<History>> {
        let plan = self.options.is_disturbed.then(|| disturbance(first)).flatten();
        let canaries = self.canaries()?;
        let World { lanes, runtime, rigs, samba, options, epoch, rule } = self;
        let (epoch, steps, share) = (*epoch, options.steps, samba.share_path());
        let (histories, troubles) = std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                let local = LocalSet::new();
                local.block_on(runtime, run_lanes(lanes, canaries, first, next, steps, share, epoch))
            });
            let troubles = plan.map(|plan| disturb(rigs, plan, epoch)).transpose();
            let panicked =
                |_| LabError::Format { what: "the wave".into(), detail: "its thread panicked".into() };
            (work.join().map_err(panicked).and_then(|done| done), troubles)
        });
        let (histories, deliveries) = histories?;
        rule.troubles.extend(troubles?.flatten());
        rule.deliveries.extend(deliveries);
        Ok(histories)
    }

    fn canaries(&self) -> Result<Vec<Canary>> {
        let canary = |pair| {
            let (through, direct) = (self.settings(Via::Pair(pair), 0)?, self.settings(Via::Direct, 0)?);
            Ok(Canary { pair, through, direct, epoch: self.epoch })
        };
        (0..self.rigs.len()).map(canary).collect()
    }

    fn lane(&self, lane: usize) -> Result<Lane> {
        let vias: &[Via] = match self.rigs.len() {
            0 => &[Via::Direct; 5],
            1 => &[Via::Direct, Via::Direct, Via::Pair(0), Via::Pair(0)],
            _ => &[Via::Direct, Via::Direct, Via::Pair(0), Via::Pair(0), Via::Pair(1)],
        };
        let clients = vias.iter().map(|via| Ok((*via, self.settings(*via, lane)?)));
        Ok(Lane::new(clients.collect::<Result<_>>()?))
    }

    /// Most clients encrypt by 3.1.1; some sign, and some speak 3.0.2.
    fn settings(&self, via: Via, lane: usize) -> Result<Settings> {
        let server = match via {
            Via::Direct => self.samba.address(),
            Via::Pair(pair) => match self.rigs.get(pair) {
                Some(rig) => rig.through(0)?,
                None => self.samba.address(),
            },
        };
        let accounts = self.samba.accounts();
        let account = accounts.get(lane % accounts.len().max(1)).cloned().unwrap_or_else(Account::alice);
        let dialect = if lane % 5 == 4 { Dialect::Smb302 } else { Dialect::Smb311 };
        let protection = if lane % 3 == 1 { Protection::Signed } else { Protection::Sealed };
        Ok(Settings { server, share: SHARE.into(), account, dialect, protection })
    }
}

impl Outcome {
    fn add(&mut self, history: &History, findings: Vec<Finding>, round_trip: Duration) {
        self.seeds += 1;
        self.events += history.events.len() as u64;
        let near = (round_trip.as_micros() as f64 * NEAR_SHARE) as Time;
        let through = |event: &&Event| {
            event.is_done() && history.clients.get(event.client).is_some_and(|via| *via != Via::Direct)
        };
        for event in history.events.iter().filter(through) {
            let counts = self.through.entry(kind(&event.action)).or_default();
            counts.0 += 1;
            counts.1 += u64::from(event.back - event.call < near);
        }
        self.findings.extend(findings);
    }
}

async fn run_lanes(
    lanes: &mut [Lane],
    canaries: Vec<Canary>,
    first: u64,
    next: u64,
    steps: usize,
    share: &std::path::Path,
    epoch: Instant,
) -> Result<(Vec<History>, Vec<crate::rule::Delivery>)> {
    let deliveries = Rc::new(RefCell::new(Vec::new()));
    let mut singing = JoinSet::new();
    for canary in canaries {
        let deliveries = deliveries.clone();
        singing.spawn_local(async move { canary.sing(&deliveries).await });
    }
    // Which protection a seed's clients have depends on the seed, not on what it is run with.
    let lanes = lanes.iter_mut().skip((first % WAVE) as usize);
    let work = lanes.zip(first..next).map(|(lane, seed)| lane.run(seed, steps, share, epoch));
    let histories = join_all(work.collect()).await;
    singing.shutdown().await;
    let histories = histories.into_iter().collect::<Result<_>>()?;
    Ok((histories, deliveries.take()))
}

/// Runs futures at the same time on this thread.
async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if all.iter().any(|(_, done)| done.is_none()) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

/// Does it, and tells when it was; nothing without a pair.
fn disturb(rigs: &mut [Rig], plan: Disturbance, epoch: Instant) -> Result<Option<Trouble>> {
    let now = || epoch.elapsed().as_micros() as Time;
    let (Disturbance::Cut { pair, after, .. } | Disturbance::Restart { pair, after, .. }) = plan;
    let pair = pair % rigs.len().max(1);
    let Some(rig) = rigs.get_mut(pair) else { return Ok(None) };
    std::thread::sleep(after);
    let from = now();
    let is_restart = matches!(plan, Disturbance::Restart { .. });
    match plan {
        Disturbance::Cut { time, .. } => {
            rig.network.cut(true);
            std::thread::sleep(time);
            rig.network.cut(false);
        }
        Disturbance::Restart { is_killed, .. } => {
            if is_killed {
                rig.pair.end_mut(Side::Client).kill9()?;
            }
            rig.pair.restart(Side::Client)?;
        }
    }
    Ok(Some(Trouble { pair, from, to: now(), is_restart }))
}

fn server_options(newer: Option<NewerSamba>) -> SambaOptions {
    let line = |option: &str, value: &str| (option.to_owned(), value.to_owned());
    SambaOptions {
        signing: Signing::Mandatory,
        accounts: Account::many(2),
        newer,
        global: vec![
            line("kernel share modes", "no"),
            line("posix locking", "no"),
            line("store dos attributes", "yes"),
            line("ea support", "yes"),
        ],
        share: vec![line("create mask", "0666"), line("force create mode", "0666")],
        ..SambaOptions::default()
    }
}

fn pair_options(samba: &Samba, options: &Options) -> PairOptions {
    let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![samba.password_hashes()] };
    PairOptions {
        store_size: "400 MiB".into(),
        keys: Some(keys),
        client_set: options.client_set.clone(),
        server_set: options.server_set.clone(),
        ..PairOptions::default()
    }
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::Open { .. } => "open",
        Action::Read { .. } => "read",
        Action::Write { .. } => "write",
        Action::SetSize { .. } => "set size",
        Action::Flush { .. } => "flush",
        Action::Rename { .. } => "rename",
        Action::Delete { .. } => "delete",
        Action::SetTime { .. } => "set time",
        Action::Query { .. } => "query",
        Action::Lock { .. } | Action::Unlock { .. } => "lock",
        Action::Close { .. } => "close",
        Action::List => "list",
    }
}
