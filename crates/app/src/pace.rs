//! How much may be under way on a channel before content that nobody waits for yet should wait.

use std::time::{Duration, Instant};

/// More than this is too much on a link of which nothing is known: about what TCP sends at first.
const UNDER_WAY_MIN: u64 = 12 << 10;
/// Share of what the link holds in a round trip: enough that it never runs dry, and grows with what it turns out to carry.
const GAIN: f64 = 2.0;
/// The same while it turns out to carry more and more, by this factor at least each time.
const RISING_GAIN: f64 = 4.0;
const RISING: f64 = 1.25;
/// Time over which the highest rate counts.
const MEMORY: Duration = Duration::from_secs(10);
/// What passes, beside the round trip, until the peer has confirmed something.
const PEER_TIME: Duration = Duration::from_millis(10);

/// Follows what the peer confirms.
pub(crate) struct Pace {
    /// Bytes confirmed since the span began.
    confirmed: u64,
    since: Instant,
    /// The highest rate of late, in bytes a second, and when it was seen.
    rate: f64,
    at: Instant,
    /// Whether the rate was higher each time so far.
    rising: bool,
    /// Whether the span is one in which the link had enough to do.
    full: bool,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self { confirmed: 0, since: now, rate: 0.0, at: now, rising: true, full: false }
    }

    /// The peer has confirmed more bytes. What a link carries that has little to do says nothing against it.
    pub fn confirm(&mut self, now: Instant, bytes: u64, round_trip: Duration) {
        self.confirmed += bytes;
        let span = now.saturating_duration_since(self.since);
        if span < round_trip + PEER_TIME {
            return;
        }
        let rate = self.confirmed as f64 / span.as_secs_f64();
        if self.full {
            self.rising = rate > self.rate * RISING;
        }
        let is_old = self.full && now.saturating_duration_since(self.at) > MEMORY;
        if rate >= self.rate || is_old {
            (self.rate, self.at) = (rate, now);
        }
        (self.confirmed, self.since, self.full) = (0, now, false);
    }

    /// How much more there may be, when so many bytes are under way.
    pub fn room(&mut self, under_way: u64, round_trip: Duration) -> u64 {
        let gain = if self.rising { RISING_GAIN } else { GAIN };
        let holds = self.rate * (round_trip + PEER_TIME).as_secs_f64();
        let room = UNDER_WAY_MIN.max((holds * gain) as u64).saturating_sub(under_way);
        self.full |= room == 0;
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(190);

    #[test]
    fn what_may_be_under_way_follows_the_link() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert_eq!((pace.room(0, ROUND_TRIP), pace.room(UNDER_WAY_MIN, ROUND_TRIP)), (UNDER_WAY_MIN, 0));
        // 4 MB a second: 0.8 MB in a round trip.
        for step in 1..=20 {
            pace.room(64 << 20, ROUND_TRIP);
            pace.confirm(start + Duration::from_millis(100 * step), 400_000, ROUND_TRIP);
        }
        assert!(pace.room(1_500_000, ROUND_TRIP) > 0 && pace.room(1_700_000, ROUND_TRIP) == 0);
    }

    #[test]
    fn a_link_that_has_become_slow_is_seen_in_seconds() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.confirm(start + ROUND_TRIP + PEER_TIME, 10_000_000, ROUND_TRIP);
        for step in 2..80 {
            pace.confirm(start + (ROUND_TRIP + PEER_TIME) * step, 200_000, ROUND_TRIP);
        }
        assert!(pace.room(500_000, ROUND_TRIP) > 0, "it had nothing to do");
        for step in 80..160 {
            pace.room(64 << 20, ROUND_TRIP);
            pace.confirm(start + (ROUND_TRIP + PEER_TIME) * step, 200_000, ROUND_TRIP);
        }
        assert_eq!(pace.room(500_000, ROUND_TRIP), 0);
    }
}
