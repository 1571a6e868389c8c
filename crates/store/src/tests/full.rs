//! The size cap, eviction, pins, carrying forward, and full disks.

use super::*;
use crate::Learning;
use isthmus_reduction::content::ReadError;
use isthmus_types::{Domain, StoreId};

const LEN: usize = 60_000;

/// Appends records until `n` segments were dropped; returns addresses by seed.
fn overflow(store: &Store, first: u64, n: u64) -> Vec<(u64, Addr)> {
    let mut addrs = Vec::new();
    let before = store.stats().evicted_segments;
    for seed in first.. {
        addrs.push((seed, append(store, &content(seed, LEN)).unwrap()));
        if store.stats().evicted_segments >= before + n {
            break;
        }
    }
    addrs
}

#[test]
fn the_cap_holds_to_the_byte_and_the_least_recently_used_go() {
    for encrypted in [false, true] {
        let dir = temp();
        let (store, _) = open(dir.path(), encrypted);
        let mut addrs = Vec::new();
        for seed in 0..250 {
            addrs.push(append(&store, &content(seed, LEN)).unwrap());
            assert!(disk_bytes(dir.path()) <= CAP);
            // The first record stays in use, and with it the first segment.
            assert_eq!(store.view(addrs[0]).unwrap(), content(0, LEN));
        }
        let stats = store.stats();
        assert!(stats.evicted_segments >= 8 && stats.disk_bytes <= CAP && stats.live_bytes > CAP / 3);
        assert_eq!(stats.evicted_bytes + stats.live_bytes, 250 * LEN as u64);
        let live = addrs.iter().filter(|&&addr| store.is_live(addr)).count() as u64;
        assert_eq!((live, live), (stats.records, stats.live_bytes / LEN as u64));
        for (seed, &addr) in addrs.iter().enumerate() {
            let data = content(seed as u64, LEN);
            let found = store.lookup(ChunkKey::of(&data[..CHUNK]));
            match store.view(addr) {
                Ok(bytes) => assert_eq!((bytes, found), (data, Some(addr))),
                Err(e) => assert_eq!((e, found), (ReadError::Gone, None)),
            }
        }
        assert_eq!(
            stats.chunks,
            stats.records * LEN.div_ceil(CHUNK) as u64,
            "no entry of a dropped record is left"
        );
        drop(store);
        assert!(disk_bytes(dir.path()) <= CAP, "closing writes footers within the cap");
        let (store, _) = open(dir.path(), encrypted);
        assert_eq!(store.stats().records, stats.records);
        assert_eq!(store.stats().chunks, stats.chunks);
    }
}

#[test]
fn a_lowered_cap_is_kept_from_the_opening_on() {
    let dir = temp();
    let large = Config { cap_bytes: 4 * CAP, ..config(dir.path(), true) };
    let (store, _) = Store::open(large).unwrap();
    let addrs: Vec<_> = (0..300).map(|seed| append(&store, &content(seed, LEN)).unwrap()).collect();
    assert_eq!(store.stats().evicted_segments, 0);
    drop(store);
    let (store, _) = open(dir.path(), true);
    assert!(disk_bytes(dir.path()) <= CAP);
    assert!(!store.is_live(addrs[0]));
    assert_eq!(store.view(addrs[299]).unwrap(), content(299, LEN));
}

#[test]
fn pinned_records_stay_and_when_all_are_pinned_learning_waits() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let first = append(&store, &content(0, LEN)).unwrap();
    let pin = store.pin(first, LEN as u64).unwrap();
    overflow(&store, 1, 6);
    assert_eq!(store.view(first).unwrap(), content(0, LEN));

    let mut pins = Vec::new();
    let refused = (1000..1300).find_map(|seed| match append(&store, &content(seed, LEN)) {
        Ok(addr) => {
            pins.push(store.pin(addr, LEN as u64).unwrap());
            None
        }
        Err(e) => Some(e),
    });
    assert_eq!(refused, Some(AppendError::NotLearning));
    assert!(store.stats().refused > 0 && disk_bytes(dir.path()) <= CAP);
    assert_eq!(store.view(first).unwrap(), content(0, LEN), "serving goes on");
    drop(pins);
    overflow(&store, 2000, 4);
    assert!(store.is_live(first));
    drop(pin);
    overflow(&store, 3000, 8);
    assert!(!store.is_live(first));
    assert!(store.pin(first, LEN as u64).is_none());
}

#[test]
fn hot_records_are_carried_forward_under_their_addresses() {
    for encrypted in [false, true] {
        let dir = temp();
        let (store, _) = open(dir.path(), encrypted);
        let hot = append(&store, &content(0, LEN)).unwrap();
        let warm = append(&store, &content(1, LEN)).unwrap();
        store.view(warm).unwrap();
        for _ in 0..3 {
            store.shared().watch(false);
            store.view(hot).unwrap();
        }
        // Everything written later is used later, so the first segment goes first.
        overflow(&store, 2, 2);
        assert!(!store.is_live(warm), "used once is not hot");
        assert_eq!(store.view(hot.plus(777)).unwrap(), content(0, LEN).slice(777..));
        assert_eq!(store.lookup(ChunkKey::of(&content(0, LEN)[..CHUNK])), Some(hot));
        assert_eq!(store.stats().carried_bytes, LEN as u64);
        assert!(disk_bytes(dir.path()) <= CAP);
        let stats = store.stats();
        drop(store);
        let (store, _) = open(dir.path(), encrypted);
        store.shared().cache.remove(hot.0);
        assert_eq!(store.view(hot).unwrap(), content(0, LEN));
        assert_eq!((store.stats().records, store.stats().chunks), (stats.records, stats.chunks));
        // Its uses were forgotten when it was carried, so in the end it goes.
        overflow(&store, 5000, 14);
        assert!(!store.is_live(hot));
    }
}

#[test]
fn notes_go_with_their_segment() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let ledger = store.ledger(StoreId([1; 16]), &Domain("d".into())).unwrap();
    let mut notes = Vec::new();
    for seed in 0..250u64 {
        append(&store, &content(seed, LEN)).unwrap();
        store.note(ledger, &seed.to_le_bytes()).unwrap();
        notes.push(Bytes::copy_from_slice(&seed.to_le_bytes()));
        assert!(disk_bytes(dir.path()) <= CAP);
    }
    drop(store);
    let (_store, replay) = open(dir.path(), true);
    let replayed: Vec<_> = replay.map(|(_, note)| note).collect();
    assert!(replayed.len() > 50 && replayed.len() < 200, "{}", replayed.len());
    assert_eq!(replayed, notes[notes.len() - replayed.len()..], "the newest, in order");
}

#[test]
fn notes_alone_fill_segments_too() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let ledger = store.ledger(StoreId([1; 16]), &Domain("d".into())).unwrap();
    for _ in 0..400 {
        store.note(ledger, &[7; 60_000]).unwrap();
        assert!(disk_bytes(dir.path()) <= CAP);
    }
    assert!(store.stats().evicted_segments > 5);
}

#[test]
fn a_full_disk_stops_learning_but_not_serving_until_there_is_space() {
    for encrypted in [false, true] {
        let dir = temp();
        let disk = FakeDisk::roomy();
        let config = || Config { disk: disk.clone(), ..config(dir.path(), encrypted) };
        let (store, _) = Store::open(config()).unwrap();
        let ledger = store.ledger(StoreId([1; 16]), &Domain("d".into())).unwrap();
        let first = append(&store, &content(0, LEN)).unwrap();
        disk.room.store(100, Ordering::Relaxed);
        assert_eq!(append(&store, &content(1, LEN)), Err(AppendError::NotLearning));
        assert_eq!(store.stats().learning, Learning::DiskFull);
        assert_eq!(append(&store, &content(1, 10)), Err(AppendError::NotLearning));
        assert_eq!(store.note(ledger, b"n"), Err(AppendError::NotLearning));
        assert_eq!(store.view(first).unwrap(), content(0, LEN));
        assert_eq!(store.lookup(ChunkKey::of(&content(1, LEN)[..CHUNK])), None);

        disk.free.store(crate::FREE_FLOOR_BYTES_DEFAULT, Ordering::Relaxed);
        store.shared().watch(false);
        assert_eq!(store.stats().learning, Learning::DiskFull, "resuming needs a little more than the floor");
        disk.free.store(1 << 40, Ordering::Relaxed);
        disk.room.store(1 << 40, Ordering::Relaxed);
        store.shared().watch(false);
        assert_eq!(store.stats().learning, Learning::On);
        let second = append(&store, &content(1, LEN)).unwrap();
        assert_eq!(segment_files(dir.path()).len(), 2, "a failed write ends its segment");

        disk.free.store(crate::FREE_FLOOR_BYTES_DEFAULT - 1, Ordering::Relaxed);
        store.shared().watch(false);
        assert_eq!(store.stats().learning, Learning::DiskFull);
        assert_eq!(append(&store, &content(2, 10)), Err(AppendError::NotLearning));
        drop(store);
        let (store, _) = Store::open(config()).unwrap();
        assert_eq!(store.stats().learning, Learning::DiskFull, "known from the opening on");
        assert_eq!(store.view(first).unwrap(), content(0, LEN));
        assert_eq!(store.view(second).unwrap(), content(1, LEN));
    }
}

#[test]
fn flushing_says_how_far_the_disk_has_it() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let addr = append(&store, &content(0, LEN)).unwrap();
    assert_eq!(store.durable(), addr);
    store.flush();
    assert_eq!(store.durable(), addr.plus(LEN as u64));
    let background = temp();
    let config = Config { flush_interval: Duration::from_millis(5), ..config(background.path(), true) };
    let (store, _) = Store::open(config).unwrap();
    let addr = append(&store, &content(0, LEN)).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while store.durable() != addr.plus(LEN as u64) {
        assert!(std::time::Instant::now() < deadline, "the background thread does not flush");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_segment_full_of_damage_goes_before_one_that_was_used_longer_ago() {
    for reopened in [false, true] {
        let dir = temp();
        let (mut store, _) = open(dir.path(), true);
        let addrs: Vec<Addr> = (0..60).map(|seed| append(&store, &content(seed, LEN)).unwrap()).collect();
        let damaged = 15..45;
        damaged.clone().for_each(|i| store.quarantine(addrs[i]));
        if reopened {
            drop(store);
            (store, _) = open(dir.path(), true);
        }
        assert_eq!((store.stats().evicted_segments, store.stats().quarantined), (0, 30));
        overflow(&store, 1000, 1);
        let stats = store.stats();
        assert!(stats.quarantined < 30, "the damage went: {}", stats.quarantined);
        let kept = (0..60).filter(|i| !damaged.contains(i) && store.is_live(addrs[*i])).count();
        assert!(kept > 20, "and little else: {kept} of 30, reopened: {reopened}");
        assert!(store.is_live(addrs[0]), "the oldest stays");
    }
}

#[test]
fn a_disk_that_a_write_has_found_full_needs_more_than_a_few_pages() {
    let dir = temp();
    let disk = FakeDisk::roomy();
    let config = Config { disk: disk.clone(), free_floor_bytes: 0, ..config(dir.path(), true) };
    let (store, _) = Store::open(config).unwrap();
    disk.room.store(100, Ordering::Relaxed);
    disk.free.store(100_000, Ordering::Relaxed);
    assert_eq!(append(&store, &content(1, LEN)), Err(AppendError::NotLearning));
    store.shared().watch(true);
    assert_eq!(store.stats().learning, Learning::DiskFull, "it would fail again at once");
    disk.free.store(8 << 20, Ordering::Relaxed);
    store.shared().watch(true);
    assert_eq!(store.stats().learning, Learning::On);
}
