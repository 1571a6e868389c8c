//! Reading the footers of all segments at opening, on a few threads.

use crate::footer::LedgerEntry;
use crate::index::{Batch, Index};
use crate::segment::Segment;
use crate::sync::lock;
use crate::table::Record;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Threads that read footers.
const LOAD_THREADS: usize = 2;

/// What was found in the segments.
#[derive(Default)]
pub(crate) struct Loaded {
    /// In the order of their numbers.
    pub segments: Vec<Arc<Segment>>,
    pub records: Vec<Record>,
    /// Ledgers as segments declare them, with the segments' numbers, in their order.
    pub ledgers: Vec<(u32, LedgerEntry)>,
    /// Segments with notes, in their order.
    pub with_notes: Vec<Arc<Segment>>,
}

/// Loads all segments and fills the index. Also returns path and length of files that could not be read.
pub(crate) fn load_all(segments: Vec<Arc<Segment>>, index: &Index) -> (Loaded, Vec<(PathBuf, u64)>) {
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Loaded::default(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..LOAD_THREADS.min(segments.len()) {
            scope.spawn(|| {
                let mut part = Loaded::default();
                let mut batch = Batch::new(index);
                let mut failed = Vec::new();
                while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = load(segment, &mut batch, &mut part) {
                        tracing::error!(file = %segment.path.display(), error = %e, "a segment could not be read");
                        failed.push((segment.path.clone(), segment.bytes()));
                    }
                }
                let mut total = lock(&total);
                total.0.merge(part);
                total.1.extend(failed);
            });
        }
    });
    let (mut loaded, failed) = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    loaded.segments.sort_by_key(|segment| segment.number);
    loaded.with_notes.sort_by_key(|segment| segment.number);
    loaded.ledgers.sort_by_key(|(segment, _)| *segment);
    (loaded, failed)
}

impl Loaded {
    fn merge(&mut self, mut part: Loaded) {
        self.segments.append(&mut part.segments);
        self.records.reserve_exact(part.records.len());
        self.records.append(&mut part.records);
        self.ledgers.append(&mut part.ledgers);
        self.with_notes.append(&mut part.with_notes);
    }
}

fn load(segment: &Arc<Segment>, batch: &mut Batch<'_>, loaded: &mut Loaded) -> io::Result<()> {
    let file = File::open(&segment.path)?;
    let contents = match segment.footer(&file)? {
        Some(contents) => contents,
        None => recover(segment, &file)?,
    };
    for record in &contents.records {
        let mut addr = record.addr;
        for chunk in contents.chunks_of(record) {
            batch.insert(chunk.key, addr);
            addr += u64::from(chunk.len);
        }
        loaded.records.push(Record::new(record.addr, segment.number, record.position, record.len, 0));
    }
    if !contents.notes.is_empty() {
        loaded.with_notes.push(Arc::clone(segment));
    }
    loaded.ledgers.extend(contents.ledgers.into_iter().map(|entry| (segment.number, entry)));
    loaded.segments.push(Arc::clone(segment));
    Ok(())
}

/// Reads a segment that has no good footer, up to its first bad frame, and gives it a footer.
fn recover(segment: &Arc<Segment>, file: &File) -> io::Result<crate::footer::Contents> {
    let scan = segment.scan(file)?;
    let lost = segment.bytes().saturating_sub(scan.end);
    tracing::info!(file = %segment.path.display(), records = scan.contents.records.len(), end = scan.end, lost,
        "a segment without a footer was read frame by frame");
    if let Err(e) = segment.reseal(&scan) {
        // It is read in the same way at the next opening.
        tracing::warn!(file = %segment.path.display(), error = %e, "a segment could not be given its footer");
    }
    Ok(scan.contents)
}
