//! Inner channels over TCP and TLS 1.3: the tokio driver of the tunnel core.
//!
//! The client-side proxy owns a [`Dialer`], the server-side proxy an [`Acceptor`]. Both hand out [`Channel`]s, each of
//! which carries one session and survives the death of the TLS connection below it. Certificates come from a
//! [`TlsSource`], which reloads them when the files change.

mod acceptor;
mod beat;
mod channel;
mod control;
mod counters;
mod dialer;
mod drive;
mod fleet;
mod handshake;
mod heart;
mod identity;
mod inner;
pub mod limits;
mod link;
mod peer;
mod peers;
mod redial;
mod shared;
mod socket;
mod tls;
mod tls_error;
mod verifier;

pub use acceptor::{Acceptor, AcceptorConfig, BindError};
pub use beat::{BEAT, next_beat, start_beats};
pub use channel::{Channel, Closed, Receiver, Sender};
pub use counters::WanCounters;
pub use dialer::{Dialer, DialerConfig, ServerNameError};
pub use fleet::{FleetCall, FleetCallError, FleetTrust, call_fleet};
pub use identity::Identity;
pub use peer::{LocalHello, PeerInfo, PeerState};
pub use peers::PeerStatus;
pub use tls::{TlsFiles, TlsSource, TlsSourceError};
