//! From a file, the environment and flags to a typed configuration.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::client::ClientConfig;
use crate::effective::{Effective, Warning};
use crate::error::{ConfigError, ConfigErrors, ERRORS_MAX, LoadError, Origin, Problem};
use crate::overrides::Overrides;
use crate::reader::Reader;
use crate::schema::{CLIENT, SERVER, Schema};
use crate::server::ServerConfig;
use crate::suggest::unknown_keys;
use crate::tree::{parse_document, utf8};

/// Longest configuration file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Sections and keys that a policy must not have.
const OF_THE_MACHINE: [&str; 6] = ["tls", "admin", "log", "store.path", "store.key_file", "location.answer"];

/// A configuration with what there is to say about it.
#[derive(Clone, Debug)]
pub struct Loaded<C> {
    pub config: C,
    /// The same as TOML, with the source of each value.
    pub effective: Effective,
    pub warnings: Vec<Warning>,
}

impl ClientConfig {
    /// Reads `file`, puts the overrides over it, and parses the outcome. All errors are reported at once.
    pub fn load(file: &Path, overrides: &Overrides) -> Result<Loaded<ClientConfig>, LoadError> {
        Ok(ClientConfig::parse(&read(file)?, file, overrides)?)
    }

    /// As [`ClientConfig::load`], from bytes; `file` is the name for messages and where relative paths start.
    pub fn parse(
        text: &[u8],
        file: &Path,
        overrides: &Overrides,
    ) -> Result<Loaded<ClientConfig>, ConfigErrors> {
        parse(&CLIENT, text, file, overrides, ClientConfig::build)
    }
}

impl ClientConfig {
    /// As [`ClientConfig::parse`], for a policy: what belongs to the machine is not its to say, and comes from `overrides`.
    pub fn parse_policy(
        text: &[u8],
        file: &Path,
        overrides: &Overrides,
    ) -> Result<Loaded<ClientConfig>, ConfigErrors> {
        let name: Arc<str> = file.to_string_lossy().into();
        if let Ok(text) = utf8(text) {
            let (tree, _) = parse_document(text, &name);
            let foreign = OF_THE_MACHINE.iter().filter_map(|key| Some((key, &tree.at(key)?.0)));
            let errors: Vec<ConfigError> = foreign
                .map(|(key, place)| ConfigError {
                    place: place.clone(),
                    key: (*key).to_string(),
                    problem: Problem::Conflict("belongs to the machine; a policy cannot say it".into()),
                })
                .collect();
            if !errors.is_empty() {
                return Err(in_order(errors, &name));
            }
        }
        ClientConfig::parse(text, file, overrides)
    }
}

impl ServerConfig {
    /// Reads `file`, puts the overrides over it, and parses the outcome. All errors are reported at once.
    pub fn load(file: &Path, overrides: &Overrides) -> Result<Loaded<ServerConfig>, LoadError> {
        Ok(ServerConfig::parse(&read(file)?, file, overrides)?)
    }

    /// As [`ServerConfig::load`], from bytes; `file` is the name for messages and where relative paths start.
    pub fn parse(
        text: &[u8],
        file: &Path,
        overrides: &Overrides,
    ) -> Result<Loaded<ServerConfig>, ConfigErrors> {
        parse(&SERVER, text, file, overrides, ServerConfig::build)
    }
}

fn parse<C>(
    schema: &'static Schema,
    bytes: &[u8],
    file: &Path,
    overrides: &Overrides,
    build: fn(&mut Reader<'_>) -> Option<C>,
) -> Result<Loaded<C>, ConfigErrors> {
    let name: Arc<str> = file.to_string_lossy().into();
    let text = utf8(bytes).map_err(|(line, message)| {
        let place = Origin::File { name: Arc::clone(&name), line };
        ConfigErrors(vec![ConfigError { place, key: "(text)".into(), problem: Problem::Syntax(message) }])
    })?;
    let (mut tree, syntax) = parse_document(text, &name);
    let (override_errors, warnings) = overrides.apply(schema, &mut tree);
    let mut reader = Reader::new(schema, &tree, file);
    reader.warnings = warnings;
    let built = build(&mut reader);
    let mut errors = unknown_keys(schema, &tree);
    errors.append(&mut reader.errors);
    keep_what_syntax_errors_did_not_cause(&syntax, &mut errors);
    errors.extend(syntax);
    errors.extend(override_errors);
    match built {
        Some(config) if errors.is_empty() => {
            Ok(Loaded { config, effective: reader.effective, warnings: reader.warnings })
        }
        _ => Err(in_order(errors, &name)),
    }
}

/// Around broken text sections and keys may be lost or half read. What is then missing, of the wrong type or in conflict
/// may be so for that reason only; unknown keys and impossible values on other lines are what they are.
fn keep_what_syntax_errors_did_not_cause(syntax: &[ConfigError], errors: &mut Vec<ConfigError>) {
    if syntax.is_empty() {
        return;
    }
    errors.retain(|error| {
        let sure = matches!(error.problem, Problem::UnknownKey { .. } | Problem::Impossible { .. });
        sure && !syntax.iter().any(|broken| broken.place == error.place)
    });
}

/// In the order of the file's lines, then environment, then flags; never empty, never too many.
fn in_order(mut errors: Vec<ConfigError>, name: &Arc<str>) -> ConfigErrors {
    errors.sort_by_key(|error| match &error.place {
        Origin::File { line, .. } => (0, *line),
        Origin::Environment(_) => (1, 0),
        Origin::Flag(_) => (2, 0),
        Origin::Default => (3, 0),
    });
    errors.dedup();
    if errors.len() > ERRORS_MAX {
        errors.truncate(ERRORS_MAX - 1);
        let place = errors.last().map_or(Origin::Default, |error| error.place.clone());
        let problem = Problem::Conflict("there are more errors after this one, not shown".into());
        errors.push(ConfigError { place, key: "(more)".into(), problem });
    }
    if errors.is_empty() {
        let place = Origin::File { name: Arc::clone(name), line: 1 };
        let problem = Problem::Conflict("no configuration could be made of this file".into());
        errors.push(ConfigError { place, key: "(file)".into(), problem });
    }
    ConfigErrors(errors)
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(LoadError::TooLong { path: path.to_path_buf() });
    }
    Ok(bytes)
}
