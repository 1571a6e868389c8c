//! The second leg of the connection: identifiers and credits towards the server.
//!
//! Until the engine has a request of its own the client's identifiers are the server's too. From then on each request
//! gets the server's next identifier as it is sent, since requests answered near the client never come here and the
//! engine's own do. Credits are kept apart likewise: the engine asks for some beside the client's and spends only those.

use super::Job;
use crate::limits::{PENDING_MAX, SPARE_CREDITS, SPARE_CREDITS_STEP};
use crate::message::{charge, elements, header};
use crate::{Carriage, Lan, Out};
use isthmus_smb_wire::Command;
use isthmus_smb_wire::header::{Header, MESSAGE_ID_UNSOLICITED};
use std::collections::{HashMap, VecDeque};

/// Whose a request is.
pub(crate) enum Owner {
    /// The client's, with its own identifier and the credits that it asked for.
    Client { message_id: u64, asked: u16 },
    /// The engine's.
    Engine(Job),
    /// The client's, who has its answer.
    Nobody,
}

/// A request that waits for credits, with the owner of each element; none for CANCEL.
struct Queued {
    carriage: Carriage,
    message: Vec<u8>,
    owners: Vec<Option<Owner>>,
}

/// Identifiers and credits of one connection.
pub(crate) struct Leg {
    /// Whether the server's identifiers are others than the client's.
    shifted: bool,
    /// The next identifier for the server.
    next: u64,
    waiting: HashMap<u64, Owner>,
    /// Identifier for the server of a client's request.
    ours: HashMap<u64, u64>,
    /// Credits left at the server, and those of them that the client knows of.
    available: u64,
    client: u64,
    queue: VecDeque<Queued>,
    /// Requests of the engine that wait.
    jobs: usize,
    /// Whether credits are wanted beside the client's.
    wanting: bool,
}

impl Leg {
    pub fn new() -> Self {
        // A connection begins with one credit.
        Self {
            shifted: false,
            next: 0,
            waiting: HashMap::new(),
            ours: HashMap::new(),
            available: 1,
            client: 1,
            queue: VecDeque::new(),
            jobs: 0,
            wanting: false,
        }
    }

    /// From now on credits are asked for beside the client's.
    pub fn want_credits(&mut self) {
        self.wanting = true;
    }

    /// Whether identifiers have been changed.
    pub fn is_shifted(&self) -> bool {
        self.shifted
    }

    /// Requests of the engine that wait for their response.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Whether the engine may send something that takes so many credits.
    pub fn has_spare(&self, charge: u16) -> bool {
        self.queue.is_empty() && self.available >= self.client + u64::from(charge)
    }

    /// Sends a request of the client.
    pub fn send_client(&mut self, carriage: Carriage, message: Vec<u8>, out: &mut Out) {
        let Some(ranges) = elements(&message) else { return };
        let mut owners = Vec::with_capacity(ranges.len());
        for range in ranges {
            let header = header(message.get(range).unwrap_or(&[]));
            if header.command() == Command::CANCEL {
                owners.push(None);
                continue;
            }
            self.client = self.client.saturating_sub(charge(&header).into());
            owners.push(Some(Owner::Client { message_id: header.message_id(), asked: header.credits() }));
        }
        self.send(Queued { carriage, message, owners }, out);
    }

    /// Notes an element of a request of the client that is sent as it is.
    pub fn passed(&mut self, element: &[u8]) {
        let header = header(element);
        if header.command() == Command::CANCEL {
            return;
        }
        let (message_id, charge) = (header.message_id(), charge(&header));
        self.client = self.client.saturating_sub(charge.into());
        self.available = self.available.saturating_sub(charge.into());
        self.next = self.next.max(message_id.wrapping_add(charge.into()));
        self.ours.insert(message_id, message_id);
        self.waiting.insert(message_id, Owner::Client { message_id, asked: header.credits() });
    }

    /// Sends a request of the engine, or one of the client that has its answer, each element with its owner.
    pub fn send_own(&mut self, carriage: Carriage, message: Vec<u8>, owners: Vec<Owner>, out: &mut Out) {
        (self.shifted, self.wanting) = (true, true);
        self.jobs += owners.iter().filter(|owner| matches!(owner, Owner::Engine(_))).count();
        let owners = owners.into_iter().map(Some).collect();
        self.send(Queued { carriage, message, owners }, out);
    }

    /// Whose a response is, by its first element; none when nobody asked.
    pub fn owner_of(&self, message: &[u8]) -> Option<&Owner> {
        self.waiting.get(&header(message).message_id())
    }

    /// Takes back a request of the client that is to be sent again in another form.
    pub fn take_back(&mut self, response: &[u8], out: &mut Out) {
        let charge = charge(&header(response));
        if let Some(Owner::Client { message_id, .. }) = self.take_own(response, out) {
            self.ours.remove(&message_id);
            self.client += u64::from(charge);
        }
    }

    /// Takes the owner of one element of a response to the engine; the final one ends it.
    pub fn take_own(&mut self, element: &[u8], out: &mut Out) -> Option<Owner> {
        let header = header(element);
        self.available += u64::from(header.credits());
        let owner = if header.is_interim() { None } else { self.waiting.remove(&header.message_id()) };
        self.jobs -= usize::from(matches!(owner, Some(Owner::Engine(_))));
        self.flush(out);
        owner
    }

    /// Gives a response to the client the client's identifiers, and the credits that are its own.
    pub fn translate(&mut self, message: &mut [u8], out: &mut Out) {
        for range in elements(message).unwrap_or_default() {
            let Some(bytes) = message.get_mut(range) else { continue };
            self.translate_element(Header::lenient(bytes));
        }
        self.flush(out);
    }

    fn translate_element(&mut self, mut header: Header<&mut [u8]>) {
        let (ours, granted) = (header.message_id(), header.credits());
        if ours == MESSAGE_ID_UNSOLICITED {
            return;
        }
        self.available += u64::from(granted);
        let spare = self.available.saturating_sub(self.client);
        let is_final = !header.is_interim();
        let Some(Owner::Client { message_id, asked }) = self.waiting.get_mut(&ours) else {
            self.client += u64::from(granted);
            return;
        };
        let message_id = *message_id;
        let give = if self.wanting {
            let least = u64::from(self.client == 0 && is_final).min(spare);
            u64::from(granted.min(*asked)).min(spare).max(least) as u16
        } else {
            granted
        };
        *asked = asked.saturating_sub(give);
        self.client += u64::from(give);
        header.set_message_id(message_id);
        header.set_credits(give);
        if is_final {
            self.waiting.remove(&ours);
            self.ours.remove(&message_id);
        }
    }

    /// Sends at once if the credits are there.
    fn send(&mut self, request: Queued, out: &mut Out) {
        if self.shifted && (!self.queue.is_empty() || self.available < cost(&request)) {
            // A client that sends more than its credits allow finds out from the server.
            if self.queue.len() < PENDING_MAX {
                self.queue.push_back(request);
                return;
            }
        }
        self.dispatch(request, out);
    }

    fn flush(&mut self, out: &mut Out) {
        while let Some(first) = self.queue.front() {
            if self.available < cost(first) {
                return;
            }
            let Some(first) = self.queue.pop_front() else { return };
            self.dispatch(first, out);
        }
    }

    fn dispatch(&mut self, request: Queued, out: &mut Out) {
        let Queued { carriage, mut message, owners } = request;
        let ranges = elements(&message).unwrap_or_default();
        for (range, owner) in ranges.into_iter().zip(owners) {
            let Some(bytes) = message.get_mut(range) else { continue };
            let mut header = Header::lenient(bytes);
            let Some(owner) = owner else {
                match self.ours.get(&header.message_id()) {
                    Some(ours) => header.set_message_id(*ours),
                    // It has its answer, or an asynchronous identifier.
                    None if self.shifted && !header.is_async() => return,
                    None => {}
                }
                continue;
            };
            let charge = charge(&header);
            let ours = if self.shifted { self.next } else { header.message_id() };
            self.next = self.next.max(ours.wrapping_add(charge.into()));
            self.available = self.available.saturating_sub(charge.into());
            if let Owner::Client { message_id, .. } = owner {
                self.ours.insert(message_id, ours);
            }
            header.set_message_id(ours);
            // What makes a session, or binds one, may be signed by keys that are not known here.
            let may_alter = header.command() != Command::SESSION_SETUP;
            if self.wanting && may_alter && self.available < self.client + SPARE_CREDITS {
                header.set_credits(header.credits().max(charge).saturating_add(SPARE_CREDITS_STEP));
            }
            self.waiting.insert(ours, owner);
        }
        out.lan.push(Lan { carriage, message });
    }
}

/// Credits that a request takes.
fn cost(request: &Queued) -> u64 {
    let ranges = elements(&request.message).unwrap_or_default();
    let charges = ranges.into_iter().map(|range| header(request.message.get(range).unwrap_or(&[])));
    charges
        .filter(|header| header.command() != Command::CANCEL)
        .map(|header| u64::from(charge(&header)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::request;
    use isthmus_smb_wire::build;

    fn of_client(message_id: u64, credits: u16) -> Vec<u8> {
        let mut message = request(5, 6, 1, &build::Echo).unwrap();
        let mut header = Header::lenient(&mut message[..]);
        header.set_message_id(message_id);
        header.set_credits(credits);
        message
    }

    fn answer(request: &[u8], credits: u16) -> Vec<u8> {
        let mut message =
            crate::message::respond(request, isthmus_smb_wire::Status::SUCCESS, &build::EchoResponse)
                .unwrap();
        Header::lenient(&mut message[..]).set_credits(credits);
        message
    }

    fn sent(out: &mut Out) -> Vec<Vec<u8>> {
        out.lan.drain(..).map(|lan| lan.message).collect()
    }

    #[test]
    fn until_the_engine_speaks_nothing_is_altered() {
        let (mut leg, mut out) = (Leg::new(), Out::default());
        for message_id in 0..50 {
            let message = of_client(message_id, 3);
            leg.send_client(Carriage::Plain, message.clone(), &mut out);
            assert_eq!(sent(&mut out), std::slice::from_ref(&message));
            let mut response = answer(&message, 3);
            let before = response.clone();
            leg.translate(&mut response, &mut out);
            assert_eq!(response, before);
        }
    }

    #[test]
    fn what_binds_a_session_is_not_altered_since_others_keys_may_sign_it() {
        let (mut leg, mut out) = (Leg::new(), Out::default());
        leg.want_credits();
        for (command, is_altered) in [(Command::SESSION_SETUP, false), (Command::ECHO, true)] {
            let mut message = of_client(u64::from(is_altered), 3);
            Header::lenient(&mut message[..]).set_command(command);
            leg.send_client(Carriage::Plain, message.clone(), &mut out);
            assert_eq!(sent(&mut out) != [message], is_altered, "{command:?}");
        }
    }

    #[test]
    fn identifiers_follow_on_and_credits_are_never_overdrawn() {
        let (mut leg, mut out) = (Leg::new(), Out::default());
        let (mut server_credits, mut client_credits) = (1i64, 1i64);
        let (mut next_client, mut expected) = (0u64, 0u64);
        let mut at_server: VecDeque<Vec<u8>> = VecDeque::new();
        let mut answered = 0;
        for round in 0..4_000u64 {
            if client_credits > 0 && round % 3 != 2 {
                client_credits -= 1;
                leg.send_client(Carriage::Plain, of_client(next_client, 4), &mut out);
                next_client += 1;
            }
            // Every seventh request of the client is answered near it, and never comes here.
            if leg.is_shifted() && round % 7 == 0 {
                next_client += 1;
            }
            if round > 20 && leg.has_spare(1) {
                let own = request(5, 6, 1, &build::Echo).unwrap();
                leg.send_own(Carriage::Plain, own, vec![Owner::Engine(Job::Done)], &mut out);
            }
            for message in sent(&mut out) {
                assert_eq!(header(&message).message_id(), expected, "each follows on the one before");
                expected += 1;
                server_credits -= 1;
                assert!(server_credits >= 0, "more than the server has granted");
                at_server.push_back(message);
            }
            if round % 2 == 0
                && let Some(request) = at_server.pop_front()
            {
                let granted = header(&request).credits().min(64);
                server_credits += i64::from(granted);
                let mut response = answer(&request, granted);
                match leg.owner_of(&response) {
                    Some(Owner::Client { .. }) => {
                        leg.translate(&mut response, &mut out);
                        client_credits += i64::from(header(&response).credits());
                        answered += 1;
                    }
                    _ => assert!(leg.take_own(&response, &mut out).is_some()),
                }
            }
        }
        assert!(answered > 500, "the client goes on: {answered}");
        assert!(leg.jobs() <= at_server.len());
    }

    #[test]
    fn a_cancel_names_the_servers_identifier_or_is_dropped() {
        let (mut leg, mut out) = (Leg::new(), Out::default());
        leg.send_client(Carriage::Plain, of_client(0, 50), &mut out);
        let first = sent(&mut out).remove(0);
        leg.translate(&mut answer(&first, 50), &mut out);
        leg.send_own(Carriage::Plain, request(5, 6, 1, &build::Echo).unwrap(), vec![Owner::Nobody], &mut out);
        leg.send_client(Carriage::Plain, of_client(1, 1), &mut out);
        let ours = header(&sent(&mut out)[1]).message_id();
        assert_eq!(ours, 2);
        let cancel = |message_id| {
            let mut message = request(5, 6, 1, &build::Cancel).unwrap();
            Header::lenient(&mut message[..]).set_message_id(message_id);
            message
        };
        leg.send_client(Carriage::Plain, cancel(1), &mut out);
        assert_eq!(header(&sent(&mut out)[0]).message_id(), ours);
        leg.send_client(Carriage::Plain, cancel(0), &mut out);
        assert!(sent(&mut out).is_empty(), "its request has its answer");
    }
}
