use crate::identity::Identity;
use isthmus_types::Side;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use std::sync::Arc;

/// Checks the peer's certificate: issued by our CA, valid now, not revoked, for the server name (on the client side),
/// and of the opposite role. The same checks are made again when the files change and when a TLS session is resumed.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    server: Arc<WebPkiServerVerifier>,
    client: Arc<dyn ClientCertVerifier>,
    expected: Side,
}

impl PeerVerifier {
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        crls: Vec<CertificateRevocationListDer<'static>>,
        provider: Arc<CryptoProvider>,
        expected: Side,
    ) -> Result<PeerVerifier, rustls::client::VerifierBuilderError> {
        let server = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(crls.clone())
            .allow_unknown_revocation_status()
            .build()?;
        // The CA's name would be sent with every handshake, and every peer has but one certificate to choose from.
        let client = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .with_crls(crls)
            .allow_unknown_revocation_status()
            .clear_root_hint_subjects()
            .build()?;
        Ok(PeerVerifier { server, client, expected })
    }

    /// Checks a chain outside a handshake. `server_name` is what a client side dialled.
    pub(crate) fn check(
        &self,
        chain: &[CertificateDer<'_>],
        server_name: Option<&ServerName<'_>>,
    ) -> Result<Identity, Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let now = UnixTime::now();
        match server_name {
            Some(name) => {
                self.verify_server_cert(leaf, intermediates, name, &[], now)?;
            }
            None => {
                self.verify_client_cert(leaf, intermediates, now)?;
            }
        }
        Identity::of(leaf).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
    }

    fn check_role(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let identity = Identity::of(leaf).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if identity.role == Some(self.expected) {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.server.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.check_role(end_entity).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.server.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.server.supported_verify_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.client.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.client.verify_client_cert(end_entity, intermediates, now)?;
        self.check_role(end_entity).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.client.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.client.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.client.supported_verify_schemes()
    }
}
