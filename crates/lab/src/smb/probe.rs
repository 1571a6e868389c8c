//! A client that sends exactly the requests it is told to, one after another, and takes the time of each.

use super::account::Account;
use crate::error::{LabError, Result};
use bytes::Bytes;
use isthmus_warm::SealingTransport;
use smb2::client::{Connection, Session, Tree};
use smb2::msg::close::{CloseRequest, CloseResponse};
use smb2::msg::create::{CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess};
use smb2::msg::query_info::{InfoType, QueryInfoRequest, QueryInfoResponse};
use smb2::msg::read::{ReadRequest, ReadResponse};
use smb2::msg::write::{WriteRequest, WriteResponse};
use smb2::pack::{Pack, ReadCursor, Unpack};
use smb2::types::flags::FileAccessMask;
use smb2::types::status::NtStatus;
use smb2::types::{Command, CreditCharge, FileId, OplockLevel};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of a message that one credit pays for (MS-SMB2 3.1.5.2).
const CREDIT_BYTES: u32 = 65_536;

/// Information class that carries everything about a file (MS-FSCC 2.4.2), and room for the answer.
const FILE_ALL_INFORMATION: u8 = 18;
const INFORMATION_BYTES_MAX: u32 = 4_096;

/// Options of an open (MS-SMB2 2.2.13).
const FILE_NON_DIRECTORY_FILE: u32 = 0x40;
const FILE_DELETE_ON_CLOSE: u32 = 0x1000;

/// A session on a share.
pub struct Probe {
    connection: Connection,
    tree: Tree,
    messages: AtomicU64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading; it must be there.
    Read,
    /// For writing; what was there is gone.
    Overwrite,
    /// To delete it.
    Delete,
}

impl Probe {
    /// Connects, logs on by NTLM and connects to the share. Whether it signs is the server's choice; it encrypts when
    /// `is_sealed` or when the server wants it.
    ///
    /// # Errors
    /// The server cannot be reached or refuses, or it has no cipher.
    pub async fn connect(
        server: SocketAddr,
        share: &str,
        account: &Account,
        is_sealed: bool,
    ) -> Result<Probe> {
        let failed = |step: &'static str| move |error: smb2::Error| protocol(step, &error);
        let transport =
            SealingTransport::connect(server, CONNECT_LIMIT).await.map_err(failed("connecting"))?;
        let name = server.ip().to_string();
        let mut connection = transport.negotiate(&name).await.map_err(failed("negotiating"))?;
        let session = Session::setup(&mut connection, &account.name, &account.password, "")
            .await
            .map_err(failed("logging on"))?;
        if is_sealed && !connection.should_encrypt() {
            seal(&mut connection, session)?;
        }
        let tree = Tree::connect(&mut connection, share).await.map_err(failed("connecting to the share"))?;
        Ok(Probe { connection, tree, messages: AtomicU64::new(0) })
    }

    /// Requests and answers since the share was connected to.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Whether messages are encrypted.
    pub fn is_sealed(&self) -> bool {
        self.connection.should_encrypt()
    }

    /// CREATE.
    ///
    /// # Errors
    /// As every exchange: the server refuses, or the answer cannot be read.
    pub async fn open(&self, path: &str, how: Open) -> Result<FileId> {
        let (access, disposition, options) = match how {
            Open::Read => (
                FileAccessMask::FILE_READ_DATA | FileAccessMask::FILE_READ_ATTRIBUTES,
                CreateDisposition::FileOpen,
                FILE_NON_DIRECTORY_FILE,
            ),
            Open::Overwrite => (
                FileAccessMask::FILE_WRITE_DATA | FileAccessMask::FILE_READ_ATTRIBUTES,
                CreateDisposition::FileOverwriteIf,
                FILE_NON_DIRECTORY_FILE,
            ),
            Open::Delete => (
                FileAccessMask::DELETE,
                CreateDisposition::FileOpen,
                FILE_NON_DIRECTORY_FILE | FILE_DELETE_ON_CLOSE,
            ),
        };
        let everyone =
            ShareAccess::FILE_SHARE_READ | ShareAccess::FILE_SHARE_WRITE | ShareAccess::FILE_SHARE_DELETE;
        let request = CreateRequest {
            requested_oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::Impersonation,
            desired_access: FileAccessMask::new(access | FileAccessMask::SYNCHRONIZE),
            file_attributes: 0,
            share_access: ShareAccess(everyone),
            create_disposition: disposition,
            create_options: options,
            name: path.replace('/', "\\"),
            create_contexts: Vec::new(),
        };
        let response: CreateResponse = self.exchange(Command::Create, &request, 1).await?;
        Ok(response.file_id)
    }

    /// QUERY_INFO of everything about a file.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn query(&self, file: FileId) -> Result<Vec<u8>> {
        let request = QueryInfoRequest {
            info_type: InfoType::File,
            file_info_class: FILE_ALL_INFORMATION,
            output_buffer_length: INFORMATION_BYTES_MAX,
            additional_information: 0,
            flags: 0,
            file_id: file,
            input_buffer: Vec::new(),
        };
        let response: QueryInfoResponse = self.exchange(Command::QueryInfo, &request, 1).await?;
        Ok(response.output_buffer)
    }

    /// READ of `length` bytes or what is there.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn read(&self, file: FileId, offset: u64, length: u32) -> Result<Vec<u8>> {
        let request = ReadRequest {
            padding: 0x50,
            flags: 0,
            length,
            offset,
            file_id: file,
            minimum_count: 0,
            channel: 0,
            remaining_bytes: 0,
            read_channel_info: Vec::new(),
        };
        let response: ReadResponse = self.exchange(Command::Read, &request, credits(length)).await?;
        Ok(response.data)
    }

    /// WRITE.
    ///
    /// # Errors
    /// As [`Probe::open`]; also when fewer bytes were taken.
    pub async fn write(&self, file: FileId, offset: u64, data: Vec<u8>) -> Result<()> {
        let length = data.len() as u32;
        let request = WriteRequest {
            data_offset: 0x70,
            offset,
            file_id: file,
            channel: 0,
            remaining_bytes: 0,
            write_channel_info_offset: 0,
            write_channel_info_length: 0,
            flags: 0,
            data,
        };
        let response: WriteResponse = self.exchange(Command::Write, &request, credits(length)).await?;
        if response.count == length {
            return Ok(());
        }
        let detail = format!("{} of {length} bytes were taken", response.count);
        Err(LabError::Mismatch { what: "a WRITE".into(), detail })
    }

    /// CLOSE.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn close(&self, file: FileId) -> Result<()> {
        let request = CloseRequest { flags: 0, file_id: file };
        self.exchange::<CloseResponse>(Command::Close, &request, 1).await.map(drop)
    }

    /// CREATE, QUERY_INFO, READ of `length` bytes from the start, CLOSE; returns what was read.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn small_set(&self, path: &str, length: u32) -> Result<Vec<u8>> {
        let file = self.open(path, Open::Read).await?;
        self.query(file).await?;
        let content = self.read(file, 0, length).await?;
        self.close(file).await?;
        Ok(content)
    }

    /// Opens a file, reads it by READs of `length` bytes, one after another, and compares it.
    ///
    /// # Errors
    /// As [`Probe::open`]; also when the bytes are not the expected ones.
    pub async fn read_serially(&self, path: &str, length: u32, expected: &[u8]) -> Result<()> {
        let file = self.open(path, Open::Read).await?;
        for (index, part) in expected.chunks(length as usize).enumerate() {
            let offset = index as u64 * u64::from(length);
            if self.read(file, offset, length).await? != part {
                let detail = format!("the bytes from {offset} on differ");
                return Err(LabError::Mismatch { what: path.into(), detail });
            }
        }
        self.close(file).await
    }

    /// Writes a file by WRITEs of `length` bytes, one after another.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn write_serially(&self, path: &str, length: u32, content: &Bytes) -> Result<()> {
        let file = self.open(path, Open::Overwrite).await?;
        for (index, part) in content.chunks(length as usize).enumerate() {
            self.write(file, index as u64 * u64::from(length), part.to_vec()).await?;
        }
        self.close(file).await
    }

    /// Times of `count` READs of the same `length` bytes of one file, sorted.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub async fn read_times(&self, path: &str, length: u32, count: usize) -> Result<Vec<Duration>> {
        let file = self.open(path, Open::Read).await?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.read(file, 0, length).await?;
            times.push(start.elapsed());
        }
        self.close(file).await?;
        times.sort_unstable();
        Ok(times)
    }

    async fn exchange<R: Unpack>(&self, command: Command, request: &dyn Pack, credits: u16) -> Result<R> {
        let charge = CreditCharge(credits);
        let sent =
            self.connection.execute_with_credits(command, request, Some(self.tree.tree_id), charge).await;
        let frame = sent.map_err(|error| protocol(&format!("{command:?}"), &error))?;
        self.messages.fetch_add(2, Ordering::Relaxed);
        if frame.header.status != NtStatus::SUCCESS {
            let detail = format!("the server answers {:?}", frame.header.status);
            return Err(LabError::Format { what: format!("{command:?}"), detail });
        }
        let mut cursor = ReadCursor::new(&frame.body);
        R::unpack(&mut cursor).map_err(|error| protocol(&format!("the answer to {command:?}"), &error))
    }
}

/// Encrypts from now on, with the keys of the session.
fn seal(connection: &mut Connection, session: Session) -> Result<()> {
    let cipher = connection.params().and_then(|params| params.cipher);
    let keys = session.encryption_key.zip(session.decryption_key);
    let (cipher, (encryption, decryption)) = cipher.zip(keys).ok_or_else(|| LabError::Format {
        what: "what was negotiated".into(),
        detail: "there is no cipher".into(),
    })?;
    connection.activate_encryption(encryption, decryption, cipher);
    Ok(())
}

fn credits(length: u32) -> u16 {
    length.div_ceil(CREDIT_BYTES).max(1) as u16
}

fn protocol(what: &str, error: &smb2::Error) -> LabError {
    LabError::Format { what: format!("SMB, {what}"), detail: error.to_string() }
}
