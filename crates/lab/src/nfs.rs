//! The Linux kernel's NFS server, in user-mode Linux one hop behind the lab's server: it exports a folder in memory by
//! NFSv3, 4.0, 4.1 and 4.2. `10.77.3.2 (server's namespace) ── 10.77.5.2 (kernel)`.

use crate::error::Result;
use crate::proc::{Proc, required, wait_until};
use crate::topology::WanLab;
use crate::uml::{Cable, UserModeLinux};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 5, 2);
const PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20_048;
/// Time to boot and to export.
const START_MAX: Duration = Duration::from_secs(120);
/// What the script prints when it serves.
const READY: &str = "=== serving ===";

/// A running server; dropping it stops it.
pub struct NfsServer {
    _kernel: Proc,
    _linux: UserModeLinux,
}

impl NfsServer {
    /// Starts the server beside `lab`'s own.
    ///
    /// # Errors
    /// User-mode Linux or the server's programs are not installed, or it does not start.
    pub fn start(lab: &WanLab) -> Result<NfsServer> {
        required("rpc.mountd", "nfs-kernel-server")?;
        required("mount.nfs", "nfs-common")?;
        let cable = Cable { place: lab.server(), tap: "umln", network: 5 };
        let linux = UserModeLinux::new(cable, &lab.server_proxy(), WanLab::SERVER)?;
        let (spec, log) = linux.boot(SCRIPT)?;
        let kernel = Proc::spawn(&spec)?;
        let is_ready = || {
            Ok(std::fs::read(&log)
                .is_ok_and(|text| text.windows(READY.len()).any(|line| line == READY.as_bytes())))
        };
        wait_until("the NFS server", START_MAX, is_ready)?;
        Ok(NfsServer { _kernel: kernel, _linux: linux })
    }

    /// Where it serves files, and where NFSv3 asks for the export.
    pub fn addresses() -> [SocketAddr; 2] {
        [SocketAddr::from((ADDRESS, PORT)), SocketAddr::from((ADDRESS, MOUNT_PORT))]
    }

    /// The shell command that mounts the export on `at` by this version (`3`, `4.2`), by way of the addresses that lead to
    /// [`NfsServer::addresses`].
    pub fn mount(version: &str, through: [SocketAddr; 2], at: &str) -> String {
        let [files, mount] = through;
        let (path, extra) = if version == "3" {
            let (ip, port) = (mount.ip(), mount.port());
            ("/mnt/export", format!(",nolock,mountproto=tcp,mountvers=3,mountaddr={ip},mountport={port}"))
        } else {
            ("/", String::new())
        };
        let (ip, port) = (files.ip(), files.port());
        format!(
            "mkdir -p {at} && mount -t nfs -o vers={version},proto=tcp,port={port}{extra} {ip}:{path} {at}"
        )
    }
}

const SCRIPT: &str = r#"
set -e
mount -t tmpfs tmpfs /var/lib/nfs
mkdir -p /var/lib/nfs/v4recovery /mnt/export
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t tmpfs tmpfs /mnt/export
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
rpcbind -w
exportfs -i -o rw,no_root_squash,no_subtree_check,fsid=0,insecure '*:/mnt/export'
rpc.mountd -p 20048
rpc.nfsd 4
echo "=== serving ==="
sleep infinity
"#;
