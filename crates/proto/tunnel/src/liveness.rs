use std::time::{Duration, Instant};

/// Silence, while something is awaited, after which the link is asked for a sign of life.
const PROBE_AFTER_MIN: Duration = Duration::from_secs(1);
/// Round trips of silence after which the link is asked, where that is longer.
const PROBE_AFTER_ROUND_TRIPS: u32 = 2;
/// A link is suspected after this many times the probe's delay: one for the silence, one for the answer.
const SUSPECT_AFTER_PROBES: u32 = 2;
/// A peer that answers probes but takes nothing (a slow reader) is asked ever less often, down to one in 2^this.
const STALL_DOUBLINGS_MAX: u32 = 4;

/// Tells a dead link from a quiet one. Costs nothing while nothing is awaited.
#[derive(Debug)]
pub(crate) struct Liveness {
    heard: Instant,
    /// Since when something is awaited from the peer.
    waiting_since: Option<Instant>,
    probed: bool,
    suspect: bool,
    stalls: u32,
    round_trip: Duration,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Liveness {
        Liveness {
            heard: now,
            waiting_since: None,
            probed: false,
            suspect: false,
            stalls: 0,
            round_trip: Duration::ZERO,
        }
    }

    /// The same for a new link.
    pub(crate) fn renewed(&self, now: Instant) -> Liveness {
        Liveness { round_trip: self.round_trip, ..Liveness::new(now) }
    }

    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// Something arrived.
    pub(crate) fn heard(&mut self, now: Instant) {
        if self.probed {
            self.stalls = (self.stalls + 1).min(STALL_DOUBLINGS_MAX);
        }
        self.heard = now;
        self.probed = false;
        self.suspect = false;
    }

    /// The peer took something.
    pub(crate) fn progressed(&mut self) {
        self.stalls = 0;
    }

    /// Whether something is awaited from the peer. To be called whenever that may have changed.
    pub(crate) fn set_waiting(&mut self, waiting: bool, now: Instant) {
        match (waiting, self.waiting_since) {
            (true, None) => self.waiting_since = Some(now),
            (false, Some(_)) => {
                self.waiting_since = None;
                self.probed = false;
                self.suspect = false;
                self.stalls = 0;
            }
            _ => {}
        }
    }

    /// Whether nothing was heard for so long that a new link should be tried.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.waiting_since?.max(self.heard);
        match (self.probed, self.suspect) {
            (false, _) => Some(since + self.probe_after()),
            (true, false) => Some(since + self.probe_after() * SUSPECT_AFTER_PROBES),
            (true, true) => None,
        }
    }

    /// Returns whether a probe is to be sent.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return false;
        }
        if self.probed {
            self.suspect = true;
            return false;
        }
        self.probed = true;
        true
    }

    fn probe_after(&self) -> Duration {
        PROBE_AFTER_MIN.max(self.round_trip * PROBE_AFTER_ROUND_TRIPS) * (1 << self.stalls)
    }
}
