//! The engine on the client side: answers what the far engine has made sure of.

mod answers;
mod content;
mod opens;
mod passing;
mod permit;
#[cfg(test)]
mod tests;
mod trace;

use crate::changes::{Changed, Changes, Touched};
use crate::create::lease_of;
use crate::limits::{ACTIVE_MICROS, NEAR_CONTENT_MAX, NEAR_ITEMS_MAX, PING_MICROS};
use crate::message::{Key, element, elements, file_id_of, folded, header, is_below, place};
use crate::policy::{Mode, Policy, Rights, Trees};
use crate::told::{Malformed, Offer, ToFar, ToNear};
use crate::{Carriage, Counts, Fate, Out};
use bytes::Bytes;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{CreateRequest, CreateResponse, OplockLevel, QueryDirectoryFlags};
use isthmus_smb_wire::{Command, FileId, Status};
use opens::{Holder, Open, Opens};
use permit::Liveness;
pub use permit::{Permit, Why};
use std::collections::{HashMap, HashSet, VecDeque};
use trace::Trace;
pub use trace::{Answered, Traced};

/// Responses to queries by name that were passed on lately, in case they are to be kept.
const PASSED_MAX: usize = 64;

/// Flags of a QUERY_DIRECTORY that begins from the start.
const ANEW: QueryDirectoryFlags =
    QueryDirectoryFlags(QueryDirectoryFlags::RESTART_SCANS.0 | QueryDirectoryFlags::REOPEN.0);

/// Whose lease vouches for the content of what a CREATE has opened.
fn holder_of(response: &[u8], file_id: FileId) -> Holder {
    let granted = lease_of(response).filter(|lease| lease.state != LeaseState::NONE);
    granted.map_or(Holder::Open(file_id), |lease| Holder::Lease(lease.key))
}

/// A request that was passed on, and may still be answered here.
struct Pending {
    carriage: Carriage,
    request: Vec<u8>,
}

/// A CREATE that was passed on.
struct Creating {
    name: Vec<u8>,
    /// Whether it asks to read the file.
    reads: bool,
    /// Whether it may change anything, and whether its end may.
    modifies: bool,
    alters: bool,
    /// It is ended in the same compound.
    closed: bool,
}

/// An offer with its content.
struct Offered {
    offer: Box<Offer>,
    content: Bytes,
}

/// An answer under a watch.
struct Known {
    watch: u32,
    response: Bytes,
}

/// The engine on the client side, for one connection.
#[derive(Default)]
pub struct Near {
    /// What is allowed here, and on the server side if that has said so.
    policy: Policy,
    theirs: Option<Policy>,
    /// Whether the server side allows only what leases of the client permit.
    strict: bool,
    trees: Trees,
    greeted: bool,
    /// Nothing is answered here any more.
    stopped: bool,
    /// The client has other connections to the server, over which a request could come there before a CLOSE that was answered
    /// here.
    in_company: bool,
    now: u64,
    liveness: Liveness,
    /// When the far engine was asked, and when the client worked, last.
    pinged: Option<u64>,
    worked: u64,
    changes: Changes,
    opens: Opens,
    /// By message identifier.
    creating: HashMap<u64, Creating>,
    offers: HashMap<Key, Offered>,
    offer_keys: HashMap<u32, Key>,
    known: HashMap<Key, Known>,
    pending: HashMap<u64, Pending>,
    /// Requests that were passed on and answered here after all: what the server says to them is not for the client.
    overtaken: HashSet<u64>,
    /// Credits that came with what was not for the client.
    owed: u16,
    /// Keys of queries by name that were passed on, by message identifier.
    asked: HashMap<u64, Key>,
    passed: VecDeque<(u64, Key, Bytes)>,
    /// Bytes of content held in offers.
    offered_bytes: usize,
    /// WRITEs that are answered and not done, by message identifier, with their length.
    behind: HashMap<u64, u32>,
    behind_bytes: usize,
    early_close: bool,
    trace: Trace,
    counts: Counts,
}

impl Near {
    /// The engine of a connection of which nothing has been seen.
    ///
    /// With `early_close` the end of a handle whose WRITEs are answered before they are done is answered so too.
    pub fn new(policy: Policy, early_close: bool) -> Self {
        Self { policy, early_close, ..Self::default() }
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the server side works with this one.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Whether the client has other connections to the same server.
    pub fn set_company(&mut self, in_company: bool) {
        self.in_company = in_company;
    }

    /// Gives up all that is held: from now on the server answers everything.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.known.clear();
        self.give_up_all();
        self.opens.end_behind(None);
    }

    /// The least strict that any share connected on the connection has; what holds without rules while there is none.
    pub fn mode(&self) -> Mode {
        let places = self.trees.places().map(|place| self.rights(place, &[]).mode);
        places
            .min()
            .unwrap_or_else(|| self.policy.mode.max(if self.strict { Mode::Strict } else { Mode::Bounded }))
    }

    /// Offers, answers under watches and opens with content, each of which permits an answer.
    pub fn permits(&self) -> usize {
        self.offers.len() + self.known.len() + self.opens.with_content()
    }

    /// Opens of the client that are known.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// What became of the client's requests after one of a number, the oldest first. It is kept from the first call on, and as
    /// long as they go on.
    pub fn trace(&mut self, now: u64, after: u64) -> Vec<Traced> {
        self.now = self.now.max(now);
        self.trace.read(self.now, after)
    }

    /// Whether [`tick`](Self::tick) has anything to do.
    pub fn is_awake(&self) -> bool {
        self.greeted
            && !self.stopped
            && (self.holds() || self.now.saturating_sub(self.worked) < ACTIVE_MICROS)
    }

    /// A request of the client. `now` is in microseconds.
    pub fn request(&mut self, now: u64, carriage: Carriage, message: &[u8], out: &mut Out) -> Fate {
        self.now = now;
        self.worked = now;
        self.ping(out);
        if self.trace.is_on(now) {
            self.trace.begin(now, message, self.name_in(message));
        }
        let opens = &self.opens;
        match self.changes.note(message, |id| opens.name_of(id), |id| opens.end_of(id)) {
            Changed::Nothing => {}
            Changed::Names(names) => {
                self.known.clear();
                for Touched { name, content } in names {
                    let name = folded(&name);
                    self.give_up(&name);
                    if content {
                        self.opens.changed(&name);
                    } else {
                        self.opens.touched(&name);
                    }
                }
            }
            Changed::Bytes(name, bytes) => {
                self.known.clear();
                let name = folded(&name);
                self.give_up(&name);
                self.opens.written(&name, &bytes);
            }
            Changed::Anything => {
                self.known.clear();
                self.give_up_all();
            }
        }
        let fate = if self.greeted { self.try_answer(carriage, message, out) } else { Fate::Forward };
        if fate == Fate::Forward {
            self.trace.passed(header(message).message_id());
            self.passed_on(carriage, message, out);
        }
        fate
    }

    /// A response that came over the WAN, on its way to the client, unless the client has its answer already.
    #[must_use]
    pub fn response(&mut self, now: u64, message: &[u8]) -> Fate {
        self.now = now;
        let Some(ranges) = elements(message) else { return Fate::Forward };
        let first = header(message).message_id();
        if self.overtaken.contains(&first) {
            self.owed = self.owed.saturating_add(header(message).credits());
            if !header(message).is_interim() {
                self.overtaken.remove(&first);
            }
            return Fate::Consumed;
        }
        if let Some(key) = self.asked.remove(&first) {
            if self.passed.len() >= PASSED_MAX {
                self.passed.pop_front();
            }
            self.passed.push_back((first, key, Bytes::copy_from_slice(message)));
        }
        for range in ranges {
            let element = element(message, &range);
            let head = header(element);
            if head.command() == Command::OPLOCK_BREAK {
                // Whatever is broken: the client writes what it holds, and the server is asked again.
                self.opens.end_behind(None);
            }
            if head.is_interim() {
                continue;
            }
            let message_id = head.message_id();
            self.trace.answered(now, element, None);
            self.pending.remove(&message_id);
            self.opens.listed(message_id);
            if let Some(Creating { name, reads, modifies, alters, closed: false }) =
                self.creating.remove(&message_id)
                && let Ok(view) = CreateResponse::parse(element)
                && head.status() == Status::SUCCESS
            {
                let (session, tree) = place(element);
                let rights = self.rights((session, tree), &name);
                let holder = holder_of(element, view.file_id());
                let mut open = Open::new((session, tree), name, !modifies, rights, holder);
                (open.alters, open.reads) = (alters, reads);
                open.caches = view.oplock_level() != OplockLevel::NONE;
                open.granted = Some(view.attributes());
                self.opens.insert(view.file_id(), open);
            }
            self.trees.response(element);
        }
        Fate::Forward
    }

    /// What the far engine says.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn told(&mut self, now: u64, head: &[u8], content: Bytes, out: &mut Out) -> Result<(), Malformed> {
        self.now = now;
        match ToNear::parse(head)? {
            ToNear::Hello { strict } => {
                self.greeted = true;
                self.strict |= strict;
                self.limit_opens();
                if self.policy != Policy::default() && self.policy.fits() {
                    out.tell(ToFar::Policy(self.policy.clone()).told());
                }
                self.ping(out);
            }
            ToNear::Offer(offer) => self.offered(offer, content),
            ToNear::Withdraw(id) => {
                match self.offer_keys.remove(&id) {
                    Some(key) => drop(self.drop_offer(&key)),
                    // The client has taken it meanwhile: what came with it may be old.
                    None => self.opens.purge_offered(id),
                }
            }
            ToNear::Data { file_id, offset, end, tag } => {
                let name = self.opens.name_of(file_id);
                if let Some(written) = name.and_then(|name| self.changes.written_since(tag, &name)) {
                    self.opens.add_content(file_id, offset, &content, end, &written);
                }
                self.answer_pending(out);
            }
            ToNear::Purge(file_id) => {
                self.counts.breaks += 1;
                self.opens.purge(file_id);
            }
            ToNear::Listing { file_id, key } => {
                self.opens.add_part(file_id, key, content);
                self.answer_pending(out);
            }
            ToNear::Known { key, watch, tag } => self.keep(key, watch, tag, content),
            ToNear::Keep { message_id, watch, tag } => {
                if let Some(at) = self.passed.iter().position(|(id, ..)| *id == message_id)
                    && let Some((_, key, response)) = self.passed.remove(at)
                {
                    self.keep(key, watch, tag, response);
                }
            }
            ToNear::Unwatch(watch) => {
                self.counts.breaks += 1;
                self.known.retain(|_, known| known.watch != watch);
            }
            ToNear::Answer(message_id) => self.answer_or_ask_again(message_id, out),
            ToNear::Behind(file_id) => self.opens.set_behind(file_id),
            ToNear::Written { message_id, file_id, good } => {
                let length = self.behind.remove(&message_id).unwrap_or(0);
                self.behind_bytes -= length as usize;
                if !good {
                    self.counts.lost_writes += 1;
                    self.opens.end_behind(Some(file_id));
                    // What was put into the content is not in the file, whichever open it was written to.
                    self.opens.changed(&[]);
                }
            }
            ToNear::Policy(policy) => {
                self.theirs = Some(policy);
                self.limit_opens();
            }
            ToNear::Attributes { file_id, tag } => {
                if self.opens.name_of(file_id).is_some_and(|name| !self.changes.since(tag, &name)) {
                    self.opens.trust_attributes(file_id);
                }
            }
            ToNear::Pong(stamp) => self.liveness.confirmed(stamp.min(now)),
        }
        Ok(())
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64, out: &mut Out) {
        self.now = now;
        if self.is_awake() {
            self.ping(out);
        }
    }

    fn rights(&self, place: (u64, u32), name: &[u8]) -> Rights {
        let (share, name) = (self.trees.share(place), folded(name));
        let rights = self.policy.rights(share, &name);
        let rights = self.theirs.as_ref().map_or(rights, |theirs| rights.and(theirs.rights(share, &name)));
        if self.strict { rights.strict() } else { rights }
    }

    /// Less may be done with what is open than was thought.
    fn limit_opens(&mut self) {
        let mut opens = std::mem::take(&mut self.opens);
        opens.allow(|place, name| self.rights(place, name));
        self.opens = opens;
    }

    /// What may be done with the file that a request's first element, a CREATE, is for.
    fn rights_of(&self, request: &[u8]) -> Option<Rights> {
        let view = CreateRequest::parse(element(request, elements(request)?.first()?)).ok()?;
        Some(self.rights(place(request), view.name_bytes()))
    }

    fn holds(&self) -> bool {
        !self.offers.is_empty() || !self.known.is_empty() || self.opens.has_content()
    }

    fn ping(&mut self, out: &mut Out) {
        let due = self.pinged.is_none_or(|at| self.now.saturating_sub(at) >= PING_MICROS);
        if self.greeted && due {
            self.pinged = Some(self.now);
            out.tell(ToFar::Ping(self.now).told());
        }
    }

    /// Name of the file that a request is about.
    fn name_in(&self, message: &[u8]) -> Option<Vec<u8>> {
        let first = element(message, elements(message)?.first()?);
        match CreateRequest::parse(first) {
            Ok(view) => Some(view.name_bytes().to_vec()),
            Err(_) => self.opens.name_of(file_id_of(first)?),
        }
    }

    fn offered(&mut self, offer: Box<Offer>, content: Bytes) {
        if self.changes.since(offer.tag, &offer.name)
            || self.offers.len() >= NEAR_ITEMS_MAX
            || self.offered_bytes + content.len() > NEAR_CONTENT_MAX
        {
            // The far engine finds that nobody takes it.
            return;
        }
        self.offered_bytes += content.len();
        self.offer_keys.insert(offer.id, offer.key);
        let key = offer.key;
        if let Some(old) = self.offers.insert(key, Offered { offer, content }) {
            self.offered_bytes -= old.content.len();
        }
    }

    fn drop_offer(&mut self, key: &Key) -> Option<Offered> {
        let offered = self.offers.remove(key)?;
        self.offer_keys.remove(&offered.offer.id);
        self.offered_bytes -= offered.content.len();
        Some(offered)
    }

    fn keep(&mut self, key: Key, watch: u32, tag: u64, response: Bytes) {
        // What the client has changed since may show in any answer.
        if self.changes.is_latest(tag) && self.known.len() < NEAR_ITEMS_MAX {
            self.known.insert(key, Known { watch, response });
        }
    }

    /// Drops offers of a folded name and of what is below it; all with an empty one.
    fn give_up(&mut self, name: &[u8]) {
        let gone: Vec<Key> = self
            .offers
            .iter()
            .filter(|(_, offered)| {
                let folded = folded(&offered.offer.name);
                folded == name || is_below(&folded, name)
            })
            .map(|(key, _)| *key)
            .collect();
        gone.iter().for_each(|key| drop(self.drop_offer(key)));
    }

    fn give_up_all(&mut self) {
        self.give_up(&[]);
        self.opens.changed(&[]);
    }
}
