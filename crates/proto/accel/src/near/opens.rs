//! Opens of the client, with what is held of their content.

use super::content::Content;
use crate::changes::End;
use crate::limits::{NEAR_CONTENT_MAX, NEAR_ITEMS_MAX};
use crate::message::{Key, folded, respond};
use crate::policy::Rights;
use bytes::Bytes;
use isthmus_smb_wire::build;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages::{ReadFlags, ReadRequest};
use isthmus_smb_wire::{FileId, Status};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Whose lease vouches for content: it is shared by the opens under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// A lease that the client has, by its key.
    Lease([u8; 16]),
    /// The lease or oplock of one open.
    Open(FileId),
}

/// What opens under one lease have in common.
#[derive(Default)]
struct Held {
    opens: usize,
    content: Content,
}

/// An open of the client.
pub(super) struct Open {
    session: u64,
    tree: u32,
    name: Vec<u8>,
    /// The name as it is compared.
    folded: Vec<u8>,
    rights: Rights,
    holder: Holder,
    /// Whether the server lets it read.
    pub reads: bool,
    /// The offer that it was.
    pub offer: Option<u32>,
    /// Whether the client has an oplock or a lease of its own.
    pub caches: bool,
    /// Whether its end changes nothing, and it may not change anything either.
    clean: bool,
    /// Whether its end may change something: the file is made, written or to be deleted.
    pub alters: bool,
    /// Whether its WRITEs are answered before they are done.
    behind: bool,
    /// Answers to queries.
    pub answers: Vec<(Key, Vec<u8>)>,
    /// Times, sizes and attributes, while they are known.
    pub attributes: Option<FileTimesAndSizes>,
    /// The same as the server gave them with the open.
    pub granted: Option<FileTimesAndSizes>,
    /// Next parts of its listing.
    parts: VecDeque<(Key, Bytes)>,
    parts_used: u64,
    /// The listing is begun anew by this request.
    blocked: Option<u64>,
    /// The last request for the listing that was passed on, and what it asks for: no other parts are waited for.
    asked: Option<(u64, Key)>,
}

/// All opens of a connection.
#[derive(Default)]
pub(super) struct Opens {
    list: HashMap<FileId, Open>,
    held: HashMap<Holder, Held>,
    /// Bytes of parts of listings, and memory of content.
    bytes: usize,
}

impl Open {
    pub fn new(
        (session, tree): (u64, u32),
        name: Vec<u8>,
        clean: bool,
        rights: Rights,
        holder: Holder,
    ) -> Self {
        Self {
            session,
            tree,
            folded: folded(&name),
            name,
            rights,
            holder,
            reads: false,
            offer: None,
            caches: false,
            clean,
            alters: false,
            behind: false,
            answers: Vec::new(),
            attributes: None,
            granted: None,
            parts: VecDeque::new(),
            parts_used: 0,
            blocked: None,
            asked: None,
        }
    }

    fn listed_bytes(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.len()).sum()
    }

    /// What was said of the file does not hold any more.
    fn forget_answers(&mut self) {
        self.answers.clear();
        (self.attributes, self.granted) = (None, None);
    }
}

impl Opens {
    pub fn insert(&mut self, id: FileId, open: Open) {
        if self.list.len() < NEAR_ITEMS_MAX {
            self.remove(id);
            self.held.entry(open.holder).or_default().opens += 1;
            self.list.insert(id, open);
        }
    }

    pub fn remove(&mut self, id: FileId) {
        if let Some(open) = self.list.remove(&id) {
            self.removed(&open);
        }
    }

    /// The last open under a lease takes the content along.
    fn removed(&mut self, open: &Open) {
        self.bytes -= open.listed_bytes();
        let Some(held) = self.held.get_mut(&open.holder) else { return };
        held.opens -= 1;
        if held.opens == 0 {
            self.bytes -= held.content.memory();
            self.held.remove(&open.holder);
        }
    }

    /// Changes the content that an open has a share in.
    fn change<T>(&mut self, holder: Holder, act: impl FnOnce(&mut Content) -> T) -> Option<T> {
        let content = &mut self.held.get_mut(&holder)?.content;
        let memory = content.memory();
        let result = act(content);
        self.bytes = self.bytes + content.memory() - memory;
        Some(result)
    }

    pub fn name_of(&self, id: FileId) -> Option<Vec<u8>> {
        self.list.get(&id).map(|open| open.name.clone())
    }

    /// Opens that are known.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_clean(&self, id: FileId) -> bool {
        self.list.get(&id).is_some_and(|open| open.clean)
    }

    /// What the end of an open may change.
    pub fn end_of(&self, id: FileId) -> End {
        match self.list.get(&id) {
            Some(open) if !open.alters => End::Nothing,
            Some(open) => End::Name(open.name.clone()),
            None => End::Anything,
        }
    }

    pub fn attributes_of(&self, id: FileId) -> Option<FileTimesAndSizes> {
        self.list.get(&id)?.attributes
    }

    /// What the server gave with the open holds.
    pub fn trust_attributes(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            open.attributes = open.granted;
        }
    }

    pub fn is_behind(&self, id: FileId) -> bool {
        self.list.get(&id).is_some_and(|open| open.behind && open.rights.behind())
    }

    /// Finds out anew what may be done with each open.
    pub fn allow(&mut self, rights: impl Fn((u64, u32), &[u8]) -> Rights) {
        for open in self.list.values_mut() {
            open.rights = rights((open.session, open.tree), &open.name);
        }
    }

    /// Whether anything but the client's own leases may permit an answer.
    pub fn is_bounded(&self, id: FileId) -> bool {
        self.list.get(&id).is_some_and(|open| open.rights.bounded())
    }

    pub fn set_behind(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            open.behind = true;
        }
    }

    /// WRITEs to an open, or to all, are the server's to answer again.
    pub fn end_behind(&mut self, id: Option<FileId>) {
        let these = self.list.iter_mut().filter(|(one, _)| id.is_none_or(|id| **one == id));
        these.for_each(|(_, open)| open.behind = false);
    }

    /// The open may have changed the file.
    pub fn soil(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            (open.clean, open.alters) = (false, true);
        }
    }

    /// An open that may have changed the file ends. If the file is to be deleted, it is with the last of its opens.
    fn soil_others(&mut self, name: &[u8]) {
        for open in self.list.values_mut().filter(|open| open.folded == name) {
            (open.clean, open.alters) = (false, true);
        }
    }

    /// The client ends an open.
    pub fn close(&mut self, id: FileId) {
        if self.list.get(&id).is_some_and(|open| open.alters) {
            let name = self.name_of(id).map(|name| folded(&name)).unwrap_or_default();
            self.soil_others(&name);
        }
        self.remove(id);
    }

    pub fn has_content(&self) -> bool {
        self.bytes > 0
    }

    fn content_of(&self, open: &Open) -> Option<&Content> {
        self.held.get(&open.holder).map(|held| &held.content).filter(|content| !content.is_empty())
    }

    /// Opens of which something is held.
    pub fn with_content(&self) -> usize {
        let held = |open: &&Open| self.content_of(open).is_some() || !open.answers.is_empty() || open.behind;
        self.list.values().filter(held).count()
    }

    /// Takes in what the server has of a file from `offset` on, but for what the client has written since.
    pub fn add_content(
        &mut self,
        id: FileId,
        offset: u64,
        content: &[u8],
        end: bool,
        written: &[Range<u64>],
    ) {
        let room = NEAR_CONTENT_MAX.saturating_sub(self.bytes);
        // No file reaches so far, whatever the peer says.
        let Some(until) = offset.checked_add(content.len() as u64) else { return };
        let Some(open) = self.list.get_mut(&id).filter(|_| content.len() <= room) else { return };
        // What the server has given for this open it lets it read.
        open.reads |= !content.is_empty();
        let holder = open.holder;
        let longer = written.iter().any(|part| part.end > until);
        self.change(holder, |held| {
            if end && !longer {
                held.end = Some(until);
            }
            let mut from = offset;
            let mut parts: Vec<&Range<u64>> = written.iter().collect();
            parts.sort_unstable_by_key(|part| part.start);
            for part in parts.into_iter().chain([&(until..until)]) {
                let to = part.start.clamp(from, until);
                if let Some(bytes) = content.get((from - offset) as usize..(to - offset) as usize) {
                    held.fill(from, bytes);
                }
                from = part.end.clamp(from, until);
            }
        });
    }

    /// The client writes to a file of this name: what is held of that part is old.
    pub fn written(&mut self, name: &[u8], part: &Range<u64>) {
        let mut holders = Vec::new();
        for open in self.list.values_mut().filter(|open| open.folded == name) {
            open.forget_answers();
            holders.push(open.holder);
        }
        for holder in holders {
            self.change(holder, |content| content.forget(part));
        }
    }

    /// What the client has written counts as done: it reads it from now on, if it reads what is here at all.
    pub fn wrote(&mut self, id: FileId, offset: u64, bytes: &[u8]) {
        let room = NEAR_CONTENT_MAX.saturating_sub(self.bytes);
        let Some(open) = self.list.get(&id).filter(|_| bytes.len() <= room) else { return };
        if self.content_of(open).is_some() {
            self.change(open.holder, |content| content.put(offset, bytes));
        }
    }

    /// The response to a READ, if its content is here: the open, the response, and where it ends.
    pub fn read(&self, request: &[u8]) -> Option<(FileId, Vec<u8>, u64)> {
        let view = ReadRequest::parse(request).ok()?;
        let file_id = view.file_id();
        let open = self.list.get(&file_id)?;
        if !open.rights.any() || !(open.rights.bounded() || open.caches) {
            return None;
        }
        let content = self.content_of(open).filter(|_| open.reads && view.flags() == ReadFlags::NONE)?;
        let (offset, length) = (view.offset(), view.length());
        if length == 0 {
            return None;
        }
        if content.end.is_some_and(|end| offset >= end) {
            let body = build::ErrorResponse {
                command: isthmus_smb_wire::Command::READ,
                context_count: 0,
                data: &[],
            };
            return Some((file_id, respond(request, Status::END_OF_FILE, &body)?, offset));
        }
        let payload = content.range(offset, length)?;
        if payload.len() < view.minimum_count() as usize || payload.is_empty() {
            return None;
        }
        let end = offset + payload.len() as u64;
        let response = respond(request, Status::SUCCESS, &build::ReadResponse { payload: &payload })?;
        Some((file_id, response, end))
    }

    /// Content up to an offset was given to the client. It is kept while there is room, for a client that reads again;
    /// tells whether the far engine wants to know, since there is more to come.
    pub fn used(&mut self, id: FileId, end: u64) -> bool {
        let Some(holder) = self.list.get(&id).map(|open| open.holder) else { return false };
        while self.bytes > NEAR_CONTENT_MAX / 2
            && self.change(holder, |content| content.forget_first(end)).unwrap_or(false)
        {}
        self.held.get(&holder).is_some_and(|held| !held.content.is_whole())
    }

    pub fn answer_of(&self, id: FileId, key: &Key) -> Option<Vec<u8>> {
        let open = self.list.get(&id)?;
        open.answers.iter().find(|(one, _)| one == key).map(|(_, response)| response.clone())
    }

    pub fn purge(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            open.forget_answers();
            let holder = open.holder;
            self.change(holder, |content| *content = Content::default());
        }
    }

    /// The client gives a lease up.
    pub fn purge_lease(&mut self, key: [u8; 16]) {
        let under = |open: &Open| open.holder == Holder::Lease(key);
        let gone: Vec<FileId> = self.list.iter().filter(|(_, open)| under(open)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.purge(id));
    }

    /// What came with an offer does not hold any more.
    pub fn purge_offered(&mut self, offer: u32) {
        let taken = self.list.iter().find(|(_, open)| open.offer == Some(offer)).map(|(id, _)| *id);
        taken.into_iter().for_each(|id| self.purge(id));
    }

    /// What is said of a folded name may have changed.
    pub fn touched(&mut self, name: &[u8]) {
        self.list.values_mut().filter(|open| open.folded == name).for_each(Open::forget_answers);
    }

    /// What is open of a folded name may have changed; all with an empty one.
    pub fn changed(&mut self, name: &[u8]) {
        let is_it = |open: &Open| name.is_empty() || open.folded == name;
        let gone: Vec<FileId> = self.list.iter().filter(|(_, open)| is_it(open)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.purge(id));
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        let gone = |open: &Open| open.session == session && tree.is_none_or(|tree| open.tree == tree);
        let gone: Vec<Open> = self.list.extract_if(|_, open| gone(open)).map(|(_, open)| open).collect();
        gone.iter().for_each(|open| self.removed(open));
    }

    /// A part of a listing, if it may answer a request that came or comes.
    pub fn add_part(&mut self, id: FileId, key: Key, part: Bytes) {
        let room = NEAR_CONTENT_MAX.saturating_sub(self.bytes);
        if let Some(open) = self.list.get_mut(&id)
            && open.blocked.is_none()
            && open.asked.is_none_or(|(_, asked)| asked == key)
            && part.len() <= room
        {
            self.bytes += part.len();
            open.parts.push_back((key, part));
        }
    }

    /// The next part of a listing, if it is what is asked for.
    pub fn take_part(&mut self, id: FileId, key: &Key) -> Option<Bytes> {
        let open = self.list.get_mut(&id)?;
        open.parts.front().filter(|(one, _)| one == key)?;
        let (_, part) = open.parts.pop_front()?;
        open.parts_used += 1;
        self.bytes -= part.len();
        Some(part)
    }

    /// A request for the next part of a listing is passed on; gives how many parts were used before.
    pub fn pass_listing(&mut self, id: FileId, message_id: u64, key: Key) -> u64 {
        let Some(open) = self.list.get_mut(&id) else { return 0 };
        open.asked = Some((message_id, key));
        let used = open.parts_used;
        if open.parts.front().is_some_and(|(one, _)| *one != key) {
            self.block(id, message_id);
        }
        used
    }

    /// A listing is begun anew: parts of the old one are void until the response has come.
    pub fn block(&mut self, id: FileId, message_id: u64) {
        if let Some(open) = self.list.get_mut(&id) {
            self.bytes -= open.parts.iter().map(|(_, part)| part.len()).sum::<usize>();
            open.parts.clear();
            open.blocked = Some(message_id);
        }
    }

    /// The server's response to a request passes: what is told of a listing after it is what follows on it.
    pub fn listed(&mut self, message_id: u64) {
        for open in self.list.values_mut() {
            if open.blocked == Some(message_id) {
                open.blocked = None;
                (open.asked, open.parts_used) = (None, 0);
            } else if open.asked.is_some_and(|(asked, _)| asked == message_id) {
                (open.asked, open.parts_used) = (None, 0);
            }
        }
    }
}
