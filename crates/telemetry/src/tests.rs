use super::*;
use isthmus_types::{Reason, Side};
use status::tests::{peer, status};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

struct Fixed(Mutex<Status>);

impl Source for Fixed {
    fn status(&self) -> Status {
        lock(&self.0).clone()
    }

    fn links(&self) -> Result<LinkList, LinkError> {
        Err(LinkError::NoPeer)
    }
}

fn telemetry(status: Status) -> (Arc<Telemetry>, Arc<Fixed>, Arc<dyn Source>) {
    let fixed = Arc::new(Fixed(Mutex::new(status)));
    let source: Arc<dyn Source> = fixed.clone();
    let telemetry = Telemetry::new(Instant::now()).unwrap();
    telemetry.set_source(&source);
    (telemetry, fixed, source)
}

fn sockets(wan_sent: u64, wan_received: u64) -> PeerCounters {
    PeerCounters { wan_sent, wan_received, link_failures: 1, resumes: 2, handshakes: 3 }
}

fn connection(telemetry: &Telemetry, peer: &str) -> ConnectionHandle {
    telemetry.connections().register(ConnectionInfo {
        client: "192.0.2.7:50000".parse().unwrap(),
        target: "files:445".into(),
        protocol: Protocol::Smb,
        peer: peer.into(),
        rule: "1".into(),
        opened_at: SystemTime::now(),
    })
}

fn full_status() -> Status {
    let mut status = status(Side::Client, vec![peer("dc", sockets(30, 70))]);
    status.inner = InnerStatus { wan_sent: 1, wan_received: 2, garbage: 9, ..InnerStatus::default() };
    status.key_sources = vec![KeySourceStatus {
        name: "/etc/isthmus/files.keytab".into(),
        kind: KeySourceKind::Keytab,
        by_command: false,
        service_keys: 3,
        nt_hashes: 0,
        skipped: 0,
        loaded_at: Some(UNIX_EPOCH),
        error: Some("bad".into()),
        loads: 2,
        failures: 1,
    }];
    status.certificates = vec![
        CertificateStatus {
            kind: CertificateKind::Own,
            subject: "branch".into(),
            expires_at: UNIX_EPOCH + Duration::from_secs(2_000),
        },
        CertificateStatus {
            kind: CertificateKind::Own,
            subject: "older".into(),
            expires_at: UNIX_EPOCH + Duration::from_secs(1_000),
        },
    ];
    status
}

#[test]
fn every_metric_of_the_catalogue_is_exported_with_its_labels() {
    let (telemetry, _fixed, _source) = telemetry(full_status());
    let handle = connection(&telemetry, "dc");
    handle.set_state(ConnectionState::Optimised);
    drop(handle);
    let open = connection(&telemetry, "dc");
    open.set_smb(SmbInfo::new(SmbState::Clear));
    telemetry.count_key_release("dc", None);
    telemetry.event(Level::Info, "started");
    let families = telemetry.registry().gather();
    for metric in METRICS {
        if !cfg!(target_os = "linux") && metric.name.starts_with("process_") {
            continue;
        }
        let family = families
            .iter()
            .find(|family| family.name() == metric.name)
            .unwrap_or_else(|| panic!("{} is missing", metric.name));
        for sample in family.get_metric() {
            let labels: Vec<_> = sample.get_label().iter().map(|pair| pair.name()).collect();
            assert_eq!(labels, metric.labels, "{}", metric.name);
        }
    }
    assert_eq!(families.len(), METRICS.len());
}

#[test]
fn the_text_holds_the_ledger() {
    let (telemetry, _fixed, _source) = telemetry(full_status());
    let handle = connection(&telemetry, "dc");
    handle.ledger().lan_down.add(1_000);
    handle.ledger().add_saved(SavedBy::Delta, 900);
    let direct = connection(&telemetry, "");
    direct.set_state_because(ConnectionState::PassThrough, Reason::PeerAbsent, "");
    direct.ledger().passed_up.add(55);
    let smb =
        SmbInfo { session: 9, cipher: SmbCipher::from_wire(2), ..SmbInfo::new(SmbState::EncryptedKeys) };
    handle.set_smb(SmbInfo { user: "CORP\\alice".into(), ..smb });
    telemetry.count_key_release("dc", Some("administrator"));
    let text = telemetry.metrics_text().unwrap();
    for line in [
        "isthmus_lan_bytes_total{direction=\"down\",protocol=\"smb\",peer=\"dc\"} 1000",
        "isthmus_wan_bytes_total{direction=\"sent\",peer=\"dc\"} 30",
        "isthmus_wan_bytes_total{direction=\"received\",peer=\"none\"} 2",
        "isthmus_saved_bytes_total{by=\"delta\",peer=\"dc\"} 900",
        "isthmus_pass_through_bytes_total{direction=\"up\",protocol=\"smb\"} 55",
        "isthmus_not_optimised_total{reason=\"peer_absent\"} 1",
        "isthmus_connections{state=\"pass_through\"} 1",
        "isthmus_certificate_expiry_timestamp_seconds{certificate=\"own\"} 1000",
        "isthmus_handshake_failures_total{reason=\"garbage\"} 9",
        "isthmus_build_info{version=\"0.1.0\",side=\"client-side\"} 1",
        "isthmus_peer_rtt_seconds{peer=\"dc\"} 0.236",
        "isthmus_smb_connections{state=\"encrypted_keys\",cipher=\"AES-128-GCM\"} 1",
        "isthmus_smb_sessions_total{state=\"encrypted_keys\"} 1",
        "isthmus_smb_sessions_total{state=\"smb1\"} 0",
        "isthmus_key_releases_total{peer=\"dc\",result=\"refused\",reason=\"administrator\"} 1",
        "isthmus_key_source_loads_total{source=\"/etc/isthmus/files.keytab\",result=\"failed\"} 1",
        "isthmus_key_source_up{source=\"/etc/isthmus/files.keytab\"} 0",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("lan_bytes_total{direction=\"up\",protocol=\"smb\",peer=\"none\"}"));
    assert!(!text.contains("alice"), "users are not for metrics");
}

#[test]
fn traffic_counts_sockets_on_the_wan_and_carried_bytes_on_the_lan() {
    let (telemetry, fixed, _source) = telemetry(full_status());
    let handle = connection(&telemetry, "dc");
    handle.ledger().lan_up.add(400);
    handle.ledger().passed_up.add(5_000);
    let traffic = telemetry.totals();
    assert_eq!((traffic.lan(), traffic.wan(), traffic.passed), (400, 103, 5_000));
    lock(&fixed.0).peers.clear();
    assert_eq!(telemetry.totals().wan(), 103, "a peer that leaves takes nothing away");
    telemetry.tick(Instant::now() + limits::HOUR_STEP);
    let points = telemetry.history(|history| history.series(Span::Hour, Instant::now()).points);
    assert_eq!(points[0].traffic, traffic);
    assert_eq!(points[0].connections, 1);
}

#[test]
fn without_a_source_there_are_still_metrics() {
    let (telemetry, _fixed, source) = telemetry(full_status());
    drop((_fixed, source));
    let text = telemetry.metrics_text().unwrap();
    assert!(text.contains("isthmus_connections{state=\"optimised\"} 0"));
    assert!(!text.contains("isthmus_build_info"));
}

#[test]
fn peers_above_the_limit_share_a_label() {
    let peers = (0..limits::PEER_LABELS_MAX + 20).map(|i| peer(&format!("p{i}"), sockets(1, 0))).collect();
    let (telemetry, _fixed, _source) = telemetry(status(Side::Server, peers));
    let text = telemetry.metrics_text().unwrap();
    assert!(text.lines().any(|line| line == "isthmus_wan_bytes_total{direction=\"sent\",peer=\"other\"} 20"));
    let labels = text.lines().filter(|line| line.starts_with("isthmus_peer_up{")).count();
    assert_eq!(labels, limits::PEER_LABELS_MAX + 1);
}
