//! Content: each cell of each file is a register.

use super::model::{Effect, FileIndex, Model, Period, Sight, may_change, sight};
use super::{Draft, Kind, names};
use crate::history::{Action, CELLS_MAX, Cell, OpenAction, Time};

/// What a change leaves in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// A version.
    Version(u64),
    /// Nothing: the file ends before.
    Nothing,
    /// Zeros, if there was nothing.
    ZerosIfNothing,
}

/// What may be found in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Version(u64),
    Nothing,
    Zeros,
}

/// Changes of one cell, and what was seen of it.
pub(super) struct Register {
    pub changes: Vec<(Effect, Left)>,
    pub sights: Vec<(Sight, Found)>,
}

/// What speaks against a sight.
struct Objection {
    kind: Kind,
    text: String,
    events: Vec<usize>,
}

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for file in 0..model.files.len() {
        let registers: Vec<Register> = (0..=CELLS_MAX).map(|cell| register(model, file, cell)).collect();
        for (index, event, _) in model.on_file(file) {
            let (Action::Read { first, count, .. }, crate::history::Outcome::Cells(cells)) =
                (&event.action, &event.outcome)
            else {
                continue;
            };
            for at in 0..*count {
                let Some(register) = registers.get((first + at) as usize) else { continue };
                let cell = cells.get(at as usize);
                let sight = sight(index, event);
                if let Some(objection) = object(model, register, &sight, cell) {
                    let text = format!("cell {}: {}", first + at, objection.text);
                    drafts.push(Draft::new(objection.kind, text, objection.events));
                    break;
                }
            }
        }
    }
    check_remains(model, drafts);
}

/// Changes and sights of a cell.
pub(super) fn register(model: &Model<'_>, file: FileIndex, cell: u64) -> Register {
    let mut register = Register { changes: Vec::new(), sights: Vec::new() };
    if let Some(of) = model.files.get(file) {
        register.changes.push((of.created, Left::Nothing));
    }
    for (_, event, effect) in model.changes_of(file) {
        let left = match &event.action {
            Action::Write { first, count, tag, .. } if (*first..first + count).contains(&cell) => {
                Left::Version(*tag)
            }
            Action::Write { first, .. } if cell < *first => Left::ZerosIfNothing,
            Action::SetSize { cells, .. } if cell < *cells => Left::ZerosIfNothing,
            Action::SetSize { .. } => Left::Nothing,
            Action::Open { .. } if event.opened().is_some_and(|o| o.action == OpenAction::Overwritten) => {
                Left::Nothing
            }
            _ => continue,
        };
        register.changes.push((effect, left));
    }
    for lost in &model.lost_opens {
        let Some(event) = model.event(*lost) else { continue };
        if matches!(event.action, Action::Open { disposition, .. } if may_change(disposition)) {
            register.changes.push((model.effect(*lost, event), Left::Nothing));
        }
    }
    for (index, event, _) in model.on_file(file) {
        let (Action::Read { first, count, .. }, crate::history::Outcome::Cells(cells)) =
            (&event.action, &event.outcome)
        else {
            continue;
        };
        if (*first..first + count).contains(&cell) {
            let seen = cells.get((cell - first) as usize);
            register
                .sights
                .extend(parts(seen).into_iter().flatten().map(|found| (sight(index, event), found)));
        }
    }
    register
}

/// What speaks against it that a cell was found so.
fn object(model: &Model<'_>, register: &Register, sight: &Sight, cell: Option<&Cell>) -> Option<Objection> {
    let event = sight.event;
    let foreign = |text: &str| Objection {
        kind: Kind::ForeignData,
        text: text.into(),
        events: event.into_iter().collect(),
    };
    let Some(found) = parts(cell) else { return Some(foreign("bytes that nobody wrote")) };
    if found.len() > 1 && !is_being_written(model, register, sight) {
        let text = format!("{} while nobody was writing", shown(cell));
        return Some(Objection { kind: Kind::TornWrite, text, events: event.into_iter().collect() });
    }
    found.into_iter().find_map(|found| object_to_one(model, register, sight, found))
}

fn object_to_one(model: &Model<'_>, register: &Register, sight: &Sight, found: Found) -> Option<Objection> {
    let sources: Vec<&Effect> =
        register.changes.iter().filter(|(_, left)| leaves(*left, found)).map(|(effect, _)| effect).collect();
    let of_sight = sight.event;
    if sources.is_empty() {
        let text = format!("{} were never written there", describe(found));
        return Some(Objection { kind: Kind::ForeignData, text, events: of_sight.into_iter().collect() });
    }
    let in_time: Vec<&&Effect> =
        sources.iter().filter(|source| source.period.call <= sight.period.back).collect();
    if in_time.is_empty() {
        let events = of_sight.into_iter().chain(sources.iter().map(|source| source.event)).collect();
        let text = format!("{} before they were written", describe(found));
        return Some(Objection { kind: Kind::FutureData, text, events });
    }
    let mut against = Vec::new();
    for source in &in_time {
        against.push((source, overwriter(model, register, sight, source, found)?));
    }
    let (source, overwriter) = against.into_iter().max_by_key(|(source, _)| source.period.call)?;
    let age = sight.period.call.saturating_sub(overwriter.period.back);
    let text = format!("{}, overwritten {} ms before", describe(found), age / 1_000);
    let events = [source.event, overwriter.event].into_iter().chain(of_sight).collect();
    Some(Objection { kind: Kind::StaleData, text, events })
}

/// A change after `source` that whoever looks had to know of.
fn overwriter<'r>(
    model: &Model<'_>,
    register: &'r Register,
    sight: &Sight,
    source: &Effect,
    found: Found,
) -> Option<&'r Effect> {
    let overwrites = |left: Left| match left {
        Left::ZerosIfNothing => found == Found::Nothing,
        other => !leaves(other, found),
    };
    let later = register
        .changes
        .iter()
        .filter(|(effect, left)| overwrites(*left) && source.period.back < effect.period.call);
    later
        .filter(|(effect, left)| {
            Model::had_to_be_known(effect, sight, model.data_age_max(effect, sight))
                || was_seen(model, register, *left, sight)
        })
        .map(|(effect, _)| effect)
        .max_by_key(|effect| effect.period.back)
}

/// Whether a version was seen by someone, so that it must not be unseen again.
fn was_seen(model: &Model<'_>, register: &Register, left: Left, later: &Sight) -> bool {
    let Left::Version(tag) = left else { return false };
    register.sights.iter().any(|(sight, found)| {
        let after = sight.client.and_then(|client| model.after_sight(client, later));
        *found == Found::Version(tag)
            && after.is_some_and(|after| sight.period.back.saturating_add(after) < later.period.call)
    })
}

/// Whether a write was under way that a reader may have met half done.
fn is_being_written(model: &Model<'_>, register: &Register, sight: &Sight) -> bool {
    register.changes.iter().any(|(effect, left)| {
        let lasting = effect.period.and(model.data_age_max(effect, sight));
        *left != Left::ZerosIfNothing && lasting.overlaps(sight.period)
    })
}

/// What is on the disk when all is over is what was written last.
fn check_remains(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    let Some(remains) = &model.history.remains else { return };
    let sight = Sight { event: None, client: None, period: Period { call: remains.at, back: remains.at } };
    for (name, cells) in &remains.files {
        let files = names::files_at(model, name, &sight);
        let objections = |file: &FileIndex| {
            let one = |cell: u64| {
                let register = register(model, *file, cell);
                object(model, &register, &sight, cells.get(cell as usize)).map(|objection| (cell, objection))
            };
            (0..=CELLS_MAX).find_map(one)
        };
        let mut all = files.iter().map(objections);
        if let Some(Some((cell, objection))) = all.next()
            && all.all(|other| other.is_some())
        {
            let kind = if objection.kind == Kind::StaleData { Kind::LostWrite } else { objection.kind };
            let text = format!("{name} on the disk, cell {cell}: {}", objection.text);
            drafts.push(Draft::new(kind, text, objection.events));
        }
    }
}

fn leaves(left: Left, found: Found) -> bool {
    match (left, found) {
        (Left::Version(one), Found::Version(other)) => one == other,
        (Left::Nothing, Found::Nothing) | (Left::ZerosIfNothing, Found::Zeros) => true,
        _ => false,
    }
}

/// The parts of what was read in a cell; none when some of it was written by nobody.
fn parts(cell: Option<&Cell>) -> Option<Vec<Found>> {
    match cell {
        None => Some(vec![Found::Nothing]),
        Some(Cell::Version(tag)) => Some(vec![Found::Version(*tag)]),
        Some(Cell::Zero) => Some(vec![Found::Zeros]),
        Some(Cell::Garbage) => None,
        Some(Cell::Mixed(cells)) => {
            let parts = cells.iter().map(|cell| parts(Some(cell)).and_then(|parts| parts.first().copied()));
            parts.collect()
        }
    }
}

fn shown(cell: Option<&Cell>) -> String {
    cell.map_or_else(|| "nothing".into(), ToString::to_string)
}

fn describe(found: Found) -> String {
    match found {
        Found::Version(tag) => format!("bytes of {}", Cell::Version(tag)),
        Found::Nothing => "the end of the file".into(),
        Found::Zeros => "zeros".into(),
    }
}

/// Whether a time is one at all.
pub(super) fn is_known(time: Time) -> bool {
    time < Time::MAX
}
