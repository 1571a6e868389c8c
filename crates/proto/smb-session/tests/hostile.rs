//! Bytes that nobody should send.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use bytes::{Bytes, BytesMut};
use isthmus_smb_session::{
    AssembleError, Assembler, CONTENT_HELD_MAX, Connection, Intake, STRUCTURE_HELD_MAX, State,
};
use isthmus_types::Side;
use proptest::collection::vec;
use proptest::prelude::*;
use support::ends::{Ends, Fixed, GMAC, KEY, Protection, Setting};
use support::{Pair, frame};

/// LAN bytes: frames with good and bad messages in them, and bytes that are no frames.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<u8>(), 0u8..0x15, 0u8..16, vec(any::<u8>(), 0..200), any::<u32>(), 0u64..5);
    let message = header.prop_map(|(next, command, flags, body, status, id)| {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\xfeSMB");
        bytes[4] = 64;
        bytes[8..12].copy_from_slice(&status.to_le_bytes());
        bytes[12] = command;
        bytes[16] = flags;
        bytes[20] = if next < 40 { 64 + (next & !7) } else { 0 };
        bytes[24] = id as u8;
        bytes[40] = id as u8;
        bytes.extend_from_slice(&body);
        bytes
    });
    let compound = vec(message.clone(), 1..4).prop_map(|messages| {
        let last = messages.len() - 1;
        let mut all = Vec::new();
        for (index, mut message) in messages.into_iter().enumerate() {
            message.resize(message.len().next_multiple_of(8), 0);
            message[20] = if index == last { 0 } else { message.len() as u8 };
            message[21] = if index == last { 0 } else { (message.len() >> 8) as u8 };
            all.extend(message);
        }
        all
    });
    let kind = prop::sample::select(vec![&b"\xfdSMB"[..], b"\xfcSMB", b"\xffSMB", b"", b"\xfeSMB"]);
    let other = (kind, vec(any::<u8>(), 0..1500)).prop_map(|(kind, rest)| [kind, &rest[..]].concat());
    let framed = prop_oneof![message, compound, other].prop_map(|message| frame(&message));
    let keep_alive = Just(vec![0x85, 0, 0, 0]);
    prop_oneof![8 => framed, 1 => keep_alive, 1 => vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_goes_in_comes_out_however_it_is_split(
        parts in vec((any::<bool>(), stream(), 1usize..300), 0..30),
        keys in any::<bool>(),
    ) {
        let source = Fixed::new(KEY);
        let mut pair = Pair::new(keys.then_some(source as _));
        let (mut input, mut output) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (from_server, bytes, size) in parts {
            input[usize::from(from_server)].extend_from_slice(&bytes);
            for piece in bytes.chunks(size) {
                for frame in pair.way(from_server).pass(piece).unwrap() {
                    output[usize::from(from_server)].extend_from_slice(&frame);
                }
            }
        }
        for from_server in [false, true] {
            for frame in pair.way(from_server).finish().unwrap() {
                output[usize::from(from_server)].extend_from_slice(&frame);
            }
        }
        prop_assert_eq!(input, output);
    }

    #[test]
    fn structure_of_a_hostile_peer_does_no_harm(
        side in prop::sample::select(vec![Side::Client, Side::Server]),
        pieces in vec((vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..200)), 0..20),
    ) {
        let mut assembler = Assembler::new(Connection::new(side, [0; 32]));
        for (record, content) in pieces {
            // A length that fits, so that what follows is looked at.
            let mut structure = vec![record.len() as u8];
            structure.extend_from_slice(&record);
            assembler.structure(&structure).unwrap();
            assembler.content(Bytes::from(content));
            while let Ok(Some(_)) = assembler.next() {}
            prop_assert!(assembler.held() < 1 << 20);
        }
    }

    #[test]
    fn altered_structure_of_a_real_session_does_no_harm(
        at in 0usize..400,
        bit in 0u8..8,
        from_server in any::<bool>(),
    ) {
        let mut ends = Ends::new(GMAC);
        let mut pair = Pair::new(Some(Fixed::new(KEY)));
        let mut messages = ends.begin();
        messages.extend(ends.unusual(0));
        let mut seen = 0;
        'messages: for (way, message) in messages {
            let half = pair.way(way);
            let mut input = BytesMut::from(&frame(&message)[..]);
            let mut crossing = half.intake.take(&mut input).unwrap().unwrap();
            if way == from_server {
                if let Some(byte) = at.checked_sub(seen).and_then(|at| crossing.structure.get_mut(at)) {
                    *byte ^= 1 << bit;
                }
                seen += crossing.structure.len();
            }
            if let Some(note) = crossing.note {
                half.assembler.note(&note).unwrap();
            }
            half.assembler.structure(&crossing.structure).unwrap();
            crossing.content.into_iter().for_each(|piece| half.assembler.content(piece));
            if half.assembler.next().is_err() {
                break 'messages;
            }
        }
    }

    #[test]
    fn notes_of_any_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..300), kind in 0u8..4) {
        let mut assembler = Assembler::new(Connection::new(Side::Client, [0; 32]));
        let _ = assembler.note(&bytes);
        let _ = assembler.note(&[&[kind][..], &bytes].concat());
    }
}

#[test]
fn what_is_held_is_bounded() {
    let mut assembler = Assembler::new(Connection::new(Side::Client, [0; 32]));
    // The longest record, never completed.
    assembler.structure(&[0x80, 0x80, 0x80, 1]).unwrap();
    assert_eq!(assembler.next(), Ok(None));
    assert_eq!(assembler.structure(&vec![0; STRUCTURE_HELD_MAX]), Err(AssembleError::TooMuch));
    let mut assembler = Assembler::new(Connection::new(Side::Client, [0; 32]));
    assembler.structure(&[0x80, 0x80, 0x80, 2]).unwrap();
    assert!(matches!(assembler.next(), Err(AssembleError::Malformed(_))), "a record that is too long");
    let mut assembler = Assembler::new(Connection::new(Side::Client, [0; 32]));
    let piece = Bytes::from(vec![0; 1 << 20]);
    for _ in 0..CONTENT_HELD_MAX >> 20 {
        assembler.content(piece.clone());
    }
    assert_eq!(assembler.next(), Ok(None));
    assembler.content(piece);
    assert_eq!(assembler.next(), Err(AssembleError::TooMuch));
}

#[test]
fn a_stream_without_frames_crosses_at_once() {
    let mut intake = Intake::new(Connection::new(Side::Client, [0; 32]), None);
    let mut input = BytesMut::from(&b"GET / HTTP/1.1\r\n"[..]);
    let crossing = intake.take(&mut input).unwrap().unwrap();
    assert_eq!((crossing.lan, input.len()), (16, 0));
    let mut pair = Pair::new(None);
    assert_eq!(pair.up.pass(b"GET / HTTP/1.1\r\n").unwrap().concat(), b"GET / HTTP/1.1\r\n");
    assert_eq!(pair.client.status().state(), State::NotSmb);
    // A frame's header alone is no reason to wait for ever: the end of the stream brings it across.
    let mut pair = Pair::new(None);
    assert!(pair.up.pass(&[0, 0xff, 0xff, 0xff, 1, 2]).unwrap().is_empty());
    assert_eq!(pair.up.finish().unwrap().concat(), [0, 0xff, 0xff, 0xff, 1, 2]);
}

#[test]
fn more_requests_than_are_followed_still_cross() {
    for protection in [Protection::Signed, Protection::Sealed] {
        let mut ends = Ends::new(Setting { protection, ..GMAC });
        let mut pair = Pair::new(Some(Fixed::new(KEY)));
        for (from_server, message) in ends.begin() {
            pair.pass(from_server, &message);
        }
        let mut answers = Vec::new();
        for _ in 0..2_500 {
            let [(_, request), (_, answer)] =
                ends.exchange(&isthmus_smb_wire::build::Echo, &isthmus_smb_wire::build::EchoResponse);
            let out = pair.pass(false, &request);
            assert!(protection == Protection::Sealed || out == request);
            answers.push(answer);
        }
        answers.reverse();
        for answer in answers {
            let out = pair.pass(true, &answer);
            assert!(protection == Protection::Sealed || out == answer);
        }
    }
}

#[test]
fn the_largest_frame_crosses() {
    for first in [b"\xfeSMB", b"\xffSMB"] {
        let mut message = vec![0x5a; 0xff_ffff];
        message[..4].copy_from_slice(first);
        let mut pair = Pair::new(None);
        assert!(pair.pass(true, &message) == message);
    }
    let mut pair = Pair::new(None);
    assert_eq!(pair.pass(false, &[]), []);
}
