//! What both directions of a connection know together: requests that wait for their response, and opens.
//!
//! The two proxies keep this in step without being told, though they see the directions interleaved in different ways.
//! Requests are appended in the order of the request stream and removed in the order of the response stream. When the
//! server-side proxy refers to a waiting request, the other proxy has all the same ones in the same order, and perhaps
//! newer ones behind them; so a place counted from the oldest is the same on both. Opens are numbered in the order of
//! the response stream; when the client-side proxy refers to one, the other proxy has it too, and perhaps newer ones, of
//! which there are at most as many as requests wait on the client side.

use crate::limits::{OPENS_MAX, REQUESTS_MAX};
use isthmus_smb_wire::{Command, FileId};
use std::collections::{HashMap, VecDeque};

/// A request that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub command: Command,
    pub charge: u16,
    pub flags: u32,
    pub message_id: u64,
    pub session_id: u64,
    pub tree_id: u32,
    /// Given by an interim response.
    pub async_id: Option<u64>,
    /// Number of the open it is about, if that is known.
    pub open: Option<u64>,
    /// Of a READ or WRITE.
    pub offset: u64,
    pub length: u32,
}

/// Times, sizes and attributes as a CREATE response has them: bytes 8 to 64 of its body.
pub(crate) const ATTRIBUTES_LEN: usize = 56;

/// An open, as its CREATE response described it.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub id: FileId,
    pub attributes: [u8; ATTRIBUTES_LEN],
}

/// A place among the waiting requests, counted from the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of those without interim response.
    First(usize),
    /// Of those with one.
    Interim(usize),
}

/// Waiting requests and opens of one connection.
#[derive(Default)]
pub(crate) struct Tracker {
    first: VecDeque<Waiting>,
    interim: VecDeque<Waiting>,
    opens: VecDeque<Open>,
    /// Opens there have been.
    opened: u64,
    by_id: HashMap<FileId, u64>,
}

impl Tracker {
    /// How many more requests can wait.
    pub fn room(&self) -> usize {
        REQUESTS_MAX.saturating_sub(self.first.len() + self.interim.len())
    }

    pub fn push(&mut self, request: Waiting) {
        self.first.push_back(request);
    }

    /// Where the request of a response is.
    pub fn find(&self, message_id: u64) -> Option<Place> {
        let at = |list: &VecDeque<Waiting>| list.iter().position(|request| request.message_id == message_id);
        at(&self.first).map(Place::First).or_else(|| at(&self.interim).map(Place::Interim))
    }

    pub fn at(&self, place: Place) -> Option<&Waiting> {
        match place {
            Place::First(index) => self.first.get(index),
            Place::Interim(index) => self.interim.get(index),
        }
    }

    /// The response has come, the interim one if that has an asynchronous identifier.
    pub fn answered(&mut self, place: Place, interim: Option<u64>) {
        let request = match place {
            Place::First(index) => self.first.remove(index),
            Place::Interim(index) => self.interim.remove(index),
        };
        if let (Some(request), Some(async_id)) = (request, interim) {
            self.interim.push_back(Waiting { async_id: Some(async_id), ..request });
        }
    }

    /// Notes an open; gives its number.
    pub fn open(&mut self, open: Open) {
        if self.opens.len() as u64 >= OPENS_MAX
            && let Some(oldest) = self.opens.pop_front()
        {
            let number = self.opened - OPENS_MAX;
            if self.by_id.get(&oldest.id) == Some(&number) {
                self.by_id.remove(&oldest.id);
            }
        }
        self.by_id.insert(open.id, self.opened);
        self.opens.push_back(open);
        self.opened += 1;
    }

    /// The open of a number, if it is still known.
    pub fn open_at(&self, number: u64) -> Option<&Open> {
        let oldest = self.opened - self.opens.len() as u64;
        self.opens.get(usize::try_from(number.checked_sub(oldest)?).ok()?)
    }

    /// Number of an open that the other proxy is sure to know still.
    pub fn number_of(&self, id: FileId) -> Option<u64> {
        self.by_id.get(&id).copied().filter(|number| self.is_sure(*number))
    }

    /// Whether the other proxy is sure to know an open still.
    pub fn is_sure(&self, number: u64) -> bool {
        let newest = self.opened + (self.first.len() + self.interim.len()) as u64;
        newest - number < OPENS_MAX && self.open_at(number).is_some()
    }
}
