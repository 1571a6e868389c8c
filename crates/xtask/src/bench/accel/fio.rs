//! Small reads and writes of a file that one client holds: throughput and latency beside those of the client's own floor.

use super::super::{Context, Values, median};
use super::site::{Ground, MOUNTED, Site, beside};
use isthmus_lab::corpus::{FileSpec, random_bytes};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Level, Result};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// The link of the published comparison.
const ROUND_TRIP: Duration = Duration::from_millis(34);
const RATE_BPS: u64 = 1_000_000_000;

/// Bytes of the file, and its name.
const FILE_BYTES: usize = 20_000_000;
const FILE: &str = "fio.bin";

/// Seconds of one job.
const JOB_SECONDS: u32 = 3;

/// Line before the result of each job.
const MARK: &str = "=== job ";

/// Block size, share of writes in percent, jobs at once, and whether the places are random.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    block_kib: u32,
    write_percent: u32,
    at_once: u32,
    is_random: bool,
}

/// What a job has reached.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reached {
    bytes_per_s: f64,
    /// The slower of the medians of reads and writes.
    p50_ms: f64,
}

const JOBS: &[Job] = &[
    job(4, 50, 1, false),
    job(4, 50, 1, true),
    job(4, 50, 16, false),
    job(4, 50, 16, true),
    job(64, 25, 1, false),
    job(64, 85, 1, true),
    job(64, 25, 16, true),
    job(64, 85, 16, false),
    job(128, 50, 1, false),
    job(128, 50, 16, true),
];

const fn job(block_kib: u32, write_percent: u32, at_once: u32, is_random: bool) -> Job {
    Job { block_kib, write_percent, at_once, is_random }
}

/// The worst share of the floor's throughput, and the largest difference of the medians.
pub fn measure(context: &mut Context, _name: &'static str) -> Result<Values> {
    if context.level != Level::Ip {
        context.note("accel.fio_share: the kernel's client needs root".into());
        return Ok(Values::new());
    }
    let (mut shares, mut added) = (Vec::new(), Vec::new());
    for _ in 0..context.repetitions {
        let (share, added_ms) = once(context)?;
        shares.push(share);
        added.push(added_ms);
    }
    let values = [("accel.fio_share", median(&shares)), ("accel.fio_ms_added", median(&added))];
    Ok(values.map(|(name, value)| (name.to_string(), value)).into())
}

fn once(context: &mut Context) -> Result<(f64, f64)> {
    let mut ground = Ground::start(context, beside(), true)?;
    let file = FileSpec { path: FILE.into(), content: random_bytes(FILE_BYTES, 20) };
    ground.site(0).store("", &[file])?;
    let floor = run_jobs(&ground.site(0))?;
    ground.network.set_shape(WanShape::symmetric(ROUND_TRIP, Some(RATE_BPS)));
    let direct = if context.has_baseline { Some(run_jobs(&ground.site(1))?) } else { None };
    let crossing = ground.cross(context, &[])?;
    let ours = run_jobs(&crossing.site(2)?)?;
    let (mut worst, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for (number, job) in JOBS.iter().enumerate() {
        let (Some(floor), Some(ours)) = (floor.get(number), ours.get(number)) else { continue };
        let shown =
            |reached: &Reached| format!("{:.1} MB/s {:.2} ms", reached.bytes_per_s / 1e6, reached.p50_ms);
        let direct = direct.as_ref().and_then(|all| all.get(number)).map_or("not measured".into(), shown);
        context.note(format!(
            "accel.fio {job}: floor {}, direct {direct}, through the pair {}",
            shown(floor),
            shown(ours)
        ));
        worst = worst.min(ours.bytes_per_s / floor.bytes_per_s);
        most = most.max(ours.p50_ms - floor.p50_ms);
    }
    Ok((worst, most))
}

/// Every job in one boot, after the file has been read, and written in a place, so that the pair knows it and its use.
fn run_jobs(site: &Site<'_>) -> Result<Vec<Reached>> {
    let file = format!("{MOUNTED}/{FILE}");
    let mut work = format!(
        "cat {file} > /dev/null\nhead -c 4096 {file} > /run/start\ndd if=/run/start of={file} conv=notrunc status=none\n"
    );
    for job in JOBS {
        let kind = if job.is_random { "randrw" } else { "rw" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            work,
            "echo '{MARK}'\nfio --name=j --filename={MOUNTED}/{FILE} --filesize={FILE_BYTES} --rw={kind} --bs={}k \
             --rwmixwrite={} --numjobs={} --ioengine=psync --thread --group_reporting --time_based \
             --runtime={JOB_SECONDS} --fallocate=none --output-format=json",
            job.block_kib, job.write_percent, job.at_once
        );
    }
    let output = site.kernel_output(&["cache=none"], "", &work)?;
    let results: Result<Vec<Reached>> = output.split(MARK).skip(1).map(read_result).collect();
    let results = results?;
    if results.len() == JOBS.len() {
        return Ok(results);
    }
    let detail = format!("{} of {} jobs have one", results.len(), JOBS.len());
    Err(LabError::Format { what: "the results of fio".into(), detail })
}

fn read_result(text: &str) -> Result<Reached> {
    let wrong = |detail: String| LabError::Format { what: "the result of a fio job".into(), detail };
    let (Some(start), Some(end)) = (text.find('{'), text.rfind('}')) else {
        return Err(wrong(text.chars().take(500).collect()));
    };
    let json = text.get(start..=end).unwrap_or_default();
    let value: Value = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
    let number = |way: &str, pointer: &str| {
        let path = format!("/jobs/0/{way}{pointer}");
        value.pointer(&path).and_then(Value::as_f64).ok_or_else(|| wrong(format!("it has no {path}")))
    };
    let p50 = |way: &str| number(way, "/clat_ns/percentile/50.000000").map(|ns| ns / 1e6);
    Ok(Reached {
        bytes_per_s: number("read", "/bw_bytes")? + number("write", "/bw_bytes")?,
        p50_ms: p50("read")?.max(p50("write")?),
    })
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Job { block_kib, write_percent, at_once, is_random } = self;
        let places = if *is_random { "random" } else { "sequential" };
        write!(f, "{block_kib} KiB, {write_percent} % writes, {at_once} at once, {places}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read() {
        let text = " ===\nfio: a note\n{\"jobs\": [{\"read\": {\"bw_bytes\": 1000, \"clat_ns\": {\"percentile\": \
                    {\"50.000000\": 2000000}}}, \"write\": {\"bw_bytes\": 500, \"clat_ns\": {\"percentile\": \
                    {\"50.000000\": 3000000}}}}]}\n";
        assert_eq!(read_result(text).unwrap(), Reached { bytes_per_s: 1500.0, p50_ms: 3.0 });
        assert!(read_result("fio: error").is_err() && read_result("{\"jobs\": []}").is_err());
    }

    #[test]
    fn every_size_and_depth_is_there() {
        for (block_kib, at_once) in [(4, 1), (4, 16), (64, 1), (64, 16), (128, 1), (128, 16)] {
            assert!(JOBS.iter().any(|job| job.block_kib == block_kib && job.at_once == at_once));
        }
    }
}
