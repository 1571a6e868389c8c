//! Measurements of a store at size: memory, time to open, lookups; and the speed of appending and reading.

use crate::config::{Config, Disk};
use crate::dir::{self, SEGMENTS_DIR};
use crate::error::OpenError;
use crate::footer::FooterBuilder;
use crate::format::{HEADER_LEN, KeySlot, SEGMENT_BYTES_MAX, SegmentHeader};
use crate::frame;
use crate::key::{DataKey, StoreKey};
use crate::segment::{Segment, file_name};
use crate::store::Store;
use bytes::Bytes;
use isthmus_reduction::content::{ChunkKey, ChunkMeta, ContentStore};
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Mean length of the chunks that [`measure`] makes up.
const CHUNK_BYTES: u32 = 8 << 10;
const CHUNKS_PER_RECORD: u64 = 16;
/// Records in a segment of 64 MiB.
const RECORDS_PER_SEGMENT: u64 = 500;
const LOOKUPS: u64 = 1_000_000;

/// What [`measure`] found.
#[derive(Clone, Copy, Debug)]
pub struct ScaleReport {
    /// Growth of resident memory by the opening, in 10^6 bytes.
    pub mb: f64,
    /// Seconds to open after kill -9: the last segment has no footer and is read frame by frame.
    pub open_s: f64,
    /// Microseconds a lookup of a stored chunk, in random order.
    pub lookup_us: f64,
    /// Microseconds a lookup of an unknown chunk.
    pub miss_us: f64,
    /// Share of unknown chunks for which some other chunk was named.
    pub false_share: f64,
}

/// What [`throughput`] found. All with encryption on.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    pub append_ns_per_byte: f64,
    /// 10^9 bytes a second of reading in the order of appending, page cache warm, nothing in the record cache.
    pub view_gb_s: f64,
    /// The same for records in the record cache, in views a second.
    pub cached_views_s: f64,
}

/// Makes an encrypted store of about `chunks` chunks of 8 KiB in the empty directory `dir` and measures it. The payload of
/// all segments but the last is left out (holes in sparse files), since opening and lookups do not read it.
pub fn measure(dir: &Path, chunks: u64) -> Result<ScaleReport, OpenError> {
    let key = StoreKey::generate()?;
    dir::create(dir)?;
    let per_segment = RECORDS_PER_SEGMENT * CHUNKS_PER_RECORD;
    let segments = chunks.div_ceil(per_segment).max(1);
    for i in 0..segments {
        let first = i * per_segment;
        make_segment(dir, &key, first, per_segment.min(chunks - first), i + 1 == segments)?;
    }
    let before = resident_bytes();
    let start = Instant::now();
    let (store, _) = Store::open(roomy(dir, key))?;
    let open_s = start.elapsed().as_secs_f64();
    let mb = (resident_bytes() - before) as f64 / 1e6;

    let mut found = 0;
    let start = Instant::now();
    for i in 0..LOOKUPS {
        found += u64::from(black_box(store.lookup(key_of(mix(i) % chunks))).is_some());
    }
    let lookup_us = start.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64;
    let start = Instant::now();
    let mut false_hits = 0;
    for i in 0..LOOKUPS {
        false_hits += u64::from(black_box(store.lookup(key_of(chunks + i))).is_some());
    }
    let miss_us = start.elapsed().as_secs_f64() * 1e6 / LOOKUPS as f64;
    if found < LOOKUPS / 1000 * 999 {
        return Err(OpenError::Setting("the store lost chunks while it was measured"));
    }
    Ok(ScaleReport { mb, open_s, lookup_us, miss_us, false_share: false_hits as f64 / LOOKUPS as f64 })
}

/// Appends `records` records of 128 KiB to a new store in the empty directory `dir`, and reads them back.
pub fn throughput(dir: &Path, records: u64) -> Result<Throughput, OpenError> {
    let len = (CHUNKS_PER_RECORD * u64::from(CHUNK_BYTES)) as usize;
    let data = Bytes::from((0..len as u64).map(|i| mix(i) as u8).collect::<Vec<_>>());
    let (store, _) = Store::open(roomy(dir, StoreKey::generate()?))?;
    let mut addrs = Vec::new();
    let start = Instant::now();
    for i in 0..records {
        let addr = store.append(data.clone(), &chunks_from(i * CHUNKS_PER_RECORD, CHUNKS_PER_RECORD));
        addrs.push(addr.map_err(|_| OpenError::Setting("an append failed while it was measured"))?);
    }
    let append_s = start.elapsed().as_secs_f64();
    let total = (records as usize * len) as f64;
    let mut views_s = [0.0; 2];
    for (pass, seconds) in views_s.iter_mut().enumerate() {
        let start = Instant::now();
        for &addr in addrs.iter().take(if pass == 0 { addrs.len() } else { 0 }) {
            black_box(store.view(addr))
                .map_err(|_| OpenError::Setting("a view failed while it was measured"))?;
        }
        for _ in 0..if pass == 1 { LOOKUPS } else { 0 } {
            black_box(store.view(addrs[addrs.len() - 1])).ok();
        }
        *seconds = start.elapsed().as_secs_f64();
    }
    Ok(Throughput {
        append_ns_per_byte: append_s * 1e9 / total,
        view_gb_s: total / views_s[0] / 1e9,
        cached_views_s: LOOKUPS as f64 / views_s[1],
    })
}

/// A disk that never counts as full: the sparse files are longer than what they take.
struct AnyDisk;

impl Disk for AnyDisk {
    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

fn roomy(dir: &Path, key: StoreKey) -> Config {
    Config { disk: Arc::new(AnyDisk), ..Config::new(dir, 1 << 44, Some(key)) }
}

/// Writes a segment with made-up chunks from number `first` on. Only the last one has payload, and no footer.
fn make_segment(dir: &Path, key: &StoreKey, first: u64, chunks: u64, is_last: bool) -> Result<(), OpenError> {
    let number = (first / (RECORDS_PER_SEGMENT * CHUNKS_PER_RECORD)) as u32 + 1;
    let mut header = SegmentHeader {
        encrypted: true,
        number,
        base: first * u64::from(CHUNK_BYTES),
        created_s: 0,
        span: SEGMENT_BYTES_MAX,
        slots: [None, None],
    };
    let wrapped = key.wrap(&DataKey::generate()?, &header.fixed())?;
    header.slots[0] = Some(KeySlot { key: key.id(), wrapped });
    let path = dir.join(SEGMENTS_DIR).join(file_name(number));
    let failed = || OpenError::io(&path);
    let segment = Segment::new(path.clone(), &header, 0, Some(key)).ok_or(OpenError::Random)?;
    let file = File::create_new(&path).map_err(failed())?;
    file.write_all_at(&header.encode(), 0).map_err(failed())?;
    let (mut footer, mut end, mut done) = (FooterBuilder::new(), HEADER_LEN as u64, 0);
    let mut frame_bytes = Vec::new();
    while done < chunks {
        let metas = chunks_from(first + done, CHUNKS_PER_RECORD.min(chunks - done));
        let len = metas.len() as u32 * CHUNK_BYTES;
        let addr = (first + done) * u64::from(CHUNK_BYTES);
        let mut position = end as u32 + 256;
        if is_last {
            let at = (&segment.sealer, number, end);
            let payload = vec![0x5a; len as usize];
            position =
                frame::record(&mut frame_bytes, at, addr, &metas, &payload).ok_or(OpenError::Random)? as u32;
            file.write_all_at(&frame_bytes, end).map_err(failed())?;
        }
        footer.record(addr, position, len, &metas);
        end = if is_last { end + frame_bytes.len() as u64 } else { u64::from(position + len) + 16 };
        done += metas.len() as u64;
    }
    if !is_last {
        segment.write_footer(&file, end, &footer, &mut frame_bytes).map_err(failed())?;
    }
    Ok(())
}

fn chunks_from(first: u64, count: u64) -> Vec<ChunkMeta> {
    (first..first + count).map(|i| ChunkMeta { key: key_of(i), len: CHUNK_BYTES }).collect()
}

/// A key as evenly spread as a hash.
fn key_of(i: u64) -> ChunkKey {
    ChunkKey(mix(i ^ 0x5bd1_e995_0000_0000))
}

fn mix(i: u64) -> u64 {
    let i = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let i = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let i = (i ^ i >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    i ^ i >> 31
}

/// Resident memory of this process; 0 where /proc does not tell.
fn resident_bytes() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<i64>().ok());
    kb.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_made_up_store_opens_with_all_its_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let report = measure(dir.path(), 20_000).unwrap();
        assert!(report.open_s > 0.0 && report.lookup_us > 0.0 && report.false_share < 0.001);
    }
}
