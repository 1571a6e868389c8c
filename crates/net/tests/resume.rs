//! Channels outlive their links: cuts, blackouts, an expired window, a restarted server side.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use isthmus_net::{Acceptor, AcceptorConfig, Closed, PeerState, Receiver, Sender};
use isthmus_tunnel::Message;
use isthmus_types::Reason;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sends and checks `count` blocks through an echo while `fault` happens.
async fn transfer(pair: &Pair, count: u64, len: usize, fault: impl Future<Output = ()>) {
    connected(&pair.dialer).await;
    let (sender, mut receiver) = start(&pair.dialer).await;
    let send = async {
        for number in 0..count {
            sender.send(Message::Data(block(number, len))).await.unwrap();
        }
        sender.send(Message::Fin).await.unwrap();
    };
    tokio::join!(send, expect_blocks(&sender, &mut receiver, count, len), fault);
    assert_eq!(within(receiver.recv()).await, Ok(Message::Fin));
    within(sender.settled()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_goes_on_after_every_cut() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let cuts = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(150)).await;
            pair.relay.cut();
        }
    };
    transfer(&pair, 600, 50_000, cuts).await;
    let wan = pair.dialer.wan();
    // At least one cut met the transfer in its middle, however fast the machine.
    pair.relay.budget.store(3_000_000, Ordering::Relaxed);
    transfer(&pair, 200, 50_000, async {}).await;
    assert!(wan.links_lost.load(Ordering::Relaxed) >= 2);
    assert!(wan.channels_resumed.load(Ordering::Relaxed) >= 2);
}

/// Ends the session but for the last acknowledgement of this side, which is on its way with the open of the next session when
/// the channel's link dies, as `cuts` says of it and of those after it. Gives the next session.
async fn reopen(
    pair: &Pair,
    (sender, mut receiver): (Sender, Receiver),
    cuts: &[(bool, usize)],
) -> (Sender, Receiver) {
    for message in [Message::Data(block(0, 100)), Message::Fin] {
        within(sender.send(message.clone())).await.unwrap();
        assert_eq!(within(receiver.recv()).await, Ok(message));
    }
    let link = pair.relay.connections();
    pair.relay.hold(true);
    sender.acknowledge(1, 100);
    within(sender.settled()).await.unwrap();
    until("the channel is back", || pair.dialer.pooled() == 1).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    within(sender.flushed()).await.unwrap();
    for (number, &(up, bytes)) in (link..).zip(cuts) {
        pair.relay.cut_at(number, up, bytes);
    }
    pair.relay.hold(false);
    assert_eq!(within(receiver.recv()).await, Ok(Message::Opened { recording: 9 }), "{cuts:?}");
    (sender, receiver)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_opens_wherever_its_link_dies_meanwhile() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let mut session = start(&pair.dialer).await;
    let ways = [(true, 140), (false, 60)];
    let points = ways.into_iter().flat_map(|(up, end)| (0..end).step_by(7).map(move |bytes| (up, bytes)));
    for point in points {
        session = reopen(&pair, session, &[point]).await;
    }
    let resumed = || pair.dialer.wan().channels_resumed.load(Ordering::Relaxed);
    assert!(resumed() >= 15, "only {} links died", resumed());
    // And where the next link dies too, while the channel is resumed on it.
    for bytes in [0, 150, 400, 900, 1_500, 2_200] {
        for up in [true, false] {
            session = reopen(&pair, session, &[(true, 60), (up, bytes)]).await;
        }
    }
    assert_eq!(pair.acceptor.channels(), 1, "one channel all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_goes_on_when_a_silent_blackout_ends() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let ended = std::sync::Mutex::new(None);
    let blackout = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        pair.relay.block(true);
        tokio::time::sleep(Duration::from_secs(6)).await;
        pair.relay.block(false);
        *ended.lock().unwrap() = Some(Instant::now());
    };
    transfer(&pair, 2_000, 50_000, blackout).await;
    assert!(ended.lock().unwrap().is_some(), "the transfer was over before the blackout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_listens_notices_a_dead_link_too() {
    let pair = pair(|_| {}, |_| {}).await;
    let acceptor = pair.acceptor.clone();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (channel, _) = acceptor.accept().await.unwrap();
        let (sender, mut receiver) = channel.split();
        sender.send(Message::Opened { recording: 9 }).await.unwrap();
        gone.await.unwrap();
        for number in 0..10 {
            sender.send(Message::Data(block(number, 100))).await.unwrap();
        }
        // Holds the session until the client ends it.
        while receiver.recv().await.is_ok() {}
    });
    let (sender, mut receiver) = start(&pair.dialer).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    // From here on only new connections get through: the old ones are alive in name only.
    pair.relay.strand();
    go.send(()).unwrap();
    expect_blocks(&sender, &mut receiver, 10, 100).await;
    assert!(pair.dialer.wan().channels_resumed.load(Ordering::Relaxed) >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_give_up_when_the_window_is_over() {
    let window = Duration::from_millis(1_500);
    let pair = pair(|config| config.resume_window = window, |config| config.resume_window = window).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let (far_sender, mut far_receiver) = channel.split();
    within(far_sender.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();
    pair.relay.refuse(true);
    pair.relay.cut();
    let reset = Message::Reset { reason: Reason::ResumeExpired };
    assert_eq!(within(receiver.recv()).await, Ok(reset.clone()));
    assert_eq!(within(far_receiver.recv()).await, Ok(reset));
    assert_eq!(within(receiver.recv()).await, Err(Closed { reason: Some(Reason::ResumeExpired) }));
    assert!(matches!(pair.dialer.state(), PeerState::Down { reason: Reason::PeerAbsent, .. }));
    assert_eq!(within(pair.dialer.channel()).await.err(), Some(Reason::PeerAbsent), "fails at once");
    until("gone", || pair.acceptor.channels() == 0).await;
    // The pair works again afterwards.
    pair.relay.refuse(false);
    connected(&pair.dialer).await;
    serve_echo(&pair.acceptor);
    transfer(&pair, 3, 100, async {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_restarted_server_side_end_promptly() {
    let Pair { authority, acceptor, dialer, relay } = pair(|_| {}, |config| config.pool_min = 2).await;
    let (sender, mut receiver) = within(dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(acceptor.accept()).await.unwrap();
    let (far_sender, far_receiver) = channel.split();
    within(far_sender.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();
    // As after a kill: nothing is said on the old connections, and the new process knows no channel.
    let fresh = AcceptorConfig::new(loopback(), server_source(&authority), hello(2));
    let fresh = Arc::new(Acceptor::bind(fresh).await.unwrap());
    relay.retarget(fresh.local_addr());
    relay.cut();
    let began = Instant::now();
    assert_eq!(within(receiver.recv()).await, Ok(Message::Reset { reason: Reason::ResumeExpired }));
    assert!(began.elapsed() < Duration::from_secs(15), "took {:?}", began.elapsed());
    drop((far_sender, far_receiver, acceptor));
    connected(&dialer).await;
    serve_echo(&fresh);
    let (sender, mut receiver) = start(&dialer).await;
    within(sender.send(Message::Data(block(0, 100)))).await.unwrap();
    expect_blocks(&sender, &mut receiver, 1, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_restarted_client_side_end_when_it_is_back() {
    let Pair { authority, acceptor, dialer, relay } = pair(|_| {}, |_| {}).await;
    let (sender, receiver) = within(dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(acceptor.accept()).await.unwrap();
    let (_far_sender, mut far_receiver) = channel.split();
    // As after a kill: the old process reaches nobody any more, and a new one has the same store.
    relay.refuse(true);
    relay.cut();
    let again = common::dialer(acceptor.local_addr(), client_source(&authority), |_| {});
    connected(&again).await;
    assert_eq!(within(far_receiver.recv()).await, Ok(Message::Reset { reason: Reason::ResumeExpired }));
    drop((sender, receiver));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_during_an_outage_is_told_when_it_is_over() {
    let pair = pair(|_| {}, |_| {}).await;
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let (far_sender, mut far_receiver) = channel.split();
    within(far_sender.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();
    pair.relay.refuse(true);
    pair.relay.cut();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let reset = Message::Reset { reason: Reason::ApplicationReset };
    within(sender.send(reset.clone())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(far_receiver.try_recv(), Ok(None), "told through a link that was down");
    pair.relay.refuse(false);
    assert_eq!(within(far_receiver.recv()).await, Ok(reset));
    until("gone", || pair.acceptor.channels() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_goes_silent_is_suspected_until_it_is_heard_again() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let _session = start(&pair.dialer).await;
    assert!(!pair.dialer.is_suspect());
    pair.relay.block(true);
    until("silence is noticed", || pair.dialer.is_suspect()).await;
    pair.relay.block(false);
    until("the peer is heard again", || !pair.dialer.is_suspect()).await;
    connected(&pair.dialer).await;
}
