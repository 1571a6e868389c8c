//! Opens of the client, with what is held of their content.

use crate::changes::End;
use crate::limits::{NEAR_CONTENT_MAX, NEAR_ITEMS_MAX};
use crate::message::{Key, folded, respond};
use crate::policy::Rights;
use bytes::Bytes;
use isthmus_smb_wire::build;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages::{ReadFlags, ReadRequest};
use isthmus_smb_wire::{FileId, Status};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// An open of the client.
pub(super) struct Open {
    session: u64,
    tree: u32,
    name: Vec<u8>,
    rights: Rights,
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
    /// Content, by offset; pieces do not overlap.
    pieces: BTreeMap<u64, Bytes>,
    /// Where the file ends, if that is known.
    end: Option<u64>,
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
    bytes: usize,
}

impl Open {
    pub fn new(session: u64, tree: u32, name: Vec<u8>, clean: bool, rights: Rights) -> Self {
        Self {
            session,
            tree,
            name,
            rights,
            offer: None,
            caches: false,
            clean,
            alters: false,
            behind: false,
            pieces: BTreeMap::new(),
            end: None,
            answers: Vec::new(),
            attributes: None,
            granted: None,
            parts: VecDeque::new(),
            parts_used: 0,
            blocked: None,
            asked: None,
        }
    }

    fn held(&self) -> usize {
        self.pieces.values().map(Bytes::len).sum::<usize>()
            + self.parts.iter().map(|(_, part)| part.len()).sum::<usize>()
    }

    /// The bytes of a range, up to the file's end, if all of them are here.
    fn range(&self, offset: u64, length: u32) -> Option<Vec<u8>> {
        let wanted = offset.checked_add(length.into())?;
        let until = self.end.map_or(wanted, |end| wanted.min(end));
        let mut bytes = Vec::with_capacity(usize::try_from(until.saturating_sub(offset)).ok()?);
        let mut at = offset;
        let from = self.pieces.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, piece) in self.pieces.range(from..) {
            if at >= until {
                break;
            }
            let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
            let Some(rest) = piece.get(skip..).filter(|rest| !rest.is_empty()) else { continue };
            let take = rest.len().min(usize::try_from(until - at).ok()?);
            bytes.extend_from_slice(rest.get(..take)?);
            at += take as u64;
        }
        (at >= until).then_some(bytes)
    }

    fn drop_content(&mut self) {
        self.pieces.clear();
        self.end = None;
        self.answers.clear();
        (self.attributes, self.granted) = (None, None);
    }
}

impl Opens {
    pub fn insert(&mut self, id: FileId, open: Open) {
        if self.list.len() < NEAR_ITEMS_MAX {
            self.remove(id);
            self.list.insert(id, open);
        }
    }

    pub fn remove(&mut self, id: FileId) {
        if let Some(open) = self.list.remove(&id) {
            self.bytes -= open.held();
        }
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
        for open in self.list.values_mut().filter(|open| folded(&open.name) == name) {
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

    /// Opens of which something is held.
    pub fn with_content(&self) -> usize {
        let held = |open: &&Open| !open.pieces.is_empty() || !open.answers.is_empty() || open.behind;
        self.list.values().filter(held).count()
    }

    pub fn add_content(&mut self, id: FileId, offset: u64, content: Bytes, end: bool) {
        let room = NEAR_CONTENT_MAX.saturating_sub(self.bytes);
        let Some(open) = self.list.get_mut(&id) else { return };
        if content.len() > room {
            return;
        }
        if end {
            open.end = Some(offset + content.len() as u64);
        }
        if !content.is_empty() {
            self.bytes += content.len();
            if let Some(old) = open.pieces.insert(offset, content) {
                self.bytes -= old.len();
            }
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
        if view.flags() != ReadFlags::NONE || (open.pieces.is_empty() && open.end.is_none()) {
            return None;
        }
        let (offset, length) = (view.offset(), view.length());
        if length == 0 {
            return None;
        }
        if open.end.is_some_and(|end| offset >= end) {
            let body = build::ErrorResponse {
                command: isthmus_smb_wire::Command::READ,
                context_count: 0,
                data: &[],
            };
            return Some((file_id, respond(request, Status::END_OF_FILE, &body)?, offset));
        }
        let payload = open.range(offset, length)?;
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
        let room = NEAR_CONTENT_MAX / 2;
        let Some(open) = self.list.get_mut(&id) else { return false };
        // More is to come until all of it is here, also where the end of the file came first.
        let held: usize = open.pieces.values().map(Bytes::len).sum();
        let more = open.end.is_none_or(|last| end < last || (held as u64) < last);
        while self.bytes > room
            && let Some((start, piece)) = open.pieces.first_key_value()
            && start + piece.len() as u64 <= end
        {
            self.bytes -= piece.len();
            open.pieces.pop_first();
        }
        more
    }

    pub fn answer_of(&self, id: FileId, key: &Key) -> Option<Vec<u8>> {
        let open = self.list.get(&id)?;
        open.answers.iter().find(|(one, _)| one == key).map(|(_, response)| response.clone())
    }

    pub fn purge(&mut self, id: FileId) {
        if let Some(open) = self.list.get_mut(&id) {
            self.bytes -= open.pieces.values().map(Bytes::len).sum::<usize>();
            open.drop_content();
        }
    }

    /// What came with an offer does not hold any more.
    pub fn purge_offered(&mut self, offer: u32) {
        let taken = self.list.iter().find(|(_, open)| open.offer == Some(offer)).map(|(id, _)| *id);
        taken.into_iter().for_each(|id| self.purge(id));
    }

    /// What is open of a folded name may have changed; all with an empty one.
    pub fn changed(&mut self, name: &[u8]) {
        for open in self.list.values_mut() {
            if name.is_empty() || folded(&open.name) == name {
                self.bytes -= open.pieces.values().map(Bytes::len).sum::<usize>();
                open.drop_content();
            }
        }
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        let gone = |open: &Open| open.session == session && tree.is_none_or(|tree| open.tree == tree);
        let bytes: usize = self.list.values().filter(|open| gone(open)).map(Open::held).sum();
        self.bytes -= bytes;
        self.list.retain(|_, open| !gone(open));
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
