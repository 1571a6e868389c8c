//! What the tests of this crate share: an authority, a pair of proxies' ends, a target that echoes, a relay that cuts.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use isthmus_net::{
    Acceptor, AcceptorConfig, Channel, Dialer, DialerConfig, LocalHello, PeerState, Receiver, Sender,
    TlsFiles, TlsSource, WanCounters,
};
use isthmus_tunnel::{Message, Open};
use isthmus_types::{Domain, Reason, Side, StoreId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};

pub const CLIENT_ROLE: &str = "urn:isthmus:role:client-side";
pub const SERVER_ROLE: &str = "urn:isthmus:role:server-side";
pub const SERVER_NAME: &str = "server.test";

/// A certificate authority whose files lie in a directory of their own.
pub struct Authority {
    pub dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub struct Leaf<'a> {
    pub name: &'a str,
    pub role: &'a str,
    pub dns: &'a str,
    pub serial: u64,
    /// End of validity, in hours from now.
    pub hours: i64,
}

impl<'a> Leaf<'a> {
    pub fn client(name: &'a str) -> Leaf<'a> {
        Leaf { name, role: CLIENT_ROLE, dns: "client.test", serial: 11, hours: 24 }
    }

    pub fn server(name: &'a str) -> Leaf<'a> {
        Leaf { name, role: SERVER_ROLE, dns: SERVER_NAME, serial: 12, hours: 24 }
    }
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { dir: TempDir::new().unwrap(), issuer };
        authority.write("ca.pem", &authority.issuer.pem());
        authority.revoke(&[]);
        authority
    }

    /// Issues a certificate into the authority's directory.
    pub fn issue(&self, leaf: &Leaf<'_>) -> TlsFiles {
        let mut params = CertificateParams::new(vec![leaf.dns.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, leaf.name);
        params.subject_alt_names.push(SanType::URI(leaf.role.try_into().unwrap()));
        params.serial_number = Some(SerialNumber::from(leaf.serial));
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(30);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::hours(leaf.hours);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.write(&format!("{}.pem", leaf.name), &certificate.pem());
        self.write(&format!("{}.key", leaf.name), &key.serialize_pem());
        self.files(leaf.name)
    }

    /// Replaces the revocation list by one that names these serial numbers.
    pub fn revoke(&self, serials: &[u64]) {
        let now = OffsetDateTime::now_utc();
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: now,
            next_update: now + time::Duration::days(30),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        self.write("crl.pem", &list.signed_by(&self.issuer).unwrap().pem().unwrap());
    }

    pub fn files(&self, name: &str) -> TlsFiles {
        let path = |file: String| self.dir.path().join(file);
        TlsFiles {
            ca: path("ca.pem".into()),
            certificate: path(format!("{name}.pem")),
            key: path(format!("{name}.key")),
            crl: Some(path("crl.pem".into())),
        }
    }

    fn write(&self, file: &str, content: &str) {
        std::fs::write(self.dir.path().join(file) as std::path::PathBuf, content).unwrap();
    }
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}

pub fn hello(store: u8) -> LocalHello {
    LocalHello::new(StoreId([store; 16]), 1).unwrap()
}

pub fn client_source(authority: &Authority) -> Arc<TlsSource> {
    TlsSource::load(authority.issue(&Leaf::client("branch")), Side::Client).unwrap()
}

pub fn server_source(authority: &Authority) -> Arc<TlsSource> {
    TlsSource::load(authority.issue(&Leaf::server("dc")), Side::Server).unwrap()
}

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub async fn acceptor(tls: Arc<TlsSource>, change: impl FnOnce(&mut AcceptorConfig)) -> Arc<Acceptor> {
    let mut config = AcceptorConfig::new(loopback(), tls, hello(2));
    change(&mut config);
    Arc::new(Acceptor::bind(config).await.unwrap())
}

pub fn dialer(server: SocketAddr, tls: Arc<TlsSource>, change: impl FnOnce(&mut DialerConfig)) -> Dialer {
    let mut config = DialerConfig::new(server.to_string(), SERVER_NAME, tls, hello(1));
    config.pool_min = 0;
    change(&mut config);
    Dialer::start(config, Arc::new(WanCounters::default())).unwrap()
}

/// Logs as `RUST_LOG` says, to help with a test that fails.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // Another test may have been first.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// Both ends of a pair, over a relay that can be told to misbehave.
pub struct Pair {
    pub authority: Authority,
    pub acceptor: Arc<Acceptor>,
    pub dialer: Dialer,
    pub relay: Relay,
}

pub async fn pair(server: impl FnOnce(&mut AcceptorConfig), client: impl FnOnce(&mut DialerConfig)) -> Pair {
    log();
    let authority = Authority::new("test CA");
    let acceptor = acceptor(server_source(&authority), server).await;
    let relay = Relay::start(acceptor.local_addr()).await;
    let dialer = dialer(relay.address, client_source(&authority), client);
    connected(&dialer).await;
    Pair { authority, acceptor, dialer, relay }
}

/// Waits until the peer is connected.
pub async fn connected(dialer: &Dialer) {
    let mut state = dialer.subscribe();
    let wait = state.wait_for(|state| matches!(state, PeerState::Connected(_)));
    if tokio::time::timeout(LIMIT, wait).await.is_err() {
        panic!("not connected: {:?}", dialer.state());
    }
}

/// Waits until the peer is down for this reason, and gives the detail.
pub async fn down(dialer: &Dialer, expected: Reason) -> String {
    let mut state = dialer.subscribe();
    let found = within(state.wait_for(
        |state| matches!(state, PeerState::Down { reason, detail, .. } if *reason == expected && detail != "not connected yet"),
    ))
    .await
    .unwrap()
    .clone();
    match found {
        PeerState::Down { detail, .. } => detail,
        PeerState::Connected(_) => unreachable!("waited for a peer that is down"),
    }
}

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs a future under a limit that only a hang exceeds.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("hangs")
}

/// Waits until a condition holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1_500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

pub fn open() -> Message {
    Message::Open(Open {
        host: "files.test".into(),
        port: 445,
        domain: Domain("default".into()),
        reduce: true,
        structured: true,
        accelerated: false,
        recording: 7,
        source: SocketAddr::from(([10, 0, 0, 1], 1234)),
    })
}

/// Opens a session and waits for its answer.
pub async fn start(dialer: &Dialer) -> (Sender, Receiver) {
    let (sender, mut receiver) = within(dialer.channel()).await.unwrap().split();
    within(sender.send(open())).await.unwrap();
    assert_eq!(within(receiver.recv()).await.unwrap(), Message::Opened { recording: 9 });
    (sender, receiver)
}

/// Serves every session by sending all data back, acknowledging it, and ending with the peer.
pub fn serve_echo(acceptor: &Arc<Acceptor>) {
    let acceptor = acceptor.clone();
    tokio::spawn(async move {
        while let Some((channel, _)) = acceptor.accept().await {
            tokio::spawn(echo(channel));
        }
    });
}

pub async fn echo(channel: Channel) {
    let (sender, mut receiver) = channel.split();
    let (mut restored, mut delivered) = (0, 0);
    if sender.send(Message::Opened { recording: 9 }).await.is_err() {
        return;
    }
    loop {
        match receiver.recv().await {
            Ok(Message::Data(data)) => {
                restored += 1;
                delivered += data.len() as u64;
                sender.acknowledge(restored, delivered);
                if sender.send(Message::Data(data)).await.is_err() {
                    return;
                }
            }
            Ok(Message::Fin) => {
                // The end of the session may come before the end of this call.
                let _ = sender.send(Message::Fin).await;
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// A block of data whose content tells its number.
pub fn block(number: u64, len: usize) -> Bytes {
    let seed = number.to_le_bytes();
    (0..len).map(|i| seed[i % 8] ^ (i as u8).wrapping_mul(31)).collect::<Vec<u8>>().into()
}

/// Takes `count` data messages and checks that they are the blocks from 0 on, acknowledging each.
pub async fn expect_blocks(sender: &Sender, receiver: &mut Receiver, count: u64, len: usize) {
    let mut delivered = 0;
    for number in 0..count {
        match within(receiver.recv()).await {
            Ok(Message::Data(data)) => assert!(data == block(number, len), "block {number} differs"),
            other => panic!("block {number}: {other:?}"),
        }
        delivered += len as u64;
        sender.acknowledge(number + 1, delivered);
    }
}

/// A TCP relay in front of a server: cuts, blackholes and refuses on demand.
pub struct Relay {
    pub address: SocketAddr,
    cut: broadcast::Sender<()>,
    blocked: watch::Sender<bool>,
    stranded: watch::Sender<u64>,
    refusing: Arc<AtomicBool>,
    target: watch::Sender<SocketAddr>,
    /// Bytes to forward before a connection is cut by itself; 0 for none.
    pub budget: Arc<AtomicU64>,
    /// Whether what clients send waits.
    held: watch::Sender<bool>,
    connections: Arc<AtomicU64>,
    cuts: Cuts,
}

/// Where connections are to be cut: their number, whether what clients send counts, and how many bytes still pass.
type Cuts = Arc<Mutex<Vec<(u64, bool, usize)>>>;

impl Relay {
    pub async fn start(target: SocketAddr) -> Relay {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, _) = broadcast::channel(1);
        let relay = Relay {
            address,
            cut: cut.clone(),
            blocked: watch::Sender::new(false),
            stranded: watch::Sender::new(0),
            refusing: Arc::default(),
            target: watch::Sender::new(target),
            budget: Arc::default(),
            held: watch::Sender::new(false),
            connections: Arc::default(),
            cuts: Arc::default(),
        };
        let (blocked, refusing) = (relay.blocked.clone(), relay.refusing.clone());
        let stranded = relay.stranded.clone();
        let (target, budget) = (relay.target.clone(), relay.budget.clone());
        let (held, connections, cuts) = (relay.held.clone(), relay.connections.clone(), relay.cuts.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if refusing.load(Ordering::Relaxed) {
                    abort(near);
                    continue;
                }
                let number = connections.fetch_add(1, Ordering::Relaxed) + 1;
                let (mut cut, blocked, held) = (cut.subscribe(), blocked.clone(), held.clone());
                let way = |up| Way { up, number, cuts: cuts.clone(), budget: budget.clone() };
                let (up, down) = (way(true), way(false));
                let target = *target.borrow();
                let mut stranded = stranded.subscribe();
                let before = *stranded.borrow();
                tokio::spawn(async move {
                    // A connection made during a blackout waits for its end, as its packets would.
                    let mut clear = blocked.subscribe();
                    tokio::select! {
                        _ = clear.wait_for(|blocked| !*blocked) => {}
                        _ = cut.recv() => return abort(near),
                    }
                    let Ok(far) = TcpStream::connect(target).await else { return abort(near) };
                    let (mut near, mut far) = (near, far);
                    {
                        let (near_read, near_write) = near.split();
                        let (far_read, far_write) = far.split();
                        tokio::select! {
                            _ = stranded.wait_for(|now| *now > before) => {}
                            _ = pump(near_read, far_write, [blocked.subscribe(), held.subscribe()], up) => {}
                            _ = pump(far_read, near_write, [blocked.subscribe()], down) => {}
                            _ = cut.recv() => {}
                        }
                    }
                    if *stranded.borrow() > before {
                        // Neither forwards nor closes.
                        let _ = cut.recv().await;
                    }
                    abort(near);
                    abort(far);
                });
            }
        });
        relay
    }

    /// Resets every connection.
    pub fn cut(&self) {
        // Nobody listens when there is no connection.
        let _ = self.cut.send(());
    }

    /// Lets nothing through, silently.
    pub fn block(&self, blocked: bool) {
        self.blocked.send_replace(blocked);
    }

    /// Keeps back what clients send, until it is let go.
    pub fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Resets one connection, of now or still to come, once `bytes` more have passed on one of its ways: from the client
    /// if `up`.
    pub fn cut_at(&self, connection: u64, up: bool, bytes: usize) {
        self.cuts.lock().unwrap().push((connection, up, bytes));
    }

    /// Lets the connections of now hang for ever; new ones work.
    pub fn strand(&self) {
        self.stranded.send_modify(|stranded| *stranded += 1);
    }

    /// Resets every new connection.
    pub fn refuse(&self, refuse: bool) {
        self.refusing.store(refuse, Ordering::Relaxed);
    }

    pub fn retarget(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }
}

fn abort(stream: TcpStream) {
    // The option only matters for how the connection ends.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// One way of one connection.
struct Way {
    up: bool,
    number: u64,
    cuts: Cuts,
    budget: Arc<AtomicU64>,
}

impl Way {
    /// How many of `bytes` still pass, and whether the connection is cut after them.
    fn pass(&self, bytes: usize) -> (usize, bool) {
        let mut cuts = self.cuts.lock().unwrap();
        let Some(at) = cuts.iter().position(|(number, up, _)| (*number, *up) == (self.number, self.up))
        else {
            return (bytes, false);
        };
        let left = &mut cuts[at].2;
        let passes = bytes.min(*left);
        *left -= passes;
        let cut = *left == 0;
        if cut {
            cuts.remove(at);
        }
        (passes, cut)
    }
}

async fn pump<const N: usize>(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut stops: [watch::Receiver<bool>; N],
    way: Way,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut forwarded = 0;
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            // Half a close is forwarded as such; the other direction ends the relay.
            let _ = to.shutdown().await;
            return std::future::pending().await;
        };
        for stop in &mut stops {
            if stop.wait_for(|stop| !*stop).await.is_err() {
                return;
            }
        }
        let (passes, cut) = way.pass(read);
        if to.write_all(&buffer[..passes]).await.is_err() || cut {
            return;
        }
        forwarded += read as u64;
        let budget = way.budget.load(Ordering::Relaxed);
        if budget > 0 && forwarded >= budget {
            return;
        }
    }
}
