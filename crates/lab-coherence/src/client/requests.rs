//! Requests and what their answers say.

use super::bodies::{creation_time_information, lock, rename_information, request, set_info};
use super::connection::{CacheKey, Connection, Lost};
use isthmus_lab::Result as LabResult;
use isthmus_smb_wire::build::{self, NewContext};
use isthmus_smb_wire::create_context::{LeaseState, LeaseV2, QueryOnDiskIdResponse, name};
use isthmus_smb_wire::fscc::{DirectoryEntries, FileAllInformation};
use isthmus_smb_wire::messages::{
    AccessMask, CloseFlags, CreateAction, CreateDisposition, CreateOptions, CreateResponse, FileAttributes,
    InfoClass, InfoType, LockFlags, OplockLevel, QueryDirectoryFlags, QueryDirectoryResponse,
    QueryInfoResponse, ReadFlags, ReadResponse, ShareAccess, WriteFlags,
};
use isthmus_smb_wire::name::{Name, utf16};
use isthmus_smb_wire::{FileId, Header, Status};

/// Most bytes of information and of a listing that are asked for.
const OUTPUT_BYTES_MAX: u32 = 65_536;

/// Most answers of one listing.
const LISTING_ANSWERS_MAX: usize = 64;

/// Kinds of change that a watch tells of: all.
const ALL_CHANGES: u32 = 0xfff;

/// Why there is no answer of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses.
    Refused(Status),
    /// The connection has gone; whether the request was done is not known.
    Lost,
}

/// Result of a request.
pub type Answer<T> = std::result::Result<T, Failure>;

/// What an open asks to cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Nothing.
    None,
    /// A lease of version 2.
    Lease {
        /// Its key.
        key: [u8; 16],
        /// The state.
        state: LeaseState,
    },
    /// An oplock.
    Oplock(OplockLevel),
}

/// What a CREATE asks for.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// Name within the share.
    pub path: String,
    /// Access.
    pub access: AccessMask,
    /// What others may do.
    pub share: ShareAccess,
    /// What to do when the file exists and when it does not.
    pub disposition: CreateDisposition,
    /// Options.
    pub options: CreateOptions,
    /// Lease or oplock.
    pub caching: Caching,
}

/// What may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The lease or oplock, if anything was granted.
    pub key: Option<CacheKey>,
    /// As that of a lease: a shared oplock is R, an exclusive RW, a batch RWH.
    pub state: LeaseState,
}

/// An open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The open.
    pub file_id: FileId,
    /// Number of the file on its volume.
    pub file_number: u64,
    /// What was done.
    pub action: CreateAction,
    /// Bytes of the file.
    pub size: u64,
    /// When the file was created, in 100 ns since 1601.
    pub creation_time: u64,
    /// What may be cached.
    pub granted: Granted,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// Number of the file on its volume.
    pub file_number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// When the file was created, in 100 ns since 1601.
    pub creation_time: u64,
    /// Whether the file goes with its last close.
    pub is_delete_pending: bool,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name.
    pub name: String,
    /// Number of the file on its volume.
    pub file_number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// When the file was created, in 100 ns since 1601.
    pub creation_time: u64,
}

/// Locks one range or unlocks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLock {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Whether others may not lock shared.
    pub is_exclusive: bool,
}

/// All that a related compound of CREATE, QUERY_INFO, READ and CLOSE tells, as far as it was asked.
#[derive(Clone, Debug)]
pub struct Looked {
    /// CREATE.
    pub created: Created,
    /// QUERY_INFO.
    pub information: Answer<Information>,
    /// READ, if asked for.
    pub content: Option<Answer<Vec<u8>>>,
    /// CLOSE.
    pub closed: Answer<()>,
}

impl Connection {
    /// CREATE.
    pub async fn open(&self, open: &OpenRequest) -> Answer<Created> {
        let answer = self.one(create(open)).await?;
        created(&answer)
    }

    /// CLOSE.
    pub async fn close(&self, file_id: FileId) -> Answer<()> {
        self.one(request(&build::Close { flags: CloseFlags::NONE, file_id: Some(file_id) })).await.map(drop)
    }

    /// READ of at most `length` bytes; fewer at the end of the file, none beyond it.
    pub async fn read(&self, file_id: FileId, offset: u64, length: u32) -> Answer<Vec<u8>> {
        content(self.one(read(Some(file_id), offset, length)).await)
    }

    /// WRITE.
    pub async fn write(&self, file_id: FileId, offset: u64, payload: &[u8]) -> Answer<()> {
        let write = build::Write { flags: WriteFlags::NONE, file_id: Some(file_id), offset, payload };
        self.one(request(&write)).await.map(drop)
    }

    /// FLUSH.
    pub async fn flush(&self, file_id: FileId) -> Answer<()> {
        self.one(request(&build::Flush { file_id: Some(file_id) })).await.map(drop)
    }

    /// Sets the length of the file.
    pub async fn set_end_of_file(&self, file_id: FileId, size: u64) -> Answer<()> {
        self.one(set_info(file_id, InfoClass::END_OF_FILE, &size.to_le_bytes())).await.map(drop)
    }

    /// Renames the file.
    pub async fn rename(&self, file_id: FileId, to: &str, replace: bool) -> Answer<()> {
        self.one(set_info(file_id, InfoClass::RENAME, &rename_information(to, replace))).await.map(drop)
    }

    /// Marks the file to go with its last close.
    pub async fn delete(&self, file_id: FileId) -> Answer<()> {
        self.one(set_info(file_id, InfoClass::DISPOSITION, &[1])).await.map(drop)
    }

    /// Changes the time of creation, in 100 ns since 1601.
    pub async fn set_creation_time(&self, file_id: FileId, time: u64) -> Answer<()> {
        self.one(set_info(file_id, InfoClass::BASIC, &creation_time_information(time))).await.map(drop)
    }

    /// LOCK without waiting.
    pub async fn lock(&self, file_id: FileId, range: RangeLock) -> Answer<()> {
        let kind = if range.is_exclusive { LockFlags::EXCLUSIVE_LOCK } else { LockFlags::SHARED_LOCK };
        let flags = kind.with(LockFlags::FAIL_IMMEDIATELY);
        self.one(lock(file_id, range.offset, range.length, flags)).await.map(drop)
    }

    /// Takes back a lock.
    pub async fn unlock(&self, file_id: FileId, range: RangeLock) -> Answer<()> {
        self.one(lock(file_id, range.offset, range.length, LockFlags::UNLOCK)).await.map(drop)
    }

    /// QUERY_INFO of everything about the file.
    pub async fn query(&self, file_id: FileId) -> Answer<Information> {
        information(&self.one(query(Some(file_id))).await?)
    }

    /// CHANGE_NOTIFY on an open directory; waits for the first changes.
    pub async fn watch(&self, file_id: FileId) -> Answer<()> {
        let watch = build::ChangeNotify {
            watch_tree: false,
            output_buffer_length: OUTPUT_BYTES_MAX,
            file_id: Some(file_id),
            completion_filter: ALL_CHANGES,
        };
        self.one(request(&watch)).await.map(drop)
    }

    /// One related compound: CREATE, QUERY_INFO, READ of the first bytes if `read_length` says so, CLOSE.
    pub async fn look(&self, open: &OpenRequest, read_length: Option<u32>) -> Answer<Looked> {
        let mut elements = vec![create(open), query(None)];
        elements.extend(read_length.map(|length| read(None, 0, length)));
        elements.push(request(&build::Close { flags: CloseFlags::NONE, file_id: None }));
        let answers = self.all(elements).await?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let created = created(&accept(next())?)?;
        let information = accept(next()).and_then(|answer| information(&answer));
        let content = read_length.map(|_| content(accept(next())));
        let closed = accept(next()).map(drop);
        Ok(Looked { created, information, content, closed })
    }

    /// One related compound: CREATE, CLOSE. With the option to delete on close it removes a file.
    pub async fn touch(&self, open: &OpenRequest) -> Answer<(Created, Answer<()>)> {
        let close = request(&build::Close { flags: CloseFlags::NONE, file_id: None });
        let answers = self.all(vec![create(open), close]).await?;
        let mut answers = answers.into_iter();
        let created = created(&accept(answers.next().unwrap_or_default())?)?;
        Ok((created, accept(answers.next().unwrap_or_default()).map(drop)))
    }

    /// All entries of a directory: CREATE, as many QUERY_DIRECTORYs as are needed, CLOSE.
    pub async fn list(&self, open: &OpenRequest) -> Answer<Vec<ListedEntry>> {
        let directory = self.open(open).await?;
        let entries = self.entries(directory.file_id).await;
        let closed = self.close(directory.file_id).await;
        let entries = entries?;
        closed.map(|()| entries)
    }

    async fn entries(&self, file_id: FileId) -> Answer<Vec<ListedEntry>> {
        let pattern = utf16("*");
        let ask = build::QueryDirectory {
            info_class: InfoClass::ID_BOTH_DIRECTORY,
            flags: QueryDirectoryFlags(0),
            file_index: 0,
            file_id: Some(file_id),
            pattern: Name::new(&pattern),
            output_buffer_length: OUTPUT_BYTES_MAX,
        };
        let mut all = Vec::new();
        for _ in 0..LISTING_ANSWERS_MAX {
            match self.one(request(&ask)).await {
                Err(Failure::Refused(Status::NO_MORE_FILES)) => return Ok(all),
                answer => all.extend(listed(&answer?)?),
            }
        }
        Err(Failure::Refused(Status::BUFFER_OVERFLOW))
    }

    async fn one(&self, element: LabResult<Vec<u8>>) -> Answer<Vec<u8>> {
        let answers = self.all(vec![element]).await?;
        accept(answers.into_iter().next().unwrap_or_default())
    }

    async fn all(&self, elements: Vec<LabResult<Vec<u8>>>) -> Answer<Vec<Vec<u8>>> {
        let elements: Vec<Vec<u8>> =
            elements.into_iter().collect::<LabResult<_>>().map_err(|_| Failure::Lost)?;
        self.exchange(elements).await.map_err(|Lost| Failure::Lost)
    }
}

fn create(open: &OpenRequest) -> LabResult<Vec<u8>> {
    let path = utf16(&open.path);
    let lease = match open.caching {
        Caching::Lease { key, state } => Some(build::lease_v2(key, state, None, 0)),
        Caching::None | Caching::Oplock(_) => None,
    };
    let mut contexts = vec![NewContext { name: name::QUERY_ON_DISK_ID, data: &[] }];
    contexts.extend(lease.as_ref().map(|data| NewContext { name: name::LEASE, data }));
    request(&build::Create {
        oplock_level: match open.caching {
            Caching::None => OplockLevel::NONE,
            Caching::Lease { .. } => OplockLevel::LEASE,
            Caching::Oplock(level) => level,
        },
        desired_access: open.access,
        file_attributes: FileAttributes::NONE,
        share_access: open.share,
        disposition: open.disposition,
        options: open.options,
        name: Name::new(&path),
        contexts: &contexts,
    })
}

fn read(file_id: Option<FileId>, offset: u64, length: u32) -> LabResult<Vec<u8>> {
    request(&build::Read { flags: ReadFlags::NONE, file_id, offset, length, minimum_count: 0 })
}

fn query(file_id: Option<FileId>) -> LabResult<Vec<u8>> {
    request(&build::QueryInfo {
        info_type: InfoType::FILE,
        info_class: InfoClass::ALL,
        output_buffer_length: OUTPUT_BYTES_MAX,
        additional_information: 0,
        flags: 0,
        file_id,
        input: &[],
    })
}

/// An answer that says that the request was done.
fn accept(answer: Vec<u8>) -> Answer<Vec<u8>> {
    match Header::parse(&answer[..]).map(|header| header.status()) {
        Ok(Status::SUCCESS) => Ok(answer),
        Ok(status) => Err(Failure::Refused(status)),
        Err(_) => Err(Failure::Lost),
    }
}

fn created(answer: &[u8]) -> Answer<Created> {
    let view = CreateResponse::parse(answer).map_err(|_| Failure::Lost)?;
    let number = view.contexts().find_name(name::QUERY_ON_DISK_ID).and_then(|context| {
        QueryOnDiskIdResponse::parse(context.data).ok().map(|numbers| numbers.disk_file_id())
    });
    let lease = view.contexts().find_name(name::LEASE).and_then(|context| {
        let lease = LeaseV2::parse(context.data).ok()?;
        Some((CacheKey::Lease(lease.lease_key()), lease.lease_state()))
    });
    let (r, rw, rwh) = (LeaseState(1), LeaseState(5), LeaseState(7));
    let oplock = CacheKey::Oplock(view.file_id());
    let granted = match (view.oplock_level(), lease) {
        (OplockLevel::LEASE, Some((key, state))) => (Some(key), state),
        (OplockLevel::II, _) => (Some(oplock), r),
        (OplockLevel::EXCLUSIVE, _) => (Some(oplock), rw),
        (OplockLevel::BATCH, _) => (Some(oplock), rwh),
        _ => (None, LeaseState::NONE),
    };
    Ok(Created {
        file_id: view.file_id(),
        file_number: number.unwrap_or_default(),
        action: view.create_action(),
        size: view.end_of_file(),
        creation_time: view.creation_time(),
        granted: Granted { key: granted.0, state: granted.1 },
    })
}

fn content(answer: Answer<Vec<u8>>) -> Answer<Vec<u8>> {
    match answer {
        Err(Failure::Refused(Status::END_OF_FILE)) => Ok(Vec::new()),
        answer => {
            let answer = answer?;
            let view = ReadResponse::parse(&answer[..]).map_err(|_| Failure::Lost)?;
            Ok(view.payload().to_vec())
        }
    }
}

fn information(answer: &[u8]) -> Answer<Information> {
    let view = QueryInfoResponse::parse(answer).map_err(|_| Failure::Lost)?;
    let all = FileAllInformation::parse(view.buffer()).map_err(|_| Failure::Lost)?;
    Ok(Information {
        file_number: all.index_number(),
        size: all.end_of_file(),
        creation_time: all.creation_time(),
        is_delete_pending: all.delete_pending() != 0,
    })
}

fn listed(answer: &[u8]) -> Answer<Vec<ListedEntry>> {
    let view = QueryDirectoryResponse::parse(answer).map_err(|_| Failure::Lost)?;
    let entries = DirectoryEntries::new(InfoClass::ID_BOTH_DIRECTORY, view.buffer()).ok_or(Failure::Lost)?;
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|_| Failure::Lost)?;
        let name = entry.name().to_string_lossy();
        if name != "." && name != ".." {
            let facts = entry.attributes().unwrap_or_default();
            all.push(ListedEntry {
                name,
                file_number: entry.file_id().unwrap_or_default() as u64,
                size: facts.end_of_file,
                creation_time: facts.creation_time,
            });
        }
    }
    Ok(all)
}
