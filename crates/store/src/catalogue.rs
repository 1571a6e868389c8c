//! The catalogue: a small sled database of what is worth keeping but can be lost. Losing it costs warmth at most.

use crate::alarm::Alarm;
use crate::error::OpenError;
use isthmus_reduction::content::LedgerId;
use isthmus_types::{Domain, StoreId};
use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// Name of the catalogue's folder in the store's directory.
pub(crate) const DIR_NAME: &str = "catalogue";
/// Memory that sled may use for its page cache.
const CACHE_BYTES: u64 = 1 << 20;
/// How often sled looks by itself whether there is something to flush or to clean up. What is written is flushed by
/// [`Catalogue::flush_changes`], soon after.
const FLUSH_MS: u64 = 10_000;
/// How late sled's threads may find that there is nothing to do: each would look once a second otherwise.
const TIMER_SLACK: Duration = Duration::from_secs(60);
/// A database that was closed a moment ago is locked until the last thread of sled lets go of it: it is tried so often,
const OPEN_TRIES: u32 = 40;
/// and after so long again.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Longest key or value that the application may keep here.
pub const VALUE_LEN_MAX: usize = 64 << 10;
/// Most values that the application may keep here.
pub const VALUES_MAX: usize = 4096;
/// Most samples of the statistics history; beyond them the oldest go.
pub const HISTORY_MAX: usize = 11_000;
/// Longest sample of the statistics history.
pub const SAMPLE_LEN_MAX: usize = 512;

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// Why the catalogue did not do what was asked.
#[derive(Debug, Error)]
pub enum CatalogueError {
    #[error("a key or value is too long, or there are too many")]
    TooLarge,
    #[error("the catalogue's database: {0}")]
    Database(#[from] sled::Error),
}

pub(crate) struct Catalogue {
    db: sled::Db,
    segments: sled::Tree,
    ledgers: sled::Tree,
    quarantine: sled::Tree,
    history: sled::Tree,
    values: sled::Tree,
    /// Something has been written since it was flushed last.
    dirty: AtomicBool,
    /// Rung then.
    alarm: Arc<Alarm>,
}

impl Catalogue {
    /// Opens the catalogue, which rings when there is something to flush. One that cannot be opened is removed and made
    /// anew.
    pub fn open(dir: &Path, alarm: &Arc<Alarm>) -> Result<Catalogue, OpenError> {
        let path = dir.join(DIR_NAME);
        let make =
            || DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(OpenError::io(&path));
        make()?;
        let first = match open_at(&path, alarm) {
            Ok(catalogue) => return Ok(catalogue),
            Err(what) => what,
        };
        tracing::warn!(reason = %first, "the store's catalogue cannot be opened and is made anew");
        fs::remove_dir_all(&path).map_err(OpenError::io(&path))?;
        make()?;
        open_at(&path, alarm).map_err(|what| OpenError::Catalogue { dir: dir.to_owned(), what })
    }

    /// Each segment's last use, as it was saved.
    pub fn last_uses(&self) -> HashMap<u32, u64> {
        let rows = self.segments.iter().filter_map(Result::ok);
        rows.filter_map(|(key, value)| Some((be_u32(&key)?, be_u64(value.get(..8)?)?))).collect()
    }

    /// Saves a segment's last use, and a copy of its header.
    pub fn save_segment(&self, number: u32, last_use: u64, header: Option<&[u8]>) {
        let key = number.to_be_bytes();
        let outcome = self.segments.fetch_and_update(key, |old| {
            let old_header = old.and_then(|old| old.get(8..)).unwrap_or_default();
            Some([&last_use.to_be_bytes()[..], header.unwrap_or(old_header)].concat())
        });
        self.note("segment", outcome.map(drop));
    }

    pub fn remove_segment(&self, number: u32) {
        self.note("segment", self.segments.remove(number.to_be_bytes()).map(drop));
    }

    /// The copy of a segment's header, if one was saved.
    pub fn header(&self, number: u32) -> Option<Vec<u8>> {
        let row = self.segments.get(number.to_be_bytes()).ok()??;
        row.get(8..).filter(|header| !header.is_empty()).map(<[u8]>::to_vec)
    }

    pub fn ledgers(&self) -> Vec<(LedgerId, StoreId, Domain)> {
        let rows = self.ledgers.iter().filter_map(Result::ok);
        rows.filter_map(|(key, value)| {
            let (peer, domain) = key.split_first_chunk::<16>()?;
            let domain = String::from_utf8(domain.to_vec()).ok()?;
            Some((LedgerId(be_u32(&value)?), StoreId(*peer), Domain(domain)))
        })
        .collect()
    }

    pub fn save_ledger(&self, id: LedgerId, peer: StoreId, domain: &Domain) {
        let outcome = self.ledgers.insert(ledger_key(peer, domain), &id.0.to_be_bytes());
        self.note("ledger", outcome.map(drop));
    }

    pub fn remove_ledger(&self, peer: StoreId, domain: &Domain) {
        self.note("ledger", self.ledgers.remove(ledger_key(peer, domain)).map(drop));
    }

    /// Address ranges set aside: from, end.
    pub fn quarantined(&self) -> Vec<(u64, u64)> {
        let rows = self.quarantine.iter().filter_map(Result::ok);
        rows.filter_map(|(key, value)| Some((be_u64(&key)?, be_u64(&value)?))).collect()
    }

    pub fn quarantine(&self, addr: u64, end: u64) {
        let outcome = self.quarantine.insert(addr.to_be_bytes(), &end.to_be_bytes());
        self.note("quarantine", outcome.map(drop));
    }

    pub fn release(&self, addr: u64) {
        self.note("quarantine", self.quarantine.remove(addr.to_be_bytes()).map(drop));
    }

    /// Adds a sample to the statistics history.
    pub fn add_sample(&self, unix_s: u64, sample: &[u8]) -> Result<(), CatalogueError> {
        if sample.len() > SAMPLE_LEN_MAX {
            return Err(CatalogueError::TooLarge);
        }
        self.history.insert(unix_s.to_be_bytes(), sample)?;
        while self.history.len() > HISTORY_MAX {
            self.history.pop_min()?;
        }
        self.changed();
        Ok(())
    }

    /// The samples from `from_s` on, oldest first.
    pub fn samples(&self, from_s: u64) -> Result<Vec<(u64, Vec<u8>)>, CatalogueError> {
        let mut samples = Vec::new();
        for row in self.history.range(from_s.to_be_bytes()..) {
            let (key, value) = row?;
            samples.extend(be_u64(&key).map(|unix_s| (unix_s, value.to_vec())));
        }
        Ok(samples)
    }

    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), CatalogueError> {
        if key.len() > VALUE_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err(CatalogueError::TooLarge);
        }
        if self.values.len() >= VALUES_MAX && !self.values.contains_key(key)? {
            return Err(CatalogueError::TooLarge);
        }
        self.values.insert(key, value)?;
        self.changed();
        Ok(())
    }

    pub fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        Ok(self.values.get(key)?.map(|value| value.to_vec()))
    }

    pub fn remove(&self, key: &[u8]) -> Result<(), CatalogueError> {
        self.values.remove(key)?;
        self.changed();
        Ok(())
    }

    /// Keys and values whose key starts with `prefix`, in the order of keys.
    pub fn values(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, CatalogueError> {
        let rows = self.values.scan_prefix(prefix).map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Bytes of the database's files.
    pub fn bytes(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }

    /// Waits until everything is on disk.
    pub fn flush(&self) {
        note_failure("flush", self.db.flush().map(drop));
    }

    /// The same, if there is anything that is not.
    pub fn flush_changes(&self) {
        if self.dirty.swap(false, Ordering::AcqRel) {
            self.flush();
        }
    }

    fn note(&self, what: &str, outcome: Result<(), sled::Error>) {
        note_failure(what, outcome);
        self.changed();
    }

    fn changed(&self) {
        self.dirty.store(true, Ordering::Release);
        self.alarm.ring();
    }
}

/// sled reports most damage as an error, but some by a panic. Its threads are like the one that they come from.
fn open_at(path: &Path, alarm: &Arc<Alarm>) -> Result<Catalogue, String> {
    let open = || -> Result<Catalogue, sled::Error> {
        allow_slack();
        let db = open_database(path)?;
        Ok(Catalogue {
            segments: db.open_tree("segments")?,
            ledgers: db.open_tree("ledgers")?,
            quarantine: db.open_tree("quarantine")?,
            history: db.open_tree("history")?,
            values: db.open_tree("values")?,
            db,
            dirty: AtomicBool::new(false),
            alarm: Arc::clone(alarm),
        })
    };
    let opened = thread::scope(|scope| {
        let opener = thread::Builder::new().name("store-open".to_owned()).spawn_scoped(scope, open)?;
        Ok::<_, std::io::Error>(opener.join())
    });
    match opened {
        Ok(Ok(outcome)) => outcome.map_err(|e| e.to_string()),
        Ok(Err(_)) => Err("the database is damaged".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn open_database(path: &Path) -> Result<sled::Db, sled::Error> {
    let config = sled::Config::new()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::LowSpace)
        .flush_every_ms(Some(FLUSH_MS));
    for _ in 1..OPEN_TRIES {
        match config.open() {
            Err(sled::Error::Io(e)) => tracing::debug!(error = %e, "the store's catalogue is tried again"),
            outcome => return outcome,
        }
        thread::sleep(OPEN_RETRY_INTERVAL);
    }
    config.open()
}

/// Lets the waits of this thread, and of those that it starts, end late.
fn allow_slack() {
    #[cfg(target_os = "linux")]
    if let Err(e) = nix::sys::prctl::set_timerslack(TIMER_SLACK.as_nanos() as u64) {
        tracing::debug!(error = %e, "the store's threads will wake up more often");
    }
}

fn ledger_key(peer: StoreId, domain: &Domain) -> Vec<u8> {
    [&peer.0[..], domain.0.as_bytes()].concat()
}

fn note_failure(what: &str, outcome: Result<(), sled::Error>) {
    if let Err(e) = outcome {
        tracing::warn!(what, error = %e, "the store's catalogue could not be written; some warmth may be lost");
    }
}

fn be_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

fn be_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}
