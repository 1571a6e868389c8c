//! What is left after a crash, and what becomes of damaged bytes.

use super::*;
use crate::offline;
use isthmus_reduction::content::ReadError;
use isthmus_types::{Domain, StoreId};
use std::fs;
use std::path::PathBuf;

const PEER: StoreId = StoreId([9; 16]);

fn domain() -> Domain {
    Domain("all".into())
}

/// A store whose process died: its segment has no footer. Records and notes alternate.
struct Crashed {
    dir: TempDir,
    data: Vec<Bytes>,
    addrs: Vec<Addr>,
    /// Length of the segment file after each record and its note.
    ends: Vec<(u64, u64)>,
}

fn crashed(encrypted: bool, records: u64, len: usize) -> Crashed {
    let origin = temp();
    let dir = temp();
    let (store, _) = open(origin.path(), encrypted);
    let ledger = store.ledger(PEER, &domain()).unwrap();
    let data: Vec<_> = (0..records).map(|i| content(i, len + i as usize)).collect();
    let (mut addrs, mut ends) = (Vec::new(), Vec::new());
    for (i, record) in data.iter().enumerate() {
        addrs.push(append(&store, record).unwrap());
        let file = segment_files(origin.path())[0].clone();
        let after_record = fs::metadata(&file).unwrap().len();
        store.note(ledger, &[i as u8; 10]).unwrap();
        ends.push((after_record, fs::metadata(&file).unwrap().len()));
    }
    copy_killed(origin.path(), dir.path());
    Crashed { dir, data, addrs, ends }
}

fn segment(dir: &TempDir) -> PathBuf {
    segment_files(dir.path()).remove(0)
}

/// Opens a copy of the crashed store with these segment bytes; checks that exactly the whole records and notes are there.
fn check_recovery(crashed: &Crashed, bytes: &[u8], whole: u64, encrypted: bool) {
    let dir = temp();
    copy_killed(crashed.dir.path(), dir.path());
    fs::write(segment(&dir), bytes).unwrap();
    let (store, replay) = open(dir.path(), encrypted);
    for (i, &addr) in crashed.addrs.iter().enumerate() {
        if crashed.ends[i].0 <= whole {
            assert_eq!(store.view(addr).unwrap(), crashed.data[i], "record {i} of a file cut at {whole}");
        } else {
            assert_eq!(store.view(addr).unwrap_err(), ReadError::Gone, "record {i} of a file cut at {whole}");
            assert_eq!(
                store.lookup(ChunkKey::of(&crashed.data[i][..CHUNK.min(crashed.data[i].len())])),
                None
            );
        }
    }
    let notes: Vec<_> = replay.map(|(_, note)| note).collect();
    let expected: Vec<_> =
        (0..crashed.ends.len()).filter(|&i| crashed.ends[i].1 <= whole).map(|i| vec![i as u8; 10]).collect();
    assert_eq!(notes, expected, "notes of a file cut at {whole}");
    // What is appended now goes elsewhere, at addresses that were never given out.
    let next = append(&store, &content(1000, 3000)).unwrap();
    assert!(next.0 > crashed.addrs.last().unwrap().0);
    assert_eq!(segment_files(dir.path()).len(), 2);
    if !bytes.len().is_multiple_of(16) {
        return; // Opening takes most of this test's time; the second one is looked at for some lengths.
    }
    drop(store);
    let (store, _) = open(dir.path(), encrypted);
    assert_eq!(store.view(next).unwrap(), content(1000, 3000));
    if crashed.ends[0].0 <= whole {
        assert_eq!(
            store.view(crashed.addrs[0]).unwrap(),
            crashed.data[0],
            "still there after a second opening"
        );
    }
}

#[test]
fn a_file_cut_at_any_byte_of_its_last_records_keeps_all_whole_ones() {
    for encrypted in [false, true] {
        let crashed = crashed(encrypted, 3, 60);
        let bytes = fs::read(segment(&crashed.dir)).unwrap();
        let last = crashed.ends[1].0 as usize - 1;
        for len in (last..=bytes.len()).chain([256, 257, 300]) {
            check_recovery(&crashed, &bytes[..len], len as u64, encrypted);
        }
    }
}

#[test]
fn garbage_and_zeros_behind_the_last_record_are_cut_off() {
    for encrypted in [false, true] {
        let crashed = crashed(encrypted, 3, 60);
        let bytes = fs::read(segment(&crashed.dir)).unwrap();
        for tail in [content(5, 1), content(5, 33), content(6, 5000), Bytes::from(vec![0; 4096])] {
            let whole = bytes.len() as u64;
            check_recovery(&crashed, &[&bytes[..], &tail].concat(), whole, encrypted);
        }
        // Blocks of the last record that never reached the disk.
        let mut holed = bytes.clone();
        let from = crashed.ends[1].1 as usize + 40;
        holed[from..].fill(0);
        check_recovery(&crashed, &holed, crashed.ends[1].1, encrypted);
    }
}

/// Flips bits all over the only segment of a sealed store; `step` is coprime to 8, so all bits of a byte have their turn.
fn flip_bits(encrypted: bool, with_footer: bool, step: usize) {
    let crashed = crashed(encrypted, 4, 300);
    if with_footer {
        drop(open(crashed.dir.path(), encrypted));
    }
    let _ = fs::remove_dir_all(crashed.dir.path().join("catalogue"));
    let good = fs::read(segment(&crashed.dir)).unwrap();
    let mut touched = 0;
    for bit in (0..good.len() * 8).step_by(step) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let dir = temp();
        copy_killed(crashed.dir.path(), dir.path());
        fs::write(segment(&dir), &bad).unwrap();
        let (store, replay) = match Store::open(config(dir.path(), encrypted)) {
            Ok(opened) => opened,
            // A store whose only wrapped key is damaged cannot be told from one under another key.
            Err(crate::OpenError::WrongKey { .. }) if encrypted && (64..256).contains(&(bit / 8)) => continue,
            Err(e) => panic!("bit {bit}: {e}"),
        };
        for (record, &addr) in crashed.data.iter().zip(&crashed.addrs) {
            match store.view(addr) {
                Ok(bytes) => assert_eq!(bytes, record, "bit {bit}"),
                Err(_) => touched += 1,
            }
        }
        for (_, note) in replay {
            assert!(note.len() == 10 && note.iter().all(|&b| b == note[0] && b < 4), "bit {bit}");
        }
    }
    assert!(touched > 0, "some flips must have hit a record");
}

#[test]
fn a_flipped_bit_anywhere_never_yields_wrong_bytes_plain() {
    flip_bits(false, true, 43);
    flip_bits(false, false, 43);
}

#[test]
fn a_flipped_bit_anywhere_never_yields_wrong_bytes_encrypted() {
    flip_bits(true, true, 43);
    flip_bits(true, false, 43);
}

#[test]
fn a_damaged_record_is_set_aside_for_good_and_stored_anew() {
    for encrypted in [false, true] {
        let crashed = crashed(encrypted, 3, 5000);
        drop(open(crashed.dir.path(), encrypted));
        let path = segment(&crashed.dir);
        let mut bytes = fs::read(&path).unwrap();
        bytes[crashed.ends[0].1 as usize + 2000] ^= 4;
        fs::write(&path, &bytes).unwrap();

        let (store, _) = open(crashed.dir.path(), encrypted);
        let keys = chunks(&crashed.data[1]);
        assert!(store.lookup(keys[0].key).is_some(), "damage is found when a record is read");
        assert_eq!(store.view(crashed.addrs[1]).unwrap_err(), ReadError::Corrupt);
        assert_eq!(store.view(crashed.addrs[1]).unwrap_err(), ReadError::Gone);
        assert_eq!(store.lookup(keys[0].key), None);
        assert_eq!(store.lookup(keys[1].key), None);
        assert_eq!((store.stats().quarantined, store.stats().corrupt_reads), (1, 1));
        assert_eq!(store.view(crashed.addrs[2]).unwrap(), crashed.data[2]);
        drop(store);

        let (store, _) = open(crashed.dir.path(), encrypted);
        assert_eq!((store.lookup(keys[0].key), store.stats().quarantined), (None, 1));
        let again = append(&store, &crashed.data[1]).unwrap();
        assert_eq!(store.lookup(keys[1].key), Some(again.plus(CHUNK as u64)));
        assert_eq!(store.view(again).unwrap(), crashed.data[1]);
    }
}

#[test]
fn a_damaged_segment_header_is_restored_from_the_catalogue_or_set_aside() {
    for encrypted in [false, true] {
        for with_catalogue in [true, false] {
            let dir = temp();
            let (store, _) = open(dir.path(), encrypted);
            let data: Vec<_> = (0..30).map(|i| content(i, 100_000)).collect();
            let addrs: Vec<_> = data.iter().map(|record| append(&store, record).unwrap()).collect();
            drop(store);
            let path = segment(&dir);
            let mut bytes = fs::read(&path).unwrap();
            bytes[20] ^= 1;
            fs::write(&path, &bytes).unwrap();
            if !with_catalogue {
                fs::remove_dir_all(dir.path().join("catalogue")).unwrap();
            }
            let (store, _) = open(dir.path(), encrypted);
            assert_eq!(store.view(addrs[0]).is_ok(), with_catalogue);
            assert_eq!(store.view(addrs[29]).unwrap(), data[29]);
            assert_eq!(path.exists(), with_catalogue);
            assert!(disk_bytes(dir.path()) <= CAP);
        }
    }
}

#[test]
fn check_finds_every_damage_says_where_and_repairs_it() {
    for encrypted in [false, true] {
        let key = encrypted.then(key);
        let crashed = crashed(encrypted, 3, 5000);
        let report = offline::check(crashed.dir.path(), key.as_ref(), false).unwrap();
        assert_eq!((report.records, report.notes, report.unsealed, report.damages_total), (3, 3, 1, 0));
        drop(open(crashed.dir.path(), encrypted));
        let report = offline::check(crashed.dir.path(), key.as_ref(), false).unwrap();
        assert_eq!((report.records, report.unsealed, report.damages_total), (3, 0, 0));
        assert_eq!(report.bytes, crashed.data.iter().map(|record| record.len() as u64).sum::<u64>());

        let path = segment(&crashed.dir);
        let good = fs::read(&path).unwrap();
        let mut bytes = good.clone();
        let at = crashed.ends[0].1 as usize + 2000;
        bytes[at] ^= 4;
        fs::write(&path, &bytes).unwrap();
        let report = offline::check(crashed.dir.path(), key.as_ref(), false).unwrap();
        assert_eq!((report.records, report.damages_total), (2, 1));
        let damage = &report.damages[0];
        assert_eq!((damage.at.file.clone(), damage.repaired), (path.clone(), false));
        assert!((crashed.ends[0].1..at as u64 + 1).contains(&damage.at.offset));
        assert_eq!(fs::read(&path).unwrap(), bytes, "without repair nothing is changed");

        let report = offline::check(crashed.dir.path(), key.as_ref(), true).unwrap();
        assert!(report.damages[0].repaired);
        let report = offline::check(crashed.dir.path(), key.as_ref(), false).unwrap();
        assert_eq!((report.damages_total, report.quarantined), (0, 1));
        let (store, _) = open(crashed.dir.path(), encrypted);
        assert_eq!(store.view(crashed.addrs[1]).unwrap_err(), ReadError::Gone);
        assert_eq!(store.view(crashed.addrs[2]).unwrap(), crashed.data[2]);
        drop(store);

        fs::write(&path, &good[..good.len() - 1]).unwrap();
        let report = offline::check(crashed.dir.path(), key.as_ref(), true).unwrap();
        assert_eq!((report.damages_total, report.damages[0].repaired), (1, true), "a footer cut short");
        assert_eq!(offline::check(crashed.dir.path(), key.as_ref(), false).unwrap().damages_total, 0);
    }
}

#[test]
fn check_finds_a_chunk_that_is_not_the_one_its_key_names() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let data = content(1, 6000);
    let mut wrong = chunks(&data);
    wrong[1].key.0 ^= 1;
    store.append(data, &wrong).unwrap();
    drop(store);
    let report = offline::check(dir.path(), Some(&key()), false).unwrap();
    assert_eq!(report.damages_total, 1);
    assert!(report.damages[0].at.what.contains("key"));
}

/// Not a test of its own: the process that [`a_killed_process_loses_nothing_it_wrote`] kills.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_that_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os("ISTHMUS_STORE_TEST_DIR") else { return };
    let dir = PathBuf::from(dir);
    let (store, _) = open(&dir, true);
    let ledger = store.ledger(PEER, &domain()).unwrap();
    for i in 0u64.. {
        let addr = append(&store, &content(i, 20_000)).unwrap();
        store.note(ledger, &[&i.to_le_bytes()[..], &addr.0.to_le_bytes()].concat()).unwrap();
        fs::write(dir.join("progress.new"), i.to_string()).unwrap();
        fs::rename(dir.join("progress.new"), dir.join("progress")).unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let dir = temp();
    let mut expected_min = 0;
    for round in 0..2 {
        let _ = fs::remove_file(dir.path().join("progress"));
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "tests::crash::child_that_appends_until_it_is_killed"])
            .env("ISTHMUS_STORE_TEST_DIR", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let progress = || fs::read_to_string(dir.path().join("progress")).ok()?.parse::<u64>().ok();
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        // Far enough that segments were sealed, and dropped.
        while progress().is_none_or(|i| i < 700) {
            assert!(std::time::Instant::now() < deadline, "the child makes no progress");
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let last = progress().unwrap();

        let (store, replay) = open(dir.path(), true);
        assert_eq!(store.generation(), 2 * (round + 1));
        let mut notes = Vec::new();
        for (_, note) in replay {
            let number = |at: usize| u64::from_le_bytes(note[at..at + 8].try_into().unwrap());
            notes.push((number(0), Addr(number(8))));
        }
        assert!(notes.last().unwrap().0 >= last, "the last note was written and is there");
        let mut found = 0;
        for &(i, addr) in notes.iter().rev() {
            match store.view(addr) {
                Ok(bytes) => {
                    assert_eq!(bytes, content(i, 20_000));
                    found += 1;
                }
                Err(e) => assert_eq!(e, ReadError::Gone),
            }
        }
        assert!(found > 100, "most of a store of 10 MiB is warm, {found} records are");
        assert_eq!(store.view(notes.last().unwrap().1).unwrap(), content(notes.last().unwrap().0, 20_000));
        expected_min += last;
        drop(store);
        assert!(disk_bytes(dir.path()) <= CAP + 64);
    }
    assert!(expected_min >= 1400);
}
