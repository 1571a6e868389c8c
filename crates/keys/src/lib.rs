//! Where the server-side proxy keeps the secrets that open SMB sessions, and who may be given a session's keys.
//!
//! [`KeyStore`] reads keytabs and password hash files, runs the commands that refresh them, and gives out what it holds
//! as a [`KeyRing`], from which `isthmus-smb-auth` recovers session keys. [`ReleasePolicy`] decides whether a peer may
//! be given the keys of one session: whoever has them can act as that session's user. [`check`] tells an
//! administrator what both make possible for one user or service. `docs/keys.md` is the guide.
//!
//! Long-term secrets stay in this process's memory, zeroised when they are replaced. Errors and listings name files,
//! accounts and key versions, never what is in them.

pub mod check;
mod command;
mod config;
mod error;
mod file;
pub mod limits;
mod pattern;
mod policy;
mod process;
mod rate;
mod ring;
mod store;
mod watch;

pub use command::CommandProblem;
pub use config::{
    CommandConfig, CommandOutput, KeysConfig, PeerKind, RateLimit, ReleaseRule, ReleasesConfig, Scope,
    SourceKind,
};
pub use error::KeysError;
pub use pattern::{BadPattern, ServerPattern, UserPattern};
pub use policy::{BadRules, Decision, PeerIdentity, Refusal, Release, ReleasePolicy, is_sid};
pub use process::deny_core_dumps;
pub use ring::KeyRing;
pub use store::{KeyStore, Observer, SourceStatus};
pub use watch::Watch;
