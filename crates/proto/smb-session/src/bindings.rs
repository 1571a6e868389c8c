//! Sessions that are on more than one connection (multichannel). What one of these changes, the engine of another does not
//! see, and the server breaks no lease for it, since it is the same client's: nothing is answered near the client on any of
//! them.

use crate::connection::TableKey;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bindings that are remembered. A connection that has missed more takes one of its sessions for bound.
const BINDINGS_MAX: usize = 1024;

/// Bindings that any connection of this proxy has seen, told to all others.
#[derive(Default)]
pub struct Bindings {
    /// How many there have been.
    count: AtomicU64,
    /// The latest of them.
    latest: Mutex<VecDeque<TableKey>>,
}

/// What one connection knows of the bindings.
pub(crate) struct Bound {
    all: Arc<Bindings>,
    seen: u64,
}

impl Bindings {
    /// Without any.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A session is being bound to another connection.
    fn add(&self, key: TableKey) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() >= BINDINGS_MAX {
            latest.pop_front();
        }
        latest.push_back(key);
        self.count.fetch_add(1, Ordering::Release);
    }
}

impl Bound {
    pub fn new(all: Arc<Bindings>) -> Self {
        let seen = all.count.load(Ordering::Acquire);
        Self { all, seen }
    }

    /// A session is being bound to this connection.
    pub fn add(&self, key: TableKey) {
        self.all.add(key);
    }

    /// Whether a session of this connection has been bound to another since this was last asked.
    pub fn is_any(&mut self, is_here: impl Fn(&TableKey) -> bool) -> bool {
        if self.all.count.load(Ordering::Acquire) == self.seen {
            return false;
        }
        let latest = self.all.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.all.count.load(Ordering::Acquire);
        let new = usize::try_from(count - self.seen).unwrap_or(usize::MAX);
        self.seen = count;
        new > latest.len() || latest.iter().rev().take(new).any(is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_hears_of_each_binding_once() {
        let all = Bindings::new();
        let [mut one, other] = [Bound::new(all.clone()), Bound::new(all.clone())];
        let key = ([1; 16], 7);
        assert!(!one.is_any(|_| true));
        other.add(key);
        assert!(one.is_any(|bound| *bound == key) && !one.is_any(|_| true));
        other.add(([2; 16], 7));
        assert!(!one.is_any(|bound| *bound == key), "another server's");
        assert!(!Bound::new(all).is_any(|_| true), "those before it were of no connection of its own");
    }

    #[test]
    fn who_has_missed_some_takes_its_sessions_for_bound() {
        let all = Bindings::new();
        let mut late = Bound::new(all.clone());
        for session in 0..=BINDINGS_MAX as u64 {
            all.add(([0; 16], session));
        }
        assert!(late.is_any(|_| false) && !late.is_any(|_| true));
        assert_eq!(all.latest.lock().unwrap().len(), BINDINGS_MAX);
    }
}
