//! Variable parts, lists and choices, against bytes written out by hand from the documents.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::BytesMut;
use isthmus_smb_wire::compression::CompressedMessage;
use isthmus_smb_wire::create_context::{Lease, name as context_name};
use isthmus_smb_wire::fscc::{self, ChangeAction, Changes, DirectoryEntries, FileTimesAndSizes};
use isthmus_smb_wire::header::credit_charge;
use isthmus_smb_wire::messages as m;
use isthmus_smb_wire::messages::InfoClass;
use isthmus_smb_wire::name::utf16;
use isthmus_smb_wire::negotiate_context::{CompressionAlgorithm, NegotiateContextType};
use isthmus_smb_wire::smb1::Smb1Negotiate;
use isthmus_smb_wire::{
    Command, FileId, FrameType, Header, HeaderFlags, MessageKind, Request, Response, Status, WireError, edit,
    transport,
};

/// A message with this body.
fn message(command: Command, status: Status, flags: HeaderFlags, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(&[0xfe, b'S', b'M', b'B']);
    bytes[4] = 64;
    bytes.extend_from_slice(body);
    let mut header = Header::parse(&mut bytes[..]).unwrap();
    header.set_command(command);
    header.set_status(status);
    header.set_flags(flags);
    bytes
}

fn request(command: Command, body: &[u8]) -> Vec<u8> {
    message(command, Status::SUCCESS, HeaderFlags::NONE, body)
}

fn response(command: Command, body: &[u8]) -> Vec<u8> {
    message(command, Status::SUCCESS, HeaderFlags::SERVER_TO_REDIR, body)
}

/// Bytes with numbers written over zeros: value, place and length of each.
fn zeros(length: usize, numbers: &[(u64, usize, usize)]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for &(value, at, width) in numbers {
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    bytes
}

#[test]
fn a_write_and_a_read_tell_where_their_payload_is() {
    let fixed = zeros(48, &[(49, 0, 2), (112, 2, 2), (5, 4, 4), (1 << 40, 8, 8), (7, 16, 8), (8, 24, 8)]);
    let write = request(Command::WRITE, &[fixed, b"hello, and padding".to_vec()].concat());
    let view = m::WriteRequest::parse(&write[..]).unwrap();
    assert_eq!(view.payload_range(), 112..117);
    assert_eq!(&write[view.payload_range()], b"hello");
    let file_id = FileId { persistent: 7, volatile: 8 };
    assert_eq!(view.span(), m::Span { file_id, offset: 1 << 40, length: 5 });
    let shown = [format!("{view:?}"), format!("{:?}", Request::parse(&write[..]).unwrap())];
    assert!(
        shown.iter().all(|text| text.starts_with("WriteRequest { offset") && !text.contains("104")),
        "{shown:?}"
    );
    assert_eq!(format!("{:?}", isthmus_smb_wire::compound::elements(&write)), "Elements { .. }");

    let read = response(
        Command::READ,
        &[zeros(16, &[(17, 0, 2), (80, 2, 1), (5, 4, 4)]), b"hello".to_vec()].concat(),
    );
    let view = m::ReadResponse::parse(&read[..]).unwrap();
    assert_eq!((view.payload_range(), view.payload()), (80..85, &b"hello"[..]));
}

#[test]
fn parts_out_of_bounds_are_refused_and_empty_ones_are_not() {
    let read = |offset: u64, length: u64| {
        response(
            Command::READ,
            &[zeros(16, &[(17, 0, 2), (offset, 2, 1), (length, 4, 4)]), vec![1; 8]].concat(),
        )
    };
    assert_eq!(m::ReadResponse::parse(&read(80, 8)[..]).unwrap().payload(), [1; 8]);
    assert_eq!(m::ReadResponse::parse(&read(84, 4)[..]).unwrap().payload(), [1; 4]);
    for empty in [0, 80, 255] {
        assert!(m::ReadResponse::parse(&read(empty, 0)[..]).unwrap().payload().is_empty());
    }
    for (offset, length) in [(80, 9), (81, 8), (79, 2), (0, 1), (255, 1), (80, u64::from(u32::MAX))] {
        let bytes = read(offset, length);
        let error = m::ReadResponse::parse(&bytes[..]).unwrap_err();
        assert_eq!(error, WireError::OutOfBounds { what: "ReadResponse", offset, length, found: 88 });
    }
}

#[test]
fn locks_are_listed() {
    let fixed = zeros(24, &[(48, 0, 2), (2, 2, 2)]);
    let locks = zeros(48, &[(1, 0, 8), (2, 8, 8), (0x12, 16, 4), (u64::MAX, 24, 8), (3, 32, 8), (4, 40, 4)]);
    let bytes = request(Command::LOCK, &[fixed.clone(), locks].concat());
    let view = m::LockRequest::parse(&bytes[..]).unwrap();
    let found: Vec<_> = view.locks().map(|lock| (lock.offset, lock.length, lock.flags.0)).collect();
    assert_eq!(found, [(1, 2, 0x12), (u64::MAX, 3, 4)]);
    assert!(m::LockRequest::parse(&bytes[..bytes.len() - 1]).is_err());
    // A client may send no lock at all, for the server to refuse.
    let none = request(Command::LOCK, &zeros(24, &[(48, 0, 2)]));
    assert_eq!(m::LockRequest::parse(&none[..]).unwrap().locks().count(), 0);
}

#[test]
fn another_message_is_refused_by_its_cause() {
    let read = request(Command::READ, &zeros(49, &[(49, 0, 2)]));
    assert_eq!(
        m::WriteRequest::parse(&read[..]).unwrap_err(),
        WireError::Command { expected: Command::WRITE, found: Command::READ }
    );
    assert_eq!(m::ReadResponse::parse(&read[..]).unwrap_err(), WireError::Direction { what: "ReadResponse" });
    let other = request(Command::READ, &zeros(49, &[(48, 0, 2)]));
    assert_eq!(
        m::ReadRequest::parse(&other[..]).unwrap_err(),
        WireError::StructureSize { what: "ReadRequest", expected: 49, found: 48 }
    );
    assert_eq!(
        m::ReadRequest::parse(&read[..111]).unwrap_err(),
        WireError::Truncated { what: "ReadRequest", needed: 112, found: 111 }
    );
    assert_eq!(Header::parse([0_u8; 64]).unwrap_err(), WireError::ProtocolId([0; 4]));
    let mut other = read;
    other[4] = 65;
    assert!(matches!(Header::parse(&other[..]), Err(WireError::StructureSize { found: 65, .. })));
}

#[test]
fn errors_and_answers_are_told_apart() {
    let short = zeros(9, &[(9, 0, 2)]);
    let is_error = |command, status| {
        let bytes = message(command, status, HeaderFlags::SERVER_TO_REDIR, &short);
        matches!(Response::parse(&bytes[..]).unwrap(), Response::Error(_))
    };
    assert!(!is_error(Command::SESSION_SETUP, Status::SUCCESS));
    assert!(!is_error(Command::SESSION_SETUP, Status::MORE_PROCESSING_REQUIRED));
    assert!(is_error(Command::SESSION_SETUP, Status::LOGON_FAILURE));
    assert!(!is_error(Command::QUERY_INFO, Status::BUFFER_OVERFLOW));
    assert!(is_error(Command::QUERY_INFO, Status::BUFFER_TOO_SMALL));
    assert!(is_error(Command::QUERY_DIRECTORY, Status::NO_MORE_FILES));
    assert!(!is_error(Command::CHANGE_NOTIFY, Status::NOTIFY_ENUM_DIR));
    assert!(is_error(Command::CHANGE_NOTIFY, Status::PENDING));
    assert!(is_error(Command::CHANGE_NOTIFY, Status::NOTIFY_CLEANUP));
    for command in (0..0x13).map(Command) {
        assert!(is_error(command, Status::PENDING), "{command:?}");
        assert!(is_error(command, Status::ACCESS_DENIED), "{command:?}");
    }
    // An IOCTL may fail and still have its own body, such as a copy on the server whose limits are exceeded.
    let ioctl = zeros(48, &[(49, 0, 2)]);
    let bytes = message(Command::IOCTL, Status::INVALID_PARAMETER, HeaderFlags::SERVER_TO_REDIR, &ioctl);
    assert!(matches!(Response::parse(&bytes[..]).unwrap(), Response::Ioctl(_)));
}

#[test]
fn unknown_commands_are_kept() {
    let asked = request(Command(0x99), &[1, 2, 3]);
    let Request::Unknown(view) = Request::parse(&asked[..]).unwrap() else { panic!() };
    assert_eq!((view.header().command(), view.as_bytes()), (Command(0x99), &asked[..]));
    let told = response(Command(0x99), &[1, 2, 3]);
    assert!(matches!(Response::parse(&told[..]).unwrap(), Response::Unknown(_)));
    let failed = message(
        Command(0x99),
        Status::NOT_SUPPORTED,
        HeaderFlags::SERVER_TO_REDIR,
        &[9, 0, 0, 0, 0, 0, 0, 0],
    );
    assert!(matches!(Response::parse(&failed[..]).unwrap(), Response::Error(_)));
}

#[test]
fn breaks_are_told_apart() {
    let unsolicited = |mut bytes: Vec<u8>| {
        Header::parse(&mut bytes[..]).unwrap().set_message_id(u64::MAX);
        bytes
    };
    let body = |size: u64| zeros(44, &[(size, 0, 2), (1, 4, 4)]);
    let bytes = unsolicited(response(Command::OPLOCK_BREAK, &body(44)));
    let Response::LeaseBreak(view) = Response::parse(&bytes[..]).unwrap() else { panic!() };
    assert!(view.ack_required());
    let bytes = unsolicited(response(Command::OPLOCK_BREAK, &body(24)));
    assert!(matches!(Response::parse(&bytes[..]).unwrap(), Response::OplockBreak(_)));
    assert_eq!(isthmus_smb_wire::file_id(&bytes), Some(FileId::default()));
    let bytes = response(Command::OPLOCK_BREAK, &body(24));
    assert!(matches!(Response::parse(&bytes[..]).unwrap(), Response::OplockBreakAcknowledged(_)));
    let bytes = response(Command::OPLOCK_BREAK, &body(36));
    assert!(matches!(Response::parse(&bytes[..]).unwrap(), Response::LeaseBreakAcknowledged(_)));
    assert_eq!(isthmus_smb_wire::file_id(&bytes), None);
    let bytes = request(Command::OPLOCK_BREAK, &body(36));
    assert!(matches!(Request::parse(&bytes[..]).unwrap(), Request::LeaseBreak(_)));
}

#[test]
fn error_contexts_are_listed() {
    // Two contexts, of three bytes and of one, the second at a multiple of eight.
    let data = [3, 0, 0, 0, 0x53, 0x52, 0x64, 0x72, 7, 8, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5];
    let body = [&[9, 0, 2, 0, 25, 0, 0, 0][..], &data].concat();
    let bytes = message(Command::TREE_CONNECT, Status::BAD_NETWORK_NAME, HeaderFlags::SERVER_TO_REDIR, &body);
    let view = m::ErrorResponse::parse(&bytes[..]).unwrap();
    let found: Vec<_> =
        view.contexts().map(|one| one.map(|one| (one.id, one.data.to_vec())).unwrap()).collect();
    assert_eq!(found, [(0x7264_5253, vec![7, 8, 9]), (0, vec![5])]);
    let mut cut = bytes.clone();
    cut[64 + 4] = 24;
    let view = m::ErrorResponse::parse(&cut[..]).unwrap();
    assert_eq!(view.contexts().map(|one| one.is_ok()).collect::<Vec<_>>(), [true, false]);
    assert!(m::ErrorResponse::parse(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn tree_connects_may_have_an_extension() {
    let path = utf16("\\\\s\\x");
    let plain = request(
        Command::TREE_CONNECT,
        &[zeros(8, &[(9, 0, 2), (72, 4, 2), (10, 6, 2)]), path.clone()].concat(),
    );
    let view = m::TreeConnectRequest::parse(&plain[..]).unwrap();
    assert!(view.path().eq_str("\\\\s\\x"));
    assert_eq!(view.extension(), Ok(None));
    let fixed = zeros(24, &[(9, 0, 2), (4, 2, 2), (88, 4, 2), (10, 6, 2), (40, 8, 4), (1, 12, 2)]);
    let extended = request(Command::TREE_CONNECT, &[fixed, path].concat());
    let view = m::TreeConnectRequest::parse(&extended[..]).unwrap();
    assert!(view.path().eq_str("\\\\s\\x"));
    let extension = m::TreeConnectExtension { context_offset: 40, context_count: 1 };
    assert_eq!(view.extension(), Ok(Some(extension)));
}

#[test]
fn network_interfaces_are_listed() {
    let first = zeros(
        152,
        &[(152, 0, 4), (3, 4, 4), (1, 8, 4), (10_000_000_000, 16, 8), (2, 24, 2), (0x0100_007f, 28, 4)],
    );
    let second = zeros(152, &[(4, 4, 4), (0x17, 24, 2), (0x80fe, 32, 2)]);
    let all = [first, second].concat();
    let found: Vec<_> = m::NetworkInterfaces::new(&all).map(Result::unwrap).collect();
    assert_eq!((found[0].index(), found[0].capability(), found[0].link_speed()), (3, 1, 10_000_000_000));
    assert_eq!((found[0].family(), found[0].ipv4()), (2, [127, 0, 0, 1]));
    assert_eq!(
        (found[1].index(), found[1].family(), found[1].ipv6()[..2].to_vec()),
        (4, 0x17, vec![0xfe, 0x80])
    );
    assert_eq!(found.len(), 2);
    let cut: Vec<_> = m::NetworkInterfaces::new(&all[..300]).map(|one| one.is_ok()).collect();
    assert_eq!(cut, [true, false]);
    assert!(m::NetworkInterfaces::new(&zeros(152, &[(4, 0, 4)])).next().unwrap().is_err());
}

#[test]
fn compressed_messages_of_both_forms_are_read() {
    let head = |first: u64| zeros(16, &[(0x424d_53fc, 0, 4), (1000, 4, 4), (first, 8, 8)]);
    let plain = [head(2 | 3 << 32), b"abcDEFG".to_vec()].concat();
    let CompressedMessage::Unchained(view) = CompressedMessage::parse(&plain).unwrap() else { panic!() };
    assert_eq!((view.original_size, view.algorithm), (1000, CompressionAlgorithm::LZ77));
    assert_eq!((view.uncompressed(), view.compressed()), (&b"abc"[..], &b"DEFG"[..]));
    assert!(CompressedMessage::parse(&plain[..18]).is_err());

    // Plain bytes, then a pattern, then LZ77 with Huffman coding, whose length counts the original size too.
    let chained = [
        head(1 << 16 | 3 << 32),
        b"abc".to_vec(),
        zeros(16, &[(4, 0, 2), (8, 4, 4), (0xee, 8, 1), (500, 12, 4)]),
        zeros(12, &[(3, 0, 2), (6, 4, 4), (900, 8, 4)]),
        b"XY".to_vec(),
    ]
    .concat();
    let CompressedMessage::Chained(view) = CompressedMessage::parse(&chained).unwrap() else { panic!() };
    let found: Vec<_> = view.payloads().map(Result::unwrap).collect();
    let kinds: Vec<_> =
        found.iter().map(|one| (one.algorithm.0, one.original_size, one.data.len())).collect();
    assert_eq!(kinds, [(0, None, 3), (4, None, 8), (3, Some(900), 2)]);
    assert_eq!((found[0].data, found[2].data), (&b"abc"[..], &b"XY"[..]));
    let CompressedMessage::Chained(cut) = CompressedMessage::parse(&chained[..chained.len() - 1]).unwrap()
    else {
        panic!()
    };
    assert_eq!(cut.payloads().map(|one| one.is_ok()).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn smb1_negotiates_list_their_dialects() {
    let dialects = b"\x02NT LM 0.12\0\x02SMB 2.002\0\x02SMB 2.???\0";
    let mut bytes = zeros(35, &[(0x424d_53ff, 0, 4), (0x72, 4, 1), (dialects.len() as u64, 33, 2)]);
    bytes.extend_from_slice(dialects);
    assert_eq!(MessageKind::of(&bytes), MessageKind::Smb1);
    let view = Smb1Negotiate::parse(&bytes).unwrap();
    let found: Vec<&[u8]> = view.dialects().collect();
    assert_eq!(found, [&b"NT LM 0.12"[..], b"SMB 2.002", b"SMB 2.???"]);
    assert!(view.offers_smb2());
    bytes[33] = 12;
    assert!(!Smb1Negotiate::parse(&bytes).unwrap().offers_smb2());
    bytes[33] = 200;
    assert!(Smb1Negotiate::parse(&bytes).is_err());
    bytes[4] = 0x73;
    assert_eq!(Smb1Negotiate::parse(&bytes).unwrap_err(), WireError::Value { what: "SMB1 negotiate" });
}

/// Two entries of a class, whose names are at a place and whose lengths are at another.
fn listing(name_at: usize, length_at: usize, numbers: &[(u64, usize, usize)]) -> Vec<u8> {
    let (one, two) = (utf16("日.txt"), utf16("b"));
    let next = (name_at + one.len()).next_multiple_of(8);
    let mut first =
        zeros(next, &[numbers, &[(next as u64, 0, 4), (one.len() as u64, length_at, 4)]].concat());
    first[name_at..name_at + one.len()].copy_from_slice(&one);
    [first, zeros(name_at, &[(2, length_at, 4)]), two].concat()
}

#[test]
fn listings_of_all_classes_are_read() {
    let times = [
        (11, 8, 8),
        (12, 16, 8),
        (13, 24, 8),
        (14, 32, 8),
        (15, 40, 8),
        (16, 48, 8),
        (0x20, 56, 4),
        (9, 4, 4),
    ];
    let expected = FileTimesAndSizes {
        creation_time: 11,
        last_access_time: 12,
        last_write_time: 13,
        change_time: 14,
        end_of_file: 15,
        allocation_size: 16,
        file_attributes: m::FileAttributes::ARCHIVE,
    };
    let short = |at| [(4, at, 1), (u64::from(b'A') | u64::from(b'~') << 16, at + 2, 4)];
    let long_id: [(u64, usize, usize); 2] = [(5, 72, 8), (1, 80, 8)];
    let ea = [(77, 64, 4)];
    let long = Some(5 | 1 << 64);
    for (class, name_at, more, has_ea, has_short, file_id) in [
        (InfoClass::DIRECTORY, 64, vec![], false, false, None),
        (InfoClass::FULL_DIRECTORY, 68, ea.to_vec(), true, false, None),
        (InfoClass::BOTH_DIRECTORY, 94, [&ea[..], &short(68)].concat(), true, true, None),
        (
            InfoClass::ID_BOTH_DIRECTORY,
            104,
            [&ea[..], &short(68), &[(6, 96, 8)]].concat(),
            true,
            true,
            Some(6),
        ),
        (InfoClass::ID_FULL_DIRECTORY, 80, [&ea[..], &[(6, 72, 8)]].concat(), true, false, Some(6)),
        (InfoClass::ID_EXTD_DIRECTORY, 88, [&ea[..], &long_id].concat(), true, false, long),
        (InfoClass::ID_EXTD_BOTH_DIRECTORY, 114, [&ea[..], &long_id, &short(88)].concat(), true, true, long),
    ] {
        let buffer = listing(name_at, 60, &[&times[..], &more].concat());
        let found: Vec<_> = DirectoryEntries::new(class, &buffer).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 2, "{class:?}");
        assert!(found[0].name().eq_str("日.txt") && found[1].name().eq_str("b"), "{class:?}");
        assert_eq!((found[0].attributes(), found[0].file_index()), (Some(expected), 9), "{class:?}");
        assert_eq!((found[0].ea_size(), found[0].file_id()), (has_ea.then_some(77), file_id), "{class:?}");
        assert_eq!(
            found[0].short_name().map(|name| name.eq_str("A~")),
            has_short.then_some(true),
            "{class:?}"
        );
    }
    let buffer = listing(12, 8, &[]);
    let found: Vec<_> =
        DirectoryEntries::new(InfoClass::NAMES, &buffer).unwrap().map(Result::unwrap).collect();
    assert!(found[0].name().eq_str("日.txt") && found[1].name().eq_str("b"));
    assert_eq!((found[0].attributes(), found[0].ea_size(), found[0].file_id()), (None, None, None));
    assert!(DirectoryEntries::new(InfoClass::BASIC, &buffer).is_none());
}

#[test]
fn listings_that_do_not_fit_end() {
    let buffer = listing(64, 60, &[]);
    let oks = |buffer: &[u8]| -> Vec<bool> {
        DirectoryEntries::new(InfoClass::DIRECTORY, buffer).unwrap().map(|one| one.is_ok()).collect()
    };
    assert_eq!(oks(&buffer), [true, true]);
    assert_eq!(oks(&buffer[..buffer.len() - 1]), [true, false]);
    for next in [1, 63, 66, buffer.len() as u64 + 1, u64::from(u32::MAX)] {
        let mut bad = buffer.clone();
        bad[..4].copy_from_slice(&next.to_le_bytes()[..4]);
        assert!(!oks(&bad)[0], "{next}");
    }
    // A next entry that begins where the buffer ends is none.
    let mut last = buffer.clone();
    let all = buffer.len() as u32;
    last[..4].copy_from_slice(&all.to_le_bytes());
    assert_eq!(oks(&last), [true]);
}

#[test]
fn names_in_information_are_read() {
    let name = utf16("a\\日");
    let all = [zeros(100, &[(6, 96, 4), (15, 48, 8), (2, 0, 8)]), name.clone(), vec![9]].concat();
    let view = fscc::FileAllInformation::parse(&all[..]).unwrap();
    assert!(view.name().eq_str("a\\日"));
    assert_eq!((view.attributes().end_of_file, view.attributes().creation_time), (15, 2));
    assert!(fscc::FileAllInformation::parse(&all[..102]).unwrap().name().eq_str("a"));

    let rename = [zeros(20, &[(1, 0, 1), (6, 16, 4)]), name.clone()].concat();
    let view = fscc::FileRenameInformation::parse(&rename[..]).unwrap();
    assert!(view.name().eq_str("a\\日"));
    assert!(fscc::FileRenameInformation::parse(&rename[..25]).is_err());

    let changes = [
        zeros(12, &[(20, 0, 4), (4, 4, 4), (6, 8, 4)]),
        name,
        vec![0; 2],
        zeros(12, &[(5, 4, 4), (2, 8, 4)]),
        utf16("b"),
    ]
    .concat();
    let found: Vec<_> = Changes::new(&changes).map(Result::unwrap).collect();
    assert_eq!(
        [found[0].action, found[1].action],
        [ChangeAction::RENAMED_OLD_NAME, ChangeAction::RENAMED_NEW_NAME]
    );
    assert!(found[0].name.eq_str("a\\日") && found[1].name.eq_str("b"));

    let file = FileTimesAndSizes { change_time: 4, allocation_size: 5, ..FileTimesAndSizes::default() };
    assert_eq!(fscc::FileNetworkOpenInformation::parse(file.to_network_open()).unwrap().attributes(), file);
}

#[test]
fn malformed_create_contexts_end_the_list() {
    let lease = [
        zeros(16, &[(56, 0, 4), (16, 4, 2), (4, 6, 2), (24, 10, 2), (32, 12, 4)]),
        b"RqLs".to_vec(),
        vec![0; 4],
        vec![3; 32],
    ]
    .concat();
    let last = [zeros(16, &[(16, 4, 2), (4, 6, 2)]), b"MxAc".to_vec()].concat();
    let contexts = [lease, last].concat();
    let create = |contexts: &[u8]| {
        let fixed = zeros(56, &[(57, 0, 2), (120, 44, 2), (120, 48, 4), (contexts.len() as u64, 52, 4)]);
        request(Command::CREATE, &[&fixed, contexts].concat())
    };
    let bytes = create(&contexts);
    let view = m::CreateRequest::parse(&bytes[..]).unwrap();
    let found: Vec<_> = view.contexts().map(Result::unwrap).collect();
    assert_eq!((found[0].name, found[1].name), (context_name::LEASE, context_name::MAXIMAL_ACCESS));
    assert_eq!((found[0].range(), found[0].data_range(), found[1].range()), (120..176, 144..176, 176..196));
    let view = Lease::parse(found[0].data).unwrap();
    assert!(!view.is_v2() && view.lease_key() == [3; 16]);
    assert!(m::CreateRequest::parse(&bytes[..]).unwrap().contexts().find_name(b"MxAc").is_some());
    for (value, at, width) in
        [(8_u64, 0, 4), (77, 0, 4), (4, 4, 2), (41, 6, 2), (8, 10, 2), (33, 12, 4), (1 << 31, 12, 4)]
    {
        let mut bad = contexts.clone();
        bad[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        let bytes = create(&bad);
        let view = m::CreateRequest::parse(&bytes[..]).unwrap();
        assert!(view.contexts().next().unwrap().is_err(), "{value} at {at}");
        assert_eq!(view.contexts().count(), 1);
        assert!(edit::without_create_context(&bytes, b"MxAc").is_err());
    }
    let without = edit::without_create_context(&bytes, b"RqLs").unwrap();
    let view = m::CreateRequest::parse(&without[..]).unwrap();
    assert_eq!(view.contexts().map(|one| one.unwrap().name.to_vec()).collect::<Vec<_>>(), [b"MxAc"]);
}

#[test]
fn negotiate_contexts_can_be_taken_out() {
    let context = |kind: u64, data: &[u8]| {
        [zeros(8, &[(kind, 0, 2), (data.len() as u64, 2, 2)]), data.to_vec()].concat()
    };
    let mut list = Vec::new();
    for (kind, data) in [(1, &[1, 0, 0, 0, 1, 0][..]), (3, &[9; 10]), (6, &[0; 4]), (2, &[1, 0, 2, 0])] {
        list.resize(usize::next_multiple_of(list.len(), 8), 0);
        list.extend_from_slice(&context(kind, data));
    }
    // Two dialects end four bytes before the contexts.
    let fixed = zeros(36, &[(36, 0, 2), (2, 2, 2), (104, 28, 4), (4, 32, 2)]);
    let bytes = request(Command::NEGOTIATE, &[&fixed[..], &[0x02, 0x03, 0x11, 0x03], &list].concat());
    let unwanted = [NegotiateContextType::COMPRESSION, NegotiateContextType::TRANSPORT];
    let edited = edit::without_negotiate_contexts(&bytes, |kind| unwanted.contains(&kind)).unwrap();
    let view = m::NegotiateRequest::parse(&edited[..]).unwrap();
    let found: Vec<_> =
        view.contexts().map(Result::unwrap).map(|one| (one.kind.0, one.data.to_vec())).collect();
    assert_eq!(found, [(1, vec![1, 0, 0, 0, 1, 0]), (2, vec![1, 0, 2, 0])]);
    assert_eq!(edited.len(), 104 + 16 + 12);
    assert_eq!(edit::without_negotiate_contexts(&bytes, |_| false).unwrap(), bytes);
    let none = edit::without_negotiate_contexts(&bytes, |_| true).unwrap();
    assert_eq!(m::NegotiateRequest::parse(&none[..]).unwrap().contexts().count(), 0);
}

#[test]
fn a_negotiate_without_3_1_1_has_no_contexts() {
    // In older dialects the place of the contexts' offset is that of a time.
    let fixed = zeros(36, &[(36, 0, 2), (1, 2, 2), (u64::MAX, 28, 8)]);
    let bytes = request(Command::NEGOTIATE, &[&fixed[..], &[0x02, 0x03]].concat());
    let view = m::NegotiateRequest::parse(&bytes[..]).unwrap();
    assert_eq!((view.has_contexts(), view.contexts().count()), (false, 0));
    let many =
        request(Command::NEGOTIATE, &[&zeros(36, &[(36, 0, 2), (2, 2, 2)])[..], &[0x02, 0x03]].concat());
    assert!(m::NegotiateRequest::parse(&many[..]).is_err());
}

#[test]
fn frames_have_limits_and_types() {
    let mut buffer = BytesMut::from(&[0x85, 0, 0, 0, 0, 0, 0, 2, 7, 8, 0, 0][..]);
    let frame = transport::split(&mut buffer, 10).unwrap().unwrap();
    assert_eq!((frame.frame_type(), frame.message()), (FrameType::KeepAlive, &[][..]));
    let mut frame = transport::split(&mut buffer, 10).unwrap().unwrap();
    frame.message_mut()[1] = 9;
    assert_eq!((frame.frame_type(), &frame.into_bytes()[..]), (FrameType::Message, &[0, 0, 0, 2, 7, 9][..]));
    assert_eq!(transport::split(&mut buffer, 10), Ok(None));
    assert_eq!(buffer[..], [0, 0]);
    let mut long = BytesMut::from(&[0, 0, 0, 11][..]);
    assert_eq!(
        transport::split(&mut long, 10).unwrap_err(),
        WireError::TooLong { what: "message", length: 11, limit: 10 }
    );
    assert_eq!(transport::frame_len(&[0, 1, 2, 3], 1 << 20), Ok(Some(0x0001_0203 + 4)));
    assert_eq!(transport::frame_header(0x00ff_ffff), Ok([0, 0xff, 0xff, 0xff]));
    assert!(transport::frame_header(0x0100_0000).is_err());
    let mut out = BytesMut::new();
    transport::put(&mut out, &[1, 2, 3]).unwrap();
    assert_eq!(out[..], [0, 0, 0, 3, 1, 2, 3]);
    assert!((0..=255).all(|byte| FrameType::from_byte(byte).to_byte() == byte));
}

#[test]
fn messages_are_told_apart_by_their_first_bytes() {
    for (first, kind) in [
        (0xff, MessageKind::Smb1),
        (0xfe, MessageKind::Smb2),
        (0xfd, MessageKind::Transform),
        (0xfc, MessageKind::Compressed),
        (0xfb, MessageKind::Unknown),
    ] {
        assert_eq!(MessageKind::of(&[first, b'S', b'M', b'B', 0]), kind);
    }
    assert_eq!(MessageKind::of(&[0xfe, b'S', b'M']), MessageKind::Unknown);
}

#[test]
fn credits_are_charged_by_64_kib() {
    for (bytes, charge) in [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (8 << 20, 128), (u32::MAX, u16::MAX)] {
        assert_eq!(credit_charge(bytes), charge, "{bytes}");
    }
}
