use crate::{Error, Hello, Instance, Message, Open, limits};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use isthmus_types::limits::{DOMAIN_LEN_MAX, FRAME_WIRE_BYTES_MAX, HOST_LEN_MAX};
use isthmus_types::{Domain, Reason, Side, StoreId, varint};
use std::net::{IpAddr, SocketAddr};

/// Name of a channel across its links; both sides derive it from the first link's TLS session.
pub type ChannelId = [u8; 16];
/// HMAC-SHA256 that shows knowledge of a channel's secret on a new link.
pub type Proof = [u8; 32];

/// One frame on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A session's message. All but the terminal ones are counted in sequence.
    Message(Message),
    /// Acknowledgement, outside the sequence.
    Ack(Ack),
    /// First frame of each side on a control channel.
    Hello(Hello),
    /// First frame of a new channel's first link: the client-side process it belongs to.
    Join { instance: Instance },
    /// Answer to a join or hello that was accepted.
    Joined,
    /// First frame of a link that takes over a channel: sequenced frames that arrived so far, and the proof.
    Resume { channel: ChannelId, arrived: u64, proof: Proof },
    /// Answer to a resume that was accepted.
    Resumed { arrived: u64, proof: Proof },
    /// Answer to a hello, join or resume that was not; the link then closes.
    Refuse { reason: Reason, detail: String },
    /// Asks for a pong with the same token.
    Ping { token: u64 },
    /// Answers a ping.
    Pong { token: u64 },
    /// On a control channel, server to client: this channel's link has gone silent; the client should make sure of it.
    Doubt { channel: ChannelId },
}

/// Growth of three counters since the last acknowledgement on the same link (since zero, on the first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Lowest bit of the session's number: an acknowledgement that crosses a session's end is told by it.
    pub odd: bool,
    /// Sequenced frames that the receiver's application has taken, over the channel's life.
    pub taken: u64,
    /// Data messages of this session that are restored.
    pub restored: u64,
    /// LAN bytes of this session that are delivered.
    pub delivered: u64,
}

/// Takes one whole frame off the front of `buffer`; `None` when more bytes are needed.
///
/// Pure: it reads nothing but `buffer`, and after an error the buffer's content is unspecified. Lengths are checked
/// before the body has arrived, so a peer cannot make the caller gather more than the largest legal frame.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, Error> {
    let mut rest: &[u8] = buffer;
    let Some(head) = varint::take(&mut rest) else {
        return if buffer.len() >= HEADER_BYTES_MAX { Err(BAD_HEADER) } else { Ok(None) };
    };
    let header = buffer.len() - rest.len();
    let (kind, body) = ((head & 7) as u8, head >> 3);
    if header > HEADER_BYTES_MAX || body > body_bytes_max(kind)? as u64 {
        return Err(Error::InvalidMessage("frame longer than allowed"));
    }
    let body = body as usize;
    if rest.len() < body {
        return Ok(None);
    }
    buffer.advance(header);
    let body = if body < limits::SHARED_BODY_BYTES_MIN {
        let copy = Bytes::copy_from_slice(&buffer[..body]);
        buffer.advance(body);
        copy
    } else {
        buffer.split_to(body).freeze()
    };
    match kind {
        KIND_DATA if body.is_empty() => Err(Error::InvalidMessage("empty data")),
        KIND_DATA => Ok(Some(Frame::Message(Message::Data(body)))),
        KIND_SIGNAL => signal(body).map(|message| Some(Frame::Message(message))),
        KIND_LINK => link(&body).map(Some),
        _ => ack(&body, kind == KIND_ACK_ODD).map(|ack| Some(Frame::Ack(ack))),
    }
}

/// Appends the encoding of `frame` to `out`.
pub fn encode(frame: &Frame, out: &mut BytesMut) {
    match frame {
        Frame::Message(message) => {
            let (kind, body) = encode_message(message);
            put_header(out, kind, body.len());
            out.put_slice(&body);
        }
        Frame::Ack(ack) => encode_ack(ack, out),
        _ => {
            let mut body = BytesMut::new();
            encode_link(frame, &mut body);
            put_header(out, KIND_LINK, body.len());
            out.put_slice(&body);
        }
    }
}

/// The frame kind and body of a message; the body of `Data` is shared, not copied.
pub(crate) fn encode_message(message: &Message) -> (u8, Bytes) {
    let mut body = BytesMut::new();
    match message {
        Message::Data(data) => return (KIND_DATA, data.clone()),
        Message::Open(open) => encode_open(open, &mut body),
        Message::Opened { recording } => {
            body.put_u8(SIGNAL_OPENED);
            body.put_u64_le(*recording);
        }
        Message::Feedback(data) => {
            body.put_u8(SIGNAL_FEEDBACK);
            body.put_slice(data);
        }
        Message::Fin => body.put_u8(SIGNAL_FIN),
        Message::Failed { reason, detail } => {
            body.put_slice(&[SIGNAL_FAILED, reason.code()]);
            put_text(&mut body, detail, limits::DETAIL_BYTES_MAX);
        }
        Message::Reset { reason } => body.put_slice(&[SIGNAL_RESET, reason.code()]),
    }
    (KIND_SIGNAL, body.freeze())
}

/// Appends a frame header: one variable-length integer, the body's length times eight plus the kind.
pub(crate) fn put_header(out: &mut impl BufMut, kind: u8, body: usize) {
    varint::put(out, (body as u64) << 3 | u64::from(kind));
}

/// Longest header that a legal frame has.
pub(crate) const HEADER_BYTES_MAX: usize = 4;

const BAD_HEADER: Error = Error::InvalidMessage("frame header");
const BAD_BODY: Error = Error::InvalidMessage("frame body");

const KIND_DATA: u8 = 0;
const KIND_ACK_EVEN: u8 = 1;
const KIND_SIGNAL: u8 = 2;
const KIND_LINK: u8 = 3;
const KIND_ACK_ODD: u8 = 4;

const SIGNAL_OPEN: u8 = 1;
const SIGNAL_OPENED: u8 = 2;
const SIGNAL_FAILED: u8 = 3;
const SIGNAL_FEEDBACK: u8 = 4;
const SIGNAL_FIN: u8 = 6;
const SIGNAL_RESET: u8 = 7;

const LINK_HELLO: u8 = 1;
const LINK_JOIN: u8 = 2;
const LINK_JOINED: u8 = 3;
const LINK_RESUME: u8 = 4;
const LINK_RESUMED: u8 = 5;
const LINK_REFUSE: u8 = 6;
const LINK_PING: u8 = 7;
const LINK_PONG: u8 = 8;
const LINK_DOUBT: u8 = 9;

const OPEN_FLAG_REDUCE: u8 = 1;
const OPEN_FLAG_STRUCTURED: u8 = 2;
const OPEN_FLAG_ACCELERATED: u8 = 4;

fn body_bytes_max(kind: u8) -> Result<usize, Error> {
    match kind {
        KIND_DATA => Ok(FRAME_WIRE_BYTES_MAX),
        KIND_SIGNAL => Ok(limits::SIGNAL_BODY_BYTES_MAX),
        KIND_LINK => Ok(limits::LINK_BODY_BYTES_MAX),
        KIND_ACK_EVEN | KIND_ACK_ODD => Ok(limits::ACK_BODY_BYTES_MAX),
        _ => Err(Error::InvalidMessage("unknown frame kind")),
    }
}

fn encode_ack(ack: &Ack, out: &mut BytesMut) {
    let mut body = BytesMut::new();
    let counters = [ack.taken, ack.restored, ack.delivered];
    let used = counters.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
    counters[..used].iter().for_each(|&n| varint::put(&mut body, n));
    put_header(out, if ack.odd { KIND_ACK_ODD } else { KIND_ACK_EVEN }, body.len());
    out.put_slice(&body);
}

fn ack(mut body: &[u8], odd: bool) -> Result<Ack, Error> {
    let mut counters = [0; 3];
    for counter in &mut counters {
        if !body.is_empty() {
            *counter = varint::take(&mut body).ok_or(BAD_BODY)?;
        }
    }
    let [taken, restored, delivered] = counters;
    if body.is_empty() { Ok(Ack { odd, taken, restored, delivered }) } else { Err(BAD_BODY) }
}

fn encode_open(open: &Open, body: &mut BytesMut) {
    let flags = [
        (open.reduce, OPEN_FLAG_REDUCE),
        (open.structured, OPEN_FLAG_STRUCTURED),
        (open.accelerated, OPEN_FLAG_ACCELERATED),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag);
    body.put_slice(&[SIGNAL_OPEN, flags]);
    body.put_u64_le(open.recording);
    body.put_u16(open.port);
    put_text(body, &open.host, HOST_LEN_MAX);
    put_text(body, &open.domain.0, DOMAIN_LEN_MAX);
    match open.source.ip() {
        IpAddr::V4(ip) => body.put_slice(&ip.octets()),
        IpAddr::V6(ip) => body.put_slice(&ip.octets()),
    }
    body.put_u16(open.source.port());
}

fn open(mut body: &[u8]) -> Result<Open, Error> {
    let input = &mut body;
    let flags = take_u8(input)?;
    if flags & !(OPEN_FLAG_REDUCE | OPEN_FLAG_STRUCTURED | OPEN_FLAG_ACCELERATED) != 0 {
        return Err(Error::PeerIncompatible("unknown flags in an open".into()));
    }
    let recording = u64::from_le_bytes(take_array(input)?);
    let port = u16::from_be_bytes(take_array(input)?);
    let host = take_text(input, HOST_LEN_MAX)?;
    let domain = Domain(take_text(input, DOMAIN_LEN_MAX)?);
    let ip = match input.len() {
        6 => IpAddr::from(take_array::<4>(input)?),
        18 => IpAddr::from(take_array::<16>(input)?),
        _ => return Err(BAD_BODY),
    };
    let source = SocketAddr::new(ip, u16::from_be_bytes(take_array(input)?));
    if host.is_empty() {
        return Err(Error::InvalidMessage("open without a host"));
    }
    let has = |flag| flags & flag != 0;
    Ok(Open {
        host,
        port,
        domain,
        reduce: has(OPEN_FLAG_REDUCE),
        structured: has(OPEN_FLAG_STRUCTURED),
        accelerated: has(OPEN_FLAG_ACCELERATED),
        recording,
        source,
    })
}

fn signal(mut body: Bytes) -> Result<Message, Error> {
    let whole = body.len();
    let mut rest: &[u8] = &body;
    let input = &mut rest;
    let message = match take_u8(input)? {
        SIGNAL_OPEN => Message::Open(open(std::mem::take(input))?),
        SIGNAL_OPENED => Message::Opened { recording: u64::from_le_bytes(take_array(input)?) },
        SIGNAL_FAILED => Message::Failed {
            reason: take_reason(input)?,
            detail: take_text(input, limits::DETAIL_BYTES_MAX)?,
        },
        SIGNAL_FEEDBACK if input.is_empty() => return Err(Error::InvalidMessage("empty feedback")),
        SIGNAL_FEEDBACK => {
            let start = whole - std::mem::take(input).len();
            return Ok(Message::Feedback(body.split_off(start)));
        }
        SIGNAL_FIN => Message::Fin,
        SIGNAL_RESET => Message::Reset { reason: take_reason(input)? },
        _ => return Err(Error::InvalidMessage("unknown signal")),
    };
    if rest.is_empty() { Ok(message) } else { Err(BAD_BODY) }
}

fn encode_link(frame: &Frame, body: &mut BytesMut) {
    match frame {
        Frame::Hello(hello) => encode_hello(hello, body),
        Frame::Join { instance } => {
            body.put_u8(LINK_JOIN);
            body.put_slice(instance);
        }
        Frame::Joined => body.put_u8(LINK_JOINED),
        Frame::Resume { channel, arrived, proof } => {
            body.put_u8(LINK_RESUME);
            body.put_slice(channel);
            varint::put(body, *arrived);
            body.put_slice(proof);
        }
        Frame::Resumed { arrived, proof } => {
            body.put_u8(LINK_RESUMED);
            varint::put(body, *arrived);
            body.put_slice(proof);
        }
        Frame::Refuse { reason, detail } => {
            body.put_slice(&[LINK_REFUSE, reason.code()]);
            put_text(body, detail, limits::DETAIL_BYTES_MAX);
        }
        Frame::Ping { token } => {
            body.put_u8(LINK_PING);
            varint::put(body, *token);
        }
        Frame::Pong { token } => {
            body.put_u8(LINK_PONG);
            varint::put(body, *token);
        }
        Frame::Doubt { channel } => {
            body.put_u8(LINK_DOUBT);
            body.put_slice(channel);
        }
        // The caller has dealt with these two.
        Frame::Message(_) | Frame::Ack(_) => {}
    }
}

fn link(mut body: &[u8]) -> Result<Frame, Error> {
    let input = &mut body;
    let frame = match take_u8(input)? {
        LINK_HELLO => return hello(body).map(Frame::Hello),
        LINK_JOIN => Frame::Join { instance: take_array(input)? },
        LINK_JOINED => Frame::Joined,
        LINK_RESUME => Frame::Resume {
            channel: take_array(input)?,
            arrived: take_varint(input)?,
            proof: take_array(input)?,
        },
        LINK_RESUMED => Frame::Resumed { arrived: take_varint(input)?, proof: take_array(input)? },
        LINK_REFUSE => {
            Frame::Refuse { reason: take_reason(input)?, detail: take_text(input, limits::DETAIL_BYTES_MAX)? }
        }
        LINK_PING => Frame::Ping { token: take_varint(input)? },
        LINK_PONG => Frame::Pong { token: take_varint(input)? },
        LINK_DOUBT => Frame::Doubt { channel: take_array(input)? },
        _ => return Err(Error::InvalidMessage("unknown link frame")),
    };
    if body.is_empty() { Ok(frame) } else { Err(BAD_BODY) }
}

fn encode_hello(hello: &Hello, body: &mut BytesMut) {
    body.put_u8(LINK_HELLO);
    body.put_u16_le(hello.versions.0);
    body.put_u16_le(hello.versions.1);
    body.put_u64_le(hello.capabilities);
    body.put_u8(if hello.role == Side::Client { 0 } else { 1 });
    body.put_slice(&hello.store.0);
    body.put_u64_le(hello.generation);
    body.put_slice(&hello.instance);
    put_text(body, &hello.software, limits::VERSION_BYTES_MAX);
    if let Some(clock_ms) = hello.clock_ms {
        body.put_u64_le(clock_ms);
    }
}

/// Reads a hello. Bytes after the known fields are left alone: a newer version may have added some.
fn hello(mut body: &[u8]) -> Result<Hello, Error> {
    let input = &mut body;
    let versions = (u16::from_le_bytes(take_array(input)?), u16::from_le_bytes(take_array(input)?));
    if versions.0 > versions.1 {
        return Err(Error::InvalidMessage("version range"));
    }
    Ok(Hello {
        versions,
        capabilities: u64::from_le_bytes(take_array(input)?),
        role: match take_u8(input)? {
            0 => Side::Client,
            1 => Side::Server,
            _ => return Err(Error::InvalidMessage("role")),
        },
        store: StoreId(take_array(input)?),
        generation: u64::from_le_bytes(take_array(input)?),
        instance: take_array(input)?,
        software: take_text(input, limits::VERSION_BYTES_MAX)?,
        clock_ms: take_array(input).ok().map(u64::from_le_bytes),
    })
}

/// Appends a length byte and the text, cut to `max` (at most 255) bytes at a character's boundary.
fn put_text(out: &mut BytesMut, text: &str, max: usize) {
    let end = (0..=text.len().min(max)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    out.put_u8(end as u8);
    out.put_slice(&text.as_bytes()[..end]);
}

fn take_text(input: &mut &[u8], max: usize) -> Result<String, Error> {
    let len = usize::from(take_u8(input)?);
    if len > max || len > input.len() {
        return Err(BAD_BODY);
    }
    let (text, rest) = input.split_at(len);
    *input = rest;
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| Error::InvalidMessage("text is not UTF-8"))
}

fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], Error> {
    let (array, rest) = input.split_first_chunk::<N>().ok_or(BAD_BODY)?;
    *input = rest;
    Ok(*array)
}

fn take_u8(input: &mut &[u8]) -> Result<u8, Error> {
    take_array::<1>(input).map(|[byte]| byte)
}

fn take_varint(input: &mut &[u8]) -> Result<u64, Error> {
    varint::take(input).ok_or(BAD_BODY)
}

fn take_reason(input: &mut &[u8]) -> Result<Reason, Error> {
    Reason::from_code(take_u8(input)?).ok_or_else(|| Error::PeerIncompatible("unknown reason".into()))
}
