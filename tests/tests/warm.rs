//! Prepopulation with a real file server: what was read in advance costs the first user next to nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::pair::KeyOptions;
use isthmus_lab::proc::find_program;
use isthmus_lab::smb::{Account, Samba, SambaOptions, compare_folders};
use isthmus_lab::{Place, Scratch, free_address};
use isthmus_tests::{Bed, ECHO, Plan, eventually, random};
use isthmus_types::Side;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FILES: usize = 200;
/// Content of all files.
const BYTES: usize = FILES * FILE_BYTES;
const FILE_BYTES: usize = 48 << 10;
const USER: &str = "ana";
const PASSWORD: &str = "isthmus-lab-0";

/// An encrypted share of many files behind a pair that has the keys.
struct Site {
    bed: Bed,
    samba: Samba,
    scratch: Scratch,
    password: PathBuf,
}

impl Site {
    /// `extra` is added to the client side's configuration. `None`, with the reason, where there is no Samba.
    fn start(seed: u64, extra: &dyn Fn(&Path) -> String) -> Option<Site> {
        for program in ["smbd", "smbclient"] {
            if find_program(program).is_none() {
                println!("skipped: {program} is not installed");
                return None;
            }
        }
        let accounts = vec![Account::new(USER, PASSWORD)];
        let options = SambaOptions { accounts, encrypt: true, ..SambaOptions::default() };
        let samba = Samba::start(&Place::Local, free_address().unwrap(), &options).unwrap();
        let scratch = Scratch::new("warm").unwrap();
        let password = scratch.write("password", format!("{PASSWORD}\n")).unwrap();
        std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
        fill(samba.share_path(), seed);
        let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![samba.password_hashes()] };
        let mut bed = Plan::new(1 << 10, seed).keys(keys).prepare();
        let (old, port) = (bed.spec.carried[ECHO].target, samba.address().port());
        let more = extra(&password);
        bed.edit(Side::Client, |text| text.replace(&old.to_string(), &format!("localhost:{port}")) + &more);
        bed.edit(Side::Server, |text| {
            format!("{text}\n[[allow]]\ndestination = [\"localhost\"]\nports = [{port}]\n")
        });
        bed.start_both();
        Some(Site { bed, samba, scratch, password })
    }

    fn warm(&self, location: &str, more: &[&str]) -> Output {
        let mut command = Command::new(&self.bed.spec.binaries.client);
        command.args(["warm", location, "--config"]).arg(self.bed.pair.end(Side::Client).config_path());
        command.args(["--set", "peer.server_name=127.0.0.1", "--user", USER]).args(more);
        command.env_remove("SMB_PASSWORD").stdin(std::process::Stdio::null()).output().unwrap()
    }

    fn warm_with_password(&self, location: &str, more: &[&str]) -> Output {
        let file = ["--password-file", self.password.to_str().unwrap()];
        self.warm(location, &[&file, more].concat())
    }

    /// Copies the whole share as a user does, compares, and says what that cost on the WAN.
    fn copy(&self, name: &str) -> u64 {
        let folder = self.scratch.make_dir(name).unwrap();
        let address = self.bed.through(ECHO);
        let cost = self.bed.wan_cost(|| {
            let output = Command::new("smbclient")
                .args([
                    "-s",
                    "/dev/null",
                    "-p",
                    &address.port().to_string(),
                    "-U",
                    &format!("{USER}%{PASSWORD}"),
                ])
                .args(["--client-protection=encrypt", &format!("//{}/data", address.ip()), "-c"])
                .arg(format!("recurse ON; prompt OFF; lcd {}; mget *", folder.display()))
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        });
        compare_folders(self.samba.share_path(), &folder).unwrap();
        cost
    }

    /// Time of last change of each file, in nanoseconds.
    fn times(&self) -> Vec<(PathBuf, i64, i64)> {
        let mut times: Vec<_> = paths()
            .map(|path| {
                let data = std::fs::metadata(self.samba.share_path().join(&path)).unwrap();
                (path, data.mtime(), data.mtime_nsec())
            })
            .collect();
        times.sort();
        times
    }
}

/// Files in folders in folders, some with names of another script.
fn paths() -> impl Iterator<Item = PathBuf> {
    (0..FILES)
        .map(|number| PathBuf::from(format!("計画 {}/part {}/ファイル {number}.bin", number % 5, number % 3)))
}

fn fill(share: &Path, seed: u64) {
    let content = random(BYTES, seed);
    for (path, part) in paths().zip(content.chunks(FILE_BYTES)) {
        let file = share.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, part).unwrap();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_was_read_in_advance_costs_the_first_user_next_to_nothing() {
    let Some(site) = Site::start(95, &|_| String::new()) else { return };
    let times = site.times();
    let mut output = None;
    let cold = site.bed.wan_cost(|| output = Some(site.warm_with_password("//localhost/data", &[])));
    let output = output.unwrap();
    assert!(output.status.success() && said(&output).contains(&format!("{FILES} files")), "{output:?}");
    assert!(cold > BYTES as u64, "random bytes cannot shrink: {cold}");
    let warm = site.copy("copy");
    assert!(warm * 50 <= BYTES as u64, "2 % at most: {warm} of {BYTES}");
    assert_eq!(site.times(), times, "reading changes no file");
    // Later it reads what has changed, and nothing else.
    let path = site.samba.share_path().join(paths().next().unwrap());
    std::fs::write(&path, random(FILE_BYTES + 1, 96)).unwrap();
    let output = site.warm_with_password("\\\\LOCALHOST\\data", &["--rate", "100 MiB"]);
    let known = format!("{} were known already", FILES - 1);
    assert!(output.status.success() && said(&output).contains(": 1 files"), "{output:?}");
    assert!(said(&output).contains(&known), "{output:?}");
    let output = site.warm_with_password("//localhost/data/計画 1", &["--again"]);
    assert!(output.status.success() && said(&output).contains(": 40 files"), "{output:?}");
}

#[test]
fn what_is_wrong_is_said_and_told_by_the_status() {
    let Some(mut site) = Site::start(97, &|_| String::new()) else { return };
    let refused = |output: Output, status: i32, part: &str| {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(said(&output).contains(part), "{part}: {output:?}");
        assert!(!said(&output).contains(PASSWORD), "{output:?}");
    };
    refused(site.warm("//localhost/data", &[]), 64, "SMB_PASSWORD");
    refused(site.warm("//nobody/data", &[]), 64, "no rule listens");
    refused(site.warm("localhost/data", &[]), 64, "is no share");
    refused(site.warm_with_password("//localhost/data", &["--window", "22-6"]), 64, "is no time window");
    refused(site.warm_with_password("//localhost/missing", &[]), 69, "missing");
    refused(site.warm_with_password("//localhost/data/missing", &[]), 66, "cannot be listed");
    let wrong = site.scratch.write("wrong", "not it").unwrap();
    refused(site.warm("//localhost/data", &["--password-file", wrong.to_str().unwrap()]), 77, "chmod 600");
    std::fs::set_permissions(&wrong, PermissionsExt::from_mode(0o600)).unwrap();
    refused(site.warm("//localhost/data", &["--password-file", wrong.to_str().unwrap()]), 77, "localhost");
    // Without keys nothing of an encrypted session would be learned.
    site.bed.stop(Side::Server);
    site.bed.edit(Side::Server, |text| {
        text.replace("[[keys.release]]", "[[keys.release]]\nservers = [\"other.example\"]")
    });
    site.bed.start(Side::Server);
    refused(site.warm_with_password("//localhost/data", &[]), 69, "has no keys for it");
    site.bed.stop(Side::Client);
    refused(site.warm_with_password("//localhost/data", &[]), 69, "is it running?");
}

#[test]
fn a_schedule_in_the_configuration_reads_while_its_window_is_open() {
    // Of these two one is always open.
    let entry = |password: &Path, window: &str| {
        format!(
            "\n[[warm]]\nlocation = \"//localhost/data\"\nuser = \"{USER}\"\npassword_file = {password:?}\nwindow = \"{window}\"\n"
        )
    };
    let extra = |password: &Path| entry(password, "00:00-13:00") + &entry(password, "12:00-24:00");
    let Some(site) = Site::start(98, &extra) else { return };
    let events = || site.bed.pair.end(Side::Client).get("/api/events").unwrap().body;
    eventually("the share is warm", || events().contains("//localhost/data is warm"));
    assert!(!events().contains("ファイル"), "no file's name among the events: {}", events());
    let warm = site.copy("copy");
    assert!(warm * 50 <= BYTES as u64, "2 % at most: {warm} of {BYTES}");
}
