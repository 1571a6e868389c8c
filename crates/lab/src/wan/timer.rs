//! A timer finer than the runtime's.
//!
//! tokio rounds every sleep up to a whole millisecond, which would hide the tenths of a millisecond that an echo
//! measurement looks for. One thread with a heap of deadlines wakes sleepers within about 0.1 ms instead.

use crate::error::{Context as _, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest time the timer's thread sleeps without looking whether it is still wanted.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Sleeps that end within about 0.1 ms of their deadline. Cheap to clone; the thread ends with the last clone.
#[derive(Clone)]
pub(crate) struct PreciseTimer {
    shared: Arc<Shared>,
}

struct Shared {
    heap: Mutex<BinaryHeap<Reverse<Sleeper>>>,
    earlier: Condvar,
}

struct Sleeper {
    deadline: Instant,
    wake: oneshot::Sender<()>,
}

impl PreciseTimer {
    /// Starts the timer's thread.
    pub(crate) fn start() -> Result<PreciseTimer> {
        let shared = Arc::new(Shared { heap: Mutex::new(BinaryHeap::new()), earlier: Condvar::new() });
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("lab-timer".into())
            .spawn(move || {
                while let Some(shared) = weak.upgrade() {
                    run_once(&shared);
                }
            })
            .context(|| "starting the timer thread".into())?;
        Ok(PreciseTimer { shared })
    }

    /// Waits until `deadline`; returns at once when it has passed.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        if deadline <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut heap = self.shared.heap.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = heap.peek().is_none_or(|Reverse(first)| deadline < first.deadline);
            heap.push(Reverse(Sleeper { deadline, wake }));
            if is_first {
                self.shared.earlier.notify_one();
            }
        }
        // The sender is only dropped unsent when the thread has ended, and then nobody is left to be late for.
        let _ = woken.await;
    }
}

fn run_once(shared: &Shared) {
    let mut heap = shared.heap.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    while heap.peek().is_some_and(|Reverse(first)| first.deadline <= now) {
        if let Some(Reverse(sleeper)) = heap.pop() {
            // A sleeper that gave up has dropped its receiver; nothing is lost.
            let _ = sleeper.wake.send(());
        }
    }
    let wait = heap.peek().map_or(IDLE_CHECK, |Reverse(first)| first.deadline - now).min(IDLE_CHECK);
    drop(shared.earlier.wait_timeout(heap, wait));
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.deadline == other.deadline
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.deadline.cmp(&other.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_deadlines() {
        let timer = PreciseTimer::start().unwrap();
        let start = Instant::now();
        let (order, mut woken) = tokio::sync::mpsc::unbounded_channel();
        for ms in [30_u64, 10, 20] {
            let (timer, order) = (timer.clone(), order.clone());
            tokio::spawn(async move {
                timer.sleep_until(start + Duration::from_millis(ms)).await;
                assert!(start.elapsed() >= Duration::from_millis(ms));
                order.send(ms).unwrap();
            });
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(woken.recv().await.unwrap());
        }
        assert_eq!(seen, [10, 20, 30]);
    }
}
