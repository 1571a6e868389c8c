//! `agent enroll`: a key made here, a certificate from the server side, and the first policy.

use std::path::Path;
use std::sync::Arc;

use isthmus_agent::limits::ANSWER_BYTES_MAX;
use isthmus_agent::{Answer, Enrol, Enrolled, Request, Token, decode, encode};
use isthmus_certs::{KeyRequest, fingerprint};
use isthmus_config::{HostPort, Overrides};
use isthmus_net::{FleetTrust, call_fleet};
use zeroize::Zeroizing;

use super::{Folder, FolderError, machine_overrides, parse};
use crate::cli::{Exit, Failure};

/// Enrols this machine with `server`. Gives its name.
pub(crate) async fn enrol(dir: &Path, token: &Token, server: &HostPort) -> Result<String, Failure> {
    let folder = Folder::new(dir);
    folder.prepare()?;
    let pending = folder.pending()?;
    let request = Request::Enrol(Enrol {
        secret: token.secret.to_hex(),
        request: pending.request.clone(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        host: crate::status::hostname(),
    });
    let unavailable = |text: String| Failure::new(Exit::Unavailable, text);
    let bytes = Zeroizing::new(encode(&request).map_err(|error| unavailable(error.to_string()))?);
    let trust = FleetTrust::Pinned(token.authority);
    let (address, name) = (server.to_string(), server.host.to_string());
    let answer = call_fleet(&address, &name, &trust, &bytes, ANSWER_BYTES_MAX, Arc::default())
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    let enrolled = match decode::<Answer>(&answer) {
        Ok(Answer::Enrolled(enrolled)) => enrolled,
        Ok(Answer::Refused { why, .. }) => {
            return Err(Failure::new(Exit::NoPermission, format!("{server} refuses: {why}")));
        }
        Ok(_) => return Err(unavailable(format!("{server} answers something else"))),
        Err(error) => return Err(unavailable(format!("{server}: {error}"))),
    };
    check(&enrolled, token, &pending).map_err(|why| unavailable(format!("{server}: {why}")))?;
    folder.keep(&enrolled, &address)?;
    // Said now, while the administrator is there; the agent starts with it all the same when it has been mended.
    let policy = folder.policy()?;
    let mut overrides = Overrides::none();
    machine_overrides(dir, &mut overrides);
    parse(&policy, &overrides).map_err(|errors| FolderError::Policy(errors.to_string()))?;
    Ok(enrolled.name)
}

fn check(enrolled: &Enrolled, token: &Token, pending: &KeyRequest) -> Result<(), String> {
    let pinned = fingerprint(&enrolled.authority).is_some_and(|print| print.starts_with(&token.authority));
    if !pinned {
        return Err("the authority that it sends is not the one that the token names".into());
    }
    if !pending.fits(&enrolled.certificate) {
        return Err("the certificate that it sends is not for this machine's key".into());
    }
    Ok(())
}
