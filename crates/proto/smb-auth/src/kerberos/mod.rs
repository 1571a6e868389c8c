//! Kerberos 5 as far as an SMB session needs it: AP-REQ and AP-REP (RFC 4120), the encryption types of RFC 3962,
//! RFC 4757 and RFC 8009, and group membership from the PAC (MS-PAC).

mod crypto;
mod encryption;
#[cfg(test)]
pub(crate) mod fixture;
mod message;
mod pac;
mod principal;
mod session;

pub use encryption::EncryptionType;
pub use pac::{Groups, Sid};
pub use principal::Principal;

pub(crate) use message::{Reply, Request};
pub(crate) use session::recover;
