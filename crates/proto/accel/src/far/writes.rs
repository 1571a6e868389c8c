//! WRITEs that the client has its answer to before the server has them. The server gets everything else of the client only
//! when these are done, so that nobody finds out that they took their time.

use super::leg::Owner;
use super::{Far, Job};
use crate::limits::{BREAK_MICROS, PENDING_MAX};
use crate::message::{file_id_of, header, is_single, refuse};
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
    /// Those that the server has, by the client's message identifier: open, offset, length.
    pending: HashMap<u64, (FileId, u64, u32)>,
    /// What the client sent after them.
    waiting: VecDeque<(Carriage, Vec<u8>, bool)>,
    /// Opens with a WRITE that failed, until the client has been told.
    failed: HashMap<FileId, Status>,
}

impl Writes {
    fn overlaps(&self, file_id: FileId, offset: u64, length: u32) -> bool {
        self.pending.values().any(|(id, at, len)| {
            *id == file_id
                && *at < offset.saturating_add(length.into())
                && offset < at.saturating_add((*len).into())
        })
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
        if let Some((message_id, file_id, offset, length)) = self.announced(message) {
            let writes = &mut self.writes;
            if writes.waiting.is_empty() && !writes.overlaps(file_id, offset, length) {
                self.write_behind(carriage, message.to_vec(), (message_id, file_id, offset, length), out);
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
    fn announced(&self, message: &[u8]) -> Option<(u64, FileId, u64, u32)> {
        let message_id = header(message).message_id();
        let is_write = header(message).command() == Command::WRITE && is_single(message);
        if !is_write || !self.writes.announced.contains(&message_id) {
            return None;
        }
        let view = WriteRequest::parse(message).ok()?;
        Some((message_id, view.file_id(), view.offset(), view.length()))
    }

    fn write_behind(
        &mut self,
        carriage: Carriage,
        message: Vec<u8>,
        write: (u64, FileId, u64, u32),
        out: &mut Out,
    ) {
        let (message_id, file_id, offset, length) = write;
        self.writes.announced.remove(&message_id);
        let broken = self.opens.get(file_id).and_then(|open| open.broken);
        if broken.is_some_and(|at| self.now.saturating_sub(at) > BREAK_MICROS) {
            // By now the server lets others write.
            return self.lose(message_id, file_id, Status::INTERNAL_ERROR, out);
        }
        self.opens.note_write(file_id);
        self.writes.pending.insert(message_id, (file_id, offset, length));
        self.leg.send_own(carriage, message, vec![Owner::Engine(Job::Write(message_id))], out);
    }

    /// The server has done it, or not.
    pub(super) fn written(&mut self, message_id: u64, response: &[u8], out: &mut Out) {
        let Some((file_id, _, length)) = self.writes.pending.remove(&message_id) else { return };
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
        self.writes.failed.entry(file_id).or_insert(status);
        self.tell(ToNear::Written { message_id, file_id, good: false }, out);
    }

    /// What waited goes on, in its order.
    fn go_on(&mut self, out: &mut Out) {
        while let Some((carriage, message, quiet)) = self.writes.waiting.pop_front() {
            if let Some(write) = self.announced(&message) {
                if self.writes.overlaps(write.1, write.2, write.3) {
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
