//! Both proxies as real processes, with certificates, configuration and stores of their own.

mod binaries;
mod end;

pub use binaries::{BINARIES_VARIABLE, Binaries};
pub use end::{End, WanBytes};

use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::scratch::Scratch;
use crate::topology::WanLab;
use isthmus_types::Side;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long both proxies may take to become ready.
pub const READY_LIMIT: Duration = Duration::from_secs(30);

/// Pause between looks at the ready page: each costs a connection.
const READY_POLL: Duration = Duration::from_millis(50);

/// A port that the client-side proxy listens on, and the server behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Address that clients connect to.
    pub listen: SocketAddr,
    /// Address that the server-side proxy connects to.
    pub target: SocketAddr,
}

/// Settings of a pair that have good defaults.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// Size cap of each store, as in the configuration file.
    pub store_size: String,
    /// Whether the stores are encrypted.
    pub encryption: bool,
    /// Further settings of the client-side proxy, as `key.path=value`.
    pub client_set: Vec<String>,
    /// Further settings of the server-side proxy.
    pub server_set: Vec<String>,
    /// Level of both logs.
    pub log_level: String,
    /// Where the server-side proxy takes the keys of SMB sessions from; none: it has none.
    pub keys: Option<KeyOptions>,
}

/// Sources of keys for SMB sessions. All sessions of the lab's networks are released to the client-side proxy.
#[derive(Clone, Debug, Default)]
pub struct KeyOptions {
    /// Keytabs of servers.
    pub keytabs: Vec<PathBuf>,
    /// Files with users' NT hashes.
    pub password_hashes: Vec<PathBuf>,
}

/// Where both proxies run and what they carry.
#[derive(Clone, Debug)]
pub struct PairSpec {
    /// The programs.
    pub binaries: Binaries,
    /// Where the client-side proxy runs.
    pub client_place: Place,
    /// Where the server-side proxy runs.
    pub server_place: Place,
    /// What the server-side proxy listens on.
    pub server_listen: SocketAddr,
    /// What the client-side proxy dials: that, or something in between.
    pub peer_address: SocketAddr,
    /// Admin port of the client-side proxy.
    pub client_admin: SocketAddr,
    /// Admin port of the server-side proxy.
    pub server_admin: SocketAddr,
    /// What they carry.
    pub carried: Vec<Carried>,
    /// Everything else.
    pub options: PairOptions,
}

/// A running pair; dropping it stops both proxies and removes their folders.
pub struct Pair {
    client: End,
    server: End,
    certificates: isthmus_certs::DemoSet,
    scratch: Scratch,
}

impl Default for PairOptions {
    fn default() -> PairOptions {
        PairOptions {
            store_size: "2 GiB".into(),
            encryption: true,
            client_set: Vec::new(),
            server_set: Vec::new(),
            log_level: "info".into(),
            keys: None,
        }
    }
}

impl Pair {
    /// Makes certificates and configuration, starts both proxies and waits until both are ready.
    ///
    /// # Errors
    /// A proxy ends or does not become ready; the error shows the end of its log.
    pub fn start(spec: &PairSpec) -> Result<Pair> {
        let mut pair = Pair::prepare(spec)?;
        pair.start_end(Side::Server)?;
        pair.start_end(Side::Client)?;
        pair.wait_ready(READY_LIMIT)?;
        Ok(pair)
    }

    /// Makes certificates and configuration and starts nothing yet.
    ///
    /// # Errors
    /// Files cannot be written.
    pub fn prepare(spec: &PairSpec) -> Result<Pair> {
        let scratch = Scratch::new("pair")?;
        let server_ip = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(WanLab::SERVER_PROXY_WAN)];
        let certificates =
            isthmus_certs::demo_set_for(&scratch.make_dir("tls")?, &["localhost"], &server_ip).map_err(
                |error| LabError::Format { what: "the certificates".into(), detail: error.to_string() },
            )?;
        let (client_dir, server_dir) = (scratch.make_dir("client")?, scratch.make_dir("server")?);
        let options = &spec.options;
        write(&client_dir.join("client.toml"), &client_file(spec, &certificates, &client_dir))?;
        write(&server_dir.join("server.toml"), &server_file(spec, &certificates, &server_dir))?;
        let (client_binary, server_binary) = (&spec.binaries.client, &spec.binaries.server);
        let client = End::new(
            Side::Client,
            &spec.client_place,
            spec.client_admin,
            client_binary,
            client_dir,
            &options.client_set,
        );
        let server = End::new(
            Side::Server,
            &spec.server_place,
            spec.server_admin,
            server_binary,
            server_dir,
            &options.server_set,
        );
        Ok(Pair { client, server, certificates, scratch })
    }

    /// One of the proxies.
    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// One of the proxies, to start, stop or damage it.
    pub fn end_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// The certificates of both, and their authority.
    pub fn certificates(&self) -> &isthmus_certs::DemoSet {
        &self.certificates
    }

    /// The folder that holds everything of the pair.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts a proxy that is not running.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_end(&mut self, side: Side) -> Result<()> {
        self.end_mut(side).start()
    }

    /// Stops a proxy, starts it again and waits until both are ready.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub fn restart(&mut self, side: Side) -> Result<()> {
        self.end_mut(side).stop()?;
        self.start_end(side)?;
        self.wait_ready(READY_LIMIT)
    }

    /// Stops a proxy, removes its store, starts it again and waits until both are ready.
    ///
    /// # Errors
    /// As [`Pair::start`].
    pub fn wipe_store(&mut self, side: Side) -> Result<()> {
        self.end_mut(side).stop()?;
        self.end(side).remove_store()?;
        self.start_end(side)?;
        self.wait_ready(READY_LIMIT)
    }

    /// Waits until both proxies say that they are ready.
    ///
    /// # Errors
    /// One has ended, or is not ready within `limit`; the error shows its log.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        for side in [Side::Server, Side::Client] {
            let end = self.end_mut(side);
            while let Some(reason) = end.why_not_ready()? {
                if Instant::now() >= deadline {
                    let what =
                        format!("readiness of the {side} proxy ({reason}; its log: {})", end.log_tail());
                    return Err(LabError::Timeout { what, seconds: limit.as_secs() });
                }
                std::thread::sleep(READY_POLL);
            }
        }
        Ok(())
    }
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    std::fs::write(path, text).context(|| format!("writing {}", path.display()))
}

fn client_file(spec: &PairSpec, certificates: &isthmus_certs::DemoSet, folder: &Path) -> String {
    let mut text = format!("[peer]\naddress = \"{}\"\n", spec.peer_address);
    text.push_str(&common(certificates, &certificates.client, folder, spec.client_admin, &spec.options));
    for carried in &spec.carried {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[rule]]\nlisten = \"{}\"\nserver = \"{}\"\nwhen_unavailable = \"refuse\"\n",
            carried.listen, carried.target
        );
    }
    text
}

fn server_file(spec: &PairSpec, certificates: &isthmus_certs::DemoSet, folder: &Path) -> String {
    let mut text = format!("[listen]\naddress = \"{}\"\n", spec.server_listen);
    text.push_str(&common(certificates, &certificates.server, folder, spec.server_admin, &spec.options));
    for carried in &spec.carried {
        let (ip, port) = (carried.target.ip(), carried.target.port());
        // Writing to a string cannot fail.
        let _ = write!(text, "[[allow]]\ndestination = [\"{ip}\"]\nports = [{port}]\n");
    }
    if let Some(keys) = &spec.options.keys {
        text.push_str(&keys_section(keys));
    }
    text
}

/// Which keys there are, and that the client-side proxy gets those of every session of the lab.
fn keys_section(keys: &KeyOptions) -> String {
    format!(
        "[keys]\nkeytabs = {:?}\npassword_hashes = {:?}\n\
         [[keys.release]]\nname = \"lab\"\npeer = \"client\"\nkind = \"gateway\"\n\
         subnets = [\"127.0.0.0/8\", \"10.77.0.0/16\"]\nusers = [\"*\"]\n",
        keys.keytabs, keys.password_hashes
    )
}

fn common(
    certificates: &isthmus_certs::DemoSet,
    identity: &isthmus_certs::Identity,
    folder: &Path,
    admin: SocketAddr,
    options: &PairOptions,
) -> String {
    format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\nca = {:?}\ncrl = {:?}\n\
         [store]\npath = {:?}\nsize = {:?}\nencryption = {}\n\
         [admin]\nlisten = \"{admin}\"\n[log]\nlevel = {:?}\n",
        identity.certificate,
        identity.key,
        certificates.ca,
        certificates.crl,
        folder.join("store"),
        options.store_size,
        options.encryption,
        options.log_level,
    )
}
