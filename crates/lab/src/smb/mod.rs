//! A real Samba server and real SMB clients.

mod account;
mod client;
mod clients;
mod domain;
mod kernel;
mod newer;
mod probe;
mod protocol;
mod python;
mod server;
mod soak;
mod torture;
mod work;

pub use account::{Account, write_password_hashes};
pub use client::{Protection, SmbClient, compare_folders};
pub use clients::{ClientKind, work_with_kernel, work_with_rclone, work_with_smbclient};
pub use domain::Domain;
pub use kernel::{KernelClient, MountOptions};
pub use newer::NewerSamba;
pub use probe::{Open, Probe};
pub use protocol::{Cipher, Dialect, Protected, SigningAlgorithm};
pub use python::PythonClients;
pub use server::{Samba, SambaOptions, SessionEncryption, Signing};
pub use soak::{SoakPlan, SoakResult, shared_files, soak};
pub use torture::{Outcome, Subtest, Torture};
pub use work::{Kerberos, Login, ShareWork, Steps};

/// Name of the share that the lab's server offers.
pub const SHARE: &str = "data";

/// The same folder as a share that refuses clients which do not encrypt.
pub const SHARE_SEALED: &str = "sealed";
