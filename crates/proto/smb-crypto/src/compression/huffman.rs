//! LZ77 with Huffman codes (MS-XCA 2.1, 2.2).

use super::DecompressError;
use super::buffer::{Input, Output};
use super::lz77::wide_len;

const SYMBOLS: usize = 512;
const TABLE_LEN: usize = SYMBOLS / 2;
const CODE_BITS_MAX: u32 = 15;
/// Decompressed bytes after which a block ends and the next one begins with a code of its own.
const BLOCK_LEN: usize = 65_536;
/// Symbols below this are literals.
const FIRST_MATCH: u16 = 256;
const LEN_NIBBLE_MAX: usize = 15;
const LEN_BYTE_MAX: usize = 255;
const MATCH_LEN_MIN: usize = 3;

/// A symbol in the lower nine bits, the length of its code above them.
type Entry = u16;
const ENTRY_SYMBOL_BITS: u32 = 9;

pub(super) fn decompress(data: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut input = Input::new(data);
    let mut table = Vec::new();
    while !output.is_full() {
        build(&input.array()?, &mut table)?;
        let block_end = output.written().saturating_add(BLOCK_LEN);
        let mut bits = Bits::new(&mut input);
        while !output.is_full() && output.written() < block_end {
            let entry = table.get(bits.peek(CODE_BITS_MAX)).copied().ok_or(DecompressError::Malformed)?;
            bits.skip(u32::from(entry >> ENTRY_SYMBOL_BITS))?;
            let symbol = entry & ((1 << ENTRY_SYMBOL_BITS) - 1);
            match symbol.checked_sub(FIRST_MATCH) {
                None => output.push(symbol as u8)?,
                Some(symbol) => {
                    let len = match usize::from(symbol % 16) {
                        LEN_NIBBLE_MAX => long_len(bits.input)?,
                        short => short,
                    };
                    let distance_bits = u32::from(symbol / 16);
                    let distance = (1 << distance_bits) + bits.peek(distance_bits);
                    bits.skip(distance_bits)?;
                    output.repeat(distance, len + MATCH_LEN_MIN)?;
                }
            }
        }
    }
    Ok(())
}

/// A length of [`LEN_NIBBLE_MAX`] or more, less the shortest match. It stands in whole bytes, between the words of bits.
fn long_len(input: &mut Input<'_>) -> Result<usize, DecompressError> {
    match usize::from(input.u8()?) {
        LEN_BYTE_MAX => {
            let len = wide_len(input)?;
            if len < LEN_NIBBLE_MAX { Err(DecompressError::Malformed) } else { Ok(len) }
        }
        byte => Ok(byte + LEN_NIBBLE_MAX),
    }
}

/// Fills `table` with what each 15 bits begin with: the canonical code whose lengths, four bits a symbol, are `lengths`.
fn build(lengths: &[u8; TABLE_LEN], table: &mut Vec<Entry>) -> Result<(), DecompressError> {
    table.clear();
    for bits in 1..=CODE_BITS_MAX {
        let symbols = lengths.iter().flat_map(|pair| [pair & 0x0F, pair >> 4]).zip(0..);
        for (_, symbol) in symbols.filter(|(length, _)| u32::from(*length) == bits) {
            let entry: Entry = symbol | (bits as Entry) << ENTRY_SYMBOL_BITS;
            let end = table.len() + (1 << (CODE_BITS_MAX - bits));
            if end > 1 << CODE_BITS_MAX {
                return Err(DecompressError::Malformed);
            }
            table.resize(end, entry);
        }
    }
    // Some bits that begin no code: not what any compressor makes.
    if table.len() == 1 << CODE_BITS_MAX { Ok(()) } else { Err(DecompressError::Malformed) }
}

/// The bit stream of one block: 16-bit words, the highest bit first, read ahead by one to two words. Bytes of long
/// lengths stand between the words, wherever reading ahead has come to.
struct Bits<'i, 'a> {
    input: &'i mut Input<'a>,
    next: u32,
    /// Bits of `next` that were read beyond the first 16; negative while a word has to be fetched.
    extra: i32,
    /// Words read beyond the end, which count as zeros: reading ahead may go there, codes may not.
    missing: u32,
}

const MISSING_WORDS_MAX: u32 = 2;

impl<'i, 'a> Bits<'i, 'a> {
    fn new(input: &'i mut Input<'a>) -> Self {
        let mut bits = Self { input, next: 0, extra: 16, missing: 0 };
        bits.next = u32::from(bits.word()) << 16 | u32::from(bits.word());
        bits
    }

    /// The next `count` bits, at most 15, as a number.
    #[inline(always)]
    fn peek(&self, count: u32) -> usize {
        // By way of 64 bits, so that a count of zero is no shift by the whole width.
        (u64::from(self.next) >> (32 - count)) as usize
    }

    #[inline(always)]
    fn skip(&mut self, count: u32) -> Result<(), DecompressError> {
        self.next <<= count;
        self.extra -= count as i32;
        if self.extra < 0 {
            self.next |= u32::from(self.word()) << -self.extra;
            self.extra += 16;
            if self.missing > MISSING_WORDS_MAX {
                return Err(DecompressError::Truncated);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn word(&mut self) -> u16 {
        self.input.u16().unwrap_or_else(|_| {
            self.missing += 1;
            0
        })
    }
}
