//! What is no row of the table: near links, waste, and the share of what the client can do.

use super::super::{Context, Values, median};
use super::rows::{EIGHT_STREAMS, ROWS, store_folder, walk};
use super::site::Ground;
use super::{BASELINE, COLD, Wanted, is_at, passes};
use super::{fio, folders};
use crate::progress::human_bytes;
use isthmus_lab::wan::WanShape;
use isthmus_lab::{Level, Result};
use std::time::Duration;

/// Rate of the near links.
const NEAR_BPS: u64 = 1_000_000_000;

/// Round trip of the link on which the walk is counted: its bytes are the same on any link.
const WALK_ROUND_TRIP: Duration = Duration::from_millis(20);

/// A figure and its measurement.
pub struct Extra {
    pub name: &'static str,
    pub measure: fn(&mut Context, &'static str) -> Result<Values>,
}

/// All of them.
pub const EXTRAS: &[Extra] = &[
    Extra { name: "accel.near20", measure: |context, name| near(context, name, Duration::from_millis(20)) },
    Extra { name: "accel.near1", measure: |context, name| near(context, name, Duration::from_millis(1)) },
    Extra { name: "accel.waste", measure: waste },
    Extra { name: "accel.local_share", measure: local_share },
    Extra { name: "accel.fio", measure: fio::measure },
    Extra { name: "accel.big", measure: folders::measure_big },
    Extra { name: "accel.t1", measure: folders::measure_slow },
];

/// The worst of all rows: the median time without the pair over the median time through it. `--only NAME.ROW` takes one row.
fn near(context: &mut Context, name: &'static str, round_trip: Duration) -> Result<Values> {
    let shape = WanShape::symmetric(round_trip, Some(NEAR_BPS));
    let mut worst = f64::INFINITY;
    let mut values = Values::new();
    for row in ROWS.iter().filter(|row| row.is_near) {
        let full = format!("{name}.{}", row.name);
        let is_named = context.only.iter().any(|only| is_at(&full, only));
        if !(context.only.is_empty() || is_named) || (row.with_kernel && context.level != Level::Ip) {
            continue;
        }
        let (mut direct, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..context.repetitions {
            let all = passes(context, row, shape, Wanted { floor: false, baseline: true, warm: true })?;
            direct.extend(all.baseline_s);
            cold.push(all.cold.seconds);
            warm.extend(all.warm.map(|pass| pass.seconds));
        }
        let (direct, cold, warm) = (median(&direct), median(&cold), median(&warm));
        let ratio = (direct / cold).min(direct / warm);
        context.note(format!("{full}: direct {direct:.2} s, cold {cold:.2} s, warm {warm:.2} s: {ratio:.2}"));
        values.insert(full, ratio);
        worst = worst.min(ratio);
    }
    values.insert(name.into(), worst);
    Ok(values)
}

/// Bytes that a walk of a folder of which no file is read costs beyond those that it costs without acceleration, as a share.
fn waste(context: &mut Context, name: &'static str) -> Result<Values> {
    if context.level != Level::Ip {
        context.note(format!("{name}: the kernel's client needs root"));
        return Ok(Values::new());
    }
    let mut shares = Vec::new();
    for _ in 0..context.repetitions {
        let plain = walk_bytes(context, &["smb.acceleration=off"])?;
        let accelerated = walk_bytes(context, &[])?;
        context.progress.step(&format!(
            "{name}: a walk crosses in {} without acceleration, in {} with it",
            human_bytes(plain),
            human_bytes(accelerated)
        ));
        shares.push((accelerated / plain - 1.0).max(0.0));
    }
    Ok([(name.to_string(), median(&shares))].into())
}

/// WAN bytes of a walk through a pair that knows nothing.
fn walk_bytes(context: &Context, settings: &[&str]) -> Result<f64> {
    let ground = Ground::start(context, WanShape::symmetric(WALK_ROUND_TRIP, Some(NEAR_BPS)), true)?;
    store_folder(&ground.site(BASELINE))?;
    let crossing = ground.cross(context, settings)?;
    let site = crossing.site(COLD)?;
    let (_, measured) = crossing.rig.measure(|| walk(&site))?;
    Ok(measured.wan_bytes as f64)
}

/// Warm reads of eight streams: the client's time beside the server over its time through the pair.
fn local_share(context: &mut Context, name: &'static str) -> Result<Values> {
    if context.level != Level::Ip {
        context.note(format!("{name}: the kernel's client needs root"));
        return Ok(Values::new());
    }
    let mut shares = Vec::new();
    for _ in 0..context.repetitions {
        let wanted = Wanted { floor: true, baseline: false, warm: true };
        let all = passes(context, &EIGHT_STREAMS, WanShape::published(), wanted)?;
        shares.extend(all.warm.map(|warm| all.floor_s / warm.seconds));
    }
    Ok([(name.to_string(), median(&shares))].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_have_figures_and_names_of_their_own() {
        for extra in EXTRAS {
            assert!(
                super::super::FIGURES.iter().any(|figure| is_at(figure.name, extra.name)),
                "{}",
                extra.name
            );
            assert!(ROWS.iter().all(|row| !extra.name.ends_with(row.name)), "{}", extra.name);
        }
    }
}
