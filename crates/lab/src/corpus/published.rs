//! The data of the published comparison, where a folder with it is given.
//!
//! The environment variable `ISTHMUS_CORPUS` names a folder with `mixed.py` (writes mixed.bin and edited.bin), `office`,
//! `cad`, `pdf`, `edits/v1` and `edits/v2`. Without it the lab's own data of the same kinds is used, and every result
//! says so, since figures of different data must not be compared.

use super::{EditPlan, MixedPlan, edited, edited_folder, many_small_files, mixed, office_folder};
use crate::Place;
use crate::error::{Context as _, LabError, Result};
use crate::proc::{find_program, run};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Environment variable that names the folder.
pub const CORPUS_VARIABLE: &str = "ISTHMUS_CORPUS";

/// Most bytes of all files of a folder that are taken together.
const FOLDER_BYTES_MAX: u64 = 1 << 30;

/// Where the data of a measurement comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The very bytes of the published comparison.
    Published,
    /// The lab's own data of the same kind.
    Own,
}

impl Origin {
    /// Words for a report.
    pub fn describe(self) -> &'static str {
        match self {
            Origin::Published => "the data of the published comparison",
            Origin::Own => "the lab's own data (set ISTHMUS_CORPUS to compare with published figures)",
        }
    }
}

/// The mixed file and its edited twin.
pub struct MixedPair {
    /// 200 MiB.
    pub mixed: Bytes,
    /// The same after 400 small edits.
    pub edited: Bytes,
    /// Where they come from.
    pub origin: Origin,
}

/// Contents of a set of files, in the order of their names.
pub struct FileSet {
    /// Name relative to its folder, and content.
    pub files: Vec<(String, Bytes)>,
    /// Where they come from.
    pub origin: Origin,
}

impl FileSet {
    /// Sum of all lengths.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, content)| content.len() as u64).sum()
    }

    /// All contents one after another.
    pub fn joined(&self) -> Bytes {
        self.files.iter().flat_map(|(_, content)| content.iter().copied()).collect::<Vec<_>>().into()
    }
}

/// The folder that the environment names, if it is there.
pub fn corpus_folder() -> Option<PathBuf> {
    std::env::var_os(CORPUS_VARIABLE).map(PathBuf::from).filter(|path| path.is_dir())
}

/// The mixed file and its edited twin; made once and kept in `cache` when they come from the published recipe.
///
/// # Errors
/// The recipe fails, or files cannot be read or written.
pub fn mixed_pair(cache: &Path) -> Result<MixedPair> {
    let recipe = corpus_folder().map(|folder| folder.join("mixed.py")).filter(|path| path.is_file());
    if let (Some(recipe), Some(python)) = (recipe, find_program("python3")) {
        let folder = cache.join("mixed");
        let (mixed, edited) = (folder.join("mixed.bin"), folder.join("edited.bin"));
        if !edited.is_file() {
            std::fs::create_dir_all(&folder).context(|| format!("making {}", folder.display()))?;
            run(&Place::Local, &[python.as_os_str(), recipe.as_os_str(), folder.as_os_str()])?;
        }
        return Ok(MixedPair { mixed: read(&mixed)?, edited: read(&edited)?, origin: Origin::Published });
    }
    let plan = MixedPlan::full();
    let data = mixed(&plan);
    let twin = edited(&data, &EditPlan::new(400, plan.seed));
    Ok(MixedPair { mixed: data.into(), edited: twin.into(), origin: Origin::Own })
}

/// Office, drawing and page-description files, in that order.
///
/// # Errors
/// Files cannot be read.
pub fn document_folders() -> Result<FileSet> {
    if let Some(folder) = corpus_folder() {
        let mut files = Vec::new();
        for name in ["office", "cad", "pdf"] {
            files.extend(read_folder(&folder.join(name), name)?);
        }
        return Ok(FileSet { files, origin: Origin::Published });
    }
    let own = office_folder(40, 400_000, 11)?.into_iter().chain(many_small_files(300, 12));
    let files = own.map(|file| (file.path, file.content.into())).collect();
    Ok(FileSet { files, origin: Origin::Own })
}

/// Files and their next versions under the same names, as saved by real programs.
///
/// # Errors
/// Files cannot be read.
pub fn edited_files() -> Result<(FileSet, FileSet)> {
    if let Some(folder) = corpus_folder() {
        let version = |name: &str| {
            let files = read_folder(&folder.join("edits").join(name), "edits")?;
            Ok(FileSet { files, origin: Origin::Published })
        };
        return Ok((version("v1")?, version("v2")?));
    }
    let (old, new) = edited_folder(30, 300_000, 13)?;
    let set = |files: Vec<super::FileSpec>| FileSet {
        files: files.into_iter().map(|file| (file.path, file.content.into())).collect(),
        origin: Origin::Own,
    };
    Ok((set(old), set(new)))
}

fn read(path: &Path) -> Result<Bytes> {
    std::fs::read(path).map(Bytes::from).context(|| format!("reading {}", path.display()))
}

fn read_folder(folder: &Path, prefix: &str) -> Result<Vec<(String, Bytes)>> {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(current) = folders.pop() {
        let entries = std::fs::read_dir(&current).context(|| format!("listing {}", current.display()))?;
        for entry in entries {
            let path = entry.context(|| format!("listing {}", current.display()))?.path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    let mut total = 0;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let content = read(&path)?;
        total += content.len() as u64;
        if total > FOLDER_BYTES_MAX {
            let detail = format!("more than {FOLDER_BYTES_MAX} bytes");
            return Err(LabError::Format { what: folder.display().to_string(), detail });
        }
        let name = path.strip_prefix(folder).unwrap_or(&path);
        files.push((format!("{prefix}/{}", name.display()), content));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        for (name, content) in [("c", "3"), ("a", "1"), ("b/x", "2")] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let files = read_folder(dir.path(), "p").unwrap();
        let set = FileSet { files, origin: Origin::Own };
        assert_eq!(set.joined(), Bytes::from_static(b"123"));
        assert_eq!(set.bytes(), 3);
        assert_eq!(set.files[1].0, "p/b/x");
    }
}
