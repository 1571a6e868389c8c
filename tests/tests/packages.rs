//! The packages: what is in them, whether their scripts and units are right, and the guide's own commands with them, from
//! the installation to the purge, on clean Debian systems.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

#[path = "packages/machine.rs"]
mod machine;

use isthmus_config::{Overrides, ServerConfig};
use isthmus_lab::metrics::Metrics;
use isthmus_lab::proc::{find_program, run};
use isthmus_lab::smb::{Account, Samba, SambaOptions};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Place, Result, Scratch, WanLab, http};
use isthmus_tests::{eventually, is_full, programs, random};
use machine::{Machine, clean_debian};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Exposure that systemd may find in a unit at most, in tenths: below 20 of 100 it calls a service well protected.
const EXPOSURE_MAX: u32 = 20;

/// The file server of the guide, within the network of the example's allow list.
const FILE_SERVER: Ipv4Addr = Ipv4Addr::new(10, 1, 20, 5);

/// Its name for a user, as a line of /etc/hosts.
const FILE_SERVER_NAME: &str = "10.1.20.5 fs1.dc.example\n";

/// Admin port, as it is unless configured.
const CLIENT_ADMIN: u16 = 7811;

/// Bytes of the file that the guide copies.
const REPORT_BYTES: usize = 4_000_000;

/// Most bytes that a warm copy of it may put on the WAN.
const WARM_WAN_BYTES_MAX: f64 = 100_000.0;

/// Version of the packages that the guide's upgrade installs.
const UPGRADE: &str = "0.1.0+1";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Makes packages of the programs under test; returns their paths.
fn package(kind: &str, version: &str, output: &Path) -> Vec<PathBuf> {
    let programs = programs().client.parent().unwrap();
    let made = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["xtask", "package", kind, "--version", version, "--output"])
        .arg(output)
        .current_dir(root())
        .env("ISTHMUS_BIN_DIR", programs)
        // Good compression of programs with no optimisation takes a minute and tests nothing.
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{text}{}", String::from_utf8_lossy(&made.stderr));
    text.lines().map(PathBuf::from).collect()
}

fn output<S: AsRef<std::ffi::OsStr>>(command: &[S]) -> String {
    run(&Place::Local, command).unwrap()
}

/// Whether the programs are there; says so if not.
fn has(programs: &[&str]) -> bool {
    let missing: Vec<&&str> = programs.iter().filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        eprintln!("skipped: {missing:?} not installed");
    }
    missing.is_empty()
}

fn unpack(deb: &Path, to: &Path) {
    output(&["dpkg-deb".into(), "--raw-extract".into(), deb.display().to_string(), to.display().to_string()]);
}

#[test]
fn debian_packages_hold_what_an_administrator_needs() {
    if !has(&["dpkg-deb", "strip"]) {
        return;
    }
    let scratch = Scratch::new("packages").unwrap();
    let debs = package("deb", "0.1.0+test", scratch.path());
    for (side, deb) in ["client", "server"].into_iter().zip(&debs) {
        let name = format!("isthmus-{side}");
        assert!(deb.file_name().unwrap().to_string_lossy().starts_with(&format!("{name}_0.1.0+test_")));
        let tree = scratch.join(&name);
        unpack(deb, &tree);
        let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap_or_else(|_| panic!("no {path}"));
        let control = read("DEBIAN/control");
        assert!(control.contains(&format!("\nPackage: {name}\n")) || control.starts_with("Package"));
        assert!(!control.contains('@') || control.matches('@').count() == 1, "only the address: {control}");
        assert!(control.contains("Depends: libc6 (>= 2."), "{control}");
        assert_eq!(read("DEBIAN/conffiles"), format!("/etc/isthmus/{side}.example.toml\n"));
        let example = fs::read(root().join(format!("deploy/examples/{side}.toml"))).unwrap();
        assert_eq!(fs::read(tree.join(format!("etc/isthmus/{side}.example.toml"))).unwrap(), example);
        for document in ["guide.md", "configuration.md", "certificates.md", "copyright", "changelog.gz"] {
            assert!(tree.join(format!("usr/share/doc/{name}/{document}")).is_file(), "{document}");
        }
        assert!(tree.join(format!("usr/share/doc/{name}/third-party-licences.txt.gz")).is_file());
        output(&[tree.join("usr/bin").join(&name).display().to_string(), "version".into()]);
        // Everything belongs to root and nothing is open to others.
        for line in output(&["dpkg-deb".into(), "--contents".into(), deb.display().to_string()]).lines() {
            assert!(line.contains(" root/root "), "{line}");
            assert!(line.starts_with("drwxr-xr-x") || line.starts_with("-rw"), "{line}");
        }
        check_scripts(&tree);
    }
}

/// Maintainer scripts stop at the first error, and are filled in.
fn check_scripts(tree: &Path) {
    for script in ["postinst", "prerm", "postrm"] {
        let path = tree.join("DEBIAN").join(script);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{script}");
        assert!(!text.contains("@SIDE@"), "{script}");
        check_script(&path);
    }
}

/// A script is what sh takes; shellcheck looks for more.
fn check_script(path: &Path) {
    let path = path.display().to_string();
    output(&["sh", "-n", &path]);
    if has(&["shellcheck"]) {
        output(&["shellcheck", &path]);
    }
}

#[test]
fn the_archive_installs_both_sides() {
    if !has(&["tar", "strip"]) {
        return;
    }
    let scratch = Scratch::new("archive").unwrap();
    let archive = package("tar", "0.1.0", scratch.path()).remove(0);
    output(&[
        "tar".into(),
        "-xzf".into(),
        archive.display().to_string(),
        "-C".into(),
        scratch.path().display().to_string(),
    ]);
    let name = archive.file_name().unwrap().to_string_lossy().replace(".tar.gz", "");
    let tree = scratch.join(&name);
    check_script(&tree.join("install.sh"));
    for side in ["client", "server"] {
        output(&[tree.join(format!("bin/isthmus-{side}")).display().to_string(), "version".into()]);
        assert!(tree.join(format!("doc/isthmus-{side}/guide.md")).is_file());
    }
    for bad in [&["neither"][..], &[], &["client", "--prefix"], &["remove"]] {
        let status = Command::new(tree.join("install.sh")).args(bad).output().unwrap().status;
        assert_eq!(status.code(), Some(64), "{bad:?}");
    }
}

#[test]
fn units_are_valid_and_protected() {
    if !has(&["systemd-analyze"]) {
        return;
    }
    let scratch = Scratch::new("units").unwrap();
    for side in ["client", "server"] {
        let name = format!("isthmus-{side}.service");
        let text = fs::read_to_string(root().join("deploy/package/systemd").join(&name)).unwrap();
        let program = if side == "client" { &programs().client } else { &programs().server };
        // The program is not installed here; where it is has no bearing on the rest.
        let text = text.replace(&format!("/usr/bin/isthmus-{side}"), &program.display().to_string());
        let unit = scratch.write(&name, text).unwrap().display().to_string();
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no", &unit]).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        let own: Vec<&str> = said.lines().filter(|line| line.contains(&name)).collect();
        assert!(verified.status.success() && own.is_empty(), "{said}");
        exposes_little(&unit);
        let drop_in = root().join("deploy/package/systemd/interception.conf");
        let both = fs::read_to_string(&unit).unwrap() + &fs::read_to_string(drop_in).unwrap();
        exposes_little(&scratch.write(&name, both).unwrap().display().to_string());
    }
}

/// systemd's own judgement of how much a unit's process could do.
fn exposes_little(unit: &str) {
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    output(&["systemd-analyze", "security", "--no-pager", "--offline=yes", &threshold, unit]);
}

/// The cloud-init file of the Terraform module, filled in as main.tf does.
fn cloud_init() -> String {
    let folder = root().join("deploy/terraform");
    let (template, main) = (folder.join("cloud-init.yaml.tftpl"), folder.join("main.tf"));
    let main = fs::read_to_string(main).unwrap();
    let mut text = fs::read_to_string(template).unwrap();
    let given = main.split_once("cloud-init.yaml.tftpl\", {").unwrap().1.split_once("})").unwrap().0;
    let names = given.lines().filter(|line| !line.trim_start().starts_with('#'));
    let names: Vec<&str> = names.filter_map(|line| Some(line.split_once(" = ")?.0.trim())).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let value = match name {
            "file_servers" => r#"["fs1.dc.example","10.1.20.0/24"]"#,
            "store_gib" => "90",
            "extra_configuration" => {
                "[[keys.release]]\n      peer = \"branch\"\n      kind = \"gateway\"\n      subnets = [\"10.20.0.0/16\"]\n      users = [\"*\"]\n      [intercept]\n      source = [\"10.20.0.0/16\"]\n      "
            }
            _ => "sample-1",
        };
        let place = format!("${{{name}}}");
        assert!(text.contains(&place), "main.tf gives {name}, which the template does not use");
        text = text.replace(&place, value);
    }
    let text = text.replace("$${", "\u{0}");
    assert!(!text.contains("${"), "the template uses what main.tf does not give: {text}");
    text.replace('\u{0}', "${")
}

/// The files that a cloud-init file writes: path and content.
fn written_files(text: &str) -> Vec<(String, String)> {
    let files = text.split("\n  - path: ").skip(1).map(|rest| {
        let (path, rest) = rest.split_once('\n').unwrap();
        let content = rest.split_once("    content: |\n").unwrap().1;
        let lines = content.lines().take_while(|line| line.is_empty() || line.starts_with("      "));
        (path.to_owned(), lines.map(|line| format!("{}\n", line.get(6..).unwrap_or(""))).collect())
    });
    files.collect()
}

#[test]
fn the_terraform_module_makes_a_machine_that_can_start() {
    let scratch = Scratch::new("terraform").unwrap();
    let files = written_files(&cloud_init());
    let content = |path: &str| &files.iter().find(|(name, _)| name == path).expect(path).1;
    let configuration = content("/etc/isthmus/server.toml");
    let path = Path::new("/etc/isthmus/server.toml");
    ServerConfig::parse(configuration.as_bytes(), path, &Overrides::none())
        .unwrap_or_else(|error| panic!("{error}\n{configuration}"));
    let scripts: Vec<_> = files.iter().filter(|(_, content)| content.starts_with("#!/bin/sh\n")).collect();
    assert_eq!(scripts.len(), 3);
    for (path, content) in scripts {
        assert!(content.contains("\nset -eu\n"), "{path}");
        check_script(&scratch.write("script", content).unwrap());
    }
    if has(&["terraform"]) {
        output(&[
            "terraform",
            &format!("-chdir={}", root().join("deploy/terraform").display()),
            "fmt",
            "-check",
        ]);
    }
}

/// The guide's blocks that are run, in their order: the machine, what it is for, the commands.
fn guide() -> Vec<(String, String, String)> {
    let text = fs::read_to_string(root().join("docs/guide.md")).unwrap();
    let blocks = text.split("\n```sh ").skip(1).map(|rest| {
        let (fence, rest) = rest.split_once('\n').unwrap();
        let (machine, purpose) = fence.split_once(' ').unwrap_or((fence, ""));
        (machine.to_owned(), purpose.to_owned(), rest.split_once("\n```").unwrap().0.to_owned())
    });
    blocks.collect()
}

/// The network of the guide, with its file server.
struct Site {
    samba: Samba,
    lab: WanLab,
}

impl Site {
    fn start() -> Result<Site> {
        let lab = WanLab::start(WanShape::symmetric(Duration::from_millis(20), Some(50_000_000)))?;
        let ip = |place: &Place, words: &[&str]| {
            let Place::Namespace(name) = place else { panic!("no namespace") };
            let mut command = vec!["ip", "-n", name];
            command.extend(words);
            output(&command);
        };
        let address = FILE_SERVER.to_string();
        ip(&lab.server(), &["addr", "add", &format!("{address}/32"), "dev", "lo"]);
        ip(&lab.server_proxy(), &["route", "add", &address, "via", &WanLab::SERVER.to_string()]);
        let accounts = vec![Account::new("asha", "secret")];
        let options = SambaOptions { accounts, ..SambaOptions::default() };
        let samba = Samba::start(&lab.server(), SocketAddr::from((FILE_SERVER, 445)), &options)?;
        fs::write(samba.share_path().join("report.bin"), random(REPORT_BYTES, 5)).unwrap();
        Ok(Site { samba, lab })
    }

    /// Runs a user's commands, in a folder, where names are as these lines say.
    fn user(&self, script: &str, folder: &Path, hosts: &str) -> String {
        let file = folder.join("hosts");
        fs::write(&file, format!("127.0.0.1 localhost\n{hosts}")).unwrap();
        // smbclient remembers names from one run to the next.
        let forget = "for f in /run/samba /var/cache/samba; do [ ! -d $f ] || mount -t tmpfs tmpfs $f; done";
        let (hosts, folder) = (file.display(), folder.display());
        let script = format!("{forget}\nmount --bind {hosts} /etc/hosts\ncd {folder}\n{script}");
        run(&self.lab.client(), &["unshare", "--mount", "bash", "-euc", &script]).unwrap()
    }
}

/// A metric of the client-side proxy on a machine, summed.
fn metric(machine: &Machine, name: &str) -> f64 {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, CLIENT_ADMIN));
    Metrics::parse(&http::get(&machine.place, address, "/metrics").unwrap().body).unwrap().sum(name, &[])
}

/// Whether a path is there on a machine.
fn exists(machine: &Machine, path: &str) -> bool {
    machine.try_run(&format!("test -e {path}")).is_ok()
}

#[test]
fn the_guide_works_on_clean_systems() {
    if !is_full() {
        eprintln!("skipped: a long test (ISTHMUS_FULL is not set)");
        return;
    }
    if let Err(error) = WanLab::available() {
        eprintln!("skipped: {error}");
        return;
    }
    if !has(&["debootstrap", "dpkg-deb", "strip", "smbd", "smbclient", "nsenter", "unshare"]) {
        return;
    }
    let scratch = Scratch::new("guide").unwrap();
    let base = match clean_debian(scratch.path()) {
        Ok(base) => base,
        Err(error) => {
            eprintln!("skipped: no Debian system can be had here: {error}");
            return;
        }
    };
    let site = match Site::start() {
        Ok(site) => site,
        Err(LabError::Unavailable { what, remedy }) => {
            eprintln!("skipped: {what} is missing: {remedy}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let proxy = format!("{} proxy.dc.example\n", WanLab::SERVER_PROXY_WAN);
    let names = format!("{proxy}{FILE_SERVER} fs1.dc.example\n");
    let boot = |place: Place, name: &str| Machine::boot(&base, &place, scratch.path(), name, &names);
    let mut tour = Tour {
        dc: boot(site.lab.server_proxy(), "dc"),
        branch: boot(site.lab.client_proxy(), "branch"),
        laptop: boot(site.lab.client(), "laptop"),
        authority: boot(Place::Local, "authority"),
        site,
        folder: scratch.make_dir("tour").unwrap(),
        done: BTreeSet::new(),
    };
    tour.deliver("0.1.0");
    for (machine, purpose, commands) in guide() {
        tour.step(&machine, &purpose, &commands);
    }
    let all = ["dc", "authority", "branch", "user", "laptop", "dc upgrade", "branch upgrade"];
    let rest = ["branch intercept", "user intercept", "authority revoke", "branch purge", "dc purge"];
    let expected: BTreeSet<String> = all.iter().chain(&rest).map(|step| (*step).to_owned()).collect();
    assert_eq!(tour.done, expected, "the guide has other steps than those that are checked here");
    cloud_init_takes_its_file(&tour.authority, &tour.folder);
}

/// cloud-init's own check of the file that the Terraform module gives it. The machine is the one that reaches a mirror.
fn cloud_init_takes_its_file(machine: &Machine, folder: &Path) {
    let file = folder.join("user-data.yaml");
    fs::write(&file, cloud_init()).unwrap();
    machine.put(&file);
    machine.run("apt-get update -qq && apt-get install -qq -y --no-install-recommends cloud-init");
    machine.run("cloud-init schema --config-file user-data.yaml");
}

/// The guide's machines, and what is checked after each of its steps.
struct Tour {
    dc: Machine,
    branch: Machine,
    laptop: Machine,
    authority: Machine,
    site: Site,
    folder: PathBuf,
    done: BTreeSet<String>,
}

impl Tour {
    /// Puts packages of this version onto the machines, in the place of older ones.
    fn deliver(&self, version: &str) {
        let folder = self.folder.join(version);
        fs::create_dir_all(&folder).unwrap();
        let debs = package("deb", version, &folder);
        for (machine, deb) in [(&self.branch, 0), (&self.laptop, 0), (&self.dc, 1), (&self.authority, 1)] {
            machine.run("rm -f isthmus-*.deb");
            machine.put(&debs[deb]);
        }
    }

    /// What the guide does with scp.
    fn carry(&self, what: &str, to: &Machine) {
        self.authority.take(what, &self.folder);
        to.put(&self.folder.join(what.rsplit('/').next().unwrap()));
    }

    fn machine(&self, name: &str) -> &Machine {
        match name {
            "dc" => &self.dc,
            "branch" => &self.branch,
            "laptop" => &self.laptop,
            "authority" => &self.authority,
            other => panic!("the guide names a machine that is not here: {other}"),
        }
    }

    fn step(&mut self, machine: &str, purpose: &str, commands: &str) {
        let name = format!("{machine} {purpose}").trim().to_owned();
        if name == "dc upgrade" {
            self.deliver(UPGRADE);
        }
        if name == "user" {
            self.user(commands);
        } else if name == "user intercept" {
            self.intercepted_user(commands);
        } else {
            let said = self.machine(machine).run(commands);
            self.check(&name, &said);
        }
        self.done.insert(name);
    }

    fn check(&self, step: &str, said: &str) {
        match step {
            "authority" => {
                self.carry("for-dc", &self.dc);
                self.carry("for-branch", &self.branch);
                self.carry("for-laptop", &self.laptop);
            }
            "dc upgrade" => {
                let version = self.dc.run("dpkg-query -W -f '${Version}' isthmus-server");
                assert_eq!(version, UPGRADE);
                assert!(said.contains(": ready"), "{said}");
            }
            "branch upgrade" => {
                assert!(said.contains("restarts at the end of this upgrade"), "{said}");
                assert!(said.contains("LAN"), "the state before the restart: {said}");
                self.warm_copy();
            }
            "laptop" => self.laptop_copies(),
            "authority revoke" => self.laptop_is_shut_out(),
            "branch purge" => {
                nothing_is_left(&self.branch, "client");
                // What was intercepted goes straight to the file server.
                self.copy_from_the_file_server();
            }
            "dc purge" => nothing_is_left(&self.dc, "server"),
            // Not started before it is configured, though it has been installed.
            "dc" if !exists(&self.dc, "/etc/isthmus/server.toml") => {
                assert!(said.contains("not started yet"), "{said}");
                assert!(self.dc.try_run("systemctl is-active isthmus-server").is_err());
            }
            _ => {}
        }
    }

    fn user(&self, commands: &str) {
        let hosts = format!("{} files.branch.example\n", WanLab::CLIENT_PROXY_LAN);
        self.site.user(commands, &self.folder, &hosts);
        let report = fs::read(self.site.samba.share_path().join("report.bin")).unwrap();
        assert_eq!(fs::read(self.folder.join("second.bin")).unwrap(), report);
        eventually("both copies are counted", || {
            metric(&self.branch, "isthmus_lan_bytes_total") > 2.0 * REPORT_BYTES as f64
        });
        let wan = metric(&self.branch, "isthmus_wan_bytes_total");
        assert!(wan < 1.2 * REPORT_BYTES as f64, "the second was reduced: {wan}");
        self.processes_have_no_more_than_they_need();
    }

    /// Users and capabilities of the running proxies.
    fn processes_have_no_more_than_they_need(&self) {
        let capabilities = |machine: &Machine, name: &str| {
            let status = machine.run(&format!("cat /proc/$(cat /run/{name}.pid)/status"));
            let line = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_else(|| panic!("no {key} in {status}")).trim().to_owned()
            };
            let user = machine.run(&format!("id -u {name}"));
            assert!(line("Uid:").split_whitespace().all(|uid| uid == user.trim()), "{status}");
            assert_eq!(line("CapEff:"), line("CapBnd:"), "{status}");
            u64::from_str_radix(&line("CapEff:"), 16).unwrap()
        };
        // CAP_NET_BIND_SERVICE has the number 10 (capabilities(7)).
        assert_eq!(capabilities(&self.branch, "isthmus-client"), 1 << 10);
        assert_eq!(capabilities(&self.dc, "isthmus-server"), 0);
    }

    /// A user who is in the path, with names as everywhere: the copy is carried by the pair all the same.
    fn intercepted_user(&self, commands: &str) {
        let before = metric(&self.branch, "isthmus_lan_bytes_total");
        self.site.user(commands, &self.folder, FILE_SERVER_NAME);
        eventually("the intercepted copy is counted", || {
            metric(&self.branch, "isthmus_lan_bytes_total") - before > REPORT_BYTES as f64
        });
    }

    fn copy_from_the_file_server(&self) {
        let script = "smbclient //fs1.dc.example/data -U asha%secret -c 'get report.bin direct.bin'\ncmp first.bin direct.bin";
        self.site.user(script, &self.folder, FILE_SERVER_NAME);
    }

    /// A copy after the upgrade, which has to be as cheap as before: store and state have stayed. The counts began anew.
    fn warm_copy(&self) {
        let before = metric(&self.branch, "isthmus_wan_bytes_total");
        let hosts = format!("{} files.branch.example\n", WanLab::CLIENT_PROXY_LAN);
        let script = "smbclient //files.branch.example/data -U asha%secret -c 'get report.bin fourth.bin'\ncmp first.bin fourth.bin";
        self.site.user(script, &self.folder, &hosts);
        eventually("the warm copy is counted", || {
            metric(&self.branch, "isthmus_lan_bytes_total") > REPORT_BYTES as f64
        });
        let cost = metric(&self.branch, "isthmus_wan_bytes_total") - before;
        assert!(cost < WARM_WAN_BYTES_MAX, "a warm copy after the upgrade took {cost} bytes");
    }

    /// The laptop's own user reaches the file server by its own name, and is optimised.
    fn laptop_copies(&self) {
        let script = "smbclient //fs1.dc.example/data -U asha%secret -c 'get report.bin laptop.bin'\ncmp first.bin laptop.bin";
        self.site.user(script, &self.folder, "127.0.0.45 fs1.dc.example\n");
        eventually("the laptop's copy is counted", || {
            metric(&self.laptop, "isthmus_lan_bytes_total") > REPORT_BYTES as f64
        });
    }

    /// After the revocation has arrived at the server side, the laptop's connections are its own affair.
    fn laptop_is_shut_out(&self) {
        self.carry("isthmus-ca/crl.pem", &self.dc);
        self.dc.run("install -m 0644 crl.pem /etc/isthmus/server/crl.pem");
        eventually("the laptop is told that its certificate is no good", || {
            let status = self.laptop.run("isthmus-client status");
            status.contains("not ready") && status.contains("certificate")
        });
        self.branch.run("isthmus-client status | grep ': ready'");
    }
}

/// After a purge, no file, user or process of a side is left.
#[track_caller]
fn nothing_is_left(machine: &Machine, side: &str) {
    let found = machine.run(
        "find / -xdev -name '*isthmus*' -not -path '/root/*' -not -path '/proc/*' -not -path '/var/log/*'",
    );
    let found: Vec<&str> = found.lines().filter(|path| !path.starts_with("/var/cache/apt")).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(machine.try_run(&format!("getent passwd isthmus-{side}")).is_err(), "the user is still there");
    assert!(
        machine
            .run("cat /proc/[0-9]*/comm 2>/dev/null || true")
            .lines()
            .all(|name| !name.starts_with("isthmus"))
    );
}
