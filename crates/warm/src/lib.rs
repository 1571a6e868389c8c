//! Prepopulation: reads what is on a share through a pair's own listener, as a user would, and throws it away. Both stores
//! then know the content, and the first user's copy is warm.
//!
//! SMB 2 and 3 over TCP alone: no NetBIOS, no SMB1. Nothing is opened for writing.

mod account;
mod done;
mod location;
mod pace;
mod run;
mod session;
mod transport;

pub use account::Account;
pub use done::Done;
pub use location::Location;
pub use run::{Job, Progress, Totals, WarmError, run};
pub use transport::SealingTransport;

/// Limits of prepopulation.
pub mod limits {
    use std::time::Duration;

    /// Most files of one job; a larger share is warmed folder by folder.
    pub const FILES_MAX: usize = 1_000_000;
    /// Deepest folder below the one that is named.
    pub const DEPTH_MAX: usize = 64;
    /// Files that are read at the same time: on a long line a small file is mostly waiting.
    pub const PARALLEL_FILES: usize = 8;
    /// Largest file that is read with one request.
    pub const SMALL_FILE_BYTES: u64 = 64 << 10;
    /// How long connecting may take.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
    /// Attempts to connect again, each after twice the pause of the one before, without a byte in between.
    pub const RECONNECTS_MAX: u32 = 5;
    /// The first pause.
    pub const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
    /// How often a closed time window is looked at.
    pub const WINDOW_LOOK: Duration = Duration::from_secs(20);
    /// Failed files whose names are told; further ones are counted.
    pub const FAILURES_TOLD_MAX: u64 = 100;
}
