use super::summary::directions;
use super::unix;
use isthmus_telemetry::{Point, Series, Span, Telemetry};
use isthmus_types::Side;
use serde::{Deserialize, Serialize};
use std::time::{Instant, SystemTime};

#[derive(Clone, Copy, Deserialize)]
pub(crate) enum SpanParam {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    Day,
}

#[derive(Deserialize)]
pub(crate) struct HistoryQuery {
    span: Option<SpanParam>,
}

/// Columns of equal length: value `i` is what crossed in the step that ended `len − 1 − i` steps before `end`.
#[derive(Serialize)]
pub(crate) struct HistoryView {
    span: &'static str,
    step_seconds: u64,
    end: f64,
    lan_up: Vec<u64>,
    lan_down: Vec<u64>,
    wan_up: Vec<u64>,
    wan_down: Vec<u64>,
    passed: Vec<u64>,
    connections: Vec<u64>,
}

pub(crate) fn history(telemetry: &Telemetry, side: Side, query: &HistoryQuery) -> HistoryView {
    let (span, name) = match query.span {
        None | Some(SpanParam::Hour) => (Span::Hour, "1h"),
        Some(SpanParam::Day) => (Span::Day, "24h"),
    };
    let series = telemetry.history(|history| history.series(span, Instant::now()));
    let column = |value: fn(&Point) -> u64| series.points.iter().map(value).collect::<Vec<u64>>();
    let sent = column(|point| point.traffic.wan_sent);
    let received = column(|point| point.traffic.wan_received);
    let (wan_up, wan_down) = directions(side, sent, received);
    HistoryView {
        span: name,
        step_seconds: series.step.as_secs(),
        end: end(&series),
        lan_up: column(|point| point.traffic.lan_up),
        lan_down: column(|point| point.traffic.lan_down),
        wan_up,
        wan_down,
        passed: column(|point| point.traffic.passed),
        connections: column(|point| point.connections),
    }
}

fn end(series: &Series) -> f64 {
    SystemTime::now().checked_sub(series.ended).map(unix).unwrap_or_default()
}
