//! What a laptop's agent and the server side say to each other, and how the agent finds out where it is: tokens,
//! messages, signed policies, probes of branch gateways, and the decision about the location. No IO and no clock.

pub mod limits;
pub mod location;
mod message;
mod policy;
pub mod probe;
mod token;

pub use message::{
    Answer, BadMessage, Enrol, Enrolled, Half, Report, Reported, Request, decode, encode, revocations_id,
};
pub use policy::SignedPolicy;
pub use token::{BadToken, Fingerprint, Token, TokenSecret};
