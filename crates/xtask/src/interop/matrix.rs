//! Clients of many makers, every dialect, signing algorithm and cipher, NTLM and Kerberos: each step that works directly
//! must work through the pair.

use super::report::Part;
use super::{Context, or_failed};
use crate::cargo::target_folder;
use isthmus_lab::pair::{KeyOptions, PairOptions};
use isthmus_lab::smb::{
    Account, Cipher, ClientKind, Dialect, Domain, Kerberos, KernelClient, Login, Protected, PythonClients,
    SHARE, Samba, SambaOptions, SessionEncryption, ShareWork, Signing, SigningAlgorithm, Steps,
    work_with_kernel, work_with_rclone, work_with_smbclient,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Network, Place, Result, Rig, Scratch};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A client with a name for the table.
struct Column {
    name: &'static str,
    kind: ClientKind,
    mount_options: &'static [&'static str],
}

const COLUMNS: &[Column] = &[
    column("smbclient", ClientKind::Smbclient),
    column("libsmbclient", ClientKind::Libsmbclient),
    column("smbprotocol", ClientKind::Smbprotocol),
    column("impacket", ClientKind::Impacket),
    column("rclone", ClientKind::Rclone),
    column("kernel", ClientKind::Kernel),
    Column {
        name: "multichannel",
        kind: ClientKind::Kernel,
        mount_options: &["multichannel", "max_channels=2"],
    },
];

const fn column(name: &'static str, kind: ClientKind) -> Column {
    Column { name, kind, mount_options: &[] }
}

/// Makes a part with this name.
type Measure = fn(&mut Context, &str) -> Result<Part>;

/// What one client with one kind of session did.
struct Cell {
    row: String,
    column: &'static str,
    direct: Steps,
    pair: Steps,
    again: Option<Steps>,
}

/// Where clients run and with what.
struct Bench {
    place: Place,
    python: Result<PythonClients>,
    kernel: Result<KernelClient>,
    sent: PathBuf,
    scratch: Scratch,
}

/// A server as clients reach it.
struct Target {
    direct: SocketAddr,
    pair: SocketAddr,
    share_path: PathBuf,
    account: Account,
    /// For the direct way and the way through the pair.
    kerberos: Option<[Kerberos; 2]>,
}

/// NTLM with a server of its own for each dialect and protection, then Kerberos with a domain controller.
pub fn run(context: &mut Context) -> Vec<Part> {
    let mut parts = Vec::new();
    let measures: [(&str, Measure); 2] = [("matrix.ntlm", run_ntlm), ("matrix.kerberos", run_kerberos)];
    for (name, measure) in measures {
        if context.is_wanted(name) {
            context.progress.step(name);
            let start = Instant::now();
            let mut part = or_failed(name, measure(context, name));
            part.seconds = start.elapsed().as_secs_f64();
            parts.push(part);
        }
    }
    parts
}

fn run_ntlm(context: &mut Context, name: &str) -> Result<Part> {
    let mut network = Network::start(Level::Ip, WanShape::symmetric(Duration::ZERO, None))?;
    let kinds = rows(context, name);
    let mut servers = Vec::new();
    for (dialect, protected) in &kinds {
        let address = network.new_server_address()?;
        servers.push(Samba::start(&network.server_place(), address, &server_options(*dialect, *protected))?);
    }
    // Every server has the same users.
    let options = context.pair_options(&servers.iter().take(1).collect::<Vec<_>>());
    let targets: Vec<SocketAddr> = servers.iter().map(Samba::address).collect();
    let rig = network.start_pair(&context.binaries, &targets, &options)?;
    let bench = Bench::new(context, &rig)?;
    let mut part = Part::new(name);
    let mut cells = Vec::new();
    for (index, ((dialect, protected), server)) in kinds.iter().zip(&servers).enumerate() {
        let target = Target {
            direct: server.address(),
            pair: rig.through(index)?,
            share_path: server.share_path().into(),
            account: Account::alice(),
            kerberos: None,
        };
        cells.extend(run_row(context, &bench, &mut part, name, (*dialect, *protected), &target));
    }
    finish(&mut part, &cells);
    part.look_at_pair(&rig, !context.is_plain)?;
    Ok(part)
}

fn run_kerberos(context: &mut Context, name: &str) -> Result<Part> {
    let network = Network::start(Level::Ip, WanShape::symmetric(Duration::ZERO, None))?;
    let address = IpAddr::V4(isthmus_lab::WanLab::SERVER);
    let account = Account::alice();
    context.progress.step("  making a domain and starting its controller");
    let domain = Domain::start(&network.server_place(), address, std::slice::from_ref(&account))?;
    let keys = KeyOptions { keytabs: vec![domain.keytab()], password_hashes: vec![domain.password_hashes()] };
    let options = PairOptions { keys: (!context.is_plain).then_some(keys), ..PairOptions::default() };
    let rig = network.start_pair(&context.binaries, &[domain.address()], &options)?;
    let bench = Bench::new(context, &rig)?;
    let (direct, pair) = (domain.address(), rig.through(0)?);
    let tickets = |server: SocketAddr| domain.log_on(&bench.place, &account, server.ip());
    let target = Target {
        direct,
        pair,
        share_path: domain.share_path(),
        account: account.clone(),
        kerberos: Some([tickets(direct)?, tickets(pair)?]),
    };
    let mut part = Part::new(name);
    let mut cells = Vec::new();
    for row in rows(context, name) {
        cells.extend(run_row(context, &bench, &mut part, name, row, &target));
    }
    finish(&mut part, &cells);
    part.look_at_pair(&rig, !context.is_plain)?;
    Ok(part)
}

/// Every kind of session that is wanted.
fn rows(context: &Context, name: &str) -> Vec<(Dialect, Protected)> {
    let all = Dialect::ALL
        .into_iter()
        .rev()
        .flat_map(|dialect| dialect.protections().into_iter().map(move |protected| (dialect, protected)));
    all.filter(|row| context.is_wanted(&format!("{name}.{}", row_name(*row)))).collect()
}

/// Such as `3_1_1-AES-128-GCM`: dots would divide it.
fn row_name((dialect, protected): (Dialect, Protected)) -> String {
    format!("{}-{}", dialect.as_str().replace('.', "_"), protected.as_str())
}

/// A server that speaks this dialect only and protects its sessions so.
fn server_options(dialect: Dialect, protected: Protected) -> SambaOptions {
    let mut options = SambaOptions {
        signing: Signing::Mandatory,
        accounts: vec![Account::alice()],
        dialects: Some((dialect, dialect)),
        is_like_windows: true,
        // One of the clients takes interim responses for forgeries, since they are not signed.
        global: ["aio read size", "aio write size"].map(|option| (option.into(), "0".into())).into(),
        ..SambaOptions::default()
    };
    match protected {
        Protected::Signed(algorithm) => options.signing_algorithms = vec![algorithm],
        Protected::Sealed(cipher) => {
            options.ciphers = vec![cipher];
            options.session_encryption = SessionEncryption::Required;
        }
    }
    options
}

fn run_row(
    context: &mut Context,
    bench: &Bench,
    part: &mut Part,
    name: &str,
    row: (Dialect, Protected),
    target: &Target,
) -> Vec<Cell> {
    let row_name = row_name(row);
    let mut cells = Vec::new();
    let mut line = Vec::new();
    for column in COLUMNS.iter().filter(|column| column.can(row, target.kerberos.is_some())) {
        let full = format!("{name}.{row_name}.{}", column.name);
        if !context.is_wanted(&full) {
            continue;
        }
        match bench.run_cell(column, row, target) {
            Ok(cell) => {
                line.push(format!("{} {}", column.name, cell.verdict(&full, part)));
                cells.push(cell);
            }
            Err(reason @ LabError::Unavailable { .. }) => {
                let reason = format!("{name}.{}: {reason}", column.name);
                if !part.skipped.contains(&reason) {
                    part.skipped.push(reason);
                }
            }
            Err(error) => part.failures.push(format!("{full}: {error}")),
        }
    }
    context.progress.step(&format!("  {row_name}: {}", line.join(", ")));
    cells
}

/// A comparison in which nothing works shows nothing.
fn finish(part: &mut Part, cells: &[Cell]) {
    if part.passed == 0 && part.failures.is_empty() {
        part.failures.push(format!("{}: nothing works directly", part.name));
    }
    let mut results: BTreeMap<&str, BTreeMap<&str, serde_json::Value>> = BTreeMap::new();
    for cell in cells {
        let shown = serde_json::json!({ "direct": cell.direct.by_name, "pair": cell.pair.by_name,
            "pair_again": cell.again.as_ref().map(|steps| &steps.by_name) });
        results.entry(&cell.row).or_default().insert(cell.column, shown);
    }
    part.results = serde_json::json!(results);
}

impl Bench {
    fn new(context: &mut Context, rig: &Rig) -> Result<Bench> {
        let place = rig.client_place();
        let folder = target_folder().join("interop/python");
        let python = PythonClients::install(&folder, context.is_full);
        let lab = rig.network.lab().ok_or_else(|| LabError::Unavailable {
            what: "network namespaces".into(),
            remedy: "run as root".into(),
        })?;
        let kernel = KernelClient::new(lab);
        let scratch = Scratch::new("matrix")?;
        let sent = scratch.make_dir("sent")?;
        ShareWork::make_folder(&sent, 1)?;
        Ok(Bench { place, python, kernel, sent, scratch })
    }

    /// Directly and through the pair; both at once, but for clients of which there can be only one.
    fn run_cell(&self, column: &Column, row: (Dialect, Protected), target: &Target) -> Result<Cell> {
        let direct = || self.run_one(column, row, target, 0, "direct");
        let pair = |tag| self.run_one(column, row, target, 1, tag);
        let (direct, pair_steps) = if column.kind == ClientKind::Kernel {
            (direct()?, pair("pair")?)
        } else {
            std::thread::scope(|scope| {
                let other = scope.spawn(direct);
                let pair_steps = pair("pair");
                let direct = other.join().unwrap_or_else(|_| {
                    Err(LabError::Format { what: "the direct run".into(), detail: "it panicked".into() })
                });
                Ok::<_, LabError>((direct?, pair_steps?))
            })?
        };
        let is_worse = !differences(&direct, &pair_steps).is_empty();
        let again = if is_worse { Some(pair("again")?) } else { None };
        Ok(Cell { row: row_name(row), column: column.name, direct, pair: pair_steps, again })
    }

    fn run_one(
        &self,
        column: &Column,
        (dialect, protected): (Dialect, Protected),
        target: &Target,
        way: usize,
        tag: &str,
    ) -> Result<Steps> {
        let server = if way == 0 { target.direct } else { target.pair };
        let kerberos = target.kerberos.as_ref().and_then(|both| both.get(way)).cloned();
        let account = target.account.clone();
        let login = Login { server, share: SHARE.into(), account, kerberos, dialect, protected };
        let folder = format!("{}-{}-{tag}", column.name, row_name((dialect, protected)));
        let back = self.scratch.make_dir(&folder)?;
        let work = ShareWork::new(&self.sent, &back, &folder);
        let mut steps = match column.kind {
            ClientKind::Smbclient => work_with_smbclient(&self.place, &login, &work)?,
            ClientKind::Rclone => work_with_rclone(&self.place, &login, &work)?,
            ClientKind::Kernel => {
                work_with_kernel(available(&self.kernel)?, &login, &work, column.mount_options)?
            }
            kind => available(&self.python)?.work(kind, &self.place, &login, &work)?,
        };
        work.judge(&target.share_path, &mut steps)?;
        Ok(steps)
    }
}

/// The value, or the reason why it is not there.
fn available<T>(result: &Result<T>) -> Result<&T> {
    result.as_ref().map_err(|error| LabError::Unavailable { what: "it".into(), remedy: error.to_string() })
}

/// Where the kernel's client can have several channels. (With the ciphers of 256 bits it waits for ever, also directly.)
fn has_multichannel(dialect: Dialect, protected: Protected) -> bool {
    let can_protect = match protected {
        Protected::Signed(algorithm) => algorithm == SigningAlgorithm::AesCmac,
        Protected::Sealed(cipher) => matches!(cipher, Cipher::Aes128Gcm | Cipher::Aes128Ccm),
    };
    dialect >= Dialect::Smb300 && can_protect
}

impl Column {
    /// Whether the client can be brought to make such a session. With NTLM the server decides; the domain controller
    /// leaves everything to the client.
    fn can(&self, (dialect, protected): (Dialect, Protected), is_kerberos: bool) -> bool {
        if !self.mount_options.is_empty() && !has_multichannel(dialect, protected) {
            return false;
        }
        if !is_kerberos {
            return true;
        }
        let of_dialect = dialect.protections();
        let first_of_kind = of_dialect.iter().find(|other| other.is_sealed() == protected.is_sealed());
        match self.kind {
            ClientKind::Smbclient | ClientKind::Libsmbclient => true,
            ClientKind::Impacket => Some(&protected) == first_of_kind && !protected.is_sealed(),
            ClientKind::Smbprotocol => dialect == Dialect::Smb311 && Some(&protected) == first_of_kind,
            ClientKind::Rclone | ClientKind::Kernel => {
                dialect == Dialect::Smb311 && Some(&protected) == first_of_kind
            }
        }
    }
}

impl Cell {
    /// Counts its steps, and says in a word how it went.
    fn verdict(&self, name: &str, part: &mut Part) -> String {
        let worked: Vec<&String> =
            self.direct.by_name.keys().filter(|step| self.direct.is_done(step)).collect();
        part.unsupported += self.direct.by_name.len() - worked.len();
        let differing = differences(&self.direct, &self.pair);
        let is_mended = |step: &&String| self.again.as_ref().is_some_and(|again| again.is_done(step));
        let (mended, failed): (Vec<&String>, Vec<&String>) = differing.iter().partition(is_mended);
        part.flaky.extend(mended.iter().map(|step| format!("{name} {step}")));
        for step in &failed {
            let problem = self.pair.by_name.get(*step).cloned().flatten();
            let problem = problem.unwrap_or_else(|| "it was not reached".into());
            part.failures.push(format!("{name} {step}: {problem}"));
        }
        part.passed += worked.len() - failed.len();
        match (worked.len() > 1, failed.len()) {
            // Logging on alone is not much.
            (false, 0) => "cannot".into(),
            (true, 0) => format!("{} ok", worked.len()),
            (_, count) => format!("{count} of {} FAILED", worked.len()),
        }
    }
}

/// Steps that work in the first and not in the second.
fn differences(direct: &Steps, pair: &Steps) -> Vec<String> {
    direct.by_name.keys().filter(|step| direct.is_done(step) && !pair.is_done(step)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(list: &[(&str, bool)]) -> Steps {
        let mut steps = Steps::default();
        list.iter().for_each(|(name, is_ok)| steps.set(name, (!is_ok).then(|| "why".into())));
        steps
    }

    #[test]
    fn a_step_that_works_directly_must_work_through_the_pair() {
        let cell = Cell {
            row: "r".into(),
            column: "c",
            direct: steps(&[("put", true), ("get", true), ("list", true), ("times", false)]),
            pair: steps(&[("put", true), ("get", false)]),
            again: Some(steps(&[("get", false), ("list", true)])),
        };
        let mut part = Part::new("p");
        assert_eq!(cell.verdict("n", &mut part), "1 of 3 FAILED");
        assert_eq!(part.failures, ["n get: why"]);
        assert_eq!(part.flaky, ["n list"]);
        assert_eq!((part.passed, part.unsupported), (2, 1));
    }

    #[test]
    fn clients_that_cannot_choose_are_asked_once_for_each_dialect() {
        let asked = |name: &str, is_kerberos| {
            let column = COLUMNS.iter().find(|column| column.name == name).unwrap();
            let all = Dialect::ALL.into_iter().flat_map(|d| d.protections().into_iter().map(move |p| (d, p)));
            all.filter(|row| column.can(*row, is_kerberos)).count()
        };
        assert_eq!(asked("smbclient", true), 13);
        assert_eq!(asked("impacket", true), 5);
        assert_eq!(asked("smbprotocol", true), 2);
        assert_eq!(asked("kernel", false), 13);
        assert_eq!(asked("multichannel", false), 7);
    }
}
