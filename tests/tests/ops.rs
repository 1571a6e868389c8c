//! What the programs tell their operators: doctor, top, and the support bundle, on a running pair and without one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::pair::KeyOptions;
use isthmus_lab::proc::find_program;
use isthmus_lab::smb::{Account, Samba, SambaOptions};
use isthmus_lab::{Place, Scratch, free_address};
use isthmus_tests::{Bed, ECHO, Plan, connect, eventually};
use isthmus_types::Side;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};

/// A proxy's program with one of its commands and the bed's configuration.
fn program(bed: &Bed, side: Side, arguments: &[&str]) -> Output {
    let binary = match side {
        Side::Client => &bed.spec.binaries.client,
        Side::Server => &bed.spec.binaries.server,
    };
    let mut command = Command::new(binary);
    command.args(arguments).arg("--config").arg(bed.pair.end(side).config_path());
    if side == Side::Client {
        command.args(["--set", "peer.server_name=127.0.0.1"]);
    }
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What `doctor` finds, and its status.
fn doctor(bed: &Bed, side: Side) -> (Value, i32) {
    let output = program(bed, side, &["doctor", "--json"]);
    let status = output.status.code().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}")), status)
}

/// The outcome of the finding in `area` whose text holds `part`.
#[track_caller]
fn outcome<'f>(found: &'f Value, area: &str, part: &str) -> &'f str {
    let findings = found["findings"].as_array().unwrap();
    let is_it =
        |finding: &&Value| finding["area"] == area && finding["text"].as_str().unwrap().contains(part);
    let finding = findings.iter().find(is_it).unwrap_or_else(|| panic!("{area}: {part}: {found:#}"));
    finding["outcome"].as_str().unwrap()
}

/// Every finding is in order with the outcome and the exit status.
#[track_caller]
fn is_consistent(found: &Value, status: i32) {
    let findings = found["findings"].as_array().unwrap();
    for finding in findings {
        let is_bad = ["warning", "failure"].contains(&finding["outcome"].as_str().unwrap());
        assert!(!is_bad || finding["remedy"].is_string(), "without a remedy: {finding}");
    }
    let expected = match found["worst"].as_str().unwrap() {
        "failure" => 2,
        "warning" => 1,
        _ => 0,
    };
    assert_eq!(status, expected, "{found:#}");
}

#[test]
fn doctor_measures_a_running_pair() {
    let mut bed = Plan::new(4 << 20, 91).start();
    bed.warm_up();
    for side in [Side::Client, Side::Server] {
        let (found, status) = doctor(&bed, side);
        is_consistent(&found, status);
        assert_eq!(found["running"], true);
        assert_ne!(status, 2, "{found:#}");
        for (area, part) in [
            ("configuration", "every key is known"),
            ("proxy", "it runs, version"),
            ("proxy", "is up"),
            ("certificates", "own certificate"),
            ("certificates", "authority"),
            ("clocks", "the clock of"),
            ("path to the peer", "round-trip time"),
            ("path to the peer", "path MTU"),
            ("store", "in use"),
            ("store", "enough for store.size"),
            ("rights and limits", "open files"),
        ] {
            assert_eq!(outcome(&found, area, part), "fine", "{side}: {area}: {part}: {found:#}");
        }
        outcome(&found, "kernel", "BBR");
        outcome(&found, "store", "writes ");
    }
    let output = program(&bed, Side::Client, &["doctor", "--no-disk-test"]);
    let text = stdout(&output);
    assert!(text.contains("path to the peer\n") && text.contains("speed: left out"), "{text}");
    bed.stop(Side::Server);
    eventually("the client side notices", || {
        let (found, status) = doctor(&bed, Side::Client);
        is_consistent(&found, status);
        status == 2 && outcome(&found, "proxy", "peer ") == "failure"
    });
}

#[test]
fn doctor_finds_what_would_keep_a_proxy_from_starting() {
    let bed = Plan::new(1 << 10, 92).prepare();
    // Without somebody there, the emulated WAN would reset what it has accepted.
    let peer = std::net::TcpListener::bind(bed.spec.server_listen).unwrap();
    let (found, status) = doctor(&bed, Side::Client);
    drop(peer);
    is_consistent(&found, status);
    assert_eq!((found["running"].as_bool(), status), (Some(false), 1), "{found:#}");
    assert_eq!(outcome(&found, "proxy", "does not answer"), "warning");
    assert_eq!(outcome(&found, "path to the peer", "accepts connections"), "fine");
    assert_eq!(outcome(&found, "path to the peer", "loss and rate"), "untested");
    let taken = std::net::TcpListener::bind(bed.through(ECHO)).unwrap();
    // The server's certificate and key in the place of the client's, and a key that is not its own.
    let certificates = bed.pair.certificates();
    std::fs::copy(&certificates.server.key, &certificates.client.key).unwrap();
    let (found, status) = doctor(&bed, Side::Client);
    is_consistent(&found, status);
    assert_eq!(status, 2);
    assert_eq!(outcome(&found, "listeners", &taken.local_addr().unwrap().to_string()), "failure");
    assert_eq!(outcome(&found, "certificates", "does not belong"), "failure");
    bed.edit(Side::Server, |text| text.replace("[listen]", "[listne]"));
    let (found, status) = doctor(&bed, Side::Server);
    is_consistent(&found, status);
    assert_eq!((outcome(&found, "configuration", "listne"), status), ("failure", 2));
    let output = program(&bed, Side::Client, &["doctor", "--no-such-option"]);
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn top_shows_a_connection_and_says_when_nobody_answers() {
    let mut bed = Plan::new(1 << 10, 93).start();
    let mut echo = connect(bed.through(ECHO));
    echo.write_all(b"hello").unwrap();
    echo.read_exact(&mut [0; 5]).unwrap();
    let target = bed.spec.carried[ECHO].target.to_string();
    let text = stdout(&program(&bed, Side::Client, &["top", "--once"]));
    assert!(text.starts_with("client-side proxy ") && text.contains(": ready\n"), "{text}");
    let row = text.lines().find(|line| line.contains(&target)).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains(" optimised "), "{text}");
    // Standard output is no terminal here either.
    let filtered = stdout(&program(
        &bed,
        Side::Server,
        &["top", "--filter", "nobody has this", "--sort", "age", "--reverse"],
    ));
    assert!(filtered.contains("0 connections open, by age, reversed"), "{filtered}");
    bed.stop(Side::Client);
    let output = program(&bed, Side::Client, &["top"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is it running?"), "{output:?}");
}

/// Names that are planted all over the pair. None of them may be in a bundle.
const PLANTS: [&str; 14] = [
    "plantrule",
    "plantuser",
    "Plant-Secret-9",
    "plantshare",
    "plantfile",
    "plantfolder",
    "plantzone",
    "plantconsole",
    "plantrelease",
    "plantpeer",
    "plantkeys",
    "plantcontent",
    "植えた",
    "198.51.100.",
];

/// A file server with planted names, used through the pair.
struct Planted {
    bed: Bed,
    _samba: Samba,
    scratch: Scratch,
}

fn planted() -> Option<Planted> {
    for name in ["smbd", "smbclient", "tar"] {
        if find_program(name).is_none() {
            println!("skipped: {name} is not installed");
            return None;
        }
    }
    let scratch = Scratch::new("plants").unwrap();
    let folder = scratch.make_dir("plantfolder").unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A share of its own: what follows the last line of a section may start another one.
    let share = ("[plantshare]\nread only = no\npath".to_owned(), folder.display().to_string());
    let accounts = vec![Account::new("plantuser", "Plant-Secret-9")];
    let options = SambaOptions { accounts, share: vec![share], ..SambaOptions::default() };
    let samba = Samba::start(&Place::Local, free_address().unwrap(), &options).unwrap();
    let hashes = scratch.join("plantkeys");
    std::fs::copy(samba.password_hashes(), &hashes).unwrap();
    std::fs::set_permissions(&hashes, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let keys = KeyOptions { keytabs: Vec::new(), password_hashes: vec![hashes] };
    let mut bed = Plan::new(1 << 10, 94).keys(keys).prepare();
    let (old, new) = (bed.spec.carried[ECHO].target.to_string(), samba.address());
    bed.edit(Side::Client, |text| {
        let text = text
            .replace(&format!("server = \"{old}\""), &format!("server = \"{new}\"\nname = \"plantrule\""));
        text.replace("[admin]", "[admin]\nnames = [\"plantconsole.example\"]")
    });
    bed.edit(Side::Server, |text| {
        text.replace("name = \"lab\"", "name = \"plantrelease\"")
            + &format!("\n[[allow]]\ndestination = [\"{}\"]\nports = [{}]\n", new.ip(), new.port())
            + "[[allow]]\ndestination = [\"*.plantzone.example\", \"198.51.100.0/25\"]\nports = [9]\n"
            + "[[keys.release]]\nname = \"other\"\npeer = \"plantpeer\"\nkind = \"gateway\"\nsubnets = [\"198.51.100.0/24\"]\n\
               users = ['PLANTZONE\\plantuser', \"植えた@plantzone.example\"]\n"
    });
    bed.start_both();
    Some(Planted { bed, _samba: samba, scratch })
}

impl Planted {
    /// Writes a file with planted name and content to the planted share, and reads it.
    fn work(&self) {
        let content = "plantcontent ".repeat(20_000);
        let file = self.scratch.write("local", &content).unwrap();
        let address = self.bed.through(ECHO);
        let script = format!(
            "put {} plantfile.txt; get plantfile.txt {}; ls",
            file.display(),
            self.scratch.join("back").display()
        );
        let output = Command::new("smbclient")
            .args([
                "-s",
                "/dev/null",
                "-p",
                &address.port().to_string(),
                "-U",
                "plantuser%Plant-Secret-9",
                "--client-protection=encrypt",
            ])
            .args([&format!("//{}/plantshare", address.ip()), "-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read_to_string(self.scratch.join("back")).unwrap(), content);
    }

    /// Writes a proxy's bundle; the names of its files and all their text.
    fn bundle(&self, side: Side, name: &str) -> (String, String) {
        let path = self.scratch.join(name);
        let output =
            program(&self.bed, side, &["support-bundle", "--no-disk-test", "--out", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        (tar(&path, "-tzf"), tar(&path, "-xOzf"))
    }
}

fn tar(archive: &Path, how: &str) -> String {
    let output = Command::new("tar").arg(how).arg(archive).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn is_clean(text: &str) {
    let lower = text.to_lowercase();
    for plant in PLANTS {
        if let Some(at) = lower.find(&plant.to_lowercase()) {
            let around: String =
                lower[..at].chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            panic!("{plant} is in the bundle, after: {around}");
        }
    }
}

#[test]
fn a_support_bundle_holds_the_state_and_no_names_secrets_or_content() {
    let Some(mut planted) = planted() else { return };
    planted.work();
    // They are there to be found.
    let known = planted.bed.pair.end(Side::Client).get("/api/connections?state=all").unwrap().body;
    for plant in ["plantuser", "plantshare", "plantrule"] {
        assert!(known.contains(plant), "{plant}: {known}");
    }
    for side in [Side::Client, Side::Server] {
        let (files, text) = planted.bundle(side, &format!("{side}.tar.gz"));
        for file in [
            "README.txt",
            "configuration.toml",
            "doctor.txt",
            "summary.json",
            "connections.json",
            "metrics.txt",
        ] {
            assert!(files.lines().any(|line| line.ends_with(&format!("/{file}"))), "{file}: {files}");
        }
        is_clean(&text);
        assert!(
            text.contains("isthmus_lan_bytes_total")
                && text.contains("[store]")
                && text.contains("path to the peer")
        );
        assert!(
            text.contains("\"user\": \"") && text.contains("\"share-"),
            "who and what stays, under other names"
        );
        // Pseudonyms are the same from one bundle to the next.
        let (_, again) = planted.bundle(side, &format!("{side}-again.tar.gz"));
        let rule = |text: &str| {
            let at = text.find("\"rule\": \"name-").unwrap_or_else(|| panic!("no rule"));
            text[at..at + 24].to_owned()
        };
        if side == Side::Client {
            assert_eq!(rule(&text), rule(&again));
        }
    }
    let there = planted.scratch.join("client-side.tar.gz");
    if there.exists() {
        let output = program(
            &planted.bed,
            Side::Client,
            &["support-bundle", "--no-disk-test", "--out", there.to_str().unwrap()],
        );
        assert_eq!(output.status.code(), Some(73), "never over a file that is there: {output:?}");
    }
    planted.bed.stop(Side::Client);
    let (_, text) = planted.bundle(Side::Client, "stopped.tar.gz");
    is_clean(&text);
    assert!(text.contains("the proxy does not answer"));
}
