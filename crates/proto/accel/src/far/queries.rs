//! Queries by name (CREATE, QUERY_INFO, CLOSE in one compound), made ahead for the other names of a watched folder.

use super::leg::Owner;
use super::{Far, Job};
use crate::create::{compound_like, key_of};
use crate::far::folders::FolderKey;
use crate::limits::{PENDING_MAX, QUERIES_AT_ONCE};
use crate::message::{Key, create_modifies, element, elements, folded, header, place, split_name};
use crate::told::ToNear;
use crate::{Carriage, Out, Wan};
use bytes::Bytes;
use isthmus_smb_wire::compound;
use isthmus_smb_wire::messages::CreateRequest;
use isthmus_smb_wire::{Command, Status};
use std::collections::HashMap;

/// A compound of the client whose response the near engine may keep.
pub(crate) struct Keeping {
    watch: u32,
    tag: u64,
}

/// Compounds that the server has.
#[derive(Default)]
pub(crate) struct Queries {
    list: HashMap<u64, Query>,
}

struct Query {
    key: Key,
    watch: u32,
    tag: u64,
    parts: Vec<Bytes>,
    /// Elements that are still to come.
    missing: usize,
    failed: bool,
}

impl Far {
    /// A compound of the client: perhaps a query by name.
    pub(super) fn note_query_compound(&mut self, carriage: Carriage, message: &[u8], out: &mut Out) {
        let Some(name) = queried_name(message).filter(|_| self.is_active()) else { return };
        let (session, tree) = place(message);
        let (parent, last) = split_name(&name);
        let own = (session, tree, folded(&name));
        let parent_key = (session, tree, folded(parent));
        self.use_watch(&parent_key);
        self.use_watch(&own);
        self.last_query = Some((carriage, message.to_vec()));
        if let Some(folder) = self.folders.get_mut(&parent_key) {
            folder.queries += 1;
            if let Some(index) = folder.index_of(last)
                && let Some(entry) = folder.entries.get_mut(index)
            {
                entry.queried = true;
            }
            folder.query_pattern = Some((carriage, message.to_vec()));
        }
        if name.is_empty() || !self.rights((session, tree), &own.2).bounded() {
            return;
        }
        // A folder's own attributes change with what is in it, and with what is done to it in the folder above.
        let watch = if self.folders.get(&own).is_some() {
            self.want_watch(&parent_key, parent, carriage);
            let above = self.armed(&parent_key);
            self.armed(&own).filter(|_| above.is_some())
        } else {
            self.armed(&parent_key)
        };
        if let Some(watch) = watch
            && self.keeping.len() < PENDING_MAX
        {
            if let Some(folder) = self.folders.get_mut(&own) {
                folder.own_queried = true;
            }
            let keeping = Keeping { watch, tag: self.changes.now() };
            self.keeping.insert(header(message).message_id(), keeping);
        }
        let _ = out;
    }

    /// The response to such a compound passes to the client.
    pub(super) fn keep(&mut self, message_id: u64, message: &[u8], out: &mut Out) {
        let Some(Keeping { watch, tag }) = self.keeping.remove(&message_id) else { return };
        let good = elements(message).is_some_and(|ranges| {
            ranges.len() == 3
                && ranges.iter().all(|range| header(element(message, range)).status() == Status::SUCCESS)
        });
        if good && self.is_armed(watch) {
            let told = ToNear::Keep { message_id, watch, tag }.told(Bytes::new());
            out.after.push(Wan::Told(told));
        }
    }

    /// What was asked for under a watch is not to be kept.
    pub(super) fn drop_queries(&mut self, watch: u32) {
        self.keeping.retain(|_, keeping| keeping.watch != watch);
        for query in self.queries.list.values_mut().filter(|query| query.watch == watch) {
            query.failed = true;
        }
    }

    /// Asks for what is not known yet in folders that the client goes through.
    pub(super) fn work_on_queries(&mut self, out: &mut Out) {
        let keys: Vec<FolderKey> = self.folders.keys().take(4).cloned().collect();
        for key in keys {
            while self.queries.list.len() < QUERIES_AT_ONCE && self.may_send(3) {
                if !self.query_next(&key, out) {
                    break;
                }
            }
        }
    }

    fn query_next(&mut self, key: &FolderKey, out: &mut Out) -> bool {
        let Some(watch) = self.armed(key) else { return false };
        let above = self.armed(&(key.0, key.1, folded(split_name(&key.2).0))).is_some();
        let last = self.last_query.as_ref().filter(|(_, request)| place(request) == (key.0, key.1)).cloned();
        let Some(folder) = self.folders.get_mut(key) else { return false };
        let Some((carriage, pattern)) = folder.query_pattern.clone().or(last) else { return false };
        let Some(name) = folder.next_query(above) else { return false };
        if !self.rights((key.0, key.1), &folded(&name)).ahead() {
            return true;
        }
        let Some(message) = compound_like(&pattern, &name) else { return false };
        let Some(request_key) = key_of(&message) else { return false };
        self.serial += 1;
        let serial = self.serial;
        let count = elements(&message).map_or(0, |ranges| ranges.len());
        let query = Query {
            key: request_key,
            watch,
            tag: self.changes.now(),
            parts: Vec::new(),
            missing: count,
            failed: false,
        };
        self.queries.list.insert(serial, query);
        let owners = (0..count)
            .map(|index| Owner::Engine(if index == 0 { Job::Query(serial) } else { Job::QueryRest(serial) }));
        self.counts.ahead += 1;
        self.leg.send_own(carriage, message, owners.collect(), out);
        true
    }

    /// An element of the response.
    pub(super) fn queried(&mut self, serial: u64, response: &Bytes, out: &mut Out) {
        let Some(query) = self.queries.list.get_mut(&serial) else { return };
        query.missing = query.missing.saturating_sub(1);
        query.failed |= header(response).status() != Status::SUCCESS;
        query.parts.push(response.clone());
        if query.missing > 0 {
            return;
        }
        let Some(query) = self.queries.list.remove(&serial) else { return };
        if query.failed || !self.is_armed(query.watch) {
            return;
        }
        if let Ok(whole) = compound::join(&query.parts) {
            let told = ToNear::Known { key: query.key, watch: query.watch, tag: query.tag };
            out.tell(told.told(Bytes::from(whole)));
        }
    }
}

/// The name that a compound of CREATE, QUERY_INFO and CLOSE asks about.
fn queried_name(message: &[u8]) -> Option<Vec<u8>> {
    let ranges = elements(message)?;
    let commands: Vec<Command> =
        ranges.iter().map(|range| header(element(message, range)).command()).collect();
    if commands != [Command::CREATE, Command::QUERY_INFO, Command::CLOSE] {
        return None;
    }
    let view = CreateRequest::parse(element(message, ranges.first()?)).ok()?;
    (!create_modifies(&view)).then(|| view.name_bytes().to_vec())
}
