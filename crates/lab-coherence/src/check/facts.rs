//! Lengths and attributes, as opens, queries and listings tell them.

use super::model::{Effect, FileIndex, Model, Sight, sight};
use super::{Draft, Kind};
use crate::history::{Action, CELL_BYTES, Facts, OpenAction, Outcome};

/// A change of a file's length, in cells.
#[derive(Clone, Copy)]
enum Length {
    /// At least so long.
    AtLeast(u64),
    /// Just so long.
    Exactly(u64),
}

/// What was told of a file.
struct Told {
    event: usize,
    sight: Sight,
    facts: Facts,
    /// The file, or those that it may be.
    files: Vec<FileIndex>,
}

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for told in all_told(model) {
        let objections: Vec<Draft> =
            told.files.iter().map_while(|file| object(model, *file, &told)).collect();
        // It is wrong only if it is wrong for every file that it may be.
        if objections.len() == told.files.len() {
            drafts.extend(objections.into_iter().next());
        }
    }
    for (index, event) in model.events() {
        let Outcome::Facts(facts) = &event.outcome else { continue };
        let Some(open) = model.open_of(event) else { continue };
        let Some(opened) = model.event(open.event).and_then(|event| event.opened()) else { continue };
        if facts.file != opened.facts.file {
            let text = format!("number {:#x} instead of {:#x}", facts.file, opened.facts.file);
            drafts.push(Draft::new(Kind::WrongFile, text, [open.event, index]));
        }
    }
}

fn all_told(model: &Model<'_>) -> Vec<Told> {
    let mut all = Vec::new();
    for (index, event) in model.events() {
        let mut add = |facts: &Facts, files: Vec<FileIndex>| {
            all.push(Told { event: index, sight: sight(index, event), facts: *facts, files });
        };
        let file = model.open_of(event).and_then(|open| open.file);
        match &event.outcome {
            // What a new file has is no news of it.
            Outcome::Opened(opened) if opened.action == OpenAction::Opened => {
                add(&opened.facts, file.into_iter().collect());
            }
            Outcome::Facts(facts) => add(facts, file.into_iter().collect()),
            Outcome::Listed(entries) => {
                for entry in entries {
                    let files = model.files_of_number(entry.facts.file, sight(index, event).period);
                    add(&entry.facts, files);
                }
            }
            _ => {}
        }
    }
    all
}

fn object(model: &Model<'_>, file: FileIndex, told: &Told) -> Option<Draft> {
    object_to_size(model, file, told).or_else(|| object_to_time(model, file, told))
}

fn object_to_size(model: &Model<'_>, file: FileIndex, told: &Told) -> Option<Draft> {
    let size = told.facts.size;
    let wrong = |text: String, events: Vec<usize>| {
        Some(Draft::new(Kind::WrongSize, text, events.into_iter().chain([told.event])))
    };
    if !size.is_multiple_of(CELL_BYTES as u64) {
        return wrong(format!("{size} bytes, which nobody made it"), Vec::new());
    }
    let cells = size / CELL_BYTES as u64;
    let lengths = lengths(model, file);
    let shorter =
        |than: u64| move |length: &Length| matches!(length, Length::Exactly(cells) if *cells < than);
    // Something made it longer, and nothing may have made it shorter since.
    let missed = lengths.iter().find(|(effect, length)| {
        let (Length::AtLeast(end) | Length::Exactly(end)) = *length;
        let may_be_shortened = || {
            lengths.iter().any(|(other, length)| {
                shorter(end)(length)
                    && other.period.back >= effect.period.call
                    && other.period.call <= told.sight.period.back
                    && other.event != effect.event
            })
        };
        end > cells && had_to_be_known(model, effect, told) && !may_be_shortened()
    });
    if let Some((effect, _)) = missed {
        return wrong(format!("{cells} cells, although it had been made longer"), vec![effect.event]);
    }
    if cells == 0 {
        return None;
    }
    let sources: Vec<&Effect> = lengths
        .iter()
        .filter(|(_, length)| matches!(length, Length::AtLeast(end) | Length::Exactly(end) if *end == cells))
        .map(|(effect, _)| effect)
        .filter(|effect| effect.period.call <= told.sight.period.back)
        .collect();
    if sources.is_empty() {
        return wrong(format!("{cells} cells, which nobody had made it"), Vec::new());
    }
    let mut cut = None;
    for source in &sources {
        let cutter = lengths.iter().find(|(effect, length)| {
            shorter(cells)(length)
                && source.period.back < effect.period.call
                && had_to_be_known(model, effect, told)
        });
        cut = Some((source.event, cutter?.0.event));
    }
    let (source, cutter) = cut?;
    wrong(format!("{cells} cells, although it had been made shorter"), vec![source, cutter])
}

fn lengths(model: &Model<'_>, file: FileIndex) -> Vec<(Effect, Length)> {
    let mut all: Vec<(Effect, Length)> =
        model.files.get(file).map(|of| (of.created, Length::Exactly(0))).into_iter().collect();
    for (_, event, effect) in model.changes_of(file) {
        let length = match &event.action {
            Action::Write { first, count, .. } => Length::AtLeast(first + count),
            Action::SetSize { cells, .. } => Length::Exactly(*cells),
            Action::Open { .. } if event.opened().is_some_and(|o| o.action == OpenAction::Overwritten) => {
                Length::Exactly(0)
            }
            _ => continue,
        };
        all.push((effect, length));
    }
    for lost in &model.lost_opens {
        if let Some(event) = model.event(*lost) {
            all.push((model.effect(*lost, event), Length::Exactly(0)));
        }
    }
    all
}

/// The time of creation is what was set last, or what the file had at first.
fn object_to_time(model: &Model<'_>, file: FileIndex, told: &Told) -> Option<Draft> {
    let mut changes = Vec::new();
    let mut is_sure = !model.event(told.event).is_some_and(|event| model.is_unsettled(event));
    for (_, event, mut effect) in model.changes_of(file) {
        if let Action::SetTime { time, .. } = event.action {
            effect.is_definite &= !model.is_unsettled(event);
            changes.push((effect, time));
        }
    }
    // What was set by a name may have been set for another file.
    is_sure &= !model.events().any(|(_, event)| {
        let is_this = matches!(event.action, Action::SetTime { time, .. } if time == told.facts.time);
        is_this && event.may_be_done() && model.is_unsettled(event)
    });
    if !is_sure {
        return None;
    }
    let source = changes.iter().find(|(_, time)| *time == told.facts.time).map(|(effect, _)| *effect);
    let is_foreign = source.is_none()
        && model.events().any(
            |(_, event)| matches!(event.action, Action::SetTime { time, .. } if time == told.facts.time),
        );
    let stale = |text: &str, events: Vec<usize>| {
        Some(Draft::new(Kind::StaleAttributes, text, events.into_iter().chain([told.event])))
    };
    if is_foreign {
        return stale("a time that another file was given", Vec::new());
    }
    let source = source.or_else(|| model.files.get(file).map(|of| of.created))?;
    if source.period.call > told.sight.period.back {
        return stale("a time that it had not been given yet", vec![source.event]);
    }
    let later = changes.iter().find(|(effect, time)| {
        *time != told.facts.time
            && source.period.back < effect.period.call
            && had_to_be_known(model, effect, told)
    });
    let (later, _) = later?;
    stale("a time that had been changed since", vec![source.event, later.event])
}

fn had_to_be_known(model: &Model<'_>, effect: &Effect, told: &Told) -> bool {
    Model::had_to_be_known(effect, &told.sight, model.facts_age_max(effect, &told.sight))
}
