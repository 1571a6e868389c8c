//! The records and segments of the store, in memory: where the bytes of an address are.

use crate::footer::RecordEntry;
use crate::segment::Segment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Set-aside records that are remembered; beyond them the oldest are forgotten, found again, and fail again.
pub(crate) const QUARANTINE_MAX: usize = 4096;
/// Uses beyond which a record is not counted further.
const HEAT_MAX: u8 = 7;

/// Where one record is. 24 bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub addr: u64,
    /// Number of the segment that holds it; 0 when it is dead.
    pub segment: u32,
    /// Position of the payload in the segment's file.
    pub position: u32,
    pub len: u32,
    /// Uses lately (high byte) and the epoch of the last one (low byte).
    uses: AtomicU16,
}

impl Record {
    pub fn new(addr: u64, segment: u32, position: u32, len: u32, epoch: u8) -> Record {
        Record { addr, segment, position, len, uses: AtomicU16::new(u16::from(epoch)) }
    }

    /// Counts a use; uses within one epoch are one use.
    pub fn used(&self, epoch: u8) {
        let [heat, last] = self.uses.load(Ordering::Relaxed).to_be_bytes();
        if last != epoch {
            let heat = heat.saturating_add(1).min(HEAT_MAX);
            self.uses.store(u16::from_be_bytes([heat, epoch]), Ordering::Relaxed);
        }
    }

    /// Uses lately, the appending not counted.
    pub fn heat(&self) -> u8 {
        self.uses.load(Ordering::Relaxed).to_be_bytes()[0]
    }

    pub fn end(&self) -> u64 {
        self.addr + u64::from(self.len)
    }

    fn cool(&self) {
        let [heat, last] = self.uses.load(Ordering::Relaxed).to_be_bytes();
        self.uses.store(u16::from_be_bytes([heat / 2, last]), Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Table {
    /// Sorted by address, dead ones among them.
    records: Vec<Record>,
    dead: usize,
    live_bytes: u64,
    pub segments: BTreeMap<u32, Arc<Segment>>,
    /// Set aside: from address to end address, in the order of addresses.
    quarantined: BTreeMap<u64, u64>,
}

impl Table {
    /// Takes over the records found at opening, in any order. Of two with one address (a crash while one was carried
    /// forward) the one in the newer segment stays; one that overlaps another, or is set aside, is dropped.
    pub fn load(&mut self, mut records: Vec<Record>, quarantined: &[(u64, u64)]) {
        records.sort_unstable_by_key(|r| (r.addr, u32::MAX - r.segment));
        self.quarantined = quarantined.iter().copied().take(QUARANTINE_MAX).collect();
        let mut end = 0;
        records.retain(|r| {
            let set_aside = self.is_quarantined(r.addr);
            if set_aside {
                self.count_set_aside(r.segment, r.len);
            }
            let keep = r.addr >= end && !set_aside;
            end = if keep { r.end() } else { end };
            keep
        });
        records.shrink_to_fit();
        self.live_bytes = records.iter().map(|r| u64::from(r.len)).sum();
        self.records = records;
        self.dead = 0;
    }

    /// Adds a record whose address is above all others.
    pub fn push(&mut self, record: Record) {
        debug_assert!(self.records.last().is_none_or(|last| last.end() <= record.addr));
        self.live_bytes += u64::from(record.len);
        self.records.push(record);
    }

    /// The live record that holds `addr`, and its segment.
    pub fn find(&self, addr: u64) -> Option<(&Record, &Arc<Segment>)> {
        let record = &self.records[self.position(addr)?];
        Some((record, self.segments.get(&record.segment)?))
    }

    /// Live records.
    pub fn len(&self) -> usize {
        self.records.len() - self.dead
    }

    /// Payload bytes of the live records.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The live records of a segment that pass, as (address, position, length).
    pub fn records_of(&self, segment: u32, pass: impl Fn(&Record) -> bool) -> Vec<(u64, u32, u32)> {
        let of_segment = |r: &&Record| r.segment == segment && pass(r);
        self.records.iter().filter(of_segment).map(|r| (r.addr, r.position, r.len)).collect()
    }

    /// The record at `addr` is now in another place.
    pub fn moved(&mut self, addr: u64, segment: u32, position: u32, epoch: u8) {
        if let Some(at) = self.position(addr) {
            let len = self.records[at].len;
            self.records[at] = Record::new(addr, segment, position, len, epoch);
        }
    }

    /// Drops a segment with the records that are still in it; returns those as (address, length), sorted.
    pub fn drop_segment(&mut self, segment: u32) -> Vec<(u64, u32)> {
        let mut dropped = Vec::new();
        for record in self.records.iter_mut().filter(|r| r.segment == segment) {
            record.segment = 0;
            dropped.push((record.addr, record.len));
        }
        self.died(dropped.len(), dropped.iter().map(|&(_, len)| u64::from(len)).sum());
        self.segments.remove(&segment);
        dropped
    }

    /// Sets the record that holds `addr` aside. Returns its address and length if it was live, and the address of one that
    /// is forgotten for it.
    pub fn quarantine(&mut self, addr: u64) -> Option<(u64, u32, Option<u64>)> {
        let at = self.position(addr)?;
        let record = &mut self.records[at];
        let (addr, len, end) = (record.addr, record.len, record.end());
        let segment = std::mem::take(&mut record.segment);
        self.count_set_aside(segment, len);
        self.quarantined.insert(addr, end);
        let mut forgotten = None;
        if self.quarantined.len() > QUARANTINE_MAX {
            forgotten = self.quarantined.pop_first().map(|(addr, _)| addr);
        }
        self.died(1, u64::from(len));
        Some((addr, len, forgotten))
    }

    pub fn is_quarantined(&self, addr: u64) -> bool {
        self.quarantined.range(..=addr).next_back().is_some_and(|(_, &end)| addr < end)
    }

    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Forgets which of `records` were set aside, since they are gone. Returns their addresses.
    pub fn forget_quarantined<'a>(&mut self, records: impl Iterator<Item = &'a RecordEntry>) -> Vec<u64> {
        records.map(|r| r.addr).filter(|addr| self.quarantined.remove(addr).is_some()).collect()
    }

    /// Halves the counted uses of all records, so that they say something about lately.
    pub fn cool(&self) {
        self.records.iter().for_each(Record::cool);
    }

    /// Whether every byte from `addr` on for `len` is live; calls `each` with the segments that hold them.
    pub fn covers(&self, addr: u64, len: u64, mut each: impl FnMut(&Arc<Segment>)) -> bool {
        let Some(end) = addr.checked_add(len) else { return false };
        let mut next = addr;
        while next < end {
            let Some((record, segment)) = self.find(next) else { return false };
            each(segment);
            next = record.end();
        }
        len > 0
    }

    fn count_set_aside(&self, segment: u32, len: u32) {
        if let Some(segment) = self.segments.get(&segment) {
            segment.set_aside.fetch_add(u64::from(len), Ordering::Relaxed);
        }
    }

    fn position(&self, addr: u64) -> Option<usize> {
        let at = self.records.partition_point(|r| r.addr <= addr).checked_sub(1)?;
        let record = &self.records[at];
        (record.segment != 0 && addr < record.end()).then_some(at)
    }

    /// Accounts for records that died, and closes the gaps when an eighth of all are dead.
    fn died(&mut self, records: usize, bytes: u64) {
        self.dead += records;
        self.live_bytes -= bytes;
        if self.dead > 1024 && self.dead > self.records.len() / 8 {
            self.records.retain(|r| r.segment != 0);
            self.dead = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of(records: Vec<Record>) -> Table {
        let mut table = Table::default();
        table.load(records, &[]);
        table
    }

    #[test]
    fn a_record_takes_24_bytes() {
        assert_eq!(std::mem::size_of::<Record>(), 24);
    }

    #[test]
    fn of_two_records_at_one_address_the_newer_segment_wins_and_overlaps_are_dropped() {
        let records = vec![
            Record::new(100, 1, 300, 50, 0),
            Record::new(100, 4, 900, 50, 0),
            Record::new(140, 2, 300, 50, 0),
            Record::new(200, 2, 400, 50, 0),
        ];
        let mut table = table_of(records);
        assert_eq!((table.len(), table.live_bytes()), (2, 100));
        assert_eq!(table.drop_segment(4), vec![(100, 50)]);
        assert_eq!(table.drop_segment(1), vec![]);
        assert_eq!(table.drop_segment(2), vec![(200, 50)]);
        assert_eq!((table.len(), table.live_bytes()), (0, 0));
    }

    #[test]
    fn uses_in_one_epoch_count_once_and_cool_down() {
        let record = Record::new(0, 1, 300, 50, 5);
        record.used(5);
        assert_eq!(record.heat(), 0, "the epoch of the appending counts with it");
        (6..9).for_each(|epoch| (0..3).for_each(|_| record.used(epoch)));
        assert_eq!(record.heat(), 3);
        record.cool();
        assert_eq!(record.heat(), 1);
        (0..=255).for_each(|epoch| record.used(epoch));
        assert_eq!(record.heat(), HEAT_MAX);
    }

    #[test]
    fn dead_records_are_cleared_away_and_the_rest_stay_found() {
        let mut records = Vec::new();
        for i in 0..20_000u64 {
            records.push(Record::new(i * 10, 1 + (i % 4) as u32, 300, 10, 0));
        }
        let mut table = table_of(records);
        assert_eq!(table.drop_segment(2).len(), 5000);
        assert_eq!(table.records.len(), 15_000);
        assert_eq!(table.position(0), Some(0));
        assert_eq!(table.position(10), None);
        assert_eq!(table.position(29), Some(1));
    }
}
