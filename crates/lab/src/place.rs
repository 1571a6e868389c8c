//! Where something runs: on this host's own network or inside a network namespace.
//!
//! A thread may move itself into a namespace; every socket it then makes belongs there. So servers and clients of the
//! lab run in this process, each on a thread in its place, and need no helper program.

use crate::error::{Context as _, LabError, Result};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::future::Future;
use std::path::Path;

/// Folder in which `ip netns` keeps its named namespaces.
const NETNS_DIR: &str = "/run/netns";

/// Where something runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This host's own network.
    Local,
    /// The named network namespace (`ip netns`).
    Namespace(String),
}

impl Place {
    /// Moves the calling thread there, for good. Only for threads made for that purpose.
    ///
    /// # Errors
    /// The namespace does not exist, or the process may not enter it.
    pub fn enter(&self) -> Result<()> {
        let Place::Namespace(name) = self else { return Ok(()) };
        let path = Path::new(NETNS_DIR).join(name);
        let file = File::open(&path).context(|| format!("opening network namespace {name}"))?;
        setns(file, CloneFlags::CLONE_NEWNET).context(|| format!("entering network namespace {name}"))
    }

    /// Runs `work` on a thread in this place and returns what it returns.
    ///
    /// # Errors
    /// Those of entering the place and those of `work`; a panic of `work` is an error too.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                work()
            });
            worker.join().unwrap_or_else(|_| {
                Err(LabError::Format {
                    what: "the result of a worker thread".into(),
                    detail: "it panicked".into(),
                })
            })
        })
    }

    /// Runs the future that `make` returns on a thread in this place, with a runtime of its own.
    ///
    /// # Errors
    /// Those of entering the place and those of the future.
    pub fn block_on<T: Send, F>(&self, make: impl FnOnce() -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.run(|| runtime()?.block_on(make()))
    }

    /// The words that go before a command line so that the command runs in this place.
    pub fn command_prefix(&self) -> Vec<String> {
        match self {
            Place::Local => Vec::new(),
            Place::Namespace(name) => ["ip", "netns", "exec", name].map(String::from).to_vec(),
        }
    }
}

/// A runtime for one thread, with timers and IO.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context(|| "starting a runtime".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_the_local_place_returns_its_value_and_its_error() {
        assert_eq!(Place::Local.run(|| Ok(7)).unwrap(), 7);
        assert_eq!(Place::Local.block_on(|| async { Ok(8) }).unwrap(), 8);
        let missing = Place::Namespace("isthmus-no-such".into()).run(|| Ok(()));
        assert!(matches!(missing, Err(LabError::Io { .. })), "{missing:?}");
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let result: Result<()> = Place::Local.run(|| panic!("meant"));
        assert!(matches!(result, Err(LabError::Format { .. })));
    }
}
