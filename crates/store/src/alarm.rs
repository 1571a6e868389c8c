//! Wakes the flushing thread: an idle store sleeps.

use crate::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rung when something has been written that is to be flushed.
#[derive(Default)]
pub(crate) struct Alarm {
    /// Whether it was rung since it was last taken, for who rings to see without the lock.
    rung: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rung: bool,
    stopped: bool,
}

impl Alarm {
    /// Something is to be done.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            lock(&self.state).rung = true;
            self.changed.notify_all();
        }
    }

    /// The flushing thread is to end.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Waits until it is rung, for so long at most, and if it was for `delay`, in which more may be written. Tells whether
    /// to go on.
    pub fn wait(&self, longest: Duration, delay: Duration) -> bool {
        self.sleep(longest, |state| state.rung);
        if self.rung.load(Ordering::Acquire) {
            self.sleep(delay, |_| false);
        }
        let mut state = lock(&self.state);
        state.rung = false;
        // What is written from here on rings again.
        self.rung.store(false, Ordering::Release);
        !state.stopped
    }

    fn sleep(&self, time: Duration, enough: impl Fn(&State) -> bool) {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while !state.stopped && !enough(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn what_was_rung_before_the_wait_ends_it() {
        let alarm = Alarm::default();
        alarm.ring();
        assert!(alarm.wait(NEVER, Duration::ZERO));
        assert!(alarm.wait(Duration::from_millis(1), Duration::ZERO), "it waits no longer than it is to");
    }

    #[test]
    fn it_can_be_rung_again_and_stopped_while_it_waits() {
        let alarm = Arc::new(Alarm::default());
        let waiter = thread::spawn({
            let alarm = Arc::clone(&alarm);
            move || (0..).take_while(|_| alarm.wait(NEVER, Duration::from_millis(1))).count()
        });
        for _ in 0..3 {
            alarm.ring();
            while alarm.rung.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
        alarm.stop();
        assert_eq!(waiter.join().unwrap(), 3);
    }

    #[test]
    fn it_is_stopped_in_the_delay_too() {
        let alarm = Arc::new(Alarm::default());
        alarm.ring();
        let waiter = thread::spawn({
            let alarm = Arc::clone(&alarm);
            move || alarm.wait(NEVER, NEVER)
        });
        alarm.stop();
        assert!(!waiter.join().unwrap());
    }
}
