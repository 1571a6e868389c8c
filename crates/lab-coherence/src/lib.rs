//! Many SMB clients, some straight at a server and some through pairs of proxies, do seeded random work on few files; what
//! each was told, and when, is recorded and then judged. docs/coherence.md says what is judged and how.

pub mod check;
pub mod client;
pub mod history;
pub mod plan;
pub mod rule;
pub mod run;
