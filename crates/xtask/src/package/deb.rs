//! Debian packages, packed by dpkg-deb from a tree made here.

use super::tree::{PLAIN, PROGRAM, Tree, failed};
use super::{SIDES, SOURCES, name, source, source_date, word};
use crate::cargo;
use isthmus_lab::pair::Binaries;
use isthmus_lab::proc::run as run_command;
use isthmus_lab::{LabError, Place, Result};
use isthmus_types::Side;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who is asked about a package. The name under `.invalid` says that there is no mailbox.
const MAINTAINER: &str = "Isthmus developers <packages@isthmus.invalid>";

/// Start of the C library's symbol versions in a program.
const SYMBOL_VERSION: &[u8] = b"GLIBC_2.";

/// Makes both packages in `output` and returns their paths.
///
/// # Errors
/// A file cannot be read or written, or a program that packs is missing or fails.
pub fn make(binaries: &Binaries, version: &str, notices: &str, output: &Path) -> Result<Vec<PathBuf>> {
    SIDES.into_iter().map(|side| make_one(side, binaries, version, notices, output)).collect()
}

fn make_one(side: Side, binaries: &Binaries, version: &str, notices: &str, output: &Path) -> Result<PathBuf> {
    let tree = Tree::new()?;
    let (word, name) = (word(side), name(side));
    tree.copy_program(side, binaries, &format!("usr/bin/{name}"))?;
    tree.copy(
        &format!("{SOURCES}/systemd/{name}.service"),
        &format!("usr/lib/systemd/system/{name}.service"),
        PLAIN,
    )?;
    let example = format!("etc/isthmus/{word}.example.toml");
    tree.copy(&format!("deploy/examples/{word}.toml"), &example, PLAIN)?;
    let documents = format!("usr/share/doc/{name}");
    tree.write_documents(side, &documents, notices)?;
    tree.copy(&format!("{SOURCES}/debian/copyright"), &format!("{documents}/copyright"), PLAIN)?;
    tree.write_compressed(&format!("{documents}/changelog"), &source("CHANGELOG.md")?)?;

    let files = tree.files()?;
    write_control(&tree, side, version, &files)?;
    tree.write("DEBIAN/conffiles", PLAIN, format!("/{example}\n").as_bytes())?;
    for script in ["postinst", "prerm", "postrm"] {
        let text = source(&format!("{SOURCES}/debian/{script}"))?.replace("@SIDE@", word);
        tree.write(&format!("DEBIAN/{script}"), PROGRAM, text.as_bytes())?;
    }
    pack(&tree, &output.join(format!("{name}_{version}_{}.deb", architecture()?)))
}

fn write_control(tree: &Tree, side: Side, version: &str, files: &[PathBuf]) -> Result<()> {
    let mut bytes = 0;
    for file in files {
        let path = tree.path().join(file);
        bytes += std::fs::metadata(&path).map_err(|error| failed("looking at", &path, error))?.len();
    }
    let program = tree.path().join("usr/bin").join(name(side));
    let program = std::fs::read(&program).map_err(|error| failed("reading", &program, error))?;
    let template = source(&format!("{SOURCES}/debian/control.{}", word(side)))?;
    let control = template
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture()?)
        .replace("@MAINTAINER@", MAINTAINER)
        .replace("@KIBIBYTES@", &bytes.div_ceil(1024).to_string())
        .replace("@LIBC@", &format!("2.{}", c_library(&program)?));
    tree.write("DEBIAN/control", PLAIN, control.as_bytes())?;
    let mut sums = Command::new("md5sum");
    sums.arg("--").args(files).current_dir(tree.path()).stdin(Stdio::null());
    let sums = sums.output().map_err(|error| failed("starting", Path::new("md5sum"), error))?;
    tree.write("DEBIAN/md5sums", PLAIN, &sums.stdout)
}

/// Second number of the newest version of the C library that a program asks for (`34` of 2.34).
fn c_library(program: &[u8]) -> Result<u32> {
    let number = |rest: &[u8]| {
        let digits: Vec<u8> = rest.iter().copied().take_while(u8::is_ascii_digit).take(4).collect();
        String::from_utf8(digits).ok()?.parse().ok()
    };
    program
        .windows(SYMBOL_VERSION.len())
        .enumerate()
        .filter(|(_, window)| *window == SYMBOL_VERSION)
        .filter_map(|(at, _)| number(program.get(at + SYMBOL_VERSION.len()..)?))
        .max()
        .ok_or_else(|| LabError::Format {
            what: "the program".into(),
            detail: "it names no version of the C library".into(),
        })
}

/// Debian's name of this machine's architecture.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(LabError::Unavailable {
            what: format!("a name for the architecture {other}"),
            remedy: "packages are made on x86_64 and aarch64".into(),
        }),
    }
}

fn pack(tree: &Tree, to: &Path) -> Result<PathBuf> {
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]).arg(tree.path()).arg(to);
    if let Some(date) = source_date().filter(|_| std::env::var_os("SOURCE_DATE_EPOCH").is_none()) {
        command.env("SOURCE_DATE_EPOCH", date);
    }
    cargo::run(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
    // What cannot be read back is no package.
    run_command(&Place::Local, &["dpkg-deb", "--info", &to.display().to_string()])?;
    Ok(to.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_version_counts() {
        assert_eq!(c_library(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_2.\0").unwrap(), 34);
        assert!(c_library(b"static").is_err());
    }
}
