//! Every limit of this stage. Those marked *both sides* are part of the protocol.

/// Structure that an assembler holds before it has used it, in bytes. A record is at most half of it.
pub const STRUCTURE_HELD_MAX: usize = 4 << 20;
/// Longest record, its length not counted. Both sides.
pub(crate) const RECORD_BYTES_MAX: usize = 2 << 20;
/// Content that an assembler holds before it has used it, in bytes: the longest message, and a window of what follows.
pub const CONTENT_HELD_MAX: usize = 160 << 20;
/// Longest note in bytes.
pub const NOTE_BYTES_MAX: usize = 64 << 10;
/// Longest name or reason in a note, in bytes.
pub(crate) const NOTE_TEXT_BYTES_MAX: usize = 1024;
/// Structure of all elements of one message, in bytes; longer ones cross as they are.
pub(crate) const SKELETON_BYTES_MAX: usize = 512 << 10;
/// Data of a READ or WRITE that is shorter crosses as structure, since a content frame of its own costs more.
pub(crate) const CONTENT_BYTES_MIN: usize = 256;
/// A listing or other answer that is longer crosses as content, where it can be found again.
pub(crate) const BULK_BYTES_MIN: usize = 16 << 10;
/// Where the content of such an answer begins.
pub(crate) const BULK_OFFSET: usize = 128;
/// Bytes that are not understood cross as structure up to this length, as content above.
pub(crate) const RAW_INLINE_BYTES_MAX: usize = 1024;
/// Content of a crossing from which on it counts as bulk.
pub(crate) const CROSSING_BULK_BYTES: usize = 32 << 10;

/// Requests waiting for their response. Both sides.
pub(crate) const REQUESTS_MAX: usize = 2048;
/// Opens that can be referred to; more than requests can wait. Both sides.
pub(crate) const OPENS_MAX: u64 = 4096;
/// Messages kept of each command and direction to predict the next from. Both sides.
pub(crate) const TEMPLATES_MAX: usize = 6;
/// Bytes kept of each. Both sides.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 512;

/// Sessions of one connection.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// Authentications in progress on one connection.
pub(crate) const AUTHENTICATIONS_MAX: usize = 64;
/// TREE_CONNECTs in progress on one connection.
pub(crate) const TREE_CONNECTS_MAX: usize = 64;
/// Shares named in a connection's status.
pub(crate) const SHARES_MAX: usize = 64;
/// Characters of a share's or server's name in a connection's status.
pub(crate) const NAME_CHARS_MAX: usize = 256;
/// Sessions of a [`SessionTable`](crate::SessionTable).
pub(crate) const TABLE_SESSIONS_MAX: usize = 8192;

/// Requests of the engine whose signatures are remembered, in case the server answers with them.
pub(crate) const SIGNATURES_MAX: usize = 256;
