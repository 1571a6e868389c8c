//! The write side: the active segment, sealing it, and starting the next one. All of it runs under the writer's lock.

use crate::footer::{FooterBuilder, put_ledger};
use crate::format::{ADDR_END, FRAME_HEADER_LEN, FrameKind, HEADER_LEN, KeySlot, SegmentHeader, TRAILER_LEN};
use crate::frame;
use crate::key::DataKey;
use crate::seal::CHECK_LEN_MAX;
use crate::segment::{Segment, file_name};
use crate::shared::{Learning, Shared};
use crate::sync::{lock, write};
use isthmus_reduction::content::{AppendError, ChunkMeta, LedgerId};
use isthmus_types::varint;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a segment with nothing in it, sealed, at most.
pub(crate) const EMPTY_SEGMENT_LEN_MAX: u64 =
    (HEADER_LEN + FRAME_HEADER_LEN + 12 + CHECK_LEN_MAX + TRAILER_LEN) as u64;
/// Chunks of one segment. A segment that has so many is sealed, so that its footer stays small.
const SEGMENT_CHUNKS_MAX: usize = 65_536;
/// Records of one segment.
const SEGMENT_RECORDS_MAX: usize = 16_384;
/// Bytes of notes in one segment: its footer repeats them, and they are in memory until it is sealed.
const SEGMENT_NOTE_BYTES_MAX: usize = 1 << 20;
/// Sealed segments that wait to be flushed; with more, the writer flushes itself.
const UNFLUSHED_MAX: usize = 8;
const FILE_MODE: u32 = 0o600;

/// State of the write side.
pub(crate) struct Writer {
    pub active: Option<Active>,
    pub next_segment: u32,
    pub next_addr: u64,
    /// Bytes of all segment files but the active one, those set aside included.
    pub sealed_bytes: u64,
    /// Unreadable files set aside, which go first when room is needed.
    pub aside: Vec<(PathBuf, u64)>,
    /// Files with bytes that are not flushed.
    pub unflushed: Vec<Arc<File>>,
    /// Bytes appended since uses were last halved.
    pub since_cooling: u64,
    scratch: Vec<u8>,
}

/// The segment that is being written.
pub(crate) struct Active {
    pub segment: Arc<Segment>,
    file: Arc<File>,
    end: u64,
    footer: FooterBuilder,
    declared: HashSet<LedgerId>,
    dirty: bool,
}

impl Active {
    /// Bytes of the segment's file, once sealed with what it holds now, at most.
    pub fn bytes_sealed(&self) -> u64 {
        self.end + frame::footer_len_max(&self.segment.sealer, &self.footer) as u64
    }

    fn is_full_for(&self, frame_len: usize, footer_len: usize) -> bool {
        self.bytes_sealed() + (frame_len + footer_len) as u64 > u64::from(self.segment.span)
            || self.footer.chunks() >= SEGMENT_CHUNKS_MAX
            || self.footer.records() >= SEGMENT_RECORDS_MAX
            || self.footer.note_bytes() >= SEGMENT_NOTE_BYTES_MAX
    }
}

impl Writer {
    pub fn new(next_segment: u32, next_addr: u64, sealed_bytes: u64, aside: Vec<(PathBuf, u64)>) -> Writer {
        Writer {
            active: None,
            next_segment,
            next_addr,
            sealed_bytes,
            aside,
            unflushed: Vec::new(),
            since_cooling: 0,
            scratch: Vec::new(),
        }
    }

    /// Bytes of all segment files, the active one as if it were sealed now.
    pub fn bytes(&self) -> u64 {
        self.sealed_bytes + self.active.as_ref().map_or(0, Active::bytes_sealed)
    }

    /// The files that must be flushed for all that was appended to be on disk.
    pub fn take_unflushed(&mut self) -> Vec<Arc<File>> {
        let mut files = std::mem::take(&mut self.unflushed);
        if let Some(active) = self.active.as_mut().filter(|active| active.dirty) {
            active.dirty = false;
            files.push(Arc::clone(&active.file));
        }
        files
    }
}

impl Shared {
    /// Writes a record at `addr`. Returns the number of its segment and the position of its payload.
    pub fn write_record(
        &self,
        writer: &mut Writer,
        addr: u64,
        chunks: &[ChunkMeta],
        payload: &[u8],
    ) -> Result<(u32, u32), AppendError> {
        let frame_len = FRAME_HEADER_LEN + payload.len() + chunks.len() * 11 + 2 * CHECK_LEN_MAX;
        self.ensure_active(writer, frame_len, FooterBuilder::record_len_max(chunks.len()))?;
        let Writer { active: Some(active), scratch, .. } = writer else { return Err(AppendError::Io) };
        let at = (&active.segment.sealer, active.segment.number, active.end);
        let position = frame::record(scratch, at, addr, chunks, payload).ok_or(AppendError::Io)? as u32;
        let number = active.segment.number;
        self.write_scratch(writer)?;
        if let Some(active) = writer.active.as_mut() {
            active.footer.record(addr, position, payload.len() as u32, chunks);
        }
        Ok((number, position))
    }

    /// Writes a note, and before it the ledger's declaration if the segment has none yet.
    pub fn write_note(&self, writer: &mut Writer, ledger: LedgerId, note: &[u8]) -> Result<(), AppendError> {
        let entry = lock(&self.ledgers).entry(ledger).ok_or(AppendError::BadRecord)?;
        let need = note.len() + entry.domain.0.len() + NOTE_OVERHEAD_MAX;
        self.ensure_active(writer, need, need)?;
        let Some(active) = writer.active.as_ref() else { return Err(AppendError::Io) };
        if !active.declared.contains(&ledger) {
            self.write_body(writer, FrameKind::Ledger, |out| put_ledger(out, &entry))?;
            if let Some(active) = writer.active.as_mut() {
                active.footer.ledger(&entry);
                active.declared.insert(ledger);
            }
        }
        self.write_body(writer, FrameKind::Note, |out| {
            varint::put(out, u64::from(ledger.0));
            out.extend_from_slice(note);
        })?;
        if let Some(active) = writer.active.as_mut() {
            active.footer.note(ledger.0, note);
        }
        Ok(())
    }

    /// Seals the active segment, if there is one: no more is written to it but its footer.
    pub fn seal_active(&self, writer: &mut Writer) {
        let Some(active) = writer.active.take() else { return };
        let Active { segment, file, end, footer, .. } = active;
        if let Err(e) = segment.write_footer(&file, end, &footer, &mut writer.scratch) {
            // It is read frame by frame at the next opening, and gets its footer then.
            tracing::warn!(segment = segment.number, error = %e, "a segment could not be given its footer");
            segment.bytes.store(file.metadata().map_or(end, |meta| meta.len()), Ordering::Relaxed);
        }
        writer.sealed_bytes += segment.bytes();
        writer.unflushed.push(file);
        self.alarm.ring();
        if writer.unflushed.len() > UNFLUSHED_MAX {
            let oldest = writer.unflushed.remove(0);
            if let Err(e) = oldest.sync_data() {
                self.flush_failed.store(true, Ordering::Relaxed);
                tracing::error!(dir = %self.dir.display(), error = %e, "a segment could not be flushed");
            }
        }
    }

    /// Takes note of a write that failed: learning stops, and the active segment ends, since what the failed write may
    /// have left on the disk used up its places.
    pub fn write_failed(&self, writer: &mut Writer, e: &io::Error) -> AppendError {
        let full = matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let why = if full { Learning::DiskFull } else { Learning::WriteFailed };
        if self.set_learning(why) {
            tracing::error!(dir = %self.dir.display(), error = %e, "the store stops learning and goes on serving");
        }
        if let Some(active) = &writer.active
            && let Err(e) = active.file.set_len(active.end)
        {
            tracing::warn!(segment = active.segment.number, error = %e, "a segment could not be cut");
        }
        self.seal_active(writer);
        if full { AppendError::NotLearning } else { AppendError::Io }
    }

    fn ensure_active(&self, writer: &mut Writer, frame: usize, footer: usize) -> Result<(), AppendError> {
        match &writer.active {
            Some(active) if !active.is_full_for(frame, footer) => return Ok(()),
            Some(_) => self.seal_active(writer),
            None => {}
        }
        let started = self.start_segment(writer.next_segment, writer.next_addr);
        // A number is used up even if the file could not be made, so that no file is ever taken for another.
        writer.next_segment += 1;
        match started {
            Ok((segment, file)) => {
                write(&self.table).segments.insert(segment.number, Arc::clone(&segment));
                writer.active = Some(Active {
                    segment,
                    file,
                    end: HEADER_LEN as u64,
                    footer: FooterBuilder::new(),
                    declared: HashSet::new(),
                    dirty: false,
                });
                Ok(())
            }
            Err(e) => Err(self.write_failed(writer, &e)),
        }
    }

    /// Makes the file of a new segment. Its header is on disk before this returns: it says which addresses are used up.
    fn start_segment(&self, number: u32, base: u64) -> io::Result<(Arc<Segment>, Arc<File>)> {
        if base >= ADDR_END || number == u32::MAX {
            return Err(io::Error::other("all addresses are used up"));
        }
        let mut header = SegmentHeader {
            encrypted: self.encrypt,
            number,
            base,
            created_s: crate::shared::unix_s(),
            span: self.segment_bytes,
            slots: [None, None],
        };
        if let Some(key) = self.key.as_ref().filter(|_| self.encrypt) {
            let data_key = DataKey::generate().map_err(io::Error::other)?;
            let wrapped = key.wrap(&data_key, &header.fixed()).map_err(io::Error::other)?;
            header.slots[0] = Some(KeySlot { key: key.id(), wrapped });
        }
        let bytes = header.encode();
        let path = self.segments_dir.join(file_name(number));
        let key = self.key.as_ref();
        let segment = Segment::new(path.clone(), &header, bytes.len() as u64, key)
            .ok_or_else(|| io::Error::other("the segment's key could not be wrapped"))?;
        self.disk.before_write(bytes.len() as u64)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        let written = file
            .write_all_at(&bytes, 0)
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(&self.segments_dir)?.sync_all());
        if let Err(e) = written {
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        segment.last_use.store(self.tick_use(), Ordering::Relaxed);
        self.catalogue.save_segment(number, segment.last_use.load(Ordering::Relaxed), Some(&bytes));
        let (segment, file) = (Arc::new(segment), Arc::new(file));
        self.files.keep(&segment, Arc::clone(&file));
        Ok((segment, file))
    }

    fn write_body(
        &self,
        writer: &mut Writer,
        kind: FrameKind,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), AppendError> {
        let Writer { active: Some(active), scratch, .. } = writer else { return Err(AppendError::Io) };
        let at = (&active.segment.sealer, active.segment.number, active.end);
        frame::body(scratch, at, (kind, 0), fill).ok_or(AppendError::Io)?;
        self.write_scratch(writer)
    }

    /// Writes the frame in `scratch` at the end of the active segment.
    fn write_scratch(&self, writer: &mut Writer) -> Result<(), AppendError> {
        let Writer { active: Some(active), scratch, .. } = writer else { return Err(AppendError::Io) };
        let len = scratch.len() as u64;
        let outcome =
            self.disk.before_write(len).and_then(|()| active.file.write_all_at(scratch, active.end));
        if let Err(e) = outcome {
            return Err(self.write_failed(writer, &e));
        }
        active.end += len;
        active.dirty = true;
        self.alarm.ring();
        active.segment.bytes.store(active.end, Ordering::Relaxed);
        active.segment.last_use.store(self.tick_use(), Ordering::Relaxed);
        writer.since_cooling += len;
        Ok(())
    }
}

/// Bytes that a note and its ledger's declaration add to the note and the domain, in frames or in the footer, at most.
pub(crate) const NOTE_OVERHEAD_MAX: usize = 2 * (FRAME_HEADER_LEN + CHECK_LEN_MAX) + 16 + 4 * varint::LEN_MAX;
