//! What the charts show: bytes of the last hour and the last day, in fixed steps, kept in memory.

use crate::limits::{DAY_STEP, HISTORY_POINTS_MAX, HOUR_STEP};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes that crossed in one step, or since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// LAN bytes carried over inner channels, from clients and from servers.
    pub lan_up: u64,
    pub lan_down: u64,
    /// Bytes on the inner sockets.
    pub wan_sent: u64,
    pub wan_received: u64,
    /// Bytes relayed directly.
    pub passed: u64,
    /// LAN bytes saved, by what saved them.
    pub saved: [u64; 5],
}

/// One step of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub traffic: Traffic,
    /// Open connections at the end of the step.
    pub connections: u64,
}

/// Which series to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
}

/// A series as read: `points` are consecutive, oldest first.
#[derive(Clone, Debug)]
pub struct Series {
    pub step: Duration,
    /// How long ago the last point ended.
    pub ended: Duration,
    pub points: Vec<Point>,
}

/// Both series. Has no clock of its own: time comes in with [`History::tick`].
pub struct History {
    last: Traffic,
    hour: Ring,
    day: Ring,
}

struct Ring {
    step: Duration,
    step_started: Instant,
    points: VecDeque<Point>,
    current: Traffic,
}

impl History {
    /// Two empty series that start at `now`.
    pub fn new(now: Instant) -> History {
        History { last: Traffic::default(), hour: Ring::new(HOUR_STEP, now), day: Ring::new(DAY_STEP, now) }
    }

    /// Takes in the totals since the start of the process. To be called at least once a step; when it was not, what
    /// arrived since is spread evenly over the steps that were missed.
    pub fn tick(&mut self, now: Instant, totals: Traffic, connections: u64) {
        let gained = totals.since(&self.last);
        self.last = totals;
        self.hour.add(now, &gained, connections);
        self.day.add(now, &gained, connections);
    }

    pub fn series(&self, span: Span, now: Instant) -> Series {
        let ring = match span {
            Span::Hour => &self.hour,
            Span::Day => &self.day,
        };
        Series {
            step: ring.step,
            ended: now.saturating_duration_since(ring.step_started),
            points: ring.points.iter().copied().collect(),
        }
    }

    /// What crossed in about the last `window` (at most an hour), the unfinished step included, and over how much time.
    pub fn recent(&self, window: Duration, now: Instant) -> (Traffic, Duration) {
        let steps = (window.as_nanos() / HOUR_STEP.as_nanos()) as usize;
        let mut sum = self.hour.current;
        let mut taken = 0u32;
        for point in self.hour.points.iter().rev().take(steps) {
            sum.add(&point.traffic);
            taken += 1;
        }
        (sum, HOUR_STEP * taken + now.saturating_duration_since(self.hour.step_started))
    }

    /// What crossed in the last day.
    pub fn day(&self) -> Traffic {
        self.day.points.iter().fold(self.day.current, |mut sum, point| {
            sum.add(&point.traffic);
            sum
        })
    }

    /// The totals at the last tick.
    pub fn totals(&self) -> Traffic {
        self.last
    }
}

impl Traffic {
    pub fn lan(&self) -> u64 {
        self.lan_up.saturating_add(self.lan_down)
    }

    pub fn wan(&self) -> u64 {
        self.wan_sent.saturating_add(self.wan_received)
    }

    fn zip(&self, other: &Traffic, f: impl Fn(u64, u64) -> u64) -> Traffic {
        Traffic {
            lan_up: f(self.lan_up, other.lan_up),
            lan_down: f(self.lan_down, other.lan_down),
            wan_sent: f(self.wan_sent, other.wan_sent),
            wan_received: f(self.wan_received, other.wan_received),
            passed: f(self.passed, other.passed),
            saved: std::array::from_fn(|i| f(self.saved[i], other.saved[i])),
        }
    }

    fn add(&mut self, other: &Traffic) {
        *self = self.zip(other, u64::saturating_add);
    }

    fn since(&self, earlier: &Traffic) -> Traffic {
        self.zip(earlier, u64::saturating_sub)
    }
}

impl Ring {
    fn new(step: Duration, now: Instant) -> Ring {
        Ring { step, step_started: now, points: VecDeque::new(), current: Traffic::default() }
    }

    fn add(&mut self, now: Instant, gained: &Traffic, connections: u64) {
        self.current.add(gained);
        let elapsed = now.saturating_duration_since(self.step_started);
        let steps = (elapsed.as_nanos() / self.step.as_nanos()).min(u128::from(u32::MAX)) as u32;
        if steps == 0 {
            return;
        }
        self.step_started += self.step * steps;
        let steps = u64::from(steps);
        let shown = steps.min(HISTORY_POINTS_MAX as u64);
        let share = self.current.zip(&Traffic::default(), |n, _| n / steps);
        let rest = self.current.zip(&Traffic::default(), |n, _| n % steps);
        self.current = Traffic::default();
        for i in 1..=shown {
            let mut traffic = share;
            if i == shown {
                traffic.add(&rest);
            }
            if self.points.len() == HISTORY_POINTS_MAX {
                self.points.pop_front();
            }
            self.points.push_back(Point { traffic, connections });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lan(n: u64) -> Traffic {
        Traffic { lan_up: n, saved: [n, 0, 0, 0, 0], ..Traffic::default() }
    }

    #[test]
    fn steps_hold_what_came_in_them() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut history = History::new(start);
        history.tick(at(2), lan(10), 1);
        history.tick(at(5), lan(15), 2);
        history.tick(at(9), lan(18), 2);
        let series = history.series(Span::Hour, at(9));
        assert_eq!(series.points.len(), 1);
        assert_eq!(series.points[0].traffic.lan_up, 15);
        assert_eq!(series.points[0].connections, 2);
        assert_eq!(series.ended, Duration::from_secs(4));
        assert_eq!(history.recent(Duration::from_secs(60), at(9)).0.lan_up, 18);
        assert_eq!(history.recent(Duration::from_secs(60), at(9)).1, Duration::from_secs(9));
        assert_eq!(history.series(Span::Day, at(9)).points.len(), 0);
    }

    #[test]
    fn a_window_forgets_what_lies_before_it() {
        let start = Instant::now();
        let mut history = History::new(start);
        for i in 1..=100u64 {
            history.tick(start + HOUR_STEP * i as u32, lan(i), 0);
        }
        let now = start + HOUR_STEP * 100;
        assert_eq!(history.recent(HOUR_STEP * 12, now).0.lan_up, 12);
        assert_eq!(history.recent(HOUR_STEP * 12, now).1, HOUR_STEP * 12);
    }

    #[test]
    fn a_long_pause_is_bounded_and_spread() {
        let start = Instant::now();
        let mut history = History::new(start);
        history.tick(start + Duration::from_secs(20), lan(42), 0);
        let points: Vec<_> =
            history.series(Span::Hour, start).points.iter().map(|p| p.traffic.lan_up).collect();
        assert_eq!(points, [10, 10, 10, 12]);
        history.tick(start + Duration::from_secs(10 * 86_400), lan(42), 0);
        assert_eq!(history.series(Span::Hour, start).points.len(), HISTORY_POINTS_MAX);
        assert_eq!(history.series(Span::Day, start).points.len(), HISTORY_POINTS_MAX);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_within_the_hour(ticks in prop::collection::vec((1u64..9_000, 0u64..1_000_000), 1..200)) {
            let start = Instant::now();
            let mut history = History::new(start);
            let (mut ms, mut total) = (0, 0);
            for (wait, bytes) in ticks {
                ms += wait;
                total += bytes;
                history.tick(start + Duration::from_millis(ms), lan(total), 0);
            }
            let now = start + Duration::from_millis(ms);
            prop_assert_eq!(history.recent(Duration::from_secs(3_600), now).0.lan_up, total);
            prop_assert_eq!(history.day().lan_up, total);
        }
    }
}
