//! The background thread: flushes what was appended, watches free space, and keeps the catalogue up to date.

use crate::shared::{Learning, Shared};
use crate::sync::{lock, read};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often free space and the catalogue's size are looked at, and uses are told apart.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The same while nothing is written.
const IDLE_WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// How often the segments' last uses are saved, at most.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// After a failed write that was no lack of space, learning is tried again after so long.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Free space must be this share above the floor before learning resumes, so that it does not flap.
const RESUME_SHARE: u64 = 8;
/// The least that it must be above the floor: a disk that a write has found full may have a few pages left.
const RESUME_BYTES_MIN: u64 = 4 << 20;

/// Runs until the alarm is stopped.
pub(crate) fn run(shared: &Shared, interval: Duration) {
    let [mut watched, mut tried, mut saved] = [Instant::now(); 3];
    let is_due = |last: &mut Instant, interval| {
        let due = last.elapsed() >= interval;
        if due {
            *last = Instant::now();
        }
        due
    };
    loop {
        let learns = shared.is_learning();
        let longest = if learns { IDLE_WATCH_INTERVAL } else { WATCH_INTERVAL };
        if !shared.alarm.wait(longest, interval) {
            return;
        }
        shared.flush();
        shared.catalogue.flush_changes();
        if is_due(&mut watched, WATCH_INTERVAL) {
            shared.watch(is_due(&mut tried, RETRY_INTERVAL));
            if is_due(&mut saved, SAVE_INTERVAL) {
                shared.save_uses();
            }
        }
    }
}

impl Shared {
    /// Brings what was appended so far to disk. Once this has failed, what is on disk is not known any more, and the
    /// durable address stays where it was until the store is opened again.
    pub fn flush(&self) {
        let _flushing = lock(&self.flushing);
        let (files, addr) = {
            let mut writer = lock(&self.writer);
            (writer.take_unflushed(), writer.next_addr)
        };
        if let Err(e) = files.iter().try_for_each(|file: &Arc<File>| file.sync_data()) {
            self.flush_failed.store(true, Ordering::Relaxed);
            // What a failed flush leaves in the page cache is not to be trusted, so the segment ends here.
            self.write_failed(&mut lock(&self.writer), &e);
        }
        if !self.flush_failed.load(Ordering::Relaxed) {
            self.durable.store(addr, Ordering::Release);
        }
    }

    /// Looks at free space, the catalogue's size and the uses of records. `retry`: try again after a failed write.
    pub fn watch(&self, retry: bool) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.catalogue_bytes.store(self.catalogue.bytes(), Ordering::Relaxed);
        let mut writer = lock(&self.writer);
        if writer.since_cooling >= self.cap_bytes / 2 {
            writer.since_cooling = 0;
            read(&self.table).cool();
        }
        // The catalogue may have grown, or the cap been lowered before this opening.
        if self.bytes_charged(&writer) > self.cap_bytes && self.make_room(&mut writer, 0).is_err() {
            tracing::warn!(dir = %self.dir.display(), "the store is over its size cap and nothing can be dropped");
        }
        drop(writer);
        let free = self.disk.free_bytes(&self.dir);
        if self.next_learning(&free, retry) == Learning::On {
            if self.set_learning(Learning::On) {
                tracing::info!(dir = %self.dir.display(), "the store learns again");
            }
        } else if self.learning() == Learning::On && self.set_learning(Learning::DiskFull) {
            let free = free.unwrap_or(0);
            tracing::error!(dir = %self.dir.display(), free, "too little free space: the store stops learning and goes on serving");
        }
    }

    /// Saves when each segment was last used.
    pub fn save_uses(&self) {
        let segments: Vec<_> = read(&self.table).segments.values().cloned().collect();
        for segment in segments {
            let last_use = segment.last_use.load(Ordering::Relaxed);
            if segment.saved_use.swap(last_use, Ordering::Relaxed) != last_use {
                self.catalogue.save_segment(segment.number, last_use, None);
            }
        }
    }

    fn next_learning(&self, free: &io::Result<u64>, retry: bool) -> Learning {
        let now = self.learning();
        // Not knowing the free space is no reason to stop; a write will tell.
        let Ok(free) = free else { return now };
        let resume_above = (self.free_floor_bytes / RESUME_SHARE).max(RESUME_BYTES_MIN);
        match now {
            Learning::On if *free < self.free_floor_bytes => Learning::DiskFull,
            Learning::DiskFull if *free >= self.free_floor_bytes.saturating_add(resume_above) => Learning::On,
            Learning::WriteFailed if retry => Learning::On,
            now => now,
        }
    }
}
