//! A small SMB server in memory, with leases, share modes and notifications as Samba 4.17 has them, and a history of all
//! that was ever so on it.

mod leases;

use super::history::History;
use super::wire;
use crate::message::{element, elements, header};
use isthmus_smb_wire::build::{self, NewContext};
use isthmus_smb_wire::create_context::{Lease, LeaseFlags, LeaseState, LeaseV2, name};
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::messages::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, FileAttributes, OplockLevel,
    QueryDirectoryFlags, QueryDirectoryRequest, ReadRequest, SetInfoRequest, WriteRequest,
};
use isthmus_smb_wire::{Command, FileId, Status, compound, file_id};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Files consist of cells, each filled with the number of the write that wrote it.
pub(super) const CELL: usize = 1024;
/// How long the server waits for an acknowledgement.
pub(super) const BREAK_MICROS: u64 = 35_000_000;
/// Credits that it lets a connection have.
/// Where the flags of a lease are (MS-SMB2 2.2.14.2.10).
const LEASE_FLAGS_AT: usize = 20;
const CREDITS_MAX: u64 = 700;
/// Entries of a part of a listing.
const PART: usize = 4;

const READ: u32 = LeaseState::READ_CACHING.0;
const HANDLE: u32 = LeaseState::HANDLE_CACHING.0;
const WRITE: u32 = LeaseState::WRITE_CACHING.0;

pub(super) type Key = [u8; 16];

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The connection with the engines.
    Client,
    /// Somebody else.
    Other,
}

/// What somebody else does with what was opened.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Nothing,
    Write { cell: usize, count: usize },
    Resize(usize),
    Touch,
    Delete,
    Rename(String),
}

/// What is asked for with a CREATE.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub who: Who,
    pub path: String,
    pub access: u32,
    pub share: u32,
    pub disposition: CreateDisposition,
    pub delete_on_close: bool,
    pub lease: Option<(Key, u32, bool)>,
}

pub(super) struct Node {
    pub is_folder: bool,
    pub cells: Vec<u64>,
    /// Changes with everything that happens to it: the time of its last write.
    pub attributes: u64,
    /// Who has deleted it, while it is open still.
    delete: Option<Who>,
}

#[derive(Default)]
struct Watch {
    pending: Option<Vec<u8>>,
    armed: bool,
    buffered: Vec<(u32, String)>,
}

struct Opened {
    who: Who,
    node: usize,
    path: String,
    access: u32,
    share: u32,
    key: Option<Key>,
    delete_on_close: bool,
    listing: Option<(Vec<String>, usize)>,
    watch: Watch,
}

struct LeaseHeld {
    node: usize,
    state: u32,
    /// State after the break, and when it ends without an acknowledgement.
    breaking: Option<(u32, u64)>,
    then: Option<u32>,
    epoch: u16,
}

enum Waiting {
    Message { elements: Vec<Vec<u8>>, at: usize, done: Vec<Vec<u8>>, last: Option<u64>, ask: Box<Ask> },
    Other { ask: Ask, act: Act, since: u64 },
}

enum Opening {
    Done(u64, CreateAction),
    Refused(Status),
    Wait,
}

pub(super) struct Server {
    pub now: u64,
    pub history: History,
    /// WRITEs that have come and are not done.
    slow: VecDeque<Vec<Vec<u8>>>,
    pub nodes: Vec<Node>,
    pub names: BTreeMap<String, usize>,
    /// Name in the listing of each open there ever was, and its file.
    pub made: HashMap<u64, usize>,
    opens: BTreeMap<u64, Opened>,
    leases: HashMap<Key, LeaseHeld>,
    waiting: Vec<Waiting>,
    next_open: u64,
    next_change: u64,
    next_message: u64,
    credits: u64,
    /// What goes to the connection with the engines.
    pub out: Vec<Vec<u8>>,
    /// WRITEs of that connection fail while this is set.
    pub is_full: bool,
    /// Longest wait of somebody else, and of whose leases he had to wait.
    pub waits: Vec<u64>,
    /// Breaks that nobody acknowledged.
    pub expired: u32,
    pub breaks: u32,
    /// Leases that ended so, and when.
    gone: HashMap<Key, u64>,
    /// WRITEs that were done too late.
    pub late: Vec<String>,
}

impl Server {
    pub fn new() -> Server {
        let mut server = Server {
            now: 0,
            history: History::default(),
            slow: VecDeque::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            made: HashMap::new(),
            opens: BTreeMap::new(),
            leases: HashMap::new(),
            waiting: Vec::new(),
            next_open: 1,
            next_change: 1 << 32,
            next_message: 0,
            credits: 1,
            out: Vec::new(),
            is_full: false,
            waits: Vec::new(),
            expired: 0,
            breaks: 0,
            gone: HashMap::new(),
            late: Vec::new(),
        };
        server.make("d", true, Who::Other);
        server
    }

    pub fn change(&mut self) -> u64 {
        self.next_change += 1;
        self.next_change
    }

    pub fn make(&mut self, path: &str, is_folder: bool, who: Who) -> usize {
        let node = self.nodes.len();
        let attributes = self.change();
        self.nodes.push(Node { is_folder, cells: Vec::new(), attributes, delete: None });
        self.names.insert(path.to_owned(), node);
        self.history.named(self.now, path, Some(node), who);
        self.touched(node, who);
        self.changed(path, 1);
        node
    }

    /// Fills a file.
    pub fn fill(&mut self, node: usize, cells: usize) {
        let version = self.change();
        self.nodes[node].cells = vec![version; cells];
        (0..cells).for_each(|cell| self.history.written(self.now, node, cell, version));
        self.touched(node, Who::Other);
    }

    /// Opens of the connection with the engines.
    pub fn open_count(&self) -> usize {
        self.opens.values().filter(|open| open.who == Who::Client).count()
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slow.is_empty()
    }

    pub fn next_due(&self) -> Option<u64> {
        self.leases.values().filter_map(|lease| lease.breaking).map(|(_, due)| due).min()
    }

    /// Breaks that nobody has acknowledged in time.
    pub fn expire(&mut self) {
        let now = self.now;
        for (key, lease) in &mut self.leases {
            if lease.breaking.is_some_and(|(_, due)| due <= now) {
                (lease.state, lease.breaking, lease.then) = (0, None, None);
                self.expired += 1;
                self.gone.insert(*key, now);
            }
        }
        self.retry();
    }

    /// Somebody else does something; he may have to wait.
    pub fn other(&mut self, ask: Ask, act: Act) {
        self.finish_writes();
        self.waiting.push(Waiting::Other { ask, act, since: self.now });
        self.retry();
    }

    /// A message of the connection with the engines.
    pub fn receive(&mut self, message: &[u8]) {
        let ranges = elements(message).expect("a message");
        let list: Vec<Vec<u8>> = ranges.iter().map(|range| element(message, range).to_vec()).collect();
        for one in &list {
            let head = header(one);
            assert_eq!(head.message_id(), self.next_message, "identifiers follow on");
            assert!(head.is_related() || head.tree_id() == Some(wire::TREE), "the tree connect is there");
            let charge = u64::from(head.credit_charge().max(1));
            self.next_message += charge;
            self.credits = self.credits.checked_sub(charge).expect("more than the credits allow");
        }
        match header(message).command() {
            Command::WRITE => return self.slow.push_back(list),
            Command::READ => {}
            _ => self.finish_writes(),
        }
        self.go_on(list, 0, Vec::new(), None);
    }

    /// Does the WRITEs that have come. A READ that comes later may be faster: servers work on both at once.
    pub fn finish_writes(&mut self) {
        while let Some(list) = self.slow.pop_front() {
            self.go_on(list, 0, Vec::new(), None);
        }
    }

    /// Whether a WRITE has come and is not done.
    pub fn is_writing(&self) -> bool {
        !self.slow.is_empty()
    }

    fn credits_for(&mut self, request: &[u8]) -> u16 {
        let room = CREDITS_MAX.saturating_sub(self.credits);
        let granted = u64::from(header(request).credits()).min(room).max(u64::from(self.credits == 0));
        self.credits += granted;
        granted as u16
    }

    fn go_on(&mut self, list: Vec<Vec<u8>>, from: usize, mut done: Vec<Vec<u8>>, mut last: Option<u64>) {
        for at in from..list.len() {
            let request = list[at].clone();
            match header(&request).command() {
                Command::CREATE => {
                    let ask = wire::ask(&request);
                    match self.open(&ask) {
                        Opening::Wait => {
                            let credits = self.credits_for(&request);
                            self.out.push(wire::interim(&request, credits));
                            let ask = Box::new(ask);
                            self.waiting.push(Waiting::Message { elements: list, at, done, last, ask });
                            return;
                        }
                        opening => {
                            let response = self.opened(&request, &ask, opening, &mut last);
                            done.push(response);
                        }
                    }
                }
                Command::CHANGE_NOTIFY => {
                    let id = file_id(&request).map_or(0, |id| id.persistent);
                    let credits = self.credits_for(&request);
                    self.out.push(wire::interim(&request, credits));
                    if let Some(open) = self.opens.get_mut(&id) {
                        open.watch.armed = true;
                        open.watch.pending = Some(request);
                        self.fire(id);
                    } else {
                        self.out.push(wire::refuse(&request, Status::FILE_CLOSED, 0));
                    }
                    return;
                }
                _ => {
                    let response = self.simple(&request, last, done.last());
                    done.push(response);
                }
            }
        }
        self.out.push(compound::join(&done).expect("a compound"));
    }

    fn opened(&mut self, request: &[u8], ask: &Ask, opening: Opening, last: &mut Option<u64>) -> Vec<u8> {
        let credits = self.credits_for(request);
        let Opening::Done(id, action) = opening else {
            *last = None;
            let Opening::Refused(status) = opening else { unreachable!("waits") };
            return wire::refuse(request, status, credits);
        };
        *last = Some(id);
        let node = self.opens[&id].node;
        let granted = ask.lease.map(|(key, _, v2)| {
            let lease =
                self.leases.get(&key).map(|lease| (lease.state, lease.epoch, lease.breaking.is_some()));
            (key, lease.unwrap_or_default(), v2)
        });
        let (v1, v2);
        let mut contexts = Vec::new();
        if let Some((key, (state, epoch, is_breaking), is_v2)) = granted {
            let state = LeaseState(state);
            let data: &[u8] = if is_v2 {
                let mut lease = build::lease_v2(key, state, None, epoch);
                lease[LEASE_FLAGS_AT] |= LeaseFlags::BREAK_IN_PROGRESS.0 as u8 * u8::from(is_breaking);
                v2 = lease;
                &v2
            } else {
                let mut lease = build::lease_v1(key, state);
                lease[LEASE_FLAGS_AT] |= LeaseFlags::BREAK_IN_PROGRESS.0 as u8 * u8::from(is_breaking);
                v1 = lease;
                &v1
            };
            contexts.push(NewContext { name: name::LEASE, data });
        }
        let body = build::CreateResponse {
            oplock_level: if granted.is_some() { OplockLevel::LEASE } else { OplockLevel::NONE },
            flags: 0,
            create_action: action,
            attributes: self.attributes(node),
            file_id: wire::id(id),
            contexts: &contexts,
        };
        wire::answer(request, Status::SUCCESS, credits, &body)
    }

    pub fn attributes(&self, node: usize) -> FileTimesAndSizes {
        let Node { is_folder, cells, attributes, .. } = &self.nodes[node];
        let size = (cells.len() * CELL) as u64;
        let kind = if *is_folder { FileAttributes::DIRECTORY } else { FileAttributes::NORMAL };
        FileTimesAndSizes {
            creation_time: 1_000 + node as u64,
            last_access_time: 1,
            last_write_time: *attributes,
            change_time: *attributes,
            allocation_size: size,
            end_of_file: size,
            file_attributes: kind,
        }
    }

    /// Any other request than those that may wait.
    fn simple(&mut self, request: &[u8], last: Option<u64>, before: Option<&Vec<u8>>) -> Vec<u8> {
        let credits = self.credits_for(request);
        let related = header(request).is_related();
        if related && last.is_none() && before.is_some() {
            let status = before.map_or(Status::FILE_CLOSED, |before| header(before).status());
            return wire::refuse(request, status, credits);
        }
        let id = match file_id(request) {
            Some(FileId::ANY) | None => last.unwrap_or_default(),
            Some(id) => id.persistent,
        };
        let command = header(request).command();
        match command {
            Command::ECHO => return wire::answer(request, Status::SUCCESS, credits, &build::EchoResponse),
            Command::OPLOCK_BREAK => return self.acknowledge(request, credits),
            _ => {}
        }
        let Some(open) = self.opens.get(&id) else {
            return wire::refuse(request, Status::FILE_CLOSED, credits);
        };
        let node = open.node;
        match command {
            Command::CLOSE => {
                let attributes = wire::wants_attributes(request).then(|| self.attributes(node));
                self.close(id);
                wire::answer(request, Status::SUCCESS, credits, &build::CloseResponse { attributes })
            }
            Command::READ => self.read(request, node, credits),
            Command::WRITE => self.write(request, id, credits),
            Command::FLUSH => wire::answer(request, Status::SUCCESS, credits, &build::FlushResponse),
            Command::QUERY_INFO => {
                let pending = self.nodes[node].delete.is_some();
                let buffer = wire::info(request, &self.attributes(node), pending);
                let body = build::OutputResponse { command, buffer: &buffer };
                wire::answer(request, Status::SUCCESS, credits, &body)
            }
            Command::QUERY_DIRECTORY => self.list(request, id, credits),
            Command::SET_INFO => self.set(request, id, credits),
            other => panic!("{other:?} is not known here"),
        }
    }

    fn read(&mut self, request: &[u8], node: usize, credits: u16) -> Vec<u8> {
        let view = ReadRequest::parse(request).expect("READ");
        let cells = &self.nodes[node].cells;
        let (offset, length) = (view.offset() as usize, view.length() as usize);
        let first = (offset / CELL).min(cells.len());
        let end = (offset + length).div_ceil(CELL).min(cells.len());
        let bytes: Vec<u8> = cells[first..end.max(first)].iter().flat_map(|one| wire::cell(*one)).collect();
        let from = (offset - first * CELL).min(bytes.len());
        let payload = &bytes[from..(from + length).min(bytes.len())];
        if payload.is_empty() {
            return wire::refuse(request, Status::END_OF_FILE, credits);
        }
        wire::answer(request, Status::SUCCESS, credits, &build::ReadResponse { payload })
    }

    fn write(&mut self, request: &[u8], id: u64, credits: u16) -> Vec<u8> {
        if self.is_full {
            return wire::refuse(request, Status::DISK_FULL, credits);
        }
        let view = WriteRequest::parse(request).expect("WRITE");
        let versions: Vec<u64> = view.payload().chunks(CELL).map(wire::version).collect();
        let (node, key) = (self.opens[&id].node, self.opens[&id].key);
        if let Some(gone) = key.and_then(|key| self.gone.get(&key))
            && versions.iter().any(|one| self.history.answered.get(one).is_some_and(|at| at < gone))
        {
            self.late.push(format!("file {node} is written at {} under a lease gone at {gone}", self.now));
        }
        self.put(node, view.offset() as usize / CELL, &versions, Who::Client, key);
        wire::answer(request, Status::SUCCESS, credits, &build::WriteResponse { count: view.length() })
    }

    /// Writes cells; the leases of others than `key` are broken.
    fn put(&mut self, node: usize, first: usize, versions: &[u64], who: Who, key: Option<Key>) {
        self.break_others(node, key, 0);
        for (cell, version) in (first..).zip(versions) {
            while self.nodes[node].cells.len() <= cell {
                let hole = self.nodes[node].cells.len();
                self.nodes[node].cells.push(0);
                self.history.written(self.now, node, hole, 0);
            }
            self.nodes[node].cells[cell] = *version;
            self.history.written(self.now, node, cell, *version);
        }
        self.modified(node, who);
    }

    fn resize(&mut self, node: usize, cells: usize, who: Who, key: Option<Key>) {
        self.break_others(node, key, 0);
        let old = self.nodes[node].cells.len();
        (old..cells).for_each(|cell| self.history.written(self.now, node, cell, 0));
        self.nodes[node].cells.resize(cells, 0);
        self.modified(node, who);
    }

    fn modified(&mut self, node: usize, who: Who) {
        self.nodes[node].attributes = self.change();
        self.touched(node, who);
        let path = self.names.iter().find(|(_, one)| **one == node).map(|(path, _)| path.clone());
        if let Some(path) = path {
            self.changed(&path, 3);
        }
    }

    fn touched(&mut self, node: usize, who: Who) {
        let Node { cells, attributes, .. } = &self.nodes[node];
        self.history.sized(self.now, node, cells.len(), *attributes, who);
    }

    fn list(&mut self, request: &[u8], id: u64, credits: u16) -> Vec<u8> {
        let view = QueryDirectoryRequest::parse(request).expect("QUERY_DIRECTORY");
        let anew = QueryDirectoryFlags::RESTART_SCANS.with(QueryDirectoryFlags::REOPEN);
        let Server { opens, names, .. } = self;
        let open = opens.get_mut(&id).expect("an open");
        let below = format!("{}\\", open.path);
        let all = || names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        if open.listing.is_none() || view.flags().intersects(anew) {
            open.listing = Some((all(), 0));
        }
        let Some((list, at)) = &mut open.listing else { unreachable!("just made") };
        let part: Vec<String> = list.iter().skip(*at).take(PART).cloned().collect();
        *at += part.len();
        // A name may have gone since the listing was begun.
        let part: Vec<(String, usize)> =
            part.into_iter().filter_map(|path| names.get(&path).map(|node| (path.clone(), *node))).collect();
        if part.is_empty() {
            return wire::refuse(request, Status::NO_MORE_FILES, credits);
        }
        let entries: Vec<(String, FileTimesAndSizes, u64)> = part
            .iter()
            .map(|(path, node)| (path[below.len()..].to_owned(), self.attributes(*node), *node as u64))
            .collect();
        let buffer = wire::entries(&entries);
        let body = build::OutputResponse { command: Command::QUERY_DIRECTORY, buffer: &buffer };
        wire::answer(request, Status::SUCCESS, credits, &body)
    }

    fn set(&mut self, request: &[u8], id: u64, credits: u16) -> Vec<u8> {
        let view = SetInfoRequest::parse(request).expect("SET_INFO");
        let (node, key) = (self.opens[&id].node, self.opens[&id].key);
        let status = match view.info_class().0 {
            20 => {
                let size = u64::from_le_bytes(view.buffer()[..8].try_into().expect("a size"));
                self.resize(node, size as usize / CELL, Who::Client, key);
                Status::SUCCESS
            }
            10 => self.rename(id, &wire::text(&view.buffer()[20..]), Who::Client),
            4 => {
                self.modified(node, Who::Client);
                Status::SUCCESS
            }
            other => panic!("class {other} is not known here"),
        };
        wire::set_done(request, status, credits)
    }

    fn rename(&mut self, id: u64, to: &str, who: Who) -> Status {
        let (node, from) = (self.opens[&id].node, self.opens[&id].path.clone());
        if self.names.get(&from) != Some(&node) {
            return Status::ACCESS_DENIED;
        }
        if self.names.contains_key(to) {
            return Status::OBJECT_NAME_COLLISION;
        }
        self.names.remove(&from);
        self.names.insert(to.to_owned(), node);
        self.history.named(self.now, &from, None, who);
        self.history.named(self.now, to, Some(node), who);
        if let Some(open) = self.opens.get_mut(&id) {
            open.path = to.to_owned();
        }
        self.changed(&from, 4);
        self.changed(to, 5);
        Status::SUCCESS
    }

    fn close(&mut self, id: u64) {
        let Some(open) = self.opens.remove(&id) else { return };
        if let Some(pending) = open.watch.pending {
            self.out.push(wire::refuse(&pending, Status(0x10b), 0));
        }
        if open.delete_on_close {
            self.nodes[open.node].delete = Some(open.who);
        }
        if let Some(key) = open.key
            && self.opens.values().all(|other| other.key != Some(key))
        {
            self.leases.remove(&key);
        }
        let is_last = self.opens.values().all(|other| other.node != open.node);
        if let Some(who) = self.nodes[open.node].delete.filter(|_| is_last) {
            let gone = self.names.iter().find(|(_, node)| **node == open.node);
            if let Some(path) = gone.map(|(path, _)| path.clone()) {
                self.names.remove(&path);
                self.history.named(self.now, &path, None, who);
                self.changed(&path, 2);
            }
        }
        self.retry();
    }

    /// Tells those who watch the folder.
    fn changed(&mut self, path: &str, action: u32) {
        let Some((folder, last)) = path.rsplit_once('\\') else { return };
        let Some(node) = self.names.get(folder).copied() else { return };
        let watching: Vec<u64> = self
            .opens
            .iter()
            .filter(|(_, open)| open.node == node && open.watch.armed)
            .map(|(id, _)| *id)
            .collect();
        for id in watching {
            if let Some(open) = self.opens.get_mut(&id) {
                open.watch.buffered.push((action, last.to_owned()));
            }
            self.fire(id);
        }
    }

    fn fire(&mut self, id: u64) {
        let Some(open) = self.opens.get_mut(&id) else { return };
        if open.watch.buffered.is_empty() {
            return;
        }
        let Some(request) = open.watch.pending.take() else { return };
        let buffer = wire::changes(&std::mem::take(&mut open.watch.buffered));
        let body = build::OutputResponse { command: Command::CHANGE_NOTIFY, buffer: &buffer };
        self.out.push(wire::answer_late(&request, Status::SUCCESS, &body));
    }
}

/// What a request asks of its lease.
pub(super) fn lease_asked(request: &CreateRequest<&[u8]>) -> Option<(Key, u32, bool)> {
    let data = request.contexts().find_name(name::LEASE)?.data;
    let lease = Lease::parse(data).ok()?;
    Some((lease.lease_key(), lease.lease_state().0, LeaseV2::parse(data).is_ok()))
}

/// Whether it deletes at its end.
pub(super) fn deletes(request: &CreateRequest<&[u8]>) -> bool {
    request.options().contains(CreateOptions::DELETE_ON_CLOSE)
}
