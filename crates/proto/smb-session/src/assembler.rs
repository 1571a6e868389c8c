//! From what crossed the WAN to a LAN socket.

use crate::codec::{Codec, Decoded, Way, set_next_command};
use crate::connection::{Connection, Inner};
use crate::engine::{Obstacle, lan_len};
use crate::error::AssembleError;
use crate::head::Head;
use crate::intake::session_of;
use crate::limits::{CONTENT_HELD_MAX, RAW_INLINE_BYTES_MAX, RECORD_BYTES_MAX, STRUCTURE_HELD_MAX};
use crate::note;
use crate::record::{self, Kind};
use crate::status::State;
use bytes::{Buf, Bytes, BytesMut};
use isthmus_accel::{Carriage, Fate};
use isthmus_smb_crypto::{TRANSFORM_HEADER_LEN, TransformHeader, is_transform};
use isthmus_smb_wire::compound::COMPOUND_ELEMENTS_MAX;
use isthmus_smb_wire::header::SIGNATURE;
use isthmus_smb_wire::transport::{FRAME_HEADER_LEN, MESSAGE_LEN_MAX, frame_header};
use isthmus_types::{Side, varint};
use std::collections::VecDeque;
use std::sync::Arc;

/// One proxy's half of a connection that makes what its LAN socket is to be sent.
pub struct Assembler {
    connection: Arc<Connection>,
    way: Way,
    codec: Codec,
    structure: BytesMut,
    content: Content,
    /// Read from structure, waiting for its content.
    pending: Option<Pending>,
    sealed_for: Option<u64>,
    /// How much more the records stand for, by the count of who sent them, than was given for the LAN.
    ahead: i64,
}

enum Pending {
    Raw(Bytes),
    RawContent(usize),
    Message { seal: Option<u64>, elements: Vec<Decoded> },
    SealedRaw { session_id: u64, length: usize },
    Ahead { head: Bytes, length: usize },
}

impl Assembler {
    /// The half for a connection's LAN socket on this proxy.
    pub fn new(connection: Arc<Connection>) -> Self {
        let way = connection.intake().other();
        Self {
            connection,
            way,
            codec: Codec::new(way),
            structure: BytesMut::new(),
            content: Content::default(),
            pending: None,
            sealed_for: None,
            ahead: 0,
        }
    }

    /// Takes a note of the other proxy.
    ///
    /// # Errors
    /// [`AssembleError::Note`] for what is no note, and for any on the server side, where keys come from.
    pub fn note(&mut self, bytes: &[u8]) -> Result<(), AssembleError> {
        if self.connection.side() == Side::Server {
            return Err(AssembleError::Note);
        }
        let entries = note::parse(bytes)?;
        let mut inner = self.connection.lock();
        entries.into_iter().for_each(|entry| inner.apply(entry));
        Ok(())
    }

    /// Appends structure.
    ///
    /// # Errors
    /// [`AssembleError::TooMuch`] when more is held than [`STRUCTURE_HELD_MAX`].
    pub fn structure(&mut self, bytes: &[u8]) -> Result<(), AssembleError> {
        if self.structure.len() + bytes.len() > STRUCTURE_HELD_MAX {
            return Err(AssembleError::TooMuch);
        }
        self.structure.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends content. More than [`CONTENT_HELD_MAX`] makes [`next`](Self::next) fail.
    pub fn content(&mut self, bytes: Bytes) {
        self.content.push(bytes);
    }

    /// The next whole LAN frame, once all of it is here: its pieces in order.
    ///
    /// # Errors
    /// [`AssembleError`]; the connection must be ended.
    #[expect(clippy::should_implement_trait, reason = "an iterator ends at its first None; this goes on")]
    pub fn next(&mut self) -> Result<Option<Vec<Bytes>>, AssembleError> {
        if self.content.length > CONTENT_HELD_MAX {
            return Err(AssembleError::TooMuch);
        }
        let connection = self.connection.clone();
        let mut inner = connection.lock();
        loop {
            if inner.lost {
                return Err(AssembleError::Seal);
            }
            if !inner.lan_out.is_empty() {
                let pieces: Vec<Bytes> = inner.lan_out.drain(..).collect();
                self.ahead -= pieces.iter().map(|piece| piece.len() as i64).sum::<i64>();
                return Ok(Some(pieces));
            }
            if self.pending.is_none() {
                self.pending = self.record(&mut inner)?;
            }
            let needed = self.pending.as_ref().map_or(0, Pending::content_len);
            if self.content.length < needed {
                return Ok(None);
            }
            let Some(pending) = self.pending.take() else { return Ok(None) };
            if let Some(pieces) = self.put_together(&mut inner, pending)? {
                return Ok(Some(pieces));
            }
        }
    }

    /// How much more, or less, was done than the bytes given for the LAN show, since the last call: what engines tell each
    /// other counts, and what they send of their own accord does not.
    pub fn take_ahead(&mut self) -> i64 {
        std::mem::take(&mut self.ahead)
    }

    /// The pieces of one record; nothing if the engine has taken it.
    fn put_together(
        &mut self,
        inner: &mut Inner,
        pending: Pending,
    ) -> Result<Option<Vec<Bytes>>, AssembleError> {
        let on_server = inner.has_engine() && self.way == Way::Request;
        Ok(Some(match pending {
            Pending::Raw(bytes) => self.raw(inner, vec![bytes]),
            Pending::RawContent(length) => {
                let pieces = self.content.take(length);
                self.raw(inner, pieces)
            }
            Pending::Message { seal, elements } if on_server => {
                return self.hand_to_engine(inner, seal, elements);
            }
            Pending::Message { seal: None, elements } => {
                let fate =
                    if inner.has_engine() { inner.engine_sees(&heads(&elements)) } else { Fate::Forward };
                let pieces = self.message(inner, elements)?;
                if fate == Fate::Consumed {
                    self.ahead += pieces.iter().map(|piece| piece.len() as i64).sum::<i64>();
                    return Ok(None);
                }
                pieces
            }
            Pending::Message { seal: Some(session_id), elements } => {
                let buffer = self.plaintext(inner, elements)?;
                let message = buffer.get(FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN..).unwrap_or(&[]);
                if inner.has_engine() && inner.engine_sees(message) == Fate::Consumed {
                    self.ahead += buffer.len() as i64;
                    return Ok(None);
                }
                vec![seal_message(inner, session_id, buffer)?]
            }
            Pending::SealedRaw { session_id, length } => {
                inner.cannot_change(Obstacle::NoKeys);
                let mut buffer = sealed_buffer(length);
                self.content.take(length).iter().for_each(|piece| buffer.extend_from_slice(piece));
                vec![seal_message(inner, session_id, buffer)?]
            }
            Pending::Ahead { head, length } => {
                let pieces = self.content.take(length);
                let content = match <[Bytes; 1]>::try_from(pieces) {
                    Ok([one]) => one,
                    Err(pieces) => Bytes::from(pieces.concat()),
                };
                self.ahead += length as i64;
                inner.engine_hears(self.way, &head, content)?;
                return Ok(None);
            }
        }))
    }

    /// A request on the server side, which the engine sends, if it may change it.
    fn hand_to_engine(
        &mut self,
        inner: &mut Inner,
        seal: Option<u64>,
        elements: Vec<Decoded>,
    ) -> Result<Option<Vec<Bytes>>, AssembleError> {
        let heads: Vec<Vec<u8>> = elements.iter().map(|element| element.skeleton.clone()).collect();
        let signs: Vec<bool> = elements.iter().map(|element| element.sign).collect();
        let Some(carriage) = inner.carriage(&heads, &signs, seal) else {
            let pieces = self.message(inner, elements)?;
            inner.engine_passes(&heads);
            return Ok(Some(pieces));
        };
        let buffer = match seal {
            Some(_) => self.plaintext(inner, elements)?,
            None => self.plaintext_of(inner, elements)?,
        };
        let message = buffer.get(FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN..).unwrap_or(&[]).to_vec();
        self.ahead += lan_len(message.len(), seal.is_some()) as i64;
        match carriage {
            Carriage::Plain => {
                let head = heads.first().map_or(&[][..], Vec::as_slice);
                let session_id = session_of(head, 0);
                if !Head(head).makes_session() && session_id != 0 {
                    inner.saw_plain(session_id, Head(head).command(), State::Clear);
                }
            }
            Carriage::Signed => {
                let head = heads.first().map_or(&[][..], Vec::as_slice);
                inner.saw_plain(session_of(head, 0), Head(head).command(), State::SignedKeys);
            }
            Carriage::Sealed(_) => {}
        }
        inner.engine_sends(self.way, carriage, message);
        Ok(None)
    }

    /// Whether nothing is half here.
    pub fn is_empty(&self) -> bool {
        self.held() == 0
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.structure.len() + self.content.length + self.pending.as_ref().map_or(0, Pending::held)
    }

    /// Reads the next record, if it is whole.
    fn record(&mut self, inner: &mut Inner) -> Result<Option<Pending>, AssembleError> {
        let mut rest = &self.structure[..];
        let Some(length) = varint::take(&mut rest) else {
            let bad = self.structure.len() >= varint::LEN_MAX;
            return if bad { Err(AssembleError::Malformed("length of a record")) } else { Ok(None) };
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= RECORD_BYTES_MAX);
        let length = length.ok_or(AssembleError::Malformed("record too long"))?;
        if rest.len() < length {
            return Ok(None);
        }
        let prefix = self.structure.len() - rest.len();
        self.structure.advance(prefix);
        let record = self.structure.split_to(length).freeze();
        self.parse(inner, &record).map(Some)
    }

    fn parse(&mut self, inner: &mut Inner, record: &Bytes) -> Result<Pending, AssembleError> {
        let mut input = &record[..];
        let (kind, count) = record::head(&mut input)?;
        let pending = match kind {
            Kind::Raw => {
                let bytes = record.slice(record.len() - input.len()..);
                input = &[];
                Pending::Raw(bytes)
            }
            Kind::RawContent => Pending::RawContent(raw_length(&mut input)?),
            Kind::Message => {
                Pending::Message { seal: None, elements: self.elements(inner, count, &mut input)? }
            }
            Kind::SealedFor | Kind::Sealed => {
                let session_id = match kind {
                    Kind::SealedFor => record::session_id(&mut input)?,
                    _ => self.sealed_for.ok_or(AssembleError::Malformed("no session"))?,
                };
                self.sealed_for = Some(session_id);
                let elements = self.elements(inner, count, &mut input)?;
                Pending::Message { seal: Some(session_id), elements }
            }
            Kind::Ahead => {
                let answered = record::number(&mut input)?;
                if let Some(message_id) = answered.checked_sub(1)
                    && let Some(place) = inner.tracker.find(message_id)
                {
                    inner.tracker.answered(place, None);
                }
                let length = raw_length(&mut input)?;
                let head = record.slice(record.len() - input.len()..);
                input = &[];
                Pending::Ahead { head, length }
            }
            Kind::SealedRaw => Pending::SealedRaw {
                session_id: record::session_id(&mut input)?,
                length: raw_length(&mut input)?,
            },
        };
        if !input.is_empty() {
            return Err(AssembleError::Malformed("bytes after the record"));
        }
        if pending.lan_len() > MESSAGE_LEN_MAX + FRAME_HEADER_LEN
            || matches!(pending, Pending::Message { seal: Some(_), .. } | Pending::SealedRaw { .. })
                && pending.lan_len() > MESSAGE_LEN_MAX - TRANSFORM_HEADER_LEN
        {
            return Err(AssembleError::Malformed("message too long"));
        }
        Ok(pending)
    }

    /// Sees an element as this proxy's LAN gets it.
    fn observe(&self, inner: &mut Inner, element: &[u8], alone: bool) -> Result<(), AssembleError> {
        match inner.observe(self.way, element, alone) {
            Some(accepted) => inner.begins(&accepted),
            None => Ok(()),
        }
    }

    fn elements(
        &mut self,
        inner: &mut Inner,
        count: u64,
        input: &mut &[u8],
    ) -> Result<Vec<Decoded>, AssembleError> {
        let fits = (1..=COMPOUND_ELEMENTS_MAX as u64).contains(&count);
        if !fits || (self.way == Way::Request && count > inner.tracker.room() as u64) {
            return Err(AssembleError::Malformed("number of elements"));
        }
        let mut elements = Vec::new();
        let mut held = 0;
        for _ in 0..count {
            let element = self.codec.decode(&mut inner.tracker, input)?;
            held += element.skeleton.len();
            if held > crate::limits::SKELETON_BYTES_MAX {
                return Err(AssembleError::Malformed("message too long"));
            }
            elements.push(element);
        }
        Ok(elements)
    }

    /// What crossed as it is.
    fn raw(&mut self, inner: &mut Inner, pieces: Vec<Bytes>) -> Vec<Bytes> {
        let first = pieces.first().and_then(|piece| piece.get(FRAME_HEADER_LEN..)).unwrap_or(&[]);
        if is_transform(first) {
            let session_id = TransformHeader::parse(first).map_or(0, |header| header.session_id);
            let has_keys = self.try_keys(inner, session_id, &pieces);
            if inner.crypto(session_id).is_none_or(|crypto| !crypto.proved) {
                inner.cannot_change(Obstacle::NoKeys);
            }
            let state = if has_keys { State::EncryptedKeys } else { State::EncryptedNoKeys };
            inner.saw_of(session_id, state);
        }
        pieces
    }

    /// An encrypted message that crossed as it is may show that keys, not proved so far, are right: says whether it has.
    fn try_keys(&self, inner: &mut Inner, session_id: u64, pieces: &[Bytes]) -> bool {
        let way = self.way;
        let Some(crypto) = inner.crypto(session_id).filter(|crypto| !crypto.proved) else { return false };
        let frame = pieces.concat();
        let message = frame.get(FRAME_HEADER_LEN..).unwrap_or(&[]);
        let plain = crypto.open_sent(message, way);
        match &plain {
            Some(plain) => {
                inner.proved(session_id);
                if way == Way::Request {
                    inner.engine_passes(&split(plain));
                }
            }
            None => inner.disproved(session_id),
        }
        plain.is_some()
    }

    /// A message in clear, with its signatures made again.
    fn message(&mut self, inner: &mut Inner, elements: Vec<Decoded>) -> Result<Vec<Bytes>, AssembleError> {
        let total: usize = elements.iter().map(|element| element.skeleton.len() + element.content_len).sum();
        let mut run = BytesMut::with_capacity(FRAME_HEADER_LEN + total.min(RAW_INLINE_BYTES_MAX));
        run.extend_from_slice(
            &frame_header(total).map_err(|_| AssembleError::Malformed("message too long"))?,
        );
        let (mut pieces, mut before, count) = (Vec::new(), 0, elements.len());
        for (index, mut element) in elements.into_iter().enumerate() {
            element.finish(index + 1 == count)?;
            before = session_of(&element.skeleton, before);
            let content = self.content.take(element.content_len);
            if element.sign {
                sign(inner, self.way, before, &mut element, &content)?;
            } else {
                self.see_signature(inner, before, &element, &content);
            }
            if content.is_empty() {
                self.observe(inner, &element.skeleton, count == 1)?;
            }
            let (head, tail) = element.parts();
            run.extend_from_slice(head);
            if !content.is_empty() {
                pieces.push(run.split().freeze());
                pieces.extend(content);
            }
            run.extend_from_slice(tail);
        }
        if !run.is_empty() {
            pieces.push(run.freeze());
        }
        Ok(pieces)
    }

    /// A signature that crossed may show that keys, not proved so far, are right.
    fn see_signature(&self, inner: &mut Inner, session_id: u64, element: &Decoded, content: &[Bytes]) {
        let header = Head(&element.skeleton);
        if session_id == 0 || header.makes_session() {
            return;
        }
        if !header.is_signed() {
            inner.saw_plain(session_id, header.command(), State::Clear);
            return;
        }
        let Some(crypto) = inner.crypto(session_id) else {
            inner.saw_plain(session_id, header.command(), State::SignedNoKeys);
            return;
        };
        if !crypto.proved {
            let right = crypto.signer.verify_parts(&element.with(content), self.way.is_response());
            if right { inner.proved(session_id) } else { inner.disproved(session_id) }
        }
    }

    /// Room for two headers, then a message to be encrypted.
    fn plaintext(&mut self, inner: &mut Inner, elements: Vec<Decoded>) -> Result<Vec<u8>, AssembleError> {
        if elements.iter().any(|element| element.sign) {
            return Err(AssembleError::Malformed("signature inside an encrypted message"));
        }
        self.plaintext_of(inner, elements)
    }

    /// Room for two headers, then a message in clear in one piece.
    fn plaintext_of(&mut self, inner: &mut Inner, elements: Vec<Decoded>) -> Result<Vec<u8>, AssembleError> {
        let total: usize = elements.iter().map(|element| element.skeleton.len() + element.content_len).sum();
        let mut buffer = sealed_buffer(total);
        let count = elements.len();
        for (index, mut element) in elements.into_iter().enumerate() {
            element.finish(index + 1 == count)?;
            if element.content_len == 0 {
                self.observe(inner, &element.skeleton, count == 1)?;
            }
            let (head, tail) = element.parts();
            buffer.extend_from_slice(head);
            self.content.take(element.content_len).iter().for_each(|piece| buffer.extend_from_slice(piece));
            buffer.extend_from_slice(tail);
        }
        Ok(buffer)
    }
}

impl Pending {
    fn content_len(&self) -> usize {
        match self {
            Self::Raw(_) => 0,
            Self::RawContent(length) | Self::SealedRaw { length, .. } | Self::Ahead { length, .. } => *length,
            Self::Message { elements, .. } => {
                elements.iter().map(|element| element.content_len).fold(0, usize::saturating_add)
            }
        }
    }

    /// Bytes held, content not counted.
    fn held(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::RawContent(_) | Self::SealedRaw { .. } => 1,
            Self::Ahead { head, .. } => head.len() + 1,
            Self::Message { elements, .. } => elements.iter().map(|element| element.skeleton.len()).sum(),
        }
    }

    fn lan_len(&self) -> usize {
        let skeletons = if matches!(self, Self::Message { .. }) { self.held() } else { 0 };
        skeletons.saturating_add(self.content_len())
    }
}

impl Decoded {
    /// Sets what follows from the element's length and place.
    fn finish(&mut self, last: bool) -> Result<(), AssembleError> {
        let length = self.skeleton.len() + self.content_len;
        let next = u32::try_from(length).map_err(|_| AssembleError::Malformed("message too long"))?;
        set_next_command(&mut self.skeleton, if last { 0 } else { next });
        Ok(())
    }

    /// What stands before and after the content.
    fn parts(&self) -> (&[u8], &[u8]) {
        self.skeleton.split_at_checked(self.content_at).unwrap_or((&self.skeleton, &[]))
    }

    fn with<'a>(&'a self, content: &'a [Bytes]) -> Vec<&'a [u8]> {
        if content.is_empty() {
            return vec![&self.skeleton];
        }
        let (head, tail) = self.parts();
        std::iter::once(head).chain(content.iter().map(|piece| &piece[..])).chain([tail]).collect()
    }
}

/// Content in the order in which it came.
#[derive(Default)]
struct Content {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Content {
    fn push(&mut self, bytes: Bytes) {
        self.length = self.length.saturating_add(bytes.len());
        if !bytes.is_empty() {
            self.pieces.push_back(bytes);
        }
    }

    /// The next bytes, of which there must be enough.
    fn take(&mut self, length: usize) -> Vec<Bytes> {
        let (mut taken, mut missing) = (Vec::new(), length);
        while missing > 0
            && let Some(mut piece) = self.pieces.pop_front()
        {
            if piece.len() > missing {
                self.pieces.push_front(piece.split_off(missing));
            }
            missing -= piece.len();
            self.length -= piece.len();
            taken.push(piece);
        }
        taken
    }
}

fn raw_length(input: &mut &[u8]) -> Result<usize, AssembleError> {
    usize::try_from(record::number(input)?).map_err(|_| AssembleError::Malformed("length"))
}

fn sign(
    inner: &mut Inner,
    way: Way,
    session_id: u64,
    element: &mut Decoded,
    content: &[Bytes],
) -> Result<(), AssembleError> {
    let crypto = inner.crypto(session_id).filter(|crypto| crypto.proved).ok_or(AssembleError::NoKeys)?;
    let signature = crypto.signer.signature_of_parts(&element.with(content), way.is_response());
    let signature = signature.map_err(|_| AssembleError::Seal)?;
    if let Some(place) = element.skeleton.get_mut(SIGNATURE) {
        place.copy_from_slice(&signature);
    }
    inner.saw_plain(session_id, Head(&element.skeleton).command(), State::SignedKeys);
    Ok(())
}

/// A message without its content, for the engine to see what it is.
fn heads(elements: &[Decoded]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        let mut skeleton = element.skeleton.clone();
        let next = if index + 1 == elements.len() { 0 } else { skeleton.len() as u32 };
        set_next_command(&mut skeleton, next);
        all.extend_from_slice(&skeleton);
    }
    all
}

/// The elements of a message, each on its own.
fn split(message: &[u8]) -> Vec<Vec<u8>> {
    let ranges = isthmus_smb_wire::compound::elements(message).flatten();
    ranges.filter_map(|range| Some(message.get(range)?.to_vec())).collect()
}

fn sealed_buffer(length: usize) -> Vec<u8> {
    let head = FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN;
    let mut buffer = Vec::with_capacity(head + length);
    buffer.resize(head, 0);
    buffer
}

/// Encrypts what follows the room for the two headers.
pub(crate) fn seal_message(
    inner: &mut Inner,
    session_id: u64,
    mut buffer: Vec<u8>,
) -> Result<Bytes, AssembleError> {
    let crypto = inner.crypto(session_id).filter(|crypto| crypto.proved).ok_or(AssembleError::NoKeys)?;
    let sealer = crypto.sealer.as_mut().ok_or(AssembleError::NoKeys)?;
    let header = frame_header(buffer.len() - FRAME_HEADER_LEN).map_err(|_| AssembleError::Seal)?;
    let (place, message) = buffer.split_at_mut_checked(FRAME_HEADER_LEN).ok_or(AssembleError::Seal)?;
    place.copy_from_slice(&header);
    sealer.seal(session_id, message).map_err(|_| AssembleError::Seal)?;
    inner.saw_of(session_id, State::EncryptedKeys);
    Ok(Bytes::from(buffer))
}
