//! The register's one file.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use isthmus_agent::SignedPolicy;
use isthmus_certs::files;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;

const VERSION: u32 = 1;
const FILE_NAME: &str = "fleet.json";
const LOCK_NAME: &str = "lock";
const ONLY_OWNER: u32 = 0o700;

/// Everything that must survive a restart. Times are Unix seconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// Version of the last policy that was issued.
    pub last_policy: u64,
    pub tokens: Vec<TokenEntry>,
    pub policies: BTreeMap<String, SignedPolicy>,
    pub agents: BTreeMap<String, AgentEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TokenEntry {
    /// Name that the agent gets.
    pub name: String,
    pub policy: String,
    /// Hash of the secret, which is kept nowhere.
    pub hash: String,
    pub expires: u64,
    /// Hash of the certificate request that it was used for. The same request may be repeated: the answer may be lost.
    pub used_for: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AgentEntry {
    pub policy: String,
    pub enrolled: u64,
    /// The newest certificate.
    pub serial: String,
    pub not_after: u64,
    pub revoked: Option<u64>,
    pub host: String,
    pub software: String,
    /// Half of the key of its store, in hexadecimal digits. Gone when it is revoked.
    #[serde(default)]
    pub store_half: String,
}

/// Held while the state is read, changed and written.
pub(crate) struct Locked {
    path: PathBuf,
    pub state: State,
    _lock: File,
}

impl State {
    /// The state in `dir`; an empty one if there is none yet.
    pub fn read(dir: &Path) -> Result<State, FleetError> {
        let path = dir.join(FILE_NAME);
        if !path.exists() {
            return Ok(State {
                version: VERSION,
                last_policy: 0,
                tokens: Vec::new(),
                policies: BTreeMap::new(),
                agents: BTreeMap::new(),
            });
        }
        let bytes = files::read(&path)?;
        let state: State = serde_json::from_slice(&bytes)
            .map_err(|error| FleetError::BadFile { path: path.clone(), why: error.to_string() })?;
        if state.version != VERSION {
            let why = format!("its version is {}, and this program knows version {VERSION}", state.version);
            return Err(FleetError::BadFile { path, why });
        }
        Ok(state)
    }

    /// Reads the state for a change. Others wait until the outcome is dropped.
    pub fn lock(dir: &Path) -> Result<Locked, FleetError> {
        make_folder(dir)?;
        let path = dir.join(LOCK_NAME);
        let failed = |source| FleetError::Io { path: path.clone(), source };
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Locked { path: dir.join(FILE_NAME), state: State::read(dir)?, _lock: lock })
    }
}

impl Locked {
    /// Writes the state as it is now.
    pub fn write(&self) -> Result<(), FleetError> {
        write_json(&self.path, &self.state)
    }
}

/// Writes a value as JSON that only its owner can read.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FleetError> {
    let mut json = serde_json::to_vec_pretty(value)
        .map_err(|error| FleetError::BadFile { path: path.to_path_buf(), why: error.to_string() })?;
    json.push(b'\n');
    Ok(files::replace(path, &json, files::SECRET)?)
}

fn make_folder(dir: &Path) -> Result<(), FleetError> {
    let failed = |source| FleetError::Io { path: dir.to_path_buf(), source };
    DirBuilder::new().mode(ONLY_OWNER).recursive(true).create(dir).map_err(failed)
}
