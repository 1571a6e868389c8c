//! CREATE requests and their leases, as both engines need them.

use crate::message::{Key, create_modifies, element, elements, header, retarget};
use isthmus_smb_wire::build::{self, HeaderFields, NewContext};
use isthmus_smb_wire::compound;
use isthmus_smb_wire::create_context::{CreateContexts, Lease, LeaseFlags, LeaseState, LeaseV2, name};
use isthmus_smb_wire::edit::{with_create_context, without_create_context};
use isthmus_smb_wire::messages::{
    AccessMask, CloseRequest, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, OplockLevel,
    QueryDirectoryRequest, QueryInfoRequest,
};
use isthmus_smb_wire::{Command, HeaderFlags, Name};

/// A lease as a request or a response has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseOf {
    pub key: [u8; 16],
    pub state: LeaseState,
    pub version_2: bool,
    pub epoch: u16,
    /// Whether a break of it waits for its acknowledgement.
    pub breaking: bool,
}

/// Read and handle caching.
pub(crate) const READ_HANDLE: LeaseState =
    LeaseState(LeaseState::READ_CACHING.0 | LeaseState::HANDLE_CACHING.0);

/// Contexts that ask for nothing which an open made ahead does not have as well.
const HARMLESS: [&[u8]; 4] = [name::QUERY_ON_DISK_ID, name::MAXIMAL_ACCESS, b"AAPL", name::LEASE];
/// Contexts that may be left without a grant.
const OPTIONAL: [&[u8]; 3] = [name::DURABLE, name::DURABLE_V2, name::LEASE];

/// Whether a single CREATE opens a file for reading in a way that can be done ahead.
pub(crate) fn reads_a_file(request: &[u8]) -> bool {
    let Ok(view) = CreateRequest::parse(request) else { return false };
    !create_modifies(&view) && reads_content(&view) && is_plain(&view)
}

/// Whether a CREATE is for reading a file, and perhaps for writing it too.
pub(crate) fn reads_content(view: &CreateRequest<&[u8]>) -> bool {
    let reading = AccessMask::READ_DATA.with(AccessMask::GENERIC_READ).with(AccessMask::EXECUTE);
    let special = CreateOptions::OPEN_BY_FILE_ID
        .with(CreateOptions::DIRECTORY_FILE)
        .with(CreateOptions::OPEN_REPARSE_POINT)
        .with(CreateOptions::NO_INTERMEDIATE_BUFFERING)
        .with(CreateOptions::WRITE_THROUGH);
    view.desired_access().intersects(reading) && !view.options().intersects(special)
}

/// Whether a CREATE is for writing a file.
pub(crate) fn writes_content(view: &CreateRequest<&[u8]>) -> bool {
    let writing = AccessMask::WRITE_DATA.with(AccessMask::GENERIC_WRITE).with(AccessMask::GENERIC_ALL);
    view.desired_access().intersects(writing)
}

/// Whether all contexts are such that another open can stand in for this.
fn is_plain(view: &CreateRequest<&[u8]>) -> bool {
    view.contexts().all(|context| {
        context.is_ok_and(|context| HARMLESS.contains(&context.name) || OPTIONAL.contains(&context.name))
    })
}

/// What a request asks, as a short key: the same for requests that have the same answer. None for requests that no key
/// is made for.
pub(crate) fn key_of(request: &[u8]) -> Option<Key> {
    let mut hasher = blake3::Hasher::new_derive_key("isthmus 2026 key of an SMB request");
    let single = header(request).next_command() == 0;
    for range in elements(request)? {
        let element = element(request, &range);
        let header = header(element);
        hasher.update(&header.command().0.to_le_bytes());
        hasher.update(&(header.flags().0 & HeaderFlags::DFS_OPERATIONS.0).to_le_bytes());
        if !header.is_related() {
            hasher.update(&header.session_id().to_le_bytes());
            hasher.update(&header.tree_id()?.to_le_bytes());
        }
        match header.command() {
            Command::CREATE => hash_create(&mut hasher, element)?,
            Command::QUERY_INFO => {
                let view = QueryInfoRequest::parse(element).ok()?;
                if !view.input().is_empty() {
                    return None;
                }
                hasher.update(&[view.info_type().0, view.info_class().0]);
                hasher.update(&view.output_buffer_length().to_le_bytes());
                hasher.update(&view.additional_information().to_le_bytes());
                hasher.update(&view.flags().to_le_bytes());
            }
            Command::CLOSE if !single => {
                hasher.update(&CloseRequest::parse(element).ok()?.flags().0.to_le_bytes());
            }
            Command::QUERY_DIRECTORY if single => {
                let view = QueryDirectoryRequest::parse(element).ok()?;
                hasher.update(&[view.info_class().0, view.flags().0]);
                hasher.update(&view.file_index().to_le_bytes());
                hasher.update(&view.output_buffer_length().to_le_bytes());
                hasher.update(view.pattern_bytes());
            }
            _ => return None,
        }
    }
    hasher.finalize().as_bytes().first_chunk().copied()
}

fn hash_create(hasher: &mut blake3::Hasher, element: &[u8]) -> Option<()> {
    let view = CreateRequest::parse(element).ok()?;
    if !is_plain(&view) {
        return None;
    }
    hasher.update(&[view.security_flags()]);
    for number in [
        view.impersonation_level(),
        view.desired_access().0,
        view.share_access().0,
        view.disposition().0,
        view.options().0,
        view.name_bytes().len() as u32,
    ] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(view.name_bytes());
    for context in view.contexts().flatten().filter(|context| !OPTIONAL.contains(&context.name)) {
        hasher.update(&(context.name.len() as u32).to_le_bytes()).update(context.name);
        hasher.update(&(context.data.len() as u32).to_le_bytes()).update(context.data);
    }
    Some(())
}

/// The lease that a CREATE asks for, or that its response grants.
pub(crate) fn lease_of(element: &[u8]) -> Option<LeaseOf> {
    let data = contexts_of(element)?.find_name(name::LEASE)?.data;
    let lease = Lease::parse(data).ok()?;
    let epoch = LeaseV2::parse(data).map_or(0, |lease| lease.epoch());
    Some(LeaseOf {
        key: lease.lease_key(),
        state: lease.lease_state(),
        version_2: lease.is_v2(),
        epoch,
        breaking: lease.lease_flags().contains(LeaseFlags::BREAK_IN_PROGRESS),
    })
}

fn contexts_of(element: &[u8]) -> Option<CreateContexts<'_>> {
    let range = if header(element).is_response() {
        CreateResponse::parse(element).ok()?.contexts_range()
    } else {
        CreateRequest::parse(element).ok()?.contexts_range()
    };
    Some(CreateContexts::new(element, range))
}

/// Puts another key in the place of a lease's.
pub(crate) fn with_lease_key(element: &[u8], key: [u8; 16]) -> Option<Vec<u8>> {
    let mut copy = element.to_vec();
    let range = contexts_of(element)?.find_name(name::LEASE)?.data_range();
    copy.get_mut(range)?.get_mut(..16)?.copy_from_slice(&key);
    Some(copy)
}

/// A CREATE of the client with a lease of the engine's, for one that asks for none.
pub(crate) fn with_own_lease(request: &[u8], key: [u8; 16]) -> Option<Vec<u8>> {
    let data = build::lease_v2(key, READ_HANDLE, None, 0);
    let mut leased = with_create_context(request, &NewContext { name: name::LEASE, data: &data }).ok()?;
    CreateRequest::parse(&mut leased[..]).ok()?.set_oplock_level(OplockLevel::LEASE);
    Some(leased)
}

/// Whether a CREATE asks for no oplock and no lease.
pub(crate) fn wants_no_oplock(request: &[u8]) -> bool {
    CreateRequest::parse(request).is_ok_and(|view| view.oplock_level() == OplockLevel::NONE)
        && lease_of(request).is_none()
}

/// The response to a CREATE without the engine's lease.
pub(crate) fn without_lease(response: &[u8]) -> Option<Vec<u8>> {
    let mut bare = without_create_context(response, name::LEASE).ok()?;
    CreateResponse::parse(&mut bare[..]).ok()?.set_oplock_level(OplockLevel::NONE);
    Some(bare)
}

/// The response to a client's CREATE out of that to one made ahead, which has no lease left in it. The client is granted
/// of what it asks for as much as `state` has.
pub(crate) fn stand_in(response: &[u8], request: &[u8], state: LeaseState) -> Option<Vec<u8>> {
    let answer = retarget(response, request)?;
    let Some(asked) = lease_of(request) else { return Some(answer) };
    let granted = LeaseState(asked.state.0 & state.0);
    let (v2, v1);
    let data: &[u8] = if asked.version_2 {
        v2 = build::lease_v2(asked.key, granted, None, asked.epoch.wrapping_add(1));
        &v2
    } else {
        v1 = build::lease_v1(asked.key, granted);
        &v1
    };
    let mut answer = with_create_context(&answer, &NewContext { name: name::LEASE, data }).ok()?;
    CreateResponse::parse(&mut answer[..]).ok()?.set_oplock_level(OplockLevel::LEASE);
    Some(answer)
}

/// A CREATE like the client's, of another name, with the engine's lease, or without any. What a client may be left
/// without is not asked for.
pub(crate) fn like(request: &[u8], file: &[u8], lease: Option<[u8; 16]>) -> Option<Vec<u8>> {
    let view = CreateRequest::parse(request).ok()?;
    let data = lease.map(|key| build::lease_v2(key, READ_HANDLE, None, 0));
    let mut contexts = Vec::new();
    for context in view.contexts() {
        let context = context.ok()?;
        if !OPTIONAL.contains(&context.name) {
            contexts.push(NewContext { name: context.name, data: context.data });
        }
    }
    if let Some(data) = &data {
        contexts.push(NewContext { name: name::LEASE, data });
    }
    let header = view.header();
    let fields = HeaderFields {
        flags: HeaderFlags(header.flags().0 & HeaderFlags::DFS_OPERATIONS.0),
        credit_charge: 1,
        credits: 1,
        session_id: header.session_id(),
        tree_id: header.tree_id()?,
        ..HeaderFields::default()
    };
    let body = build::Create {
        oplock_level: if lease.is_some() { OplockLevel::LEASE } else { OplockLevel::NONE },
        desired_access: view.desired_access(),
        file_attributes: view.file_attributes(),
        share_access: view.share_access(),
        disposition: CreateDisposition::OPEN,
        options: view.options(),
        name: Name::new(file),
        contexts: &contexts,
    };
    build::message(&fields, &body).ok()
}

/// A compound like the client's, of another name.
pub(crate) fn compound_like(request: &[u8], file: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for range in elements(request)? {
        let element = element(request, &range);
        all.push(if header(element).command() == Command::CREATE {
            like(element, file, None)?
        } else {
            element.to_vec()
        });
    }
    compound::join(&all).ok()
}
