//! The notes of the time before, in the order in which they were written.

use crate::segment::Segment;
use crate::shared::Shared;
use crate::sync::lock;
use bytes::Bytes;
use isthmus_reduction::content::LedgerId;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::vec;

/// Iterates over the notes that are still stored, oldest first. Holds the notes of one segment (about 1 MiB) at a time.
///
/// Keeps the store locked, so drop it before the store is to be opened again.
pub struct Replay {
    shared: Arc<Shared>,
    segments: VecDeque<Arc<Segment>>,
    notes: vec::IntoIter<(LedgerId, Bytes)>,
}

impl Replay {
    pub(crate) fn new(shared: Arc<Shared>, segments: VecDeque<Arc<Segment>>) -> Replay {
        Replay { shared, segments, notes: Vec::new().into_iter() }
    }

    /// Ledger numbers are each segment's own; the pair of peer and domain tells which ledger is meant.
    fn notes_of(&self, segment: &Arc<Segment>) -> io::Result<Vec<(LedgerId, Bytes)>> {
        let contents = self.shared.files.open(segment).and_then(|file| segment.contents(&file))?;
        let ledgers = lock(&self.shared.ledgers);
        let numbers: HashMap<u32, LedgerId> = contents
            .ledgers
            .iter()
            .filter_map(|entry| Some((entry.number, ledgers.find(entry.peer, &entry.domain)?)))
            .collect();
        let notes = contents.notes.into_iter();
        Ok(notes.filter_map(|note| Some((*numbers.get(&note.ledger)?, Bytes::from(note.note)))).collect())
    }
}

impl Iterator for Replay {
    type Item = (LedgerId, Bytes);

    fn next(&mut self) -> Option<(LedgerId, Bytes)> {
        loop {
            if let Some(note) = self.notes.next() {
                return Some(note);
            }
            let segment = self.segments.pop_front()?;
            match self.notes_of(&segment) {
                Ok(notes) => self.notes = notes.into_iter(),
                // It was dropped to keep the size cap since the opening; its notes went with it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(file = %segment.path.display(), error = %e, "notes could not be read");
                }
            }
        }
    }
}
