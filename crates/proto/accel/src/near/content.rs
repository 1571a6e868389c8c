//! What is known of a file's content, in blocks, so that what the client writes can be put into it.

use std::collections::BTreeMap;
use std::ops::Range;

/// Length of a block. The last one of a file is as long as what is known of it.
const BLOCK_BYTES: usize = 64 << 10;
/// Pieces of a block that are known apart; a block that would have more is forgotten.
const PIECES_MAX: usize = 32;

/// Content of one file.
#[derive(Default)]
pub(super) struct Content {
    blocks: BTreeMap<u64, Block>,
    /// Where the file ends, if that is known.
    pub end: Option<u64>,
    /// Bytes that are known, and bytes of memory that they take.
    known: usize,
    memory: usize,
}

#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    /// Which of them are known: in order, and apart.
    known: Vec<Range<usize>>,
}

impl Content {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.end.is_none()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether all of the file is known.
    pub fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.known as u64 >= end)
    }

    /// Takes in what the server has from `offset` on. What is known stays as it is: it is as good, or newer.
    pub fn fill(&mut self, offset: u64, bytes: &[u8]) {
        self.each_block(offset, bytes, Block::fill);
    }

    /// Takes in what the client writes.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.each_block(offset, bytes, |block, at, bytes| {
            block.forget(&(at..at + bytes.len()));
            block.fill(at, bytes);
        });
    }

    fn each_block(&mut self, offset: u64, mut bytes: &[u8], act: impl Fn(&mut Block, usize, &[u8])) {
        let mut number = offset / BLOCK_BYTES as u64;
        let mut at = (offset % BLOCK_BYTES as u64) as usize;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - at));
            self.change(number, true, |block| act(block, at, now));
            (bytes, number, at) = (rest, number + 1, 0);
        }
    }

    /// Forgets a part, and where the file ends if that may have become later.
    pub fn forget(&mut self, part: &Range<u64>) {
        self.end = self.end.filter(|end| part.end <= *end);
        let block = BLOCK_BYTES as u64;
        let Some(last) = part.end.checked_sub(1) else { return };
        let numbers: Vec<u64> =
            self.blocks.range(part.start / block..=last / block).map(|(number, _)| *number).collect();
        for number in numbers {
            let start = number * block;
            let from = part.start.saturating_sub(start) as usize;
            let to = (part.end - start).min(block) as usize;
            self.change(number, false, |block| block.forget(&(from..to)));
        }
    }

    fn change(&mut self, number: u64, make: bool, act: impl FnOnce(&mut Block)) {
        if make {
            self.blocks.entry(number).or_default();
        }
        let Some(block) = self.blocks.get_mut(&number) else { return };
        let (known, memory) = (block.len(), block.bytes.capacity());
        act(block);
        self.known = self.known + block.len() - known;
        self.memory = self.memory + block.bytes.capacity() - memory;
        if block.known.is_empty() || block.known.len() > PIECES_MAX {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(block) = self.blocks.remove(&number) {
            self.known -= block.len();
            self.memory -= block.bytes.capacity();
        }
    }

    /// Forgets the first block, if it ends before an offset; tells whether it did.
    pub fn forget_first(&mut self, before: u64) -> bool {
        let first = self.blocks.keys().next().copied();
        let Some(number) = first.filter(|number| (number + 1).saturating_mul(BLOCK_BYTES as u64) <= before)
        else {
            return false;
        };
        self.remove(number);
        true
    }

    /// The bytes of a range, up to the file's end, if all of them are known.
    pub fn range(&self, offset: u64, length: u32) -> Option<Vec<u8>> {
        let wanted = offset.checked_add(length.into())?;
        let until = self.end.map_or(wanted, |end| wanted.min(end));
        let mut bytes =
            Vec::with_capacity(usize::try_from(until.checked_sub(offset)?).ok()?.min(length as usize));
        let mut at = offset;
        while at < until {
            let number = at / BLOCK_BYTES as u64;
            let from = (at % BLOCK_BYTES as u64) as usize;
            let take = ((until - at) as usize).min(BLOCK_BYTES - from);
            bytes.extend_from_slice(self.blocks.get(&number)?.get(&(from..from + take))?);
            at += take as u64;
        }
        Some(bytes)
    }
}

impl Block {
    fn len(&self) -> usize {
        self.known.iter().map(Range::len).sum()
    }

    fn get(&self, part: &Range<usize>) -> Option<&[u8]> {
        let is_in = |known: &Range<usize>| known.start <= part.start && part.end <= known.end;
        if self.known.iter().any(is_in) { self.bytes.get(part.clone()) } else { None }
    }

    /// Puts bytes where nothing is known.
    fn fill(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.reserve_exact(end - self.bytes.len());
            self.bytes.resize(end, 0);
        }
        let mut from = at;
        let before: Vec<Range<usize>> = self.known.clone();
        for known in before.iter().chain([&(end..end)]) {
            let to = known.start.clamp(from, end);
            if let Some(place) = self.bytes.get_mut(from..to)
                && let Some(part) = bytes.get(from - at..to - at)
            {
                place.copy_from_slice(part);
            }
            from = known.end.clamp(from, end);
        }
        self.known.push(at..end);
        self.known.sort_unstable_by_key(|known| known.start);
        self.known.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }

    fn forget(&mut self, part: &Range<usize>) {
        let known = std::mem::take(&mut self.known);
        let left = known
            .into_iter()
            .flat_map(|known| [known.start..known.end.min(part.start), known.start.max(part.end)..known.end]);
        self.known = left.filter(|known| known.start < known.end).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Act {
        Fill(usize, usize, u8),
        Put(usize, usize, u8),
        Forget(usize, usize),
        Read(usize, usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        let place = (0usize..200_000, prop_oneof![1usize..200, 1usize..90_000]);
        (0..4u8, place, any::<u8>()).prop_map(|(kind, (from, len), byte)| match kind {
            0 => Act::Fill(from, len, byte),
            1 => Act::Put(from, len, byte),
            2 => Act::Forget(from, len),
            _ => Act::Read(from, len),
        })
    }

    proptest! {
        #[test]
        fn it_is_what_a_plain_table_of_bytes_is(acts in proptest::collection::vec(act(), 1..30)) {
            let (mut content, mut plain) = (Content::default(), vec![None::<u8>; 300_000]);
            for act in acts {
                match act {
                    Act::Fill(from, len, byte) => {
                        content.fill(from as u64, &vec![byte; len]);
                        plain[from..from + len].iter_mut().for_each(|one| *one = one.or(Some(byte)));
                    }
                    Act::Put(from, len, byte) => {
                        content.put(from as u64, &vec![byte; len]);
                        plain[from..from + len].fill(Some(byte));
                    }
                    Act::Forget(from, len) => {
                        content.forget(&(from as u64..(from + len) as u64));
                        plain[from..from + len].fill(None);
                    }
                    Act::Read(from, len) => {
                        let got = content.range(from as u64, len as u32);
                        let expected: Option<Vec<u8>> = plain[from..from + len].iter().copied().collect();
                        // With so few acts no block is in too many pieces.
                        prop_assert_eq!(got, expected);
                    }
                }
                let known: usize = content.blocks.values().map(Block::len).sum();
                let memory: usize = content.blocks.values().map(|block| block.bytes.capacity()).sum();
                prop_assert_eq!((content.known, content.memory), (known, memory));
                prop_assert!(memory <= content.blocks.len() * BLOCK_BYTES);
            }
        }
    }

    #[test]
    fn the_end_is_known_until_more_is_written() {
        let mut content = Content { end: Some(10), ..Content::default() };
        content.fill(0, &[1; 10]);
        assert!(content.is_whole());
        assert_eq!(content.range(4, 100), Some(vec![1; 6]));
        content.forget(&(8..10));
        assert!(content.end == Some(10) && !content.is_whole() && content.range(0, 100).is_none());
        content.forget(&(8..11));
        assert_eq!(content.end, None);
        assert_eq!(content.range(0, 8), Some(vec![1; 8]));
    }

    #[test]
    fn the_last_bytes_that_can_be_named_are_no_trouble() {
        let (mut content, offset) = (Content::default(), u64::MAX - 4);
        content.fill(offset, &[1; 4]);
        assert_eq!(content.range(offset, 4), Some(vec![1; 4]));
        content.put(offset, &[2; 4]);
        assert!(content.forget_first(u64::MAX) && content.range(offset, 4).is_none());
        content.fill(offset, &[1; 4]);
        content.forget(&(offset..u64::MAX));
        assert_eq!((content.known, content.memory), (0, 0));
    }

    #[test]
    fn a_block_in_too_many_pieces_is_forgotten() {
        let mut content = Content::default();
        (0..=PIECES_MAX as u64).for_each(|piece| content.fill(piece * 10, &[1; 5]));
        assert_eq!((content.known, content.memory, content.blocks.len()), (0, 0, 0));
    }
}
