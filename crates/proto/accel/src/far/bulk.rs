//! Content that is read ahead waits here while the WAN has enough to carry, so that it delays no other answer. What waits
//! has not been looked at: it is as if the server took longer.

use super::{Far, Job};
use crate::Out;
use crate::limits::BULK_HELD_MAX;
use bytes::Bytes;
use std::collections::VecDeque;

/// What waits, in order.
pub(crate) struct Bulk {
    /// Bytes that the WAN has room for.
    room: u64,
    held: VecDeque<(Job, Bytes)>,
}

impl Default for Bulk {
    fn default() -> Self {
        Self { room: u64::MAX, held: VecDeque::new() }
    }
}

fn is_bulk(job: &Job) -> bool {
    matches!(job, Job::Read { .. } | Job::OfferRead(_))
}

impl Bulk {
    /// Whether more may be asked for.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps a response back, if it is content read ahead and has to wait.
    pub fn hold(&mut self, job: &Job, response: &Bytes) -> bool {
        if !is_bulk(job) {
            return false;
        }
        let waits = (self.room == 0 || !self.held.is_empty()) && self.held.len() < BULK_HELD_MAX;
        if waits {
            self.held.push_back((job.clone(), response.clone()));
        } else {
            self.room = self.room.saturating_sub(response.len() as u64);
        }
        waits
    }

    /// The next that may go on.
    fn next(&mut self) -> Option<(Job, Bytes)> {
        if self.room == 0 {
            return None;
        }
        let (job, response) = self.held.pop_front()?;
        self.room = self.room.saturating_sub(response.len() as u64);
        Some((job, response))
    }
}

impl Far {
    /// The WAN has room for so many bytes: the next of what waits goes on.
    pub fn set_room(&mut self, now: u64, room: u64, out: &mut Out) {
        self.now = now;
        self.bulk.room = room;
        while out.wan.is_empty()
            && let Some((job, response)) = self.bulk.next()
        {
            self.job_done(job, &response, out);
            self.work(out);
        }
    }
}
