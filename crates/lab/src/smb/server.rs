//! Samba with a configuration, folders, users and a port of its own: nothing of a system-wide Samba is touched.

use super::SHARE;
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, find_program, wait_until};
use crate::scratch::Scratch;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Password of the lab's user. It guards nothing: the server is reachable from this machine only.
const PASSWORD: &str = "isthmus-lab";

/// What the server asks of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// As the client wishes.
    #[default]
    Auto,
    /// Every message is signed.
    Mandatory,
}

/// How the server behaves.
#[derive(Clone, Debug, Default)]
pub struct SambaOptions {
    /// Message signing.
    pub signing: Signing,
    /// Whether the share refuses clients that do not encrypt.
    pub encrypt: bool,
    /// Further lines for the global section: option and value.
    pub global: Vec<(String, String)>,
    /// Further lines for the share.
    pub share: Vec<(String, String)>,
}

/// A running server; dropping it stops it and removes its folders.
pub struct Samba {
    process: Proc,
    address: SocketAddr,
    share_path: PathBuf,
    user: String,
    scratch: Scratch,
}

impl Samba {
    /// Starts a server in `place`. On a namespace it listens on every address there.
    ///
    /// # Errors
    /// Samba is not installed, the port is taken, or it does not come up; the error shows the end of its log.
    pub fn start(place: &Place, listen: SocketAddr, options: &SambaOptions) -> Result<Samba> {
        let smbd = required("smbd", "samba")?;
        let scratch = Scratch::new("samba")?;
        let share_path = scratch.make_dir("share")?;
        for folder in ["private", "state", "cache", "lock", "pid", "ncalrpc", "log"] {
            scratch.make_dir(folder)?;
        }
        let configuration =
            scratch.write("smb.conf", configuration(scratch.path(), place, listen, options))?;
        let user = current_user()?;
        add_user(&configuration, &user)?;
        let spec = ProcSpec::new("smbd", smbd, scratch.join("smbd.log"))
            // Every lab process leads a group of its own already, and smbd would fail to become a leader again.
            .args(["--foreground", "--no-process-group", "--debug-stdout", "-d1", "-s"])
            .args([&configuration])
            .place(place);
        let process = Proc::spawn(&spec)?;
        let mut samba = Samba { process, address: listen, share_path, user, scratch };
        samba.wait_ready(place)?;
        Ok(samba)
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The folder behind the share, as this machine sees it.
    pub fn share_path(&self) -> &Path {
        &self.share_path
    }

    /// User and password that the server knows.
    pub fn credentials(&self) -> (&str, &str) {
        (&self.user, PASSWORD)
    }

    /// The server's process.
    pub fn process(&mut self) -> &mut Proc {
        &mut self.process
    }

    /// The folder with its configuration and logs.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    fn wait_ready(&mut self, place: &Place) -> Result<()> {
        let address = self.address;
        let process = &mut self.process;
        wait_until("the start of smbd", START_LIMIT, || {
            if let Some(status) = process.exit_status()? {
                return Err(LabError::Command {
                    program: "smbd".into(),
                    status: status.to_string(),
                    output: process.log_tail(),
                });
            }
            place.run(|| Ok(TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()))
        })
    }
}

/// Finds a program or says which package brings it.
pub(super) fn required(program: &str, package: &str) -> Result<PathBuf> {
    find_program(program).ok_or_else(|| LabError::Unavailable {
        what: format!("the program {program}"),
        remedy: format!("install the package {package}"),
    })
}

fn configuration(base: &Path, place: &Place, listen: SocketAddr, options: &SambaOptions) -> String {
    let base = base.display();
    let signing = match options.signing {
        Signing::Auto => "auto",
        Signing::Mandatory => "mandatory",
    };
    let mut text = format!(
        "[global]\n\
         netbios name = ISTHMUSLAB\nworkgroup = ISTHMUSLAB\nserver role = standalone server\n\
         smb ports = {port}\ndisable netbios = yes\n\
         private dir = {base}/private\nstate directory = {base}/state\ncache directory = {base}/cache\n\
         lock directory = {base}/lock\npid directory = {base}/pid\nncalrpc dir = {base}/ncalrpc\n\
         log file = {base}/log/log.%m\nmax log size = 10000\n\
         passdb backend = tdbsam\nmap to guest = never\n\
         server min protocol = SMB2_02\nserver max protocol = SMB3_11\n\
         server signing = {signing}\nkernel oplocks = no\n\
         load printers = no\nprintcap name = /dev/null\ndisable spoolss = yes\nusershare max shares = 0\n",
        port = listen.port()
    );
    if *place == Place::Local {
        // On the host's own network the server must not be reachable from outside.
        text.push_str("interfaces = 127.0.0.0/8\nbind interfaces only = yes\n");
    }
    add_lines(&mut text, &options.global);
    text.push_str(&format!("[{SHARE}]\npath = {base}/share\nread only = no\n"));
    if options.encrypt {
        text.push_str("smb encrypt = required\n");
    }
    add_lines(&mut text, &options.share);
    text
}

fn add_lines(text: &mut String, lines: &[(String, String)]) {
    for (option, value) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{option} = {value}");
    }
}

/// The account that this process runs as; without root the server can serve nobody else.
fn current_user() -> Result<String> {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).context(|| "looking up the current user".into())?;
    user.map(|user| user.name).ok_or_else(|| LabError::Unavailable {
        what: format!("an account with the number {uid}"),
        remedy: "Samba needs the current user to have a name".into(),
    })
}

fn add_user(configuration: &Path, user: &str) -> Result<()> {
    let pdbedit = required("pdbedit", "samba")?;
    let mut command = Command::new(pdbedit);
    command.arg("-s").arg(configuration).args(["-a", "-t", "-u", user]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(|| "starting pdbedit".into())?;
    if let Some(mut input) = child.stdin.take() {
        let twice = format!("{PASSWORD}\n{PASSWORD}\n");
        input.write_all(twice.as_bytes()).context(|| "giving pdbedit the password".into())?;
    }
    let output = child.wait_with_output().context(|| "waiting for pdbedit".into())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::Command { program: "pdbedit".into(), status: output.status.to_string(), output: text })
}
