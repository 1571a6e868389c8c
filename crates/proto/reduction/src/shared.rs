//! What the codecs of one peer and domain share, and reading stored content by name.

use std::sync::Arc;

use bytes::Bytes;

use crate::content::{Addr, ContentStore, LedgerId, Pin, ReadError};
use crate::ledger::{Ledger, Name, Span};
use crate::similar::Similar;

/// Step in which stored content is looked for where a part of it is gone.
const PROBE_BYTES: u64 = 64 << 10;

/// The store, and the ledger of one peer and domain.
#[derive(Clone)]
pub struct Shared {
    pub store: Arc<dyn ContentStore>,
    pub ledger: Arc<Ledger>,
    /// Under which the store keeps the ledger's notes.
    pub ledger_id: LedgerId,
    pub similar: Arc<Similar>,
}

/// A stored part of a named range.
pub(crate) struct Stored {
    /// Where in the range it starts.
    pub from: u64,
    pub addr: Addr,
    pub len: u64,
    pub pin: Box<dyn Pin>,
}

/// Length of the common prefix of two slices.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const BLOCK: usize = 256;
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK)).take_while(|(a, b)| a == b).count();
    let from = (blocks * BLOCK).min(len);
    from + a[from..].iter().zip(&b[from..]).take_while(|(a, b)| a == b).count()
}

impl Shared {
    /// Stored content as pieces that together have `len` bytes.
    pub(crate) fn views(&self, mut addr: Addr, mut len: u64) -> Result<Vec<Bytes>, ReadError> {
        let mut pieces = Vec::new();
        while len > 0 {
            let mut view = self.store.view(addr)?;
            view.truncate(len.min(view.len() as u64) as usize);
            if view.is_empty() {
                return Err(ReadError::Gone);
            }
            addr = addr.plus(view.len() as u64);
            len -= view.len() as u64;
            pieces.push(view);
        }
        Ok(pieces)
    }

    /// Appends stored content to `out`.
    pub(crate) fn read_into(&self, addr: Addr, len: u64, out: &mut Vec<u8>) -> Result<(), ReadError> {
        for piece in self.views(addr, len)? {
            out.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// The places of a named range, or the span that stops them.
    pub(crate) fn places(&self, mut at: Name, mut len: u64) -> Result<Vec<(Addr, u64)>, Span> {
        let mut places = Vec::new();
        while len > 0 {
            match self.ledger.span(at) {
                Span::At { addr, len: there } => {
                    let step = there.min(len);
                    places.push((addr, step));
                    at.position += step;
                    len -= step;
                }
                stop => return Err(stop),
            }
        }
        Ok(places)
    }

    /// The stored parts of a named range, in order.
    pub(crate) fn stored(&self, at: Name, len: u64) -> Vec<Stored> {
        let mut found = Vec::new();
        let mut from = 0;
        while from < len {
            let here = Name { position: at.position + from, ..at };
            let left = len - from;
            let Span::At { addr, len: there } = self.ledger.span(here) else {
                from += self.ledger.unknown(here, left);
                continue;
            };
            let there = there.min(left);
            if let Some(pin) = self.store.pin(addr, there) {
                found.push(Stored { from, addr, len: there, pin });
                from += there;
                continue;
            }
            let end = from + there;
            let mut addr = addr;
            while from < end {
                let len = PROBE_BYTES.min(end - from);
                found.extend(self.store.pin(addr, len).map(|pin| Stored { from, addr, len, pin }));
                (from, addr) = (from + len, addr.plus(len));
            }
        }
        found
    }

    /// Appends the bytes of a named range to `out`; false if they cannot all be read.
    pub(crate) fn read_name_into(&self, at: Name, len: u64, out: &mut Vec<u8>) -> bool {
        let from = out.len();
        let read = self
            .places(at, len)
            .is_ok_and(|places| places.iter().all(|&(addr, len)| self.read_into(addr, len, out).is_ok()));
        if !read {
            out.truncate(from);
        }
        read
    }

    /// Whether the store holds exactly `bytes` at `addr`.
    pub(crate) fn holds(&self, addr: Addr, bytes: &[u8]) -> bool {
        let Ok(pieces) = self.views(addr, bytes.len() as u64) else { return false };
        let mut at = 0;
        pieces.iter().all(|piece| {
            let same = bytes[at..at + piece.len()] == piece[..];
            at += piece.len();
            same
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes() {
        let a: Vec<u8> = (0..2000u32).map(|i| (i * 7) as u8).collect();
        for at in [0, 1, 255, 256, 257, 511, 1999] {
            let mut b = a.clone();
            b[at] ^= 1;
            assert_eq!(common_prefix(&a, &b), at);
        }
        assert_eq!(common_prefix(&a, &a[..700]), 700);
        assert_eq!(common_prefix(&a, &[]), 0);
    }
}
