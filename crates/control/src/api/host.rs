//! What the kernel says: of the sockets of inner channels, and of this process.

use isthmus_telemetry::{LinkList, LinkStatus, Process};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct LinksView {
    total: usize,
    error: Option<String>,
    links: Vec<LinkView>,
}

#[derive(Serialize)]
struct LinkView {
    local: String,
    remote: String,
    rtt_seconds: f64,
    rtt_variation_seconds: f64,
    rtt_min_seconds: f64,
    path_mtu: u32,
    segment_bytes: u32,
    congestion: String,
    window_segments: u32,
    delivery_rate: u64,
    sender_limited: bool,
    sent_bytes: u64,
    received_bytes: u64,
    resent_bytes: u64,
    segments: u32,
    resent_segments: u32,
    waiting_bytes: u32,
}

#[derive(Serialize)]
pub(crate) struct ProcessView {
    pid: u32,
    uid: Option<u32>,
    capabilities: Option<String>,
    threads: Option<u64>,
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    open_files_max: Option<u64>,
    kernel: Option<String>,
}

impl LinksView {
    /// Those that have carried most first, or why the kernel does not tell.
    pub(crate) fn new(links: Result<LinkList, String>) -> LinksView {
        match links {
            Ok(list) => LinksView {
                total: list.total,
                error: None,
                links: list.links.into_iter().map(LinkView::from).collect(),
            },
            Err(error) => LinksView { total: 0, error: Some(error), links: Vec::new() },
        }
    }
}

impl From<LinkStatus> for LinkView {
    fn from(link: LinkStatus) -> LinkView {
        LinkView {
            local: link.local.to_string(),
            remote: link.remote.to_string(),
            rtt_seconds: link.rtt.as_secs_f64(),
            rtt_variation_seconds: link.rtt_variation.as_secs_f64(),
            rtt_min_seconds: link.rtt_min.as_secs_f64(),
            path_mtu: link.path_mtu,
            segment_bytes: link.segment_bytes,
            congestion: link.congestion,
            window_segments: link.window_segments,
            delivery_rate: link.delivery_rate,
            sender_limited: link.is_sender_limited,
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
            resent_bytes: link.resent_bytes,
            segments: link.segments,
            resent_segments: link.resent_segments,
            waiting_bytes: link.waiting_bytes,
        }
    }
}

impl From<Process> for ProcessView {
    fn from(process: Process) -> ProcessView {
        ProcessView {
            pid: process.pid,
            uid: process.uid,
            capabilities: process.capabilities.map(|set| format!("{set:016x}")),
            threads: process.threads,
            resident_bytes: process.resident_bytes,
            open_files: process.open_files,
            open_files_max: process.open_files_max,
            kernel: process.kernel,
        }
    }
}
