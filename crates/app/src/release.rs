//! Session keys for the SMB stage of one connection, on the server side.

use std::net::SocketAddr;
use std::sync::Arc;

use isthmus_smb_auth::Exchange;
use isthmus_smb_session::{KeySource, Refused, Released};
use zeroize::Zeroizing;

use crate::core::Core;

/// Releases keys to the client-side proxy that one connection came through, as the policy says.
pub(crate) struct ReleaseTo {
    pub core: Arc<Core>,
    /// Name in the peer's certificate.
    pub peer: String,
    /// Where the SMB client is, as the peer says.
    pub client: SocketAddr,
    /// The file server, as the peer asked for it.
    pub server: String,
}

impl KeySource for ReleaseTo {
    fn release(&self, exchange: &Exchange) -> Result<Released, Refused> {
        let Some(keys) = self.core.keys.get() else {
            return Err(Refused("no key source is configured".into()));
        };
        let (recovered, _rule) = keys
            .release(&self.peer, self.client, &self.server, exchange)
            .map_err(|refused| Refused(refused.to_string()))?;
        Ok(Released {
            session_key: Zeroizing::new(recovered.session_key.as_bytes().to_vec()),
            user: recovered.user.to_string(),
            domain: recovered.domain.to_string(),
        })
    }
}
