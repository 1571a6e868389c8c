//! The reduction core: bytes of one direction of a connection in, reduction frames out, and back. No IO, no clock.
//!
//! One [`encoder::Encoder`] and one [`decoder::Decoder`] serve each direction of an inner channel. They share a chunk store
//! with all others, and a [`ledger::Ledger`] with those of the same peer and domain. docs/protocol.md describes the frames.

mod base;
pub mod chunker;
pub mod compress;
pub mod content;
pub mod decoder;
mod draft;
pub mod encoder;
pub mod frame;
mod learner;
pub mod ledger;
pub mod memory;
pub mod shared;
pub mod similar;
pub mod structure;
