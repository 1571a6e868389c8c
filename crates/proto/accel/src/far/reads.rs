//! Reading ahead of a client that reads on.

use super::opens::Open;
use super::{Far, Job, read_charge};
use crate::limits::{PENDING_MAX, READ_BYTES, WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX};
use crate::message::{header, request};
use crate::told::ToNear;
use crate::{Carriage, Out};
use bytes::Bytes;
use isthmus_smb_wire::build;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{ReadFlags, ReadRequest, ReadResponse};
use isthmus_smb_wire::{FileId, Status};

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

    fn covers(&self, offset: u64, length: u32, size: u64) -> bool {
        let end = offset.saturating_add(length.into()).min(size.max(offset));
        self.window > 0 && self.start <= offset && end <= self.issued
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
    /// A READ of the client.
    pub(super) fn read(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        let active = self.is_active();
        let Ok(view) = ReadRequest::parse(&message[..]) else {
            return self.leg.send_client(carriage, message, out);
        };
        let (file_id, offset, length) = (view.file_id(), view.offset(), view.length());
        let plain = view.flags() == ReadFlags::NONE;
        let Some(open) = self.opens.get_mut(file_id) else {
            return self.leg.send_client(carriage, message, out);
        };
        let held = active && open.may_read_ahead() && plain;
        let reading = &mut open.reading;
        let follows = offset == reading.next;
        reading.run = if follows { reading.run.saturating_add(1) } else { u32::from(offset == 0) };
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
        if held && begins {
            self.pump(file_id, out);
        }
    }

    /// The near engine has answered from what was read ahead, up to an offset.
    pub(super) fn used(&mut self, file_id: FileId, end: u64, out: &mut Out) {
        if self.is_listed(file_id) {
            return self.used_listing(file_id, end);
        }
        let Some(open) = self.opens.get_mut(file_id) else { return };
        let reading = &mut open.reading;
        if end > reading.next {
            reading.next = end;
            reading.run = reading.run.saturating_add(1);
            reading.window = (reading.window * 2).min(WINDOW_BYTES_MAX);
        }
        self.pump(file_id, out);
    }

    /// Reads on, as far as the window goes.
    fn pump(&mut self, file_id: FileId, out: &mut Out) {
        loop {
            if !self.is_active() {
                return;
            }
            let tag = self.changes.now();
            let Some(open) = self.opens.get_mut(file_id) else { return };
            let held = open.may_read_ahead();
            let reading = &mut open.reading;
            let until = reading.next.saturating_add(reading.window).min(open.size);
            if !held || reading.window == 0 || reading.issued >= until {
                return;
            }
            let length = reading.length.clamp(READ_BYTES_MIN, READ_BYTES);
            // One byte more than there was when the file was opened: a response without it shows where the file ends.
            let left = u32::try_from(open.size - reading.issued).ok().and_then(|left| left.checked_add(1));
            let length = left.map_or(length, |left| length.min(left));
            let charge = read_charge(length);
            let offset = reading.issued;
            let body = build::Read {
                flags: ReadFlags::NONE,
                file_id: Some(file_id),
                offset,
                length,
                minimum_count: 0,
            };
            let (session, tree, carriage) = (open.session, open.tree, open.carriage);
            if !self.leg.has_spare(charge) || self.leg.jobs() >= crate::limits::JOBS_MAX {
                return;
            }
            let Some(message) = request(session, tree, charge, &body) else { return };
            reading.in_flight.push((offset, length));
            reading.issued += u64::from(length);
            self.send_job(carriage, message, Job::Read { file_id, offset, length, tag }, out);
        }
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
