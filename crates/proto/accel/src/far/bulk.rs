//! Content that is read ahead waits here while the WAN has enough to carry, so that it delays no other answer. What waits
//! has not been looked at: it is as if the server took longer.

use super::{Far, Job};
use crate::Out;
use crate::limits::BULK_HELD_MAX;
use bytes::Bytes;
use std::collections::VecDeque;

/// What waits, in order.
#[derive(Default)]
pub(crate) struct Bulk {
    /// Whether the WAN is busy.
    busy: bool,
    held: VecDeque<(Job, Bytes)>,
}

impl Bulk {
    /// Whether more may be asked for.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps a response back, if it is content read ahead and has to wait.
    pub fn hold(&mut self, job: &Job, response: &Bytes) -> bool {
        let waits = matches!(job, Job::Read { .. } | Job::OfferRead(_))
            && (self.busy || !self.held.is_empty())
            && self.held.len() < BULK_HELD_MAX;
        if waits {
            self.held.push_back((job.clone(), response.clone()));
        }
        waits
    }
}

impl Far {
    /// The WAN has as much to carry as is good for it, or less. In the latter case the next of what waits goes on.
    pub fn set_busy(&mut self, now: u64, busy: bool, out: &mut Out) {
        self.now = now;
        self.bulk.busy = busy;
        if busy {
            return;
        }
        while out.wan.is_empty()
            && let Some((job, response)) = self.bulk.held.pop_front()
        {
            self.job_done(job, &response, out);
            self.work(out);
        }
    }
}
