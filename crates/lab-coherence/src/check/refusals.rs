//! Every refusal has a reason, connections stay, and answers come.

use super::conflicts::{exclude, locks};
use super::model::{DELETE, FileIndex, Model, Open, Period, READ_DATA, WRITE_DATA, period};
use super::names::files_ever_at;
use super::{Draft, Kind};
use crate::history::{Action, Event, Outcome, Time, Via};
use crate::rule::Mode;
use isthmus_smb_wire::Status;
use std::collections::BTreeSet;

/// Longest time that an answer may take: every client acknowledges breaks within a second, so nobody waits for anyone.
const ANSWER_MAX: Time = 20_000_000;

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for (index, event) in model.events() {
        let via = model.via(event.client);
        match event.outcome {
            Outcome::Refused(status) if !is_justified(model, event, Status(status)) => {
                let text = format!("{:?} without a reason", Status(status));
                let opened = model.open_of(event).map(|open| open.event);
                drafts.push(Draft::new(Kind::Refused, text, opened.into_iter().chain([index])));
            }
            Outcome::Lost if !model.rule.may_lose(via, seen_since(model, event), event.back) => {
                drafts.push(Draft::new(
                    Kind::Disconnected,
                    "the connection went, or no answer came",
                    [index],
                ));
            }
            _ => {}
        }
        let took = event.back - event.call;
        if took > ANSWER_MAX && !model.rule.is_troubled(via, event.call, event.back) {
            let text = format!("answered after {} s", took / 1_000_000);
            drafts.push(Draft::new(Kind::Stalled, text, [index]));
        }
    }
}

/// Since when the connection of a request was there: its open was made then, or the client was answered last.
fn seen_since(model: &Model<'_>, event: &Event) -> Time {
    if let Some(open) = model.open_of(event) {
        return open.opened.call;
    }
    let before = |one: &&Event| one.client == event.client && one.is_done() && one.back <= event.call;
    model.events().map(|(_, one)| one).filter(before).map(|one| one.back).max().unwrap_or_default()
}

fn is_justified(model: &Model<'_>, event: &Event, status: Status) -> bool {
    match status {
        // Judged with the names, where it is about one.
        Status::OBJECT_NAME_NOT_FOUND => {
            is_open(event) || model.is_unsettled(event) || was_dying(model, event)
        }
        Status::OBJECT_NAME_COLLISION => is_open(event) || is_rename(event),
        Status::SHARING_VIOLATION => is_excluded(model, event),
        Status::FILE_LOCK_CONFLICT | Status::LOCK_NOT_GRANTED => is_locked(model, event),
        Status::DELETE_PENDING => is_dying(model, event),
        Status::FILE_CLOSED => is_taken_back(model, event),
        Status::ACCESS_DENIED => {
            lacks_access(model, event) || is_in_use(model, event) || is_dying(model, event)
        }
        _ => false,
    }
}

/// A pair may have given an open to its client just as the server took it back, and not got it again.
fn is_taken_back(model: &Model<'_>, event: &Event) -> bool {
    let opening = model.open_of(event).and_then(|open| model.event(open.event));
    model.rule.mode == Mode::Bounded
        && model.via(event.client) != Via::Direct
        && opening.is_some_and(|opening| is_excluded(model, opening) || is_dying(model, opening))
}

fn is_open(event: &Event) -> bool {
    matches!(event.action, Action::Open { .. })
}

fn is_rename(event: &Event) -> bool {
    matches!(event.action, Action::Rename { .. })
}

/// Files that a request is about: that of its open, and those of the names that it names.
fn files_of(model: &Model<'_>, event: &Event) -> BTreeSet<FileIndex> {
    let mut files: BTreeSet<FileIndex> =
        model.open_of(event).and_then(|open| open.file).into_iter().collect();
    match &event.action {
        Action::Open { name, .. } => files.extend(files_ever_at(model, name)),
        Action::Rename { to, .. } => files.extend(files_ever_at(model, to)),
        _ => {}
    }
    files
}

/// Opens of others, or of the same client, that may have been there.
fn others<'m>(model: &'m Model<'_>, event: &Event) -> Vec<&'m Open> {
    let (files, late) = (files_of(model, event), model.given_back_late(period(event)));
    let own = event.action.handle();
    let may_be_there = |open: &&Open| {
        let lasting = Period { call: open.opened.call, back: open.closed.back }.and(late);
        Some(open.handle) != own
            && open.file.is_none_or(|file| files.contains(&file))
            && lasting.overlaps(period(event))
    };
    model.opens.values().filter(may_be_there).collect()
}

/// An open without an answer may stand in the way of anyone.
fn is_unknown_in_the_way(model: &Model<'_>, event: &Event) -> bool {
    model.lost_opens.iter().filter_map(|lost| model.event(*lost)).any(|lost| lost.call <= event.back)
}

fn is_excluded(model: &Model<'_>, event: &Event) -> bool {
    let others = others(model, event);
    let is_in_the_way = match &event.action {
        Action::Open { access, share, delete_on_close, .. } => {
            let access = access | if *delete_on_close { DELETE } else { 0 };
            others.iter().any(|open| exclude((access, *share), (open.access, open.share)))
        }
        _ => !others.is_empty(),
    };
    is_in_the_way || is_unknown_in_the_way(model, event)
}

fn is_in_use(model: &Model<'_>, event: &Event) -> bool {
    is_rename(event) && (!others(model, event).is_empty() || is_unknown_in_the_way(model, event))
}

fn is_locked(model: &Model<'_>, event: &Event) -> bool {
    let range = match event.action {
        Action::Read { first, count, .. }
        | Action::Write { first, count, .. }
        | Action::Lock { first, count, .. } => Some((first, count)),
        Action::SetSize { .. } | Action::Open { .. } => None,
        _ => return false,
    };
    let late = model.given_back_late(period(event));
    files_of(model, event).into_iter().flat_map(|file| locks(model, file)).any(|lock| {
        let lasting = Period { call: lock.from.0, back: lock.until.1 }.and(late);
        range.is_none_or(|(first, count)| lock.meets(first, count)) && lasting.overlaps(period(event))
    })
}

fn is_dying(model: &Model<'_>, event: &Event) -> bool {
    let late = model.given_back_late(period(event)).max(model.rule.name_kept_max());
    let dies = |file: FileIndex| {
        model.death(file).is_some_and(|death| death.period.and(late).overlaps(period(event)))
    };
    files_of(model, event).into_iter().any(dies) || is_unknown_in_the_way(model, event)
}

fn was_dying(model: &Model<'_>, event: &Event) -> bool {
    let file = model.open_of(event).and_then(|open| open.file);
    file.and_then(|file| model.death(file)).is_some_and(|death| death.period.call <= event.back)
}

/// Whether the open itself does not allow it; for a FLUSH and a LOCK, MS-SMB2 3.3.5.11 and 3.3.5.14.
fn lacks_access(model: &Model<'_>, event: &Event) -> bool {
    let Some(open) = model.open_of(event) else { return false };
    let needed = match event.action {
        Action::Read { .. } => READ_DATA,
        Action::Write { .. } | Action::SetSize { .. } | Action::Flush { .. } => WRITE_DATA,
        Action::Lock { .. } | Action::Unlock { .. } => READ_DATA | WRITE_DATA,
        Action::Rename { .. } | Action::Delete { .. } => DELETE,
        _ => return false,
    };
    open.access & needed == 0
}
