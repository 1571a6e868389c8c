//! A connection with any number of requests outstanding.

use super::bodies::{malformed, request};
use super::login::{LoggedOn, Settings, log_on};
use super::protection::{Incoming, Outgoing};
use bytes::BytesMut;
use isthmus_lab::{LabError, Result};
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::header::MESSAGE_ID_UNSOLICITED;
use isthmus_smb_wire::messages::{LeaseBreakNotification, OplockBreakNotification, OplockLevel};
use isthmus_smb_wire::{Command, FileId, Header, HeaderFlags, build, transport};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;

/// Longest time that logging on may take.
const LOG_ON_LIMIT: Duration = Duration::from_secs(30);

/// Longest time that an answer may take. Longer than a server waits for the acknowledgement of a break (35 s).
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Most breaks that are kept; a run has far fewer.
const BREAKS_MAX: usize = 100_000;

/// The connection has gone, or an answer never came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// What a lease or an oplock is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKey {
    /// A lease's key.
    Lease([u8; 16]),
    /// The open that has the oplock.
    Oplock(FileId),
}

/// A break that the server has told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakSeen {
    /// Of which lease or oplock.
    pub key: CacheKey,
    /// State that is left, as that of a lease; a shared oplock is R.
    pub left: LeaseState,
    /// When the notification was read.
    pub at: Instant,
}

/// A session on a share. Dropping it closes the socket.
pub struct Connection {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

struct Shared {
    session_id: u64,
    tree_id: u32,
    writer: AsyncMutex<Writer>,
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Vec<u8>>>>>,
    delays: Mutex<HashMap<CacheKey, Duration>>,
    breaks: Mutex<Vec<BreakSeen>>,
}

struct Writer {
    half: OwnedWriteHalf,
    message_id: u64,
    outgoing: Outgoing,
}

impl Connection {
    /// Connects, logs on by NTLM and connects to the share.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or takes longer than 30 s.
    pub async fn log_on(settings: &Settings) -> Result<Connection> {
        let late = || LabError::Timeout { what: "logging on".into(), seconds: LOG_ON_LIMIT.as_secs() };
        let done = tokio::time::timeout(LOG_ON_LIMIT, log_on(settings)).await.map_err(|_| late())??;
        let LoggedOn { channel, session_id, tree_id, message_id, outgoing, incoming } = done;
        let (read_half, half) = channel.stream.into_split();
        let shared = Arc::new(Shared {
            session_id,
            tree_id,
            writer: AsyncMutex::new(Writer { half, message_id, outgoing }),
            waiting: Mutex::new(Some(HashMap::new())),
            delays: Mutex::default(),
            breaks: Mutex::default(),
        });
        let reader = tokio::spawn(read_all(Arc::downgrade(&shared), read_half, channel.buffer, incoming));
        Ok(Connection { shared, reader })
    }

    /// Whether the connection has gone.
    pub fn is_lost(&self) -> bool {
        lock(&self.shared.waiting).is_none()
    }

    /// How long the acknowledgement of a break of this lease or oplock is to be held back; without, it is sent at once.
    pub fn delay_acknowledgement(&self, key: CacheKey, delay: Duration) {
        lock(&self.shared.delays).insert(key, delay);
    }

    /// All breaks that were told of since the last call.
    pub fn take_breaks(&self) -> Vec<BreakSeen> {
        std::mem::take(&mut *lock(&self.shared.breaks))
    }

    /// Sends a request, or several as a related compound, and waits for all answers.
    pub(super) async fn exchange(&self, elements: Vec<Vec<u8>>) -> std::result::Result<Vec<Vec<u8>>, Lost> {
        self.shared.exchange(elements).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    async fn exchange(&self, mut elements: Vec<Vec<u8>>) -> std::result::Result<Vec<Vec<u8>>, Lost> {
        let mut receivers = Vec::new();
        {
            let mut writer = self.writer.lock().await;
            for (index, element) in elements.iter_mut().enumerate() {
                self.identify(element, writer.message_id, index > 0).ok_or(Lost)?;
                let (sender, receiver) = oneshot::channel();
                lock(&self.waiting).as_mut().ok_or(Lost)?.insert(writer.message_id, sender);
                writer.message_id += 1;
                receivers.push(receiver);
            }
            let message = writer.outgoing.protect(&elements).map_err(|_| Lost)?;
            let mut frame = BytesMut::new();
            transport::put(&mut frame, &message).map_err(|_| Lost)?;
            writer.half.write_all(&frame).await.map_err(|_| Lost)?;
        }
        let all = async {
            let mut answers = Vec::new();
            for receiver in receivers {
                answers.push(receiver.await.map_err(|_| Lost)?);
            }
            Ok(answers)
        };
        tokio::time::timeout(ANSWER_LIMIT, all).await.unwrap_or(Err(Lost))
    }

    fn identify(&self, element: &mut [u8], message_id: u64, is_related: bool) -> Option<()> {
        let mut header = Header::parse(element).ok()?;
        header.set_message_id(message_id);
        header.set_session_id(if is_related { u64::MAX } else { self.session_id });
        header.set_tree_id(if is_related { u32::MAX } else { self.tree_id });
        if is_related {
            header.set_flags(HeaderFlags::RELATED_OPERATIONS);
        }
        Some(())
    }

    /// Takes one element that the server has sent.
    fn take(self: &Arc<Self>, element: Vec<u8>) {
        let Ok(header) = Header::parse(&element[..]) else { return };
        if header.message_id() == MESSAGE_ID_UNSOLICITED && header.command() == Command::OPLOCK_BREAK {
            self.take_break(&element);
        } else if !header.is_interim() {
            let waiting = lock(&self.waiting).as_mut().and_then(|all| all.remove(&header.message_id()));
            if let Some(sender) = waiting {
                // Whoever waited may have given up.
                let _ = sender.send(element);
            }
        }
    }

    fn take_break(self: &Arc<Self>, element: &[u8]) {
        let (seen, acknowledgement) = if let Ok(lease) = LeaseBreakNotification::parse(element) {
            let (lease_key, lease_state) = (lease.lease_key(), lease.new_lease_state());
            let answer = build::LeaseBreakAcknowledgement { lease_key, lease_state };
            let key = CacheKey::Lease(lease_key);
            (
                BreakSeen { key, left: lease_state, at: Instant::now() },
                lease.ack_required().then(|| request(&answer)),
            )
        } else if let Ok(oplock) = OplockBreakNotification::parse(element) {
            let (oplock_level, file_id) = (oplock.oplock_level(), oplock.file_id());
            let left =
                if oplock_level == OplockLevel::II { LeaseState::READ_CACHING } else { LeaseState::NONE };
            let answer = build::OplockBreakAcknowledgement { oplock_level, file_id };
            let seen = BreakSeen { key: CacheKey::Oplock(file_id), left, at: Instant::now() };
            // One that goes from shared to none is a notice; a needless acknowledgement is refused and does no harm.
            (seen, Some(request(&answer)))
        } else {
            return;
        };
        let mut breaks = lock(&self.breaks);
        if breaks.len() < BREAKS_MAX {
            breaks.push(seen);
        }
        drop(breaks);
        let Some(Ok(message)) = acknowledgement else { return };
        let delay = lock(&self.delays).get(&seen.key).copied().unwrap_or_default();
        let shared = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // The open may have been closed meanwhile, which counts as an acknowledgement.
            let _ = shared.exchange(vec![message]).await;
        });
    }
}

async fn read_all(shared: Weak<Shared>, mut half: OwnedReadHalf, mut buffer: BytesMut, incoming: Incoming) {
    while let Ok(elements) = read_one(&mut half, &mut buffer).await.and_then(|message| incoming.open(message))
    {
        let Some(shared) = shared.upgrade() else { return };
        elements.into_iter().for_each(|element| shared.take(element));
    }
    if let Some(shared) = shared.upgrade() {
        // Whoever waits for an answer learns that there will be none.
        *lock(&shared.waiting) = None;
    }
}

async fn read_one(half: &mut OwnedReadHalf, buffer: &mut BytesMut) -> Result<Vec<u8>> {
    loop {
        let frame =
            transport::split(buffer, transport::MESSAGE_LEN_MAX).map_err(|error| malformed(&error))?;
        if let Some(frame) = frame {
            return Ok(frame.into_message().to_vec());
        }
        match half.read_buf(buffer).await {
            Ok(0) => return Err(malformed(&"the connection was closed")),
            Ok(_) => {}
            Err(source) => return Err(LabError::Io { action: "receiving".into(), source }),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
