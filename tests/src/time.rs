//! Deadlines, and what stretches them.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Factor by which `ISTHMUS_TEST_PATIENCE` stretches every deadline, for machines that do other work as well.
pub fn patience() -> f64 {
    std::env::var("ISTHMUS_TEST_PATIENCE").map_or(1.0, |text| text.parse().expect("a number"))
}

/// `limit`, stretched.
pub fn within(limit: Duration) -> Duration {
    limit.mul_f64(patience())
}

/// Whether the long tests run too.
pub fn is_full() -> bool {
    std::env::var_os("ISTHMUS_FULL").is_some()
}

/// Waits until `condition` holds; fails after 30 seconds, stretched.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within(Duration::from_secs(30));
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(POLL);
    }
}
