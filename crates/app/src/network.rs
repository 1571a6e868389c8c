//! Tells when addresses or routes of this machine have changed.

use std::future::pending;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::OnceLock;

use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use tokio::net::UnixDatagram;

/// Groups of linux/rtnetlink.h: addresses and routes, IPv4 and IPv6.
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// What the kernel says of changes, from the first time that somebody asks.
#[derive(Default)]
pub(crate) struct Changes(OnceLock<Option<UnixDatagram>>);

impl Changes {
    /// Waits for the next change. What it is has to be looked at; more than one may have come.
    pub async fn next(&self) {
        let Some(netlink) = self.0.get_or_init(listen) else { return pending().await };
        let mut unread = [0; 64];
        // An error is that more was said than there was room for, which is a change too.
        let _ = netlink.recv(&mut unread).await;
        while netlink.try_recv(&mut unread).is_ok() {}
    }
}

fn listen() -> Option<UnixDatagram> {
    let listen = || -> io::Result<UnixDatagram> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let netlink = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(netlink.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        // To the runtime all sockets that give datagrams are alike.
        UnixDatagram::from_std(StdDatagram::from(netlink))
    };
    listen()
        .inspect_err(|error| tracing::warn!(%error, "changes of network are only noticed after seconds"))
        .ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn nothing_is_said_while_nothing_changes_and_then_one_change() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: only root may change addresses");
            return;
        }
        // The thread has a network of its own.
        let alone = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(changes_of_loopback());
        };
        std::thread::spawn(alone).join().unwrap();
    }

    async fn changes_of_loopback() {
        let changes = Changes::default();
        let quiet = Duration::from_millis(200);
        assert!(timeout(quiet, changes.next()).await.is_err());
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        timeout(Duration::from_secs(10), changes.next()).await.unwrap();
        // What is said a little later is told as well, and then nothing.
        while timeout(quiet, changes.next()).await.is_ok() {}
    }
}
