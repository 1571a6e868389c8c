use crate::limits::{COMMAND_RETRY, WATCH_INTERVAL};
use crate::{KeyStore, KeysError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Keeps a [`KeyStore`] up to date: one thread looks at the files, one for each command runs it, at once and then on
/// its schedule. Dropping it stops them, and kills commands that are running.
pub struct Watch {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Starts the threads.
    pub fn start(store: &Arc<KeyStore>) -> Result<Self, KeysError> {
        let mut watch = Self { stop: Arc::default(), threads: Vec::new() };
        let files = Arc::clone(store);
        watch.spawn("keys-files", move |stop| {
            while stop.wait(WATCH_INTERVAL) {
                files.look();
            }
        })?;
        for (number, command) in store.commands().enumerate() {
            let (store, interval) = (Arc::clone(store), command.interval);
            watch.spawn("keys-command", move |stop| {
                let mut pause = Duration::ZERO;
                while stop.wait(pause) {
                    let went_well = store.run_command(number, &|| stop.is_set());
                    pause = if went_well { interval } else { interval.min(COMMAND_RETRY) };
                }
            })?;
        }
        Ok(watch)
    }

    fn spawn(&mut self, name: &str, work: impl Fn(&Stop) + Send + 'static) -> Result<(), KeysError> {
        let stop = Arc::clone(&self.stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&stop));
        self.threads.push(thread.map_err(KeysError::Thread)?);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // A thread that panicked has already told so.
        }
    }
}

#[derive(Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits this long; `false` when it is time to stop.
    fn wait(&self, time: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        let (is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*is_set
    }
}
