//! Folders whose changes the server tells of: what is known of them holds while nothing is told.

use super::others::Shown;
use super::{Far, Job, dfs_of};
use crate::create::lease_of;
use crate::far::folders::FolderKey;
use crate::limits::{QUERIES_TO_WAKE, RECENT_MICROS, WATCH_MICROS, WATCHES_MAX};
use crate::message::{close, folded, header, join_name, request, split_name};
use crate::told::ToNear;
use crate::{Carriage, Out};
use isthmus_smb_wire::build::{self, NewContext};
use isthmus_smb_wire::create_context::name;
use isthmus_smb_wire::fscc::Changes;
use isthmus_smb_wire::messages::{
    AccessMask, ChangeNotifyResponse, CreateDisposition, CreateOptions, CreateResponse, FileAttributes,
    OplockLevel, ShareAccess,
};
use isthmus_smb_wire::{FileId, Name, Status};
use std::collections::{BTreeMap, HashMap};

/// All changes but those of the time of the last access.
const FILTER: u32 = 0xfdf;
/// Bytes for a notification.
const NOTIFICATION_BYTES: u32 = 16 << 10;

enum State {
    Opening,
    /// The server has the request, but has not said so.
    Arming,
    Armed,
}

/// A watched folder.
struct Watch {
    folder: FolderKey,
    carriage: Carriage,
    own: [u8; 16],
    state: State,
    file_id: Option<FileId>,
    used: u64,
    /// Changes that it has told of.
    fired: u64,
}

/// A watch that holds, and how often it has told of changes.
pub(crate) type Armed = (u32, u64);

/// All watches of a connection.
#[derive(Default)]
pub(crate) struct Watches {
    next: u32,
    list: BTreeMap<u32, Watch>,
    by_folder: HashMap<FolderKey, u32>,
    /// Folders that cannot be watched.
    refused: Vec<FolderKey>,
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        let gone = |key: &FolderKey| key.0 == session && tree.is_none_or(|tree| key.1 == tree);
        self.list.retain(|_, watch| !gone(&watch.folder));
        self.by_folder.retain(|key, _| !gone(key));
        self.refused.retain(|key| !gone(key));
    }

    pub fn under(&self, own: &[u8; 16]) -> Option<u32> {
        self.list.iter().find(|(_, watch)| watch.own == *own).map(|(id, _)| *id)
    }
}

impl Far {
    /// Watches folders that a client goes through.
    pub(super) fn work_on_watches(&mut self, out: &mut Out) {
        let wanted: Vec<(FolderKey, Vec<u8>, Carriage, Vec<u8>)> = self
            .folders
            .keys()
            .take(4)
            .filter_map(|key| {
                let folder = self.folders.get(key)?;
                let awake = folder.is_walked() || folder.queries >= QUERIES_TO_WAKE;
                let pattern = folder.pattern.as_ref().map(|pattern| (pattern.carriage, &pattern.request));
                let query = folder.query_pattern.as_ref().map(|(carriage, request)| (*carriage, request));
                let (carriage, request) = pattern.or(query)?;
                awake.then(|| (key.clone(), folder.name.clone(), carriage, request.clone()))
            })
            .collect();
        for (key, name, carriage, like) in wanted {
            self.begin_watch(&key, &name, carriage, &like, out);
        }
        for (key, name, carriage) in std::mem::take(&mut self.wanted) {
            self.begin_watch(&key, &name, carriage, &[], out);
        }
    }

    /// Wants a folder watched.
    pub(super) fn want_watch(&mut self, key: &FolderKey, name: &[u8], carriage: Carriage) {
        if !self.watches.by_folder.contains_key(key) && self.wanted.len() < WATCHES_MAX {
            self.wanted.push((key.clone(), name.to_vec(), carriage));
        }
    }

    fn begin_watch(
        &mut self,
        key: &FolderKey,
        folder: &[u8],
        carriage: Carriage,
        like: &[u8],
        out: &mut Out,
    ) {
        let known = self.watches.by_folder.contains_key(key) || self.watches.refused.contains(key);
        if !self.rights((key.0, key.1), &key.2).ahead() {
            return;
        }
        if known || !self.may_send(2) {
            return;
        }
        if self.watches.list.len() >= WATCHES_MAX {
            // Where the client is at work, the longest unused one makes way.
            let oldest = self.watches.list.iter().min_by_key(|(_, watch)| watch.used).map(|(id, _)| *id);
            match oldest.filter(|_| !like.is_empty()) {
                Some(oldest) => self.end_watch(oldest, out),
                None => return,
            }
        }
        let own = self.lease_key();
        let data = build::lease_v2(own, crate::create::READ_HANDLE, None, 0);
        let contexts = [NewContext { name: name::LEASE, data: &data }];
        let body = build::Create {
            oplock_level: if self.leases { OplockLevel::LEASE } else { OplockLevel::NONE },
            desired_access: AccessMask::READ_DATA.with(AccessMask::READ_ATTRIBUTES),
            file_attributes: FileAttributes(0),
            share_access: ShareAccess::READ.with(ShareAccess::WRITE).with(ShareAccess::DELETE),
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::DIRECTORY_FILE,
            name: Name::new(folder),
            contexts: if self.leases { &contexts } else { &[] },
        };
        let Some(mut message) = request(key.0, key.1, 1, &body) else { return };
        let mut header = super::opens::header_mut(&mut message);
        header.set_flags(header.flags().with(dfs_of(like)));
        let id = self.watches.next;
        self.watches.next = self.watches.next.wrapping_add(1);
        let watch = Watch {
            folder: key.clone(),
            carriage,
            own,
            state: State::Opening,
            file_id: None,
            used: self.now,
            fired: 0,
        };
        self.watches.list.insert(id, watch);
        self.watches.by_folder.insert(key.clone(), id);
        self.send_job(carriage, message, Job::WatchOpen(id, key.1), out);
    }

    /// The folder is open.
    pub(super) fn watch_opened(&mut self, id: u32, tree: u32, response: &[u8], out: &mut Out) {
        let view = CreateResponse::parse(response).ok();
        let view = view.filter(|view| view.header().status() == Status::SUCCESS);
        let Some(watch) = self.watches.list.get_mut(&id) else {
            if let Some(view) = view {
                self.close_own(response, tree, view.file_id(), out);
            }
            return;
        };
        let Some(view) = view else {
            let key = watch.folder.clone();
            self.drop_watch(id);
            if self.watches.refused.len() < WATCHES_MAX {
                self.watches.refused.push(key);
            }
            return;
        };
        watch.file_id = Some(view.file_id());
        let place = (watch.folder.0, watch.folder.1);
        if lease_of(response).is_some_and(|lease| lease.state.contains(crate::create::READ_HANDLE)) {
            self.shares.tells(place, Shown::Likely);
        }
        self.arm(id, out);
    }

    fn arm(&mut self, id: u32, out: &mut Out) {
        let Some(watch) = self.watches.list.get_mut(&id) else { return };
        watch.state = State::Arming;
        let body = build::ChangeNotify {
            watch_tree: false,
            output_buffer_length: NOTIFICATION_BYTES,
            file_id: watch.file_id,
            completion_filter: FILTER,
        };
        let (session, tree, carriage) = (watch.folder.0, watch.folder.1, watch.carriage);
        if let Some(message) = request(session, tree, 1, &body) {
            self.send_job(carriage, message, Job::Watch(id), out);
        }
    }

    /// The server waits for a change: from now on what it says holds until it tells of one.
    pub(super) fn watch_armed(&mut self, id: u32) {
        if let Some(watch) = self.watches.list.get_mut(&id) {
            watch.state = State::Armed;
        }
    }

    /// There was a change, or there will be none told any more.
    pub(super) fn watch_fired(&mut self, id: u32, response: &[u8], out: &mut Out) {
        let Some(watch) = self.watches.list.get_mut(&id) else { return };
        let key = watch.folder.clone();
        watch.fired += 1;
        self.counts.breaks += 1;
        self.tell(ToNear::Unwatch(id), out);
        // What the server has said before may come after this.
        self.drop_queries(id);
        let good = matches!(header(response).status(), Status::SUCCESS | Status::NOTIFY_ENUM_DIR);
        let view = ChangeNotifyResponse::parse(response).ok();
        let names: Option<Vec<Vec<u8>>> = view
            .as_ref()
            .filter(|view| view.header().status() == Status::SUCCESS && !view.buffer().is_empty())
            .and_then(|view| {
                Changes::new(view.buffer())
                    .map(|change| change.ok().map(|change| change.name.as_bytes().to_vec()))
                    .collect()
            });
        if good {
            self.arm(id, out);
        } else {
            self.end_watch(id, out);
        }
        self.changed_in(&key, names, out);
    }

    /// What is known of names in a folder is given up; of all without names.
    fn changed_in(&mut self, key: &FolderKey, names: Option<Vec<Vec<u8>>>, out: &mut Out) {
        let Some(folder) = self.folders.get_mut(key) else { return };
        let name = folder.name.clone();
        let others = self.now.saturating_add(RECENT_MICROS);
        let mut gone = Vec::new();
        match names {
            Some(names) => {
                for one in names {
                    let not_before =
                        if self.changes.knows(&folded(&join_name(&name, &one))) { 0 } else { others };
                    if let Some(index) = folder.index_of(&one)
                        && let Some(entry) = folder.entries.get_mut(index)
                    {
                        entry.queried = true;
                        entry.not_before = entry.not_before.max(not_before);
                    }
                    gone.push(folded(&join_name(&name, &one)));
                }
            }
            None => gone.push(folded(&name)),
        }
        // What the near engine has dropped is asked for again only if the client goes on with it.
        folder.forget_queries();
        for one in gone {
            let (session, tree) = (key.0, key.1);
            let here = |offer: &super::offers::Offer| {
                offer.session == session
                    && offer.tree == tree
                    && (offer.folded == one || crate::message::is_below(&offer.folded, &one))
            };
            self.withdraw_where(here, out);
            // Attributes that came with an open are not what they were.
            for id in self.opens.named(tree, &one, false) {
                self.tell(ToNear::Purge(id), out);
            }
            // The attributes of a folder in the folder are not what they were.
            let key = (session, tree, one);
            if let Some(id) = self.watches.by_folder.get(&key).copied() {
                self.tell(ToNear::Unwatch(id), out);
                self.drop_queries(id);
                if let Some(folder) = self.folders.get_mut(&key) {
                    folder.forget_queries();
                }
            }
        }
    }

    /// The watch of a folder, if it holds.
    pub(super) fn armed(&self, key: &FolderKey) -> Option<u32> {
        let id = *self.watches.by_folder.get(key)?;
        self.is_armed(id).then_some(id)
    }

    /// The watch of the folder that a folded name is in, if it holds.
    pub(super) fn watch_above(&self, session: u64, tree: u32, name: &[u8]) -> Option<Armed> {
        let id = self.armed(&(session, tree, split_name(name).0.to_vec()))?;
        Some((id, self.watches.list.get(&id)?.fired))
    }

    /// The client has opened or asked about something in a folder.
    pub(super) fn use_watch(&mut self, key: &FolderKey) {
        let now = self.now;
        if let Some(watch) = self.watches.by_folder.get(key).and_then(|id| self.watches.list.get_mut(id)) {
            watch.used = now;
        }
    }

    pub(super) fn is_armed(&self, id: u32) -> bool {
        self.watches.list.get(&id).is_some_and(|watch| matches!(watch.state, State::Armed))
    }

    pub(super) fn is_watched(&self, key: &FolderKey) -> bool {
        self.armed(key).is_some()
    }

    /// Gives watches up.
    pub(super) fn unwatch_where(&mut self, gone: impl Fn(&[u8]) -> bool, out: &mut Out) {
        let list: Vec<u32> =
            self.watches.list.iter().filter(|(_, watch)| gone(&watch.folder.2)).map(|(id, _)| *id).collect();
        list.into_iter().for_each(|id| self.end_watch(id, out));
    }

    pub(super) fn end_watch(&mut self, id: u32, out: &mut Out) {
        let Some(watch) = self.drop_watch(id) else { return };
        self.tell(ToNear::Unwatch(id), out);
        self.drop_queries(id);
        self.withdraw_where(|offer| offer.folder == watch.folder, out);
        // What came with an open was good while the folder was watched.
        for open in self.opens.named(watch.folder.1, &watch.folder.2, true) {
            self.tell(ToNear::Purge(open), out);
        }
        if let Some(message) =
            watch.file_id.and_then(|file_id| close(watch.folder.0, watch.folder.1, file_id))
        {
            self.send_job(watch.carriage, message, Job::Done, out);
        }
    }

    fn drop_watch(&mut self, id: u32) -> Option<Watch> {
        let watch = self.watches.list.remove(&id)?;
        self.watches.by_folder.remove(&watch.folder);
        Some(watch)
    }

    pub(super) fn expire_watches(&mut self, out: &mut Out) {
        let now = self.now;
        let old: Vec<u32> = self
            .watches
            .list
            .iter()
            .filter(|(_, watch)| now.saturating_sub(watch.used) > WATCH_MICROS)
            .map(|(id, _)| *id)
            .collect();
        for id in old {
            if let Some(watch) = self.watches.list.get(&id)
                && let Some(folder) = self.folders.get_mut(&watch.folder.clone())
            {
                (folder.opens, folder.queries) = (0, 0);
            }
            self.end_watch(id, out);
        }
    }
}
