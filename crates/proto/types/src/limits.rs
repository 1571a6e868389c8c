//! Every limit that both sides of a wire must agree on, in one place. Local limits stand beside the code they bound.

/// Longest domain label, in bytes.
pub const DOMAIN_LEN_MAX: usize = 64;
/// Longest target host name, in bytes (RFC 1035 2.3.4).
pub const HOST_LEN_MAX: usize = 255;
/// LAN bytes that one reduction frame may stand for.
pub const FRAME_LAN_BYTES_MAX: usize = 1 << 20;
/// New (not referred to) bytes that one reduction frame may carry.
pub const FRAME_NEW_BYTES_MAX: usize = 256 << 10;
/// Encoded size of one reduction frame.
pub const FRAME_WIRE_BYTES_MAX: usize = FRAME_NEW_BYTES_MAX + (64 << 10);
/// LAN bytes a sender may be ahead of what the receiver has delivered.
pub const WINDOW_LAN_BYTES: u64 = 64 << 20;
/// Old content that one delta may be coded against.
pub const DELTA_BASE_BYTES_MAX: usize = 768 << 10;
/// Payload of one stored record.
pub const RECORD_BYTES_MAX: usize = 512 << 10;
