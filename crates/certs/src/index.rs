//! The authority's list of what it issued: a small JSON file in its directory.

use std::fs::{File, OpenOptions};
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::CertsError;
use crate::files;
use crate::role::Role;

/// Most certificates that one authority issues.
pub const INDEX_ENTRIES_MAX: usize = 100_000;

const VERSION: u32 = 1;
const FILE_NAME: &str = "issued.json";
const LOCK_NAME: &str = "lock";

/// One certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Lower-case hexadecimal digits.
    pub serial: String,
    pub name: String,
    #[serde(with = "as_text")]
    pub role: Role,
    pub dns: Vec<String>,
    pub ip: Vec<IpAddr>,
    #[serde(with = "as_time")]
    pub not_before: SystemTime,
    #[serde(with = "as_time")]
    pub not_after: SystemTime,
    /// When it was revoked, if it was.
    #[serde(with = "as_optional_time")]
    pub revoked: Option<SystemTime>,
}

impl Entry {
    /// `valid`, `not yet valid`, `expired` or `revoked`.
    pub fn state(&self, now: SystemTime) -> &'static str {
        if self.revoked.is_some() {
            "revoked"
        } else if now > self.not_after {
            "expired"
        } else if now < self.not_before {
            "not yet valid"
        } else {
            "valid"
        }
    }
}

/// Every certificate that the authority in `dir` issued, oldest first. Needs no key.
pub fn list(dir: &Path) -> Result<Vec<Entry>, CertsError> {
    Ok(Index::read(dir)?.certificates)
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Index {
    version: u32,
    /// Number of the last revocation list.
    pub crl_number: u64,
    pub certificates: Vec<Entry>,
}

impl Index {
    pub fn empty() -> Index {
        Index { version: VERSION, crl_number: 0, certificates: Vec::new() }
    }

    pub fn read(dir: &Path) -> Result<Index, CertsError> {
        let path = dir.join(FILE_NAME);
        let bytes = files::read(&path).map_err(|error| match error {
            CertsError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                CertsError::NoAuthority(dir.to_path_buf())
            }
            other => other,
        })?;
        let index: Index =
            serde_json::from_slice(&bytes).map_err(|error| CertsError::bad(&path, error.to_string()))?;
        if index.version != VERSION {
            let why = format!("its version is {}, and this program knows version {VERSION}", index.version);
            return Err(CertsError::bad(path, why));
        }
        Ok(index)
    }

    pub fn write(&self, dir: &Path) -> Result<(), CertsError> {
        let path = dir.join(FILE_NAME);
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|error| CertsError::bad(&path, error.to_string()))?;
        json.push(b'\n');
        files::replace(&path, &json, files::PUBLIC)
    }
}

/// Held while the index is read, changed and written, so that two commands at once lose nothing.
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock is held as long as the file is open")] File);

impl Lock {
    pub fn take(dir: &Path) -> Result<Lock, CertsError> {
        let path = dir.join(LOCK_NAME);
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(CertsError::io(&path))?;
        file.lock().map_err(CertsError::io(&path))?;
        Ok(Lock(file))
    }
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &crate::Role, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<crate::Role, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod as_time {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::SystemTime;

    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_seconds(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        humantime::parse_rfc3339(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

mod as_optional_time {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::SystemTime;

    pub fn serialize<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::as_time::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| humantime::parse_rfc3339(&text).map_err(serde::de::Error::custom)).transpose()
    }
}
