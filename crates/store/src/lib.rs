//! The chunk store: append-only segments of records, encrypted at rest, with an index in memory and an exact size cap.
//!
//! [`Store`] implements [`isthmus_reduction::content::ContentStore`]. The on-disk format is docs/store.md. All calls may
//! block for the disk; nothing here is asynchronous.

mod alarm;
mod cache;
mod catalogue;
mod config;
mod dir;
mod error;
mod evict;
mod flush;
pub mod footer;
pub mod format;
mod frame;
mod identity;
mod index;
mod key;
mod ledgers;
mod load;
pub mod offline;
mod open;
mod replay;
pub mod scale;
mod seal;
mod segment;
mod shared;
mod stats;
mod store;
mod sync;
mod table;
mod writer;

pub use catalogue::{CatalogueError, HISTORY_MAX, KeyValue, SAMPLE_LEN_MAX, VALUE_LEN_MAX, VALUES_MAX};
pub use config::{
    CACHE_BYTES_DEFAULT, CAP_BYTES_MIN, CATALOGUE_RESERVE_BYTES, Config, Disk, FLUSH_INTERVAL_DEFAULT,
    FREE_FLOOR_BYTES_DEFAULT, SEGMENT_BYTES_MIN, SystemDisk,
};
pub use error::{FormatError, OpenError};
pub use evict::{CHUNKS_MAX, RECORDS_MAX};
pub use identity::Machine;
pub use key::{KEY_LEN, KeyId, StoreKey};
pub use ledgers::{LEDGERS_MAX, LedgerError};
pub use replay::Replay;
pub use shared::Learning;
pub use stats::StoreStats;
pub use store::Store;

#[cfg(test)]
mod tests;
