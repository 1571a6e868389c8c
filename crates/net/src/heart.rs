//! Whether the peer is alive, as the client side's control channel sees it: one ping at a time, and what else comes from
//! the peer while its answer is awaited.

use crate::limits;
use std::time::Duration;
use tokio::time::Instant;

/// One ping that waits for its pong, and the rhythm of the next.
pub(crate) struct Heart {
    token: u64,
    awaited: Option<Awaited>,
    last: Instant,
}

/// A ping that is not answered yet.
struct Awaited {
    sent: Instant,
    /// The last look at what has come.
    looked: Instant,
    /// Bytes that had come from the peer by then, over all links.
    received: u64,
    /// Since when nothing has come.
    quiet: Instant,
}

/// What is known of a peer whose answer has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// Other things come from the peer.
    Busy,
    /// Nothing has come for a while.
    Suspect,
    /// Nothing has come for too long, or the answer itself never comes.
    Lost,
}

impl Heart {
    /// A heart whose first beat is due at once.
    pub(crate) fn new(now: Instant, interval: Duration) -> Heart {
        Heart { token: 0, awaited: None, last: now - interval }
    }

    /// Whether a ping waits for its answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// When to look again: at what has become of the ping, or to send the next one.
    pub(crate) fn due(&self, interval: Duration, patience: Duration) -> Instant {
        self.awaited.as_ref().map_or(self.last + interval, |awaited| awaited.looked + patience / 2)
    }

    /// Makes the next ping due at once, unless one waits or the last answer is fresh.
    pub(crate) fn hasten(&mut self, now: Instant, interval_max: Duration) {
        if self.awaited.is_none() && now - self.last > limits::POKE_INTERVAL_MIN {
            self.last = now - interval_max;
        }
    }

    /// Whether the answer is overdue, whatever else comes.
    pub(crate) fn is_late(&self, now: Instant, patience: Duration) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| now - awaited.sent >= patience)
    }

    /// Sends the next ping: its token. `received` counts the bytes that have come from the peer.
    pub(crate) fn beat(&mut self, now: Instant, received: u64) -> u64 {
        self.token += 1;
        self.awaited = Some(Awaited { sent: now, looked: now, received, quiet: now });
        self.token
    }

    /// An answer has come: how long it took, if it is the one that is awaited.
    pub(crate) fn answered(&mut self, now: Instant, token: u64) -> Option<Duration> {
        let awaited = self.awaited.take_if(|_| token == self.token)?;
        self.last = now;
        Some(now - awaited.sent)
    }

    /// Looks at what has become of the ping that waits.
    pub(crate) fn look(&mut self, now: Instant, received: u64, patience: Duration) -> Pulse {
        let Some(awaited) = &mut self.awaited else { return Pulse::Busy };
        awaited.looked = now;
        if received != awaited.received {
            awaited.received = received;
            awaited.quiet = now;
        }
        if now - awaited.quiet >= patience || now - awaited.sent >= patience * limits::BUSY_PATIENCE_FACTOR {
            Pulse::Lost
        } else if now - awaited.quiet >= patience / 2 {
            Pulse::Suspect
        } else {
            Pulse::Busy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_secs(2);
    const HALF: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_peer_is_suspected_and_then_lost() {
        let start = Instant::now();
        let mut heart = Heart::new(start, INTERVAL);
        assert_eq!(heart.due(INTERVAL, PATIENCE), start);
        heart.beat(start, 100);
        assert_eq!(heart.due(INTERVAL, PATIENCE), start + HALF);
        assert_eq!(heart.look(start + HALF, 100, PATIENCE), Pulse::Suspect);
        assert_eq!(heart.due(INTERVAL, PATIENCE), start + PATIENCE);
        assert_eq!(heart.look(start + PATIENCE, 100, PATIENCE), Pulse::Lost);
    }

    #[test]
    fn a_peer_that_sends_other_things_is_waited_for_but_not_for_ever() {
        let start = Instant::now();
        let mut heart = Heart::new(start, INTERVAL);
        heart.beat(start, 0);
        let mut now = start;
        for received in 1..8 {
            now += HALF;
            assert_eq!(heart.look(now, received, PATIENCE), Pulse::Busy);
            assert_eq!(heart.is_late(now, PATIENCE), received >= 2);
        }
        assert_eq!(heart.look(now + HALF, 8, PATIENCE), Pulse::Lost, "its control channel answers nothing");
        heart.beat(start, 0);
        assert_eq!(heart.look(start + HALF, 1, PATIENCE), Pulse::Busy);
        assert_eq!(heart.look(start + 2 * HALF, 1, PATIENCE), Pulse::Suspect);
        assert_eq!(heart.look(start + 3 * HALF, 1, PATIENCE), Pulse::Lost, "what came was the last");
    }

    #[test]
    fn only_the_answer_to_the_last_ping_counts() {
        let start = Instant::now();
        let mut heart = Heart::new(start, INTERVAL);
        let token = heart.beat(start, 0);
        assert_eq!(heart.answered(start + HALF, token + 1), None);
        assert!(heart.is_waiting());
        assert_eq!(heart.answered(start + HALF, token), Some(HALF));
        assert_eq!(heart.answered(start + HALF, token), None);
        assert_eq!(heart.due(INTERVAL, PATIENCE), start + HALF + INTERVAL);
        heart.hasten(start + HALF, INTERVAL * 5);
        assert_eq!(heart.due(INTERVAL, PATIENCE), start + HALF + INTERVAL, "the last answer is fresh");
        heart.hasten(start + 2 * HALF, INTERVAL * 5);
        assert!(heart.due(INTERVAL, PATIENCE) < start + HALF);
    }
}
