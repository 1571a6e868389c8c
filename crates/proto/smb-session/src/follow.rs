//! Follows what a connection negotiates, who authenticates on it, and what it connects to.

use crate::codec::Way;
use crate::connection::{Inner, TableKey};
use crate::keys::{Crypto, KeySource, Refused, Released};
use crate::limits::{AUTHENTICATIONS_MAX, NAME_CHARS_MAX, SESSIONS_MAX, SHARES_MAX, TREE_CONNECTS_MAX};
use crate::note::Entry;
use crate::status::{SessionState, SessionStatus, State};
use isthmus_smb_auth::Exchange;
use isthmus_smb_crypto::{
    Cipher, Dialect, KeyError, PreauthHash, SessionKey, SessionKeys, SigningAlgorithm, derive, derive_channel,
};
use isthmus_smb_wire::messages::{
    NegotiateResponse, SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
    TreeConnectRequest,
};
use isthmus_smb_wire::negotiate_context::{NegotiateContextType, counted};
use isthmus_smb_wire::{Command, Header, Status, negotiate_context};
use std::collections::VecDeque;

/// What NEGOTIATE decided.
#[derive(Default)]
pub(crate) struct Negotiated {
    pub dialect: Option<Dialect>,
    pub signing: Option<SigningAlgorithm>,
    pub cipher: Option<Cipher>,
    pub compression: bool,
    pub server_guid: [u8; 16],
}

/// What is being followed.
#[derive(Default)]
pub(crate) struct Follow {
    pub negotiated: Negotiated,
    hash: PreauthHash,
    authentications: VecDeque<Authentication>,
    tree_connects: VecDeque<(u64, String)>,
    pub shares: Vec<String>,
    pub server: Option<String>,
    /// A response as the server sent it, where the client gets it with other identifiers.
    pub server_form: Option<Vec<u8>>,
}

/// One authentication that is going on.
struct Authentication {
    /// Message identifier of the request without response.
    waiting: Option<u64>,
    /// 0 until the server has given one.
    session_id: u64,
    exchange: Exchange,
    hash: PreauthHash,
    /// The same as the server has it, where an engine gives messages other identifiers.
    leg: Option<PreauthHash>,
    binding: bool,
    /// Of a session that is there already, whose keys stay as they are (MS-SMB2 3.2.5.3.2).
    renewal: bool,
}

/// An authentication that the server has accepted.
pub(crate) struct Accepted {
    session_id: u64,
    exchange: Exchange,
    hash: PreauthHash,
    leg: Option<PreauthHash>,
    binding: bool,
    /// Why the session has no key, if that can be told from the response.
    keyless: Option<&'static str>,
}

/// One session on this connection.
#[derive(Default)]
pub(crate) struct Session {
    pub user: String,
    pub domain: String,
    pub reason: Option<String>,
    pub crypto: Option<Crypto>,
    pub ended: bool,
    pub messages: Option<State>,
    pub in_table: Option<TableKey>,
}

impl Session {
    pub fn status(&self, session_id: u64) -> SessionStatus {
        let state = match &self.crypto {
            _ if self.ended => SessionState::Ended,
            Some(crypto) if crypto.proved => SessionState::Keys,
            Some(_) => SessionState::Unproved,
            None => SessionState::NoKeys,
        };
        let (user, domain, reason) = (self.user.clone(), self.domain.clone(), self.reason.clone());
        SessionStatus { session_id, user, domain, state, reason, messages: self.messages }
    }
}

impl Inner {
    /// Sees one element of a message in clear, as it is on the LAN. `alone` says that it is all of the message.
    pub fn observe(&mut self, way: Way, element: &[u8], alone: bool) -> Option<Accepted> {
        let Ok(header) = Header::parse(element) else { return None };
        match (header.command(), way) {
            // Nothing is negotiated again once there is a session (MS-SMB2 3.3.5.4).
            (Command::NEGOTIATE, _) if !alone || !self.sessions.is_empty() => {}
            (Command::NEGOTIATE, Way::Request) => {
                self.follow.hash = PreauthHash::new();
                self.follow.hash.update(element);
            }
            (Command::NEGOTIATE, Way::Response) => self.negotiate_response(element),
            (Command::SESSION_SETUP, Way::Request) if alone => self.session_setup_request(element),
            (Command::SESSION_SETUP, Way::Response) if alone => return self.session_setup_response(element),
            (Command::LOGOFF, Way::Response) if header.status() == Status::SUCCESS => {
                self.log_off(header.session_id());
            }
            (Command::TREE_CONNECT, Way::Request) => self.tree_connect_request(element),
            (Command::TREE_CONNECT, Way::Response) => {
                self.tree_connect_response(header.message_id(), header.status() == Status::SUCCESS);
            }
            _ => {}
        }
        None
    }

    fn negotiate_response(&mut self, message: &[u8]) {
        let Ok(view) = NegotiateResponse::parse(message) else { return };
        self.follow.hash.update(message);
        let Some(dialect) = Dialect::from_u16(view.dialect().0) else { return };
        let mut negotiated =
            Negotiated { dialect: Some(dialect), server_guid: view.server_guid(), ..Negotiated::default() };
        for context in view.contexts().flatten() {
            let first = || counted(context.data).ok().and_then(|mut values| values.next());
            match context.kind {
                NegotiateContextType::ENCRYPTION => negotiated.cipher = first().and_then(Cipher::from_u16),
                NegotiateContextType::SIGNING => {
                    negotiated.signing = first().and_then(SigningAlgorithm::from_u16);
                }
                NegotiateContextType::COMPRESSION => {
                    negotiated.compression =
                        negotiate_context::compression(context.data).is_ok_and(|(_, mut algorithms)| {
                            algorithms.any(|one| one != negotiate_context::CompressionAlgorithm::NONE)
                        });
                }
                _ => {}
            }
        }
        self.follow.negotiated = negotiated;
        self.changed();
    }

    fn session_setup_request(&mut self, message: &[u8]) {
        let Ok(view) = SessionSetupRequest::parse(message) else { return };
        let (session_id, message_id) = (view.header().session_id(), view.header().message_id());
        let binding = view.flags().contains(SessionSetupFlags::BINDING);
        let known = self.sessions.get(&session_id).is_some_and(|session| !session.ended);
        if binding {
            self.binds(session_id);
        }
        let leg = self.has_engine().then(|| self.follow.hash.clone());
        let list = &mut self.follow.authentications;
        let continued = list
            .iter()
            .position(|one| session_id != 0 && one.session_id == session_id && one.waiting.is_none());
        let mut one = continued.and_then(|at| list.remove(at)).unwrap_or_else(|| Authentication {
            waiting: None,
            session_id,
            exchange: Exchange::new(),
            hash: self.follow.hash.clone(),
            leg,
            binding,
            renewal: known && !binding,
        });
        one.waiting = Some(message_id);
        one.exchange.client(view.security_buffer());
        one.hash.update(message);
        let list = &mut self.follow.authentications;
        if list.len() >= AUTHENTICATIONS_MAX {
            list.pop_front();
        }
        list.push_back(one);
    }

    fn session_setup_response(&mut self, message: &[u8]) -> Option<Accepted> {
        let header = Header::parse(message).ok()?;
        let list = &mut self.follow.authentications;
        let at = list.iter().position(|one| one.waiting == Some(header.message_id()))?;
        if header.is_interim() {
            return None;
        }
        let mut one = list.remove(at)?;
        let view = SessionSetupResponse::parse(message).ok()?;
        match header.status() {
            Status::MORE_PROCESSING_REQUIRED => {
                one.exchange.server(view.security_buffer());
                one.hash.update(message);
                if let Some(leg) = &mut one.leg {
                    leg.update(self.follow.server_form.as_deref().unwrap_or(message));
                }
                one.session_id = header.session_id();
                one.waiting = None;
                self.follow.authentications.push_back(one);
                None
            }
            Status::SUCCESS if !one.renewal => {
                one.exchange.server(view.security_buffer());
                let flags = view.session_flags();
                let keyless = if flags.contains(SessionFlags::IS_GUEST) {
                    Some("guest session, which has no key")
                } else if flags.contains(SessionFlags::IS_NULL) {
                    Some("anonymous session, which has no key")
                } else {
                    None
                };
                let Authentication { exchange, hash, leg, binding, .. } = one;
                Some(Accepted { session_id: header.session_id(), exchange, hash, leg, binding, keyless })
            }
            _ => None,
        }
    }

    /// The request of the authentication that is looked at as the server gets it.
    pub fn leg_setup(&mut self, message: &[u8]) {
        if let Some(leg) = self.follow.authentications.back_mut().and_then(|one| one.leg.as_mut()) {
            leg.update(message);
        }
    }

    fn log_off(&mut self, session_id: u64) {
        // The keys stay: messages of the session may still be on their way.
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.ended = true;
            self.changed();
        }
    }

    fn tree_connect_request(&mut self, element: &[u8]) {
        let Ok(view) = TreeConnectRequest::parse(element) else { return };
        let list = &mut self.follow.tree_connects;
        if list.len() >= TREE_CONNECTS_MAX {
            list.pop_front();
        }
        let path: String = view.path().to_string_lossy().chars().take(NAME_CHARS_MAX).collect();
        list.push_back((view.header().message_id(), path));
    }

    fn tree_connect_response(&mut self, message_id: u64, success: bool) {
        let list = &mut self.follow.tree_connects;
        let Some(at) = list.iter().position(|(waiting, _)| *waiting == message_id) else { return };
        let Some((_, path)) = list.remove(at).filter(|_| success) else { return };
        let mut parts = path.trim_start_matches('\\').splitn(2, '\\');
        let (server, share) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        self.follow.server = Some(server.to_owned());
        if self.follow.shares.iter().all(|known| known != share) && self.follow.shares.len() < SHARES_MAX {
            self.follow.shares.push(share.to_owned());
        }
        self.changed();
    }

    /// A place for a session; none when there are too many. What was there before is forgotten.
    fn session(&mut self, session_id: u64) -> Option<&mut Session> {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(&session_id) {
            let ended = self.sessions.iter().find(|(_, session)| session.ended).map(|(id, _)| *id)?;
            self.forget(ended);
        }
        self.forget(session_id);
        Some(self.sessions.entry(session_id).or_default())
    }

    fn forget(&mut self, session_id: u64) {
        let key = self.sessions.remove(&session_id).and_then(|session| session.in_table);
        if let (Some(table), Some(key)) = (&self.table, key) {
            table.remove(&key);
        }
    }

    /// Signs the response that makes a session again, where the client gets another than the server sent.
    pub fn sign_for_client(&mut self, session_id: u64, message: &mut [u8]) {
        let is_signed = Header::parse(&*message).is_ok_and(|header| header.is_signed());
        let Some(crypto) = self.crypto(session_id).filter(|_| is_signed) else { return };
        let algorithm = crypto.signer.algorithm();
        if let Some(signer) = crypto.near.as_ref().and_then(|keys| keys.signer(algorithm).ok()) {
            let _ = signer.sign(message, true);
        }
    }

    /// Server side: what follows from an accepted authentication. `response` is the server's last.
    pub fn conclude(&mut self, accepted: &Accepted, outcome: Result<Released, Refused>, response: &[u8]) {
        let session_id = accepted.session_id;
        let claim = accepted.exchange.claim();
        let named = |from: Option<String>| from.unwrap_or_default();
        let result = outcome.and_then(|released| {
            let crypto = self.crypto_of(accepted, &released, response)?;
            Ok((released.user.clone(), released.domain.clone(), crypto))
        });
        match result {
            Ok((user, domain, (crypto, proved))) => {
                let Some(session) = self.session(session_id) else { return };
                *session = Session { user, domain, crypto: Some(crypto), ..Session::default() };
                if proved {
                    self.proved(session_id);
                }
            }
            Err(Refused(reason)) => {
                let user = named(claim.as_ref().and_then(|claim| claim.user.clone()));
                let domain = named(claim.and_then(|claim| claim.domain));
                self.no_keys(session_id, user, domain, reason);
            }
        }
        self.changed();
    }

    fn no_keys(&mut self, session_id: u64, user: String, domain: String, reason: String) {
        let entry = Entry::NoKeys { session_id, user, domain, reason };
        self.outgoing.add(&entry);
        self.apply(entry);
    }

    /// Client side: what a note says.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Keys { session_id, algorithm, keys, user, domain } => {
                let (intake, prefix) = (self.intake, self.nonce_prefix());
                let crypto = Crypto::new(keys, algorithm, intake, prefix).ok();
                let Some(session) = self.session(session_id) else { return };
                *session = Session { user, domain, crypto, ..Session::default() };
                if let Some(crypto) = &mut session.crypto {
                    crypto.proved = true;
                }
            }
            Entry::NoKeys { session_id, user, domain, reason } => {
                let Some(session) = self.session(session_id) else { return };
                *session = Session { user, domain, reason: Some(reason), ..Session::default() };
            }
        }
        self.changed();
    }

    /// The keys of a session, and whether the response has proved them right.
    fn crypto_of(
        &mut self,
        accepted: &Accepted,
        released: &Released,
        response: &[u8],
    ) -> Result<(Crypto, bool), Refused> {
        let keys = self.keys_of(accepted, released, &accepted.hash)?;
        let leg = accepted.leg.as_ref().map(|leg| self.keys_of(accepted, released, leg)).transpose()?;
        let negotiated = &self.follow.negotiated;
        let dialect = negotiated.dialect.ok_or_else(|| refused("the connection's dialect was not seen"))?;
        let algorithm = dialect.signing_algorithm(negotiated.signing);
        let (intake, prefix) = (self.intake, self.nonce_prefix());
        let response = self.follow.server_form.as_deref().unwrap_or(response);
        let mut crypto =
            Crypto::new(leg.unwrap_or_else(|| keys.clone()), algorithm, intake, prefix).map_err(key_error)?;
        crypto.near = Some(keys);
        let signed = Header::parse(response).is_ok_and(|header| header.is_signed());
        if signed && !crypto.signer.verify(response, true) {
            return Err(refused("the session key found does not verify the server's answer"));
        }
        Ok((crypto, signed))
    }

    fn keys_of(
        &self,
        accepted: &Accepted,
        released: &Released,
        hash: &PreauthHash,
    ) -> Result<SessionKeys, Refused> {
        let negotiated = &self.follow.negotiated;
        let dialect = negotiated.dialect.ok_or_else(|| refused("the connection's dialect was not seen"))?;
        let key = SessionKey::new(&released.session_key).map_err(key_error)?;
        let hash = (dialect == Dialect::Smb311).then_some(hash);
        if accepted.binding {
            let known = self
                .table
                .as_ref()
                .and_then(|table| table.keys(&(negotiated.server_guid, accepted.session_id)));
            let known = known.ok_or_else(|| refused("the session this connection binds to is not known"))?;
            let channel = derive_channel(dialect, &key, hash).map_err(key_error)?;
            return Ok(known.with_channel(&channel));
        }
        derive(dialect, dialect.cipher(negotiated.cipher), &key, hash).map_err(key_error)
    }
}

impl Accepted {
    /// The session.
    pub fn session_id(&self) -> u64 {
        self.session_id
    }

    /// Whether nothing in it is signed or encrypted.
    pub fn is_keyless(&self) -> bool {
        self.keyless.is_some()
    }

    /// Asks for the session's key, if it can have one.
    pub fn ask(&self, keys: Option<&(dyn KeySource + Send + Sync)>) -> Result<Released, Refused> {
        match (self.keyless, keys) {
            (Some(reason), _) => Err(refused(reason)),
            (None, None) => Err(refused("no source of keys is set up")),
            (None, Some(keys)) => keys.release(&self.exchange),
        }
    }
}

fn refused(reason: &'static str) -> Refused {
    Refused(reason.to_owned())
}

fn key_error(error: KeyError) -> Refused {
    Refused(error.to_string())
}
