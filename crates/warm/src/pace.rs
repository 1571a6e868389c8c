//! How fast to read.

use std::time::{Duration, Instant};

/// Keeps the mean of what is read below a rate.
pub(crate) struct Pace {
    /// Bytes a second; `None`: as fast as it goes.
    rate: Option<u64>,
    /// When everything read so far is paid for.
    paid: Instant,
}

impl Pace {
    pub fn new(rate: Option<u64>, now: Instant) -> Pace {
        Pace { rate, paid: now }
    }

    /// `bytes` were read: how long to wait before more.
    pub fn spend(&mut self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        // Time in which nothing was read is not made up for.
        let from = self.paid.max(now);
        let cost = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64).unwrap_or(Duration::MAX);
        self.paid = from.checked_add(cost).unwrap_or(from);
        self.paid.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_stays_below_the_rate_and_idle_time_is_not_saved_up() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1_000), start);
        assert_eq!(pace.spend(500, start), Duration::from_millis(500));
        assert_eq!(pace.spend(500, start), Duration::from_secs(1));
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.spend(1_000, later), Duration::from_secs(1));
        assert_eq!(Pace::new(None, start).spend(u64::MAX, start), Duration::ZERO);
    }
}
