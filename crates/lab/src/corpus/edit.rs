//! Small edits all over a file.

use fastrand::Rng;

/// Largest number of bytes that one edit inserts, deletes or overwrites.
const EDIT_BYTES_MAX: usize = 64;

/// What an edit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// New bytes between old ones.
    Insert,
    /// Old bytes vanish.
    Delete,
    /// New bytes in place of as many old ones.
    Overwrite,
}

/// How many edits, of which kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditPlan {
    /// Number of edits.
    pub count: usize,
    /// The kinds to choose from.
    pub kinds: Vec<EditKind>,
    /// Seed of places, sizes and bytes.
    pub seed: u64,
}

impl EditPlan {
    /// Inserts, deletes and overwrites, 1 to 64 bytes each.
    pub fn new(count: usize, seed: u64) -> EditPlan {
        EditPlan { count, kinds: vec![EditKind::Insert, EditKind::Delete, EditKind::Overwrite], seed }
    }
}

/// A copy of `data` with the edits made.
pub fn edited(data: &[u8], plan: &EditPlan) -> Vec<u8> {
    let mut rng = Rng::with_seed(plan.seed);
    if data.is_empty() || plan.kinds.is_empty() {
        return data.to_vec();
    }
    let mut places: Vec<usize> = (0..plan.count).map(|_| rng.usize(..data.len())).collect();
    places.sort_unstable();
    let mut out = Vec::with_capacity(data.len() + plan.count * EDIT_BYTES_MAX);
    let mut at = 0;
    for place in places {
        if place < at {
            // Inside what the edit before has removed.
            continue;
        }
        out.extend_from_slice(&data[at..place]);
        let size = rng.usize(1..=EDIT_BYTES_MAX);
        let kind = plan.kinds[rng.usize(..plan.kinds.len())];
        if kind != EditKind::Delete {
            out.extend((0..size).map(|_| rng.u8(..)));
        }
        at = if kind == EditKind::Insert { place } else { (place + size).min(data.len()) };
    }
    out.extend_from_slice(&data[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_small_and_reproducible() {
        let data = super::super::random_bytes(200_000, 9);
        let plan = EditPlan::new(100, 4);
        let new = edited(&data, &plan);
        assert_eq!(new, edited(&data, &plan));
        assert_ne!(new, edited(&data, &EditPlan::new(100, 5)));
        assert!(new.len().abs_diff(data.len()) <= 100 * EDIT_BYTES_MAX);
        assert_ne!(new, data);
    }

    #[test]
    fn each_kind_does_what_its_name_says() {
        let data = vec![0_u8; 100_000];
        let only = |kind| edited(&data, &EditPlan { count: 50, kinds: vec![kind], seed: 1 });
        assert!(only(EditKind::Insert).len() > data.len());
        assert!(only(EditKind::Delete).len() < data.len());
        assert!(only(EditKind::Delete).iter().all(|b| *b == 0));
        let over = only(EditKind::Overwrite);
        assert!(over.len().abs_diff(data.len()) <= EDIT_BYTES_MAX);
        assert!(over.iter().any(|b| *b != 0));
        assert!(edited(&[], &EditPlan::new(5, 1)).is_empty());
    }
}
