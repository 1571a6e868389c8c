//! Keys, identity, and refusals that must leave the directory as it was.

use super::*;
use crate::OpenError;
use crate::offline;
use isthmus_reduction::content::ReadError;
use isthmus_types::{Domain, StoreId};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const PEER: StoreId = StoreId([3; 16]);

fn other_key() -> StoreKey {
    StoreKey::from_bytes(&[0x24; 32])
}

fn refusal(config: Config) -> OpenError {
    match Store::open(config) {
        Ok(_) => panic!("the store must not open"),
        Err(e) => e,
    }
}

/// Every file below `dir` but the lock, whose content is only a process number.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else if path.file_name().unwrap() != "lock" {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

/// A store with one record and one note.
fn filled(encrypted: bool) -> (TempDir, Bytes, Addr) {
    let dir = temp();
    let (store, _) = open(dir.path(), encrypted);
    let data = content(1, 30_000);
    let addr = append(&store, &data).unwrap();
    let ledger = store.ledger(PEER, &Domain(String::new())).unwrap();
    store.note(ledger, b"a note").unwrap();
    drop(store);
    (dir, data, addr)
}

#[test]
fn a_wrong_or_missing_key_is_refused_and_touches_nothing() {
    let (dir, data, addr) = filled(true);
    let before = snapshot(dir.path());
    let wrong = Config { key: Some(other_key()), ..config(dir.path(), true) };
    assert!(matches!(refusal(wrong), OpenError::WrongKey { .. }));
    assert!(matches!(refusal(config(dir.path(), false)), OpenError::KeyNeeded { .. }));
    let none = Config { key: None, ..config(dir.path(), true) };
    assert!(matches!(refusal(none), OpenError::KeyNeeded { .. }));
    assert!(matches!(offline::check(dir.path(), Some(&other_key()), true), Err(OpenError::WrongKey { .. })));
    assert!(matches!(offline::rekey(dir.path(), &other_key(), &key()), Err(OpenError::WrongKey { .. })));
    assert_eq!(snapshot(dir.path()), before);
    assert_eq!(open(dir.path(), true).0.view(addr).unwrap(), data);
}

#[test]
fn another_format_version_is_refused_and_touches_nothing() {
    let (dir, ..) = filled(true);
    let path = segment_files(dir.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&crc);
    fs::write(&path, bytes).unwrap();
    let before = snapshot(dir.path());
    let e = refusal(config(dir.path(), true));
    assert!(matches!(e, OpenError::Version { found: 9, known: 1, .. }), "{e}");
    assert!(e.to_string().contains("00000001.seg"), "{e}");
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let dir = temp();
    for config in [
        Config { cap_bytes: CAP - 1, ..config(dir.path(), true) },
        Config { segment_bytes: Some(1000), ..config(dir.path(), true) },
        Config { segment_bytes: Some(u32::MAX), ..config(dir.path(), true) },
    ] {
        assert!(matches!(refusal(config), OpenError::Setting(_)));
    }
}

#[test]
fn nothing_readable_is_on_disk_when_encrypted() {
    let (dir, data, _) = filled(true);
    let key_bytes = ChunkKey::of(&data[..CHUNK]).0.to_le_bytes();
    let needles: [&[u8]; 4] = [&data[100..132], &key_bytes, b"a note", &[0x42; 32]];
    let files = snapshot(dir.path());
    for (path, bytes) in &files {
        for needle in needles {
            assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
        }
    }
    let (plain, ..) = filled(false);
    let bytes = fs::read(&segment_files(plain.path())[0]).unwrap();
    for needle in &needles[..3] {
        assert!(bytes.windows(needle.len()).any(|w| w == *needle), "the search finds what is not encrypted");
    }
}

#[test]
fn a_change_of_key_keeps_the_content_and_shuts_the_old_key_out() {
    let (dir, data, addr) = filled(true);
    assert_eq!(offline::rekey(dir.path(), &key(), &other_key()).unwrap(), 1);
    assert!(matches!(refusal(config(dir.path(), true)), OpenError::WrongKey { .. }));
    let header = fs::read(&segment_files(dir.path())[0]).unwrap();
    assert!(!header[..256].windows(8).any(|w| w == key().id().0), "no key wrapped by the old one is left");
    let (store, replay) = Store::open(Config { key: Some(other_key()), ..config(dir.path(), true) }).unwrap();
    assert_eq!(store.view(addr).unwrap(), data);
    assert_eq!(replay.count(), 1);
}

#[test]
fn a_change_of_key_that_is_cut_short_leaves_a_store_that_opens() {
    for stage in 0..3 {
        let (dir, data, addr) = filled(true);
        let path = segment_files(dir.path()).remove(0);
        let before = fs::read(&path).unwrap();
        let identity = fs::read(dir.path().join("identity")).unwrap();
        offline::rekey(dir.path(), &key(), &other_key()).unwrap();
        let after = fs::read(&path).unwrap();
        // Both slots stand side by side in the middle of it.
        let mut middle = before.clone();
        let new_slot = if after[64..72] == [0; 8] { 160..256 } else { 64..160 };
        middle[new_slot.clone()].copy_from_slice(&after[new_slot]);
        let key = match stage {
            0 => {
                fs::write(&path, &middle).unwrap();
                fs::write(dir.path().join("identity"), &identity).unwrap();
                key()
            }
            1 => {
                fs::write(&path, &middle).unwrap();
                other_key()
            }
            _ => {
                fs::write(&path, &before).unwrap();
                fs::write(dir.path().join("identity"), &identity).unwrap();
                key()
            }
        };
        let id = key.id();
        let (store, _) = Store::open(Config { key: Some(key), ..config(dir.path(), true) }).unwrap();
        assert_eq!(store.view(addr).unwrap(), data, "stage {stage}");
        let header = crate::format::SegmentHeader::decode(&fs::read(&path).unwrap()).unwrap();
        let slots: Vec<_> = header.slots.iter().flatten().map(|slot| slot.key).collect();
        assert_eq!(slots, [id], "stage {stage}: the other key's slot is cleared");
    }
}

#[test]
fn encryption_can_be_switched_off_and_on_without_emptying_the_store() {
    let (dir, data, addr) = filled(true);
    let off = Config { encrypt: false, ..config(dir.path(), true) };
    let (store, replay) = Store::open(off).unwrap();
    assert!(!store.stats().encrypted);
    assert_eq!(store.view(addr).unwrap(), data);
    assert_eq!(replay.count(), 1);
    let plain = content(2, 9000);
    let plain_addr = append(&store, &plain).unwrap();
    drop(store);
    let bytes = fs::read(&segment_files(dir.path())[1]).unwrap();
    assert!(bytes.windows(32).any(|window| window == &plain[..32]));

    let (store, _) = open(dir.path(), true);
    assert!(store.stats().encrypted);
    assert_eq!(store.view(addr).unwrap(), data);
    assert_eq!(store.view(plain_addr).unwrap(), plain);
}

#[test]
fn a_cloned_store_takes_a_new_identity_keeps_content_and_drops_notes() {
    let (dir, data, addr) = filled(true);
    let identity = offline::stats(dir.path(), None).unwrap().identity.unwrap();
    let clone = Config {
        machine: Some(Machine {
            machine_id: Some("another machine".into()),
            product_uuid: None,
            inode: None,
        }),
        ..config(dir.path(), true)
    };
    let (store, replay) = Store::open(clone.clone()).unwrap();
    assert_ne!(store.identity(), identity);
    assert_eq!(store.generation(), 1);
    assert_eq!(store.view(addr).unwrap(), data);
    assert_eq!(replay.count(), 0);
    assert_eq!(store.ledgers(), []);
    let ledger = store.ledger(PEER, &Domain(String::new())).unwrap();
    store.note(ledger, b"of the new identity").unwrap();
    let new_identity = store.identity();
    drop(store);
    let (store, replay) = Store::open(clone).unwrap();
    assert_eq!((store.identity(), store.generation()), (new_identity, 2));
    assert_eq!(replay.map(|(_, note)| note).collect::<Vec<_>>(), [&b"of the new identity"[..]]);
}

#[test]
fn a_wiped_store_or_one_without_its_segments_takes_a_new_identity() {
    let (dir, _, addr) = filled(true);
    let first = offline::stats(dir.path(), None).unwrap().identity.unwrap();
    fs::remove_dir_all(dir.path().join("segments")).unwrap();
    let (store, replay) = open(dir.path(), true);
    let second = store.identity();
    assert_ne!(second, first);
    assert_eq!((store.view(addr).unwrap_err(), replay.count()), (ReadError::Gone, 0));
    append(&store, &content(1, 100)).unwrap();
    drop(store);
    offline::wipe(dir.path()).unwrap();
    let (store, _) = open(dir.path(), true);
    assert_ne!(store.identity(), second);
    assert_eq!(store.stats().records, 0);
    let third = store.identity();
    drop(store);
    assert_eq!(open(dir.path(), true).0.identity(), third, "an empty store keeps its identity");
}

#[test]
fn a_damaged_identity_file_costs_the_identity_only() {
    let (dir, data, addr) = filled(true);
    let path = dir.path().join("identity");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("generation 1", "generation 7")).unwrap();
    let (store, replay) = open(dir.path(), true);
    assert_eq!((store.view(addr).unwrap(), store.generation(), replay.count()), (data, 1, 0));
}

#[test]
fn the_catalogue_keeps_values_and_samples_and_is_made_anew_when_damaged() {
    let (dir, data, addr) = filled(true);
    let (store, _) = open(dir.path(), true);
    store.put_value(b"policy/1", b"one").unwrap();
    store.put_value(b"policy/2", b"two").unwrap();
    store.put_value(b"other", b"x").unwrap();
    store.remove_value(b"policy/1").unwrap();
    assert!(store.put_value(b"long", &vec![0; crate::VALUE_LEN_MAX + 1]).is_err());
    store.add_sample(10, b"a").unwrap();
    store.add_sample(20, b"b").unwrap();
    drop(store);
    let (store, _) = open(dir.path(), true);
    assert_eq!(store.value(b"policy/2").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(store.values(b"policy/").unwrap(), [(b"policy/2".to_vec(), b"two".to_vec())]);
    assert_eq!(store.samples(11).unwrap(), [(20, b"b".to_vec())]);
    drop(store);

    let db = dir.path().join("catalogue").join("db");
    let len = fs::metadata(&db).unwrap().len() as usize;
    fs::write(&db, vec![0xff; len]).unwrap();
    fs::write(dir.path().join("catalogue").join("conf"), b"nonsense").unwrap();
    let (store, replay) = open(dir.path(), true);
    assert_eq!(store.value(b"policy/2").unwrap(), None);
    assert_eq!(
        (store.view(addr).unwrap(), replay.count()),
        (data, 1),
        "content and notes do not depend on it"
    );
}

#[test]
fn a_catalogue_that_is_locked_for_a_moment_is_waited_for_and_kept() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    store.put_value(b"policy", b"one").unwrap();
    drop(store);
    let db = fs::File::open(dir.path().join("catalogue").join("db")).unwrap();
    // The closed store's last thread may still hold it, too.
    db.lock().unwrap();
    let (store, _) = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(db);
        });
        open(dir.path(), true)
    });
    assert_eq!(store.value(b"policy").unwrap().as_deref(), Some(&b"one"[..]));
}

#[test]
fn offline_stats_tell_what_is_there_with_and_without_the_key() {
    let (dir, data, _) = filled(true);
    let with = offline::stats(dir.path(), Some(&key())).unwrap();
    assert_eq!((with.segments, with.encrypted_segments, with.unreadable_segments), (1, 1, 0));
    assert_eq!((with.records, with.chunks, with.notes), (1, 8, 1));
    assert_eq!((with.live_bytes, with.disk_bytes), (data.len() as u64, disk_bytes(dir.path())));
    let without = offline::stats(dir.path(), None).unwrap();
    assert_eq!((without.segments, without.unreadable_segments, without.records), (1, 1, 0));
    let (_store, _replay) = open(dir.path(), true);
    assert!(matches!(offline::stats(dir.path(), None), Err(OpenError::Locked { .. })));
}
