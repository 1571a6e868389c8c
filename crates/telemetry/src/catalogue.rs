//! Every metric by name. docs/metrics.md lists the same, and a test holds the two together.

/// Counters only grow; gauges are what they are at the moment; histograms count by how large something was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric family.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// Label names, in the order in which samples give their values.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

macro_rules! metrics {
    ($($id:ident = $kind:ident($name:literal, [$($label:literal),*], $help:literal);)*) => {
        $(pub(crate) const $id: Metric = $kind($name, &[$($label),*], $help);)*
        /// Every metric this program exports, in the order of docs/metrics.md.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

metrics! {
    LAN_BYTES = counter("isthmus_lan_bytes_total", ["direction", "protocol", "peer"], "LAN bytes of connections carried over inner channels.");
    WAN_BYTES = counter("isthmus_wan_bytes_total", ["direction", "peer"], "Bytes on the inner sockets: handshakes, acknowledgements, heartbeats and pool refill included.");
    FRAME_BYTES = counter("isthmus_frame_bytes_total", ["direction", "protocol", "peer"], "Encoded frame bytes of connections, before TLS.");
    SAVED_BYTES = counter("isthmus_saved_bytes_total", ["by", "peer"], "LAN bytes that did not have to cross the WAN, by what saved them.");
    PASS_THROUGH_BYTES = counter("isthmus_pass_through_bytes_total", ["direction", "protocol"], "Bytes relayed directly, over no inner channel.");
    CONNECTIONS = gauge("isthmus_connections", ["state"], "Open outer connections.");
    CONNECTIONS_TOTAL = counter("isthmus_connections_total", ["outcome", "reason"], "Outer connections that have ended.");
    NOT_OPTIMISED = counter("isthmus_not_optimised_total", ["reason"], "Connections that were passed through or denied.");
    SMB_CONNECTIONS = gauge("isthmus_smb_connections", ["state", "cipher"], "Open connections by what is done with SMB on them.");
    SMB_SESSIONS = counter("isthmus_smb_sessions_total", ["state"], "SMB sessions by what is done with them, and connections that have none.");
    SMB_LOCAL = counter("isthmus_smb_local_answers_total", ["request"], "SMB requests answered near the client: each is a round trip saved.");
    SMB_LOST_WRITES = counter("isthmus_smb_lost_writes_total", [], "Writes that failed after the client had its answer; the next request on the file told it.");
    SMB_AHEAD = counter("isthmus_smb_ahead_total", [], "SMB requests that the server-side proxy made ahead of clients.");
    SMB_AHEAD_WASTED = counter("isthmus_smb_ahead_wasted_total", [], "Opens made ahead that no client used.");
    SMB_BROKEN = counter("isthmus_smb_permits_broken_total", [], "Lease breaks and changes that took away what was held for clients.");
    SMB_BREAK_SECONDS = histogram("isthmus_smb_break_seconds", [], "Time from a lease break of the server to its acknowledgement.");
    SMB_PERMITS = gauge("isthmus_smb_permits", [], "Offers, answers, watches and leases held for clients.");
    KEY_RELEASES = counter("isthmus_key_releases_total", ["peer", "result", "reason"], "Decisions on giving a session's keys to a peer.");
    KEY_LOADS = counter("isthmus_key_source_loads_total", ["source", "result"], "Attempts to load a key source.");
    KEY_SOURCE_UP = gauge("isthmus_key_source_up", ["source"], "1 while the last attempt to load the key source went well.");
    FRAMES = counter("isthmus_reduction_frames_total", ["direction"], "Reduction frames made and restored here.");
    MISSES = counter("isthmus_reduction_misses_total", [], "References of a peer that the store here could not resolve.");
    REPAIRS = counter("isthmus_reduction_repairs_total", [], "References that a peer could not resolve and this side supplied again.");
    REPAIR_BYTES = counter("isthmus_reduction_repair_bytes_total", [], "Bytes supplied again by repairs.");
    PROOF_FAILURES = counter("isthmus_proof_failures_total", [], "Restored bytes that did not match their proof and were not delivered.");
    PEER_UP = gauge("isthmus_peer_up", ["peer"], "1 while the peer can be used.");
    PEER_RTT = gauge("isthmus_peer_rtt_seconds", ["peer"], "Round-trip time of the control channel.");
    PEER_CHANNELS = gauge("isthmus_peer_channels", ["peer", "state"], "Inner channels that are in use or wait in the pool.");
    RESUMES = counter("isthmus_resumes_total", ["peer"], "Inner channels that went on over a new link.");
    LINK_FAILURES = counter("isthmus_link_failures_total", ["peer"], "Links to the peer that died.");
    HANDSHAKES = counter("isthmus_handshakes_total", ["peer"], "TLS handshakes completed with the peer.");
    HANDSHAKE_FAILURES = counter("isthmus_handshake_failures_total", ["reason"], "Connections to or on the inner port that did not become an inner channel.");
    STORE_UP = gauge("isthmus_store_up", [], "1 while the chunk store can be read.");
    STORE_LEARNING = gauge("isthmus_store_learning", [], "1 while the chunk store takes in new data.");
    STORE_BYTES = gauge("isthmus_store_bytes", [], "Bytes of the store's files on disk.");
    STORE_CAP = gauge("isthmus_store_cap_bytes", [], "The size the store never exceeds.");
    STORE_CHUNKS = gauge("isthmus_store_chunks", [], "Chunks in the store.");
    STORE_SEGMENTS = gauge("isthmus_store_segments", [], "Segments in the store.");
    STORE_ENCRYPTED = gauge("isthmus_store_encrypted", [], "1 when new data is encrypted at rest.");
    STORE_EVICTED = counter("isthmus_store_evicted_bytes_total", [], "Bytes dropped from the store to make room.");
    STORE_QUARANTINED = gauge("isthmus_store_quarantined_chunks", [], "Chunks set aside since they failed a check.");
    STORE_CACHE_HITS = counter("isthmus_store_cache_hits_total", [], "Reads answered by the cache of decrypted records.");
    STORE_CACHE_MISSES = counter("isthmus_store_cache_misses_total", [], "Reads that went to the store's files.");
    ADMISSION_FULL = gauge("isthmus_admission_full", [], "1 while new connections are not optimised since the limit is reached.");
    ADMISSION_CONNECTIONS = gauge("isthmus_admission_connections", [], "Connections that count towards the limit.");
    ADMISSION_STOP_AT = gauge("isthmus_admission_stop_at", [], "The count at which optimisation of new connections stops.");
    ADMISSION_RESUME_AT = gauge("isthmus_admission_resume_at", [], "The count at which it starts again.");
    CERTIFICATE_EXPIRY = gauge("isthmus_certificate_expiry_timestamp_seconds", ["certificate"], "When the certificate ends, or the revocation list is due.");
    READY = gauge("isthmus_ready", [], "1 while a new connection would be optimised.");
    DRAINING = gauge("isthmus_draining", [], "1 while the proxy drains before it stops.");
    EVENTS = counter("isthmus_events_total", ["level"], "Events, as the console lists them.");
    BUILD_INFO = gauge("isthmus_build_info", ["version", "side"], "Always 1.");
    PROCESS_CPU = counter("process_cpu_seconds_total", [], "User and system CPU time of the process.");
    PROCESS_RSS = gauge("process_resident_memory_bytes", [], "Resident memory of the process.");
    PROCESS_START = gauge("process_start_time_seconds", [], "When the process started, in Unix time.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_conventions() {
        let mut seen = HashSet::new();
        for metric in METRICS {
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.name.starts_with("isthmus_") || metric.name.starts_with("process_"));
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
