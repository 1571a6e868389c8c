//! Sessions over real TLS on loopback: pool, reuse, half-close, reset, backpressure, many at once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use bytes::Bytes;
use common::*;
use isthmus_net::Closed;
use isthmus_tunnel::{Message, limits};
use isthmus_types::Reason;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_comes_back_and_the_channel_is_used_again() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    for _ in 0..3 {
        let (sender, mut receiver) = start(&pair.dialer).await;
        for number in 0..20 {
            within(sender.send(Message::Data(block(number, 1_000)))).await.unwrap();
        }
        within(sender.send(Message::Fin)).await.unwrap();
        expect_blocks(&sender, &mut receiver, 20, 1_000).await;
        assert_eq!(within(receiver.recv()).await, Ok(Message::Fin));
        within(sender.settled()).await.unwrap();
        let progress = *sender.peer_progress().borrow();
        assert_eq!((progress.restored, progress.delivered), (20, 20_000));
        assert_eq!(within(receiver.recv()).await, Err(Closed { reason: None }));
        until("pooled", || pair.dialer.pooled() == 1).await;
    }
    let wan = pair.dialer.wan();
    let handshakes =
        wan.handshakes_full.load(Ordering::Relaxed) + wan.handshakes_resumed.load(Ordering::Relaxed);
    assert_eq!(handshakes, 2, "one for the control channel, one for all sessions");
    assert_eq!(wan.channels.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_is_filled_and_its_handshakes_are_resumed() {
    let pair = pair(|_| {}, |config| config.pool_min = 5).await;
    until("filled", || pair.dialer.pooled() == 5).await;
    let wan = pair.dialer.wan();
    assert_eq!(
        wan.handshakes_full.load(Ordering::Relaxed),
        1,
        "only the control channel's shows certificates"
    );
    assert_eq!(wan.handshakes_resumed.load(Ordering::Relaxed), 5);
    let peer = &pair.acceptor.peers()[0];
    assert_eq!((peer.info.name.as_str(), peer.wan.channels.load(Ordering::Relaxed)), ("branch", 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_count_the_same_bytes_at_the_socket() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let (sender, mut receiver) = start(&pair.dialer).await;
    within(sender.send(Message::Data(block(0, 300_000)))).await.unwrap();
    expect_blocks(&sender, &mut receiver, 1, 300_000).await;
    within(sender.send(Message::Fin)).await.unwrap();
    assert_eq!(within(receiver.recv()).await, Ok(Message::Fin));
    within(sender.settled()).await.unwrap();
    let (client, server) = (pair.dialer.wan(), pair.acceptor.peers()[0].wan.clone());
    until("equal", || {
        client.sent.load(Ordering::Relaxed) == server.received.load(Ordering::Relaxed)
            && client.received.load(Ordering::Relaxed) == server.sent.load(Ordering::Relaxed)
    })
    .await;
    assert_eq!(pair.acceptor.unattributed().received.load(Ordering::Relaxed), 0);
    assert!(client.sent.load(Ordering::Relaxed) > 300_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_session_goes_on_in_the_other_direction() {
    let pair = pair(|_| {}, |_| {}).await;
    let acceptor = pair.acceptor.clone();
    tokio::spawn(async move {
        let (channel, _) = acceptor.accept().await.unwrap();
        let (sender, mut receiver) = channel.split();
        sender.send(Message::Opened { recording: 9 }).await.unwrap();
        assert_eq!(receiver.recv().await, Ok(Message::Fin));
        // The answers begin after the questions have ended, and a miss may still be asked for and repaired.
        for number in 0..50 {
            sender.send(Message::Data(block(number, 100))).await.unwrap();
        }
        sender.send(Message::Fin).await.unwrap();
        assert_eq!(receiver.recv().await, Ok(Message::Feedback(Bytes::from_static(b"miss 3"))));
        sender.send(Message::Feedback(Bytes::from_static(b"repair 3"))).await.unwrap();
        sender.settled().await.unwrap();
    });
    let (sender, mut receiver) = start(&pair.dialer).await;
    within(sender.send(Message::Fin)).await.unwrap();
    expect_blocks(&sender, &mut receiver, 3, 100).await;
    for _ in 3..50 {
        assert!(matches!(within(receiver.recv()).await, Ok(Message::Data(_))));
    }
    assert_eq!(within(receiver.recv()).await, Ok(Message::Fin));
    within(sender.send(Message::Feedback(Bytes::from_static(b"miss 3")))).await.unwrap();
    assert_eq!(within(receiver.recv()).await, Ok(Message::Feedback(Bytes::from_static(b"repair 3"))));
    assert_eq!(pair.dialer.pooled(), 0, "not settled before all is restored");
    sender.acknowledge(50, 5_000);
    within(sender.settled()).await.unwrap();
    until("pooled", || pair.dialer.pooled() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_overtakes_and_ends_both_directions() {
    let pair = pair(|_| {}, |_| {}).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, opened) = within(pair.acceptor.accept()).await.unwrap();
    assert_eq!(Message::Open(opened), open());
    let (far_sender, mut far_receiver) = channel.split();
    within(far_sender.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();
    for number in 0..100 {
        within(sender.send(Message::Data(block(number, 10_000)))).await.unwrap();
    }
    let reset = Message::Reset { reason: Reason::ApplicationReset };
    within(sender.send(reset.clone())).await.unwrap();
    let closed = Closed { reason: Some(Reason::ApplicationReset) };
    assert_eq!(within(sender.send(Message::Fin)).await, Err(closed));
    assert_eq!(within(receiver.recv()).await, Err(closed));
    loop {
        match within(far_receiver.recv()).await {
            Ok(Message::Data(_)) => {}
            other => break assert_eq!(other, Ok(reset)),
        }
    }
    assert_eq!(within(far_receiver.recv()).await, Err(closed));
    assert_eq!(within(far_sender.send(Message::Fin)).await, Err(closed));
    until("gone on both sides", || {
        pair.acceptor.channels() == 0 && pair.dialer.wan().channels.load(Ordering::Relaxed) == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_told_with_its_reason() {
    let pair = pair(|_| {}, |_| {}).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    // Data may be on its way before the answer.
    within(sender.send(Message::Data(block(0, 10)))).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let (far, _) = channel.split();
    let failed = Message::Failed { reason: Reason::TargetRefused, detail: "nobody listens".into() };
    within(far.send(failed.clone())).await.unwrap();
    drop(far);
    assert_eq!(within(receiver.recv()).await, Ok(failed));
    assert_eq!(within(receiver.recv()).await, Err(Closed { reason: Some(Reason::TargetRefused) }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handles_reset_an_open_session_and_return_an_unused_channel() {
    let pair = pair(|_| {}, |_| {}).await;
    drop(within(pair.dialer.channel()).await.unwrap());
    until("unused channel pooled", || pair.dialer.pooled() == 1).await;
    let (sender, receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let (_far_sender, mut far_receiver) = channel.split();
    drop((sender, receiver));
    assert_eq!(within(far_receiver.recv()).await, Ok(Message::Reset { reason: Reason::ApplicationReset }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_stops_resets_its_sessions() {
    let Pair { acceptor, dialer, authority: _files, relay: _relay } = pair(|_| {}, |_| {}).await;
    let (sender, mut receiver) = within(dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (_far, _) = within(acceptor.accept()).await.unwrap();
    drop(acceptor);
    assert_eq!(within(receiver.recv()).await, Ok(Message::Reset { reason: Reason::Draining }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_bounds_what_is_sent_and_leaves_the_other_direction_alone() {
    let pair = pair(|_| {}, |_| {}).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let (far_sender, mut far_receiver) = channel.split();
    within(far_sender.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();

    let block_len = 64 << 10;
    let mut sent = 0;
    while let Ok(outcome) =
        tokio::time::timeout(Duration::from_secs(1), sender.send(Message::Data(block(sent, block_len)))).await
    {
        outcome.unwrap();
        sent += 1;
    }
    let in_flight = sent as usize * block_len;
    assert!(in_flight <= limits::RESUME_BUFFER_BYTES + block_len, "{in_flight} bytes accepted");
    assert!(in_flight >= limits::RESUME_BUFFER_BYTES / 2, "{in_flight} bytes accepted");

    // Far more than a window flows the other way meanwhile.
    let other_way = tokio::spawn(async move {
        for number in 0..400 {
            far_sender.send(Message::Data(block(number, 64 << 10))).await.unwrap();
        }
        far_sender
    });
    expect_blocks(&sender, &mut receiver, 400, 64 << 10).await;
    let far_sender = within(other_way).await.unwrap();

    expect_blocks(&far_sender, &mut far_receiver, sent, block_len).await;
    within(sender.send(Message::Data(block(0, 10)))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_sessions_at_once() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let dialer = Arc::new(pair.dialer);
    let mut sessions = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let dialer = dialer.clone();
        sessions.spawn(async move {
            let (sender, mut receiver) = start(&dialer).await;
            let send = async {
                for number in 0..40 {
                    sender.send(Message::Data(block(number, 5_000))).await.unwrap();
                }
                sender.send(Message::Fin).await.unwrap();
            };
            tokio::join!(send, expect_blocks(&sender, &mut receiver, 40, 5_000));
            assert_eq!(within(receiver.recv()).await, Ok(Message::Fin));
            within(sender.settled()).await.unwrap();
        });
    }
    while let Some(outcome) = sessions.join_next().await {
        outcome.unwrap();
    }
    until("64 pooled, the others closed", || dialer.pooled() == 64 && pair.acceptor.channels() == 64).await;
}
