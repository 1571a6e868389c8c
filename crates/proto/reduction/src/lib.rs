//! The reduction core: bytes of one direction of a connection in, reduction frames out, and back. No IO, no clock.

pub mod content;
