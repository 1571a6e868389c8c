//! What must go away again: namespaces and processes, whether the run ends, is dropped, or is interrupted.
//!
//! Everything the lab makes outside its own memory is entered here and struck out when it is gone. A signal handler
//! works off the list; and since nothing can run after SIGKILL, names carry the process id of their maker, so that the
//! next run can tell what was left behind.

use crate::error::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// Time for processes to end by themselves before they are killed.
const TERM_GRACE: Duration = Duration::from_millis(700);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { next: 0, leftovers: BTreeMap::new() });
static HANDLER: Once = Once::new();
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Something that outlives the process unless it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// A child process.
    Process(i32),
    /// A named network namespace.
    Namespace(String),
    /// A folder with private data.
    Folder(PathBuf),
}

struct Registry {
    next: u64,
    leftovers: BTreeMap<u64, Leftover>,
}

/// An entry of the list; dropping it strikes the entry out without removing anything.
pub(crate) struct Entry(u64);

impl Entry {
    /// Enters something that must be removed when the process is interrupted.
    pub(crate) fn new(leftover: Leftover) -> Entry {
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        let id = registry.next;
        registry.next += 1;
        registry.leftovers.insert(id, leftover);
        Entry(id)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        REGISTRY.lock().unwrap_or_else(PoisonError::into_inner).leftovers.remove(&self.0);
    }
}

/// Removes everything on the list, latest first.
pub fn remove_leftovers() {
    let leftovers = {
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut registry.leftovers)
    };
    let processes = |signal| {
        for leftover in leftovers.values().rev() {
            if let Leftover::Process(pid) = leftover {
                // It may have ended meanwhile; then there is nothing to remove.
                let _ = kill(Pid::from_raw(*pid), signal);
            }
        }
    };
    // Servers that have children of their own take them along only when they are asked to end.
    processes(Signal::SIGTERM);
    if leftovers.values().any(|leftover| matches!(leftover, Leftover::Process(_))) {
        std::thread::sleep(TERM_GRACE);
    }
    processes(Signal::SIGKILL);
    for leftover in leftovers.values().rev() {
        remove(leftover);
    }
}

/// On SIGINT or SIGTERM: removes everything on the list and ends the process with status 128 + signal.
///
/// # Errors
/// The handler cannot be installed.
pub fn on_interrupt() -> Result<()> {
    let mut result = Ok(());
    HANDLER.call_once(|| {
        result = Signals::new([SIGINT, SIGTERM]).map(|mut signals| {
            std::thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    IS_INTERRUPTED.store(true, Ordering::Release);
                    eprintln!("\ninterrupted: cleaning up");
                    remove_leftovers();
                    std::process::exit(128 + signal);
                }
            });
        });
    });
    result.context(|| "installing the signal handler".into())
}

/// When the process is being interrupted: waits for the handler to end it, so that the failures which follow from its
/// work are not reported as if they were the cause. Otherwise returns at once.
pub fn wait_if_interrupted() {
    while IS_INTERRUPTED.load(Ordering::Acquire) {
        std::thread::park();
    }
}

/// The part of names that tells whose they are: the process id.
pub(crate) fn owner_tag() -> String {
    std::process::id().to_string()
}

/// Whether the process that a name's tag speaks of has ended.
pub(crate) fn is_owner_gone(tag: &str) -> bool {
    tag.parse::<i32>().is_ok_and(|pid| !std::path::Path::new("/proc").join(pid.to_string()).exists())
}

fn remove(leftover: &Leftover) {
    // Best effort by nature: the process is ending and there is nobody to tell.
    match leftover {
        Leftover::Process(_) => {}
        Leftover::Namespace(name) => {
            let status = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
            drop(status);
        }
        Leftover::Folder(path) => drop(std::fs::remove_dir_all(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_struck_out_when_dropped() {
        let leftover = Leftover::Folder("/nonexistent/of-a-test".into());
        let listed = |wanted: &Leftover| REGISTRY.lock().unwrap().leftovers.values().any(|l| l == wanted);
        let entry = Entry::new(leftover.clone());
        assert!(listed(&leftover));
        drop(entry);
        assert!(!listed(&leftover));
    }

    #[test]
    fn only_tags_of_dead_processes_are_stale() {
        assert!(!is_owner_gone(&owner_tag()));
        assert!(is_owner_gone("2147483646"));
        assert!(!is_owner_gone("not-a-number"));
    }
}
