//! Calls of agents to the server side: one request and one answer over a TLS connection of their own, on the same port as
//! links and told from them by ALPN. A caller may have no certificate yet; whether that will do is for the callee to say.

use crate::handshake::Counted;
use crate::identity::{Identity, fingerprint};
use crate::tls::provider;
use crate::tls_error::Refusal;
use crate::verifier::PeerVerifier;
use crate::{TlsSource, WanCounters, limits, socket};
use isthmus_types::Side;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, server};
use zeroize::Zeroizing;

/// The application protocol of these calls (RFC 7301).
pub(crate) const FLEET_ALPN: &[u8] = b"isthmus-fleet/1";
/// A length on the wire: 4 bytes, little-endian.
const LEN_BYTES: usize = 4;
/// Bytes of a pinned fingerprint.
const PIN_BYTES: usize = 16;

/// By what a caller knows the server side.
#[derive(Clone)]
pub enum FleetTrust {
    /// The first bytes of the SHA-256 of its authority's certificate. The caller shows no certificate.
    Pinned([u8; PIN_BYTES]),
    /// The caller's own files, whose certificate it shows.
    Files(Arc<TlsSource>),
}

/// Why a call came to nothing, for people.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct FleetCallError {
    text: String,
    /// The server side, whose own certificate has passed, says that the caller's is revoked.
    pub revoked: bool,
}

impl FleetCallError {
    fn new(text: impl Into<String>) -> FleetCallError {
        FleetCallError { text: text.into(), revoked: false }
    }
}

/// Calls a server side: sends a request and gives its answer, of at most `answer_max` bytes.
///
/// # Errors
/// When it is not reached in time, is not who it should be, or takes no such calls.
pub async fn call_fleet(
    server: &str,
    server_name: &str,
    trust: &FleetTrust,
    request: &[u8],
    answer_max: usize,
    wan: Arc<WanCounters>,
) -> Result<Zeroizing<Vec<u8>>, FleetCallError> {
    let late = || FleetCallError::new(format!("{server} does not answer in time"));
    timeout(limits::FLEET_CALL_TIMEOUT, call(server, server_name, trust, request, answer_max, wan))
        .await
        .map_err(|_| late())?
}

async fn call(
    server: &str,
    server_name: &str,
    trust: &FleetTrust,
    request: &[u8],
    answer_max: usize,
    wan: Arc<WanCounters>,
) -> Result<Zeroizing<Vec<u8>>, FleetCallError> {
    let failed = |error: io::Error| {
        let refusal = Refusal::of_io(&error, Side::Server);
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        FleetCallError {
            text: format!("{server}: {}", refusal.detail),
            revoked: tls == Some(&Error::AlertReceived(AlertDescription::CertificateRevoked)),
        }
    };
    let name = ServerName::try_from(server_name.to_owned())
        .map_err(|_| FleetCallError::new(format!("{server_name:?} is not a DNS name or IP address")))?;
    let config = match trust {
        FleetTrust::Pinned(pin) => {
            Arc::new(pinned(*pin).map_err(|error| FleetCallError::new(error.to_string()))?)
        }
        FleetTrust::Files(source) => source.current().fleet_client.clone(),
    };
    let stream = TcpStream::connect(server).await.map_err(failed)?;
    socket::tune(&stream);
    let mut stream =
        TlsConnector::from(config).connect(name, Counted { stream, wan }).await.map_err(failed)?;
    if stream.get_ref().1.alpn_protocol() != Some(FLEET_ALPN) {
        let text =
            format!("{server} keeps no fleet: its configuration has no fleet.ca, or it is an older version");
        return Err(FleetCallError::new(text));
    }
    let written = write_message(&mut stream, request).await;
    // Whoever does not want this caller has said why before it closed, so its words come first.
    match (read_message(&mut stream, answer_max).await, written) {
        (Ok(answer), _) => Ok(answer),
        (Err(error), Err(earlier)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(failed(earlier)),
        (Err(error), _) => Err(failed(error)),
    }
}

/// A call as the server side sees it.
pub struct FleetCall {
    stream: server::TlsStream<Counted>,
    identity: Option<Identity>,
    address: SocketAddr,
}

impl FleetCall {
    pub(crate) fn new(
        stream: server::TlsStream<Counted>,
        verifier: &PeerVerifier,
        address: SocketAddr,
    ) -> Result<FleetCall, Error> {
        let identity = match stream.get_ref().1.peer_certificates() {
            Some(chain) if !chain.is_empty() => Some(verifier.check(chain, None)?),
            _ => None,
        };
        Ok(FleetCall { stream, identity, address })
    }

    /// Who calls, if it has shown a certificate. That has been verified.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Where the call comes from.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads the request, of at most `most` bytes.
    ///
    /// # Errors
    /// When it is longer, or does not come in time.
    pub async fn request(&mut self, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
        let read = timeout(limits::HANDSHAKE_TIMEOUT, read_message(&mut self.stream, most)).await;
        read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends the answer and ends the call.
    ///
    /// # Errors
    /// When the caller does not take it in time.
    pub async fn answer(mut self, answer: &[u8]) -> io::Result<()> {
        let send = async {
            write_message(&mut self.stream, answer).await?;
            self.stream.shutdown().await
        };
        timeout(limits::FLEET_CALL_TIMEOUT, send)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let len = u32::try_from(message.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.write_all(&len.to_le_bytes()).await?;
    stream.write_all(message).await?;
    stream.flush().await
}

async fn read_message(stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut len = [0; LEN_BYTES];
    stream.read_exact(&mut len).await?;
    let len = u32::from_le_bytes(len) as usize;
    if len > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {len} bytes is too long"),
        ));
    }
    // It grows with what really comes, not with what was announced.
    let mut message = Zeroizing::new(Vec::new());
    stream.take(len as u64).read_to_end(&mut message).await?;
    if message.len() < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(message) }
}

/// A configuration that trusts whoever has a certificate of the pinned authority.
fn pinned(pin: [u8; PIN_BYTES]) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = PinnedVerifier { pin, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![FLEET_ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Accepts a server side whose chain holds an authority with the pinned fingerprint, and whose certificate is from that
/// authority, valid, for the name, and for a server-side proxy.
#[derive(Debug)]
struct PinnedVerifier {
    pin: [u8; PIN_BYTES],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(|ca| fingerprint(ca).starts_with(&self.pin));
        let mut roots = RootCertStore::empty();
        roots.add(authority.ok_or_else(unknown)?.clone().into_owned())?;
        let verifier = PeerVerifier::new(Arc::new(roots), Vec::new(), self.provider.clone(), Side::Server)
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// As the verifier of links, but a caller need not have a certificate.
#[derive(Debug)]
pub(crate) struct OptionalCertificate(pub(crate) Arc<PeerVerifier>);

impl ClientCertVerifier for OptionalCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        ClientCertVerifier::root_hint_subjects(&*self.0)
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls12_signature(&*self.0, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls13_signature(&*self.0, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ClientCertVerifier::supported_verify_schemes(&*self.0)
    }
}
