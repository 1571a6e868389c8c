//! The lanes of a direction: plain bytes through one encoder, or SMB messages taken apart into structure and content.
//!
//! The first bytes of a direction decide. What is not SMB stays on the plain lane for good and costs nothing more.

mod incoming;
mod outgoing;

pub(crate) use incoming::{Incoming, IncomingError};
pub(crate) use outgoing::{Next, Outgoing};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use isthmus_smb_session::{AccelCounts, Connection, KeySource};
use isthmus_telemetry::ConnectionLedger;
use isthmus_types::RecordingId;
use tokio::sync::Notify;

/// First byte of a message beside the frames that is a note of the SMB stage; those of the reduction core are small numbers.
pub(crate) const NOTE: u8 = 0x10;

/// What the SMB stage of an outer connection needs. Both halves of the session share it.
#[derive(Clone)]
pub(crate) struct Stage {
    pub connection: Arc<Connection>,
    /// On the server side: where session keys come from.
    pub keys: Option<Arc<dyn KeySource + Send + Sync>>,
    /// Rings when what is known of the connection has changed.
    pub changed: Arc<Notify>,
    /// Whether round trips are removed.
    pub accelerated: bool,
    /// From when on the engine's time counts.
    pub started: Instant,
    /// Ring when the engine has something for the LAN, and for the other proxy.
    pub lan_ready: Arc<Notify>,
    pub wan_ready: Arc<Notify>,
    /// What the engine had done when it was counted last.
    pub counted: Arc<Mutex<AccelCounts>>,
}

impl Stage {
    /// Tells the engine the time.
    pub fn set_time(&self) {
        if self.accelerated {
            self.connection.at(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// What the engine has done since the last call is added to a connection's counts.
    pub fn count(&self, ledger: &ConnectionLedger) {
        let Some(now) = self.connection.accelerated().filter(|_| self.accelerated) else { return };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *counted, now);
        if now.lost_writes > before.lost_writes {
            tracing::error!("a write failed at the server after the client had its answer");
        }
        if now.unheard_breaks > before.unheard_breaks {
            tracing::warn!(
                "others waited for a client of which nothing was heard: its leases were given back in its place"
            );
        }
        for (tally, now, before) in [
            (&ledger.local_opens, now.opens, before.opens),
            (&ledger.local_reads, now.reads, before.reads),
            (&ledger.local_closes, now.closes, before.closes),
            (&ledger.local_queries, now.queries, before.queries),
            (&ledger.local_listings, now.listings, before.listings),
            (&ledger.local_writes, now.writes, before.writes),
            (&ledger.lost_writes, now.lost_writes, before.lost_writes),
            (&ledger.ahead, now.ahead, before.ahead),
            (&ledger.ahead_wasted, now.wasted, before.wasted),
            (&ledger.permits_broken, now.breaks, before.breaks),
            (&ledger.break_micros, now.break_micros, before.break_micros),
        ] {
            tally.add(now.saturating_sub(before));
        }
        for ((tally, now), before) in ledger.break_waits.iter().zip(now.break_waits).zip(before.break_waits) {
            tally.add(now.saturating_sub(before));
        }
    }

    /// Rings for what the engine has.
    pub fn ring(&self) {
        if !self.accelerated {
            return;
        }
        let (lan, wan) = self.connection.has_output();
        if lan {
            self.lan_ready.notify_one();
        }
        if wan {
            self.wan_ready.notify_one();
        }
    }
}

/// The recording of a direction's content, beside the one of its plain bytes.
pub(crate) fn content_recording(plain: RecordingId) -> RecordingId {
    let mut hasher = blake3::Hasher::new_derive_key("isthmus 2026 recording of content");
    hasher.update(&plain.0.to_le_bytes());
    let mut id = [0; 8];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    RecordingId(u64::from_le_bytes(id))
}
