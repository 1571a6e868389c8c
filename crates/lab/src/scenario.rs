//! Scenarios: a described run with real clients, and its results, both as JSON where wanted.
//!
//! Every scenario does the same work three times over the same link: without the pair (baseline), through a pair that
//! has never seen the data (cold), and through the same pair again (warm).

use crate::corpus::FileSpec;
use crate::corpus::write_folder;
use crate::error::{Context as _, LabError, Result};
use crate::pair::{Binaries, PairOptions};
use crate::place::Place;
use crate::rig::{Level, Measured, Network, Rig};
use crate::scratch::Scratch;
use crate::smb::{
    KernelClient, MountOptions, Protection, Samba, SambaOptions, Signing, SmbClient, compare_folders,
};
use crate::wan::WanShape;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Longest run of the kernel's client; the slowest published folder copy would take longer than that without a pair.
const KERNEL_LIMIT: Duration = Duration::from_secs(1_800);

/// Folder of the data on the share, and of what is uploaded.
const REMOTE: &str = "work";

/// Which client does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// The program smbclient.
    Smbclient,
    /// The Linux kernel's own client, freshly mounted each time (IP level only).
    Kernel,
}

/// How the session is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Session {
    /// Neither signed nor encrypted.
    Unsigned,
    /// Signed.
    Signed,
    /// Encrypted.
    Encrypted,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// From the share.
    Download,
    /// To the share.
    Upload,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// For reports.
    pub name: String,
    /// The link.
    pub shape: WanShape,
    /// The emulator.
    pub level: Level,
    /// The client.
    pub client: Client,
    /// The session.
    pub session: Session,
    /// The direction.
    pub work: Work,
    /// Which passes to make.
    pub phases: Vec<Phase>,
}

/// One of the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Without the pair.
    Baseline,
    /// Through a pair that has not seen the data.
    Cold,
    /// Through the pair again.
    Warm,
}

/// What one pass has cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Which one.
    pub phase: Phase,
    /// Seconds as the client sees them: the whole command of smbclient, or mount and copy of the kernel's client.
    pub seconds: f64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Costs at the pair; for the baseline only the emulator's bytes.
    pub measured: Measured,
}

impl Phase {
    /// All three, in their order.
    pub const ALL: [Phase; 3] = [Phase::Baseline, Phase::Cold, Phase::Warm];

    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Baseline => "baseline",
            Phase::Cold => "cold",
            Phase::Warm => "warm",
        }
    }
}

/// Runs a scenario on these files; `progress` is told what happens.
///
/// # Errors
/// Something is not installed, a client fails, or a file arrives changed.
pub fn run(
    scenario: &Scenario,
    files: &[FileSpec],
    binaries: &Binaries,
    options: &PairOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Pass>> {
    let mut bench = Bench::set_up(scenario, files)?;
    let mut passes = Vec::new();
    if scenario.phases.contains(&Phase::Baseline) {
        progress("baseline");
        passes.push(bench.baseline(scenario)?);
    }
    if scenario.phases.iter().all(|phase| *phase == Phase::Baseline) {
        return Ok(passes);
    }
    let Bench { network, samba, clients, scratch, file_bytes, .. } = bench;
    let rig = network.start_pair(binaries, &[samba.address()], options)?;
    let through = rig.through(0)?;
    for phase in scenario.phases.iter().filter(|phase| **phase != Phase::Baseline) {
        progress(phase.as_str());
        let target = Target { address: through, samba: &samba, scratch: &scratch };
        let (seconds, measured) = measured_pass(&rig, scenario, &clients, &target)?;
        passes.push(Pass { phase: *phase, seconds, file_bytes, measured });
    }
    Ok(passes)
}

/// Everything of a scenario but the pair.
struct Bench {
    network: Network,
    samba: Samba,
    clients: Clients,
    scratch: Scratch,
    direct: SocketAddr,
    file_bytes: u64,
}

struct Clients {
    place: Place,
    kernel: Option<KernelClient>,
}

struct Target<'a> {
    address: SocketAddr,
    samba: &'a Samba,
    scratch: &'a Scratch,
}

impl Bench {
    fn set_up(scenario: &Scenario, files: &[FileSpec]) -> Result<Bench> {
        let mut network = Network::start(scenario.level, scenario.shape)?;
        let address = network.new_server_address()?;
        let signing = if scenario.session == Session::Signed { Signing::Mandatory } else { Signing::Auto };
        let encrypt = scenario.session == Session::Encrypted;
        let options = SambaOptions { signing, encrypt, ..SambaOptions::default() };
        let samba = Samba::start(&network.server_place(), address, &options)?;
        let scratch = Scratch::new("scenario")?;
        let local = scratch.make_dir("local")?;
        let file_bytes = write_folder(&local, files)?;
        write_folder(&samba.share_path().join(REMOTE), files)?;
        let kernel = match (scenario.client, network.lab()) {
            (Client::Smbclient, _) => None,
            (Client::Kernel, Some(lab)) => Some(KernelClient::new(lab)?),
            (Client::Kernel, None) => {
                return Err(LabError::Unavailable {
                    what: "a network for the kernel's client".into(),
                    remedy: "it needs the IP-level emulator, which needs root".into(),
                });
            }
        };
        let direct = network.direct(address)?;
        let clients = Clients { place: network.client_place(), kernel };
        Ok(Bench { network, samba, clients, scratch, direct, file_bytes })
    }

    fn baseline(&mut self, scenario: &Scenario) -> Result<Pass> {
        let before = self.network.emulator_bytes();
        let target = Target { address: self.direct, samba: &self.samba, scratch: &self.scratch };
        let seconds = one_pass(scenario, &self.clients, &target)?;
        let measured = Measured {
            seconds,
            emulator_bytes: self.network.emulator_bytes() - before,
            ..Measured::default()
        };
        Ok(Pass { phase: Phase::Baseline, seconds, file_bytes: self.file_bytes, measured })
    }
}

fn measured_pass(
    rig: &Rig,
    scenario: &Scenario,
    clients: &Clients,
    target: &Target<'_>,
) -> Result<(f64, Measured)> {
    rig.measure(|| one_pass(scenario, clients, target))
}

/// Does the work once and compares every file; the seconds of the client alone.
fn one_pass(scenario: &Scenario, clients: &Clients, target: &Target<'_>) -> Result<f64> {
    let local = target.scratch.join("local");
    let arrived = target.scratch.join("arrived");
    let uploaded = target.samba.share_path().join("uploaded");
    for folder in [&arrived, &uploaded] {
        if folder.exists() {
            std::fs::remove_dir_all(folder).context(|| format!("removing {}", folder.display()))?;
        }
    }
    target.scratch.make_dir("arrived")?;
    let seconds = match (scenario.client, &clients.kernel) {
        (Client::Kernel, Some(kernel)) => return kernel_pass(scenario, kernel, target, &local, &uploaded),
        _ => smbclient_pass(scenario, clients, target, &local, &arrived)?,
    };
    let result = if scenario.work == Work::Download { &arrived } else { &uploaded };
    compare_folders(&local, result)?;
    Ok(seconds)
}

fn smbclient_pass(
    scenario: &Scenario,
    clients: &Clients,
    target: &Target<'_>,
    local: &Path,
    arrived: &Path,
) -> Result<f64> {
    let client = SmbClient::new(&clients.place, target.address, target.samba)?;
    let client = client.protected(match scenario.session {
        Session::Unsigned => Protection::None,
        Session::Signed => Protection::Sign,
        Session::Encrypted => Protection::Encrypt,
    });
    let time = match scenario.work {
        Work::Download => client.get_folder(REMOTE, arrived)?,
        Work::Upload => client.put_folder(local, "uploaded")?,
    };
    Ok(time.as_secs_f64())
}

/// The script prints its own time, so that the boot is not counted; what it has read it compares by hash.
fn kernel_pass(
    scenario: &Scenario,
    kernel: &KernelClient,
    target: &Target<'_>,
    local: &Path,
    uploaded: &Path,
) -> Result<f64> {
    let mut mount = MountOptions::new(target.address, target.samba);
    match scenario.session {
        Session::Unsigned => {}
        Session::Signed => mount.extra.push("sign".into()),
        Session::Encrypted => mount.extra.push("seal".into()),
    }
    let (from, to) = match scenario.work {
        Work::Download => (format!("/mnt/s/{REMOTE}"), "/mnt/arrived".to_string()),
        Work::Upload => ("/mnt/local".to_string(), "/mnt/s/uploaded".to_string()),
    };
    let copy = KernelClient::timed(&format!("{}\ncp -r {from} {to}\nsync", mount.command("/mnt/s")));
    // Data to send is first copied into the kernel's memory, so that reading it is not part of the time.
    let script = format!(
        "set -e\ncp -r '{}' /mnt/local\n{copy}\
         if [ -d /mnt/arrived ]; then diff -r /mnt/local /mnt/arrived; fi\numount /mnt/s\n",
        local.display(),
    );
    let seconds = kernel.time(&script, KERNEL_LIMIT)?;
    if scenario.work == Work::Upload {
        compare_folders(local, uploaded)?;
    }
    Ok(seconds)
}
