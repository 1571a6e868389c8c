//! Emulated wide-area links.

mod ip;
mod model;
mod relay;
mod shape;
mod timer;

pub(crate) use ip::DEVICE;
pub use ip::{IpWan, WanStats};
pub use model::LinkStats;
pub use relay::{RelayStats, RelayWan};
pub use shape::{LinkShape, Loss, WanShape};
