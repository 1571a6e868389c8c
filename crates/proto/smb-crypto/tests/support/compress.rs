//! Compressors for the decompressors' tests: correct and simple, not good.

/// A literal, or a repetition of earlier bytes.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    Literal(u8),
    Match { distance: usize, len: usize },
}

/// Greedy parse: the last place with the same three bytes, if no further back than `distance_max` nor across a multiple
/// of `block`, where what a match repeats may lie before it only if `across`.
pub fn tokens(data: &[u8], distance_max: usize, len_max: usize, block: usize, across: bool) -> Vec<Token> {
    let mut last = std::collections::HashMap::new();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let block_start = at - at % block;
        let end = data.len().min(block_start + block).min(at.saturating_add(len_max));
        let found = data.get(at..at + 3).and_then(|three| last.get(three).copied());
        let len = found
            .filter(|from| at - from <= distance_max && (across || *from >= block_start))
            .map_or(0, |from| (at..end).take_while(|to| data[*to] == data[from + to - at]).count());
        let taken = if len >= 3 { len } else { 1 };
        tokens.push(match found {
            Some(from) if len >= 3 => Token::Match { distance: at - from, len },
            _ => Token::Literal(data[at]),
        });
        for to in at..at + taken {
            if let Some(three) = data.get(to..to + 3) {
                last.insert(three, to);
            }
        }
        at += taken;
    }
    tokens
}

pub fn lznt1(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(4096) {
        let (mut body, mut position) = (Vec::new(), 0usize);
        // The longest match depends on the place; 4096 places leave it four bits.
        let list = tokens(chunk, 4096, 18, 4096, false);
        for group in list.chunks(8) {
            let flags_at = body.len();
            body.push(0);
            for (bit, token) in group.iter().enumerate() {
                match *token {
                    Token::Literal(byte) => {
                        body.push(byte);
                        position += 1;
                    }
                    Token::Match { distance, len } => {
                        body[flags_at] |= 1 << bit;
                        let bits = (4..).find(|bits| position <= 1 << bits).unwrap();
                        let word = (distance - 1) << (16 - bits) | (len - 3);
                        body.extend((word as u16).to_le_bytes());
                        position += len;
                    }
                }
            }
        }
        let (flag, body) = if body.len() < chunk.len() { (0x8000, &body[..]) } else { (0, chunk) };
        out.extend((flag | 0x3000 | (body.len() - 1) as u16).to_le_bytes());
        out.extend(body);
    }
    out.extend([0, 0]);
    out
}

pub fn lz77(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    let (mut flags_at, mut flags, mut count, mut half_at) = (0, 0u32, 0, None::<usize>);
    for token in tokens(data, 8192, usize::MAX, usize::MAX, true) {
        flags <<= 1;
        count += 1;
        match token {
            Token::Literal(byte) => out.push(byte),
            Token::Match { distance, len } => {
                flags |= 1;
                let len = len - 3;
                out.extend((((distance - 1) << 3 | len.min(7)) as u16).to_le_bytes());
                if len >= 7 {
                    let nibble = (len - 7).min(15) as u8;
                    match half_at.take() {
                        Some(at) => out[at] |= nibble << 4,
                        None => {
                            half_at = Some(out.len());
                            out.push(nibble);
                        }
                    }
                    if len >= 22 {
                        long_len(&mut out, len, 22);
                    }
                }
            }
        }
        if count == 32 {
            out[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
            (flags_at, flags, count) = (out.len(), 0, 0);
            out.extend([0; 4]);
        }
    }
    let rest = 32 - count;
    let flags = ((u64::from(flags) << rest) | ((1 << rest) - 1)) as u32;
    out[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
    out
}

/// A length of at least `base` in one byte, three or seven.
fn long_len(out: &mut Vec<u8>, len: usize, base: usize) {
    if len - base < 255 {
        out.push((len - base) as u8);
    } else {
        out.push(255);
        match u16::try_from(len) {
            Ok(len) => out.extend(len.to_le_bytes()),
            Err(_) => {
                out.extend([0, 0]);
                out.extend((len as u32).to_le_bytes());
            }
        }
    }
}

pub fn huffman(data: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 65_536;
    let list = tokens(data, 65_535, usize::MAX, BLOCK, true);
    let (mut out, mut rest, mut written) = (Vec::new(), list.as_slice(), 0);
    while written < data.len() {
        let end = (written + BLOCK).min(data.len());
        let mut count = 0;
        while written < end {
            written += match rest[count] {
                Token::Literal(_) => 1,
                Token::Match { len, .. } => len,
            };
            count += 1;
        }
        let (block, after) = rest.split_at(count);
        rest = after;
        huffman_block(&mut out, block, written == data.len());
    }
    out
}

fn huffman_block(out: &mut Vec<u8>, tokens: &[Token], last: bool) {
    let mut counts = [0u32; 512];
    tokens.iter().for_each(|token| counts[symbol(*token).0] += 1);
    // The end mark; and in any case a second symbol, so that the code is complete.
    counts[256] += u32::from(last || counts.iter().filter(|count| **count > 0).count() < 2);
    if counts.iter().filter(|count| **count > 0).count() < 2 {
        counts[0] += 1;
    }
    let lengths = code_lengths(counts);
    out.extend(lengths.chunks(2).map(|pair| pair[0] | pair[1] << 4));
    let codes = canonical(&lengths);

    let mut bits = BitWriter::new(out);
    for token in tokens {
        let (symbol, distance_bits) = symbol(*token);
        bits.write(u32::from(lengths[symbol]), codes[symbol]);
        if let Token::Match { distance, len } = *token {
            if len - 3 >= 15 {
                long_len(bits.out, len - 3, 15);
            }
            bits.write(distance_bits, distance as u32 - (1 << distance_bits));
        }
    }
    if last {
        bits.write(u32::from(lengths[256]), codes[256]);
    }
    bits.flush();
}

/// A token's symbol and how many bits of distance follow.
fn symbol(token: Token) -> (usize, u32) {
    match token {
        Token::Literal(byte) => (usize::from(byte), 0),
        Token::Match { distance, len } => {
            let bits = distance.ilog2();
            (256 + 16 * bits as usize + (len - 3).min(15), bits)
        }
    }
}

/// Huffman's code lengths; counts are halved until none is above 15.
fn code_lengths(mut counts: [u32; 512]) -> [u8; 512] {
    loop {
        let mut nodes: Vec<(u32, Vec<usize>)> = (0..512)
            .filter(|symbol| counts[*symbol] > 0)
            .map(|symbol| (counts[symbol], vec![symbol]))
            .collect();
        let mut lengths = [0u8; 512];
        while nodes.len() > 1 {
            nodes.sort_by_key(|node| std::cmp::Reverse(node.0));
            let (a, b) = (nodes.pop().unwrap(), nodes.pop().unwrap());
            let members = [a.1, b.1].concat();
            members.iter().for_each(|symbol| lengths[*symbol] += 1);
            nodes.push((a.0 + b.0, members));
        }
        if lengths.iter().all(|length| *length <= 15) {
            return lengths;
        }
        counts.iter_mut().for_each(|count| *count = count.div_ceil(2));
    }
}

fn canonical(lengths: &[u8; 512]) -> [u32; 512] {
    let (mut codes, mut code) = ([0; 512], 0);
    for length in 1..=15 {
        code <<= 1;
        for symbol in (0..512).filter(|symbol| lengths[*symbol] == length) {
            codes[symbol] = code;
            code += 1;
        }
    }
    codes
}

/// Words of bits with two of them always reserved, so that bytes written between come after them.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    at: [usize; 2],
    word: u32,
    free: u32,
}

impl<'a> BitWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        let at = [out.len(), out.len() + 2];
        out.extend([0; 4]);
        Self { out, at, word: 0, free: 16 }
    }

    fn write(&mut self, count: u32, bits: u32) {
        if count <= self.free {
            self.word = self.word << count | bits;
            self.free -= count;
            return;
        }
        let over = count - self.free;
        self.word = self.word << self.free | bits >> over;
        self.put();
        self.at = [self.at[1], self.out.len()];
        self.out.extend([0; 2]);
        self.word = bits & ((1 << over) - 1);
        self.free = 16 - over;
    }

    fn flush(mut self) {
        self.word <<= self.free;
        self.put();
    }

    fn put(&mut self) {
        self.out[self.at[0]..self.at[0] + 2].copy_from_slice(&(self.word as u16).to_le_bytes());
    }
}
