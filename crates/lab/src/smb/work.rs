//! The same work on a share for every client: what is to be done, how it went, and whether both ends have the bytes.

use super::account::Account;
use super::protocol::{Dialect, Protected};
use crate::corpus::{FileSpec, awkward_names, random_bytes, write_folder};
use crate::error::{Context as _, LabError, Result};
use crate::proc::{Proc, ProcSpec};
use crate::scratch::Scratch;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of one client's work.
pub(super) const WORK_LIMIT: Duration = Duration::from_secs(240);

/// Bytes of the largest file: several messages, and not too many for clients that sign slowly.
const LARGE_BYTES: usize = 300_001;

/// Offset of a range that crosses the boundary of 32-bit offsets, and what is written there.
pub(super) const FAR: u64 = (1 << 32) - 5;
pub(super) const FAR_BYTES: &[u8] = b"across 2^32";

/// Names of steps that are judged by looking at both ends.
const STORED: &str = "stored";
const RECEIVED: &str = "received";
const LISTED: &str = "listed";

/// Where to log on, and as whom.
#[derive(Clone, Debug)]
pub struct Login {
    /// Address that leads to the server.
    pub server: SocketAddr,
    /// Name of the share.
    pub share: String,
    /// The user.
    pub account: Account,
    /// By Kerberos; none: NTLM.
    pub kerberos: Option<Kerberos>,
    /// The dialect that is to be spoken.
    pub dialect: Dialect,
    /// How messages are to be protected.
    pub protected: Protected,
}

/// What a client needs for Kerberos: it has tickets already.
#[derive(Clone, Debug)]
pub struct Kerberos {
    /// The realm.
    pub realm: String,
    /// Name of the server, for which the ticket is.
    pub server_name: String,
    /// Address of the key distribution centre.
    pub kdc: IpAddr,
    /// Variables that lead to tickets, configuration and the server's name.
    pub environment: Vec<(String, String)>,
}

/// What is to be done: put a folder, list it, get it back, rename a file, delete a file; those who can also write beyond
/// 4 GiB and set times.
#[derive(Clone, Debug)]
pub struct ShareWork {
    /// Local folder that is put on the share.
    pub sent: PathBuf,
    /// Empty local folder for what is got back.
    pub back: PathBuf,
    /// Folder on the share, which does not exist yet.
    pub folder: String,
    /// A file and its new name.
    pub rename: (String, String),
    /// A file that is deleted.
    pub delete: String,
}

/// How each step went: nothing, or what went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// By the step's name.
    pub by_name: BTreeMap<String, Option<String>>,
    /// Names that the client has listed.
    pub listed: Vec<String>,
}

impl Login {
    /// `//server/share`, by name where a ticket is for a name.
    pub(super) fn unc(&self) -> String {
        let address = self.server.ip().to_string();
        let name = self.kerberos.as_ref().map_or(address, |kerberos| kerberos.server_name.clone());
        format!("//{name}/{}", self.share)
    }

    /// A client configuration for Samba's programs that allows this dialect and this protection only.
    pub(super) fn samba_configuration(&self) -> String {
        let dialect = self.dialect.samba();
        let mut text = format!(
            "[global]\nclient min protocol = {dialect}\nclient max protocol = {dialect}\nname resolve order = host\n\
             client signing = required\n"
        );
        match self.protected {
            Protected::Signed(algorithm) => {
                text.push_str(&format!("client smb3 signing algorithms = {}\n", algorithm.as_str()));
            }
            Protected::Sealed(cipher) => text.push_str(&format!(
                "client smb encrypt = required\nclient smb3 encryption algorithms = {}\n",
                cipher.as_str()
            )),
        }
        text
    }

    /// The variables of [`Kerberos`], if any, and a locale in which all names can be written.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let mut all = vec![("LC_ALL".into(), "C.UTF-8".into()), ("PYTHONUTF8".into(), "1".into())];
        all.extend(self.kerberos.iter().flat_map(|kerberos| kerberos.environment.clone()));
        all
    }
}

impl ShareWork {
    /// Makes the folder that is sent: names in many scripts, an empty file, and one of several messages.
    ///
    /// # Errors
    /// Files cannot be written.
    pub fn make_folder(folder: &Path, seed: u64) -> Result<u64> {
        let mut files = awkward_names(seed);
        files.push(FileSpec { path: "large.bin".into(), content: random_bytes(LARGE_BYTES, seed) });
        files.push(FileSpec { path: "empty".into(), content: Vec::new() });
        write_folder(folder, &files)
    }

    /// Work with a folder of [`ShareWork::make_folder`].
    pub fn new(sent: &Path, back: &Path, folder: &str) -> ShareWork {
        ShareWork {
            sent: sent.into(),
            back: back.into(),
            folder: folder.into(),
            rename: ("large.bin".into(), "大きい 🗜 re\u{301}nomme\u{301}.bin".into()),
            delete: "empty".into(),
        }
    }

    /// Adds to `steps` whether the share, the folder that came back and the list are as they must be.
    ///
    /// # Errors
    /// The local folder cannot be read.
    pub fn judge(&self, share_path: &Path, steps: &mut Steps) -> Result<()> {
        let sent = contents(&self.sent)?;
        if steps.is_done("list") {
            let names: BTreeSet<&str> = sent.keys().filter_map(|name| name.split('/').next()).collect();
            let listed: BTreeSet<&str> = steps.listed.iter().map(String::as_str).collect();
            let differing: Vec<_> = names.symmetric_difference(&listed).take(3).collect();
            let verdict = (!differing.is_empty()).then(|| format!("missing or extra: {differing:?}"));
            steps.set(LISTED, verdict);
        }
        if steps.is_done("get") {
            let verdict = difference(&sent, &contents(&self.back)?);
            steps.set(RECEIVED, verdict);
        }
        if !steps.is_done("put") {
            return Ok(());
        }
        let mut expected = sent;
        if steps.is_done("rename")
            && let Some(content) = expected.remove(&self.rename.0)
        {
            expected.insert(self.rename.1.clone(), content);
        }
        if steps.is_done("delete") {
            expected.remove(&self.delete);
        }
        let stored = contents(&share_path.join(&self.folder)).unwrap_or_default();
        steps.set(STORED, difference(&expected, &stored));
        if steps.is_done("far") {
            let verdict = check_far(&share_path.join(format!("{}.far", self.folder)));
            steps.set("far stored", verdict);
        }
        Ok(())
    }
}

impl Steps {
    /// Enters how a step went.
    pub fn set(&mut self, name: &str, problem: Option<String>) {
        self.by_name.insert(name.into(), problem);
    }

    /// Does a step and enters how it went.
    pub(super) fn attempt<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Option<T> {
        let result = step();
        self.set(name, result.as_ref().err().map(|error| error.to_string().replace('\n', " ")));
        result.ok()
    }

    /// Whether a step was done without a problem.
    pub fn is_done(&self, name: &str) -> bool {
        self.by_name.get(name) == Some(&None)
    }
}

/// Runs a program to its end, or for [`WORK_LIMIT`], and returns what it printed.
///
/// # Errors
/// It cannot be started, takes too long, or ends with a status other than 0.
pub(super) fn run_limited(mut spec: ProcSpec) -> Result<String> {
    let scratch = Scratch::new("client")?;
    spec.log = scratch.join("output");
    let mut process = Proc::spawn(&spec)?;
    let status = process.wait(WORK_LIMIT)?;
    let bytes = std::fs::read(&spec.log).context(|| format!("reading {}", spec.log.display()))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    Err(LabError::Command { program: spec.name, status: status.to_string(), output: process.log_tail() })
}

/// Every file below a folder with its content.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let files = super::client::list(folder)?;
    let read = |(name, path): (String, PathBuf)| {
        let content = std::fs::read(&path).context(|| format!("reading {}", path.display()))?;
        Ok((name, content))
    };
    files.into_iter().map(read).collect()
}

fn difference(expected: &BTreeMap<String, Vec<u8>>, got: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let differs = |(name, content): (&String, &Vec<u8>)| match got.get(name) {
        None => Some(format!("{name} is missing")),
        Some(other) if other != content => Some(format!("{name} differs")),
        Some(_) => None,
    };
    let extra =
        || got.keys().find(|name| !expected.contains_key(*name)).map(|name| format!("{name} is extra"));
    expected.iter().find_map(differs).or_else(extra)
}

fn check_far(path: &Path) -> Option<String> {
    let read = || {
        let file = std::fs::File::open(path)?;
        let mut found = vec![0xff; FAR_BYTES.len() + 4];
        file.read_exact_at(&mut found, FAR - 4)?;
        Ok::<_, std::io::Error>((found, file.metadata()?.len()))
    };
    let expected = [&[0; 4], FAR_BYTES].concat();
    match read() {
        Ok((found, length)) if found == expected && length == FAR + FAR_BYTES.len() as u64 => None,
        Ok((found, length)) => Some(format!("{length} bytes, at the end {found:?}")),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared() -> (tempfile::TempDir, ShareWork) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["sent", "back", "share/f"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for (name, text) in [("sent/large.bin", "1"), ("sent/empty", ""), ("sent/日本", "x")] {
            std::fs::write(at(name), text).unwrap();
        }
        let work = ShareWork::new(&at("sent"), &at("back"), "f");
        (dir, work)
    }

    #[test]
    fn both_ends_are_looked_at() {
        let (dir, work) = prepared();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("share/f").join(&work.rename.1), "1").unwrap();
        std::fs::write(at("share/f/日本"), "x").unwrap();
        for (name, text) in [("back/large.bin", "1"), ("back/empty", ""), ("back/日本", "x")] {
            std::fs::write(at(name), text).unwrap();
        }
        let mut steps =
            Steps { listed: ["large.bin", "empty", "日本"].map(String::from).into(), ..Steps::default() };
        ["put", "list", "get", "rename", "delete"].iter().for_each(|name| steps.set(name, None));
        work.judge(&at("share"), &mut steps).unwrap();
        assert!(steps.by_name.values().all(Option::is_none), "{steps:?}");

        std::fs::write(at("share/f/日本"), "y").unwrap();
        std::fs::remove_file(at("back/empty")).unwrap();
        steps.listed.push("other".into());
        work.judge(&at("share"), &mut steps).unwrap();
        let problem = |name: &str| steps.by_name[name].clone().unwrap();
        assert_eq!(problem(STORED), "日本 differs");
        assert_eq!(problem(RECEIVED), "empty is missing");
        assert!(problem(LISTED).contains("other"));
    }

    #[test]
    fn a_range_beyond_four_gibibytes_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.far");
        let file = std::fs::File::create(&path).unwrap();
        file.write_all_at(FAR_BYTES, FAR).unwrap();
        assert_eq!(check_far(&path), None);
        file.write_all_at(b"x", FAR - 2).unwrap();
        assert!(check_far(&path).is_some());
        assert!(check_far(&dir.path().join("none")).is_some());
    }
}
