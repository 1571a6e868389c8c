//! Every file in `tests/invalid` and the messages it gives, compared with `tests/golden/errors.txt`.
//!
//! To write the golden file anew after a change that is meant: `ISTHMUS_BLESS=1 cargo test -p isthmus-config`.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use isthmus_config::{ClientConfig, ConfigErrors, Origin, Overrides, Problem, ServerConfig};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn invalid_files() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(here().join("invalid"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn errors(name: &str, text: &[u8], overrides: &Overrides) -> ConfigErrors {
    if name.starts_with("client") {
        ClientConfig::parse(text, Path::new(name), overrides).map(|_| ()).unwrap_err()
    } else {
        ServerConfig::parse(text, Path::new(name), overrides).map(|_| ()).unwrap_err()
    }
}

fn bad_overrides() -> Overrides {
    let mut overrides = Overrides::none().with_environment(
        [("ISTHMUS_STORE_SIZE", "much"), ("ISTHMUS_RULE", "[{"), ("ISTHMUS_LIMITS_ADMISSION_ON", "some")]
            .map(|(k, v)| (k.into(), v.into())),
    );
    for assignment in [
        "store.sise=1 GiB",
        "stor.size=1 GiB",
        "heartbeat=1s",
        "rule.action=deny",
        "listen.address=0.0.0.0:1",
        "store.encryption=maybe",
        "store.cache",
        "=x",
        "admin.names=[\"a\", 1]",
    ] {
        overrides.set(assignment);
    }
    overrides.flag("--log-level", "log.level", "loud");
    overrides
}

fn report() -> String {
    let mut report = String::new();
    for (name, text) in invalid_files() {
        writeln!(report, "== {name}\n{}\n", errors(&name, &text, &Overrides::none())).unwrap();
    }
    let valid = include_bytes!("full/client.toml");
    writeln!(report, "== overrides\n{}", errors("client.toml", valid, &bad_overrides())).unwrap();
    report
}

#[test]
fn messages_are_those_of_the_golden_file() {
    let golden = here().join("golden/errors.txt");
    let report = report();
    if std::env::var_os("ISTHMUS_BLESS").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &report).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    for (line, (is, was)) in report.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, was, "line {} of the report differs from tests/golden/errors.txt", line + 1);
    }
    assert_eq!(report.lines().count(), expected.lines().count());
}

#[test]
fn every_error_names_file_line_and_key() {
    let mut kinds = BTreeSet::new();
    for (name, text) in invalid_files() {
        let lines = String::from_utf8(text.clone()).unwrap().lines().count().max(1);
        for error in errors(&name, &text, &Overrides::none()).0 {
            let Origin::File { name: file, line } = &error.place else { panic!("{error} has no line") };
            assert_eq!(**file, *name);
            assert!((1..=lines).contains(line), "{error}");
            assert!(!error.key.is_empty());
            assert!(error.to_string().starts_with(&format!("{name}:{line}: {}: ", error.key)), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            kinds.insert(match error.problem {
                Problem::Syntax(_) => "syntax",
                Problem::UnknownKey { .. } => "unknown",
                Problem::WrongType { .. } => "type",
                Problem::Impossible { .. } => "impossible",
                Problem::Missing { .. } => "missing",
                Problem::Conflict(_) => "conflict",
            });
        }
    }
    assert_eq!(kinds.len(), 6, "the files in tests/invalid show every kind of error: {kinds:?}");
}
