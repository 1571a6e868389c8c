//! Messages of the model's server and client.

use super::server::{Ask, CELL, Who, deletes, lease_asked};
use crate::message::header;
use isthmus_smb_wire::build::{self, Body, HeaderFields};
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::header::{HEADER_LEN, Header, MESSAGE_ID_UNSOLICITED};
use isthmus_smb_wire::messages::{
    CloseFlags, CloseRequest, CreateRequest, InfoClass, LeaseBreakNotification, QueryInfoRequest,
};
use isthmus_smb_wire::{Command, FileId, HeaderFlags, Status};

pub(super) const SESSION: u64 = 0x5e55;
pub(super) const TREE: u32 = 7;

pub(super) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

pub(super) fn text(bytes: &[u8]) -> String {
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
    char::decode_utf16(units).map(|unit| unit.unwrap_or('?')).collect()
}

pub(super) fn id(number: u64) -> FileId {
    FileId { persistent: number, volatile: !number }
}

/// Bytes of a cell of a version.
pub(super) fn cell(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(CELL / 8)
}

/// The version of a cell's bytes, all of which must be of one.
pub(super) fn version(bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().expect("a cell"));
    assert!(bytes.len() == CELL && bytes == cell(version), "a torn cell");
    version
}

pub(super) fn ask(request: &[u8]) -> Ask {
    let view = CreateRequest::parse(request).expect("CREATE");
    Ask {
        who: Who::Client,
        path: text(view.name_bytes()),
        access: view.desired_access().0,
        share: view.share_access().0,
        disposition: view.disposition(),
        delete_on_close: deletes(&view),
        lease: lease_asked(&view),
    }
}

pub(super) fn answer(request: &[u8], status: Status, credits: u16, body: &impl Body) -> Vec<u8> {
    build::message(&HeaderFields::response_to(&header(request), status, credits), body).expect("a response")
}

pub(super) fn refuse(request: &[u8], status: Status, credits: u16) -> Vec<u8> {
    let command = header(request).command();
    answer(request, status, credits, &build::ErrorResponse { command, context_count: 0, data: &[] })
}

/// The first answer to a request whose own comes later.
pub(super) fn interim(request: &[u8], credits: u16) -> Vec<u8> {
    late(refuse(request, Status::PENDING, credits))
}

/// The answer to a request that had an interim one.
pub(super) fn late(mut response: Vec<u8>) -> Vec<u8> {
    let mut header = Header::lenient(&mut response[..]);
    let number = header.message_id();
    header.set_flags(header.flags().with(HeaderFlags::ASYNC_COMMAND));
    header.set_async_id(number);
    response
}

pub(super) fn answer_late(request: &[u8], status: Status, body: &impl Body) -> Vec<u8> {
    late(answer(request, status, 0, body))
}

pub(super) fn wants_attributes(request: &[u8]) -> bool {
    CloseRequest::parse(request).is_ok_and(|view| view.flags().contains(CloseFlags::POSTQUERY_ATTRIB))
}

pub(super) fn info(request: &[u8], attributes: &FileTimesAndSizes, is_pending: bool) -> Vec<u8> {
    let view = QueryInfoRequest::parse(request).expect("QUERY_INFO");
    if view.info_class() == InfoClass::STANDARD {
        let mut buffer = vec![0; 24];
        buffer[8..16].copy_from_slice(&attributes.end_of_file.to_le_bytes());
        buffer[20] = is_pending.into();
        return buffer;
    }
    attributes.to_network_open().to_vec()
}

/// Entries of FileIdFullDirectoryInformation (MS-FSCC 2.4.22).
pub(super) fn entries(list: &[(String, FileTimesAndSizes, u64)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, (name, attributes, number)) in list.iter().enumerate() {
        let name = utf16(name);
        let mut one = vec![0; 80];
        for (at, value) in [
            (8, attributes.creation_time),
            (16, attributes.last_access_time),
            (24, attributes.last_write_time),
            (32, attributes.change_time),
            (40, attributes.end_of_file),
            (48, attributes.allocation_size),
            (72, *number),
        ] {
            one[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        one[56..60].copy_from_slice(&attributes.file_attributes.0.to_le_bytes());
        one[60..64].copy_from_slice(&(name.len() as u32).to_le_bytes());
        one.extend_from_slice(&name);
        one.resize(one.len().next_multiple_of(8), 0);
        if index + 1 < list.len() {
            let next = one.len() as u32;
            one[..4].copy_from_slice(&next.to_le_bytes());
        }
        all.extend_from_slice(&one);
    }
    all
}

/// FileNotifyInformation (MS-FSCC 2.7.1).
pub(super) fn changes(list: &[(u32, String)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, (action, name)) in list.iter().enumerate() {
        let name = utf16(name);
        let mut one = vec![0; 12];
        one[4..8].copy_from_slice(&action.to_le_bytes());
        one[8..12].copy_from_slice(&(name.len() as u32).to_le_bytes());
        one.extend_from_slice(&name);
        one.resize(one.len().next_multiple_of(4), 0);
        if index + 1 < list.len() {
            let next = one.len() as u32;
            one[..4].copy_from_slice(&next.to_le_bytes());
        }
        all.extend_from_slice(&one);
    }
    all
}

/// A message with a body of bytes.
fn raw(fields: &HeaderFields, command: Command, is_response: bool, body: &[u8]) -> Vec<u8> {
    let mut bytes = if is_response {
        build::message(fields, &build::EchoResponse).expect("a response")
    } else {
        build::message(fields, &build::Echo).expect("a request")
    };
    bytes.truncate(HEADER_LEN);
    Header::lenient(&mut bytes[..]).set_command(command);
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn set_done(request: &[u8], status: Status, credits: u16) -> Vec<u8> {
    if status != Status::SUCCESS {
        return refuse(request, status, credits);
    }
    let fields = HeaderFields::response_to(&header(request), status, credits);
    raw(&fields, Command::SET_INFO, true, &[2, 0])
}

/// SET_INFO of a file (MS-SMB2 2.2.39).
pub(super) fn set(fields: &HeaderFields, file_id: FileId, class: u8, buffer: &[u8]) -> Vec<u8> {
    let mut body = vec![33, 0, 1, class];
    body.extend_from_slice(&(buffer.len() as u32).to_le_bytes());
    body.extend_from_slice(&((HEADER_LEN + 32) as u16).to_le_bytes());
    body.extend_from_slice(&[0; 6]);
    body.extend_from_slice(&file_id.persistent.to_le_bytes());
    body.extend_from_slice(&file_id.volatile.to_le_bytes());
    body.extend_from_slice(buffer);
    raw(fields, Command::SET_INFO, false, &body)
}

/// FileRenameInformation (MS-FSCC 2.4.42.2).
pub(super) fn rename_to(path: &str) -> Vec<u8> {
    let name = utf16(path);
    let mut buffer = vec![0; 20];
    buffer[16..20].copy_from_slice(&(name.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&name);
    buffer
}

fn lease_body(length: u8, key: [u8; 16], states: &[u32]) -> Vec<u8> {
    let mut body = vec![length, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&key);
    states.iter().for_each(|state| body.extend_from_slice(&state.to_le_bytes()));
    body.resize(length.into(), 0);
    body
}

pub(super) fn lease_break(key: [u8; 16], from: u32, to: u32, epoch: u16, ack: bool) -> Vec<u8> {
    let fields = HeaderFields { message_id: MESSAGE_ID_UNSOLICITED, ..HeaderFields::default() };
    let mut bytes = raw(&fields, Command::OPLOCK_BREAK, true, &lease_body(44, key, &[from, to]));
    let mut view = LeaseBreakNotification::parse(&mut bytes[..]).expect("a notification");
    view.set_new_epoch(epoch);
    view.set_flags(ack.into());
    bytes
}

pub(super) fn acknowledged(request: &[u8], key: [u8; 16], state: LeaseState, credits: u16) -> Vec<u8> {
    let fields = HeaderFields::response_to(&header(request), Status::SUCCESS, credits);
    raw(&fields, Command::OPLOCK_BREAK, true, &lease_body(36, key, &[state.0]))
}
