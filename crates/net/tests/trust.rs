//! Who is let in, who is not, and what people are told about it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use isthmus_net::{Closed, Dialer, TlsFiles, TlsSource, TlsSourceError};
use isthmus_tunnel::Message;
use isthmus_types::{Reason, Side};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A client side with these files against a good server side; both of the same authority unless told otherwise.
async fn refused_client(authority: &Authority, files: TlsFiles) -> String {
    log();
    let acceptor = acceptor(server_source(authority), |_| {}).await;
    let tls = TlsSource::load(files, Side::Client).unwrap();
    let dialer = dialer(acceptor.local_addr(), tls, |_| {});
    let detail = down(&dialer, Reason::PeerUnauthorised).await;
    assert_eq!(within(dialer.channel()).await.err(), Some(Reason::PeerUnauthorised), "no way in, at once");
    let counters = acceptor.unattributed();
    until("counted", || counters.handshakes_failed.load(Ordering::Relaxed) > 0).await;
    assert!(acceptor.peers().is_empty());
    detail
}

/// A good client side against a server side with these files.
async fn refused_server(authority: &Authority, files: TlsFiles) -> String {
    log();
    let tls = TlsSource::load(files, Side::Server).unwrap();
    let acceptor = acceptor(tls, |_| {}).await;
    let dialer = dialer(acceptor.local_addr(), client_source(authority), |_| {});
    down(&dialer, Reason::PeerUnauthorised).await
}

fn says(detail: &str, expected: &str) {
    assert!(detail.contains(expected), "{detail:?} does not say {expected:?}");
}

#[tokio::test]
async fn an_expired_client_certificate_is_refused() {
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf { hours: -2, ..Leaf::client("branch") });
    says(&refused_client(&authority, files).await, "expired");
}

#[tokio::test]
async fn a_revoked_client_certificate_is_refused() {
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf::client("branch"));
    authority.revoke(&[11]);
    says(&refused_client(&authority, files).await, "revoked");
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new("test CA"), Authority::new("other CA"));
    let files = TlsFiles { ca: authority.files("x").ca, crl: None, ..other.issue(&Leaf::client("branch")) };
    says(&refused_client(&authority, files).await, "not issued by the peer's CA");
}

#[tokio::test]
async fn an_expired_server_certificate_is_refused_with_its_date() {
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf { hours: -2, ..Leaf::server("dc") });
    says(&refused_server(&authority, files).await, "expired since 20");
}

#[tokio::test]
async fn a_revoked_server_certificate_is_refused() {
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf::server("dc"));
    authority.revoke(&[12]);
    says(&refused_server(&authority, files).await, "revoked");
}

#[tokio::test]
async fn a_server_certificate_of_another_authority_is_refused() {
    let (authority, other) = (Authority::new("test CA"), Authority::new("other CA"));
    let files = other.issue(&Leaf::server("dc"));
    says(&refused_server(&authority, files).await, "not issued by our CA");
}

#[tokio::test]
async fn a_server_certificate_for_another_name_is_refused() {
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf { dns: "elsewhere.test", ..Leaf::server("dc") });
    let detail = refused_server(&authority, files).await;
    says(&detail, "does not name server.test");
    says(&detail, "elsewhere.test");
}

#[tokio::test]
async fn roles_are_checked_by_the_peer() {
    // A client side that presents itself as a server side has to get past its own check first.
    let authority = Authority::new("test CA");
    let files = authority.issue(&Leaf { role: SERVER_ROLE, ..Leaf::client("branch") });
    assert!(matches!(TlsSource::load(files.clone(), Side::Client), Err(TlsSourceError::Role { .. })));
    let acceptor = acceptor(server_source(&authority), |_| {}).await;
    assert!(
        refused_bare(&acceptor, &authority, Some(&files)).await,
        "a server-side certificate got in as a client"
    );
    let good = authority.issue(&Leaf::client("good"));
    assert!(!refused_bare(&acceptor, &authority, Some(&good)).await, "a good certificate was refused");
    // The other way round: a client side refuses a server that has a client-side certificate.
    let files = authority.issue(&Leaf { role: CLIENT_ROLE, ..Leaf::server("dc") });
    let detail = refused_by_client(&authority, &files).await;
    says(&detail, "wrong role");
}

#[tokio::test]
async fn no_certificate_is_no_way_in() {
    let authority = Authority::new("test CA");
    let acceptor = acceptor(server_source(&authority), |_| {}).await;
    assert!(refused_bare(&acceptor, &authority, None).await);
}

/// Connects with plain rustls and these files (or no certificate) and reports whether the server ends it by an alert.
async fn refused_bare(
    acceptor: &isthmus_net::Acceptor,
    authority: &Authority,
    files: Option<&TlsFiles>,
) -> bool {
    use tokio::io::AsyncReadExt;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(bare_client(authority, files)));
    let stream = tokio::net::TcpStream::connect(acceptor.local_addr()).await.unwrap();
    let mut stream = within(connector.connect(SERVER_NAME.try_into().unwrap(), stream)).await.unwrap();
    // TLS 1.3's client is done before the server has checked it; the verdict comes with the first read.
    match tokio::time::timeout(std::time::Duration::from_secs(1), stream.read_u8()).await {
        Ok(Err(error)) => error.kind() == std::io::ErrorKind::InvalidData,
        Ok(Ok(byte)) => panic!("unexpected byte {byte}"),
        Err(_) => false,
    }
}

fn bare_client(authority: &Authority, files: Option<&TlsFiles>) -> rustls::ClientConfig {
    use rustls_pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls_pki_types::CertificateDer::from_pem_file(authority.files("x").ca).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    match files {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let leaf = rustls_pki_types::CertificateDer::from_pem_file(&files.certificate).unwrap();
            let key = rustls_pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
            builder.with_client_auth_cert(vec![leaf], key).unwrap()
        }
    }
}

/// What our client side says of a plain TLS server with these files.
async fn refused_by_client(authority: &Authority, files: &TlsFiles) -> String {
    use rustls_pki_types::pem::PemObject;
    let leaf = rustls_pki_types::CertificateDer::from_pem_file(&files.certificate).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)
        .unwrap();
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            // The client is expected to refuse.
            let _ = acceptor.accept(stream).await;
        }
    });
    let dialer = dialer(address, client_source(authority), |_| {});
    down(&dialer, Reason::PeerUnauthorised).await
}

/// An open session, and both its ends.
async fn session(pair: &Pair) -> Ends {
    let (sender, mut receiver) = within(pair.dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    let (channel, _) = within(pair.acceptor.accept()).await.unwrap();
    let far = channel.split();
    within(far.0.send(Message::Opened { recording: 9 })).await.unwrap();
    within(receiver.recv()).await.unwrap();
    ((sender, receiver), far)
}

type End = (isthmus_net::Sender, isthmus_net::Receiver);
type Ends = (End, End);

async fn ends_unauthorised((_sender, mut receiver): End) {
    assert_eq!(within(receiver.recv()).await, Ok(Message::Reset { reason: Reason::PeerUnauthorised }));
    assert_eq!(within(receiver.recv()).await, Err(Closed { reason: Some(Reason::PeerUnauthorised) }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_ends_live_sessions_of_that_certificate_only() {
    let pair = pair(|_| {}, |config| config.pool_min = 2).await;
    let (near, far) = session(&pair).await;
    let other_files = pair.authority.issue(&Leaf { serial: 77, ..Leaf::client("other") });
    let other_tls = TlsSource::load(TlsFiles { crl: None, ..other_files }, Side::Client).unwrap();
    let other: Dialer = dialer(pair.acceptor.local_addr(), other_tls, |config| config.local = hello(3));
    connected(&other).await;
    let (other_sender, mut other_receiver) = within(other.channel()).await.unwrap().split();
    within(other_sender.send(open())).await.unwrap();
    let (other_far, _) = within(pair.acceptor.accept()).await.unwrap();

    // The list is found by looking at the files, without being told.
    pair.authority.revoke(&[11]);
    ends_unauthorised(far).await;
    ends_unauthorised(near).await;
    says(&down(&pair.dialer, Reason::PeerUnauthorised).await, "revoked");
    assert_eq!(pair.acceptor.channels(), 1);
    let (other_far, _keep) = other_far.split();
    within(other_far.send(Message::Opened { recording: 9 })).await.unwrap();
    assert_eq!(within(other_receiver.recv()).await, Ok(Message::Opened { recording: 9 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_without_ending_sessions() {
    let pair = pair(|_| {}, |_| {}).await;
    serve_echo(&pair.acceptor);
    let (sender, mut receiver) = start(&pair.dialer).await;
    let before = pair.acceptor.peers()[0].info.fingerprint;
    pair.authority.issue(&Leaf { serial: 21, ..Leaf::client("branch") });
    pair.authority.issue(&Leaf { serial: 22, ..Leaf::server("dc") });
    // The files of both sides are looked at every two seconds; a cut then makes every link a new one.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    pair.relay.cut();
    within(sender.send(Message::Data(block(0, 5_000)))).await.unwrap();
    expect_blocks(&sender, &mut receiver, 1, 5_000).await;
    connected(&pair.dialer).await;
    until("the new certificate shows", || pair.acceptor.peers()[0].info.fingerprint != before).await;
    assert_eq!(pair.dialer.wan().channels_resumed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn unusable_files_leave_the_old_ones_in_force_and_are_reported() {
    let authority = Authority::new("test CA");
    let tls = client_source(&authority);
    let files = authority.files("branch");
    assert_eq!(tls.identity().name, "branch");
    std::fs::write(&files.certificate, "no certificate").unwrap();
    assert!(matches!(tls.reload(), Err(TlsSourceError::Content { .. })));
    says(&tls.problem().unwrap(), "branch.pem");
    assert_eq!(tls.identity().name, "branch");
    let other = Authority::new("other CA");
    copy(&other.issue(&Leaf::client("branch")).certificate, &files.certificate);
    assert!(
        matches!(tls.reload(), Err(TlsSourceError::Mismatch(_) | TlsSourceError::File { .. })),
        "key of another"
    );
    std::fs::remove_file(&files.key).unwrap();
    assert!(matches!(tls.reload(), Err(TlsSourceError::File { .. })));
    authority.issue(&Leaf { serial: 5, ..Leaf::client("branch") });
    tls.reload().unwrap();
    assert_eq!(tls.problem(), None);
}
