//! Decompressors: published vectors, whatever simple compressors make, and whatever comes.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/compress.rs"]
mod compress;

use isthmus_smb_crypto::{
    CompressionAlgorithm::{self, Lz4, Lz77, Lz77Huffman, Lznt1, None as Plain, PatternV1},
    DecompressError::{self, AboveLimit, Malformed, NotCompressed, SizeMismatch, Truncated, Unsupported},
    decompress_message, decompress_onto, is_compressed,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn decompress(algorithm: CompressionAlgorithm, data: &[u8], len: usize) -> Result<Vec<u8>, DecompressError> {
    // Something in front, which no reference may reach.
    let mut bytes = b"before".to_vec();
    decompress_onto(&mut bytes, algorithm, data, len).map(|()| bytes.split_off(6))
}

fn lz4(data: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(data)
}

/// The examples that end MS-XCA.
mod published {
    use super::*;

    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

    fn table(entries: &[(usize, u8)]) -> Vec<u8> {
        let mut table = vec![0; 256];
        entries.iter().for_each(|(at, pair)| table[*at] = *pair);
        table
    }

    #[test]
    fn lz77() {
        let alphabet = hex::decode("3f0000006162636465666768696a6b6c6d6e6f707172737475767778797a").unwrap();
        assert_eq!(decompress(Lz77, &alphabet, 26).unwrap(), ALPHABET);
        let repeated = hex::decode("ffffff1f61626317000fff2601").unwrap();
        assert_eq!(decompress(Lz77, &repeated, 300).unwrap(), b"abc".repeat(100));
    }

    #[test]
    fn lz77_with_huffman() {
        let mut entries = vec![(0x30, 0x50), (0x3B, 0x45), (0x3C, 0x44), (0x3D, 0x04), (0x80, 0x04)];
        entries.extend((0x31..0x3B).map(|at| (at, 0x55)));
        let mut alphabet = table(&entries);
        alphabet.extend(hex::decode("d8523ed794115be9195ff9d67cdf8d0400000000").unwrap());
        assert_eq!(decompress(Lz77Huffman, &alphabet, 26).unwrap(), ALPHABET);

        let mut repeated = table(&[(0x30, 0x30), (0x31, 0x23), (0x80, 0x02), (0x8F, 0x20)]);
        repeated.extend(hex::decode("a8dc0000ff2601").unwrap());
        assert_eq!(decompress(Lz77Huffman, &repeated, 300).unwrap(), b"abc".repeat(100));
    }

    #[test]
    fn lznt1() {
        let notes = hex::decode(concat!(
            "38b08846232000204720410010a24701a045204400084501507900c045200524",
            "138805b4024a44ef0358028c091601484500be009e000401189000"
        ))
        .unwrap();
        let text = decompress(Lznt1, &notes, 142).unwrap();
        println!("{}", String::from_utf8_lossy(&text));
        assert!(text.starts_with(b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G"));
    }
}

/// Made by wimlib, an independent compressor of the same format, from this text.
#[test]
fn another_compressor_is_understood() {
    let text: String =
        (0..300).map(|n| format!("{n} bottles on wall {}, take {} down; ", n % 7, n * n)).collect();
    let compressed = include_bytes!("vectors/bottles.xpress");
    assert!(decompress(Lz77Huffman, compressed, text.len()).unwrap() == text.as_bytes());
}

/// Messages around compressed data (MS-SMB2 2.2.42).
mod messages {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn unchained(algorithm: u16, offset: u32, announced: u32, body: &[&[u8]]) -> Vec<u8> {
        let mut message = b"\xFCSMB".to_vec();
        message.extend(announced.to_le_bytes());
        message.extend(algorithm.to_le_bytes());
        message.extend([0, 0]);
        message.extend(offset.to_le_bytes());
        message.extend(body.concat());
        message
    }

    fn chained(announced: u32, payloads: &[(u16, Option<u32>, &[u8])]) -> Vec<u8> {
        let mut message = b"\xFCSMB".to_vec();
        message.extend(announced.to_le_bytes());
        for (at, (algorithm, original, body)) in payloads.iter().enumerate() {
            let original = original.map(u32::to_le_bytes);
            let original = original.as_ref().map_or(&[][..], |bytes| bytes);
            message.extend(algorithm.to_le_bytes());
            message.extend(u16::from(at == 0).to_le_bytes());
            message.extend(((original.len() + body.len()) as u32).to_le_bytes());
            message.extend(original);
            message.extend(*body);
        }
        message
    }

    fn abc() -> Vec<u8> {
        compress::lz77(&b"abc".repeat(100))
    }

    #[test]
    fn unchained_with_a_plain_front() {
        let message = unchained(2, 5, 300, &[b"front", &abc()]);
        assert!(is_compressed(&message));
        let expected = [b"front".as_slice(), &b"abc".repeat(100)].concat();
        assert_eq!(decompress_message(&message, 305).unwrap(), expected);
        assert_eq!(decompress_message(&message, 304), Err(AboveLimit));
        // The front is no part of what may be referred back to.
        let reference = [0xFF, 0xFF, 0xFF, 0x7F, b'x', 0x20, 0x00];
        assert_eq!(decompress_message(&unchained(2, 5, 4, &[b"front", &reference]), LIMIT), Err(Malformed));
    }

    #[test]
    fn chained_payloads_of_every_kind() {
        let text = b"to be or not to be, that is the question; ".repeat(30);
        let pattern = [b'z', 9, 9, 9, 200, 0, 0, 0];
        let len = text.len() as u32;
        let message = chained(
            4 * len + 206,
            &[
                (4, None, &pattern),
                (0, None, b"header"),
                (1, Some(len), &compress::lznt1(&text)),
                (2, Some(len), &compress::lz77(&text)),
                (3, Some(len), &compress::huffman(&text)),
                (5, Some(len), &lz4(&text)),
            ],
        );
        let expected = [&[b'z'; 200], b"header".as_slice(), &text, &text, &text, &text].concat();
        assert!(decompress_message(&message, expected.len()).unwrap() == expected);
        assert_eq!(decompress_message(&message, expected.len() - 1), Err(AboveLimit));
        for cut in [0, 3, 7, 10, 15, 20, message.len() / 2, message.len() - 1] {
            assert!(decompress_message(&message[..cut], LIMIT).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_chain_that_comes_to_another_size_is_refused() {
        let pattern = [b'z', 0, 0, 0, 200, 0, 0, 0];
        for announced in [0, 199, 201] {
            let message = chained(announced, &[(4, None, &pattern)]);
            assert_eq!(decompress_message(&message, LIMIT), Err(SizeMismatch), "{announced}");
        }
        let endless = [b'z', 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
        let message = chained(1000, &[(4, None, &pattern), (4, None, &endless)]);
        assert_eq!(decompress_message(&message, LIMIT), Err(SizeMismatch));
        let message = chained(u32::MAX, &[(4, None, &endless)]);
        assert_eq!(decompress_message(&message, LIMIT), Err(AboveLimit));
    }

    #[test]
    fn a_chain_has_an_end() {
        let one = [b'z', 0, 0, 0, 1, 0, 0, 0];
        let payload = (4, None, one.as_slice());
        assert_eq!(decompress_message(&chained(256, &[payload; 256]), LIMIT).unwrap(), [b'z'; 256]);
        assert_eq!(decompress_message(&chained(257, &[payload; 257]), LIMIT), Err(Malformed));
    }

    #[test]
    fn what_is_not_supported_says_so() {
        for algorithm in [0, 4, 6, 0xFFFF] {
            let message = unchained(algorithm, 0, 4, &[b"\0\0\0\0abcd"]);
            assert_eq!(decompress_message(&message, LIMIT), Err(Unsupported(algorithm)));
        }
        let message = chained(4, &[(6, Some(4), b"abcd")]);
        assert_eq!(decompress_message(&message, LIMIT), Err(Unsupported(6)));
        assert_eq!(decompress_message(b"\xFESMB and more", LIMIT), Err(NotCompressed));
        assert_eq!(decompress_message(b"\xFCS", LIMIT), Err(Truncated));
        let known: Vec<_> = (0..10).filter_map(CompressionAlgorithm::from_u16).collect();
        assert_eq!(known, [Plain, Lznt1, Lz77, Lz77Huffman, PatternV1, Lz4]);
        assert!(known.iter().enumerate().all(|(id, algorithm)| usize::from(algorithm.as_u16()) == id));
    }
}

/// Data in which there is something to find: runs, repetitions near and far, and noise, over some boundaries of blocks.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => vec(any::<u8>(), 1..40),
        3 => (vec(b'a'..b'd', 1..9), 1usize..400).prop_map(|(unit, times)| unit.repeat(times)),
        1 => (any::<u8>(), 1usize..150_000).prop_map(|(byte, len)| vec![byte; len]),
        2 => vec(any::<u8>(), 3_000..9_000),
    ];
    (vec(piece, 1..8), vec(any::<proptest::sample::Index>(), 0..12)).prop_map(|(pieces, order)| {
        let mut whole = pieces.concat();
        order.iter().for_each(|index| whole.extend(&pieces[index.index(pieces.len())]));
        whole
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_compressed_comes_back(data in data()) {
        for (algorithm, compress) in [
            (Lznt1, compress::lznt1 as fn(&[u8]) -> Vec<u8>),
            (Lz77, compress::lz77),
            (Lz77Huffman, compress::huffman),
            (Lz4, lz4),
        ] {
            let compressed = compress(&data);
            let back = decompress(algorithm, &compressed, data.len());
            prop_assert!(back.as_ref() == Ok(&data), "{}: {:?}", algorithm, back.map(|bytes| bytes.len()));
            let shorter = decompress(algorithm, &compressed, data.len() + 1);
            prop_assert!(shorter.is_err(), "{} came to more than there was", algorithm);
            let cut = decompress(algorithm, &compressed[..compressed.len() / 2], data.len());
            prop_assert!(cut != Ok(data.clone()) || data.len() < 8, "{} did without a half", algorithm);
        }
    }

    #[test]
    fn damage_never_panics_nor_exceeds_the_limit(
        data in data(),
        flips in vec((any::<proptest::sample::Index>(), 1u8..), 1..6),
        len in 0usize..300_000,
    ) {
        for (algorithm, compress) in [
            (Lznt1, compress::lznt1 as fn(&[u8]) -> Vec<u8>),
            (Lz77, compress::lz77),
            (Lz77Huffman, compress::huffman),
            (Lz4, lz4),
        ] {
            let mut damaged = compress(&data);
            let size = damaged.len();
            flips.iter().for_each(|(at, flip)| damaged[at.index(size)] ^= flip);
            let mut bytes = Vec::new();
            let result = decompress_onto(&mut bytes, algorithm, &damaged, len);
            prop_assert!(bytes.len() <= len);
            prop_assert!(result.is_err() || bytes.len() == len);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn whatever_comes_never_panics_nor_exceeds_the_limit(
        bytes in vec(any::<u8>(), 0..700),
        id in 0u16..6,
        len in 0usize..5_000,
        chained: bool,
    ) {
        let mut out = Vec::new();
        let result = decompress_onto(&mut out, CompressionAlgorithm::from_u16(id).unwrap(), &bytes, len);
        prop_assert!(out.len() <= len);
        prop_assert!(result.is_err() || out.len() == len);

        let mut message = [b"\xFCSMB".as_slice(), &(len as u32).to_le_bytes(), &id.to_le_bytes()].concat();
        message.extend([u8::from(chained), 0]);
        message.extend((bytes.len() as u32 % 512).to_le_bytes());
        message.extend(&bytes);
        if let Ok(out) = decompress_message(&message, 4_096) {
            prop_assert!(out.len() <= 4_096);
        }
        let _ = decompress_message(&bytes, 4_096);
    }
}
