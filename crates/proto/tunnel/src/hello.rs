use crate::Error;
use isthmus_types::{Side, StoreId};

/// Oldest protocol version that this build speaks.
pub const PROTOCOL_VERSION_MIN: u16 = 1;
/// Newest protocol version that this build speaks.
pub const PROTOCOL_VERSION_MAX: u16 = 1;

/// One run of one process: random, so that a restart or a cloned store is noticed.
pub type Instance = [u8; 16];

/// The first frame of each side on a control channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version that the sender speaks.
    pub versions: (u16, u16),
    /// Bit set of optional features that the sender has.
    pub capabilities: u64,
    /// The sender's side.
    pub role: Side,
    /// Identity of the sender's chunk store.
    pub store: StoreId,
    /// The store's generation: what was learnt under an older one may be gone.
    pub generation: u64,
    /// The sender's process.
    pub instance: Instance,
    /// Software version, for people. At most 64 bytes.
    pub software: String,
    /// The sender's clock as it wrote the hello, in milliseconds since 1970, for diagnosis only. Older software sends none.
    pub clock_ms: Option<u64>,
}

/// What two hellos agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The newest version that both speak.
    pub version: u16,
    /// The features that both have.
    pub capabilities: u64,
}

impl Hello {
    /// What this side and the peer can both do, or why they cannot talk.
    ///
    /// Both sides compute the same answer, so no further exchange is needed.
    pub fn agree(&self, peer: &Hello) -> Result<Agreement, Error> {
        let version = self.versions.1.min(peer.versions.1);
        if version < self.versions.0 || version < peer.versions.0 {
            return Err(Error::PeerIncompatible(format!(
                "no common protocol version: this side speaks {} to {}, the peer ({}) {} to {}; \
                 upgrade the older of the two",
                self.versions.0, self.versions.1, peer.software, peer.versions.0, peer.versions.1
            )));
        }
        if self.role == peer.role {
            return Err(Error::PeerIncompatible(format!("both ends are {} proxies", self.role)));
        }
        if self.store == peer.store {
            return Err(Error::PeerIncompatible(
                "cloned store: both ends have the same store identity; give one of them a new store".into(),
            ));
        }
        Ok(Agreement { version, capabilities: self.capabilities & peer.capabilities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(role: Side, versions: (u16, u16), store: u8) -> Hello {
        Hello {
            versions,
            capabilities: 0b110 | u64::from(store == 1),
            role,
            store: StoreId([store; 16]),
            generation: 0,
            instance: [store; 16],
            software: "test".into(),
            clock_ms: None,
        }
    }

    #[test]
    fn the_newest_common_version_wins() {
        let client = hello(Side::Client, (1, 3), 1);
        let server = hello(Side::Server, (2, 5), 2);
        let agreed = Agreement { version: 3, capabilities: 0b110 };
        assert_eq!(client.agree(&server), Ok(agreed));
        assert_eq!(server.agree(&client), Ok(agreed));
    }

    #[test]
    fn versions_apart_roles_alike_and_cloned_stores_are_refused() {
        let server = hello(Side::Server, (2, 5), 2);
        for bad in [
            hello(Side::Client, (1, 1), 1),
            hello(Side::Client, (6, 9), 1),
            hello(Side::Server, (2, 5), 1),
            hello(Side::Client, (2, 5), 2),
        ] {
            assert!(matches!(server.agree(&bad), Err(Error::PeerIncompatible(_))), "{bad:?}");
            assert!(matches!(bad.agree(&server), Err(Error::PeerIncompatible(_))), "{bad:?}");
        }
    }
}
