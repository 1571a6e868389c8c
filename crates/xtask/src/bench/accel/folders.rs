//! Large folders over the links of published comparisons. Without the pair they would take hours, so that a sample of their
//! files stands for all.

use super::super::{Context, Values, median};
use super::site::{Ground, MOUNTED, Site};
use crate::progress::human_bytes;
use isthmus_lab::corpus::published::document_folders;
use isthmus_lab::corpus::{FileSpec, many_small_files, random_bytes, records};
use isthmus_lab::smb::KernelClient;
use isthmus_lab::wan::WanShape;
use isthmus_lab::{Level, Result};
use std::time::Duration;

/// Files and bytes of the folder of drawings, at full size and otherwise.
const DRAWINGS: (usize, usize) = (1_992, 1_950_000_000);
const DRAWINGS_TENTH: (usize, usize) = (199, 195_000_000);

/// Share of a generated drawing that nothing can compress, in percent.
const RANDOM_PERCENT: usize = 60;

/// Files of the folder of the slow link, and bytes of all of them.
const SLOW_FILES: usize = 1_004;
const SLOW_BYTES: usize = 10_400_000;

/// One of so many files is in the sample.
const SAMPLE: usize = 25;

/// Memory of the kernel that takes the whole folder.
const FULL_MEMORY: &str = "7168M";

/// A folder to be copied down.
struct Folder {
    cold: &'static str,
    warm: &'static str,
    shape: WanShape,
    files: Vec<FileSpec>,
    memory: Option<&'static str>,
}

/// The folder of drawings over the published link: all of it in a full run, a tenth of it otherwise.
pub fn measure_big(context: &mut Context, _name: &'static str) -> Result<Values> {
    let (cold, warm, size, memory) = if context.is_full {
        ("accel.big_cold", "accel.big_warm", DRAWINGS, Some(FULL_MEMORY))
    } else {
        ("accel.big_tenth_cold", "accel.big_tenth_warm", DRAWINGS_TENTH, None)
    };
    let files = drawings(size)?;
    measure(context, &Folder { cold, warm, shape: WanShape::published(), files, memory })
}

/// A folder of small files over a slow link; in full runs, or if named.
pub fn measure_slow(context: &mut Context, name: &'static str) -> Result<Values> {
    if !context.is_full && !context.only.iter().any(|only| only.starts_with(name)) {
        context.note(format!("{name}: only with --full"));
        return Ok(Values::new());
    }
    let shape = WanShape::symmetric(Duration::from_millis(500), Some(1_500_000));
    let (cold, warm) = ("accel.t1_cold", "accel.t1_warm");
    measure(context, &Folder { cold, warm, shape, files: slow_files(), memory: None })
}

fn measure(context: &mut Context, folder: &Folder) -> Result<Values> {
    if context.level != Level::Ip {
        context.note(format!("{}: the kernel's client needs root", folder.cold));
        return Ok(Values::new());
    }
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for number in 0..context.repetitions {
        let has_baseline = number == 0 && context.has_baseline;
        let (first, second) = once(context, folder, has_baseline)?;
        cold.push(first);
        warm.push(second);
    }
    let values = [(folder.cold, median(&cold)), (folder.warm, median(&warm))];
    Ok(values.map(|(name, value)| (name.to_string(), value)).into())
}

fn once(context: &mut Context, folder: &Folder, has_baseline: bool) -> Result<(f64, f64)> {
    let ground = Ground::start_with(context, folder.shape, folder.memory)?;
    let bytes: usize = folder.files.iter().map(|file| file.content.len()).sum();
    ground.site(0).store("folder", &folder.files)?;
    if has_baseline {
        let sample: Vec<FileSpec> = folder.files.iter().step_by(SAMPLE).cloned().collect();
        ground.site(0).store("sample", &sample)?;
        let seconds = copy(&ground.site(0), "sample")? * folder.files.len() as f64 / sample.len() as f64;
        context.note(format!("{}: about {seconds:.0} s without the pair, by a sample", folder.cold));
    }
    let crossing = ground.cross(context, &[])?;
    let rate = folder.shape.down.rate_bps.unwrap_or(u64::MAX) as f64 / 8.0;
    let mut pass = |name: &str, number: usize| -> Result<f64> {
        let site = crossing.site(number)?;
        let (seconds, measured) = crossing.rig.measure(|| copy(&site, "folder"))?;
        let wan_bytes = measured.wan_bytes as f64;
        context.note(format!(
            "{name}: {seconds:.1} s, {} in {} files, {} WAN, which take {:.1} s",
            human_bytes(bytes as f64),
            folder.files.len(),
            human_bytes(wan_bytes),
            wan_bytes / rate
        ));
        Ok(seconds)
    };
    Ok((pass(folder.cold, 1)?, pass(folder.warm, 2)?))
}

fn copy(site: &Site<'_>, folder: &str) -> Result<f64> {
    let work = KernelClient::timed(&format!("cp -r {MOUNTED}/{folder} /mnt/arrived"));
    site.kernel("", &format!("{work}diff -r '{}' /mnt/arrived", site.local(folder).display()))
}

/// Drawings that people made, where there are any, and generated ones that compress no better than those.
fn drawings((count, bytes): (usize, usize)) -> Result<Vec<FileSpec>> {
    let real = document_folders()?.files.into_iter().filter(|(path, _)| path.starts_with("cad/"));
    let mut files: Vec<FileSpec> = real
        .enumerate()
        .map(|(number, (path, content))| FileSpec {
            path: format!("{number:04} {}", path.replace('/', "-")),
            content: content.to_vec(),
        })
        .take(count / 2)
        .collect();
    let left = bytes.saturating_sub(files.iter().map(|file| file.content.len()).sum());
    let missing = count - files.len();
    for number in 0..missing {
        // Sizes from a quarter of the average to seven quarters.
        let size = left / missing * (2 + number % 13) / 8;
        let random = size * RANDOM_PERCENT / 100;
        let mut content = random_bytes(random, 7_000 + number as u64);
        content.extend(records(size - random, 9_000 + number as u64));
        files.push(FileSpec { path: format!("drawing {number:04}.dwg"), content });
    }
    Ok(files)
}

fn slow_files() -> Vec<FileSpec> {
    let mut files = many_small_files(SLOW_FILES, 41);
    let bytes: usize = files.iter().map(|file| file.content.len()).sum();
    for (number, file) in files.iter_mut().enumerate() {
        let size = file.content.len() * SLOW_BYTES / bytes;
        file.content = random_bytes(size, 11_000 + number as u64);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_their_sizes() {
        let sum = |files: &[FileSpec]| files.iter().map(|file| file.content.len()).sum::<usize>();
        let slow = slow_files();
        assert_eq!(slow.len(), SLOW_FILES);
        assert!(sum(&slow).abs_diff(SLOW_BYTES) < SLOW_FILES);
        let drawings = drawings((40, 4_000_000)).unwrap();
        assert_eq!(drawings.len(), 40);
        assert!(sum(&drawings).abs_diff(4_000_000) < 800_000, "{}", sum(&drawings));
    }
}
