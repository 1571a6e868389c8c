//! A whole test bench: a network with an emulated WAN, servers on its far side, and a pair across it.
//!
//! The same code runs on namespaces with the IP-level emulator (as root) and on loopback with the relay-level one.

use crate::error::{Context as _, LabError, Result};
use crate::pair::{Binaries, Carried, End, Pair, PairOptions, PairSpec, WanBytes};
use crate::place::Place;
use crate::proc::Usage;
use crate::topology::WanLab;
use crate::wan::{RelayWan, WanShape};
use isthmus_types::Side;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Port of the server-side proxy in a namespace.
const PEER_PORT: u16 = 7810;

/// Admin ports in the namespaces.
const CLIENT_ADMIN_PORT: u16 = 7811;
const SERVER_ADMIN_PORT: u16 = 7812;

/// First port for servers in a namespace.
const SERVER_PORT_FIRST: u16 = 20_001;

/// Metrics that tell how connections ended, or why they were refused.
const CONNECTIONS: [&str; 2] = ["isthmus_connections_total", "isthmus_not_optimised_total"];

/// After the work, acknowledgements still cross; the counts are read when they have not changed for this long.
const QUIET: Duration = Duration::from_millis(250);

/// Longest wait for that.
const QUIET_LIMIT: Duration = Duration::from_secs(5);

/// Which emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// IP packets between network namespaces; needs root.
    Ip,
    /// A TCP relay on loopback.
    Relay,
    /// No emulator at all: the proxies are connected over loopback as fast as the machine goes.
    Loopback,
}

impl Level {
    /// IP-level where this machine allows it.
    pub fn best() -> Level {
        if WanLab::available().is_ok() { Level::Ip } else { Level::Relay }
    }

    /// Words for a report.
    pub fn describe(self) -> &'static str {
        match self {
            Level::Ip => "IP packets between network namespaces",
            Level::Relay => "a TCP relay on loopback",
            Level::Loopback => "loopback without an emulator",
        }
    }
}

/// A network with an emulated WAN between clients and servers.
pub struct Network {
    kind: Kind,
    next_port: u16,
}

enum Kind {
    Ip(Box<WanLab>),
    Relay(Box<Relays>),
}

struct Relays {
    shape: WanShape,
    /// No relays at all.
    is_bare: bool,
    direct: Vec<RelayWan>,
    pair: Option<RelayWan>,
}

impl Relays {
    fn all(&self) -> impl Iterator<Item = &RelayWan> {
        self.direct.iter().chain(self.pair.as_ref())
    }
}

/// A network with a pair across it.
pub struct Rig {
    /// The pair. First, so that it ends before its network.
    pub pair: Pair,
    /// The network.
    pub network: Network,
    carried: Vec<Carried>,
}

/// What a piece of work has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Wall time of the work.
    pub seconds: f64,
    /// LAN bytes at the client-side proxy, both directions.
    pub lan_bytes: u64,
    /// Bytes on the client-side proxy's inner sockets, both directions.
    pub wan_bytes: u64,
    /// Bytes that the emulator saw: packets with headers (IP level), or payload of the inner connections (relay level).
    pub emulator_bytes: u64,
    /// Used by the client-side proxy: processor time of this work, memory at its end.
    pub client: Usage,
    /// Used by the server-side proxy.
    pub server: Usage,
}

impl Network {
    /// Makes the network.
    ///
    /// # Errors
    /// IP level: see [`WanLab::start`].
    pub fn start(level: Level, shape: WanShape) -> Result<Network> {
        let kind = match level {
            Level::Ip => Kind::Ip(Box::new(WanLab::start(shape)?)),
            Level::Relay | Level::Loopback => {
                let is_bare = level == Level::Loopback;
                Kind::Relay(Box::new(Relays { shape, is_bare, direct: Vec::new(), pair: None }))
            }
        };
        Ok(Network { kind, next_port: SERVER_PORT_FIRST })
    }

    /// The namespaces, if it is made of them.
    pub fn lab(&self) -> Option<&WanLab> {
        match &self.kind {
            Kind::Ip(lab) => Some(lab),
            Kind::Relay(_) => None,
        }
    }

    /// Where clients run.
    pub fn client_place(&self) -> Place {
        self.lab().map_or(Place::Local, WanLab::client)
    }

    /// Where servers run.
    pub fn server_place(&self) -> Place {
        self.lab().map_or(Place::Local, WanLab::server)
    }

    /// An address for a server that is about to be started.
    ///
    /// # Errors
    /// No free port.
    pub fn new_server_address(&mut self) -> Result<SocketAddr> {
        match &self.kind {
            Kind::Ip(_) => {
                self.next_port += 1;
                Ok(SocketAddr::from((WanLab::SERVER, self.next_port - 1)))
            }
            Kind::Relay(_) => free_address(),
        }
    }

    /// The address by which clients reach `server` over the WAN without the pair.
    ///
    /// # Errors
    /// A relay cannot be started.
    pub fn direct(&mut self, server: SocketAddr) -> Result<SocketAddr> {
        match &mut self.kind {
            Kind::Ip(_) => Ok(server),
            Kind::Relay(relays) if relays.is_bare => Ok(server),
            Kind::Relay(relays) => {
                let relay = RelayWan::start(any_local(), server, relays.shape)?;
                let address = relay.address();
                relays.direct.push(relay);
                Ok(address)
            }
        }
    }

    /// Changes the link.
    pub fn set_shape(&mut self, new: WanShape) {
        match &mut self.kind {
            Kind::Ip(lab) => lab.wan().set_shape(new),
            Kind::Relay(relays) => {
                relays.shape = new;
                relays.all().for_each(|relay| relay.set_shape(new));
            }
        }
    }

    /// Cuts the link or mends it.
    pub fn cut(&self, is_cut: bool) {
        match &self.kind {
            Kind::Ip(lab) => lab.wan().cut(is_cut),
            Kind::Relay(relays) => relays.all().for_each(|relay| relay.cut(is_cut)),
        }
    }

    /// The relay between the proxies, at relay level.
    pub fn pair_relay(&self) -> Option<&RelayWan> {
        match &self.kind {
            Kind::Ip(_) => None,
            Kind::Relay(relays) => relays.pair.as_ref(),
        }
    }

    /// Bytes that have crossed the WAN by any way, the direct one included.
    pub fn all_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Ip(lab) => lab.wan().stats().bytes(),
            Kind::Relay(relays) => relays.all().map(|relay| relay.bytes_up() + relay.bytes_down()).sum(),
        }
    }

    /// Bytes that the emulator has carried between the proxies (IP level: everything, headers included).
    pub fn emulator_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Ip(lab) => lab.wan().stats().bytes(),
            Kind::Relay(relays) => {
                relays.pair.as_ref().map_or(0, |relay| relay.bytes_up() + relay.bytes_down())
            }
        }
    }

    /// Starts a pair that carries connections to each of `targets`.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub fn start_pair(
        mut self,
        binaries: &Binaries,
        targets: &[SocketAddr],
        options: &PairOptions,
    ) -> Result<Rig> {
        let spec = self.pair_spec(binaries, targets, options)?;
        let pair = Pair::start(&spec)?;
        Ok(Rig { pair, network: self, carried: spec.carried })
    }

    fn pair_spec(
        &mut self,
        binaries: &Binaries,
        targets: &[SocketAddr],
        options: &PairOptions,
    ) -> Result<PairSpec> {
        let (client_place, server_place) = match &self.kind {
            Kind::Ip(lab) => (lab.client_proxy(), lab.server_proxy()),
            Kind::Relay(_) => (Place::Local, Place::Local),
        };
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (server_listen, peer_address, client_admin, server_admin) = match &mut self.kind {
            Kind::Ip(_) => {
                let peer = SocketAddr::from((WanLab::SERVER_PROXY_WAN, PEER_PORT));
                (peer, peer, loopback(CLIENT_ADMIN_PORT), loopback(SERVER_ADMIN_PORT))
            }
            Kind::Relay(relays) => {
                let server = free_address()?;
                let peer = if relays.is_bare {
                    server
                } else {
                    relays.pair.insert(RelayWan::start(any_local(), server, relays.shape)?).address()
                };
                (server, peer, free_address()?, free_address()?)
            }
        };
        let carried = targets.iter().map(|target| {
            let listen = match &self.kind {
                Kind::Ip(_) => SocketAddr::from((WanLab::CLIENT_PROXY_LAN, target.port())),
                Kind::Relay(_) => free_address()?,
            };
            Ok(Carried { listen, target: *target })
        });
        Ok(PairSpec {
            binaries: binaries.clone(),
            carried: carried.collect::<Result<_>>()?,
            client_place,
            server_place,
            server_listen,
            peer_address,
            client_admin,
            server_admin,
            options: options.clone(),
        })
    }
}

impl Rig {
    /// The address by which clients reach the n-th target through the pair.
    ///
    /// # Errors
    /// There is no such target.
    pub fn through(&self, n: usize) -> Result<SocketAddr> {
        self.carried.get(n).map(|carried| carried.listen).ok_or_else(|| LabError::Format {
            what: "the number of a target".into(),
            detail: format!("{n} of {}", self.carried.len()),
        })
    }

    /// Where clients run.
    pub fn client_place(&self) -> Place {
        self.network.client_place()
    }

    /// Does the work and tells what it has cost.
    ///
    /// # Errors
    /// Those of the work, and those of reading the counts, with the ends of both proxies' logs.
    pub fn measure<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Measured)> {
        let with_logs = |error| LabError::ThroughPair {
            source: Box::new(error),
            client_log: self.account(Side::Client),
            server_log: self.account(Side::Server),
        };
        let before = self.reading().map_err(with_logs)?;
        let start = Instant::now();
        let result = work().map_err(with_logs)?;
        let seconds = start.elapsed().as_secs_f64();
        let after = self.quiet_reading().map_err(with_logs)?;
        let spent = |later: Usage, earlier: Usage| Usage {
            cpu_seconds: later.cpu_seconds - earlier.cpu_seconds,
            ..later
        };
        let measured = Measured {
            seconds,
            lan_bytes: after.lan - before.lan,
            wan_bytes: after.wan.total() - before.wan.total(),
            emulator_bytes: after.emulator - before.emulator,
            client: spent(after.client, before.client),
            server: spent(after.server, before.server),
        };
        Ok((result, measured))
    }

    /// The end of a side's log, and what has become of its connections: a refused one leaves no line in the log.
    fn account(&self, side: Side) -> String {
        let end = self.pair.end(side);
        let mut text = end.log_tail();
        let Ok(metrics) = end.metrics() else { return text };
        let of_connections =
            metrics.samples().iter().filter(|sample| CONNECTIONS.contains(&sample.name.as_str()));
        for sample in of_connections.filter(|sample| sample.value > 0.0) {
            text.push_str(&format!("{} {:?}: {}\n", sample.name, sample.labels, sample.value));
        }
        text
    }

    fn reading(&self) -> Result<Reading> {
        let client: &End = self.pair.end(Side::Client);
        Ok(Reading {
            wan: client.wan_bytes()?,
            lan: client.lan_bytes()?,
            emulator: self.network.emulator_bytes(),
            client: client.usage()?,
            server: self.pair.end(Side::Server).usage()?,
        })
    }

    /// A reading after the last acknowledgements have crossed.
    fn quiet_reading(&self) -> Result<Reading> {
        let deadline = Instant::now() + QUIET_LIMIT;
        let mut last = self.reading()?;
        loop {
            std::thread::sleep(QUIET);
            let next = self.reading()?;
            if next.wan == last.wan || Instant::now() >= deadline {
                return Ok(next);
            }
            last = next;
        }
    }
}

struct Reading {
    wan: WanBytes,
    lan: u64,
    emulator: u64,
    client: Usage,
    server: Usage,
}

/// A loopback address that was free a moment ago.
///
/// # Errors
/// No free port.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(any_local()).context(|| "looking for a free port".into())?;
    listener.local_addr().context(|| "reading a listener's address".into())
}

fn any_local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}
