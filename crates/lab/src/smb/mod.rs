//! A real Samba server and real SMB clients.

mod client;
mod kernel;
mod server;

pub use client::{Protection, SmbClient, compare_folders};
pub use kernel::{KernelClient, MountOptions};
pub use server::{Samba, SambaOptions, Signing};

/// Name of the share that the lab's server offers.
pub const SHARE: &str = "data";
