//! One client of a seed at work.

use crate::client::{
    Answer, CacheKey, Caching, Connection, Created, Failure, OpenRequest, RangeLock, Settings,
};
use crate::history::{
    Action, Break, CELL_BYTES, CELLS_MAX, Event, Facts, Handle, Listed, OpenAction, Opened, Outcome, Time,
    cells_of, read_cells,
};
use crate::plan::{CELLS_AT_FIRST, CachingPlan, NAMES, NAMES_AT_FIRST, NAMES_SHARED, OpenPlan, SLOTS, Step};
use isthmus_smb_wire::FileId;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, OplockLevel, ShareAccess,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client that has lost its connection tries to get another, and how often.
const RECONNECT_LIMIT: Duration = Duration::from_secs(30);
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A client's number and its opens' numbers are parts of one number.
const HANDLES_MAX: usize = 1_000_000;

/// The first time of creation that clients set, and the steps between two clients' and two of one client, in 100 ns.
const TIME_FIRST: u64 = 0x01d0_0000_0000_0000;
const TIME_OF_CLIENT: u64 = 100_000 * TIME_STEP;
const TIME_STEP: u64 = 10_000_000;

/// Everyone shares everything.
const SHARE_ALL: ShareAccess = ShareAccess(7);

/// What a client of a seed is given.
pub(super) struct Part {
    pub seed: u64,
    pub client: usize,
    pub folder: String,
    pub settings: Settings,
    pub epoch: Instant,
}

/// A client of a seed.
pub(super) struct Actor {
    part: Part,
    connection: Option<Arc<Connection>>,
    slots: [Option<Slot>; SLOTS],
    handles: usize,
    versions: u64,
    /// Connections that were lost; their opens are gone.
    losses: usize,
    oplocks: HashMap<FileId, Handle>,
    events: Vec<Event>,
    breaks: Vec<Break>,
}

/// What a client has seen.
pub(super) struct Seen {
    pub events: Vec<Event>,
    pub breaks: Vec<Break>,
    /// Logged on, to be used again.
    pub connection: Option<Arc<Connection>>,
}

#[derive(Clone)]
struct Slot {
    handle: Handle,
    file_id: FileId,
    access: AccessMask,
    locks: Vec<(u64, u64, bool)>,
    /// Connections that had been lost when it was opened.
    losses: usize,
}

impl Actor {
    pub fn new(part: Part, connection: Option<Arc<Connection>>) -> Actor {
        Actor {
            part,
            connection,
            slots: Default::default(),
            handles: 0,
            versions: 0,
            losses: 0,
            oplocks: HashMap::new(),
            events: Vec::new(),
            breaks: Vec::new(),
        }
    }

    /// Makes the files that are there at the beginning.
    pub async fn prepare(&mut self) {
        for name in 0..NAMES_AT_FIRST {
            let open = OpenPlan { disposition: CreateDisposition::CREATE, ..plain_open(name, writing()) };
            if let Some(slot) = self.open(open).await {
                self.write(&slot, 0, CELLS_AT_FIRST).await;
                self.close(slot).await;
            }
        }
    }

    /// Does all steps.
    pub async fn work(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step).await;
        }
    }

    /// Closes everything.
    pub async fn finish(mut self) -> Seen {
        for slot in 0..SLOTS {
            self.empty(slot).await;
        }
        self.gather_breaks();
        Seen { events: self.events, breaks: self.breaks, connection: self.connection }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Open { slot, open } => {
                self.empty(slot).await;
                let opened = self.open(open).await;
                self.put(slot, opened);
            }
            Step::Close { slot } => self.empty(slot).await,
            Step::Rename { from, to, replace } => {
                if let Some(slot) = self.open(plain_open(from, deleting())).await {
                    self.rename(&slot, to, replace).await;
                    self.close(slot).await;
                }
            }
            Step::Remove { name } => {
                let open = OpenPlan { delete_on_close: true, ..plain_open(name, deleting()) };
                self.touch(open).await;
            }
            Step::Dispose { name } => {
                if let Some(slot) = self.open(plain_open(name, deleting())).await {
                    let action = Action::Delete { handle: slot.handle };
                    self.done(action, async |c| c.delete(slot.file_id).await).await;
                    self.close(slot).await;
                }
            }
            Step::Look { name, reads } => self.look(name, reads).await,
            Step::List => self.list().await,
            Step::Walk { has_leases } => self.walk(has_leases).await,
            Step::Save { name } => self.save(name).await,
            step => self.step_in_slot(step).await,
        }
    }

    async fn step_in_slot(&mut self, step: Step) {
        let (Step::Read { slot, .. }
        | Step::Write { slot, .. }
        | Step::SetSize { slot, .. }
        | Step::Flush { slot }
        | Step::Lock { slot, .. }
        | Step::Unlock { slot }
        | Step::Query { slot }
        | Step::SetTime { slot }) = step
        else {
            return;
        };
        let Some(open) = self.slots.get(slot).cloned().flatten() else { return };
        let (handle, file_id) = (open.handle, open.file_id);
        match step {
            Step::Read { first, count, .. } => self.read(&open, first, count).await,
            Step::Write { first, count, .. } => self.write(&open, first, count).await,
            // Samba does it by name for an open that may not write, and then for another file, perhaps.
            Step::SetSize { .. } if !open.access.contains(AccessMask::WRITE_DATA) => {}
            Step::SetSize { cells, .. } => {
                let size = cells * CELL_BYTES as u64;
                let action = Action::SetSize { handle, cells };
                self.done(action, async |c| c.set_end_of_file(file_id, size).await).await;
            }
            Step::Flush { .. } => {
                self.done(Action::Flush { handle }, async |c| c.flush(file_id).await).await;
            }
            Step::Query { .. } => self.query(&open).await,
            Step::SetTime { .. } if !open.access.contains(AccessMask::WRITE_ATTRIBUTES) => {}
            Step::SetTime { .. } => {
                let time = self.new_time();
                let action = Action::SetTime { handle, time };
                self.done(action, async |c| c.set_creation_time(file_id, time).await).await;
            }
            Step::Lock { first, count, exclusive, .. } => {
                let action = Action::Lock { handle, first, count, exclusive };
                let range = range(first, count, exclusive);
                let is_done = self.done(action, async |c| c.lock(file_id, range).await).await;
                if let Some(Some(open)) = self.slots.get_mut(slot).filter(|_| is_done) {
                    open.locks.push((first, count, exclusive));
                }
            }
            Step::Unlock { .. } if !open.locks.is_empty() => {
                let Some(Some(open)) = self.slots.get_mut(slot) else { return };
                let (first, count, exclusive) = open.locks.remove(0);
                let range = range(first, count, exclusive);
                let action = Action::Unlock { handle, first, count };
                self.done(action, async |c| c.unlock(file_id, range).await).await;
            }
            _ => {}
        }
    }

    async fn save(&mut self, name: usize) {
        let access = writing().with(deleting());
        let open = OpenPlan {
            disposition: CreateDisposition::OVERWRITE_IF,
            ..plain_open(NAMES_SHARED + self.part.client, access)
        };
        if let Some(slot) = self.open(open).await {
            self.write(&slot, 0, 2).await;
            self.rename(&slot, name, true).await;
            self.close(slot).await;
        }
    }

    async fn walk(&mut self, has_leases: bool) {
        self.list().await;
        for name in 0..NAMES_SHARED {
            let plan = if has_leases {
                let access = AccessMask::GENERIC_READ.with(AccessMask::READ_ATTRIBUTES);
                OpenPlan { caching: CachingPlan::Lease(7), ..plain_open(name, access) }
            } else {
                let access = AccessMask::READ_DATA.with(AccessMask::READ_ATTRIBUTES);
                let share = ShareAccess::READ.with(ShareAccess::WRITE);
                OpenPlan { share, ..plain_open(name, access) }
            };
            let Some(slot) = self.open(plan).await else { continue };
            if !has_leases {
                self.query(&slot).await;
            }
            self.read(&slot, 0, CELLS_MAX).await;
            self.close(slot).await;
        }
    }

    async fn open(&mut self, plan: OpenPlan) -> Option<Slot> {
        let (request, handle) = self.open_request(&plan);
        let key = cache_key(&request);
        let delay = plan.acknowledge_after;
        let answer = self
            .ask(
                action_of(&plan),
                async |c| {
                    if let Some(key) = key {
                        c.delay_acknowledgement(key, delay);
                    }
                    let created = c.open(&request).await?;
                    if let Some(key) = created.granted.key {
                        c.delay_acknowledgement(key, delay);
                    }
                    Ok(created)
                },
                |created| Outcome::Opened(opened(handle, created)),
            )
            .await?;
        if let Some(CacheKey::Oplock(file_id)) = answer.granted.key {
            self.oplocks.insert(file_id, handle);
        }
        Some(Slot {
            handle,
            file_id: answer.file_id,
            access: plan.access,
            locks: Vec::new(),
            losses: self.losses,
        })
    }

    fn open_request(&mut self, plan: &OpenPlan) -> (OpenRequest, Handle) {
        self.handles += 1;
        let handle = self.part.client * HANDLES_MAX + self.handles;
        let caching = match plan.caching {
            CachingPlan::None => Caching::None,
            CachingPlan::Oplock(level) => Caching::Oplock(OplockLevel(level)),
            CachingPlan::Lease(state) => {
                Caching::Lease { key: lease_key(self.part.seed, handle), state: LeaseState(state) }
            }
        };
        let options = if plan.delete_on_close {
            CreateOptions::NON_DIRECTORY_FILE.with(CreateOptions::DELETE_ON_CLOSE)
        } else {
            CreateOptions::NON_DIRECTORY_FILE
        };
        let path = self.path(name_of(plan.name));
        let (access, share, disposition) = (plan.access, plan.share, plan.disposition);
        (OpenRequest { path, access, share, disposition, options, caching }, handle)
    }

    async fn close(&mut self, slot: Slot) {
        let action = Action::Close { handle: slot.handle };
        if slot.losses != self.losses {
            let now = self.now();
            return self.note(now, now, action, Outcome::Lost);
        }
        self.done(action, async |c| c.close(slot.file_id).await).await;
    }

    async fn read(&mut self, slot: &Slot, first: u64, count: u64) {
        if slot.losses != self.losses {
            return;
        }
        let (seed, file_id) = (self.part.seed, slot.file_id);
        let (offset, length) = (first * CELL_BYTES as u64, (count as usize * CELL_BYTES) as u32);
        let action = Action::Read { handle: slot.handle, first, count };
        let read = async |c: &Connection| c.read(file_id, offset, length).await;
        self.ask(action, read, |bytes| Outcome::Cells(read_cells(seed, bytes))).await;
    }

    async fn write(&mut self, slot: &Slot, first: u64, count: u64) {
        if slot.losses != self.losses {
            return;
        }
        self.versions += 1;
        let tag = (self.part.client as u64 + 1) << 32 | self.versions;
        let bytes = cells_of(self.part.seed, tag, count);
        let action = Action::Write { handle: slot.handle, first, count, tag };
        let offset = first * CELL_BYTES as u64;
        self.done(action, async |c| c.write(slot.file_id, offset, &bytes).await).await;
    }

    async fn query(&mut self, slot: &Slot) {
        if slot.losses != self.losses {
            return;
        }
        let action = Action::Query { handle: slot.handle };
        let file_id = slot.file_id;
        self.ask(
            action,
            async |c| c.query(file_id).await,
            |all| Outcome::Facts(Facts { file: all.file_number, size: all.size, time: all.creation_time }),
        )
        .await;
    }

    async fn rename(&mut self, slot: &Slot, to: usize, replace: bool) {
        if slot.losses != self.losses {
            return;
        }
        let action = Action::Rename { handle: slot.handle, to: name_of(to).into(), replace };
        let (path, file_id) = (self.path(name_of(to)), slot.file_id);
        self.done(action, async |c| c.rename(file_id, &path, replace).await).await;
    }

    async fn touch(&mut self, plan: OpenPlan) {
        let (request, handle) = self.open_request(&plan);
        let (call, answer, back) = self.timed(false, async |c| c.touch(&request).await).await;
        match answer {
            Ok((created, closed)) => {
                self.note(call, back, action_of(&plan), Outcome::Opened(opened(handle, &created)));
                self.note(call, back, Action::Close { handle }, outcome(&closed, |()| Outcome::Done));
            }
            Err(failure) => self.note(call, back, action_of(&plan), failed(failure)),
        }
    }

    async fn look(&mut self, name: usize, reads: bool) {
        let access = AccessMask::READ_ATTRIBUTES;
        let plan = plain_open(name, if reads { access.with(AccessMask::READ_DATA) } else { access });
        let (request, handle) = self.open_request(&plan);
        let length = reads.then_some(CELLS_MAX as u32 * CELL_BYTES as u32);
        let (call, answer, back) = self.timed(false, async |c| c.look(&request, length).await).await;
        let looked = match answer {
            Ok(looked) => looked,
            Err(failure) => return self.note(call, back, action_of(&plan), failed(failure)),
        };
        let seed = self.part.seed;
        self.note(call, back, action_of(&plan), Outcome::Opened(opened(handle, &looked.created)));
        let facts = outcome(&looked.information, |all| {
            Outcome::Facts(Facts { file: all.file_number, size: all.size, time: all.creation_time })
        });
        self.note(call, back, Action::Query { handle }, facts);
        if let Some(content) = &looked.content {
            let cells = outcome(content, |bytes| Outcome::Cells(read_cells(seed, bytes)));
            self.note(call, back, Action::Read { handle, first: 0, count: CELLS_MAX }, cells);
        }
        self.note(call, back, Action::Close { handle }, outcome(&looked.closed, |()| Outcome::Done));
    }

    async fn list(&mut self) {
        let request = OpenRequest {
            path: self.part.folder.clone(),
            access: AccessMask::READ_DATA.with(AccessMask::READ_ATTRIBUTES),
            share: SHARE_ALL,
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::DIRECTORY_FILE,
            caching: Caching::None,
        };
        self.ask(
            Action::List,
            async |c| c.list(&request).await,
            |entries| {
                let entry = |entry: &crate::client::ListedEntry| Listed {
                    name: entry.name.clone(),
                    facts: Facts { file: entry.file_number, size: entry.size, time: entry.creation_time },
                };
                Outcome::Listed(entries.iter().map(entry).collect())
            },
        )
        .await;
    }

    async fn empty(&mut self, slot: usize) {
        if let Some(open) = self.slots.get_mut(slot).and_then(Option::take) {
            self.close(open).await;
        }
    }

    fn put(&mut self, slot: usize, opened: Option<Slot>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = opened;
        }
    }

    async fn done(&mut self, action: Action, work: impl AsyncFnOnce(&Connection) -> Answer<()>) -> bool {
        self.ask(action, work, |()| Outcome::Done).await.is_some()
    }

    async fn ask<T>(
        &mut self,
        action: Action,
        work: impl AsyncFnOnce(&Connection) -> Answer<T>,
        tell: impl FnOnce(&T) -> Outcome,
    ) -> Option<T> {
        let (call, answer, back) = self.timed(action.handle().is_some(), work).await;
        self.note(call, back, action, outcome(&answer, tell));
        answer.ok()
    }

    /// Does something on a connection, and on the one of its open if it is on one.
    async fn timed<T>(
        &mut self,
        is_on_open: bool,
        work: impl AsyncFnOnce(&Connection) -> Answer<T>,
    ) -> (Time, Answer<T>, Time) {
        let losses = self.losses;
        let connection = self.connected().await;
        let Some(connection) = connection.filter(|_| !is_on_open || self.losses == losses) else {
            let now = self.now();
            return (now, Err(Failure::Lost), now);
        };
        let call = self.now();
        let answer = work(&connection).await;
        let back = self.now();
        if answer.as_ref().err() == Some(&Failure::Lost) {
            self.lose(call);
        }
        (call, answer, back)
    }

    /// All opens have gone with the connection; when the server notices is not known.
    fn lose(&mut self, call: Time) {
        self.gather_breaks();
        self.connection = None;
        self.losses += 1;
        let back = self.now();
        for slot in 0..SLOTS {
            if let Some(open) = self.slots.get_mut(slot).and_then(Option::take) {
                self.note(call, back, Action::Close { handle: open.handle }, Outcome::Lost);
            }
        }
    }

    async fn connected(&mut self) -> Option<Arc<Connection>> {
        if self.connection.as_ref().is_some_and(|connection| connection.is_lost()) {
            let now = self.now();
            self.lose(now);
        }
        let deadline = Instant::now() + RECONNECT_LIMIT;
        while self.connection.is_none() && Instant::now() < deadline {
            match Connection::log_on(&self.part.settings).await {
                Ok(connection) => self.connection = Some(Arc::new(connection)),
                Err(_) => tokio::time::sleep(RECONNECT_PAUSE).await,
            }
        }
        self.connection.clone()
    }

    fn gather_breaks(&mut self) {
        let Some(connection) = &self.connection else { return };
        for seen in connection.take_breaks() {
            let handle = match seen.key {
                CacheKey::Lease(key) => handle_of(self.part.seed, key),
                CacheKey::Oplock(file_id) => self.oplocks.get(&file_id).copied(),
            };
            // One of a seed before this one, on the same connection, is of no interest any more.
            if let Some(handle) = handle {
                let at = seen.at.saturating_duration_since(self.part.epoch).as_micros() as Time;
                self.breaks.push(Break { handle, left: seen.left.0, at });
            }
        }
    }

    fn note(&mut self, call: Time, back: Time, action: Action, outcome: Outcome) {
        self.events.push(Event { client: self.part.client, call, back, action, outcome });
    }

    fn now(&self) -> Time {
        self.part.epoch.elapsed().as_micros() as Time
    }

    fn new_time(&mut self) -> u64 {
        self.versions += 1;
        TIME_FIRST + self.part.client as u64 * TIME_OF_CLIENT + self.versions * TIME_STEP
    }

    fn path(&self, name: &str) -> String {
        format!("{}\\{name}", self.part.folder)
    }
}

fn plain_open(name: usize, access: AccessMask) -> OpenPlan {
    OpenPlan {
        name,
        access,
        share: SHARE_ALL,
        disposition: CreateDisposition::OPEN,
        delete_on_close: false,
        caching: CachingPlan::None,
        acknowledge_after: Duration::ZERO,
    }
}

fn writing() -> AccessMask {
    AccessMask::READ_DATA.with(AccessMask::WRITE_DATA).with(AccessMask::READ_ATTRIBUTES)
}

fn deleting() -> AccessMask {
    AccessMask::DELETE.with(AccessMask::READ_ATTRIBUTES)
}

fn name_of(number: usize) -> &'static str {
    NAMES.get(number).copied().unwrap_or(NAMES[0])
}

fn action_of(plan: &OpenPlan) -> Action {
    // The judge knows what the generic bits mean for a file.
    let access = match plan.access.contains(AccessMask::GENERIC_READ) {
        true => plan.access.without(AccessMask::GENERIC_READ).with(AccessMask::READ_DATA),
        false => plan.access,
    };
    Action::Open {
        name: name_of(plan.name).into(),
        access: access.0,
        share: plan.share.0,
        disposition: plan.disposition.0,
        delete_on_close: plan.delete_on_close,
    }
}

fn range(first: u64, count: u64, is_exclusive: bool) -> RangeLock {
    RangeLock { offset: first * CELL_BYTES as u64, length: count * CELL_BYTES as u64, is_exclusive }
}

fn cache_key(request: &OpenRequest) -> Option<CacheKey> {
    match request.caching {
        Caching::Lease { key, .. } => Some(CacheKey::Lease(key)),
        Caching::None | Caching::Oplock(_) => None,
    }
}

fn lease_key(seed: u64, handle: Handle) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(seed + 1).to_le_bytes());
    key[8..].copy_from_slice(&(handle as u64).to_le_bytes());
    key
}

fn handle_of(seed: u64, key: [u8; 16]) -> Option<Handle> {
    let (of_seed, of_handle) = key.split_at(8);
    let is_own = of_seed == (seed + 1).to_le_bytes();
    of_handle.first_chunk().map(|bytes| u64::from_le_bytes(*bytes) as Handle).filter(|_| is_own)
}

fn opened(handle: Handle, created: &Created) -> Opened {
    let action = match created.action {
        CreateAction::CREATED => OpenAction::Created,
        CreateAction::OPENED => OpenAction::Opened,
        _ => OpenAction::Overwritten,
    };
    let facts = Facts { file: created.file_number, size: created.size, time: created.creation_time };
    Opened { handle, facts, action, caching: created.granted.state.0 }
}

fn outcome<T>(answer: &Answer<T>, tell: impl FnOnce(&T) -> Outcome) -> Outcome {
    answer.as_ref().map_or_else(|failure| failed(*failure), tell)
}

fn failed(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused(status) => Outcome::Refused(status.0),
        Failure::Lost => Outcome::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_key_leads_back_to_its_open() {
        assert_eq!(handle_of(4, lease_key(4, 77)), Some(77));
        assert_eq!(handle_of(5, lease_key(4, 77)), None);
    }
}
