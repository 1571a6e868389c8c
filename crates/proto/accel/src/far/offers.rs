//! Handles opened ahead of a client that goes through a folder: each is open at the server under a lease of the engine's,
//! and the near engine may give it to the client.

use super::leg::Owner;
use super::opens::Open;
use super::others::Shown;
use super::reads::Reading;
use super::{Far, Job, read_charge};
use crate::create::{key_of, lease_of, like, without_lease};
use crate::far::folders::FolderKey;
use crate::limits::{
    AHEAD_BYTES_FIRST, AHEAD_BYTES_MAX, ANSWERS_MAX, OFFERS_FIRST, OFFERS_MAX, READ_BYTES, WHOLE_BYTES_MAX,
};
use crate::message::{FileName, Key, close, folded, header, request};
use crate::told::{Offer as Told, ToNear};
use crate::{Carriage, Out};
use bytes::{Bytes, BytesMut};
use isthmus_smb_wire::build;
use isthmus_smb_wire::compound;
use isthmus_smb_wire::create_context::{LeaseState, QueryOnDiskIdResponse, name};
use isthmus_smb_wire::messages::{
    CreateResponse, FileAttributes, InfoClass, InfoType, QueryInfoResponse, ReadFlags, ReadResponse,
};
use isthmus_smb_wire::{FileId, Status};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Withdrawn offers that are remembered, in case the near engine has taken one.
const WITHDRAWN_MAX: usize = 1024;

/// What tells whether a name still means the same file: when it was made, and its number if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    made: u64,
    number: Option<u64>,
}

impl Identity {
    /// From the response to a CREATE.
    pub fn of(response: &[u8]) -> Option<Self> {
        let view = CreateResponse::parse(response).ok()?;
        let context = view.contexts().find_name(name::QUERY_ON_DISK_ID);
        let number =
            context.and_then(|context| Some(QueryOnDiskIdResponse::parse(context.data).ok()?.disk_file_id()));
        Some(Self { made: view.creation_time(), number })
    }
}

/// A handle opened ahead.
pub(crate) struct Offer {
    pub session: u64,
    pub tree: u32,
    pub carriage: Carriage,
    pub folder: FolderKey,
    pub name: FileName,
    pub folded: Vec<u8>,
    pub lease: LeaseState,
    pub own: [u8; 16],
    key: Key,
    file_id: Option<FileId>,
    size: u64,
    /// Response to the CREATE, without the lease.
    pub response: Vec<u8>,
    /// Keys of the queries, and the answers to them.
    queries: Vec<Key>,
    answers: Vec<(Key, Vec<u8>)>,
    /// Responses that are still to come.
    missing: usize,
    content: BytesMut,
    tag: u64,
    /// The server makes somebody else give up what he holds of it first.
    contested: bool,
    /// When it was told to the near engine.
    told: Option<u64>,
    looked: u64,
}

/// All handles opened ahead on a connection.
#[derive(Default)]
pub(crate) struct Offers {
    next: u32,
    list: BTreeMap<u32, Offer>,
    by_key: HashMap<Key, u32>,
    /// Withdrawn offers that the near engine may have taken.
    withdrawn: VecDeque<(u32, FileId, Identity)>,
}

impl Offers {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// An offer that the near engine knows of.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let id = self.by_key.get(key)?;
        self.list.get(id)?.told.map(|_| *id)
    }

    pub fn under(&self, own: &[u8; 16]) -> Option<u32> {
        self.list.iter().find(|(_, offer)| offer.own == *own).map(|(id, _)| *id)
    }

    pub fn get(&self, id: u32) -> Option<&Offer> {
        self.list.get(&id)
    }

    fn bytes(&self) -> u64 {
        self.list.values().map(|offer| offer.size.min(WHOLE_BYTES_MAX)).sum()
    }

    fn remove(&mut self, id: u32) -> Option<Offer> {
        let offer = self.list.remove(&id)?;
        if self.by_key.get(&offer.key) == Some(&id) {
            self.by_key.remove(&offer.key);
        }
        Some(offer)
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        self.list.retain(|_, offer| offer.session != session || tree.is_some_and(|tree| offer.tree != tree));
        let list = &self.list;
        self.by_key.retain(|_, id| list.contains_key(id));
    }
}

impl Far {
    /// Opens ahead in folders that the client goes through.
    pub(super) fn work_on_offers(&mut self, out: &mut Out) {
        let keys: Vec<FolderKey> = self.folders.keys().take(4).cloned().collect();
        for key in keys {
            while self.offers.list.len() < OFFERS_MAX && self.may_send(4) {
                if !self.offer_next(&key, out) {
                    break;
                }
            }
        }
    }

    /// Opens the next file of a folder ahead, if there is one and it is time for it.
    fn offer_next(&mut self, key: &FolderKey, out: &mut Out) -> bool {
        if !self.leases
            || !self.bulk.is_idle()
            || !self.is_watched(key)
            || !self.opens.has_room(self.offers.list.len())
        {
            return false;
        }
        let open_here = self.offers.list.values().filter(|offer| offer.folder == *key).count();
        let Some(folder) = self.folders.get(key) else { return false };
        let most = if folder.used { AHEAD_BYTES_MAX } else { AHEAD_BYTES_FIRST };
        let room = most.saturating_sub(self.offers.bytes());
        if !folder.is_walked() || open_here >= folder.window {
            return false;
        }
        let Some(pattern) = folder.pattern.clone() else { return false };
        let next = folder.ahead().into_iter().find_map(|index| {
            let entry = folder.entries.get(index).filter(|entry| !entry.opened && !entry.directory)?;
            let name = folder.name_of(index)?;
            (!self.is_others(entry, &folded(&name))).then_some((index, entry, name))
        });
        let Some((index, entry, name)) = next else { return false };
        if entry.size.min(WHOLE_BYTES_MAX) > room && open_here > 0 {
            return false;
        }
        let ordinary = entry.ordinary;
        let fold = folded(&name);
        if let Some(folder) = self.folders.get_mut(key)
            && let Some(entry) = folder.entries.get_mut(index)
        {
            entry.opened = true;
        }
        let allowed = self.rights((key.0, key.1), &fold).ahead();
        if ordinary && allowed && !self.opens.is_open(key.1, &fold) {
            self.open_ahead(key, pattern.carriage, &pattern.request, &pattern.queries, name, out);
        }
        true
    }

    fn open_ahead(
        &mut self,
        folder: &FolderKey,
        carriage: Carriage,
        like_this: &[u8],
        queries: &[Vec<u8>],
        name: FileName,
        out: &mut Out,
    ) {
        let own = self.lease_key();
        let Some(create) = like(like_this, &name, Some(own)) else { return };
        let Some(key) = key_of(&create) else { return };
        let mut elements = vec![create];
        let mut keys = Vec::new();
        for query in queries.iter().take(ANSWERS_MAX) {
            if let (Some(element), Some(key)) = (related(query), key_of(query)) {
                elements.push(element);
                keys.push(key);
            }
        }
        let Ok(message) = compound::join(&elements) else { return };
        let id = self.offers.next;
        self.offers.next = self.offers.next.wrapping_add(1);
        let offer = Offer {
            session: folder.0,
            tree: folder.1,
            carriage,
            folder: folder.clone(),
            folded: folded(&name),
            name,
            lease: LeaseState::NONE,
            own,
            key,
            file_id: None,
            size: 0,
            response: Vec::new(),
            answers: Vec::new(),
            missing: elements.len(),
            queries: keys,
            content: BytesMut::new(),
            tag: self.changes.now(),
            contested: false,
            told: None,
            looked: self.now,
        };
        self.offers.by_key.insert(key, id);
        self.offers.list.insert(id, offer);
        let owners = (0..elements.len()).map(|index| {
            Owner::Engine(match index {
                0 => Job::OfferOpen(id, folder.1),
                _ => Job::OfferQuery(id, index - 1),
            })
        });
        self.counts.ahead += 1;
        self.leg.send_own(carriage, message, owners.collect(), out);
    }

    /// The server has opened it, or not.
    pub(super) fn offer_opened(&mut self, id: u32, tree: u32, response: &[u8], out: &mut Out) {
        let view = CreateResponse::parse(response).ok();
        let view = view.filter(|view| view.header().status() == Status::SUCCESS);
        let Some(offer) = self.offers.list.get_mut(&id) else {
            // Given up in the meantime.
            if let Some(view) = view {
                self.close_own(response, tree, view.file_id(), out);
            }
            return;
        };
        let Some(view) = view else {
            match header(response).status() {
                Status::INVALID_PARAMETER => self.leases = false,
                Status::SHARING_VIOLATION => self.leave_alone(id),
                _ => {}
            }
            self.offers.remove(id);
            return;
        };
        let granted = lease_of(response);
        let lease = granted.map_or(LeaseState::NONE, |lease| lease.state);
        let contested = offer.contested || granted.is_some_and(|lease| lease.breaking);
        offer.file_id = Some(view.file_id());
        offer.size = view.end_of_file();
        offer.lease = lease;
        offer.response = without_lease(response).unwrap_or_default();
        offer.missing -= 1;
        let directory = view.file_attributes().contains(FileAttributes::DIRECTORY);
        if !lease.contains(crate::create::READ_HANDLE) || directory || offer.response.is_empty() {
            return self.withdraw(id, out);
        }
        if contested {
            self.leave_alone(id);
            return self.withdraw(id, out);
        }
        self.offer_on(id, out);
    }

    /// The server does not open it at once: somebody else has to give something up first.
    pub(super) fn offer_waits(&mut self, id: u32) {
        if let Some(offer) = self.offers.list.get_mut(&id) {
            offer.contested = true;
        }
    }

    pub(super) fn offer_queried(&mut self, id: u32, index: usize, response: &Bytes, out: &mut Out) {
        let Some(offer) = self.offers.list.get_mut(&id) else { return };
        offer.missing = offer.missing.saturating_sub(1);
        if header(response).status() == Status::SUCCESS
            && let Some(key) = offer.queries.get(index)
        {
            offer.answers.push((*key, as_single(response)));
        }
        self.offer_on(id, out);
    }

    /// Reads on, and offers the handle when all is there.
    fn offer_on(&mut self, id: u32, out: &mut Out) {
        let Some(offer) = self.offers.list.get(&id) else { return };
        let Some(file_id) = offer.file_id.filter(|_| offer.missing == 0) else { return };
        let until = offer.size.min(WHOLE_BYTES_MAX);
        let at = offer.content.len() as u64;
        if at < until {
            let length = (until - at).min(READ_BYTES.into()) as u32;
            let body = build::Read {
                flags: ReadFlags::NONE,
                file_id: Some(file_id),
                offset: at,
                length,
                minimum_count: 0,
            };
            let (session, tree, carriage) = (offer.session, offer.tree, offer.carriage);
            if let Some(message) = request(session, tree, read_charge(length), &body) {
                self.send_job(carriage, message, Job::OfferRead(id), out);
            }
            return;
        }
        self.tell_offer(id, out);
    }

    fn tell_offer(&mut self, id: u32, out: &mut Out) {
        let now = self.now;
        let Some(offer) = self.offers.list.get_mut(&id) else { return };
        if offer.told.is_some() {
            return;
        }
        offer.told = Some(now);
        offer.looked = now;
        let told = Told {
            id,
            key: offer.key,
            name: offer.name.clone(),
            session: offer.session,
            lease_state: offer.lease.0,
            tag: offer.tag,
            response: offer.response.clone(),
            answers: std::mem::take(&mut offer.answers),
            whole: offer.content.len() as u64 >= offer.size,
        };
        let content = std::mem::take(&mut offer.content).freeze();
        out.tell(ToNear::Offer(Box::new(told)).told(content));
    }

    pub(super) fn offer_read(&mut self, id: u32, response: &Bytes, out: &mut Out) {
        let Some(offer) = self.offers.list.get_mut(&id) else { return };
        match ReadResponse::parse(&response[..]) {
            Ok(view) if view.header().status() == Status::SUCCESS && !view.payload().is_empty() => {
                offer.content.extend_from_slice(view.payload());
                self.offer_on(id, out);
            }
            _ => self.withdraw(id, out),
        }
    }

    /// The client has been given an offer by the near engine.
    pub(super) fn claimed(&mut self, id: u32, carriage: Carriage, request: &[u8], out: &mut Out) {
        if self.claim(id, carriage, request).is_some() {
            return;
        }
        // It was withdrawn while the near engine gave it away.
        let withdrawn = &mut self.offers.withdrawn;
        if let Some(at) = withdrawn.iter().position(|(one, ..)| *one == id)
            && let Some((_, file_id, identity)) = withdrawn.remove(at)
        {
            self.open_again((file_id, identity), carriage, request, out);
        }
    }

    /// Makes an open of the client out of an offer.
    pub(super) fn claim(&mut self, id: u32, carriage: Carriage, request: &[u8]) -> Option<Offer> {
        let offer = self.offers.remove(id)?;
        let file_id = offer.file_id?;
        let told = offer.size.min(WHOLE_BYTES_MAX);
        let reading = if told < offer.size { Reading::from(told) } else { Reading::default() };
        let open = Open {
            session: offer.session,
            tree: offer.tree,
            carriage,
            folded: offer.folded.clone(),
            name: offer.name.clone(),
            rights: self.rights((offer.session, offer.tree), &offer.folded),
            size: offer.size,
            lease: offer.lease,
            own: Some(offer.own),
            client: lease_of(request).map(|lease| lease.key),
            modified: false,
            made: false,
            written: false,
            broken: None,
            listed: false,
            reading,
            queries: Vec::new(),
        };
        self.opens.insert(file_id, open);
        self.use_watch(&offer.folder);
        if let Some(folder) = self.folders.get_mut(&offer.folder) {
            folder.window = (folder.window * 2).min(OFFERS_MAX);
            folder.wasted = 0;
            folder.used = true;
            if let Some(index) = folder.index_of(crate::message::split_name(&offer.name).1) {
                folder.step_to(index);
            }
        }
        Some(offer)
    }

    /// Takes offers back.
    pub(super) fn withdraw_where(&mut self, gone: impl Fn(&Offer) -> bool, out: &mut Out) {
        let list: Vec<u32> =
            self.offers.list.iter().filter(|(_, offer)| gone(offer)).map(|(id, _)| *id).collect();
        list.into_iter().for_each(|id| self.withdraw(id, out));
    }

    /// Takes an offer back and closes its handle.
    pub(super) fn withdraw(&mut self, id: u32, out: &mut Out) {
        let Some(offer) = self.offers.remove(id) else { return };
        let Some(file_id) = offer.file_id else { return };
        if offer.told.is_some() {
            self.counts.wasted += 1;
            self.tell(ToNear::Withdraw(id), out);
            if self.offers.withdrawn.len() >= WITHDRAWN_MAX {
                self.offers.withdrawn.pop_front();
            }
            if let Some(identity) = Identity::of(&offer.response) {
                self.offers.withdrawn.push_back((id, file_id, identity));
            }
        }
        if let Some(message) = close(offer.session, offer.tree, file_id) {
            self.send_job(offer.carriage, message, Job::Done, out);
        }
    }

    /// Closes a handle that came too late. An answer that took its time does not name its tree connect.
    pub(super) fn close_own(&mut self, response: &[u8], tree: u32, file_id: FileId, out: &mut Out) {
        let session = header(response).session_id();
        let carriage = self.carriage_of(session);
        if let Some(message) = close(session, tree, file_id) {
            self.send_job(carriage, message, Job::Done, out);
        }
    }

    /// Offers that nobody wants are given up, and the folder gets fewer; files that somebody deletes are let go.
    pub(super) fn expire_offers(&mut self, out: &mut Out) {
        let now = self.now;
        let told: Vec<(u32, u64)> =
            self.offers.list.iter().filter_map(|(id, offer)| Some((*id, offer.told?))).collect();
        for (id, at) in told {
            let Some(offer) = self.offers.list.get_mut(&id) else { continue };
            let (life, look) = self.shares.shown((offer.session, offer.tree)).times();
            if now.saturating_sub(at) > life {
                self.wasted(id);
                self.withdraw(id, out);
                continue;
            }
            if now.saturating_sub(offer.looked) < look {
                continue;
            }
            offer.looked = now;
            let (session, tree, carriage) = (offer.session, offer.tree, offer.carriage);
            let body = build::QueryInfo {
                info_type: InfoType::FILE,
                info_class: InfoClass::STANDARD,
                output_buffer_length: 24,
                additional_information: 0,
                flags: 0,
                file_id: offer.file_id,
                input: &[],
            };
            if let Some(message) = request(session, tree, 1, &body)
                && self.may_send(1)
            {
                self.send_job(carriage, message, Job::OfferLook(id), out);
            }
        }
    }

    fn wasted(&mut self, id: u32) {
        let Some(offer) = self.offers.list.get(&id) else { return };
        if let Some(folder) = self.folders.get_mut(&offer.folder) {
            folder.wasted += 1;
            folder.window = (folder.window / 2).max(OFFERS_FIRST);
            if folder.wasted > OFFERS_FIRST as u32 {
                // The client has turned to something else; it has to begin anew.
                folder.forget_steps();
                folder.window = OFFERS_FIRST;
                folder.used = false;
            }
        }
    }

    pub(super) fn offer_looked(&mut self, id: u32, response: &[u8], out: &mut Out) {
        let Some(offer) = self.offers.list.get(&id) else { return };
        let view = QueryInfoResponse::parse(response).ok();
        // Byte 20: whether it goes with its last close (MS-FSCC 2.4.47).
        let pending = view.as_ref().and_then(|view| view.buffer().get(20)).map(|byte| *byte != 0);
        if pending == Some(true) {
            self.shares.tells((offer.session, offer.tree), Shown::Hidden);
        }
        if pending != Some(false) {
            self.counts.breaks += 1;
            self.withdraw(id, out);
        }
    }
}

/// A query of the client as the next element of a compound.
fn related(query: &[u8]) -> Option<Vec<u8>> {
    let mut element = query.to_vec();
    isthmus_smb_wire::set_file_id(&mut element, FileId::ANY).ok()?;
    let mut header = super::opens::header_mut(&mut element);
    header.set_flags(super::dfs_of(query).with(isthmus_smb_wire::HeaderFlags::RELATED_OPERATIONS));
    header.set_session_id(u64::MAX);
    header.set_tree_id(u32::MAX);
    header.set_next_command(0);
    header.set_credits(1);
    Some(element)
}

/// An element of a compound's response as a response of its own.
fn as_single(response: &[u8]) -> Vec<u8> {
    let mut single = response.to_vec();
    let mut header = super::opens::header_mut(&mut single);
    header.set_next_command(0);
    header.set_flags(header.flags().without(isthmus_smb_wire::HeaderFlags::RELATED_OPERATIONS));
    single
}
