//! The agents and gateways of a server side, and what an agent knows of itself.

use std::time::SystemTime;

/// One agent or gateway, as the server side sees it.
#[derive(Clone, Debug, Default)]
pub struct FleetMember {
    /// Name in its certificate.
    pub name: String,
    /// An enrolled laptop; otherwise a gateway with a certificate issued by hand.
    pub agent: bool,
    pub host: String,
    /// What it says of its software.
    pub version: String,
    /// The policy that it is to follow, by name and version. Gateways have none.
    pub policy: Option<(String, u64)>,
    /// Version of the policy that it follows; 0 for none.
    pub policy_version: u64,
    /// When it was last heard of.
    pub seen: Option<SystemTime>,
    /// Whether its control channel is up.
    pub connected: bool,
    pub address: String,
    /// `off`, `branch` or `remote`; empty if it does not say.
    pub location: String,
    pub location_why: String,
    /// Bytes since its start.
    pub lan_bytes: u64,
    pub wan_bytes: u64,
    pub store_bytes: u64,
    /// End of its newest certificate, if this side has issued it.
    pub certificate_until: Option<SystemTime>,
    pub revoked: Option<SystemTime>,
    /// What keeps it from following its policy.
    pub problem: String,
}

/// What an agent knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Name in its certificate; empty for a proxy that has not enrolled.
    pub name: String,
    /// The policy that it follows, by name and version.
    pub policy: Option<(String, u64)>,
    /// When the server side last answered.
    pub synced: Option<SystemTime>,
    /// What is wrong with policy or certificate, if anything.
    pub problem: String,
}

/// Where a client-side proxy is, if it looks after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationStatus {
    /// `off`, `branch` or `remote`.
    pub location: &'static str,
    /// Why, for people.
    pub why: String,
    pub since: SystemTime,
}
