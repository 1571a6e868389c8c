//! Parts of a recording.

/// Ranges that are kept apart in [`Ranges`].
const RANGES_MAX: usize = 64;

/// Ranges (from, to) of a recording, sorted and apart. When there are too many, the two that are closest become one.
#[derive(Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|range| range.1 < from);
        let last = self.0.partition_point(|range| range.0 <= to);
        let (mut from, mut to) = (from, to);
        if let (true, Some(low), Some(high)) =
            (first < last, self.0.get(first), last.checked_sub(1).and_then(|last| self.0.get(last)))
        {
            (from, to) = (from.min(low.0), to.max(high.1));
        }
        self.0.splice(first..last, [(from, to)]);
        if self.0.len() > RANGES_MAX {
            let gap = |i: &usize| self.0[i + 1].0 - self.0[*i].1;
            if let Some(i) = (0..self.0.len() - 1).min_by_key(gap) {
                self.0[i].1 = self.0[i + 1].1;
                self.0.remove(i + 1);
            }
        }
    }

    /// The range that holds a position.
    pub fn around(&self, position: u64) -> Option<(u64, u64)> {
        let i = self.0.partition_point(|range| range.0 <= position).checked_sub(1)?;
        self.0.get(i).copied().filter(|range| position < range.1)
    }

    /// Where the first range behind a position starts.
    pub fn next(&self, position: u64) -> Option<u64> {
        self.0.get(self.0.partition_point(|range| range.0 <= position)).map(|range| range.0)
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<(u64, u64)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_sorted_apart_and_few() {
        let mut ranges = Ranges::default();
        for (from, to) in [(50, 60), (10, 20), (20, 30), (70, 80), (5, 5), (55, 75)] {
            ranges.add(from, to);
        }
        assert_eq!(ranges.0, [(10, 30), (50, 80)]);
        assert_eq!((ranges.around(9), ranges.around(29)), (None, Some((10, 30))));
        assert_eq!((ranges.around(30), ranges.next(30), ranges.next(50)), (None, Some(50), None));
        for i in 0..2 * RANGES_MAX as u64 {
            ranges.add(1000 + i * 1000 + i, 1500 + i * 1000);
        }
        assert_eq!(ranges.0.len(), RANGES_MAX);
        assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert!((0..2 * RANGES_MAX as u64).all(|i| ranges.around(1499 + i * 1000).is_some()), "none is lost");
    }
}
