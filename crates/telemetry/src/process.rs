//! What the kernel says of this process. Empty where there is no /proc.

use std::fs;

/// What the kernel says of this process, for diagnosis. What it does not say is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// Effective user.
    pub uid: Option<u32>,
    /// Effective capabilities (capabilities(7)), as the kernel's bit set.
    pub capabilities: Option<u64>,
    pub threads: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub open_files: Option<u64>,
    pub open_files_max: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
}

/// Looks at this process.
pub fn process() -> Process {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    Process {
        pid: std::process::id(),
        // Real, effective, saved, of files.
        uid: words(&status, "Uid:").and_then(|mut ids| ids.nth(1)?.parse().ok()),
        capabilities: words(&status, "CapEff:")
            .and_then(|mut sets| u64::from_str_radix(sets.next()?, 16).ok()),
        threads: words(&status, "Threads:").and_then(|mut count| count.next()?.parse().ok()),
        resident_bytes: parse_resident(&status),
        open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        // Soft limit, hard limit, unit.
        open_files_max: words(&limits, "Max open files").and_then(|mut most| most.next()?.parse().ok()),
        kernel: kernel.map(|release| release.trim().to_owned()),
    }
}

/// The words behind `label` at the start of a line.
fn words<'t>(text: &'t str, label: &str) -> Option<std::str::SplitWhitespace<'t>> {
    text.lines().find_map(|line| line.strip_prefix(label)).map(str::split_whitespace)
}

/// Ticks a second in /proc/PID/stat: `USER_HZ`, which the kernel keeps at 100 for user space on every architecture
/// this program is built for (proc(5)).
const USER_HZ: f64 = 100.0;

/// User and system CPU time since the process started, in seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    parse_cpu(&stat)
}

/// Resident memory, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    parse_resident(&status)
}

/// The command name, in brackets, may hold spaces and brackets: the fields are counted from its last bracket.
/// utime and stime are fields 14 and 15 of proc(5).
fn parse_cpu(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some((user + system) as f64 / USER_HZ)
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_described() {
        let this = process();
        assert_eq!(this.pid, std::process::id());
        assert!(this.uid.is_some() && this.capabilities.is_some() && this.kernel.is_some(), "{this:?}");
        assert!(this.open_files > Some(2) && this.open_files_max >= this.open_files, "{this:?}");
    }

    #[test]
    fn reads_the_fields_of_proc_5() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 8 0 100 1 1";
        assert_eq!(parse_cpu(stat), Some(1.75));
        assert_eq!(parse_cpu("7 (a"), None);
        assert_eq!(parse_resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
    }
}
