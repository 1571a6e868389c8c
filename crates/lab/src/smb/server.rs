//! Samba with a configuration, folders, users and a port of its own: nothing of a system-wide Samba is touched.

use super::account::{Account, account_environment, uid, write_password_hashes};
use super::newer::NewerSamba;
use super::protocol::{Cipher, Dialect, SigningAlgorithm};
use super::{SHARE, SHARE_SEALED};
use crate::corpus::{FileSpec, write_folder};
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, required, wait_until};
use crate::scratch::Scratch;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Password of the current user, if no accounts are given. It guards nothing: the server is reachable from this machine only.
const PASSWORD: &str = "isthmus-lab";

/// File with the users' NT hashes.
const HASHES: &str = "password-hashes";

/// Folders of the server besides the share.
const FOLDERS: [&str; 7] = ["private", "state", "cache", "lock", "pid", "ncalrpc", "log"];

/// What the server asks of its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// As the client wishes.
    #[default]
    Auto,
    /// Every message is signed.
    Mandatory,
}

/// Whether the server encrypts whole sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionEncryption {
    /// As the client wishes.
    #[default]
    Auto,
    /// If the client says at first that it can.
    Desired,
    /// Clients that do not encrypt are refused.
    Required,
}

/// How the server behaves.
#[derive(Clone, Debug, Default)]
pub struct SambaOptions {
    /// Message signing.
    pub signing: Signing,
    /// Whether the share refuses clients that do not encrypt. (The share [`SHARE_SEALED`] always does.)
    pub encrypt: bool,
    /// Whether whole sessions are encrypted, from their log-on.
    pub session_encryption: SessionEncryption,
    /// The users; none: the one that this process runs as. Needs root and nss_wrapper.
    pub accounts: Vec<Account>,
    /// Oldest and newest dialect; none: all.
    pub dialects: Option<(Dialect, Dialect)>,
    /// Signing algorithms of 3.1.1 in order of preference; empty: Samba's own list.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Ciphers of 3.1.1 in order of preference; empty: Samba's own list.
    pub ciphers: Vec<Cipher>,
    /// Whether a session may have one connection only.
    pub is_single_channel: bool,
    /// Whether streams, access lists, attributes and durable handles are as Windows has them.
    pub is_like_windows: bool,
    /// Another Samba than the system's.
    pub newer: Option<NewerSamba>,
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
    accounts: Vec<Account>,
    /// Whether the users have numbers of their own instead of this process's.
    is_wrapped: bool,
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
        for folder in FOLDERS {
            scratch.make_dir(folder)?;
        }
        let configuration =
            scratch.write("smb.conf", configuration(scratch.path(), place, listen, options))?;
        let (accounts, environment) = if options.accounts.is_empty() {
            (vec![Account::new(&current_user()?, PASSWORD)], Vec::new())
        } else {
            open_to_accounts(&scratch, &share_path)?;
            (options.accounts.clone(), account_environment(scratch.path(), &options.accounts)?)
        };
        for account in &accounts {
            add_user(&configuration, account, &environment, options)?;
        }
        write_password_hashes(&scratch.join(HASHES), &accounts)?;
        let mut words = options.newer.as_ref().map(NewerSamba::prefix).unwrap_or_default();
        words.push(smbd.into());
        let mut spec = ProcSpec { command: words, ..ProcSpec::new("smbd", "", scratch.join("smbd.log")) }
            // Every lab process leads a group of its own already, and smbd would fail to become a leader again.
            .args(["--foreground", "--no-process-group", "--debug-stdout", "-d1", "-s"])
            .args([&configuration])
            .place(place);
        spec.environment = environment;
        let process = Proc::spawn(&spec)?;
        let is_wrapped = !options.accounts.is_empty();
        let mut samba = Samba { process, address: listen, share_path, accounts, is_wrapped, scratch };
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

    /// User and password that the server knows; with several, the first.
    pub fn credentials(&self) -> (&str, &str) {
        self.accounts.first().map_or(("", ""), |account| (&account.name, &account.password))
    }

    /// All users that the server knows.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// A file with the users' NT hashes, in the form of smbpasswd.
    pub fn password_hashes(&self) -> PathBuf {
        self.scratch.join(HASHES)
    }

    /// Puts files on the share without any client; they belong to the first user. Returns the sum of their lengths.
    ///
    /// # Errors
    /// A file or folder cannot be made or given away.
    pub fn store(&self, folder: &str, files: &[FileSpec]) -> Result<u64> {
        let top = self.share_path.join(folder);
        let bytes = write_folder(&top, files)?;
        if !self.is_wrapped {
            return Ok(bytes);
        }
        // Folders between the file and the top belong to it too.
        let paths = files.iter().map(|file| top.join(&file.path));
        let owner = nix::unistd::Uid::from_raw(uid(0));
        for path in paths.chain([top.clone()]) {
            for part in path.ancestors().take_while(|part| part.starts_with(&top)) {
                nix::unistd::chown(part, Some(owner), None)
                    .context(|| format!("giving {}", part.display()))?;
            }
        }
        Ok(bytes)
    }

    /// Removes everything from the share.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn empty_share(&self) -> Result<()> {
        let listing = || format!("listing {}", self.share_path.display());
        for entry in std::fs::read_dir(&self.share_path).context(listing)? {
            let path = entry.context(listing)?.path();
            let is_folder = path.symlink_metadata().is_ok_and(|data| data.is_dir());
            let result = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            result.context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
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
         server signing = {signing}\nkernel oplocks = no\n\
         load printers = no\nprintcap name = /dev/null\ndisable spoolss = yes\nusershare max shares = 0\n",
        port = listen.port()
    );
    if *place == Place::Local {
        // On the host's own network the server must not be reachable from outside.
        text.push_str("interfaces = 127.0.0.0/8\nbind interfaces only = yes\n");
    }
    let (oldest, newest) = options.dialects.unwrap_or((Dialect::Smb202, Dialect::Smb311));
    add_line(&mut text, "server min protocol", oldest.samba());
    add_line(&mut text, "server max protocol", newest.samba());
    let signing: Vec<_> = options.signing_algorithms.iter().map(|algorithm| algorithm.as_str()).collect();
    let ciphers: Vec<_> = options.ciphers.iter().map(|cipher| cipher.as_str()).collect();
    let lists = [("server smb3 signing algorithms", signing), ("server smb3 encryption algorithms", ciphers)];
    for (option, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        add_line(&mut text, option, &list.join(", "));
    }
    match options.session_encryption {
        SessionEncryption::Auto => {}
        SessionEncryption::Desired => add_line(&mut text, "smb encrypt", "desired"),
        SessionEncryption::Required => add_line(&mut text, "smb encrypt", "required"),
    }
    if options.is_single_channel {
        add_line(&mut text, "server multi channel support", "no");
    }
    if options.is_like_windows {
        text.push_str(LIKE_WINDOWS);
    }
    add_lines(&mut text, &options.global);
    for share in [SHARE, SHARE_SEALED] {
        text.push_str(&format!("[{share}]\npath = {base}/share\nread only = no\n"));
        if options.encrypt || share == SHARE_SEALED {
            add_line(&mut text, "smb encrypt", "required");
        }
        if options.is_like_windows {
            text.push_str("vfs objects = streams_xattr acl_xattr\nacl_xattr:ignore system acls = yes\n");
        }
        add_lines(&mut text, &options.share);
    }
    text
}

/// What is stored of each file, and nothing that other programs of this machine would have to see.
const LIKE_WINDOWS: &str = "kernel share modes = no\nposix locking = no\noplocks = yes\nsmb2 leases = yes\n\
    durable handles = yes\nstrict sync = yes\nunix extensions = no\nea support = yes\nstore dos attributes = yes\n\
    map archive = no\nmap hidden = no\nmap system = no\nmap readonly = no\ncreate mask = 0664\n\
    directory mask = 0775\ndeadtime = 0\n";

fn add_line(text: &mut String, option: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{option} = {value}");
}

fn add_lines(text: &mut String, lines: &[(String, String)]) {
    for (option, value) in lines {
        add_line(text, option, value);
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

/// Lets users other than the one that this process runs as reach the share; the secrets stay closed.
fn open_to_accounts(scratch: &Scratch, share_path: &Path) -> Result<()> {
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .context(|| format!("setting the mode of {}", path.display()))
    };
    mode(&scratch.join("private"), 0o700)?;
    mode(share_path, 0o777)?;
    mode(scratch.path(), 0o711)?;
    // The folder's owner counts for some rights, and it must be one that clients can be.
    let owner = nix::unistd::Uid::from_raw(uid(0));
    nix::unistd::chown(share_path, Some(owner), None).context(|| "giving the share to its first user".into())
}

fn add_user(
    configuration: &Path,
    account: &Account,
    environment: &[(String, String)],
    options: &SambaOptions,
) -> Result<()> {
    let mut words = options.newer.as_ref().map(NewerSamba::prefix).unwrap_or_default();
    words.push(required("pdbedit", "samba")?.into());
    let Some((program, before)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(before).arg("-s").arg(configuration).args(["-a", "-t", "-u", &account.name]);
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(|| "starting pdbedit".into())?;
    if let Some(mut input) = child.stdin.take() {
        let twice = format!("{0}\n{0}\n", account.password);
        input.write_all(twice.as_bytes()).context(|| "giving pdbedit the password".into())?;
    }
    let output = child.wait_with_output().context(|| "waiting for pdbedit".into())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::Command { program: "pdbedit".into(), status: output.status.to_string(), output: text })
}
