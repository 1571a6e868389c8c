//! What becomes of each request, while somebody wants to see it. Nothing is kept otherwise.

use super::permit::Why;
use crate::limits::{PENDING_MAX, TRACE_MAX, TRACE_MICROS, TRACE_NAME_CHARS_MAX};
use crate::message::{element, elements, header};
use isthmus_smb_wire::{Command, Name, Status};
use std::collections::{HashMap, VecDeque};

/// Where a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Here, at once.
    Locally(Why),
    /// Here, by what was on its way already when the request had gone on.
    Ahead(Why),
    /// On the server side.
    Server,
}

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Counts up from 1.
    pub number: u64,
    /// When the request came, in microseconds of the engine's time.
    pub at: u64,
    /// Its commands, as many as the compound has.
    pub commands: Vec<Command>,
    /// The file it is about, if that is known.
    pub name: String,
    /// Where it was answered.
    pub answered: Answered,
    /// With what.
    pub status: Status,
    /// Microseconds from the request to the answer.
    pub micros: u64,
}

/// A request without its answer.
struct Begun {
    at: u64,
    commands: Vec<Command>,
    name: String,
    /// It went on to the server side.
    passed: bool,
}

/// The last requests of a connection.
#[derive(Default)]
pub(super) struct Trace {
    /// Until when anything is kept.
    until: u64,
    next: u64,
    begun: HashMap<u64, Begun>,
    list: VecDeque<Traced>,
}

impl Trace {
    /// Those after a number, the oldest first. From now on they are kept, for as long as somebody asks.
    pub fn read(&mut self, now: u64, after: u64) -> Vec<Traced> {
        self.is_on(now);
        self.until = now.saturating_add(TRACE_MICROS);
        self.list.iter().filter(|one| one.number > after).cloned().collect()
    }

    /// Whether requests are kept. What was kept is dropped once nobody asks any more.
    pub fn is_on(&mut self, now: u64) -> bool {
        let on = now < self.until;
        if !on && self.until > 0 {
            *self = Self { next: self.next, ..Self::default() };
        }
        on
    }

    /// A request of the client.
    pub fn begin(&mut self, now: u64, message: &[u8], name: Option<Vec<u8>>) {
        let Some(ranges) = elements(message) else { return };
        let commands: Vec<_> = ranges.iter().map(|range| header(element(message, range)).command()).collect();
        if commands == [Command::CANCEL] || self.begun.len() >= PENDING_MAX {
            return;
        }
        let name = Name::new(&name.unwrap_or_default()).to_string_lossy();
        let name = name.chars().take(TRACE_NAME_CHARS_MAX).collect();
        self.begun.insert(header(message).message_id(), Begun { at: now, commands, name, passed: false });
    }

    /// It has gone on.
    pub fn passed(&mut self, message_id: u64) {
        if let Some(begun) = self.begun.get_mut(&message_id) {
            begun.passed = true;
        }
    }

    /// It has its answer, by leave of a permit or from the server side.
    pub fn answered(&mut self, now: u64, response: &[u8], why: Option<Why>) {
        let head = header(response);
        let Some(begun) = self.begun.remove(&head.message_id()) else { return };
        if self.list.len() >= TRACE_MAX {
            self.list.pop_front();
        }
        self.next += 1;
        self.list.push_back(Traced {
            number: self.next,
            at: begun.at,
            commands: begun.commands,
            name: begun.name,
            answered: match why {
                Some(why) if begun.passed => Answered::Ahead(why),
                Some(why) => Answered::Locally(why),
                None => Answered::Server,
            },
            status: head.status(),
            micros: now.saturating_sub(begun.at),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{refuse, request};
    use isthmus_smb_wire::header::Header;
    use isthmus_smb_wire::{FileId, build};

    fn echo(message_id: u64) -> Vec<u8> {
        let mut message = request(1, 2, 1, &build::Echo).unwrap();
        Header::lenient(&mut message[..]).set_message_id(message_id);
        message
    }

    fn go(trace: &mut Trace, now: u64, message_id: u64, passed: bool, why: Option<Why>) {
        if !trace.is_on(now) {
            return;
        }
        trace.begin(now, &echo(message_id), Some(isthmus_smb_wire::name::utf16("a\\b")));
        if passed {
            trace.passed(message_id);
        }
        trace.answered(now + 7, &refuse(&echo(message_id), Status::SUCCESS).unwrap(), why);
    }

    #[test]
    fn nothing_is_kept_unless_somebody_asks() {
        let mut trace = Trace::default();
        go(&mut trace, 1, 1, false, None);
        assert!(trace.read(2, 0).is_empty());
        go(&mut trace, 3, 2, false, Some(Why::Watch(4)));
        go(&mut trace, 4, 3, true, Some(Why::Lease(FileId::ANY)));
        go(&mut trace, 5, 4, true, None);
        let seen = trace.read(6, 0);
        let answered: Vec<_> = seen.iter().map(|one| one.answered).collect();
        let expected =
            [Answered::Locally(Why::Watch(4)), Answered::Ahead(Why::Lease(FileId::ANY)), Answered::Server];
        assert_eq!(answered, expected);
        assert_eq!(
            (seen[0].name.as_str(), seen[0].micros, &seen[0].commands[..]),
            ("a\\b", 7, &[Command::ECHO][..])
        );
        assert_eq!(trace.read(7, 2).len(), 1, "those after the second");
        go(&mut trace, 7 + TRACE_MICROS, 5, true, None);
        assert!(trace.list.is_empty() && trace.begun.is_empty(), "nobody has asked for long");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut trace = Trace::default();
        trace.read(0, 0);
        for message_id in 0..TRACE_MAX as u64 + 10 {
            go(&mut trace, 1, message_id, true, None);
        }
        let seen = trace.read(1, 0);
        assert_eq!((seen.len(), seen[0].number), (TRACE_MAX, 11));
        for message_id in 0..2 * PENDING_MAX as u64 {
            trace.begin(1, &echo(message_id), None);
        }
        assert_eq!(trace.begun.len(), PENDING_MAX);
    }
}
