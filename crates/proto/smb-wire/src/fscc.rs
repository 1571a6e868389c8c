//! Information about files, as queries and listings have it (MS-FSCC 2.4 and 2.7).

use crate::error::WireError;
use crate::field::{Field, fixed, part, slice};
use crate::macros::{number, record, view};
use crate::messages::{AccessMask, FileAttributes, InfoClass};
use crate::name::Name;

/// Most entries that are looked at in one listing, and most changes in one notification.
pub const ENTRIES_MAX: usize = 1 << 20;

/// What CREATE, CLOSE, queries and listings all tell of a file. Times are in 100 ns since 1601, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FileTimesAndSizes {
    /// When the file was created.
    pub creation_time: u64,
    /// When the file was read last.
    pub last_access_time: u64,
    /// When the file was written last.
    pub last_write_time: u64,
    /// When the file was changed last, its attributes included.
    pub change_time: u64,
    /// Bytes on the disk.
    pub allocation_size: u64,
    /// Bytes of the file.
    pub end_of_file: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
}

impl FileTimesAndSizes {
    /// As FileNetworkOpenInformation (MS-FSCC 2.4.29).
    pub fn to_network_open(&self) -> [u8; 56] {
        let mut bytes = [0; 56];
        let mut view = FileNetworkOpenInformation::unchecked(&mut bytes);
        view.set_creation_time(self.creation_time);
        view.set_last_access_time(self.last_access_time);
        view.set_last_write_time(self.last_write_time);
        view.set_change_time(self.change_time);
        view.set_allocation_size(self.allocation_size);
        view.set_end_of_file(self.end_of_file);
        view.set_file_attributes(self.file_attributes);
        bytes
    }
}

record! {
    /// FileBasicInformation (MS-FSCC 2.4.7).
    FileBasicInformation: 36 {
        /// When the file was created, in 100 ns since 1601; in a change, 0 leaves it.
        creation_time, set_creation_time: u64 = 0;
        /// When the file was read last.
        last_access_time, set_last_access_time: u64 = 8;
        /// When the file was written last.
        last_write_time, set_last_write_time: u64 = 16;
        /// When the file was changed last, its attributes included.
        change_time, set_change_time: u64 = 24;
        /// Attributes.
        file_attributes, set_file_attributes: FileAttributes = 32;
    }
}

record! {
    /// FileStandardInformation (MS-FSCC 2.4.47).
    FileStandardInformation: 22 {
        /// Bytes on the disk.
        allocation_size, set_allocation_size: u64 = 0;
        /// Bytes of the file.
        end_of_file, set_end_of_file: u64 = 8;
        /// Names of the file.
        number_of_links, set_number_of_links: u32 = 16;
        /// 1 when the file goes with the last close.
        delete_pending, set_delete_pending: u8 = 20;
        /// 1 for a directory.
        directory, set_directory: u8 = 21;
    }
}

record! {
    /// FileNetworkOpenInformation (MS-FSCC 2.4.29).
    FileNetworkOpenInformation: 52 {
        /// When the file was created, in 100 ns since 1601.
        creation_time, set_creation_time: u64 = 0;
        /// When the file was read last.
        last_access_time, set_last_access_time: u64 = 8;
        /// When the file was written last.
        last_write_time, set_last_write_time: u64 = 16;
        /// When the file was changed last, its attributes included.
        change_time, set_change_time: u64 = 24;
        /// Bytes on the disk.
        allocation_size, set_allocation_size: u64 = 32;
        /// Bytes of the file.
        end_of_file, set_end_of_file: u64 = 40;
        /// Attributes.
        file_attributes, set_file_attributes: FileAttributes = 48;
    }
}

impl<B: AsRef<[u8]>> FileNetworkOpenInformation<B> {
    /// All of it.
    pub fn attributes(&self) -> FileTimesAndSizes {
        FileTimesAndSizes {
            creation_time: self.creation_time(),
            last_access_time: self.last_access_time(),
            last_write_time: self.last_write_time(),
            change_time: self.change_time(),
            allocation_size: self.allocation_size(),
            end_of_file: self.end_of_file(),
            file_attributes: self.file_attributes(),
        }
    }
}

view! {
    /// FileAllInformation (MS-FSCC 2.4.2), of which the name may be cut off.
    FileAllInformation [0usize, 100usize] {
        /// When the file was created, in 100 ns since 1601.
        creation_time, set_creation_time: u64 = 0;
        /// When the file was read last.
        last_access_time, set_last_access_time: u64 = 8;
        /// When the file was written last.
        last_write_time, set_last_write_time: u64 = 16;
        /// When the file was changed last, its attributes included.
        change_time, set_change_time: u64 = 24;
        /// Attributes.
        file_attributes, set_file_attributes: FileAttributes = 32;
        /// Bytes on the disk.
        allocation_size, set_allocation_size: u64 = 40;
        /// Bytes of the file.
        end_of_file, set_end_of_file: u64 = 48;
        /// Names of the file.
        number_of_links, set_number_of_links: u32 = 56;
        /// 1 when the file goes with the last close.
        delete_pending, set_delete_pending: u8 = 60;
        /// 1 for a directory.
        directory, set_directory: u8 = 61;
        /// Number of the file.
        index_number, set_index_number: u64 = 64;
        /// Bytes of extended attributes.
        ea_size, set_ea_size: u32 = 72;
        /// Access of the open.
        access_flags, set_access_flags: AccessMask = 76;
        /// Position of the open.
        current_byte_offset, set_current_byte_offset: u64 = 80;
        /// Mode of the open.
        mode, set_mode: u32 = 88;
        /// Alignment that the device needs.
        alignment_requirement, set_alignment_requirement: u32 = 92;
    }
    also
}

impl<B: AsRef<[u8]>> FileAllInformation<B> {
    /// The name from the share's root, as much as there is of it.
    pub fn name(&self) -> Name<'_> {
        let bytes = slice(self.as_bytes(), Self::FIXED_LEN..self.as_bytes().len());
        Name::new(bytes.get(..u32::read(self.as_bytes(), 96) as usize).unwrap_or(bytes))
    }

    /// Times, sizes and attributes together.
    pub fn attributes(&self) -> FileTimesAndSizes {
        FileTimesAndSizes {
            creation_time: self.creation_time(),
            last_access_time: self.last_access_time(),
            last_write_time: self.last_write_time(),
            change_time: self.change_time(),
            allocation_size: self.allocation_size(),
            end_of_file: self.end_of_file(),
            file_attributes: self.file_attributes(),
        }
    }
}

view! {
    /// FileRenameInformation, and FileLinkInformation, of SMB2 (MS-FSCC 2.4.42.2).
    FileRenameInformation [0usize, 20usize] {
        /// 1 when an existing file is replaced.
        replace_if_exists, set_replace_if_exists: u8 = 0;
        /// Always 0.
        root_directory, set_root_directory: u64 = 8;
    }
    also |bytes: &[u8]| part("FileRenameInformation", bytes, 20, 20, u32::read(bytes, 16).into()).map(drop),
}

impl<B: AsRef<[u8]>> FileRenameInformation<B> {
    /// The new name, from the share's root.
    pub fn name(&self) -> Name<'_> {
        let end = Self::FIXED_LEN.saturating_add(u32::read(self.as_bytes(), 16) as usize);
        Name::new(slice(self.as_bytes(), Self::FIXED_LEN..end))
    }
}

/// Entry of a directory's listing.
#[derive(Clone, Copy)]
pub struct DirectoryEntry<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> DirectoryEntry<'a> {
    /// All bytes, those after the name included.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Place in the directory, or 0.
    pub fn file_index(&self) -> u32 {
        u32::read(self.bytes, 4)
    }

    /// Times, sizes and attributes, if the class has them.
    pub fn attributes(&self) -> Option<FileTimesAndSizes> {
        self.layout.has_attributes.then(|| FileTimesAndSizes {
            creation_time: u64::read(self.bytes, 8),
            last_access_time: u64::read(self.bytes, 16),
            last_write_time: u64::read(self.bytes, 24),
            change_time: u64::read(self.bytes, 32),
            end_of_file: u64::read(self.bytes, 40),
            allocation_size: u64::read(self.bytes, 48),
            file_attributes: FileAttributes::read(self.bytes, 56),
        })
    }

    /// Bytes of extended attributes, if the class has them; the tag of a reparse point where the attributes say it is one.
    pub fn ea_size(&self) -> Option<u32> {
        self.layout.has_ea_size.then(|| u32::read(self.bytes, EA_SIZE_AT))
    }

    /// Number of the file, if the class has it; one of 64 bits is extended with zeros.
    pub fn file_id(&self) -> Option<u128> {
        match self.layout.file_id? {
            (at, 16) => Some(u128::from_le_bytes(Field::read(self.bytes, at))),
            (at, _) => Some(u64::read(self.bytes, at).into()),
        }
    }

    /// Short name, if the class has it; often empty.
    pub fn short_name(&self) -> Option<Name<'a>> {
        let at = self.layout.short_name?;
        let length = usize::from(u8::read(self.bytes, at)).min(SHORT_NAME_LEN_MAX);
        Some(Name::new(slice(self.bytes, at + 2..at + 2 + length)))
    }

    /// Name within the directory.
    pub fn name(&self) -> Name<'a> {
        let length = u32::read(self.bytes, self.layout.name_length_at) as usize;
        Name::new(slice(self.bytes, self.layout.name_at..self.layout.name_at + length))
    }
}

impl std::fmt::Debug for DirectoryEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.name(), self.attributes())
    }
}

/// Entries of a listing, in order; ends after the first that is malformed.
#[derive(Clone, Debug)]
pub struct DirectoryEntries<'a> {
    chain: Chain<'a>,
    layout: Layout,
}

impl<'a> DirectoryEntries<'a> {
    /// The buffer of a QUERY_DIRECTORY response; nothing for a class that is not known.
    pub fn new(class: InfoClass, buffer: &'a [u8]) -> Option<Self> {
        Some(Self { chain: Chain::new("directory entry", buffer), layout: Layout::of(class)? })
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = Result<DirectoryEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let layout = self.layout;
        let read = self.chain.next(layout.name_at, layout.name_length_at)?;
        Some(read.map(|bytes| DirectoryEntry { bytes, layout }))
    }
}

number! {
    /// What happened to a file (MS-FSCC 2.7.1).
    ChangeAction(u32) {
        /// Added.
        ADDED = 0x0000_0001;
        /// Removed.
        REMOVED = 0x0000_0002;
        /// Changed.
        MODIFIED = 0x0000_0003;
        /// Renamed; this is the old name.
        RENAMED_OLD_NAME = 0x0000_0004;
        /// Renamed; this is the new name.
        RENAMED_NEW_NAME = 0x0000_0005;
        /// A stream was added.
        ADDED_STREAM = 0x0000_0006;
        /// A stream was removed.
        REMOVED_STREAM = 0x0000_0007;
        /// A stream was changed.
        MODIFIED_STREAM = 0x0000_0008;
    }
}

/// One change of a CHANGE_NOTIFY response (MS-FSCC 2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub action: ChangeAction,
    /// Name from the watched directory on.
    pub name: Name<'a>,
}

/// Changes of a CHANGE_NOTIFY response, in order; ends after the first that is malformed.
#[derive(Clone, Debug)]
pub struct Changes<'a>(Chain<'a>);

impl<'a> Changes<'a> {
    /// The buffer of a CHANGE_NOTIFY response.
    pub fn new(buffer: &'a [u8]) -> Self {
        Self(Chain::new("change", buffer))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.0.next(12, 8)?;
        Some(read.map(|bytes| Change {
            action: ChangeAction::read(bytes, 4),
            name: Name::new(slice(bytes, 12..12 + u32::read(bytes, 8) as usize)),
        }))
    }
}

const EA_SIZE_AT: usize = 64;
const SHORT_NAME_LEN_MAX: usize = 24;

/// Where an entry of a class has what.
#[derive(Clone, Copy, Debug)]
struct Layout {
    name_length_at: usize,
    name_at: usize,
    has_attributes: bool,
    has_ea_size: bool,
    /// Place of the length; the name is two bytes further.
    short_name: Option<usize>,
    /// Place and length in bytes.
    file_id: Option<(usize, usize)>,
}

impl Layout {
    fn of(class: InfoClass) -> Option<Self> {
        let plain = Self {
            name_length_at: 60,
            name_at: 64,
            has_attributes: true,
            has_ea_size: false,
            short_name: None,
            file_id: None,
        };
        let full = Self { name_at: 68, has_ea_size: true, ..plain };
        let both = Self { name_at: 94, short_name: Some(68), ..full };
        Some(match class {
            InfoClass::DIRECTORY => plain,
            InfoClass::FULL_DIRECTORY => full,
            InfoClass::BOTH_DIRECTORY => both,
            InfoClass::NAMES => Self { name_length_at: 8, name_at: 12, has_attributes: false, ..plain },
            InfoClass::ID_BOTH_DIRECTORY => Self { name_at: 104, file_id: Some((96, 8)), ..both },
            InfoClass::ID_FULL_DIRECTORY => Self { name_at: 80, file_id: Some((72, 8)), ..full },
            InfoClass::ID_EXTD_DIRECTORY => Self { name_at: 88, file_id: Some((72, 16)), ..full },
            InfoClass::ID_EXTD_BOTH_DIRECTORY => {
                Self { name_at: 114, short_name: Some(88), file_id: Some((72, 16)), ..full }
            }
            _ => return None,
        })
    }
}

/// Structures of which each tells how far it is to the next, and which end in a name.
#[derive(Clone)]
struct Chain<'a> {
    what: &'static str,
    rest: &'a [u8],
    left: usize,
}

impl<'a> Chain<'a> {
    fn new(what: &'static str, rest: &'a [u8]) -> Self {
        Self { what, rest, left: ENTRIES_MAX }
    }

    fn next(&mut self, name_at: usize, name_length_at: usize) -> Option<Result<&'a [u8], WireError>> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read(name_at, name_length_at);
        self.rest = read.as_ref().map_or(&[], |(_, rest)| rest);
        self.left = self.left.saturating_sub(1);
        Some(read.map(|(one, _)| one))
    }

    fn read(&self, name_at: usize, name_length_at: usize) -> Result<(&'a [u8], &'a [u8]), WireError> {
        let what = self.what;
        if self.left == 0 {
            return Err(WireError::TooMany { what, limit: ENTRIES_MAX });
        }
        fixed(what, self.rest, name_at)?;
        let next = u32::read(self.rest, 0);
        let length = if next == 0 { self.rest.len() } else { next as usize };
        let wrong = WireError::OutOfBounds {
            what,
            offset: next.into(),
            length: name_at as u64,
            found: self.rest.len(),
        };
        let (one, rest) = self.rest.split_at_checked(length).ok_or(wrong)?;
        fixed(what, one, name_at)?;
        part(what, one, name_at, name_at as u64, u32::read(one, name_length_at).into())?;
        Ok((one, rest))
    }
}

// The bytes are names and attributes of files.
impl std::fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.rest.len())
    }
}
