//! State of one outer connection, shared by the two halves of a proxy.

use crate::bindings::Bound;
use crate::codec::Way;
use crate::engine::{Crossings, Engine, Obstacle};
use crate::follow::{Follow, Session};
use crate::keys::Crypto;
use crate::limits::TABLE_SESSIONS_MAX;
use crate::note::{Entry, Outgoing};
use crate::status::{State, Status};
use crate::tracker::Tracker;
use bytes::Bytes;
use isthmus_smb_crypto::{NONCE_PREFIX_LEN, PreauthHash, SessionKeys};
use isthmus_smb_wire::Command;
use isthmus_types::Side;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zeroize::Zeroizing;

/// One outer connection as one proxy sees it.
pub struct Connection {
    side: Side,
    inner: Mutex<Inner>,
}

impl Connection {
    /// A connection of which nothing has been seen. `random` comes from the operating system, for this connection alone:
    /// the nonces of encrypted messages are made from it.
    pub fn new(side: Side, random: [u8; 32]) -> Arc<Self> {
        Self::make(side, random, None)
    }

    /// A connection of the server-side proxy that knows the sessions of other connections to the same server, so that a
    /// session that binds to it (multichannel) has keys too.
    pub fn with_table(side: Side, random: [u8; 32], table: Arc<SessionTable>) -> Arc<Self> {
        Self::make(side, random, Some(table))
    }

    fn make(side: Side, random: [u8; 32], table: Option<Arc<SessionTable>>) -> Arc<Self> {
        let inner = Inner {
            intake: intake_way(side),
            tracker: Tracker::default(),
            follow: Follow::default(),
            sessions: HashMap::new(),
            outgoing: Outgoing::new(),
            state: None,
            reason: None,
            changes: 0,
            random: Zeroizing::new(random),
            prefixes: 0,
            table,
            engine: Engine::None,
            bound: None,
            company: Arc::default(),
            now: 0,
            obstacle: None,
            gmac: false,
            lost: false,
            mixed: false,
            signatures: VecDeque::new(),
            lan_out: VecDeque::new(),
            wan_out: Crossings::new(),
        };
        Arc::new(Self { side, inner: Mutex::new(inner) })
    }

    /// Which proxy this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// What consoles and metrics show.
    pub fn status(&self) -> Status {
        self.lock().status()
    }

    /// Whether a session without keys has begun beside others whose messages the engine changes, which ends the connection.
    pub fn is_mixed(&self) -> bool {
        self.lock().mixed
    }

    /// Counts changes of what [`status`](Self::status) gives.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn intake(&self) -> Way {
        intake_way(self.side)
    }
}

/// Requests come from clients, which the client-side proxy's LAN has.
fn intake_way(side: Side) -> Way {
    match side {
        Side::Client => Way::Request,
        Side::Server => Way::Response,
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.side)
    }
}

/// Keys of the sessions of a server-side proxy, for those that bind to several connections. One for each server that
/// connections are made to, so that a server cannot stand in for another's sessions.
#[derive(Default)]
pub struct SessionTable(Mutex<HashMap<TableKey, TableEntry>>);

/// The server's identifier, then the session's.
pub(crate) type TableKey = ([u8; 16], u64);

struct TableEntry {
    keys: SessionKeys,
    /// Connections that the session is on.
    channels: usize,
}

impl SessionTable {
    /// A table without sessions.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sessions held.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no session is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn keys(&self, key: &TableKey) -> Option<SessionKeys> {
        self.lock().get(key).map(|entry| entry.keys.clone())
    }

    /// Adds a channel; a session that does not fit cannot be bound to further connections.
    fn add(&self, key: TableKey, keys: &SessionKeys) -> bool {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(&key) {
            entry.channels += 1;
            return true;
        }
        let fits = sessions.len() < TABLE_SESSIONS_MAX;
        if fits {
            sessions.insert(key, TableEntry { keys: keys.clone(), channels: 1 });
        }
        fits
    }

    pub(crate) fn remove(&self, key: &TableKey) {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.get_mut(key) {
            entry.channels -= 1;
            if entry.channels == 0 {
                sessions.remove(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TableKey, TableEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Inner {
    /// Direction of the messages that this proxy's intake gets.
    pub intake: Way,
    pub tracker: Tracker,
    pub follow: Follow,
    pub sessions: HashMap<u64, Session>,
    pub outgoing: Outgoing,
    state: Option<State>,
    reason: Option<String>,
    changes: u64,
    random: Zeroizing<[u8; 32]>,
    prefixes: u64,
    pub table: Option<Arc<SessionTable>>,
    pub engine: Engine,
    /// Sessions that are on several connections.
    pub bound: Option<Bound>,
    /// Connections of the client to this server, this one included.
    pub company: Arc<AtomicUsize>,
    /// Time as the engine has it, in microseconds.
    pub now: u64,
    /// Why the engine cannot change what passes, since something did that it could not.
    pub obstacle: Option<Obstacle>,
    /// Whether messages of a session with keys are signed with AES-GMAC.
    pub gmac: bool,
    /// A message could not be protected, so that the connection has to end.
    pub lost: bool,
    pub mixed: bool,
    /// Signatures of requests that the engine has sent, the latest last, by message identifier.
    pub signatures: VecDeque<(u64, [u8; 16])>,
    /// Frames of the engine for this proxy's LAN, and what it has for the other proxy. Its windows bound both.
    pub lan_out: VecDeque<Bytes>,
    pub wan_out: Crossings,
}

impl Inner {
    /// The keys of a session, proved or not.
    pub fn crypto(&mut self, session_id: u64) -> Option<&mut Crypto> {
        self.sessions.get_mut(&session_id)?.crypto.as_mut()
    }

    pub fn changed(&mut self) {
        self.changes += 1;
    }

    /// Random bytes of the nonces of one sealer, never given twice.
    pub fn nonce_prefix(&mut self) -> [u8; NONCE_PREFIX_LEN] {
        let mut hash = PreauthHash::new();
        let mut input = Zeroizing::new([0; 64]);
        let parts =
            self.random.iter().chain(b"isthmus smb nonce prefix").copied().chain(self.prefixes.to_le_bytes());
        input.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        self.prefixes += 1;
        hash.update(input.as_slice());
        hash.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// A message has shown that a session's keys are right: from now on they are used, and the other proxy has them.
    pub fn proved(&mut self, session_id: u64) {
        let key = (self.follow.negotiated.server_guid, session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(crypto) = session.crypto.as_mut().filter(|crypto| !crypto.proved) else { return };
        crypto.proved = true;
        self.outgoing.add(&Entry::Keys {
            session_id,
            algorithm: crypto.signer.algorithm(),
            keys: crypto.client_keys().clone(),
            user: session.user.clone(),
            domain: session.domain.clone(),
        });
        if let Some(table) = &self.table
            && session.in_table.is_none()
        {
            session.in_table = table.add(key, crypto.keys()).then_some(key);
        }
        self.changed();
    }

    /// A message has shown that a session's keys, not proved so far, are not right.
    pub fn disproved(&mut self, session_id: u64) {
        let reason = "the session key found does not fit the session's messages";
        if let Some(session) = self.sessions.get_mut(&session_id)
            && session.crypto.take_if(|crypto| !crypto.proved).is_some()
        {
            session.reason = Some(reason.to_owned());
            let (user, domain) = (session.user.clone(), session.domain.clone());
            self.outgoing.add(&Entry::NoKeys { session_id, user, domain, reason: reason.to_owned() });
            self.changed();
        }
    }

    /// The first encrypted message of a session cannot be opened: its messages are relayed from now on.
    pub fn cannot_open(&mut self, session_id: u64) {
        self.disproved(session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if let Some(crypto) = &mut session.crypto {
            // What the other proxy opens is still to be encrypted here.
            crypto.opener = None;
            session.reason = Some("the session key found does not fit the session's cipher".to_owned());
            self.changed();
        }
    }

    /// A message was of this sort. What is signed or encrypted counts more than what need not be.
    pub fn saw(&mut self, state: State) {
        let weak = matches!(state, State::Clear | State::NotSmb | State::Smb1);
        let strong = matches!(
            self.state,
            Some(State::SignedKeys | State::SignedNoKeys | State::EncryptedKeys | State::EncryptedNoKeys)
        );
        if self.state != Some(state) && !(weak && strong) {
            self.state = Some(state);
            self.changed();
        }
    }

    /// As [`saw_of`](Self::saw_of), of a message that is not encrypted. SESSION_SETUP and TREE_CONNECT say nothing of those that
    /// follow them: sessions that are encrypted from then on have them signed.
    pub fn saw_plain(&mut self, session_id: u64, command: Command, state: State) {
        if !matches!(command, Command::SESSION_SETUP | Command::TREE_CONNECT) {
            self.saw_of(session_id, state);
        }
    }

    /// As [`saw`](Self::saw), of a message that belongs to a session.
    pub fn saw_of(&mut self, session_id: u64, state: State) {
        self.saw(state);
        if let Some(session) = self.sessions.get_mut(&session_id)
            && session.messages != Some(state)
            && !(state == State::Clear && session.messages.is_some())
        {
            session.messages = Some(state);
            self.changed();
        }
    }

    /// Why messages are not reduced, apart from missing keys.
    pub fn because(&mut self, reason: &'static str) {
        if self.reason.as_deref() != Some(reason) {
            self.reason = Some(reason.to_owned());
            self.changed();
        }
    }

    fn status(&self) -> Status {
        let negotiated = &self.follow.negotiated;
        let mut sessions: Vec<_> = self.sessions.iter().map(|(id, session)| session.status(*id)).collect();
        sessions.sort_by_key(|session| session.session_id);
        let without = matches!(self.state, Some(State::SignedNoKeys | State::EncryptedNoKeys));
        let missing = sessions.iter().filter(|session| session.reason.is_some());
        let reason = missing.filter_map(|session| session.reason.clone()).next_back().filter(|_| without);
        Status {
            state: self.state,
            reason: reason.or_else(|| self.reason.clone()),
            dialect: negotiated.dialect,
            signing: negotiated.dialect.map(|dialect| dialect.signing_algorithm(negotiated.signing)),
            cipher: negotiated.dialect.and_then(|dialect| dialect.cipher(negotiated.cipher)),
            compression: negotiated.compression,
            sessions,
            shares: self.follow.shares.clone(),
            server: self.follow.server.clone(),
            changes: self.changes,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(table) = &self.table else { return };
        self.sessions.values().filter_map(|session| session.in_table).for_each(|key| table.remove(&key));
    }
}
