//! SMB sessions whose keys the pair has: reduction of encrypted ones, small requests, processor time, added latency.

use super::{Context, Values, median};
use bytes::Bytes;
use isthmus_lab::corpus::{MixedPlan, mixed, random_bytes};
use isthmus_lab::pair::{KeyOptions, PairOptions};
use isthmus_lab::smb::{
    Account, Cipher, Probe, Protection, SHARE, Samba, SambaOptions, Signing, SigningAlgorithm, SmbClient,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Measured, Network, Place, Result, Rig, Scratch};
use isthmus_types::Side;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Bytes of the file that is copied.
const FILE_MIB: usize = 96;

/// Bytes of one read of the slow reader.
const READ_BYTES: u32 = 64 * 1024;

/// Sets of CREATE, QUERY_INFO, READ, CLOSE; those before them that make them warm; the files they go round.
const SETS: usize = 2_500;
const SETS_BEFORE: usize = 200;
const SMALL_FILES: usize = 50;
const SMALL_BYTES: usize = 4_096;

/// Bytes of the file for processor time, whose ticks are hundredths of a second.
const CPU_BYTES: usize = 300_000_000;

/// Repetitions of the processor time, each with four kinds of sessions.
const CPU_REPETITIONS_MAX: usize = 3;

/// Reads of which the median counts, in each of the rounds, which go to and fro.
const LATENCY_READS: usize = 1_000;
const LATENCY_ROUNDS: usize = 4;

/// Time without a byte on the WAN after which counts are read.
const QUIET: Duration = Duration::from_millis(300);

/// Name of the file on the share.
const FILE: &str = "file.bin";

/// How sessions are protected.
#[derive(Clone, Copy)]
enum Kind {
    Clear,
    Signed(SigningAlgorithm),
    Sealed(Cipher),
}

/// A part of the group: the figures that it gives begin with one of its names.
type Measure = fn(&mut Context) -> Result<Values>;

const CPU_KINDS: [(&str, Kind); 4] = [
    ("gmac", Kind::Signed(SigningAlgorithm::AesGmac)),
    ("cmac", Kind::Signed(SigningAlgorithm::AesCmac)),
    ("gcm", Kind::Sealed(Cipher::Aes128Gcm)),
    ("ccm", Kind::Sealed(Cipher::Aes128Ccm)),
];

/// A server and a pair that has its keys.
struct Bench {
    rig: Rig,
    samba: Samba,
    kind: Kind,
    scratch: Scratch,
}

/// All figures of the group that are wanted.
pub fn measure(context: &mut Context) -> Result<Values> {
    let parts: [(&[&str], Measure); 5] = [
        (&["smb.seal_warm_wan", "smb.seal_cold_share", "smb.seal_cross_wan"], copies),
        (&["smb.read64k_warm_wan"], slow_reader),
        (&["smb.small_op_wan"], small_sets),
        (&["smb.added_p50"], latency),
        (&["smb.cpu"], processor_time),
    ];
    let mut values = Values::new();
    for (names, part) in parts {
        let is_named = |only: &String| {
            names.iter().any(|name| only.starts_with(name) || name.starts_with(only.as_str()))
        };
        if context.only.is_empty() || context.only.iter().any(is_named) {
            values.extend(part(context)?);
        }
    }
    Ok(values)
}

/// A file, sealed: up, down, again down; and in clear text for comparison.
fn copies(context: &mut Context) -> Result<Values> {
    let content = Bytes::from(mixed(&MixedPlan::scaled(FILE_MIB)));
    let (mut shares, mut warms, mut crosses) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=context.repetitions {
        let cold_of = |context: &mut Context, kind| -> Result<(Bench, Measured)> {
            let bench = Bench::start(context, context.level, WanShape::hundred_megabit(), kind)?;
            bench.store(FILE, &content)?;
            let cold = bench.get(&content)?;
            Ok((bench, cold))
        };
        let (_, clear) = cold_of(context, Kind::Clear)?;
        let (bench, cold) = cold_of(context, Kind::Sealed(Cipher::Aes128Gcm))?;
        let warm = bench.get(&content)?;
        drop(bench);
        let cross = upload_then_download(context, &content)?;
        context.progress.step(&format!(
            "run {number}: clear cold {} bytes; sealed cold {}, warm {}, down after up {}",
            clear.wan_bytes, cold.wan_bytes, warm.wan_bytes, cross.wan_bytes
        ));
        shares.push(cold.wan_bytes as f64 / clear.wan_bytes as f64);
        warms.push(warm.wan_bytes as f64);
        crosses.push(cross.wan_bytes as f64);
    }
    Ok(named([
        ("smb.seal_cold_share", median(&shares)),
        ("smb.seal_warm_wan", median(&warms)),
        ("smb.seal_cross_wan", median(&crosses)),
    ]))
}

fn upload_then_download(context: &mut Context, content: &Bytes) -> Result<Measured> {
    let kind = Kind::Sealed(Cipher::Aes128Gcm);
    let bench = Bench::start(context, context.level, WanShape::hundred_megabit(), kind)?;
    let local = bench.scratch.write("sent", content)?;
    bench.client()?.put(&local, FILE)?;
    bench.get(content)
}

/// A warm file, read 64 KiB at a time.
fn slow_reader(context: &mut Context) -> Result<Values> {
    let content = Bytes::from(mixed(&MixedPlan::scaled(FILE_MIB)));
    let bench = Bench::start(context, context.level, unlimited(), Kind::Sealed(Cipher::Aes128Gcm))?;
    bench.store(FILE, &content)?;
    bench.get(&content)?;
    let mut counts = Vec::new();
    for number in 1..=context.repetitions {
        let expected = &content;
        let (wan_bytes, messages) = bench.counted(|probe| async move {
            probe.read_serially(FILE, READ_BYTES, expected).await?;
            Ok(probe)
        })?;
        context.progress.step(&format!("run {number}: {wan_bytes} WAN bytes for {messages} messages"));
        counts.push(wan_bytes as f64);
    }
    Ok(named([("smb.read64k_warm_wan", median(&counts))]))
}

/// Serial small requests to warm files.
fn small_sets(context: &mut Context) -> Result<Values> {
    let bench = Bench::start(context, context.level, unlimited(), Kind::Sealed(Cipher::Aes128Gcm))?;
    let files: Vec<(String, Vec<u8>)> = (0..SMALL_FILES)
        .map(|number| (format!("small{number:02}"), random_bytes(SMALL_BYTES, 500 + number as u64)))
        .collect();
    for (name, content) in &files {
        bench.store(name, content)?;
    }
    let mut averages = Vec::new();
    for number in 1..=context.repetitions {
        let files = &files;
        let sets = |count: usize| {
            move |probe: Probe| async move {
                for (name, content) in files.iter().cycle().take(count) {
                    if probe.small_set(name, SMALL_BYTES as u32).await? != *content {
                        return Err(differs(name));
                    }
                }
                Ok(probe)
            }
        };
        bench.counted(sets(SETS_BEFORE))?;
        let (wan_bytes, messages) = bench.counted(sets(SETS))?;
        let average = wan_bytes as f64 / messages as f64;
        context.progress.step(&format!(
            "run {number}: {wan_bytes} WAN bytes for {messages} requests and answers: {average:.1} each"
        ));
        averages.push(average);
    }
    Ok(named([("smb.small_op_wan", median(&averages))]))
}

/// The same read directly and through the pair, over loopback.
fn latency(context: &mut Context) -> Result<Values> {
    let bench = Bench::start(context, Level::Loopback, WanShape::open(), Kind::Sealed(Cipher::Aes128Gcm))?;
    bench.store(FILE, &random_bytes(SMALL_BYTES, 7))?;
    let median_of = |address: SocketAddr| {
        let account = Account::alice();
        bench.rig.client_place().block_on(move || async move {
            let probe = Probe::connect(address, SHARE, &account, true).await?;
            let times = probe.read_times(FILE, SMALL_BYTES as u32, LATENCY_READS).await?;
            let middle = times.get(times.len() / 2).copied().unwrap_or_default();
            Ok(middle.as_secs_f64() * 1e3)
        })
    };
    let mut added = Vec::new();
    for _ in 0..LATENCY_ROUNDS {
        let direct = median_of(bench.samba.address())?;
        let through = median_of(bench.rig.through(0)?)?;
        context
            .progress
            .step(&format!("a READ takes {direct:.3} ms directly, {through:.3} ms through the pair"));
        added.push(through - direct);
    }
    Ok(named([("smb.added_p50", median(&added))]))
}

/// Processor seconds for a gigabyte downloaded, of each side, cold and warm.
fn processor_time(context: &mut Context) -> Result<Values> {
    let content = Bytes::from(random_bytes(CPU_BYTES, 9));
    let repetitions = context.repetitions.min(CPU_REPETITIONS_MAX);
    let mut values = Values::new();
    for (word, kind) in CPU_KINDS {
        let mut all: [Vec<f64>; 4] = Default::default();
        for _ in 0..repetitions {
            let bench = Bench::start(context, Level::Loopback, WanShape::open(), kind)?;
            bench.store(FILE, &content)?;
            let (cold, warm) = (bench.get(&content)?, bench.get(&content)?);
            let spent = [cold.client, cold.server, warm.client, warm.server];
            for (values, usage) in all.iter_mut().zip(spent) {
                values.push(usage.cpu_seconds / (CPU_BYTES as f64 / 1e9));
            }
        }
        let medians: Vec<f64> = all.iter().map(|values| median(values)).collect();
        context.progress.step(&format!(
            "{word}: {}",
            ["cold near", "cold far", "warm near", "warm far"]
                .iter()
                .zip(&medians)
                .map(|(what, seconds)| format!("{what} {seconds:.2} s/GB"))
                .collect::<Vec<_>>()
                .join(", ")
        ));
        for (what, seconds) in ["cold_near", "cold_far", "warm_near", "warm_far"].iter().zip(medians) {
            values.insert(format!("smb.cpu_{word}_{what}"), seconds);
        }
    }
    Ok(values)
}

impl Bench {
    fn start(context: &Context, level: Level, shape: WanShape, kind: Kind) -> Result<Bench> {
        let mut network = Network::start(level, shape)?;
        let address = network.new_server_address()?;
        let samba = Samba::start(&network.server_place(), address, &kind.server())?;
        let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![samba.password_hashes()] };
        let options = PairOptions { keys: Some(keys), ..context.options.clone() };
        let rig = network.start_pair(&context.binaries, &[address], &options)?;
        Ok(Bench { rig, samba, kind, scratch: Scratch::new("bench")? })
    }

    /// Puts a file on the share without any client.
    fn store(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.samba.share_path().join(name);
        std::fs::write(&path, content)
            .map_err(|source| LabError::Io { action: format!("writing {}", path.display()), source })
    }

    fn client(&self) -> Result<SmbClient> {
        let client = SmbClient::new(&self.rig.client_place(), self.rig.through(0)?, &self.samba)?;
        Ok(client.protected(match self.kind {
            Kind::Clear => Protection::None,
            Kind::Signed(_) => Protection::Sign,
            Kind::Sealed(_) => Protection::Encrypt,
        }))
    }

    /// Copies the file from the share with smbclient and compares it.
    fn get(&self, content: &Bytes) -> Result<Measured> {
        let local = self.scratch.join("received");
        let client = self.client()?;
        let (_, measured) = self.rig.measure(|| client.get(FILE, &local))?;
        self.has_keys()?;
        if is_equal(&local, content)? { Ok(measured) } else { Err(differs(FILE)) }
    }

    /// A session that is relayed without its keys would make a figure of something else.
    fn has_keys(&self) -> Result<()> {
        let (client, server) = (self.rig.pair.end(Side::Client), self.rig.pair.end(Side::Server));
        for (side, end) in [(Side::Client, client), (Side::Server, server)] {
            let metrics = end.metrics()?;
            let without: f64 = ["signed_no_keys", "encrypted_no_keys", "not_smb"]
                .iter()
                .map(|state| metrics.sum("isthmus_smb_sessions_total", &[("state", state)]))
                .sum();
            if without > 0.0 {
                let detail = format!("{without} have no keys");
                let source = LabError::Mismatch { what: format!("sessions of the {side} proxy"), detail };
                return Err(LabError::ThroughPair {
                    source: Box::new(source),
                    client_log: client.log_tail(),
                    server_log: server.log_tail(),
                });
            }
        }
        Ok(())
    }

    /// WAN bytes and messages of what is done in a session, without its log-on and end.
    fn counted<F>(&self, work: impl FnOnce(Probe) -> F + Send) -> Result<(u64, u64)>
    where
        F: Future<Output = Result<Probe>>,
    {
        let address = self.rig.through(0)?;
        let account = Account::alice();
        let wan_bytes = || self.rig.pair.end(Side::Client).wan_bytes().map(|bytes| bytes.total());
        let place: Place = self.rig.client_place();
        place.block_on(|| async {
            let probe = Probe::connect(address, SHARE, &account, true).await?;
            quiet(&wan_bytes).await?;
            let (bytes, messages) = (wan_bytes()?, probe.messages());
            let probe = work(probe).await?;
            quiet(&wan_bytes).await?;
            self.has_keys()?;
            Ok((wan_bytes()? - bytes, probe.messages() - messages))
        })
    }
}

/// Waits until the last bytes have been counted.
async fn quiet(wan_bytes: &impl Fn() -> Result<u64>) -> Result<()> {
    let mut last = wan_bytes()?;
    for _ in 0..20 {
        tokio::time::sleep(QUIET).await;
        let now = wan_bytes()?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(())
}

impl Kind {
    fn server(self) -> SambaOptions {
        let mut options = SambaOptions {
            accounts: vec![Account::alice()],
            is_single_channel: true,
            ..SambaOptions::default()
        };
        match self {
            Kind::Clear => {}
            Kind::Signed(algorithm) => {
                options.signing = Signing::Mandatory;
                options.signing_algorithms = vec![algorithm];
            }
            Kind::Sealed(cipher) => {
                options.signing = Signing::Mandatory;
                options.ciphers = vec![cipher];
            }
        }
        options
    }
}

/// As fast as the emulator goes: bytes are counted, not seconds.
fn unlimited() -> WanShape {
    WanShape::symmetric(Duration::ZERO, None)
}

fn is_equal(path: &Path, content: &[u8]) -> Result<bool> {
    let read = std::fs::read(path)
        .map_err(|source| LabError::Io { action: format!("reading {}", path.display()), source })?;
    Ok(read == content)
}

fn differs(name: &str) -> LabError {
    LabError::Mismatch { what: name.into(), detail: "the bytes that arrived differ".into() }
}

fn named<const N: usize>(values: [(&str, f64); N]) -> Values {
    values.map(|(name, value)| (name.to_string(), value)).into()
}
