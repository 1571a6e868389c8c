//! Whatever the two engines do ahead, and in whatever order things arrive: each request has one answer, and it is the
//! server's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::{Bytes, BytesMut};
use isthmus_accel::{Carriage, Far, Fate, Lan, Near, Out, Policy, Wan};
use isthmus_smb_wire::build::{self, Body, HeaderFields, NewContext};
use isthmus_smb_wire::create_context::name;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::header::{Header, MESSAGE_ID_UNSOLICITED};
use isthmus_smb_wire::messages::{
    AccessMask, CloseFlags, CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    FileAttributes, InfoClass, OplockLevel, QueryDirectoryFlags, QueryDirectoryRequest, ReadFlags,
    ReadRequest, ReadResponse, ShareAccess,
};
use isthmus_smb_wire::{Command, FileId, Name, Status};
use std::collections::{HashMap, VecDeque};

const SESSION: u64 = 7;
const TREE: u32 = 5;
/// Entries of the folder, and of one part of its listing.
const ENTRIES: u64 = 45;
const PART: u64 = 10;
const FILE_BYTES: u64 = 900_000;
const READ_BYTES: u32 = 40_000;
const ROUNDS: usize = 400;

/// A generator that gives the same run for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn respond(request: &[u8], status: Status, body: &impl Body) -> Vec<u8> {
    let from = Header::lenient(request);
    let credits = from.credits().max(1);
    build::message(&HeaderFields::response_to(&from, status, credits), body).unwrap()
}

fn content(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).map(|at| (at / 251) as u8 ^ at as u8).collect()
}

/// A server with one folder and one file, under whatever names.
#[derive(Default)]
struct Server {
    next: u64,
    /// Where each listing is.
    places: HashMap<FileId, u64>,
    leases: Vec<[u8; 16]>,
}

impl Server {
    fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        Some(match Header::lenient(request).command() {
            Command::CREATE => self.create(request),
            Command::QUERY_DIRECTORY => self.list(request),
            Command::READ => Self::read(request),
            Command::CLOSE => respond(request, Status::SUCCESS, &build::CloseResponse { attributes: None }),
            Command::CHANGE_NOTIFY | Command::CANCEL => return None,
            command => {
                let body = build::ErrorResponse { command, context_count: 0, data: &[] };
                respond(request, Status::NOT_SUPPORTED, &body)
            }
        })
    }

    fn create(&mut self, request: &[u8]) -> Vec<u8> {
        let view = CreateRequest::parse(request).unwrap();
        let directory = view.options().contains(CreateOptions::DIRECTORY_FILE);
        self.next += 1;
        let file_id = FileId { persistent: self.next, volatile: self.next };
        self.places.insert(file_id, 0);
        let lease = view.contexts().find_name(name::LEASE).map(|context| context.data.to_vec());
        self.leases.extend(lease.as_ref().and_then(|data| data.first_chunk::<16>().copied()));
        let data = lease.clone().unwrap_or_default();
        let contexts = [NewContext { name: name::LEASE, data: &data }];
        let attributes = FileTimesAndSizes {
            end_of_file: if directory { 0 } else { FILE_BYTES },
            file_attributes: if directory { FileAttributes::DIRECTORY } else { FileAttributes(0x20) },
            ..FileTimesAndSizes::default()
        };
        let body = build::CreateResponse {
            oplock_level: if lease.is_some() { OplockLevel::LEASE } else { OplockLevel::NONE },
            flags: 0,
            create_action: CreateAction::OPENED,
            attributes,
            file_id,
            contexts: if lease.is_some() { &contexts } else { &[] },
        };
        respond(request, Status::SUCCESS, &body)
    }

    /// An answer says with which entry it begins and how many there are.
    fn list(&mut self, request: &[u8]) -> Vec<u8> {
        let view = QueryDirectoryRequest::parse(request).unwrap();
        let place = self.places.get_mut(&view.file_id()).unwrap();
        if view.flags().contains(QueryDirectoryFlags::RESTART_SCANS) {
            *place = 0;
        }
        let most = if view.flags().contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY) { 1 } else { PART };
        let count = most.min(ENTRIES - *place);
        if count == 0 {
            let body =
                build::ErrorResponse { command: Command::QUERY_DIRECTORY, context_count: 0, data: &[] };
            return respond(request, Status::NO_MORE_FILES, &body);
        }
        let buffer = [place.to_le_bytes(), count.to_le_bytes()].concat();
        *place += count;
        let body = build::OutputResponse { command: Command::QUERY_DIRECTORY, buffer: &buffer };
        respond(request, Status::SUCCESS, &body)
    }

    fn read(request: &[u8]) -> Vec<u8> {
        let view = ReadRequest::parse(request).unwrap();
        let length = u64::from(view.length()).min(FILE_BYTES - view.offset().min(FILE_BYTES));
        if length == 0 {
            let body = build::ErrorResponse { command: Command::READ, context_count: 0, data: &[] };
            return respond(request, Status::END_OF_FILE, &body);
        }
        respond(request, Status::SUCCESS, &build::ReadResponse { payload: &content(view.offset(), length) })
    }

    /// Breaks the latest lease.
    fn break_lease(&mut self) -> Option<Vec<u8>> {
        let key = self.leases.pop()?;
        let mut message = respond(&[0; 64], Status::SUCCESS, &build::EchoResponse);
        let mut header = Header::lenient(&mut message[..]);
        header.set_command(Command::OPLOCK_BREAK);
        header.set_message_id(MESSAGE_ID_UNSOLICITED);
        message.resize(64 + 44, 0);
        message[64] = 44;
        message[72..88].copy_from_slice(&key);
        message[88] = 3;
        Some(message)
    }
}

/// What a client asked.
enum Asked {
    Open { directory: bool },
    List { file_id: FileId, continues: bool },
    Read { offset: u64, length: u32 },
    Close,
}

/// A client, the two engines, a server, and what is under way between them.
struct World {
    dice: Dice,
    near: Near,
    far: Far,
    server: Server,
    now: u64,
    /// From the near engine to the far one: what it says, or a message of the client.
    up: VecDeque<Wan>,
    to_server: VecDeque<Vec<u8>>,
    from_server: VecDeque<Vec<u8>>,
    down: VecDeque<Wan>,
    next_id: u64,
    asked: HashMap<u64, Asked>,
    folder: Option<FileId>,
    file: Option<FileId>,
    /// Where the client's listing is.
    place: u64,
    read_to: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut far = Far::new([seed as u8; 16], Policy::default());
        far.enable(true);
        Self {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            near: Near::new(Policy::default(), false),
            far,
            server: Server::default(),
            now: 1,
            up: VecDeque::new(),
            to_server: VecDeque::new(),
            from_server: VecDeque::new(),
            down: VecDeque::new(),
            next_id: 0,
            asked: HashMap::new(),
            folder: None,
            file: None,
            place: 0,
            read_to: 0,
        }
    }

    fn ask(&mut self, asked: Asked, body: &impl Body) {
        let fields = HeaderFields {
            credit_charge: 1,
            credits: 64,
            message_id: self.next_id,
            session_id: SESSION,
            tree_id: TREE,
            ..HeaderFields::default()
        };
        let message = build::message(&fields, body).unwrap();
        self.asked.insert(self.next_id, asked);
        self.next_id += 1;
        let mut out = Out::default();
        let fate = self.near.request(self.now, Carriage::Plain, &message, &mut out);
        self.up.extend(out.wan);
        if fate == Fate::Forward {
            self.up.push_back(Wan::Response(Lan { carriage: Carriage::Plain, message }));
        }
        self.up.extend(out.after);
        out.lan.into_iter().for_each(|lan| self.answered(&lan.message));
    }

    fn open(&mut self, directory: bool) {
        let text: Vec<u8> =
            if directory { "d" } else { "f" }.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let body = build::Create {
            oplock_level: OplockLevel::NONE,
            desired_access: AccessMask::READ_DATA,
            file_attributes: FileAttributes(0),
            share_access: ShareAccess::READ,
            disposition: CreateDisposition::OPEN,
            options: if directory { CreateOptions::DIRECTORY_FILE } else { CreateOptions(0) },
            name: Name::new(&text),
            contexts: &[],
        };
        self.ask(Asked::Open { directory }, &body);
    }

    fn list(&mut self, file_id: FileId) {
        let fresh = self.place == 0 || self.dice.below(12) == 0;
        let single = self.dice.below(5) == 0;
        let mut flags = QueryDirectoryFlags(0);
        if fresh {
            flags = flags.with(QueryDirectoryFlags::RESTART_SCANS);
        }
        if single {
            flags = flags.with(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
        }
        let body = build::QueryDirectory {
            info_class: InfoClass(37),
            flags,
            file_index: 0,
            file_id: Some(file_id),
            pattern: Name::new(b"*\0"),
            output_buffer_length: 65_536,
        };
        self.ask(Asked::List { file_id, continues: !fresh }, &body);
    }

    fn read(&mut self, file_id: FileId) {
        let jumps = self.dice.below(10) == 0;
        let offset = if jumps { self.dice.below(FILE_BYTES) } else { self.read_to };
        self.read_to = if offset >= FILE_BYTES { 0 } else { offset + u64::from(READ_BYTES) };
        let body = build::Read {
            flags: ReadFlags::NONE,
            file_id: Some(file_id),
            offset,
            length: READ_BYTES,
            minimum_count: 0,
        };
        self.ask(Asked::Read { offset, length: READ_BYTES }, &body);
    }

    /// The client does something. It lists one request at a time, reads several at once, and closes at any time.
    fn act(&mut self) {
        let lists = self.asked.values().any(|asked| matches!(asked, Asked::List { .. }));
        let opens = self.asked.values().any(|asked| matches!(asked, Asked::Open { .. }));
        let what = self.dice.below(40);
        match (self.folder, self.file) {
            (None, _) if !opens => self.open(true),
            (_, None) if !opens => self.open(false),
            (Some(id), _) if what == 0 => self.close(id, true),
            (_, Some(id)) if what == 1 => self.close(id, false),
            (Some(id), _) if what < 20 && !lists => self.list(id),
            (_, Some(id)) if self.asked.len() < 6 => self.read(id),
            _ => {}
        }
    }

    fn close(&mut self, file_id: FileId, directory: bool) {
        if directory {
            (self.folder, self.place) = (None, 0);
        } else {
            (self.file, self.read_to) = (None, 0);
        }
        self.ask(Asked::Close, &build::Close { flags: CloseFlags::NONE, file_id: Some(file_id) });
    }

    /// The client has a response.
    fn answered(&mut self, message: &[u8]) {
        let header = Header::lenient(message);
        if header.message_id() == MESSAGE_ID_UNSOLICITED || header.is_interim() {
            return;
        }
        let asked = self.asked.remove(&header.message_id());
        match asked.unwrap_or_else(|| panic!("a second answer to request {}", header.message_id())) {
            Asked::Open { directory } => {
                let id = CreateResponse::parse(message).unwrap().file_id();
                let place = if directory { &mut self.folder } else { &mut self.file };
                *place = Some(id);
            }
            Asked::List { file_id, continues } => self.listed(message, file_id, continues),
            Asked::Read { offset, length } => {
                if header.status() == Status::SUCCESS {
                    let view = ReadResponse::parse(message).unwrap();
                    let expected = u64::from(length).min(FILE_BYTES - offset);
                    assert!(view.payload() == content(offset, expected), "bytes at {offset}");
                } else {
                    assert!(offset >= FILE_BYTES && header.status() == Status::END_OF_FILE);
                }
            }
            Asked::Close => {}
        }
    }

    fn listed(&mut self, message: &[u8], file_id: FileId, continues: bool) {
        // The answer to a handle that the client has closed in the meantime tells nothing.
        if self.folder != Some(file_id) {
            return;
        }
        let place = if continues { self.place } else { 0 };
        if Header::lenient(message).status() == Status::NO_MORE_FILES {
            assert_eq!(place, ENTRIES, "the listing ended early");
            self.place = 0;
            return;
        }
        let buffer = &message[message.len() - 16..];
        let number = |at: usize| u64::from_le_bytes(*buffer[at..].first_chunk().unwrap());
        assert_eq!(number(0), place, "the listing goes on elsewhere");
        self.place = place + number(8);
    }

    /// Something arrives somewhere; tells whether anything was under way.
    fn step(&mut self) -> bool {
        self.now += 1_000;
        let all = [&self.up, &self.down].map(|queue| !queue.is_empty());
        let full = [all[0], all[1], !self.to_server.is_empty(), !self.from_server.is_empty()];
        if full == [false; 4] {
            return false;
        }
        match self.dice.below(4) {
            0 => self.up_arrives(),
            1 => self.down_arrives(),
            2 => {
                if let Some(request) = self.to_server.pop_front() {
                    self.from_server.extend(self.server.answer(&request));
                }
            }
            _ => self.response_arrives(),
        }
        true
    }

    fn up_arrives(&mut self) {
        let Some(wan) = self.up.pop_front() else { return };
        let mut out = Out::default();
        match wan {
            Wan::Told(told) => self.far.told(self.now, &told.head, &mut out).unwrap(),
            Wan::Response(lan) => self.far.request(self.now, lan.carriage, lan.message, &mut out),
        }
        self.far_says(out, None);
    }

    fn response_arrives(&mut self) {
        let Some(response) = self.from_server.pop_front() else { return };
        let (mut out, mut message) = (Out::default(), BytesMut::from(&response[..]));
        let fate = self.far.response(self.now, Carriage::Plain, &mut message, &mut out);
        self.far_says(out, (fate == Fate::Forward).then(|| message.to_vec()));
    }

    fn far_says(&mut self, out: Out, passes: Option<Vec<u8>>) {
        self.to_server.extend(out.lan.into_iter().map(|lan| lan.message));
        self.down.extend(out.wan);
        self.down.extend(passes.map(|message| Wan::Response(Lan { carriage: Carriage::Plain, message })));
        self.down.extend(out.after);
    }

    fn down_arrives(&mut self) {
        let Some(wan) = self.down.pop_front() else { return };
        let mut out = Out::default();
        match wan {
            Wan::Told(told) => {
                self.near
                    .told(self.now, &told.head, Bytes::copy_from_slice(&told.content), &mut out)
                    .unwrap();
            }
            Wan::Response(lan) => {
                if self.near.response(self.now, &lan.message) == Fate::Forward {
                    self.answered(&lan.message);
                }
            }
        }
        self.up.extend(out.wan);
        self.up.extend(out.after);
        out.lan.into_iter().for_each(|lan| self.answered(&lan.message));
    }
}

#[test]
fn each_request_has_the_servers_answer_once() {
    let (mut reads, mut listings) = (0, 0);
    for seed in 1..=80 {
        let mut world = World::new(seed);
        for _ in 0..ROUNDS {
            if world.dice.below(60) == 0 {
                let broken = world.server.break_lease();
                world.from_server.extend(broken);
            }
            world.act();
            for _ in 0..world.dice.below(8) {
                world.step();
            }
        }
        while world.step() {}
        assert!(world.asked.is_empty(), "seed {seed}: {} requests have no answer", world.asked.len());
        reads += world.near.counts().reads;
        listings += world.near.counts().listings;
    }
    // Without answers near the client nothing would be shown.
    assert!(reads > 500 && listings > 500, "{reads} reads, {listings} listings");
}
