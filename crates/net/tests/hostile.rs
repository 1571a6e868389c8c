//! Strangers, liars and clones: what must be refused, and must not disturb the others.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use bytes::BytesMut;
use common::*;
use isthmus_net::{Acceptor, PeerState};
use isthmus_tunnel::{Frame, Message, decode, encode};
use isthmus_types::Reason;
use rustls_pki_types::pem::PemObject;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_port_is_counted_and_forgotten() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let address = pair.acceptor.local_addr();
    let mut silent = Vec::new();
    for i in 0..300u32 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        match i % 3 {
            0 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap(),
            1 => stream.write_all(&block(i.into(), 2_000)).await.unwrap(),
            _ => {}
        }
        silent.push(stream);
    }
    // More half-open connections than are allowed must not keep others out for longer than the handshake's limit.
    let (sender, mut receiver) = start(&pair.dialer).await;
    within(sender.send(Message::Data(block(0, 100)))).await.unwrap();
    expect_blocks(&sender, &mut receiver, 1, 100).await;
    let failed = pair.acceptor.unattributed();
    until("counted", || failed.handshakes_failed.load(Ordering::Relaxed) >= 300).await;
    for mut stream in silent {
        let mut rest = Vec::new();
        // A reset is as good an end as any.
        let _ = within(stream.read_to_end(&mut rest)).await;
    }
}

/// A link made by hand, with the client side's certificate.
struct ByHand {
    stream: TlsStream<TcpStream>,
    buffer: BytesMut,
}

impl ByHand {
    async fn connect(acceptor: &Acceptor, authority: &Authority) -> ByHand {
        let files = authority.files("branch");
        let pem = |path: &std::path::Path| rustls_pki_types::CertificateDer::from_pem_file(path).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(pem(&files.ca)).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![pem(&files.certificate)], key)
            .unwrap();
        let stream = TcpStream::connect(acceptor.local_addr()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = within(connector.connect(SERVER_NAME.try_into().unwrap(), stream)).await.unwrap();
        ByHand { stream, buffer: BytesMut::new() }
    }

    async fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame, or `None` at the end of the link.
    async fn recv(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            match within(self.stream.read_buf(&mut self.buffer)).await {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }

    async fn is_refused_for(&mut self, expected: Reason) -> String {
        match self.recv().await {
            Some(Frame::Refuse { reason, detail }) => {
                assert_eq!(reason, expected, "{detail}");
                detail
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_first_frames_and_forged_resumes_are_refused() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let (sender, _receiver) = start(&pair.dialer).await;
    let refusals = [
        (Frame::Join { instance: [7; 16] }, Reason::PeerAbsent),
        (Frame::Resume { channel: [7; 16], arrived: 0, proof: [7; 32] }, Reason::ResumeExpired),
        (Frame::Ping { token: 1 }, Reason::PeerMisbehaved),
        (Frame::Message(Message::Fin), Reason::PeerMisbehaved),
    ];
    for (frame, reason) in refusals {
        let mut link = ByHand::connect(&pair.acceptor, &pair.authority).await;
        link.send(&frame).await;
        link.is_refused_for(reason).await;
        assert_eq!(link.recv().await, None, "the link is closed");
    }
    drop(sender);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_breaks_the_protocol_loses_its_channel_only() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let instance = pair.acceptor.peers()[0].info.instance;
    let breaches = [
        Frame::Message(Message::Data(block(0, 10))),
        Frame::Message(Message::Opened { recording: 1 }),
        Frame::Joined,
    ];
    for breach in &breaches {
        let mut link = ByHand::connect(&pair.acceptor, &pair.authority).await;
        link.send(&Frame::Join { instance }).await;
        assert_eq!(link.recv().await, Some(Frame::Joined));
        link.send(breach).await;
        assert_eq!(link.recv().await, None, "{breach:?} was tolerated");
    }
    // Bytes that are no frame at all.
    let mut link = ByHand::connect(&pair.acceptor, &pair.authority).await;
    link.send(&Frame::Join { instance }).await;
    assert_eq!(link.recv().await, Some(Frame::Joined));
    link.stream.write_all(&[0xff; 100]).await.unwrap();
    assert_eq!(link.recv().await, None);
    let wan = pair.acceptor.peers()[0].wan.clone();
    until("counted", || wan.protocol_errors.load(Ordering::Relaxed) == breaches.len() as u64 + 1).await;
    let (sender, mut receiver) = start(&pair.dialer).await;
    within(sender.send(Message::Data(block(0, 100)))).await.unwrap();
    expect_blocks(&sender, &mut receiver, 1, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_without_overlap_are_refused_with_both_ranges() {
    log();
    let authority = Authority::new("test CA");
    let acceptor = acceptor(server_source(&authority), |config| config.local.versions = (3, 4)).await;
    let dialer = dialer(acceptor.local_addr(), client_source(&authority), |_| {});
    let detail = down(&dialer, Reason::PeerIncompatible).await;
    assert!(detail.contains("3 to 4") && detail.contains("1 to 1"), "{detail}");
    assert_eq!(within(dialer.channel()).await.err(), Some(Reason::PeerIncompatible));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_peer_that_still_speaks_our_version_is_welcome() {
    let pair =
        pair(|config| config.local.versions = (1, 9), |config| config.local.capabilities = 0b101).await;
    let PeerState::Connected(info) = pair.dialer.state() else { panic!("not connected") };
    assert_eq!((info.version, info.capabilities), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloned_stores_are_refused() {
    let pair = pair(|_| {}, |_| {}).await;
    // The server's own store identity.
    let copy =
        dialer(pair.acceptor.local_addr(), client_source(&pair.authority), |config| config.local = hello(2));
    assert!(down(&copy, Reason::PeerIncompatible).await.contains("cloned store"));
    // The identity of a peer that is there.
    let clone = dialer(pair.acceptor.local_addr(), client_source(&pair.authority), |_| {});
    assert!(down(&clone, Reason::PeerIncompatible).await.contains("cloned store"));
    assert!(matches!(pair.dialer.state(), PeerState::Connected(_)), "the first comer stays");
    // When the first is gone, the second is no clone any more.
    let Pair { dialer: first, acceptor: _keep, .. } = pair;
    drop(first);
    within(connected(&clone)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_acceptor_refuses_further_channels() {
    let pair = pair(|config| config.channels_max = 3, |_| {}).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(within(pair.dialer.channel()).await.unwrap());
    }
    assert_eq!(within(pair.dialer.channel()).await.err(), Some(Reason::AdmissionFull));
    held.clear();
    until("pooled", || pair.dialer.pooled() == 3).await;
    within(pair.dialer.channel()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
}
