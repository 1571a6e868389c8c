use crate::{Error, Message, limits};
use std::collections::VecDeque;

/// Messages that have arrived and that the application has not taken.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    queue: VecDeque<Message>,
    cost: usize,
    /// Sequenced messages that arrived, over the channel's life.
    arrived: u64,
    /// Of these, the ones that the application has taken.
    taken: u64,
}

impl Inbox {
    pub(crate) fn push(&mut self, message: Message) -> Result<(), Error> {
        self.arrived += 1;
        self.cost += cost(&message);
        if self.cost > limits::INBOX_BYTES_MAX {
            return Err(Error::PeerMisbehaved("sends more than the receiver has room for"));
        }
        self.queue.push_back(message);
        Ok(())
    }

    /// The next message and what it cost.
    pub(crate) fn pop(&mut self) -> Option<(Message, usize)> {
        let message = self.queue.pop_front()?;
        let cost = cost(&message);
        self.cost -= cost;
        self.taken += 1;
        if self.queue.is_empty() && self.queue.capacity() > limits::QUIET_SLOTS_MAX {
            self.queue = VecDeque::new();
        }
        Some((message, cost))
    }

    /// Drops what waits, as if it had been taken.
    pub(crate) fn clear(&mut self) {
        self.queue = VecDeque::new();
        self.cost = 0;
        self.taken = self.arrived;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

/// The same count as the sender makes of the frame's body, or less.
fn cost(message: &Message) -> usize {
    limits::frame_cost(match message {
        Message::Data(data) | Message::Feedback(data) => data.len(),
        _ => 0,
    })
}
