//! From a LAN socket to what crosses the WAN.

use crate::codec::{Codec, Part, Way, set_next_command};
use crate::connection::{Connection, Inner};
use crate::engine::{Obstacle, lan_len};
use crate::error::IntakeError;
use crate::follow::Accepted;
use crate::head::Head;
use crate::keys::KeySource;
use crate::limits::{CROSSING_BULK_BYTES, RAW_INLINE_BYTES_MAX, SKELETON_BYTES_MAX};
use crate::record::{self, Kind};
use crate::status::State;
use bytes::{Buf, Bytes, BytesMut};
use isthmus_accel::{Carriage, Fate, Lan, Told, Wan};
use isthmus_smb_crypto::{OpenError, TRANSFORM_HEADER_LEN, TransformHeader, decompress_message};
use isthmus_smb_wire::header::SIGNATURE;
use isthmus_smb_wire::transport::{FRAME_HEADER_LEN, FrameType, MESSAGE_LEN_MAX, MessageKind, frame_len};
use isthmus_smb_wire::{Command, Header, HeaderFlags, compound};
use isthmus_types::{Side, varint};
use std::ops::Range;
use std::sync::Arc;

/// Bytes for the other proxy's [`Assembler::note`](crate::Assembler::note); wiped when dropped. They hold session keys:
/// to be sent inside the inner channel only, never kept, never compressed together with anything else.
pub type Note = Bytes;

/// What a piece of LAN input has become.
pub struct Crossing {
    /// To be sent first, in order.
    pub note: Option<Note>,
    /// Structure.
    pub structure: Vec<u8>,
    /// Content: slices of what came in, not copied.
    pub content: Vec<Bytes>,
    /// LAN bytes that this stands for.
    pub lan: usize,
    /// Whether it carries so much content that latency matters less than throughput.
    pub bulk: bool,
}

/// One proxy's half of a connection that takes from its LAN socket.
pub struct Intake {
    connection: Arc<Connection>,
    keys: Option<Arc<dyn KeySource + Send + Sync>>,
    way: Way,
    codec: Codec,
    /// Session of the last sealed record.
    sealed_for: Option<u64>,
    /// The stream has no frames that could be followed; whatever comes crosses as it comes.
    lost: bool,
}

/// Records while they are made.
#[derive(Default)]
struct Draft {
    /// Records that are whole.
    structure: Vec<u8>,
    record: Vec<u8>,
    content: Vec<Bytes>,
    /// LAN bytes that they stand for.
    lan: usize,
    /// A response that makes a session, to be signed again when the session's key is there.
    deferred: Option<(Carriage, BytesMut, Vec<Element>)>,
    accepted: Option<(Accepted, Bytes)>,
}

/// One element of a message that can cross as structure and content.
struct Element {
    range: Range<usize>,
    sign: bool,
    part: Part,
}

impl Intake {
    /// The half for a connection's LAN socket on this proxy. `keys` is heeded on the server side alone.
    pub fn new(connection: Arc<Connection>, keys: Option<Arc<dyn KeySource + Send + Sync>>) -> Self {
        let way = connection.intake();
        Self { connection, keys, way, codec: Codec::new(way), sealed_for: None, lost: false }
    }

    /// Takes the next whole transport frame out of `input`, if there is one.
    ///
    /// # Errors
    /// [`IntakeError`]; the connection must be ended.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Crossing>, IntakeError> {
        if let Some(crossing) = self.told() {
            return Ok(Some(crossing));
        }
        let Some(first) = input.first() else { return Ok(None) };
        if !matches!(FrameType::from_byte(*first), FrameType::Message | FrameType::KeepAlive) {
            self.lost = true;
        }
        if self.lost {
            return Ok(self.finish(input));
        }
        match frame_len(input, MESSAGE_LEN_MAX) {
            Ok(Some(length)) if input.len() >= length => self.frame(input.split_to(length)).map(Some),
            _ => Ok(None),
        }
    }

    /// Takes what is left when the LAN socket has ended: part of a frame, which crosses as it is.
    pub fn finish(&mut self, input: &mut BytesMut) -> Option<Crossing> {
        if input.is_empty() {
            return None;
        }
        if let Some(crossing) = self.told() {
            return Some(crossing);
        }
        let length = input.len().min(MESSAGE_LEN_MAX);
        if self.lost {
            self.connection.lock().saw(State::NotSmb);
        }
        let mut draft = Draft::default();
        draft.raw(input.split_to(length).freeze());
        Some(self.crossing(draft))
    }

    /// What the engine has for the other proxy.
    fn told(&mut self) -> Option<Crossing> {
        let connection = self.connection.clone();
        let mut inner = connection.lock();
        if inner.wan_out.is_empty() {
            return None;
        }
        let mut draft = Draft::default();
        let told = std::mem::take(&mut inner.wan_out);
        self.tell(&mut inner, told, &mut draft);
        drop(inner);
        Some(self.crossing(draft))
    }

    /// Makes records of what the engine has for the other proxy.
    fn tell(&mut self, inner: &mut Inner, all: impl IntoIterator<Item = Wan>, draft: &mut Draft) {
        for one in all {
            match one {
                Wan::Told(told) => draft.ahead(inner, told),
                Wan::Response(Lan { carriage, mut message }) => {
                    let sign = carriage == Carriage::Signed;
                    if let Some(parts) = self.parts(inner, &message) {
                        for (range, _) in parts.iter().filter(|_| sign) {
                            let mut header =
                                Header::lenient(message.get_mut(range.clone()).unwrap_or_default());
                            header.set_flags(header.flags().with(HeaderFlags::SIGNED));
                        }
                        let elements: Vec<_> =
                            parts.into_iter().map(|(range, part)| Element { range, sign, part }).collect();
                        self.put(inner, carriage, &Bytes::from(message), &elements, draft);
                    }
                }
            }
        }
    }

    fn frame(&mut self, frame: BytesMut) -> Result<Crossing, IntakeError> {
        let connection = self.connection.clone();
        let mut draft = Draft::default();
        {
            let mut inner = connection.lock();
            match kind_of(&frame) {
                MessageKind::Smb2 => self.clear(&mut inner, frame, &mut draft),
                MessageKind::Transform => self.transform(&mut inner, frame, &mut draft)?,
                kind => {
                    match kind {
                        MessageKind::Smb1 => inner.saw(State::Smb1),
                        MessageKind::Compressed => {
                            inner.because("compressed messages are relayed as they are")
                        }
                        _ => {}
                    }
                    draft.raw(frame.freeze());
                }
            }
        }
        if let Some((accepted, response)) = draft.accepted.take()
            && connection.side() == Side::Server
        {
            // Not under the lock, since it may take its time and may ask for the connection's status.
            let outcome = accepted.ask(self.keys.as_deref());
            let mut inner = connection.lock();
            inner.conclude(&accepted, outcome, &response);
            inner.follow.server_form = None;
            if let Some((carriage, mut message, elements)) = draft.deferred.take() {
                inner.sign_for_client(accepted.session_id(), &mut message);
                self.put(&mut inner, carriage, &message.freeze(), &elements, &mut draft);
            }
        }
        Ok(self.crossing(draft))
    }

    fn crossing(&self, mut draft: Draft) -> Crossing {
        draft.end();
        let note = self.connection.lock().outgoing.take().map(Bytes::from_owner);
        let Draft { structure, content, lan, .. } = draft;
        let content_len: usize = content.iter().map(Bytes::len).sum();
        Crossing { note, structure, content, lan, bulk: content_len >= CROSSING_BULK_BYTES }
    }

    /// A message that is not encrypted.
    fn clear(&mut self, inner: &mut Inner, mut frame: BytesMut, draft: &mut Draft) {
        let elements =
            frame.get_mut(FRAME_HEADER_LEN..).and_then(|message| self.elements(inner, message, None));
        let Some(elements) = elements else {
            return draft.raw(frame.freeze());
        };
        let message = frame.split_off(FRAME_HEADER_LEN.min(frame.len()));
        self.pass(inner, None, message, elements, draft);
    }

    /// A message whose elements are known: to the engine, and on.
    fn pass(
        &mut self,
        inner: &mut Inner,
        sealed: Option<u64>,
        mut message: BytesMut,
        mut elements: Vec<Element>,
        draft: &mut Draft,
    ) {
        if self.way == Way::Request {
            draft.observe(inner, self.way, &message, &elements);
        }
        let mut after = Vec::new();
        let plain = sealed.map_or(Carriage::Plain, Carriage::Sealed);
        let mut carriage = if elements.iter().any(|element| element.sign) { Carriage::Signed } else { plain };
        if inner.has_engine() {
            let heads: Vec<&[u8]> =
                elements.iter().filter_map(|element| message.get(element.range.clone())).collect();
            let signs: Vec<bool> = elements.iter().map(|element| element.sign).collect();
            match inner.carriage(&heads, &signs, sealed) {
                Some(found) => {
                    carriage = found;
                    let setup =
                        heads.first().is_some_and(|head| Head(head).command() == Command::SESSION_SETUP);
                    inner.follow.server_form = (setup && self.way == Way::Response).then(|| message.to_vec());
                    let (fate, out) = inner.engine_takes(self.way, found, &mut message);
                    self.tell(inner, out.wan, draft);
                    after = out.after;
                    if fate == Fate::Consumed {
                        self.tell(inner, after, draft);
                        return;
                    }
                    let sign = found == Carriage::Signed;
                    let parts = self.parts(inner, &message).unwrap_or_default();
                    elements = parts.into_iter().map(|(range, part)| Element { range, sign, part }).collect();
                }
                None => inner.response_passes(&heads),
            }
        }
        if self.way == Way::Response {
            draft.observe(inner, self.way, &message, &elements);
        }
        let altered = inner.follow.server_form.as_deref().is_some_and(|form| form != &message[..]);
        if draft.accepted.is_none() {
            inner.follow.server_form = None;
        } else if altered {
            draft.deferred = Some((carriage, message, elements));
            return self.tell(inner, after, draft);
        }
        let message = message.freeze();
        self.put(inner, carriage, &message, &elements, draft);
        self.tell(inner, after, draft);
    }

    /// Makes the record of a message.
    fn put(
        &mut self,
        inner: &mut Inner,
        carriage: Carriage,
        message: &Bytes,
        elements: &[Element],
        draft: &mut Draft,
    ) {
        draft.end();
        let sealed = match carriage {
            Carriage::Plain | Carriage::Signed => {
                record::put_head(&mut draft.record, Kind::Message, elements.len());
                false
            }
            Carriage::Sealed(session_id) => {
                let known = self.sealed_for == Some(session_id);
                let kind = if known { Kind::Sealed } else { Kind::SealedFor };
                record::put_head(&mut draft.record, kind, elements.len());
                if !known {
                    draft.record.extend_from_slice(&session_id.to_le_bytes());
                }
                self.sealed_for = Some(session_id);
                true
            }
        };
        draft.lan += lan_len(message.len(), sealed);
        self.encode(inner, message, elements, draft);
        draft.end();
    }

    fn transform(
        &mut self,
        inner: &mut Inner,
        mut frame: BytesMut,
        draft: &mut Draft,
    ) -> Result<(), IntakeError> {
        let plain = match plaintext(inner, &mut frame)? {
            Some(Plain::InPlace(session_id)) => {
                frame.advance(FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN);
                Some((session_id, frame.split()))
            }
            Some(Plain::Copy(session_id, plain)) => Some((session_id, BytesMut::from(Bytes::from(plain)))),
            None => None,
        };
        let Some((session_id, plain)) = plain else {
            let header = frame.get(FRAME_HEADER_LEN..).map(TransformHeader::parse);
            let session_id = header.and_then(Result::ok).map_or(0, |header| header.session_id);
            inner.saw_of(session_id, State::EncryptedNoKeys);
            inner.cannot_change(Obstacle::NoKeys);
            draft.raw(frame.freeze());
            return Ok(());
        };
        inner.saw_of(session_id, State::EncryptedKeys);
        // What is compressed inside crosses as what it was made of; no peer insists on compression.
        let limit = MESSAGE_LEN_MAX - TRANSFORM_HEADER_LEN;
        let mut plain = match MessageKind::of(&plain) {
            MessageKind::Compressed => match decompress_message(&plain, limit) {
                // Nothing cannot be sealed: what comes to that crosses as it is.
                Ok(message) if !message.is_empty() => BytesMut::from(Bytes::from(message)),
                _ => plain,
            },
            _ => plain,
        };
        match self.elements(inner, &mut plain, Some(session_id)) {
            Some(elements) => self.pass(inner, Some(session_id), plain, elements, draft),
            None => {
                inner.cannot_change(Obstacle::NoKeys);
                draft.end();
                record::put_head(&mut draft.record, Kind::SealedRaw, 0);
                draft.record.extend_from_slice(&session_id.to_le_bytes());
                varint::put(&mut draft.record, plain.len() as u64);
                draft.lan += lan_len(plain.len(), true);
                draft.content.push(plain.freeze());
                draft.end();
            }
        }
        Ok(())
    }

    /// Where the elements of a message are, and their content; nothing if it cannot cross as structure.
    fn parts(&self, inner: &Inner, message: &[u8]) -> Option<Vec<(Range<usize>, Part)>> {
        if MessageKind::of(message) != MessageKind::Smb2 {
            return None;
        }
        let ranges: Vec<Range<usize>> = compound::elements(message).collect::<Result<_, _>>().ok()?;
        let parts: Vec<(Range<usize>, Part)> = ranges
            .into_iter()
            .map(|range| {
                let element = message.get(range.clone())?;
                let right = Header::parse(element).ok()?.is_response() == self.way.is_response();
                right.then(|| (range, Part::of(element, self.way)))
            })
            .collect::<Option<_>>()?;
        let content: usize = parts.iter().map(|(_, part)| part.range().len()).sum();
        let fits = message.len() - content <= SKELETON_BYTES_MAX;
        let room = self.way == Way::Response || inner.tracker.room() >= parts.len();
        (fits && room).then_some(parts)
    }

    /// The elements of a message, with signatures verified; nothing if it cannot cross as structure.
    fn elements(&self, inner: &mut Inner, message: &mut [u8], sealed: Option<u64>) -> Option<Vec<Element>> {
        let parts = self.parts(inner, message)?;
        let mut before = 0;
        let mut elements = Vec::with_capacity(parts.len());
        for (range, part) in parts {
            let element = message.get_mut(range.clone())?;
            let session_id = session_of(element, before);
            before = session_id;
            let sign = sealed.is_none() && verify(inner, self.way, session_id, element);
            elements.push(Element { range, sign, part });
        }
        Some(elements)
    }

    fn encode(&mut self, inner: &mut Inner, message: &Bytes, elements: &[Element], draft: &mut Draft) {
        for element in elements {
            let bytes = message.get(element.range.clone()).unwrap_or(&[]);
            let content = element.part.range();
            let mut skeleton = Vec::with_capacity(bytes.len() - content.len());
            skeleton.extend_from_slice(bytes.get(..content.start).unwrap_or(&[]));
            skeleton.extend_from_slice(bytes.get(content.end..).unwrap_or(&[]));
            set_next_command(&mut skeleton, 0);
            if element.sign
                && let Some(signature) = skeleton.get_mut(SIGNATURE)
            {
                signature.fill(0);
            }
            self.codec.encode(&mut inner.tracker, &skeleton, &element.part, element.sign, &mut draft.record);
            if !content.is_empty() {
                let start = element.range.start;
                draft.content.push(message.slice(start + content.start..start + content.end));
            }
        }
    }
}

impl Draft {
    /// Bytes that cross as they are.
    fn raw(&mut self, bytes: Bytes) {
        self.end();
        self.lan += bytes.len();
        if bytes.len() <= RAW_INLINE_BYTES_MAX {
            record::put_head(&mut self.record, Kind::Raw, 0);
            self.record.extend_from_slice(&bytes);
        } else {
            record::put_head(&mut self.record, Kind::RawContent, 0);
            varint::put(&mut self.record, bytes.len() as u64);
            self.content.push(bytes);
        }
        self.end();
    }

    /// What the engine says.
    fn ahead(&mut self, inner: &mut Inner, told: Told) {
        self.end();
        let Told { answers, head, content } = told;
        if let Some(place) = answers.and_then(|message_id| inner.tracker.find(message_id)) {
            inner.tracker.answered(place, None);
        }
        record::put_head(&mut self.record, Kind::Ahead, 0);
        varint::put(&mut self.record, answers.map_or(0, |message_id| message_id.saturating_add(1)));
        varint::put(&mut self.record, content.len() as u64);
        self.record.extend_from_slice(&head);
        self.lan += content.len();
        if !content.is_empty() {
            self.content.push(content);
        }
        self.end();
    }

    /// The record that was begun is whole.
    fn end(&mut self) {
        if !self.record.is_empty() {
            varint::put(&mut self.structure, self.record.len() as u64);
            self.structure.append(&mut self.record);
        }
    }

    fn observe(&mut self, inner: &mut Inner, way: Way, message: &[u8], elements: &[Element]) {
        for element in elements {
            let bytes = message.get(element.range.clone()).unwrap_or(&[]);
            if let Some(accepted) = inner.observe(way, bytes, elements.len() == 1) {
                self.accepted = Some((accepted, Bytes::copy_from_slice(message)));
            }
        }
    }
}

/// How an encrypted message was opened, and for which session.
enum Plain {
    InPlace(u64),
    Copy(u64, Vec<u8>),
}

/// Opens an encrypted message; nothing if there are no keys for it.
fn plaintext(inner: &mut Inner, frame: &mut [u8]) -> Result<Option<Plain>, IntakeError> {
    let Some(message) = frame.get_mut(FRAME_HEADER_LEN..) else { return Ok(None) };
    let Ok(TransformHeader { session_id, .. }) = TransformHeader::parse(message) else { return Ok(None) };
    let Some(crypto) = inner.crypto(session_id) else { return Ok(None) };
    let Some(opener) = &crypto.opener else { return Ok(None) };
    if crypto.proved && crypto.opened {
        return match opener.open(message) {
            Ok(_) => Ok(Some(Plain::InPlace(session_id))),
            Err(OpenError::NotAuthentic) => Err(IntakeError::NotAuthentic),
            // Left as it was, for its receiver to refuse.
            Err(_) => Ok(None),
        };
    }
    let mut plain = Vec::new();
    match opener.open_copy(message, &mut plain) {
        Ok(()) => {
            crypto.opened = true;
            inner.proved(session_id);
            Ok(Some(Plain::Copy(session_id, plain)))
        }
        Err(OpenError::NotAuthentic) => {
            inner.cannot_open(session_id);
            Ok(None)
        }
        Err(_) => Ok(None),
    }
}

fn kind_of(frame: &[u8]) -> MessageKind {
    match frame.split_at_checked(FRAME_HEADER_LEN) {
        Some(([0, ..], message)) => MessageKind::of(message),
        _ => MessageKind::Unknown,
    }
}

/// Session of an element; a related one may leave it to the element before it.
pub(crate) fn session_of(element: &[u8], before: u64) -> u64 {
    let header = Head(element);
    if header.is_related() && header.session_id() == u64::MAX { before } else { header.session_id() }
}

/// Whether an element is signed, and rightly so, by keys that the other proxy has too, so that its signature need not
/// cross. Signatures of the messages that make a session are left as they are.
fn verify(inner: &mut Inner, way: Way, session_id: u64, element: &mut [u8]) -> bool {
    let header = Head(element);
    let command = header.command();
    // A session that is there already has its keys when it is authenticated again.
    let renews = command == Command::SESSION_SETUP
        && inner.has_engine()
        && inner.crypto(session_id).is_some_and(|crypto| crypto.proved);
    if session_id == 0 || header.makes_session() && !renews {
        return false;
    }
    if !header.is_signed() {
        inner.saw_plain(session_id, command, State::Clear);
        return false;
    }
    let Some(crypto) = inner.crypto(session_id) else {
        inner.saw_plain(session_id, command, State::SignedNoKeys);
        return false;
    };
    let right = crypto.signer.verify_in_place(element, way.is_response());
    if !crypto.proved {
        if right { inner.proved(session_id) } else { inner.disproved(session_id) }
    }
    let held = inner.crypto(session_id).is_some();
    let state = if held { State::SignedKeys } else { State::SignedNoKeys };
    inner.saw_plain(session_id, command, state);
    right || held && way.is_response() && inner.is_mirrored(element)
}
