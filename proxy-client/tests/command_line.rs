//! The program as its users meet it. What both programs share is tested with `isthmus-server`.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn client(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-client"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ISTHMUS_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn configured(dir: &Path) -> String {
    isthmus_certs::demo_set(dir).unwrap();
    let file = dir.join("client.toml");
    let text = "[peer]\naddress = \"localhost\"\n\n\
                [tls]\ncertificate = \"client.pem\"\nkey = \"client.key\"\nca = \"ca.pem\"\ncrl = \"ca/crl.pem\"\n\n\
                [[rule]]\nlisten = \"127.0.0.1:4450\"\nserver = \"127.0.0.1:445\"\n";
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_string()
}

#[test]
fn check_reads_file_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let output = client(&["check", "--config", &file, "--peer", "proxy.example:7000"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("address = \"proxy.example:7000\" # --peer proxy.example:7000\n"), "{printed}");
    assert!(printed.contains("server_name = \"proxy.example\" # default\n"), "{printed}");
    assert!(printed.contains("server = \"127.0.0.1:445\""), "{printed}");
}

#[test]
fn a_server_side_certificate_is_not_for_this_program() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let output = client(&[
        "check",
        "--config",
        &file,
        "--set",
        &format!("tls.certificate={}", dir.path().join("server.pem").display()),
    ]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("for the role server-side, not client-side"), "{}", stderr(&output));
}

#[test]
fn a_configuration_without_a_listener_is_refused_before_anything_is_bound() {
    let dir = tempfile::tempdir().unwrap();
    let file = configured(dir.path());
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("listen = \"127.0.0.1:4450\"\nserver = \"127.0.0.1:445\"", "ports = [445]"),
    )
    .unwrap();
    for command in ["check", "run"] {
        let output = client(&[command, "--config", &file]);
        assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
        assert!(stderr(&output).starts_with(&format!("{file}:10: rule[1].listen: ")), "{}", stderr(&output));
    }
}

#[test]
fn certificates_are_the_other_programs_business() {
    assert_eq!(client(&["certs", "show"]).status.code(), Some(64));
    let version = client(&["version"]);
    assert_eq!(
        String::from_utf8_lossy(&version.stdout).trim(),
        format!("isthmus-client {}", env!("CARGO_PKG_VERSION"))
    );
}
