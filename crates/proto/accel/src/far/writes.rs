//! WRITEs that the client has its answer to before the server has them. The server gets everything else of the client only
//! when these are done, so that nobody finds out that they took their time.

use super::leg::Owner;
use super::{Far, Job};
use crate::limits::{BREAK_MICROS, PENDING_MAX};
use crate::message::{FileName, file_id_of, folded, header, is_single, refuse};
use crate::told::ToNear;
use crate::{Carriage, Out};
use isthmus_smb_wire::messages::{WriteRequest, WriteResponse};
use isthmus_smb_wire::{Command, FileId, Status};
use std::collections::{HashMap, HashSet, VecDeque};

/// WRITEs of a connection that are answered before they are done.
#[derive(Default)]
pub(crate) struct Writes {
    /// Message identifiers of those that come next.
    announced: HashSet<u64>,
    /// Those that the server has, by the client's message identifier.
    pending: HashMap<u64, Write>,
    /// WRITEs of any kind that are not done, by the client's message identifier: folded name, and their count among the
    /// changes.
    begun: HashMap<u64, (FileName, u64)>,
    /// What the client sent after them.
    waiting: VecDeque<(Carriage, Vec<u8>, bool)>,
    /// Opens with a WRITE that failed, until the client has been told.
    failed: HashMap<FileId, Status>,
}

/// A WRITE that is answered before it is done.
struct Write {
    file_id: FileId,
    /// Folded: a client may write to a file through several opens.
    name: FileName,
    offset: u64,
    length: u32,
}

impl Write {
    fn overlaps(&self, other: &Write) -> bool {
        (self.file_id == other.file_id || self.name == other.name)
            && self.offset < other.offset.saturating_add(other.length.into())
            && other.offset < self.offset.saturating_add(self.length.into())
    }
}

impl Writes {
    fn overlaps(&self, write: &Write) -> bool {
        self.pending.values().any(|other| other.overlaps(write))
    }

    /// A WRITE of the client comes; false if there are too many to know.
    pub fn begin(&mut self, message_id: u64, name: &[u8], count: u64) -> bool {
        let has_room = self.begun.len() < PENDING_MAX;
        if has_room {
            self.begun.insert(message_id, (name.to_vec(), count));
        }
        has_room
    }

    /// A request has its answer.
    pub fn end(&mut self, message_id: u64) {
        self.begun.remove(&message_id);
    }

    /// The count of changes that a file has seen for certain, if not all there were.
    pub fn seen(&self, name: &[u8]) -> Option<u64> {
        self.begun.values().filter(|(of, _)| of == name).map(|(_, count)| count - 1).min()
    }
}

impl Far {
    /// The near engine answers the WRITE that follows.
    pub(super) fn announce_write(&mut self, message_id: u64) {
        if self.writes.announced.len() < PENDING_MAX {
            self.writes.announced.insert(message_id);
        }
    }

    /// Takes a request that is such a WRITE, or that has to wait for some. `quiet` is a request whose answer was given.
    pub(super) fn in_turn(&mut self, carriage: Carriage, message: &[u8], quiet: bool, out: &mut Out) -> bool {
        let writes = &mut self.writes;
        if writes.pending.is_empty() && writes.waiting.is_empty() && writes.announced.is_empty() {
            return false;
        }
        let may_wait = writes.waiting.len() < PENDING_MAX;
        if let Some(write) = self.announced(message) {
            if self.writes.waiting.is_empty() && !self.writes.overlaps(&write) {
                self.write_behind(carriage, message.to_vec(), write, out);
                return true;
            }
        } else if self.writes.pending.is_empty() && self.writes.waiting.is_empty() {
            return false;
        }
        if may_wait {
            self.writes.waiting.push_back((carriage, message.to_vec(), quiet));
        }
        may_wait
    }

    /// The WRITE that the near engine has announced.
    fn announced(&self, message: &[u8]) -> Option<Write> {
        let message_id = header(message).message_id();
        let is_write = header(message).command() == Command::WRITE && is_single(message);
        if !is_write || !self.writes.announced.contains(&message_id) {
            return None;
        }
        let view = WriteRequest::parse(message).ok()?;
        let file_id = view.file_id();
        let name = self.opens.name_of(file_id).map(|name| folded(&name)).unwrap_or_default();
        Some(Write { file_id, name, offset: view.offset(), length: view.length() })
    }

    fn write_behind(&mut self, carriage: Carriage, message: Vec<u8>, write: Write, out: &mut Out) {
        let (message_id, file_id) = (header(&message).message_id(), write.file_id);
        self.writes.announced.remove(&message_id);
        let broken = self.opens.get(file_id).and_then(|open| open.broken);
        if broken.is_some_and(|at| self.now.saturating_sub(at) > BREAK_MICROS) {
            // By now the server lets others write.
            return self.lose(message_id, file_id, Status::INTERNAL_ERROR, out);
        }
        self.opens.note_write(file_id);
        self.writes.pending.insert(message_id, write);
        self.leg.send_own(carriage, message, vec![Owner::Engine(Job::Write(message_id))], out);
    }

    /// The server has done it, or not.
    pub(super) fn written(&mut self, message_id: u64, response: &[u8], out: &mut Out) {
        let Some(Write { file_id, length, .. }) = self.writes.pending.remove(&message_id) else { return };
        self.writes.end(message_id);
        let status = header(response).status();
        let whole = WriteResponse::parse(response).is_ok_and(|view| view.count() == length);
        if status == Status::SUCCESS && whole {
            self.tell(ToNear::Written { message_id, file_id, good: true }, out);
        } else {
            let status = if status.is_error() { status } else { Status::DISK_FULL };
            self.lose(message_id, file_id, status, out);
        }
        self.go_on(out);
    }

    /// A WRITE is not done that the client takes for done: it is told with what it asks next of the open.
    fn lose(&mut self, message_id: u64, file_id: FileId, status: Status, out: &mut Out) {
        self.counts.lost_writes += 1;
        self.writes.end(message_id);
        self.writes.failed.entry(file_id).or_insert(status);
        self.tell(ToNear::Written { message_id, file_id, good: false }, out);
    }

    /// What waited goes on, in its order.
    fn go_on(&mut self, out: &mut Out) {
        while let Some((carriage, message, quiet)) = self.writes.waiting.pop_front() {
            if let Some(write) = self.announced(&message) {
                if self.writes.overlaps(&write) {
                    self.writes.waiting.push_front((carriage, message, quiet));
                    return;
                }
                self.write_behind(carriage, message, write, out);
                continue;
            }
            if !self.writes.pending.is_empty() {
                self.writes.waiting.push_front((carriage, message, quiet));
                return;
            }
            if quiet {
                self.send_quiet(carriage, message, out);
            } else {
                self.deal(carriage, message, out);
            }
        }
    }

    /// A request to an open of which a WRITE has failed that was answered already: the client is told now.
    pub(super) fn report_failure(&mut self, carriage: Carriage, message: &[u8], out: &mut Out) -> bool {
        let command = header(message).command();
        if self.writes.failed.is_empty()
            || !matches!(command, Command::WRITE | Command::FLUSH | Command::CLOSE)
        {
            return false;
        }
        let Some(id) = file_id_of(message) else { return false };
        let Some(status) = self.writes.failed.remove(&id) else { return false };
        if command == Command::CLOSE {
            self.forget_open(id, out);
            self.leg.send_own(carriage, message.to_vec(), vec![Owner::Nobody], out);
        }
        self.answer_here(carriage, refuse(message, status), out);
        true
    }
}
