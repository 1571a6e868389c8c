//! What the engine does with an offer, by policy.

use super::*;
use crate::PolicyRule;
use crate::create::key_of;
use crate::message::{refuse, request, respond};
use crate::policy::Pattern;
use crate::told::ToNear;
use isthmus_smb_wire::FileId;
use isthmus_smb_wire::Name;
use isthmus_smb_wire::build;
use isthmus_smb_wire::fscc::FileTimesAndSizes;
use isthmus_smb_wire::header::{HEADER_LEN, Header};
use isthmus_smb_wire::messages::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, FileAttributes, ShareAccess,
};
use isthmus_smb_wire::name::utf16;

const SESSION: u64 = 5;
const TREE: u32 = 6;

fn numbered(mut message: Vec<u8>, message_id: u64) -> Vec<u8> {
    Header::lenient(&mut message[..]).set_message_id(message_id);
    message
}

fn create(name: &str, message_id: u64) -> Vec<u8> {
    let name = utf16(name);
    let body = build::Create {
        oplock_level: OplockLevel::NONE,
        desired_access: AccessMask::READ_DATA,
        file_attributes: FileAttributes(0),
        share_access: ShareAccess::READ,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::NONE,
        name: Name::new(&name),
        contexts: &[],
    };
    numbered(request(SESSION, TREE, 1, &body).unwrap(), message_id)
}

/// MS-SMB2 2.2.9.
fn tree_connect(path: &str) -> Vec<u8> {
    let path = utf16(path);
    let mut message = request(SESSION, TREE, 1, &build::Echo).unwrap();
    Header::lenient(&mut message[..]).set_command(Command::TREE_CONNECT);
    message.truncate(HEADER_LEN);
    let at = HEADER_LEN as u16 + 8;
    [9, 0, at, path.len() as u16].iter().for_each(|field| message.extend_from_slice(&field.to_le_bytes()));
    message.extend_from_slice(&path);
    message
}

/// A near engine whose client has connected the share `Data`, and which has an offer of `a.txt`.
fn offered(policy: Policy, theirs: Option<Policy>) -> Near {
    let mut near = Near::new(policy, false);
    let (mut out, mut now) = (Out::default(), 1_000);
    let connect = tree_connect("\\\\fs\\Data");
    assert_eq!(near.request(now, Carriage::Plain, &connect, &mut out), Fate::Forward);
    let _ = near.response(now, &refuse(&connect, Status::SUCCESS).unwrap());
    let mut tell = |near: &mut Near, told: ToNear| {
        near.told(now, &told.told(Bytes::new()).head, Bytes::new(), &mut out).unwrap();
        now += 1;
    };
    tell(&mut near, ToNear::Hello { strict: false });
    if let Some(theirs) = theirs {
        tell(&mut near, ToNear::Policy(theirs));
    }
    tell(&mut near, ToNear::Pong(1_000));
    let asked = create("a.txt", 9);
    let body = build::CreateResponse {
        oplock_level: OplockLevel::NONE,
        flags: 0,
        create_action: CreateAction::OPENED,
        attributes: FileTimesAndSizes::default(),
        file_id: FileId { persistent: 1, volatile: 2 },
        contexts: &[],
    };
    let offer = Offer {
        id: 1,
        key: key_of(&asked).unwrap(),
        name: utf16("a.txt"),
        session: SESSION,
        lease_state: 3,
        tag: 0,
        response: respond(&asked, Status::SUCCESS, &body).unwrap(),
        answers: Vec::new(),
        whole: true,
    };
    tell(&mut near, ToNear::Offer(Box::new(offer)));
    near
}

fn opens_here(near: &mut Near) -> bool {
    let mut out = Out::default();
    near.request(2_000, Carriage::Plain, &create("a.txt", 10), &mut out) == Fate::Consumed
}

fn rule(shares: &str, mode: Mode) -> Policy {
    let shares = vec![Pattern::new(shares).unwrap()];
    let mut policy = Policy::default();
    policy.rules.insert(0, PolicyRule { shares, mode: Some(mode), ..PolicyRule::default() });
    policy
}

#[test]
fn an_offer_is_given_out_where_both_sides_allow_it() {
    assert!(opens_here(&mut offered(Policy::default(), None)));
    assert!(opens_here(&mut offered(rule("other", Mode::Off), Some(rule("dat", Mode::Strict)))));
}

#[test]
fn an_engine_that_was_stopped_answers_nothing_more() {
    let mut near = offered(Policy::default(), None);
    near.stop();
    assert!(!opens_here(&mut near) && near.permits() == 0);
    let mut out = Out::default();
    near.tick(9_000_000, &mut out);
    assert!(out.wan.is_empty() && out.lan.is_empty());
}

#[test]
fn a_rule_of_either_side_keeps_it_back() {
    for mode in [Mode::Strict, Mode::Off] {
        let mut near = offered(rule("d?ta", mode), None);
        assert!(!opens_here(&mut near));
        assert_eq!(near.mode(), mode);
        assert!(!opens_here(&mut offered(Policy::default(), Some(rule("DATA", mode)))));
    }
}

#[test]
fn a_trace_tells_what_an_offer_has_answered() {
    let mut near = offered(Policy::default(), None);
    assert!(near.trace(1_900, 0).is_empty());
    assert!(opens_here(&mut near));
    let seen = near.trace(2_100, 0);
    assert_eq!((seen.len(), seen[0].name.as_str()), (1, "a.txt"));
    assert_eq!(seen[0].answered, Answered::Locally(Why::Offer(1)));
}
