//! Requests that are passed on, and what is remembered of them.

use super::{ANEW, Creating, Near, Pending};
use crate::create::{key_of, reads_a_file, reads_content};
use crate::limits::{PENDING_MAX, WAITING_MAX};
use crate::message::{closes_itself, create_alters, create_modifies, element, elements, file_id_of, header};
use crate::told::ToFar;
use crate::{Carriage, Out};
use isthmus_smb_wire::Command;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{CreateRequest, LeaseBreakAcknowledgement, QueryDirectoryRequest};

impl Near {
    /// Remembers what was passed on.
    pub(super) fn passed_on(&mut self, carriage: Carriage, message: &[u8], out: &mut Out) {
        let Some(ranges) = elements(message) else { return };
        let message_id = header(message).message_id();
        if ranges.len() > 1
            && self.asked.len() < PENDING_MAX
            && let Some(key) = key_of(message).filter(|_| self.greeted)
        {
            self.asked.insert(message_id, key);
        }
        for range in &ranges {
            let element = element(message, range);
            let head = header(element);
            self.trees.request(element);
            match head.command() {
                Command::CREATE => {
                    self.creates(element, closes_itself(message));
                    if ranges.len() == 1 && reads_a_file(element) {
                        self.wait_for(carriage, message);
                    }
                }
                Command::CLOSE => {
                    if let Some(id) = file_id_of(element) {
                        self.opens.close(id);
                    }
                }
                Command::WRITE | Command::SET_INFO | Command::LOCK | Command::IOCTL => {
                    if let Some(id) = file_id_of(element) {
                        self.opens.soil(id);
                    }
                }
                Command::OPLOCK_BREAK => {
                    if let Ok(view) = LeaseBreakAcknowledgement::parse(element)
                        && !view.lease_state().contains(LeaseState::READ_CACHING)
                    {
                        self.opens.purge_lease(view.lease_key());
                    }
                }
                Command::QUERY_DIRECTORY if self.greeted => {
                    self.pass_listing(element, out);
                    if ranges.len() == 1 {
                        self.wait_for(carriage, message);
                    }
                }
                Command::READ if ranges.len() == 1 => self.wait_for(carriage, message),
                Command::TREE_DISCONNECT | Command::LOGOFF => {
                    let tree = head.tree_id().filter(|_| head.command() == Command::TREE_DISCONNECT);
                    self.opens.leave(head.session_id(), tree);
                    self.give_up_all();
                    self.known.clear();
                }
                _ => {}
            }
        }
    }

    /// A CREATE is passed on, with its end if `closed`.
    fn creates(&mut self, element: &[u8], closed: bool) {
        let Ok(view) = CreateRequest::parse(element) else { return };
        if self.creating.len() < PENDING_MAX {
            let creating = Creating {
                name: view.name_bytes().to_vec(),
                reads: reads_content(&view),
                modifies: create_modifies(&view),
                alters: create_alters(&view),
                closed,
            };
            self.creating.insert(header(element).message_id(), creating);
        }
    }

    /// A QUERY_DIRECTORY is passed on: the far engine is to know how far the client's listing is.
    pub(super) fn pass_listing(&mut self, element: &[u8], out: &mut Out) {
        let Ok(view) = QueryDirectoryRequest::parse(element) else { return };
        let (file_id, message_id) = (view.file_id(), header(element).message_id());
        match key_of(element).filter(|_| !view.flags().intersects(ANEW)) {
            Some(key) => {
                let used = self.opens.pass_listing(file_id, message_id, key);
                if used > 0 {
                    out.tell(ToFar::Used { file_id, end: used }.told());
                }
            }
            None => self.opens.block(file_id, message_id),
        }
    }

    /// A request is passed on, and may be answered by what is on its way, also by what the far engine says right after its
    /// greeting.
    pub(super) fn wait_for(&mut self, carriage: Carriage, message: &[u8]) {
        if self.pending.len() + self.overtaken.len() < WAITING_MAX {
            let pending = Pending { carriage, request: message.to_vec() };
            self.pending.insert(header(message).message_id(), pending);
        }
    }
}
