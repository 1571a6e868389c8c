//! One rhythm for all that is looked at now and then, so that a process with nothing to do wakes up once for all of it.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest interval of what is only looked at; others are multiples of it. The runtime's timers are in wheels of 64 ms and
/// 4,096 ms: what is due between their marks wakes the process once more for each wheel.
pub const BEAT: Duration = Duration::from_millis(2_048);

static START: OnceLock<Instant> = OnceLock::new();

/// Counts beats from now. To be called just before the runtime is made, whose timers count from then.
pub fn start_beats() {
    START.get_or_init(Instant::now);
}

/// The first of the process's common moments, `interval` apart, that is later than `after`.
pub fn beat_after(after: Instant, interval: Duration) -> Instant {
    let start = *START.get_or_init(|| after);
    let elapsed = after.saturating_duration_since(start).as_nanos();
    let into = elapsed % interval.as_nanos().max(1);
    after + interval - Duration::from_nanos(u64::try_from(into).unwrap_or(0))
}

/// The next common moment.
pub fn next_beat(interval: Duration) -> Instant {
    beat_after(Instant::now(), interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_intervals_meet() {
        let first = next_beat(BEAT);
        for millis in [0, 1, 1_700, 2_047] {
            let after = first + Duration::from_millis(millis);
            assert_eq!(beat_after(after, BEAT), first + BEAT);
        }
        let rare = beat_after(first, BEAT * 10);
        assert!(rare > first && rare <= first + BEAT * 10);
        assert_eq!((rare - first).as_nanos() % BEAT.as_nanos(), 0, "rare moments are frequent ones too");
    }
}
