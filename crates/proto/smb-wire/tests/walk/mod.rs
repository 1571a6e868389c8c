//! Looks at bytes in every way that this codec has, for tests that give it anything: nothing may panic, and what is told
//! of places must lie within the bytes.

use bytes::BytesMut;
use isthmus_smb_wire::build::NewContext;
use isthmus_smb_wire::compound::{Resolver, elements};
use isthmus_smb_wire::compression::CompressedMessage;
use isthmus_smb_wire::create_context::{self, CreateContexts};
use isthmus_smb_wire::fscc::{self, Changes, DirectoryEntries};
use isthmus_smb_wire::messages::{
    ErrorResponse, InfoClass, NetworkInterfaces, ValidateNegotiateRequest, ValidateNegotiateResponse,
};
use isthmus_smb_wire::negotiate_context::{self, NegotiateContexts, PreauthIntegrity};
use isthmus_smb_wire::smb1::Smb1Negotiate;
use isthmus_smb_wire::transform::TransformHeader;
use isthmus_smb_wire::{FileId, Name, Request, Response, edit, transport};
use std::ops::Range;

/// Longest stretch of bytes that is looked at as all kinds of parts.
const PART_LEN_MAX: usize = 1 << 12;

/// A stream of frames, and every message in it.
pub fn stream(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut taken = 0;
    while let Ok(Some(frame)) = transport::split(&mut buffer, transport::MESSAGE_LEN_MAX) {
        message(frame.message());
        let whole = frame.into_bytes();
        assert_eq!(whole, bytes[taken..taken + whole.len()]);
        taken += whole.len();
    }
    assert_eq!(buffer, bytes[taken..]);
}

/// A message of any kind.
pub fn message(bytes: &[u8]) {
    let mut resolver = Resolver::new();
    let mut end = 0;
    for range in elements(bytes) {
        let Ok(range) = range else { break };
        assert_eq!(range.start, end);
        end = range.end;
        // What cannot be resolved is looked at all the same.
        let _ = resolver.resolve(&bytes[range.clone()]);
        element(&bytes[range]);
    }
    if let Ok(view) = TransformHeader::parse(bytes) {
        assert_eq!(view.aad().len(), 32);
        assert_eq!(view.ciphertext().len() + 52, bytes.len());
    }
    compressed(bytes);
    if let Ok(negotiate) = Smb1Negotiate::parse(bytes) {
        assert!(negotiate.dialects().all(|dialect| dialect.len() < bytes.len()));
    }
    part(&bytes[..bytes.len().min(PART_LEN_MAX)]);
}

fn compressed(bytes: &[u8]) {
    match CompressedMessage::parse(bytes) {
        Ok(CompressedMessage::Unchained(one)) => {
            assert_eq!(one.uncompressed().len() + one.compressed().len() + 16, bytes.len());
        }
        Ok(CompressedMessage::Chained(all)) => {
            for payload in all.payloads().flatten() {
                assert_eq!(payload.data, &bytes[payload.range.clone()]);
            }
        }
        Err(_) => {}
    }
}

/// One element of a compound.
pub fn element(bytes: &[u8]) {
    let shown = match (Request::parse(bytes), Response::parse(bytes)) {
        (Ok(request), other) => {
            assert!(other.is_err(), "a message goes one way");
            request_parts(bytes, &request);
            format!("{request:?}")
        }
        (Err(_), Ok(response)) => {
            response_parts(bytes, &response);
            format!("{response:?}")
        }
        (Err(_), Err(_)) => return,
    };
    assert!(!shown.is_empty());
    open(bytes);
    let context = NewContext { name: create_context::name::LEASE, data: &[7; 52] };
    if let Ok(edited) = edit::with_create_context(bytes, &context) {
        match (Request::parse(&edited[..]), Response::parse(&edited[..])) {
            (Ok(Request::Create(view)), _) => assert_eq!(count(view.contexts(), context.name), 1),
            (_, Ok(Response::Create(view))) => assert_eq!(count(view.contexts(), context.name), 1),
            other => panic!("{other:?}"),
        }
        assert!(edit::without_create_context(&edited, context.name).is_ok());
    }
    if let Ok(edited) = edit::without_negotiate_contexts(bytes, |kind| kind.0 % 2 == 0) {
        match (Request::parse(&edited[..]), Response::parse(&edited[..])) {
            (Ok(Request::Negotiate(view)), _) => negotiated(view.contexts()),
            (_, Ok(Response::Negotiate(view))) => negotiated(view.contexts()),
            other => panic!("{other:?}"),
        }
    }
}

fn count(contexts: CreateContexts<'_>, name: &[u8]) -> usize {
    contexts.map(Result::unwrap).filter(|context| context.name == name).count()
}

fn negotiated(contexts: NegotiateContexts<'_>) {
    for context in contexts {
        assert_eq!(context.unwrap().kind.0 % 2, 1);
    }
}

/// Setting an identifier changes nothing but itself.
fn open(bytes: &[u8]) {
    let Some(before) = isthmus_smb_wire::file_id(bytes) else { return };
    let mut patched = bytes.to_vec();
    let other = FileId { persistent: !before.persistent, volatile: 5 };
    isthmus_smb_wire::set_file_id(&mut patched, other).unwrap();
    assert_eq!(isthmus_smb_wire::file_id(&patched), Some(other));
    isthmus_smb_wire::set_file_id(&mut patched, before).unwrap();
    assert_eq!(patched, bytes);
}

fn request_parts(bytes: &[u8], request: &Request<&[u8]>) {
    let within = |range: Range<usize>| assert!(range.start <= range.end && range.end <= bytes.len());
    match request {
        Request::Negotiate(view) => {
            assert_eq!(view.dialects().count(), usize::from(view.dialect_count()));
            view.contexts().flatten().for_each(|context| within(context.data_range()));
        }
        Request::SessionSetup(view) => within(view.security_buffer_range()),
        Request::TreeConnect(view) => {
            name(view.path());
            let _ = view.extension();
        }
        Request::Create(view) => {
            name(view.name());
            contexts(bytes, view.contexts());
        }
        Request::Write(view) => assert_eq!(view.payload_range().len(), view.span().length as usize),
        Request::Lock(view) => assert_eq!(view.locks().count(), usize::from(view.lock_count())),
        Request::Ioctl(view) => part(&view.input()[..view.input().len().min(PART_LEN_MAX)]),
        Request::QueryDirectory(view) => name(view.pattern()),
        Request::QueryInfo(view) => within(view.input_range()),
        Request::SetInfo(view) => part(&view.buffer()[..view.buffer().len().min(PART_LEN_MAX)]),
        _ => {}
    }
}

fn response_parts(bytes: &[u8], response: &Response<&[u8]>) {
    let within = |range: Range<usize>| assert!(range.start <= range.end && range.end <= bytes.len());
    match response {
        Response::Error(view) => errors(view),
        Response::Negotiate(view) => {
            within(view.security_buffer_range());
            view.contexts().flatten().for_each(|context| within(context.data_range()));
        }
        Response::SessionSetup(view) => within(view.security_buffer_range()),
        Response::Create(view) => contexts(bytes, view.contexts()),
        Response::Read(view) => within(view.payload_range()),
        Response::Ioctl(view) => part(&view.output()[..view.output().len().min(PART_LEN_MAX)]),
        Response::QueryDirectory(view) => part(&view.buffer()[..view.buffer().len().min(PART_LEN_MAX)]),
        Response::ChangeNotify(view) => part(&view.buffer()[..view.buffer().len().min(PART_LEN_MAX)]),
        Response::QueryInfo(view) => part(&view.buffer()[..view.buffer().len().min(PART_LEN_MAX)]),
        _ => {}
    }
}

fn errors(view: &ErrorResponse<&[u8]>) {
    let total: usize = view.contexts().flatten().map(|context| context.data.len()).sum();
    assert!(total <= view.data().len());
}

fn contexts(bytes: &[u8], contexts: CreateContexts<'_>) {
    for context in contexts.flatten() {
        assert_eq!(context.data, &bytes[context.data_range()]);
        assert!(context.range().end <= bytes.len() && !context.range().is_empty());
        part(&context.data[..context.data.len().min(PART_LEN_MAX)]);
    }
}

fn name(name: Name<'_>) {
    assert!(name.to_string_lossy().len() <= name.as_bytes().len() * 2);
    assert_eq!(name.to_upper().len(), name.as_bytes().len());
    let (folder, last) = name.split_last();
    assert!(folder.as_bytes().len() + last.as_bytes().len() <= name.as_bytes().len());
    assert!(name.components().count() > 0);
}

/// Bytes as everything that stands in a variable part.
fn part(bytes: &[u8]) {
    for class in (0..=u8::MAX).map(InfoClass) {
        let Some(entries) = DirectoryEntries::new(class, bytes) else { continue };
        for entry in entries.flatten() {
            name(entry.name());
            entry.short_name().into_iter().for_each(name);
            assert!(entry.attributes().is_some() || entry.file_id().is_none());
        }
    }
    Changes::new(bytes).flatten().for_each(|change| name(change.name));
    NetworkInterfaces::new(bytes).flatten().for_each(|interface| assert!(interface.as_bytes().len() >= 152));
    CreateContexts::new(bytes, 0..bytes.len())
        .flatten()
        .for_each(|context| assert!(context.data.len() < bytes.len()));
    if let Ok(view) = ValidateNegotiateRequest::parse(bytes) {
        assert_eq!(view.dialects().count(), usize::from(view.dialect_count()));
    }
    if let Ok(view) = PreauthIntegrity::parse(bytes) {
        assert!(view.salt_range().end <= bytes.len() && view.algorithms().count() <= bytes.len());
    }
    let lists = [
        negotiate_context::counted(bytes).map(Iterator::count),
        negotiate_context::compression(bytes).map(|(_, algorithms)| algorithms.count()),
    ];
    lists.into_iter().flatten().for_each(|count| assert!(count * 2 < bytes.len()));
    if let Ok(view) = fscc::FileAllInformation::parse(bytes) {
        name(view.name());
    }
    if let Ok(view) = fscc::FileRenameInformation::parse(bytes) {
        name(view.name());
    }
    let shown = [
        ValidateNegotiateResponse::parse(bytes).map(|view| format!("{view:?}")),
        create_context::Lease::parse(bytes).map(|view| format!("{view:?}")),
        create_context::LeaseV2::parse(bytes).map(|view| format!("{view:?}")),
        create_context::DurableV2Reconnect::parse(bytes).map(|view| format!("{view:?}")),
        fscc::FileNetworkOpenInformation::parse(bytes).map(|view| format!("{view:?}")),
    ];
    assert!(shown.into_iter().flatten().all(|text| !text.is_empty()));
}
