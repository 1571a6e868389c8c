//! The lab's parts as commands of their own, for use by hand and in containers.

mod plain;

use clap::{Parser, Subcommand};
use isthmus_lab::corpus::{self, EditPlan, MixedPlan};
use isthmus_lab::wan::{RelayWan, WanShape};
use isthmus_lab::work::{SinkMode, download, echo_server, sink_server, source_server, upload};
use isthmus_lab::{LabError, Place, Result, WanLab, cleanup};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Emulated WANs, byte servers and test data.
#[derive(Parser)]
#[command(name = "isthmus-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Relay TCP connections over an emulated WAN until interrupted.
    Relay {
        #[arg(long)]
        listen: SocketAddr,
        /// Host and port to connect to.
        #[arg(long)]
        target: String,
        #[command(flatten)]
        link: LinkArguments,
    },
    /// Make four network namespaces with an emulated WAN between them and keep them until interrupted (root).
    Namespaces {
        #[command(flatten)]
        link: LinkArguments,
    },
    /// Send `bytes` incompressible bytes to whoever connects.
    Source {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
    },
    /// Read connections to their end and answer with length and BLAKE3 hash.
    Sink {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Send back what comes.
    Echo {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Read from a source and compare with what it sends.
    Download {
        address: SocketAddr,
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
    },
    /// Send incompressible bytes to a sink and check its answer.
    Upload {
        address: SocketAddr,
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
    },
    /// Stand in for a proxy of the pair: relay, count, do nothing else (for tests of the lab itself).
    #[command(hide = true)]
    PlainProxy {
        #[arg(long)]
        config: PathBuf,
    },
    /// Write mixed.bin, edited.bin and folders of test files.
    Corpus {
        folder: PathBuf,
        /// Size of the mixed file in MiB.
        #[arg(long, default_value_t = 200)]
        mebibytes: usize,
    },
}

#[derive(clap::Args)]
struct LinkArguments {
    /// Round-trip time in milliseconds.
    #[arg(long, default_value_t = 50.0)]
    rtt_ms: f64,
    /// Mbit/s towards the server; without it, unlimited.
    #[arg(long)]
    up_mbit: Option<f64>,
    /// Mbit/s towards the client; without it, unlimited.
    #[arg(long)]
    down_mbit: Option<f64>,
}

/// Seed of the bytes that source, download and upload agree on.
const SEED: u64 = 1;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cleanup::wait_if_interrupted();
            eprintln!("isthmus-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    cleanup::on_interrupt()?;
    let content = |bytes| bytes::Bytes::from(corpus::random_bytes(bytes, SEED));
    match command {
        Command::Relay { listen, target, link } => {
            let relay = RelayWan::start(listen, resolve(&target)?, link.shape())?;
            println!("relaying {} to {target}", relay.address());
            wait_forever();
        }
        Command::Namespaces { link } => {
            let lab = WanLab::start(link.shape())?;
            for (name, place) in [
                ("client", lab.client()),
                ("client-side proxy", lab.client_proxy()),
                ("server-side proxy", lab.server_proxy()),
                ("server", lab.server()),
            ] {
                println!("{name}: {}", place.command_prefix().join(" "));
            }
            wait_forever();
        }
        Command::Source { listen, bytes } => {
            let service = source_server(&Place::Local, listen, content(bytes))?;
            println!("sending {bytes} bytes on {}", service.address());
            wait_forever();
        }
        Command::Sink { listen } => {
            let (service, _) = sink_server(&Place::Local, listen, SinkMode::Hash)?;
            println!("reading on {}", service.address());
            wait_forever();
        }
        Command::Echo { listen } => {
            let service = echo_server(&Place::Local, listen)?;
            println!("echoing on {}", service.address());
            wait_forever();
        }
        Command::Download { address, bytes } => {
            report(Place::Local.block_on(|| download(address, content(bytes)))?)
        }
        Command::Upload { address, bytes } => {
            let data = content(bytes);
            let hash = *blake3::hash(&data).as_bytes();
            report(Place::Local.block_on(|| upload(address, data, Some(hash)))?);
        }
        Command::PlainProxy { config } => plain::run(&config)?,
        Command::Corpus { folder, mebibytes } => write_corpus(&folder, mebibytes)?,
    }
    Ok(())
}

impl LinkArguments {
    fn shape(&self) -> WanShape {
        let bps = |mbit: Option<f64>| mbit.map(|mbit| (mbit.max(0.001) * 1e6) as u64);
        let round_trip = Duration::from_secs_f64(self.rtt_ms.clamp(0.0, 60_000.0) / 1e3);
        WanShape::asymmetric(round_trip, bps(self.up_mbit), bps(self.down_mbit))
    }
}

fn resolve(target: &str) -> Result<SocketAddr> {
    let unknown = |detail: String| LabError::Format { what: format!("the target {target}"), detail };
    let mut addresses = target.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.next().ok_or_else(|| unknown("it has no address".into()))
}

fn report(transfer: isthmus_lab::work::Transfer) {
    let rate = transfer.bytes as f64 / 1e6 / transfer.seconds;
    println!("{} bytes in {:.3} s, {rate:.1} MB/s", transfer.bytes, transfer.seconds);
}

fn write_corpus(folder: &std::path::Path, mebibytes: usize) -> Result<()> {
    let plan = MixedPlan::scaled(mebibytes);
    let mixed = corpus::mixed(&plan);
    let edited = corpus::edited(&mixed, &EditPlan::new(400, plan.seed));
    let file = |path: &str, content| corpus::FileSpec { path: path.into(), content };
    corpus::write_folder(folder, &[file("mixed.bin", mixed), file("edited.bin", edited)])?;
    corpus::write_folder(&folder.join("small"), &corpus::many_small_files(1_000, 1))?;
    corpus::write_folder(&folder.join("names"), &corpus::awkward_names(1))?;
    let (old, new) = corpus::edited_folder(20, 300_000, 1)?;
    corpus::write_folder(&folder.join("v1"), &old)?;
    corpus::write_folder(&folder.join("v2"), &new)?;
    Ok(())
}

/// The signal handler ends the process.
fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}
