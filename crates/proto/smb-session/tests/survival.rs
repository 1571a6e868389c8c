//! What sessions go through between two proxies: they expire, their messages come again or in another order, credits run out,
//! clients go away. What comes out is always what went in.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use isthmus_smb_crypto::TransformHeader;
use isthmus_smb_session::{IntakeError, SessionState, SessionTable, State};
use isthmus_smb_wire::build::{self, HeaderFields};
use isthmus_smb_wire::{Command, Status};
use std::collections::HashSet;
use support::ends::{Ends, File, Fixed, KEY, Protection, Setting, settings};
use support::{Failure, Pair, frame};

fn begun(setting: Setting) -> (Ends, Pair) {
    let (mut ends, mut pair) = (Ends::new(setting), Pair::new(Some(Fixed::new(KEY))));
    let begin = ends.begin();
    same(&ends, &mut pair, &begin);
    (ends, pair)
}

/// Passes messages that must come out as they are, encrypted ones with the same inside. Gives what came out.
fn same(ends: &Ends, pair: &mut Pair, messages: &[(bool, Vec<u8>)]) -> Vec<(bool, Vec<u8>)> {
    let pass = |(index, (from_server, message)): (usize, &(bool, Vec<u8>))| {
        let out = pair.pass(*from_server, message);
        if message.starts_with(b"\xfdSMB") {
            assert!(ends.open(&out, *from_server) == ends.open(message, *from_server), "message {index}");
        } else {
            assert!(out == *message, "message {index}");
        }
        (*from_server, out)
    };
    messages.iter().enumerate().map(pass).collect()
}

/// Opens a file, reads and writes it in parts, and closes it.
fn work(ends: &mut Ends, number: u64) -> Vec<(bool, Vec<u8>)> {
    let (file, data) = (File::new(number, 9_000), vec![number as u8; 3_000]);
    let mut messages = ends.exchange(&file.create(), &file.created()).to_vec();
    for offset in [0, 3_000, 6_000] {
        let written = build::WriteResponse { count: 3_000 };
        messages.extend(ends.exchange(&file.write(offset, &data), &written));
        messages.extend(ends.exchange(&file.read(offset, 3_000), &build::ReadResponse { payload: &data }));
    }
    messages.extend(ends.exchange(&file.close(), &build::CloseResponse { attributes: None }));
    messages
}

/// The nonces of encrypted messages, by way.
fn nonces(messages: &[(bool, Vec<u8>)]) -> impl Iterator<Item = (bool, [u8; 16])> {
    messages.iter().filter_map(|(from_server, message)| {
        TransformHeader::parse(message).ok().map(|header| (*from_server, header.nonce))
    })
}

#[test]
fn a_session_that_expires_in_mid_transfer_goes_on_when_it_is_authenticated_again() {
    for setting in settings() {
        let (mut ends, mut pair) = begun(setting);
        let (file, data) = (File::new(1, 9_000), vec![3; 3_000]);
        let mut messages = ends.exchange(&file.create(), &file.created()).to_vec();
        messages.extend(ends.exchange(&file.write(0, &data), &build::WriteResponse { count: 3_000 }));
        // The session has expired: whatever is asked is refused.
        let expired = |command| build::ErrorResponse { command, context_count: 0, data: &[] };
        for _ in 0..2 {
            messages.push((false, ends.request(&file.write(3_000, &data))));
            let refusal = ends.response(&expired(Command::WRITE), Status::NETWORK_SESSION_EXPIRED);
            messages.push((true, refusal));
        }
        // A request that was sent before the client knew is answered in the middle of the authentication.
        let late = ends.fields(false, Status::SUCCESS);
        messages.push((false, ends.request(&file.read(0, 3_000))));
        ends.message_id += 1;
        let mut again = ends.authenticate_again();
        let answer = HeaderFields { status: Status::NETWORK_SESSION_EXPIRED, ..late };
        let answer = build::message(&answer, &expired(Command::READ)).unwrap();
        again.insert(2, (true, ends.protect(answer, true)));
        messages.extend(again);
        messages.extend(ends.exchange(&file.write(3_000, &data), &build::WriteResponse { count: 3_000 }));
        messages.extend(ends.exchange(&file.read(0, 3_000), &build::ReadResponse { payload: &data }));
        messages.extend(work(&mut ends, 2));
        let passed = same(&ends, &mut pair, &messages);
        let mut seen = HashSet::new();
        assert!(nonces(&messages).chain(nonces(&passed)).all(|nonce| seen.insert(nonce)), "{setting:?}");
        for connection in [&pair.client, &pair.server] {
            let status = connection.status();
            assert_eq!(status.sessions.len(), 1);
            assert_eq!((status.sessions[0].state, status.reason), (SessionState::Keys, None), "{setting:?}");
        }
    }
}

#[test]
fn a_session_whose_new_authentication_fails_leaves_nothing_behind() {
    for setting in settings() {
        let (mut ends, mut pair) = begun(setting);
        let mut again = ends.authenticate_again();
        again.truncate(2);
        same(&ends, &mut pair, &again);
        // The server gives the session up, and the client makes another on the same connection.
        let messages = ends.log_off();
        same(&ends, &mut pair, &messages);
        let mut other = Ends::new(setting);
        (other.hash, other.session_id, other.message_id) = (ends.hash.clone(), 77, ends.message_id);
        pair.same(&other.session_setup(0, None));
        let [request, response] = other.tree_connect();
        same(&other, &mut pair, &[(false, request), (true, response)]);
        let messages = work(&mut other, 1);
        same(&other, &mut pair, &messages);
        let sessions = pair.client.status().sessions;
        let state =
            |id| sessions.iter().find(|session| session.session_id == id).map(|session| session.state);
        assert_eq!(state(77), Some(SessionState::Keys), "{setting:?}");
        assert_eq!(state(ends.session_id), Some(SessionState::Ended));
    }
}

#[test]
fn messages_that_come_again_or_in_another_order_are_left_for_their_receiver_to_refuse() {
    for setting in settings() {
        let (mut ends, mut pair) = begun(setting);
        let good = work(&mut ends, 1);
        let passed = same(&ends, &mut pair, &good);
        // All of it again, each message twice, backwards, and answers before their requests.
        let twice: Vec<_> = good.iter().flat_map(|message| [message.clone(), message.clone()]).collect();
        let backwards: Vec<_> = good.iter().rev().cloned().collect();
        let answers_first: Vec<_> = [true, false]
            .into_iter()
            .flat_map(|way| good.iter().filter(move |(from_server, _)| *from_server == way).cloned())
            .collect();
        let mut nonces_out: HashSet<_> = nonces(&passed).collect();
        for messages in [&good, &twice, &backwards, &answers_first] {
            for nonce in nonces(&same(&ends, &mut pair, messages)) {
                assert!(nonces_out.insert(nonce), "a replay made a nonce come again: {setting:?}");
            }
        }
        // And the session goes on.
        let more = work(&mut ends, 2);
        same(&ends, &mut pair, &more);
        assert_eq!(pair.client.status().sessions[0].state, SessionState::Keys);
    }
}

#[test]
fn messages_sent_back_to_their_sender_are_not_taken_for_the_others() {
    for setting in settings() {
        let (mut ends, mut pair) = begun(setting);
        let messages = work(&mut ends, 1);
        same(&ends, &mut pair, &messages);
        for (from_server, message) in &messages {
            let passed = pair.way(!from_server).pass(&frame(message));
            if setting.protection == Protection::Sealed {
                // Each way has a key of its own.
                assert_eq!(passed, Err(Failure::Intake(IntakeError::NotAuthentic)), "{setting:?}");
                break;
            }
            assert_eq!(passed.unwrap().concat(), frame(message), "{setting:?}");
        }
    }
}

#[test]
fn a_client_without_credits_is_held_up_by_its_server_alone() {
    for setting in settings() {
        let (mut ends, mut pair) = begun(setting);
        let file = File::new(1, 9_000);
        let messages = ends.exchange(&file.create(), &file.created());
        same(&ends, &mut pair, &messages);
        for (charge, granted) in [(1, 0), (1, 1), (40, 8_192), (0, 0xffff), (0xffff, 0)] {
            let fields = ends.fields(false, Status::SUCCESS);
            let ask = HeaderFields { credit_charge: charge, credits: granted, ..fields };
            let request = build::message(&ask, &file.read(0, 3_000)).unwrap();
            let interim = build::ErrorResponse { command: Command::READ, context_count: 0, data: &[] };
            // Credits come with the interim response, and the last answer has none (MS-SMB2 3.3.4.2).
            let pending = HeaderFields { async_id: Some(9), status: Status::PENDING, ..ask };
            let pending = build::message(&pending, &interim).unwrap();
            let last = HeaderFields { async_id: Some(9), credits: 0, ..ask };
            let last = build::message(&last, &build::ReadResponse { payload: &[7; 3_000] }).unwrap();
            let messages = [(false, request), (true, pending), (true, last)];
            let messages = messages.map(|(way, message)| (way, ends.protect(message, way)));
            // Each crosses by itself: nothing waits for a message that the client has no credit for.
            same(&ends, &mut pair, &messages);
            ends.message_id += u64::from(charge.max(1));
        }
    }
}

#[test]
fn a_client_that_goes_away_with_requests_pending_leaves_nothing_behind() {
    for setting in settings() {
        let table = SessionTable::new();
        let mut ends = Ends::new(setting);
        let mut pair = Pair::with(Some(Fixed::new(KEY)), table.clone(), 1);
        let begin = ends.begin();
        same(&ends, &mut pair, &begin);
        assert_eq!(table.len(), 1);
        let file = File::new(1, 9_000);
        let mut answers = Vec::new();
        for _ in 0..50 {
            let answer = build::ReadResponse { payload: &[5; 3_000] };
            let [request, answer] = ends.exchange(&file.read(0, 3_000), &answer);
            same(&ends, &mut pair, &[request]);
            answers.push(answer);
        }
        // Its last request is cut off, and crosses as far as it came.
        let last = frame(&ends.request(&file.read(0, 3_000)));
        let (part, _) = last.split_at(last.len() / 2);
        assert!(pair.up.pass(part).unwrap().is_empty());
        assert_eq!(pair.up.finish().unwrap().concat(), part);
        // What the server still answers crosses too.
        same(&ends, &mut pair, &answers);
        assert_ne!(pair.client.status().state(), State::NotSmb);
        assert!(pair.down.finish().unwrap().is_empty());
        drop(pair);
        assert!(table.is_empty());
    }
}
