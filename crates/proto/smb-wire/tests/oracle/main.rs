//! Compares with another implementation: what it makes is read with the same values, and so is what this crate builds and
//! what real clients and servers sent (`ISTHMUS_GOLDEN`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agree;
#[path = "../captures/mod.rs"]
mod captures;
mod make;

use agree::{agree, same_attributes};
use isthmus_smb_wire::compound::elements;
use isthmus_smb_wire::fscc::DirectoryEntries;
use isthmus_smb_wire::messages as m;
use isthmus_smb_wire::transform::TransformHeader;
use isthmus_smb_wire::{Header, MessageKind, Request, Response};
use make::{built, requests, responses, seed};
use proptest::collection::vec;
use proptest::prelude::*;
use smb2::msg as o;
use smb2::msg::directory_info::{DirectoryInfoEntry, pack_entries, parse_entries};
use smb2::msg::query_directory::FileInformationClass;
use smb2::pack::{FileTime, Pack, WriteCursor};
use smb2::types as ot;

proptest! {
    #[test]
    fn what_the_other_makes_is_read_the_same(seed in seed()) {
        for message in requests(&seed).into_iter().chain(responses(&seed)) {
            prop_assert!(agree(&message), "{:?}", Header::parse(&message));
        }
    }

    #[test]
    fn what_is_built_is_read_the_same_by_the_other(seed in seed()) {
        for message in built(&seed) {
            prop_assert!(agree(&message), "{:?}", Header::parse(&message));
        }
    }

    #[test]
    fn listings_and_transforms_are_read_the_same(seed in seed(), names in vec("[a-z.日🦀]{0,12}", 0..6)) {
        let entries: Vec<DirectoryInfoEntry> = names.iter().map(|name| DirectoryInfoEntry {
            file_index: seed.n[0],
            creation_time: FileTime(seed.w[0]),
            last_access_time: FileTime(seed.w[1]),
            last_write_time: FileTime(seed.w[2]),
            change_time: FileTime(seed.w[3]),
            end_of_file: seed.w[4],
            allocation_size: seed.w[5],
            file_attributes: seed.n[1],
            ea_size: seed.n[2],
            file_id: None,
            file_name: name.clone(),
        }).collect();
        for class in [FileInformationClass::FileBothDirectoryInformation, FileInformationClass::FileIdBothDirectoryInformation] {
            let with_id = class as u8 == 37;
            let entries: Vec<_> = entries.iter().map(|one| DirectoryInfoEntry { file_id: with_id.then_some(seed.w[5]), ..one.clone() }).collect();
            same_listing(class, &pack_entries(class, &entries).unwrap(), &entries);
        }

        let header = o::transform::TransformHeader {
            signature: [seed.bytes[0]; 16],
            nonce: [seed.n[0] as u8; 16],
            original_message_size: seed.n[1],
            flags: seed.n[2] as u16,
            session_id: ot::SessionId(seed.w[0]),
        };
        let mut cursor = WriteCursor::new();
        header.pack(&mut cursor);
        let bytes = cursor.into_inner();
        let view = TransformHeader::parse(&bytes).unwrap();
        prop_assert_eq!((view.signature(), view.nonce(), view.flags()), (header.signature, header.nonce, header.flags));
        prop_assert_eq!((view.original_message_size(), view.session_id()), (header.original_message_size, header.session_id.0));
    }
}

fn same_listing(class: FileInformationClass, buffer: &[u8], other: &[DirectoryInfoEntry]) {
    let ours: Vec<_> =
        DirectoryEntries::new(m::InfoClass(class as u8), buffer).unwrap().map(Result::unwrap).collect();
    assert_eq!(ours.len(), other.len());
    for (ours, other) in ours.iter().zip(other) {
        let times = [other.creation_time, other.last_access_time, other.last_write_time, other.change_time];
        let attributes = ours.attributes().unwrap();
        same_attributes(attributes, times, other.allocation_size, other.end_of_file, other.file_attributes);
        assert_eq!((ours.file_index(), ours.ea_size()), (other.file_index, Some(other.ea_size)));
        assert_eq!(ours.file_id(), other.file_id.map(u128::from));
        assert!(ours.name().eq_str(&other.file_name));
    }
}

#[test]
fn captured_messages_are_read_the_same() {
    let (mut read_by_both, mut listings) = (0, 0);
    for path in captures::paths() {
        let bytes = captures::read(&path);
        let mut class = None;
        for (_, message) in captures::records(&bytes) {
            if MessageKind::of(message) != MessageKind::Smb2 {
                continue;
            }
            for range in elements(message) {
                let element = &message[range.unwrap()];
                assert!(agree(element), "{}: {:?}", path.display(), Header::parse(element));
                read_by_both += 1;
                if let Ok(Request::QueryDirectory(view)) = Request::parse(element) {
                    class = FileInformationClass::try_from(view.info_class().0).ok();
                }
                let (Ok(Response::QueryDirectory(view)), Some(class)) = (Response::parse(element), class)
                else {
                    continue;
                };
                same_listing(class, view.buffer(), &parse_entries(class, view.buffer()).unwrap());
                listings += 1;
            }
        }
    }
    println!("{read_by_both} messages and {listings} listings compared");
}
