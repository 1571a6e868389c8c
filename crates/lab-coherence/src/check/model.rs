//! Which file each open is of, what was done to each file and when, and what each client must have known.

use crate::history::{Action, Event, Handle, History, OpenAction, Outcome, Time, Via};
use crate::rule::{MARGIN, Mode, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of access (MS-SMB2 2.2.13.1).
pub(super) const READ_DATA: u32 = 0x1;
pub(super) const WRITE_DATA: u32 = 0x2;
pub(super) const DELETE: u32 = 0x1_0000;

/// Dispositions that may make a file or empty it (MS-SMB2 2.2.13): all but OPEN.
const OPEN_ONLY: u32 = 1;

/// So late another process of a server may learn of a rename.
const RENAME_TOLD_MAX: Time = 1_000_000;

/// One file from its creation to its deletion, by number. Numbers are given again, so they do not identify a file.
pub(super) type FileIndex = usize;

/// When something happened at the earliest and at the latest; never perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub call: Time,
    pub back: Time,
}

/// A change of something at some time, by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub event: usize,
    pub client: usize,
    pub period: Period,
    /// It surely happened.
    pub is_definite: bool,
}

/// Something that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// The request; none for the disk at the end.
    pub event: Option<usize>,
    pub client: Option<usize>,
    pub period: Period,
}

/// An open.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub handle: Handle,
    pub event: usize,
    pub client: usize,
    /// None when it cannot be told.
    pub file: Option<FileIndex>,
    /// Then those that it may be of.
    pub perhaps: Vec<FileIndex>,
    pub access: u32,
    pub share: u32,
    pub caching: u32,
    pub opened: Period,
    /// When it was closed; `Time::MAX` when that is not known.
    pub closed: Period,
    /// Until when it surely was open: the call of the last request on it that was done.
    pub held_until: Time,
    pub is_lost: bool,
    pub deletes: bool,
}

/// A file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub number: u64,
    pub created: Effect,
    pub opens: Vec<Handle>,
    /// Requests to delete it, each with its earliest time.
    pub marks: Vec<Effect>,
}

/// A rename, for one file that it may have been of.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub effect: Effect,
    pub file: FileIndex,
    pub to: String,
}

pub(super) struct Model<'a> {
    pub history: &'a History,
    pub rule: &'a Rule,
    pub opens: BTreeMap<Handle, Open>,
    pub files: Vec<File>,
    /// Opens of which no answer came: what they opened, made or emptied is not known.
    pub lost_opens: Vec<usize>,
    pub moves: Vec<Move>,
    /// Names that each file ever had, or may have had.
    names: Vec<BTreeSet<String>>,
}

impl Period {
    pub fn overlaps(self, other: Period) -> bool {
        self.call <= other.back && other.call <= self.back
    }

    /// With some time after it.
    pub fn and(self, time: Time) -> Period {
        Period { back: self.back.saturating_add(time), ..self }
    }
}

impl<'a> Model<'a> {
    pub fn new(history: &'a History, rule: &'a Rule) -> Model<'a> {
        let is_open = |event: &Event| matches!(event.action, Action::Open { .. });
        let lost = |(_, event): &(usize, &Event)| is_open(event) && !event.is_done() && event.may_be_done();
        let lost_opens = history.events.iter().enumerate().filter(lost).map(|(index, _)| index).collect();
        let mut model = Model {
            history,
            rule,
            opens: BTreeMap::new(),
            files: Vec::new(),
            lost_opens,
            moves: Vec::new(),
            names: Vec::new(),
        };
        model.find_files();
        model.find_opens();
        model.find_moves();
        model.find_ends();
        model
    }

    pub fn events(&self) -> impl Iterator<Item = (usize, &'a Event)> + Clone {
        self.history.events.iter().enumerate()
    }

    pub fn event(&self, index: usize) -> Option<&'a Event> {
        self.history.events.get(index)
    }

    pub fn via(&self, client: usize) -> Via {
        self.history.clients.get(client).copied().unwrap_or(Via::Direct)
    }

    /// Requests on opens that are or may be of a file, and were done or may have been: what they did to it.
    pub fn changes_of(&self, file: FileIndex) -> impl Iterator<Item = (usize, &'a Event, Effect)> {
        self.events().filter(|(_, event)| event.may_be_done()).filter_map(move |(index, event)| {
            let open = self.open_of(event)?;
            let may_be = open.file == Some(file) || open.perhaps.contains(&file);
            may_be.then(|| (index, event, self.effect(index, event)))
        })
    }

    /// Requests on opens of a file.
    pub fn on_file(&self, file: FileIndex) -> impl Iterator<Item = (usize, &'a Event, &Open)> {
        self.events().filter_map(move |(index, event)| {
            let open = self.open_of(event)?;
            (open.file == Some(file)).then_some((index, event, open))
        })
    }

    /// The open that a request is on, or that it gave.
    pub fn open_of(&self, event: &Event) -> Option<&Open> {
        let handle = event.action.handle().or_else(|| event.opened().map(|opened| opened.handle))?;
        self.opens.get(&handle)
    }

    /// A request as a change.
    pub fn effect(&self, index: usize, event: &Event) -> Effect {
        let mut period = period(event);
        let mut is_definite = event.is_done();
        if matches!(event.action, Action::Write { .. }) && self.may_be_forgotten(event) {
            is_definite = false;
        }
        is_definite &= self.open_of(event).is_some_and(|open| open.file.is_some());
        if !event.is_done() {
            period.back = Time::MAX;
        }
        Effect { event: index, client: event.client, period, is_definite }
    }

    /// Files that a number may mean for someone who looks at this time.
    pub fn files_of_number(&self, number: u64, period: Period) -> Vec<FileIndex> {
        let is_meant =
            |(_, file): &(usize, &File)| file.number == number && file.created.period.call <= period.back;
        self.files.iter().enumerate().filter(is_meant).map(|(index, _)| index).collect()
    }

    /// Whether a request on an open may have been done by a name that the file has no more. Samba does some by name, and
    /// learns late of renames that another of its processes does, and never of a file that takes the name.
    pub fn is_unsettled(&self, event: &Event) -> bool {
        let Some(open) = self.open_of(event) else { return false };
        let Some(file) = open.file else { return true };
        let at = Period { call: open.opened.call, back: event.back };
        self.moves
            .iter()
            .filter(|other| self.event(other.effect.event).is_some_and(|e| !std::ptr::eq(e, event)))
            .any(|other| {
                let is_of_other_open =
                    self.event(other.effect.event).and_then(|e| e.action.handle()) != Some(open.handle);
                if other.file == file {
                    is_of_other_open && other.effect.period.and(RENAME_TOLD_MAX).overlaps(at)
                } else {
                    let is_taken = self.names.get(file).is_some_and(|names| names.contains(&other.to));
                    is_taken && other.effect.period.and(Time::MAX).overlaps(at)
                }
            })
    }

    /// From the first request to delete a file until its last close; nothing when nobody asked.
    pub fn death(&self, file: FileIndex) -> Option<Effect> {
        let of = self.files.get(file)?;
        let first = of.marks.iter().min_by_key(|mark| mark.period.call)?;
        // Nobody opens a file that is to be deleted; who did so from a cache is judged elsewhere.
        let opens = of.opens.iter().filter_map(|handle| self.opens.get(handle));
        let closes = opens.filter(|open| open.opened.call <= first.period.back).map(|open| open.closed.back);
        let mut back = closes.max().unwrap_or(Time::MAX).max(first.period.back);
        // An open without an answer may be of this file.
        if self.lost_opens.iter().any(|lost| self.event(*lost).is_some_and(|event| event.call <= back)) {
            back = Time::MAX;
        }
        let is_definite = back < Time::MAX && of.marks.iter().any(|mark| mark.is_definite);
        Some(Effect { period: Period { call: first.period.call, back }, is_definite, ..*first })
    }

    /// How old content may be that is seen so, of a change so.
    pub fn data_age_max(&self, change: &Effect, sight: &Sight) -> Time {
        match sight.client {
            Some(client) if client != change.client => {
                self.rule.age_max(self.via(client), sight.period.call, sight.period.back)
            }
            _ => 0,
        }
    }

    /// How old sizes, attributes and names may be. What was changed through a pair may reach others as late as it reaches
    /// that pair's own clients.
    pub fn facts_age_max(&self, change: &Effect, sight: &Sight) -> Time {
        let own = self.data_age_max(change, sight);
        let is_other = sight.client.is_some_and(|client| client != change.client);
        let Period { call, back } = sight.period;
        if is_other { own.max(self.rule.age_max(self.via(change.client), call, back)) } else { own }
    }

    /// Whether a change had to be known to someone who looks, if what they see may be so old.
    pub fn had_to_be_known(change: &Effect, sight: &Sight, age_max: Time) -> bool {
        change.is_definite && change.period.back.saturating_add(age_max) < sight.period.call
    }

    /// How long after one client has seen something, another must not see what was before; `None`: that is no evidence.
    pub fn after_sight(&self, first: usize, sight: &Sight) -> Option<Time> {
        let second = sight.client?;
        let is_exact = self.rule.mode == Mode::Strict
            || (self.via(first) == Via::Direct && self.via(second) == Via::Direct);
        match is_exact {
            true => Some(0),
            false if first == second => {
                let age = self.rule.age_max(self.via(second), sight.period.call, sight.period.back);
                Some(age.min(MARGIN))
            }
            false => None,
        }
    }

    /// How late an open, a lock or a name may be given back, for others to notice.
    pub fn given_back_late(&self, period: Period) -> Time {
        let vias: BTreeSet<Via> = self.history.clients.iter().copied().collect();
        vias.iter().map(|via| self.rule.age_max(*via, period.call, period.back)).max().unwrap_or_default()
    }

    fn find_files(&mut self) {
        for (index, event) in self.history.events.iter().enumerate() {
            let Some(opened) = event.opened().filter(|opened| opened.action == OpenAction::Created) else {
                continue;
            };
            let created =
                Effect { event: index, client: event.client, period: period(event), is_definite: true };
            let number = opened.facts.file;
            self.files.push(File { number, created, opens: Vec::new(), marks: Vec::new() });
        }
        self.files.sort_by_key(|file| file.created.period.call);
        for (index, event) in self.history.events.iter().enumerate() {
            match (&event.action, &event.outcome) {
                (Action::Open { name, .. }, Outcome::Opened(opened)) => {
                    self.find_made_in_vain(index, name, opened.facts.file);
                }
                (Action::List, Outcome::Listed(entries)) => {
                    entries
                        .iter()
                        .for_each(|entry| self.find_made_in_vain(index, &entry.name, entry.facts.file));
                }
                _ => {}
            }
        }
        self.files.sort_by_key(|file| file.created.period.call);
    }

    /// A file that nobody is known to have made is that of an open which made it and then had to wait, or was refused: when
    /// another opens a new file first, Samba tells its maker that it was there already, or is not shared.
    fn find_made_in_vain(&mut self, seen: usize, name: &str, number: u64) {
        let Some(event) = self.event(seen) else { return };
        if !self.files_of_number(number, period(event)).is_empty() {
            return;
        }
        let made = |(_, other): &(usize, &Event)| {
            let Action::Open { name: own, disposition, .. } = &other.action else { return false };
            let may_have = match &other.outcome {
                Outcome::Refused(_) => true,
                Outcome::Opened(opened) => opened.facts.file == number,
                _ => false,
            };
            own == name && may_make(*disposition) && may_have && other.call <= event.back
        };
        let makers: Vec<(usize, &Event)> = self.events().filter(made).collect();
        let Some((index, first)) = makers.first() else { return };
        let back = makers.iter().map(|(_, maker)| maker.back).max().unwrap_or(first.back);
        let period = Period { call: first.call, back };
        let created = Effect { event: *index, client: first.client, period, is_definite: makers.len() == 1 };
        self.files.push(File { number, created, opens: Vec::new(), marks: Vec::new() });
    }

    fn find_opens(&mut self) {
        for (index, event) in self.history.events.iter().enumerate() {
            let Action::Open { access, share, delete_on_close, .. } = &event.action else { continue };
            let Some(opened) = event.opened() else { continue };
            let found = self.files_of(index, event);
            for file in &found {
                if let Some(file) = self.files.get_mut(*file) {
                    file.opens.push(opened.handle);
                }
            }
            let (file, perhaps) = match found[..] {
                [file] => (Some(file), Vec::new()),
                _ => (None, found),
            };
            let open = Open {
                handle: opened.handle,
                event: index,
                client: event.client,
                file,
                perhaps,
                access: *access,
                share: *share,
                caching: opened.caching,
                opened: period(event),
                closed: Period { call: Time::MAX, back: Time::MAX },
                held_until: event.back,
                is_lost: false,
                deletes: *delete_on_close,
            };
            self.opens.insert(opened.handle, open);
        }
    }

    /// Files that an open may be of: the latest of its number, or the one before when that is not sure.
    fn files_of(&self, index: usize, event: &Event) -> Vec<FileIndex> {
        let Some(opened) = event.opened() else { return Vec::new() };
        if opened.action == OpenAction::Created {
            return self.files.iter().position(|file| file.created.event == index).into_iter().collect();
        }
        let mut found = self.files_of_number(opened.facts.file, period(event));
        let Some(latest) = found.last().and_then(|latest| self.files.get(*latest)) else { return found };
        // A number is given again only when the file's opens are closed. So what is closed later is of the later file.
        let closes = |other: &&Event| other.action == Action::Close { handle: opened.handle };
        let closed = self.history.events.iter().find(closes).map_or(Time::MAX, |close| close.call);
        let is_sure = latest.created.period.back < event.call || latest.created.period.back < closed;
        // A file of an answer that never came may have an old number, too.
        let may_be_unknown =
            !self.lost_opens.is_empty() && found.last().is_some_and(|file| self.is_old(*file, event));
        if is_sure && !may_be_unknown {
            found.drain(..found.len().saturating_sub(1));
        } else if may_be_unknown {
            found.clear();
        }
        found
    }

    fn is_old(&self, file: FileIndex, event: &Event) -> bool {
        let marks = |index: usize| {
            self.events().filter(move |(_, other)| {
                let Action::Delete { handle } = other.action else { return false };
                self.opens.get(&handle).is_some_and(|open| open.file == Some(index))
            })
        };
        marks(file).any(|(_, other)| other.call < event.call)
    }

    /// Each rename is of its open's file, and if that is unsettled perhaps of another that has had one of its names.
    fn find_moves(&mut self) {
        self.names = self.files.iter().map(|file| self.first_name(file).into_iter().collect()).collect();
        let renames = |event: &Event| matches!(event.action, Action::Rename { .. }) && event.may_be_done();
        let renames: Vec<usize> =
            self.events().filter(|(_, event)| renames(event)).map(|(index, _)| index).collect();
        loop {
            let moves: Vec<Move> = renames.iter().flat_map(|index| self.moves_of(*index)).collect();
            for one in &moves {
                if let Some(names) = self.names.get_mut(one.file) {
                    names.insert(one.to.clone());
                }
            }
            let is_all = moves.len() == self.moves.len();
            self.moves = moves;
            if is_all {
                return;
            }
        }
    }

    fn moves_of(&self, index: usize) -> Vec<Move> {
        let Some(event) = self.event(index) else { return Vec::new() };
        let (Action::Rename { to, .. }, Some(file)) =
            (&event.action, self.open_of(event).and_then(|o| o.file))
        else {
            return Vec::new();
        };
        let mut effect = self.effect(index, event);
        let mut files = vec![file];
        if self.is_unsettled(event) {
            effect.is_definite = false;
            let own = self.names.get(file).cloned().unwrap_or_default();
            let others = self.names.iter().enumerate().filter(|(_, names)| !names.is_disjoint(&own));
            files.extend(others.map(|(other, _)| other).filter(|other| *other != file));
        }
        files.into_iter().map(|file| Move { effect, file, to: to.clone() }).collect()
    }

    fn first_name(&self, file: &File) -> Option<String> {
        match self.event(file.created.event).map(|event| &event.action) {
            Some(Action::Open { name, .. }) => Some(name.clone()),
            _ => None,
        }
    }

    fn find_ends(&mut self) {
        for (index, event) in self.history.events.iter().enumerate() {
            let is_unsettled = self.is_unsettled(event);
            let Some(open) = event.action.handle().and_then(|handle| self.opens.get_mut(&handle)) else {
                continue;
            };
            if event.is_done() {
                open.held_until = open.held_until.max(event.call);
            }
            if matches!(event.action, Action::Close { .. }) && event.may_be_done() {
                open.is_lost = !event.is_done();
                let back = if open.is_lost { Time::MAX } else { event.back };
                open.closed = Period { call: event.call, back };
            }
            let deletes = matches!(event.action, Action::Delete { .. })
                || (open.deletes && matches!(event.action, Action::Close { .. }));
            if deletes && event.may_be_done() {
                let call = if open.deletes { open.opened.call } else { event.call };
                let back = if event.is_done() { event.back } else { Time::MAX };
                let is_sure = open.file.is_some();
                let (is_definite, client) = (event.is_done() && !is_unsettled && is_sure, event.client);
                let mark = Effect { event: index, client, period: Period { call, back }, is_definite };
                // The number of a file that is gone may have been given again before the answer came.
                for file in open.file.iter().chain(&open.perhaps) {
                    self.files.get_mut(*file).into_iter().for_each(|file| file.marks.push(mark));
                }
            }
        }
    }

    /// Whether a write may be gone although it was answered: the connection went before it was flushed or its open was
    /// closed, or that was refused, so that its client knows.
    fn may_be_forgotten(&self, write: &Event) -> bool {
        let Some(open) = self.open_of(write) else { return false };
        let mut later = self.events().filter(|(_, event)| {
            event.action.handle() == Some(open.handle)
                && event.call >= write.back
                && matches!(event.action, Action::Flush { .. } | Action::Close { .. })
        });
        let is_safe = later.clone().any(|(_, event)| event.is_done());
        let is_told = later.any(|(_, event)| !event.is_done());
        !is_safe && (open.is_lost || is_told)
    }
}

/// Whether an open may make a file or empty one.
pub(super) fn may_change(disposition: u32) -> bool {
    disposition != OPEN_ONLY
}

/// Whether an open may make a file: neither OPEN nor OVERWRITE.
fn may_make(disposition: u32) -> bool {
    !matches!(disposition, 1 | 4)
}

pub(super) fn period(event: &Event) -> Period {
    Period { call: event.call, back: event.back }
}

pub(super) fn sight(index: usize, event: &Event) -> Sight {
    Sight { event: Some(index), client: Some(event.client), period: period(event) }
}
