use crate::frame::{self, HEADER_BYTES_MAX};
use crate::{Error, Message, limits};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// What one side has to put on the link: sequenced frames, kept until the peer's application has taken them, and
/// link frames, which are forgotten when they are written and go first at the next frame boundary.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Queued>,
    /// Sequence number of the queue's first frame: everything before it has been taken by the peer.
    first: u64,
    /// Sequence number after the last frame that was ever written whole.
    written: u64,
    /// The frame to write next, as an index into the queue, and how much of it is written.
    next: usize,
    offset: usize,
    retained_cost: usize,
    unsent_bytes: usize,
    /// Encoded link frames.
    urgent: BytesMut,
    /// Whether the first byte of `urgent` lies inside a frame that is partly written.
    urgent_started: bool,
}

#[derive(Debug)]
struct Queued {
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    body: Bytes,
}

impl Outbox {
    /// Appends a message to the sequence.
    pub(crate) fn push(&mut self, message: &Message) {
        let queued = Queued::new(message);
        self.retained_cost += limits::frame_cost(queued.body.len());
        self.unsent_bytes += queued.len();
        self.queue.push_back(queued);
    }

    /// Sequence number of the first frame that the peer has not taken.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Sequence number after the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Sequence number after the last frame that is written whole on this link.
    pub(crate) fn on_link(&self) -> u64 {
        self.first + self.next as u64
    }

    /// Where link frames are encoded to.
    pub(crate) fn urgent(&mut self) -> &mut BytesMut {
        &mut self.urgent
    }

    /// Cost of all frames that the peer has not taken.
    pub(crate) fn retained_cost(&self) -> usize {
        self.retained_cost
    }

    /// Bytes of sequenced frames not yet written to the link.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Whether anything is to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent_bytes > 0 || !self.urgent.is_empty()
    }

    /// Whether every frame has been taken by the peer.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether some frame was written, or begun, and not yet taken.
    pub(crate) fn is_waiting(&self) -> bool {
        self.next > 0 || self.offset > 0
    }

    /// The peer has taken all frames before sequence number `taken`.
    pub(crate) fn taken(&mut self, taken: u64) -> Result<(), Error> {
        if taken > self.first + self.next as u64 {
            return Err(Error::PeerMisbehaved("acknowledges what was not sent"));
        }
        while self.first < taken {
            let Some(frame) = self.queue.pop_front() else { break };
            self.retained_cost -= limits::frame_cost(frame.body.len());
            self.first += 1;
            self.next -= 1;
        }
        if self.queue.is_empty() && self.queue.capacity() > limits::QUIET_SLOTS_MAX {
            self.queue = VecDeque::new();
        }
        Ok(())
    }

    /// Whether every frame from this sequence number on is still here.
    pub(crate) fn can_rewind(&self, arrived: u64) -> bool {
        (self.first..=self.written).contains(&arrived)
    }

    /// A new link is up, on which the peer has every frame before sequence number `arrived`.
    pub(crate) fn rewind(&mut self, arrived: u64) -> Result<(), Error> {
        if !self.can_rewind(arrived) {
            return Err(Error::PeerMisbehaved("resumes where nothing was sent"));
        }
        self.next = (arrived - self.first) as usize;
        self.offset = 0;
        self.unsent_bytes = self.queue.iter().skip(self.next).map(Queued::len).sum();
        self.urgent.clear();
        self.urgent_started = false;
        Ok(())
    }

    /// Drops everything but a frame that is partly written, which has to be finished to keep the link readable.
    pub(crate) fn clear(&mut self) {
        let partial = (self.offset > 0).then(|| self.queue.remove(self.next)).flatten();
        self.first += self.next as u64;
        self.queue = partial.into_iter().collect();
        self.next = 0;
        self.retained_cost = self.queue.iter().map(|frame| limits::frame_cost(frame.body.len())).sum();
        self.unsent_bytes = self.queue.iter().map(|frame| frame.len() - self.offset).sum();
    }

    /// Fills `slices` with what to write next, at most about `bytes_max` bytes. Returns how many slices are used.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>], bytes_max: usize) -> usize {
        let mut used = 0;
        let mut bytes = 0;
        let mut add = |slice: &'a [u8]| {
            if slice.is_empty() {
                return true;
            }
            let Some(place) = slices.get_mut(used).filter(|_| bytes < bytes_max) else { return false };
            let slice = &slice[..slice.len().min(bytes_max - bytes)];
            *place = IoSlice::new(slice);
            used += 1;
            bytes += slice.len();
            true
        };
        if self.urgent_first() && !add(&self.urgent) {
            return used;
        }
        let mut skip = self.offset;
        for frame in self.queue.iter().skip(self.next) {
            let (header, body) = frame.parts_from(skip);
            skip = 0;
            if !(add(header) && add(body)) {
                break;
            }
        }
        used
    }

    /// `written` bytes of what [`Outbox::fill`] gave were taken by the link.
    pub(crate) fn advance(&mut self, mut written: usize) {
        if self.urgent_first() {
            let urgent = written.min(self.urgent.len());
            self.urgent.advance(urgent);
            written -= urgent;
            self.urgent_started = !self.urgent.is_empty();
            if self.urgent.is_empty() {
                self.urgent = BytesMut::new();
            }
        }
        self.unsent_bytes -= written;
        while let Some(frame) = self.queue.get(self.next).filter(|_| written > 0) {
            let rest = frame.len() - self.offset;
            if written < rest {
                self.offset += written;
                return;
            }
            written -= rest;
            self.offset = 0;
            self.next += 1;
            self.written = self.written.max(self.first + self.next as u64);
        }
    }

    fn urgent_first(&self) -> bool {
        !self.urgent.is_empty() && (self.offset == 0 || self.urgent_started)
    }
}

impl Queued {
    fn new(message: &Message) -> Queued {
        let (kind, body) = frame::encode_message(message);
        let mut header = [0; HEADER_BYTES_MAX];
        let mut space: &mut [u8] = &mut header;
        frame::put_header(&mut space, kind, body.len());
        let left = space.len();
        Queued { header, header_len: (HEADER_BYTES_MAX - left) as u8, body }
    }

    fn len(&self) -> usize {
        usize::from(self.header_len) + self.body.len()
    }

    fn parts_from(&self, offset: usize) -> (&[u8], &[u8]) {
        let header = &self.header[..usize::from(self.header_len)];
        match offset.checked_sub(header.len()) {
            Some(offset) => (&[], &self.body[offset..]),
            None => (&header[offset..], &self.body),
        }
    }
}
