//! Recovers the session key of an SMB authentication that passes by, from material the administrator authorised.
//!
//! Nothing here takes part in the authentication: an [`Exchange`] is shown the security buffers of SESSION_SETUP as
//! they pass, unaltered, and works out the mechanism (SPNEGO, RFC 4178; NTLM, MS-NLMP; Kerberos, RFC 4120 and
//! RFC 4121), the names in it, and with the fitting secret the session key that client and server agreed on. The
//! secrets are NT hashes and Kerberos service keys, read from [`keytab`] and [`smbpasswd`] files into a [`SecretSet`].
//!
//! The crate does no IO and has no clock. Bytes from the network never make it panic, loop or allocate without bound;
//! keys never appear in `Debug` output and are zeroised when dropped.

mod der;
mod exchange;
mod failure;
mod kerberos;
pub mod keytab;
pub mod limits;
mod name;
mod ntlm;
mod secret;
mod set;
pub mod smbpasswd;
mod spnego;

pub use exchange::{Claim, Exchange, Mechanism, Mic, Recovered};
pub use failure::Failure;
pub use kerberos::{EncryptionType, Groups, Principal, Sid};
pub use name::fold;
pub use secret::{AccountHash, NtHash, Secrets, ServiceKey, SessionKey};
pub use set::{FormatError, Loaded, Place, SecretSet};
