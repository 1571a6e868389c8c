//! The IP-level emulator: a TUN device in each of two network namespaces and one thread a direction between them.

use super::model::{LinkModel, LinkStats};
use super::shape::WanShape;
use crate::error::{Context as _, Result};
use crate::place::Place;
use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Name of the device in both namespaces.
pub(crate) const DEVICE: &str = "wan0";

/// Largest packet; also the devices' MTU.
pub(crate) const MTU: usize = 1500;

/// Packets read before those that are due are written.
const BATCH: usize = 64;

/// A round that moved this many packets is followed by a whole tick: under load a timer for each packet would cost
/// most of a core, while half a millisecond more does not matter.
const BUSY_PACKETS: usize = 3;

/// Pause between rounds under load.
const TICK: Duration = Duration::from_micros(500);

/// Longest wait, so that a stop is noticed.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Real-time priority of the threads, so that load on the machine does not become delay on the link.
const PRIORITY: &str = "20";

/// A running emulator between two namespaces; dropping it removes the devices.
pub struct IpWan {
    up: Arc<Port>,
    down: Arc<Port>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What has crossed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WanStats {
    /// Client's side to server's side.
    pub up: LinkStats,
    /// Server's side to client's side.
    pub down: LinkStats,
}

impl WanStats {
    /// Bytes that crossed the link in both directions, IP and TCP headers included. (What a full queue has dropped has
    /// not crossed.)
    pub fn bytes(&self) -> u64 {
        self.up.bytes_out + self.down.bytes_out
    }
}

struct Port {
    model: Mutex<LinkModel>,
}

impl IpWan {
    /// Makes a TUN device `wan0` in each place (without addresses) and carries packets between them.
    ///
    /// # Errors
    /// No right to make TUN devices, or no such namespace.
    pub fn start(client_side: &Place, server_side: &Place, shape: WanShape) -> Result<IpWan> {
        let near = Arc::new(client_side.run(open_device)?);
        let far = Arc::new(server_side.run(open_device)?);
        let port = |link, seed| Arc::new(Port { model: Mutex::new(LinkModel::new(link, seed)) });
        // Different seeds: the same packets must not be lost in both directions.
        let (up, down) = (port(shape.up, shape.seed), port(shape.down, shape.seed ^ 0x9e37_79b9_7f4a_7c15));
        let stop = Arc::new(AtomicBool::new(false));
        let mut wan = IpWan { up: up.clone(), down: down.clone(), stop, threads: Vec::new() };
        wan.threads.push(wan.carry("lab-wan-up", near.clone(), far.clone(), up)?);
        wan.threads.push(wan.carry("lab-wan-down", far, near, down)?);
        Ok(wan)
    }

    /// Changes the link; packets that are queued or on their way keep their times.
    pub fn set_shape(&self, shape: WanShape) {
        self.up.lock().set_shape(shape.up);
        self.down.lock().set_shape(shape.down);
    }

    /// Cuts the link in both directions (every packet is lost) or mends it.
    pub fn cut(&self, is_cut: bool) {
        self.up.lock().set_cut(is_cut);
        self.down.lock().set_cut(is_cut);
    }

    /// What has crossed so far.
    pub fn stats(&self) -> WanStats {
        WanStats { up: self.up.lock().stats(), down: self.down.lock().stats() }
    }

    fn carry(
        &self,
        name: &str,
        from: Arc<SyncDevice>,
        to: Arc<SyncDevice>,
        port: Arc<Port>,
    ) -> Result<JoinHandle<()>> {
        let stop = self.stop.clone();
        let work = move || {
            raise_priority();
            let mut buffer = vec![0_u8; MTU + 4];
            while !stop.load(Ordering::Relaxed) {
                let (moved, next) = port.round(&from, &to, &mut buffer);
                let until_next = next.map_or(WAIT_MAX, |at| at.saturating_duration_since(Instant::now()));
                if moved >= BUSY_PACKETS {
                    std::thread::sleep(TICK);
                } else {
                    wait_for_packet(&from, until_next.min(WAIT_MAX));
                }
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(work).context(|| format!("starting {name}"))
    }
}

impl Drop for IpWan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked thread has printed its message already.
            let _ = thread.join();
        }
    }
}

impl Port {
    fn lock(&self) -> std::sync::MutexGuard<'_, LinkModel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is there, writes what is due; the number of packets moved and when the next is due.
    fn round(&self, from: &SyncDevice, to: &SyncDevice, buffer: &mut [u8]) -> (usize, Option<Instant>) {
        let mut model = self.lock();
        let mut moved = 0;
        for _ in 0..BATCH {
            match from.recv(buffer) {
                Ok(n) => model.offer(Instant::now(), Bytes::copy_from_slice(&buffer[..n])),
                // Nothing there; other errors (device down for a moment) come again and are waited out the same way.
                Err(_) => break,
            }
            moved += 1;
        }
        let now = Instant::now();
        while let Some(packet) = model.poll(now) {
            // A device that is down or full loses the packet, as a network card would.
            let _ = to.send(&packet);
            moved += 1;
        }
        (moved, model.next_due())
    }
}

fn open_device() -> Result<SyncDevice> {
    let build = || {
        let device = DeviceBuilder::new().name(DEVICE).mtu(MTU as u16).enable(false).build_sync()?;
        device.set_nonblocking(true)?;
        Ok::<_, io::Error>(device)
    };
    build().context(|| "making a TUN device".into())
}

fn wait_for_packet(device: &SyncDevice, limit: Duration) {
    let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    // An interrupted or failed wait only means that the next round comes early.
    let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(limit)), None);
}

fn raise_priority() {
    let thread = nix::unistd::gettid().to_string();
    // Without the program or the right, delays are less exact under load; nothing else is lost.
    let mut command = Command::new("chrt");
    let _ =
        command.args(["-f", "-p", PRIORITY, &thread]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
