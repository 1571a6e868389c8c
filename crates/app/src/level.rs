//! Chooses the zstd level of new data: more effort while the WAN is the bottleneck, less while the CPU is.

use std::time::Duration;

use isthmus_config::CompressionLevel;

/// Levels, from least to most effort.
const LEVELS: [i32; 4] = [2, 3, 6, 9];
/// Where a connection starts.
const FIRST: usize = 1;
/// Looked at together before the level changes: a change starts a new window, which costs some compression.
const NEW_BYTES_PER_LOOK: u64 = 8 << 20;
/// Looks in a row that must find the CPU to be the bottleneck before the level goes below the balanced one: the first
/// megabytes always find room in buffers.
const LOOKS_TO_DROP: u32 = 3;
/// Other things (mostly waiting for the WAN or the source) take so many times as long as encoding: there is time for the next level.
const WAIT_TO_RAISE: u32 = 12;
/// It takes less than this many times: the level above the balanced one costs more than it brings.
const WAIT_TO_LOWER: u32 = 3;

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
            CompressionLevel::Auto => LEVELS[FIRST],
        }
    }

    /// Takes in how long a frame with `new` bytes in the stream of new data took to make, and the time that has `passed` since the frame before it; the new level, if it changes.
    pub fn observe(&mut self, new: u64, worked: Duration, passed: Duration) -> Option<i32> {
        if self.fixed {
            return None;
        }
        self.new += new;
        self.worked += worked;
        self.waited += passed.saturating_sub(worked);
        if self.new < NEW_BYTES_PER_LOOK {
            return None;
        }
        let (worked, waited) = (self.worked, self.waited);
        (self.new, self.worked, self.waited) = (0, Duration::ZERO, Duration::ZERO);
        let cpu_bound = waited < worked / 8;
        self.looks_to_drop = if cpu_bound { self.looks_to_drop.saturating_sub(1) } else { LOOKS_TO_DROP };
        let next = if waited > worked * WAIT_TO_RAISE && self.at + 1 < LEVELS.len() {
            self.at + 1
        } else if self.at > FIRST && waited < worked * WAIT_TO_LOWER {
            self.at - 1
        } else if self.at == FIRST && self.looks_to_drop == 0 {
            0
        } else if self.at == 0 && waited > worked {
            FIRST
        } else {
            return None;
        };
        self.at = next;
        Some(LEVELS[next])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_raises_the_level_and_a_slow_cpu_lowers_it() {
        let ms = Duration::from_millis;
        let mut level = LevelChooser::new(CompressionLevel::Auto);
        assert_eq!(level.observe(1 << 20, ms(10), ms(1000)), None, "too early to tell");
        assert_eq!(level.observe(8 << 20, ms(40), ms(4000)), Some(6));
        assert_eq!(level.observe(8 << 20, ms(100), ms(600)), None, "balanced");
        assert_eq!(level.observe(8 << 20, ms(100), ms(200)), Some(3));
        assert_eq!(level.observe(8 << 20, ms(100), ms(110)), None, "once may be a buffer");
        assert_eq!(level.observe(8 << 20, ms(100), ms(110)), None);
        assert_eq!(level.observe(8 << 20, ms(100), ms(110)), Some(2));
        assert_eq!(level.observe(8 << 20, ms(100), ms(300)), Some(3));
        let mut fixed = LevelChooser::new(CompressionLevel::Fixed(5));
        assert_eq!(fixed.observe(1 << 30, ms(1), ms(100_000)), None);
    }
}
