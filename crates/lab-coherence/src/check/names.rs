//! Names: each is a register whose value is a file, or nothing.

use super::model::{Effect, FileIndex, Model, Period, Sight, sight};
use super::{Draft, Kind};
use crate::history::{Action, OpenAction, Outcome, Time};
use crate::plan::NAMES;
use isthmus_smb_wire::Status;
use std::collections::BTreeSet;

/// What a change does to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The name is that of this file.
    Given(FileIndex),
    /// If it was that of this file, it is nobody's.
    Taken(FileIndex),
}

pub(super) fn check(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    for (index, event) in model.events() {
        let sight = sight(index, event);
        match (&event.action, &event.outcome) {
            (Action::Open { name, .. }, Outcome::Opened(opened)) => {
                if opened.action == OpenAction::Created {
                    must_be_free(model, drafts, name, &sight, Age::None);
                    continue;
                }
                let open = model.opens.get(&opened.handle);
                match open.and_then(|open| open.file) {
                    Some(file) => must_be_of(model, drafts, name, file, &sight),
                    None if model.lost_opens.is_empty()
                        && model.files_of_number(opened.facts.file, sight.period).is_empty() =>
                    {
                        let text = format!("{name}: a file that nobody made");
                        drafts.push(Draft::new(Kind::WrongFile, text, [index]));
                    }
                    None => {}
                }
            }
            (Action::Open { name, .. }, Outcome::Refused(status)) => {
                if Status(*status) == Status::OBJECT_NAME_NOT_FOUND {
                    must_be_free(model, drafts, name, &sight, Age::Facts);
                } else if Status(*status) == Status::OBJECT_NAME_COLLISION {
                    must_be_taken(model, drafts, name, &sight);
                }
            }
            (Action::Rename { to, .. }, Outcome::Refused(status))
                if Status(*status) == Status::OBJECT_NAME_COLLISION =>
            {
                must_be_taken(model, drafts, to, &sight);
            }
            (Action::List, Outcome::Listed(entries)) => {
                for name in NAMES {
                    match entries.iter().find(|entry| entry.name == name) {
                        None => must_be_free(model, drafts, name, &sight, Age::Facts),
                        Some(entry) => must_be_listed(model, drafts, name, entry.facts.file, &sight),
                    }
                }
            }
            _ => {}
        }
    }
    check_remains(model, drafts);
}

/// Files that a name may be that of, for someone who looks.
pub(super) fn files_at(model: &Model<'_>, name: &str, sight: &Sight) -> Vec<FileIndex> {
    (0..model.files.len()).filter(|file| why_not_of(model, name, *file, sight, Age::Facts).is_ok()).collect()
}

/// Files that a name ever was that of, or may have been.
pub(super) fn files_ever_at(model: &Model<'_>, name: &str) -> BTreeSet<FileIndex> {
    let given = changes(model, name).into_iter().filter_map(|(_, change)| match change {
        Change::Given(file) => Some(file),
        Change::Taken(_) => None,
    });
    given.collect()
}

/// How old what was seen may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The server itself decided.
    None,
    /// As sizes and attributes.
    Facts,
}

/// Why something cannot be: requests that show it.
type Against = Vec<usize>;

fn must_be_of(model: &Model<'_>, drafts: &mut Vec<Draft>, name: &str, file: FileIndex, sight: &Sight) {
    if let Err(against) = why_not_of(model, name, file, sight, Age::Facts) {
        let text = format!("{name} was not that file's name any more, or not yet");
        drafts.push(Draft::new(Kind::NameKept, text, against.into_iter().chain(sight.event)));
    }
}

fn must_be_listed(model: &Model<'_>, drafts: &mut Vec<Draft>, name: &str, number: u64, sight: &Sight) {
    let files = model.files_of_number(number, sight.period);
    let all: Result<Vec<Against>, ()> =
        files.iter().map(|file| why_not_of(model, name, *file, sight, Age::Facts).err().ok_or(())).collect();
    if let Ok(against) = all
        && (!against.is_empty() || model.lost_opens.is_empty())
    {
        let text = format!("{name} is listed for a file that does not have it");
        drafts.push(Draft::new(Kind::NameKept, text, against.into_iter().flatten().chain(sight.event)));
    }
}

fn must_be_taken(model: &Model<'_>, drafts: &mut Vec<Draft>, name: &str, sight: &Sight) {
    let files = files_ever_at(model, name);
    let is_of_any = files.iter().any(|file| why_not_of(model, name, *file, sight, Age::Facts).is_ok());
    if !is_of_any && model.lost_opens.is_empty() {
        let text = format!("{name} is taken, it is said, but by no file");
        drafts.push(Draft::new(Kind::NameKept, text, sight.event));
    }
}

fn must_be_free(model: &Model<'_>, drafts: &mut Vec<Draft>, name: &str, sight: &Sight, age: Age) {
    if let Err(against) = why_not_free(model, name, sight, age) {
        let text = format!("{name} is said to be nobody's, but it was a file's");
        drafts.push(Draft::new(Kind::NameMissing, text, against.into_iter().chain(sight.event)));
    }
}

fn why_not_of(
    model: &Model<'_>,
    name: &str,
    file: FileIndex,
    sight: &Sight,
    age: Age,
) -> Result<(), Against> {
    let changes = changes(model, name);
    let mut against = Vec::new();
    for (given, _) in changes
        .iter()
        .filter(|(effect, change)| *change == Change::Given(file) && effect.period.call <= sight.period.back)
    {
        let ended = changes.iter().find(|(effect, change)| {
            let ends = match change {
                Change::Given(other) => *other != file,
                Change::Taken(other) => *other == file,
            };
            ends && given.period.back < effect.period.call && is_known(model, effect, sight, age)
        });
        match ended {
            None => return Ok(()),
            Some((effect, _)) => against.extend([given.event, effect.event]),
        }
    }
    Err(against)
}

fn why_not_free(model: &Model<'_>, name: &str, sight: &Sight, age: Age) -> Result<(), Against> {
    let changes = changes(model, name);
    let taken = changes.iter().filter(|(_, change)| matches!(change, Change::Taken(_)));
    let taken = taken.map(|(effect, _)| effect.period).filter(|period| period.call <= sight.period.back);
    let mut against = Vec::new();
    // At the beginning it was free.
    for source in [None].into_iter().chain(taken.map(Some)) {
        let given = changes.iter().find(|(effect, change)| {
            matches!(change, Change::Given(_))
                && source.is_none_or(|source| source.back < effect.period.call)
                && is_known(model, effect, sight, age)
        });
        match given {
            None => return Ok(()),
            Some((effect, _)) => against = vec![effect.event],
        }
    }
    Err(against)
}

fn is_known(model: &Model<'_>, effect: &Effect, sight: &Sight, age: Age) -> bool {
    let age_max = match age {
        Age::None => 0,
        Age::Facts => model.facts_age_max(effect, sight),
    };
    Model::had_to_be_known(effect, sight, age_max)
}

fn changes(model: &Model<'_>, name: &str) -> Vec<(Effect, Change)> {
    let mut all = Vec::new();
    for (index, file) in model.files.iter().enumerate() {
        let created = model.event(file.created.event).map(|event| &event.action);
        if matches!(created, Some(Action::Open { name: own, .. }) if own == name) {
            all.push((file.created, Change::Given(index)));
        }
    }
    for one in &model.moves {
        let change = if one.to == name { Change::Given(one.file) } else { Change::Taken(one.file) };
        all.push((one.effect, change));
    }
    for file in 0..model.files.len() {
        let Some(mut death) = model.death(file) else { continue };
        let kept = model.rule.name_kept_max();
        death.period.back =
            death.period.back.saturating_add(if death.is_definite { kept } else { Time::MAX });
        all.push((death, Change::Taken(file)));
    }
    for lost in &model.lost_opens {
        let Some(event) = model.event(*lost) else { continue };
        // It may have deleted the file, whichever that was.
        if matches!(&event.action, Action::Open { name: own, delete_on_close: true, .. } if own == name) {
            let effect = model.effect(*lost, event);
            all.extend((0..model.files.len()).map(|file| (effect, Change::Taken(file))));
        }
    }
    all
}

/// When all is over, names are what they must be.
fn check_remains(model: &Model<'_>, drafts: &mut Vec<Draft>) {
    let Some(remains) = &model.history.remains else { return };
    let sight = Sight { event: None, client: None, period: Period { call: remains.at, back: remains.at } };
    for name in NAMES {
        let is_there = remains.files.iter().any(|(other, _)| other == name);
        if is_there && files_at(model, name, &sight).is_empty() && model.lost_opens.is_empty() {
            let text = format!("{name} is on the disk when all is over");
            let events = files_ever_at(model, name).into_iter().filter_map(|file| model.death(file));
            drafts.push(Draft::new(Kind::NameKept, text, events.map(|death| death.event)));
        } else if !is_there && let Err(against) = why_not_free(model, name, &sight, Age::Facts) {
            let text = format!("{name} is not on the disk when all is over");
            drafts.push(Draft::new(Kind::NameMissing, text, against));
        }
    }
}
