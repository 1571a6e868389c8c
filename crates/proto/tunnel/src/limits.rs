//! Limits of the channel protocol. Both sides count by the same rules, so changing one of the first group is a change
//! of protocol version.

use isthmus_types::limits::{FRAME_NEW_BYTES_MAX, FRAME_WIRE_BYTES_MAX};

/// Wire bytes, counted by [`frame_cost`], that a sender may have outstanding before the receiver's application has
/// taken them. Bounds the resume buffer of the sender and the receive queue of a slow reader alike.
pub const RESUME_BUFFER_BYTES: usize = 8 << 20;
/// What one queued frame costs beyond its body: bounds the number of tiny frames in a buffer.
pub const FRAME_OVERHEAD_BYTES: usize = 128;
/// One feedback message: a repair's content and what names it.
pub const FEEDBACK_BYTES_MAX: usize = FRAME_NEW_BYTES_MAX + 32;
/// Body of a signal frame (feedback is the largest).
pub const SIGNAL_BODY_BYTES_MAX: usize = FEEDBACK_BYTES_MAX + 1;
/// Body of a frame of the link itself (a hello is the largest).
pub const LINK_BODY_BYTES_MAX: usize = 1024;
/// Body of an acknowledgement: three variable-length integers.
pub const ACK_BODY_BYTES_MAX: usize = 30;
/// Human text in a refusal or failure, in bytes.
pub const DETAIL_BYTES_MAX: usize = 255;
/// Software version text in a hello, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;
/// What one receive queue may hold: the sender may exceed its allowance by one frame.
pub const INBOX_BYTES_MAX: usize = RESUME_BUFFER_BYTES + FRAME_WIRE_BYTES_MAX + FRAME_OVERHEAD_BYTES;

/// Bytes that may wait unsent in this process before a sender has to wait: small, so that an interactive answer is
/// never far behind bulk data of the same session.
pub const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Bodies below this are copied out of the buffer they arrived in, so that a few small frames that wait do not keep a
/// large buffer alive.
pub const SHARED_BODY_BYTES_MIN: usize = 16 << 10;
/// Link frames (acknowledgements, pings) that may wait for a congested link.
pub const URGENT_BYTES_MAX: usize = 4 << 10;
/// Taken wire bytes after which an acknowledgement goes out at once.
pub const ACK_WIRE_BYTES: usize = 1 << 20;
/// Delivered LAN bytes after which an acknowledgement goes out at once.
pub const ACK_LAN_BYTES: u64 = 8 << 20;
/// Spare queue slots kept by a channel that has gone quiet.
pub const QUIET_SLOTS_MAX: usize = 32;

/// What a frame with a body of `body` bytes costs in a buffer.
pub fn frame_cost(body: usize) -> usize {
    body + FRAME_OVERHEAD_BYTES
}
