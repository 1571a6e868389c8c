//! A folder that becomes a package: files with their modes.

use super::{DOCUMENTS, SOURCES, program, source, word};
use crate::cargo;
use isthmus_lab::pair::Binaries;
use isthmus_lab::proc::run as run_command;
use isthmus_lab::{LabError, Place, Result, Scratch};
use isthmus_types::Side;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Most files that one package may have: a bound for the walk over them.
const FILES_MAX: usize = 10_000;

/// Mode of files that are read.
pub const PLAIN: u32 = 0o644;

/// Mode of files that are run.
pub const PROGRAM: u32 = 0o755;

/// A folder that is filled and then packed.
pub struct Tree {
    scratch: Scratch,
}

impl Tree {
    /// An empty one.
    ///
    /// # Errors
    /// The temporary folder cannot be written.
    pub fn new() -> Result<Tree> {
        let tree = Tree { scratch: Scratch::new("package")? };
        // The folder itself becomes the root of file systems that the package is unpacked on.
        set_mode(tree.path(), PROGRAM)?;
        Ok(tree)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Writes a file, `to` being its path below the root; its folders are made.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, to: &str, mode: u32, content: &[u8]) -> Result<()> {
        let path = self.path().join(to);
        let folders: Vec<&Path> = Path::new(to).ancestors().skip(1).collect();
        for folder in folders.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()) {
            let folder = self.path().join(folder);
            if !folder.is_dir() {
                fs::create_dir(&folder).map_err(|error| failed("making", &folder, error))?;
                set_mode(&folder, PROGRAM)?;
            }
        }
        fs::write(&path, content).map_err(|error| failed("writing", &path, error))?;
        set_mode(&path, mode)
    }

    /// Writes a copy of a file of the workspace.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn copy(&self, from: &str, to: &str, mode: u32) -> Result<()> {
        let path = cargo::workspace().join(from);
        let content = fs::read(&path).map_err(|error| failed("reading", &path, error))?;
        self.write(to, mode, &content)
    }

    /// Writes a copy of a side's program without the tables that only a debugger wants.
    ///
    /// # Errors
    /// It cannot be read or written, or `strip` (binutils) is missing or fails.
    pub fn copy_program(&self, side: Side, binaries: &Binaries, to: &str) -> Result<()> {
        self.write(to, PROGRAM, b"")?;
        let path = self.path().join(to);
        let from = program(side, binaries).display().to_string();
        let stripped = path.display().to_string();
        run_command(&Place::Local, &["strip", "--strip-unneeded", "-o", &stripped, &from])?;
        set_mode(&path, PROGRAM)
    }

    /// Writes the documents of a side, its example configurations and the licences into `folder`.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn write_documents(&self, side: Side, folder: &str, notices: &str) -> Result<()> {
        for document in DOCUMENTS {
            // Two documents are called README: that of the certificates takes the name of its folder.
            let name = if *document == "certs/README.md" { "certificates.md" } else { file_name(document) };
            let text = source(document)?.replace("../certs/README.md", "certificates.md");
            self.write(&format!("{folder}/{name}"), PLAIN, text.as_bytes())?;
        }
        self.write_compressed(&format!("{folder}/third-party-licences.txt"), notices)?;
        let examples = format!("{folder}/examples");
        let own = format!("{}.toml", word(side));
        self.copy(&format!("deploy/examples/{own}"), &format!("{examples}/{own}"), PLAIN)?;
        let drop_in = "interception.conf";
        self.copy(&format!("{SOURCES}/systemd/{drop_in}"), &format!("{examples}/{drop_in}"), PLAIN)?;
        if side == Side::Server {
            for file in
                ["prometheus/prometheus.yml", "prometheus/alerts.yml", "grafana/dashboards/isthmus.json"]
            {
                self.copy(&format!("deploy/{file}"), &format!("{examples}/{file}"), PLAIN)?;
            }
        }
        Ok(())
    }

    /// Writes `text` compressed by gzip, `.gz` appended to the name.
    ///
    /// # Errors
    /// It cannot be written, or gzip is missing.
    pub fn write_compressed(&self, to: &str, text: &str) -> Result<()> {
        self.write(to, PLAIN, text.as_bytes())?;
        let path = self.path().join(to).display().to_string();
        // No name and no time in it, so that the same text gives the same file.
        run_command(&Place::Local, &["gzip", "-9n", &path])?;
        Ok(())
    }

    /// Every file below the root, as paths from there, sorted.
    ///
    /// # Errors
    /// A folder cannot be read, or there are too many files.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![self.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(|error| failed("reading", &folder, error))? {
                let path = entry.map_err(|error| failed("reading", &folder, error))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(below) = path.strip_prefix(self.path()) {
                    found.push(below.to_path_buf());
                }
            }
            if found.len() > FILES_MAX {
                return Err(LabError::Format {
                    what: "the package".into(),
                    detail: format!("it has more than {FILES_MAX} files"),
                });
            }
        }
        found.sort();
        Ok(found)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(|error| failed("setting the mode of", path, error))
}

/// An IO error with what was being done.
pub fn failed(action: &str, path: &Path, source: std::io::Error) -> LabError {
    LabError::Io { action: format!("{action} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_their_modes_whatever_the_umask() {
        let tree = Tree::new().unwrap();
        tree.write("a/b/run", PROGRAM, b"#!/bin/sh\n").unwrap();
        tree.write("a/read", PLAIN, b"").unwrap();
        let mode = |path: &str| fs::metadata(tree.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode(""), mode("a"), mode("a/b"), mode("a/b/run")], [0o755; 4]);
        assert_eq!(mode("a/read"), 0o644);
        assert_eq!(tree.files().unwrap(), [PathBuf::from("a/b/run"), PathBuf::from("a/read")]);
    }
}
