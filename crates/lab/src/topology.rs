//! Four network namespaces with an emulated WAN in the middle:
//!
//! ```text
//! client ── veth ── client-side proxy ══ WAN ══ server-side proxy ── veth ── server
//! 10.77.1.2     10.77.1.1   10.77.2.1      10.77.2.2   10.77.3.1         10.77.3.2
//! ```
//!
//! Both middle ones also forward, so a client reaches the server directly over the same WAN: the baseline. Several
//! labs can run side by side, since each has its own namespaces.

use crate::cleanup::{Entry, Leftover, is_owner_gone, owner_tag};
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{find_program, run};
use crate::wan::{DEVICE, IpWan, WanShape};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Start of the names of all namespaces of labs.
const PREFIX: &str = "isthmus";

/// Buffers large enough for one connection to fill a long fat link: min, default, max.
const TCP_RMEM: &str = "4096 131072 67108864";
const TCP_WMEM: &str = "4096 65536 67108864";

/// What ordinary clients and servers use; the host's default is inherited and may be another. (Set with the route: the
/// kernel lets a namespace choose its own default only among the algorithms that the host allows to everybody.)
const END_CONGESTION: &str = "cubic";

/// Packets that may wait in the kernel for the emulator's thread.
const DEVICE_QUEUE: &str = "10000";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A network namespace; removed when dropped.
pub struct Namespace {
    name: String,
    _entry: Entry,
}

/// The four namespaces and the link between them.
pub struct WanLab {
    /// The emulated link. First, so that its devices go before their namespaces.
    wan: IpWan,
    client: Namespace,
    client_proxy: Namespace,
    server_proxy: Namespace,
    server: Namespace,
}

impl WanLab {
    /// Address of the client.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
    /// Address of the client-side proxy towards the client.
    pub const CLIENT_PROXY_LAN: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
    /// Address of the client-side proxy towards the WAN.
    pub const CLIENT_PROXY_WAN: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
    /// Address of the server-side proxy towards the WAN.
    pub const SERVER_PROXY_WAN: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
    /// Address of the server-side proxy towards the server.
    pub const SERVER_PROXY_LAN: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 1);
    /// Address of the server.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 2);

    /// Whether this machine can have one.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] with what is missing.
    pub fn available() -> Result<()> {
        let missing = |what: &str, remedy: &str| {
            Err(LabError::Unavailable { what: what.into(), remedy: remedy.into() })
        };
        if !nix::unistd::geteuid().is_root() {
            return missing("the right to make network namespaces", "run as root");
        }
        if find_program("ip").is_none() {
            return missing("the program ip", "install the package iproute2");
        }
        if !Path::new("/dev/net/tun").exists() {
            return missing("/dev/net/tun", "the kernel needs TUN support");
        }
        Ok(())
    }

    /// Makes the namespaces and starts the link.
    ///
    /// # Errors
    /// [`WanLab::available`] says no, or a step fails; what was made so far is removed.
    pub fn start(shape: WanShape) -> Result<WanLab> {
        WanLab::available()?;
        remove_stale();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let make = |role: &str| Namespace::create(&format!("{PREFIX}-{}-{number}-{role}", owner_tag()));
        let (client, client_proxy) = (make("cl")?, make("pa")?);
        let (server_proxy, server) = (make("pb")?, make("sv")?);
        connect(&client, &client_proxy)?;
        connect(&server_proxy, &server)?;
        let wan = IpWan::start(&client_proxy.place(), &server_proxy.place(), shape)?;
        let lab = WanLab { wan, client, client_proxy, server_proxy, server };
        lab.configure()?;
        Ok(lab)
    }

    /// The emulated link.
    pub fn wan(&self) -> &IpWan {
        &self.wan
    }

    /// Where clients run.
    pub fn client(&self) -> Place {
        self.client.place()
    }

    /// Where the client-side proxy runs.
    pub fn client_proxy(&self) -> Place {
        self.client_proxy.place()
    }

    /// Where the server-side proxy runs.
    pub fn server_proxy(&self) -> Place {
        self.server_proxy.place()
    }

    /// Where servers run.
    pub fn server(&self) -> Place {
        self.server.place()
    }

    fn configure(&self) -> Result<()> {
        self.client.add_address("lan0", Self::CLIENT)?;
        self.client_proxy.add_address("lan0", Self::CLIENT_PROXY_LAN)?;
        self.client_proxy.add_address(DEVICE, Self::CLIENT_PROXY_WAN)?;
        self.server_proxy.add_address(DEVICE, Self::SERVER_PROXY_WAN)?;
        self.server_proxy.add_address("lan0", Self::SERVER_PROXY_LAN)?;
        self.server.add_address("lan0", Self::SERVER)?;
        for proxy in [&self.client_proxy, &self.server_proxy] {
            proxy.ip(&["link", "set", DEVICE, "txqueuelen", DEVICE_QUEUE])?;
            proxy.set("net/ipv4/ip_forward", "1")?;
        }
        self.client.add_default_route(Self::CLIENT_PROXY_LAN)?;
        self.server.add_default_route(Self::SERVER_PROXY_LAN)?;
        self.client_proxy.ip(&["route", "add", "default", "dev", DEVICE])?;
        self.server_proxy.ip(&["route", "add", "default", "dev", DEVICE])?;
        Ok(())
    }
}

impl Namespace {
    /// Makes a namespace with a loopback device and TCP buffers for long links.
    ///
    /// # Errors
    /// The name is taken or there is no right to make one.
    pub fn create(name: &str) -> Result<Namespace> {
        let entry = Entry::new(Leftover::Namespace(name.into()));
        run(&Place::Local, &["ip", "netns", "add", name])?;
        let namespace = Namespace { name: name.into(), _entry: entry };
        // Neighbour discovery would only add packets to the counts.
        namespace.set("net/ipv6/conf/all/disable_ipv6", "1").or_else(ignore_missing)?;
        namespace.set("net/ipv4/tcp_rmem", TCP_RMEM)?;
        namespace.set("net/ipv4/tcp_wmem", TCP_WMEM)?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The place that it is.
    pub fn place(&self) -> Place {
        Place::Namespace(self.name.clone())
    }

    /// Runs `ip` on this namespace.
    ///
    /// # Errors
    /// The command fails.
    pub fn ip(&self, args: &[&str]) -> Result<String> {
        let mut command = vec!["ip", "-n", &self.name];
        command.extend_from_slice(args);
        run(&Place::Local, &command)
    }

    /// Writes a kernel setting, named by its path below /proc/sys.
    ///
    /// # Errors
    /// There is no such setting or it does not take the value.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(setting);
        self.place().run(|| std::fs::write(&path, value).context(|| format!("setting {setting} to {value}")))
    }

    fn add_address(&self, device: &str, address: Ipv4Addr) -> Result<()> {
        self.ip(&["addr", "add", &format!("{address}/24"), "dev", device])?;
        self.ip(&["link", "set", device, "up"])?;
        Ok(())
    }

    fn add_default_route(&self, via: Ipv4Addr) -> Result<()> {
        self.ip(&["route", "add", "default", "via", &via.to_string(), "congctl", END_CONGESTION]).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If it fails, the next lab's sweep finds the namespace by its name.
        let _ = run(&Place::Local, &["ip", "netns", "del", &self.name]);
    }
}

fn connect(a: &Namespace, b: &Namespace) -> Result<()> {
    let pair = [
        "ip", "link", "add", "lan0", "netns", &a.name, "type", "veth", "peer", "name", "lan0", "netns",
        &b.name,
    ];
    run(&Place::Local, &pair).map(drop)
}

fn ignore_missing(error: LabError) -> Result<()> {
    match error {
        LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Err(other),
    }
}

/// Removes namespaces whose makers were killed before they could do so themselves.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        if parts.next() == Some(PREFIX) && parts.next().is_some_and(is_owner_gone) {
            // Somebody else may be sweeping at the same moment; what is gone is gone.
            let _ = run(&Place::Local, &["ip", "netns", "del", &name]);
        }
    }
}
