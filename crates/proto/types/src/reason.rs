use std::fmt;

/// Why a connection is not (or no longer) optimised. Shown on the console, used as a metric label, sent on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A rule says pass through.
    RulePassThrough = 1,
    /// A rule says deny.
    RuleDeny = 2,
    /// No link to the peer.
    PeerAbsent = 3,
    /// The peer's certificate is missing, expired, revoked, of another CA or of the wrong role; or ours is, in its eyes.
    PeerUnauthorised = 4,
    /// The peer speaks no version or capability set that this side accepts.
    PeerIncompatible = 5,
    /// This side or the peer is at its connection limit.
    AdmissionFull = 6,
    /// The store cannot be used (wrong key, locked, damaged, disk error).
    StoreUnavailable = 7,
    /// The server-side proxy's allow list does not name the target.
    TargetNotAllowed = 8,
    /// The target refused the connection.
    TargetRefused = 9,
    /// The target cannot be reached or did not answer in time.
    TargetUnreachable = 10,
    /// This side is draining before it stops.
    Draining = 11,
    /// Restored bytes did not match their proof, or a reference could not be repaired.
    ProofFailed = 12,
    /// The peer sent what the protocol forbids.
    PeerMisbehaved = 13,
    /// The link died and was not resumed within the window.
    ResumeExpired = 14,
    /// The application on either side closed with a reset.
    ApplicationReset = 15,
    /// A message on the LAN is not what its sender's session allows (an encrypted one that cannot be opened).
    MessageRefused = 16,
    /// The connection is older than the peer or than interception, and goes on as it was made.
    PreExisting = 17,
    /// The file server is near, so there is nothing to gain.
    ServerNear = 18,
    /// A branch gateway in the path optimises.
    BranchGateway = 19,
    /// A session without keys has begun beside others whose round trips are removed.
    KeysMixed = 20,
}

impl Reason {
    /// Every reason, in wire order.
    pub const ALL: [Reason; 20] = [
        Reason::RulePassThrough,
        Reason::RuleDeny,
        Reason::PeerAbsent,
        Reason::PeerUnauthorised,
        Reason::PeerIncompatible,
        Reason::AdmissionFull,
        Reason::StoreUnavailable,
        Reason::TargetNotAllowed,
        Reason::TargetRefused,
        Reason::TargetUnreachable,
        Reason::Draining,
        Reason::ProofFailed,
        Reason::PeerMisbehaved,
        Reason::ResumeExpired,
        Reason::ApplicationReset,
        Reason::MessageRefused,
        Reason::PreExisting,
        Reason::ServerNear,
        Reason::BranchGateway,
        Reason::KeysMixed,
    ];

    /// The byte that stands for this reason on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reason a wire byte stands for, if any.
    pub fn from_code(code: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// Metric label: lower case, words joined by underscores.
    pub fn label(self) -> &'static str {
        match self {
            Reason::RulePassThrough => "rule_pass_through",
            Reason::RuleDeny => "rule_deny",
            Reason::PeerAbsent => "peer_absent",
            Reason::PeerUnauthorised => "peer_unauthorised",
            Reason::PeerIncompatible => "peer_incompatible",
            Reason::AdmissionFull => "admission_full",
            Reason::StoreUnavailable => "store_unavailable",
            Reason::TargetNotAllowed => "target_not_allowed",
            Reason::TargetRefused => "target_refused",
            Reason::TargetUnreachable => "target_unreachable",
            Reason::Draining => "draining",
            Reason::ProofFailed => "proof_failed",
            Reason::PeerMisbehaved => "peer_misbehaved",
            Reason::ResumeExpired => "resume_expired",
            Reason::ApplicationReset => "application_reset",
            Reason::MessageRefused => "message_refused",
            Reason::PreExisting => "pre_existing",
            Reason::ServerNear => "server_near",
            Reason::BranchGateway => "branch_gateway",
            Reason::KeysMixed => "keys_mixed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::RulePassThrough => "a rule passes it through",
            Reason::RuleDeny => "a rule denies it",
            Reason::PeerAbsent => "no link to the peer",
            Reason::PeerUnauthorised => "the peer's certificate is not accepted, or ours is not by the peer",
            Reason::PeerIncompatible => "the peer speaks another protocol version",
            Reason::AdmissionFull => "the connection limit is reached",
            Reason::StoreUnavailable => "the chunk store cannot be used",
            Reason::TargetNotAllowed => "the server-side proxy may not connect to this target",
            Reason::TargetRefused => "the target refused the connection",
            Reason::TargetUnreachable => "the target cannot be reached",
            Reason::Draining => "the proxy is draining before it stops",
            Reason::ProofFailed => "restored bytes did not match their proof",
            Reason::PeerMisbehaved => "the peer broke the protocol",
            Reason::ResumeExpired => "the link died and was not resumed in time",
            Reason::ApplicationReset => "the application reset the connection",
            Reason::MessageRefused => "a message on the LAN is not what its session allows",
            Reason::PreExisting => "it is older than what would optimise it",
            Reason::ServerNear => "the file server is near",
            Reason::BranchGateway => "a branch gateway in the path optimises",
            Reason::KeysMixed => "a user without keys has joined one whose round trips are removed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_labels_are_unique_and_round_trip() {
        for (i, a) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(Reason::from_code(a.code()), Some(a));
            for b in &Reason::ALL[i + 1..] {
                assert_ne!(a.label(), b.label());
                assert_ne!(a.code(), b.code());
            }
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(255), None);
    }
}
