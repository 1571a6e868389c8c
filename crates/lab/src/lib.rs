//! The lab: emulated WANs, real servers and clients, corpora and workloads, for tests, measurements and the demo.
//!
//! docs/lab.md tells how to use it. Nothing here is part of the product; the proxies do not depend on it.

pub mod cleanup;
pub mod corpus;
mod error;
mod place;
pub mod proc;
mod topology;
pub mod wan;
pub mod work;

pub use error::{LabError, Result};
pub use place::Place;
pub use proc::{Proc, ProcSpec, Usage};
pub use topology::{Namespace, WanLab};
