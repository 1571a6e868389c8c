//! A client side made by hand: a real certificate and real TLS, and whatever messages a test wants to send.

use crate::bed::Bed;
use crate::time::{eventually, within};
use isthmus_certs::{Authority, Identity, IssueRequest, Role, Validity};
use isthmus_net::{
    Dialer, DialerConfig, LocalHello, PeerState, Receiver, Sender, TlsFiles, TlsSource, WanCounters,
};
use isthmus_tunnel::{Message, Open};
use isthmus_types::{Domain, Reason, Side, StoreId};
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A peer that speaks the tunnel's protocol as the test tells it to.
pub struct Stranger {
    runtime: Runtime,
    dialer: Dialer,
}

/// The files of an identity that the bed's own authority has issued.
pub fn tls_files(bed: &Bed, identity: &Identity) -> TlsFiles {
    let set = bed.pair.certificates();
    TlsFiles {
        ca: set.ca.clone(),
        certificate: identity.certificate.clone(),
        key: identity.key.clone(),
        crl: Some(set.crl.clone()),
    }
}

/// What a peer with this store says about itself.
pub fn hello_of(store: StoreId) -> LocalHello {
    LocalHello::new(store, 1).unwrap()
}

impl Stranger {
    /// A client side called `name`, with a certificate of the bed's authority.
    pub fn new(bed: &Bed, name: &str, hello: LocalHello) -> Stranger {
        let authority = Authority::open(&bed.pair.certificates().authority).unwrap();
        let request = IssueRequest {
            role: Role::ClientSide,
            name: name.into(),
            dns: Vec::new(),
            ip: Vec::new(),
            validity: Validity::Days(2),
        };
        let folder: &Path = &bed.pair.folder().join("strangers");
        let issued = authority.issue(&request, folder).unwrap();
        Stranger::with(bed, &Identity { certificate: issued.certificate, key: issued.key }, hello)
    }

    /// A client side with this certificate.
    pub fn with(bed: &Bed, identity: &Identity, hello: LocalHello) -> Stranger {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let tls = TlsSource::load(tls_files(bed, identity), Side::Client).unwrap();
        let config = DialerConfig::new(bed.spec.server_listen.to_string(), "127.0.0.1", tls, hello);
        let dialer = {
            let _inside = runtime.enter();
            Dialer::start(config, Arc::new(WanCounters::default())).unwrap()
        };
        Stranger { runtime, dialer }
    }

    /// Waits until the server-side proxy has let it in.
    #[track_caller]
    pub fn connected(self) -> Stranger {
        eventually("the stranger is let in", || matches!(self.dialer.state(), PeerState::Connected(_)));
        self
    }

    /// Waits until the server-side proxy has refused it for this reason, and says in which words.
    #[track_caller]
    pub fn refused(&self, expected: Reason) -> String {
        let mut words = String::new();
        eventually(&format!("refused for {expected:?}"), || match self.dialer.state() {
            PeerState::Down { reason, detail, .. } if reason == expected => {
                words = detail;
                true
            }
            _ => false,
        });
        words
    }

    /// Runs `future` on the stranger's runtime, within a limit.
    #[track_caller]
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let limit = within(Duration::from_secs(30));
        self.runtime.block_on(async { tokio::time::timeout(limit, future).await }).expect("in time")
    }

    /// Opens a session to `target` whose own direction is `recording`; nothing has been received yet.
    #[track_caller]
    pub fn open(&self, target: SocketAddr, recording: u64, domain: &str) -> (Sender, Receiver) {
        let channel = self.run(self.dialer.channel()).unwrap();
        let (sender, receiver) = channel.split();
        let open = Open {
            host: target.ip().to_string(),
            port: target.port(),
            domain: Domain(domain.into()),
            reduce: true,
            structured: true,
            accelerated: false,
            recording,
            source: SocketAddr::from(([192, 0, 2, 1], 5)),
        };
        self.run(sender.send(Message::Open(open))).unwrap();
        (sender, receiver)
    }

    /// As [`Stranger::open`], and waits until the target is connected.
    #[track_caller]
    pub fn opened(&self, target: SocketAddr, recording: u64, domain: &str) -> (Sender, Receiver) {
        let (sender, mut receiver) = self.open(target, recording, domain);
        let answer = self.run(receiver.recv()).unwrap();
        assert!(matches!(answer, Message::Opened { .. }), "{answer:?}");
        (sender, receiver)
    }
}
