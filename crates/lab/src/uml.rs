//! A Linux kernel that runs as an ordinary process (user-mode Linux), one more hop away from a namespace of the lab.
//!
//! Its root is this machine's own file system, read only; so scripts and data lie where they are and every program of
//! the machine is there.

use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{ProcSpec, required, run};
use crate::scratch::Scratch;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory of the kernel; files to be uploaded are first copied into it.
const MEMORY: &str = "1024M";

/// Where the package puts the kernel's modules.
const MODULES: &str = "/usr/lib/uml/modules";

/// Lines around what the script prints, to tell it from what the kernel prints.
const BEGIN: &str = "=== script begins ===";
const END: &str = "=== script ends: ";

static RUN: AtomicU32 = AtomicU32::new(0);

/// Where a kernel's network is.
#[derive(Clone, Debug)]
pub(crate) struct Cable {
    /// The namespace that it is one hop away from.
    pub place: Place,
    /// Name of the network device there.
    pub tap: &'static str,
    /// Third byte of the network `10.77.N.0/24`, in which the namespace is 1 and the kernel 2.
    pub network: u8,
}

/// A kernel that is connected to a namespace. It boots with each script.
pub(crate) struct UserModeLinux {
    cable: Cable,
    kernel: PathBuf,
    pub memory: String,
    scratch: Scratch,
}

impl UserModeLinux {
    /// Makes the network. `router` leads to it by way of `via`.
    pub fn new(cable: Cable, router: &Place, via: Ipv4Addr) -> Result<UserModeLinux> {
        let kernel = required("linux.uml", "user-mode-linux")?;
        required("modprobe", "kmod")?;
        std::fs::create_dir_all("/lib/modules")
            .context(|| "making /lib/modules, the place of modules".into())?;
        let Cable { place, tap, network } = &cable;
        run(place, &["ip", "tuntap", "add", "dev", tap, "mode", "tap"])?;
        run(place, &["ip", "addr", "add", &format!("10.77.{network}.1/24"), "dev", tap])?;
        run(place, &["ip", "link", "set", tap, "up"])?;
        place.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context(|| "forwarding".into()))?;
        let net = format!("10.77.{network}.0/24");
        run(router, &["ip", "route", "add", &net, "via", &via.to_string()])?;
        let scratch = Scratch::new("user-mode-linux")?;
        make_executable(&scratch.write("init", INIT)?)?;
        Ok(UserModeLinux { cable, kernel, memory: MEMORY.into(), scratch })
    }

    /// How to boot and run a bash script, and where its output goes.
    pub fn boot(&self, script: &str) -> Result<(ProcSpec, PathBuf)> {
        let number = RUN.fetch_add(1, Ordering::Relaxed);
        let script_path = self.scratch.write(&format!("script{number}"), script)?;
        let log = self.scratch.join(&format!("console{number}"));
        let init = self.scratch.join("init");
        let Cable { place, tap, network } = &self.cable;
        let spec = ProcSpec::new("user-mode Linux", &self.kernel, &log)
            .args([format!("mem={}", self.memory)])
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args([format!("init={}", init.display())])
            .args(["con=null", "con0=null,fd:1", "con1=null", "ssl=null", "quiet"])
            .args([format!("vec0:transport=tap,ifname={tap},depth=128,gro=1")])
            .args([format!("SCRIPT={}", script_path.display()), format!("MODULES={MODULES}")])
            .args([format!("NETWORK=10.77.{network}")])
            .env("TMPDIR", &std::env::temp_dir().display().to_string())
            .place(place);
        Ok((spec, log))
    }
}

/// What a script that has ended with status 0 has printed.
pub(crate) fn script_output(log: &Path) -> Result<String> {
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
    case $word in SCRIPT=* | MODULES=* | NETWORK=*) export "${word?}" ;; esac
done
# The kernel looks for its modules where the host has none for it.
mount --bind "$MODULES" /lib/modules
ip link set lo up
ip addr add "$NETWORK.2/24" dev vec0
ip link set vec0 up
ip route add default via "$NETWORK.1"
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
