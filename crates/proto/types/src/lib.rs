//! Words that every part of Isthmus shares: identities, reasons, limits, and the variable-length integer of the wire.

pub mod limits;
mod reason;
pub mod varint;

pub use reason::Reason;

use std::fmt;

/// Identity of one chunk store: random, bound to the machine, replaced when a store is wiped or cloned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub [u8; 16]);

/// Name of a recording: the byte sequence of one direction of one outer connection, as both proxies saw it.
///
/// Chosen at random by the side that encodes, so that no two recordings of a pair ever share a name, whatever was
/// wiped, rolled back or cloned in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordingId(pub u64);

/// What two proxies may share matches within: a peer, and below it a label set by rule (docs/protocol.md, "Domains").
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Domain(pub String);

/// Which of the two proxies a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Near the users: branch gateway or laptop agent.
    Client,
    /// Near the file server.
    Server,
}

impl Side {
    /// The word used in certificates, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::Client => "client-side",
            Side::Server => "server-side",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

impl fmt::Debug for RecordingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordingId({:016x})", self.0)
    }
}
