//! A complete set for demonstrations and tests, made without asking anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::authority::{Authority, CA_DAYS, IssueRequest, LEAF_DAYS, Validity};
use crate::error::CertsError;
use crate::role::Role;

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An authority and one certificate for each proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSet {
    /// Directory of the authority, for [`Authority::open`].
    pub authority: PathBuf,
    /// For `tls.ca` of both sides.
    pub ca: PathBuf,
    /// For `tls.crl` of both sides.
    pub crl: PathBuf,
    pub client: Identity,
    pub server: Identity,
}

/// Makes an authority in `dir/ca` and certificates in `dir`: `client.pem` (client-side) and `server.pem` (server-side,
/// for `localhost`, `127.0.0.1` and `::1`), each with its `.key`. Refuses if they exist.
pub fn demo_set(dir: &Path) -> Result<DemoSet, CertsError> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    demo_set_for(dir, &["localhost"], &loopback)
}

/// As [`demo_set`], with a server-side certificate for these names and addresses.
pub fn demo_set_for(dir: &Path, dns: &[&str], ip: &[IpAddr]) -> Result<DemoSet, CertsError> {
    let authority_dir = dir.join("ca");
    let authority = Authority::init(&authority_dir, "Isthmus demo CA", CA_DAYS)?;
    let issue = |role, name: &str, dns: &[&str], ip: &[IpAddr]| {
        let request = IssueRequest {
            role,
            name: name.into(),
            dns: dns.iter().map(ToString::to_string).collect(),
            ip: ip.to_vec(),
            validity: Validity::Days(LEAF_DAYS),
        };
        authority
            .issue(&request, dir)
            .map(|issued| Identity { certificate: issued.certificate, key: issued.key })
    };
    let client = issue(Role::ClientSide, "client", &[], &[])?;
    let server = issue(Role::ServerSide, "server", dns, ip)?;
    Ok(DemoSet {
        ca: authority.certificate(),
        crl: authority.crl(),
        authority: authority_dir,
        client,
        server,
    })
}
