//! Where the engine that removes round trips is joined to the messages of a connection.

use crate::bindings::{Bindings, Bound};
use crate::codec::Way;
use crate::connection::{Connection, Inner, TableKey};
use crate::error::AssembleError;
use crate::follow::Accepted;
use crate::head::Head;
use crate::intake::session_of;
use crate::limits::SIGNATURES_MAX;
use bytes::{Bytes, BytesMut};
use isthmus_accel::{Carriage, Counts, Far, Fate, Lan, Mode, Near, Out, Policy, Traced, Wan};
use isthmus_smb_crypto::{Dialect, SigningAlgorithm, TRANSFORM_HEADER_LEN};
use isthmus_smb_wire::header::SIGNATURE;
use isthmus_smb_wire::transport::{FRAME_HEADER_LEN, frame_header};
use isthmus_smb_wire::{Command, Header, HeaderFlags, Status, compound};
use isthmus_types::Side;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why the engine does nothing ahead on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The messages of a session on it cannot be read, or not made anew.
    NoKeys,
    /// They are signed with AES-GMAC.
    Gmac,
    /// The dialect has no leases as the engine needs them.
    Dialect,
    /// A session on it is on another connection too.
    Channels,
    /// No session has begun, or the other side has not begun to work.
    NotYet,
}

/// What the engine of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceleration {
    /// How far it goes.
    pub mode: Mode,
    /// Why nothing is done.
    pub obstacle: Option<Obstacle>,
    /// What it holds that permits answers.
    pub permits: usize,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoKeys => "a session on the connection has no keys",
            Self::Gmac => "messages are signed with AES-GMAC, whose nonces are the message identifiers",
            Self::Dialect => "the dialect is below 3.0",
            Self::Channels => {
                "a session is on several connections (multichannel), which would not see each other's changes"
            }
            Self::NotYet => "no session has begun, or it is off on the other side",
        })
    }
}

/// The engine of this proxy, if the connection has one.
#[derive(Default)]
pub(crate) enum Engine {
    #[default]
    None,
    Near(Box<Near>),
    Far(Box<Far>),
}

impl Connection {
    /// Lets the engine work that removes round trips. To be called before anything is seen, and only if the other proxy
    /// has it too.
    ///
    /// With `early_close` the end of a file just written is answered near the client before the server has confirmed it.
    /// All connections of a proxy share `bindings`, and those of one client to one server the count of them, `company`.
    pub fn accelerate(
        &self,
        policy: Policy,
        early_close: bool,
        bindings: Arc<Bindings>,
        company: Arc<AtomicUsize>,
    ) {
        let mut inner = self.lock();
        inner.company = company;
        inner.bound = Some(Bound::new(bindings));
        inner.engine = match self.side() {
            Side::Client => Engine::Near(Box::new(Near::new(policy, early_close))),
            Side::Server => {
                let prefix = inner.nonce_prefix();
                let mut random = [0; 16];
                random.iter_mut().zip(prefix).for_each(|(byte, random)| *byte = random);
                let more = inner.nonce_prefix();
                random.iter_mut().rev().zip(more).for_each(|(byte, random)| *byte ^= random);
                Engine::Far(Box::new(Far::new(random, policy)))
            }
        };
    }

    /// Tells the time, in microseconds from any beginning. What the engine holds depends on it.
    pub fn at(&self, micros: u64) {
        self.lock().now = micros;
    }

    /// Lets the engine do what is due. Tells whether it wants to be called again before long.
    pub fn tick(&self) -> bool {
        let mut inner = self.lock();
        inner.look_at_bindings();
        let mut out = Out::default();
        let now = inner.now;
        let awake = match &mut inner.engine {
            Engine::None => false,
            Engine::Near(near) => {
                near.tick(now, &mut out);
                near.is_awake()
            }
            Engine::Far(far) => {
                far.tick(now, &mut out);
                far.is_awake()
            }
        };
        let way = self.intake().other();
        inner.carry_out(way, out);
        awake
    }

    /// How many bytes more the WAN has room for: content read ahead waits for it, so that it delays no other answer.
    pub fn set_room(&self, room: u64) {
        let mut inner = self.lock();
        let (mut out, now) = (Out::default(), inner.now);
        if let Engine::Far(far) = &mut inner.engine {
            far.set_room(now, room, &mut out);
            let way = self.intake().other();
            inner.carry_out(way, out);
        }
    }

    /// Whether the engine has something for this proxy's LAN, and for the other proxy, which no incoming bytes will bring
    /// out: [`Assembler::next`](crate::Assembler::next) and [`Intake::take`](crate::Intake::take) give it.
    pub fn has_output(&self) -> (bool, bool) {
        let inner = self.lock();
        (!inner.lan_out.is_empty(), !inner.wan_out.is_empty())
    }

    /// What the engine does at the moment; none without one.
    pub fn acceleration(&self) -> Option<Acceleration> {
        let inner = self.lock();
        let (mode, working, permits) = match &inner.engine {
            Engine::None => return None,
            Engine::Near(near) => (near.mode(), near.is_greeted(), near.permits()),
            Engine::Far(far) => (far.mode(), far.is_working(), far.permits()),
        };
        let old = |dialect: Dialect| dialect.as_u16() < Dialect::Smb300.as_u16();
        let obstacle = inner
            .obstacle
            .or(inner.gmac.then_some(Obstacle::Gmac))
            .or(inner.follow.negotiated.dialect.is_some_and(old).then_some(Obstacle::Dialect))
            .or((!working).then_some(Obstacle::NotYet));
        Some(Acceleration { mode, obstacle, permits })
    }

    /// What became of the client's requests after one of a number, on the client side. It is kept from the first call on, and for
    /// as long as calls go on.
    pub fn trace(&self, after: u64) -> Option<Vec<Traced>> {
        let mut inner = self.lock();
        let now = inner.now;
        match &mut inner.engine {
            Engine::Near(near) => Some(near.trace(now, after)),
            _ => None,
        }
    }

    /// What the engine has done.
    pub fn accelerated(&self) -> Option<Counts> {
        match &self.lock().engine {
            Engine::None => None,
            Engine::Near(near) => Some(near.counts()),
            Engine::Far(far) => Some(far.counts()),
        }
    }
}

impl Inner {
    pub fn has_engine(&self) -> bool {
        !matches!(self.engine, Engine::None)
    }

    /// How a message is protected, if the engine may change it. `heads` are its elements, of which `signs` says whether the
    /// signature is right and need not cross.
    pub fn carriage(
        &mut self,
        heads: &[impl AsRef<[u8]>],
        signs: &[bool],
        sealed: Option<u64>,
    ) -> Option<Carriage> {
        if let Some(session_id) = sealed {
            return Some(Carriage::Sealed(session_id));
        }
        if signs.iter().all(|sign| *sign) {
            let session_id = session_of(heads.first()?.as_ref(), 0);
            // Its nonces are the message identifiers: no message may be made anew.
            let gmac = self.crypto(session_id)?.signer.algorithm() == SigningAlgorithm::AesGmac;
            return (!gmac).then_some(Carriage::Signed);
        }
        let plain = heads.iter().zip(signs).all(|(head, sign)| {
            let head = Head(head.as_ref());
            let makes = matches!(head.command(), Command::NEGOTIATE | Command::SESSION_SETUP);
            !sign && (!head.is_signed() || makes)
        });
        plain.then_some(Carriage::Plain)
    }

    /// Requests pass that the engine cannot change, since their signature crossed.
    pub fn engine_passes(&mut self, heads: &[Vec<u8>]) {
        let session_id = heads.first().map_or(0, |head| session_of(head, 0));
        match self.crypto(session_id) {
            None => self.cannot_change(Obstacle::NoKeys),
            Some(crypto) => {
                let gmac = crypto.signer.algorithm() == SigningAlgorithm::AesGmac;
                if crypto.proved && gmac && crypto.opener.is_none() {
                    self.cannot_change(Obstacle::Gmac);
                }
            }
        }
        if let Engine::Far(far) = &mut self.engine {
            heads.iter().for_each(|head| far.passed(head));
        }
    }

    /// A response, or a request on the client side, passes that the engine cannot change.
    pub fn response_passes(&mut self, heads: &[&[u8]]) {
        let session_id = heads.first().map_or(0, |head| session_of(head, 0));
        match self.crypto(session_id) {
            None => self.cannot_change(Obstacle::NoKeys),
            // Its nonces are the message identifiers, so nothing is done ahead: this side is only told so.
            Some(crypto) => {
                let gmac = crypto.signer.algorithm() == SigningAlgorithm::AesGmac;
                let signed = crypto.proved && gmac && crypto.opener.is_none();
                self.gmac |= signed;
            }
        }
    }

    /// Something passes that the engine cannot change, or cannot see. It does nothing ahead from now on, and answers nothing.
    pub fn cannot_change(&mut self, obstacle: Obstacle) {
        match &mut self.engine {
            Engine::None => {}
            Engine::Near(near) => near.stop(),
            Engine::Far(far) => far.enable(false),
        }
        self.obstacle.get_or_insert(obstacle);
    }

    /// A session is being bound to this connection, and is on another.
    pub fn binds(&mut self, session_id: u64) {
        if let Some(bound) = &self.bound {
            bound.add((self.follow.negotiated.server_guid, session_id));
            self.cannot_change(Obstacle::Channels);
        }
    }

    /// Whether a session of this connection has been bound to another.
    fn look_at_bindings(&mut self) {
        let (sessions, guid) = (&self.sessions, &self.follow.negotiated.server_guid);
        let is_here = |(server, session): &TableKey| server == guid && sessions.contains_key(session);
        if self.bound.as_mut().is_some_and(|bound| bound.is_any(is_here)) {
            self.cannot_change(Obstacle::Channels);
        }
    }

    /// A message from this proxy's LAN.
    pub fn engine_takes(&mut self, way: Way, carriage: Carriage, message: &mut BytesMut) -> (Fate, Out) {
        self.look_at_bindings();
        let mut out = Out::default();
        let (now, may) = (self.now, self.may_accelerate());
        let fate = match &mut self.engine {
            Engine::None => Fate::Forward,
            Engine::Near(near) => {
                near.set_company(self.company.load(Ordering::Relaxed) > 1);
                near.request(now, carriage, message, &mut out)
            }
            Engine::Far(far) => {
                far.enable(may);
                far.response(now, carriage, message, &mut out)
            }
        };
        let lan = std::mem::take(&mut out.lan);
        self.send_lan(way.other(), lan);
        (fate, out)
    }

    /// A message from the other proxy, for this proxy's LAN: on the server side the engine sends it.
    pub fn engine_sends(&mut self, way: Way, carriage: Carriage, message: Vec<u8>) {
        self.look_at_bindings();
        let mut out = Out::default();
        let (now, may) = (self.now, self.may_accelerate());
        if let Engine::Far(far) = &mut self.engine {
            far.enable(may);
            far.request(now, carriage, message, &mut out);
        }
        self.carry_out(way, out);
    }

    /// A response for the client comes, who may have its answer already.
    pub fn engine_sees(&mut self, message: &[u8]) -> Fate {
        let now = self.now;
        match &mut self.engine {
            Engine::Near(near) => near.response(now, message),
            Engine::None | Engine::Far(_) => Fate::Forward,
        }
    }

    /// A session has begun. One without keys cannot be on a connection on which messages are changed: its client would not
    /// take the server's next answer.
    pub fn begins(&mut self, accepted: &Accepted) -> Result<(), AssembleError> {
        let Engine::Near(near) = &self.engine else { return Ok(()) };
        let has_keys =
            self.sessions.get(&accepted.session_id()).is_some_and(|session| session.crypto.is_some());
        if has_keys || accepted.is_keyless() || !near.is_greeted() {
            return Ok(());
        }
        self.mixed = true;
        Err(AssembleError::Mixed)
    }

    /// What the other proxy's engine says.
    pub fn engine_hears(&mut self, way: Way, head: &[u8], content: Bytes) -> Result<(), AssembleError> {
        self.look_at_bindings();
        let mut out = Out::default();
        let now = self.now;
        let heard = match &mut self.engine {
            Engine::None => return Err(AssembleError::Malformed("the peer accelerates without leave")),
            Engine::Near(near) => near.told(now, head, content, &mut out),
            Engine::Far(far) => far.told(now, head, &mut out),
        };
        heard.map_err(|_| AssembleError::Malformed("what the acceleration engine says"))?;
        self.carry_out(way, out);
        Ok(())
    }

    /// `way` is that of messages to this proxy's LAN.
    fn carry_out(&mut self, way: Way, out: Out) {
        self.send_lan(way, out.lan);
        self.wan_out.extend(out.wan);
        self.wan_out.extend(out.after);
    }

    fn send_lan(&mut self, way: Way, messages: Vec<Lan>) {
        for message in messages {
            if way == Way::Request && Head(&message.message).command() == Command::SESSION_SETUP {
                self.leg_setup(&message.message);
            }
            match self.protect(way, message) {
                Some(frame) => self.lan_out.push_back(frame),
                // Whoever waits for it would wait for ever.
                None => self.lost = true,
            }
        }
    }

    /// The signature of a request as the server gets it.
    fn remember_signature(&mut self, request: &[u8]) {
        let Some(signature) = request.get(SIGNATURE).and_then(|bytes| bytes.first_chunk()) else { return };
        if self.signatures.len() >= SIGNATURES_MAX {
            self.signatures.pop_front();
        }
        self.signatures.push_back((Header::lenient(request).message_id(), *signature));
    }

    /// Whether a server has refused a request with the request's own signature, as Samba does with some that it does not
    /// understand. The client did not send just that one, so the response has to be signed for it. Who forges this on the
    /// server's network achieves no more than by holding the request back.
    pub fn is_mirrored(&self, response: &[u8]) -> bool {
        let header = Header::lenient(response);
        let is_it = |(message_id, signature): &(u64, [u8; 16])| {
            *message_id == header.message_id() && response.get(SIGNATURE) == Some(&signature[..])
        };
        header.status() == Status::INVALID_PARAMETER && self.signatures.iter().any(is_it)
    }

    /// Whether something may be done ahead on this connection.
    fn may_accelerate(&self) -> bool {
        let dialect = self.follow.negotiated.dialect;
        let leases = dialect.is_some_and(|dialect| dialect.as_u16() >= Dialect::Smb300.as_u16());
        leases && self.obstacle.is_none()
    }

    /// Signs or encrypts a message, and puts the transport's header before it.
    fn protect(&mut self, way: Way, lan: Lan) -> Option<Bytes> {
        let Lan { carriage, mut message } = lan;
        match carriage {
            Carriage::Plain => {}
            Carriage::Signed => {
                let ranges = compound::elements(&message).collect::<Result<Vec<_>, _>>().ok()?;
                let mut before = 0;
                for range in ranges {
                    let element = message.get_mut(range)?;
                    before = session_of(element, before);
                    let mut header = Header::lenient(&mut *element);
                    header.set_flags(header.flags().with(HeaderFlags::SIGNED));
                    let crypto = self.crypto(before).filter(|crypto| crypto.proved)?;
                    crypto.signer.sign(element, way.is_response()).ok()?;
                    if way == Way::Request {
                        self.remember_signature(element);
                    }
                }
            }
            Carriage::Sealed(session_id) => {
                let mut buffer = vec![0; FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN];
                buffer.reserve_exact(message.len());
                for range in compound::elements(&message).collect::<Result<Vec<_>, _>>().ok()? {
                    let element = message.get_mut(range)?;
                    let mut header = Header::lenient(&mut *element);
                    header.set_flags(header.flags().without(HeaderFlags::SIGNED));
                    element.get_mut(SIGNATURE)?.fill(0);
                }
                buffer.extend_from_slice(&message);
                return crate::assembler::seal_message(self, session_id, buffer).ok();
            }
        }
        let mut frame = frame_header(message.len()).ok()?.to_vec();
        frame.extend_from_slice(&message);
        Some(Bytes::from(frame))
    }
}

/// LAN bytes that a message stands for.
pub(crate) fn lan_len(message: usize, sealed: bool) -> usize {
    message + FRAME_HEADER_LEN + if sealed { TRANSFORM_HEADER_LEN } else { 0 }
}

pub(crate) type Crossings = std::collections::VecDeque<Wan>;
