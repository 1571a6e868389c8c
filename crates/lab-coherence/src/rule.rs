//! How old an answer may be.

use crate::history::{Time, Via};

/// What was measured, and 50 ms.
pub const MARGIN: Time = 50_000;

/// How long a permit may be used without a confirmation from the other side: the product's default.
pub const LIVENESS: Time = 2_000_000;

/// A name may outlive its deletion by this.
pub const NAME_KEPT_MAX: Time = 1_000_000;

/// Deliveries that were measured within this time of a request count for it.
const NEAR: Time = 3_000_000;

/// Which promise is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As if every client were connected straight to the server.
    Strict,
    /// Data may be as old as a break takes to be delivered, and [`MARGIN`]; in trouble as old as [`LIVENESS`].
    Bounded,
}

/// How long the notification of a break, or of a change in a folder, took, through a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which pair.
    pub pair: usize,
    /// When the request had returned that it is about.
    pub at: Time,
    /// From then until the other client had read the notification.
    pub took: Time,
}

/// A time in which a pair was cut or restarted, and until it had settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which pair.
    pub pair: usize,
    /// From when on.
    pub from: Time,
    /// Until when.
    pub to: Time,
    /// Whether connections went with it.
    pub is_restart: bool,
}

/// The promise, and what was measured.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The promise.
    pub mode: Mode,
    /// Measured deliveries.
    pub deliveries: Vec<Delivery>,
    /// Cuts and restarts.
    pub troubles: Vec<Trouble>,
}

impl Rule {
    /// Without any pair, or with one that must not be noticed.
    pub fn strict() -> Rule {
        Rule { mode: Mode::Strict, deliveries: Vec::new(), troubles: Vec::new() }
    }

    /// How old what a client is told may be, that asks by this way at this time.
    pub fn age_max(&self, via: Via, call: Time, back: Time) -> Time {
        let (Mode::Bounded, Via::Pair(pair)) = (self.mode, via) else { return 0 };
        if self.troubles.iter().any(|t| t.pair == pair && t.from <= back && call <= t.to + LIVENESS) {
            return LIVENESS + MARGIN;
        }
        let near = |d: &&Delivery| d.pair == pair && d.at <= back + NEAR && call <= d.at + d.took + NEAR;
        let slowest = self.deliveries.iter().filter(near).map(|delivery| delivery.took).max();
        // Without a measurement nothing better is known than what always holds.
        slowest.map_or(LIVENESS, |took| took.min(LIVENESS)) + MARGIN
    }

    /// How long a name may outlive its deletion, or an open its close, for others to see.
    pub fn name_kept_max(&self) -> Time {
        match self.mode {
            Mode::Strict => 0,
            Mode::Bounded => NAME_KEPT_MAX,
        }
    }

    /// Whether a connection by this way may have gone that was there at `since`, and of which that is seen at `back`.
    pub fn may_lose(&self, via: Via, since: Time, back: Time) -> bool {
        let covers = |t: &Trouble| t.from <= back && since <= t.to + LIVENESS;
        self.troubles.iter().any(|t| t.is_restart && Via::Pair(t.pair) == via && covers(t))
    }

    /// Whether a pair was in trouble between these times.
    pub fn is_troubled(&self, via: Via, call: Time, back: Time) -> bool {
        self.troubles.iter().any(|t| Via::Pair(t.pair) == via && t.from <= back && call <= t.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_what_was_measured_and_what_was_wrong() {
        let rule = Rule {
            mode: Mode::Bounded,
            deliveries: vec![
                Delivery { pair: 0, at: 1_000_000, took: 12_000 },
                Delivery { pair: 0, at: 9_000_000, took: 700_000 },
            ],
            troubles: vec![Trouble { pair: 1, from: 5_000_000, to: 6_000_000, is_restart: false }],
        };
        assert_eq!(rule.age_max(Via::Direct, 0, 1), 0);
        assert_eq!(rule.age_max(Via::Pair(0), 1_500_000, 1_600_000), 12_000 + MARGIN);
        assert_eq!(rule.age_max(Via::Pair(0), 8_500_000, 8_600_000), 700_000 + MARGIN);
        assert_eq!(rule.age_max(Via::Pair(1), 7_500_000, 7_600_000), LIVENESS + MARGIN);
        assert!(rule.is_troubled(Via::Pair(1), 5_500_000, 5_600_000));
        assert!(!rule.may_lose(Via::Pair(1), 5_500_000, 5_600_000));
        let troubles = vec![Trouble { pair: 1, from: 5_000_000, to: 6_000_000, is_restart: true }];
        let rule = Rule { troubles, ..rule };
        assert!(rule.may_lose(Via::Pair(1), 4_000_000, 60_000_000), "who was idle notices late");
        assert!(
            !rule.may_lose(Via::Pair(1), 9_000_000, 60_000_000),
            "what came after it does not go with it"
        );
        assert_eq!(Rule::strict().age_max(Via::Pair(0), 0, 1), 0);
    }
}
