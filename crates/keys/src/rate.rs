use crate::RateLimit;
use std::time::{Duration, Instant};

/// A token bucket over a clock that the caller reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: RateLimit,
    /// Tokens there were at `since`, in millionths.
    tokens_micro: u64,
    since: Instant,
}

impl Bucket {
    pub(crate) fn full(limit: RateLimit, now: Instant) -> Self {
        Self { limit, tokens_micro: u64::from(limit.burst) * MICRO, since: now }
    }

    /// Takes one token, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).min(LONG);
        let added = passed.as_micros() as u64 * u64::from(self.limit.per_minute) / 60;
        self.tokens_micro = (self.tokens_micro + added).min(u64::from(self.limit.burst) * MICRO);
        self.since = self.since.max(now);
        match self.tokens_micro.checked_sub(MICRO) {
            Some(rest) => {
                self.tokens_micro = rest;
                true
            }
            None => false,
        }
    }
}

const MICRO: u64 = 1_000_000;
/// Longer times fill any bucket, and keep the product above within 64 bits.
const LONG: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RateLimit { burst: 5, per_minute: 30 }, start);
        let taken = |bucket: &mut Bucket, at| (0..100).filter(|_| bucket.take(start + at)).count();
        assert_eq!(taken(&mut bucket, Duration::ZERO), 5);
        assert_eq!(taken(&mut bucket, Duration::from_millis(1_999)), 0);
        assert_eq!(taken(&mut bucket, Duration::from_secs(2)), 1);
        assert_eq!(taken(&mut bucket, Duration::from_secs(8)), 3);
        assert_eq!(taken(&mut bucket, Duration::from_secs(1_000_000)), 5, "never more than the burst");
    }

    #[test]
    fn looking_often_loses_nothing_and_a_clock_that_steps_back_gains_nothing() {
        let start = Instant::now();
        let mut bucket = Bucket::full(RateLimit { burst: 1, per_minute: 60 }, start);
        assert!(bucket.take(start));
        let looks = (1..=1_000).filter(|&ms| bucket.take(start + Duration::from_millis(ms))).count();
        assert_eq!(looks, 1);
        assert!(!bucket.take(start));
        assert!(!bucket.take(start + Duration::from_millis(1_500)));
    }
}
