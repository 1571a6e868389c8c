//! The laptop's side of a fleet: enrolment, and a client-side proxy that follows the policy of its server side.

mod enrol;
mod folder;
mod sync;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use isthmus_agent::SignedPolicy;
use isthmus_config::{ClientConfig, ConfigErrors, Loaded, Overrides};
use isthmus_telemetry::AgentStatus;
use tokio::sync::Notify;

pub(crate) use enrol::enrol;
pub(crate) use folder::{Folder, FolderError};

use crate::AppError;
use crate::client::Running;

/// Where an agent keeps what it has, unless told otherwise.
pub const STATE_DIR: &str = "/var/lib/isthmus/agent";

/// What an enrolled laptop knows of itself while it runs.
pub(crate) struct AgentState {
    pub folder: Folder,
    pub name: String,
    /// What stands over the policy.
    pub overrides: Overrides,
    now: Mutex<Now>,
    /// Rings when the server side has revoked this laptop, and what it held is erased.
    revoked: Notify,
}

#[derive(Default)]
struct Now {
    policy: Option<(String, u64)>,
    synced: Option<SystemTime>,
    problem: String,
}

impl AgentState {
    pub fn status(&self) -> AgentStatus {
        let now = self.lock();
        AgentStatus {
            name: self.name.clone(),
            policy: now.policy.clone(),
            synced: now.synced,
            problem: now.problem.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An agent that is ready to run: its policy has been read and verified.
pub struct Enrolled {
    state: Arc<AgentState>,
    pub loaded: Loaded<ClientConfig>,
}

/// Reads what enrolment has left in `dir`. `overrides` stand over the policy.
///
/// # Errors
/// When the machine has not enrolled, or its files or its policy cannot be used.
pub(crate) fn load(dir: &Path, mut overrides: Overrides) -> Result<Enrolled, FolderError> {
    let folder = Folder::new(dir);
    let membership = folder.membership()?;
    let policy = folder.policy()?;
    machine_overrides(dir, &mut overrides);
    let loaded = parse(&policy, &overrides).map_err(|errors| FolderError::Policy(errors.to_string()))?;
    let now = Now { policy: Some((policy.name, policy.version)), ..Now::default() };
    let state =
        AgentState { folder, name: membership.name, overrides, now: Mutex::new(now), revoked: Notify::new() };
    Ok(Enrolled { state: Arc::new(state), loaded })
}

/// Runs an agent until it is told to stop, or is revoked.
pub async fn run(enrolled: Enrolled) -> Result<(), AppError> {
    let state = enrolled.state;
    let running = Running::start(enrolled.loaded.config, Some(state.clone())).await?;
    tokio::spawn(sync::keep(running.client.clone(), state.clone()));
    tokio::select! {
        stopped = running.until_stopped() => stopped,
        () = state.revoked.notified() => Err(AppError::Revoked(state.name.clone())),
    }
}

/// Puts where this machine keeps its files over whatever a policy says.
pub(crate) fn machine_overrides(dir: &Path, overrides: &mut Overrides) {
    let folder = Folder::new(dir);
    for (key, path) in folder.keys() {
        overrides.flag("--state", key, &path.to_string_lossy());
    }
}

fn parse(policy: &SignedPolicy, overrides: &Overrides) -> Result<Loaded<ClientConfig>, ConfigErrors> {
    let file = format!("policy {}", policy.name);
    ClientConfig::parse_policy(policy.text.as_bytes(), Path::new(&file), overrides)
}
