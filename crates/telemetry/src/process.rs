//! What the kernel says of this process. Empty where there is no /proc.

use std::fs;

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

    #[test]
    fn reads_the_fields_of_proc_5() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 150 25 0 0 20 0 8 0 100 1 1";
        assert_eq!(parse_cpu(stat), Some(1.75));
        assert_eq!(parse_cpu("7 (a"), None);
        assert_eq!(parse_resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
    }
}
