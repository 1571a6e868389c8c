//! The server side's register of agents: who may enrol, who has, which policy each follows, and when it was last seen.
//!
//! It is a directory with a few files, like the authority beside it. Commands and the running proxy use it at the same
//! time: each change is made under a lock, and files appear whole or not at all.

mod error;
mod register;
mod seen;
mod state;

pub use error::FleetError;
pub use register::{Agent, Fleet, Invitation};
pub use seen::Seen;

/// Most agents of one fleet.
pub const AGENTS_MAX: usize = 10_000;
/// Most tokens that are kept, used ones included until they end.
pub const TOKENS_MAX: usize = 10_000;
/// Most policies.
pub const POLICIES_MAX: usize = 100;
/// Longest life of a token.
pub const TOKEN_TTL_MAX: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);
/// Days that an agent's certificate is valid unless told otherwise. It is renewed long before.
pub const AGENT_DAYS: u32 = 30;
