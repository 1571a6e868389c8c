//! `status` against a real admin port.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use isthmus_control::{Admin, AdminOptions};
use isthmus_telemetry::{
    AdmissionStatus, InnerStatus, LinkError, LinkList, PeerCounters, PeerState, PeerStatus, Source, Status,
    StoreState, StoreStatus, Telemetry,
};
use isthmus_types::{Reason, Side};

struct Lonely;

impl Source for Lonely {
    fn status(&self) -> Status {
        Status {
            obstacle: None,
            side: Side::Client,
            name: "branch-7".into(),
            version: "9.9.9".into(),
            started_at: SystemTime::now(),
            configuration: vec![],
            peers: vec![PeerStatus {
                name: "dc-1".into(),
                address: "192.0.2.1:7810".into(),
                state: PeerState::Down { reason: Reason::PeerAbsent, detail: "nobody answers there".into() },
                since: SystemTime::now(),
                rtt: None,
                clock_ahead_ms: None,
                version: String::new(),
                channels_busy: 0,
                channels_pooled: 0,
                counters: PeerCounters::default(),
            }],
            store: StoreStatus {
                state: StoreState::Learning,
                bytes: 0,
                cap_bytes: 1,
                chunks: 0,
                segments: 0,
                evicted_bytes: 0,
                quarantined: 0,
                cache_hits: 0,
                cache_misses: 0,
                encrypted: true,
                identity: String::new(),
                generation: 1,
            },
            admission: AdmissionStatus::default(),
            certificates: vec![],
            key_sources: vec![],
            draining: false,
            inner: InnerStatus::default(),
            agent: None,
            location: None,
        }
    }

    fn links(&self) -> Result<LinkList, LinkError> {
        Ok(LinkList::default())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_shows_what_the_admin_port_says() {
    let telemetry = Telemetry::new(Instant::now()).unwrap();
    let source: Arc<dyn Source> = Arc::new(Lonely);
    telemetry.set_source(&source);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let admin = Admin::new(telemetry, source, AdminOptions::default());
    let served = tokio::spawn(admin.serve(listener, std::future::pending()));

    let status = async |more: &'static [&'static str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-client"));
        command.args(["status", "--address", &address]).args(more);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = status(&[]).await;
    assert!(text.starts_with("client-side proxy branch-7, version 9.9.9, up "), "{text}");
    assert!(text.lines().next().unwrap().ends_with(": not ready"), "{text}");
    assert!(text.contains("dc-1 at 192.0.2.1:7810: down: nobody answers there\n"), "{text}");
    assert!(text.contains("since the start   LAN"), "{text}");
    assert!(text.contains("connections       0 open, 0 ended\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"]).await).unwrap();
    assert_eq!(json["summary"]["ready"], false);
    assert_eq!(json["peers"][0]["reason"], Reason::PeerAbsent.label());
    served.abort();
}
