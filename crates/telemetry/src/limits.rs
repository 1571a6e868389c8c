//! Every bound of this crate: what is kept, for how many, and for how long.

use std::time::Duration;

/// Peers that get a metric label of their own; the rest share the label [`PEER_OTHER`].
pub const PEER_LABELS_MAX: usize = 256;
/// Longest peer label, in characters.
pub const PEER_LABEL_CHARS_MAX: usize = 64;
/// Label of every peer above [`PEER_LABELS_MAX`].
pub const PEER_OTHER: &str = "other";
/// Label of bytes that belong to no authenticated peer, and of connections without one.
pub const PEER_NONE: &str = "none";
/// Peers whose counters are followed between two samples.
pub const PEERS_FOLLOWED_MAX: usize = 4_096;
/// Live connections that the table lists. Those above it are counted when they close, and not listed.
pub const CONNECTIONS_LISTED_MAX: usize = 65_536;
/// Closed connections that stay listed.
pub const CLOSED_LISTED_MAX: usize = 200;
/// Ledgers of closed connections that a task still holds.
pub const LINGERING_MAX: usize = 4_096;
/// Longest target, rule name or detail that is kept of a connection, in characters.
pub const TEXT_CHARS_MAX: usize = 400;
/// Shares that are kept of an SMB connection.
pub const SMB_SHARES_MAX: usize = 16;
/// Sessions of one SMB connection that are told apart; further ones are not counted.
pub const SMB_SESSIONS_FOLLOWED_MAX: usize = 256;
/// Longest name of a key source as a metric label, in characters.
pub const KEY_SOURCE_LABEL_CHARS_MAX: usize = 128;
/// Recent events that are kept.
pub const EVENTS_MAX: usize = 500;
/// Points in each history series.
pub const HISTORY_POINTS_MAX: usize = 720;
/// Step of the series that covers one hour.
pub const HOUR_STEP: Duration = Duration::from_secs(5);
/// Step of the series that covers one day.
pub const DAY_STEP: Duration = Duration::from_secs(120);
/// What "now" means for rates and for the data reduction shown as current.
pub const NOW_WINDOW: Duration = Duration::from_secs(60);
/// Connections whose measurements are shown.
pub const LINK_ROWS_MAX: usize = 256;
/// Room for one datagram of the kernel's socket diagnosis; it sends at most 32 KiB at once.
pub const NETLINK_REPLY_BYTES: usize = 64 << 10;
/// Most bytes of that diagnosis that are read for one question: some 20,000 connections.
pub const NETLINK_BYTES_MAX: usize = 8 << 20;
/// How long the kernel may take for each of its datagrams, in seconds.
pub const NETLINK_WAIT_S: i64 = 2;
