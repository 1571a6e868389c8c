//! Which number stands for which (peer store, domain) pair.

use crate::footer::LedgerEntry;
use isthmus_reduction::content::LedgerId;
use isthmus_types::{Domain, StoreId};
use std::collections::HashMap;
use thiserror::Error;

/// Most (peer store, domain) pairs that are known at once.
pub const LEDGERS_MAX: usize = 65_536;

/// Why a pair got no ledger.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LedgerError {
    #[error("too many ledgers")]
    TooMany,
    #[error("the domain is longer than DOMAIN_LEN_MAX")]
    DomainTooLong,
}

#[derive(Default)]
pub(crate) struct Ledgers {
    by_name: HashMap<(StoreId, Domain), LedgerId>,
    by_id: HashMap<LedgerId, (StoreId, Domain)>,
    last: u32,
}

impl Ledgers {
    /// Takes up a pair under the number it had, if that is free.
    pub fn restore(&mut self, id: LedgerId, peer: StoreId, domain: Domain) {
        let known = self.by_id.contains_key(&id) || self.by_name.contains_key(&(peer, domain.clone()));
        if !known && self.by_id.len() < LEDGERS_MAX {
            self.last = self.last.max(id.0);
            self.by_name.insert((peer, domain.clone()), id);
            self.by_id.insert(id, (peer, domain));
        }
    }

    /// The number of a pair if it has one.
    pub fn find(&self, peer: StoreId, domain: &Domain) -> Option<LedgerId> {
        self.by_name.get(&(peer, domain.clone())).copied()
    }

    /// The number of a pair, and whether it is new.
    pub fn ensure(&mut self, peer: StoreId, domain: &Domain) -> Result<(LedgerId, bool), LedgerError> {
        if let Some(id) = self.find(peer, domain) {
            return Ok((id, false));
        }
        if self.by_id.len() >= LEDGERS_MAX || self.last == u32::MAX {
            return Err(LedgerError::TooMany);
        }
        let id = LedgerId(self.last + 1);
        self.restore(id, peer, domain.clone());
        Ok((id, true))
    }

    /// A ledger as a segment declares it.
    pub fn entry(&self, id: LedgerId) -> Option<LedgerEntry> {
        let (peer, domain) = self.by_id.get(&id)?;
        Some(LedgerEntry { number: id.0, peer: *peer, domain: domain.clone() })
    }

    /// All pairs, in the order of their numbers.
    pub fn all(&self) -> Vec<(LedgerId, StoreId, Domain)> {
        let mut all: Vec<_> =
            self.by_id.iter().map(|(id, (peer, domain))| (*id, *peer, domain.clone())).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_shared_by_two_pairs() {
        let mut ledgers = Ledgers::default();
        let (a, b) = (StoreId([1; 16]), StoreId([2; 16]));
        let domain = Domain("x".into());
        ledgers.restore(LedgerId(5), a, domain.clone());
        ledgers.restore(LedgerId(5), b, domain.clone());
        assert_eq!(ledgers.find(b, &domain), None);
        assert_eq!(ledgers.ensure(b, &domain), Ok((LedgerId(6), true)));
        assert_eq!(ledgers.ensure(b, &domain), Ok((LedgerId(6), false)));
        assert_eq!(ledgers.ensure(a, &domain), Ok((LedgerId(5), false)));
        assert_eq!(ledgers.ensure(a, &Domain("y".into())), Ok((LedgerId(7), true)));
        assert_eq!(ledgers.all().len(), 3);
    }
}
