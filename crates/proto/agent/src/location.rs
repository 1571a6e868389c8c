//! Where a laptop is, seen from what it can measure: near its file server (nothing to optimise), behind a branch gateway
//! that optimises for it, or remote, where it optimises itself.
//!
//! The machine is told what each round of probes found, and says when the next round is due. What it decides has to be seen
//! several times, so that one lost datagram moves nothing; a signed answer of a gateway counts at once, since two
//! optimisers in one path would only do the work twice.

use std::fmt;
use std::time::Duration;

/// Time between rounds behind a gateway, which is asked in each: its loss must be seen soon.
pub const BRANCH_INTERVAL: Duration = Duration::from_millis(2_048);
/// Time between rounds elsewhere, when gateways are known.
pub const GATEWAY_INTERVAL: Duration = Duration::from_millis(4_096);
/// Time between measurements of the way to the file server while nothing changes: each costs it a connection.
pub const SERVER_INTERVAL: Duration = Duration::from_secs(30);
/// Time between rounds while a change is being confirmed.
pub const CONFIRM_INTERVAL: Duration = Duration::from_millis(700);
/// Rounds that must agree before the location changes.
pub const CONFIRMATIONS: u32 = 2;
/// Rounds that must agree when there have been many changes of late.
pub const CONFIRMATIONS_WHEN_FLAPPING: u32 = 4;
/// So many changes...
pub const FLAPS: usize = 4;
/// ...within this time are many.
pub const FLAP_WINDOW: Duration = Duration::from_secs(60);
/// A file server that was near counts as near up to this many times the limit, in percent.
pub const LEAVE_PERCENT: u32 = 150;

/// Where the laptop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Near the file server: connections go straight to it.
    Off,
    /// Behind a branch gateway: connections go straight through it, and it optimises.
    Branch,
    /// Neither: the agent optimises.
    Remote,
}

impl Location {
    /// The word in reports and status.
    pub fn as_str(self) -> &'static str {
        match self {
            Location::Off => "off",
            Location::Branch => "branch",
            Location::Remote => "remote",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether there is a file server to measure the way to.
    pub server: bool,
    /// A file server that answers sooner than this is near.
    pub near: Duration,
    /// Whether there are gateways to ask.
    pub gateways: bool,
    /// A gateway that answers later than this is not in the branch, but reached from elsewhere.
    pub gateway_near: Duration,
}

/// What one round found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The first gateway that answered with a good signature, and the round trip.
    pub gateway: Option<(String, Duration)>,
    pub server: Server,
}

/// What a round found about the file server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// It was not asked.
    #[default]
    NotAsked,
    /// It did not answer.
    Silent,
    /// It answered after this time.
    Answered(Duration),
}

/// The next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When it is due, since the machine's start of time.
    pub at: Duration,
    /// Whether the file server is to be asked, should no gateway answer.
    pub ask_server: bool,
}

/// A change of location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub from: Location,
    pub to: Location,
    /// For people.
    pub why: String,
}

/// The state machine. Times are durations since any fixed moment.
#[derive(Clone, Debug)]
pub struct Machine {
    settings: Settings,
    location: Location,
    why: String,
    since: Duration,
    /// A location that was seen but is not confirmed yet, and how often it was seen.
    candidate: Option<(Location, u32)>,
    /// Nothing was decided since the start or since the network changed: one look is enough.
    fresh: bool,
    /// Start and end of the last round.
    last_round: Option<(Duration, Duration)>,
    last_server: Option<Duration>,
    /// The gateway was silent in the last round, so that the file server must be asked.
    gateway_lost: bool,
    /// Times of the last changes, newest last.
    changes: Vec<Duration>,
}

impl Machine {
    /// Remote until something else is seen: optimising where it is not needed does no harm.
    pub fn new(settings: Settings, now: Duration) -> Machine {
        Machine {
            settings,
            location: Location::Remote,
            why: "nothing was measured yet".into(),
            since: now,
            candidate: None,
            fresh: true,
            last_round: None,
            last_server: None,
            gateway_lost: false,
            changes: Vec::new(),
        }
    }

    pub fn location(&self) -> Location {
        self.location
    }

    /// Why it is there, for people.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Since when.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// The machine has another address or another way out: what was measured is of the past.
    pub fn network_changed(&mut self) {
        self.fresh = true;
        self.candidate = None;
        self.last_round = None;
        self.last_server = None;
    }

    /// The policy has changed.
    pub fn set(&mut self, settings: Settings) {
        if settings != self.settings {
            self.settings = settings;
            self.network_changed();
        }
    }

    /// When the next round is due, and what it has to ask. `None` if there is nothing to find out.
    pub fn plan(&self, now: Duration) -> Option<Plan> {
        if !self.settings.gateways && !self.settings.server {
            return None;
        }
        let Some((started, ended)) = self.last_round else {
            return Some(Plan { at: now, ask_server: self.settings.server });
        };
        let urgent = !self.is_settled();
        let server_due = self.last_server.map_or(now, |asked| asked + SERVER_INTERVAL);
        let at = match (urgent, self.settings.gateways) {
            (true, _) => ended + CONFIRM_INTERVAL,
            (false, true) if self.location == Location::Branch => started + BRANCH_INTERVAL,
            (false, true) => started + GATEWAY_INTERVAL,
            (false, false) => server_due,
        };
        let ask_server = self.settings.server && (urgent || at.max(now) >= server_due);
        Some(Plan { at, ask_server })
    }

    /// Whether nothing is being confirmed: the next round only looks whether something has changed.
    pub fn is_settled(&self) -> bool {
        self.candidate.is_none() && !self.fresh && !self.gateway_lost
    }

    /// Takes in what a round found that began at `started`.
    pub fn observe(&mut self, started: Duration, now: Duration, round: &Round) -> Option<Change> {
        self.last_round = Some((started, now));
        if round.server != Server::NotAsked {
            self.last_server = Some(now);
        }
        let (seen, why) = self.seen(round)?;
        if seen == self.location {
            self.candidate = None;
            self.fresh = false;
            self.why = why;
            return None;
        }
        let count = match self.candidate {
            Some((candidate, count)) if candidate == seen => count + 1,
            _ => 1,
        };
        if count < self.needed(now, seen) {
            self.candidate = Some((seen, count));
            return None;
        }
        self.changes.retain(|at| *at + FLAP_WINDOW > now);
        self.changes.push(now);
        let change = Change { from: self.location, to: seen, why: why.clone() };
        self.candidate = None;
        self.fresh = false;
        self.gateway_lost = false;
        (self.location, self.why, self.since) = (seen, why, now);
        Some(change)
    }

    /// Where this round alone says that the laptop is; `None` if it says nothing about it.
    fn seen(&mut self, round: &Round) -> Option<(Location, String)> {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        if let Some((name, rtt)) = &round.gateway {
            let (name, rtt) = (name.as_str(), *rtt);
            if rtt <= self.settings.gateway_near {
                self.gateway_lost = false;
                return Some((Location::Branch, format!("gateway {name} answers within {:.1} ms", ms(rtt))));
            }
        }
        self.gateway_lost = self.location == Location::Branch;
        let near = match self.location {
            Location::Off => self.settings.near * LEAVE_PERCENT / 100,
            _ => self.settings.near,
        };
        let silent = if self.settings.gateways { "no gateway answers, " } else { "" };
        match round.server {
            Server::Answered(rtt) if rtt <= near => {
                Some((Location::Off, format!("{silent}the file server answers within {:.1} ms", ms(rtt))))
            }
            Server::Answered(rtt) => {
                Some((Location::Remote, format!("{silent}the file server answers after {:.1} ms", ms(rtt))))
            }
            Server::Silent => {
                Some((Location::Remote, format!("{silent}the file server does not answer directly")))
            }
            Server::NotAsked if !self.settings.server => {
                Some((Location::Remote, "no gateway answers".to_owned()))
            }
            Server::NotAsked => None,
        }
    }

    fn needed(&self, now: Duration, seen: Location) -> u32 {
        let recent = self.changes.iter().filter(|at| **at + FLAP_WINDOW > now).count();
        if seen == Location::Branch || self.fresh {
            1
        } else if recent >= FLAPS {
            CONFIRMATIONS_WHEN_FLAPPING
        } else {
            CONFIRMATIONS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);
    const ACT_WITHIN: Duration = Duration::from_secs(5);
    /// How long a round takes whose gateway does not answer. A calm one takes as long as it may.
    const ROUND: Duration = Duration::from_millis(300);

    fn settings() -> Settings {
        Settings { server: true, near: 5 * MS, gateways: true, gateway_near: 20 * MS }
    }

    /// A world that answers probes, in virtual time.
    struct World {
        machine: Machine,
        now: Duration,
        gateway: Option<Duration>,
        server: Option<Duration>,
        changes: Vec<(Duration, Location)>,
        server_asked: u32,
        rounds: u32,
    }

    impl World {
        fn new(settings: Settings) -> World {
            World {
                machine: Machine::new(settings, Duration::ZERO),
                now: Duration::ZERO,
                gateway: None,
                server: Some(80 * MS),
                changes: Vec::new(),
                server_asked: 0,
                rounds: 0,
            }
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while let Some(plan) = self.machine.plan(self.now).filter(|plan| plan.at <= end) {
                self.now = self.now.max(plan.at);
                let gateway = self.gateway.map(|rtt| ("branch-7".to_owned(), rtt));
                let mut server = Server::NotAsked;
                let started = self.now;
                if gateway.is_none() {
                    let calm = self.machine.is_settled() && self.machine.location() != Location::Branch;
                    self.now += if calm && self.machine.settings.gateways { GATEWAY_INTERVAL } else { ROUND };
                    if plan.ask_server {
                        self.server_asked += 1;
                        server = self.server.map_or(Server::Silent, Server::Answered);
                    }
                }
                self.rounds += 1;
                let change = self.machine.observe(started, self.now, &Round { gateway, server });
                self.changes.extend(change.map(|change| (self.now, change.to)));
            }
            self.now = self.now.max(end);
        }
    }

    #[test]
    fn each_place_is_recognised_in_time_and_named() {
        let mut world = World::new(settings());
        world.run(Duration::from_secs(10));
        assert_eq!(world.machine.location(), Location::Remote);
        assert!(world.machine.why().contains("after 80.0 ms"), "{}", world.machine.why());
        world.gateway = Some(MS);
        world.run(ACT_WITHIN);
        assert_eq!(world.machine.location(), Location::Branch);
        assert!(world.machine.why().contains("branch-7"));
        world.gateway = None;
        world.run(ACT_WITHIN);
        assert_eq!(world.machine.location(), Location::Remote, "the gateway is gone");
        world.server = Some(MS);
        world.machine.network_changed();
        world.run(ACT_WITHIN);
        assert_eq!(world.machine.location(), Location::Off);
        world.server = None;
        world.machine.network_changed();
        world.run(ACT_WITHIN);
        assert_eq!(world.machine.location(), Location::Remote, "without an answer it may be anywhere");
        assert_eq!(world.changes.len(), 4, "{:?}", world.changes);
    }

    #[test]
    fn one_lost_round_and_small_swings_move_nothing() {
        let mut world = World::new(settings());
        world.gateway = Some(MS);
        world.run(Duration::from_secs(10));
        for _ in 0..20 {
            world.gateway = None;
            let rounds = world.rounds;
            while world.rounds == rounds {
                world.run(Duration::from_millis(100));
            }
            world.gateway = Some(MS);
            world.run(Duration::from_secs(6));
        }
        assert_eq!(world.changes.len(), 1, "{:?}", world.changes);
        let mut world = World::new(Settings { gateways: false, ..settings() });
        world.server = Some(4 * MS);
        world.run(Duration::from_secs(60));
        for swing in 0..20 {
            world.server = Some(if swing % 2 == 0 { 7 * MS } else { 4 * MS });
            world.run(Duration::from_secs(60));
        }
        assert_eq!(world.changes.len(), 1, "between the two limits it stays: {:?}", world.changes);
        world.server = Some(9 * MS);
        world.run(Duration::from_secs(60));
        assert_eq!(world.machine.location(), Location::Remote);
    }

    #[test]
    fn the_file_server_is_asked_rarely() {
        let mut world = World::new(settings());
        world.run(Duration::from_secs(600));
        assert!(world.server_asked <= 22, "{}", world.server_asked);
        world.gateway = Some(MS);
        world.run(Duration::from_secs(10));
        let asked = world.server_asked;
        world.run(Duration::from_secs(600));
        assert_eq!(world.server_asked, asked, "a gateway in the path says it all");
        let mut world = World::new(Settings { gateways: false, ..settings() });
        world.run(Duration::from_secs(600));
        assert!(world.rounds <= 22, "{}", world.rounds);
        assert_eq!(
            Machine::new(Settings { gateways: false, server: false, ..settings() }, MS).plan(MS),
            None
        );
    }

    #[test]
    fn a_gateway_far_away_is_not_in_the_path() {
        let mut world = World::new(settings());
        world.gateway = Some(90 * MS);
        world.run(Duration::from_secs(60));
        assert_eq!(world.machine.location(), Location::Remote, "reached through a tunnel");
    }

    #[test]
    fn what_flaps_is_confirmed_for_longer() {
        let mut world = World::new(settings());
        for _ in 0..10 {
            world.gateway = Some(MS);
            world.run(Duration::from_secs(3));
            world.gateway = None;
            world.run(Duration::from_secs(3));
        }
        // Without the longer confirmation there would be twenty.
        assert!(world.changes.len() <= 12, "{:?}", world.changes);
        world.run(Duration::from_secs(10));
        assert_eq!(world.machine.location(), Location::Remote, "it still gets there");
    }

    proptest! {
        /// Whatever was before, a world that stands still is recognised within the promised time, and then nothing changes.
        #[test]
        fn it_settles(
            before in proptest::collection::vec((any::<bool>(), 0u32..200, any::<bool>()), 0..3),
            gateway in any::<bool>(), server in prop_oneof![0u32..4, 10u32..200],
        ) {
            let mut world = World::new(settings());
            for (gateway, server, moved) in before {
                world.gateway = gateway.then_some(MS);
                world.server = Some(server * MS);
                if moved { world.machine.network_changed(); }
                world.run(Duration::from_secs(20));
            }
            world.gateway = gateway.then_some(MS);
            world.server = Some(server * MS);
            world.machine.network_changed();
            world.run(ACT_WITHIN);
            let expected = match (gateway, server < 5) {
                (true, _) => Location::Branch,
                (false, true) => Location::Off,
                (false, false) => Location::Remote,
            };
            prop_assert_eq!(world.machine.location(), expected);
            let changes = world.changes.len();
            world.run(Duration::from_secs(120));
            prop_assert_eq!(world.changes.len(), changes);
        }
    }
}
