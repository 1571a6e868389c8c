//! Whatever bytes come: no panic, no change, and what is made reads back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod walk;

use bytes::BytesMut;
use isthmus_smb_wire::build::{self, HeaderFields, NewContext};
use isthmus_smb_wire::compound::{elements, join};
use isthmus_smb_wire::create_context::{LeaseState, name as context_name};
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages as m;
use isthmus_smb_wire::messages::{AccessMask, CreateDisposition, CreateOptions, FileAttributes, ShareAccess};
use isthmus_smb_wire::{Command, FileId, Header, HeaderFlags, Name, Request, Response, Status, transport};
use proptest::collection::vec;
use proptest::prelude::*;

/// Structure sizes that bodies have.
const STRUCTURE_SIZES: [u16; 16] = [2, 4, 9, 16, 17, 24, 25, 32, 33, 36, 41, 44, 48, 49, 57, 65];

/// Bytes that are a message up to the structure size, so that views look further. Small numbers abound, so that offsets
/// and lengths are often within bounds.
fn near_message() -> impl Strategy<Value = Vec<u8>> {
    let size = prop::sample::select([&STRUCTURE_SIZES[..], &[60, 89]].concat());
    let byte = prop_oneof![3 => Just(0_u8), 2 => prop::sample::select(vec![1, 2, 8, 16, 64, 72, 80, 104, 120]), 1 => any::<u8>()];
    (0..0x15_u16, any::<bool>(), size, any::<u32>(), vec(byte, 0..400)).prop_map(
        |(command, response, size, status, body)| {
            let mut bytes = vec![0; 64];
            bytes[..4].copy_from_slice(&[0xfe, b'S', b'M', b'B']);
            bytes[4] = 64;
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&body);
            let mut header = Header::parse(&mut bytes[..]).unwrap();
            header.set_command(Command(command));
            header.set_status(if status % 2 == 0 { Status::SUCCESS } else { Status(status) });
            header.set_flags(if response { HeaderFlags::SERVER_TO_REDIR } else { HeaderFlags::NONE });
            bytes
        },
    )
}

fn fields() -> impl Strategy<Value = HeaderFields> {
    let ids = (any::<u64>(), any::<u64>(), any::<u32>(), prop::option::of(any::<u64>()));
    (any::<u32>(), any::<u16>(), any::<u16>(), ids).prop_map(|(flags, charge, credits, ids)| HeaderFields {
        flags: HeaderFlags(flags).without(HeaderFlags::SERVER_TO_REDIR).without(HeaderFlags::ASYNC_COMMAND),
        status: Status::SUCCESS,
        credit_charge: charge,
        credits,
        message_id: ids.0,
        session_id: ids.1,
        tree_id: ids.2,
        async_id: ids.3,
    })
}

fn file_id() -> impl Strategy<Value = FileId> {
    (any::<u64>(), any::<u64>()).prop_map(|(persistent, volatile)| FileId { persistent, volatile })
}

fn attributes() -> impl Strategy<Value = FileTimesAndSizes> {
    any::<([u64; 6], u32)>().prop_map(|(numbers, attributes)| FileTimesAndSizes {
        creation_time: numbers[0],
        last_access_time: numbers[1],
        last_write_time: numbers[2],
        change_time: numbers[3],
        allocation_size: numbers[4],
        end_of_file: numbers[5],
        file_attributes: FileAttributes(attributes),
    })
}

fn check_header(message: &[u8], fields: &HeaderFields, command: Command, response: bool) {
    let header = Header::parse(message).unwrap();
    assert_eq!(header.command(), command);
    assert_eq!(header.is_response(), response);
    assert_eq!(header.message_id(), fields.message_id);
    assert_eq!(header.session_id(), fields.session_id);
    assert_eq!(header.async_id(), fields.async_id);
    assert_eq!(header.tree_id(), fields.async_id.is_none().then_some(fields.tree_id));
    assert_eq!((header.credits(), header.credit_charge()), (fields.credits, fields.credit_charge));
    assert!(header.flags().contains(fields.flags));
    assert_eq!(header.next_command(), 0);
    assert_eq!(header.signature(), [0; 16]);
}

proptest! {
    #[test]
    fn any_bytes_are_looked_at_without_panic(bytes in vec(any::<u8>(), 0..600)) {
        walk::stream(&bytes);
        walk::message(&bytes);
        walk::element(&bytes);
    }

    #[test]
    fn near_messages_are_looked_at_without_panic(bytes in near_message()) {
        walk::message(&bytes);
    }

    #[test]
    fn compounds_of_near_messages_are_looked_at_without_panic(all in vec(near_message(), 1..5)) {
        let message = join(&all).unwrap();
        let ranges: Vec<_> = elements(&message).map(Result::unwrap).collect();
        prop_assert_eq!(ranges.len(), all.len());
        for (range, one) in ranges.iter().zip(&all) {
            let element = &message[range.clone()];
            prop_assert_eq!(&element[64..one.len()], &one[64..]);
            prop_assert!(element[one.len()..].iter().all(|&byte| byte == 0) && element.len() < one.len() + 8);
        }
        walk::message(&message);
    }

    #[test]
    fn other_protocols_are_looked_at_without_panic(first in 0xfc_u8.., bytes in vec(any::<u8>(), 0..200)) {
        let mut message = vec![first, b'S', b'M', b'B'];
        message.extend_from_slice(&bytes);
        walk::message(&message);
    }

    #[test]
    fn looking_changes_nothing(bytes in near_message()) {
        let mut copy = bytes.clone();
        if let Ok(request) = Request::parse(&mut copy[..]) {
            let header = request.header();
            prop_assert_eq!(header.as_bytes(), &bytes);
        }
        prop_assert_eq!(copy, bytes);
    }

    #[test]
    fn frames_are_split_wherever_the_input_is(
        messages in vec((prop_oneof![4 => Just(0_u8), 1 => Just(0x85), 1 => any::<u8>()], vec(any::<u8>(), 0..300)), 1..8),
        cuts in vec(1_usize..200, 1..20),
    ) {
        let mut input = Vec::new();
        for (kind, message) in &messages {
            input.push(*kind);
            input.extend_from_slice(&(message.len() as u32).to_be_bytes()[1..]);
            input.extend_from_slice(message);
        }
        let (mut buffer, mut found, mut rest) = (BytesMut::new(), Vec::new(), &input[..]);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            buffer.extend_from_slice(now);
            rest = later;
            while let Some(frame) = transport::split(&mut buffer, 300).unwrap() {
                found.push((frame.frame_type().to_byte(), frame.message().to_vec()));
                prop_assert_eq!(&frame.clone().into_message()[..], frame.message());
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn creates_read_back(
        fields in fields(),
        name in vec(any::<u8>(), 0..80),
        numbers in any::<[u32; 5]>(),
        level in any::<u8>(),
        contexts in vec((vec(any::<u8>(), 4..17), vec(any::<u8>(), 0..60)), 0..5),
    ) {
        let new: Vec<NewContext<'_>> = contexts.iter().map(|(name, data)| NewContext { name, data }).collect();
        let request = build::Create {
            oplock_level: m::OplockLevel(level),
            desired_access: AccessMask(numbers[0]),
            file_attributes: FileAttributes(numbers[1]),
            share_access: ShareAccess(numbers[2]),
            disposition: CreateDisposition(numbers[3]),
            options: CreateOptions(numbers[4]),
            name: Name::new(&name),
            contexts: &new,
        };
        let message = build::message(&fields, &request).unwrap();
        check_header(&message, &fields, Command::CREATE, false);
        let view = m::CreateRequest::parse(&message[..]).unwrap();
        prop_assert_eq!(view.oplock_level().0, level);
        prop_assert_eq!(view.impersonation_level(), 2);
        let found = [view.desired_access().0, view.file_attributes().0, view.share_access().0, view.disposition().0, view.options().0];
        prop_assert_eq!(found, numbers);
        prop_assert_eq!(view.name().as_bytes(), &name);
        let found: Vec<_> = view.contexts().map(|one| one.map(|one| (one.name.to_vec(), one.data.to_vec())).unwrap()).collect();
        prop_assert_eq!(found, contexts);
        prop_assert!(message.len() > 120);
    }

    #[test]
    fn create_responses_read_back_and_are_edited(
        fields in fields(),
        attributes in attributes(),
        id in file_id(),
        flags in any::<u8>(),
        contexts in vec((vec(any::<u8>(), 5..9), vec(any::<u8>(), 0..60)), 0..5),
    ) {
        let new: Vec<NewContext<'_>> = contexts.iter().map(|(name, data)| NewContext { name, data }).collect();
        let response = build::CreateResponse {
            oplock_level: m::OplockLevel::LEASE,
            flags,
            create_action: m::CreateAction::OPENED,
            attributes,
            file_id: id,
            contexts: &new,
        };
        let message = build::message(&fields, &response).unwrap();
        check_header(&message, &fields, Command::CREATE, true);
        let view = m::CreateResponse::parse(&message[..]).unwrap();
        prop_assert_eq!((view.attributes(), view.file_id(), view.flags()), (attributes, id, flags));
        prop_assert_eq!(view.create_action(), m::CreateAction::OPENED);
        let read = |message: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let view = m::CreateResponse::parse(message).unwrap();
            view.contexts().map(|one| one.map(|one| (one.name.to_vec(), one.data.to_vec())).unwrap()).collect()
        };
        prop_assert_eq!(read(&message), contexts.clone());
        let lease = build::lease_v2([3; 16], LeaseState::READ_CACHING, None, 4);
        let added = NewContext { name: context_name::LEASE, data: &lease };
        let edited = isthmus_smb_wire::edit::with_create_context(&message, &added).unwrap();
        let mut expected = contexts.clone();
        expected.push((added.name.to_vec(), added.data.to_vec()));
        prop_assert_eq!(read(&edited), expected);
        prop_assert_eq!(&edited[..64 + 80], &message[..64 + 80]);
        let again = isthmus_smb_wire::edit::without_create_context(&edited, added.name).unwrap();
        prop_assert_eq!(read(&again), contexts);
        prop_assert_eq!(&again[..64 + 80], &message[..64 + 80]);
    }

    #[test]
    fn operations_on_an_open_read_back(fields in fields(), id in file_id(), offset in any::<u64>(), length in any::<u32>(), payload in vec(any::<u8>(), 0..300)) {
        let file_id = Some(id);
        let read = build::Read { flags: m::ReadFlags::READ_UNBUFFERED, file_id, offset, length, minimum_count: 7 };
        let message = build::message(&fields, &read).unwrap();
        check_header(&message, &fields, Command::READ, false);
        prop_assert_eq!(message.len(), 64 + 49);
        let view = m::ReadRequest::parse(&message[..]).unwrap();
        prop_assert_eq!(view.span(), m::Span { file_id: id, offset, length });
        prop_assert_eq!((view.minimum_count(), view.flags()), (7, m::ReadFlags::READ_UNBUFFERED));

        let write = build::Write { flags: m::WriteFlags::WRITE_THROUGH, file_id, offset, payload: &payload };
        let message = build::message(&fields, &write).unwrap();
        check_header(&message, &fields, Command::WRITE, false);
        let view = m::WriteRequest::parse(&message[..]).unwrap();
        prop_assert_eq!(view.span(), m::Span { file_id: id, offset, length: payload.len() as u32 });
        prop_assert_eq!(view.payload(), &payload);
        prop_assert_eq!(view.flags(), m::WriteFlags::WRITE_THROUGH);

        let message = build::message(&fields, &build::Close { flags: m::CloseFlags::POSTQUERY_ATTRIB, file_id }).unwrap();
        let view = m::CloseRequest::parse(&message[..]).unwrap();
        prop_assert_eq!((view.file_id(), view.flags()), (id, m::CloseFlags::POSTQUERY_ATTRIB));
        let message = build::message(&fields, &build::Flush { file_id }).unwrap();
        prop_assert_eq!(m::FlushRequest::parse(&message[..]).unwrap().file_id(), id);

        let response = build::ReadResponse { payload: &payload };
        let message = build::message(&fields, &response).unwrap();
        check_header(&message, &fields, Command::READ, true);
        let view = m::ReadResponse::parse(&message[..]).unwrap();
        prop_assert_eq!(view.payload(), &payload);
        let head = build::read_response_head(&fields, payload.len()).unwrap();
        prop_assert_eq!(&message[..head.len()], &head);
    }

    #[test]
    fn queries_read_back(fields in fields(), id in file_id(), numbers in any::<[u32; 4]>(), class in any::<u8>(), bytes in vec(any::<u8>(), 0..100)) {
        let query = build::QueryInfo {
            info_type: m::InfoType::SECURITY,
            info_class: m::InfoClass(class),
            output_buffer_length: numbers[0],
            additional_information: numbers[1],
            flags: numbers[2],
            file_id: Some(id),
            input: &bytes,
        };
        let message = build::message(&fields, &query).unwrap();
        check_header(&message, &fields, Command::QUERY_INFO, false);
        let view = m::QueryInfoRequest::parse(&message[..]).unwrap();
        prop_assert_eq!((view.info_type(), view.info_class().0, view.file_id()), (m::InfoType::SECURITY, class, id));
        prop_assert_eq!([view.output_buffer_length(), view.additional_information(), view.flags()], [numbers[0], numbers[1], numbers[2]]);
        prop_assert_eq!(view.input(), &bytes);

        let list = build::QueryDirectory {
            info_class: m::InfoClass(class),
            flags: m::QueryDirectoryFlags::RESTART_SCANS,
            file_index: numbers[0],
            file_id: Some(id),
            pattern: Name::new(&bytes),
            output_buffer_length: numbers[1],
        };
        let message = build::message(&fields, &list).unwrap();
        let view = m::QueryDirectoryRequest::parse(&message[..]).unwrap();
        prop_assert_eq!((view.info_class().0, view.flags(), view.file_id()), (class, m::QueryDirectoryFlags::RESTART_SCANS, id));
        prop_assert_eq!((view.file_index(), view.output_buffer_length()), (numbers[0], numbers[1]));
        prop_assert_eq!(view.pattern().as_bytes(), &bytes);

        let watch = build::ChangeNotify { watch_tree: true, output_buffer_length: numbers[2], file_id: Some(id), completion_filter: numbers[3] };
        let message = build::message(&fields, &watch).unwrap();
        let view = m::ChangeNotifyRequest::parse(&message[..]).unwrap();
        prop_assert_eq!((view.flags(), view.output_buffer_length(), view.file_id(), view.completion_filter()), (1, numbers[2], id, numbers[3]));

        for command in [Command::QUERY_INFO, Command::QUERY_DIRECTORY, Command::CHANGE_NOTIFY] {
            let message = build::message(&fields, &build::OutputResponse { command, buffer: &bytes }).unwrap();
            check_header(&message, &fields, command, true);
            let found = match Response::parse(&message[..]).unwrap() {
                Response::QueryInfo(view) => view.buffer().to_vec(),
                Response::QueryDirectory(view) => view.buffer().to_vec(),
                Response::ChangeNotify(view) => view.buffer().to_vec(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(&found, &bytes);
        }
    }

    #[test]
    fn small_messages_read_back(fields in fields(), id in file_id(), key in any::<[u8; 16]>(), state in any::<u32>(), attributes in attributes(), bytes in vec(any::<u8>(), 0..100)) {
        let acknowledgement = build::LeaseBreakAcknowledgement { lease_key: key, lease_state: LeaseState(state) };
        let message = build::message(&fields, &acknowledgement).unwrap();
        check_header(&message, &fields, Command::OPLOCK_BREAK, false);
        let Request::LeaseBreak(view) = Request::parse(&message[..]).unwrap() else { panic!() };
        prop_assert_eq!((view.lease_key(), view.lease_state().0), (key, state));
        let acknowledgement = build::OplockBreakAcknowledgement { oplock_level: m::OplockLevel::II, file_id: id };
        let message = build::message(&fields, &acknowledgement).unwrap();
        let Request::OplockBreak(view) = Request::parse(&message[..]).unwrap() else { panic!() };
        prop_assert_eq!((view.oplock_level(), view.file_id()), (m::OplockLevel::II, id));

        let message = build::message(&fields, &build::CloseResponse { attributes: Some(attributes) }).unwrap();
        let Response::Close(view) = Response::parse(&message[..]).unwrap() else { panic!() };
        prop_assert_eq!((view.attributes(), view.flags()), (attributes, m::CloseFlags::POSTQUERY_ATTRIB));
        let message = build::message(&fields, &build::CloseResponse { attributes: None }).unwrap();
        let Response::Close(view) = Response::parse(&message[..]).unwrap() else { panic!() };
        prop_assert_eq!((view.attributes(), view.flags()), (FileTimesAndSizes::default(), m::CloseFlags::NONE));

        for command in [Command::READ, Command::SESSION_SETUP, Command::QUERY_INFO, Command::CREATE] {
            let fields = HeaderFields { status: Status::ACCESS_DENIED, ..fields };
            let message = build::message(&fields, &build::ErrorResponse { command, context_count: 0, data: &bytes }).unwrap();
            check_header(&message, &fields, command, true);
            let Response::Error(view) = Response::parse(&message[..]).unwrap() else { panic!() };
            prop_assert_eq!(view.data(), &bytes);
            prop_assert_eq!(view.header().status(), Status::ACCESS_DENIED);
        }
        let answer = build::IoctlResponse { control_code: m::ControlCode::QUERY_NETWORK_INTERFACE_INFO, file_id: id, output: &bytes };
        let message = build::message(&fields, &answer).unwrap();
        let Response::Ioctl(view) = Response::parse(&message[..]).unwrap() else { panic!() };
        prop_assert_eq!((view.control_code(), view.file_id()), (answer.control_code, id));
        prop_assert_eq!((view.output(), view.input()), (&bytes[..], &[][..]));

        let (echo, flushed) = (build::message(&fields, &build::Echo).unwrap(), build::message(&fields, &build::FlushResponse).unwrap());
        prop_assert!(matches!(Request::parse(&echo[..]), Ok(Request::Echo(_))));
        prop_assert!(matches!(Response::parse(&flushed[..]), Ok(Response::Flush(_))));
        let (cancel, echoed) = (build::message(&fields, &build::Cancel).unwrap(), build::message(&fields, &build::EchoResponse).unwrap());
        prop_assert!(matches!(Request::parse(&cancel[..]), Ok(Request::Cancel(_))));
        prop_assert!(matches!(Response::parse(&echoed[..]), Ok(Response::Echo(_))));
        let written = build::message(&fields, &build::WriteResponse { count: state }).unwrap();
        prop_assert_eq!(m::WriteResponse::parse(&written[..]).unwrap().count(), state);
    }
}
