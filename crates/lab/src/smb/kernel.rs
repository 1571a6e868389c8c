//! The Linux kernel's own SMB client, in a kernel that runs as an ordinary process (user-mode Linux). It is one more hop
//! away from the client's namespace:
//! `10.77.4.2 (kernel client) ── 10.77.4.1 (client's namespace) ── …`.

use super::SHARE;
use super::server::Samba;
use crate::error::{LabError, Result};
use crate::proc::{Proc, required};
use crate::topology::WanLab;
use crate::uml::{Cable, UserModeLinux, script_output};
use std::net::SocketAddr;
use std::time::Duration;

/// Start of the line with a script's time.
const TIME: &str = "nanoseconds ";

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
    linux: UserModeLinux,
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
        required("mount.cifs", "cifs-utils")?;
        let cable = Cable { place: lab.client(), tap: "umlt", network: 4 };
        Ok(KernelClient { linux: UserModeLinux::new(cable, &lab.client_proxy(), WanLab::CLIENT)? })
    }

    /// With this much memory (such as `4096M`), of which half can hold files.
    pub fn with_memory(mut self, memory: &str) -> KernelClient {
        self.linux.memory = memory.into();
        self
    }

    /// Boots, runs a bash script, shuts down; returns what the script printed.
    ///
    /// # Errors
    /// The kernel does not end within `limit`, or the script ends with a status other than 0.
    pub fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let (spec, log) = self.linux.boot(script)?;
        Proc::spawn(&spec)?.wait(limit)?;
        script_output(&log)
    }

    /// Runs a script as [`KernelClient::run`] does that prints its time, by [`KernelClient::timed`] or
    /// [`KernelClient::time_line`]; returns the seconds.
    ///
    /// # Errors
    /// As [`KernelClient::run`]; or the script has printed no time.
    pub fn time(&self, script: &str, limit: Duration) -> Result<f64> {
        let output = self.run(script, limit)?;
        let line = output.lines().find_map(|line| line.strip_prefix(TIME)?.trim().parse::<f64>().ok());
        line.map(|nanoseconds| nanoseconds / 1e9).ok_or_else(|| LabError::Format {
            what: "the output of the kernel client's script".into(),
            detail: format!("it has no time: {output}"),
        })
    }

    /// The line by which a program tells the time that it has taken.
    pub fn time_line(nanoseconds: u128) -> String {
        format!("{TIME}{nanoseconds}")
    }

    /// Shell commands around `commands` that print how long these take, so that the boot is not counted.
    pub fn timed(commands: &str) -> String {
        format!("start=$(date +%s%N)\n{commands}\nend=$(date +%s%N)\necho \"{TIME}$((end - start))\"\n")
    }
}
