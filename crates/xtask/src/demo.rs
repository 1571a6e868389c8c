//! `cargo xtask demo`: what a user gains, on one machine, in about two minutes.

use crate::cargo::build_proxies;
use crate::packages;
use crate::progress::{Progress, human_bytes};
use isthmus_lab::corpus::{FileSpec, MixedPlan};
use isthmus_lab::corpus::{MIB, awkward_names, many_small_files, mixed, office_folder};
use isthmus_lab::pair::PairOptions;
use isthmus_lab::proc::run as run_command;
use isthmus_lab::smb::{SHARE, Samba, SambaOptions, SmbClient, compare_folders};
use isthmus_lab::wan::WanShape;
use isthmus_lab::work::{Service, forward};
use isthmus_lab::{LabError, Level, Measured, Network, Place, Result, Rig, Scratch, cleanup};
use isthmus_types::Side;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the consoles are offered; if a port is taken, any other.
const CONSOLE_PORTS: [u16; 2] = [7811, 7812];

/// How often the progress line is renewed.
const RENEW: Duration = Duration::from_millis(500);

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Copy this folder instead of made-up documents
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Round-trip time of the emulated WAN, in milliseconds
    #[arg(long, default_value_t = 40)]
    rtt_ms: u64,
    /// Rate of the emulated WAN in both directions, in Mbit/s
    #[arg(long, default_value_t = 20.0)]
    mbit: f64,
    /// Leave everything running until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// One copy of the folder.
struct Copy {
    name: &'static str,
    seconds: f64,
    lan_bytes: u64,
    wan_bytes: u64,
}

/// Everything that runs, in the order in which it must end.
struct Demo {
    rig: Rig,
    samba: Samba,
    scratch: Scratch,
    file_bytes: u64,
}

/// Shows the pair at work.
///
/// # Errors
/// Something is missing, does not start, or a file arrives changed.
pub fn run(arguments: &Arguments) -> Result<()> {
    cleanup::on_interrupt()?;
    let mut progress = Progress::new();
    packages::ensure(&[packages::DEMO], &mut progress)?;
    progress.step("building the proxies");
    let binaries = build_proxies("release")?;
    let level = Level::best();
    let bps = (arguments.mbit.max(0.1) * 1e6) as u64;
    let shape = WanShape::symmetric(Duration::from_millis(arguments.rtt_ms), Some(bps));
    progress.step(&format!(
        "starting Samba and a WAN of {} ms and {} Mbit/s ({})",
        arguments.rtt_ms,
        arguments.mbit,
        level.describe()
    ));
    let mut network = Network::start(level, shape)?;
    let address = network.new_server_address()?;
    let samba = Samba::start(&network.server_place(), address, &SambaOptions::default())?;
    let scratch = Scratch::new("demo")?;
    let file_bytes = fill_share(arguments, samba.share_path())?;
    let direct_address = network.direct(address)?;

    let mut copies = vec![copy_directly(&network, direct_address, &samba, &scratch, &mut progress)?];
    progress.step("making certificates and starting both proxies");
    let rig = network.start_pair(&binaries, &[address], &PairOptions::default())?;
    let demo = Demo { rig, samba, scratch, file_bytes };
    let consoles = demo.open_consoles()?;
    for (service, side) in consoles.iter().zip([Side::Client, Side::Server]) {
        progress.step(&format!("console of the {side} proxy: http://{}/", service.address()));
    }
    for name in ["through Isthmus, cold", "through Isthmus, warm"] {
        copies.push(demo.copy(name, &mut progress)?);
    }
    progress.clear();
    demo.report(&copies);
    if arguments.keep {
        demo.keep(&consoles)?;
    }
    Ok(())
}

fn copy_directly(
    network: &Network,
    address: SocketAddr,
    samba: &Samba,
    scratch: &Scratch,
    progress: &mut Progress,
) -> Result<Copy> {
    progress.step("copying directly");
    let target = scratch.make_dir("direct")?;
    let client = SmbClient::new(&network.client_place(), address, samba)?;
    let start = Instant::now();
    let before = network.all_bytes();
    let copied = watched(
        || client.get_folder("", &target),
        || {
            let done = human_bytes((network.all_bytes() - before) as f64);
            progress
                .status(&format!("directly: {done} over the WAN, {:.0} s", start.elapsed().as_secs_f64()));
        },
    )?;
    compare_folders(samba.share_path(), &target)?;
    let bytes = network.all_bytes() - before;
    Ok(Copy { name: "directly", seconds: copied.as_secs_f64(), lan_bytes: bytes, wan_bytes: bytes })
}

impl Demo {
    fn copy(&self, name: &'static str, progress: &mut Progress) -> Result<Copy> {
        progress.step(&format!("copying {name}"));
        let target = self.scratch.make_dir(name)?;
        let client = SmbClient::new(&self.rig.client_place(), self.rig.through(0)?, &self.samba)?;
        let end = self.rig.pair.end(Side::Client);
        let (lan_before, wan_before) = (end.lan_bytes()?, end.wan_bytes()?.total());
        let start = Instant::now();
        let mut copied = Duration::ZERO;
        let work = || {
            let result = self.rig.measure(|| client.get_folder("", &target));
            result.map(|(time, measured)| {
                copied = time;
                measured
            })
        };
        let measured: Measured = watched(work, || {
            let now =
                || Some((end.lan_bytes().ok()? - lan_before, end.wan_bytes().ok()?.total() - wan_before));
            if let Some((lan, wan)) = now() {
                let (lan, wan) = (human_bytes(lan as f64), human_bytes(wan as f64));
                let seconds = start.elapsed().as_secs_f64();
                progress.status(&format!("{name}: {lan} to the client, {wan} over the WAN, {seconds:.0} s"));
            }
        })?;
        compare_folders(self.samba.share_path(), &target)?;
        Ok(Copy {
            name,
            seconds: copied.as_secs_f64(),
            lan_bytes: measured.lan_bytes,
            wan_bytes: measured.wan_bytes,
        })
    }

    fn report(&self, copies: &[Copy]) {
        let direct = copies.first().map_or(0.0, |copy| copy.seconds);
        println!("\nFolder of {}, every file compared byte for byte.\n", human_bytes(self.file_bytes as f64));
        println!(
            "{:<24}{:>9}{:>12}{:>12}{:>12}{:>10}",
            "", "time", "LAN bytes", "WAN bytes", "reduction", "speed-up"
        );
        for copy in copies {
            let reduction = 1.0 - copy.wan_bytes as f64 / (copy.lan_bytes as f64).max(1.0);
            println!(
                "{:<24}{:>7.1} s{:>12}{:>12}{:>10.2} %{:>9.1}×",
                copy.name,
                copy.seconds,
                human_bytes(copy.lan_bytes as f64),
                human_bytes(copy.wan_bytes as f64),
                reduction * 100.0,
                direct / copy.seconds.max(1e-3),
            );
        }
        println!();
    }

    /// Consoles on this machine's loopback, also when the proxies are in namespaces.
    fn open_consoles(&self) -> Result<Vec<Service>> {
        let offer = |(side, port): (Side, u16)| {
            let end = self.rig.pair.end(side);
            let at = |port| forward(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), end.place(), end.admin());
            at(port).or_else(|_| at(0))
        };
        [Side::Client, Side::Server].into_iter().zip(CONSOLE_PORTS).map(offer).collect()
    }

    fn keep(&self, consoles: &[Service]) -> Result<()> {
        let (user, password) = self.samba.credentials();
        let address = self.rig.through(0)?;
        let prefix = self.rig.client_place().command_prefix().join(" ");
        println!("Everything stays up until Ctrl-C. Try:");
        for service in consoles {
            println!("  http://{}/", service.address());
        }
        println!(
            "  {prefix} smbclient //{}/{SHARE} -p {} -U {user}%{password}",
            address.ip(),
            address.port()
        );
        println!("  folders of the proxies (configuration, logs): {}", self.rig.pair.folder().display());
        loop {
            std::thread::park();
        }
    }
}

/// Does the work on a thread of its own and looks at it from this one.
fn watched<T: Send>(work: impl FnOnce() -> Result<T> + Send, mut look: impl FnMut()) -> Result<T> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            is_done.store(true, Ordering::Release);
            result
        });
        let mut looked = Instant::now();
        while !is_done.load(Ordering::Acquire) && !worker.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            if looked.elapsed() >= RENEW {
                looked = Instant::now();
                look();
            }
        }
        worker.join().unwrap_or_else(|_| {
            Err(LabError::Format { what: "the copying thread".into(), detail: "it panicked".into() })
        })
    })
}

/// Puts the folder's files, or made-up ones, onto the share; returns their bytes.
fn fill_share(arguments: &Arguments, share: &Path) -> Result<u64> {
    if let Some(folder) = &arguments.folder {
        let from = format!("{}/.", folder.display());
        let to = share.display().to_string();
        run_command(&Place::Local, &["cp", "-rL", &from, &to])?;
        return compare_folders(folder, share);
    }
    let mut files: Vec<FileSpec> = office_folder(16, 2_000_000, 1)?;
    files.extend(many_small_files(10, 2));
    files.extend(awkward_names(3));
    let plan = MixedPlan { seed: 4, ..MixedPlan::scaled(20) };
    files.push(FileSpec { path: format!("archive {} MiB.bin", plan.len() / MIB), content: mixed(&plan) });
    isthmus_lab::corpus::write_folder(share, &files)
}
