//! What both engines want to know of a message, and small changes to one.

use isthmus_smb_wire::build::{self, Body, HeaderFields};
use isthmus_smb_wire::header::{Header, HeaderFlags, SIGNATURE};
use isthmus_smb_wire::messages::{
    AccessMask, CloseFlags, CreateDisposition, CreateOptions, CreateRequest, InfoClass, InfoType,
    SetInfoRequest,
};
use isthmus_smb_wire::{Command, FileId, Name, Status, compound, file_id};
use std::ops::Range;

/// Name of a file in a share, as UTF-16 bytes.
pub(crate) type FileName = Vec<u8>;

/// The header of an element, whatever its bytes are.
pub(crate) fn header(element: &[u8]) -> Header<&[u8]> {
    Header::lenient(element)
}

/// The elements of a message that has any; at least one, each at least a header long.
pub(crate) fn elements(message: &[u8]) -> Option<Vec<Range<usize>>> {
    compound::elements(message).collect::<Result<Vec<_>, _>>().ok().filter(|ranges| !ranges.is_empty())
}

/// One element.
pub(crate) fn element<'a>(message: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    message.get(range.clone()).unwrap_or(&[])
}

/// Whether it is one element and no compound.
pub(crate) fn is_single(message: &[u8]) -> bool {
    header(message).next_command() == 0
}

/// Session and tree connect of a message's first element.
pub(crate) fn place(message: &[u8]) -> (u64, u32) {
    let header = header(message);
    (header.session_id(), header.tree_id().unwrap_or_default())
}

/// The name as it is compared: names differ in case between requests of one client.
pub(crate) fn folded(name: &[u8]) -> Vec<u8> {
    Name::new(name).to_upper()
}

/// Folder and last part of a name, both as bytes.
pub(crate) fn split_name(name: &[u8]) -> (&[u8], &[u8]) {
    let separator = name.as_chunks::<2>().0.iter().rposition(|pair| *pair == [b'\\', 0]);
    match separator {
        Some(at) => (name.get(..at * 2).unwrap_or(&[]), name.get(at * 2 + 2..).unwrap_or(&[])),
        None => (&[], name),
    }
}

/// A name in a folder.
pub(crate) fn join_name(folder: &[u8], name: &[u8]) -> FileName {
    if folder.is_empty() {
        return name.to_vec();
    }
    [folder, &[b'\\', 0], name].concat()
}

/// Whether `name` lies below the folder `above`, both folded.
pub(crate) fn is_below(name: &[u8], above: &[u8]) -> bool {
    above.is_empty() || name.strip_prefix(above).is_some_and(|rest| rest.starts_with(&[b'\\', 0]))
}

/// Whether a CREATE may change what others see, or stand in the way of others: it writes, deletes, makes or replaces.
pub(crate) fn create_modifies(view: &CreateRequest<&[u8]>) -> bool {
    let changing = AccessMask::WRITE_DATA
        .with(AccessMask::APPEND_DATA)
        .with(AccessMask::WRITE_EA)
        .with(AccessMask::WRITE_ATTRIBUTES)
        .with(AccessMask::DELETE)
        .with(AccessMask::DELETE_CHILD)
        .with(AccessMask::WRITE_DAC)
        .with(AccessMask::WRITE_OWNER)
        .with(AccessMask::MAXIMUM_ALLOWED)
        .with(AccessMask::GENERIC_ALL)
        .with(AccessMask::GENERIC_WRITE);
    create_alters(view) || view.desired_access().intersects(changing)
}

/// Whether the end of what a CREATE opens may change something, also if nothing is done with it: it makes, replaces or
/// deletes.
pub(crate) fn create_alters(view: &CreateRequest<&[u8]>) -> bool {
    view.disposition() != CreateDisposition::OPEN || view.options().contains(CreateOptions::DELETE_ON_CLOSE)
}

/// Whether a CREATE leaves the content of what it opens as it is.
fn create_keeps_content(view: &CreateRequest<&[u8]>) -> bool {
    [CreateDisposition::OPEN, CreateDisposition::OPEN_IF].contains(&view.disposition())
        && !view.options().contains(CreateOptions::DELETE_ON_CLOSE)
}

/// Whether a compound ends with the end of what it has opened.
pub(crate) fn closes_itself(message: &[u8]) -> bool {
    let Some(ranges) = elements(message).filter(|ranges| ranges.len() > 1) else { return false };
    ranges.last().map(|range| header(element(message, range))).is_some_and(|last| {
        last.command() == Command::CLOSE && last.flags().contains(HeaderFlags::RELATED_OPERATIONS)
    })
}

/// What a request may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// What this open is of.
    Open(FileId),
    /// What this open is of, if anything was done with it: this is its end.
    End(FileId),
    /// This name.
    Name(FileName),
    /// What is said of this name, and who may use it; its content stays.
    Access(FileName),
    /// Perhaps anything.
    Anything,
}

/// What one element of a request may change; `created` is the name of the CREATE before it in the compound.
pub(crate) fn change_of(element: &[u8], created: Option<&[u8]>) -> Change {
    let about = || match file_id(element) {
        Some(id) if id != FileId::ANY => Change::Open(id),
        _ => created.map_or(Change::Anything, |name| Change::Name(name.to_vec())),
    };
    match header(element).command() {
        Command::CREATE => match CreateRequest::parse(element) {
            Ok(view) if create_keeps_content(&view) && create_modifies(&view) => {
                Change::Access(view.name_bytes().to_vec())
            }
            Ok(view) if create_modifies(&view) => Change::Name(view.name_bytes().to_vec()),
            Ok(_) => Change::Nothing,
            Err(_) => Change::Anything,
        },
        Command::WRITE | Command::LOCK | Command::IOCTL => about(),
        Command::CLOSE => match file_id(element) {
            Some(id) if id != FileId::ANY => Change::End(id),
            _ => Change::Nothing,
        },
        Command::SET_INFO => {
            let Ok(view) = SetInfoRequest::parse(element) else { return Change::Anything };
            let renames = view.info_type() == InfoType::FILE
                && (view.info_class() == InfoClass::RENAME || view.info_class() == InfoClass(11));
            if !renames {
                return about();
            }
            // A folder's new name is one of all that is in it.
            Change::Anything
        }
        Command::NEGOTIATE
        | Command::SESSION_SETUP
        | Command::TREE_CONNECT
        | Command::FLUSH
        | Command::READ
        | Command::CANCEL
        | Command::ECHO
        | Command::QUERY_DIRECTORY
        | Command::CHANGE_NOTIFY
        | Command::QUERY_INFO
        | Command::OPLOCK_BREAK => Change::Nothing,
        _ => Change::Anything,
    }
}

/// A response made earlier, as the answer to a request: with its identifiers, and as many credits as it takes.
pub(crate) fn retarget(response: &[u8], request: &[u8]) -> Option<Vec<u8>> {
    let mut answer = response.to_vec();
    let (to, from) = (elements(response)?, elements(request)?);
    if to.len() != from.len() {
        return None;
    }
    for (to, from) in to.iter().zip(&from) {
        let from = header(element(request, from));
        let place = answer.get_mut(to.clone())?;
        let mut header = Header::lenient(place);
        let kept = HeaderFlags::SERVER_TO_REDIR.with(HeaderFlags::RELATED_OPERATIONS);
        header.set_flags(HeaderFlags(header.flags().0 & kept.0).with(HeaderFlags(
            from.flags().0 & HeaderFlags::PRIORITY_MASK.with(HeaderFlags::DFS_OPERATIONS).0,
        )));
        header.set_credit_charge(from.credit_charge());
        header.set_credits(charge(&from));
        header.set_message_id(from.message_id());
    }
    // Where it stands alone its session and tree are the request's, whatever they were in a compound.
    let (session, tree) = place(request);
    let alone = to.len() == 1;
    for range in &to {
        if let Some(bytes) = answer.get_mut(range.clone()) {
            let mut header = Header::lenient(&mut *bytes);
            if alone || header.session_id() != u64::MAX {
                header.set_session_id(session);
                header.set_tree_id(tree);
            }
            if let Some(signature) = bytes.get_mut(SIGNATURE) {
                signature.fill(0);
            }
        }
    }
    Some(answer)
}

/// A response to a request.
pub(crate) fn respond(request: &[u8], status: Status, body: &impl Body) -> Option<Vec<u8>> {
    let from = header(request);
    build::message(&HeaderFields::response_to(&from, status, charge(&from)), body).ok()
}

/// The response of an error, or of another status that has no body of its own.
pub(crate) fn refuse(request: &[u8], status: Status) -> Option<Vec<u8>> {
    let command = header(request).command();
    respond(request, status, &build::ErrorResponse { command, context_count: 0, data: &[] })
}

/// Credits that a request takes.
pub(crate) fn charge<B: AsRef<[u8]>>(header: &Header<B>) -> u16 {
    header.credit_charge().max(1)
}

/// A request of an engine's own, to be given its identifier when it is sent.
pub(crate) fn request(session: u64, tree: u32, charge: u16, body: &impl Body) -> Option<Vec<u8>> {
    let fields = HeaderFields {
        credit_charge: charge,
        credits: charge,
        session_id: session,
        tree_id: tree,
        ..HeaderFields::default()
    };
    build::message(&fields, body).ok()
}

/// CLOSE of an open, by an engine.
pub(crate) fn close(session: u64, tree: u32, file_id: FileId) -> Option<Vec<u8>> {
    request(session, tree, 1, &build::Close { flags: CloseFlags::NONE, file_id: Some(file_id) })
}

/// A short name for what a request asks, whatever its identifiers are. Requests with the same key have the same answer.
pub(crate) type Key = [u8; 16];

/// The open that an element names, unless it is that of the element before it.
pub(crate) fn file_id_of(element: &[u8]) -> Option<FileId> {
    file_id(element).filter(|id| *id != FileId::ANY)
}
