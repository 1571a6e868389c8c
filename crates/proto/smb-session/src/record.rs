//! Parts of records (docs/protocol-smb.md).

use crate::error::AssembleError;
use crate::tracker::Place;
use isthmus_smb_wire::Command;
use isthmus_types::varint;

/// What a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes as they came, transport header included, in the record itself.
    Raw,
    /// Bytes as they came, transport header included, in the content.
    RawContent,
    /// A message.
    Message,
    /// A message to be encrypted for the session of the sealed record before.
    Sealed,
    /// A message to be encrypted for the session whose identifier follows.
    SealedFor,
    /// What is to be encrypted, in the content; the session's identifier follows.
    SealedRaw,
    /// What the other proxy's engine says.
    Ahead,
}

/// Elements that the first byte can count; more are counted by a number after it.
pub(crate) const ELEMENTS_SHORT_MAX: usize = 30;
const ELEMENTS_LONG: u8 = 31;

impl Kind {
    fn to_bits(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::RawContent => 1,
            Self::Message => 2,
            Self::Sealed => 3,
            Self::SealedFor => 4,
            Self::SealedRaw => 5,
            Self::Ahead => 6,
        }
    }
}

/// Appends a record's first byte, and the number of its elements if that does not fit there.
pub(crate) fn put_head(out: &mut Vec<u8>, kind: Kind, elements: usize) {
    if elements <= ELEMENTS_SHORT_MAX {
        out.push(kind.to_bits() | (elements as u8) << 3);
    } else {
        out.push(kind.to_bits() | ELEMENTS_LONG << 3);
        varint::put(out, elements as u64);
    }
}

pub(crate) fn head(input: &mut &[u8]) -> Result<(Kind, u64), AssembleError> {
    let first = byte(input)?;
    let kind = match first & 7 {
        0 => Kind::Raw,
        1 => Kind::RawContent,
        2 => Kind::Message,
        3 => Kind::Sealed,
        4 => Kind::SealedFor,
        5 => Kind::SealedRaw,
        6 => Kind::Ahead,
        _ => return Err(AssembleError::Malformed("kind of record")),
    };
    let elements = match first >> 3 {
        ELEMENTS_LONG => number(input)?,
        short => short.into(),
    };
    Ok((kind, elements))
}

pub(crate) fn byte(input: &mut &[u8]) -> Result<u8, AssembleError> {
    let (first, rest) = input.split_first().ok_or(END)?;
    *input = rest;
    Ok(*first)
}

pub(crate) fn number(input: &mut &[u8]) -> Result<u64, AssembleError> {
    varint::take(input).ok_or(END)
}

pub(crate) fn session_id(input: &mut &[u8]) -> Result<u64, AssembleError> {
    let (bytes, rest) = input.split_first_chunk().ok_or(END)?;
    *input = rest;
    Ok(u64::from_le_bytes(*bytes))
}

pub(crate) fn command(input: &mut &[u8]) -> Result<Command, AssembleError> {
    u16::try_from(number(input)?).map(Command).map_err(|_| AssembleError::Malformed("command"))
}

/// A length as a difference from the expected one.
pub(crate) fn length(input: &mut &[u8], expected: usize) -> Result<usize, AssembleError> {
    let wrong = AssembleError::Malformed("length");
    let difference = varint::unzigzag(number(input)?);
    let sum =
        i64::try_from(expected).ok().and_then(|expected| expected.checked_add(difference)).ok_or(wrong)?;
    usize::try_from(sum).map_err(|_| wrong)
}

/// Number of an open: 0 for none, else one more than the difference from the last, which counts as 0 where there is none.
pub(crate) fn put_reference(out: &mut Vec<u8>, last: Option<u64>, open: Option<u64>) {
    let value = match open {
        None => 0,
        Some(open) => varint::zigzag(open.wrapping_sub(last.unwrap_or(0)) as i64).saturating_add(1),
    };
    varint::put(out, value);
}

pub(crate) fn reference(input: &mut &[u8], last: Option<u64>) -> Result<Option<u64>, AssembleError> {
    let from = last.unwrap_or(0);
    let difference = number(input)?.checked_sub(1);
    Ok(difference.map(|difference| from.wrapping_add_signed(varint::unzigzag(difference))))
}

pub(crate) fn put_place(out: &mut Vec<u8>, place: Place) {
    varint::put(
        out,
        match place {
            Place::First(index) => (index as u64) << 1,
            Place::Interim(index) => (index as u64) << 1 | 1,
        },
    );
}

pub(crate) fn place(input: &mut &[u8]) -> Result<Place, AssembleError> {
    let value = number(input)?;
    let index = usize::try_from(value >> 1).map_err(|_| AssembleError::Malformed("place"))?;
    Ok(if value & 1 == 0 { Place::First(index) } else { Place::Interim(index) })
}

const END: AssembleError = AssembleError::Malformed("record ends too early");
