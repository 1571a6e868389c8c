//! Every limit of the engines.

/// How long after the near engine asked the far one's answer vouches for what is held, in microseconds.
pub const LIVENESS_MICROS: u64 = 2_000_000;
/// Interval of the near engine's asking while it holds anything, or the client works.
pub(crate) const PING_MICROS: u64 = 400_000;
/// How long after the client's last request the near engine goes on asking.
pub(crate) const ACTIVE_MICROS: u64 = 3_000_000;

/// Bytes of content that a near engine holds for one connection.
pub(crate) const NEAR_CONTENT_MAX: usize = 64 << 20;
/// Opens, offers and answers of each kind that a near engine holds.
pub(crate) const NEAR_ITEMS_MAX: usize = 4096;
/// Requests of the client that it remembers while they wait.
pub(crate) const PENDING_MAX: usize = 1024;

/// Requests of the client that it may have to answer still: more than any server gives credits for, since one that is
/// forgotten is never answered.
pub(crate) const WAITING_MAX: usize = 16 << 10;

/// Opens of a client that the far engine follows: more than the near one, so that all are known whose content that holds.
pub(crate) const OPENS_MAX: usize = 2 * NEAR_ITEMS_MAX;
/// Handles opened ahead and not used yet.
pub(crate) const OFFERS_MAX: usize = 128;
/// Content read ahead and not used yet, in bytes.
pub(crate) const AHEAD_BYTES_MAX: u64 = 12 << 20;
/// Files up to this size are read whole with their open.
pub(crate) const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// The first and the largest window of reading ahead of one open.
pub(crate) const WINDOW_BYTES_FIRST: u64 = 256 << 10;
pub(crate) const WINDOW_BYTES_MAX: u64 = 16 << 20;
/// What the window grows by with each read.
pub(crate) const WINDOW_GROWTH: u64 = 4;
/// The end of a file that is read with its open.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;
/// A file up to this size is read whole once a client that may write it has read its start and its end.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 24 << 20;
/// Reads here and there after which a file up to that size is read whole, if nobody else uses it.
pub(crate) const STRAYS_TO_WHOLE: u32 = 8;
/// So many opens after which nothing was read let nothing more be read with an open.
pub(crate) const EAGERNESS_MAX: u32 = 8;
/// One read made ahead.
pub(crate) const READ_BYTES: u32 = 1 << 20;
/// How long a handle opened ahead is kept for its use.
pub(crate) const OFFER_MICROS: u64 = 6_000_000;
/// The same on a share whose server does not show when somebody deletes a file.
pub(crate) const OFFER_HIDDEN_MICROS: u64 = 2_000_000;
/// How often it is looked at whether somebody deletes a file that is held: where it is not known whether the server shows it,
/// where it should, and where it does not.
pub(crate) const LOOK_MICROS: u64 = 400_000;
pub(crate) const LOOK_SHOWN_MICROS: u64 = 2_000_000;
pub(crate) const LOOK_HIDDEN_MICROS: u64 = 200_000;
/// A file that others have changed within this time is theirs for now, in microseconds.
pub(crate) const RECENT_MICROS: u64 = 3_000_000;
/// How long a file is left alone that somebody else has open in a way that stands against it.
pub(crate) const REFUSED_MICROS: u64 = 30_000_000;
/// Files of a folder that a client opens before others are opened ahead, unless it begins with the first of them.
pub(crate) const OPENS_TO_WAKE: u32 = 2;
/// Queries of a folder's files before others are made ahead.
pub(crate) const QUERIES_TO_WAKE: u32 = 2;
/// Handles opened ahead at first, and of a client that begins with the first file of a folder; doubled with each that is used.
pub(crate) const OFFERS_FIRST: usize = 4;
pub(crate) const OFFERS_FIRST_OF_ALL: usize = 16;
/// Content read ahead before any of it was used, in bytes.
pub(crate) const AHEAD_BYTES_FIRST: u64 = 2 << 20;
/// Queries made ahead that the server has at a time.
pub(crate) const QUERIES_AT_ONCE: usize = 32;

/// Folders whose listing is remembered, and names of each.
pub(crate) const FOLDERS_MAX: usize = 64;
pub(crate) const NAMES_MAX: usize = 20_000;
/// Folders watched, and how long without use.
pub(crate) const WATCHES_MAX: usize = 32;
pub(crate) const WATCH_MICROS: u64 = 20_000_000;

/// Bytes of WRITEs answered before the server has them, of one connection.
pub(crate) const BEHIND_BYTES_MAX: usize = 8 << 20;
/// How long after a break that the client has not acknowledged its WRITEs may still be done. Servers wait for 35 s, and then
/// let others write, whose data must not be overwritten. Others wait no longer than this for a client that cannot be reached.
pub(crate) const BREAK_MICROS: u64 = 25_000_000;
/// The same once they have waited for it in vain.
pub(crate) const SILENT_MICROS: u64 = 2_000_000;
/// Files that a client makes and writes before its WRITEs are answered so.
pub(crate) const UPLOADS_TO_WAKE: u32 = 3;

/// Credits that the far engine wants beside the client's.
pub(crate) const SPARE_CREDITS: u64 = 256;
/// Of these asked for with one request.
pub(crate) const SPARE_CREDITS_STEP: u16 = 32;
/// Requests of the engine that the server has at a time.
pub(crate) const JOBS_MAX: usize = 192;

/// Reads made ahead whose content waits until the WAN has less to carry.
pub(crate) const BULK_HELD_MAX: usize = 192;

/// Names whose changes are counted apart.
pub(crate) const CHANGED_NAMES_MAX: usize = 1024;
/// WRITEs to one name whose places are remembered.
pub(crate) const WRITES_KNOWN_MAX: usize = 128;

/// Longest message that an engine tells another, content apart.
pub(crate) const TOLD_BYTES_MAX: usize = 1 << 20;
/// Answers that come with an open made ahead.
pub(crate) const ANSWERS_MAX: usize = 8;

/// Rules of a policy, patterns of each of their lists, and UTF-16 units of a pattern. A policy fits
/// [`TOLD_BYTES_MAX`].
pub const POLICY_RULES_MAX: usize = 32;
pub const PATTERNS_MAX: usize = 64;
pub const PATTERN_CHARS_MAX: usize = 100;
/// Tree connects whose share is known.
pub(crate) const TREES_MAX: usize = 1024;

/// Requests that a trace keeps, how long it goes on without being asked for, and characters of a name in it.
pub(crate) const TRACE_MAX: usize = 1024;
pub(crate) const TRACE_MICROS: u64 = 10_000_000;
pub(crate) const TRACE_NAME_CHARS_MAX: usize = 260;
/// Breaks whose acknowledgement is waited for.
pub(crate) const BREAKS_MAX: usize = 1024;
