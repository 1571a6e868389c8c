//! The program as its users meet it: arguments, exit statuses, certificates.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

mod common;

use std::fs;
use std::path::Path;

use common::{configured, fails, ok, program, server, stderr};

#[test]
fn wrong_arguments_end_with_64_and_help_with_0() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["run", "--nonsense"],
        &["certs", "issue"],
        &["certs", "issue", "--role", "king"],
    ] {
        let text = fails(arguments, 64);
        assert!(text.contains("Usage") || text.contains("a role is"), "{text}");
    }
    for arguments in
        [&["--help"][..], &["run", "--help"], &["certs", "revoke", "--help"], &["--version"], &["version"]]
    {
        ok(arguments);
    }
    assert_eq!(ok(&["version"]).trim(), format!("isthmus-server {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn certificates_are_made_listed_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (ca, out) = (path("ca"), path("out"));
    fails(&["certs", "show", "--ca", &ca], 66);
    ok(&["certs", "init", "--ca", &ca, "--days", "100"]);
    fails(&["certs", "init", "--ca", &ca], 73);
    let issue = ["certs", "issue", "--ca", &ca, "--out", &out, "--role"];
    let with =
        |more: &[&'static str]| -> Vec<&str> { issue.iter().copied().chain(more.iter().copied()).collect() };
    let printed = ok(&with(&["server-side", "--name", "dc", "--dns", "proxy.example"]));
    assert!(printed.contains("[tls]\n") && printed.contains("ends with the authority"), "{printed}");
    let soon = server(&with(&["client-side", "--name", "branch", "--days", "7"]));
    assert!(soon.status.success() && stderr(&soon).contains("warning"), "{}", stderr(&soon));
    fails(&with(&["client-side", "--name", "branch"]), 73);
    fails(&with(&["server-side", "--name", "nameless"]), 64);
    fails(&with(&["client-side", "--name", "../up"]), 64);

    fails(&["certs", "revoke", "--ca", &ca, "nobody"], 64);
    ok(&["certs", "revoke", "--ca", &ca, "branch"]);
    let listed: serde_json::Value =
        serde_json::from_str(&ok(&["certs", "show", "--ca", &ca, "--json"])).unwrap();
    let field = |index: usize, name: &str| listed[index][name].as_str().unwrap().to_string();
    assert_eq!(
        (field(0, "name"), field(0, "role"), field(0, "state")),
        ("dc".into(), "server-side".into(), "valid".into())
    );
    assert_eq!(
        (field(1, "name"), field(1, "role"), field(1, "state")),
        ("branch".into(), "client-side".into(), "revoked".into())
    );
    let table = ok(&["certs", "show", "--ca", &ca]);
    assert!(table.contains(&field(0, "serial")) && table.contains(&field(1, "not_after")), "{table}");
}

#[test]
fn check_prints_a_configuration_that_checks_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let first = ok(&["check", "--config", &file, "--set", "store.size=20GiB", "--log-level", "warn"]);
    assert!(first.contains("size = \"20 GiB\" # --set store.size=20GiB\n"), "{first}");
    assert!(first.contains("level = \"warn\" # --log-level warn\n"), "{first}");
    let printed = dir.path().join("printed.toml");
    fs::write(&printed, &first).unwrap();
    let second = ok(&["check", "--config", printed.to_str().unwrap()]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap_or("").to_string()).collect()
    };
    assert_eq!(values(&first), values(&second));
    assert!(!first.contains("PRIVATE"));
    let variable =
        program().args(["check", "--config", &file]).env("ISTHMUS_STORE_SIZE", "30 GiB").output().unwrap();
    assert!(
        String::from_utf8_lossy(&variable.stdout)
            .contains("size = \"30 GiB\" # environment variable ISTHMUS_STORE_SIZE")
    );
}

#[test]
fn check_says_what_is_wrong_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}port = [445]\n[stor]\nsize = 1\n")).unwrap();
    for command in ["check", "run", "status"] {
        let errors = fails(&[command, "--config", &file, "--listen", "nowhere"], 64);
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 3, "{errors}");
        assert!(
            lines[0].starts_with(&format!("{file}:9: allow[1].port: ")) && lines[0].contains("\"ports\""),
            "{errors}"
        );
        assert!(
            lines[1].starts_with(&format!("{file}:10: stor: ")) && lines[1].contains("[store]"),
            "{errors}"
        );
        assert!(lines[2].starts_with("--listen nowhere: listen.address: "), "{errors}");
    }
    let missing = dir.path().join("missing.toml");
    assert!(fails(&["check", "--config", missing.to_str().unwrap()], 66).contains("missing.toml"));
    assert!(fails(&["run", "--config", missing.to_str().unwrap()], 66).contains("missing.toml"));
}

#[test]
fn check_examines_the_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let ca = dir.path().join("ca").to_str().unwrap().to_string();
    let path = |name: &str| format!("tls.certificate={}", dir.path().join(name).display());
    assert!(fails(&["check", "--config", &file, "--set", &path("none.pem")], 66).contains("none.pem"));
    let role = fails(&["check", "--config", &file, "--set", &path("client.pem")], 64);
    assert!(role.contains("for the role client-side") && role.contains("does not belong"), "{role}");
    ok(&["check", "--config", &file, "--no-certificates", "--set", &path("none.pem")]);
    ok(&["check", "--config", &file]);
    ok(&["certs", "revoke", "--ca", &ca, "server"]);
    assert!(fails(&["check", "--config", &file], 64).contains("revoked"));
}

#[test]
fn status_without_a_proxy_ends_with_69() {
    // The port was free a moment ago, so nothing answers.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert!(fails(&["status", "--address", &free], 69).contains(&free));
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    assert!(fails(&["status", "--config", &file, "--admin", "off"], 69).contains("off"));
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program().args(["check", "--config", &file]).stdout(writer).output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(74));
}

#[test]
fn a_store_is_checked_summed_up_and_given_a_new_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let store = dir.path().join("store").to_str().unwrap().to_string();
    let with = |command: &'static [&'static str]| -> Vec<String> {
        let rest = ["--config", &file, "--store", &store].map(String::from);
        ["store".into()].into_iter().chain(command.iter().map(ToString::to_string)).chain(rest).collect()
    };
    let run = |command: &'static [&'static str]| program().args(with(command)).output().unwrap();
    assert_eq!(run(&["check"]).status.code(), Some(66), "there is no store yet");
    make_store(dir.path());
    let check = run(&["check", "--json"]);
    assert!(check.status.success(), "{}", stderr(&check));
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(report["damages_total"], 0);
    assert_eq!(report["records"], 1);
    let before = fs::read(dir.path().join("store.key")).unwrap();
    let rekey = run(&["rekey"]);
    assert!(rekey.status.success(), "{}", stderr(&rekey));
    assert_ne!(fs::read(dir.path().join("store.key")).unwrap(), before);
    let stats = run(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!((&stats["records"], &stats["unreadable_segments"]), (&1.into(), &0.into()), "{stats}");
    fs::write(dir.path().join("store.key"), before).unwrap();
    assert_eq!(run(&["check"]).status.code(), Some(64), "the old key opens nothing any more");
}

/// A store with one record in it, as a proxy leaves it.
fn make_store(dir: &Path) {
    use isthmus_reduction::content::{ChunkKey, ChunkMeta, ContentStore};
    let key = isthmus_store::StoreKey::load_or_create(&dir.join("store.key")).unwrap();
    let config = isthmus_store::Config::new(dir.join("store"), 64 << 20, Some(key));
    let (store, _) = isthmus_store::Store::open(config).unwrap();
    let content = b"content of a file".repeat(100);
    let chunk = ChunkMeta { key: ChunkKey::of(&content), len: content.len() as u32 };
    store.append(content.into(), &[chunk]).unwrap();
    store.flush();
}
