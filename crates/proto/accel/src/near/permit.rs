//! What allows an answer near the client. Nothing else makes a [`Permit`], and nothing is answered without one.

use crate::limits::LIVENESS_MICROS;
use isthmus_smb_wire::FileId;

/// Leave to answer one request near the client.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit(pub(super) Why);

/// What a permit rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A handle that the far engine holds open under a lease for reading and for keeping it.
    Offer(u32),
    /// A lease for reading on an open of the client.
    Lease(FileId),
    /// A watch of the folder.
    Watch(u32),
    /// An exclusive lease of the client, under which the server gets what it writes a little later.
    Behind(FileId),
    /// The client's own handle, whose server need not be asked: its end, or the next part of its listing.
    Handle(FileId),
}

/// When the far engine last confirmed what is held.
#[derive(Default)]
pub(super) struct Liveness {
    /// Until when what is held may be used, in microseconds.
    until: u64,
}

impl Liveness {
    /// The echo of a ping that was sent at `stamp`.
    pub fn confirmed(&mut self, stamp: u64) {
        self.until = self.until.max(stamp.saturating_add(LIVENESS_MICROS));
    }

    /// A permit that needs confirmation.
    pub fn permit(&self, now: u64, why: Why) -> Option<Permit> {
        (now < self.until).then_some(Permit(why))
    }
}

impl Permit {
    /// For the end of a handle that did not write, and for parts of a listing that the server has given for just this
    /// handle: they cannot grow stale.
    pub(super) fn of_handle(file_id: FileId) -> Self {
        Self(Why::Handle(file_id))
    }

    /// What it rests on.
    pub fn why(&self) -> Why {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_confirmed_in_time_permits_nothing() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.permit(0, Why::Watch(1)), None);
        liveness.confirmed(1_000_000);
        assert_eq!(liveness.permit(2_999_999, Why::Watch(1)), Some(Permit(Why::Watch(1))));
        assert_eq!(liveness.permit(3_000_000, Why::Watch(1)), None);
        // An echo that comes late counts from when it was asked for.
        liveness.confirmed(500_000);
        assert_eq!(liveness.permit(3_000_000, Why::Watch(1)), None);
    }
}
