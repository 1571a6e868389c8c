//! Judges a history.
//!
//! Every judgement is sound: it names something that cannot have happened if the promise was kept, whatever order the
//! requests that overlapped in time were done in. An effect lies between a request's call and return; when an answer has
//! not come, it may come at any time or never.

mod cells;
mod conflicts;
mod facts;
mod leases;
mod model;
mod names;
mod refusals;
mod report;
mod zones;

#[cfg(test)]
mod tests;

use crate::history::History;
use crate::rule::Rule;
use model::Model;
use std::fmt;

/// Most findings of one history that are kept: what is wrong once is often wrong many times.
const FINDINGS_MAX: usize = 8;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Content older than it may be.
    StaleData,
    /// Content of a write that had not been asked for yet.
    FutureData,
    /// Bytes that were never written there.
    ForeignData,
    /// Parts of several writes where none was under way.
    TornWrite,
    /// A write that was done, and is not on the disk.
    LostWrite,
    /// Reads that no single order of the writes explains.
    NoOrder,
    /// A length that the file did not have.
    WrongSize,
    /// Attributes older than they may be.
    StaleAttributes,
    /// Another file than the one that was opened.
    WrongFile,
    /// A name that should be gone.
    NameKept,
    /// A name that should be there.
    NameMissing,
    /// Two opens that exclude each other.
    SharedAgainstWill,
    /// Two locks that exclude each other, or data past a lock.
    LockIgnored,
    /// More than the open's access allows.
    AccessIgnored,
    /// A refusal without a reason.
    Refused,
    /// A connection that went without a reason.
    Disconnected,
    /// A lease or oplock that should have been broken.
    BreakMissing,
    /// An open while another held an exclusive lease.
    LeaseIgnored,
    /// An answer that took too long.
    Stalled,
}

/// Something that is wrong, with the requests that show it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Of which seed.
    pub seed: u64,
    /// What.
    pub kind: Kind,
    /// In words.
    pub text: String,
    /// The requests that show it, a line each, in order of time.
    pub requests: Vec<String>,
}

/// A finding whose requests are still numbers.
struct Draft {
    kind: Kind,
    text: String,
    events: Vec<usize>,
}

/// Judges a history; empty: the promise was kept.
pub fn check(history: &History, rule: &Rule) -> Vec<Finding> {
    let model = Model::new(history, rule);
    let mut drafts = Vec::new();
    cells::check(&model, &mut drafts);
    zones::check(&model, &mut drafts);
    facts::check(&model, &mut drafts);
    names::check(&model, &mut drafts);
    conflicts::check(&model, &mut drafts);
    refusals::check(&model, &mut drafts);
    leases::check(&model, &mut drafts);
    drafts.truncate(FINDINGS_MAX);
    drafts.into_iter().map(|draft| report::finding(&model, draft)).collect()
}

/// All requests of a history, a line each, in order of time.
pub fn requests(history: &History) -> Vec<String> {
    report::all(&Model::new(history, &Rule::strict()))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}: {}", self.seed, self.kind, self.text)?;
        self.requests.iter().try_for_each(|request| writeln!(f, "    {request}"))
    }
}

impl Draft {
    fn new(kind: Kind, text: impl Into<String>, events: impl IntoIterator<Item = usize>) -> Draft {
        Draft { kind, text: text.into(), events: events.into_iter().collect() }
    }
}
