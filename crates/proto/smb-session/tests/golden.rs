//! Captured connections through two proxies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use bytes::BytesMut;
use isthmus_smb_crypto::{TransformHeader, is_transform};
use isthmus_smb_session::{Connection, Intake, SessionState, State};
use isthmus_types::Side;
use std::collections::HashSet;
use support::{Capture, Pair, captures, frame};

fn encrypted(capture: &Capture) -> bool {
    capture.messages.iter().any(|(_, message)| is_transform(message))
}

#[test]
fn without_keys_every_capture_comes_out_as_it_went_in() {
    for capture in captures() {
        let mut pair = Pair::new(None);
        pair.same(&capture.messages);
        let expected = if encrypted(&capture) { State::EncryptedNoKeys } else { State::SignedNoKeys };
        for connection in [&pair.client, &pair.server] {
            let status = connection.status();
            assert_eq!(status.state(), expected, "{}", capture.name);
            assert_eq!(status.reason.as_deref(), Some("no source of keys is set up"));
        }
        let data = pair.up.content + pair.down.content;
        assert!(data >= 300_000, "{}: {data} bytes of content", capture.name);
    }
}

#[test]
fn with_keys_signed_captures_come_out_as_they_went_in_and_encrypted_ones_with_the_same_inside() {
    for capture in captures() {
        let mut pair = Pair::new(Some(capture.keys.clone()));
        let mut nonces = [HashSet::new(), HashSet::new()];
        let mut passed = Vec::new();
        for (index, (from_server, message)) in capture.messages.iter().enumerate() {
            let out = pair.pass(*from_server, message);
            if is_transform(message) {
                assert_eq!(out.len(), message.len());
                for message in [message, &out] {
                    let nonce = TransformHeader::parse(message).unwrap().nonce;
                    assert!(nonces[usize::from(*from_server)].insert(nonce), "{} {index}", capture.name);
                }
            } else {
                assert!(out == *message, "{} message {index}", capture.name);
            }
            passed.push((*from_server, out));
        }
        assert_inside(&capture, &passed);
        let expected = if encrypted(&capture) { State::EncryptedKeys } else { State::SignedKeys };
        for connection in [&pair.client, &pair.server] {
            let status = connection.status();
            assert_eq!((status.state(), status.reason), (expected, None), "{}", capture.name);
            assert_eq!(status.sessions.len(), 1);
            let session = &status.sessions[0];
            assert_eq!((session.state, &session.user[..]), (SessionState::Keys, "alice"));
        }
        assert_eq!(pair.up.content, 300_000, "{}", capture.name);
        let structure: usize = pair.up.structures.iter().chain(&pair.down.structures).map(Vec::len).sum();
        assert!(structure < 6_000, "{}: {structure} bytes of structure", capture.name);
    }
}

/// Both recordings, as it was captured and as it came out, give the same structure and content, which is what was inside.
fn assert_inside(capture: &Capture, passed: &[(bool, Vec<u8>)]) {
    let crossings = |messages: &[(bool, Vec<u8>)]| {
        let (mut pair, mut all) = (Pair::new(Some(capture.keys.clone())), Vec::new());
        for (from_server, message) in messages {
            let way = pair.way(*from_server);
            let mut input = BytesMut::from(&frame(message)[..]);
            let crossing = way.intake.take(&mut input).unwrap().unwrap();
            if let Some(note) = &crossing.note {
                way.assembler.note(note).unwrap();
            }
            way.assembler.structure(&crossing.structure).unwrap();
            crossing.content.iter().for_each(|piece| way.assembler.content(piece.clone()));
            way.assembler.next().unwrap().unwrap();
            all.push((crossing.structure, crossing.content.concat()));
        }
        all
    };
    assert!(crossings(&capture.messages) == crossings(passed), "{}", capture.name);
}

#[test]
fn captures_are_recognised_and_cross_however_they_are_split() {
    for capture in captures() {
        let first = frame(&capture.messages[0].1);
        assert_eq!(isthmus_smb_session::recognise(&first), isthmus_smb_session::Recognised::Smb);
        let all: Vec<u8> =
            capture.messages.iter().filter(|(way, _)| !way).flat_map(|(_, m)| frame(m)).collect();
        let run = |size: usize| {
            let mut intake = Intake::new(Connection::new(Side::Client, [1; 32]), None);
            let (mut input, mut out) = (BytesMut::new(), Vec::new());
            for piece in all.chunks(size) {
                input.extend_from_slice(piece);
                while let Some(crossing) = intake.take(&mut input).unwrap() {
                    out.push((crossing.structure, crossing.content.concat()));
                }
            }
            assert!(input.is_empty());
            out
        };
        assert!(run(1_000) == run(all.len()), "{}", capture.name);
    }
}
