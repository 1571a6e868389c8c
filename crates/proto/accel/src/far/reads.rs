//! Reading ahead of a client that reads on.

use super::opens::Open;
use super::{Far, Job, read_charge};
use crate::create::{reads_content, writes_content};
use crate::limits::{
    DOCUMENT_BYTES_MAX, EAGERNESS_MAX, PENDING_MAX, READ_BYTES, STRAYS_TO_WHOLE, TAIL_BYTES,
    WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX, WINDOW_GROWTH,
};
use crate::message::{file_id_of, folded, header, request};
use crate::told::ToNear;
use crate::{Carriage, Out};
use bytes::Bytes;
use isthmus_smb_wire::build;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{CreateRequest, ReadFlags, ReadRequest, ReadResponse};
use isthmus_smb_wire::{FileId, Status};

/// The first piece that is read with an open, if the file is not read whole.
const HEAD_BYTES: u32 = 16 << 10;
/// Clients read whole pages.
const PAGE_BYTES: u64 = 4 << 10;
/// Shortest read made ahead, in bytes.
const READ_BYTES_MIN: u32 = 64 << 10;

/// What is read ahead of one open: all from `start` to `issued`.
#[derive(Default)]
pub(crate) struct Reading {
    /// Where the client would read next.
    next: u64,
    /// Reads one after the other.
    run: u32,
    start: u64,
    issued: u64,
    /// Reads that the server has: offset and length.
    in_flight: Vec<(u64, u32)>,
    /// How far the client may be ahead of.
    window: u64,
    /// Length of the client's reads.
    length: u32,
    swallowed: Vec<Swallowed>,
    /// Where the end of the file begins that was read with the open; what is between is read as the client goes on.
    tail: Option<u64>,
    /// Whether it began with the open, before the client read anything, and whether the client may write too.
    eager: bool,
    writes: bool,
    /// Reads that did not follow on the one before them, and whether all of the file was read for their sake.
    strays: u32,
    whole: bool,
}

/// How far opens have shown of late that what is read with them is used.
pub(crate) struct Eagerness(u32);

impl Default for Eagerness {
    fn default() -> Self {
        Self(EAGERNESS_MAX / 2)
    }
}

impl Eagerness {
    fn learn(&mut self, used: bool) {
        self.0 = if used { (self.0 + 1).min(EAGERNESS_MAX) } else { self.0.saturating_sub(1) };
    }
}

/// A READ of the client that content on its way will answer.
pub(crate) struct Swallowed {
    carriage: Carriage,
    request: Vec<u8>,
    offset: u64,
    length: u32,
}

impl Reading {
    /// Of an open whose first bytes the near engine has.
    pub fn from(issued: u64) -> Self {
        Self { issued, run: 1, window: WINDOW_BYTES_FIRST, length: READ_BYTES_MIN, ..Self::default() }
    }

    /// Whether the client has not read anything yet.
    pub fn is_fresh(&self) -> bool {
        self.run == 0 && self.next == 0
    }

    fn covers(&self, offset: u64, length: u32, size: u64) -> bool {
        let end = offset.saturating_add(length.into()).min(size.max(offset));
        let in_tail = self.tail.is_some_and(|tail| tail <= offset);
        self.window > 0 && (in_tail || self.start <= offset && end <= self.issued)
    }

    fn is_ready(&self, offset: u64, length: u32) -> bool {
        let end = offset.saturating_add(length.into());
        self.in_flight.iter().all(|(at, len)| *at >= end || at.saturating_add((*len).into()) <= offset)
    }
}

impl Open {
    /// Whether content that was read ahead stays good until the server says otherwise, and may be used.
    fn may_read_ahead(&self) -> bool {
        let leased = if self.own.is_some() { self.rights.bounded() } else { self.rights.any() };
        leased && self.lease.contains(LeaseState::READ_CACHING) && !self.modified
    }
}

impl Far {
    /// The client has opened a file to read it: its first bytes go along with the response, and its last ones, which many
    /// programs look at next.
    pub(super) fn read_with_open(&mut self, file_id: FileId, request: &[u8], out: &mut Out) {
        let Ok(view) = CreateRequest::parse(request) else { return };
        let Some(open) = self.opens.get_mut(file_id) else { return };
        open.reading.writes = writes_content(&view);
        let wanted = reads_content(&view) && open.rights.ahead() && self.eagerness.0 > 0;
        if !wanted || !open.may_read_ahead() || open.size == 0 {
            return;
        }
        let whole = open.size <= WINDOW_BYTES_FIRST + TAIL_BYTES;
        // The head first, then the tail, each in a piece of its own: on a link that starts slowly nobody waits for the rest.
        let head = if whole { 0 } else { HEAD_BYTES };
        open.reading = Reading {
            issued: head.into(),
            window: if whole { open.size } else { WINDOW_BYTES_FIRST },
            length: if whole { READ_BYTES } else { READ_BYTES_MIN },
            eager: true,
            tail: (!whole).then(|| (open.size - TAIL_BYTES) / PAGE_BYTES * PAGE_BYTES),
            ..std::mem::take(&mut open.reading)
        };
        let (tail, open_end) = (open.reading.tail, open.size + 1);
        if let Some((tail, length)) = tail.zip(tail.and_then(|tail| u32::try_from(open_end - tail).ok()))
            && !(self.read_at(file_id, 0, head, out) && self.read_at(file_id, tail, length, out))
        {
            return self.stop_reading(file_id, out);
        }
        self.pump(file_id, out);
    }

    /// A file is closed: whether what was read with the open, or would have been, was of use.
    pub(super) fn learn_from(&mut self, open: &Open) {
        let reading = &open.reading;
        let used = reading.run > 0 && reading.next >= open.size.min(WINDOW_BYTES_FIRST) / 2;
        if reading.eager || used {
            self.eagerness.learn(used);
        }
    }

    /// A READ of the client.
    pub(super) fn read(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        let active = self.is_active();
        let Ok(view) = ReadRequest::parse(&message[..]) else {
            return self.leg.send_client(carriage, message, out);
        };
        let (file_id, offset, length) = (view.file_id(), view.offset(), view.length());
        let plain = view.flags() == ReadFlags::NONE;
        self.note_use(file_id, None);
        let Some(open) = self.opens.get_mut(file_id) else {
            return self.leg.send_client(carriage, message, out);
        };
        let held = active && open.may_read_ahead() && plain;
        let reading = &mut open.reading;
        let follows = offset == reading.next;
        reading.run = if follows { reading.run.saturating_add(1) } else { u32::from(offset == 0) };
        reading.strays = reading.strays.saturating_add((!follows).into());
        reading.next = offset.saturating_add(length.into());
        reading.length = length;
        if held && reading.covers(offset, length, open.size) && reading.swallowed.len() < PENDING_MAX {
            if reading.is_ready(offset, length) {
                let told = ToNear::Answer(header(&message).message_id());
                self.tell(told, out);
            } else {
                reading.swallowed.push(Swallowed { carriage, request: message, offset, length });
            }
            return;
        }
        let begins = reading.run >= 1 && reading.in_flight.is_empty() && reading.next < open.size;
        if held && begins {
            reading.start = reading.next;
            reading.issued = reading.next;
            reading.window = WINDOW_BYTES_FIRST.max(u64::from(length) * 2);
        }
        self.leg.send_client(carriage, message, out);
        if held && (begins || self.read_whole(file_id)) {
            self.pump(file_id, out);
        }
    }

    /// Whether all of a file is to be read from now on: its only user reads here and there.
    fn read_whole(&mut self, file_id: FileId) -> bool {
        let Some(open) = self.opens.get(file_id) else { return false };
        let alone = open.lease.contains(LeaseState::WRITE_CACHING) && open.size <= DOCUMENT_BYTES_MAX;
        let Some(key) = open.client.filter(|_| alone && open.reading.strays >= STRAYS_TO_WHOLE) else {
            return false;
        };
        // Once, whichever of the opens under the lease it is that reads.
        let whole = |id: &FileId| self.opens.get(*id).is_some_and(|open| open.reading.whole);
        if self.opens.under(&open.own.unwrap_or(key)).iter().any(whole) {
            return false;
        }
        let Some(open) = self.opens.get_mut(file_id) else { return false };
        let reading = &mut open.reading;
        (reading.start, reading.issued, reading.tail) = (0, 0, None);
        (reading.window, reading.length, reading.whole) = (open.size, READ_BYTES, true);
        true
    }

    /// A READ that the near engine cannot answer from what it was told: it does not have that any more.
    pub(super) fn read_after_all(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        if let Some(open) = file_id_of(&message).and_then(|id| self.opens.get_mut(id)) {
            (open.reading.window, open.reading.tail) = (0, None);
        }
        self.leg.send_client(carriage, message, out);
    }

    /// The near engine has answered from what was read ahead, up to an offset.
    pub(super) fn used(&mut self, file_id: FileId, end: u64, out: &mut Out) {
        if self.is_listed(file_id) {
            return self.used_listing(file_id, end);
        }
        self.note_use(file_id, None);
        let Some(open) = self.opens.get_mut(file_id) else { return };
        let reading = &mut open.reading;
        if reading.tail.is_some_and(|tail| end > tail && reading.next < tail) {
            // The end of a document that is also to be written: its program wants all of it.
            if reading.writes && open.size <= DOCUMENT_BYTES_MAX {
                reading.window = open.size;
            }
        } else if end > reading.next {
            reading.next = end;
            reading.run = reading.run.saturating_add(1);
            reading.window = (reading.window * WINDOW_GROWTH).min(WINDOW_BYTES_MAX);
        }
        self.pump(file_id, out);
    }

    /// Reads on, as far as the window goes.
    fn pump(&mut self, file_id: FileId, out: &mut Out) {
        loop {
            let Some(open) = self.opens.get_mut(file_id) else { return };
            let reading = &mut open.reading;
            let until = reading.next.saturating_add(reading.window).min(open.size);
            if reading.window == 0 || reading.issued >= until {
                return;
            }
            let offset = reading.issued;
            if reading.tail.is_some_and(|tail| tail <= offset) {
                reading.issued = open.size;
                return;
            }
            let length = reading.length.clamp(READ_BYTES_MIN, READ_BYTES);
            // One byte more than there was when the file was opened: a response without it shows where the file ends.
            let left = reading.tail.map_or((open.size - offset).saturating_add(1), |tail| tail - offset);
            let length = u32::try_from(left).map_or(length, |left| length.min(left));
            if !self.read_at(file_id, offset, length, out) {
                return;
            }
            if let Some(open) = self.opens.get_mut(file_id) {
                open.reading.issued = offset + u64::from(length);
            }
        }
    }

    /// Asks the server for a part of a file, if that may be done now.
    fn read_at(&mut self, file_id: FileId, offset: u64, length: u32, out: &mut Out) -> bool {
        let charge = read_charge(length);
        let seen = self.opens.name_of(file_id).and_then(|name| self.writes.seen(&folded(&name)));
        let tag = seen.unwrap_or(self.changes.now());
        if !self.may_send(charge) || !self.bulk.is_idle() {
            return false;
        }
        let Some(open) = self.opens.get_mut(file_id).filter(|open| open.may_read_ahead()) else {
            return false;
        };
        let body =
            build::Read { flags: ReadFlags::NONE, file_id: Some(file_id), offset, length, minimum_count: 0 };
        let carriage = open.carriage;
        let Some(message) = request(open.session, open.tree, charge, &body) else { return false };
        open.reading.in_flight.push((offset, length));
        self.send_job(carriage, message, Job::Read { file_id, offset, length, tag }, out);
        true
    }

    /// Content read ahead.
    pub(super) fn read_ahead(
        &mut self,
        file_id: FileId,
        offset: u64,
        length: u32,
        tag: u64,
        response: &Bytes,
        out: &mut Out,
    ) {
        let Some(open) = self.opens.get_mut(file_id) else { return };
        let reading = &mut open.reading;
        let Some(at) = reading.in_flight.iter().position(|one| *one == (offset, length)) else { return };
        reading.in_flight.swap_remove(at);
        let status = header(response).status();
        let content = match ReadResponse::parse(&response[..]) {
            Ok(view) if status == Status::SUCCESS => response.slice(view.payload_range()),
            _ if status == Status::END_OF_FILE => Bytes::new(),
            _ => return self.stop_reading(file_id, out),
        };
        let end = content.len() < length as usize;
        let has_grown = !end && offset.saturating_add(length.into()) > open.size;
        out.tell(ToNear::Data { file_id, offset, end, tag }.told(content));
        if has_grown {
            return self.stop_reading(file_id, out);
        }
        let mut ready = Vec::new();
        reading.swallowed.retain(|one| {
            let is_ready = reading.in_flight.iter().all(|(at, len)| {
                *at >= one.offset.saturating_add(one.length.into())
                    || at.saturating_add((*len).into()) <= one.offset
            });
            if is_ready {
                ready.push(header(&one.request).message_id());
            }
            !is_ready
        });
        for message_id in ready {
            self.tell(ToNear::Answer(message_id), out);
        }
        self.pump(file_id, out);
    }

    /// Nothing more is read ahead of an open; what the client waits for it gets from the server.
    pub(super) fn stop_reading(&mut self, file_id: FileId, out: &mut Out) {
        let Some(open) = self.opens.get_mut(file_id) else { return };
        let reading = std::mem::take(&mut open.reading);
        self.send_swallowed(reading, out);
    }

    /// READs of the client that wait here go to the server.
    pub(super) fn send_swallowed(&mut self, reading: Reading, out: &mut Out) {
        for one in reading.swallowed {
            self.leg.send_client(one.carriage, one.request, out);
        }
    }

    /// A READ that waits here is given up by the client.
    pub(super) fn cancelled(&mut self, _message_id: u64) {
        // It is answered soon in any case, since the content is on its way.
    }
}
