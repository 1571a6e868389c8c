//! Opens of the client, and the lease keys that the engine has of its own.

use super::{Far, Job};
use crate::create::{
    LeaseOf, key_of, lease_of, reads_a_file, wants_no_oplock, with_lease_key, with_own_lease, without_lease,
    writes_content,
};
use crate::far::leg::Owner;
use crate::far::offers::Identity;
use crate::far::reads::Reading;
use crate::far::watches::Armed;
use crate::limits::{ANSWERS_MAX, BREAK_MICROS, OPENS_MAX, PENDING_MAX, UPLOADS_TO_WAKE};
use crate::message::{FileName, close, file_id_of, folded, header, place, split_name};
use crate::policy::Rights;
use crate::told::ToNear;
use crate::{Carriage, Out, Wan};
use isthmus_smb_wire::create_context::{LeaseState, name};
use isthmus_smb_wire::edit::without_create_context;
use isthmus_smb_wire::messages::{
    CreateAction, CreateOptions, CreateRequest, CreateResponse, FileAttributes, OplockLevel,
};
use isthmus_smb_wire::{Command, FileId, Header, Status};
use std::collections::{HashMap, HashSet};

/// A CREATE of the client that the server has.
pub(crate) struct Creating {
    /// As the client sent it.
    request: Vec<u8>,
    carriage: Carriage,
    /// Lease that the engine has put in, or in the place of the client's.
    own: Option<[u8; 16]>,
    /// Its WRITEs may be answered before they are done: it is not to outlast the connection.
    behind: bool,
    /// The watch of its folder, and the count of changes.
    watched: Option<Armed>,
    tag: u64,
    /// It is closed in the same compound.
    closed: bool,
}

/// An open of the client.
pub(crate) struct Open {
    pub session: u64,
    pub tree: u32,
    pub carriage: Carriage,
    pub name: FileName,
    /// The name as it is compared.
    pub folded: FileName,
    pub rights: Rights,
    pub size: u64,
    /// State of the lease, whosever it is.
    pub lease: LeaseState,
    /// Lease of the engine that holds it.
    pub own: Option<[u8; 16]>,
    /// The client's own lease.
    pub client: Option<[u8; 16]>,
    /// Whether the client may have changed the file since.
    pub modified: bool,
    /// Whether the client made the file, and has written to it.
    pub made: bool,
    pub written: bool,
    /// When its lease was broken that the client has to acknowledge still.
    pub broken: Option<u64>,
    /// Whether a part of its listing has passed.
    pub listed: bool,
    pub reading: Reading,
    /// Queries of it, as a pattern for other files.
    pub queries: Vec<Vec<u8>>,
}

/// All opens of a connection.
#[derive(Default)]
pub(crate) struct Opens {
    list: HashMap<FileId, Open>,
    /// Opens that were opened again, with what the server calls them now.
    aliases: HashMap<FileId, FileId>,
    reopening: HashMap<FileId, Reopening>,
    /// Opens of the client that could not be opened again.
    dead: HashSet<FileId>,
    /// Keys of the client that stand for keys of the engine.
    keys: HashMap<[u8; 16], [u8; 16]>,
}

struct Reopening {
    open: Open,
    /// The file that it was.
    identity: Identity,
    held: Vec<Held>,
}

/// A request that is kept back, and whether the client has its answer.
type Held = (Carriage, Vec<u8>, bool);

impl Opens {
    pub fn get(&self, id: FileId) -> Option<&Open> {
        self.list.get(&id)
    }

    /// Opens, those among them that are about to be opened again.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len() + self.reopening.len()
    }

    pub fn get_mut(&mut self, id: FileId) -> Option<&mut Open> {
        self.list.get_mut(&id)
    }

    pub fn name_of(&self, id: FileId) -> Option<FileName> {
        self.list.get(&id).map(|open| open.name.clone())
    }

    pub fn insert(&mut self, id: FileId, open: Open) {
        if self.list.len() < OPENS_MAX {
            if let (Some(client), Some(own)) = (open.client, open.own) {
                self.keys.insert(client, own);
            }
            self.list.insert(id, open);
        }
    }

    fn remove(&mut self, id: FileId) -> Option<Open> {
        let open = self.list.remove(&id)?;
        if let Some(client) = open.client
            && self.list.values().all(|other| other.client != Some(client))
        {
            self.keys.remove(&client);
        }
        Some(open)
    }

    /// Opens of a folded name may have been changed; all with an empty one.
    pub fn modified(&mut self, name: &[u8]) {
        for open in self.list.values_mut() {
            open.modified |= name.is_empty() || open.folded == name;
        }
    }

    /// The client writes to opens of a folded name, up to `end`. Content that its own lease vouches for stays good beside
    /// what is written, of which the near engine knows.
    pub fn written(&mut self, name: &[u8], end: u64) {
        for open in self.list.values_mut().filter(|open| open.folded == name) {
            open.size = open.size.max(end);
            open.modified |= open.client.is_none();
        }
    }

    /// Whether a client has a folded name open.
    pub fn is_open(&self, tree: u32, name: &[u8]) -> bool {
        self.list.values().any(|open| open.tree == tree && open.folded == name)
    }

    pub fn note_write(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            open.written = true;
        }
    }

    pub fn note_query(&mut self, request: &[u8]) {
        if let Some(open) = file_id_of(request).and_then(|id| self.list.get_mut(&id))
            && open.queries.len() < ANSWERS_MAX
            && key_of(request).is_some()
        {
            open.queries.push(request.to_vec());
        }
    }

    /// The engine's key in whose place a client has one.
    pub fn own_of(&self, client: &[u8; 16]) -> Option<[u8; 16]> {
        self.keys.get(client).copied()
    }

    /// The client's key that stands for one of the engine's.
    pub fn client_of(&self, own: &[u8; 16]) -> Option<[u8; 16]> {
        self.keys.iter().find(|(_, key)| *key == own).map(|(client, _)| *client)
    }

    /// Opens of a folded name, or of what is in the folder of that name.
    pub fn named(&self, tree: u32, name: &[u8], within: bool) -> Vec<FileId> {
        let is_it = |open: &Open| {
            let its = if within { split_name(&open.folded).0 } else { &open.folded };
            open.tree == tree && its == name
        };
        self.list.iter().filter(|(_, open)| is_it(open)).map(|(id, _)| *id).collect()
    }

    /// Opens that a lease holds, whosever it is.
    pub fn under(&self, key: &[u8; 16]) -> Vec<FileId> {
        let held = |open: &Open| open.own.or(open.client).as_ref() == Some(key);
        self.list.iter().filter(|(_, open)| held(open)).map(|(id, _)| *id).collect()
    }

    /// Opens that a lease of the engine's holds.
    pub fn leased(&self) -> usize {
        self.list.values().filter(|open| open.own.is_some() && open.lease != LeaseState::NONE).count()
    }

    pub fn has_aliases(&self) -> bool {
        !self.aliases.is_empty()
    }

    pub fn alias_of(&self, id: FileId) -> Option<FileId> {
        self.aliases.get(&id).copied()
    }

    pub fn forget_alias(&mut self, id: FileId) {
        self.aliases.remove(&id);
    }

    /// Forgets an open that could not be opened again; tells whether it was one.
    pub fn bury(&mut self, id: FileId) -> bool {
        self.dead.remove(&id)
    }

    pub fn is_reopening(&self, id: FileId) -> bool {
        self.reopening.contains_key(&id)
    }

    /// Whether a break waits for the client's acknowledgement.
    pub fn has_broken(&self) -> bool {
        self.list.values().any(|open| open.broken.is_some())
    }

    /// Opens under a lease whose break has waited for too long.
    pub fn overdue(&self, now: u64) -> Vec<FileId> {
        let is_overdue = |open: &Open| {
            open.lease != LeaseState::NONE
                && open.broken.is_some_and(|at| now.saturating_sub(at) > BREAK_MICROS)
        };
        self.list.iter().filter(|(_, open)| is_overdue(open)).map(|(id, _)| *id).collect()
    }

    /// Whether one more open will be followed.
    pub fn has_room(&self, coming: usize) -> bool {
        self.list.len() + self.reopening.len() + coming < OPENS_MAX
    }

    /// Keeps a request back. Not one too many, and not for what is dead.
    pub fn hold(&mut self, id: FileId, carriage: Carriage, message: &[u8], quiet: bool) -> bool {
        match self.reopening.get_mut(&id) {
            Some(reopening) if reopening.held.len() < PENDING_MAX => {
                reopening.held.push((carriage, message.to_vec(), quiet));
                true
            }
            _ => false,
        }
    }

    /// Gives up the opens of a session, or of one tree connect of it, and what was kept back for some of them.
    pub fn leave(&mut self, session: u64, tree: Option<u32>) -> (Vec<(FileId, Open)>, Vec<Held>) {
        let gone = |open: &Open| open.session == session && tree.is_none_or(|tree| open.tree == tree);
        let opens = self.list.extract_if(|_, open| gone(open)).collect();
        let reopening = self.reopening.extract_if(|_, reopening| gone(&reopening.open));
        let held = reopening.flat_map(|(_, reopening)| reopening.held).collect();
        let left: HashSet<_> = self.list.values().filter_map(|open| open.client).collect();
        self.keys.retain(|client, _| left.contains(client));
        (opens, held)
    }
}

impl Far {
    /// A single CREATE of the client.
    pub(super) fn create(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        if !self.is_active() {
            return self.leg.send_client(carriage, message, out);
        }
        if key_of(&message).and_then(|key| self.offers.find(&key)).is_some() {
            // The offer reaches the near engine while this is on its way.
            return self.tell(ToNear::Answer(header(&message).message_id()), out);
        }
        self.note_opening(&message, carriage);
        let (session, tree) = place(&message);
        let name =
            CreateRequest::parse(&message[..]).map(|view| folded(view.name_bytes())).unwrap_or_default();
        let rights = self.rights((session, tree), &name);
        // A client with one file open under two leases could not say which of them it acknowledges.
        self.withdraw_where(|offer| offer.tree == tree && offer.folded == name, out);
        let has_room = self.opens.has_room(self.creating.len());
        let (mut own, mut sent, mut behind) = (None, message.clone(), false);
        let lease = lease_of(&message);
        if let Some(lease) = lease
            && let Some(key) = self.opens.own_of(&lease.key)
            && let Some(changed) = with_lease_key(&message, key)
        {
            (own, sent) = (Some(key), changed);
        } else if (self.edits || self.uploads >= UPLOADS_TO_WAKE)
            && rights.behind()
            && let Some(bare) = write_behind(&message)
        {
            (sent, behind) = (bare, true);
        } else if self.leases
            && rights.bounded()
            && has_room
            && reads_a_file(&message)
            && wants_no_oplock(&message)
            && !self.opens.is_open(tree, &name)
        {
            let key = self.lease_key();
            if let Some(leased) = with_own_lease(&message, key) {
                (own, sent) = (Some(key), leased);
            }
        }
        if self.creating.len() < PENDING_MAX {
            let (watched, tag) = (self.watch_above(session, tree, &name), self.changes.now());
            let creating = Creating { request: message, carriage, own, behind, watched, tag, closed: false };
            self.creating.insert(header(&creating.request).message_id(), creating);
        }
        self.leg.send_client(carriage, sent, out);
    }

    /// A CREATE that the near engine did not answer, although there was an offer for it.
    pub(super) fn create_after_all(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        if let Some(id) = key_of(&message).and_then(|key| self.offers.find(&key)) {
            self.withdraw(id, out);
        }
        self.create(carriage, message, out);
    }

    /// The first element of a compound.
    pub(super) fn note_create(&mut self, carriage: Carriage, element: &[u8], closed: bool) {
        if self.creating.len() < PENDING_MAX {
            let request = element.to_vec();
            let (own, watched, tag) = (None, None, self.changes.now());
            let creating = Creating { request, carriage, own, behind: false, watched, tag, closed };
            self.creating.insert(header(element).message_id(), creating);
        }
    }

    /// The server does not like the lease that the engine has put into a CREATE: it gets the client's own.
    pub(super) fn retry_bare(&mut self, _carriage: Carriage, response: &[u8], out: &mut Out) -> bool {
        let head = header(response);
        if head.command() != Command::CREATE || head.status() != Status::INVALID_PARAMETER {
            return false;
        }
        let Some(Owner::Client { message_id, .. }) = self.leg.owner_of(response) else { return false };
        let message_id = *message_id;
        let Some(creating) = self.creating.get_mut(&message_id).filter(|one| one.own.is_some()) else {
            return false;
        };
        creating.own = None;
        self.leases = false;
        let (carriage, request) = (creating.carriage, creating.request.clone());
        self.leg.take_back(response, out);
        self.leg.send_client(carriage, request, out);
        true
    }

    /// The response to a CREATE of the client; gives the one that it is to have instead.
    pub(super) fn created(
        &mut self,
        carriage: Carriage,
        response: &[u8],
        alone: bool,
        out: &mut Out,
    ) -> Option<Vec<u8>> {
        let creating = self.creating.remove(&header(response).message_id())?;
        let view = CreateResponse::parse(response).ok()?;
        if view.header().status() != Status::SUCCESS {
            return None;
        }
        let request = CreateRequest::parse(&creating.request[..]).ok()?;
        let (session, tree) = place(&creating.request);
        let name = request.name_bytes().to_vec();
        let granted = lease_of(response);
        let asked = lease_of(&creating.request);
        let mut lease = granted.map_or(LeaseState::NONE, |lease| lease.state);
        if granted.is_none() && view.oplock_level() != OplockLevel::NONE {
            lease = LeaseState::READ_CACHING;
        }
        if let Some(granted) = granted {
            // Of a lease that is just being broken no more than that is left.
            let left = self.breaking.get(&granted.key).map(|(_, state)| *state);
            let left = left.or(granted.breaking.then_some(LeaseState::NONE));
            lease = left.map_or(lease, |left| LeaseState(lease.0 & left.0));
        }
        let id = view.file_id();
        self.last_created = Some((id, creating.closed));
        let directory = view.file_attributes().contains(FileAttributes::DIRECTORY);
        let open = Open {
            session,
            tree,
            carriage,
            rights: self.rights((session, tree), &folded(&name)),
            folded: folded(&name),
            name,
            size: view.end_of_file(),
            lease: if directory { LeaseState::NONE } else { lease },
            own: creating.own,
            client: asked.map(|lease| lease.key),
            modified: view.create_action() != CreateAction::OPENED,
            made: view.create_action() != CreateAction::OPENED,
            written: false,
            broken: None,
            listed: false,
            reading: Reading::default(),
            queries: Vec::new(),
        };
        let leased = open.lease.contains(LeaseState::READ_CACHING) && open.rights.bounded();
        self.opens.insert(id, open);
        let above = self.watch_above(session, tree, &folded(request.name_bytes()));
        if leased && above.is_some() && above == creating.watched {
            let told = ToNear::Attributes { file_id: id, tag: creating.tag };
            out.after.push(Wan::Told(told.told(bytes::Bytes::new())));
        }
        if alone {
            self.read_with_open(id, &creating.request, out);
        }
        let exclusive = granted.is_some_and(|lease| lease.state.contains(LeaseState::WRITE_CACHING));
        if creating.behind && exclusive && !directory {
            out.after.push(Wan::Told(ToNear::Behind(id).told(bytes::Bytes::new())));
        }
        match (creating.own, asked) {
            (None, _) => None,
            (Some(_), None) => without_lease(response),
            (Some(_), Some(LeaseOf { key, .. })) => with_lease_key(response, key),
        }
    }

    /// The client has closed an open, or it is gone.
    pub(super) fn forget_open(&mut self, id: FileId, out: &mut Out) {
        self.end_listing(id, out);
        if let Some(open) = self.opens.remove(id) {
            self.uploads = self.uploads.saturating_add((open.made && open.written).into());
            self.edits |= open.written && !open.made;
            self.note_closed(&open);
            self.learn_from(&open);
            self.send_swallowed(open.reading, out);
        }
    }

    /// Makes an open of the client out of an offer that was withdrawn while the client's near engine took it.
    pub(super) fn open_again(
        &mut self,
        (old, identity): (FileId, Identity),
        carriage: Carriage,
        request: &[u8],
        out: &mut Out,
    ) {
        let (session, tree) = place(request);
        let Ok(view) = CreateRequest::parse(request) else { return };
        let Some(bare) = without_oplock(request) else { return };
        let open = Open {
            session,
            tree,
            carriage,
            name: view.name_bytes().to_vec(),
            folded: folded(view.name_bytes()),
            rights: self.rights((session, tree), &folded(view.name_bytes())),
            size: 0,
            lease: LeaseState::NONE,
            own: None,
            client: lease_of(request).map(|lease| lease.key),
            modified: false,
            made: false,
            written: false,
            broken: None,
            listed: false,
            reading: Reading::default(),
            queries: Vec::new(),
        };
        self.opens.reopening.insert(old, Reopening { open, identity, held: Vec::new() });
        // What came with the offer may be old.
        self.tell(ToNear::Purge(old), out);
        self.send_job(carriage, bare, Job::Reopen(old), out);
    }

    /// The server has opened it again, or not.
    pub(super) fn reopened(&mut self, old: FileId, response: &[u8], out: &mut Out) {
        let Some(Reopening { mut open, identity, held }) = self.opens.reopening.remove(&old) else { return };
        let view = CreateResponse::parse(response);
        let carriage = open.carriage;
        let mut view = view.ok().filter(|view| view.header().status() == Status::SUCCESS);
        if let Some(other) = view.take_if(|_| Identity::of(response) != Some(identity)) {
            // The name means another file by now.
            if let Some(message) = close(open.session, open.tree, other.file_id()) {
                self.send_job(carriage, message, Job::Done, out);
            }
        }
        match view {
            Some(view) => {
                open.size = view.end_of_file();
                let (session, key) = (open.session, open.client.take());
                self.opens.aliases.insert(old, view.file_id());
                self.opens.insert(view.file_id(), open);
                if let Some(key) = key {
                    // What the client has read came under a lease that is gone.
                    self.break_client(carriage, session, key, out);
                }
            }
            None => {
                self.opens.dead.insert(old);
            }
        }
        for (carriage, message, quiet) in held {
            if quiet {
                self.send_quiet(carriage, message, out);
            } else {
                self.deal(carriage, message, out);
            }
        }
    }
}

/// A CREATE that asks for exclusive use of a file to write it, without what would make it outlast the connection: a client
/// that loses the connection must not find the file again as if all its WRITEs were done.
fn write_behind(request: &[u8]) -> Option<Vec<u8>> {
    let view = CreateRequest::parse(request).ok()?;
    let direct = CreateOptions::WRITE_THROUGH.with(CreateOptions::NO_INTERMEDIATE_BUFFERING);
    let exclusive = lease_of(request)?.state.contains(LeaseState::WRITE_CACHING);
    let reconnects = view
        .contexts()
        .flatten()
        .any(|context| [name::DURABLE_RECONNECT, name::DURABLE_V2_RECONNECT].contains(&context.name));
    if !exclusive || !writes_content(&view) || view.options().intersects(direct) || reconnects {
        return None;
    }
    let bare = without_create_context(request, name::DURABLE).ok()?;
    without_create_context(&bare, name::DURABLE_V2).ok()
}

/// A CREATE without lease or oplock.
fn without_oplock(request: &[u8]) -> Option<Vec<u8>> {
    let mut bare = without_create_context(request, name::LEASE).ok()?;
    CreateRequest::parse(&mut bare[..]).ok()?.set_oplock_level(OplockLevel::NONE);
    Some(bare)
}

/// The header, to change it.
pub(crate) fn header_mut(bytes: &mut [u8]) -> Header<&mut [u8]> {
    Header::lenient(bytes)
}
