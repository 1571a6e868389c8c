//! What the server-side proxy tells the other about sessions (docs/protocol-smb.md). Notes hold keys, so their bytes are
//! wiped when done with.

use crate::error::AssembleError;
use crate::limits::{NOTE_BYTES_MAX, NOTE_TEXT_BYTES_MAX};
use isthmus_smb_crypto::{SESSION_KEYS_LEN, SessionKeys, SigningAlgorithm};
use isthmus_types::varint;
use zeroize::Zeroizing;

const KEYS: u8 = 1;
const NO_KEYS: u8 = 2;

/// One entry of a note.
pub(crate) enum Entry {
    /// Keys of a session that are proved right.
    Keys { session_id: u64, algorithm: SigningAlgorithm, keys: SessionKeys, user: String, domain: String },
    /// A session has no keys.
    NoKeys { session_id: u64, user: String, domain: String, reason: String },
}

impl Entry {
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Keys { session_id, algorithm, keys, user, domain } => {
                out.push(KEYS);
                out.extend_from_slice(&session_id.to_le_bytes());
                out.extend_from_slice(&algorithm.as_u16().to_le_bytes());
                out.extend_from_slice(keys.to_bytes().as_slice());
                put_text(out, user);
                put_text(out, domain);
            }
            Self::NoKeys { session_id, user, domain, reason } => {
                out.push(NO_KEYS);
                out.extend_from_slice(&session_id.to_le_bytes());
                put_text(out, user);
                put_text(out, domain);
                put_text(out, reason);
            }
        }
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let (kind, session_id) = (take::<1>(input)?, u64::from_le_bytes(*take(input)?));
        match *kind {
            [KEYS] => {
                let algorithm = SigningAlgorithm::from_u16(u16::from_le_bytes(*take(input)?))?;
                let keys = SessionKeys::from_bytes(take::<SESSION_KEYS_LEN>(input)?).ok()?;
                Some(Self::Keys { session_id, algorithm, keys, user: text(input)?, domain: text(input)? })
            }
            [NO_KEYS] => Some(Self::NoKeys {
                session_id,
                user: text(input)?,
                domain: text(input)?,
                reason: text(input)?,
            }),
            _ => None,
        }
    }
}

/// Entries that wait for the next crossing.
pub(crate) struct Outgoing(Zeroizing<Vec<u8>>);

impl Outgoing {
    pub fn new() -> Self {
        Self(Zeroizing::new(Vec::new()))
    }

    /// Adds an entry; what does not fit is left out, which leaves its session relayed as it is.
    pub fn add(&mut self, entry: &Entry) {
        let mut one = Zeroizing::new(Vec::with_capacity(ENTRY_BYTES_MAX));
        entry.put(&mut one);
        if self.0.is_empty() {
            // At once in full, so that growing leaves no copies of keys behind.
            self.0.reserve_exact(NOTE_BYTES_MAX);
        }
        if self.0.len() + one.len() <= NOTE_BYTES_MAX {
            self.0.extend_from_slice(&one);
        }
    }

    /// All entries since the last call.
    pub fn take(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        (!self.0.is_empty()).then(|| std::mem::replace(&mut self.0, Zeroizing::new(Vec::new())))
    }
}

/// The entries of a note.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Entry>, AssembleError> {
    if bytes.len() > NOTE_BYTES_MAX {
        return Err(AssembleError::Note);
    }
    let (mut rest, mut entries) = (bytes, Vec::new());
    while !rest.is_empty() {
        entries.push(Entry::take(&mut rest).ok_or(AssembleError::Note)?);
    }
    Ok(entries)
}

const ENTRY_BYTES_MAX: usize = 16 + SESSION_KEYS_LEN + 3 * (NOTE_TEXT_BYTES_MAX + 2);

fn take<'a, const N: usize>(input: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(first)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(NOTE_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or("");
    varint::put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn text(input: &mut &[u8]) -> Option<String> {
    let length =
        usize::try_from(varint::take(input)?).ok().filter(|length| *length <= NOTE_TEXT_BYTES_MAX)?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}
