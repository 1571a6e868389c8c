//! The client side's way to its server sides: a dialer for each that is in use, and the choice among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use isthmus_config::{ClientConfig, HostPort};
use isthmus_net::{Channel, Dialer, DialerConfig, LocalHello, PeerState, TlsSource, WanCounters};
use isthmus_telemetry::Level;
use isthmus_types::{Reason, Side};
use tokio::sync::Notify;

use crate::client::{Client, hello, tls_source};
use crate::failover::{self, View};

/// Interval at which TLS files that could not be used at the start are looked at again.
const TLS_RETRY: Duration = Duration::from_secs(3);
/// How often dialers that the configuration no longer names are looked at while connections still use them.
const RETIRED_INTERVAL: Duration = Duration::from_secs(10);

/// All server sides of this proxy.
pub(crate) struct Link {
    slots: Mutex<Slots>,
    /// Rings when there is something to decide.
    changed: Notify,
    problem: Mutex<(Reason, String)>,
}

#[derive(Default)]
struct Slots {
    /// In the order in which they are wanted; `None` while not dialled.
    wanted: Vec<(Target, Option<Arc<Slot>>)>,
    active: Option<usize>,
    /// No longer named, but connections still use them.
    retired: Vec<Arc<Slot>>,
    /// One for the whole process: to a server side, another would be another process.
    hello: Option<LocalHello>,
    tls: Option<Arc<TlsSource>>,
    /// Failures that dialers counted which are gone.
    past: Failures,
}

/// A server side as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub address: HostPort,
    /// What its certificate must carry.
    pub server_name: String,
}

/// A server side that is dialled.
pub(crate) struct Slot {
    pub target: Target,
    pub dialer: Dialer,
    pub wan: Arc<WanCounters>,
    pub since: SystemTime,
}

/// Handshakes that failed, by what was wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    pub unauthorised: u64,
    pub incompatible: u64,
    pub garbage: u64,
}

impl Link {
    pub fn new() -> Link {
        Link {
            slots: Mutex::default(),
            changed: Notify::new(),
            problem: Mutex::new((Reason::PeerAbsent, "not connected yet".into())),
        }
    }

    /// A channel to the server side that is chosen, or why there is none.
    pub async fn channel(&self) -> Result<Channel, (Reason, String)> {
        let slot = self.active();
        let Some(slot) = slot else { return Err(self.problem()) };
        slot.dialer.channel().await.map_err(|reason| (reason, why(&slot.dialer, reason)))
    }

    /// Every server side, and whether it is dialled.
    pub fn list(&self) -> Vec<(Target, Option<Arc<Slot>>)> {
        let slots = lock(&self.slots);
        let retired = slots.retired.iter().map(|slot| (slot.target.clone(), Some(slot.clone())));
        slots.wanted.iter().cloned().chain(retired).collect()
    }

    /// The server side that new connections go to.
    pub fn active(&self) -> Option<Arc<Slot>> {
        let slots = lock(&self.slots);
        slots.active.and_then(|index| slots.wanted.get(index)?.1.clone())
    }

    /// The TLS files, once they could be used.
    pub fn tls(&self) -> Option<Arc<TlsSource>> {
        lock(&self.slots).tls.clone()
    }

    /// Why there is no link, while none is dialled.
    pub fn problem(&self) -> (Reason, String) {
        lock(&self.problem).clone()
    }

    /// Failed handshakes since the start.
    pub fn failures(&self) -> Failures {
        let slots = lock(&self.slots);
        let live = slots.wanted.iter().filter_map(|(_, slot)| slot.as_ref()).chain(&slots.retired);
        live.fold(slots.past, |sum, slot| sum.plus(&slot.wan))
    }

    /// Something has changed: a state, or the configuration.
    pub fn notify(&self) {
        self.changed.notify_one();
    }
}

impl Failures {
    fn plus(self, wan: &WanCounters) -> Failures {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Failures {
            unauthorised: self.unauthorised + value(&wan.failed_unauthorised),
            incompatible: self.incompatible + value(&wan.failed_incompatible),
            garbage: self.garbage + value(&wan.failed_garbage),
        }
    }
}

/// Dials, chooses, and lets go, as long as the proxy runs.
pub(crate) async fn keep(client: Arc<Client>) {
    loop {
        let again = match step(&client) {
            Ok(again) => again,
            Err((reason, detail)) => {
                let mut problem = lock(&client.link.problem);
                if problem.1 != detail {
                    client.core.telemetry.event(Level::Error, format!("no link to the peer: {detail}"));
                    *problem = (reason, detail);
                }
                Some(TLS_RETRY)
            }
        };
        let wait = async {
            match again {
                Some(again) => tokio::time::sleep(again).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = client.link.changed.notified() => {}
            () = wait => {}
        }
    }
}

/// Looks at everything once. Gives the time after which to look again, should nothing happen.
fn step(client: &Arc<Client>) -> Result<Option<Duration>, (Reason, String)> {
    let (store, generation) = client
        .core
        .identity()
        .ok_or_else(|| (Reason::StoreUnavailable, Reason::StoreUnavailable.to_string()))?;
    let config = client.config.load_full();
    let mut slots = lock(&client.link.slots);
    if slots.tls.is_none() {
        slots.tls = Some(tls_source(&config.tls, Side::Client)?);
    }
    if slots.hello.is_none() {
        slots.hello = Some(hello(store, generation)?);
    }
    slots.follow(&config);
    slots.drop_retired();
    let views: Vec<View> = slots.wanted.iter().map(|(_, slot)| view(slot.as_deref())).collect();
    let choice = failover::choose(&views, slots.active);
    if choice.active != slots.active
        && let Some((target, _)) = choice.active.and_then(|index| slots.wanted.get(index))
        && slots.wanted.len() > 1
    {
        let text = format!("new connections go to {}", target.address);
        client.core.telemetry.event(Level::Info, text);
    }
    slots.active = choice.active;
    for index in choice.stop {
        if let Some(slot) = slots.wanted.get_mut(index).and_then(|(_, slot)| slot.take()) {
            slots.past = slots.past.plus(&slot.wan);
        }
    }
    if let Some(index) = choice.start {
        slots.start(client, &config, index)?;
    }
    let retired = (!slots.retired.is_empty()).then_some(RETIRED_INTERVAL);
    Ok(choice.again.into_iter().chain(retired).min())
}

impl Slots {
    /// Takes over the server sides that the configuration names. Those that it still names go on; those that it does not
    /// are kept as long as connections use them.
    fn follow(&mut self, config: &ClientConfig) {
        let targets = targets(config);
        if self.wanted.iter().map(|(target, _)| target).eq(&targets) {
            return;
        }
        let active = self.active.and_then(|index| self.wanted.get(index)).map(|(target, _)| target.clone());
        let mut old = std::mem::take(&mut self.wanted);
        for target in targets {
            let slot = old.iter_mut().find(|(other, _)| *other == target).and_then(|(_, slot)| slot.take());
            self.wanted.push((target, slot));
        }
        self.retired.extend(old.into_iter().filter_map(|(_, slot)| slot));
        self.active = active.and_then(|active| self.wanted.iter().position(|(target, _)| *target == active));
    }

    fn drop_retired(&mut self) {
        let (used, idle): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.retired).into_iter().partition(|slot| slot.dialer.is_in_use());
        self.retired = used;
        self.past = idle.iter().fold(self.past, |sum, slot| sum.plus(&slot.wan));
    }

    fn start(
        &mut self,
        client: &Arc<Client>,
        config: &ClientConfig,
        index: usize,
    ) -> Result<(), (Reason, String)> {
        let (Some(tls), Some(local)) = (self.tls.clone(), self.hello.clone()) else { return Ok(()) };
        let Some((target, place)) = self.wanted.get_mut(index) else { return Ok(()) };
        let mut dialer =
            DialerConfig::new(target.address.to_string(), target.server_name.clone(), tls, local);
        dialer.pool_min = config.pool.min as usize;
        dialer.pool_max = config.pool.max as usize;
        dialer.resume_window = config.channels.resume_window;
        dialer.heartbeat = config.channels.heartbeat;
        let wan = Arc::<WanCounters>::default();
        let dialer =
            Dialer::start(dialer, wan.clone()).map_err(|error| (Reason::PeerAbsent, error.to_string()))?;
        tokio::spawn(follow_state(Arc::downgrade(client), dialer.subscribe()));
        let slot = Slot { target: target.clone(), dialer, wan, since: SystemTime::now() };
        *place = Some(Arc::new(slot));
        self.active.get_or_insert(index);
        Ok(())
    }
}

/// Tells people and the choice of every change of one dialer's state, until the dialer is gone.
async fn follow_state(client: Weak<Client>, mut states: tokio::sync::watch::Receiver<PeerState>) {
    loop {
        {
            let Some(client) = client.upgrade() else { return };
            let (level, text) = match &*states.borrow_and_update() {
                PeerState::Connected(info) => {
                    client.core.note_peer(info);
                    tokio::spawn(client.clone().peer_is_back());
                    (Level::Info, format!("peer {} is up", info.name))
                }
                PeerState::Down { reason, detail, .. } => {
                    if *reason == Reason::PeerUnauthorised {
                        // A laptop may have been revoked; the server side will say so when it is asked.
                        client.whereabouts.news.notify_one();
                    }
                    (Level::Warning, format!("peer is down: {detail}"))
                }
            };
            client.core.telemetry.event(level, text);
            client.link.notify();
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

fn targets(config: &ClientConfig) -> Vec<Target> {
    let first = Target { address: config.peer.address.clone(), server_name: config.peer.server_name.clone() };
    let backups = config
        .peer
        .backups
        .iter()
        .map(|address| Target { address: address.clone(), server_name: address.host.to_string() });
    std::iter::once(first).chain(backups).collect()
}

fn view(slot: Option<&Slot>) -> View {
    let Some(slot) = slot else { return View::default() };
    let (up, since) = match slot.dialer.state() {
        PeerState::Connected(info) => (true, info.since),
        PeerState::Down { since, .. } => (false, since),
    };
    // A clock that was set back only delays.
    let lasting = since.elapsed().unwrap_or_default();
    View { started: true, up, lasting, in_use: slot.dialer.is_in_use() }
}

/// Why the dialer has no channel, for people.
fn why(dialer: &Dialer, reason: Reason) -> String {
    match dialer.state() {
        PeerState::Down { detail, .. } => detail,
        PeerState::Connected(_) => reason.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
