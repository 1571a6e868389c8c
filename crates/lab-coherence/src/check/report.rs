//! Findings in words: the requests that show them, and the opens that those are on.

use super::model::Model;
use super::{Draft, Finding};
use crate::history::{Action, Cell, Event, Handle, Outcome};
use isthmus_smb_wire::Status;
use std::collections::BTreeSet;

pub(super) fn finding(model: &Model<'_>, draft: Draft) -> Finding {
    let mut events: BTreeSet<usize> = draft.events.into_iter().collect();
    let opens: Vec<usize> = events
        .iter()
        .filter_map(|index| model.event(*index))
        .filter_map(|event| model.open_of(event).map(|open| open.event))
        .collect();
    events.extend(opens);
    let mut lines: Vec<(u64, String)> = events
        .into_iter()
        .filter_map(|index| model.event(index))
        .map(|event| (event.call, line(model, event)))
        .collect();
    let handles: BTreeSet<Handle> = model.opens.keys().copied().collect();
    let shown: Vec<&(u64, String)> = lines.iter().collect();
    let (from, to) = (shown.first().map_or(0, |line| line.0), shown.last().map_or(0, |line| line.0));
    let breaks =
        model.history.breaks.iter().filter(|b| (from..=to).contains(&b.at) && handles.contains(&b.handle));
    let of_lines: Vec<(u64, String)> = breaks
        .filter(|b| lines.iter().any(|(_, line)| line.contains(&number(b.handle))))
        .map(|b| {
            (
                b.at,
                format!(
                    "{:>10}  a break of {} is told, {} is left",
                    millis(b.at),
                    number(b.handle),
                    caching(b.left)
                ),
            )
        })
        .collect();
    lines.extend(of_lines);
    lines.sort();
    let requests = lines.into_iter().map(|(_, line)| line).collect();
    Finding { seed: model.history.seed, kind: draft.kind, text: draft.text, requests }
}

/// All requests, a line each.
pub(super) fn all(model: &Model<'_>) -> Vec<String> {
    model.events().map(|(_, event)| line(model, event)).collect()
}

fn line(model: &Model<'_>, event: &Event) -> String {
    let via = model.via(event.client);
    let time = format!("{:>10} to {:>10}", millis(event.call), millis(event.back));
    format!(
        "{time}  client {} ({via}): {} -> {}",
        event.client,
        action(&event.action),
        outcome(&event.outcome)
    )
}

fn millis(time: u64) -> String {
    format!("{:.1} ms", time as f64 / 1_000.0)
}

fn number(handle: Handle) -> String {
    format!("#{handle}")
}

fn range(first: u64, count: u64) -> String {
    if count == 1 { format!("cell {first}") } else { format!("cells {first} to {}", first + count - 1) }
}

fn action(action: &Action) -> String {
    let on = |what: &str, handle: &Handle| format!("{what} {}", number(*handle));
    match action {
        Action::Open { name, access, share, disposition, delete_on_close } => {
            let deletes = if *delete_on_close { ", delete on close" } else { "" };
            format!("open {name}, access {access:#x}, share {share}, disposition {disposition}{deletes}")
        }
        Action::Read { handle, first, count } => format!("{} {}", on("read", handle), range(*first, *count)),
        Action::Write { handle, first, count, tag } => {
            format!("{} {} with {}", on("write", handle), range(*first, *count), Cell::Version(*tag))
        }
        Action::SetSize { handle, cells } => format!("{} to {cells} cells", on("set size of", handle)),
        Action::Flush { handle } => on("flush", handle),
        Action::Rename { handle, to, replace } => {
            format!("{} to {to}{}", on("rename", handle), if *replace { ", replacing" } else { "" })
        }
        Action::Delete { handle } => on("delete", handle),
        Action::SetTime { handle, time } => format!("{} to {time:#x}", on("set time of", handle)),
        Action::Query { handle } => on("query", handle),
        Action::Lock { handle, first, count, exclusive } => {
            let kind = if *exclusive { "exclusively" } else { "shared" };
            format!("{} {} {kind}", on("lock", handle), range(*first, *count))
        }
        Action::Unlock { handle, first, count } => {
            format!("{} {}", on("unlock", handle), range(*first, *count))
        }
        Action::Close { handle } => on("close", handle),
        Action::List => "list".into(),
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".into(),
        Outcome::Refused(status) => format!("{:?}", Status(*status)),
        Outcome::Lost => "no answer".into(),
        Outcome::Opened(opened) => format!(
            "{} {:?}, file {:#x}, {} bytes, time {:#x}, caching {}",
            number(opened.handle),
            opened.action,
            opened.facts.file,
            opened.facts.size,
            opened.facts.time,
            caching(opened.caching)
        ),
        Outcome::Cells(cells) => {
            format!("[{}]", cells.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        Outcome::Facts(facts) => {
            format!("file {:#x}, {} bytes, time {:#x}", facts.file, facts.size, facts.time)
        }
        Outcome::Listed(entries) => {
            let entry = |entry: &crate::history::Listed| {
                format!("{} (file {:#x}, {} bytes)", entry.name, entry.facts.file, entry.facts.size)
            };
            entries.iter().map(entry).collect::<Vec<_>>().join(", ")
        }
    }
}

fn caching(state: u32) -> String {
    let letters = [(1, 'R'), (2, 'H'), (4, 'W')].into_iter().filter(|(bit, _)| state & bit != 0);
    let text: String = letters.map(|(_, letter)| letter).collect();
    if text.is_empty() { "none".into() } else { text }
}
