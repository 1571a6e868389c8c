//! Counts what the client's own requests may have changed.
//!
//! Both engines see the requests that change anything in the same order, and count them alike. What the far engine found
//! out ahead carries the count of when it asked the server; the near engine drops it if the client has changed the thing
//! since, whose request was on its way to the server at that time.

use crate::limits::{CHANGED_NAMES_MAX, WRITES_KNOWN_MAX};
use crate::message::{Change, change_of, element, elements, folded, header, is_single, split_name};
use isthmus_smb_wire::messages::{CreateRequest, WriteRequest};
use isthmus_smb_wire::{Command, FileId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Counts of changes.
#[derive(Default)]
pub(crate) struct Changes {
    /// All requests there have been that may change anything, by what both engines see of them.
    all: u64,
    /// When something may have changed last, by what this engine knows of the client's opens.
    latest: u64,
    /// When anything may have changed last.
    anything: u64,
    /// When a name, folded, may have changed last.
    names: HashMap<Vec<u8>, u64>,
    /// The same of content, but for WRITEs whose place is known, and of names that are not known any more.
    content: HashMap<Vec<u8>, u64>,
    contents: u64,
    /// WRITEs to a name, folded, since then.
    writes: HashMap<Vec<u8>, VecDeque<Written>>,
}

/// A WRITE whose place is known.
struct Written {
    at: u64,
    bytes: Range<u64>,
}

/// What the end of an open may change.
pub(crate) enum End {
    Nothing,
    /// Its file, by name.
    Name(Vec<u8>),
    /// It is not known.
    Anything,
}

/// A name that a request is about.
pub(crate) struct Touched {
    pub name: Vec<u8>,
    /// Whether content may change, and not only who may use it and what is said of it.
    pub content: bool,
}

/// What changed with one request.
pub(crate) enum Changed {
    Nothing,
    Names(Vec<Touched>),
    /// Only these bytes of the file of this name.
    Bytes(Vec<u8>, Range<u64>),
    Anything,
}

impl Changes {
    /// Counts a request; `name_of` gives the name of an open, `end_of` what its end changes.
    pub fn note(
        &mut self,
        request: &[u8],
        name_of: impl Fn(FileId) -> Option<Vec<u8>>,
        end_of: impl Fn(FileId) -> End,
    ) -> Changed {
        if let Some((name, bytes)) = written(request, &name_of) {
            self.note_write(&name, bytes.clone());
            return Changed::Bytes(name, bytes);
        }
        let Some(ranges) = elements(request) else { return Changed::Nothing };
        let (mut names, mut created): (Vec<Touched>, Option<Vec<u8>>) = (Vec::new(), None);
        let (mut anything, mut ends) = (false, false);
        for range in &ranges {
            let element = element(request, range);
            if header(element).command() == Command::CREATE {
                created = CreateRequest::parse(element).ok().map(|view| view.name_bytes().to_vec());
            }
            match change_of(element, created.as_deref()) {
                Change::Nothing => {}
                Change::Access(name) => names.push(Touched { name, content: false }),
                Change::Name(name) => names.push(Touched { name, content: true }),
                Change::Open(id) => match name_of(id) {
                    Some(name) => names.push(Touched { name, content: true }),
                    None => anything = true,
                },
                Change::End(id) => {
                    ends = true;
                    match end_of(id) {
                        End::Nothing => {}
                        End::Name(name) => names.push(Touched { name, content: true }),
                        End::Anything => anything = true,
                    }
                }
                Change::Anything => anything = true,
            }
        }
        // What the end of an open changes one engine may see and the other not, so each counts.
        let changed = anything || !names.is_empty();
        self.all += u64::from(changed || ends);
        if !changed {
            return Changed::Nothing;
        }
        self.latest = self.all;
        if anything || self.content.len() + names.len() > CHANGED_NAMES_MAX {
            self.forget_content();
        }
        if anything || self.names.len() + names.len() > CHANGED_NAMES_MAX {
            self.names.clear();
            self.anything = self.all;
        }
        if anything {
            return Changed::Anything;
        }
        for Touched { name, content } in &names {
            self.note_name(name);
            if *content {
                let name = folded(name);
                self.writes.remove(&name);
                self.content.insert(name, self.all);
            }
        }
        Changed::Names(names)
    }

    fn note_name(&mut self, name: &[u8]) {
        self.names.insert(folded(name), self.all);
        // A folder's own attributes change with what is in it.
        self.names.insert(folded(split_name(name).0), self.all);
    }

    fn note_write(&mut self, name: &[u8], bytes: Range<u64>) {
        self.all += 1;
        self.latest = self.all;
        if self.names.len() >= CHANGED_NAMES_MAX {
            self.names.clear();
            self.anything = self.all;
        }
        self.note_name(name);
        if self.writes.len() >= CHANGED_NAMES_MAX || self.content.len() >= CHANGED_NAMES_MAX {
            self.forget_content();
        }
        let name = folded(name);
        let writes = self.writes.entry(name.clone()).or_default();
        writes.push_back(Written { at: self.all, bytes });
        if writes.len() > WRITES_KNOWN_MAX
            && let Some(oldest) = writes.pop_front()
        {
            self.content.insert(name, oldest.at);
        }
    }

    /// From now on any content asked for earlier may have changed.
    fn forget_content(&mut self) {
        self.content.clear();
        self.writes.clear();
        self.contents = self.all;
    }

    /// What the client has written to a name since a count; None where more may have changed.
    pub fn written_since(&self, tag: u64, name: &[u8]) -> Option<Vec<Range<u64>>> {
        let name = folded(name);
        if self.contents > tag || self.content.get(&name).is_some_and(|at| *at > tag) {
            return None;
        }
        let writes = self.writes.get(&name).into_iter().flatten();
        Some(writes.filter(|write| write.at > tag).map(|write| write.bytes.clone()).collect())
    }

    /// The count to carry.
    pub fn now(&self) -> u64 {
        self.all
    }

    /// Whether nothing at all may have changed since a count.
    pub fn is_latest(&self, tag: u64) -> bool {
        tag >= self.latest
    }

    /// Whether the client is known to have changed a folded name itself.
    pub fn knows(&self, folded: &[u8]) -> bool {
        self.names.contains_key(folded)
    }

    /// Whether a name may have changed since a count.
    pub fn since(&self, tag: u64, name: &[u8]) -> bool {
        self.anything > tag || self.names.get(&folded(name)).is_some_and(|at| *at > tag)
    }
}

/// Name and bytes of a WRITE that stands alone and says where it writes.
fn written(request: &[u8], name_of: impl Fn(FileId) -> Option<Vec<u8>>) -> Option<(Vec<u8>, Range<u64>)> {
    if header(request).command() != Command::WRITE || !is_single(request) {
        return None;
    }
    let view = WriteRequest::parse(request).ok().filter(|view| view.length() > 0)?;
    let end = view.offset().checked_add(view.length().into())?;
    Some((name_of(view.file_id())?, view.offset()..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::request;
    use isthmus_smb_wire::Name;
    use isthmus_smb_wire::build;
    use isthmus_smb_wire::messages::{
        AccessMask, CreateDisposition, CreateOptions, FileAttributes, OplockLevel, ShareAccess, WriteFlags,
    };

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn create(name: &[u8], access: AccessMask) -> Vec<u8> {
        create_with(name, access, CreateDisposition::OPEN)
    }

    fn replacing(name: &[u8]) -> Vec<u8> {
        create_with(name, AccessMask::WRITE_DATA, CreateDisposition::OVERWRITE_IF)
    }

    fn create_with(name: &[u8], access: AccessMask, disposition: CreateDisposition) -> Vec<u8> {
        let body = build::Create {
            oplock_level: OplockLevel::NONE,
            desired_access: access,
            file_attributes: FileAttributes(0),
            share_access: ShareAccess::READ,
            disposition,
            options: CreateOptions::NONE,
            name: Name::new(name),
            contexts: &[],
        };
        request(1, 2, 1, &body).unwrap()
    }

    #[test]
    fn only_what_changes_counts_and_only_for_its_name_and_folder() {
        let (mut changes, file, other) = (Changes::default(), utf16("a\\b.txt"), utf16("a\\c.txt"));
        let tag = changes.now();
        assert!(matches!(
            changes.note(&create(&file, AccessMask::READ_DATA), |_| None, |_| End::Nothing),
            Changed::Nothing
        ));
        assert!(!changes.since(tag, &file));
        changes.note(&create(&utf16("A\\B.TXT"), AccessMask::DELETE), |_| None, |_| End::Nothing);
        assert!(changes.since(tag, &file) && changes.since(tag, &utf16("a")), "whatever its case");
        assert!(!changes.since(tag, &other));
        assert!(!changes.since(changes.now(), &file), "what was asked after it is good");
    }

    #[test]
    fn a_write_counts_for_the_name_of_its_open_and_for_all_without_one() {
        let (mut changes, file, other) = (Changes::default(), utf16("b"), utf16("c"));
        let id = FileId { persistent: 1, volatile: 1 };
        let body = build::Write { flags: WriteFlags::NONE, file_id: Some(id), offset: 0, payload: b"x" };
        let write = request(1, 2, 1, &body).unwrap();
        let tag = changes.now();
        changes.note(&write, |_| Some(file.clone()), |_| End::Nothing);
        assert!(changes.since(tag, &file) && !changes.since(tag, &other));
        changes.note(&write, |_| None, |_| End::Nothing);
        assert!(changes.since(tag, &other));
    }

    #[test]
    fn what_was_written_since_a_count_is_known_until_it_is_too_much() {
        let (mut changes, file) = (Changes::default(), utf16("b"));
        let id = FileId { persistent: 1, volatile: 1 };
        let write = |offset: u64| {
            let body = build::Write { flags: WriteFlags::NONE, file_id: Some(id), offset, payload: b"xyz" };
            request(1, 2, 1, &body).unwrap()
        };
        let of_file = |_| Some(utf16("B"));
        changes.note(&write(10), of_file, |_| End::Nothing);
        let tag = changes.now();
        assert!(
            matches!(changes.note(&write(20), of_file, |_| End::Nothing), Changed::Bytes(_, bytes) if bytes == (20..23))
        );
        assert!(changes.written_since(tag, &file).is_some_and(|parts| parts.iter().eq([&(20..23)])));
        assert_eq!(changes.written_since(changes.now(), &file), Some(vec![]));
        for offset in 0..WRITES_KNOWN_MAX as u64 {
            changes.note(&write(offset), of_file, |_| End::Nothing);
        }
        assert_eq!(changes.written_since(tag, &file), None);
        let tag = changes.now();
        changes.note(&create(&file, AccessMask::WRITE_DATA), |_| None, |_| End::Nothing);
        assert_eq!(changes.written_since(tag, &file), Some(vec![]), "it is only opened");
        changes.note(&replacing(&file), |_| None, |_| End::Nothing);
        assert_eq!(changes.written_since(tag, &file), None, "it is cut");
        let tag = changes.now();
        changes.note(&write(0), |_| None, |_| End::Nothing);
        assert_eq!(changes.written_since(tag, &file), None, "whatever it was written to");
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let mut changes = Changes::default();
        let tag = changes.now();
        for index in 0..3 * CHANGED_NAMES_MAX {
            changes.note(
                &create(&utf16(&format!("{index}")), AccessMask::WRITE_DATA),
                |_| None,
                |_| End::Nothing,
            );
        }
        assert!(changes.names.len() <= CHANGED_NAMES_MAX + 2 && changes.content.len() <= CHANGED_NAMES_MAX);
        assert!(changes.since(tag, &utf16("0")), "what is forgotten counts as changed");
    }
}
