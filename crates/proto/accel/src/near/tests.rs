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

fn greeted() -> Near {
    let mut near = Near::new(Policy::default(), false);
    tell(&mut near, &ToNear::Hello { strict: false }, b"");
    tell(&mut near, &ToNear::Pong(1_000), b"");
    near
}

fn tell(near: &mut Near, told: &ToNear, content: &'static [u8]) -> Out {
    let mut out = Out::default();
    let content = Bytes::from_static(content);
    near.told(1_000, &told.told(content.clone()).head, content, &mut out).unwrap();
    out
}

fn read(file_id: FileId, offset: u64, length: u32, message_id: u64) -> Vec<u8> {
    let flags = isthmus_smb_wire::messages::ReadFlags::NONE;
    let body = build::Read { flags, file_id: Some(file_id), offset, length, minimum_count: 0 };
    numbered(request(SESSION, TREE, 1, &body).unwrap(), message_id)
}

#[test]
fn a_request_is_answered_however_many_others_wait() {
    let mut near = greeted();
    let (file_id, count) = (FileId { persistent: 1, volatile: 2 }, 3 * crate::limits::PENDING_MAX as u64);
    for message_id in 0..count {
        let asked = read(file_id, message_id, 1, message_id);
        assert_eq!(near.request(1_500, Carriage::Plain, &asked, &mut Out::default()), Fate::Forward);
    }
    for message_id in 0..count {
        let out = tell(&mut near, &ToNear::Answer(message_id), b"");
        assert_eq!(out.wan.len(), 1, "{message_id} is asked again, since there is nothing to answer it from");
    }
}

/// The client opens `a.txt` to read and write it, under a lease that both of its opens have.
fn open_leased(near: &mut Near, persistent: u64) -> FileId {
    let (file_id, name) = (FileId { persistent, volatile: 0 }, utf16("a.txt"));
    let lease = build::lease_v2([9; 16], LeaseState(7), None, 0);
    let contexts = [build::NewContext { name: isthmus_smb_wire::create_context::name::LEASE, data: &lease }];
    let body = build::Create {
        oplock_level: OplockLevel::LEASE,
        desired_access: AccessMask::READ_DATA.with(AccessMask::WRITE_DATA),
        file_attributes: FileAttributes(0),
        share_access: ShareAccess::READ,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::NONE,
        name: Name::new(&name),
        contexts: &contexts,
    };
    let asked = numbered(request(SESSION, TREE, 1, &body).unwrap(), persistent);
    assert_eq!(near.request(1_100, Carriage::Plain, &asked, &mut Out::default()), Fate::Forward);
    let body = build::CreateResponse {
        oplock_level: OplockLevel::LEASE,
        flags: 0,
        create_action: CreateAction::OPENED,
        attributes: FileTimesAndSizes::default(),
        file_id,
        contexts: &contexts,
    };
    assert_eq!(near.response(1_200, &respond(&asked, Status::SUCCESS, &body).unwrap()), Fate::Forward);
    file_id
}

#[test]
fn what_is_written_through_one_open_is_read_through_another() {
    let mut near = greeted();
    let (one, other) = (open_leased(&mut near, 1), open_leased(&mut near, 2));
    let mut next = 10;
    let mut ask = |near: &mut Near, file_id, offset, length| {
        next += 1;
        let mut out = Out::default();
        near.request(1_500, Carriage::Plain, &read(file_id, offset, length, next), &mut out);
        let answer = out.lan.pop()?.message;
        let view = isthmus_smb_wire::messages::ReadResponse::parse(&answer[..]).unwrap();
        Some(view.payload().to_vec())
    };
    let write = |near: &mut Near, offset, payload: &[u8]| {
        let body = build::Write {
            flags: isthmus_smb_wire::messages::WriteFlags::NONE,
            file_id: Some(other),
            offset,
            payload,
        };
        let mut out = Out::default();
        near.request(
            1_500,
            Carriage::Plain,
            &numbered(request(SESSION, TREE, 1, &body).unwrap(), 900),
            &mut out,
        );
        out.lan.len()
    };
    // Both CREATEs count as changes, and so does the WRITE.
    let (before, after) = (2, 3);
    let data = |tag| ToNear::Data { file_id: one, offset: 0, end: true, tag };
    tell(&mut near, &data(before), b"0123456789");
    assert_eq!(ask(&mut near, other, 2, 4).unwrap(), b"2345");
    // The server is to answer the WRITE, so until it has been asked nobody knows what is there.
    assert_eq!(write(&mut near, 2, b"ab"), 0);
    assert_eq!((ask(&mut near, one, 0, 10), ask(&mut near, one, 4, 6).unwrap()), (None, b"456789".to_vec()));
    // What was asked for before the WRITE does not tell, what was asked for after it does.
    tell(&mut near, &data(before), b"0123456789");
    assert_eq!(ask(&mut near, one, 0, 10), None);
    tell(&mut near, &data(after), b"01ab456789");
    assert_eq!(ask(&mut near, one, 0, 10).unwrap(), b"01ab456789");
    tell(&mut near, &ToNear::Behind(other), b"");
    assert_eq!(write(&mut near, 8, b"yz"), 1, "it counts as done");
    assert_eq!(ask(&mut near, one, 0, 10).unwrap(), b"01ab4567yz");
    tell(&mut near, &ToNear::Written { message_id: 900, file_id: other, good: false }, b"");
    assert_eq!(ask(&mut near, one, 0, 10), None, "it was not done");
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
