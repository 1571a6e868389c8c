//! `/api/fleet`: every agent and gateway.

use super::unix;
use crate::limits::FLEET_ROWS_MAX;
use isthmus_telemetry::FleetMember;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct FleetView {
    total: usize,
    members: Vec<MemberView>,
}

#[derive(Serialize)]
struct MemberView {
    name: String,
    kind: &'static str,
    /// `connected`, `away` or `revoked`.
    state: &'static str,
    host: Option<String>,
    version: Option<String>,
    policy: Option<String>,
    policy_current: Option<u64>,
    policy_version: Option<u64>,
    seen: Option<f64>,
    connected: bool,
    address: Option<String>,
    location: Option<String>,
    location_why: Option<String>,
    lan_bytes: u64,
    wan_bytes: u64,
    store_bytes: u64,
    certificate_until: Option<f64>,
    revoked: Option<f64>,
    problem: Option<String>,
}

/// All members up to the limit, by name.
pub(crate) fn fleet(mut all: Vec<FleetMember>) -> FleetView {
    let total = all.len();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.truncate(FLEET_ROWS_MAX);
    FleetView { total, members: all.into_iter().map(MemberView::from).collect() }
}

impl From<FleetMember> for MemberView {
    fn from(member: FleetMember) -> MemberView {
        let said = |text: String| (!text.is_empty()).then_some(text);
        let state = match (member.revoked, member.connected) {
            (Some(_), _) => "revoked",
            (None, true) => "connected",
            (None, false) => "away",
        };
        let (policy, policy_current) =
            member.policy.map_or((None, None), |(name, version)| (Some(name), Some(version)));
        MemberView {
            name: member.name,
            kind: if member.agent { "agent" } else { "gateway" },
            state,
            host: said(member.host),
            version: said(member.version),
            policy,
            policy_current,
            policy_version: member.agent.then_some(member.policy_version),
            seen: member.seen.map(unix),
            connected: member.connected,
            address: said(member.address),
            location: said(member.location),
            location_why: said(member.location_why),
            lan_bytes: member.lan_bytes,
            wan_bytes: member.wan_bytes,
            store_bytes: member.store_bytes,
            certificate_until: member.certificate_until.map(unix),
            revoked: member.revoked.map(unix),
            problem: said(member.problem),
        }
    }
}
