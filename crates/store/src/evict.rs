//! Keeping the size cap: damaged and least recently used segments go, records that were used lately are carried forward.

use crate::footer::{Contents, FooterBuilder};
use crate::frame;
use crate::segment::Segment;
use crate::shared::Shared;
use crate::sync::{read, write};
use crate::writer::{EMPTY_SEGMENT_LEN_MAX, Writer};
use isthmus_reduction::content::{AppendError, ChunkMeta};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records of the whole store, 24 bytes of memory each.
pub const RECORDS_MAX: usize = 4 << 20;
/// Chunks of the whole store, a little over 8 bytes of memory each.
pub const CHUNKS_MAX: u64 = 64 << 20;
/// Most bytes carried forward out of one segment.
const CARRY_BYTES_MAX: u64 = 8 << 20;
/// Uses lately from which on a record is carried forward.
const HOT_USES: u8 = 2;

/// Bytes below the cap that are kept free, so that hot records can be carried forward before their segment goes.
pub(crate) fn headroom_bytes(cap_bytes: u64) -> u64 {
    (cap_bytes / 16).min(CARRY_BYTES_MAX)
}

impl Shared {
    /// Drops segments until `need` more bytes fit under the cap.
    pub fn make_room(&self, writer: &mut Writer, need: u64) -> Result<(), AppendError> {
        while !self.has_room(writer, need) {
            if let Some((path, bytes)) = writer.aside.pop() {
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(file = %path.display(), error = %e, "a file set aside could not be removed");
                    }
                    _ => writer.sealed_bytes -= bytes,
                }
                continue;
            }
            let Some(victim) = self.victim(writer) else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                return Err(AppendError::NotLearning);
            };
            self.evict(writer, &victim);
        }
        Ok(())
    }

    fn has_room(&self, writer: &Writer, need: u64) -> bool {
        self.bytes_charged(writer) + need + EMPTY_SEGMENT_LEN_MAX + headroom_bytes(self.cap_bytes)
            <= self.cap_bytes
            && read(&self.table).len() < RECORDS_MAX
            && self.index.len() < CHUNKS_MAX
    }

    /// A segment that nothing is pinned in: one that is mostly damaged, since it takes room from what replaces it, or the
    /// least recently used one. Not the active one, nor the newest: its header says how far addresses are used up.
    fn victim(&self, writer: &Writer) -> Option<Arc<Segment>> {
        let active = writer.active.as_ref().map(|active| active.segment.number);
        let table = read(&self.table);
        let newest = table.segments.keys().next_back().copied();
        let candidates = table.segments.values().filter(|segment| {
            Some(segment.number) != active
                && Some(segment.number) != newest
                && segment.pins.load(Ordering::Acquire) == 0
        });
        candidates
            .min_by_key(|s| (!s.is_mostly_damaged(), s.last_use.load(Ordering::Relaxed), s.number))
            .cloned()
    }

    fn evict(&self, writer: &mut Writer, victim: &Arc<Segment>) {
        let contents = self.files.open(victim).and_then(|file| victim.contents(&file));
        let contents = contents.inspect_err(|e| {
            tracing::warn!(segment = victim.number, error = %e, "a segment that goes could not be read");
        });
        if let Ok(contents) = &contents {
            self.carry_forward(writer, victim, contents);
        }
        let mut table = write(&self.table);
        if victim.pins.load(Ordering::Acquire) != 0 {
            return;
        }
        let dropped = table.drop_segment(victim.number);
        let released = table.forget_quarantined(contents.iter().flat_map(|contents| &contents.records));
        self.counters.quarantine_len.store(table.quarantined() as u64, Ordering::Relaxed);
        drop(table);
        self.drop_from_index(&dropped, contents.as_ref().ok());
        released.into_iter().for_each(|addr| self.catalogue.release(addr));
        self.catalogue.remove_segment(victim.number);
        self.files.close(victim);
        self.counters.evicted_segments.fetch_add(1, Ordering::Relaxed);
        let dropped_bytes = dropped.iter().map(|&(_, len)| u64::from(len)).sum();
        self.counters.evicted_bytes.fetch_add(dropped_bytes, Ordering::Relaxed);
        match fs::remove_file(&victim.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                // Its bytes stay counted, so the cap still holds.
                tracing::error!(file = %victim.path.display(), error = %e, "a segment file could not be removed");
            }
            _ => writer.sealed_bytes -= victim.bytes(),
        }
        tracing::debug!(
            segment = victim.number,
            records = dropped.len(),
            "dropped a segment to keep the size cap"
        );
    }

    /// Writes records that were used lately again, at their old addresses, within the headroom.
    fn carry_forward(&self, writer: &mut Writer, victim: &Arc<Segment>, contents: &Contents) {
        let mut hot = read(&self.table).records_of(victim.number, |r| r.heat() >= HOT_USES);
        if hot.is_empty() || !self.is_learning() {
            return;
        }
        let tables: HashMap<u64, &[ChunkMeta]> =
            contents.records.iter().map(|r| (r.addr, contents.chunks_of(r))).collect();
        let mut budget = headroom_bytes(self.cap_bytes).saturating_sub(2 * EMPTY_SEGMENT_LEN_MAX);
        for (addr, position, len) in hot.drain(..) {
            let Some(chunks) = tables.get(&addr) else { continue };
            let frame_len = frame::record_frame_len_max(&victim.sealer, len as usize, chunks.len());
            let cost = (frame_len + FooterBuilder::record_len_max(chunks.len()) + 32) as u64;
            if cost > budget {
                break;
            }
            let mut buffer = self.pool.take(len as usize + victim.sealer.check_len());
            if victim.read_payload(&self.files, (addr, position, len), buffer.room()).is_err() {
                continue;
            }
            let payload = &buffer.room()[..len as usize];
            let Ok((segment, position)) = self.write_record(writer, addr, chunks, payload) else { break };
            write(&self.table).moved(addr, segment, position, self.epoch());
            budget -= cost;
            self.counters.carried_bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        }
    }

    /// Drops the index entries of records that are gone. Without their chunk tables, every entry is looked at.
    fn drop_from_index(&self, dropped: &[(u64, u32)], contents: Option<&Contents>) {
        let gone = |addr: u64| {
            let at = dropped.partition_point(|&(from, _)| from <= addr);
            at > 0 && addr < dropped[at - 1].0 + u64::from(dropped[at - 1].1)
        };
        let Some(contents) = contents.filter(|contents| contents.records.len() >= dropped.len()) else {
            return self.index.retain(|addr| !gone(addr));
        };
        for record in &contents.records {
            let is_live = read(&self.table).find(record.addr).is_some();
            let mut addr = record.addr;
            for chunk in contents.chunks_of(record).iter().filter(|_| !is_live) {
                self.index.remove(chunk.key, addr);
                addr += u64::from(chunk.len);
            }
        }
    }
}
