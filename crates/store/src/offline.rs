//! What can be done with a store that no process has open: checking it, summing it up, changing its key, wiping it.

use crate::catalogue::{self, Catalogue};
use crate::dir::{self, Found, SEGMENTS_DIR, Survey};
use crate::error::{FormatError, OpenError};
use crate::footer::{Contents, RecordEntry};
use crate::format::{KeySlot, SegmentHeader};
use crate::identity;
use crate::key::StoreKey;
use crate::open::{restored, write_header};
use crate::segment::{OpenFiles, ReadFault, Scan, Segment};
use isthmus_reduction::content::{ChunkKey, ChunkMeta};
use isthmus_types::StoreId;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Damages that a report lists; more are only counted.
pub const DAMAGES_MAX: usize = 10_000;

/// What a check of the whole store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub segments: u64,
    /// Segments without a footer: the process that wrote them was killed. No damage.
    pub unsealed: u64,
    /// Records that were read and are good.
    pub records: u64,
    pub chunks: u64,
    pub notes: u64,
    /// Content bytes that were read and are good.
    pub bytes: u64,
    /// Records that had been set aside before.
    pub quarantined: u64,
    /// At most [`DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    pub damages_total: u64,
}

/// One place that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub at: FormatError,
    /// Whether it was repaired: set aside, cut off, or written again.
    pub repaired: bool,
}

/// A store in numbers, without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineStats {
    /// `None` if there is no readable identity file.
    pub identity: Option<StoreId>,
    pub generation: u64,
    pub segments: u64,
    pub encrypted_segments: u64,
    /// Segments that could not be read with the key given, or at all.
    pub unreadable_segments: u64,
    /// Bytes of all files in the store's directory.
    pub disk_bytes: u64,
    pub live_bytes: u64,
    pub records: u64,
    pub chunks: u64,
    pub notes: u64,
    /// Unix seconds at which the oldest segment was made.
    pub oldest_s: Option<u64>,
}

/// Reads every byte of the store and compares every chunk with its key. With `repair`, records that are damaged are set
/// aside, footers written again and torn ends cut off; no good content is given up.
pub fn check(dir: &Path, key: Option<&StoreKey>, repair: bool) -> Result<CheckReport, OpenError> {
    let _lock = dir::lock_dir(dir)?;
    let survey = Survey::of(dir)?;
    survey.check_key(dir, dir::load_identity(dir)?.as_ref(), key)?;
    let catalogue = Catalogue::open(dir, &Arc::default())?;
    let quarantined = catalogue.quarantined();
    let mut check = Check {
        report: CheckReport { quarantined: quarantined.len() as u64, ..CheckReport::default() },
        quarantined,
        files: OpenFiles::default(),
        catalogue,
        repair,
    };
    for found in &survey.segments {
        check.segment(found, key)?;
    }
    check.catalogue.flush();
    Ok(check.report)
}

/// Sums up the store. Segments that `key` does not open are counted but not looked into.
pub fn stats(dir: &Path, key: Option<&StoreKey>) -> Result<OfflineStats, OpenError> {
    let _lock = dir::lock_dir(dir)?;
    let identity = dir::load_identity(dir)?;
    let survey = Survey::of(dir)?;
    let mut stats = OfflineStats {
        identity: identity.as_ref().map(|identity| identity.id),
        generation: identity.as_ref().map_or(0, |identity| identity.generation),
        segments: survey.segments.len() as u64,
        encrypted_segments: survey.headers().filter(|header| header.encrypted).count() as u64,
        unreadable_segments: 0,
        disk_bytes: bytes_below(dir).map_err(OpenError::io(dir))?,
        live_bytes: 0,
        records: 0,
        chunks: 0,
        notes: 0,
        oldest_s: survey.headers().map(|header| header.created_s).min(),
    };
    for found in &survey.segments {
        let contents = found.header.as_ref().ok().and_then(|header| {
            let segment = Segment::new(found.path.clone(), header, found.bytes, key)?;
            segment.contents(&File::open(&found.path).ok()?).ok()
        });
        let Some(contents) = contents else {
            stats.unreadable_segments += 1;
            continue;
        };
        stats.records += contents.records.len() as u64;
        stats.chunks += contents.chunks.len() as u64;
        stats.notes += contents.notes.len() as u64;
        stats.live_bytes += contents.records.iter().map(|record| u64::from(record.len)).sum::<u64>();
    }
    Ok(stats)
}

/// Wraps the keys of all segments with `new` instead of `old`. The content is not touched. If this is interrupted, the
/// store opens with the old key or the new one, and it can be run again. Returns the number of segments changed.
pub fn rekey(dir: &Path, old: &StoreKey, new: &StoreKey) -> Result<u64, OpenError> {
    let _lock = dir::lock_dir(dir)?;
    let survey = Survey::of(dir)?;
    let mut identity = dir::load_identity(dir)?;
    survey.check_key(dir, identity.as_ref(), Some(old))?;
    if identity.as_ref().and_then(|identity| identity.key).is_some_and(|known| known != old.id()) {
        return Err(OpenError::WrongKey { dir: dir.to_owned() });
    }
    if old.id() == new.id() {
        return Ok(0);
    }
    // Both wrapped keys stand side by side until the identity file says that the new one counts.
    let mut changed = Vec::new();
    for found in &survey.segments {
        let Some(header) = found.header.as_ref().ok().filter(|header| header.encrypted) else { continue };
        let Some(header) = with_slot(header, old, new)? else {
            tracing::warn!(file = %found.path.display(), "the old key does not open this segment");
            continue;
        };
        write_header(&found.path, &header).map_err(OpenError::io(&found.path))?;
        changed.push((&found.path, header));
    }
    if let Some(identity) = &mut identity {
        identity.key = Some(new.id());
        identity.save(dir)?;
    }
    for (path, header) in &mut changed {
        header.slots = header.slots.map(|slot| slot.filter(|slot| slot.key == new.id()));
        write_header(path, header).map_err(OpenError::io(path))?;
    }
    save_headers(dir, &changed)?;
    Ok(changed.len() as u64)
}

/// Removes all content. The next opening makes a new store with a new identity.
pub fn wipe(dir: &Path) -> Result<(), OpenError> {
    let _lock = dir::lock_dir(dir)?;
    let gone = |path: PathBuf, outcome: io::Result<()>| match outcome {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(OpenError::io(&path)(e)),
        _ => Ok(()),
    };
    let path = dir.join(identity::FILE_NAME);
    gone(path.clone(), fs::remove_file(&path))?;
    for name in [SEGMENTS_DIR, catalogue::DIR_NAME] {
        let path = dir.join(name);
        gone(path.clone(), fs::remove_dir_all(&path))?;
    }
    Ok(())
}

struct Check {
    report: CheckReport,
    quarantined: Vec<(u64, u64)>,
    files: OpenFiles,
    catalogue: Catalogue,
    repair: bool,
}

impl Check {
    fn segment(&mut self, found: &Found, key: Option<&StoreKey>) -> Result<(), OpenError> {
        self.report.segments += 1;
        let path = &found.path;
        let opened = match &found.header {
            Ok(header) => Segment::new(path.clone(), header, found.bytes, key)
                .ok_or((64, "the segment's key does not open with the store key")),
            Err(e) => Err((e.offset, e.what)),
        };
        let segment = match opened {
            Ok(segment) => Arc::new(segment),
            Err((offset, what)) => {
                let repaired = self.repair
                    && (restored(found, &self.catalogue, key).is_some() || dir::set_aside(path).is_ok());
                self.damage(path, offset, what, repaired);
                return Ok(());
            }
        };
        let file = File::open(path).map_err(OpenError::io(path))?;
        let footer = segment.footer(&file).map_err(OpenError::io(path))?;
        let mut bad_chunks = Vec::new();
        let scan = segment.scan_with(&file, |record, chunks, payload| match mismatch(chunks, payload) {
            None => self.good(chunks.len(), payload.len()),
            Some(offset) => bad_chunks.push((record.clone(), offset)),
        });
        let scan = scan.map_err(OpenError::io(path))?;
        self.report.notes += scan.contents.notes.len() as u64;
        for (record, offset) in bad_chunks {
            self.bad_record(path, &record, offset, "a chunk is not the one its key names");
        }
        match footer {
            Some(footer) => self.rest_of(&segment, &scan, &footer),
            None => self.without_footer(&segment, &scan),
        }
        self.files.close(&segment);
        Ok(())
    }

    /// Looks at the records that the footer names beyond the place where reading frame by frame ended.
    fn rest_of(&mut self, segment: &Arc<Segment>, scan: &Scan, footer: &Contents) {
        let rest: Vec<_> = footer.records.iter().filter(|r| u64::from(r.position) >= scan.end).collect();
        let was_whole = rest.is_empty() && scan.contents.notes.len() == footer.notes.len();
        let mut found_bad = false;
        for record in rest {
            if self.quarantined.iter().any(|&(from, to)| from <= record.addr && record.addr < to) {
                found_bad = true;
                continue;
            }
            let mut buf = vec![0; record.len as usize + segment.sealer.check_len()];
            let place = (record.addr, record.position, record.len);
            match segment.read_payload(&self.files, place, &mut buf) {
                Ok(()) => match mismatch(footer.chunks_of(record), &buf[..record.len as usize]) {
                    None => self.good(footer.chunks_of(record).len(), record.len as usize),
                    Some(offset) => {
                        self.bad_record(
                            &segment.path,
                            record,
                            offset,
                            "a chunk is not the one its key names",
                        );
                    }
                },
                Err(ReadFault::Corrupt) => {
                    found_bad = true;
                    self.bad_record(&segment.path, record, 0, "a record fails its check");
                }
                Err(ReadFault::Missing | ReadFault::Io(_)) => {
                    self.damage(&segment.path, u64::from(record.position), "a record cannot be read", false);
                }
            }
        }
        if !was_whole && !found_bad {
            let what = "a frame is damaged; the footer has what it says";
            self.damage(&segment.path, scan.end, what, false);
        }
    }

    /// A segment that was never sealed, or whose footer is damaged, or that is damaged before it.
    fn without_footer(&mut self, segment: &Segment, scan: &Scan) {
        let whole = scan.end == segment.bytes();
        self.report.unsealed += u64::from(whole);
        let repaired = self.repair && segment.reseal(scan).is_ok();
        if !whole {
            let what = "there is no good footer, and no whole frame from here on";
            self.damage(&segment.path, scan.end, what, repaired);
        }
    }

    fn good(&mut self, chunks: usize, bytes: usize) {
        self.report.records += 1;
        self.report.chunks += chunks as u64;
        self.report.bytes += bytes as u64;
    }

    fn bad_record(&mut self, path: &Path, record: &RecordEntry, offset: usize, what: &'static str) {
        if self.repair {
            self.catalogue.quarantine(record.addr, record.addr + u64::from(record.len));
        }
        self.damage(path, u64::from(record.position) + offset as u64, what, self.repair);
    }

    fn damage(&mut self, file: &Path, offset: u64, what: &'static str, repaired: bool) {
        self.report.damages_total += 1;
        if self.report.damages.len() < DAMAGES_MAX {
            let at = FormatError { file: file.to_owned(), offset, what };
            self.report.damages.push(Damage { at, repaired });
        }
    }
}

/// Offset of the first chunk that does not have its key.
fn mismatch(chunks: &[ChunkMeta], payload: &[u8]) -> Option<usize> {
    let mut offset = 0;
    for chunk in chunks {
        let end = offset + chunk.len as usize;
        match payload.get(offset..end) {
            Some(content) if ChunkKey::of(content) == chunk.key => offset = end,
            _ => return Some(offset),
        }
    }
    None
}

/// The header with its data key wrapped by both keys. `None` if the old key does not open it.
fn with_slot(
    header: &SegmentHeader,
    old: &StoreKey,
    new: &StoreKey,
) -> Result<Option<SegmentHeader>, OpenError> {
    let Some(slot) = header.slot(old.id()).copied() else { return Ok(None) };
    let Some(data_key) = old.unwrap(&slot.wrapped, &header.fixed()) else { return Ok(None) };
    let wrapped = new.wrap(&data_key, &header.fixed())?;
    let new_slot = Some(KeySlot { key: new.id(), wrapped });
    // The old slot keeps its place, so a write that is cut short cannot lose it.
    let slots = if header.slots[0] == Some(slot) { [Some(slot), new_slot] } else { [new_slot, Some(slot)] };
    Ok(Some(SegmentHeader { slots, ..header.clone() }))
}

/// Replaces the catalogue's copies of headers, which still hold keys wrapped by the old key.
fn save_headers(dir: &Path, changed: &[(&PathBuf, SegmentHeader)]) -> Result<(), OpenError> {
    let catalogue = Catalogue::open(dir, &Arc::default())?;
    let uses = catalogue.last_uses();
    for (_, header) in changed {
        let last_use = uses.get(&header.number).copied().unwrap_or_default();
        catalogue.save_segment(header.number, last_use, Some(&header.encode()));
    }
    catalogue.flush();
    Ok(())
}

fn bytes_below(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        sum += if meta.is_dir() { bytes_below(&entry.path())? } else { meta.len() };
    }
    Ok(sum)
}
