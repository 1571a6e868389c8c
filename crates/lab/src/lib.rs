//! The lab: emulated WANs, real servers and clients, corpora and workloads, for tests, measurements and the demo.
//!
//! docs/lab.md tells how to use it. Nothing here is part of the product; the proxies do not depend on it.

pub mod cleanup;
pub mod corpus;
mod error;
pub mod http;
pub mod metrics;
pub mod nfs;
pub mod pair;
mod place;
pub mod proc;
mod rig;
pub mod scenario;
mod scratch;
pub mod smb;
mod topology;
mod uml;
pub mod wan;
pub mod work;

pub use error::{LabError, Result};
pub use place::Place;
pub use proc::{Proc, ProcSpec, Usage};
pub use rig::{Level, Measured, Network, Rig, free_address};
pub use scratch::Scratch;
pub use topology::{Namespace, WanLab};
