//! The figures: what each is, what the best open pair reaches, and the goal.

/// A goal for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The figure must not be above this.
    AtMost(f64),
    /// The figure must not be below this.
    AtLeast(f64),
    /// The figure is only shown.
    None,
}

/// How a figure is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, printed with a prefix.
    Bytes,
    /// A number with this word after it (empty for a ratio).
    Number(&'static str),
}

/// One figure of the benchmark.
#[derive(Debug)]
pub struct Figure {
    /// Its name in the JSON file: group, dot, name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How it is printed.
    pub unit: Unit,
    /// What the best open pair reaches on the same work, in words.
    pub competitor: &'static str,
    /// The goal.
    pub goal: Goal,
}

use Goal::{AtLeast, AtMost};
use Unit::{Bytes, Number};

/// All figures in the order of the report.
pub fn all_figures() -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().chain(super::accel::FIGURES)
}

/// Those that are not in a table of their group.
const FIGURES: &[Figure] = &[
    figure("mixed.cold_wan", "mixed file of 200 MiB, cold", Bytes, "96.3 MB", AtMost(91e6)),
    figure("mixed.warm_wan", "the same, warm", Bytes, "0.99 MB (211×)", AtMost(60e3)),
    figure("mixed.edited_wan", "edited, after warm", Bytes, "1.56 MB (134×)", AtMost(200e3)),
    figure("mixed.cross_wan", "download of what was uploaded", Bytes, "cold again", AtMost(60e3)),
    figure(
        "mixed.enc_cpu_cold",
        "processor time of the encoding proxy, cold",
        Number("s"),
        "7.5–16.8 s",
        AtMost(2.0),
    ),
    figure("mixed.enc_cpu_warm", "the same, warm", Number("s"), "0.7–1.4 s", AtMost(0.35)),
    figure("mixed.dec_cpu_warm", "of the decoding proxy, warm", Number("s"), "0.3–0.9 s", AtMost(0.35)),
    figure(
        "mixed.time_cold",
        "time at 100 Mbit/s, 50 ms over direct, cold",
        Number(""),
        "0.85–1.5",
        AtMost(0.55),
    ),
    figure("mixed.time_warm", "the same, warm", Number(""), "0.10", AtMost(0.05)),
    figure("echo.p50_added", "60-byte echo at 40 ms, added, median", Number("ms"), "0.8 ms", AtMost(0.5)),
    figure("echo.p99_added", "the same, 99th percentile", Number("ms"), "150 ms", AtMost(3.0)),
    figure("parallel.wan", "4 parallel cold downloads over one", Number("×"), "1.8×", AtMost(1.1)),
    figure("mixed.rss", "resident memory, the larger side", Number("MB"), "28–353 MB", AtMost(128.0)),
    figure(
        "random.share",
        "incompressible, loopback, over relays: 1 cold, 4 warm",
        Number(""),
        "—",
        AtLeast(0.35),
    ),
    figure("random.share_cold", "the same, each content cold", Number(""), "—", Goal::None),
    figure("idle.kb", "an idle connection, the larger side, kernel counted", Number("KB"), "—", AtMost(64.0)),
    figure("idle.wakeups", "wake-ups of an idle client side", Number("/s"), "—", AtMost(1.0)),
    figure(
        "passthrough.cps",
        "new connections a second, passed through, none failing",
        Number("/s"),
        "—",
        AtLeast(1_000.0),
    ),
    figure("passthrough.share", "throughput passed through over direct", Number(""), "—", AtLeast(0.45)),
    figure("passthrough.share_1g", "the same at 1 Gbit/s", Number(""), "—", AtLeast(0.95)),
    figure(
        "edits.ratio",
        "edited files: v2 over WAN, v1 known",
        Number("×"),
        "about 5× (chunks + zstd)",
        AtLeast(15.0),
    ),
    figure(
        "corpus.cold",
        "office, cad, pdf: LAN over WAN, cold",
        Number("×"),
        "1.93× (zstd −3, one stream)",
        AtLeast(1.9),
    ),
    figure("corpus.warm", "the same, warm", Number("×"), "—", AtLeast(500.0)),
    figure("store.mb", "memory for 5 M chunks", Number("MB"), "1,190 MB (sled)", AtMost(120.0)),
    figure("store.open", "opening after kill −9", Number("s"), "7 s (sled)", AtMost(2.0)),
    figure("store.lookup", "a lookup", Number("µs"), "5.3 µs (sled)", AtMost(0.3)),
    figure(
        "smb.seal_warm_wan",
        "SMB 3.1.1 sealed, 100 MB, warm download",
        Bytes,
        "9.2 MB for 981.5 MB (106.7×)",
        AtMost(100e3),
    ),
    figure("smb.seal_cold_share", "the same, cold, over clear text", Number(""), "—", AtMost(1.02)),
    figure("smb.seal_cross_wan", "the same, download of what was uploaded", Bytes, "—", AtMost(100e3)),
    figure("smb.read64k_warm_wan", "the same, warm, 64 KiB reads", Bytes, "—", AtMost(250e3)),
    figure("smb.small_op_wan", "a request or answer of a warm small file", Number("B"), "—", AtMost(60.0)),
    figure("smb.added_p50", "a READ on loopback, added, median", Number("ms"), "—", AtMost(0.5)),
    figure(
        "smb.cpu_gmac_cold_near",
        "CPU a GB, signed GMAC, cold, client side",
        Number("s"),
        "one core: GMAC 27 GB/s",
        AtMost(4.0),
    ),
    figure(
        "smb.cpu_gmac_cold_far",
        "CPU a GB, signed GMAC, cold, server side",
        Number("s"),
        "one core: GMAC 27 GB/s",
        AtMost(4.0),
    ),
    figure(
        "smb.cpu_gmac_warm_near",
        "CPU a GB, signed GMAC, warm, client side",
        Number("s"),
        "one core: GMAC 27 GB/s",
        AtMost(1.7),
    ),
    figure(
        "smb.cpu_gmac_warm_far",
        "CPU a GB, signed GMAC, warm, server side",
        Number("s"),
        "one core: GMAC 27 GB/s",
        AtMost(1.7),
    ),
    figure(
        "smb.cpu_cmac_cold_near",
        "CPU a GB, signed CMAC, cold, client side",
        Number("s"),
        "one core: CMAC 1.3 GB/s",
        AtMost(4.9),
    ),
    figure(
        "smb.cpu_cmac_cold_far",
        "CPU a GB, signed CMAC, cold, server side",
        Number("s"),
        "one core: CMAC 1.3 GB/s",
        AtMost(4.9),
    ),
    figure(
        "smb.cpu_cmac_warm_near",
        "CPU a GB, signed CMAC, warm, client side",
        Number("s"),
        "one core: CMAC 1.3 GB/s",
        AtMost(2.6),
    ),
    figure(
        "smb.cpu_cmac_warm_far",
        "CPU a GB, signed CMAC, warm, server side",
        Number("s"),
        "one core: CMAC 1.3 GB/s",
        AtMost(2.6),
    ),
    figure(
        "smb.cpu_gcm_cold_near",
        "CPU a GB, sealed GCM, cold, client side",
        Number("s"),
        "one core: GCM 14 GB/s",
        AtMost(4.1),
    ),
    figure(
        "smb.cpu_gcm_cold_far",
        "CPU a GB, sealed GCM, cold, server side",
        Number("s"),
        "one core: GCM 14 GB/s",
        AtMost(4.1),
    ),
    figure(
        "smb.cpu_gcm_warm_near",
        "CPU a GB, sealed GCM, warm, client side",
        Number("s"),
        "one core: GCM 14 GB/s",
        AtMost(1.8),
    ),
    figure(
        "smb.cpu_gcm_warm_far",
        "CPU a GB, sealed GCM, warm, server side",
        Number("s"),
        "one core: GCM 14 GB/s",
        AtMost(1.8),
    ),
    figure(
        "smb.cpu_ccm_cold_near",
        "CPU a GB, sealed CCM, cold, client side",
        Number("s"),
        "one core: CCM 0.95 GB/s",
        AtMost(5.2),
    ),
    figure(
        "smb.cpu_ccm_cold_far",
        "CPU a GB, sealed CCM, cold, server side",
        Number("s"),
        "one core: CCM 0.95 GB/s",
        AtMost(5.2),
    ),
    figure(
        "smb.cpu_ccm_warm_near",
        "CPU a GB, sealed CCM, warm, client side",
        Number("s"),
        "one core: CCM 0.95 GB/s",
        AtMost(2.9),
    ),
    figure(
        "smb.cpu_ccm_warm_far",
        "CPU a GB, sealed CCM, warm, server side",
        Number("s"),
        "one core: CCM 0.95 GB/s",
        AtMost(2.9),
    ),
    figure(
        "warm.wan_share",
        "1,000 small files read in advance: WAN over LAN, first copy",
        Number(""),
        "—",
        AtMost(0.02),
    ),
];

/// A figure; its group is the word before the dot.
pub const fn figure(
    name: &'static str,
    what: &'static str,
    unit: Unit,
    competitor: &'static str,
    goal: Goal,
) -> Figure {
    Figure { name, what, unit, competitor, goal }
}

impl Goal {
    /// Whether a value reaches it.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            AtMost(limit) => value <= limit,
            AtLeast(limit) => value >= limit,
            Goal::None => true,
        }
    }

    /// For the report.
    pub fn show(self, unit: Unit) -> String {
        match self {
            AtMost(limit) => format!("≤ {}", unit.show(limit)),
            AtLeast(limit) => format!("≥ {}", unit.show(limit)),
            Goal::None => "—".to_string(),
        }
    }
}

impl Unit {
    /// For the report.
    pub fn show(self, value: f64) -> String {
        match self {
            Bytes => crate::progress::human_bytes(value),
            Number(word) => {
                let digits = match value.abs() {
                    v if v >= 100.0 => 0,
                    v if v >= 10.0 => 1,
                    v if v >= 1.0 => 2,
                    _ => 3,
                };
                let space = if word.is_empty() || word == "×" { "" } else { " " };
                format!("{value:.digits$}{space}{word}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_have_a_group() {
        let names: HashSet<_> = all_figures().map(|figure| figure.name).collect();
        assert_eq!(names.len(), all_figures().count());
        assert!(names.iter().all(|name| name.split('.').count() == 2));
    }

    #[test]
    fn goals_hold_at_their_limit() {
        assert!(AtMost(2.0).is_met(2.0) && !AtMost(2.0).is_met(2.01));
        assert!(AtLeast(15.0).is_met(15.0) && !AtLeast(15.0).is_met(14.9));
        assert_eq!(AtMost(60e3).show(Bytes), "≤ 60.0 kB");
        assert_eq!((Goal::None.is_met(9e9), Goal::None.show(Bytes)), (true, "—".to_string()));
        assert_eq!(Number("ms").show(0.5), "0.500 ms");
        assert_eq!(Number("×").show(1.8), "1.80×");
    }
}
