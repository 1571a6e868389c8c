//! What others do with files: those that they have changed lately, or hold, are left alone.

use super::Far;
use super::folders::Entry;
use crate::limits::{
    LOOK_HIDDEN_MICROS, LOOK_MICROS, LOOK_SHOWN_MICROS, OFFER_HIDDEN_MICROS, OFFER_MICROS, RECENT_MICROS,
    REFUSED_MICROS, TREES_MAX,
};
use crate::message::split_name;
use isthmus_smb_wire::messages::NegotiateResponse;
use std::collections::HashMap;

/// The server's clock, in 100 ns since 1601, at a moment of this proxy's.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    time: u64,
    at: u64,
}

/// Whether a server breaks a lease for keeping a handle when somebody deletes or renames the file. Nobody can be asked; what
/// happens tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    #[default]
    Unknown,
    /// It keeps leases on folders, which could not hold otherwise.
    Likely,
    /// A file was being deleted under a lease that was not broken.
    Hidden,
}

/// What is known of shares, by session and tree connect.
#[derive(Default)]
pub(super) struct Shares {
    shown: HashMap<(u64, u32), Shown>,
}

impl Shares {
    pub fn shown(&self, place: (u64, u32)) -> Shown {
        self.shown.get(&place).copied().unwrap_or_default()
    }

    /// Something has told. What was seen counts more than what is likely.
    pub fn tells(&mut self, place: (u64, u32), shown: Shown) {
        let known = self.shown(place);
        if known != Shown::Hidden && (self.shown.len() < TREES_MAX || self.shown.contains_key(&place)) {
            self.shown.insert(place, shown);
        }
    }

    pub fn leave(&mut self, session: u64, tree: Option<u32>) {
        self.shown.retain(|(one, other), _| *one != session || tree.is_some_and(|tree| *other != tree));
    }
}

impl Shown {
    /// How long a handle is kept for its use, and how often it is looked at, in microseconds.
    pub fn times(self) -> (u64, u64) {
        match self {
            Self::Unknown => (OFFER_MICROS, LOOK_MICROS),
            Self::Likely => (OFFER_MICROS, LOOK_SHOWN_MICROS),
            Self::Hidden => (OFFER_HIDDEN_MICROS, LOOK_HIDDEN_MICROS),
        }
    }
}

impl Clock {
    /// From the response to a NEGOTIATE that came at `at`.
    pub fn of(response: &[u8], at: u64) -> Option<Self> {
        let time = NegotiateResponse::parse(response).ok()?.system_time();
        (time != 0).then_some(Self { time, at })
    }

    /// Whether a time of the server is within the last few seconds, or as far ahead.
    fn is_recent(self, time: u64, now: u64) -> bool {
        let server = self.time.saturating_add(now.saturating_sub(self.at).saturating_mul(10));
        server.abs_diff(time) < RECENT_MICROS * 10
    }
}

impl Far {
    /// Whether a file is to be left alone for now, since others are at work on it. `folded` is its name.
    pub(super) fn is_others(&self, entry: &Entry, folded: &[u8]) -> bool {
        let recent = self.clock.is_some_and(|clock| clock.is_recent(entry.changed, self.now));
        entry.not_before > self.now || (recent && !self.changes.knows(folded))
    }

    /// Somebody has a file open that an offer was wanted of: it is not tried again for some time.
    pub(super) fn leave_alone(&mut self, id: u32) {
        let Some(offer) = self.offers.get(id) else { return };
        let last = split_name(&offer.name).1.to_vec();
        let not_before = self.now.saturating_add(REFUSED_MICROS);
        if let Some(folder) = self.folders.get_mut(&offer.folder)
            && let Some(index) = folder.index_of(&last)
            && let Some(entry) = folder.entries.get_mut(index)
        {
            entry.opened = false;
            entry.not_before = not_before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_is_within_seconds_of_the_servers_clock_as_it_goes_on() {
        let clock = Clock { time: 1_000_000_000, at: 500 };
        assert!(clock.is_recent(1_000_000_000, 500));
        assert!(clock.is_recent(1_000_000_000, 500 + RECENT_MICROS - 1));
        assert!(!clock.is_recent(1_000_000_000, 500 + RECENT_MICROS));
        assert!(!clock.is_recent(u64::MAX, 500), "a time far ahead says nothing");
    }

    #[test]
    fn what_was_seen_of_a_server_counts_more_than_what_is_likely() {
        let (mut shares, place) = (Shares::default(), (1, 2));
        assert_eq!(shares.shown(place), Shown::Unknown);
        shares.tells(place, Shown::Likely);
        shares.tells(place, Shown::Hidden);
        shares.tells(place, Shown::Likely);
        assert_eq!((shares.shown(place), shares.shown((1, 3))), (Shown::Hidden, Shown::Unknown));
        shares.leave(1, Some(2));
        assert_eq!(shares.shown(place), Shown::Unknown);
    }
}
