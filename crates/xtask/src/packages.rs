//! Programs that are needed beside Rust, and the Debian packages that bring them.

use crate::cargo;
use crate::progress::Progress;
use isthmus_lab::proc::find_program;
use isthmus_lab::{LabError, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program and its package.
pub struct Needed {
    /// Name of the program.
    pub program: &'static str,
    /// Name of the package on Debian and Ubuntu.
    pub package: &'static str,
}

/// For the demo.
pub const DEMO: &[Needed] = &[
    Needed { program: "smbd", package: "samba" },
    Needed { program: "pdbedit", package: "samba-common-bin" },
    Needed { program: "smbclient", package: "smbclient" },
    Needed { program: "ip", package: "iproute2" },
    Needed { program: "cc", package: "gcc" },
    Needed { program: "cmake", package: "cmake" },
];

/// For the benchmark, in addition.
pub const BENCH: &[Needed] = &[
    Needed { program: "linux.uml", package: "user-mode-linux" },
    Needed { program: "mount.cifs", package: "cifs-utils" },
    Needed { program: "mount.nfs", package: "nfs-common" },
    Needed { program: "rpc.mountd", package: "nfs-kernel-server" },
    Needed { program: "modprobe", package: "kmod" },
    Needed { program: "chrt", package: "util-linux" },
    Needed { program: "fio", package: "fio" },
    package("/usr/share/doc/libnss-wrapper/copyright", "libnss-wrapper"),
];

/// For the interop rig, in addition. What is no program is known by its package's own file.
pub const INTEROP: &[Needed] = &[
    Needed { program: "smbtorture", package: "samba-testsuite" },
    Needed { program: "winbindd", package: "winbind" },
    Needed { program: "kinit", package: "krb5-user" },
    Needed { program: "rclone", package: "rclone" },
    package("/usr/share/doc/libnss-wrapper/copyright", "libnss-wrapper"),
    package("/usr/share/doc/samba-vfs-modules/copyright", "samba-vfs-modules"),
    package("/usr/share/doc/samba-dsdb-modules/copyright", "samba-dsdb-modules"),
    package("/usr/share/doc/samba-ad-provision/copyright", "samba-ad-provision"),
    package("/usr/share/doc/python3-markdown/copyright", "python3-markdown"),
    package("/usr/share/doc/python3-smbc/copyright", "python3-smbc"),
    package("/usr/share/doc/python3-venv/copyright", "python3-venv"),
];

const fn package(program: &'static str, package: &'static str) -> Needed {
    Needed { program, package }
}

/// As [`ensure`], but goes on without what cannot be installed: what needs it says so.
pub fn ensure_if_possible(needed: &[&[Needed]], progress: &mut Progress) {
    if let Err(error) = ensure(needed, progress) {
        progress.step(&format!("going on without some programs: {error}"));
    }
}

/// Installs what is missing, as root on Debian and Ubuntu; otherwise says what to install.
///
/// # Errors
/// Something is missing and cannot be installed.
pub fn ensure(needed: &[&[Needed]], progress: &mut Progress) -> Result<()> {
    let missing = missing(needed);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !nix::unistd::geteuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(LabError::Unavailable {
            what: list.clone(),
            remedy: format!("install it; on Debian and Ubuntu: sudo apt-get install {list}"),
        });
    }
    progress.step(&format!("installing {list}"));
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-qq", "-y", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install)
}

fn missing(needed: &[&[Needed]]) -> Vec<&'static str> {
    let all = needed.iter().flat_map(|list| list.iter());
    let mut packages: Vec<&str> =
        all.filter(|needed| find_program(needed.program).is_none()).map(|needed| needed.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Samba's package starts no server here, but asks about one.
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    cargo::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named_and_once() {
        let list: &[Needed] = &[
            Needed { program: "sh", package: "dash" },
            Needed { program: "no-such-a", package: "same" },
            Needed { program: "no-such-b", package: "same" },
        ];
        assert_eq!(missing(&[list]), ["same"]);
    }
}
