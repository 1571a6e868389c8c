//! The figures: what each is, what the best open pair reaches, and the goal.

/// A goal for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The figure must not be above this.
    AtMost(f64),
    /// The figure must not be below this.
    AtLeast(f64),
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
pub const FIGURES: &[Figure] = &[
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
        "incompressible, loopback, over a plain relay pair",
        Number(""),
        "—",
        AtLeast(0.35),
    ),
    figure("idle.kb", "an idle connection, the larger side, kernel counted", Number("KB"), "—", AtMost(64.0)),
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
];

const fn figure(
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
        }
    }

    /// For the report.
    pub fn show(self, unit: Unit) -> String {
        match self {
            AtMost(limit) => format!("≤ {}", unit.show(limit)),
            AtLeast(limit) => format!("≥ {}", unit.show(limit)),
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
        let names: HashSet<_> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        assert!(names.iter().all(|name| name.split('.').count() == 2));
    }

    #[test]
    fn goals_hold_at_their_limit() {
        assert!(AtMost(2.0).is_met(2.0) && !AtMost(2.0).is_met(2.01));
        assert!(AtLeast(15.0).is_met(15.0) && !AtLeast(15.0).is_met(14.9));
        assert_eq!(AtMost(60e3).show(Bytes), "≤ 60.0 kB");
        assert_eq!(Number("ms").show(0.5), "0.500 ms");
        assert_eq!(Number("×").show(1.8), "1.80×");
    }
}
