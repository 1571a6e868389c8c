//! Appending, reading, notes, reopening.

use super::*;
use crate::OpenError;
use isthmus_reduction::content::{LedgerId, ReadError};
use isthmus_types::limits::RECORD_BYTES_MAX;
use isthmus_types::{Domain, StoreId};

#[test]
fn what_was_appended_is_found_and_read_before_and_after_reopening() {
    for encrypted in [false, true] {
        let dir = temp();
        let data: Vec<Bytes> = (0..40).map(|i| content(i, 1 + i as usize * 4321)).collect();
        let mut addrs = Vec::new();
        let (store, replay) = open(dir.path(), encrypted);
        assert_eq!(replay.count(), 0);
        for record in &data {
            addrs.push(append(&store, record).unwrap());
        }
        let check = |store: &Store| {
            for (record, &addr) in data.iter().zip(&addrs) {
                assert_eq!(store.view(addr).unwrap(), record);
                let middle = record.len() / 2;
                assert_eq!(store.view(addr.plus(middle as u64)).unwrap(), record.slice(middle..));
                for (i, chunk) in chunks(record).iter().enumerate() {
                    assert_eq!(store.lookup(chunk.key), Some(addr.plus((i * CHUNK) as u64)));
                }
                assert!(store.is_live(addr) && store.pin(addr, record.len() as u64).is_some());
            }
            let end = addrs[39].plus(data[39].len() as u64);
            assert_eq!(store.view(end).unwrap_err(), ReadError::Gone);
            assert!(!store.is_live(end) && store.pin(addrs[39], data[39].len() as u64 + 1).is_none());
            assert_eq!(store.lookup(ChunkKey::of(b"never stored")), None);
        };
        check(&store);
        let identity = store.identity();
        drop(store);
        let (store, _) = open(dir.path(), encrypted);
        check(&store);
        assert_eq!(store.identity(), identity);
        assert_eq!(store.generation(), 2);
        let next = append(&store, &data[0]).unwrap();
        assert!(next >= addrs[39].plus(data[39].len() as u64), "no address is used twice");
    }
}

#[test]
fn consecutive_records_take_consecutive_addresses_across_segments() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let mut expected = append(&store, &content(0, 1000)).unwrap().plus(1000);
    for i in 1..30 {
        let addr = append(&store, &content(i, 100_000)).unwrap();
        assert_eq!(addr, expected);
        expected = addr.plus(100_000);
    }
    assert!(store.stats().segments > 2);
}

#[test]
fn records_that_cannot_be_are_refused() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let data = content(1, 5000);
    let mut wrong = chunks(&data);
    wrong[1].len += 1;
    assert_eq!(store.append(data.clone(), &wrong), Err(AppendError::BadRecord));
    assert_eq!(store.append(data, &[]), Err(AppendError::BadRecord));
    assert_eq!(store.append(Bytes::new(), &[]), Err(AppendError::BadRecord));
    let longest = content(1, RECORD_BYTES_MAX);
    assert!(append(&store, &longest).is_ok());
    let longer = content(1, RECORD_BYTES_MAX + 1);
    assert_eq!(append(&store, &longer), Err(AppendError::BadRecord));
    assert_eq!(store.note(LedgerId(77), b"of no ledger"), Err(AppendError::BadRecord));
}

#[test]
fn notes_come_back_in_order_under_their_ledgers() {
    for encrypted in [false, true] {
        let dir = temp();
        let (a, b) = (StoreId([1; 16]), StoreId([2; 16]));
        let domain = Domain("projects".into());
        let (store, _) = open(dir.path(), encrypted);
        let ids = [store.ledger(a, &domain).unwrap(), store.ledger(b, &domain).unwrap()];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(store.ledger(a, &domain), Ok(ids[0]));
        let mut expected = Vec::new();
        for i in 0..60u64 {
            append(&store, &content(i, 50_000)).unwrap();
            let note = format!("note {i}").into_bytes();
            store.note(ids[i as usize % 2], &note).unwrap();
            expected.push((ids[i as usize % 2], Bytes::from(note)));
        }
        let longest = content(9, crate::format::NOTE_LEN_MAX);
        store.note(ids[0], &longest).unwrap();
        expected.push((ids[0], longest.clone()));
        let too_long = [&longest[..], b"x"].concat();
        assert_eq!(store.note(ids[0], &too_long), Err(AppendError::BadRecord));
        drop(store);
        for _ in 0..2 {
            let (store, replay) = open(dir.path(), encrypted);
            assert_eq!(replay.collect::<Vec<_>>(), expected);
            assert_eq!(store.ledger(b, &domain), Ok(ids[1]));
            assert_eq!(store.ledgers().len(), 2);
        }

        // Without the catalogue, the segments themselves tell whose the notes are.
        std::fs::remove_dir_all(dir.path().join("catalogue")).unwrap();
        let (store, replay) = open(dir.path(), encrypted);
        assert_eq!(replay.collect::<Vec<_>>(), expected);
        assert_eq!(store.ledger(b, &domain), Ok(ids[1]));
    }
}

#[test]
fn a_second_opening_is_refused_while_the_first_lives() {
    let dir = temp();
    let (store, _) = open(dir.path(), true);
    let Err(refused) = Store::open(config(dir.path(), true)).map(drop) else { panic!("opened twice") };
    assert!(matches!(&refused, OpenError::Locked { pid: Some(pid), .. } if *pid == std::process::id()));
    assert!(refused.to_string().contains("in use by process"), "{refused}");
    drop(store);
    open(dir.path(), true);
}
