use crate::command::{self, CommandProblem, problem_of};
use crate::config::{CommandConfig, CommandOutput, KeysConfig, SourceKind};
use crate::error::KeysError;
use crate::file::{self, Signature};
use crate::limits::SOURCES_MAX;
use crate::ring::KeyRing;
use arc_swap::ArcSwap;
use isthmus_smb_auth::{Loaded, SecretSet, limits};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

/// All long-term secrets of the proxy, kept up to date.
///
/// Files are read by [`KeyStore::open`] and again by [`KeyStore::look`] when they have changed; commands are run by
/// [`KeyStore::run_command`]. [`Watch`](crate::Watch) does both on threads of its own. When a file or output is bad,
/// what was loaded before stays in use.
pub struct KeyStore {
    sources: Vec<Source>,
    current: ArcSwap<KeyRing>,
    /// Held while the ring is made anew, so that an older one never replaces a newer.
    publishing: Mutex<()>,
    observer: Box<dyn Observer>,
}

/// Is told of everything that is loaded or fails, for logs and counters.
pub trait Observer: Send + Sync {
    /// A source has been loaded, for the first time or anew.
    fn loaded(&self, source: &str, loaded: Loaded);
    /// A source could not be loaded; what it gave before stays in use.
    fn failed(&self, source: &str, error: &KeysError);
}

/// State of one source, for the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The file's path, or the command's name.
    pub name: String,
    /// What it holds.
    pub kind: SourceKind,
    /// Whether a command brings it.
    pub by_command: bool,
    /// What is in use of it.
    pub loaded: Loaded,
    /// When that was loaded; `None` when nothing has been.
    pub loaded_at: Option<SystemTime>,
    /// Why the last attempt after that failed, if it did.
    pub error: Option<String>,
    /// How often it has been loaded since the start.
    pub loads: u64,
    /// How often loading has failed since the start.
    pub failures: u64,
}

struct Source {
    name: String,
    kind: SourceKind,
    path: Option<PathBuf>,
    command: Option<CommandConfig>,
    /// Held by a running command for its whole run, and while the file is read.
    busy: Mutex<()>,
    /// Held only for a moment.
    state: Mutex<State>,
    /// Shared with the threads that read a command's output.
    reading: Arc<()>,
}

#[derive(Default)]
struct State {
    set: Arc<SecretSet>,
    loaded: Loaded,
    loaded_at: Option<SystemTime>,
    error: Option<String>,
    loads: u64,
    failures: u64,
    /// The file as it was at the last look.
    seen: Option<Signature>,
    /// The file as it was at the last attempt to read it.
    read: Option<Signature>,
}

impl KeyStore {
    /// Loads all configured files. Commands have not run yet; a file that a command writes may be missing.
    pub fn open(config: &KeysConfig, observer: Box<dyn Observer>) -> Result<Self, KeysError> {
        let store = Self::empty(config, observer)?;
        store.read_all().into_iter().collect::<Result<(), _>>()?;
        store.publish();
        Ok(store)
    }

    /// As [`KeyStore::open`], but a file that is bad or missing is only noted in its status. For looking at what there is,
    /// not for a proxy, which should not start with less than it was told to have.
    pub fn open_what_can_be(config: &KeysConfig, observer: Box<dyn Observer>) -> Result<Self, KeysError> {
        let store = Self::empty(config, observer)?;
        store.read_all();
        store.publish();
        Ok(store)
    }

    fn empty(config: &KeysConfig, observer: Box<dyn Observer>) -> Result<Self, KeysError> {
        let sources = sources(config)?;
        Ok(Self { sources, current: ArcSwap::default(), publishing: Mutex::default(), observer })
    }

    /// Reads every file, but for those that a command has yet to write.
    fn read_all(&self) -> Vec<Result<(), KeysError>> {
        let mut outcomes = Vec::new();
        for source in &self.sources {
            let Some(path) = &source.path else { continue };
            if source.command.is_none() || Signature::of(path).is_some() {
                outcomes.push(self.read_file(source, path));
            }
        }
        outcomes
    }

    /// Everything held now.
    pub fn secrets(&self) -> Arc<KeyRing> {
        self.current.load_full()
    }

    /// Looks at all files and loads those that have changed and did not change again since the last look. A file that
    /// a running command writes is left alone.
    pub fn look(&self) {
        let mut is_changed = false;
        for source in &self.sources {
            let Some(path) = &source.path else { continue };
            let Some(_busy) = source.try_busy() else { continue };
            if source.needs_reading(path) {
                is_changed |= self.read_file(source, path).is_ok();
            }
        }
        if is_changed {
            self.publish();
        }
    }

    /// The commands, which are numbered from zero in this order.
    pub fn commands(&self) -> impl Iterator<Item = &CommandConfig> {
        self.sources.iter().filter_map(|source| source.command.as_ref())
    }

    /// Runs one command to its end and loads what it brings; says whether that went well. `stopped` is asked now and
    /// then whether to give up.
    pub fn run_command(&self, number: usize, stopped: &dyn Fn() -> bool) -> bool {
        let mut commands = self.sources.iter().filter_map(|source| Some((source, source.command.as_ref()?)));
        let Some((source, command)) = commands.nth(number) else { return false };
        let _busy = source.busy();
        let is_loaded = match self.run(source, command, stopped) {
            Ok(()) => true,
            Err(KeysError::Command { problem: CommandProblem::Stopped, .. }) => false,
            Err(error) => {
                // What a failed command has left in its file is not to be trusted.
                source.pass_over();
                self.fail(source, &error);
                false
            }
        };
        if is_loaded {
            self.publish();
        }
        is_loaded
    }

    /// State of all sources, in the order of the configuration: keytabs, password hashes, commands.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.sources.iter().map(Source::status).collect()
    }

    fn run(
        &self,
        source: &Source,
        command: &CommandConfig,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), KeysError> {
        let output = command::run(command, bytes_max(source.kind), &source.reading, stopped);
        let output = output.map_err(|problem| KeysError::Command { name: command.name.clone(), problem })?;
        match &source.path {
            Some(path) => self.load_file(source, path),
            None => self.load(source, &output),
        }
    }

    fn read_file(&self, source: &Source, path: &Path) -> Result<(), KeysError> {
        self.load_file(source, path).inspect_err(|error| self.fail(source, error))
    }

    fn load_file(&self, source: &Source, path: &Path) -> Result<(), KeysError> {
        source.pass_over();
        let (content, signature) = file::read(path, bytes_max(source.kind))?;
        source.lock().read = Some(signature);
        self.load(source, &content)
    }

    /// Takes content in place of what the source gave before.
    fn load(&self, source: &Source, content: &[u8]) -> Result<(), KeysError> {
        let mut set = SecretSet::default();
        let loaded = match source.kind {
            SourceKind::Keytab => set.add_keytab(content),
            SourceKind::PasswordHashes => set.add_password_file(content),
        };
        let loaded = loaded.map_err(|error| KeysError::Format { name: source.name.clone(), error })?;
        source.accept(set, loaded);
        self.observer.loaded(&source.name, loaded);
        Ok(())
    }

    fn fail(&self, source: &Source, error: &KeysError) {
        source.note(error);
        self.observer.failed(&source.name, error);
    }

    fn publish(&self) {
        let _order = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = self.sources.iter().map(|source| source.lock().set.clone()).collect();
        self.current.store(Arc::new(KeyRing::new(sets)));
    }
}

impl Source {
    fn new(name: String, kind: SourceKind, path: Option<PathBuf>, command: Option<CommandConfig>) -> Self {
        let (busy, state, reading) = (Mutex::default(), Mutex::default(), Arc::default());
        Self { name, kind, path, command, busy, state, reading }
    }

    fn busy(&self) -> MutexGuard<'_, ()> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_busy(&self) -> Option<MutexGuard<'_, ()>> {
        match self.busy.try_lock() {
            Ok(busy) => Some(busy),
            Err(TryLockError::Poisoned(busy)) => Some(busy.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Looks at the file: whether it has changed since it was read, and is the same as at the last look.
    fn needs_reading(&self, path: &Path) -> bool {
        let now = Signature::of(path);
        let mut state = self.lock();
        let is_settled = state.seen == now;
        state.seen = now;
        is_settled && now != state.read
    }

    /// Takes the file's state of now for read.
    fn pass_over(&self) {
        if let Some(path) = &self.path {
            self.lock().read = Signature::of(path);
        }
    }

    fn accept(&self, set: SecretSet, loaded: Loaded) {
        let mut state = self.lock();
        state.set = Arc::new(set);
        state.loaded = loaded;
        state.loaded_at = Some(SystemTime::now());
        state.error = None;
        state.loads += 1;
    }

    fn note(&self, error: &KeysError) {
        let mut state = self.lock();
        state.error = Some(error.to_string());
        state.failures += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> SourceStatus {
        let state = self.lock();
        SourceStatus {
            name: self.name.clone(),
            kind: self.kind,
            by_command: self.command.is_some(),
            loaded: state.loaded,
            loaded_at: state.loaded_at,
            error: state.error.clone(),
            loads: state.loads,
            failures: state.failures,
        }
    }
}

fn sources(config: &KeysConfig) -> Result<Vec<Source>, KeysError> {
    let count = config.keytabs.len() + config.password_hashes.len() + config.commands.len();
    if count > SOURCES_MAX {
        return Err(KeysError::TooManySources { count, limit: SOURCES_MAX });
    }
    let file = |path: &PathBuf, kind| Source::new(path.display().to_string(), kind, Some(path.clone()), None);
    let mut sources: Vec<_> = config.keytabs.iter().map(|path| file(path, SourceKind::Keytab)).collect();
    sources.extend(config.password_hashes.iter().map(|path| file(path, SourceKind::PasswordHashes)));
    for command in &config.commands {
        if let Some(problem) = problem_of(command) {
            return Err(KeysError::BadCommand { name: command.name.clone(), problem });
        }
        let path = match &command.output {
            CommandOutput::File(path) => Some(path.clone()),
            CommandOutput::StandardOutput => None,
        };
        sources.push(Source::new(command.name.clone(), command.kind, path, Some(command.clone())));
    }
    Ok(sources)
}

fn bytes_max(kind: SourceKind) -> usize {
    match kind {
        SourceKind::Keytab => limits::KEYTAB_BYTES_MAX,
        SourceKind::PasswordHashes => limits::PASSWORD_FILE_BYTES_MAX,
    }
}
