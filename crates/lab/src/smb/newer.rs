//! A newer Samba than the system's, from Debian's backports, beside it.
//!
//! Its packages are unpacked into a folder and never installed. Its programs run in a mount namespace in which that folder
//! lies over /usr, so they find their own libraries and modules, and nobody else sees them.

use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use crate::proc::{required, run};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where Debian says from where packages come.
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";

/// What is fetched, with all that it needs in newer versions.
const PACKAGES: [&str; 4] = ["samba", "samba-vfs-modules", "samba-testsuite", "winbind"];

/// Lays a folder over /usr and goes on as the given command.
const SCRIPT: &str = "mount --make-rprivate / && mount -t overlay overlay -o \"lowerdir=$1/usr:/usr\" /usr && shift && exec \"$@\"";

/// A newer Samba in a folder.
#[derive(Clone, Debug)]
pub struct NewerSamba {
    root: PathBuf,
}

impl NewerSamba {
    /// Takes what is in `folder`, or fetches it there.
    ///
    /// # Errors
    /// This is no Debian with backports, or something cannot be fetched.
    pub fn fetch(folder: &Path) -> Result<NewerSamba> {
        required("unshare", "util-linux")?;
        let newer = NewerSamba { root: folder.join("root") };
        if !newer.root.join("usr/sbin/smbd").is_file() {
            // What an interrupted run has left must not look like the whole.
            std::fs::remove_dir_all(folder).or_else(ignore_missing).context(|| "clearing a folder".into())?;
            let archives = download(folder)?;
            let partial = folder.join("unpacking");
            for archive in archives {
                run(
                    &Place::Local,
                    &["dpkg-deb".as_ref(), "-x".as_ref(), archive.as_os_str(), partial.as_os_str()],
                )?;
            }
            std::fs::rename(&partial, &newer.root).context(|| "naming the unpacked folder".into())?;
        }
        Ok(newer)
    }

    /// What its smbd says of itself, such as `Version 4.22.6`.
    ///
    /// # Errors
    /// It does not run here.
    pub fn version(&self) -> Result<String> {
        let mut words = self.prefix();
        words.extend(["smbd", "--version"].map(OsString::from));
        Ok(run(&Place::Local, &words)?.trim().to_string())
    }

    /// The words that go before a command so that the command is this Samba's.
    pub(super) fn prefix(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["unshare", "-m", "sh", "-c", SCRIPT, "sh"].map(OsString::from).into();
        words.push(self.root.clone().into());
        words
    }
}

fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The archives, fetched with apt's own means and lists apart from the system's.
fn download(folder: &Path) -> Result<Vec<PathBuf>> {
    let unavailable =
        |remedy: &str| LabError::Unavailable { what: "a newer Samba".into(), remedy: remedy.into() };
    let sources =
        std::fs::read_to_string(SOURCES).map_err(|_| unavailable("it is fetched on Debian only"))?;
    let (mirror, suite) = mirror_and_suite(&sources)
        .ok_or_else(|| unavailable("the system's list of sources cannot be read"))?;
    let archives = folder.join("archives");
    for made in [folder.join("lists"), archives.join("partial")] {
        std::fs::create_dir_all(&made).context(|| format!("making {}", made.display()))?;
    }
    let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    let list = folder.join("sources.list");
    let text = format!("deb {key} {mirror} {suite}-backports main\ndeb {key} {mirror} {suite} main\n");
    std::fs::write(&list, text).context(|| format!("writing {}", list.display()))?;
    let settings = [
        format!("Dir::Etc::sourcelist={}", list.display()),
        "Dir::Etc::sourceparts=/dev/null".into(),
        format!("Dir::State::lists={}", folder.join("lists").display()),
        format!("Dir::Cache::archives={}", archives.display()),
        "Dir::Cache::pkgcache=".into(),
        "Dir::Cache::srcpkgcache=".into(),
    ];
    let apt = |words: &[&str]| {
        let mut command: Vec<String> = vec!["apt-get".into(), "-qq".into(), "-y".into()];
        command.extend(settings.iter().flat_map(|setting| ["-o".into(), setting.clone()]));
        command.extend(words.iter().map(|word| (*word).to_string()));
        run(&Place::Local, &command).map_err(|error| unavailable(&format!("apt could not fetch it: {error}")))
    };
    apt(&["update"])?;
    let target = format!("--target-release={suite}-backports");
    let mut install = vec!["install", "--download-only", "--no-install-recommends", &target];
    install.extend(PACKAGES);
    apt(&install)?;
    let entries = std::fs::read_dir(&archives).context(|| format!("listing {}", archives.display()))?;
    let found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    if found.is_empty() { Err(unavailable("apt has fetched nothing")) } else { Ok(found) }
}

/// The first mirror and its first suite.
fn mirror_and_suite(sources: &str) -> Option<(String, String)> {
    let first = |key: &str| {
        let line = sources.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next().map(String::from)
    };
    Some((first("URIs:")?, first("Suites:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_systems_own() {
        let sources = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
                       Components: main\n\nTypes: deb\nURIs: http://security.example/\nSuites: bookworm-security\n";
        let expected = ("http://mirror.example/debian".to_string(), "bookworm".to_string());
        assert_eq!(mirror_and_suite(sources), Some(expected));
        assert_eq!(mirror_and_suite("nothing"), None);
    }
}
