//! Keys as an administrator meets them: what `keys check` and `keys show` say, and how a proxy starts and stops with them.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

mod common;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{configured, program, stderr};
use serde_json::Value;

/// NT hash of a password.
const HASH: &str = "FC525C9683E8FE067095BA2DDC971889";
/// For what must come, on a machine that may be busy. Not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    folder: tempfile::TempDir,
    config: String,
}

impl Place {
    /// A configuration that holds alice's hash and releases her and an administrator to one branch.
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let config = configured(folder.path());
        let place = Place { folder, config };
        place.write("hashes", &line("alice"));
        place.add(
            "[keys]\npassword_hashes = \"hashes\"\nadministrators = \"CORP\\\\boss\"\n\n[[keys.release]]\nname = \"staff\"\n\
             peer = \"branch-1\"\nkind = \"gateway\"\nsubnets = \"10.1.0.0/16\"\nusers = \"*\"\nservers = \"files.example\"\n",
        );
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let new = self.path("new");
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    fn add(&self, text: &str) {
        let before = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, format!("{before}\n{text}")).unwrap();
    }

    /// What a `keys` command says, with its exit status. No secret is ever in it.
    fn keys(&self, arguments: &[&str]) -> (i32, String) {
        let output = program().arg("keys").args(arguments).args(["--config", &self.config]).output().unwrap();
        let text = everything(&output);
        assert!(!text.to_uppercase().contains(HASH), "{text}");
        (output.status.code().unwrap(), text)
    }
}

fn line(user: &str) -> String {
    format!("{user}:1000:X:{HASH}:[U]:\n")
}

fn everything(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(output)
}

#[test]
fn a_user_is_told_whether_and_why() {
    let place = Place::new();
    let (status, text) = place.keys(&["check", "--user", "CORP\\alice"]);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("1 NT hashes") && text.contains("works  release to branch-1: by rule staff"),
        "{text}"
    );

    let session = ["--peer", "branch-1", "--server", "files.example", "--client", "10.1.2.3"];
    let (status, text) = place.keys(&[&["check", "--user", "alice"][..], &session].concat());
    assert_eq!(status, 0, "{text}");
    let (status, text) =
        place.keys(&["check", "--user", "alice", "--peer", "branch-1", "--client", "10.2.2.3"]);
    assert_eq!(status, 77, "{text}");
    assert!(text.contains("client's address not released to this gateway"), "{text}");
    let (status, text) = place.keys(&["check", "--user", "CORP\\boss"]);
    assert_eq!(status, 69, "no hash is held of that user: {text}");
    assert!(text.contains("configured administrator"), "{text}");
    let (status, text) = place.keys(&["check", "--service", "files.example"]);
    assert_eq!(status, 69, "{text}");
    assert!(text.contains("no key of cifs/files.example or its host is held"), "{text}");

    let (status, text) = place.keys(&["check", "--user", "alice", "--peer", "branch-2", "--json"]);
    assert_eq!(status, 77, "{text}");
    let json = text.rsplit_once('}').unwrap().0.to_owned() + "}";
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["sources"][0]["nt_hashes"], 1, "{text}");
    assert_eq!(
        (&answer["report"]["has_key"], &answer["report"]["can_be_optimised"]),
        (&true.into(), &false.into())
    );
    let lines = answer["report"]["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["text"] == "no release rule for this peer"), "{text}");

    let (status, _) = place.keys(&["check", "--peer", "branch-1"]);
    assert_eq!(status, 64, "a release is about a user");
}

#[test]
fn commands_are_run_before_the_answer() {
    let place = Place::new();
    place.write("of-the-branch", &line("bob"));
    let (_, text) = place.keys(&["check", "--user", "bob"]);
    assert!(text.contains("fails  NTLM"), "{text}");
    let file = place.path("of-the-branch");
    place.add(&format!(
        "[[keys.command]]\nname = \"accounts\"\nkind = \"password-hashes\"\nargv = [\"/bin/cat\", {file:?}]\n"
    ));
    let (status, text) = place.keys(&["check", "--user", "bob"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("password hashes by command accounts: 0 service keys, 1 NT hashes"), "{text}");
    fs::remove_file(file).unwrap();
    let (status, text) = place.keys(&["check"]);
    assert_eq!(status, 69, "{text}");
    assert!(
        text.contains("accounts: not loaded\n  error: command \"accounts\": ended with status 1"),
        "{text}"
    );
}

#[test]
fn a_file_that_others_can_read_is_named_and_stops_the_start() {
    let place = Place::new();
    fs::set_permissions(place.path("hashes"), Permissions::from_mode(0o644)).unwrap();
    for arguments in [&["check"][..], &["show", "--offline"]] {
        let (status, text) = place.keys(arguments);
        assert_eq!(status, 69, "{text}");
        assert!(text.contains("hashes: mode is 0644; expected 0600 or 0400"), "{text}");
    }
    let run = || {
        let mut command = program();
        command.args(["run", "--admin", "off", "--config", &place.config, "--store"]);
        command.arg(place.path("store")).output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(77), "{}", stderr(&output));
    assert!(stderr(&output).contains("mode is 0644"), "{}", stderr(&output));
    fs::remove_file(place.path("hashes")).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(66), "{}", stderr(&output));
}

#[test]
fn without_sources_keys_show_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { config: configured(folder.path()), folder };
    let (status, text) = place.keys(&["show", "--offline"]);
    assert_eq!((status, text.contains("no key source is configured")), (0, true), "{text}");
    let (status, text) = place.keys(&["check", "--user", "alice"]);
    assert_eq!(status, 69, "{text}");
}

/// A proxy that runs until this goes.
struct Running {
    child: Child,
    admin: String,
}

impl Running {
    fn start(place: &Place) -> Running {
        // Free a moment ago, as far as one can know.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (admin, listen) = (free(), free());
        let child = program()
            .args(["run", "--config", &place.config, "--admin", &admin, "--listen", &listen, "--store"])
            .arg(place.path("store"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Running { child, admin }
    }

    fn sources(&self, place: &Place) -> Vec<Value> {
        let (_, text) = place.keys(&["show", "--json", "--address", &self.admin]);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        answer["sources"].as_array().cloned().unwrap_or_default()
    }

    fn stop(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        until("the proxy ends", || self.child.try_wait().unwrap().map(|status| assert!(status.success())));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_running_proxy_tells_what_it_has_loaded_and_ends_its_commands() {
    let place = Place::new();
    let mark = place.path("running");
    place.add(&format!(
        "[[keys.command]]\nname = \"endless\"\nkind = \"keytab\"\nargv = [\"/bin/sh\", \"-c\", \"echo $$ > {}; sleep 1000\"]\n",
        mark.display()
    ));
    let proxy = Running::start(&place);
    let first = until("the proxy answers", || proxy.sources(&place).into_iter().next());
    assert_eq!((&first["nt_hashes"], &first["loads"]), (&1.into(), &1.into()), "{first}");
    place.write("hashes", &(line("alice") + &line("bob")));
    until("the changed file is loaded", || {
        proxy.sources(&place).first().filter(|source| source["nt_hashes"] == 2).map(drop)
    });
    fs::set_permissions(place.path("hashes"), Permissions::from_mode(0o640)).unwrap();
    let (status, text) = until("the bad file is noticed", || {
        Some(place.keys(&["show", "--address", &proxy.admin])).filter(|(status, _)| *status != 0)
    });
    assert_eq!(status, 69, "{text}");
    assert!(text.contains("2 NT hashes") && text.contains("error: "), "what was loaded stays in use: {text}");
    let command = until("the command runs", || fs::read_to_string(&mark).ok()?.trim().parse::<u32>().ok());
    let lives = || Path::new(&format!("/proc/{command}")).exists();
    assert!(lives());
    proxy.stop();
    until("the command has ended with the proxy", || (!lives()).then_some(()));
}
