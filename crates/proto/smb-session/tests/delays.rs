//! The two directions meet in other orders on the two proxies: what is on its way has been seen by one of them alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use bytes::{Bytes, BytesMut};
use isthmus_smb_session::Crossing;
use proptest::prelude::*;
use std::collections::VecDeque;
use support::ends::{Ends, File, Fixed, GMAC, KEY, Protection, Setting, settings};
use support::{Pair, frame};

/// A client's work on one file: requests, each sent when the answer before has come, with what the server answers.
struct Task {
    messages: VecDeque<(bool, Vec<u8>)>,
    /// Whether the next message may be sent.
    ready: bool,
}

/// A proxy pair with what is under way between the proxies.
struct Link {
    pair: Pair,
    under_way: [VecDeque<Crossing>; 2],
}

impl Link {
    fn take(&mut self, from_server: bool, message: &[u8]) {
        let mut input = BytesMut::from(&frame(message)[..]);
        let crossing = self.pair.way(from_server).intake.take(&mut input).unwrap().unwrap();
        self.under_way[usize::from(from_server)].push_back(crossing);
    }

    fn deliver(&mut self, from_server: bool) -> Option<Bytes> {
        let crossing = self.under_way[usize::from(from_server)].pop_front()?;
        let assembler = &mut self.pair.way(from_server).assembler;
        if let Some(note) = &crossing.note {
            assembler.note(note).unwrap();
        }
        // Content and structure take ways of their own, so either may be first.
        crossing.content.into_iter().for_each(|piece| assembler.content(piece));
        assembler.structure(&crossing.structure).unwrap();
        Some(assembler.next().unwrap().unwrap().concat()[4..].to_vec().into())
    }
}

fn tasks(ends: &mut Ends, count: u64) -> Vec<Task> {
    (0..count)
        .map(|number| {
            let messages = match number % 3 {
                0 => ends.unusual(number),
                _ => ends.small_read(&File::new(number, 900), &[number as u8; 900]),
            };
            Task { messages: messages.into(), ready: true }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn messages_under_way_do_not_confuse_what_is_predicted(
        setting in prop::sample::select(settings()),
        keys in any::<bool>(),
        choices in prop::collection::vec(any::<u16>(), 2_000),
    ) {
        let mut ends = Ends::new(setting);
        let source = Fixed::new(KEY);
        let mut link = Link { pair: Pair::new(keys.then_some(source as _)), under_way: Default::default() };
        for (from_server, message) in ends.begin() {
            link.take(from_server, &message);
            prop_assert!(same(&ends, setting, from_server, &link.deliver(from_server).unwrap(), &message));
        }
        let mut tasks = tasks(&mut ends, 12);
        // Messages that must come out next, by direction.
        let mut expected: [VecDeque<(usize, Vec<u8>)>; 2] = Default::default();
        for choice in choices {
            let from_server = choice & 1 == 1;
            if choice & 2 == 0 {
                if let Some(out) = link.deliver(from_server) {
                    let (task, message) = expected[usize::from(from_server)].pop_front().unwrap();
                    prop_assert!(same(&ends, setting, from_server, &out, &message));
                    tasks[task].ready = true;
                }
            } else {
                let index = usize::from(choice >> 2) % tasks.len();
                let task = &mut tasks[index];
                if task.ready
                    && let Some((from_server, message)) = task.messages.pop_front()
                {
                    task.ready = false;
                    link.take(from_server, &message);
                    expected[usize::from(from_server)].push_back((index, message));
                }
            }
        }
    }
}

fn same(ends: &Ends, setting: Setting, from_server: bool, out: &[u8], message: &[u8]) -> bool {
    if setting.protection == Protection::Sealed && message.starts_with(b"\xfdSMB") {
        ends.open(out, from_server) == ends.open(message, from_server)
    } else {
        out == message
    }
}

#[test]
fn an_open_is_not_referred_to_when_the_other_proxy_may_have_forgotten_it() {
    let setting = Setting { protection: Protection::None, ..GMAC };
    let mut ends = Ends::new(setting);
    let mut link = Link { pair: Pair::new(None), under_way: Default::default() };
    let first = File::new(0, 100);
    let mut answers = 0;
    for number in 0..4_300 {
        let file = File::new(number, 100);
        let [(_, request), (_, answer)] = ends.exchange(&file.create(), &file.created());
        link.take(false, &request);
        assert!(link.deliver(false).unwrap() == request);
        link.take(true, &answer);
        // The last answers stay under way, so that the server side knows opens that the client side does not.
        if number < 4_050 {
            assert!(link.deliver(true).unwrap() == answer);
            answers += 1;
        }
    }
    assert_eq!((answers, link.under_way[1].len()), (4_050, 250));
    for file in [first, File::new(3_000, 100)] {
        let read = ends.request(&file.read(0, 100));
        link.take(false, &read);
        assert!(link.deliver(false).unwrap() == read);
        ends.message_id += 1;
    }
}
