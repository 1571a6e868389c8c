//! A domain controller of Active Directory's kind: Samba with Kerberos, a share, a user and the keytab of its service.
//!
//! It needs well-known ports and folders that other servers of this machine also use, so it lives in a network namespace
//! with a mount namespace of its own.

use super::account::{Account, wrapper_library, write_password_hashes};
use super::work::Kerberos;
use super::{SHARE, SHARE_SEALED};
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{Proc, ProcSpec, find_program, required, run, wait_until};
use crate::scratch::Scratch;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the server may take to listen on all its ports.
const START_LIMIT: Duration = Duration::from_secs(60);

const REALM: &str = "LAB.TEST";
const DOMAIN: &str = "LAB";
const HOST: &str = "dc1";

/// Password of the administrator, whom nobody uses here.
const ADMIN_PASSWORD: &str = "Adm1nPassw0rd!";

/// Ports of SMB and of the key distribution centre.
const SMB_PORT: u16 = 445;
const KDC_PORT: u16 = 88;

/// File with the keys of the SMB service.
const KEYTAB: &str = "cifs.keytab";

/// File with the users' NT hashes.
const HASHES: &str = "password-hashes";

/// Folders that the server expects.
const FOLDERS: [&str; 6] = ["pid", "ncalrpc", "ntp", "log", "share", "cache"];

/// A running domain controller; dropping it stops it and removes its folders.
pub struct Domain {
    /// First, so that it ends before its folders go.
    _process: Proc,
    address: IpAddr,
    accounts: Vec<Account>,
    scratch: Scratch,
}

impl Domain {
    /// Makes a domain with these users and starts its controller; takes about half a minute.
    ///
    /// # Errors
    /// `place` is not a namespace, something is not installed, or it does not come up; the error shows the end of its log.
    pub fn start(place: &Place, address: IpAddr, accounts: &[Account]) -> Result<Domain> {
        if *place == Place::Local {
            let what = "a network namespace for the domain controller".to_string();
            return Err(LabError::Unavailable { what, remedy: "run as root".into() });
        }
        let samba = required("samba", "samba-ad-dc or samba")?;
        required("samba-tool", "samba-common-bin")?;
        let scratch = Scratch::new("domain")?;
        provision(place, &scratch, address)?;
        for folder in FOLDERS {
            scratch.make_dir(folder)?;
        }
        for (path, mode) in [(scratch.join("share"), 0o777), (scratch.path().into(), 0o711)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
                .context(|| format!("setting the mode of {}", path.display()))?;
        }
        let configuration = scratch.join("etc/smb.conf");
        scratch.write("etc/smb.conf", configuration_text(scratch.path(), address))?;
        for account in accounts {
            tool(place, &configuration, &["user", "create", &account.name, &account.password])?;
        }
        let keytab = scratch.join(KEYTAB).display().to_string();
        let principal = format!("--principal=cifs/{}", host_name());
        tool(place, &configuration, &["domain", "exportkeytab", &keytab, &principal])?;
        write_password_hashes(&scratch.join(HASHES), accounts)?;
        let process = spawn(place, &samba, &configuration, &scratch)?;
        let mut domain = Domain { _process: process, address, accounts: accounts.into(), scratch };
        domain.wait_ready(place)?;
        Ok(domain)
    }

    /// The address of its SMB service.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.address, SMB_PORT))
    }

    /// The folder behind its share.
    pub fn share_path(&self) -> PathBuf {
        self.scratch.join("share")
    }

    /// A file with the keys of its SMB service.
    pub fn keytab(&self) -> PathBuf {
        self.scratch.join(KEYTAB)
    }

    /// A file with the users' NT hashes, in the form of smbpasswd.
    pub fn password_hashes(&self) -> PathBuf {
        self.scratch.join(HASHES)
    }

    /// Its users.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Gets tickets for a user in `place` and says how clients use them to reach the service by way of `server`.
    ///
    /// # Errors
    /// The Kerberos programs are not installed, or tickets are refused.
    pub fn log_on(&self, place: &Place, account: &Account, server: IpAddr) -> Result<Kerberos> {
        let (kinit, kvno) = (required("kinit", "krb5-user")?, required("kvno", "krb5-user")?);
        let library = wrapper_library()?.display().to_string();
        let tag = format!("{}-{server}", account.name);
        let hosts =
            self.scratch.write(&format!("hosts-{tag}"), format!("{server} {} {HOST}\n", host_name()))?;
        let configuration = self.scratch.write("krb5.conf", kerberos_configuration(self.address))?;
        let cache = self.scratch.join(&format!("tickets-{tag}")).display().to_string();
        let environment = vec![
            ("KRB5_CONFIG".to_string(), configuration.display().to_string()),
            ("KRB5CCNAME".to_string(), cache),
            ("LD_PRELOAD".to_string(), library),
            ("NSS_WRAPPER_HOSTS".to_string(), hosts.display().to_string()),
        ];
        let user = format!("{}@{REALM}", account.name);
        let service = format!("cifs/{}@{REALM}", host_name());
        with_input(place, &kinit, &user, &environment, &format!("{}\n", account.password))?;
        with_input(place, &kvno, &service, &environment, "")?;
        Ok(Kerberos { realm: REALM.into(), server_name: host_name(), kdc: self.address, environment })
    }

    fn wait_ready(&mut self, place: &Place) -> Result<()> {
        let ports = [SMB_PORT, KDC_PORT].map(|port| SocketAddr::from((self.address, port)));
        let process = &mut self._process;
        wait_until("the start of the domain controller", START_LIMIT, || {
            if let Some(status) = process.exit_status()? {
                return Err(LabError::Command {
                    program: "samba".into(),
                    status: status.to_string(),
                    output: process.log_tail(),
                });
            }
            let listens = |address: &SocketAddr| {
                TcpStream::connect_timeout(address, Duration::from_millis(500)).is_ok()
            };
            place.run(|| Ok(ports.iter().all(listens)))
        })
    }
}

fn host_name() -> String {
    format!("{HOST}.{}", REALM.to_lowercase())
}

fn provision(place: &Place, scratch: &Scratch, address: IpAddr) -> Result<()> {
    let target = format!("--targetdir={}", scratch.path().display());
    let (realm, domain) = (format!("--realm={REALM}"), format!("--domain={DOMAIN}"));
    let (host, ip) = (format!("--host-name={HOST}"), format!("--host-ip={address}"));
    let (password, interfaces) =
        (format!("--adminpass={ADMIN_PASSWORD}"), format!("--option=interfaces={address}/24"));
    let command = [
        "samba-tool",
        "domain",
        "provision",
        "--server-role=dc",
        "--dns-backend=SAMBA_INTERNAL",
        "--use-rfc2307",
        "--option=bind interfaces only=yes",
        &realm,
        &domain,
        &host,
        &ip,
        &password,
        &interfaces,
        &target,
    ];
    run(place, &command).map(drop).map_err(|error| match error {
        LabError::Command { output, .. } if output.contains("setup") && output.contains("No such file") => {
            LabError::Unavailable {
                what: "the templates of a domain".into(),
                remedy: "install the packages samba-ad-provision and samba-dsdb-modules".into(),
            }
        }
        other => other,
    })
}

/// With a private /run/samba: another Samba of this machine would take users from this one's winbindd.
fn spawn(place: &Place, samba: &Path, configuration: &Path, scratch: &Scratch) -> Result<Proc> {
    let unshare = find_program("unshare").ok_or_else(|| LabError::Unavailable {
        what: "the program unshare".into(),
        remedy: "install the package util-linux".into(),
    })?;
    std::fs::create_dir_all("/run/samba").context(|| "making /run/samba".into())?;
    let script = "mount --make-rprivate / && mount -t tmpfs tmpfs /run/samba && exec \"$@\"";
    let spec = ProcSpec::new("samba", unshare, scratch.join("samba.log"))
        .args(["-m", "sh", "-c", script, "sh"])
        .args([samba])
        .args(["--foreground", "--no-process-group", "--debug-stdout", "-d1", "-s"])
        .args([configuration])
        .place(place);
    Proc::spawn(&spec)
}

fn tool(place: &Place, configuration: &Path, words: &[&str]) -> Result<()> {
    let configuration = configuration.display().to_string();
    let mut command = vec!["samba-tool"];
    command.extend(words);
    command.extend(["-s", &configuration]);
    run(place, &command).map(drop)
}

/// Runs `program argument` with an environment and something to read.
fn with_input(
    place: &Place,
    program: &Path,
    argument: &str,
    environment: &[(String, String)],
    input: &str,
) -> Result<()> {
    let mut words = place.command_prefix();
    words.extend([program.display().to_string(), argument.into()]);
    let Some((first, rest)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(first);
    command.args(rest).envs(environment.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = || format!("running {}", program.display());
    let mut child = command.spawn().context(shown)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A program that reads nothing may have ended already.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().context(shown)?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Command {
        program: program.display().to_string(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn kerberos_configuration(kdc: IpAddr) -> String {
    let domain = REALM.to_lowercase();
    format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n rdns = false\n \
         dns_canonicalize_hostname = false\n[realms]\n {REALM} = {{\n  kdc = {kdc}\n }}\n\
         [domain_realm]\n .{domain} = {REALM}\n {domain} = {REALM}\n"
    )
}

fn configuration_text(base: &Path, address: IpAddr) -> String {
    let base = base.display();
    let mut text = format!(
        "[global]\nnetbios name = {HOST}\nrealm = {REALM}\nworkgroup = {DOMAIN}\n\
         server role = active directory domain controller\n\
         server services = s3fs, rpc, ldap, cldap, kdc, winbindd\n\
         interfaces = {address}/24\nbind interfaces only = yes\nsmb ports = {SMB_PORT}\ndisable netbios = yes\n\
         private dir = {base}/private\nstate directory = {base}/state\ncache directory = {base}/cache\n\
         lock directory = {base}\nbinddns dir = {base}/bind-dns\npid directory = {base}/pid\n\
         ncalrpc dir = {base}/ncalrpc\nntp signd socket directory = {base}/ntp\nlog file = {base}/log/log.%m\n\
         idmap_ldb:use rfc2307 = yes\nload printers = no\nprintcap name = /dev/null\ndisable spoolss = yes\n\
         server min protocol = SMB2_02\nserver signing = mandatory\nkernel oplocks = no\n"
    );
    for (share, encrypt) in [(SHARE, "if_required"), (SHARE_SEALED, "required")] {
        // Writing to a string cannot fail.
        let _ = write!(text, "[{share}]\npath = {base}/share\nread only = no\nsmb encrypt = {encrypt}\n");
    }
    // The controller looks for its policies there.
    let _ = write!(text, "[sysvol]\npath = {base}/state/sysvol\nread only = no\n");
    text
}
