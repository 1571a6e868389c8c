//! Made-up histories: each kind of fault is found, and what is allowed is not taken for one.

use super::*;
use crate::history::{
    Action, Break, CELL_BYTES, Cell, Event, Facts, Handle, History, Listed, OpenAction, Opened, Outcome,
    READ_CACHING, Remains, Time, Via,
};
use crate::rule::{Delivery, LIVENESS, Mode, Rule, Trouble};
use isthmus_smb_wire::Status;

const R: u32 = 0x81;
const RW: u32 = 0x83;
const ALL: u32 = 7;
const DELETES: u32 = 0x1_0080;
const OPEN: u32 = 1;
const CREATE: u32 = 2;

/// Client 0 is straight at the server, 1 and 2 are behind the first pair.
struct Story(History);

impl Story {
    fn new() -> Story {
        Story(History { clients: vec![Via::Direct, Via::Pair(0), Via::Pair(0)], ..History::default() })
    }

    /// A request that takes two milliseconds.
    fn say(&mut self, client: usize, ms: u64, action: Action, outcome: Outcome) {
        self.last(client, ms, ms + 2, action, outcome);
    }

    fn last(&mut self, client: usize, from_ms: u64, to_ms: u64, action: Action, outcome: Outcome) {
        let (call, back) = (from_ms * 1_000, to_ms * 1_000);
        self.0.events.push(Event { client, call, back, action, outcome });
    }

    fn open_as(
        &mut self,
        client: usize,
        ms: u64,
        name: &str,
        how: (u32, u32, u32),
        opened: (OpenAction, Facts, u32),
    ) -> Handle {
        let handle = self.0.events.len() + 1;
        let (access, share, disposition) = how;
        let (action, facts, caching) = opened;
        let ask = Action::Open { name: name.into(), access, share, disposition, delete_on_close: false };
        self.say(client, ms, ask, Outcome::Opened(Opened { handle, facts, action, caching }));
        handle
    }

    fn create(&mut self, client: usize, ms: u64, name: &str, file: u64) -> Handle {
        self.open_as(client, ms, name, (RW, ALL, CREATE), (OpenAction::Created, facts(file, 0), 0))
    }

    fn open(&mut self, client: usize, ms: u64, name: &str, file: u64, cells: u64) -> Handle {
        self.open_as(client, ms, name, (RW, ALL, OPEN), (OpenAction::Opened, facts(file, cells), 0))
    }

    fn write(&mut self, client: usize, ms: u64, handle: Handle, cell: u64, tag: u64) {
        self.say(client, ms, Action::Write { handle, first: cell, count: 1, tag }, Outcome::Done);
    }

    fn read(&mut self, client: usize, ms: u64, handle: Handle, cell: u64, found: &[Cell]) {
        self.say(client, ms, Action::Read { handle, first: cell, count: 1 }, Outcome::Cells(found.into()));
    }

    fn close(&mut self, client: usize, ms: u64, handle: Handle) {
        self.say(client, ms, Action::Close { handle }, Outcome::Done);
    }

    fn list(&mut self, client: usize, ms: u64, entries: &[(&str, u64, u64)]) {
        let entry = |(name, file, cells): &(&str, u64, u64)| Listed {
            name: (*name).into(),
            facts: facts(*file, *cells),
        };
        self.say(client, ms, Action::List, Outcome::Listed(entries.iter().map(entry).collect()));
    }

    fn remains(&mut self, ms: u64, files: &[(&str, &[Cell])]) {
        let files = files.iter().map(|(name, cells)| ((*name).to_owned(), cells.to_vec())).collect();
        self.0.remains = Some(Remains { at: ms * 1_000, files });
    }

    fn kinds(&self, rule: &Rule) -> Vec<Kind> {
        let mut history = self.0.clone();
        history.events.sort_by_key(|event| event.call);
        check(&history, rule).into_iter().map(|finding| finding.kind).collect()
    }

    #[track_caller]
    fn is_fine(&self, rule: &Rule) {
        let mut history = self.0.clone();
        history.events.sort_by_key(|event| event.call);
        let findings = check(&history, rule);
        assert!(findings.is_empty(), "{}", findings.iter().map(ToString::to_string).collect::<String>());
    }

    #[track_caller]
    fn shows(&self, rule: &Rule, kind: Kind) {
        let kinds = self.kinds(rule);
        assert!(kinds.contains(&kind), "{kind:?} is not among {kinds:?}");
    }
}

fn facts(file: u64, cells: u64) -> Facts {
    Facts { file, size: cells * CELL_BYTES as u64, time: 0 }
}

fn v(tag: u64) -> Cell {
    Cell::Version(tag)
}

fn refused(status: Status) -> Outcome {
    Outcome::Refused(status.0)
}

/// Breaks took 10 ms whenever they were measured.
fn bounded() -> Rule {
    let deliveries = (0..20).map(|second| Delivery { pair: 0, at: second * 1_000_000, took: 10_000 });
    Rule { mode: Mode::Bounded, deliveries: deliveries.collect(), troubles: Vec::new() }
}

fn cut(from_ms: Time, to_ms: Time) -> Rule {
    let trouble = Trouble { pair: 0, from: from_ms * 1_000, to: to_ms * 1_000, is_restart: false };
    Rule { troubles: vec![trouble], ..bounded() }
}

/// A file of one cell, version 1; clients 0 and 1 have it open.
fn one_file() -> (Story, Handle, Handle) {
    let mut story = Story::new();
    let writer = story.create(0, 0, "a.dat", 7);
    story.write(0, 10, writer, 0, 1);
    let reader = story.open(1, 20, "a.dat", 7, 1);
    (story, writer, reader)
}

#[test]
fn content_may_be_as_old_as_the_bound_and_no_older() {
    let (mut story, writer, reader) = one_file();
    story.write(0, 30, writer, 0, 2);
    story.read(1, 80, reader, 0, &[v(1)]);
    story.is_fine(&bounded());
    story.shows(&Rule::strict(), Kind::StaleData);
    story.read(1, 95, reader, 0, &[v(1)]);
    story.shows(&bounded(), Kind::StaleData);
    story.is_fine(&cut(500, 600).clone().with_cut_at(90, 200));
}

#[test]
fn in_a_cut_content_may_be_as_old_as_the_liveness_and_no_older() {
    let (mut story, writer, reader) = one_file();
    story.write(0, 30, writer, 0, 2);
    story.read(1, 32 + LIVENESS / 1_000, reader, 0, &[v(1)]);
    let rule = cut(30, 5_000);
    story.is_fine(&rule);
    story.read(1, 90 + LIVENESS / 1_000, reader, 0, &[v(1)]);
    story.shows(&rule, Kind::StaleData);
}

#[test]
fn a_client_that_is_connected_straight_sees_all_at_once() {
    let (mut story, _, other) = one_file();
    let direct = story.open(0, 24, "a.dat", 7, 1);
    story.write(1, 30, other, 0, 2);
    story.read(0, 33, direct, 0, &[v(1)]);
    story.shows(&bounded(), Kind::StaleData);
}

#[test]
fn a_client_sees_its_own_writes_at_once() {
    let (mut story, _, reader) = one_file();
    story.write(1, 30, reader, 0, 2);
    story.read(1, 33, reader, 0, &[v(1)]);
    story.shows(&bounded(), Kind::StaleData);
}

#[test]
fn what_was_seen_is_not_unseen() {
    let (mut story, writer, reader) = one_file();
    // The write takes long, so that it alone proves nothing.
    let action = Action::Write { handle: writer, first: 0, count: 1, tag: 2 };
    story.last(0, 30, 900, action, Outcome::Done);
    story.read(1, 40, reader, 0, &[v(2)]);
    story.read(1, 80, reader, 0, &[v(1)]);
    story.is_fine(&bounded());
    story.read(1, 140, reader, 0, &[v(1)]);
    story.shows(&bounded(), Kind::StaleData);
}

#[test]
fn nothing_is_read_before_it_is_written_or_without() {
    let (mut story, writer, reader) = one_file();
    story.read(1, 30, reader, 0, &[v(2)]);
    story.shows(&bounded(), Kind::ForeignData);
    story.write(0, 40, writer, 0, 2);
    story.shows(&bounded(), Kind::FutureData);
    let (mut story, _, reader) = one_file();
    story.read(1, 30, reader, 0, &[Cell::Garbage]);
    story.shows(&bounded(), Kind::ForeignData);
    let (mut story, _, reader) = one_file();
    story.read(1, 30, reader, 0, &[Cell::Zero]);
    story.shows(&bounded(), Kind::ForeignData);
}

#[test]
fn parts_of_two_writes_are_seen_only_while_one_is_under_way() {
    let mixed = || Cell::Mixed(vec![v(1), v(2)]);
    let (mut story, writer, reader) = one_file();
    story.write(0, 30, writer, 0, 2);
    story.read(1, 31, reader, 0, &[mixed()]);
    story.is_fine(&bounded());
    story.read(1, 60_000, reader, 0, &[mixed()]);
    story.shows(&bounded(), Kind::TornWrite);
    let (mut story, writer, _) = one_file();
    story.write(0, 30, writer, 0, 2);
    story.remains(60_000, &[("a.dat", &[mixed()])]);
    story.shows(&bounded(), Kind::TornWrite);
}

#[test]
fn a_write_that_was_done_stays() {
    let (mut story, _, other) = one_file();
    story.write(1, 30, other, 0, 2);
    story.close(1, 40, other);
    story.remains(5_000, &[("a.dat", &[v(2)])]);
    story.is_fine(&bounded());
    story.remains(5_000, &[("a.dat", &[v(1)])]);
    story.shows(&bounded(), Kind::LostWrite);
}

#[test]
fn a_write_may_go_only_if_its_client_was_told() {
    // The connection went before anything was flushed.
    let (mut story, _, other) = one_file();
    story.write(1, 30, other, 0, 2);
    story.say(1, 40, Action::Close { handle: other }, Outcome::Lost);
    story.remains(5_000, &[("a.dat", &[v(1)])]);
    let mut rule = cut(35, 45);
    rule.troubles[0].is_restart = true;
    story.is_fine(&rule);
    // It had been flushed.
    let flush = Action::Flush { handle: other };
    story.say(1, 35, flush.clone(), Outcome::Done);
    story.shows(&rule, Kind::LostWrite);
    // The next flush was refused: that is an error like any other, but the write is not lost silently.
    let (mut story, _, other) = one_file();
    story.write(1, 30, other, 0, 2);
    story.say(1, 35, flush, refused(Status::DISK_FULL));
    story.remains(5_000, &[("a.dat", &[v(1)])]);
    let kinds = story.kinds(&bounded());
    assert_eq!(kinds, [Kind::Refused]);
}

#[test]
fn strict_mode_wants_one_order_for_all() {
    let mut story = Story::new();
    let writer = story.create(0, 0, "a.dat", 7);
    let (one, other) = (story.open(1, 10, "a.dat", 7, 0), story.open(2, 10, "a.dat", 7, 0));
    let write = |tag| Action::Write { handle: writer, first: 0, count: 1, tag };
    story.last(0, 20, 500, write(1), Outcome::Done);
    story.last(0, 20, 500, write(2), Outcome::Done);
    story.read(1, 100, one, 0, &[v(1)]);
    story.read(1, 200, one, 0, &[v(2)]);
    story.read(2, 300, other, 0, &[v(2)]);
    story.is_fine(&Rule::strict());
    story.read(2, 400, other, 0, &[v(1)]);
    story.shows(&Rule::strict(), Kind::NoOrder);
}

#[test]
fn lengths_are_those_that_the_file_was_given() {
    let (mut story, writer, reader) = one_file();
    story.write(0, 30, writer, 3, 2);
    let query = Action::Query { handle: reader };
    story.say(1, 85, query.clone(), Outcome::Facts(facts(7, 1)));
    story.is_fine(&bounded());
    story.say(1, 200, query.clone(), Outcome::Facts(facts(7, 1)));
    story.shows(&bounded(), Kind::WrongSize);

    let (mut story, writer, _) = one_file();
    story.say(0, 30, Action::SetSize { handle: writer, cells: 0 }, Outcome::Done);
    story.say(1, 200, query.clone(), Outcome::Facts(facts(7, 0)));
    story.is_fine(&bounded());
    story.say(1, 210, query.clone(), Outcome::Facts(facts(7, 1)));
    story.shows(&bounded(), Kind::WrongSize);

    let (mut story, _, _) = one_file();
    story.list(1, 50, &[("a.dat", 7, 5)]);
    story.shows(&bounded(), Kind::WrongSize);
    let (mut story, _, _) = one_file();
    story.say(1, 50, query, Outcome::Facts(Facts { file: 7, size: 100, time: 0 }));
    story.shows(&bounded(), Kind::WrongSize);
}

#[test]
fn the_end_of_the_file_is_where_it_was_set() {
    let (mut story, writer, reader) = one_file();
    story.say(0, 30, Action::SetSize { handle: writer, cells: 0 }, Outcome::Done);
    story.read(1, 200, reader, 0, &[]);
    story.is_fine(&bounded());
    story.write(0, 210, writer, 1, 2);
    story.read(1, 400, reader, 0, &[Cell::Zero]);
    story.is_fine(&bounded());
    story.read(1, 410, reader, 1, &[]);
    story.shows(&bounded(), Kind::StaleData);
}

#[test]
fn attributes_may_be_as_old_as_the_bound_and_no_older() {
    let (mut story, writer, reader) = one_file();
    story.say(0, 30, Action::SetTime { handle: writer, time: 5 }, Outcome::Done);
    let query = Action::Query { handle: reader };
    let with = |time| Outcome::Facts(Facts { time, ..facts(7, 1) });
    story.say(1, 60, query.clone(), with(0));
    story.say(1, 200, query.clone(), with(5));
    story.is_fine(&bounded());
    story.say(1, 210, query.clone(), with(0));
    story.shows(&bounded(), Kind::StaleAttributes);
}

#[test]
fn an_open_is_of_the_file_that_it_says() {
    let (mut story, _, reader) = one_file();
    story.say(1, 50, Action::Query { handle: reader }, Outcome::Facts(facts(8, 1)));
    story.shows(&bounded(), Kind::WrongFile);
    let (mut story, ..) = one_file();
    story.open(1, 50, "a.dat", 99, 1);
    story.shows(&bounded(), Kind::WrongFile);
}

#[test]
fn a_deleted_name_is_gone_after_a_second() {
    let deleted = || {
        let (mut story, writer, reader) = one_file();
        story.close(0, 30, writer);
        let how = (DELETES, ALL, OPEN);
        let handle = story.open_as(0, 40, "a.dat", how, (OpenAction::Opened, facts(7, 1), 0));
        story.say(0, 50, Action::Delete { handle }, Outcome::Done);
        story.close(0, 60, handle);
        story.close(1, 70, reader);
        story
    };
    let mut story = deleted();
    story.list(2, 900, &[("a.dat", 7, 1)]);
    story.remains(9_000, &[]);
    story.is_fine(&bounded());
    story.list(2, 1_300, &[("a.dat", 7, 1)]);
    story.shows(&bounded(), Kind::NameKept);
    let mut story = deleted();
    story.open(2, 1_300, "a.dat", 7, 1);
    story.shows(&bounded(), Kind::NameKept);
    let mut story = deleted();
    story.remains(9_000, &[("a.dat", &[v(1)])]);
    story.shows(&bounded(), Kind::NameKept);
    let mut story = deleted();
    let create = Action::Open {
        name: "a.dat".into(),
        access: RW,
        share: ALL,
        disposition: CREATE,
        delete_on_close: false,
    };
    story.say(2, 1_300, create, refused(Status::OBJECT_NAME_COLLISION));
    story.shows(&bounded(), Kind::NameKept);
}

#[test]
fn a_file_that_is_opened_and_deleted_at_once_may_be_gone_before_the_answer() {
    let mut story = Story::new();
    let first = story.create(0, 1, "a.dat", 1);
    story.close(0, 5, first);
    let handle = story.0.events.len() + 1;
    let action = Action::Open {
        name: "a.dat".into(),
        access: DELETES,
        share: ALL,
        disposition: OPEN,
        delete_on_close: true,
    };
    let opened = Opened { handle, facts: facts(1, 0), action: OpenAction::Opened, caching: 0 };
    story.last(1, 100, 200, action, Outcome::Opened(opened));
    story.last(1, 100, 200, Action::Close { handle }, Outcome::Done);
    // Its number is another file's by now.
    story.create(0, 140, "b.dat", 1);
    story.list(0, 150, &[("b.dat", 1, 0)]);
    story.is_fine(&bounded());
    story.list(0, 300, &[("b.dat", 1, 0)]);
    story.is_fine(&bounded());
}

#[test]
fn a_name_that_was_given_is_there() {
    let (mut story, ..) = one_file();
    let open = Action::Open {
        name: "a.dat".into(),
        access: R,
        share: ALL,
        disposition: OPEN,
        delete_on_close: false,
    };
    story.say(2, 30, open.clone(), refused(Status::OBJECT_NAME_NOT_FOUND));
    story.is_fine(&bounded());
    story.say(2, 300, open, refused(Status::OBJECT_NAME_NOT_FOUND));
    story.shows(&bounded(), Kind::NameMissing);
    let (mut story, ..) = one_file();
    story.list(2, 300, &[]);
    story.shows(&bounded(), Kind::NameMissing);
    let (mut story, ..) = one_file();
    story.remains(9_000, &[]);
    story.shows(&bounded(), Kind::NameMissing);
    let (mut story, ..) = one_file();
    story.create(2, 300, "a.dat", 8);
    story.shows(&bounded(), Kind::NameMissing);
}

#[test]
fn a_renamed_file_has_its_new_name_alone() {
    let renamed = || {
        let (mut story, ..) = one_file();
        let how = (DELETES, ALL, OPEN);
        let handle = story.open_as(0, 30, "a.dat", how, (OpenAction::Opened, facts(7, 1), 0));
        story.say(0, 40, Action::Rename { handle, to: "b.dat".into(), replace: true }, Outcome::Done);
        story
    };
    let mut story = renamed();
    story.open(1, 90, "a.dat", 7, 1);
    story.open(1, 150, "b.dat", 7, 1);
    story.is_fine(&bounded());
    story.open(1, 160, "a.dat", 7, 1);
    story.shows(&bounded(), Kind::NameKept);
    let mut story = renamed();
    story.list(1, 150, &[("a.dat", 7, 1)]);
    story.shows(&bounded(), Kind::NameMissing);
    story.shows(&bounded(), Kind::NameKept);
}

#[test]
fn opens_that_exclude_each_other_are_not_together() {
    let (mut story, writer, reader) = one_file();
    story.close(0, 30, writer);
    story.close(1, 30, reader);
    let first = story.open_as(0, 40, "a.dat", (R, 1, OPEN), (OpenAction::Opened, facts(7, 1), 0));
    let second = story.open_as(1, 50, "a.dat", (RW, ALL, OPEN), (OpenAction::Opened, facts(7, 1), 0));
    story.close(1, 60, second);
    story.is_fine(&bounded());
    story.close(0, 70, first);
    story.shows(&bounded(), Kind::SharedAgainstWill);
}

#[test]
fn locks_are_kept() {
    let lock = |handle, exclusive| Action::Lock { handle, first: 0, count: 2, exclusive };
    let (mut story, writer, reader) = one_file();
    story.say(0, 30, lock(writer, false), Outcome::Done);
    story.say(1, 40, lock(reader, false), Outcome::Done);
    story.read(1, 50, reader, 0, &[v(1)]);
    story.close(0, 150, writer);
    story.is_fine(&bounded());
    story.write(1, 130, reader, 1, 2);
    story.shows(&bounded(), Kind::LockIgnored);

    let (mut story, writer, reader) = one_file();
    story.say(0, 30, lock(writer, true), Outcome::Done);
    story.say(1, 40, lock(reader, false), Outcome::Done);
    story.close(1, 45, reader);
    story.close(0, 60, writer);
    story.shows(&bounded(), Kind::LockIgnored);
}

#[test]
fn who_has_a_lease_may_read_past_locks_until_it_has_acknowledged_its_break() {
    let read_at = |ms: u64| {
        let (mut story, writer, _) = one_file();
        let opened = (OpenAction::Opened, facts(7, 1), READ_CACHING);
        let holder = story.open_as(2, 25, "a.dat", (R, ALL, OPEN), opened);
        let lock = Action::Lock { handle: writer, first: 0, count: 2, exclusive: true };
        story.say(0, 30, lock, Outcome::Done);
        story.0.breaks = vec![Break { handle: holder, left: 0, at: 30_000 }];
        story.read(2, ms, holder, 0, &[v(1)]);
        story.close(0, 900, writer);
        story
    };
    read_at(200).is_fine(&bounded());
    read_at(500).shows(&bounded(), Kind::LockIgnored);
}

#[test]
fn access_is_kept() {
    let (mut story, ..) = one_file();
    let handle = story.open_as(1, 30, "a.dat", (R, ALL, OPEN), (OpenAction::Opened, facts(7, 1), 0));
    story.write(1, 40, handle, 0, 2);
    story.shows(&bounded(), Kind::AccessIgnored);
}

#[test]
fn refusals_have_reasons() {
    let (mut story, writer, reader) = one_file();
    let open = |share| Action::Open {
        name: "a.dat".into(),
        access: RW,
        share,
        disposition: OPEN,
        delete_on_close: false,
    };
    story.say(2, 30, open(0), refused(Status::SHARING_VIOLATION));
    story.is_fine(&bounded());
    story.close(0, 40, writer);
    story.close(1, 50, reader);
    story.say(2, 100, open(0), refused(Status::SHARING_VIOLATION));
    story.is_fine(&bounded());
    story.say(2, 300, open(0), refused(Status::SHARING_VIOLATION));
    assert_eq!(story.kinds(&bounded()), [Kind::Refused]);
    for status in [Status::INTERNAL_ERROR, Status::DELETE_PENDING, Status::ACCESS_DENIED, Status::FILE_CLOSED]
    {
        let (mut story, ..) = one_file();
        story.say(2, 300, open(7), refused(status));
        assert_eq!(story.kinds(&bounded()), [Kind::Refused], "{status:?}");
    }
    let (mut story, _, reader) = one_file();
    let action = Action::Read { handle: reader, first: 0, count: 1 };
    story.say(1, 30, action, refused(Status::FILE_LOCK_CONFLICT));
    story.shows(&bounded(), Kind::Refused);
}

#[test]
fn connections_stay() {
    let (mut story, _, reader) = one_file();
    story.say(1, 30, Action::Flush { handle: reader }, Outcome::Lost);
    story.shows(&bounded(), Kind::Disconnected);
    story.shows(&cut(25, 40), Kind::Disconnected);
    let mut rule = cut(25, 40);
    rule.troubles[0].is_restart = true;
    story.is_fine(&rule);
}

#[test]
fn leases_are_broken_by_changes() {
    let held = |told: &[(u32, u64)], until_ms| {
        let mut story = Story::new();
        let writer = story.create(0, 0, "a.dat", 7);
        let held = story.open_as(1, 20, "a.dat", (R, ALL, OPEN), (OpenAction::Opened, facts(7, 0), 3));
        story.write(0, 30, writer, 0, 1);
        story.close(1, until_ms, held);
        let one = |(left, ms): &(u32, u64)| Break { handle: held, left: *left, at: ms * 1_000 };
        story.0.breaks = told.iter().map(one).collect();
        story
    };
    held(&[], 400).is_fine(&bounded());
    held(&[(0, 40)], 900).is_fine(&bounded());
    held(&[], 900).shows(&bounded(), Kind::BreakMissing);
}

#[test]
fn exclusive_leases_are_given_up_before_others_get_in() {
    let opened = |told: &[(u32, u64)]| {
        let mut story = Story::new();
        let held = story.create(1, 0, "a.dat", 7);
        let Outcome::Opened(opened) = &mut story.0.events[0].outcome else { panic!() };
        opened.caching = 7;
        let one = |(left, ms): &(u32, u64)| Break { handle: held, left: *left, at: ms * 1_000 };
        story.0.breaks = told.iter().map(one).collect();
        story.open(0, 30, "a.dat", 7, 0);
        story.close(1, 60, held);
        story
    };
    opened(&[(3, 31)]).is_fine(&bounded());
    opened(&[]).shows(&bounded(), Kind::LeaseIgnored);
    opened(&[(3, 35)]).shows(&bounded(), Kind::LeaseIgnored);
    opened(&[(7, 31)]).shows(&bounded(), Kind::LeaseIgnored);
}

#[test]
fn answers_come() {
    let (mut story, _, reader) = one_file();
    story.last(1, 30, 25_000, Action::Flush { handle: reader }, Outcome::Done);
    story.shows(&bounded(), Kind::Stalled);
    story.is_fine(&cut(100, 20_000));
}

#[test]
fn a_finding_shows_the_requests_that_matter_and_no_others() {
    let (mut story, writer, reader) = one_file();
    story.write(0, 30, writer, 0, 2);
    story.list(2, 35, &[("a.dat", 7, 1)]);
    story.read(1, 300, reader, 0, &[v(1)]);
    let findings = check(&story.0, &bounded());
    let text = findings[0].to_string();
    assert_eq!(findings[0].requests.len(), 5, "{text}");
    assert!(text.contains("overwritten 268 ms before") && !text.contains("list"), "{text}");
    assert!(text.contains("client 1 (pair 0): read #3 cell 0 -> [v0.1]"), "{text}");
}

impl Rule {
    fn with_cut_at(mut self, from_ms: Time, to_ms: Time) -> Rule {
        self.troubles.push(Trouble { pair: 0, from: from_ms * 1_000, to: to_ms * 1_000, is_restart: false });
        self
    }
}
