//! Where the work is done: a server, clients, and a link that leads there directly or through the pair.

use super::super::Context;
use isthmus_lab::corpus::{FileSpec, write_folder};
use isthmus_lab::pair::{KeyOptions, PairOptions};
use isthmus_lab::smb::{
    Account, KernelClient, MountOptions, Protection, Samba, SambaOptions, Signing, SmbClient,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Network, Place, Result, Rig, Scratch};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longest run of the kernel's client.
const KERNEL_LIMIT: Duration = Duration::from_secs(3_600);

/// Files are older than what others are taken to be at work on.
const SETTLED: Duration = Duration::from_secs(4);

/// Where the kernel's client mounts the share.
pub const MOUNTED: &str = "/mnt/s";

/// The link of the floor: what the client reaches when the server stands beside it.
pub fn beside() -> WanShape {
    WanShape::symmetric(Duration::from_micros(300), Some(1_000_000_000))
}

/// Server, clients and link, without the pair.
pub struct Ground {
    pub network: Network,
    samba: Samba,
    clients: Clients,
    scratch: Scratch,
    direct: SocketAddr,
}

/// The same with the pair.
pub struct Crossing {
    pub rig: Rig,
    samba: Samba,
    clients: Clients,
    scratch: Scratch,
}

struct Clients {
    place: Place,
    kernel: Option<KernelClient>,
}

/// What one pass of the work sees.
pub struct Site<'a> {
    address: SocketAddr,
    samba: &'a Samba,
    clients: &'a Clients,
    scratch: &'a Scratch,
    /// Number of the pass: work that makes or changes something gives it this number, since nobody else may touch what
    /// the pair guards.
    pub pass: usize,
}

impl Ground {
    /// Starts everything, with a kernel's client that has more memory than usual if that is given.
    pub fn start_with(context: &Context, shape: WanShape, memory: Option<&str>) -> Result<Ground> {
        let mut ground = Ground::start(context, shape, true)?;
        if let Some(memory) = memory {
            ground.clients.kernel = ground.clients.kernel.map(|kernel| kernel.with_memory(memory));
        }
        Ok(ground)
    }

    /// Starts everything; the kernel's client only where it is wanted and the level allows it.
    pub fn start(context: &Context, shape: WanShape, with_kernel: bool) -> Result<Ground> {
        let mut network = Network::start(context.level, shape)?;
        let address = network.new_server_address()?;
        let options = SambaOptions {
            signing: Signing::Mandatory,
            accounts: vec![Account::alice()],
            is_single_channel: true,
            ..SambaOptions::default()
        };
        let samba = Samba::start(&network.server_place(), address, &options)?;
        let kernel = match network.lab() {
            Some(lab) if with_kernel => Some(KernelClient::new(lab)?),
            _ => None,
        };
        let direct = network.direct(address)?;
        let clients = Clients { place: network.client_place(), kernel };
        Ok(Ground { network, samba, clients, scratch: Scratch::new("accel")?, direct })
    }

    /// The server without the pair.
    pub fn site(&self, pass: usize) -> Site<'_> {
        let Ground { samba, clients, scratch, .. } = self;
        Site { address: self.direct, samba, clients, scratch, pass }
    }

    /// Starts a pair that knows nothing yet; both sides have these further settings.
    pub fn cross(self, context: &Context, settings: &[&str]) -> Result<Crossing> {
        let Ground { network, samba, clients, scratch, .. } = self;
        let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![samba.password_hashes()] };
        let mut options = PairOptions { keys: Some(keys), ..context.options.clone() };
        for set in [&mut options.client_set, &mut options.server_set] {
            set.extend(settings.iter().map(|setting| (*setting).to_string()));
        }
        let rig = network.start_pair(&context.binaries, &[samba.address()], &options)?;
        Ok(Crossing { rig, samba, clients, scratch })
    }
}

impl Crossing {
    /// The server through the pair.
    pub fn site(&self, pass: usize) -> Result<Site<'_>> {
        let Crossing { rig, samba, clients, scratch } = self;
        Ok(Site { address: rig.through(0)?, samba, clients, scratch, pass })
    }
}

impl Site<'_> {
    /// Puts files on the share, and the same into a local folder.
    pub fn store(&self, folder: &str, files: &[FileSpec]) -> Result<()> {
        self.samba.store(folder, files)?;
        std::thread::sleep(SETTLED);
        write_folder(&self.local(folder), files).map(drop)
    }

    /// A path in the local folder of this measurement.
    pub fn local(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// A path on the share, as the server's machine sees it.
    pub fn remote(&self, name: &str) -> PathBuf {
        self.samba.share_path().join(name)
    }

    /// smbclient in a sealed session.
    pub fn smbclient(&self) -> Result<SmbClient> {
        let client = SmbClient::new(&self.clients.place, self.address, self.samba)?;
        Ok(client.protected(Protection::Encrypt))
    }

    /// Seconds of the timed part of `work` in a freshly booted kernel with a fresh, sealed mount; `before` is done first,
    /// without the mount.
    pub fn kernel(&self, before: &str, work: &str) -> Result<f64> {
        self.client()?.time(&self.script(&[], before, work), KERNEL_LIMIT)
    }

    /// What a script prints in a freshly booted kernel with a fresh, sealed mount that has these further options.
    pub fn kernel_output(&self, options: &[&str], before: &str, work: &str) -> Result<String> {
        self.client()?.run(&self.script(options, before, work), KERNEL_LIMIT)
    }

    fn script(&self, options: &[&str], before: &str, work: &str) -> String {
        let mut mount = MountOptions::new(self.address, self.samba);
        mount.extra.push("seal".into());
        mount.extra.extend(options.iter().map(|option| (*option).to_string()));
        let mount = mount.command(MOUNTED);
        format!("set -e\n{before}\n{mount}\n{work}\ncd /\numount {MOUNTED}\n")
    }

    fn client(&self) -> Result<&KernelClient> {
        self.clients.kernel.as_ref().ok_or_else(|| LabError::Unavailable {
            what: "the kernel's client".into(),
            remedy: "it needs the IP-level emulator, which needs root".into(),
        })
    }
}
