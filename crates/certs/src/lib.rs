//! A private certificate authority for the pair: it issues, revokes and lists, and examines what a proxy is given.
//!
//! Certificates carry the role of their holder as a URI in the subject's alternative names (`urn:isthmus:role:…`), the
//! holder's name as the common name, and the extended key usage that fits the role. Keys are P-256.

mod authority;
mod demo;
mod error;
mod examine;
pub mod files;
mod index;
mod role;
mod signed;

pub use authority::{Authority, CA_DAYS, IssueRequest, Issued, LEAF_DAYS, VALIDITY_DAYS_MAX, Validity};
pub use demo::{DemoSet, Identity, demo_set, demo_set_for};
pub use error::CertsError;
pub use examine::{Details, EXPIRY_WARNING, Examination, Problem, TlsFiles, examine, read_certificates};
pub use index::{Entry, INDEX_ENTRIES_MAX, list};
pub use role::Role;
pub use signed::{KeyRequest, Signer, Trust, fingerprint};
