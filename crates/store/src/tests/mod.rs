//! Behaviour of a whole store.

mod basic;
mod crash;
mod full;
mod golden;
mod keys;
mod model;

use crate::{Config, Disk, Machine, Replay, Store, StoreKey};
use bytes::Bytes;
use isthmus_reduction::content::{Addr, AppendError, ChunkKey, ChunkMeta, ContentStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Length of the chunks that tests cut records into.
const CHUNK: usize = 4096;
/// A cap that six segments of 1 MiB fill.
const CAP: u64 = 10 << 20;

/// A disk that is as full as the test says.
struct FakeDisk {
    free: AtomicU64,
    /// Bytes that can still be written.
    room: AtomicU64,
}

impl FakeDisk {
    fn roomy() -> Arc<FakeDisk> {
        Arc::new(FakeDisk { free: AtomicU64::new(1 << 40), room: AtomicU64::new(1 << 40) })
    }
}

impl Disk for FakeDisk {
    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.free.load(Ordering::Relaxed))
    }

    fn before_write(&self, len: u64) -> io::Result<()> {
        let take = |room: u64| room.checked_sub(len);
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

fn key() -> StoreKey {
    StoreKey::from_bytes(&[0x42; 32])
}

/// Settings for tests: small segments, no flushing in the background, a machine and disk of their own.
fn config(dir: &Path, encrypted: bool) -> Config {
    Config {
        segment_bytes: Some(1 << 20),
        flush_interval: Duration::from_secs(3600),
        cache_bytes: 1 << 20,
        machine: Some(Machine { machine_id: Some("a machine".into()), product_uuid: None, inode: None }),
        disk: FakeDisk::roomy(),
        ..Config::new(dir, CAP, encrypted.then(key))
    }
}

fn open(dir: &Path, encrypted: bool) -> (Store, Replay) {
    Store::open(config(dir, encrypted)).unwrap()
}

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Bytes that differ for each seed.
fn content(seed: u64, len: usize) -> Bytes {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    Bytes::from(out)
}

fn chunks(data: &[u8]) -> Vec<ChunkMeta> {
    data.chunks(CHUNK).map(|c| ChunkMeta { key: ChunkKey::of(c), len: c.len() as u32 }).collect()
}

fn append(store: &Store, data: &Bytes) -> Result<Addr, AppendError> {
    store.append(data.clone(), &chunks(data))
}

/// Bytes of all files in the directory.
fn disk_bytes(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        // A file may be removed while this looks.
        let Ok(meta) = entry.metadata() else { continue };
        sum += if meta.is_dir() { disk_bytes(&entry.path()) } else { meta.len() };
    }
    sum
}

/// The segment files, in the order of their numbers.
fn segment_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir.join("segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "seg"))
        .collect();
    files.sort();
    files
}

/// Copies what a killed process leaves: the files as they are now. The catalogue is left out, since it may be lost.
fn copy_killed(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("segments")).unwrap();
    for file in segment_files(from) {
        std::fs::copy(&file, to.join("segments").join(file.file_name().unwrap())).unwrap();
    }
    std::fs::copy(from.join("identity"), to.join("identity")).unwrap();
}
