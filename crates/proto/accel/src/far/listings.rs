//! Listings that are fetched to their end while the client gets their first part.

use super::{Far, Job};
use crate::create::key_of;
use crate::limits::PENDING_MAX;
use crate::message::{
    Key, closes_itself, element, elements, file_id_of, folded, header, is_single, split_name,
};
use crate::told::ToNear;
use crate::{Carriage, Out};
use bytes::Bytes;
use isthmus_smb_wire::messages::{QueryDirectoryFlags, QueryDirectoryRequest};
use isthmus_smb_wire::{Command, FileId, Status, set_file_id};
use std::collections::VecDeque;

/// Parts of a listing that are fetched ahead, and their bytes.
const PARTS_MAX: u32 = 512;
const PARTS_BYTES_MAX: usize = 16 << 20;
/// Listings of a connection at once.
const LISTINGS_MAX: usize = 256;

/// A listing that goes on.
pub(crate) struct Listing {
    carriage: Carriage,
    /// The client's request for a next part.
    request: Vec<u8>,
    key: Key,
    /// Tells the requests of the engine from those before.
    serial: u32,
    /// Whether the server has a request of the engine.
    outstanding: bool,
    done: bool,
    /// Nothing more is fetched ahead.
    given_up: bool,
    parts: u32,
    bytes: usize,
    /// Parts that the near engine has given out.
    used: u32,
    /// Requests of the client that the part on its way answers.
    swallowed: Vec<u64>,
    /// What the client asks otherwise, once the server's listing is where the client's is.
    held: VecDeque<(Carriage, Vec<u8>)>,
}

impl Listing {
    /// Whether the server's listing is further on than the client's.
    fn is_ahead(&self) -> bool {
        self.outstanding || self.parts > self.used
    }
}

impl Far {
    /// A single QUERY_DIRECTORY of the client.
    pub(super) fn list(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        let message_id = header(&message).message_id();
        if let Some(listing) = file_id_of(&message).and_then(|id| self.listings.get_mut(&id))
            && key_of(&message) == Some(listing.key)
            && listing.held.is_empty()
            && !starts_over(&message)
        {
            if listing.outstanding && listing.swallowed.len() < PENDING_MAX {
                listing.swallowed.push(message_id);
                return;
            }
            if !listing.outstanding && listing.parts > listing.used {
                return self.tell(ToNear::Answer(message_id), out);
            }
        }
        self.list_otherwise(carriage, message, out);
    }

    /// A request of the client that what is fetched ahead does not answer. It waits until the server's listing is where the
    /// client's is: a server may work on two requests for one listing at once.
    pub(super) fn list_otherwise(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        let fresh = first_listed(&message).is_some_and(|(_, fresh)| fresh);
        if let Some((id, _)) = first_listed(&message)
            && let Some(listing) = self.listings.get_mut(&id)
        {
            let waits = !listing.held.is_empty() || listing.outstanding || (!fresh && listing.is_ahead());
            if waits && listing.held.len() < PENDING_MAX {
                listing.held.push_back((carriage, message));
                if listing.held.len() == 1 && !listing.outstanding {
                    self.turn_back(id, out);
                }
                return;
            }
            self.end_listing(id, out);
        }
        if is_single(&message) {
            self.note_listing(&message);
        } else {
            self.watch_compound(carriage, &message, out);
        }
        self.leg.send_client(carriage, message, out);
    }

    /// Notes a QUERY_DIRECTORY that the server gets.
    fn note_listing(&mut self, element: &[u8]) {
        if self.is_active() && self.listing.len() < PENDING_MAX {
            self.listing.insert(header(element).message_id(), element.to_vec());
        }
    }

    /// The first part of a listing passes to the client: the rest follows without being asked for.
    pub(super) fn listed(&mut self, carriage: Carriage, response: &Bytes, out: &mut Out) {
        let Some(mut request) = self.listing.remove(&header(response).message_id()) else { return };
        if header(response).status() != Status::SUCCESS {
            return;
        }
        let Ok(mut view) = QueryDirectoryRequest::parse(&mut request[..]) else { return };
        let mut id = view.file_id();
        if id == FileId::ANY {
            let Some((open, _)) = self.last_created else { return };
            id = open;
        }
        let flags = view.flags();
        let whole = !flags
            .intersects(QueryDirectoryFlags::RETURN_SINGLE_ENTRY.with(QueryDirectoryFlags::INDEX_SPECIFIED));
        view.set_flags(
            flags.without(QueryDirectoryFlags::RESTART_SCANS).without(QueryDirectoryFlags::REOPEN),
        );
        let class = view.info_class();
        let fresh = flags.intersects(QueryDirectoryFlags::RESTART_SCANS.with(QueryDirectoryFlags::REOPEN));
        self.note_names(id, class, response);
        let Some(open) = self.opens.get_mut(id) else { return };
        let (session, tree) = (open.session, open.tree);
        // Only a listing that is followed from its start can be turned back.
        let begins = !std::mem::replace(&mut open.listed, true) || fresh;
        if !open.rights.any()
            || !whole
            || !begins
            || !self.is_active()
            || self.listings.len() >= LISTINGS_MAX
            || self.is_listing(id)
        {
            return;
        }
        let Some(request) = alone(&request, id, session, tree) else { return };
        let Some(key) = key_of(&request) else { return };
        self.watch_listed(id);
        self.serial += 1;
        let serial = self.serial as u32;
        let listing = Listing {
            carriage,
            request,
            key,
            serial,
            outstanding: false,
            done: false,
            given_up: false,
            parts: 0,
            bytes: 0,
            used: 0,
            swallowed: Vec::new(),
            held: VecDeque::new(),
        };
        self.end_listing(id, out);
        self.listings.insert(id, listing);
        self.list_on(id, out);
    }

    /// Who lists a folder goes on to what is in it, and asks about the folder itself.
    fn watch_listed(&mut self, id: FileId) {
        let Some(open) = self.opens.get(id).filter(|open| open.rights.ahead()) else { return };
        let (place, carriage, name) = ((open.session, open.tree), open.carriage, open.name.clone());
        for folder in [&name, split_name(&name).0] {
            self.want_watch(&(place.0, place.1, folded(folder)), folder, carriage);
        }
    }

    /// Whether the server has another request of the client for a listing, perhaps in the same compound.
    fn is_listing(&self, id: FileId) -> bool {
        self.listing.values().any(|request| file_id_of(request).is_none_or(|one| one == id))
    }

    pub(super) fn is_listed(&self, id: FileId) -> bool {
        self.listings.contains_key(&id)
    }

    /// A part fetched ahead.
    pub(super) fn listed_ahead(&mut self, id: FileId, serial: u32, response: &Bytes, out: &mut Out) {
        let Some(listing) = self.listings.get_mut(&id).filter(|listing| listing.serial == serial) else {
            return;
        };
        listing.outstanding = false;
        listing.parts += 1;
        listing.bytes += response.len();
        let more = header(response).status() == Status::SUCCESS;
        listing.done = !more;
        let key = listing.key;
        let swallowed = std::mem::take(&mut listing.swallowed);
        let class = QueryDirectoryRequest::parse(&listing.request[..]).map(|view| view.info_class());
        out.tell(ToNear::Listing { file_id: id, key }.told(response.clone()));
        for message_id in swallowed {
            self.tell(ToNear::Answer(message_id), out);
        }
        if let (true, Ok(class)) = (more, class) {
            self.note_names(id, class, response);
        }
        if self.listings.get(&id).is_some_and(|listing| !listing.held.is_empty()) {
            return self.turn_back(id, out);
        }
        self.list_on(id, out);
    }

    fn list_on(&mut self, id: FileId, out: &mut Out) {
        let may = self.may_send(1);
        let Some(listing) = self.listings.get_mut(&id) else { return };
        if listing.done || listing.outstanding || listing.given_up {
            return;
        }
        if !may || listing.parts >= PARTS_MAX || listing.bytes >= PARTS_BYTES_MAX {
            // The client asks for the rest itself.
            listing.given_up = true;
            return;
        }
        listing.outstanding = true;
        let (carriage, request, serial) = (listing.carriage, listing.request.clone(), listing.serial);
        self.send_job(carriage, request, Job::List { file_id: id, serial }, out);
    }

    /// How many parts of a listing the client has got from the near engine.
    pub(super) fn used_listing(&mut self, id: FileId, parts: u64) {
        if let Some(listing) = self.listings.get_mut(&id) {
            listing.used = u32::try_from(parts).unwrap_or(u32::MAX).min(listing.parts);
        }
    }

    /// The client goes on in another way than it began: the server's listing is brought to where the client is.
    fn turn_back(&mut self, id: FileId, out: &mut Out) {
        let Some(listing) = self.listings.get_mut(&id) else { return };
        let fresh = listing.held.front().and_then(|(_, message)| first_listed(message));
        let fresh = fresh.is_some_and(|(_, fresh)| fresh);
        if fresh || listing.parts == listing.used {
            return self.release_held(id, out);
        }
        listing.outstanding = true;
        let (carriage, mut request) = (listing.carriage, listing.request.clone());
        let (serial, left) = (listing.serial, listing.used);
        if let Ok(mut view) = QueryDirectoryRequest::parse(&mut request[..]) {
            view.set_flags(view.flags().with(QueryDirectoryFlags::RESTART_SCANS));
        }
        self.send_job(carriage, request, Job::Replay { file_id: id, serial, left }, out);
    }

    pub(super) fn replayed(&mut self, id: FileId, serial: u32, left: u32, out: &mut Out) {
        let Some(listing) = self.listings.get_mut(&id).filter(|listing| listing.serial == serial) else {
            return;
        };
        if left > 0 {
            let (carriage, request) = (listing.carriage, listing.request.clone());
            let job = Job::Replay { file_id: id, serial, left: left - 1 };
            return self.send_job(carriage, request, job, out);
        }
        self.release_held(id, out);
    }

    /// The server's listing is where the client's is: it gets what waited for that.
    fn release_held(&mut self, id: FileId, out: &mut Out) {
        let Some(listing) = self.listings.remove(&id) else { return };
        for (carriage, message) in listing.held {
            self.list_otherwise(carriage, message, out);
        }
    }

    /// Nothing more is told of a listing; whoever waits for a part of it has the server's answer.
    pub(super) fn end_listing(&mut self, id: FileId, out: &mut Out) {
        let Some(listing) = self.listings.get_mut(&id) else { return };
        for message_id in std::mem::take(&mut listing.swallowed) {
            self.tell(ToNear::Answer(message_id), out);
        }
        self.release_held(id, out);
    }

    /// Looks at a compound of the client.
    pub(super) fn watch_compound(&mut self, carriage: Carriage, message: &[u8], out: &mut Out) {
        debug_assert!(!is_single(message));
        let ranges = elements(message).unwrap_or_default();
        for (index, range) in ranges.iter().enumerate() {
            let element = element(message, range);
            match header(element).command() {
                Command::CREATE if index == 0 => self.note_create(carriage, element, closes_itself(message)),
                Command::QUERY_DIRECTORY => self.note_listing(element),
                Command::CLOSE => {
                    if let Some(id) = file_id_of(element) {
                        self.forget_open(id, out);
                    }
                }
                _ => {}
            }
        }
        self.note_query_compound(carriage, message, out);
    }
}

/// Whether a QUERY_DIRECTORY begins from the start.
fn starts_over(request: &[u8]) -> bool {
    QueryDirectoryRequest::parse(request).is_ok_and(|view| {
        view.flags().intersects(QueryDirectoryFlags::RESTART_SCANS.with(QueryDirectoryFlags::REOPEN))
    })
}

/// The listing that a message asks for first, and whether from the start.
fn first_listed(message: &[u8]) -> Option<(FileId, bool)> {
    elements(message)?.iter().find_map(|range| {
        let element = element(message, range);
        let is_it = header(element).command() == Command::QUERY_DIRECTORY;
        is_it.then(|| Some((file_id_of(element)?, starts_over(element)))).flatten()
    })
}

/// An element of a compound as a request of its own.
fn alone(element: &[u8], id: FileId, session: u64, tree: u32) -> Option<Vec<u8>> {
    let mut request = element.to_vec();
    let mut header = super::opens::header_mut(&mut request);
    header.set_next_command(0);
    header.set_flags(header.flags().without(isthmus_smb_wire::HeaderFlags::RELATED_OPERATIONS));
    header.set_session_id(session);
    header.set_tree_id(tree);
    set_file_id(&mut request, id).ok()?;
    Some(request)
}
