//! A machine in miniature: a clean Debian system in a process tree, a file system and a network of its own. No kernel and
//! no init of its own: programs are started by a stand-in for systemctl. It goes when it is dropped, with all that runs on it.

use isthmus_lab::proc::{Proc, ProcSpec, run};
use isthmus_lab::{LabError, Place, Result};
use isthmus_tests::{eventually, within};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest that a script on a machine may take.
const SCRIPT_LIMIT: Duration = Duration::from_secs(180);

/// Makes the system that machines are copies of.
///
/// # Errors
/// debootstrap fails; most often no mirror can be reached.
pub fn clean_debian(folder: &Path) -> Result<PathBuf> {
    let base = folder.join("debian");
    let to = base.display().to_string();
    // What every ordinary installation has, and the smallest one lacks.
    let usual = "--include=iproute2,nftables";
    run(&Place::Local, &["debootstrap", "--variant=minbase", usual, "bookworm", &to])?;
    fs::write(base.join("usr/bin/systemctl"), include_str!("systemctl")).unwrap();
    run(&Place::Local, &["chmod", "755", &format!("{to}/usr/bin/systemctl")])?;
    Ok(base)
}

/// One machine.
pub struct Machine {
    holder: Proc,
    root: PathBuf,
    /// Where it stands in the network.
    pub place: Place,
}

impl Machine {
    /// A copy of `base` in `place`, with further lines for its /etc/hosts. What it writes is kept in `folder`.
    pub fn boot(base: &Path, place: &Place, folder: &Path, name: &str, hosts: &str) -> Machine {
        let own = folder.join(name);
        let root = own.join("root");
        for part in ["root", "upper/etc", "work"] {
            fs::create_dir_all(own.join(part)).unwrap();
        }
        fs::write(own.join("upper/etc/hosts"), format!("127.0.0.1 localhost\n{hosts}")).unwrap();
        let (base, own_path) = (base.display(), own.display());
        let script = format!(
            "cd {own_path}
             mount -t overlay overlay -o lowerdir={base},upperdir=upper,workdir=work root
             mount -t proc proc root/proc
             mount --rbind /dev root/dev
             mount -t tmpfs tmpfs root/run
             mkdir -p root/run/systemd/system
             touch up
             sleep infinity &
             wait"
        );
        // The first process of a process tree: it takes leave of those that have ended; when it is killed, so is everything
        // in the tree, and its mounts are gone.
        let spec = ProcSpec::new(name, "unshare", own.join("log"))
            .args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", &script])
            .place(place);
        let mut machine = Machine { holder: Proc::spawn(&spec).unwrap(), root, place: place.clone() };
        eventually(&format!("machine {name} is up"), || {
            let ended = machine.holder.exit_status().unwrap();
            assert!(ended.is_none(), "{name}: {}", machine.holder.log_tail());
            own.join("up").exists()
        });
        machine
    }

    /// Runs a script in root's home and returns what it printed.
    ///
    /// # Errors
    /// It ends with a status other than 0; the error shows the end of its output.
    pub fn try_run(&self, script: &str) -> Result<String> {
        let root = self.root.display().to_string();
        let limit = within(SCRIPT_LIMIT).as_secs().to_string();
        let script = format!("cd /root\n{script}");
        let mut command = vec!["timeout".into(), limit];
        command.extend(self.enter());
        let words =
            ["chroot", &root, "env", "-i", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"];
        command.extend(words.map(String::from));
        command.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
        command.extend(["bash", "-euo", "pipefail", "-c", &script].map(String::from));
        run(&Place::Local, &command)
    }

    /// As [`Machine::try_run`] for what must succeed.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        self.try_run(script).unwrap_or_else(|error| panic!("{script}\n{error}\n{}", self.logs()))
    }

    /// Copies a file or folder of this host into root's home.
    #[track_caller]
    pub fn put(&self, from: &Path) {
        let to = self.root.join("root").display().to_string();
        let mut command = self.enter();
        command.extend(["cp", "-R", &from.display().to_string(), &to].map(String::from));
        run(&Place::Local, &command).unwrap();
    }

    /// Copies a file or folder out of root's home to a folder of this host.
    #[track_caller]
    pub fn take(&self, name: &str, to: &Path) {
        let from = self.root.join("root").join(name).display().to_string();
        let mut command = self.enter();
        command.extend(["cp", "-R", &from, &to.display().to_string()].map(String::from));
        run(&Place::Local, &command).unwrap();
    }

    fn enter(&self) -> Vec<String> {
        let spaces = format!("/proc/{}/ns", self.holder.pid());
        vec![
            "nsenter".into(),
            format!("--net={spaces}/net"),
            format!("--mount={spaces}/mnt"),
            format!("--pid={spaces}/pid_for_children"),
        ]
    }

    fn logs(&self) -> String {
        self.try_run("tail -n 40 /var/log/isthmus-*.log").unwrap_or_else(|error: LabError| error.to_string())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Asked to end, the holder would leave its children to themselves.
        let _ = self.holder.kill9();
    }
}
