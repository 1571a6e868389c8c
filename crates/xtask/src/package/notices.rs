//! The licences of all libraries that are linked into the programs: most ask that their text goes with every copy.

use crate::cargo;
use isthmus_lab::{LabError, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Starts of the names, in capitals, of files that hold licences.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// How many folders deep licences are looked for: C libraries within a crate have their own.
const DEPTH_MAX: usize = 2;

/// Longest file that is taken for a licence.
const BYTES_MAX: u64 = 512 * 1024;

/// A text with every library, its licence, and the texts of all licences, each once.
///
/// # Errors
/// cargo does not tell the dependencies.
pub fn collect() -> Result<String> {
    let metadata = metadata()?;
    let linked = linked(&metadata);
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages(&metadata) {
        let is_ours = package["source"].is_null();
        if is_ours || !linked.contains(package["id"].as_str().unwrap_or_default()) {
            continue;
        }
        let word = |key: &str| package[key].as_str().unwrap_or("unknown");
        let name = format!("{} {}", word("name"), word("version"));
        let _ = writeln!(list, "{name}: {}", word("license"));
        let folder = Path::new(word("manifest_path")).parent().unwrap_or(Path::new("."));
        for text in licences(folder, DEPTH_MAX) {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut out = String::from("Libraries linked into Isthmus, and their licences.\n\n");
    out.push_str(&list);
    for (text, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        let _ = write!(out, "\n{}\n{}\n\n{}\n", "=".repeat(78), names.join(", "), text.trim_end());
    }
    Ok(out)
}

fn metadata() -> Result<Value> {
    let mut command = cargo::cargo(["metadata", "--format-version", "1"]);
    let output = command
        .output()
        .map_err(|source| LabError::Io { action: "starting cargo metadata".into(), source })?;
    serde_json::from_slice(&output.stdout).map_err(|error| LabError::Format {
        what: "the output of cargo metadata".into(),
        detail: format!("{error}; {}", String::from_utf8_lossy(&output.stderr)),
    })
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// Ids of everything that the two programs are linked from: dependencies that are neither for building nor for tests.
fn linked(metadata: &Value) -> BTreeSet<String> {
    let mut dependencies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
        let normal = node["deps"].as_array().into_iter().flatten().filter(|dependency| {
            dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        });
        let ids = normal.filter_map(|dependency| dependency["pkg"].as_str()).collect();
        dependencies.insert(node["id"].as_str().unwrap_or_default(), ids);
    }
    let is_program =
        |package: &&Value| matches!(package["name"].as_str(), Some("isthmus-client" | "isthmus-server"));
    let mut waiting: Vec<&str> =
        packages(metadata).filter(is_program).filter_map(|package| package["id"].as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if found.insert(id.to_owned()) {
            waiting.extend(dependencies.get(id).into_iter().flatten());
        }
    }
    found
}

fn licences(folder: &Path, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_uppercase());
        if path.is_dir() && depth > 0 {
            found.extend(licences(&path, depth - 1));
        } else if NAMES.iter().any(|start| name.starts_with(start))
            && entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= BYTES_MAX)
        {
            found.extend(std::fs::read_to_string(&path));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_in_is_named_with_its_licence() {
        let text = collect().unwrap();
        for part in ["\naws-lc-sys ", "\nrustls ", "\nzstd-sys ", "Redistributions in binary form"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("\nproptest "), "only tests use it");
    }
}
