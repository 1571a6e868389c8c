use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// What kept bytes off the WAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum SavedBy {
    /// A position run: bytes that follow what a recording holds.
    Run = 0,
    /// A known chunk.
    Chunk = 1,
    /// A delta against a similar old region.
    Delta = 2,
    /// zstd.
    Compression = 3,
    /// An answer given without asking the far side.
    LocalAnswer = 4,
}

impl SavedBy {
    /// Every way, in the order of [`ConnectionLedger::saved`].
    pub const ALL: [SavedBy; 5] =
        [SavedBy::Run, SavedBy::Chunk, SavedBy::Delta, SavedBy::Compression, SavedBy::LocalAnswer];

    /// Metric label.
    pub fn label(self) -> &'static str {
        match self {
            SavedBy::Run => "run",
            SavedBy::Chunk => "chunk",
            SavedBy::Delta => "delta",
            SavedBy::Compression => "compression",
            SavedBy::LocalAnswer => "local_answer",
        }
    }
}

/// Upper bounds by which the waits for acknowledgements of lease breaks are counted, in seconds.
pub const BREAK_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 0.3, 1.0, 10.0];

/// A count that only grows. One relaxed atomic addition each time, so it may stand on the data path.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The two structs share one list of fields, so that no count can be kept and then forgotten in the sums.
macro_rules! ledger {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The byte ledger of one connection. Both of its directions and all of its tasks write to it.
        ///
        /// *Up* is from the client to the server and *down* the other way, on either proxy. Either proxy counts both
        /// directions: the one it encodes and the one it restores.
        #[derive(Debug, Default)]
        pub struct ConnectionLedger {
            $($(#[$doc])* pub $field: Tally,)*
            /// LAN bytes less the frame bytes that stood for them, by what saved them; index by [`SavedBy`].
            pub saved: [Tally; 5],
            /// Lease breaks that had to be acknowledged, by how long that took: within each of [`BREAK_SECONDS`], and longer.
            pub break_waits: [Tally; BREAK_SECONDS.len() + 1],
        }

        /// The values of a [`ConnectionLedger`] at one moment, or the sum of many.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LedgerValues {
            $($(#[$doc])* pub $field: u64,)*
            /// As [`ConnectionLedger::saved`].
            pub saved: [u64; 5],
            /// As [`ConnectionLedger::break_waits`].
            pub break_waits: [u64; BREAK_SECONDS.len() + 1],
        }

        impl ConnectionLedger {
            /// Reads every count. They are read one by one: a writer may come between two of them.
            pub fn values(&self) -> LedgerValues {
                LedgerValues {
                    $($field: self.$field.value(),)*
                    saved: std::array::from_fn(|i| self.saved[i].value()),
                    break_waits: std::array::from_fn(|i| self.break_waits[i].value()),
                }
            }
        }

        impl AddAssign for LedgerValues {
            fn add_assign(&mut self, other: LedgerValues) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
                for (sum, n) in self.saved.iter_mut().zip(other.saved) {
                    *sum = sum.saturating_add(n);
                }
                for (sum, n) in self.break_waits.iter_mut().zip(other.break_waits) {
                    *sum = sum.saturating_add(n);
                }
            }
        }
    };
}

ledger! {
    /// Bytes from the client, carried over an inner channel.
    lan_up,
    /// Bytes from the server, carried over an inner channel.
    lan_down,
    /// Encoded frame bytes that stand for `lan_up`, before TLS. Totals of WAN bytes come from the sockets instead.
    wan_up,
    /// Encoded frame bytes that stand for `lan_down`, before TLS.
    wan_down,
    /// Bytes from the client that were relayed directly, over no inner channel. They are never part of a reduction.
    passed_up,
    /// Bytes from the server that were relayed directly.
    passed_down,
    /// Reduction frames made here.
    frames_encoded,
    /// Reduction frames restored here.
    frames_decoded,
    /// References of the peer that the store here could not resolve.
    misses,
    /// Repairs sent: what the peer could not resolve and this side supplied again.
    repairs,
    /// Bytes in those repairs.
    repair_bytes,
    /// Restored bytes that did not match their proof. They were not delivered.
    proof_failures,
    /// SMB requests answered near the client: opens.
    local_opens,
    /// Reads.
    local_reads,
    /// Ends of opens.
    local_closes,
    /// Queries of attributes.
    local_queries,
    /// Parts of listings.
    local_listings,
    /// Writes answered before the server had them.
    local_writes,
    /// Those of them that failed.
    lost_writes,
    /// Requests that the server-side proxy made ahead of a client.
    ahead,
    /// Opens made ahead that no client used.
    ahead_wasted,
    /// Breaks and changes that took away what was held.
    permits_broken,
    /// How long acknowledgements of lease breaks took together, in microseconds.
    break_micros,
}

impl ConnectionLedger {
    /// Adds bytes that one way of reducing kept off the WAN.
    pub fn add_saved(&self, by: SavedBy, bytes: u64) {
        self.saved[by as usize].add(bytes);
    }
}

impl LedgerValues {
    /// SMB requests answered near the client: each is a round trip saved.
    pub fn round_trips_saved(&self) -> u64 {
        [
            self.local_opens,
            self.local_reads,
            self.local_closes,
            self.local_queries,
            self.local_listings,
            self.local_writes,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// LAN bytes of both directions that went over an inner channel.
    pub fn lan(&self) -> u64 {
        self.lan_up.saturating_add(self.lan_down)
    }

    /// Frame bytes of both directions.
    pub fn wan(&self) -> u64 {
        self.wan_up.saturating_add(self.wan_down)
    }

    /// Bytes of both directions that were relayed directly.
    pub fn passed(&self) -> u64 {
        self.passed_up.saturating_add(self.passed_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_their_index() {
        let ledger = ConnectionLedger::default();
        for (i, by) in SavedBy::ALL.into_iter().enumerate() {
            ledger.add_saved(by, 1 << i);
        }
        assert_eq!(ledger.values().saved, [1, 2, 4, 8, 16]);
    }

    #[test]
    fn sums_cover_every_field_and_do_not_wrap() {
        let ledger = ConnectionLedger::default();
        ledger.lan_up.add(u64::MAX);
        ledger.proof_failures.add(3);
        let mut sum = ledger.values();
        sum += ledger.values();
        assert_eq!((sum.lan_up, sum.proof_failures), (u64::MAX, 6));
        assert_eq!(sum.lan(), u64::MAX);
    }
}
