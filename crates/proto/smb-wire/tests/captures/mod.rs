//! Captures of real connections, where `ISTHMUS_GOLDEN` names a folder of them.

#![allow(clippy::disallowed_methods, reason = "captures are files")]

use std::path::{Path, PathBuf};

/// The captures there are; none without the variable.
pub fn paths() -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("ISTHMUS_GOLDEN") else {
        println!("skipped: ISTHMUS_GOLDEN names no folder of captures");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no captures", folder.display());
    paths
}

/// All bytes of a capture.
pub fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Records of a capture: direction (1 byte, 1 from the server), time (8), length (4, little-endian), message.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(13)?;
        let length = u32::from_le_bytes(head[9..13].try_into().unwrap()) as usize;
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        Some((head[0] == 1, message))
    })
}
