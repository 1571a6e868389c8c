//! What the engines tell each other (docs/protocol-accel.md).

use crate::limits::{PATTERNS_MAX, POLICY_RULES_MAX, TOLD_BYTES_MAX};
use crate::message::Key;
use crate::policy::{Mode, Pattern, Policy, PolicyRule};
use crate::{Carriage, Told};
use bytes::Bytes;
use isthmus_smb_wire::FileId;
use isthmus_types::varint;

/// What the other engine said cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer's acceleration engine said something malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Said by the far engine.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ToNear {
    /// From now on the engines work; strictly, if that is asked for here.
    Hello { strict: bool },
    /// A handle that is open at the server for whoever asks for just this.
    Offer(Box<Offer>),
    /// The handle is no longer to be had.
    Withdraw(u32),
    /// Content of an open, from an offset on; `end` when the file ends after it.
    Data { file_id: FileId, offset: u64, end: bool, tag: u64 },
    /// What was told of the content of an open may have changed.
    Purge(FileId),
    /// The next part of a listing of an open; the response is the content.
    Listing { file_id: FileId, key: Key },
    /// The answer to a request that may come, while the watch stands; the response is the content.
    Known { key: Key, watch: u32, tag: u64 },
    /// The response to this request, which has just come, is good while the watch stands.
    Keep { message_id: u64, watch: u32, tag: u64 },
    /// The watch has seen a change, or is gone.
    Unwatch(u32),
    /// This request is to be answered from what is there.
    Answer(u64),
    /// The echo of a ping.
    Pong(u64),
    /// WRITEs to this open may be answered before the server has them.
    Behind(FileId),
    /// A WRITE that was answered so is done, well or not.
    Written { message_id: u64, file_id: FileId, good: bool },
    /// What this side allows beside what the other does.
    Policy(Policy),
    /// The attributes in the response to the CREATE of this open hold until they are taken back.
    Attributes { file_id: FileId, tag: u64 },
}

/// A handle opened ahead.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub id: u32,
    /// What a CREATE must ask for.
    pub key: Key,
    /// Name in the share.
    pub name: Vec<u8>,
    pub session: u64,
    /// State of the lease that holds it.
    pub lease_state: u32,
    pub tag: u64,
    /// Response of the server to the CREATE, without its lease.
    pub response: Vec<u8>,
    /// Answers to queries of the handle.
    pub answers: Vec<(Key, Vec<u8>)>,
    /// Bytes of the file that follow, from its start, as content.
    pub whole: bool,
}

/// Said by the near engine.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ToFar {
    /// The client's CREATE was answered with this offer.
    Claim { id: u32, carriage: Carriage, request: Vec<u8> },
    /// This request is answered; the server is to have it all the same.
    Quiet { carriage: Carriage, request: Vec<u8> },
    /// This request cannot be answered from what is there.
    Again { carriage: Carriage, request: Vec<u8> },
    /// Content up to here was used.
    Used { file_id: FileId, end: u64 },
    /// To be echoed: time of the near engine.
    Ping(u64),
    /// The WRITE of this message identifier, which follows, is answered.
    Behind(u64),
    /// What this side allows beside what the other does.
    Policy(Policy),
}

impl ToNear {
    pub fn told(&self, content: Bytes) -> Told {
        let mut head = Vec::new();
        let mut answers = None;
        match self {
            Self::Hello { strict } => head.extend_from_slice(&[0, (*strict).into()]),
            Self::Offer(offer) => {
                head.push(1);
                offer.put(&mut head);
            }
            Self::Withdraw(id) => {
                head.push(2);
                varint::put(&mut head, (*id).into());
            }
            Self::Data { file_id, offset, end, tag } => {
                head.push(3);
                put_id(&mut head, *file_id);
                varint::put(&mut head, *offset);
                head.push((*end).into());
                varint::put(&mut head, *tag);
            }
            Self::Purge(file_id) => {
                head.push(4);
                put_id(&mut head, *file_id);
            }
            Self::Listing { file_id, key } => {
                head.push(5);
                put_id(&mut head, *file_id);
                head.extend_from_slice(key);
            }
            Self::Known { key, watch, tag } => {
                head.push(6);
                head.extend_from_slice(key);
                varint::put(&mut head, (*watch).into());
                varint::put(&mut head, *tag);
            }
            Self::Keep { message_id, watch, tag } => {
                head.push(7);
                varint::put(&mut head, *message_id);
                varint::put(&mut head, (*watch).into());
                varint::put(&mut head, *tag);
            }
            Self::Unwatch(watch) => {
                head.push(8);
                varint::put(&mut head, (*watch).into());
            }
            Self::Answer(message_id) => {
                head.push(9);
                answers = Some(*message_id);
                varint::put(&mut head, *message_id);
            }
            Self::Pong(stamp) => {
                head.push(10);
                varint::put(&mut head, *stamp);
            }
            Self::Behind(file_id) => {
                head.push(11);
                put_id(&mut head, *file_id);
            }
            Self::Written { message_id, file_id, good } => {
                head.push(12);
                answers = Some(*message_id);
                varint::put(&mut head, *message_id);
                put_id(&mut head, *file_id);
                head.push((*good).into());
            }
            Self::Policy(policy) => {
                head.push(13);
                put_policy(&mut head, policy);
            }
            Self::Attributes { file_id, tag } => {
                head.push(14);
                put_id(&mut head, *file_id);
                varint::put(&mut head, *tag);
            }
        }
        Told { answers, head, content }
    }

    pub fn parse(head: &[u8]) -> Result<Self, Malformed> {
        let mut input = limited(head)?;
        let input = &mut input;
        let told = match byte(input)? {
            0 => Self::Hello { strict: byte(input)? != 0 },
            1 => Self::Offer(Box::new(Offer::take(input)?)),
            2 => Self::Withdraw(small(input)?),
            3 => Self::Data {
                file_id: id(input)?,
                offset: number(input)?,
                end: byte(input)? != 0,
                tag: number(input)?,
            },
            4 => Self::Purge(id(input)?),
            5 => Self::Listing { file_id: id(input)?, key: *array(input)? },
            6 => Self::Known { key: *array(input)?, watch: small(input)?, tag: number(input)? },
            7 => Self::Keep { message_id: number(input)?, watch: small(input)?, tag: number(input)? },
            8 => Self::Unwatch(small(input)?),
            9 => Self::Answer(number(input)?),
            10 => Self::Pong(number(input)?),
            11 => Self::Behind(id(input)?),
            12 => Self::Written { message_id: number(input)?, file_id: id(input)?, good: byte(input)? != 0 },
            13 => Self::Policy(policy(input)?),
            14 => Self::Attributes { file_id: id(input)?, tag: number(input)? },
            _ => return Err(Malformed("kind")),
        };
        if input.is_empty() { Ok(told) } else { Err(Malformed("bytes too many")) }
    }
}

impl Offer {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.id.into());
        out.extend_from_slice(&self.key);
        put_bytes(out, &self.name);
        out.extend_from_slice(&self.session.to_le_bytes());
        varint::put(out, self.lease_state.into());
        varint::put(out, self.tag);
        put_bytes(out, &self.response);
        varint::put(out, self.answers.len() as u64);
        for (key, response) in &self.answers {
            out.extend_from_slice(key);
            put_bytes(out, response);
        }
        out.push(self.whole.into());
    }

    fn take(input: &mut &[u8]) -> Result<Self, Malformed> {
        let id = small(input)?;
        let key = *array(input)?;
        let name = bytes(input)?.to_vec();
        let session = u64::from_le_bytes(*array(input)?);
        let (lease_state, tag) = (small(input)?, number(input)?);
        let response = bytes(input)?.to_vec();
        let count = number(input)?;
        if count > crate::limits::ANSWERS_MAX as u64 {
            return Err(Malformed("answers"));
        }
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push((*array(input)?, bytes(input)?.to_vec()));
        }
        Ok(Self { id, key, name, session, lease_state, tag, response, answers, whole: byte(input)? != 0 })
    }
}

impl ToFar {
    pub fn told(&self) -> Told {
        let mut head = Vec::new();
        match self {
            Self::Claim { id, carriage, request } => {
                head.push(0);
                varint::put(&mut head, (*id).into());
                put_message(&mut head, *carriage, request);
            }
            Self::Quiet { carriage, request } => {
                head.push(1);
                put_message(&mut head, *carriage, request);
            }
            Self::Again { carriage, request } => {
                head.push(2);
                put_message(&mut head, *carriage, request);
            }
            Self::Used { file_id, end } => {
                head.push(3);
                put_id(&mut head, *file_id);
                varint::put(&mut head, *end);
            }
            Self::Ping(stamp) => {
                head.push(4);
                varint::put(&mut head, *stamp);
            }
            Self::Behind(message_id) => {
                head.push(5);
                varint::put(&mut head, *message_id);
            }
            Self::Policy(policy) => {
                head.push(6);
                put_policy(&mut head, policy);
            }
        }
        Told { answers: None, head, content: Bytes::new() }
    }

    pub fn parse(head: &[u8]) -> Result<Self, Malformed> {
        let mut input = limited(head)?;
        let input = &mut input;
        let told = match byte(input)? {
            0 => {
                let id = small(input)?;
                let (carriage, request) = message(input)?;
                Self::Claim { id, carriage, request }
            }
            1 => {
                let (carriage, request) = message(input)?;
                Self::Quiet { carriage, request }
            }
            2 => {
                let (carriage, request) = message(input)?;
                Self::Again { carriage, request }
            }
            3 => Self::Used { file_id: id(input)?, end: number(input)? },
            4 => Self::Ping(number(input)?),
            5 => Self::Behind(number(input)?),
            6 => Self::Policy(policy(input)?),
            _ => return Err(Malformed("kind")),
        };
        if input.is_empty() { Ok(told) } else { Err(Malformed("bytes too many")) }
    }
}

fn limited(head: &[u8]) -> Result<&[u8], Malformed> {
    if head.len() > TOLD_BYTES_MAX { Err(Malformed("too long")) } else { Ok(head) }
}

fn put_id(out: &mut Vec<u8>, id: FileId) {
    out.extend_from_slice(&id.persistent.to_le_bytes());
    out.extend_from_slice(&id.volatile.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_message(out: &mut Vec<u8>, carriage: Carriage, request: &[u8]) {
    out.push(match carriage {
        Carriage::Plain => 0,
        Carriage::Signed => 1,
        Carriage::Sealed(_) => 2,
    });
    put_bytes(out, request);
}

fn message(input: &mut &[u8]) -> Result<(Carriage, Vec<u8>), Malformed> {
    let kind = byte(input)?;
    let request = bytes(input)?.to_vec();
    if isthmus_smb_wire::Header::parse(&request[..]).is_err() {
        return Err(Malformed("no request"));
    }
    let carriage = match kind {
        0 => Carriage::Plain,
        1 => Carriage::Signed,
        2 => Carriage::Sealed(crate::message::place(&request).0),
        _ => return Err(Malformed("protection")),
    };
    Ok((carriage, request))
}

fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    let flag = |value: Option<bool>| value.map_or(0, |value| 1 + u8::from(value));
    out.push(policy.mode as u8);
    varint::put(out, policy.rules.len() as u64);
    for rule in &policy.rules {
        for patterns in [&rule.shares, &rule.names] {
            varint::put(out, patterns.len() as u64);
            patterns.iter().for_each(|pattern| put_bytes(out, pattern.as_bytes()));
        }
        let mode = rule.mode.map_or(0, |mode| 1 + mode as u8);
        out.extend_from_slice(&[mode, flag(rule.write_behind), flag(rule.open_ahead)]);
    }
}

fn policy(input: &mut &[u8]) -> Result<Policy, Malformed> {
    let mode = mode(byte(input)?)?;
    let mut rules = Vec::new();
    for _ in 0..count(input, POLICY_RULES_MAX)? {
        let (shares, names) = (patterns(input)?, patterns(input)?);
        let mode = match byte(input)? {
            0 => None,
            one => Some(self::mode(one - 1)?),
        };
        let (write_behind, open_ahead) = (flag(input)?, flag(input)?);
        rules.push(PolicyRule { shares, names, mode, write_behind, open_ahead });
    }
    Ok(Policy { mode, rules })
}

fn patterns(input: &mut &[u8]) -> Result<Vec<Pattern>, Malformed> {
    let count = count(input, PATTERNS_MAX)?;
    (0..count).map(|_| Pattern::from_bytes(bytes(input)?).ok_or(Malformed("pattern"))).collect()
}

fn mode(byte: u8) -> Result<Mode, Malformed> {
    [Mode::Bounded, Mode::Strict, Mode::Off].get(usize::from(byte)).copied().ok_or(Malformed("mode"))
}

fn flag(input: &mut &[u8]) -> Result<Option<bool>, Malformed> {
    match byte(input)? {
        0 => Ok(None),
        one @ (1 | 2) => Ok(Some(one == 2)),
        _ => Err(Malformed("flag")),
    }
}

fn count(input: &mut &[u8], most: usize) -> Result<usize, Malformed> {
    usize::try_from(number(input)?).ok().filter(|count| *count <= most).ok_or(Malformed("too many"))
}

fn byte(input: &mut &[u8]) -> Result<u8, Malformed> {
    Ok(array::<1>(input)?[0])
}

fn array<'a, const N: usize>(input: &mut &'a [u8]) -> Result<&'a [u8; N], Malformed> {
    let (first, rest) = input.split_first_chunk().ok_or(Malformed("too short"))?;
    *input = rest;
    Ok(first)
}

fn id(input: &mut &[u8]) -> Result<FileId, Malformed> {
    let persistent = u64::from_le_bytes(*array(input)?);
    Ok(FileId { persistent, volatile: u64::from_le_bytes(*array(input)?) })
}

fn number(input: &mut &[u8]) -> Result<u64, Malformed> {
    varint::take(input).ok_or(Malformed("number"))
}

fn small(input: &mut &[u8]) -> Result<u32, Malformed> {
    u32::try_from(number(input)?).map_err(|_| Malformed("number too large"))
}

fn bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(number(input)?).map_err(|_| Malformed("length"))?;
    let (bytes, rest) = input.split_at_checked(length).ok_or(Malformed("length"))?;
    *input = rest;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_smb_wire::build;
    use proptest::prelude::*;

    fn echo(session: u64) -> Vec<u8> {
        crate::message::request(session, 3, 1, &build::Echo).unwrap()
    }

    fn offer() -> Offer {
        Offer {
            id: 7,
            key: [1; 16],
            name: b"n\0".to_vec(),
            session: 9,
            lease_state: 3,
            tag: 300,
            response: vec![5; 200],
            answers: vec![([2; 16], vec![6; 80])],
            whole: true,
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        let id = FileId { persistent: 1, volatile: 2 };
        for told in [
            ToNear::Hello { strict: true },
            ToNear::Offer(Box::new(offer())),
            ToNear::Withdraw(u32::MAX),
            ToNear::Data { file_id: id, offset: 1 << 40, end: true, tag: 5 },
            ToNear::Purge(id),
            ToNear::Listing { file_id: id, key: [9; 16] },
            ToNear::Known { key: [9; 16], watch: 4, tag: 0 },
            ToNear::Keep { message_id: 77, watch: 4, tag: 1 },
            ToNear::Unwatch(4),
            ToNear::Answer(12),
            ToNear::Pong(u64::MAX),
            ToNear::Behind(id),
            ToNear::Written { message_id: 12, file_id: id, good: false },
            ToNear::Policy(Policy::default()),
            ToNear::Attributes { file_id: id, tag: 9 },
        ] {
            let Told { answers, head, .. } = told.told(Bytes::new());
            assert!(ToNear::parse(&head).unwrap() == told, "{head:?}");
            let ends = matches!(told, ToNear::Answer(12) | ToNear::Written { .. });
            assert_eq!(answers, ends.then_some(12));
            let longer = [&head[..], &[0]].concat();
            assert!(ToNear::parse(&longer).is_err(), "{head:?} with a byte too many");
        }
        for told in [
            ToFar::Claim { id: 3, carriage: Carriage::Signed, request: echo(4) },
            ToFar::Quiet { carriage: Carriage::Sealed(4), request: echo(4) },
            ToFar::Again { carriage: Carriage::Plain, request: echo(4) },
            ToFar::Used { file_id: id, end: 99 },
            ToFar::Ping(1),
            ToFar::Behind(2),
            ToFar::Policy(Policy::default()),
            ToFar::Policy(Policy { mode: Mode::Off, rules: vec![PolicyRule::default(); POLICY_RULES_MAX] }),
        ] {
            let head = told.told().head;
            assert!(ToFar::parse(&head).unwrap() == told, "{head:?}");
        }
    }

    #[test]
    fn a_request_that_is_none_is_refused() {
        let mut head = vec![1, 0];
        put_bytes(&mut head, b"no message");
        assert!(ToFar::parse(&head) == Err(Malformed("no request")));
    }

    #[test]
    fn the_largest_policy_can_be_told() {
        let most = vec![Pattern::new(&"x".repeat(crate::PATTERN_CHARS_MAX)).unwrap(); PATTERNS_MAX];
        let rule = PolicyRule { shares: most.clone(), names: most, ..PolicyRule::default() };
        let policy = Policy { mode: Mode::Strict, rules: vec![rule; POLICY_RULES_MAX] };
        let head = ToFar::Policy(policy.clone()).told().head;
        assert!(ToFar::parse(&head) == Ok(ToFar::Policy(policy)));
    }

    proptest! {
        #[test]
        fn nothing_that_a_peer_says_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut out = crate::Out::default();
            let _ = crate::Far::new([7; 16], Policy::default()).told(1, &bytes, &mut out);
            let _ = crate::Near::new(Policy::default(), false).told(1, &bytes, Bytes::from(bytes.clone()), &mut out);
        }

        #[test]
        fn what_is_cut_or_altered_does_no_harm(at in 0usize..400, bit in 0u8..8) {
            let mut head = ToNear::Offer(Box::new(offer())).told(Bytes::new()).head;
            let at = at % head.len();
            prop_assert!(ToNear::parse(&head[..at]).is_err());
            head[at] ^= 1 << bit;
            let _ = ToNear::parse(&head);
        }
    }
}
