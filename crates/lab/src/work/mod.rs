//! Workloads: byte sources and sinks, echo, parallel downloads, idle connections, a plain relay to compare with.
//!
//! Servers run on a thread of their own in any [`Place`](crate::Place); clients are async functions, which
//! [`Place::block_on`](crate::Place::block_on) runs where they belong. All move more than 2 GB/s on one core, so that
//! they are not what is measured.

mod client;
mod idle;
mod relay;
mod server;
mod service;

pub use client::{EchoTimes, Transfer, connect, download, echo_times, parallel_downloads, upload};
pub use idle::IdleConnections;
pub use relay::plain_relay;
pub use server::{Receipt, Receipts, SinkMode, echo_server, sink_server, source_server};
pub use service::{Service, forward};

/// Size of every read and write of the workloads.
pub(crate) const IO_BYTES: usize = 512 * 1024;

/// Length of a sink's answer: bytes received (8, little-endian) and their BLAKE3 hash (32; zeros when not hashed).
pub(crate) const RECEIPT_BYTES: usize = 40;
