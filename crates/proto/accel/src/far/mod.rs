//! The engine on the server side: opens, reads and lists ahead in the user's session, and holds the permits.

mod breaks;
mod bulk;
mod folders;
mod leg;
mod listings;
mod offers;
mod opens;
mod others;
mod queries;
mod reads;
mod watches;
mod writes;

use crate::changes::{Changed, Changes, End, Touched};
use crate::create::key_of;
use crate::message::{element, elements, file_id_of, folded, header, is_below, is_single, place, refuse};
use crate::policy::{Mode, Policy, Rights, Trees};
use crate::told::{Malformed, ToFar, ToNear};
use crate::{Carriage, Counts, Fate, Lan, Out, Wan};
use bytes::{Bytes, BytesMut};
use folders::Folders;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::header::MESSAGE_ID_UNSOLICITED;
use isthmus_smb_wire::{Command, FileId, HeaderFlags, Status, set_file_id};
use leg::{Leg, Owner};
use listings::Listing;
use offers::Offers;
use opens::{Creating, Opens};
use queries::Keeping;

use std::collections::{HashMap, VecDeque};
use watches::Watches;

/// Lease keys that are remembered, so that their breaks are known.
const OWN_KEYS_MAX: usize = 4096;
/// Sessions whose protection is remembered.
const SESSIONS_MAX: usize = 1024;

/// What a request of the engine is for.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// CREATE of an offer, in a tree connect.
    OfferOpen(u32, u32),
    /// The nth query of an offer.
    OfferQuery(u32, usize),
    /// Content of an offer.
    OfferRead(u32),
    /// Whether the file of an offer is being deleted.
    OfferLook(u32),
    /// Content of an open, with the count of changes when it was asked for.
    Read {
        file_id: FileId,
        offset: u64,
        length: u32,
        tag: u64,
    },
    /// The next part of a listing.
    List {
        file_id: FileId,
        serial: u32,
    },
    /// A listing begun again for a client that goes on in another way; then the request.
    Replay {
        file_id: FileId,
        serial: u32,
        left: u32,
    },
    /// A compound of queries, its first element and the others.
    Query(u64),
    QueryRest(u64),
    /// A folder's handle, in a tree connect, and its changes.
    WatchOpen(u32, u32),
    Watch(u32),
    /// An open that the client has already, and that has to be opened again.
    Reopen(FileId),
    /// A WRITE that the client has its answer to, by its message identifier.
    Write(u64),
    /// Nothing is to be done with the response.
    Done,
}

/// The engine on the server side, for one connection.
pub struct Far {
    leg: Leg,
    /// Whether anything may be done ahead.
    enabled: bool,
    /// Whether the near engine has been greeted.
    greeted: bool,
    /// Random bytes that lease keys are made of.
    random: [u8; 16],
    serial: u64,
    now: u64,
    changes: Changes,
    opens: Opens,
    /// CREATEs of the client, by its message identifier.
    creating: HashMap<u64, Creating>,
    /// QUERY_DIRECTORYs of the client, by its message identifier.
    listing: HashMap<u64, Vec<u8>>,
    listings: HashMap<FileId, Listing>,
    folders: Folders,
    offers: Offers,
    watches: Watches,
    /// Compounds of the client whose response is to be kept.
    keeping: HashMap<u64, Keeping>,
    queries: queries::Queries,
    /// The latest query by name, as a pattern for folders in which there was none yet.
    last_query: Option<(Carriage, Vec<u8>)>,
    eagerness: reads::Eagerness,
    bulk: bulk::Bulk,
    writes: writes::Writes,
    /// Files that the client has made and written.
    uploads: u32,
    /// Whether it has written into a file that was there.
    edits: bool,
    /// What is allowed here, and what the near engine allows if it has said so.
    policy: Policy,
    theirs: Option<Policy>,
    trees: Trees,
    clock: Option<others::Clock>,
    shares: others::Shares,
    /// Whether the server takes leases of the engine's.
    leases: bool,
    /// Lease keys that were made, the latest last.
    own_keys: VecDeque<[u8; 16]>,
    /// How requests of a session are protected.
    carriages: HashMap<u64, Carriage>,
    /// The open that the compound whose response is looked at has made, and whether it has closed it.
    last_created: Option<(FileId, bool)>,
    /// Folders to be watched.
    wanted: Vec<(folders::FolderKey, Vec<u8>, Carriage)>,
    /// Breaks that the client has to acknowledge: the server's key, when they came, and what is left of the lease.
    breaking: HashMap<[u8; 16], (u64, LeaseState)>,
    /// When anything came from the client's side last.
    heard: u64,
    /// Whether a break has found it silent since.
    silent: bool,
    counts: Counts,
}

impl Far {
    /// The engine of a connection of which nothing has been seen. `random` is for this connection alone.
    pub fn new(random: [u8; 16], policy: Policy) -> Self {
        Self {
            leg: Leg::new(),
            enabled: false,
            greeted: false,
            random,
            serial: 0,
            now: 0,
            changes: Changes::default(),
            opens: Opens::default(),
            creating: HashMap::new(),
            listing: HashMap::new(),
            listings: HashMap::new(),
            folders: Folders::default(),
            offers: Offers::default(),
            watches: Watches::default(),
            keeping: HashMap::new(),
            queries: queries::Queries::default(),
            last_query: None,
            eagerness: reads::Eagerness::default(),
            bulk: bulk::Bulk::default(),
            writes: writes::Writes::default(),
            uploads: 0,
            edits: false,
            policy,
            theirs: None,
            trees: Trees::default(),
            clock: None,
            shares: others::Shares::default(),
            leases: true,
            own_keys: VecDeque::new(),
            carriages: HashMap::new(),
            last_created: None,
            wanted: Vec::new(),
            breaking: HashMap::new(),
            heard: 0,
            silent: false,
            counts: Counts::default(),
        }
    }

    /// Lets the engine work, or not: not while a session without keys is on the connection. What is open stays in order.
    pub fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Whether messages have other identifiers at the server than at the client.
    pub fn is_shifted(&self) -> bool {
        self.leg.is_shifted()
    }

    /// Whether [`tick`](Self::tick) has anything to do.
    pub fn is_awake(&self) -> bool {
        !self.offers.is_empty() || !self.watches.is_empty() || self.opens.has_broken()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the engine works.
    pub fn is_working(&self) -> bool {
        self.is_active()
    }

    /// As [`Near::mode`](crate::Near::mode).
    pub fn mode(&self) -> Mode {
        let places = self.trees.places().map(|place| self.rights(place, &[]).mode);
        places.min().unwrap_or(self.policy.mode)
    }

    /// Handles, watches and leases that the engine has at the server.
    pub fn permits(&self) -> usize {
        self.offers.len() + self.watches.len() + self.opens.leased()
    }

    /// Something has come from the client's side.
    fn hear(&mut self, now: u64) {
        (self.now, self.heard, self.silent) = (now, now, false);
    }

    /// Opens of the client that are known.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// A request of the client, on its way to the server. `now` is in microseconds.
    pub fn request(&mut self, now: u64, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        self.hear(now);
        if elements(&message).is_none() {
            return;
        }
        if self.carriages.len() < SESSIONS_MAX || self.carriages.contains_key(&place(&message).0) {
            self.carriages.insert(place(&message).0, carriage);
        }
        self.greet(&message, out);
        for range in elements(&message).unwrap_or_default() {
            self.trees.request(element(&message, &range));
        }
        self.note_changes(&message, out);
        if !self.in_turn(carriage, &message, false, out) {
            self.deal(carriage, message, out);
        }
        self.work(out);
    }

    /// Sends a request whose answer the client has.
    fn send_quiet(&mut self, carriage: Carriage, request: Vec<u8>, out: &mut Out) {
        if self.hold(carriage, &request, true) {
            return;
        }
        let closed = file_id_of(&request).filter(|_| header(&request).command() == Command::CLOSE);
        let request = self.translated(request);
        if let Some(id) = closed {
            if self.opens.bury(id) {
                return;
            }
            if let Some(now) = file_id_of(&request) {
                self.forget_open(now, out);
            }
            self.opens.forget_alias(id);
        }
        self.leg.send_own(carriage, request, vec![Owner::Nobody], out);
    }

    /// One element of a request of the client passes as it is.
    pub fn passed(&mut self, element: &[u8]) {
        self.leg.passed(element);
    }

    /// What the near engine says.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn told(&mut self, now: u64, head: &[u8], out: &mut Out) -> Result<(), Malformed> {
        self.hear(now);
        match ToFar::parse(head)? {
            ToFar::Claim { id, carriage, request } => self.claimed(id, carriage, &request, out),
            ToFar::Quiet { carriage, request } => {
                self.note_changes(&request, out);
                if !self.in_turn(carriage, &request, true, out) {
                    self.send_quiet(carriage, request, out);
                }
            }
            ToFar::Behind(message_id) => self.announce_write(message_id),
            ToFar::Again { carriage, request } => {
                let request = self.translated(request);
                match header(&request).command() {
                    Command::QUERY_DIRECTORY => self.list_otherwise(carriage, request, out),
                    Command::CREATE => self.create_after_all(carriage, request, out),
                    _ => self.read_after_all(carriage, request, out),
                }
            }
            ToFar::Used { file_id, end } => self.used(file_id, end, out),
            ToFar::Ping(stamp) => self.tell(ToNear::Pong(stamp), out),
            ToFar::Policy(policy) => self.agree(policy, out),
        }
        self.work(out);
        Ok(())
    }

    /// A response of the server, on its way to the client.
    pub fn response(&mut self, now: u64, carriage: Carriage, message: &mut BytesMut, out: &mut Out) -> Fate {
        self.now = now;
        let Some(ranges) = elements(message) else { return Fate::Forward };
        if header(message).command() == Command::NEGOTIATE {
            self.clock = others::Clock::of(message, now);
        }
        let fate = if header(message).message_id() == MESSAGE_ID_UNSOLICITED {
            self.unsolicited(message, out)
        } else {
            match self.leg.owner_of(message) {
                Some(Owner::Client { .. }) => self.pass_to_client(carriage, message, out),
                Some(Owner::Engine(_) | Owner::Nobody) => {
                    let all = std::mem::take(message).freeze();
                    for range in ranges {
                        self.own_response(&all.slice(range), out);
                    }
                    Fate::Consumed
                }
                None => Fate::Forward,
            }
        };
        self.work(out);
        fate
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64, out: &mut Out) {
        self.now = now;
        self.expire_offers(out);
        self.expire_watches(out);
        self.expire_breaks(out);
        self.work(out);
    }

    /// The first request of a session on which something can be done ahead.
    fn greet(&mut self, message: &[u8], out: &mut Out) {
        let command = header(message).command();
        let early = matches!(
            command,
            Command::NEGOTIATE
                | Command::SESSION_SETUP
                | Command::TREE_CONNECT
                | Command::LOGOFF
                // A client that asks how it negotiated has not begun to work: the credits are all its own still.
                | Command::IOCTL
        );
        if self.enabled && !self.greeted && !early {
            self.greeted = true;
            self.leg.want_credits();
            self.tell(ToNear::Hello { strict: self.policy.is_strict() }, out);
            if self.policy != Policy::default() && self.policy.fits() {
                self.tell(ToNear::Policy(self.policy.clone()), out);
            }
        }
    }

    fn is_active(&self) -> bool {
        self.enabled && self.greeted
    }

    fn tell(&mut self, told: ToNear, out: &mut Out) {
        out.tell(told.told(Bytes::new()));
    }

    /// Whatever is held of what a request may change is given up before the request goes on.
    fn note_changes(&mut self, message: &[u8], out: &mut Out) {
        let opens = &self.opens;
        match self.changes.note(message, |id| opens.name_of(id), |_| End::Nothing) {
            Changed::Nothing => {}
            Changed::Names(names) => {
                for Touched { name, content } in names {
                    let name = folded(&name);
                    if content {
                        self.opens.modified(&name);
                    }
                    self.give_up(&name, out);
                }
            }
            Changed::Bytes(name, bytes) => {
                let name = folded(&name);
                self.opens.written(&name, bytes.end);
                if !self.writes.begin(header(message).message_id(), &name, self.changes.now()) {
                    self.opens.modified(&name);
                }
                self.give_up(&name, out);
            }
            Changed::Anything => {
                self.opens.modified(&[]);
                self.give_up(&[], out);
            }
        }
    }

    /// Gives up handles on a name and on what is below it.
    fn give_up(&mut self, name: &[u8], out: &mut Out) {
        self.withdraw_where(|offer| offer.folded == name || is_below(&offer.folded, name), out);
        self.unwatch_where(|folder| folder == name || (!folder.is_empty() && is_below(folder, name)), out);
    }

    /// Decides what becomes of a request.
    fn deal(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        if self.hold(carriage, &message, false) {
            return;
        }
        let named = file_id_of(&message);
        let message = self.translated(message);
        if self.report_failure(carriage, &message, out) {
            return;
        }
        let first = header(&message);
        let (command, message_id) = (first.command(), first.message_id());
        if !is_single(&message) {
            return self.list_otherwise(carriage, message, out);
        }
        match command {
            Command::CREATE => return self.create(carriage, message, out),
            Command::READ => return self.read(carriage, message, out),
            Command::QUERY_DIRECTORY => return self.list(carriage, message, out),
            Command::QUERY_INFO => {
                self.opens.note_query(&message);
                if let Some(id) = file_id_of(&message).filter(|_| key_of(&message).is_some()) {
                    self.note_use(id, Some(&message));
                }
            }
            Command::WRITE => {
                if let Some(id) = file_id_of(&message) {
                    self.opens.note_write(id);
                }
            }
            Command::CLOSE => {
                if let Some((named, id)) = named.zip(file_id_of(&message)) {
                    if self.opens.bury(named) {
                        return self.answer_here(carriage, refuse(&message, Status::FILE_CLOSED), out);
                    }
                    self.forget_open(id, out);
                    self.opens.forget_alias(named);
                }
            }
            Command::OPLOCK_BREAK => return self.acknowledge(carriage, message, out),
            Command::TREE_DISCONNECT | Command::LOGOFF => {
                let (session, tree) = place(&message);
                let all = command == Command::LOGOFF;
                self.leave(session, (!all).then_some(tree), out);
            }
            Command::CANCEL => self.cancelled(message_id),
            _ => {}
        }
        self.leg.send_client(carriage, message, out);
    }

    /// A response from here, for a request that the server does not get.
    fn answer_here(&mut self, carriage: Carriage, response: Option<Vec<u8>>, out: &mut Out) {
        if let Some(message) = response {
            self.writes.end(header(&message).message_id());
            out.wan.push(Wan::Response(Lan { carriage, message }));
        }
    }

    /// The session, or one tree connect of it, is over: the server closes what is open there.
    fn leave(&mut self, session: u64, tree: Option<u32>, out: &mut Out) {
        let (gone, held) = self.opens.leave(session, tree);
        for (id, open) in gone {
            self.end_listing(id, out);
            self.send_swallowed(open.reading, out);
        }
        for (carriage, message, _) in held.into_iter().filter(|(.., quiet)| !quiet) {
            self.answer_here(carriage, refuse(&message, Status::FILE_CLOSED), out);
        }
        self.offers.leave(session, tree);
        self.watches.leave(session, tree);
        self.folders.leave(session, tree);
        self.shares.leave(session, tree);
    }

    /// A response to a request of the client that the server has got.
    fn pass_to_client(&mut self, carriage: Carriage, message: &mut BytesMut, out: &mut Out) -> Fate {
        if is_single(message) && self.retry_bare(carriage, message, out) {
            return Fate::Consumed;
        }
        self.leg.translate(message, out);
        let Some(ranges) = elements(message) else { return Fate::Forward };
        self.last_created = None;
        let whole = message.split().freeze();
        let mut replaced = None;
        for range in &ranges {
            let element = whole.slice(range.clone());
            let head = header(&element);
            if head.is_interim() {
                continue;
            }
            self.trees.response(&element);
            match head.command() {
                Command::CREATE => {
                    let alone = ranges.len() == 1;
                    if let Some(bare) = self.created(carriage, &element, alone, out) {
                        replaced = Some(bare);
                    }
                }
                Command::QUERY_DIRECTORY => self.listed(carriage, &element, out),
                Command::WRITE => self.writes.end(head.message_id()),
                _ => {}
            }
        }
        if let Some((id, true)) = self.last_created.take() {
            self.forget_open(id, out);
        }
        let first = header(&whole).message_id();
        match replaced {
            Some(bare) => message.extend_from_slice(&bare),
            None => *message = BytesMut::from(whole),
        }
        self.keep(first, message, out);
        Fate::Forward
    }

    /// One element of a response to the engine.
    fn own_response(&mut self, element: &Bytes, out: &mut Out) {
        if header(element).is_interim() {
            match self.leg.owner_of(element) {
                Some(Owner::Engine(Job::Watch(id))) => self.watch_armed(*id),
                Some(Owner::Engine(Job::OfferOpen(id, _))) => self.offer_waits(*id),
                _ => {}
            }
        }
        let Some(Owner::Engine(job)) = self.leg.take_own(element, out) else { return };
        if !self.bulk.hold(&job, element) {
            self.job_done(job, element, out);
        }
    }

    fn job_done(&mut self, job: Job, element: &Bytes, out: &mut Out) {
        match job {
            Job::OfferOpen(id, tree) => self.offer_opened(id, tree, element, out),
            Job::OfferQuery(id, index) => self.offer_queried(id, index, element, out),
            Job::OfferRead(id) => self.offer_read(id, element, out),
            Job::OfferLook(id) => self.offer_looked(id, element, out),
            Job::Read { file_id, offset, length, tag } => {
                self.read_ahead(file_id, offset, length, tag, element, out);
            }
            Job::List { file_id, serial } => self.listed_ahead(file_id, serial, element, out),
            Job::Replay { file_id, serial, left } => self.replayed(file_id, serial, left, out),
            Job::Query(serial) => self.queried(serial, element, out),
            Job::QueryRest(serial) => self.queried(serial, element, out),
            Job::WatchOpen(id, tree) => self.watch_opened(id, tree, element, out),
            Job::Watch(id) => self.watch_fired(id, element, out),
            Job::Write(message_id) => self.written(message_id, element, out),
            Job::Reopen(old) => self.reopened(old, element, out),
            Job::Done => {}
        }
    }

    /// Sends one request of the engine.
    fn send_job(&mut self, carriage: Carriage, message: Vec<u8>, job: Job, out: &mut Out) {
        self.counts.ahead += 1;
        self.leg.send_own(carriage, message, vec![Owner::Engine(job)], out);
    }

    /// Puts the server's identifiers in the place of those that the client knows of opens that were opened again.
    fn translated(&self, mut message: Vec<u8>) -> Vec<u8> {
        if !self.opens.has_aliases() {
            return message;
        }
        for range in elements(&message).unwrap_or_default() {
            let Some(bytes) = message.get_mut(range) else { continue };
            if let Some(id) = file_id_of(bytes).and_then(|id| self.opens.alias_of(id)) {
                let _ = set_file_id(bytes, id);
            }
        }
        message
    }

    /// Keeps a request back whose open is just being opened again.
    fn hold(&mut self, carriage: Carriage, message: &[u8], quiet: bool) -> bool {
        let Some(ranges) = elements(message) else { return false };
        let id = ranges.iter().find_map(|range| {
            let id = file_id_of(element(message, range))?;
            self.opens.is_reopening(id).then_some(id)
        });
        id.is_some_and(|id| self.opens.hold(id, carriage, message, quiet))
    }

    /// Whether the engine may send a request now that takes so many credits.
    fn may_send(&self, charge: u16) -> bool {
        self.is_active() && self.leg.jobs() < crate::limits::JOBS_MAX && self.leg.has_spare(charge)
    }

    /// Does ahead what can be done.
    fn work(&mut self, out: &mut Out) {
        if !self.is_active() {
            return;
        }
        self.work_on_watches(out);
        self.work_on_offers(out);
        self.work_on_queries(out);
    }

    /// The near engine allows no more than this. What was done before it said so is given up.
    fn agree(&mut self, policy: Policy, out: &mut Out) {
        self.theirs = Some(policy);
        self.withdraw_where(|_| true, out);
        self.unwatch_where(|_| true, out);
    }

    /// What may be done with a name, folded.
    fn rights(&self, place: (u64, u32), name: &[u8]) -> Rights {
        let share = self.trees.share(place);
        let rights = self.policy.rights(share, name);
        self.theirs.as_ref().map_or(rights, |theirs| rights.and(theirs.rights(share, name)))
    }

    fn lease_key(&mut self) -> [u8; 16] {
        self.serial += 1;
        let mut hasher = blake3::Hasher::new_derive_key("isthmus 2026 lease key");
        hasher.update(&self.random).update(&self.serial.to_le_bytes());
        let key = hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default();
        if self.own_keys.len() >= OWN_KEYS_MAX {
            self.own_keys.pop_front();
        }
        self.own_keys.push_back(key);
        key
    }

    /// Whether a lease is the engine's.
    fn is_own_key(&self, key: &[u8; 16]) -> bool {
        self.own_keys.contains(key)
    }

    /// How requests of a session are protected.
    fn carriage_of(&self, session: u64) -> Carriage {
        self.carriages.get(&session).copied().unwrap_or(Carriage::Sealed(session))
    }
}

/// Flags that requests of the engine share with one of the client.
pub(crate) fn dfs_of(request: &[u8]) -> HeaderFlags {
    HeaderFlags(header(request).flags().0 & HeaderFlags::DFS_OPERATIONS.0)
}

/// Credits of a read of so many bytes.
pub(crate) fn read_charge(length: u32) -> u16 {
    isthmus_smb_wire::header::credit_charge(length)
}
