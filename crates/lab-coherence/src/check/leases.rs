//! Leases and oplocks that clients hold: broken when they must be, and exclusive ones given up before others get in.

use super::model::{Model, Open, Period, READ_DATA, WRITE_DATA};
use super::{Draft, Kind};
use crate::history::{Action, Event, OpenAction, READ_CACHING, Time, WRITE_CACHING};

/// A notification of a break may come so late after the change's own answer. Servers promise no time; this is far more
/// than any was seen to take.
const NOTICE_MAX: Time = 500_000;

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for open in model.opens.values() {
        let Some(file) = open.file else { continue };
        for (index, event, other) in model.on_file(file) {
            if other.handle == open.handle || !event.is_done() || event.call <= open.opened.back {
                continue;
            }
            if open.caching & READ_CACHING != 0 && changes_data(event) && !was_told(model, open, event) {
                let text = "a lease or oplock was not broken by another's change";
                drafts.push(Draft::new(Kind::BreakMissing, text, [open.event, index]));
            }
            if open.caching & WRITE_CACHING != 0 && gets_in(event) && !had_given_up(model, open, event) {
                let text = "opened while another held an exclusive lease or oplock";
                drafts.push(Draft::new(Kind::LeaseIgnored, text, [open.event, index]));
            }
        }
    }
}

fn changes_data(event: &Event) -> bool {
    let overwrites = event.opened().is_some_and(|opened| opened.action == OpenAction::Overwritten);
    // A length that is set to what it is changes nothing.
    overwrites || matches!(event.action, Action::Write { .. })
}

fn gets_in(event: &Event) -> bool {
    let is_new = event.opened().is_some();
    is_new && matches!(event.action, Action::Open { access, .. } if access & (READ_DATA | WRITE_DATA) != 0)
}

/// Whether the holder was told in time, or need not be.
fn was_told(model: &Model<'_>, open: &Open, change: &Event) -> bool {
    let via = model.via(open.client);
    let age_max = model.rule.age_max(via, change.call, change.back);
    let deadline = change.back + NOTICE_MAX + age_max;
    let is_excused = open.held_until <= deadline || model.rule.is_troubled(via, change.call, deadline);
    // While a break waits for its acknowledgement, servers differ in whether they tell of another.
    is_excused || model.history.breaks.iter().any(|b| b.handle == open.handle && b.at <= deadline)
}

/// Whether the holder was told before the other was in, or was not there any more.
fn had_given_up(model: &Model<'_>, open: &Open, other: &Event) -> bool {
    let were_together = Period { call: open.opened.back, back: open.held_until };
    other.back > were_together.back || left_before(model, open, WRITE_CACHING, other.back)
}

/// Whether a break that leaves no such caching was told before a time.
fn left_before(model: &Model<'_>, open: &Open, caching: u32, time: Time) -> bool {
    model.history.breaks.iter().any(|b| b.handle == open.handle && b.left & caching == 0 && b.at <= time)
}
