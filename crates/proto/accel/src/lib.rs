//! Removes round trips from an SMB connection: an engine at each end of the WAN, beside the messages of one connection.
//!
//! The far engine ([`Far`], on the server side) opens, reads and lists ahead, under the user's own session, and tells the
//! near engine ([`Near`], on the client side) what came of it. The near engine answers a request by itself only from
//! what it holds under a [`permit`](near::Permit): a lease or a watch that the far engine has at the server, confirmed
//! lately. All that either engine says crosses the WAN in order with the messages, so that what takes a permit away
//! comes before anything that was done without it.
//!
//! The far engine is also the second leg of the connection: it gives the messages to the server other identifiers than
//! the client's, and keeps the credits ([`leg`](far)).
//!
//! No sockets, no clock, no keys: messages come and go in clear, with a note of how they were protected.

mod changes;
mod create;
mod far;
mod limits;
mod message;
#[cfg(test)]
mod model;
mod near;
mod policy;
mod told;

pub use far::Far;
pub use limits::{LIVENESS_MICROS, PATTERN_CHARS_MAX, PATTERNS_MAX, POLICY_RULES_MAX};
pub use near::{Answered, Near, Traced, Why};
pub use policy::{Mode, NEVER_BEHIND, Pattern, Policy, PolicyRule};
pub use told::Malformed;

use bytes::Bytes;

/// How a message is protected on its LAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carriage {
    /// Neither signed nor encrypted.
    Plain,
    /// Signed.
    Signed,
    /// Encrypted for this session.
    Sealed(u64),
}

/// A message in clear, header first, perhaps a compound.
#[derive(Clone, PartialEq, Eq)]
pub struct Lan {
    /// How it is to be protected.
    pub carriage: Carriage,
    /// Its bytes, without the transport's header.
    pub message: Vec<u8>,
}

/// What one engine tells the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Told {
    /// Message identifier of the client's request that this answers, so that nothing else will.
    pub answers: Option<u64>,
    /// What is told.
    pub head: Vec<u8>,
    /// File content that goes with it.
    pub content: Bytes,
}

/// What an engine sends over the WAN.
#[derive(Clone, PartialEq, Eq)]
pub enum Wan {
    /// For the other engine.
    Told(Told),
    /// A response for the client that the server did not send itself.
    Response(Lan),
}

/// What an engine wants to be done, in order.
#[derive(Default)]
pub struct Out {
    /// To the LAN: on the far side to the server, on the near side to the client.
    pub lan: Vec<Lan>,
    /// To the other proxy, before the message that was just seen.
    pub wan: Vec<Wan>,
    /// To the other proxy, after that message.
    pub after: Vec<Wan>,
}

/// What is to become of a message that an engine has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on as it is now.
    Forward,
    /// The engine has dealt with it.
    Consumed,
}

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered near the client, by what they were.
    pub opens: u64,
    /// READs.
    pub reads: u64,
    /// CLOSEs.
    pub closes: u64,
    /// Queries of attributes.
    pub queries: u64,
    /// Parts of listings.
    pub listings: u64,
    /// Opens, reads and queries made ahead.
    pub ahead: u64,
    /// Opens made ahead that nobody used.
    pub wasted: u64,
    /// Breaks and changes that took something away.
    pub breaks: u64,
    /// WRITEs.
    pub writes: u64,
    /// WRITEs that failed after the client had its answer.
    pub lost_writes: u64,
    /// Lease breaks acknowledged in the place of a client of which nothing was heard.
    pub unheard_breaks: u64,
    /// Lease breaks that had to be acknowledged, by how long that took: within each of [`BREAK_MICROS`], and longer.
    pub break_waits: [u64; BREAK_MICROS.len() + 1],
    /// How long that took together, in microseconds.
    pub break_micros: u64,
}

/// Upper bounds by which the waits for acknowledgements of breaks are counted, in microseconds.
pub const BREAK_MICROS: [u64; 6] = [1_000, 10_000, 100_000, 300_000, 1_000_000, 10_000_000];

impl Counts {
    /// A break was acknowledged after this time.
    pub(crate) fn break_waited(&mut self, micros: u64) {
        let place = BREAK_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BREAK_MICROS.len());
        if let Some(count) = self.break_waits.get_mut(place) {
            *count += 1;
        }
        self.break_micros = self.break_micros.saturating_add(micros);
    }
}

// Messages hold names and file content.
impl std::fmt::Debug for Lan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lan({:?}, {} bytes)", self.carriage, self.message.len())
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Told({:?}, {} bytes, {} of content)", self.answers, self.head.len(), self.content.len())
    }
}

impl std::fmt::Debug for Wan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Told(told) => told.fmt(f),
            Self::Response(lan) => lan.fmt(f),
        }
    }
}

impl Out {
    fn tell(&mut self, told: Told) {
        self.wan.push(Wan::Told(told));
    }
}
