//! Folders that clients have listed, and what they do with what is in them.

use super::Far;
use super::opens::Open;
use crate::Carriage;
use crate::create::{lease_of, reads_a_file};
use crate::limits::{
    FOLDERS_MAX, NAMES_MAX, OFFERS_FIRST, OFFERS_FIRST_OF_ALL, OPENS_TO_WAKE, QUERIES_TO_WAKE,
};
use crate::message::{FileName, folded, join_name, place, split_name};
use isthmus_smb_wire::fscc::DirectoryEntries;
use isthmus_smb_wire::messages::{CreateRequest, FileAttributes, InfoClass, QueryDirectoryResponse};
use isthmus_smb_wire::{FileId, Status};
use std::collections::{HashMap, VecDeque};

/// Session, tree connect and folded name.
pub(crate) type FolderKey = (u64, u32, Vec<u8>);

/// A name in a folder.
pub(crate) struct Entry {
    pub name: Vec<u8>,
    pub size: u64,
    pub directory: bool,
    /// Whether it may be opened ahead: not in remote storage, no reparse point.
    pub ordinary: bool,
    number: u128,
    /// When it was written or changed last, by the server's clock.
    pub changed: u64,
    /// Until when it is left alone, by this proxy's.
    pub not_before: u64,
    /// It was opened by the client, or ahead.
    pub opened: bool,
    /// It was queried by the client, or ahead.
    pub queried: bool,
}

/// A CREATE to do likewise.
#[derive(Clone)]
pub(crate) struct Pattern {
    pub carriage: Carriage,
    pub request: Vec<u8>,
    pub queries: Vec<Vec<u8>>,
    /// Whether it is known what else the client asks.
    pub ready: bool,
}

/// A folder.
pub(crate) struct Folder {
    pub name: FileName,
    pub entries: Vec<Entry>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Entries in the order of their numbers, in which some clients go.
    by_number: Vec<usize>,
    /// Opens of the client, and its queries by name.
    pub opens: u32,
    pub queries: u32,
    last: Option<usize>,
    /// Whether the client came to the first of its files first, as one does that goes through all.
    from_start: bool,
    /// Steps in the order of the listing, and in that of the numbers.
    steps: (u32, u32),
    /// Handles that may be open ahead.
    pub window: usize,
    /// Whether the client has used one.
    pub used: bool,
    pub pattern: Option<Pattern>,
    pub query_pattern: Option<(Carriage, Vec<u8>)>,
    /// Its own attributes were queried by the client, or ahead, since there was a change.
    pub own_queried: bool,
    /// Offers that nobody has used since the last one that was.
    pub wasted: u32,
}

/// All that a connection has listed, the latest last.
#[derive(Default)]
pub(crate) struct Folders {
    list: HashMap<FolderKey, Folder>,
    order: VecDeque<FolderKey>,
}

impl Folders {
    pub fn get(&self, key: &FolderKey) -> Option<&Folder> {
        self.list.get(key)
    }

    pub fn get_mut(&mut self, key: &FolderKey) -> Option<&mut Folder> {
        self.list.get_mut(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &FolderKey> {
        self.order.iter().rev()
    }

    fn entry(&mut self, key: FolderKey, name: &[u8]) -> &mut Folder {
        if !self.list.contains_key(&key) {
            if self.order.len() >= FOLDERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.list.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        self.list.entry(key).or_insert_with(|| Folder::new(name.to_vec()))
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        let gone = |key: &FolderKey| key.0 == session && tree.is_none_or(|tree| key.1 == tree);
        self.list.retain(|key, _| !gone(key));
        self.order.retain(|key| !gone(key));
    }
}

impl Folder {
    fn new(name: FileName) -> Self {
        Self {
            name,
            entries: Vec::new(),
            by_name: HashMap::new(),
            by_number: Vec::new(),
            opens: 0,
            queries: 0,
            last: None,
            from_start: false,
            steps: (0, 0),
            window: OFFERS_FIRST,
            used: false,
            pattern: None,
            query_pattern: None,
            own_queried: false,
            wasted: 0,
        }
    }

    pub fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn add(&mut self, entry: Entry) {
        match self.by_name.get(&entry.name) {
            Some(at) => {
                if let Some(old) = self.entries.get_mut(*at) {
                    (old.size, old.changed) = (entry.size, entry.changed);
                }
            }
            None if self.entries.len() < NAMES_MAX => {
                let at = self.entries.len();
                let number = entry.number;
                let entries = &self.entries;
                let before = self
                    .by_number
                    .partition_point(|other| entries.get(*other).is_some_and(|other| other.number <= number));
                self.by_number.insert(before, at);
                self.by_name.insert(entry.name.clone(), at);
                self.entries.push(entry);
            }
            None => {}
        }
    }

    /// The client has come to an entry.
    pub fn step_to(&mut self, index: usize) {
        if let Some(last) = self.last {
            self.steps.0 += u32::from(index == last + 1);
            let place = |index: usize| self.by_number.iter().position(|at| *at == index);
            if let (Some(from), Some(to)) = (place(last), place(index)) {
                self.steps.1 += u32::from(to == from + 1);
            }
        }
        if self.last.is_none() {
            let is_file = |at: &usize| self.entries.get(*at).is_some_and(|entry| !entry.directory);
            let is_first = |at: Option<usize>| u32::from(at == Some(index));
            let listed = is_first((0..self.entries.len()).find(is_file));
            let numbered = is_first(self.by_number.iter().copied().find(is_file));
            self.from_start = listed + numbered > 0;
            if self.from_start {
                self.window = OFFERS_FIRST_OF_ALL;
            }
            self.steps = (listed, numbered);
        }
        self.last = Some(index);
    }

    /// Whether the client goes through its files.
    pub fn is_walked(&self) -> bool {
        let is_ready = self.pattern.as_ref().is_some_and(|pattern| pattern.ready);
        self.opens >= OPENS_TO_WAKE || self.from_start && self.opens > 0 && is_ready
    }

    /// What is known of attributes does not hold any more.
    pub fn forget_queries(&mut self) {
        (self.queries, self.own_queried) = (0, false);
        self.entries.iter_mut().for_each(|entry| entry.queried = false);
    }

    /// The client does something else here now.
    pub fn forget_steps(&mut self) {
        (self.opens, self.from_start) = (0, false);
    }

    /// Entries in the order in which the client goes, from where it is; then those before.
    pub fn ahead(&self) -> Vec<usize> {
        let listing: Vec<usize>;
        let order = if self.steps.1 > self.steps.0 {
            &self.by_number
        } else {
            listing = (0..self.entries.len()).collect();
            &listing
        };
        let at = self.last.and_then(|last| order.iter().position(|at| *at == last)).map_or(0, |at| at + 1);
        let (before, after) = order.split_at(at.min(order.len()));
        after.iter().chain(before).copied().collect()
    }
}

impl Far {
    /// Names of a part of a listing.
    pub(super) fn note_names(&mut self, id: FileId, class: InfoClass, response: &[u8]) {
        let Some(open) = self.opens.get(id) else { return };
        let Ok(view) = QueryDirectoryResponse::parse(response) else { return };
        if view.header().status() != Status::SUCCESS {
            return;
        }
        let Some(entries) = DirectoryEntries::new(class, view.buffer()) else { return };
        let key = (open.session, open.tree, folded(&open.name));
        let name = open.name.clone();
        let folder = self.folders.entry(key, &name);
        for entry in entries.flatten() {
            let Some(attributes) = entry.attributes() else { return };
            let name = entry.name();
            if name.eq_str(".") || name.eq_str("..") {
                continue;
            }
            let kind = attributes.file_attributes;
            let special = FileAttributes::OFFLINE.with(FileAttributes::REPARSE_POINT);
            folder.add(Entry {
                name: name.as_bytes().to_vec(),
                size: attributes.end_of_file,
                directory: kind.contains(FileAttributes::DIRECTORY),
                ordinary: !kind.intersects(special),
                number: entry.file_id().unwrap_or_default(),
                changed: attributes.last_write_time.max(attributes.change_time),
                not_before: 0,
                opened: false,
                queried: false,
            });
        }
    }

    /// The client opens something alone: if it is a file that was listed, the next ones may be opened ahead.
    pub(super) fn note_opening(&mut self, request: &[u8], carriage: Carriage) {
        let Ok(view) = CreateRequest::parse(request) else { return };
        let (session, tree) = place(request);
        let (folder, last) = split_name(view.name_bytes());
        let key = (session, tree, folded(folder));
        self.use_watch(&key);
        let Some(folder) = self.folders.get_mut(&key) else { return };
        let Some(index) = folder.index_of(last) else { return };
        let Some(entry) = folder.entries.get_mut(index).filter(|entry| !entry.directory) else { return };
        entry.opened = true;
        folder.step_to(index);
        if reads_a_file(request) {
            folder.opens += 1;
            let queries = folder.pattern.take().map(|pattern| pattern.queries).unwrap_or_default();
            // Who asks for a lease has what it needs with the response; others go on to ask about the file.
            let ready = lease_of(request).is_some() || !queries.is_empty();
            folder.pattern = Some(Pattern { carriage, request: request.to_vec(), queries, ready });
        }
    }

    /// The client begins to use what it has opened, as it will use others: by a query, or by reading it.
    pub(super) fn note_use(&mut self, id: FileId, query: Option<&[u8]>) {
        let Some(open) = self.opens.get(id).filter(|open| open.reading.is_fresh()) else { return };
        let (folder, _) = split_name(&open.name);
        let Some(folder) = self.folders.get_mut(&(open.session, open.tree, folded(folder))) else { return };
        if let Some(pattern) = folder.pattern.as_mut().filter(|pattern| !pattern.ready) {
            pattern.ready = true;
            pattern.queries.extend(query.map(<[u8]>::to_vec));
        }
    }

    /// The client has closed what it had open; what it asked of it is a pattern for others.
    pub(super) fn note_closed(&mut self, open: &Open) {
        let (folder, _) = split_name(&open.name);
        let Some(folder) = self.folders.get_mut(&(open.session, open.tree, folded(folder))) else { return };
        if let Some(pattern) = &mut folder.pattern
            && !open.queries.is_empty()
        {
            pattern.queries.clone_from(&open.queries);
        }
    }
}

impl Folder {
    /// Name in the share of an entry.
    pub fn name_of(&self, index: usize) -> Option<FileName> {
        Some(join_name(&self.name, &self.entries.get(index)?.name))
    }

    /// The next name in the share to ask about: its own, if the folder above is watched too, then those that come next.
    /// Who opens one file after the other asks about them.
    pub fn next_query(&mut self, above: bool) -> Option<FileName> {
        let count = match self.queries >= QUERIES_TO_WAKE {
            true => usize::MAX,
            false => self.is_walked().then_some(self.window * 2)?,
        };
        if above && !std::mem::replace(&mut self.own_queried, true) {
            return Some(self.name.clone());
        }
        let is_next = |entry: &Entry| !entry.queried && !entry.directory;
        let ahead = self.ahead();
        let next = ahead.into_iter().take(count).find(|at| self.entries.get(*at).is_some_and(is_next))?;
        self.entries.get_mut(next)?.queried = true;
        self.name_of(next)
    }
}
