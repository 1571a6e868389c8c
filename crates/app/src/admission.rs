//! Admission control: how many connections may be optimised at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Two thresholds, so that a proxy at its limit does not change its mind with every connection.
#[derive(Clone)]
pub(crate) struct Admission {
    inner: Arc<Inner>,
}

struct Inner {
    count: AtomicU64,
    full: AtomicBool,
    on: u64,
    off: u64,
}

/// A connection that is optimised; gives its place back when dropped.
pub(crate) struct Place {
    inner: Arc<Inner>,
}

impl Admission {
    /// No more connections at `on`, until there are fewer than `off`.
    pub fn new(on: u32, off: u32) -> Admission {
        let inner = Inner {
            count: AtomicU64::new(0),
            full: AtomicBool::new(false),
            on: u64::from(on),
            off: u64::from(off.min(on)),
        };
        Admission { inner: Arc::new(inner) }
    }

    /// A place, unless all are taken.
    pub fn enter(&self) -> Option<Place> {
        let inner = &self.inner;
        if inner.full.load(Ordering::Acquire) {
            return None;
        }
        let count = inner.count.fetch_add(1, Ordering::AcqRel) + 1;
        let place = Place { inner: inner.clone() };
        if count > inner.on {
            return None;
        }
        if count == inner.on {
            inner.full.store(true, Ordering::Release);
        }
        Some(place)
    }

    /// Whether new connections are refused, and how many there are.
    pub fn state(&self) -> (bool, u64) {
        (self.inner.full.load(Ordering::Acquire), self.inner.count.load(Ordering::Acquire))
    }

    /// The two thresholds.
    pub fn thresholds(&self) -> (u64, u64) {
        (self.inner.on, self.inner.off)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = self.inner.count.fetch_sub(1, Ordering::AcqRel) - 1;
        if left < self.inner.off || left == 0 {
            self.inner.full.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_limit_it_is_full_until_enough_have_left() {
        let admission = Admission::new(3, 2);
        let mut places: Vec<_> = (0..3).map(|_| admission.enter().unwrap()).collect();
        assert!(admission.enter().is_none());
        assert_eq!(admission.state(), (true, 3));
        places.pop();
        assert!(admission.enter().is_none(), "two are left, and fewer than two are wanted");
        places.pop();
        assert!(admission.enter().is_some());
        assert!(!admission.state().0);
    }
}
