//! Chooses the zstd level of new data: more effort where what it saves on the WAN is worth the processor's time.

use std::time::Duration;

use isthmus_config::CompressionLevel;
use isthmus_reduction::compress::pack_against;

/// A level, and how long zstd takes at it compared with the others.
struct Effort {
    level: i32,
    cost: u32,
}

/// From least to most effort; costs as measured on text, records, office files and drawings.
const EFFORTS: [Effort; 4] = [
    Effort { level: 2, cost: 10 },
    Effort { level: 3, cost: 16 },
    Effort { level: 6, cost: 40 },
    Effort { level: 9, cost: 70 },
];
/// Where a connection starts.
const FIRST: usize = 1;
/// Looked at together before the level changes: a change starts a new window, which costs some compression.
const NEW_BYTES_PER_LOOK: u64 = 8 << 20;
/// Looks in a row that must find the balanced level not to be worth its time before it is left for the lowest: what is new at
/// first always finds room in buffers, so the WAN is not waited for yet.
const LOOKS_TO_DROP: u32 = 2;
/// So many seconds of encoding may be spent to save a second on the WAN: processors mostly idle, links do not.
const PROCESSOR_PER_WAN: f64 = 4.0;
/// What a level saves may fall to this share of what made it worth its time before it is left.
const SAVED_TO_STAY: f64 = 0.5;
/// Other things (mostly waiting for the WAN or the source) take so many times as long as encoding: there is time for the next level.
const WAIT_TO_RAISE: u32 = 12;
/// The same for the step from the lowest level.
const WAIT_TO_LEAVE_LOWEST: u32 = 1;
/// It takes less than this many times: the level above the balanced one costs more than it brings.
const WAIT_TO_LOWER: u32 = 3;

/// What an encoder is to do for the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Show some new bytes with the next frame.
    Sample,
    /// Go on with this level.
    Level(i32),
}

/// The level of one direction.
pub(crate) struct LevelChooser {
    fixed: bool,
    at: usize,
    new: u64,
    worked: Duration,
    waited: Duration,
    looks_to_drop: u32,
}

impl LevelChooser {
    pub fn new(configured: CompressionLevel) -> LevelChooser {
        let fixed = matches!(configured, CompressionLevel::Fixed(_));
        LevelChooser {
            fixed,
            at: FIRST,
            new: 0,
            worked: Duration::ZERO,
            waited: Duration::ZERO,
            looks_to_drop: LOOKS_TO_DROP,
        }
    }

    /// The level to start with.
    pub fn first(configured: CompressionLevel) -> i32 {
        match configured {
            CompressionLevel::Fixed(level) => i32::from(level),
            CompressionLevel::Auto => EFFORTS[FIRST].level,
        }
    }

    /// Takes in how long a frame with `new` bytes in the stream of new data took to make, the time that has `passed` since the frame before it,
    /// and the `sample` of those bytes that it shows.
    pub fn observe(&mut self, new: u64, worked: Duration, passed: Duration, sample: &[u8]) -> Option<Look> {
        if self.fixed || new == 0 {
            return None;
        }
        self.new += new;
        self.worked += worked;
        self.waited += passed.saturating_sub(worked);
        if self.new < NEW_BYTES_PER_LOOK {
            return None;
        }
        if sample.is_empty() {
            return Some(Look::Sample);
        }
        let chosen = self.choose(sample);
        let drops = self.at == FIRST && chosen < FIRST;
        self.looks_to_drop = if drops { self.looks_to_drop.saturating_sub(1) } else { LOOKS_TO_DROP };
        let next = if drops && self.looks_to_drop > 0 { FIRST } else { chosen };
        (self.new, self.worked, self.waited) = (0, Duration::ZERO, Duration::ZERO);
        if next == self.at {
            return None;
        }
        self.at = next;
        Some(Look::Level(EFFORTS[next].level))
    }

    fn choose(&self, sample: &[u8]) -> usize {
        let wait_to_raise = if self.at == 0 { WAIT_TO_LEAVE_LOWEST } else { WAIT_TO_RAISE };
        let hurries = self.at > FIRST && self.waited < self.worked * WAIT_TO_LOWER;
        if hurries || self.at > 0 && self.worth_of(self.at, sample) < SAVED_TO_STAY {
            self.at - 1
        } else if self.at + 1 < EFFORTS.len()
            && self.waited > self.worked * wait_to_raise
            && self.worth_of(self.at + 1, sample) >= 1.0
        {
            self.at + 1
        } else {
            self.at
        }
    }

    /// What the effort at `index` saves on the WAN against the one below it, over what it costs: from 1 on it pays. The share that it saves of
    /// `sample` stands for the share of the time spent waiting.
    fn worth_of(&self, index: usize, sample: &[u8]) -> f64 {
        let (less, more) = (&EFFORTS[index - 1], &EFFORTS[index]);
        let size =
            |effort: &Effort| pack_against(&[], sample, effort.level).map(|packed| packed.len() as f64);
        let (Ok(by_less), Ok(by_more)) = (size(less), size(more)) else { return 0.0 };
        let saved = (1.0 - by_more / by_less) * self.waited.as_secs_f64();
        let cost =
            self.worked.as_secs_f64() * f64::from(more.cost - less.cost) / f64::from(EFFORTS[self.at].cost);
        saved * PROCESSOR_PER_WAN / cost.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbered lines, which more effort packs better.
    fn lines() -> Vec<u8> {
        (0..4000u32)
            .flat_map(|i| {
                format!("line {i} of {}, value {}\n", i % 7, i.wrapping_mul(40_503) % 977).into_bytes()
            })
            .collect()
    }

    /// Bytes of which half are random, each between the same others: no level does better than another.
    fn noise() -> Vec<u8> {
        (0..60_000u32).flat_map(|i| [(i.wrapping_mul(0x9e37_79b1) >> 24) as u8, 0]).collect()
    }

    fn look(level: &mut LevelChooser, worked: u64, passed: u64, sample: &[u8]) -> Option<Look> {
        let ms = Duration::from_millis;
        let half = NEW_BYTES_PER_LOOK / 2;
        assert_eq!(level.observe(half, ms(worked / 2), ms(passed / 2), &[]), None, "too early to tell");
        assert_eq!(level.observe(half, ms(worked / 2), ms(passed / 2), &[]), Some(Look::Sample));
        level.observe(1, ms(0), ms(0), sample)
    }

    #[test]
    fn a_slow_link_raises_the_level_and_a_slow_processor_lowers_it() {
        let (mut level, lines) = (LevelChooser::new(CompressionLevel::Auto), lines());
        assert_eq!(look(&mut level, 40, 4000, &lines), Some(Look::Level(6)));
        assert_eq!(look(&mut level, 100, 600, &lines), None, "balanced");
        assert_eq!(look(&mut level, 100, 200, &lines), Some(Look::Level(3)));
        assert_eq!(look(&mut level, 100, 102, &lines), None, "once may be a buffer");
        assert_eq!(look(&mut level, 100, 102, &lines), Some(Look::Level(2)));
        assert_eq!(look(&mut level, 100, 102, &lines), None);
        assert_eq!(look(&mut level, 100, 3000, &lines), Some(Look::Level(3)));
    }

    #[test]
    fn effort_that_saves_nothing_is_not_made() {
        let (mut level, noise) = (LevelChooser::new(CompressionLevel::Auto), noise());
        assert_eq!(look(&mut level, 40, 4000, &noise), None);
        assert_eq!(look(&mut level, 40, 4000, &noise), Some(Look::Level(2)));
        assert_eq!(look(&mut level, 40, 40_000, &noise), None);
    }

    #[test]
    fn a_configured_level_stays() {
        let mut fixed = LevelChooser::new(CompressionLevel::Fixed(5));
        assert_eq!(
            fixed.observe(1 << 30, Duration::from_millis(1), Duration::from_secs(100), &lines()),
            None
        );
    }
}
