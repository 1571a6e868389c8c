//! Invented data for the tests and for the demonstration console: a proxy that was busy for an hour, one that has just
//! started, and one in trouble. The same each time.

// Helpers of tests may unwrap, as tests do; each test uses its part of them.
#![allow(clippy::unwrap_used, dead_code)]

use isthmus_telemetry::{
    Acceleration, Accelerator, AdmissionStatus, AgentStatus, CertificateKind, CertificateStatus,
    ConnectionHandle, ConnectionInfo, ConnectionLedger, ConnectionState, FleetMember, InnerStatus,
    KeySourceKind, KeySourceStatus, Level, LinkError, LinkList, LinkStatus, LocationStatus, PeerCounters,
    PeerState, PeerStatus, Protocol, SavedBy, SmbCipher, SmbDialect, SmbInfo, SmbSigning, SmbState, Source,
    Status, StoreState, StoreStatus, Telemetry, TracedRequest,
};
use isthmus_types::{Reason, Side};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// What the sample shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// An hour of work behind it, connections of every kind.
    Busy,
    /// Just started, nothing has come yet.
    Fresh,
    /// Peer down, disk full, a certificate about to end, a proof that failed.
    Trouble,
}

/// A proxy that does not exist.
pub struct Sample {
    pub telemetry: Arc<Telemetry>,
    pub source: Arc<dyn Source>,
    state: Arc<State>,
    handles: Mutex<Vec<ConnectionHandle>>,
    clock: Mutex<Instant>,
    step: AtomicU64,
}

struct State {
    side: Side,
    scene: Scene,
    started_at: SystemTime,
    wan_sent: AtomicU64,
    wan_received: AtomicU64,
}

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

impl Sample {
    pub fn new(side: Side, scene: Scene) -> Sample {
        let past = Duration::from_secs(if scene == Scene::Fresh { 3 } else { HOUR + 300 });
        let start = Instant::now().checked_sub(past).unwrap_or_else(Instant::now);
        let telemetry = Telemetry::new(start).unwrap();
        let state = Arc::new(State {
            side,
            scene,
            started_at: SystemTime::now() - past,
            wan_sent: AtomicU64::new(0),
            wan_received: AtomicU64::new(0),
        });
        let source: Arc<dyn Source> = state.clone();
        telemetry.set_source(&source);
        let sample = Sample {
            telemetry,
            source,
            state,
            handles: Mutex::default(),
            clock: Mutex::new(start),
            step: AtomicU64::new(0),
        };
        sample.telemetry.event(Level::Info, format!("started as {side} proxy, version 0.1.0"));
        if scene != Scene::Fresh {
            sample.open_all();
            sample.tell();
        }
        let steps = past.as_secs() / 5;
        for _ in 0..steps {
            sample.advance(Duration::from_secs(5));
        }
        sample
    }

    /// Lets `time` go by, with its traffic.
    pub fn advance(&self, time: Duration) {
        let step = self.step.fetch_add(1, Ordering::Relaxed);
        if self.state.scene != Scene::Fresh {
            self.traffic(step, time.as_secs_f64());
        }
        let mut clock = self.clock.lock().unwrap();
        *clock += time;
        self.telemetry.tick(*clock);
    }

    fn open_all(&self) {
        let mut handles = self.handles.lock().unwrap();
        for (i, (port, target, rule)) in [
            (445, "files.example.com:445", "file servers"),
            (445, "files.example.com:445", "file servers"),
            (445, "archive.example.com:445", "file servers"),
            (2049, "192.0.2.40:2049", "nfs"),
            (80, "intranet.example.com:80", "web"),
            (445, "files.example.com:445", "file servers"),
            (443, "mail.example.com:443", "already encrypted"),
            (445, "files-of-a-department-with-a-long-name.branch.example.com:445", "file servers"),
        ]
        .into_iter()
        .enumerate()
        {
            handles.push(self.open(i, port, target, rule));
        }
        let trouble = self.state.scene == Scene::Trouble;
        for (i, handle) in handles.iter().enumerate() {
            match (i, trouble) {
                (6, _) => handle.set_state_because(ConnectionState::PassThrough, Reason::RulePassThrough, ""),
                (0 | 1, true) => handle.set_state(ConnectionState::Resuming),
                (_, true) => {
                    handle.set_state_because(ConnectionState::PassThrough, Reason::PeerAbsent, "link lost")
                }
                (3 | 4, _) => handle.set_state(ConnectionState::ReduceOnly),
                _ => handle.set_state(ConnectionState::Optimised),
            }
        }
        for (i, info) in smb_sessions() {
            handles[i].set_smb(info);
            handles[i].set_accelerator(Arc::new(Sampled));
        }
        let denied = self.open(20, 3389, "198.51.100.9:3389", "nothing else");
        denied.set_state_because(ConnectionState::Denied, Reason::RuleDeny, "");
        let refused = self.open(21, 445, "old.example.com:445", "file servers");
        refused.fail(Reason::TargetRefused, "connection refused");
        if trouble {
            handles[0].ledger().proof_failures.add(1);
        }
    }

    fn open(&self, i: usize, port: u16, target: &str, rule: &str) -> ConnectionHandle {
        let passed = self.state.scene == Scene::Trouble && (2..20).contains(&i);
        let carried = !passed && !matches!(i, 6 | 20);
        self.telemetry.connections().register(ConnectionInfo {
            client: format!("10.20.{}.{}:{}", i % 4, 11 + 7 * i, 49_152 + 331 * i).parse().unwrap(),
            target: target.into(),
            protocol: Protocol::from_port(port),
            peer: if carried { self.state.peer_name().into() } else { String::new() },
            rule: rule.into(),
            opened_at: SystemTime::now(),
        })
    }

    fn tell(&self) {
        let peer = self.state.peer_name();
        self.telemetry.event(Level::Info, format!("peer {peer} connected, version 0.1.0, 236 ms away"));
        self.telemetry
            .event(Level::Warning, format!("link to {peer} lost: no answer for 2 s; dialling again"));
        self.telemetry.event(Level::Info, format!("link to {peer} is back: 4 connections resumed"));
        if self.state.side == Side::Server {
            self.telemetry.count_key_release(peer, None);
            self.telemetry.count_key_release(peer, Some("administrator"));
        }
        if self.state.scene == Scene::Trouble {
            let text = "store: the disk is full, learning has stopped";
            self.telemetry.event(Level::Error, text);
            for _ in 0..14 {
                let text = format!("peer {peer} is down: certificate expired 2 hours ago");
                self.telemetry.event(Level::Error, text);
            }
        }
    }

    /// Some seconds of work: in turn a cold copy, a warm one, an edited one, and quiet.
    fn traffic(&self, step: u64, seconds: f64) {
        let wave = 0.6 + 0.4 * ((step as f64) / 23.0).sin() * ((step as f64) / 7.0).cos();
        let noise = 0.75 + 0.5 * noise(step);
        let phase = (step / 36) % 4;
        let (bytes_a_second, wan_share, by) = match phase {
            0 => (3.2e6, 0.46, SavedBy::Compression),
            1 => (21e6, 0.0009, SavedBy::Run),
            2 => (11e6, 0.03, SavedBy::Delta),
            _ => (0.12e6, 0.11, SavedBy::Chunk),
        };
        let down = (bytes_a_second * seconds * wave * noise) as u64;
        let handles = self.handles.lock().unwrap();
        for (i, handle) in handles.iter().enumerate() {
            let share = down / (i as u64 + 2);
            let ledger = handle.ledger();
            if i == 6 || (self.state.scene == Scene::Trouble && i > 1) {
                ledger.passed_down.add(share / 40);
                ledger.passed_up.add(share / 400);
            } else if !(self.state.scene == Scene::Trouble && step > 700) {
                self.carry(ledger, share, share / 18, wan_share, by);
            }
        }
        // Heartbeats and acknowledgements.
        self.state.wan_sent.fetch_add((seconds * 40.0) as u64, Ordering::Relaxed);
        self.state.wan_received.fetch_add((seconds * 40.0) as u64, Ordering::Relaxed);
    }

    fn carry(&self, ledger: &ConnectionLedger, down: u64, up: u64, wan_share: f64, by: SavedBy) {
        let wan_down = (down as f64 * wan_share) as u64;
        let wan_up = (up as f64 * wan_share * 1.2) as u64;
        ledger.lan_down.add(down);
        ledger.lan_up.add(up);
        ledger.wan_down.add(wan_down);
        ledger.wan_up.add(wan_up);
        let saved = down + up - (wan_down + wan_up).min(down + up);
        ledger.add_saved(by, saved - saved / 5);
        ledger.add_saved(SavedBy::Chunk, saved / 8);
        ledger.add_saved(SavedBy::Compression, saved / 5 - saved / 8);
        ledger.frames_encoded.add(1 + up / 60_000);
        ledger.frames_decoded.add(1 + down / 60_000);
        let (to_client, to_server) = (wan_down + wan_down / 60, wan_up + wan_up / 60);
        let (sent, received) = match self.state.side {
            Side::Client => (to_server, to_client),
            Side::Server => (to_client, to_server),
        };
        self.state.wan_sent.fetch_add(sent, Ordering::Relaxed);
        self.state.wan_received.fetch_add(received, Ordering::Relaxed);
    }
}

impl State {
    fn peer_name(&self) -> &'static str {
        match self.side {
            Side::Client => "datacentre",
            Side::Server => "branch-mumbai",
        }
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let now = SystemTime::now();
        let down = PeerState::Down {
            reason: Reason::PeerUnauthorised,
            detail: "its certificate expired 2 hours ago; issue a new one and put it in place".into(),
        };
        let (state, rtt, version) = match self.scene {
            Scene::Busy => (PeerState::Up, Some(Duration::from_micros(236_400)), "0.1.0"),
            Scene::Fresh => (PeerState::Connecting, None, ""),
            Scene::Trouble => (down, None, "0.1.0"),
        };
        let busy = PeerStatus {
            name: self.peer_name().into(),
            address: "203.0.113.10:7810".into(),
            since: now - Duration::from_secs(if self.scene == Scene::Busy { 2_970 } else { 30 }),
            rtt,
            clock_ahead_ms: rtt.map(|_| -120),
            version: version.into(),
            channels_busy: if state == PeerState::Up { 7 } else { 0 },
            channels_pooled: if state == PeerState::Up { 9 } else { 0 },
            state,
            counters: PeerCounters {
                wan_sent: self.wan_sent.load(Ordering::Relaxed),
                wan_received: self.wan_received.load(Ordering::Relaxed),
                link_failures: 1,
                resumes: 4,
                handshakes: 17,
            },
        };
        if self.side == Side::Client || self.scene == Scene::Fresh {
            return if self.side == Side::Server { Vec::new() } else { vec![busy] };
        }
        let laptop = PeerStatus {
            name: "laptop-asha".into(),
            address: "198.51.100.23:51544".into(),
            state: PeerState::Down { reason: Reason::PeerAbsent, detail: "closed by the peer".into() },
            since: now - Duration::from_secs(5 * HOUR),
            rtt: None,
            clock_ahead_ms: None,
            version: "0.1.0".into(),
            channels_busy: 0,
            channels_pooled: 0,
            counters: PeerCounters { wan_sent: 88_000, wan_received: 51_000, ..PeerCounters::default() },
        };
        vec![busy, laptop]
    }

    fn key_sources(&self) -> Vec<KeySourceStatus> {
        if self.side == Side::Client {
            return Vec::new();
        }
        let source = |name: &str, kind, by_command| KeySourceStatus {
            name: name.into(),
            kind,
            by_command,
            service_keys: 6,
            nt_hashes: 0,
            skipped: 1,
            loaded_at: Some(self.started_at),
            error: None,
            loads: 1,
            failures: 0,
        };
        let command = source("accounts of the branch", KeySourceKind::PasswordHashes, true);
        vec![
            source("/etc/isthmus/keys/files.example.com.keytab", KeySourceKind::Keytab, false),
            KeySourceStatus {
                service_keys: 0,
                nt_hashes: 214,
                error: Some("command \"accounts of the branch\": killed after its time limit of 60 s".into()),
                failures: 2,
                ..command
            },
        ]
    }

    fn store(&self) -> StoreStatus {
        let full = self.scene == Scene::Trouble;
        let fresh = self.scene == Scene::Fresh;
        let state = if full {
            StoreState::NotLearning("the disk is full (212 MB free, 512 MB are kept free)".into())
        } else {
            StoreState::Learning
        };
        StoreStatus {
            state,
            bytes: if fresh { 4_096 } else { 7_340_032_000 },
            cap_bytes: 10_737_418_240,
            chunks: if fresh { 0 } else { 1_204_411 },
            segments: if fresh { 1 } else { 110 },
            evicted_bytes: if fresh { 0 } else { 2_617_245_696 },
            quarantined: if full { 3 } else { 0 },
            cache_hits: if fresh { 0 } else { 91_200 },
            cache_misses: if fresh { 0 } else { 4_310 },
            encrypted: true,
            identity: "7d2f9a51c0b84e3f8a66b2d90c1e4f73".into(),
            generation: 12,
        }
    }
}

impl Source for State {
    fn links(&self) -> Result<LinkList, LinkError> {
        let link = LinkStatus {
            local: "192.0.2.7:40112".parse().unwrap(),
            remote: "203.0.113.10:7810".parse().unwrap(),
            rtt: Duration::from_micros(236_400),
            rtt_variation: Duration::from_micros(1_200),
            rtt_min: Duration::from_micros(235_900),
            path_mtu: 1_500,
            segment_bytes: 1_448,
            congestion: "bbr".into(),
            window_segments: 310,
            delivery_rate: 3_500_000,
            is_sender_limited: false,
            sent_bytes: 88_000_000,
            received_bytes: 51_000_000,
            resent_bytes: 290_000,
            segments: 61_000,
            resent_segments: 200,
            waiting_bytes: 0,
        };
        Ok(LinkList { total: 1, links: vec![link] })
    }

    fn status(&self) -> Status {
        let now = SystemTime::now();
        let own = if self.scene == Scene::Trouble { 5 * DAY } else { 300 * DAY };
        let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Status {
            side: self.side,
            name: if self.side == Side::Client { "branch-mumbai" } else { "datacentre" }.into(),
            version: "0.1.0".into(),
            started_at: self.started_at,
            configuration: vec![
                setting("peer.address", "203.0.113.10:7810"),
                setting("store.path", "/var/lib/isthmus/store"),
                setting("store.size", "10 GiB"),
                setting("channels.resume_window", "10 min"),
            ],
            peers: self.peers(),
            obstacle: None,
            store: self.store(),
            admission: AdmissionStatus { full: false, connections: 7, stop_at: 4_800, resume_at: 4_500 },
            certificates: vec![
                CertificateStatus {
                    kind: CertificateKind::Own,
                    subject: "branch-mumbai".into(),
                    expires_at: now + Duration::from_secs(own),
                },
                CertificateStatus {
                    kind: CertificateKind::Authority,
                    subject: "Example WAN CA".into(),
                    expires_at: now + Duration::from_secs(3_000 * DAY),
                },
                CertificateStatus {
                    kind: CertificateKind::RevocationList,
                    subject: "Example WAN CA".into(),
                    expires_at: now + Duration::from_secs(80 * DAY),
                },
            ],
            key_sources: self.key_sources(),
            draining: false,
            inner: InnerStatus { garbage: 2, ..InnerStatus::default() },
            agent: (self.scene == Scene::Busy).then(|| AgentStatus {
                name: "laptop-asha".into(),
                policy: Some(("default".into(), 7)),
                synced: Some(now),
                problem: "cannot listen on 127.0.0.1:4450: address in use".into(),
            }),
            location: (self.scene == Scene::Busy).then(|| LocationStatus {
                location: "remote",
                why: "no gateway answers, the file server answers after 236.0 ms".into(),
                since: now,
            }),
        }
    }

    fn fleet(&self) -> Vec<FleetMember> {
        let now = SystemTime::now();
        vec![FleetMember {
            name: "laptop-asha".into(),
            agent: true,
            host: "asha".into(),
            version: "0.1.0".into(),
            policy: Some(("default".into(), 7)),
            policy_version: 6,
            seen: Some(now),
            connected: true,
            address: "192.0.2.9:50123".into(),
            location: "branch".into(),
            location_why: "gateway branch-7 answers within 0.4 ms".into(),
            lan_bytes: 4_000_000,
            wan_bytes: 50_000,
            store_bytes: 1_000_000,
            certificate_until: Some(now + Duration::from_secs(20 * DAY)),
            revoked: Some(now),
            problem: "a policy cannot be followed".into(),
        }]
    }
}

/// What the SMB connections among the first eight carry.
/// What removes round trips on a sample connection.
struct Sampled;

impl Accelerator for Sampled {
    fn acceleration(&self) -> Acceleration {
        Acceleration { mode: "bounded", reason: String::new(), permits: 12 }
    }

    fn trace(&self, after: u64) -> Option<Vec<TracedRequest>> {
        Some(vec![TracedRequest {
            number: after + 1,
            at_micros: 1_250_000,
            request: "CREATE+QUERY_INFO+CLOSE".into(),
            name: "plans\\site.dwg".into(),
            answered: "local",
            permit: "offer".into(),
            status: 0,
            micros: 90,
        }])
    }
}

fn smb_sessions() -> Vec<(usize, SmbInfo)> {
    let session = |session, state, cipher: Option<u16>, user: &str, shares: &[&str]| SmbInfo {
        session,
        dialect: Some(SmbDialect(0x0311)),
        signing: SmbSigning::from_wire(2),
        cipher: cipher.and_then(SmbCipher::from_wire),
        user: user.into(),
        server: "files.example.com".into(),
        shares: shares.iter().map(|share| (*share).to_owned()).collect(),
        ..SmbInfo::new(state)
    };
    let relayed = SmbInfo {
        reason: "no key of the ticket's version for this service".into(),
        ..session(3, SmbState::EncryptedNoKeys, Some(2), "", &[])
    };
    vec![
        (0, session(1, SmbState::EncryptedKeys, Some(2), "EXAMPLE\\asha", &["projects", "home"])),
        (1, session(2, SmbState::SignedKeys, None, "EXAMPLE\\ravi", &["projects"])),
        (2, relayed),
        (5, session(4, SmbState::SignedNoKeys, None, "", &["public"])),
        (7, SmbInfo { reason: "the server speaks SMB1 only".into(), ..SmbInfo::new(SmbState::Smb1) }),
    ]
}

/// Between 0 and 1, the same for the same step (splitmix64).
fn noise(step: u64) -> f64 {
    let mut z = step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
