//! A client of the model that does random work, and judges all that it is told.

mod judge;

use super::history::Span;
use super::random::Random;
use super::server::{CELL, Key, Server};
use super::wire;
use crate::create::lease_of;
use crate::message::{element, elements, header};
use isthmus_smb_wire::build::{self, Body, HeaderFields, NewContext};
use isthmus_smb_wire::compound;
use isthmus_smb_wire::create_context::{LeaseState, name};
use isthmus_smb_wire::header::MESSAGE_ID_UNSOLICITED;
use isthmus_smb_wire::messages::{
    AccessMask, CloseFlags, CreateDisposition, CreateOptions, FileAttributes, InfoClass, InfoType,
    LeaseBreakNotification, OplockLevel, QueryDirectoryFlags, ReadFlags, ShareAccess, WriteFlags,
};
use isthmus_smb_wire::{FileId, Name};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Most requests of one step at a time.
const DEPTH: usize = 4;
const CREDITS_WANTED: u16 = 60;

/// One thing to do, in the order of a thread of the client.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Open {
        path: String,
        access: u32,
        disposition: CreateDisposition,
        share: u32,
        lease: u32,
        delete: bool,
    },
    OpenFolder,
    List {
        anew: bool,
    },
    Query(InfoClass),
    /// Reads cells from one on; goes on to the end, or only as many at once.
    Read {
        from: usize,
        cells: usize,
        on: bool,
    },
    ReadMany {
        from: usize,
        cells: usize,
        count: usize,
    },
    Write {
        from: usize,
        cells: usize,
        count: usize,
    },
    Resize(usize),
    Rename(String),
    Flush,
    Touch,
    Close {
        attributes: bool,
    },
    /// Does not wait for what is on its way.
    CloseAtOnce,
    Stat(String),
    Pause(u64),
}

/// What is open of a thread.
#[derive(Clone, Debug)]
struct Open {
    id: FileId,
    node: usize,
    path: String,
    call: u64,
    writes: Vec<(usize, u64)>,
    listed: Vec<String>,
    listing: Option<u64>,
    /// A WRITE has failed and the client knows.
    told: bool,
}

#[derive(Debug)]
enum Kind {
    Echo,
    Open(String),
    OpenFolder,
    List { anew: bool },
    Query(InfoClass),
    Read { from: usize, cells: usize, on: bool },
    Write { from: usize, versions: Vec<u64> },
    Set,
    Flush,
    Close(Box<Open>),
    Stat(String),
    Acknowledge,
}

struct Sent {
    thread: usize,
    call: u64,
    kind: Kind,
}

/// Steps of one thread, and what it has open.
#[derive(Default)]
pub(super) struct Thread {
    pub steps: VecDeque<Step>,
    open: Option<Open>,
    outstanding: usize,
    paused: u64,
}

pub(super) struct Client {
    pub threads: [Thread; 2],
    sent: BTreeMap<u64, Sent>,
    next: u64,
    credits: i64,
    next_version: u64,
    keys: HashMap<String, u64>,
    /// Acknowledgements that are to be sent, and when.
    acknowledgements: Vec<(u64, Key, u32)>,
    /// Whether it answers breaks.
    pub answers_breaks: bool,
    pub early_close: bool,
    /// What it has done.
    pub counts: BTreeMap<&'static str, u64>,
    /// Everything that it was told and that was not so.
    pub wrong: Vec<String>,
}

impl Client {
    pub fn new() -> Client {
        Client {
            threads: Default::default(),
            sent: BTreeMap::new(),
            next: 0,
            credits: 1,
            next_version: 1,
            keys: HashMap::new(),
            acknowledgements: Vec::new(),
            answers_breaks: true,
            early_close: false,
            counts: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        let idle = |thread: &Thread| thread.steps.is_empty() && thread.open.is_none();
        self.sent.is_empty() && self.threads.iter().all(idle) && self.acknowledgements.is_empty()
    }

    /// What keeps it from being done.
    pub fn waits_for(&self) -> String {
        let sent: Vec<String> =
            self.sent.iter().map(|(id, one)| format!("{id}: {:?} since {}", one.kind, one.call)).collect();
        format!("{} credits; {}", self.credits, sent.join("; "))
    }

    /// When the request of a response was sent.
    pub fn called_at(&self, response: &[u8]) -> Option<u64> {
        self.sent.get(&header(response).message_id()).map(|sent| sent.call)
    }

    pub fn begin(&mut self, now: u64) -> Vec<u8> {
        self.send(now, 0, Kind::Echo, &build::Echo)
    }

    fn fields(&mut self) -> HeaderFields {
        let message_id = self.next;
        self.next += 1;
        self.credits -= 1;
        HeaderFields {
            credit_charge: 1,
            credits: CREDITS_WANTED.saturating_sub(self.credits.max(0) as u16).clamp(1, 16),
            message_id,
            session_id: wire::SESSION,
            tree_id: wire::TREE,
            ..HeaderFields::default()
        }
    }

    fn send(&mut self, now: u64, thread: usize, kind: Kind, body: &impl Body) -> Vec<u8> {
        let fields = self.fields();
        self.note(&fields, now, thread, kind);
        build::message(&fields, body).expect("a request")
    }

    fn note(&mut self, fields: &HeaderFields, now: u64, thread: usize, kind: Kind) {
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.outstanding += 1;
        }
        self.sent.insert(fields.message_id, Sent { thread, call: now, kind });
    }

    /// What it sends now.
    pub fn work(&mut self, now: u64, random: &mut Random) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let due: Vec<_> = self.acknowledgements.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, lease_key, state) in due {
            let body = build::LeaseBreakAcknowledgement { lease_key, lease_state: LeaseState(state) };
            out.push(self.send(now, usize::MAX, Kind::Acknowledge, &body));
        }
        for index in 0..self.threads.len() {
            self.step(index, now, random, &mut out);
        }
        out
    }

    fn step(&mut self, index: usize, now: u64, random: &mut Random, out: &mut Vec<Vec<u8>>) {
        loop {
            let thread = &mut self.threads[index];
            let at_once = matches!(thread.steps.front(), Some(Step::CloseAtOnce));
            if self.credits < DEPTH as i64 + 4 && !self.sent.is_empty() || self.credits < 1 {
                return;
            }
            if thread.paused > now || (thread.outstanding > 0 && !at_once) {
                return;
            }
            let Some(step) = thread.steps.pop_front() else { return };
            if let Step::Pause(time) = step {
                thread.paused = now + time;
                return;
            }
            let before = out.len();
            self.take(index, step, now, random, out);
            if out.len() > before {
                let next = self.threads[index].steps.front();
                if !matches!(next, Some(Step::CloseAtOnce)) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, index: usize, step: Step, now: u64, random: &mut Random, out: &mut Vec<Vec<u8>>) {
        match step {
            Step::Open { path, access, disposition, share, lease, delete } => {
                let message = self.create(now, index, &path, (access, share, lease), disposition, delete);
                return out.push(message);
            }
            Step::OpenFolder => return out.push(self.open_folder(now, index)),
            Step::Stat(path) => return out.push(self.stat(now, index, &path)),
            Step::Pause(_) => return,
            _ => {}
        }
        let Some(open) = self.threads[index].open.clone() else { return };
        let file_id = Some(open.id);
        match step {
            Step::List { anew } => {
                let flags = if anew { QueryDirectoryFlags::RESTART_SCANS } else { QueryDirectoryFlags(0) };
                let pattern = wire::utf16("*");
                let body = build::QueryDirectory {
                    info_class: InfoClass(38),
                    flags,
                    file_index: 0,
                    file_id,
                    pattern: Name::new(&pattern),
                    output_buffer_length: 4096,
                };
                out.push(self.send(now, index, Kind::List { anew }, &body));
            }
            Step::Query(class) => {
                let body = build::QueryInfo {
                    info_type: InfoType::FILE,
                    info_class: class,
                    output_buffer_length: 56,
                    additional_information: 0,
                    flags: 0,
                    file_id,
                    input: &[],
                };
                out.push(self.send(now, index, Kind::Query(class), &body));
            }
            Step::Read { from, cells, on } => out.push(self.read(now, index, open.id, (from, cells, on))),
            Step::ReadMany { from, cells, count } => {
                for one in 0..count.min(DEPTH) {
                    out.push(self.read(now, index, open.id, (from + one * cells, cells, false)));
                }
            }
            Step::Write { from, cells, count } => {
                for one in 0..count.min(DEPTH) {
                    out.push(self.write(now, index, open.id, from + one * cells, cells));
                }
            }
            Step::Resize(cells) => {
                let size = (cells * CELL) as u64;
                out.push(self.set(now, index, open.id, 20, &size.to_le_bytes()));
            }
            Step::Rename(to) => out.push(self.set(now, index, open.id, 10, &wire::rename_to(&to))),
            Step::Touch => out.push(self.set(now, index, open.id, 4, &[0; 40])),
            Step::Flush => {
                out.push(self.send(now, index, Kind::Flush, &build::Flush { file_id }));
            }
            Step::Close { attributes } => out.push(self.close(now, index, open, attributes)),
            Step::CloseAtOnce => {
                let attributes = random.one_in(2);
                out.push(self.close(now, index, open, attributes));
            }
            _ => {}
        }
    }

    fn create(
        &mut self,
        now: u64,
        thread: usize,
        path: &str,
        (access, share, lease): (u32, u32, u32),
        disposition: CreateDisposition,
        delete: bool,
    ) -> Vec<u8> {
        let path_bytes = wire::utf16(path);
        let generation = self.keys.get(path).copied().unwrap_or_default();
        let key = *blake3::hash(format!("{path}{generation}").as_bytes()).as_bytes();
        let data = build::lease_v2(*key.first_chunk().expect("16 bytes"), LeaseState(lease), None, 0);
        let contexts = [NewContext { name: name::LEASE, data: &data }];
        let body = build::Create {
            oplock_level: if lease > 0 { OplockLevel::LEASE } else { OplockLevel::NONE },
            desired_access: AccessMask(access),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess(share),
            disposition,
            options: if delete { CreateOptions::DELETE_ON_CLOSE } else { CreateOptions::NONE },
            name: Name::new(&path_bytes),
            contexts: if lease > 0 { &contexts } else { &[] },
        };
        self.send(now, thread, Kind::Open(path.to_owned()), &body)
    }

    fn open_folder(&mut self, now: u64, thread: usize) -> Vec<u8> {
        let path = wire::utf16("d");
        let body = build::Create {
            oplock_level: OplockLevel::NONE,
            desired_access: AccessMask(0x81),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess(7),
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::NONE,
            name: Name::new(&path),
            contexts: &[],
        };
        self.send(now, thread, Kind::OpenFolder, &body)
    }

    /// CREATE, QUERY_INFO and CLOSE in one compound, as the Linux kernel asks for attributes.
    fn stat(&mut self, now: u64, thread: usize, path: &str) -> Vec<u8> {
        let name = wire::utf16(path);
        let create = build::Create {
            oplock_level: OplockLevel::NONE,
            desired_access: AccessMask(0x80),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess(7),
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::NONE,
            name: Name::new(&name),
            contexts: &[],
        };
        let query = build::QueryInfo {
            info_type: InfoType::FILE,
            info_class: InfoClass::NETWORK_OPEN,
            output_buffer_length: 56,
            additional_information: 0,
            flags: 0,
            file_id: None,
            input: &[],
        };
        let first = self.fields();
        self.note(&first, now, thread, Kind::Stat(path.to_owned()));
        let parts = [
            build::message(&first, &create).expect("a request"),
            build::message(&self.fields().related(), &query).expect("a request"),
            build::message(
                &self.fields().related(),
                &build::Close { flags: CloseFlags::NONE, file_id: None },
            )
            .expect("a request"),
        ];
        compound::join(&parts).expect("a compound")
    }

    fn read(&mut self, now: u64, thread: usize, id: FileId, part: (usize, usize, bool)) -> Vec<u8> {
        let (from, cells, on) = part;
        let body = build::Read {
            flags: ReadFlags::NONE,
            file_id: Some(id),
            offset: (from * CELL) as u64,
            length: (cells * CELL) as u32,
            minimum_count: 0,
        };
        self.send(now, thread, Kind::Read { from, cells, on }, &body)
    }

    fn write(&mut self, now: u64, thread: usize, id: FileId, from: usize, cells: usize) -> Vec<u8> {
        let versions: Vec<u64> = (0..cells as u64).map(|cell| self.next_version + cell).collect();
        self.next_version += cells as u64;
        let payload: Vec<u8> = versions.iter().flat_map(|version| wire::cell(*version)).collect();
        let body = build::Write {
            flags: WriteFlags::NONE,
            file_id: Some(id),
            offset: (from * CELL) as u64,
            payload: &payload,
        };
        self.send(now, thread, Kind::Write { from, versions }, &body)
    }

    fn set(&mut self, now: u64, thread: usize, id: FileId, class: u8, buffer: &[u8]) -> Vec<u8> {
        let fields = self.fields();
        self.note(&fields, now, thread, Kind::Set);
        wire::set(&fields, id, class, buffer)
    }

    fn close(&mut self, now: u64, thread: usize, open: Open, attributes: bool) -> Vec<u8> {
        let flags = if attributes { CloseFlags::POSTQUERY_ATTRIB } else { CloseFlags::NONE };
        let body = build::Close { flags, file_id: Some(open.id) };
        self.threads[thread].open = None;
        self.send(now, thread, Kind::Close(Box::new(open)), &body)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Something that the server cannot have said.
    fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// A message for the client.
    pub fn receive(&mut self, span: (u64, u64), message: &[u8], server: &mut Server, random: &mut Random) {
        let (now, age_max) = span;
        if header(message).message_id() == MESSAGE_ID_UNSOLICITED {
            return self.broken(now, message, random);
        }
        let Some(ranges) = elements(message) else { return self.wrong("no message".into()) };
        let parts: Vec<Vec<u8>> = ranges.iter().map(|range| element(message, range).to_vec()).collect();
        for part in &parts {
            self.credits += i64::from(header(part).credits());
        }
        let first = header(message);
        if first.is_interim() {
            return;
        }
        let Some(Sent { thread, call, kind }) = self.sent.remove(&first.message_id()) else {
            return self.wrong(format!("{} was answered twice", first.message_id()));
        };
        if let Some(thread) = self.threads.get_mut(thread) {
            thread.outstanding -= 1;
        }
        let span = Span { call, back: now, age_max };
        self.judge(thread, kind, &parts, span, server);
    }

    fn broken(&mut self, now: u64, message: &[u8], random: &mut Random) {
        let Ok(view) = LeaseBreakNotification::parse(message) else { return };
        self.count("breaks");
        if view.ack_required() && self.answers_breaks {
            let at = now + random.below(60_000);
            self.acknowledgements.push((at, view.lease_key(), view.new_lease_state().0));
        }
    }
}
