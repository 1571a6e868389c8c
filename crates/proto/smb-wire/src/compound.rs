//! Compounded messages (MS-SMB2 2.2.1 and 3.3.5.2.7).

use crate::command::Command;
use crate::error::WireError;
use crate::field::{Field, fixed};
use crate::file_id::{FileId, file_id};
use crate::header::{HEADER_LEN, Header};
use crate::macros::opaque;
use std::ops::Range;

/// Most elements of one compound.
pub const COMPOUND_ELEMENTS_MAX: usize = 1024;

/// Elements begin at multiples of this.
pub const COMPOUND_ALIGNMENT: usize = 8;

/// Where the elements of a message are, in order. A message that is no compound has one. Padding belongs to the element
/// before it, as signatures have it. Ends after the first element that is malformed.
pub fn elements(message: &[u8]) -> Elements<'_> {
    Elements { message, next: Some(0), left: COMPOUND_ELEMENTS_MAX }
}

/// Iterator over the ranges of a message's elements.
#[derive(Clone)]
pub struct Elements<'a> {
    message: &'a [u8],
    next: Option<usize>,
    left: usize,
}

opaque!(Elements<'_>);

impl Elements<'_> {
    fn read(&self, start: usize) -> Result<(Range<usize>, bool), WireError> {
        let what = "compound";
        if self.left == 0 {
            return Err(WireError::TooMany { what, limit: COMPOUND_ELEMENTS_MAX });
        }
        let rest = self.message.get(start..).unwrap_or(&[]);
        let next = Header::parse(rest)?.next_command();
        if next == 0 {
            return Ok((start..self.message.len(), true));
        }
        let length = next as usize;
        if !length.is_multiple_of(COMPOUND_ALIGNMENT) {
            return Err(WireError::Misaligned { what, offset: next.into() });
        }
        // There is another element, so that its header must fit too.
        if length < HEADER_LEN || rest.len().checked_sub(length).is_none_or(|left| left < HEADER_LEN) {
            return Err(WireError::OutOfBounds {
                what,
                offset: next.into(),
                length: HEADER_LEN as u64,
                found: rest.len(),
            });
        }
        Ok((start..start + length, false))
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Range<usize>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read(self.next?);
        self.next = match &read {
            Ok((range, false)) => Some(range.end),
            _ => None,
        };
        self.left = self.left.saturating_sub(1);
        Some(read.map(|(range, _)| range))
    }
}

/// The open that an element of a compound is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// None.
    None,
    /// This one.
    Open(FileId),
    /// The one that the CREATE in the element of this index will give.
    Created(usize),
}

/// Whose an element is, with what it takes over from those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The session.
    pub session_id: u64,
    /// The tree connect; none in a message with an asynchronous identifier.
    pub tree_id: Option<u32>,
    /// The open.
    pub target: Target,
}

/// Resolves the elements of one compounded request in order: a related element takes session, tree connect and open from
/// the one before it (MS-SMB2 3.3.5.2.7.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolver {
    before: Option<Resolved>,
    index: usize,
}

impl Resolver {
    /// Before the first element.
    pub fn new() -> Self {
        Self::default()
    }

    /// Resolves the next element.
    ///
    /// # Errors
    /// When it is not a message, or is related and the first.
    pub fn resolve(&mut self, element: &[u8]) -> Result<Resolved, WireError> {
        let header = Header::parse(element)?;
        let before = match (header.is_related(), self.before) {
            (true, None) => return Err(WireError::Value { what: "related element without one before it" }),
            (true, Some(before)) => Some(before),
            (false, _) => None,
        };
        let own = match (header.command(), file_id(element)) {
            (Command::CREATE, _) => Target::Created(self.index),
            (_, None) => Target::None,
            (_, Some(id)) => match before.map_or(Target::None, |before| before.target) {
                // Where there is none to take over, servers differ: the document has them fail, some look at the identifier.
                Target::None if id == FileId::ANY => Target::None,
                Target::None => Target::Open(id),
                // Whatever identifier stands in a related element, servers do not look at it.
                taken => taken,
            },
        };
        let resolved = Resolved {
            session_id: before.map_or(header.session_id(), |before| before.session_id),
            tree_id: before.map_or(header.tree_id(), |before| before.tree_id),
            target: own,
        };
        // A command without an open does not make the next one forget.
        let kept = match (own, before) {
            (Target::None, Some(before)) => before.target,
            _ => own,
        };
        self.before = Some(Resolved { target: kept, ..resolved });
        self.index += 1;
        Ok(resolved)
    }
}

/// Makes one message of several elements: each but the last is padded, and points to the next.
///
/// # Errors
/// When an element is not a message, or the whole is too long for offsets.
pub fn join(elements: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, WireError> {
    if elements.len() > COMPOUND_ELEMENTS_MAX {
        return Err(WireError::TooMany { what: "compound", limit: COMPOUND_ELEMENTS_MAX });
    }
    let mut all: Vec<u8> = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        let element = element.as_ref();
        fixed("compound", element, HEADER_LEN)?;
        let last = index + 1 == elements.len();
        let start = all.len();
        all.extend_from_slice(element);
        if !last {
            all.resize(all.len().next_multiple_of(COMPOUND_ALIGNMENT), 0);
        }
        let length = all.len() - start;
        let next = u32::try_from(length).map_err(|_| WireError::TooLong {
            what: "compound",
            length,
            limit: u32::MAX as usize,
        })?;
        let place = all.get_mut(start..).unwrap_or(&mut []);
        Header::parse(&*place)?;
        (if last { 0 } else { next }).write(place, 20);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HeaderFlags;

    fn message(command: Command, flags: HeaderFlags, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..4].copy_from_slice(&crate::header::PROTOCOL_ID);
        bytes[4] = 64;
        let mut header = Header::parse(&mut bytes[..]).unwrap();
        header.set_command(command);
        header.set_flags(flags);
        bytes.extend_from_slice(body);
        bytes
    }

    fn close(flags: HeaderFlags, id: FileId) -> Vec<u8> {
        let mut body = vec![0; 24];
        body[0] = 24;
        id.write(&mut body, 8);
        message(Command::CLOSE, flags, &body)
    }

    #[test]
    fn padding_belongs_to_the_element_before_it() {
        let odd = message(Command::ECHO, HeaderFlags::NONE, &[4, 0, 0, 0, 9]);
        let all = join(&[&odd, &odd, &odd]).unwrap();
        let ranges: Vec<Range<usize>> = elements(&all).map(Result::unwrap).collect();
        assert_eq!(ranges, [0..72, 72..144, 144..213]);
    }

    #[test]
    fn elements_that_do_not_fit_are_refused() {
        let one = message(Command::ECHO, HeaderFlags::NONE, &[4, 0, 0, 0]);
        let whole = join(&[&one, &one]).unwrap();
        for (next, kind) in [
            (68, "Misaligned"),
            (56, "OutOfBounds"),
            (80, "ProtocolId"),
            (u32::MAX - 7, "OutOfBounds"),
            (136, "OutOfBounds"),
        ] {
            let mut bad = [whole.clone(), vec![0; 16]].concat();
            next.write(&mut bad, 20);
            let found: Vec<_> = elements(&bad).collect();
            let error = found.last().unwrap().as_ref().unwrap_err();
            assert!(format!("{error:?}").starts_with(kind), "{next}: {error:?}");
            assert!(found.len() <= 2);
        }
    }

    #[test]
    fn a_long_chain_ends_at_the_limit() {
        let one = message(Command::ECHO, HeaderFlags::NONE, &[]);
        let all: Vec<u8> = (0..COMPOUND_ELEMENTS_MAX + 2)
            .flat_map(|_| {
                let mut next = one.clone();
                64_u32.write(&mut next, 20);
                next
            })
            .collect();
        let found: Vec<_> = elements(&all).collect();
        assert_eq!(found.len(), COMPOUND_ELEMENTS_MAX + 1);
        assert!(matches!(found.last(), Some(Err(WireError::TooMany { .. }))));
    }

    #[test]
    fn related_elements_take_over_what_came_before() {
        let mut create = message(Command::CREATE, HeaderFlags::NONE, &[57, 0]);
        let mut header = Header::parse(&mut create[..]).unwrap();
        header.set_session_id(5);
        header.set_tree_id(6);
        let mut resolver = Resolver::new();
        let first = resolver.resolve(&create).unwrap();
        assert_eq!(first, Resolved { session_id: 5, tree_id: Some(6), target: Target::Created(0) });
        let related = close(HeaderFlags::RELATED_OPERATIONS, FileId::ANY);
        assert_eq!(resolver.resolve(&related).unwrap(), first);
        let id = FileId { persistent: 1, volatile: 2 };
        let named = close(HeaderFlags::RELATED_OPERATIONS, id);
        assert_eq!(resolver.resolve(&named).unwrap(), first);
        let echo = message(Command::ECHO, HeaderFlags::RELATED_OPERATIONS, &[4, 0, 0, 0]);
        assert_eq!(resolver.resolve(&echo).unwrap(), Resolved { target: Target::None, ..first });
        assert_eq!(resolver.resolve(&related).unwrap(), first);
        let alone = resolver.resolve(&close(HeaderFlags::NONE, id)).unwrap();
        assert_eq!(alone, Resolved { session_id: 0, tree_id: Some(0), target: Target::Open(id) });
        assert_eq!(resolver.resolve(&related).unwrap(), alone);
        let apart = resolver.resolve(&close(HeaderFlags::NONE, FileId::ANY)).unwrap();
        assert_eq!(apart, Resolved { session_id: 0, tree_id: Some(0), target: Target::None });
        assert!(Resolver::new().resolve(&related).is_err());
    }
}
