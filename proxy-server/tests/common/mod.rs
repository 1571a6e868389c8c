//! The program, run to its end, and a configuration for it.

// Helpers of tests may unwrap, as tests do; each test uses its part of them.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isthmus-server"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ISTHMUS_") {
            command.env_remove(name);
        }
    }
    command
}

pub fn server(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

pub fn ok(arguments: &[&str]) -> String {
    let output = server(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub fn fails(arguments: &[&str], status: i32) -> String {
    let output = server(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
    stderr(&output)
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A configuration with certificates, in `dir`.
pub fn configured(dir: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../certs/demo.sh");
    let made = Command::new("sh")
        .arg(script)
        .arg(dir)
        .args(["proxy.example", "192.0.2.7", "2001:db8::7"])
        .env("ISTHMUS_SERVER", env!("CARGO_BIN_EXE_isthmus-server"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let file = dir.join("server.toml");
    let text = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nca = \"ca.pem\"\ncrl = \"ca/crl.pem\"\n\n\
                [[allow]]\ndestination = \"127.0.0.1\"\n";
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_string()
}
