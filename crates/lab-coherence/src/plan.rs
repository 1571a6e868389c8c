//! What each client of a seed is to do. It depends on the seed alone, never on answers, so that a seed can be played
//! again.

use crate::history::{CELLS_MAX, HANDLE_CACHING, READ_CACHING, WRITE_CACHING};
use fastrand::Rng;
use isthmus_smb_wire::messages::{AccessMask, CreateDisposition, ShareAccess};
use std::time::Duration;

/// Names in a folder: first those that all clients use, then one for each client's own temporary file.
pub const NAMES: [&str; 13] = [
    "a.dat", "b.dat", "c.dat", "d.dat", "e.dat", "f.dat", "g.dat", "h.dat", "t0.tmp", "t1.tmp", "t2.tmp",
    "t3.tmp", "t4.tmp",
];

/// How many of the names all clients use, and how many of those are there at the beginning.
pub const NAMES_SHARED: usize = 8;
pub const NAMES_AT_FIRST: usize = 7;

/// Opens that a client has at the same time.
pub const SLOTS: usize = 3;

/// Cells of each file at the beginning.
pub const CELLS_AT_FIRST: u64 = 3;

/// Seeds that are run side by side and suffer the same disturbance.
pub const WAVE: u64 = 10;

/// Longest pause between two steps, and longest time by which an acknowledgement is held back.
const PAUSE_MS_MAX: u64 = 25;
const ACKNOWLEDGE_DELAYS_MS: [u64; 6] = [0, 0, 0, 5, 40, 200];

/// What is done to a pair while a wave runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The inner channel is cut for so long.
    Cut {
        /// Which pair, by number modulo the pairs there are.
        pair: usize,
        /// Time from the wave's beginning.
        after: Duration,
        /// How long.
        time: Duration,
    },
    /// The client-side proxy is stopped in good order, or killed, and started again.
    Restart {
        /// Which pair, by number modulo the pairs there are.
        pair: usize,
        /// Time from the wave's beginning.
        after: Duration,
        /// With SIGKILL.
        is_killed: bool,
    },
}

/// How a client opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPlan {
    /// Number of the name.
    pub name: usize,
    /// Access.
    pub access: AccessMask,
    /// What others may do.
    pub share: ShareAccess,
    /// What to do when the file exists and when it does not.
    pub disposition: CreateDisposition,
    /// Deleted with its close.
    pub delete_on_close: bool,
    /// Lease or oplock.
    pub caching: CachingPlan,
    /// How long acknowledgements of its breaks are held back.
    pub acknowledge_after: Duration,
}

/// What an open asks to cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachingPlan {
    /// Nothing.
    None,
    /// A lease of this state, with a key of its own.
    Lease(u32),
    /// An oplock of this level (MS-SMB2 2.2.13).
    Oplock(u8),
}

/// One step. A step on a slot without an open does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits.
    Pause(Duration),
    /// Opens into a slot; what was in it is closed.
    Open {
        /** Where. */
        slot: usize,
        /** How. */
        open: OpenPlan,
    },
    /// Closes.
    Close {
        /** Where. */
        slot: usize,
    },
    /// Reads cells.
    Read {
        /** Where. */
        slot: usize,
        /** First. */
        first: u64,
        /** How many. */
        count: u64,
    },
    /// Writes cells.
    Write {
        /** Where. */
        slot: usize,
        /** First. */
        first: u64,
        /** How many. */
        count: u64,
    },
    /// Sets the length.
    SetSize {
        /** Where. */
        slot: usize,
        /** Cells. */
        cells: u64,
    },
    /// FLUSH.
    Flush {
        /** Where. */
        slot: usize,
    },
    /// Locks cells for a moment: a read or write later they are unlocked.
    Lock {
        /** Where. */
        slot: usize,
        /** First. */
        first: u64,
        /** How many. */
        count: u64,
        /** Exclusively. */
        exclusive: bool,
    },
    /// Unlocks the oldest lock.
    Unlock {
        /** Where. */
        slot: usize,
    },
    /// Asks for size and times.
    Query {
        /** Where. */
        slot: usize,
    },
    /// Sets the time of creation.
    SetTime {
        /** Where. */
        slot: usize,
    },
    /// Opens, renames, closes.
    Rename {
        /** From. */
        from: usize,
        /** To. */
        to: usize,
        /** Whether a file of that name goes. */
        replace: bool,
    },
    /// Opens to delete on close, closes: in one compound.
    Remove {
        /** Number of the name. */
        name: usize,
    },
    /// Opens, marks to be deleted, closes.
    Dispose {
        /** Number of the name. */
        name: usize,
    },
    /// Opens, asks, reads if wanted, closes: in one compound.
    Look {
        /** Number of the name. */
        name: usize,
        /** Reads too. */
        reads: bool,
    },
    /// Lists the folder.
    List,
    /// Lists the folder and reads all files that all clients use, one after another, as copying does.
    Walk {
        /// With leases, as the Linux kernel's client; otherwise with a query of each file, as smbclient.
        has_leases: bool,
    },
    /// Writes a temporary file and renames it over another, as editors save.
    Save {
        /** Number of the name. */
        name: usize,
    },
}

/// The steps of one client.
pub fn steps(seed: u64, client: usize, count: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (client as u64 + 1));
    let mut all = Vec::new();
    while all.len() < count {
        all.push(step(&mut rng));
        if rng.u8(..3) > 0 {
            all.push(Step::Pause(Duration::from_millis(rng.u64(..PAUSE_MS_MAX))));
        }
    }
    all
}

/// What happens to the pairs while the wave of this seed runs.
pub fn disturbance(seed: u64) -> Option<Disturbance> {
    let mut rng = Rng::with_seed((seed / WAVE).wrapping_add(77_003));
    let after = Duration::from_millis(rng.u64(150..600));
    let pair = rng.usize(..2);
    match rng.u8(..10) {
        0..3 => Some(Disturbance::Cut { pair, after, time: Duration::from_millis(rng.u64(300..3_500)) }),
        3 => Some(Disturbance::Restart { pair, after, is_killed: false }),
        4 => Some(Disturbance::Restart { pair, after, is_killed: true }),
        _ => None,
    }
}

fn step(rng: &mut Rng) -> Step {
    let slot = rng.usize(..SLOTS);
    let name = name(rng);
    let first = rng.u64(..CELLS_MAX / 2);
    let count = rng.u64(1..3);
    match rng.u8(..100) {
        0..24 => Step::Open { slot, open: open(rng) },
        24..30 => Step::Close { slot },
        30..48 => Step::Read { slot, first: if rng.bool() { 0 } else { first }, count: rng.u64(1..5) },
        48..62 => Step::Write { slot, first, count },
        62..65 => Step::SetSize { slot, cells: rng.u64(..CELLS_MAX) },
        65..67 => Step::Flush { slot },
        67..70 => Step::Lock { slot, first, count, exclusive: rng.bool() },
        70..72 => Step::Unlock { slot },
        72..77 => Step::Query { slot },
        77..80 => Step::SetTime { slot },
        80..83 => Step::Rename { from: name, to: rng.usize(..NAMES_SHARED), replace: rng.bool() },
        83 => Step::Remove { name },
        84 => Step::Dispose { name },
        85..92 => Step::Look { name, reads: rng.bool() },
        92..94 => Step::List,
        94..97 => Step::Walk { has_leases: rng.bool() },
        _ => Step::Save { name: rng.usize(..NAMES_SHARED) },
    }
}

/// Most of all the first file, so that clients meet.
fn name(rng: &mut Rng) -> usize {
    if rng.bool() { 0 } else { rng.usize(..NAMES_SHARED) }
}

fn open(rng: &mut Rng) -> OpenPlan {
    let (read, write) = (AccessMask::READ_DATA, AccessMask::WRITE_DATA);
    let attributes = match rng.u8(..4) {
        0 => AccessMask::READ_ATTRIBUTES.with(AccessMask::WRITE_ATTRIBUTES),
        _ => AccessMask::READ_ATTRIBUTES,
    };
    let access = match rng.u8(..8) {
        0..3 => read,
        3..6 => read.with(write),
        6 => write,
        _ => AccessMask::NONE,
    };
    let share = match rng.u8(..12) {
        0 => ShareAccess::READ,
        1 => ShareAccess::READ.with(ShareAccess::WRITE),
        2 => ShareAccess::NONE,
        _ => ShareAccess(7),
    };
    let disposition = match rng.u8(..12) {
        0 => CreateDisposition::OPEN_IF,
        1 => CreateDisposition::CREATE,
        2 if access.contains(write) => CreateDisposition::OVERWRITE_IF,
        3 if access.contains(write) => CreateDisposition::OVERWRITE,
        _ => CreateDisposition::OPEN,
    };
    // A lease on attributes alone promises nothing that could be checked.
    let caching = if access == AccessMask::NONE { CachingPlan::None } else { caching(rng) };
    let delay = rng.choice(ACKNOWLEDGE_DELAYS_MS).unwrap_or_default();
    OpenPlan {
        name: name(rng),
        access: access.with(attributes),
        share,
        disposition,
        delete_on_close: false,
        caching,
        acknowledge_after: Duration::from_millis(delay),
    }
}

fn caching(rng: &mut Rng) -> CachingPlan {
    match rng.u8(..10) {
        0 => CachingPlan::Lease(READ_CACHING),
        1 => CachingPlan::Lease(READ_CACHING | HANDLE_CACHING),
        2..4 => CachingPlan::Lease(READ_CACHING | HANDLE_CACHING | WRITE_CACHING),
        4 => CachingPlan::Oplock(*rng.choice(&[0x01, 0x08, 0x09]).unwrap_or(&0x09)),
        _ => CachingPlan::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_steps_again_and_others_give_others() {
        assert_eq!(steps(5, 1, 40), steps(5, 1, 40));
        assert_ne!(steps(5, 1, 40), steps(5, 2, 40));
        assert_ne!(steps(5, 1, 40), steps(6, 1, 40));
        assert_eq!(disturbance(20), disturbance(20 + WAVE - 1));
    }

    #[test]
    fn every_kind_of_step_and_of_disturbance_comes_up() {
        let all: Vec<Step> = (0..40).flat_map(|seed| steps(seed, 0, 60)).collect();
        let kinds: std::collections::HashSet<_> = all.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 18);
        let waves: Vec<_> = (0..100).map(|wave| disturbance(wave * WAVE)).collect();
        assert!(waves.contains(&None));
        assert!(waves.iter().any(|wave| matches!(wave, Some(Disturbance::Cut { .. }))));
        assert!(waves.iter().any(|wave| matches!(wave, Some(Disturbance::Restart { is_killed: true, .. }))));
        assert!(waves.iter().any(|wave| matches!(wave, Some(Disturbance::Restart { is_killed: false, .. }))));
    }
}
