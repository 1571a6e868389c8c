//! Both engines back to back in virtual time, between a random client and a small server: whatever the client is told is
//! something that the server could have said.

mod client;
mod history;
mod plan;
mod random;
mod server;
mod wire;

use crate::policy::{Mode, Policy};
use crate::{Carriage, Far, Fate, Lan, Near, Out, Told, Wan};
use bytes::{Bytes, BytesMut};
use client::Client;
use random::Random;
use server::Server;
use std::collections::{BTreeMap, VecDeque};

/// Time that the server takes for an answer, at most, and that the link takes.
const SERVER_MICROS: u64 = 3_000;
const LINK_MICROS: u64 = 20_000;
const JITTER_MICROS: u64 = 4_000;
/// Time between two ticks.
const TICK_MICROS: u64 = 100_000;
/// Cuts up to this long lose nothing that was written.
const CUT_MICROS_TO_LOSE: u64 = 20_000_000;
/// After the last thing that the client does, all must have come to rest.
const REST_MICROS: u64 = 60_000_000;

/// What is on its way, and where to.
enum Parcel {
    ToFar(Load),
    ToNear(Load),
    ToServer(Vec<u8>),
    FromServer(Vec<u8>),
    /// The server does the WRITEs that have come.
    Written,
    Tick,
    Other,
    Wake,
}

enum Load {
    Message(Vec<u8>),
    Told(Told),
}

/// What a run is like.
#[derive(Clone, Copy, Debug)]
struct Settings {
    seed: u64,
    /// Programs of each thread of the client.
    programs: usize,
    strict: bool,
    early_close: bool,
    /// Longest cut of the link; none with 0.
    cut_micros: u64,
    /// Whether somebody else is at work.
    others: bool,
    /// Whether the server's disk is full at times.
    fills: bool,
    answers_breaks: bool,
}

struct World {
    settings: Settings,
    now: u64,
    serial: u64,
    random: Random,
    near: Near,
    far: Far,
    client: Client,
    server: Server,
    parcels: BTreeMap<(u64, u64), Parcel>,
    /// When the last parcel of each way arrives: near to far, far to near, far to server, server to far.
    last: [u64; 4],
    cuts: VecDeque<(u64, u64)>,
    programs: [usize; 2],
    ended: Option<u64>,
}

impl World {
    fn new(settings: Settings) -> World {
        let mut random = Random::new(settings.seed);
        let mut server = Server::new();
        for (index, path) in plan::paths().into_iter().enumerate() {
            let node = server.make(&path, false, server::Who::Other);
            server.fill(node, if index == 0 { 400 } else { random.size(24) });
        }
        server.history.is_lossy =
            settings.fills || !settings.answers_breaks || settings.cut_micros > CUT_MICROS_TO_LOSE;
        let mut client = Client::new();
        (client.early_close, client.answers_breaks) = (settings.early_close, settings.answers_breaks);
        let first = client.begin(1);
        let mode = if settings.strict { Mode::Strict } else { Mode::Bounded };
        let policy = Policy { mode, rules: Vec::new() };
        let mut world = World {
            settings,
            now: 1,
            serial: 0,
            near: Near::new(policy.clone(), settings.early_close),
            far: Far::new([7; 16], policy),
            random,
            client,
            server,
            parcels: BTreeMap::new(),
            last: [0; 4],
            cuts: VecDeque::new(),
            programs: [settings.programs; 2],
            ended: None,
        };
        world.plan_cuts();
        world.far.enable(true);
        world.of_client(first);
        world.put(TICK_MICROS, Parcel::Tick);
        if settings.others {
            world.put(50_000, Parcel::Other);
        }
        world
    }

    fn plan_cuts(&mut self) {
        let mut at = 1_000_000;
        while self.settings.cut_micros > 0 && at < 400_000_000 {
            at += self.random.below(6_000_000);
            let until = at + self.random.below(self.settings.cut_micros);
            self.cuts.push_back((at, until));
            at = until;
        }
    }

    fn put(&mut self, at: u64, parcel: Parcel) {
        self.serial += 1;
        self.parcels.insert((at, self.serial), parcel);
    }

    /// Sends over the link, in order, but not while it is cut.
    fn over_link(&mut self, way: usize, parcel: Parcel) {
        let mut at = self.now + LINK_MICROS + self.random.below(JITTER_MICROS);
        for (from, until) in &self.cuts {
            if self.now < *until && at > *from {
                at = at.max(*until + LINK_MICROS);
            }
        }
        self.last[way] = self.last[way].max(at);
        let at = self.last[way];
        self.put(at, parcel);
    }

    fn over_lan(&mut self, way: usize, time_max: u64, parcel: Parcel) {
        self.last[way] = self.last[way].max(self.now + self.random.below(time_max));
        let at = self.last[way];
        self.put(at, parcel);
    }

    /// How old what the client is told may be.
    fn age_max(&self, call: u64) -> u64 {
        // A change waits for the watch to be armed again.
        let delivery = LINK_MICROS + JITTER_MICROS + 4 * SERVER_MICROS;
        let reach = crate::LIVENESS_MICROS + delivery;
        let is_cut = self.cuts.iter().any(|(from, until)| *from <= self.now && call < until + reach);
        if is_cut { reach } else { delivery }
    }

    fn tell_far(&mut self, wan: Vec<Wan>) {
        for one in wan {
            let Wan::Told(told) = one else { panic!("the near engine sends no responses") };
            self.over_link(0, Parcel::ToFar(Load::Told(told)));
        }
    }

    fn tell_near(&mut self, wan: Vec<Wan>) {
        for one in wan {
            let load = match one {
                Wan::Told(told) => Load::Told(told),
                Wan::Response(lan) => Load::Message(lan.message),
            };
            self.over_link(1, Parcel::ToNear(load));
        }
    }

    /// A request of the client.
    fn of_client(&mut self, message: Vec<u8>) {
        let mut out = Out::default();
        let fate = self.near.request(self.now, Carriage::Plain, &message, &mut out);
        let Out { lan, wan, after } = out;
        self.tell_far(wan);
        if fate == Fate::Forward {
            self.over_link(0, Parcel::ToFar(Load::Message(message)));
        }
        self.tell_far(after);
        self.hand_all(lan);
    }

    fn hand_all(&mut self, lan: Vec<Lan>) {
        for one in lan {
            self.hand_over(&one.message);
        }
    }

    fn hand_over(&mut self, message: &[u8]) {
        let call = self.client.called_at(message).unwrap_or(self.now);
        let age_max = self.age_max(call);
        self.client.receive((self.now, age_max), message, &mut self.server, &mut self.random);
        let at = self.now + 1 + self.random.below(3_000);
        self.put(at, Parcel::Wake);
    }

    fn out_of_far(&mut self, out: Out) {
        for one in out.lan {
            self.over_lan(2, 500, Parcel::ToServer(one.message));
        }
        self.tell_near(out.wan);
        self.tell_near(out.after);
    }

    fn deliver(&mut self, parcel: Parcel) {
        let mut out = Out::default();
        match parcel {
            Parcel::ToFar(Load::Message(message)) => {
                self.far.request(self.now, Carriage::Plain, message, &mut out);
                self.out_of_far(out);
            }
            Parcel::ToFar(Load::Told(told)) => {
                self.far.told(self.now, &told.head, &mut out).expect("what the near engine says");
                self.out_of_far(out);
            }
            Parcel::ToNear(Load::Message(message)) => self.pass_near(message),
            Parcel::ToNear(Load::Told(told)) => {
                self.near.told(self.now, &told.head, told.content, &mut out).expect("what is told");
                self.tell_far(out.wan);
                self.tell_far(out.after);
                self.hand_all(out.lan);
            }
            Parcel::ToServer(message) => {
                self.server.receive(&message);
                self.take_answers();
                if self.server.is_writing() {
                    let at = self.now + self.random.below(SERVER_MICROS);
                    self.put(at, Parcel::Written);
                }
            }
            Parcel::Written => {
                self.server.finish_writes();
                self.take_answers();
            }
            Parcel::FromServer(message) => {
                let mut message = BytesMut::from(Bytes::from(message));
                let fate = self.far.response(self.now, Carriage::Plain, &mut message, &mut out);
                let Out { lan, wan, after } = out;
                self.out_of_far(Out { lan, wan, after: Vec::new() });
                if fate == Fate::Forward {
                    self.over_link(1, Parcel::ToNear(Load::Message(message.to_vec())));
                }
                self.tell_near(after);
            }
            Parcel::Tick => self.tick(),
            Parcel::Other => self.others(),
            Parcel::Wake => {}
        }
    }

    /// A response passes the near engine.
    fn pass_near(&mut self, message: Vec<u8>) {
        if self.near.response(self.now, &message) == Fate::Forward {
            self.hand_over(&message);
        }
    }

    fn take_answers(&mut self) {
        for message in std::mem::take(&mut self.server.out) {
            self.over_lan(3, SERVER_MICROS, Parcel::FromServer(message));
        }
    }

    fn tick(&mut self) {
        let mut out = Out::default();
        self.near.tick(self.now, &mut out);
        self.tell_far(out.wan);
        self.hand_all(out.lan);
        let mut out = Out::default();
        self.far.tick(self.now, &mut out);
        self.out_of_far(out);
        if self.settings.fills && self.random.one_in(20) {
            self.server.is_full = !self.server.is_full;
        }
        if !self.is_over() {
            self.put(self.now + TICK_MICROS, Parcel::Tick);
        }
    }

    fn others(&mut self) {
        if self.ended.is_none() {
            let (ask, act) = plan::other(&mut self.random, &self.server);
            self.server.other(ask, act);
            self.take_answers();
            let at = self.now + self.random.below(400_000);
            self.put(at, Parcel::Other);
        }
    }

    fn is_over(&self) -> bool {
        self.ended.is_some_and(|at| self.now > at + REST_MICROS)
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), parcel)) = self.parcels.pop_first() else { return false };
        self.now = self.now.max(at);
        self.server.now = self.now;
        if self.server.next_due().is_some_and(|due| due <= self.now) {
            self.server.expire();
            self.take_answers();
        }
        self.deliver(parcel);
        for (thread, left) in self.client.threads.iter_mut().zip(&mut self.programs) {
            if thread.steps.is_empty() && *left > 0 {
                *left -= 1;
                thread.steps = plan::program(&mut self.random, &self.server).into();
            }
        }
        for message in self.client.work(self.now, &mut self.random) {
            self.of_client(message);
        }
        if self.ended.is_none() && self.client.is_done() && self.programs == [0, 0] {
            self.ended = Some(self.now);
            self.server.is_full = false;
        }
        true
    }

    /// Runs until all is at rest.
    fn run(mut self) -> World {
        let mut steps = 0_u64;
        while self.step() {
            steps += 1;
            if !self.client.wrong.is_empty() {
                break;
            }
            assert!(steps < 3_000_000, "{:?}: no end: {}", self.settings, self.client.waits_for());
            assert!(self.now < 3_600_000_000, "{:?}: {}", self.settings, self.client.waits_for());
        }
        let wrong = &self.client.wrong;
        assert!(wrong.is_empty(), "{:?} at {}: {wrong:#?}", self.settings, self.now);
        assert!(self.server.late.is_empty(), "{:?}: {:?}", self.settings, self.server.late);
        assert!(self.server.is_idle(), "{:?}: somebody waits still", self.settings);
        assert_eq!(self.server.open_count(), 0, "{:?}: handles that nobody closed", self.settings);
        let known = [self.near.open_count(), self.far.open_count()];
        assert_eq!(known, [0, 0], "{:?}: the engines know opens that are no more", self.settings);
        self
    }
}

/// What all runs together have done, so that a run in which nothing happens does not count as one.
#[derive(Default, Debug)]
struct Sum {
    near: crate::Counts,
    far: crate::Counts,
    done: BTreeMap<&'static str, u64>,
    waited: u64,
    expired: u32,
}

fn run(seeds: impl IntoIterator<Item = u64>, settings: impl Fn(u64) -> Settings) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds {
        let world = World::new(settings(seed)).run();
        let (near, far) = (world.near.counts(), world.far.counts());
        sum.near.opens += near.opens;
        sum.near.reads += near.reads;
        sum.near.closes += near.closes;
        sum.near.queries += near.queries;
        sum.near.listings += near.listings;
        sum.near.writes += near.writes;
        sum.near.lost_writes += near.lost_writes;
        sum.far.ahead += far.ahead;
        sum.far.wasted += far.wasted;
        sum.far.breaks += far.breaks;
        sum.far.unheard_breaks += far.unheard_breaks;
        for (what, count) in &world.client.counts {
            *sum.done.entry(what).or_default() += count;
        }
        sum.waited = sum.waited.max(world.server.waits.iter().copied().max().unwrap_or_default());
        sum.expired += world.server.expired;
    }
    println!("{sum:?}");
    sum
}

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        programs: 12,
        strict: false,
        early_close: false,
        cut_micros: 0,
        others: true,
        fills: false,
        answers_breaks: true,
    }
}

/// Seeds of a run: as many as fit into a short run, or those of `ISTHMUS_MODEL_SEEDS`, as `from..to`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let given = std::env::var("ISTHMUS_MODEL_SEEDS").ok();
    let given = given.as_deref().and_then(|text| text.split_once(".."));
    given.map_or(0..count, |(from, to)| from.parse().expect("a seed")..to.parse().expect("a seed"))
}

#[test]
fn a_client_alone_is_told_what_is_so() {
    let sum = run(seeds(40), |seed| Settings { others: false, ..settings(seed) });
    let near = sum.near;
    for (what, count) in [
        ("opens", near.opens),
        ("reads", near.reads),
        ("closes", near.closes),
        ("queries", near.queries),
        ("listings", near.listings),
        ("writes", near.writes),
    ] {
        assert!(count > 100, "too few {what} were answered near the client: {count}");
    }
    assert_eq!(near.lost_writes, 0);
}

#[test]
fn a_client_among_others_is_told_what_is_so() {
    let sum = run(seeds(40), settings);
    assert!(sum.far.breaks > 100 && sum.near.opens > 100 && sum.near.writes > 100, "{sum:?}");
    assert!(sum.waited < 1_000_000, "others wait for no more than breaks: {} us", sum.waited);
    assert_eq!(sum.expired, 0, "every break is answered");
    assert_eq!(sum.far.unheard_breaks, 0, "every break is answered by the client itself, or needs no answer");
}

#[test]
fn what_is_held_over_a_cut_is_not_used_for_long() {
    let sum = run(seeds(40), |seed| Settings { cut_micros: 5_000_000, ..settings(seed) });
    assert!(sum.far.breaks > 100 && sum.near.opens > 100, "{sum:?}");
    assert_eq!(sum.expired, 0, "every break is answered once the link is back");
}

#[test]
fn a_write_that_fails_late_is_told_before_the_end() {
    let sum = run(seeds(40), |seed| Settings { fills: true, ..settings(seed) });
    assert!(sum.near.lost_writes > 5, "{sum:?}");
}

#[test]
fn a_write_is_not_done_when_others_were_let_in_meanwhile() {
    let settings = |seed| Settings { cut_micros: 80_000_000, programs: 6, ..settings(seed) };
    // In two more seeds a file grows between the answers to its opening and to what is read ahead.
    let more = [193, 815].into_iter().filter(|_| std::env::var_os("ISTHMUS_MODEL_SEEDS").is_none());
    let sum = run(seeds(40).chain(more), settings);
    assert!(sum.far.unheard_breaks > 10 && sum.near.writes > 100, "{sum:?}");
    assert!(sum.waited < 30_000_000, "others wait for a client that cannot be reached: {} us", sum.waited);
    assert_eq!(sum.expired, 0, "every break is answered");
}

#[test]
fn a_client_that_never_answers_breaks_holds_nobody_up_for_longer_than_the_server_waits() {
    let sum = run(seeds(40), |seed| Settings { answers_breaks: false, ..settings(seed) });
    assert!(sum.done["breaks"] > 20 && sum.waited <= server::BREAK_MICROS + TICK_MICROS, "{sum:?}");
}

#[test]
fn nothing_is_answered_early_in_strict_mode_but_under_the_clients_own_leases() {
    let sum = run(seeds(40), |seed| Settings { strict: true, ..settings(seed) });
    assert_eq!(sum.near.opens + sum.near.queries + sum.near.closes + sum.near.writes, 0);
}
