//! What clients did and were told, with real times of call and return.

use std::collections::BTreeSet;
use std::fmt;

/// Bytes of a cell: files are written in whole cells, each of one version.
pub const CELL_BYTES: usize = 4096;

/// Most cells of a file.
pub const CELLS_MAX: u64 = 8;

/// Bytes of a version's mark, which fills its cell again and again.
const UNIT_BYTES: usize = 16;

/// First half of a mark, with the seed; bytes of another folder or of nothing are told by it.
const MARK: u64 = 0x4353_4d48_0000_0000;

/// Microseconds since the run began.
pub type Time = u64;

/// Number of an open, unique in its history.
pub type Handle = usize;

/// Caching states, as in MS-SMB2 2.2.13.2.8.
pub const READ_CACHING: u32 = 1;
/// Handles may be kept.
pub const HANDLE_CACHING: u32 = 2;
/// Writes may be kept.
pub const WRITE_CACHING: u32 = 4;

/// One seed's folder: all that happened to it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The seed.
    pub seed: u64,
    /// By which way each client reaches the server.
    pub clients: Vec<Via>,
    /// Requests, in the order of their calls.
    pub events: Vec<Event>,
    /// Breaks that clients were told of.
    pub breaks: Vec<Break>,
    /// What was on the server's disk when all was over.
    pub remains: Option<Remains>,
}

/// A way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// Straight.
    Direct,
    /// Through the pair of this number.
    Pair(usize),
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Event {
    /// Who.
    pub client: usize,
    /// Just before it was sent.
    pub call: Time,
    /// Just after its answer was read.
    pub back: Time,
    /// What was asked.
    pub action: Action,
    /// What was answered.
    pub outcome: Outcome,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// CREATE.
    Open {
        /// Name in the folder.
        name: String,
        /// Access, as in MS-SMB2 2.2.13.1.
        access: u32,
        /// What others may do.
        share: u32,
        /// Disposition.
        disposition: u32,
        /// Deleted with its close.
        delete_on_close: bool,
    },
    /// READ of cells.
    Read {
        /** The open. */
        handle: Handle,
        /** First cell. */
        first: u64,
        /** Cells. */
        count: u64,
    },
    /// WRITE of cells, all of one version.
    Write {
        /** The open. */
        handle: Handle,
        /** First cell. */
        first: u64,
        /** Cells. */
        count: u64,
        /** Version. */
        tag: u64,
    },
    /// Sets the length.
    SetSize {
        /** The open. */
        handle: Handle,
        /** Cells. */
        cells: u64,
    },
    /// FLUSH.
    Flush {
        /** The open. */
        handle: Handle,
    },
    /// Renames.
    Rename {
        /** The open. */
        handle: Handle,
        /** New name. */
        to: String,
        /** Whether a file of that name goes. */
        replace: bool,
    },
    /// Marks to be deleted.
    Delete {
        /** The open. */
        handle: Handle,
    },
    /// Sets the time of creation, which serves as a version of the attributes.
    SetTime {
        /** The open. */
        handle: Handle,
        /** In 100 ns since 1601. */
        time: u64,
    },
    /// QUERY_INFO.
    Query {
        /** The open. */
        handle: Handle,
    },
    /// Locks cells.
    Lock {
        /** The open. */
        handle: Handle,
        /** First cell. */
        first: u64,
        /** Cells. */
        count: u64,
        /** Whether exclusively. */
        exclusive: bool,
    },
    /// Unlocks cells.
    Unlock {
        /** The open. */
        handle: Handle,
        /** First cell. */
        first: u64,
        /** Cells. */
        count: u64,
    },
    /// CLOSE.
    Close {
        /** The open. */
        handle: Handle,
    },
    /// Lists the folder.
    List,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Refused with this status (MS-ERREF 2.3).
    Refused(u32),
    /// The connection went before the answer came.
    Lost,
    /// An open.
    Opened(Opened),
    /// Content, up to the end of the file.
    Cells(Vec<Cell>),
    /// Information.
    Facts(Facts),
    /// A listing.
    Listed(Vec<Listed>),
}

/// An open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub handle: Handle,
    /// Of which file.
    pub facts: Facts,
    /// What was done.
    pub action: OpenAction,
    /// What may be cached.
    pub caching: u32,
}

/// What an open did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAction {
    /// A file that was there.
    Opened,
    /// A new file.
    Created,
    /// A file that was there, and its content is gone.
    Overwritten,
}

/// What is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number on the volume.
    pub file: u64,
    /// Bytes.
    pub size: u64,
    /// When it was created, in 100 ns since 1601.
    pub time: u64,
}

/// A name in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// What is told of it.
    pub facts: Facts,
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// One version, and all of it.
    Version(u64),
    /// Zeros.
    Zero,
    /// Bytes that nobody wrote.
    Garbage,
    /// Parts of several.
    Mixed(Vec<Cell>),
}

/// A break that a client was told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// Of whose open.
    pub handle: Handle,
    /// What is left.
    pub left: u32,
    /// When it was read.
    pub at: Time,
}

/// What is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// When it was looked at.
    pub at: Time,
    /// Names, with content.
    pub files: Vec<(String, Vec<Cell>)>,
}

impl Action {
    /// The open that it is about.
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Action::Open { .. } | Action::List => None,
            Action::Read { handle, .. }
            | Action::Write { handle, .. }
            | Action::SetSize { handle, .. }
            | Action::Flush { handle }
            | Action::Rename { handle, .. }
            | Action::Delete { handle }
            | Action::SetTime { handle, .. }
            | Action::Query { handle }
            | Action::Lock { handle, .. }
            | Action::Unlock { handle, .. }
            | Action::Close { handle } => Some(*handle),
        }
    }
}

impl Event {
    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused(_) | Outcome::Lost)
    }

    /// Whether it was done, or may have been.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.outcome, Outcome::Refused(_))
    }

    /// The open that it gave.
    pub fn opened(&self) -> Option<&Opened> {
        match &self.outcome {
            Outcome::Opened(opened) => Some(opened),
            _ => None,
        }
    }
}

/// Bytes of cells of one version.
pub fn cells_of(seed: u64, tag: u64, count: u64) -> Vec<u8> {
    let unit = [(MARK | seed & 0xffff_ffff).to_le_bytes(), tag.to_le_bytes()].concat();
    unit.repeat(CELL_BYTES / UNIT_BYTES * count as usize)
}

/// What bytes from the start of a cell on are.
pub fn read_cells(seed: u64, bytes: &[u8]) -> Vec<Cell> {
    let one = |unit: &[u8]| {
        let (mark, tag) = unit.split_at_checked(UNIT_BYTES / 2).unwrap_or((unit, &[]));
        let number = |half: &[u8]| half.first_chunk().map(|half| u64::from_le_bytes(*half));
        match (number(mark), number(tag)) {
            (Some(0), Some(0)) => Cell::Zero,
            (Some(mark), Some(tag)) if mark == MARK | seed & 0xffff_ffff => Cell::Version(tag),
            _ => Cell::Garbage,
        }
    };
    let cell = |bytes: &[u8]| {
        let mut parts: BTreeSet<Cell> = bytes.chunks(UNIT_BYTES).map(one).collect();
        if bytes.len() < CELL_BYTES {
            parts.insert(Cell::Garbage);
        }
        if parts.len() > 1 {
            Cell::Mixed(parts.into_iter().collect())
        } else {
            parts.pop_first().unwrap_or(Cell::Garbage)
        }
    };
    bytes.chunks(CELL_BYTES).map(cell).collect()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Version(tag) => write!(f, "v{}.{}", tag >> 32, tag & 0xffff_ffff),
            Cell::Zero => f.write_str("zeros"),
            Cell::Garbage => f.write_str("bytes that nobody wrote"),
            Cell::Mixed(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(f, "a mix of {}", parts.join(" and "))
            }
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Via::Direct => f.write_str("direct"),
            Via::Pair(number) => write!(f, "pair {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_which_version_it_is() {
        let mut bytes = [cells_of(7, 1 << 32 | 5, 2), vec![0; CELL_BYTES]].concat();
        let version = Cell::Version(1 << 32 | 5);
        assert_eq!(read_cells(7, &bytes), [version.clone(), version.clone(), Cell::Zero]);
        assert_eq!(read_cells(8, &bytes)[0], Cell::Garbage, "bytes of another folder");
        bytes[CELL_BYTES - UNIT_BYTES..CELL_BYTES].copy_from_slice(&cells_of(7, 9, 1)[..UNIT_BYTES]);
        assert_eq!(read_cells(7, &bytes)[0], Cell::Mixed(vec![Cell::Version(9), version.clone()]));
        assert_eq!(
            read_cells(7, &bytes[..CELL_BYTES + 32]).last(),
            Some(&Cell::Mixed(vec![version, Cell::Garbage])),
            "a cell that is cut short"
        );
    }
}
