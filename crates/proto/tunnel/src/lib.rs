//! The inner channel's protocol as a state machine: bytes and `now` in, bytes and messages out. No IO, no clock.
//!
//! An *inner channel* carries one session (one outer connection) at a time over a *link* (one TLS connection). A link
//! may die and be replaced; the [`Endpoint`] on each side keeps what the peer has not taken yet and goes on where the
//! old link stopped. The wire format is written down in `docs/protocol-channels.md`.

mod endpoint;
mod error;
mod frame;
mod hello;
mod inbox;
pub mod limits;
mod liveness;
mod message;
mod outbox;

pub use endpoint::{ACK_DELAY, Endpoint, Progress, SendError, State};
pub use error::Error;
pub use frame::{Ack, ChannelId, Frame, Proof, decode, encode};
pub use hello::{Agreement, Hello, Instance, PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN};
pub use message::{Message, Open};
