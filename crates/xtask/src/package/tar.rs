//! A tar archive of both sides with an install script, for distributions without Debian packages.

use super::tree::{PLAIN, PROGRAM, Tree};
use super::{SIDES, SOURCES, name, source_date, word};
use crate::cargo;
use isthmus_lab::Result;
use isthmus_lab::pair::Binaries;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes the archive in `output` and returns its path.
///
/// # Errors
/// A file cannot be read or written, or a program that packs is missing or fails.
pub fn make(binaries: &Binaries, version: &str, notices: &str, output: &Path) -> Result<Vec<PathBuf>> {
    let tree = Tree::new()?;
    let folder = format!("isthmus-{version}-{}-linux", std::env::consts::ARCH);
    for side in SIDES {
        let (word, package) = (word(side), name(side));
        tree.copy_program(side, binaries, &format!("{folder}/bin/{package}"))?;
        let unit = format!("{package}.service");
        tree.copy(&format!("{SOURCES}/systemd/{unit}"), &format!("{folder}/systemd/{unit}"), PLAIN)?;
        tree.copy(
            &format!("deploy/examples/{word}.toml"),
            &format!("{folder}/etc/{word}.example.toml"),
            PLAIN,
        )?;
        tree.write_documents(side, &format!("{folder}/doc/{package}"), notices)?;
    }
    tree.copy("LICENSE", &format!("{folder}/LICENSE"), PLAIN)?;
    tree.copy("CHANGELOG.md", &format!("{folder}/CHANGELOG.md"), PLAIN)?;
    tree.copy(&format!("{SOURCES}/install.sh"), &format!("{folder}/install.sh"), PROGRAM)?;

    let archive = output.join(format!("{folder}.tar.gz"));
    let date = source_date().unwrap_or_else(|| "0".into());
    let mut command = Command::new("tar");
    // -n: without the time of packing.
    command.args(["--create", "--use-compress-program=gzip -n", "--owner=0", "--group=0"]);
    command.args(["--numeric-owner", "--sort=name"]);
    command.arg(format!("--mtime=@{date}")).arg("--file").arg(&archive).arg("--directory").arg(tree.path());
    cargo::run(command.arg(&folder).stdin(Stdio::null()))?;
    Ok(vec![archive])
}
