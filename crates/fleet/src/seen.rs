//! What agents last said of themselves.

use std::collections::BTreeMap;
use std::path::Path;

use isthmus_agent::Report;
use isthmus_certs::files;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::state::write_json;

const FILE_NAME: &str = "seen.json";

/// The last report of one agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Unix seconds.
    pub at: u64,
    /// Where it called from.
    pub address: String,
    pub report: Report,
}

/// The reports that were kept in `dir`; none if the file is not there.
pub(crate) fn read(dir: &Path) -> Result<BTreeMap<String, Seen>, FleetError> {
    let path = dir.join(FILE_NAME);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let bytes = files::read(&path)?;
    serde_json::from_slice(&bytes).map_err(|error| FleetError::BadFile { path, why: error.to_string() })
}

pub(crate) fn write(dir: &Path, seen: &BTreeMap<String, Seen>) -> Result<(), FleetError> {
    write_json(&dir.join(FILE_NAME), seen)
}
