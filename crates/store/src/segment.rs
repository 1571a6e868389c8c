//! A segment file as it is read: its header, its footer, its frames in turn, and single payloads.

use crate::error::{FormatError, OpenError};
use crate::footer::{Contents, FooterBuilder, NoteEntry, RecordEntry, take_ledger, take_table};
use crate::format::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HEADER_LEN, HeaderError, SegmentHeader, TRAILER_LEN, Trailer,
    VERSION,
};
use crate::frame::{self, unit_of};
use crate::key::{StoreKey, fill_random};
use crate::seal::{Place, Sealer, Unit};
use crate::sync::lock;
use isthmus_reduction::content::ChunkMeta;
use isthmus_types::varint;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Segment files that are kept open for reading.
const OPEN_FILES_MAX: usize = 64;

/// Name of a segment's file.
pub(crate) fn file_name(number: u32) -> String {
    format!("{number:08}.seg")
}

/// Number of the segment whose file has this name.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg")?;
    let number = digits.parse().ok().filter(|&number| number > 0)?;
    (file_name(number) == name).then_some(number)
}

/// Reads and checks a segment file's header.
pub(crate) fn read_header(path: &Path, file: &File) -> Result<SegmentHeader, OpenError> {
    let mut bytes = [0; HEADER_LEN];
    let mut len = 0;
    while len < HEADER_LEN {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(OpenError::io(path)(e)),
        }
    }
    let header = SegmentHeader::decode(&bytes[..len]).map_err(|e| match e {
        HeaderError::Version(found) => OpenError::Version { file: path.to_owned(), found, known: VERSION },
        HeaderError::Bad(offset, what) => FormatError { file: path.to_owned(), offset, what }.into(),
    })?;
    let named = path.file_name().and_then(|name| number_of(name.to_str()?));
    if named != Some(header.number) {
        let what = "the segment number is not that of the file's name";
        return Err(FormatError { file: path.to_owned(), offset: 12, what }.into());
    }
    Ok(header)
}

/// Why a payload could not be read.
#[derive(Debug)]
pub(crate) enum ReadFault {
    Corrupt,
    /// The segment's file is not there (any more).
    Missing,
    Io(io::Error),
}

/// A segment that the store knows.
#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u32,
    pub span: u32,
    pub created_s: u64,
    pub path: PathBuf,
    pub sealer: Sealer,
    /// Length of the file.
    pub bytes: AtomicU64,
    /// Value of the store's use counter when the segment was last used.
    pub last_use: AtomicU64,
    /// `last_use` as the catalogue has it.
    pub saved_use: AtomicU64,
    pub pins: AtomicU32,
    /// Payload bytes of its records that are set aside.
    pub set_aside: AtomicU64,
    handle: Mutex<Option<Arc<File>>>,
}

impl Segment {
    /// `None` if the data key cannot be had: not wrapped by this key, or damaged.
    pub fn new(path: PathBuf, header: &SegmentHeader, bytes: u64, key: Option<&StoreKey>) -> Option<Segment> {
        let sealer = if header.encrypted {
            let key = key?;
            let data_key = key.unwrap(&header.slot(key.id())?.wrapped, &header.fixed())?;
            Sealer::encrypted(header.number, &data_key)?
        } else {
            Sealer::plain(header.number)
        };
        Some(Segment {
            number: header.number,
            span: header.span,
            created_s: header.created_s,
            path,
            sealer,
            bytes: AtomicU64::new(bytes),
            last_use: AtomicU64::new(0),
            saved_use: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            set_aside: AtomicU64::new(0),
            handle: Mutex::new(None),
        })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether most of it is set aside: room that serves nothing.
    pub fn is_mostly_damaged(&self) -> bool {
        self.set_aside.load(Ordering::Relaxed) > self.bytes() / 2
    }

    /// Reads and opens the payload of `len` bytes at `position` into the start of `buf`, which has room for the check.
    pub fn read_payload(
        self: &Arc<Self>,
        files: &OpenFiles,
        (addr, position, len): (u64, u32, u32),
        buf: &mut [u8],
    ) -> Result<(), ReadFault> {
        let file = files.open(self).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => ReadFault::Missing,
            _ => ReadFault::Io(e),
        })?;
        let unit = &mut buf[..len as usize + self.sealer.check_len()];
        file.read_exact_at(unit, u64::from(position)).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ReadFault::Corrupt,
            _ => ReadFault::Io(e),
        })?;
        let place = Place { unit: Unit::Payload, position: u64::from(position), label: addr };
        match self.sealer.open(place, unit) {
            Some(found) if found == len as usize => Ok(()),
            _ => Err(ReadFault::Corrupt),
        }
    }

    /// What the segment holds: by its footer, or if it has no good one by reading every frame.
    pub fn contents(&self, file: &File) -> io::Result<Contents> {
        match self.footer(file)? {
            Some(contents) => Ok(contents),
            None => Ok(self.scan(file)?.contents),
        }
    }

    /// What the footer says. `None` if there is no good footer.
    pub fn footer(&self, file: &File) -> io::Result<Option<Contents>> {
        let file_len = file.metadata()?.len();
        let Some(trailer_at) = file_len.checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
        let mut trailer = [0; TRAILER_LEN];
        file.read_exact_at(&mut trailer, trailer_at)?;
        let Some(trailer) = Trailer::decode(&trailer, self.number, file_len) else { return Ok(None) };
        let mut bytes = vec![0; trailer.footer_len as usize];
        file.read_exact_at(&mut bytes, trailer.footer_position)?;
        Ok(self.open_footer(&mut bytes, trailer.footer_position))
    }

    /// Reads frame after frame up to the first that is not whole and good, or to the footer.
    pub fn scan(&self, file: &File) -> io::Result<Scan> {
        self.scan_with(file, |_, _, _| {})
    }

    /// As [`Segment::scan`]; `visit` is called with each record, its chunks and its payload.
    pub fn scan_with(
        &self,
        file: &File,
        mut visit: impl FnMut(&RecordEntry, &[ChunkMeta], &[u8]),
    ) -> io::Result<Scan> {
        let file_len = file.metadata()?.len();
        let mut scan = Scan { contents: Contents::default(), end: HEADER_LEN as u64 };
        let mut buf = Vec::new();
        while let Some(header) = self.read_frame(file, file_len, scan.end, &mut buf)? {
            if self.take_frame(&header, scan.end, &mut buf, &mut scan.contents).is_none() {
                break;
            }
            if header.kind == FrameKind::Record
                && let Some(record) = scan.contents.records.last()
            {
                let payload = &buf[header.table_len as usize..][..record.len as usize];
                visit(record, scan.contents.chunks_of(record), payload);
            }
            scan.end += header.frame_len();
        }
        Ok(scan)
    }

    /// Reads the frame at `position` into `buf`, header left out. `None` if there is no whole one.
    pub fn read_frame(
        &self,
        file: &File,
        file_len: u64,
        position: u64,
        buf: &mut Vec<u8>,
    ) -> io::Result<Option<FrameHeader>> {
        let mut bytes = [0; FRAME_HEADER_LEN];
        if position + FRAME_HEADER_LEN as u64 > file_len {
            return Ok(None);
        }
        file.read_exact_at(&mut bytes, position)?;
        let Some(header) = FrameHeader::decode(&bytes, self.number, position) else { return Ok(None) };
        if position + header.frame_len() > file_len {
            return Ok(None);
        }
        buf.resize((header.frame_len() as usize) - FRAME_HEADER_LEN, 0);
        file.read_exact_at(buf, position + FRAME_HEADER_LEN as u64)?;
        Ok(Some(header))
    }

    /// Cuts the file at `scan.end` and writes a new footer there. The cut part's places are not written again but by the
    /// footer, whose nonce is random.
    pub fn reseal(&self, scan: &Scan) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        if file.metadata()?.len() != scan.end {
            file.set_len(scan.end)?;
        }
        self.bytes.store(scan.end, Ordering::Relaxed);
        let mut builder = FooterBuilder::new();
        for record in &scan.contents.records {
            builder.record(record.addr, record.position, record.len, scan.contents.chunks_of(record));
        }
        scan.contents.ledgers.iter().for_each(|ledger| builder.ledger(ledger));
        scan.contents.notes.iter().for_each(|note| builder.note(note.ledger, &note.note));
        self.write_footer(&file, scan.end, &builder, &mut Vec::new())?;
        file.sync_data()
    }

    /// Writes footer and trailer at `end`, and sets the segment's length.
    pub fn write_footer(
        &self,
        file: &File,
        end: u64,
        builder: &FooterBuilder,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut salt = [0; 8];
        fill_random(&mut salt).map_err(io::Error::other)?;
        let at = (&self.sealer, self.number, end);
        frame::footer(scratch, at, u64::from_le_bytes(salt), builder)
            .ok_or_else(|| io::Error::other("the footer could not be sealed"))?;
        if let Err(e) = file.write_all_at(scratch, end) {
            let _ = file.set_len(end);
            return Err(e);
        }
        self.bytes.store(end + scratch.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Opens one frame's units and takes what they hold into `contents`. `None` if it fails a check, or is the footer.
    fn take_frame(
        &self,
        header: &FrameHeader,
        position: u64,
        buf: &mut [u8],
        contents: &mut Contents,
    ) -> Option<()> {
        let table_at = position + FRAME_HEADER_LEN as u64;
        if header.kind == FrameKind::Record {
            let (table, payload) = buf.split_at_mut(header.table_len as usize);
            let body_at = table_at + table.len() as u64;
            let place = Place { unit: Unit::Table, position: table_at, label: header.label };
            let table_len = self.sealer.open(place, table)?;
            let place = Place { unit: Unit::Payload, position: body_at, label: header.label };
            let len = u32::try_from(self.sealer.open(place, payload)?).ok().filter(|&len| len > 0)?;
            let start = contents.chunks.len();
            let Some(chunks) = take_table(&table[..table_len], len, &mut contents.chunks) else {
                contents.chunks.truncate(start);
                return None;
            };
            let position = u32::try_from(body_at).ok()?;
            contents.records.push(RecordEntry { addr: header.label, position, len, chunks });
            return Some(());
        }
        let place = Place { unit: unit_of(header.kind), position: table_at, label: header.label };
        let len = self.sealer.open(place, buf)?;
        let mut body = &buf[..len];
        match header.kind {
            FrameKind::Ledger => contents.ledgers.push(take_ledger(&mut body)?),
            FrameKind::Note => {
                let ledger = u32::try_from(varint::take(&mut body)?).ok()?;
                contents.notes.push(NoteEntry { ledger, note: body.to_vec() });
            }
            FrameKind::Footer | FrameKind::Record => return None,
        }
        Some(())
    }

    fn open_footer(&self, bytes: &mut [u8], position: u64) -> Option<Contents> {
        let header = FrameHeader::decode(bytes, self.number, position)?;
        if header.kind != FrameKind::Footer || header.frame_len() != bytes.len() as u64 {
            return None;
        }
        let body = &mut bytes[FRAME_HEADER_LEN..];
        let place =
            Place { unit: Unit::Footer, position: position + FRAME_HEADER_LEN as u64, label: header.label };
        let len = self.sealer.open(place, body)?;
        let contents = Contents::decode(&body[..len])?;
        let inside = |r: &RecordEntry| u64::from(r.position) + u64::from(r.len) <= position;
        contents.records.iter().all(inside).then_some(contents)
    }
}

/// What reading a segment frame by frame found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub contents: Contents,
    /// End of the last good frame.
    pub end: u64,
}

/// The segment files kept open for reading, oldest first; at most [`OPEN_FILES_MAX`].
#[derive(Default)]
pub(crate) struct OpenFiles {
    open: Mutex<VecDeque<Arc<Segment>>>,
}

impl OpenFiles {
    pub fn open(&self, segment: &Arc<Segment>) -> io::Result<Arc<File>> {
        if let Some(file) = lock(&segment.handle).as_ref() {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(&segment.path)?);
        self.keep(segment, Arc::clone(&file));
        Ok(file)
    }

    /// Keeps an open file of a segment for its readers.
    pub fn keep(&self, segment: &Arc<Segment>, file: Arc<File>) {
        let mut open = lock(&self.open);
        if lock(&segment.handle).replace(file).is_none() {
            open.push_back(Arc::clone(segment));
        }
        while open.len() > OPEN_FILES_MAX {
            if let Some(oldest) = open.pop_front() {
                lock(&oldest.handle).take();
            }
        }
    }

    /// Closes a segment's file, so that its space is free once it is removed and its readers are done.
    pub fn close(&self, segment: &Segment) {
        let mut open = lock(&self.open);
        open.retain(|kept| kept.number != segment.number);
        lock(&segment.handle).take();
    }
}
