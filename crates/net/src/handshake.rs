use crate::fleet::{FLEET_ALPN, FleetCall};
use crate::identity::Identity;
use crate::link::Link;
use crate::tls::Material;
use crate::tls_error::Refusal;
use crate::{WanCounters, limits, socket};
use aws_lc_rs::hmac;
use isthmus_tunnel::{ChannelId, Proof};
use isthmus_types::Side;
use rustls::HandshakeKind;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, TlsConnector, server};
use zeroize::Zeroizing;

/// A link whose far end has shown a certificate that passes.
pub(crate) struct Secured {
    pub(crate) link: Link,
    pub(crate) identity: Identity,
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    pub(crate) address: SocketAddr,
}

/// Connects to a server side.
pub(crate) async fn connect(
    server: &str,
    server_name: &ServerName<'static>,
    material: &Material,
    wan: &Arc<WanCounters>,
) -> Result<Secured, Refusal> {
    let attempt = async {
        let stream =
            TcpStream::connect(server).await.map_err(|error| Refusal::of_io(&error, Side::Server))?;
        socket::tune(&stream);
        let address = stream.peer_addr().map_err(|error| Refusal::of_io(&error, Side::Server))?;
        let counted = Counted { stream, wan: wan.clone() };
        let connector = TlsConnector::from(material.client.clone());
        let outcome = connector.connect(server_name.clone(), counted).into_fallible().await;
        match outcome {
            Ok(stream) => {
                let (counted, tls) = stream.into_inner();
                secured(counted, tls.into(), address, material, Some(server_name))
            }
            Err((error, counted)) => {
                linger(counted).await;
                Err(Refusal::of_io(&error, Side::Server))
            }
        }
    };
    let timed = tokio::time::timeout(limits::HANDSHAKE_TIMEOUT, attempt).await;
    let outcome = timed.unwrap_or_else(|_| Err(Refusal::absent(format!("{server} does not answer in time"))));
    if let Err(refusal) = &outcome {
        wan.fail(refusal.failure());
    }
    outcome
}

/// What a connection to the server side turns out to be.
pub(crate) enum Accepted {
    Link(Box<Secured>),
    Call(Box<FleetCall>),
}

/// Does the server side's part of the TLS handshake; `calls` says whether calls of agents are taken. Bounded in time by
/// the caller.
pub(crate) async fn accept(
    stream: TcpStream,
    address: SocketAddr,
    material: &Material,
    wan: &Arc<WanCounters>,
    calls: bool,
) -> Result<Accepted, Refusal> {
    socket::tune(&stream);
    let counted = Counted { stream, wan: wan.clone() };
    let (handshake, is_call) = if calls {
        choose(counted, material).await?
    } else {
        (TlsAcceptor::from(material.server.clone()).accept(counted), false)
    };
    match handshake.into_fallible().await {
        Ok(stream) if is_call => {
            let call = FleetCall::new(stream, &material.verifier, address);
            Ok(Accepted::Call(Box::new(call.map_err(|error| Refusal::of_tls(&error, Side::Client))?)))
        }
        Ok(stream) => {
            let (counted, tls) = stream.into_inner();
            secured(counted, tls.into(), address, material, None).map(|link| Accepted::Link(Box::new(link)))
        }
        Err((error, counted)) => {
            linger(counted).await;
            Err(Refusal::of_io(&error, Side::Client))
        }
    }
}

/// Reads the first message of the handshake, and goes on as for a link or as for a call.
async fn choose(counted: Counted, material: &Material) -> Result<(server::Accept<Counted>, bool), Refusal> {
    let mut acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), counted);
    match (&mut acceptor).await {
        Ok(start) => {
            let is_call = {
                let hello = start.client_hello();
                hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == FLEET_ALPN))
            };
            let config = if is_call { &material.fleet_server } else { &material.server };
            Ok((start.into_stream(config.clone()), is_call))
        }
        Err(error) => {
            if let Some(counted) = acceptor.take_io() {
                linger(counted).await;
            }
            Err(Refusal::of_io(&error, Side::Client))
        }
    }
}

/// The name and the secret of the channel that starts on this link. Both sides derive them from the TLS session, so
/// neither ever travels.
pub(crate) fn channel_keys(link: &Link) -> Result<(ChannelId, Zeroizing<[u8; 32]>), rustls::Error> {
    Ok((
        link.export(b"EXPORTER-isthmus-channel-id")?,
        Zeroizing::new(link.export(b"EXPORTER-isthmus-secret")?),
    ))
}

/// Shows, on a new link, knowledge of the secret of a channel's first link. Bound to this link by its exporter, and to
/// the side that shows it.
pub(crate) fn prove(
    secret: &[u8; 32],
    link: &Link,
    prover: Side,
    channel: &ChannelId,
    arrived: u64,
) -> Result<Proof, rustls::Error> {
    let mut proof = Proof::default();
    proof
        .copy_from_slice(hmac::sign(&hmac_key(secret), &statement(link, prover, channel, arrived)?).as_ref());
    Ok(proof)
}

/// Checks what [`prove`] gave on the other side, in constant time.
pub(crate) fn is_proven(
    secret: &[u8; 32],
    link: &Link,
    prover: Side,
    channel: &ChannelId,
    arrived: u64,
    proof: &Proof,
) -> bool {
    statement(link, prover, channel, arrived)
        .is_ok_and(|statement| hmac::verify(&hmac_key(secret), &statement, proof).is_ok())
}

fn hmac_key(secret: &[u8; 32]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

fn statement(
    link: &Link,
    prover: Side,
    channel: &ChannelId,
    arrived: u64,
) -> Result<Zeroizing<Vec<u8>>, rustls::Error> {
    let binding = Zeroizing::new(link.export::<32>(b"EXPORTER-isthmus-resume")?);
    let parts = [binding.as_slice(), prover.as_str().as_bytes(), channel, &arrived.to_le_bytes()];
    Ok(Zeroizing::new(parts.concat()))
}

fn secured(
    counted: Counted,
    tls: rustls::Connection,
    address: SocketAddr,
    material: &Material,
    server_name: Option<&ServerName<'static>>,
) -> Result<Secured, Refusal> {
    let peer = if server_name.is_some() { Side::Server } else { Side::Client };
    let chain: Arc<[CertificateDer<'static>]> = tls.peer_certificates().unwrap_or_default().into();
    let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
    let wan = counted.wan;
    WanCounters::count(if resumed { &wan.handshakes_resumed } else { &wan.handshakes_full });
    // A resumed session brings the chain of an earlier handshake, which may have been revoked or have expired since.
    let identity =
        material.verifier.check(&chain, server_name).map_err(|error| Refusal::of_tls(&error, peer))?;
    let link = Link::new(counted.stream, tls, wan).map_err(|error| Refusal::of_link(&error, peer))?;
    Ok(Secured { link, identity, chain, address })
}

/// Ends a failed handshake so that the alert that tells the far end why is not lost to a reset.
async fn linger(mut counted: Counted) {
    let drain = async {
        counted.stream.shutdown().await?;
        let mut sink = [0; 1024];
        while counted.stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether the far end closed or the time ran out makes no difference here.
    let _ = tokio::time::timeout(limits::LINGER_MAX, drain).await;
}

/// A socket that counts its bytes.
pub(crate) struct Counted {
    pub(crate) stream: TcpStream,
    pub(crate) wan: Arc<WanCounters>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        WanCounters::add(&self.wan.received, (buf.filled().len() - before) as u64);
        Poll::Ready(outcome)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        WanCounters::add(&self.wan.sent, written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        WanCounters::add(&self.wan.sent, written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
