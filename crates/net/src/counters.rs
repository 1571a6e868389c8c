use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one peer's links. Bytes are counted at the socket, below TLS: handshakes, acknowledgements, heartbeats
/// and pool refills are all in them.
#[derive(Debug, Default)]
pub struct WanCounters {
    /// Bytes sent to the peer.
    pub sent: AtomicU64,
    /// Bytes received from the peer.
    pub received: AtomicU64,
    /// TLS handshakes with certificates completed.
    pub handshakes_full: AtomicU64,
    /// TLS handshakes completed by session resumption.
    pub handshakes_resumed: AtomicU64,
    /// Handshakes, of TLS or of the channel protocol, that failed or were refused.
    pub handshakes_failed: AtomicU64,
    /// Of these: a certificate was not accepted, by either side.
    pub failed_unauthorised: AtomicU64,
    /// Of these: no common version, or a cloned store.
    pub failed_incompatible: AtomicU64,
    /// Of these: what came was no TLS or no frame, or ended before it could be told.
    pub failed_garbage: AtomicU64,
    /// Of these: not finished in time.
    pub failed_timeout: AtomicU64,
    /// Of these: there was no room, or no such channel (any more).
    pub failed_refused: AtomicU64,
    /// Links that died with a session open.
    pub links_lost: AtomicU64,
    /// Channels that went on over a new link.
    pub channels_resumed: AtomicU64,
    /// Sessions that ended because no new link came in time or the peer had lost the channel.
    pub resumes_expired: AtomicU64,
    /// Links closed because the peer broke the protocol.
    pub protocol_errors: AtomicU64,
    /// Channels that are connected now, in use or pooled.
    pub channels: AtomicU64,
}

/// Why a connection did not become part of a peer pair.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Unauthorised,
    Incompatible,
    Garbage,
    Timeout,
    Refused,
}

impl WanCounters {
    /// Counts a handshake, of TLS or of the channel protocol, that came to nothing.
    pub(crate) fn fail(&self, failure: Failure) {
        WanCounters::count(&self.handshakes_failed);
        WanCounters::count(match failure {
            Failure::Unauthorised => &self.failed_unauthorised,
            Failure::Incompatible => &self.failed_incompatible,
            Failure::Garbage => &self.failed_garbage,
            Failure::Timeout => &self.failed_timeout,
            Failure::Refused => &self.failed_refused,
        });
    }

    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn count(counter: &AtomicU64) {
        WanCounters::add(counter, 1);
    }

    /// Takes over what a connection has counted before it was known whose it is.
    pub(crate) fn absorb(&self, early: &WanCounters) {
        let pairs = [
            (&self.sent, &early.sent),
            (&self.received, &early.received),
            (&self.handshakes_full, &early.handshakes_full),
            (&self.handshakes_resumed, &early.handshakes_resumed),
        ];
        for (counter, early) in pairs {
            WanCounters::add(counter, early.swap(0, Ordering::Relaxed));
        }
    }

    pub(crate) fn uncount(counter: &AtomicU64) {
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}
