//! Opening a store: everything is looked at first, and changed only once nothing stands against it.

use crate::cache::{Cache, Pool};
use crate::catalogue::{self, Catalogue};
use crate::config::Config;
use crate::dir::{self, Found, SEGMENTS_DIR, Survey};
use crate::error::OpenError;
use crate::footer::LedgerEntry;
use crate::format::{HEADER_LEN, SEGMENT_BYTES_MAX, SegmentHeader};
use crate::identity::{Identity, Machine};
use crate::index::Index;
use crate::key::{StoreKey, fill_random};
use crate::ledgers::Ledgers;
use crate::load::{Loaded, load_all};
use crate::replay::Replay;
use crate::segment::{OpenFiles, Segment};
use crate::shared::{Counters, Learning, Shared};
use crate::table::Table;
use crate::writer::Writer;
use isthmus_reduction::content::LedgerId;
use isthmus_types::{Domain, StoreId};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

pub(crate) fn open(config: Config) -> Result<(Arc<Shared>, Replay), OpenError> {
    config.validate()?;
    dir::create(&config.dir)?;
    let dir_lock = dir::lock_dir(&config.dir)?;
    let known = dir::load_identity(&config.dir)?;
    let survey = Survey::of(&config.dir)?;
    survey.check_key(&config.dir, known.as_ref(), config.key.as_ref())?;

    // From here on the directory may be changed.
    let had_catalogue = config.dir.join(catalogue::DIR_NAME).exists();
    let alarm = Arc::default();
    let catalogue = Catalogue::open(&config.dir, &alarm)?;
    let next_segment = survey.last_number() + 1;
    let next_addr = next_addr(&survey, known.as_ref(), &catalogue);
    let is_wiped = survey.segments.is_empty() && (!had_catalogue || !catalogue.last_uses().is_empty());
    let identity = settle_identity(&config, known, is_wiped, next_segment, next_addr)?;
    let (segments, mut aside) = usable(survey, &catalogue, config.key.as_ref())?;

    let index = new_index()?;
    let (loaded, unreadable) = load_all(segments, &index);
    aside.extend(unreadable);
    let last_use = restore_uses(&loaded.segments, &catalogue);
    let ledgers = restore_ledgers(&catalogue, &loaded.ledgers, identity.first_segment);
    let sealed_bytes = loaded.segments.iter().map(|segment| segment.bytes()).sum::<u64>()
        + aside.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let with_notes =
        loaded.with_notes.iter().filter(|s| s.number >= identity.first_segment).cloned().collect();
    let table = build_table(loaded, &catalogue);
    let shared = Arc::new(Shared {
        segments_dir: config.dir.join(SEGMENTS_DIR),
        cap_bytes: config.cap_bytes,
        segment_bytes: config.segment_bytes(),
        free_floor_bytes: config.free_floor_bytes,
        encrypt: config.encrypt,
        key: config.key,
        disk: config.disk,
        identity,
        catalogue,
        catalogue_bytes: AtomicU64::new(0),
        index,
        counters: Counters {
            quarantine_len: AtomicU64::new(table.quarantined() as u64),
            ..Counters::default()
        },
        table: RwLock::new(table),
        cache: Cache::new(config.cache_bytes),
        pool: Arc::new(Pool::default()),
        files: OpenFiles::default(),
        ledgers: Mutex::new(ledgers),
        writer: Mutex::new(Writer::new(next_segment, next_addr, sealed_bytes, aside)),
        learning: AtomicU8::new(Learning::On as u8),
        use_clock: AtomicU64::new(last_use),
        epoch: AtomicU8::new(0),
        durable: AtomicU64::new(next_addr),
        flushing: Mutex::new(()),
        flush_failed: AtomicBool::new(false),
        alarm,
        dir: config.dir,
        _lock: dir_lock,
    });
    shared.watch(false);
    Ok((Arc::clone(&shared), Replay::new(shared, with_notes)))
}

fn new_index() -> Result<Index, OpenError> {
    let mut salt = [0; 8];
    fill_random(&mut salt)?;
    Ok(Index::new(u64::from_le_bytes(salt)))
}

/// The identity to go on with, one generation further, already on disk.
fn settle_identity(
    config: &Config,
    known: Option<Identity>,
    is_wiped: bool,
    next_segment: u32,
    next_addr: u64,
) -> Result<Identity, OpenError> {
    let dir = &config.dir;
    let machine = config.machine.clone().unwrap_or_else(|| Machine::here(dir));
    let mut identity = match known {
        Some(known) if !known.is_bound_to(&machine) => {
            let new = Identity::new(&machine, next_segment)?;
            tracing::warn!(dir = %dir.display(), old = %known.id, new = %new.id,
                "the store was copied from another machine or directory and takes a new identity; \
                 its content stays, what was noted about peers is dropped");
            new
        }
        Some(known) if is_wiped && known.generation > 0 => {
            let new = Identity::new(&machine, next_segment)?;
            tracing::warn!(dir = %dir.display(), old = %known.id, new = %new.id,
                "the store's segments were removed and it takes a new identity");
            new
        }
        Some(known) => known,
        None => Identity::new(&machine, next_segment)?,
    };
    identity.learn(&machine);
    identity.generation += 1;
    identity.address_floor = next_addr;
    identity.key = config.key.as_ref().map(StoreKey::id);
    identity.save(dir)?;
    Ok(identity)
}

/// The first address that has never been given out. A segment's header tells how far it may have used addresses up, even
/// if the records were lost.
fn next_addr(survey: &Survey, identity: Option<&Identity>, catalogue: &Catalogue) -> u64 {
    let mut next = identity.map_or(0, |identity| identity.address_floor);
    for found in &survey.segments {
        let saved = || SegmentHeader::decode(&catalogue.header(found.number)?).ok();
        next = match found.header.clone().ok().or_else(saved) {
            Some(header) => next.max(header.base + u64::from(header.span)),
            None => next + u64::from(SEGMENT_BYTES_MAX),
        };
    }
    next
}

/// A file set aside and its length.
type Aside = (PathBuf, u64);

/// The segments that can be read, and the files that cannot, which are set aside.
fn usable(
    survey: Survey,
    catalogue: &Catalogue,
    key: Option<&StoreKey>,
) -> Result<(Vec<Arc<Segment>>, Vec<Aside>), OpenError> {
    let (mut segments, mut aside) = (Vec::new(), survey.aside);
    for found in survey.segments {
        let segment = match &found.header {
            Ok(header) => Segment::new(found.path.clone(), header, found.bytes, key)
                .inspect(|_| drop_foreign_slots(&found.path, header, key)),
            Err(e) => {
                tracing::warn!(error = %e, "a segment's header is damaged");
                None
            }
        };
        if let Some(segment) = segment.or_else(|| restored(&found, catalogue, key)) {
            segments.push(Arc::new(segment));
        } else if found.bytes <= HEADER_LEN as u64 {
            // The process ended while it made this file; nothing was in it yet.
            fs::remove_file(&found.path).map_err(OpenError::io(&found.path))?;
        } else {
            tracing::error!(file = %found.path.display(), "a segment cannot be read and is set aside");
            aside.push((dir::set_aside(&found.path)?, found.bytes));
        }
    }
    Ok((segments, aside))
}

/// A segment whose header is damaged but was saved in the catalogue; the header is written again.
pub(crate) fn restored(found: &Found, catalogue: &Catalogue, key: Option<&StoreKey>) -> Option<Segment> {
    let bytes = catalogue.header(found.number)?;
    let header = SegmentHeader::decode(&bytes).ok().filter(|header| header.number == found.number)?;
    if found.bytes < HEADER_LEN as u64 {
        return None;
    }
    let segment = Segment::new(found.path.clone(), &header, found.bytes, key)?;
    write_header(&found.path, &header).ok()?;
    tracing::info!(file = %found.path.display(), "a segment's header was restored from the catalogue");
    Some(segment)
}

/// Clears what a change of the store key that was interrupted has left.
fn drop_foreign_slots(path: &Path, header: &SegmentHeader, key: Option<&StoreKey>) {
    let Some(key) = key.map(StoreKey::id).filter(|_| header.encrypted) else { return };
    if header.slots.iter().flatten().all(|slot| slot.key == key) {
        return;
    }
    let slots = header.slots.map(|slot| slot.filter(|slot| slot.key == key));
    if let Err(e) = write_header(path, &SegmentHeader { slots, ..header.clone() }) {
        tracing::warn!(file = %path.display(), error = %e, "an old wrapped key could not be cleared");
    }
}

/// Writes a segment's header again, in place.
pub(crate) fn write_header(path: &Path, header: &SegmentHeader) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&header.encode(), 0)?;
    file.sync_data()
}

/// Sets each segment's last use as the catalogue has it; one that it lacks is as recent as the one before it. Returns the
/// latest.
fn restore_uses(segments: &[Arc<Segment>], catalogue: &Catalogue) -> u64 {
    let saved = catalogue.last_uses();
    let mut latest = 0;
    for segment in segments {
        let last_use = saved.get(&segment.number).copied().unwrap_or(latest);
        segment.last_use.store(last_use, Ordering::Relaxed);
        segment.saved_use.store(last_use, Ordering::Relaxed);
        latest = latest.max(last_use);
    }
    let known: HashSet<u32> = segments.iter().map(|segment| segment.number).collect();
    saved
        .keys()
        .filter(|number| !known.contains(number))
        .for_each(|&number| catalogue.remove_segment(number));
    latest
}

/// The ledgers that segments of this identity still have notes of; by the catalogue's numbers where it has them.
fn restore_ledgers(catalogue: &Catalogue, declared: &[(u32, LedgerEntry)], first_segment: u32) -> Ledgers {
    let current = declared.iter().filter(|(segment, _)| *segment >= first_segment).map(|(_, entry)| entry);
    let in_use: HashSet<(StoreId, &Domain)> =
        current.clone().map(|entry| (entry.peer, &entry.domain)).collect();
    let mut ledgers = Ledgers::default();
    for (id, peer, domain) in catalogue.ledgers() {
        if in_use.contains(&(peer, &domain)) {
            ledgers.restore(id, peer, domain);
        } else {
            catalogue.remove_ledger(peer, &domain);
        }
    }
    for entry in current {
        if ledgers.find(entry.peer, &entry.domain).is_none() {
            ledgers.restore(LedgerId(entry.number), entry.peer, entry.domain.clone());
        }
        match ledgers.ensure(entry.peer, &entry.domain) {
            Ok((id, _)) => catalogue.save_ledger(id, entry.peer, &entry.domain),
            Err(e) => tracing::warn!(error = %e, "notes of a peer are dropped"),
        }
    }
    ledgers
}

fn build_table(loaded: Loaded, catalogue: &Catalogue) -> Table {
    let mut table = Table::default();
    table.segments = loaded.segments.into_iter().map(|segment| (segment.number, segment)).collect();
    table.load(loaded.records, &catalogue.quarantined());
    table
}
