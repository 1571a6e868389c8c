//! Emulated wide-area links.

mod relay;
mod shape;
mod timer;

pub use relay::{RelayStats, RelayWan};
pub use shape::{LinkShape, Loss, WanShape};
