//! Made-up sessions through two proxies: every dialect, algorithm and cipher, and what goes wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may panic, as tests do")]

mod support;

use isthmus_smb_auth::Exchange;
use isthmus_smb_crypto::{Dialect, SigningAlgorithm, TransformHeader};
use isthmus_smb_session::{
    AssembleError, Bindings, IntakeError, KeySource, Obstacle, Policy, Refused, Released, SessionState,
    SessionTable, State,
};
use isthmus_smb_wire::{build, compound};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::ends::{Ends, File, Fixed, GMAC, KEY, Protection, Refuses, Setting, settings};
use support::{Failure, Pair, Source, frame};

fn keys() -> Option<Source> {
    Some(Fixed::new(KEY))
}

fn data() -> Vec<u8> {
    (0..70_000u32).flat_map(|number| number.to_le_bytes()).collect()
}

/// Opens a file, writes to it, reads it, and closes it.
fn work(ends: &mut Ends, number: u64) -> Vec<(bool, Vec<u8>)> {
    let (file, data) = (File::new(number, 280_000), data());
    let mut messages = ends.exchange(&file.create(), &file.created()).to_vec();
    let half = data.len() / 2;
    for (offset, part) in [(0, &data[..half]), (half, &data[half..])] {
        let answer = build::WriteResponse { count: part.len() as u32 };
        messages.extend(ends.exchange(&file.write(offset as u64, part), &answer));
        let answer = build::ReadResponse { payload: part };
        messages.extend(ends.exchange(&file.read(offset as u64, part.len() as u32), &answer));
    }
    messages.extend(ends.exchange(&file.close(), &build::CloseResponse { attributes: None }));
    messages
}

/// Passes messages whose plaintext must come out as it is.
fn same_inside(ends: &Ends, pair: &mut Pair, messages: &[(bool, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut passed = Vec::new();
    for (index, (from_server, message)) in messages.iter().enumerate() {
        let out = pair.pass(*from_server, message);
        if message.starts_with(b"\xfdSMB") {
            assert!(ends.open(&out, *from_server) == ends.open(message, *from_server), "message {index}");
            assert!(out != *message, "message {index} was not encrypted anew");
        } else {
            assert!(out == *message, "message {index}");
        }
        passed.push(out);
    }
    passed
}

#[test]
fn with_keys_signatures_do_not_cross_and_come_out_the_same() {
    for setting in settings().into_iter().filter(|setting| setting.protection == Protection::Signed) {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        pair.same(&ends.begin());
        assert_eq!(pair.down.notes, 1);
        pair.up.structures.clear();
        pair.down.structures.clear();
        let messages = work(&mut ends, 1);
        pair.same(&messages);
        assert_eq!((pair.up.content, pair.down.content), (280_000, 280_000));
        for (_, message) in &messages {
            let crossed = pair.up.structures.iter().chain(&pair.down.structures);
            for structure in crossed {
                assert!(!structure.windows(8).any(|bytes| bytes == &message[50..58]), "a signature crossed");
            }
        }
        for connection in [&pair.client, &pair.server] {
            let status = connection.status();
            assert_eq!(status.state(), State::SignedKeys, "{setting:?}");
            assert_eq!((status.reason, status.server.as_deref()), (None, Some("files")));
            assert_eq!(status.shares, ["share"]);
            assert_eq!(status.dialect, Some(setting.dialect));
            let session = &status.sessions[0];
            assert_eq!(
                (session.state, &session.user[..], &session.domain[..]),
                (SessionState::Keys, "alice", "WAN")
            );
        }
    }
}

#[test]
fn without_keys_signed_messages_are_parted_and_encrypted_ones_relayed() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(None));
        pair.same(&ends.begin());
        pair.same(&work(&mut ends, 1));
        assert_eq!(pair.down.notes, 1);
        let status = pair.client.status();
        assert_eq!(status.reason.as_deref(), Some("no source of keys is set up"));
        if setting.protection == Protection::Signed {
            assert_eq!(status.state(), State::SignedNoKeys);
            assert_eq!((pair.up.content, pair.down.content), (280_000, 280_000));
        } else {
            assert_eq!(status.state(), State::EncryptedNoKeys);
        }
    }
}

#[test]
fn encrypted_messages_cross_in_clear_and_no_nonce_is_used_twice() {
    for setting in settings().into_iter().filter(|setting| setting.protection == Protection::Sealed) {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let mut messages = ends.begin();
        for number in 0..20 {
            messages.extend(work(&mut ends, number));
        }
        let passed = same_inside(&ends, &mut pair, &messages);
        assert_eq!((pair.up.content, pair.down.content), (20 * 280_000, 20 * 280_000));
        for from_server in [false, true] {
            let mut nonces = HashSet::new();
            let legs = messages.iter().map(|(way, message)| (*way, message)).zip(&passed);
            for ((way, near), far) in legs {
                if way == from_server && near.starts_with(b"\xfdSMB") {
                    for message in [near, far] {
                        assert!(nonces.insert(TransformHeader::parse(message).unwrap().nonce), "{setting:?}");
                    }
                }
            }
            assert!(nonces.len() > 200);
        }
        assert_eq!(pair.client.status().state(), State::EncryptedKeys);
        assert_eq!(pair.server.status().state(), State::EncryptedKeys);
        for structure in pair.up.structures.iter().chain(&pair.down.structures) {
            assert!(!structure.windows(4).any(|bytes| bytes == b"\xfdSMB"), "an encrypted message crossed");
        }
    }
}

#[test]
fn messages_that_were_altered_on_the_lan_are_left_for_their_receiver_to_refuse() {
    for setting in settings().into_iter().filter(|setting| setting.protection == Protection::Signed) {
        for (leg, at) in
            [(false, 70), (true, 70), (false, 30), (true, 9), (false, 55), (true, 200), (false, 200)]
        {
            let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
            pair.same(&ends.begin());
            let mut messages = work(&mut ends, 1);
            let altered =
                messages.iter_mut().find(|(way, message)| *way == leg && message.len() > at).unwrap();
            altered.1[at] ^= 1;
            // All comes out as it went in, the altered message with its signature, which is wrong there as well.
            pair.same(&messages);
        }
    }
}

#[test]
fn an_altered_encrypted_message_ends_the_connection() {
    for setting in settings().into_iter().filter(|setting| setting.protection == Protection::Sealed) {
        for leg in [false, true] {
            for at in [4, 20, 44, 60] {
                let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
                let begin = ends.begin();
                same_inside(&ends, &mut pair, &begin);
                for (from_server, mut message) in work(&mut ends, 1) {
                    if from_server == leg {
                        message[at] ^= 1;
                        let result = pair.way(from_server).pass(&frame(&message));
                        if at == 44 {
                            // Names another session, of which nothing is known.
                            assert_eq!(result.unwrap().concat(), frame(&message));
                        } else {
                            assert_eq!(result, Err(Failure::Intake(IntakeError::NotAuthentic)));
                        }
                        break;
                    }
                    pair.pass(from_server, &message);
                }
            }
        }
    }
}

#[test]
fn a_wrong_key_is_found_out_and_all_is_relayed() {
    for setting in settings() {
        for final_signed in [true, false] {
            let (mut ends, mut pair) =
                (Ends::new(Setting { final_signed, ..setting }), Pair::new(Some(Fixed::new([9; 16]))));
            pair.same(&ends.begin());
            pair.same(&work(&mut ends, 1));
            let status = pair.client.status();
            assert!(matches!(status.state(), State::SignedNoKeys | State::EncryptedNoKeys), "{setting:?}");
            let reason = status.reason.unwrap();
            assert!(reason.starts_with("the session key found does not"), "{reason}");
            assert_eq!(pair.server.status().sessions[0].state, SessionState::NoKeys);
        }
    }
}

#[test]
fn keys_that_the_last_answer_does_not_prove_are_proved_by_the_first_message() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(Setting { final_signed: false, ..setting }), Pair::new(keys()));
        let begin = ends.begin();
        let (setup, tree) = begin.split_at(begin.len() - 2);
        pair.same(setup);
        assert_eq!(pair.down.notes, 0);
        assert_eq!(pair.server.status().sessions[0].state, SessionState::Unproved);
        // The request crosses as it is; the answer brings the keys along.
        assert!(pair.pass(false, &tree[0].1) == tree[0].1);
        assert_eq!(pair.server.status().sessions[0].state, SessionState::Keys);
        assert_eq!(pair.client.status().sessions, []);
        same_inside(&ends, &mut pair, &tree[1..]);
        assert_eq!(pair.down.notes, 1);
        let messages = work(&mut ends, 1);
        same_inside(&ends, &mut pair, &messages);
        let expected =
            if setting.protection == Protection::Signed { State::SignedKeys } else { State::EncryptedKeys };
        assert_eq!((pair.client.status().state(), pair.server.status().state()), (expected, expected));
    }
}

#[test]
fn a_session_is_told_by_the_messages_that_follow_its_beginning() {
    for setting in settings().into_iter().filter(|setting| setting.protection == Protection::Sealed) {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let [request, response] = ends.negotiate();
        pair.same(&[(false, request), (true, response)]);
        pair.same(&ends.session_setup(0, None));
        // As with a server that has one share encrypted: up to here all is signed.
        ends.setting.protection = Protection::Signed;
        let [request, response] = ends.tree_connect();
        pair.same(&[(false, request), (true, response)]);
        for connection in [&pair.client, &pair.server] {
            let status = connection.status();
            assert_eq!((status.state(), status.sessions[0].messages), (State::NotYet, None));
        }
        ends.setting.protection = Protection::Sealed;
        let messages = work(&mut ends, 1);
        same_inside(&ends, &mut pair, &messages);
        for connection in [&pair.client, &pair.server] {
            assert_eq!(connection.status().sessions[0].messages, Some(State::EncryptedKeys));
        }
    }
}

#[test]
fn a_refusal_is_shown_on_both_sides() {
    let (mut ends, mut pair) = (Ends::new(GMAC), Pair::new(Some(Arc::new(Refuses))));
    pair.same(&ends.begin());
    pair.same(&work(&mut ends, 1));
    for connection in [&pair.client, &pair.server] {
        let status = connection.status();
        assert_eq!(status.state(), State::SignedNoKeys);
        assert_eq!(status.reason.as_deref(), Some("the user is not enrolled on this peer"));
    }
}

#[test]
fn guests_and_anonymous_users_have_no_keys() {
    for (flags, reason) in
        [(1, "guest session, which has no key"), (2, "anonymous session, which has no key")]
    {
        let setting = Setting { protection: Protection::None, final_signed: false, ..GMAC };
        let source = Fixed::new(KEY);
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(Some(source.clone())));
        let [request, response] = ends.negotiate();
        pair.same(&[(false, request), (true, response)]);
        pair.same(&ends.session_setup(flags, None));
        let [request, response] = ends.tree_connect();
        pair.same(&[(false, request), (true, response)]);
        pair.same(&work(&mut ends, 1));
        assert_eq!(*source.1.lock().unwrap(), 0, "the source of keys was asked");
        let status = pair.client.status();
        assert_eq!((status.state(), status.reason), (State::Clear, None));
        assert_eq!(status.sessions[0].reason.as_deref(), Some(reason));
        assert_eq!(pair.up.content, 280_000);
    }
}

#[test]
fn authenticating_again_changes_no_keys() {
    for setting in settings() {
        let source = Fixed::new(KEY);
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(Some(source.clone())));
        let begin = ends.begin();
        same_inside(&ends, &mut pair, &begin);
        let keys = ends.keys.clone().unwrap();
        // The messages of the new authentication name the session; what they would derive is of no use.
        let again = ends.authenticate_again();
        same_inside(&ends, &mut pair, &again);
        assert!(ends.keys.as_ref().unwrap().to_bytes() == keys.to_bytes());
        let messages = work(&mut ends, 1);
        same_inside(&ends, &mut pair, &messages);
        assert_eq!(*source.1.lock().unwrap(), 1);
        assert_eq!(pair.client.status().sessions[0].state, SessionState::Keys);
    }
}

#[test]
fn a_session_that_binds_to_another_connection_has_keys_there_too() {
    for setting in settings().into_iter().filter(|setting| setting.dialect >= Dialect::Smb300) {
        let table = SessionTable::new();
        let (mut first, mut pair) = (Ends::new(setting), Pair::with(keys(), table.clone(), 1));
        let begin = first.begin();
        same_inside(&first, &mut pair, &begin);
        assert_eq!(table.len(), 1);

        let (mut second, mut other) = (Ends::new(setting), Pair::with(keys(), table.clone(), 2));
        let [request, response] = second.negotiate();
        other.same(&[(false, request), (true, response)]);
        other.same(&second.session_setup(0, first.keys.as_ref()));
        // The cipher keys are the same on both, and the proxies encrypt on both.
        let mut nonces = HashSet::new();
        for (ends, pair) in [(&mut first, &mut pair), (&mut second, &mut other)] {
            let messages = work(ends, 1);
            for ((from_server, _), out) in messages.iter().zip(same_inside(ends, pair, &messages)) {
                if let Ok(header) = TransformHeader::parse(&out) {
                    assert!(nonces.insert((*from_server, header.nonce)));
                }
            }
        }
        assert_eq!(nonces.is_empty(), setting.protection == Protection::Signed);
        assert_eq!(other.client.status().sessions[0].state, SessionState::Keys, "{setting:?}");

        drop(pair);
        assert_eq!(table.len(), 1);
        drop(other);
        assert!(table.is_empty());

        let (mut late, mut pair) = (Ends::new(setting), Pair::with(keys(), table, 3));
        let [request, response] = late.negotiate();
        pair.same(&[(false, request), (true, response)]);
        pair.same(&late.session_setup(0, first.keys.as_ref()));
        pair.same(&work(&mut late, 1));
        let reason = pair.client.status().sessions[0].reason.clone();
        assert_eq!(reason.as_deref(), Some("the session this connection binds to is not known"));
    }
}

#[test]
fn a_session_on_two_connections_is_not_accelerated_on_either() {
    let setting = settings().into_iter().find(|setting| setting.protection == Protection::Sealed).unwrap();
    let (table, bindings) = (SessionTable::new(), [Bindings::new(), Bindings::new()]);
    let begun = |random| {
        let pair = Pair::with(keys(), table.clone(), random);
        for (connection, bindings) in [&pair.client, &pair.server].into_iter().zip(&bindings) {
            connection.accelerate(Policy::default(), false, bindings.clone(), Arc::default());
        }
        (Ends::new(setting), pair)
    };
    let obstacles = |pair: &Pair| {
        [&pair.client, &pair.server].map(|connection| {
            let _ = connection.tick();
            connection.acceleration().unwrap().obstacle
        })
    };
    let ((mut first, mut pair), (mut alone, mut apart)) = (begun(1), begun(2));
    for (from_server, message) in first.begin() {
        pair.pass(from_server, &message);
    }
    alone.session_id += 1;
    for (from_server, message) in alone.begin() {
        apart.pass(from_server, &message);
    }
    assert_eq!(obstacles(&pair), [Some(Obstacle::NotYet); 2]);
    let (mut second, mut other) = begun(3);
    for (from_server, message) in second.negotiate().into_iter().enumerate() {
        other.pass(from_server == 1, &message);
    }
    let [(_, request), ..] = &second.session_setup(0, first.keys.as_ref())[..] else { panic!("no request") };
    other.pass(false, request);
    for pair in [&pair, &other] {
        assert_eq!(obstacles(pair), [Some(Obstacle::Channels); 2]);
    }
    assert_eq!(obstacles(&apart), [Some(Obstacle::NotYet); 2], "another session");
}

/// Has the keys of the first session alone.
struct First(Source, AtomicBool);

impl KeySource for First {
    fn release(&self, exchange: &Exchange) -> Result<Released, Refused> {
        match self.1.swap(true, Ordering::Relaxed) {
            false => self.0.release(exchange),
            true => Err(Refused("nobody has them".to_owned())),
        }
    }
}

#[test]
fn a_session_without_keys_ends_a_connection_on_which_messages_are_changed() {
    for (setting, accelerated) in
        settings().into_iter().flat_map(|setting| [(setting, true), (setting, false)])
    {
        if setting.dialect < Dialect::Smb300 || setting.signing == SigningAlgorithm::AesGmac {
            continue;
        }
        let (mut first, mut pair) =
            (Ends::new(setting), Pair::new(Some(Arc::new(First(Fixed::new(KEY), AtomicBool::new(false))))));
        for connection in [&pair.client, &pair.server].into_iter().filter(|_| accelerated) {
            connection.accelerate(Policy::default(), false, Bindings::new(), Arc::default());
        }
        let mut messages = first.begin();
        messages.extend(first.exchange(&build::Echo, &build::EchoResponse));
        for (from_server, message) in messages {
            pair.pass(from_server, &message);
        }
        let mut second = Ends::new(setting);
        second.session_id += 1;
        (second.hash, second.message_id) = (first.hash.clone(), first.message_id);
        let mut setup = second.session_setup(0, None);
        let (_, last) = setup.pop().unwrap();
        for (from_server, message) in setup {
            pair.pass(from_server, &message);
        }
        let passed = pair.way(true).pass(&frame(&last));
        assert_eq!(pair.client.is_mixed(), accelerated, "{setting:?}");
        match accelerated {
            true => assert_eq!(passed, Err(Failure::Assemble(AssembleError::Mixed))),
            false => assert_eq!(passed.unwrap().concat(), frame(&last)),
        }
    }
}

#[test]
fn two_sessions_of_one_connection_are_kept_apart() {
    for setting in settings() {
        let (mut one, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let begin = one.begin();
        same_inside(&one, &mut pair, &begin);
        let mut two = Ends::new(setting);
        (two.hash, two.session_id, two.message_id) = (one.hash.clone(), 99, 100);
        pair.same(&two.session_setup(0, None));
        let (a, b) = (work(&mut one, 1), work(&mut two, 2));
        for (of_one, of_two) in a.iter().zip(&b) {
            same_inside(&one, &mut pair, std::slice::from_ref(of_one));
            same_inside(&two, &mut pair, std::slice::from_ref(of_two));
        }
        assert_eq!(pair.client.status().sessions.len(), 2);
    }
}

#[test]
fn after_a_logoff_what_is_under_way_still_crosses() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let begin = ends.begin();
        same_inside(&ends, &mut pair, &begin);
        let late = ends.request(&build::Echo);
        let messages = ends.log_off();
        same_inside(&ends, &mut pair, &messages);
        assert_eq!(pair.server.status().sessions[0].state, SessionState::Ended);
        same_inside(&ends, &mut pair, &[(false, late)]);
    }
}

#[test]
fn compounds_interim_responses_cancels_and_breaks_come_out_the_same() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let begin = ends.begin();
        same_inside(&ends, &mut pair, &begin);
        for round in 0..3 {
            let messages = ends.unusual(round);
            same_inside(&ends, &mut pair, &messages);
        }
        let status = pair.client.status();
        assert_eq!(status.sessions[0].state, SessionState::Keys);
    }
}

#[test]
fn a_compound_of_which_one_element_was_altered_keeps_that_signature_alone() {
    let (mut ends, mut pair) = (Ends::new(GMAC), Pair::new(keys()));
    pair.same(&ends.begin());
    let mut messages = ends.unusual(0);
    let (_, compound) = &mut messages[0];
    let last = compound::elements(compound).last().unwrap().unwrap();
    compound[last.end - 1] ^= 1;
    pair.same(&messages);
    let without = pair.up.structures.last().unwrap().len();
    assert!(without < 400);
}

#[test]
fn a_peer_cannot_have_messages_signed_or_sealed_without_keys() {
    let (mut ends, mut good) = (Ends::new(GMAC), Pair::new(keys()));
    let mut bad = Pair::new(None);
    let begin = ends.begin();
    good.same(&begin);
    bad.same(&begin);
    let request = ends.request(&build::Echo);
    let crossing = good.up.intake.take(&mut bytes::BytesMut::from(&frame(&request)[..])).unwrap().unwrap();
    bad.up.assembler.structure(&crossing.structure).unwrap();
    assert!(bad.up.assembler.next().is_err());
    assert!(good.up.assembler.note(&[]).is_err(), "the server side takes no notes");
}

#[test]
fn a_key_that_fits_the_signatures_but_not_the_cipher_breaks_nothing() {
    // Of a longer key, signing takes 16 bytes and the long ciphers take all.
    struct Long;
    impl isthmus_smb_session::KeySource for Long {
        fn release(
            &self,
            _: &isthmus_smb_auth::Exchange,
        ) -> Result<isthmus_smb_session::Released, isthmus_smb_session::Refused> {
            let session_key = zeroize::Zeroizing::new([&KEY[..], &[3; 16]].concat());
            Ok(isthmus_smb_session::Released { session_key, user: "alice".to_owned(), domain: String::new() })
        }
    }
    let setting = Setting {
        cipher: Some(isthmus_smb_crypto::Cipher::Aes256Gcm),
        protection: Protection::Sealed,
        ..GMAC
    };
    let (mut ends, mut pair) = (Ends::new(setting), Pair::new(Some(Arc::new(Long))));
    pair.same(&ends.begin());
    pair.same(&work(&mut ends, 1));
    for connection in [&pair.client, &pair.server] {
        let status = connection.status();
        assert_eq!(status.state(), State::EncryptedNoKeys);
        assert_eq!(status.reason.as_deref(), Some("the session key found does not fit the session's cipher"));
    }
}

#[test]
fn a_negotiation_that_begins_with_smb1_is_followed() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let old = [b"\xffSMBr", &[0; 28][..], b"\x02NT LM 0.12\0\x02SMB 2.???\0"].concat();
        pair.same(&[(false, old)]);
        assert_eq!(pair.client.status().state(), State::Smb1);
        let mut any = ends.negotiate()[1].clone();
        any[68..70].copy_from_slice(&0x02ff_u16.to_le_bytes());
        pair.same(&[(true, any)]);
        let messages = ends.begin();
        same_inside(&ends, &mut pair, &messages);
        assert_eq!(pair.client.status().sessions[0].state, SessionState::Keys);
    }
}

/// A message that is compressed in form: one payload, as it is (MS-SMB2 2.2.42.2).
fn compressed(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u32).to_le_bytes();
    [b"\xfcSMB", &length[..], &[0, 0, 1, 0], &length, message].concat()
}

#[test]
fn compressed_messages_are_relayed_in_clear_and_expanded_inside_encrypted_ones() {
    for setting in settings() {
        let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
        let messages = ends.begin();
        same_inside(&ends, &mut pair, &messages);
        let signed = ends.request(&build::Echo);
        if setting.protection == Protection::Sealed {
            let plain = ends.open(&signed, false);
            let sealed = ends.seal(&compressed(&plain), false);
            let out = pair.pass(false, &sealed);
            assert!(ends.open(&out, false) == plain);
        } else {
            pair.same(&[(false, compressed(&signed))]);
            let reason = pair.client.status().reason;
            assert_eq!(reason.as_deref(), Some("compressed messages are relayed as they are"));
        }
    }
}

#[test]
fn what_is_no_message_inside_an_encrypted_one_is_encrypted_anew_as_it_is() {
    let setting = Setting { protection: Protection::Sealed, ..GMAC };
    let (mut ends, mut pair) = (Ends::new(setting), Pair::new(keys()));
    let messages = ends.begin();
    same_inside(&ends, &mut pair, &messages);
    let cut_off = &compressed(b"\xfeSMB")[..18];
    // Chained and not, what is compressed to nothing could not be sealed if it were expanded.
    let nothing = [&compressed(b"")[..], b"\xfcSMB\0\0\0\0\x01\0\0\0\0\0\0\0"];
    let largest = vec![7; 0xff_ffff - 52];
    for plain in [&b"x"[..], b"\xfeSMB", &[7; 5_000], &largest, cut_off, nothing[0], nothing[1]] {
        let sealed = ends.seal(plain, true);
        same_inside(&ends, &mut pair, &[(true, sealed)]);
    }
    // Nothing inside cannot be sealed; such a message is no one's.
    let mut empty = ends.seal(b"x", true);
    empty.truncate(52);
    pair.same(&[(true, empty)]);
}

#[test]
fn halves_can_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<isthmus_smb_session::Intake>();
    is_send::<isthmus_smb_session::Assembler>();
    is_send::<Arc<isthmus_smb_session::Connection>>();
}
