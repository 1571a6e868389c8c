//! Clients of many makers, each of which can do the [`ShareWork`].

use super::kernel::KernelClient;
use super::work::{FAR, FAR_BYTES, Login, ShareWork, Steps, run_limited};
use crate::error::{LabError, Result};
use crate::place::Place;
use crate::proc::{ProcSpec, required, run};
use crate::scratch::Scratch;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Longest time of the kernel's client, its boot included.
const KERNEL_LIMIT: Duration = Duration::from_secs(100);

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKind {
    /// Samba's program.
    Smbclient,
    /// Samba's library, by its Python binding.
    Libsmbclient,
    /// A Python library that is close to the standard.
    Smbprotocol,
    /// A Python library that is not.
    Impacket,
    /// A Go library, by rclone.
    Rclone,
    /// The Linux kernel's client in user-mode Linux.
    Kernel,
}

impl ClientKind {
    /// All.
    pub const ALL: [ClientKind; 6] = [
        ClientKind::Smbclient,
        ClientKind::Libsmbclient,
        ClientKind::Smbprotocol,
        ClientKind::Impacket,
        ClientKind::Rclone,
        ClientKind::Kernel,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            ClientKind::Smbclient => "smbclient",
            ClientKind::Libsmbclient => "libsmbclient",
            ClientKind::Smbprotocol => "smbprotocol",
            ClientKind::Impacket => "impacket",
            ClientKind::Rclone => "rclone",
            ClientKind::Kernel => "kernel",
        }
    }
}

/// Does the work with smbclient.
///
/// # Errors
/// It is not installed. What goes wrong in a step is told in the steps.
pub fn work_with_smbclient(place: &Place, login: &Login, work: &ShareWork) -> Result<Steps> {
    let program = required("smbclient", "smbclient")?;
    let scratch = Scratch::new("smbclient")?;
    let configuration = scratch.write("smb.conf", login.samba_configuration())?;
    let commands = |commands: &str| {
        let mut spec = ProcSpec::new("smbclient", &program, "")
            .args(["-s".as_ref(), configuration.as_os_str()])
            .args([&login.unc(), "-p", &login.server.port().to_string(), "--timeout=200", "-c", commands]);
        spec = match &login.kerberos {
            None => spec.args(["-U", &format!("{}%{}", login.account.name, login.account.password)]),
            Some(_) => spec.args(["--use-kerberos=required", "-U", &login.account.name]),
        };
        spec.environment = login.environment();
        run_limited(spec.place(place))
    };
    let (folder, sent, back) = (&work.folder, work.sent.display(), work.back.display());
    let mut steps = Steps::default();
    steps.attempt("put", || {
        commands(&format!(
            "prompt OFF; recurse ON; mkdir \"{folder}\"; cd \"{folder}\"; lcd \"{sent}\"; mput *"
        ))
    });
    let listing = steps.attempt("list", || commands(&format!("cd \"{folder}\"; ls")));
    steps.listed = listing.as_deref().map(smbclient_names).unwrap_or_default();
    steps.attempt("get", || {
        commands(&format!("prompt OFF; recurse ON; cd \"{folder}\"; lcd \"{back}\"; mget *"))
    });
    let (old, new) = &work.rename;
    steps.attempt("rename", || commands(&format!("cd \"{folder}\"; rename \"{old}\" \"{new}\"")));
    steps.attempt("delete", || commands(&format!("cd \"{folder}\"; del \"{}\"", work.delete)));
    Ok(steps)
}

/// Does the work with rclone.
///
/// # Errors
/// It is not installed, or the log-on is by Kerberos. What goes wrong in a step is told in the steps.
pub fn work_with_rclone(place: &Place, login: &Login, work: &ShareWork) -> Result<Steps> {
    let program = required("rclone", "rclone")?;
    if login.kerberos.is_some() {
        return Err(no_kerberos("rclone"));
    }
    let shown = program.display().to_string();
    let obscured = run(&Place::Local, &[&shown, "obscure", &login.account.password])?;
    let remote = |name: &str| format!("lab:{}/{}{name}", login.share, work.folder);
    let rclone = |args: &[&str]| {
        // A step that fails at first must not be hidden by a second attempt.
        let mut spec = ProcSpec::new("rclone", &program, "")
            .args(["--retries", "1", "--low-level-retries", "1", "--timeout", "60s", "--contimeout", "20s"])
            .args(args);
        spec.environment = login.environment();
        let (host, port) = (login.server.ip().to_string(), login.server.port().to_string());
        let settings = [
            ("RCLONE_CONFIG", ""),
            ("RCLONE_CONFIG_LAB_TYPE", "smb"),
            ("RCLONE_CONFIG_LAB_HOST", &host),
            ("RCLONE_CONFIG_LAB_PORT", &port),
            ("RCLONE_CONFIG_LAB_USER", &login.account.name),
            ("RCLONE_CONFIG_LAB_PASS", obscured.trim()),
        ];
        spec.environment.extend(settings.map(|(key, value)| (key.into(), value.into())));
        run_limited(spec.place(place))
    };
    let local = |path: &Path| path.display().to_string();
    let mut steps = Steps::default();
    steps.attempt("put", || rclone(&["copy", &local(&work.sent), &remote("")]));
    let listing = steps.attempt("list", || rclone(&["lsf", &remote("")]));
    let names = listing.as_deref().unwrap_or_default().lines();
    steps.listed = names.map(|line| line.trim_end_matches('/').to_string()).collect();
    steps.attempt("get", || rclone(&["copy", &remote(""), &local(&work.back)]));
    let (old, new) = &work.rename;
    steps.attempt("rename", || rclone(&["moveto", &remote(&format!("/{old}")), &remote(&format!("/{new}"))]));
    steps.attempt("delete", || rclone(&["deletefile", &remote(&format!("/{}", work.delete))]));
    Ok(steps)
}

/// Does the work with the Linux kernel's client; `extra` are further mount options, such as `multichannel`.
///
/// # Errors
/// The log-on is by Kerberos. What goes wrong in a step is told in the steps.
pub fn work_with_kernel(
    kernel: &KernelClient,
    login: &Login,
    work: &ShareWork,
    extra: &[&str],
) -> Result<Steps> {
    if login.kerberos.is_some() {
        return Err(no_kerberos("the kernel's client"));
    }
    let output = kernel.run(&kernel_script(login, work, extra), KERNEL_LIMIT);
    let mut steps = Steps::default();
    match output {
        Err(error) => steps.set("mount", Some(error.to_string().replace('\n', " "))),
        Ok(output) => read_script_output(&output, &mut steps),
    }
    Ok(steps)
}

/// Mounts and works; every step prints how it went.
fn kernel_script(login: &Login, work: &ShareWork, extra: &[&str]) -> String {
    let (server, port, share) = (login.server.ip(), login.server.port(), &login.share);
    let protection = if login.protected.is_sealed() { "seal" } else { "sign" };
    let options = [
        format!("username={},password={}", login.account.name, login.account.password),
        format!("port={port},vers={},iocharset=utf8,sec=ntlmssp,{protection}", login.dialect.as_str()),
        extra.join(","),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let (sent, folder) = (work.sent.display(), &work.folder);
    let ((old, new), delete, far_bytes) = (&work.rename, &work.delete, String::from_utf8_lossy(FAR_BYTES));
    format!(
        r#"
step() {{
    local name=$1 printed; shift
    if printed=$("$@" 2>&1); then echo "STEP $name"; else echo "STEP $name	status $?: ${{printed//$'\n'/ }}"; fi
}}
mount_it() {{ mkdir -p /mnt/s && mount -t cifs //{server}/{share} /mnt/s -o {options}; }}
# What is read must come from the server and not from this kernel's memory.
again() {{ umount /mnt/s && mount_it; }}
write_far() {{ printf '%s' '{far_bytes}' | dd of="/mnt/s/{folder}.far" bs=64k oflag=seek_bytes seek={FAR} status=none; }}
read_far() {{ [ "$(dd if="/mnt/s/{folder}.far" bs=64k iflag=skip_bytes skip={FAR} status=none)" = '{far_bytes}' ]; }}
set_times() {{ touch -m -d @981173106.1234567 "/mnt/s/{folder}/{new}"; }}
see_times() {{ [ "$(stat -c %.9Y "/mnt/s/{folder}/{new}")" = 981173106.123456700 ]; }}
step mount mount_it
mountpoint -q /mnt/s || exit 0
step put cp -r '{sent}' '/mnt/s/{folder}'
step remount again
step list ls -A '/mnt/s/{folder}'
ls -A '/mnt/s/{folder}' | sed 's/^/LISTED /'
# It is compared inside, since nothing can be written outside.
step 'get and compare' diff -r '{sent}' '/mnt/s/{folder}'
step rename mv '/mnt/s/{folder}/{old}' '/mnt/s/{folder}/{new}'
step delete rm '/mnt/s/{folder}/{delete}'
step far write_far
step times set_times
step 'remount again' again
step 'far read' read_far
step 'times read' see_times
step unmount umount /mnt/s
true
"#,
        options = options.join(",")
    )
}

fn read_script_output(output: &str, steps: &mut Steps) {
    for line in output.lines() {
        if let Some(step) = line.strip_prefix("STEP ") {
            let (name, problem) = step.split_once('\t').map_or((step, None), |(name, why)| (name, Some(why)));
            steps.set(name, problem.map(String::from));
        } else if let Some(name) = line.strip_prefix("LISTED ") {
            steps.listed.push(name.into());
        }
    }
}

/// Names in a listing of smbclient: two spaces, the name, padding, attributes, size, date.
fn smbclient_names(listing: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.strip_prefix("  ")?;
        // From the right: a date of five words, the size, attributes.
        let mut end = rest.trim_end();
        for _ in 0..6 {
            end = end[..end.rfind(char::is_whitespace)?].trim_end();
        }
        let attributes = end.rfind(char::is_whitespace)?;
        let is_attributes = end[attributes..].trim().chars().all(|c| c.is_ascii_uppercase());
        let name = if is_attributes { end[..attributes].trim_end() } else { end };
        (name != "." && name != "..").then(|| name.to_string())
    };
    listing.lines().filter_map(name).collect()
}

fn no_kerberos(who: &str) -> LabError {
    LabError::Unavailable {
        what: format!("Kerberos in {who}"),
        remedy: "this client is tested with NTLM only".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_are_found_in_a_listing() {
        let listing = "  .                                   D        0  Mon Nov 30 19:36:26 2026\n  \
                       two  spaces and a trailing word .txt      A    12345  Mon Nov 30 19:36:26 2026\n  \
                       フォルダ                            D        0  Mon Nov 30 19:36:26 2026\n\n\
                       \t\t264212084 blocks of size 1024. 40144992 blocks available\n";
        assert_eq!(smbclient_names(listing), ["two  spaces and a trailing word .txt", "フォルダ"]);
    }

    #[test]
    fn steps_are_read_from_what_a_script_prints() {
        let mut steps = Steps::default();
        read_script_output("STEP mount\nSTEP put\tstatus 1: cp: no\nLISTED a b\nnoise\n", &mut steps);
        assert!(steps.is_done("mount"));
        assert_eq!(steps.by_name["put"].as_deref(), Some("status 1: cp: no"));
        assert_eq!(steps.listed, ["a b"]);
    }
}
