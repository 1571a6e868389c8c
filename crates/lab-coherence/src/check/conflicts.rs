//! What excludes each other: share modes and locks; and what an open's access allows.

use super::model::{DELETE, Model, Open, READ_DATA, WRITE_DATA};
use super::{Draft, Kind};
use crate::history::{Action, Break, Handle, Outcome, READ_CACHING, Time};

/// Clients have acknowledged a break so long after they were told of it, and the server knows.
const ACKNOWLEDGED_MAX: Time = 300_000;

/// Bits of access that count for share modes, each with the bit of share access that allows it.
const SHARED_BITS: [(u32, u32); 3] = [(READ_DATA, 1), (WRITE_DATA, 2), (DELETE, 4)];

/// A range that was locked.
pub(super) struct Locked {
    pub event: usize,
    pub handle: Handle,
    pub first: u64,
    pub count: u64,
    pub is_exclusive: bool,
    /// At the earliest and at the latest.
    pub from: (Time, Time),
    /// At the earliest and at the latest.
    pub until: (Time, Time),
    pub is_definite: bool,
}

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    check_shares(model, drafts);
    check_access(model, drafts);
    for file in 0..model.files.len() {
        let locks = locks(model, file);
        check_locks(&locks, drafts);
        check_data(model, file, &locks, drafts);
    }
}

/// Whether two opens exclude each other (MS-FSA 2.1.5.1.2.2).
pub(super) fn exclude(one: (u32, u32), other: (u32, u32)) -> bool {
    let forbids = |access: u32, share: u32| {
        SHARED_BITS.iter().any(|(bit, allows)| access & bit != 0 && share & allows == 0)
    };
    let counts = |access: u32| SHARED_BITS.iter().any(|(bit, _)| access & bit != 0);
    counts(one.0) && counts(other.0) && (forbids(one.0, other.1) || forbids(other.0, one.1))
}

/// Locks of a file.
pub(super) fn locks(model: &Model<'_>, file: usize) -> Vec<Locked> {
    let mut all = Vec::new();
    for (index, event, open) in model.on_file(file).filter(|(_, event, _)| event.may_be_done()) {
        let Action::Lock { handle, first, count, exclusive } = event.action else { continue };
        let unlocks = |action: &Action| matches!(action, Action::Unlock { handle: h, first: f, count: c } if (*h, *f, *c) == (handle, first, count));
        let unlock = model
            .events()
            .find(|(_, other)| unlocks(&other.action) && other.call >= event.call && other.may_be_done());
        let until = match unlock {
            Some((_, unlock)) => {
                (unlock.call.min(open.held_until), if unlock.is_done() { unlock.back } else { Time::MAX })
            }
            None => (open.held_until, open.closed.back),
        };
        let (is_definite, from) = (event.is_done(), (event.call, event.back));
        all.push(Locked {
            event: index,
            handle,
            first,
            count,
            is_exclusive: exclusive,
            from,
            until,
            is_definite,
        });
    }
    all
}

impl Locked {
    pub fn meets(&self, first: u64, count: u64) -> bool {
        self.first < first + count && first < self.first + self.count
    }
}

fn check_shares(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    let opens: Vec<&Open> = model.opens.values().filter(|open| open.file.is_some()).collect();
    for (at, one) in opens.iter().enumerate() {
        for other in opens.iter().skip(at + 1).filter(|other| other.file == one.file) {
            let together = one.opened.back.max(other.opened.back) < one.held_until.min(other.held_until);
            if together && exclude((one.access, one.share), (other.access, other.share)) {
                let text = "two opens that exclude each other were there at the same time";
                let last = [one, other].map(|open| last_done(model, open));
                let events = [one.event, other.event].into_iter().chain(last.into_iter().flatten());
                drafts.push(Draft::new(Kind::SharedAgainstWill, text, events));
            }
        }
    }
}

/// The last request on an open that was done.
fn last_done(model: &Model<'_>, open: &Open) -> Option<usize> {
    let on = model.events().filter(|(_, event)| {
        event.action.handle() == Some(open.handle) && event.is_done() && event.call == open.held_until
    });
    on.map(|(index, _)| index).next()
}

fn check_access(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for (index, event) in model.events().filter(|(_, event)| event.is_done()) {
        let needed = match event.action {
            Action::Read { .. } => READ_DATA,
            Action::Write { .. } => WRITE_DATA,
            Action::Rename { .. } | Action::Delete { .. } => DELETE,
            _ => continue,
        };
        if let Some(open) = model.open_of(event)
            && open.access & needed == 0
        {
            let text = "done, although the open does not allow it";
            drafts.push(Draft::new(Kind::AccessIgnored, text, [open.event, index]));
        }
    }
}

fn check_locks(locks: &[Locked], drafts: &mut Vec<Draft>) {
    for (at, one) in locks.iter().enumerate() {
        for other in locks.iter().skip(at + 1) {
            let is_bad = one.is_definite
                && other.is_definite
                && one.handle != other.handle
                && (one.is_exclusive || other.is_exclusive)
                && one.meets(other.first, other.count)
                && one.from.1.max(other.from.1) < one.until.0.min(other.until.0);
            if is_bad {
                let text = "two locks that exclude each other were there at the same time";
                drafts.push(Draft::new(Kind::LockIgnored, text, [one.event, other.event]));
            }
        }
    }
}

/// Whether an open has a lease or oplock for reading, or may not have acknowledged its break: Samba lets it read past locks
/// (its "strict locking = auto").
fn may_pass_locks(model: &Model<'_>, open: &Open, time: Time) -> bool {
    let is_over =
        |b: &Break| b.handle == open.handle && b.left & READ_CACHING == 0 && b.at + ACKNOWLEDGED_MAX <= time;
    open.caching & READ_CACHING != 0 && !model.history.breaks.iter().any(is_over)
}

/// Data that was read or written past another's lock.
fn check_data(model: &Model<'_>, file: usize, locks: &[Locked], drafts: &mut Vec<Draft>) {
    for (index, event, open) in model.on_file(file).filter(|(_, event, _)| event.is_done()) {
        let (first, count, writes) = match (&event.action, &event.outcome) {
            (Action::Read { first, .. }, Outcome::Cells(cells)) => (*first, cells.len() as u64, false),
            (Action::Write { first, count, .. }, _) => (*first, *count, true),
            _ => continue,
        };
        if !writes && may_pass_locks(model, open, event.call) {
            continue;
        }
        let age_max = model.rule.age_max(model.via(event.client), event.call, event.back);
        let past = locks.iter().find(|lock| {
            lock.is_definite
                && lock.handle != open.handle
                && (lock.is_exclusive || writes)
                && lock.meets(first, count)
                && lock.from.1.saturating_add(age_max) < event.call
                && event.back < lock.until.0
        });
        if let Some(lock) = past {
            let text = if writes { "written past another's lock" } else { "read past another's lock" };
            drafts.push(Draft::new(Kind::LockIgnored, text, [lock.event, index]));
        }
    }
}
