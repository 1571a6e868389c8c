//! Transparent interception on Linux: the nftables table and the routing rule that bring connections here, and the
//! sockets that take them and make them anew.
//!
//! A [`Plan`] says what is wanted; it is turned into commands of `nft` and `ip` without looking at the machine.
//! [`install`], [`remove`] and [`look`] carry it out for good, [`Held`] for as long as the process lives. Everything
//! lies in one table and one routing table of its own; what the machine has besides is read, to find conflicts, and
//! never changed. `docs/interception.md` is the user's side of it.

mod conflict;
mod error;
mod held;
mod machine;
mod plan;
mod preexisting;
mod socket;
mod tool;

pub use conflict::Conflict;
pub use error::InterceptError;
pub use held::Held;
pub use machine::{Found, State, install, look, remove};
pub use plan::{CLIENT_TABLE, Form, Plan, SERVER_TABLE};
pub use preexisting::Flow;
pub use socket::{LISTEN_BACKLOG, Origin, listen, original_destination, outgoing};
