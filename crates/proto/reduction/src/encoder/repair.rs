//! What the peer lacks is sent again.

use bytes::Bytes;

use super::{EncodeError, Encoder};
use crate::compress::pack_against;
use crate::frame::{Feedback, REPAIR_BYTES_MAX};
use crate::ledger::Name;

impl Encoder {
    /// Sends bytes that the peer's decoder could not restore.
    pub(super) fn repair(&mut self, position: u64, len: u64) -> Result<Vec<Bytes>, EncodeError> {
        let end = position + len;
        if position < self.restored || end > self.position - self.draft.lan as u64 {
            return Err(EncodeError::MissOutOfRange);
        }
        let mut start = self.restored;
        for flight in &self.flight {
            if start < end && position < flight.end {
                flight.base.iter().for_each(|(at, len)| self.shared.ledger.avoid(*at, *len));
            }
            start = flight.end;
            for (from, at, len) in &flight.runs {
                let skip = position.saturating_sub(*from);
                if *from < end && skip < *len {
                    let lacked = (end - from).min(*len) - skip;
                    self.shared.ledger.missed(Name { position: at.position + skip, ..*at }, lacked);
                }
            }
        }
        if let Some(cursor) = &mut self.cursor {
            // Its span may hold what is now mistrusted.
            (cursor.left, cursor.view) = (0, Bytes::new());
        }
        let mut messages = Vec::new();
        let mut at = position;
        while at < end {
            let step = (end - at).min(REPAIR_BYTES_MAX as u64);
            let mut bytes = Vec::with_capacity(step as usize);
            self.read_sent(at, step, &mut bytes)?;
            let packed = pack_against(&[], &bytes, self.level)?;
            let smaller = packed.len() < bytes.len();
            let data = Bytes::from(if smaller { packed } else { bytes });
            messages
                .push(Feedback::Repair { position: at, len: step as u32, packed: smaller, data }.encode());
            at += step;
        }
        self.learner.take_over_names(&self.shared, position, len);
        Ok(messages)
    }

    /// Appends bytes that are in flight to `out`.
    pub(super) fn read_sent(&self, position: u64, len: u64, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let end = position + len;
        let mut at = position;
        while at < end {
            let kept = self.flight.iter().flat_map(|flight| &flight.kept);
            let next = kept
                .filter(|(start, bytes)| start + bytes.len() as u64 > at)
                .min_by_key(|(start, _)| *start)
                .filter(|(start, _)| *start < end);
            match next {
                Some((start, bytes)) if *start <= at => {
                    let bytes = &bytes[(at - start) as usize..];
                    let step = bytes.len().min((end - at) as usize);
                    out.extend_from_slice(&bytes[..step]);
                    at += step as u64;
                }
                other => {
                    let stop = other.map_or(end, |(start, _)| *start);
                    if !self.learner.read_into(&self.shared, at, stop - at, out) {
                        return Err(EncodeError::CannotRepair);
                    }
                    at = stop;
                }
            }
        }
        Ok(())
    }
}
