//! The stage between a LAN socket and data reduction, for SMB 2 and 3: follows a connection, parts its messages into
//! *structure* and *content*, and puts them together again on the other side.
//!
//! Each proxy has one [`Connection`] for an outer connection, and two halves that share it: an [`Intake`] for the bytes
//! that its LAN socket brings, and an [`Assembler`] for what the other proxy's intake made of those of the other socket.
//! Structure is headers, names, listings: small, compressed in a context of its own, never stored. Content is the data
//! of READ responses and WRITE requests.
//!
//! Without keys all comes out byte for byte as it went in. With a session's keys ([`KeySource`], on the server side)
//! messages are verified or decrypted on arrival, cross without signature, and are signed or encrypted anew by the far
//! proxy, which learns the keys from a *note*. The format is described in docs/protocol-smb.md.
//!
//! No sockets, no clock, no randomness but what the caller gives.

mod assembler;
mod bindings;
mod bytes_at;
mod codec;
mod connection;
mod diff;
mod engine;
mod error;
mod follow;
mod head;
mod intake;
mod keys;
mod limits;
mod note;
mod predict;
mod recognise;
mod record;
mod status;
mod tracker;

pub use assembler::Assembler;
pub use bindings::Bindings;
pub use connection::{Connection, SessionTable};
pub use engine::{Acceleration, Obstacle};
pub use error::{AssembleError, IntakeError};
pub use intake::{Crossing, Intake, Note};
pub use isthmus_accel::{
    Answered, BREAK_MICROS, Counts as AccelCounts, Mode, NEVER_BEHIND, PATTERN_CHARS_MAX, PATTERNS_MAX,
    POLICY_RULES_MAX, Pattern, Policy, PolicyRule, Traced, Why,
};
pub use keys::{KeySource, Refused, Released};
pub use recognise::{RECOGNISE_BYTES, Recognised, recognise};
pub use status::{SessionState, SessionStatus, State, Status};

/// Named limits of this stage, for whoever bounds what it feeds.
pub use limits::{CONTENT_HELD_MAX, NOTE_BYTES_MAX, STRUCTURE_HELD_MAX};
