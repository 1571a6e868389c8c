//! What a segment holds, in short: the body of its footer, and the same gathered while it is written or scanned.

use crate::format::{ADDR_END, CHUNKS_PER_RECORD_MAX, HEADER_LEN, NOTE_LEN_MAX, SEGMENT_BYTES_MAX};
use isthmus_reduction::content::{ChunkKey, ChunkMeta};
use isthmus_types::limits::{DOMAIN_LEN_MAX, RECORD_BYTES_MAX};
use isthmus_types::{Domain, StoreId, varint};
use std::ops::Range;

/// One record of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEntry {
    pub addr: u64,
    /// Position of the payload in the segment file.
    pub position: u32,
    /// Bytes of the payload, its check not counted.
    pub len: u32,
    /// Which of [`Contents::chunks`] are its.
    pub chunks: Range<usize>,
}

/// A ledger as a segment names it: the number is the segment's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    pub number: u32,
    pub peer: StoreId,
    pub domain: Domain,
}

/// One note, and the segment's own number of its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteEntry {
    pub ledger: u32,
    pub note: Vec<u8>,
}

/// Everything a segment's footer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub records: Vec<RecordEntry>,
    pub chunks: Vec<ChunkMeta>,
    pub ledgers: Vec<LedgerEntry>,
    /// In the order in which they were written.
    pub notes: Vec<NoteEntry>,
}

impl Contents {
    /// Reads a footer's body. `None` if it is not one, or has values that cannot be.
    pub fn decode(mut body: &[u8]) -> Option<Contents> {
        let input = &mut body;
        let mut contents = Contents::default();
        let (mut addr, mut position) = (0u64, HEADER_LEN as u64);
        for _ in 0..take_count(input, 5)? {
            let record = take_record(input, &mut contents.chunks, &mut addr, &mut position)?;
            contents.records.push(record);
        }
        for _ in 0..take_count(input, 18)? {
            contents.ledgers.push(take_ledger(input)?);
        }
        for _ in 0..take_count(input, 2)? {
            contents.notes.push(take_note(input)?);
        }
        input.is_empty().then_some(contents)
    }

    /// The chunks of one of the records.
    pub fn chunks_of(&self, record: &RecordEntry) -> &[ChunkMeta] {
        self.chunks.get(record.chunks.clone()).unwrap_or(&[])
    }
}

/// Gathers a footer's body while its segment is written, so that its length is known at all times.
#[derive(Default)]
pub(crate) struct FooterBuilder {
    records: Section,
    ledgers: Section,
    notes: Section,
    chunks: usize,
    addr: u64,
    position: u64,
}

#[derive(Default)]
struct Section {
    count: u64,
    bytes: Vec<u8>,
}

/// Longest varint of a count below 2^28.
const COUNT_LEN_MAX: usize = 4;

impl FooterBuilder {
    pub fn new() -> FooterBuilder {
        FooterBuilder { position: HEADER_LEN as u64, ..FooterBuilder::default() }
    }

    pub fn record(&mut self, addr: u64, position: u32, len: u32, chunks: &[ChunkMeta]) {
        let out = &mut self.records.bytes;
        varint::put(out, varint::zigzag(addr.wrapping_sub(self.addr) as i64));
        varint::put(out, u64::from(position) - self.position);
        varint::put(out, u64::from(len));
        varint::put(out, chunks.len() as u64);
        put_chunks(out, chunks);
        self.records.count += 1;
        self.chunks += chunks.len();
        self.addr = addr + u64::from(len);
        self.position = u64::from(position) + u64::from(len);
    }

    pub fn ledger(&mut self, ledger: &LedgerEntry) {
        put_ledger(&mut self.ledgers.bytes, ledger);
        self.ledgers.count += 1;
    }

    pub fn note(&mut self, ledger: u32, note: &[u8]) {
        varint::put(&mut self.notes.bytes, u64::from(ledger));
        varint::put(&mut self.notes.bytes, note.len() as u64);
        self.notes.bytes.extend_from_slice(note);
        self.notes.count += 1;
    }

    /// Chunks gathered so far.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    pub fn records(&self) -> usize {
        self.records.count as usize
    }

    /// Bytes of notes gathered so far.
    pub fn note_bytes(&self) -> usize {
        self.notes.bytes.len()
    }

    /// The most bytes that [`FooterBuilder::encode`] would now take.
    pub fn len_max(&self) -> usize {
        3 * COUNT_LEN_MAX + self.records.bytes.len() + self.ledgers.bytes.len() + self.notes.bytes.len()
    }

    /// The most bytes by which the footer grows with a record of so many chunks.
    pub fn record_len_max(chunks: usize) -> usize {
        3 * varint::LEN_MAX + chunks * 11
    }

    /// Appends the footer's body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for section in [&self.records, &self.ledgers, &self.notes] {
            varint::put(out, section.count);
            out.extend_from_slice(&section.bytes);
        }
    }
}

/// Appends a chunk table: key and length of each chunk.
pub(crate) fn put_chunks(out: &mut Vec<u8>, chunks: &[ChunkMeta]) {
    for chunk in chunks {
        out.extend_from_slice(&chunk.key.0.to_le_bytes());
        varint::put(out, u64::from(chunk.len));
    }
}

/// Reads a chunk table that must fill `table` and add up to `len`; appends to `chunks`.
pub(crate) fn take_table(mut table: &[u8], len: u32, chunks: &mut Vec<ChunkMeta>) -> Option<Range<usize>> {
    let start = chunks.len();
    let mut sum = 0;
    while !table.is_empty() {
        let chunk = take_chunk(&mut table)?;
        sum += u64::from(chunk.len);
        chunks.push(chunk);
    }
    (sum == u64::from(len) && chunks.len() - start <= CHUNKS_PER_RECORD_MAX).then_some(start..chunks.len())
}

/// Appends a ledger entry.
pub(crate) fn put_ledger(out: &mut Vec<u8>, ledger: &LedgerEntry) {
    varint::put(out, u64::from(ledger.number));
    out.extend_from_slice(&ledger.peer.0);
    varint::put(out, ledger.domain.0.len() as u64);
    out.extend_from_slice(ledger.domain.0.as_bytes());
}

/// Reads a ledger entry.
pub(crate) fn take_ledger(input: &mut &[u8]) -> Option<LedgerEntry> {
    let number = u32::try_from(varint::take(input)?).ok()?;
    let mut peer = StoreId([0; 16]);
    peer.0.copy_from_slice(take_bytes(input, 16)?);
    let len = usize::try_from(varint::take(input)?).ok().filter(|&len| len <= DOMAIN_LEN_MAX)?;
    let domain = Domain(String::from_utf8(take_bytes(input, len)?.to_vec()).ok()?);
    Some(LedgerEntry { number, peer, domain })
}

fn take_record(
    input: &mut &[u8],
    chunks: &mut Vec<ChunkMeta>,
    addr: &mut u64,
    position: &mut u64,
) -> Option<RecordEntry> {
    let start = addr.checked_add_signed(varint::unzigzag(varint::take(input)?))?;
    let at = position.checked_add(varint::take(input)?)?;
    let len = varint::take(input).filter(|&len| (1..=RECORD_BYTES_MAX as u64).contains(&len))?;
    let count = varint::take(input).filter(|&count| (1..=CHUNKS_PER_RECORD_MAX as u64).contains(&count))?;
    if start > ADDR_END - len || at > u64::from(SEGMENT_BYTES_MAX) - len {
        return None;
    }
    let first = chunks.len();
    let mut sum = 0;
    for _ in 0..count {
        let chunk = take_chunk(input)?;
        sum += u64::from(chunk.len);
        chunks.push(chunk);
    }
    if sum != len {
        return None;
    }
    (*addr, *position) = (start + len, at + len);
    Some(RecordEntry { addr: start, position: at as u32, len: len as u32, chunks: first..chunks.len() })
}

fn take_chunk(input: &mut &[u8]) -> Option<ChunkMeta> {
    let key = input.first_chunk::<8>()?;
    let key = ChunkKey(u64::from_le_bytes(*key));
    *input = &input[8..];
    let len = varint::take(input).filter(|&len| len <= RECORD_BYTES_MAX as u64)?;
    Some(ChunkMeta { key, len: len as u32 })
}

fn take_note(input: &mut &[u8]) -> Option<NoteEntry> {
    let ledger = u32::try_from(varint::take(input)?).ok()?;
    let len = usize::try_from(varint::take(input)?).ok().filter(|&len| len <= NOTE_LEN_MAX)?;
    Some(NoteEntry { ledger, note: take_bytes(input, len)?.to_vec() })
}

/// A count of entries that take at least `entry_len_min` bytes each, so a wrong one cannot ask for much memory or time.
fn take_count(input: &mut &[u8], entry_len_min: usize) -> Option<usize> {
    let count = usize::try_from(varint::take(input)?).ok()?;
    (count <= input.len() / entry_len_min).then_some(count)
}

fn take_bytes<'a>(input: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> (FooterBuilder, Contents) {
        let chunks = |n: u64| ChunkMeta { key: ChunkKey(n), len: 100 + n as u32 };
        let mut builder = FooterBuilder::new();
        builder.record(5000, 300, 201, &[chunks(0), chunks(1)]);
        // A record that was carried forward has an older address.
        builder.record(77, 600, 102, &[chunks(2)]);
        let ledger = LedgerEntry { number: 4, peer: StoreId([8; 16]), domain: Domain("finance".into()) };
        builder.ledger(&ledger);
        builder.note(4, b"first");
        builder.note(4, b"");
        let contents = Contents {
            records: vec![
                RecordEntry { addr: 5000, position: 300, len: 201, chunks: 0..2 },
                RecordEntry { addr: 77, position: 600, len: 102, chunks: 2..3 },
            ],
            chunks: vec![chunks(0), chunks(1), chunks(2)],
            ledgers: vec![ledger],
            notes: vec![
                NoteEntry { ledger: 4, note: b"first".to_vec() },
                NoteEntry { ledger: 4, note: vec![] },
            ],
        };
        (builder, contents)
    }

    #[test]
    fn a_footer_reads_back_and_no_cut_one_does() {
        let (builder, contents) = sample();
        let mut body = Vec::new();
        builder.encode(&mut body);
        assert!(body.len() <= builder.len_max());
        assert_eq!(Contents::decode(&body), Some(contents));
        for len in 0..body.len() {
            assert_eq!(Contents::decode(&body[..len]), None);
        }
        body.push(0);
        assert_eq!(Contents::decode(&body), None);
    }

    #[test]
    fn a_record_whose_chunks_do_not_add_up_is_refused() {
        let mut builder = FooterBuilder::new();
        builder.record(0, 300, 10, &[ChunkMeta { key: ChunkKey(1), len: 9 }]);
        let mut body = Vec::new();
        builder.encode(&mut body);
        assert_eq!(Contents::decode(&body), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Contents::decode(&body);
        }

        #[test]
        fn damaged_footers_are_read_without_a_panic(at in 0usize..60, byte in any::<u8>()) {
            let mut body = Vec::new();
            sample().0.encode(&mut body);
            if let Some(old) = body.get_mut(at) {
                *old = byte;
            }
            let _ = Contents::decode(&body);
        }
    }
}
