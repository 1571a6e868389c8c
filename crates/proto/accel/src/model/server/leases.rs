//! Opens, share modes and leases.

use super::{Act, Ask, HANDLE, Key, LeaseHeld, Opened, Opening, READ, Server, WRITE, Waiting, Watch, Who};
use crate::model::wire;
use isthmus_smb_wire::Status;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{AccessMask, CreateAction, CreateDisposition, LeaseBreakAcknowledgement};

/// Access that counts for share modes and leases.
const DATA: u32 = AccessMask::READ_DATA.0 | AccessMask::WRITE_DATA.0 | AccessMask::DELETE.0;

impl Server {
    pub(super) fn open(&mut self, ask: &Ask) -> Opening {
        let found = self.names.get(&ask.path).copied();
        if found.is_some_and(|node| self.nodes[node].delete.is_some()) {
            return Opening::Refused(Status::DELETE_PENDING);
        }
        let Some(node) = found else { return self.open_new(ask) };
        if ask.disposition == CreateDisposition::CREATE {
            return Opening::Refused(Status::OBJECT_NAME_COLLISION);
        }
        let key = ask.lease.map(|(key, ..)| key);
        if key.and_then(|key| self.leases.get(&key)).is_some_and(|lease| lease.node != node) {
            return Opening::Refused(Status::INVALID_PARAMETER);
        }
        let overwrites = ask.disposition == CreateDisposition::OVERWRITE_IF;
        if ask.access & DATA != 0 || overwrites {
            if let Some(refused) = self.is_shared(ask, node, key) {
                return refused;
            }
            if self.break_for_open(node, key) {
                return Opening::Wait;
            }
        }
        if overwrites {
            self.resize(node, 0, ask.who, key);
        }
        let action = if overwrites { CreateAction::OVERWRITTEN } else { CreateAction::OPENED };
        Opening::Done(self.admit(ask, node), action)
    }

    fn open_new(&mut self, ask: &Ask) -> Opening {
        if ask.disposition == CreateDisposition::OPEN {
            return Opening::Refused(Status::OBJECT_NAME_NOT_FOUND);
        }
        if ask.lease.is_some_and(|(key, ..)| self.leases.contains_key(&key)) {
            return Opening::Refused(Status::INVALID_PARAMETER);
        }
        let node = self.make(&ask.path, false, ask.who);
        Opening::Done(self.admit(ask, node), CreateAction::CREATED)
    }

    fn admit(&mut self, ask: &Ask, node: usize) -> u64 {
        let id = self.next_open;
        self.next_open += 1;
        let key = ask.lease.map(|(key, ..)| key);
        if let Some((key, asked, _)) = ask.lease {
            self.grant(key, asked, node);
        }
        let open = Opened {
            who: ask.who,
            node,
            path: ask.path.clone(),
            access: ask.access,
            share: ask.share,
            key,
            delete_on_close: ask.delete_on_close,
            listing: None,
            watch: Watch::default(),
        };
        self.made.insert(id, node);
        self.opens.insert(id, open);
        id
    }

    fn grant(&mut self, key: Key, asked: u32, node: usize) {
        let others = self.opens.values().filter(|open| open.node == node && open.key != Some(key));
        let (mut any, mut writers) = (false, false);
        for open in others.filter(|open| open.access & DATA != 0) {
            any = true;
            writers |= open.key.is_none() && open.access & AccessMask::WRITE_DATA.0 != 0;
        }
        let mut may = asked;
        if self.nodes[node].is_folder {
            may = 0;
        }
        if any {
            may &= !WRITE;
        }
        if writers {
            may &= READ;
        }
        let lease = self.leases.entry(key).or_insert(LeaseHeld {
            node,
            state: 0,
            breaking: None,
            then: None,
            epoch: 0,
        });
        if lease.breaking.is_none() && lease.state | may != lease.state {
            lease.state |= may;
            lease.epoch += 1;
        }
    }

    /// Why it cannot be opened, if the opens of others do not share.
    fn is_shared(&mut self, ask: &Ask, node: usize, key: Option<Key>) -> Option<Opening> {
        let needs = |access: u32| {
            let bit = |mask: AccessMask, share: u32| if access & mask.0 != 0 { share } else { 0 };
            bit(AccessMask::READ_DATA, 1) | bit(AccessMask::WRITE_DATA, 2) | bit(AccessMask::DELETE, 4)
        };
        let conflicting: Vec<Option<Key>> = self
            .opens
            .values()
            .filter(|open| open.node == node && open.access & DATA != 0)
            .filter(|open| needs(ask.access) & !open.share != 0 || needs(open.access) & !ask.share != 0)
            .map(|open| open.key)
            .collect();
        if conflicting.is_empty() {
            return None;
        }
        let mut waits = false;
        for held in conflicting.into_iter().flatten().filter(|held| Some(*held) != key) {
            let Some(lease) = self.leases.get(&held) else { continue };
            if lease.breaking.is_some() {
                waits = true;
            } else if lease.state & HANDLE != 0 {
                self.start_break(held, lease.state & !HANDLE);
                waits = true;
            }
        }
        Some(if waits { Opening::Wait } else { Opening::Refused(Status::SHARING_VIOLATION) })
    }

    /// Takes the right to cache writes from others; tells whether that has to be waited for.
    fn break_for_open(&mut self, node: usize, key: Option<Key>) -> bool {
        let held: Vec<Key> = self
            .leases
            .iter()
            .filter(|(one, lease)| lease.node == node && Some(**one) != key && lease.state & WRITE != 0)
            .map(|(one, _)| *one)
            .collect();
        for one in &held {
            let state = self.leases[one].state;
            if self.leases[one].breaking.is_none() {
                self.start_break(*one, state & !WRITE);
            }
        }
        !held.is_empty()
    }

    /// Breaks all others' leases on a file, without waiting.
    pub(super) fn break_others(&mut self, node: usize, key: Option<Key>, to: u32) {
        let held: Vec<Key> = self
            .leases
            .iter()
            .filter(|(one, lease)| lease.node == node && Some(**one) != key && lease.state & !to != 0)
            .map(|(one, _)| *one)
            .collect();
        for one in held {
            match self.leases.get_mut(&one) {
                Some(lease) if lease.breaking.is_some() => lease.then = Some(to),
                _ => self.start_break(one, to),
            }
        }
    }

    fn start_break(&mut self, key: Key, to: u32) {
        let now = self.now;
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let ack = lease.state & (HANDLE | WRITE) != 0;
        lease.epoch += 1;
        self.breaks += 1;
        self.out.push(wire::lease_break(key, lease.state, to, lease.epoch, ack));
        if ack {
            lease.breaking = Some((to, now + super::BREAK_MICROS));
        } else {
            lease.state = to;
        }
    }

    pub(super) fn acknowledge(&mut self, request: &[u8], credits: u16) -> Vec<u8> {
        let view = LeaseBreakAcknowledgement::parse(request).expect("an acknowledgement");
        let (key, state) = (view.lease_key(), view.lease_state().0);
        let Some(lease) = self.leases.get_mut(&key) else {
            return wire::refuse(request, Status::OBJECT_NAME_NOT_FOUND, credits);
        };
        if lease.breaking.is_none_or(|(to, _)| state & !to != 0) {
            return wire::refuse(request, Status::REQUEST_NOT_ACCEPTED, credits);
        }
        lease.state = state;
        lease.breaking = None;
        if let Some(to) = lease.then.take().filter(|to| state & !to != 0) {
            self.start_break(key, to);
        }
        self.retry();
        wire::acknowledged(request, key, LeaseState(state), credits)
    }

    /// What waits is tried again.
    pub(super) fn retry(&mut self) {
        for one in std::mem::take(&mut self.waiting) {
            match one {
                Waiting::Other { ask, act, since } => match self.open(&ask) {
                    Opening::Wait => self.waiting.push(Waiting::Other { ask, act, since }),
                    Opening::Refused(_) => self.waits.push(self.now - since),
                    Opening::Done(id, _) => {
                        self.waits.push(self.now - since);
                        self.act(id, act);
                    }
                },
                Waiting::Message { elements, at, mut done, mut last, ask } => match self.open(&ask) {
                    Opening::Wait => self.waiting.push(Waiting::Message { elements, at, done, last, ask }),
                    opening => {
                        let response = self.opened(&elements[at], &ask, opening, &mut last);
                        done.push(wire::late(response));
                        self.go_on(elements, at + 1, done, last);
                    }
                },
            }
        }
    }

    fn act(&mut self, id: u64, act: Act) {
        let node = self.opens[&id].node;
        match act {
            Act::Nothing => {}
            Act::Write { cell, count } => {
                let version = self.change();
                self.put(node, cell, &vec![version; count], Who::Other, None);
            }
            Act::Resize(cells) => self.resize(node, cells, Who::Other, None),
            Act::Touch => self.modified(node, Who::Other),
            Act::Delete => self.nodes[node].delete = Some(Who::Other),
            Act::Rename(to) => {
                self.rename(id, &to, Who::Other);
            }
        }
        self.close(id);
    }
}
