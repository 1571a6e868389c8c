//! The figures of the group.

use crate::bench::figures::{Figure, Goal, Unit, figure};
use Goal::{AtLeast, AtMost};
use Unit::Number;

/// In the order of the report. Beside each stands the same work over the same link without a pair, as once measured with
/// care; every run that has the time measures it again.
pub const FIGURES: &[Figure] = &[
    seconds("accel.tree_down_cold", "kernel cp -r, 200 files, 19.7 MB, down, cold", "no pair: 229 s", 9.0),
    seconds("accel.tree_down_warm", "the same, warm", "no pair: 229 s", 4.0),
    seconds("accel.tree_up_cold", "the same, up, cold", "no pair: 169 s", 105.0),
    seconds("accel.tree_up_warm", "the same, up, warm", "no pair: 169 s", 105.0),
    seconds("accel.tree_up_early", "the same, up, cold, early close", "no pair: 169 s", 55.0),
    seconds("accel.tree_up_early_warm", "the same, warm", "no pair: 169 s", 52.0),
    seconds("accel.mget_cold", "smbclient mget of the 200, cold", "no pair: 202 s", 10.0),
    seconds("accel.mget_warm", "the same, warm", "no pair: 202 s", 5.0),
    seconds("accel.pdf_down_cold", "kernel cp of 100 MB down, cold", "no pair: 30.8 s", 29.8),
    seconds("accel.pdf_down_warm", "the same, warm", "no pair: 30.8 s", 3.8),
    seconds("accel.pdf_up_cold", "kernel cp of 100 MB up, cold", "no pair: 12.7 s", 8.8),
    seconds("accel.pdf_up_warm", "the same, warm", "no pair: 12.7 s", 3.7),
    seconds("accel.stat", "find | xargs stat over the 200, cold", "no pair: 60 s", 2.0),
    seconds("accel.stat_warm", "the same, warm", "no pair: 60 s", 1.0),
    seconds("accel.ls", "ls -lR of the 200, cold", "no pair: 1.6 s", 1.0),
    seconds("accel.ls_warm", "the same, warm", "no pair: 1.6 s", 0.6),
    seconds("accel.open", "office document of 10 MB, open, cold", "no pair: 6.9 s", 4.0),
    seconds("accel.open_warm", "the same, warm", "no pair: 6.9 s", 1.5),
    seconds("accel.save", "the same, save, cold", "no pair: 5.6 s", 3.0),
    seconds("accel.save_warm", "the same, save, warm", "no pair: 5.6 s", 2.5),
    seconds("accel.word_open", "document of 99.5 MB, open, warm", "commercial pair: 13.6 s", 5.0),
    seconds("accel.word_save", "the same, save, warm", "commercial pair: 16.7 s", 9.0),
    figure(
        "accel.rtt_file",
        "serial round trips a file, down, cold",
        Number(""),
        "no pair: 4.7",
        AtMost(0.1),
    ),
    figure("accel.rtt_file_warm", "the same, warm", Number(""), "no pair: 4.7", AtMost(0.05)),
    figure(
        "accel.near20",
        "the worst row at 20 ms, 1 Gbit/s: direct over ours",
        Number(""),
        "—",
        AtLeast(0.95),
    ),
    figure("accel.near1", "the same at 1 ms", Number(""), "—", AtLeast(0.8)),
    figure("accel.waste", "a walk that reads nothing: extra WAN bytes", Number(""), "—", AtMost(0.1)),
    figure(
        "accel.fio_share",
        "fio, file held and warm, 34 ms: worst share of floor",
        Number(""),
        "local-cache gateway: 50 MB/s",
        AtLeast(0.7),
    ),
    figure(
        "accel.fio_ms_added",
        "the same: p50 over the floor's",
        Number("ms"),
        "local-cache gateway: 3.7 ms",
        AtMost(2.0),
    ),
    seconds("accel.big_cold", "1,992 files, 1.95 GB, down, cold (--full)", "commercial pair: 2,411 s", 620.0),
    seconds("accel.big_warm", "the same, warm (--full)", "commercial pair: 1,584 s", 90.0),
    figure("accel.big_tenth_cold", "a tenth of it, cold", Number("s"), "—", Goal::None),
    figure("accel.big_tenth_warm", "the same, warm", Number("s"), "—", Goal::None),
    seconds(
        "accel.t1_cold",
        "1,004 files, 1.5 Mbit/s, 500 ms, cold (--full)",
        "commercial pair: 1,619 s",
        120.0,
    ),
    seconds("accel.t1_warm", "the same, warm (--full)", "commercial pair: 1,223 s", 30.0),
    figure("accel.local_share", "8 warm readers, over the client's own floor", Number(""), "—", AtLeast(0.7)),
];

const fn seconds(name: &'static str, what: &'static str, competitor: &'static str, limit: f64) -> Figure {
    figure(name, what, Number("s"), competitor, AtMost(limit))
}
