//! What the end-to-end and fault tests share: a pair of real proxies with servers and an emulated WAN, transfers that
//! check every byte and tell how far they are, and the questions that the tests ask of metrics, logs and readiness.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod bed;
mod fuzz;
pub mod kerberos;
mod programs;
pub mod sample;
mod stranger;
mod time;
mod transfer;

pub use bed::{Bed, ECHO, Plan, SINK, SOURCE, loopback};
pub use fuzz::{Target, fuzz};
pub use programs::programs;
pub use stranger::{Stranger, hello_of, tls_files};
pub use time::{eventually, is_full, patience, within};
pub use transfer::{MOVING_AGAIN, Transfer, connect, download, moves_again, random, upload};
