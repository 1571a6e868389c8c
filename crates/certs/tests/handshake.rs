//! Real TLS 1.3 handshakes with certificates of the authority, in memory: who is let in and who is not.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use isthmus_certs::{Authority, IssueRequest, Issued, Role, Validity, read_certificates};
use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateRevocationListDer, PrivateKeyDer};

const NAME: &str = "proxy.example";
const DAY: Duration = Duration::from_secs(86_400);

struct World {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::init(&dir.path().join("ca"), "Test CA", 3650).unwrap();
        World { dir, authority }
    }

    fn issue(&self, role: Role, name: &str, validity: Validity) -> Issued {
        let request = IssueRequest { role, name: name.into(), dns: vec![NAME.into()], ip: vec![], validity };
        self.authority.issue(&request, &self.dir.path().join("out")).unwrap()
    }

    fn pair(&self) -> (Issued, Issued) {
        let validity = Validity::Days(30);
        (self.issue(Role::ClientSide, "client", validity), self.issue(Role::ServerSide, "server", validity))
    }

    /// A handshake in which both sides trust this world's authority and use its revocation list.
    fn handshake(&self, client: &Issued, server: &Issued, name: &str) -> Result<(), (Error, &'static str)> {
        handshake(client, server, name, &self.authority.certificate(), &self.authority.crl())
    }
}

/// Drives both ends until they are done; the error is that of the side which refused first, with its name.
fn handshake(
    client: &Issued,
    server: &Issued,
    name: &str,
    ca: &Path,
    crl: &Path,
) -> Result<(), (Error, &'static str)> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read_certificates(ca).unwrap());
    let roots = Arc::new(roots);
    let crls = || [CertificateRevocationListDer::from_pem_file(crl).unwrap()];
    let key = |issued: &Issued| PrivateKeyDer::from_pem_file(&issued.key).unwrap();
    let chain = |issued: &Issued| read_certificates(&issued.certificate).unwrap();

    let server_verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .with_crls(crls())
        .build()
        .unwrap();
    let client_config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_webpki_verifier(server_verifier)
        .with_client_auth_cert(chain(client), key(client))
        .unwrap();
    let client_verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(crls())
        .build()
        .unwrap();
    let server_config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(client_verifier)
        .with_single_cert(chain(server), key(server))
        .unwrap();
    let name = name.to_string().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(client_config), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server_config)).unwrap();
    for _ in 0..10 {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|error| (error, "server"))?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| (error, "client"))?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn refused(result: Result<(), (Error, &'static str)>, by: &str) -> CertificateError {
    match result {
        Err((Error::InvalidCertificate(error), side)) if side == by => error,
        other => panic!("expected a refusal by the {by}: {other:?}"),
    }
}

#[test]
fn good_certificates_connect() {
    let world = World::new();
    let (client, server) = world.pair();
    world.handshake(&client, &server, NAME).unwrap();
    let admin = world.issue(Role::Admin, "admin", Validity::Days(1));
    world.handshake(&admin, &server, NAME).unwrap();
}

#[test]
fn expired_certificates_do_not() {
    let world = World::new();
    let (client, server) = world.pair();
    // The authority starts a day before it is made, so an hour ago is the past that it can certify.
    let hour = Duration::from_secs(3600);
    let past = Validity::Between(SystemTime::now() - 5 * hour, SystemTime::now() - hour);
    let future = Validity::Between(SystemTime::now() + DAY, SystemTime::now() + 2 * DAY);
    let old_client = world.issue(Role::ClientSide, "old-client", past);
    let old_server = world.issue(Role::ServerSide, "old-server", past);
    let new_client = world.issue(Role::ClientSide, "new-client", future);
    let error = refused(world.handshake(&old_client, &server, NAME), "server");
    assert!(
        matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }),
        "{error:?}"
    );
    let error = refused(world.handshake(&client, &old_server, NAME), "client");
    assert!(
        matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }),
        "{error:?}"
    );
    let error = refused(world.handshake(&new_client, &server, NAME), "server");
    assert!(
        matches!(error, CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }),
        "{error:?}"
    );
}

#[test]
fn revoked_certificates_do_not() {
    let world = World::new();
    let (client, server) = world.pair();
    let other = world.issue(Role::ClientSide, "other", Validity::Days(1));
    world.authority.revoke("client").unwrap();
    assert_eq!(refused(world.handshake(&client, &server, NAME), "server"), CertificateError::Revoked);
    world.handshake(&other, &server, NAME).unwrap();
    world.authority.revoke(&server.entry.serial).unwrap();
    assert_eq!(refused(world.handshake(&other, &server, NAME), "client"), CertificateError::Revoked);
}

#[test]
fn certificates_of_another_authority_do_not() {
    let (world, stranger) = (World::new(), World::new());
    let (client, server) = world.pair();
    let (strange_client, strange_server) = stranger.pair();
    // Same names, same common name of the authority: only the key differs.
    let error = refused(world.handshake(&strange_client, &server, NAME), "server");
    assert!(matches!(error, CertificateError::BadSignature | CertificateError::UnknownIssuer), "{error:?}");
    let error = refused(world.handshake(&client, &strange_server, NAME), "client");
    assert!(matches!(error, CertificateError::BadSignature | CertificateError::UnknownIssuer), "{error:?}");
}

#[test]
fn certificates_for_the_other_side_do_not() {
    let world = World::new();
    let (client, server) = world.pair();
    let second = world.issue(Role::ServerSide, "server-2", Validity::Days(1));
    let purpose = |error| {
        matches!(error, CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. })
    };
    assert!(
        purpose(refused(world.handshake(&second, &server, NAME), "server")),
        "a server-side one as a client"
    );
    assert!(
        purpose(refused(world.handshake(&client, &client, NAME), "client")),
        "a client-side one as a server"
    );
}

#[test]
fn the_server_must_have_the_name_that_was_dialled() {
    let world = World::new();
    let (client, server) = world.pair();
    let error = refused(world.handshake(&client, &server, "other.example"), "client");
    assert!(
        matches!(error, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        "{error:?}"
    );
}
