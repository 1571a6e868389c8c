//! Limits of what agents and the server side say to each other.

use std::time::Duration;

/// Longest message of an agent, in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest answer to one, in bytes: a policy, a certificate, a revocation list.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Longest text of a policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 256 << 10;
/// Longest name of an agent or a policy, in bytes (X.520 `ub-common-name`).
pub const NAME_BYTES_MAX: usize = 64;
/// Time between two reports of an agent, unless there is something new to tell.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(60);
