//! Round trips: real clients in sealed sessions over the published link. Each row of the table is done without a WAN and
//! without the pair (floor), over the link without the pair (baseline), through a pair that has seen nothing (cold), and
//! through it again by a client that starts afresh (warm).

mod extras;
mod figures;
mod fio;
mod folders;
mod office;
mod rows;
mod site;

pub use figures::FIGURES;
pub use office::{OfficeArguments, run_office};

use super::{Context, Values, median};
use crate::progress::human_bytes;
use extras::EXTRAS;
use isthmus_lab::wan::WanShape;
use isthmus_lab::{Level, Result};
use rows::{FOLDER_FILES, ROWS, Row};
use site::{Ground, beside};

/// Numbers of the passes.
const FLOOR: usize = 0;
const BASELINE: usize = 1;
const COLD: usize = 2;
const WARM: usize = 3;

/// What the passes of a row have taken, in seconds and WAN bytes.
struct Passes {
    floor_s: f64,
    baseline_s: Option<f64>,
    cold: Pass,
    warm: Option<Pass>,
}

#[derive(Clone, Copy)]
struct Pass {
    seconds: f64,
    wan_bytes: f64,
}

/// Which passes are made beside the cold one.
#[derive(Clone, Copy)]
struct Wanted {
    floor: bool,
    baseline: bool,
    warm: bool,
}

/// The rows that are wanted.
pub fn measure(context: &mut Context) -> Result<Values> {
    let mut values = Values::new();
    let mut lines = vec![format!(
        "{:<38}{:>12}{:>10}{:>10}{:>10}{:>12}{:>12}",
        "236 ms, 29.3 down, 121.9 up, sealed", "baseline", "floor", "cold", "warm", "cold WAN", "warm WAN"
    )];
    let only = context.only.clone();
    for row in ROWS.iter().filter(|row| is_wanted(&only, row)) {
        if row.with_kernel && context.level != Level::Ip {
            context.note(format!("accel.{}: the kernel's client needs root", row.name));
            continue;
        }
        match repeat(context, row) {
            Ok(passes) => {
                lines.push(line(row, &passes));
                keep(&mut values, row, &passes);
            }
            Err(error) => context.fail(&format!("accel.{}", row.name), &error),
        }
    }
    for extra in EXTRAS.iter().filter(|extra| is_extra_wanted(&only, extra.name)) {
        match (extra.measure)(context, extra.name) {
            Ok(measured) => values.extend(measured),
            Err(error) => context.fail(extra.name, &error),
        }
    }
    lines.push("* not measured now: known from an earlier measurement".into());
    lines.into_iter().for_each(|line| context.note(line));
    Ok(values)
}

/// The medians of a row; its baseline, which may take minutes, is measured once.
fn repeat(context: &mut Context, row: &Row) -> Result<Passes> {
    let warm = needs_warm(&context.only, row);
    let mut all = Vec::new();
    for number in 0..context.repetitions {
        let wanted = Wanted { floor: true, baseline: number == 0 && context.has_baseline, warm };
        all.push(passes(context, row, WanShape::published(), wanted)?);
    }
    let middle = |of: &dyn Fn(&Passes) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = all.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| median(&values))
    };
    let pass = |of: &dyn Fn(&Passes) -> Option<Pass>| -> Option<Pass> {
        let seconds = middle(&|passes| of(passes).map(|pass| pass.seconds))?;
        let wan_bytes = middle(&|passes| of(passes).map(|pass| pass.wan_bytes))?;
        Some(Pass { seconds, wan_bytes })
    };
    let nothing = Pass { seconds: f64::NAN, wan_bytes: f64::NAN };
    Ok(Passes {
        floor_s: middle(&|passes| Some(passes.floor_s)).unwrap_or(f64::NAN),
        baseline_s: middle(&|passes| passes.baseline_s),
        cold: pass(&|passes| Some(passes.cold)).unwrap_or(nothing),
        warm: pass(&|passes| passes.warm),
    })
}

/// One server, one pair, and every pass once.
fn passes(context: &mut Context, row: &Row, shape: WanShape, wanted: Wanted) -> Result<Passes> {
    let mut ground = Ground::start(context, beside(), row.with_kernel)?;
    (row.prepare)(&ground.site(FLOOR))?;
    let mut floor_s = f64::NAN;
    if wanted.floor {
        floor_s = (row.work)(&ground.site(FLOOR))?;
        context.progress.step(&format!("accel.{}: floor {floor_s:.2} s", row.name));
    }
    ground.network.set_shape(shape);
    let mut baseline_s = None;
    if wanted.baseline {
        let seconds = (row.work)(&ground.site(BASELINE))?;
        context.progress.step(&format!("accel.{}: baseline {seconds:.2} s", row.name));
        baseline_s = Some(seconds);
    }
    let crossing = ground.cross(context, row.settings)?;
    let mut pass = |word: &str, number: usize| -> Result<Pass> {
        let site = crossing.site(number)?;
        let (seconds, measured) = crossing.rig.measure(|| (row.work)(&site))?;
        let wan = human_bytes(measured.wan_bytes as f64);
        context.progress.step(&format!("accel.{}: {word} {seconds:.2} s, {wan} WAN", row.name));
        Ok(Pass { seconds, wan_bytes: measured.wan_bytes as f64 })
    };
    let cold = pass("cold", COLD)?;
    let warm = if wanted.warm { Some(pass("warm", WARM)?) } else { None };
    Ok(Passes { floor_s, baseline_s, cold, warm })
}

/// Nothing named, the whole group, the row, one of its figures, or a start of these.
fn is_wanted(only: &[String], row: &Row) -> bool {
    let row_name = format!("accel.{}", row.name);
    let own = [row.cold, row.warm, row_name.as_str()];
    let mut names = own.iter().chain(row.derived);
    only.is_empty() || names.any(|name| only.iter().any(|only| is_at(name, only)))
}

/// Nothing named, the whole group, the figure, or something in it.
fn is_extra_wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|only| is_at(name, only) || is_at(only, name))
}

fn needs_warm(only: &[String], row: &Row) -> bool {
    // Only who asks for the cold figure alone can do without the other.
    let is_cold = |only: &String| only == row.cold && row.cold != format!("accel.{}", row.name);
    let named: Vec<&String> = only.iter().filter(|only| only.starts_with("accel")).collect();
    named.is_empty() || !named.iter().all(|only| is_cold(only))
}

/// Whether `only` is `name` or a start of it that ends between words.
fn is_at(name: &str, only: &str) -> bool {
    name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
}

fn keep(values: &mut Values, row: &Row, passes: &Passes) {
    let mut insert = |name: String, value: f64| values.insert(name, value);
    insert(row.cold.into(), passes.cold.seconds);
    insert(format!("accel.{}_cold_wan", row.name), passes.cold.wan_bytes);
    insert(format!("accel.{}_floor", row.name), passes.floor_s);
    if let Some(baseline) = passes.baseline_s {
        insert(format!("accel.{}_baseline", row.name), baseline);
    }
    if let Some(warm) = passes.warm {
        insert(row.warm.into(), warm.seconds);
        insert(format!("accel.{}_warm_wan", row.name), warm.wan_bytes);
    }
    if let [cold, warm] = row.derived {
        insert((*cold).into(), round_trips(passes.cold, passes.floor_s));
        if let Some(pass) = passes.warm {
            insert((*warm).into(), round_trips(pass, passes.floor_s));
        }
    }
}

/// Round trips for each file: the time that neither the client itself nor the link's rate explains.
fn round_trips(pass: Pass, floor_s: f64) -> f64 {
    let shape = WanShape::published();
    let link_s = shape.down.transmission_time(pass.wan_bytes as u64).as_secs_f64();
    let left_s = (pass.seconds - link_s.max(floor_s)).max(0.0);
    left_s / shape.round_trip().as_secs_f64() / FOLDER_FILES as f64
}

fn line(row: &Row, passes: &Passes) -> String {
    let seconds = |value: f64| format!("{value:.2} s");
    let known = || row.known_baseline_s.map_or("—".into(), |value| format!("{value:.2} s*"));
    let baseline = passes.baseline_s.map_or_else(known, seconds);
    let warm = |show: fn(Pass) -> String| passes.warm.map_or("—".into(), show);
    format!(
        "{:<38}{baseline:>12}{:>10}{:>10}{:>10}{:>12}{:>12}",
        row.what,
        seconds(passes.floor_s),
        seconds(passes.cold.seconds),
        warm(|pass| format!("{:.2} s", pass.seconds)),
        human_bytes(passes.cold.wan_bytes),
        warm(|pass| human_bytes(pass.wan_bytes)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn a_row_is_selected_by_its_figures() {
        let wanted = |only: &str, name: &str| is_wanted(&[only.to_string()], row(name));
        assert!(is_wanted(&[], row("mget")) && wanted("accel", "mget"));
        assert!(wanted("accel.mget", "mget") && wanted("accel.mget_warm", "mget"));
        assert!(!wanted("accel.mget_warm", "tree_down") && !wanted("accel.s", "stat"));
        assert!(wanted("accel.rtt_file", "tree_down") && wanted("accel.stat", "stat"));
        assert!(wanted("accel.tree_down_cold", "tree_down") && !wanted("accel.tree_down_cold", "tree_up"));
    }

    #[test]
    fn only_a_cold_figure_alone_spares_the_warm_pass() {
        let needs = |only: &str, name: &str| needs_warm(&[only.to_string()], row(name));
        assert!(!needs("accel.mget_cold", "mget") && needs("accel.mget_warm", "mget"));
        assert!(needs("accel.mget", "mget") && needs("accel", "mget") && needs("accel.stat", "stat"));
        assert!(needs_warm(&[], row("ls")));
    }

    #[test]
    fn every_row_has_its_figures() {
        let has = |name: &str| FIGURES.iter().any(|figure| figure.name == name);
        for row in ROWS {
            assert!(has(row.warm), "{}", row.name);
            assert!(row.derived.iter().all(|name| has(name)), "{}", row.name);
        }
    }

    #[test]
    fn round_trips_are_what_neither_client_nor_rate_explains() {
        let rtt = WanShape::published().round_trip().as_secs_f64();
        let slow = Pass { seconds: 2.0 + 400.0 * rtt, wan_bytes: 1_000.0 };
        assert!((round_trips(slow, 2.0) - 2.0).abs() < 1e-9);
        let full = Pass { seconds: 5.0, wan_bytes: 19_706_384.0 };
        assert_eq!(round_trips(full, 2.0), 0.0);
    }
}
