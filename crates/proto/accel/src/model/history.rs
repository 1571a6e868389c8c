//! All that was ever so on the model's server, and what an answer may tell of it.

use super::server::Who;
use std::collections::HashMap;

/// From when to when, by the clock of the simulation in microseconds, a request was on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub call: u64,
    pub back: u64,
    /// How old an answer may be.
    pub age_max: u64,
}

/// Size in cells, attributes, and who made it so.
type Look = (u64, usize, u64, Who);

#[derive(Default)]
pub(super) struct History {
    cells: HashMap<(usize, usize), Vec<(u64, u64)>>,
    looks: HashMap<usize, Vec<Look>>,
    names: HashMap<String, Vec<(u64, Option<usize>, Who)>>,
    /// When WRITEs of the client were answered, by version.
    pub answered: HashMap<u64, u64>,
    /// The same by file and cell, in the order of the answers.
    promises: HashMap<(usize, usize), Vec<(u64, u64)>>,
    /// Whether WRITEs may be lost that were answered.
    pub is_lossy: bool,
}

impl Span {
    /// Whether an answer may tell of what was so from `start` until somebody ended it.
    fn allows(&self, start: u64, end: Option<(u64, Who)>) -> bool {
        let oldest = match end {
            None => true,
            // What a client has changed itself it is told of.
            Some((end, Who::Client)) => end >= self.call,
            Some((end, Who::Other)) => end.saturating_add(self.age_max) >= self.call,
        };
        start <= self.back && oldest
    }
}

impl History {
    pub fn written(&mut self, now: u64, node: usize, cell: usize, version: u64) {
        self.cells.entry((node, cell)).or_default().push((now, version));
    }

    pub fn sized(&mut self, now: u64, node: usize, cells: usize, attributes: u64, who: Who) {
        self.looks.entry(node).or_default().push((now, cells, attributes, who));
    }

    pub fn named(&mut self, now: u64, path: &str, node: Option<usize>, who: Who) {
        self.names.entry(path.to_owned()).or_default().push((now, node, who));
    }

    /// The client was told that a version is in a cell.
    pub fn promised(&mut self, now: u64, node: usize, cell: usize, version: u64) {
        self.answered.insert(version, now);
        self.promises.entry((node, cell)).or_default().push((now, version));
    }

    /// Whether a version was ever written to a cell.
    pub fn has(&self, node: usize, cell: usize, version: u64) -> bool {
        self.cells.get(&(node, cell)).is_some_and(|list| list.iter().any(|(_, one)| *one == version))
    }

    /// Size of a file in cells after all WRITEs that were answered by then and are not done.
    pub fn promised_size(&self, node: usize, by: u64) -> usize {
        let of_node = self.promises.iter().filter(|((of, _), _)| *of == node);
        let pending = of_node.filter(|((_, cell), list)| {
            list.iter().any(|(at, version)| *at < by && !self.has(node, *cell, *version))
        });
        pending.map(|((_, cell), _)| cell + 1).max().unwrap_or(0)
    }

    /// Why the version of a cell cannot be what was read.
    pub fn refuse_cell(&self, node: usize, cell: usize, version: u64, span: Span) -> Option<String> {
        let list = self.cells.get(&(node, cell)).map_or(&[][..], Vec::as_slice);
        let allowed = list.iter().enumerate().any(|(at, (start, one))| {
            let end = list.get(at + 1).map(|(end, next)| match self.answered.get(next) {
                Some(answered) if *answered < span.call => (0, Who::Client),
                // On its way, or of somebody else.
                Some(_) => (u64::MAX, Who::Other),
                None => (*end, Who::Other),
            });
            *one == version && span.allows(*start, end)
        });
        let promises = self.promises.get(&(node, cell)).map_or(&[][..], Vec::as_slice);
        let pending = promises.iter().filter(|(_, one)| !list.iter().any(|(_, written)| written == one));
        // What it has written before it reads, wherever that is by now; at the same moment it may be either.
        let last = pending.clone().rfind(|(at, _)| *at < span.call);
        let by_promise = last.is_some_and(|(_, one)| *one == version)
            || pending.clone().any(|(at, one)| *one == version && *at >= span.call && *at <= span.back);
        let allowed = by_promise || (allowed && (last.is_none() || self.is_lossy));
        (!allowed).then(|| {
            format!("cell {cell} of file {node} is {version:x} in {span:?}; it was {list:x?}, {promises:x?}")
        })
    }

    /// Why a file cannot have had this size, and these attributes if they are known.
    pub fn refuse_look(
        &self,
        node: usize,
        is_so: impl Fn(usize, u64) -> bool,
        span: Span,
        what: &str,
    ) -> Option<String> {
        let list = self.looks.get(&node).map_or(&[][..], Vec::as_slice);
        let allowed = list.iter().enumerate().any(|(at, (start, cells, attributes, _))| {
            let end = list.get(at + 1).map(|(end, _, _, who)| (*end, *who));
            is_so(*cells, *attributes) && span.allows(*start, end)
        });
        (!allowed).then(|| format!("file {node} had never {what} in {span:?}; it had {list:?}"))
    }

    /// Whether a name may have meant this file, or none.
    pub fn may_mean(&self, path: &str, node: Option<usize>, span: Span) -> bool {
        let list = self.names.get(path).map_or(&[][..], Vec::as_slice);
        let before = list.first().map(|(at, _, who)| (*at, *who));
        (node.is_none() && span.allows(0, before))
            || list.iter().enumerate().any(|(at, (start, one, _))| {
                let end = list.get(at + 1).map(|(end, _, who)| (*end, *who));
                *one == node && span.allows(*start, end)
            })
    }

    /// What a name has meant.
    pub fn meanings(&self, path: &str) -> String {
        format!("{:?}", self.names.get(path))
    }

    /// Whether a name meant something all the while.
    pub fn was_there(&self, path: &str, span: Span) -> bool {
        !self.may_mean(path, None, span)
    }

    /// Whether a name has changed hands since a moment.
    pub fn has_moved(&self, path: &str, since: u64) -> bool {
        self.names.get(path).is_some_and(|list| list.iter().any(|(at, ..)| *at >= since))
    }
}
