//! A raw SMB client: it sends exactly the requests that it is told to, many connections at once if wanted, and answers
//! breaks of leases and oplocks after a delay that is chosen for each open.

mod bodies;
mod connection;
mod login;
mod protection;
mod requests;

pub use connection::{BreakSeen, CacheKey, Connection, Lost};
pub use login::{Protection, Settings};
pub use requests::{
    Answer, Caching, Created, Failure, Granted, Information, ListedEntry, Looked, OpenRequest, RangeLock,
};
