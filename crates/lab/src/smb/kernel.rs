//! The Linux kernel's own SMB client, in a kernel that runs as an ordinary process (user-mode Linux).
//!
//! Its root is this machine's own file system, read only; so scripts and data lie where they are and every program of
//! the machine is there. It is one more hop away from the client's namespace:
//! `10.77.4.2 (kernel client) ── 10.77.4.1 (client's namespace) ── …`.

use super::SHARE;
use super::server::{Samba, required};
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, run};
use crate::scratch::Scratch;
use crate::topology::WanLab;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Memory of the kernel; files to be uploaded are first copied into it.
const MEMORY: &str = "mem=1024M";

/// Where the package puts the kernel's modules.
const MODULES: &str = "/usr/lib/uml/modules";

/// Name of the network device in the client's namespace.
const TAP: &str = "umlt";

/// Lines around what the script prints, to tell it from what the kernel prints.
const BEGIN: &str = "=== script begins ===";
const END: &str = "=== script ends: ";

static RUN: AtomicU32 = AtomicU32::new(0);

/// How the share is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Address that leads to the server.
    pub server: SocketAddr,
    /// User and password.
    pub credentials: (String, String),
    /// Further options, such as `seal`, `sign`, `actimeo=60`.
    pub extra: Vec<String>,
}

/// A kernel client that is connected to a lab's client namespace.
pub struct KernelClient {
    place: Place,
    kernel: PathBuf,
    scratch: Scratch,
}

impl MountOptions {
    /// SMB 3.1.1 to `samba` by way of `server`, nothing further.
    pub fn new(server: SocketAddr, samba: &Samba) -> MountOptions {
        let (user, password) = samba.credentials();
        MountOptions { server, credentials: (user.into(), password.into()), extra: Vec::new() }
    }

    /// The shell command that mounts the share on `at` (below /mnt, which is writable).
    pub fn command(&self, at: &str) -> String {
        let (user, password) = &self.credentials;
        let extra: String = self.extra.iter().map(|option| format!(",{option}")).collect();
        let (ip, port) = (self.server.ip(), self.server.port());
        format!(
            "mkdir -p {at} && mount -t cifs //{ip}/{SHARE} {at} \
             -o username={user},password={password},port={port},vers=3.1.1,iocharset=utf8{extra}"
        )
    }
}

impl KernelClient {
    /// Connects a place for kernel clients to the lab. The kernel itself boots with each [`KernelClient::run`].
    ///
    /// # Errors
    /// User-mode Linux or the mount helper is not installed, or the network cannot be set up.
    pub fn new(lab: &WanLab) -> Result<KernelClient> {
        let kernel = required("linux.uml", "user-mode-linux")?;
        required("mount.cifs", "cifs-utils")?;
        required("modprobe", "kmod")?;
        std::fs::create_dir_all("/lib/modules")
            .context(|| "making /lib/modules, the place of modules".into())?;
        let place = lab.client();
        let namespace = |place: &Place, args: &[&str]| {
            let mut command = place.command_prefix();
            command.extend(args.iter().map(|arg| (*arg).to_string()));
            run(&Place::Local, &command)
        };
        namespace(&place, &["ip", "tuntap", "add", "dev", TAP, "mode", "tap"])?;
        namespace(&place, &["ip", "addr", "add", "10.77.4.1/24", "dev", TAP])?;
        namespace(&place, &["ip", "link", "set", TAP, "up"])?;
        place.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context(|| "forwarding".into()))?;
        let via = WanLab::CLIENT.to_string();
        namespace(&lab.client_proxy(), &["ip", "route", "add", "10.77.4.0/24", "via", &via])?;
        let scratch = Scratch::new("kernel-client")?;
        let init = scratch.write("init", INIT)?;
        make_executable(&init)?;
        Ok(KernelClient { place, kernel, scratch })
    }

    /// Boots, runs a bash script, shuts down; returns what the script printed.
    ///
    /// # Errors
    /// The kernel does not end within `limit`, or the script ends with a status other than 0.
    pub fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let number = RUN.fetch_add(1, Ordering::Relaxed);
        let script_path = self.scratch.write(&format!("script{number}"), script)?;
        let log = self.scratch.join(&format!("console{number}"));
        let init = self.scratch.join("init");
        let spec = ProcSpec::new("user-mode Linux", &self.kernel, &log)
            .args([MEMORY, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args([format!("init={}", init.display())])
            .args(["con=null", "con0=null,fd:1", "con1=null", "ssl=null", "quiet"])
            .args([format!("vec0:transport=tap,ifname={TAP},depth=128,gro=1")])
            .args([format!("SCRIPT={}", script_path.display()), format!("MODULES={MODULES}")])
            .env("TMPDIR", &std::env::temp_dir().display().to_string())
            .place(&self.place);
        Proc::spawn(&spec)?.wait(limit)?;
        script_output(&log)
    }
}

fn script_output(log: &Path) -> Result<String> {
    let bytes = std::fs::read(log).context(|| format!("reading {}", log.display()))?;
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    let failed = |status: &str| LabError::Command {
        program: "the script in user-mode Linux".into(),
        status: status.into(),
        output: text.chars().rev().take(1_500).collect::<Vec<_>>().into_iter().rev().collect(),
    };
    let (_, after) = text.split_once(BEGIN).ok_or_else(|| failed("it did not start"))?;
    let (printed, ended) = after.split_once(END).ok_or_else(|| failed("it did not end"))?;
    match ended.split_whitespace().next() {
        Some("0") => Ok(printed.trim_matches('\n').to_string()),
        status => Err(failed(&format!("status {}", status.unwrap_or("unknown")))),
    }
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .context(|| format!("making {} executable", path.display()))
}

/// The first process in the kernel.
const INIT: &str = r#"#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt
for word in $(cat /proc/cmdline); do
    case $word in SCRIPT=* | MODULES=*) export "${word?}" ;; esac
done
# The kernel looks for its modules where the host has none for it.
mount --bind "$MODULES" /lib/modules
ip link set lo up
ip addr add 10.77.4.2/24 dev vec0
ip link set vec0 up
ip route add default via 10.77.4.1
echo "=== script begins ==="
bash "$SCRIPT" 2>&1
echo "=== script ends: $? ==="
sync
echo o >/proc/sysrq-trigger
sleep 10
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_from_between_the_lines_and_failure_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let parse = |text: &str| {
            std::fs::write(&log, text).unwrap();
            script_output(&log)
        };
        assert_eq!(parse(&format!("boot\r\n{BEGIN}\r\none\r\ntwo\r\n{END}0 ===\r\n")).unwrap(), "one\ntwo");
        assert!(
            parse(&format!("{BEGIN}\nmount error\n{END}32 ===\n")).unwrap_err().to_string().contains("32")
        );
        assert!(parse("panic").unwrap_err().to_string().contains("did not start"));
        assert!(INIT.contains(BEGIN) && INIT.contains(END));
    }
}
