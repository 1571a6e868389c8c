//! The frame codec: every frame survives encoding, no bytes make it panic, and what it accepts it also writes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::{Bytes, BytesMut};
use isthmus_tunnel::{Ack, Error, Frame, Hello, Message, Open, decode, encode, limits};
use isthmus_types::limits::FRAME_WIRE_BYTES_MAX;
use isthmus_types::{Domain, Reason, Side, StoreId};
use proptest::prelude::*;

fn reason() -> impl Strategy<Value = Reason> {
    proptest::sample::select(Reason::ALL.to_vec())
}

fn source() -> impl Strategy<Value = std::net::SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(std::net::SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(std::net::SocketAddr::from),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let data = proptest::collection::vec(any::<u8>(), 1..5_000).prop_map(Bytes::from);
    let flags = any::<[bool; 3]>();
    let open = ("[a-zä.]{1,120}", any::<u16>(), "[a-z/]{0,64}", flags, any::<u64>(), source());
    prop_oneof![
        open.prop_map(|(host, port, domain, [reduce, structured, accelerated], recording, source)| {
            let domain = Domain(domain);
            Message::Open(Open { host, port, domain, reduce, structured, accelerated, recording, source })
        }),
        any::<u64>().prop_map(|recording| Message::Opened { recording }),
        (reason(), "[ -~]{0,255}").prop_map(|(reason, detail)| Message::Failed { reason, detail }),
        data.clone().prop_map(Message::Data),
        data.prop_map(Message::Feedback),
        Just(Message::Fin),
        reason().prop_map(|reason| Message::Reset { reason }),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    let numbers = (any::<(u16, u16)>(), any::<u64>(), any::<bool>(), any::<u64>(), any::<Option<u64>>());
    (numbers, any::<[u8; 16]>(), any::<[u8; 16]>(), "[ -~]{0,64}").prop_map(
        |(numbers, store, instance, software)| {
            let ((a, b), capabilities, client, generation, clock_ms) = numbers;
            let role = if client { Side::Client } else { Side::Server };
            let store = StoreId(store);
            Hello {
                versions: (a.min(b), a.max(b)),
                capabilities,
                role,
                store,
                generation,
                instance,
                software,
                clock_ms,
            }
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let ack = any::<(bool, u64, u64, u64)>();
    prop_oneof![
        message().prop_map(Frame::Message),
        ack.prop_map(|(odd, taken, restored, delivered)| Frame::Ack(Ack { odd, taken, restored, delivered })),
        hello().prop_map(Frame::Hello),
        any::<[u8; 16]>().prop_map(|instance| Frame::Join { instance }),
        Just(Frame::Joined),
        any::<([u8; 16], u64, [u8; 32])>().prop_map(|(channel, arrived, proof)| Frame::Resume {
            channel,
            arrived,
            proof
        }),
        any::<(u64, [u8; 32])>().prop_map(|(arrived, proof)| Frame::Resumed { arrived, proof }),
        (reason(), "[ -~]{0,255}").prop_map(|(reason, detail)| Frame::Refuse { reason, detail }),
        any::<u64>().prop_map(|token| Frame::Ping { token }),
        any::<u64>().prop_map(|token| Frame::Pong { token }),
        any::<[u8; 16]>().prop_map(|channel| Frame::Doubt { channel }),
    ]
}

proptest! {
    #[test]
    fn frames_survive_any_split(frames in proptest::collection::vec(frame(), 1..8), cut in 1usize..64) {
        let mut wire = BytesMut::new();
        frames.iter().for_each(|frame| encode(frame, &mut wire));
        let mut buffer = BytesMut::new();
        let mut got = Vec::new();
        for chunk in wire.chunks(cut) {
            buffer.extend_from_slice(chunk);
            while let Some(frame) = decode(&mut buffer).unwrap() {
                got.push(frame);
            }
        }
        prop_assert_eq!(got, frames);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn any_bytes_are_refused_or_written_back_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut buffer = BytesMut::from(bytes.as_slice());
        while let Ok(Some(frame)) = decode(&mut buffer) {
            let mut again = BytesMut::new();
            encode(&frame, &mut again);
            let used = bytes.len() - buffer.len();
            // A hello may carry fields of a newer version, and trailing zero counters of an acknowledgement may be
            // written or not; all else has one encoding.
            if !matches!(frame, Frame::Hello(_) | Frame::Ack(_)) {
                prop_assert!(bytes[..used].ends_with(&again));
            }
            prop_assert_eq!(decode(&mut again), Ok(Some(frame)));
        }
    }
}

fn decode_all(bytes: &[u8]) -> Result<Option<Frame>, Error> {
    decode(&mut BytesMut::from(bytes))
}

#[test]
fn small_frames_have_small_headers() {
    for (len, header) in [(1, 1), (15, 1), (16, 2), (2_047, 2), (2_048, 3), (FRAME_WIRE_BYTES_MAX, 4)] {
        let mut wire = BytesMut::new();
        encode(&Frame::Message(Message::Data(vec![7; len].into())), &mut wire);
        assert_eq!(wire.len(), header + len);
    }
    let mut wire = BytesMut::new();
    encode(&Frame::Ack(Ack { odd: true, taken: 200, restored: 200, delivered: 64 << 20 }), &mut wire);
    assert!(wire.len() <= 12, "an acknowledgement takes {} bytes", wire.len());
}

#[test]
fn lengths_are_refused_before_the_body_arrives() {
    let header = |kind: u64, len: usize| {
        let mut out = Vec::new();
        isthmus_types::varint::put(&mut out, (len as u64) << 3 | kind);
        out
    };
    assert_eq!(decode_all(&header(0, FRAME_WIRE_BYTES_MAX)), Ok(None));
    for (kind, len) in [
        (0, FRAME_WIRE_BYTES_MAX + 1),
        (1, limits::ACK_BODY_BYTES_MAX + 1),
        (2, limits::SIGNAL_BODY_BYTES_MAX + 1),
        (3, limits::LINK_BODY_BYTES_MAX + 1),
        (5, 0),
        (7, 3),
    ] {
        assert!(
            matches!(decode_all(&header(kind, len)), Err(Error::InvalidMessage(_))),
            "kind {kind}, {len}"
        );
    }
    assert!(decode_all(&[0xff; 4]).is_err(), "a header without an end");
}

#[test]
fn what_is_out_of_bounds_inside_a_body_is_refused() {
    let refused = |frame: &[u8]| assert!(decode_all(frame).is_err(), "{frame:02x?}");
    refused(&[0x00]); // empty data
    refused(&[0x02]); // signal without a type
    refused(&[2 << 3 | 2, 6, 0]); // fin with a body
    refused(&[2 << 3 | 2, 7, 99]); // reset with an unknown reason
    refused(&[1 << 3 | 2, 4]); // empty feedback
    refused(&[1 << 3 | 3, 99]); // unknown link frame
    refused(&[2 << 3 | 3, 3, 0]); // joined with a body
    refused(&[4 << 3 | 1, 1, 1, 1, 1]); // acknowledgement with a fourth counter
    let mut long = BytesMut::new();
    let data = vec![1; limits::FEEDBACK_BYTES_MAX + 1].into();
    encode(&Frame::Message(Message::Feedback(data)), &mut long);
    refused(&long);
}
