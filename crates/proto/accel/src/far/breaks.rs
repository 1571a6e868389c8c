//! Breaks of leases and oplocks.

use super::{Far, Job};
use crate::limits::{BREAK_MICROS, BREAKS_MAX, SILENT_MICROS};
use crate::message::{header, request};
use crate::told::ToNear;
use crate::{Carriage, Fate, Lan, Out, Wan};
use bytes::BytesMut;
use isthmus_smb_wire::build;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::header::{HEADER_LEN, MESSAGE_ID_UNSOLICITED};
use isthmus_smb_wire::messages::{
    LeaseBreakAcknowledgement, LeaseBreakNotification, OplockBreakNotification,
};
use isthmus_smb_wire::{Command, FileId, HeaderFlags};

/// Epoch of the break of a lease that the engine has granted: one more than that of the grant, where the client began at 0.
const BROKEN_EPOCH: u16 = 2;

impl Far {
    /// What the server sends of its own accord.
    pub(super) fn unsolicited(&mut self, message: &mut BytesMut, out: &mut Out) -> Fate {
        if header(message).command() != Command::OPLOCK_BREAK {
            return Fate::Forward;
        }
        if let Ok(view) = LeaseBreakNotification::parse(&message[..]) {
            let (key, state, ack) = (view.lease_key(), view.new_lease_state(), view.ack_required());
            let fate = self.lease_broken(key, state, ack, message, out);
            match fate {
                Fate::Forward if ack && self.breaking.len() < BREAKS_MAX => {
                    self.breaking.insert(key, (self.now, state));
                }
                // The engine has acknowledged it, or closed what it was about.
                Fate::Consumed if ack => self.counts.break_waited(0),
                _ => {}
            }
            return fate;
        }
        if let Ok(view) = OplockBreakNotification::parse(&message[..]) {
            self.purge(view.file_id(), LeaseState::NONE, out);
        }
        Fate::Forward
    }

    fn lease_broken(
        &mut self,
        key: [u8; 16],
        state: LeaseState,
        ack: bool,
        message: &mut BytesMut,
        out: &mut Out,
    ) -> Fate {
        self.counts.breaks += 1;
        if let Some(id) = self.offers.under(&key) {
            // Closing the only handle is the answer to any break.
            self.withdraw(id, out);
            return Fate::Consumed;
        }
        if let Some(id) = self.watches.under(&key) {
            self.end_watch(id, out);
            return Fate::Consumed;
        }
        let opens = self.opens.under(&key);
        let now = self.now;
        for id in &opens {
            self.purge(*id, state, out);
            if let Some(open) = self.opens.get_mut(*id).filter(|_| ack) {
                open.broken.get_or_insert(now);
            }
        }
        if let Some(client) = self.opens.client_of(&key) {
            if let Ok(mut view) = LeaseBreakNotification::parse(&mut message[..]) {
                view.set_lease_key(client);
            }
            return Fate::Forward;
        }
        let own = opens.iter().any(|id| self.opens.get(*id).is_some_and(|open| open.own == Some(key)));
        if !own {
            return if self.is_own_key(&key) { Fate::Consumed } else { Fate::Forward };
        }
        if ack {
            self.acknowledge_own(key, state, &opens, out);
        }
        Fate::Consumed
    }

    /// Acknowledges a break of a lease that the client does not know of, or in the place of one that cannot be reached.
    fn acknowledge_own(&mut self, key: [u8; 16], state: LeaseState, opens: &[FileId], out: &mut Out) {
        let Some(open) = opens.first().and_then(|id| self.opens.get(*id)) else { return };
        let body = build::LeaseBreakAcknowledgement { lease_key: key, lease_state: state };
        let (session, tree) = (open.session, open.tree);
        let carriage = open.carriage;
        if let Some(message) = request(session, tree, 1, &body) {
            self.send_job(carriage, message, Job::Done, out);
        }
    }

    /// A lease whose break the client does not acknowledge is gone soon, and the server says no more of it.
    pub(super) fn expire_breaks(&mut self, out: &mut Out) {
        for id in self.opens.overdue(self.now) {
            self.purge(id, LeaseState::NONE, out);
        }
        // With its last open a lease is gone, and needs no acknowledgement.
        self.breaking.retain(|key, _| !self.opens.under(key).is_empty());
        let (now, heard) = (self.now, self.heard);
        let patience = if self.silent { SILENT_MICROS } else { BREAK_MICROS };
        let due = |at: u64| now.saturating_sub(at.max(heard)) > patience;
        let unheard: Vec<_> = self.breaking.extract_if(|_, (at, _)| due(*at)).collect();
        self.silent |= !unheard.is_empty();
        for (key, (at, state)) in unheard {
            self.counts.unheard_breaks += 1;
            self.counts.break_waited(self.now.saturating_sub(at));
            let opens = self.opens.under(&key);
            self.acknowledge_own(key, state, &opens, out);
        }
    }

    /// What was told of an open's content may change.
    fn purge(&mut self, id: FileId, state: LeaseState, out: &mut Out) {
        let Some(open) = self.opens.get_mut(id) else { return };
        open.lease = LeaseState(open.lease.0 & state.0);
        if open.lease.contains(LeaseState::READ_CACHING) {
            return;
        }
        self.tell(ToNear::Purge(id), out);
        self.stop_reading(id, out);
    }

    /// An acknowledgement of the client.
    pub(super) fn acknowledge(&mut self, carriage: Carriage, mut message: Vec<u8>, out: &mut Out) {
        if let Ok(mut view) = LeaseBreakAcknowledgement::parse(&mut message[..]) {
            if let Some(own) = self.opens.own_of(&view.lease_key()) {
                view.set_lease_key(own);
            }
            if let Some((at, _)) = self.breaking.remove(&view.lease_key()) {
                self.counts.break_waited(self.now.saturating_sub(at));
            }
            let (key, state) = (view.lease_key(), view.lease_state());
            for id in self.opens.under(&key) {
                // It also holds for what was opened under the lease since it was broken.
                self.purge(id, state, out);
                if let Some(open) = self.opens.get_mut(id) {
                    open.broken = None;
                }
            }
        }
        self.leg.send_client(carriage, message, out);
    }

    /// Tells the client that a lease is gone whose handle was closed and opened again.
    pub(super) fn break_client(&mut self, carriage: Carriage, session: u64, key: [u8; 16], out: &mut Out) {
        let mut message = vec![0; HEADER_LEN + 44];
        message[..4].copy_from_slice(&isthmus_smb_wire::header::PROTOCOL_ID);
        message[4] = HEADER_LEN as u8;
        let mut header = super::opens::header_mut(&mut message);
        header.set_command(Command::OPLOCK_BREAK);
        header.set_flags(HeaderFlags::SERVER_TO_REDIR);
        header.set_message_id(MESSAGE_ID_UNSOLICITED);
        message[HEADER_LEN] = 44;
        if let Ok(mut view) = LeaseBreakNotification::parse(&mut message[..]) {
            view.set_new_epoch(BROKEN_EPOCH);
            view.set_lease_key(key);
            view.set_current_lease_state(crate::create::READ_HANDLE);
            view.set_new_lease_state(LeaseState::NONE);
        }
        // Servers send breaks encrypted only on sessions that encrypt, and never signed.
        let carriage = match carriage {
            Carriage::Sealed(_) => Carriage::Sealed(session),
            _ => Carriage::Plain,
        };
        out.wan.push(Wan::Response(Lan { carriage, message }));
    }
}
