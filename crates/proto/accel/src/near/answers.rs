//! Answers near the client: each takes a permit, and each kind of request has its own way.

use super::opens::Open;
use super::{ANEW, Near, Pending, Permit, Why, holder_of};
use crate::create::{key_of, stand_in};
use crate::limits::{BEHIND_BYTES_MAX, PENDING_MAX};
use crate::message::{file_id_of, header, is_single, place, respond, retarget};
use crate::told::ToFar;
use crate::{Carriage, Fate, Lan, Out};
use isthmus_smb_wire::build;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{
    CloseFlags, CloseRequest, CreateResponse, QueryDirectoryRequest, WriteFlags, WriteRequest,
};
use isthmus_smb_wire::{Command, Header, Status};

impl Near {
    /// Answers a request, if there is leave to.
    pub(super) fn try_answer(&mut self, carriage: Carriage, message: &[u8], out: &mut Out) -> Fate {
        if self.stopped {
            return Fate::Forward;
        }
        let command = header(message).command();
        let answered = if is_single(message) {
            match command {
                Command::CREATE => self.answer_create(carriage, message, out),
                Command::READ => self.answer_read(carriage, message, out),
                Command::WRITE => return self.answer_write(carriage, message, out),
                Command::CLOSE => self.answer_close(carriage, message, out),
                Command::QUERY_INFO => self.answer_query(carriage, message, out),
                Command::QUERY_DIRECTORY => self.answer_listing(carriage, message, out),
                _ => None,
            }
        } else {
            self.answer_known(carriage, message, out)
        };
        if answered.is_some() { Fate::Consumed } else { Fate::Forward }
    }

    /// Gives the client an answer.
    pub(super) fn answer(&mut self, permit: Permit, carriage: Carriage, mut message: Vec<u8>, out: &mut Out) {
        let mut header = Header::lenient(&mut message[..]);
        header.set_credits(header.credits().saturating_add(std::mem::take(&mut self.owed)));
        self.trace.answered(self.now, &message, Some(permit.why()));
        out.lan.push(Lan { carriage, message });
    }

    pub(super) fn answer_create(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let key = key_of(request)?;
        let offered = self.offers.get(&key)?;
        let rights = self.rights_of(request).filter(|rights| rights.bounded())?;
        let permit = self.liveness.permit(self.now, Why::Offer(offered.offer.id))?;
        let state = LeaseState(offered.offer.lease_state);
        let response = stand_in(&offered.offer.response, request, state)?;
        let view = CreateResponse::parse(&response[..]).ok()?;
        let (file_id, attributes) = (view.file_id(), view.attributes());
        let offered = self.drop_offer(&key)?;
        let holder = holder_of(&response, file_id);
        let mut open = Open::new(place(request), offered.offer.name.clone(), true, rights, holder);
        open.offer = Some(offered.offer.id);
        open.answers.clone_from(&offered.offer.answers);
        open.attributes = Some(attributes);
        self.creating.remove(&header(request).message_id());
        self.opens.insert(file_id, open);
        self.opens.add_content(file_id, 0, &offered.content, offered.offer.whole, &[]);
        out.tell(ToFar::Claim { id: offered.offer.id, carriage, request: request.to_vec() }.told());
        self.counts.opens += 1;
        self.answer(permit, carriage, response, out);
        Some(())
    }

    pub(super) fn answer_read(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let (file_id, response, end) = self.opens.read(request)?;
        let permit = self.liveness.permit(self.now, Why::Lease(file_id))?;
        self.counts.reads += 1;
        if self.opens.used(file_id, end) {
            out.tell(ToFar::Used { file_id, end }.told());
        }
        self.answer(permit, carriage, response, out);
        Some(())
    }

    /// Answers a WRITE that goes on to the server all the same.
    pub(super) fn answer_write(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Fate {
        let message_id = header(request).message_id();
        let answer = WriteRequest::parse(request).ok().and_then(|view| {
            let (file_id, length) = (view.file_id(), view.length());
            let room = self.behind_bytes + length as usize <= BEHIND_BYTES_MAX;
            let plain = view.flags() == WriteFlags::NONE && length > 0;
            let permit = self.liveness.permit(self.now, Why::Behind(file_id))?;
            let response = respond(request, Status::SUCCESS, &build::WriteResponse { count: length })?;
            (room && plain && self.opens.is_behind(file_id)).then_some((permit, response, view))
        });
        if let Some((permit, response, view)) = answer
            && self.behind.len() < PENDING_MAX
        {
            let length = view.length();
            self.opens.wrote(view.file_id(), view.offset(), view.payload());
            self.behind.insert(message_id, length);
            self.behind_bytes += length as usize;
            self.counts.writes += 1;
            out.tell(ToFar::Behind(message_id).told());
            self.answer(permit, carriage, response, out);
        }
        Fate::Forward
    }

    pub(super) fn answer_close(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let file_id = file_id_of(request)?;
        let early = self.early_close && self.opens.is_behind(file_id);
        let clean = self.opens.is_clean(file_id) || early;
        if !self.opens.is_bounded(file_id) || !clean || self.in_company {
            return None;
        }
        let view = CloseRequest::parse(request).ok()?;
        let mut permit = Permit::of_handle(file_id);
        let mut attributes = None;
        if early {
            permit = self.liveness.permit(self.now, Why::Behind(file_id))?;
        } else if view.flags().contains(CloseFlags::POSTQUERY_ATTRIB) {
            attributes = Some(self.opens.attributes_of(file_id)?);
            permit = self.liveness.permit(self.now, Why::Lease(file_id))?;
        }
        let response = respond(request, Status::SUCCESS, &build::CloseResponse { attributes })?;
        self.opens.close(file_id);
        out.tell(ToFar::Quiet { carriage, request: request.to_vec() }.told());
        self.counts.closes += 1;
        self.answer(permit, carriage, response, out);
        Some(())
    }

    pub(super) fn answer_query(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let file_id = file_id_of(request)?;
        let response = self.opens.answer_of(file_id, &key_of(request)?)?;
        let permit = self.liveness.permit(self.now, Why::Lease(file_id))?;
        let response = retarget(&response, request)?;
        self.counts.queries += 1;
        self.answer(permit, carriage, response, out);
        Some(())
    }

    pub(super) fn answer_listing(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let view = QueryDirectoryRequest::parse(request).ok()?;
        let file_id = view.file_id();
        if view.flags().intersects(ANEW) {
            return None;
        }
        let part = self.opens.take_part(file_id, &key_of(request)?)?;
        let response = retarget(&part, request)?;
        self.counts.listings += 1;
        self.answer(Permit::of_handle(file_id), carriage, response, out);
        Some(())
    }

    pub(super) fn answer_known(&mut self, carriage: Carriage, request: &[u8], out: &mut Out) -> Option<()> {
        let known = self.known.get(&key_of(request)?)?;
        self.rights_of(request).filter(|rights| rights.bounded())?;
        let permit = self.liveness.permit(self.now, Why::Watch(known.watch))?;
        let response = retarget(&known.response, request)?;
        self.counts.queries += 1;
        self.answer(permit, carriage, response, out);
        Some(())
    }

    /// Something came that requests which were passed on may have waited for.
    pub(super) fn answer_pending(&mut self, out: &mut Out) {
        // What a CREATE makes twice nobody would close: it waits until the far engine says that it leaves it to this one.
        let may_come_twice = |pending: &Pending| header(&pending.request).command() != Command::CREATE;
        let waiting = self.pending.iter().filter(|(_, pending)| may_come_twice(pending));
        let mut ready: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        ready.sort_unstable();
        for message_id in ready {
            let Some(Pending { carriage, request }) = self.pending.remove(&message_id) else { continue };
            if self.try_answer(carriage, &request, out) == Fate::Forward {
                self.pending.insert(message_id, Pending { carriage, request });
            } else {
                self.overtaken.insert(message_id);
            }
        }
    }

    /// The far engine leaves a request to this one, which must have what it takes, or asks again.
    pub(super) fn answer_or_ask_again(&mut self, message_id: u64, out: &mut Out) {
        if self.overtaken.remove(&message_id) {
            return;
        }
        let Some(Pending { carriage, request }) = self.pending.remove(&message_id) else { return };
        if self.try_answer(carriage, &request, out) == Fate::Forward {
            if header(&request).command() == Command::QUERY_DIRECTORY {
                self.pass_listing(&request, out);
            }
            out.tell(ToFar::Again { carriage, request }.told());
        }
    }
}
